"""The simplex with an upper limit on each weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelweave.protocols import Polyhedron
from kernelweave.weights.polyhedral import PolyhedralSet
from kernelweave.weights.programs import box_maximizer

__all__ = ["CappedSimplex"]

#: Slack in the sum of the caps that counts as zero.
NO_ROOM = 1e-9


class CappedSimplex(PolyhedralSet):
    """``{ w >= 0 : sum_i w_i = 1, w_i <= cap_i }``: no kernel exceeds its share.

    With ``cap = 1 / c`` at least c kernels have nonzero weight.

    Parameters
    ----------
    cap : float or sequence of shape (m,)
        The largest weight allowed: one number for all weights, or one per weight. A
        learned regularisation counts as a weight, the first one.
    """

    offers = frozenset({"polyhedron", "sparse"})

    def __init__(self, cap: float | Sequence[float] | np.ndarray) -> None:
        self.cap = np.asarray(cap, dtype=np.float64)
        if self.cap.ndim > 1 or not np.all((self.cap > 0) & np.isfinite(self.cap)):
            raise ValueError(
                f"cap must be a number > 0, or one such number per weight; got {cap!r}"
            )

    def polyhedron(self, m: int) -> Polyhedron:
        """The sum, the signs and the caps."""
        return Polyhedron.sum_to_one(m, high=self._caps(m))

    def start(self, m: int) -> np.ndarray:
        """Weights proportional to their caps."""
        caps = self._caps(m)
        return caps / np.sum(caps)

    def is_point(self, m: int) -> bool:
        """Whether the caps leave no choice."""
        return m == 1 or bool(np.sum(self._caps(m)) <= 1.0 + NO_ROOM)

    def support(self, scores: np.ndarray) -> float:
        """Weights raised to their caps, best score first, until the sum is 1."""
        return float(scores @ self.maximizer(scores))

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """The weights that attain :meth:`support`."""
        return box_maximizer(scores, self.polyhedron(len(scores)).limits)

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """``min(cap, t w)`` with the t that makes the sum 1.

        If too few weights are positive, the others share the remainder.
        """
        caps, positive = self._caps(len(weights)), weights > 0
        if np.sum(caps[positive]) <= 1.0:
            filled = np.where(positive, caps, 0.0)
            room = float(np.sum(caps[~positive])) or 1.0
            return np.where(positive, caps, (1.0 - np.sum(filled)) / room * caps)
        reach = np.full(len(weights), np.inf)  # the t at which a weight is at its cap
        reach[positive] = caps[positive] / weights[positive]
        order = np.argsort(reach)
        full = np.cumsum(caps[order]) - caps[order]
        left = np.cumsum(weights[order][::-1])[::-1]
        # With j weights at their caps, t = (1 - their sum) / the sum of the others.
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = (1.0 - full) / left
        j = int(np.argmax(factors <= reach[order] * (1.0 + 1e-15)))
        return np.minimum(caps, factors[j] * weights)

    def __repr__(self) -> str:
        shown = f"{float(self.cap):g}" if self.cap.ndim == 0 else "[...]"
        return f"CappedSimplex({shown})"

    def _caps(self, m: int) -> np.ndarray:
        """The largest value of each of m weights, (m,)."""
        if self.cap.ndim == 1 and len(self.cap) != m:
            raise ValueError(f"{self!r} has {len(self.cap)} caps for {m} weights")
        caps = np.minimum(np.broadcast_to(self.cap, (m,)), 1.0)
        if np.sum(caps) < 1.0 - NO_ROOM:
            raise ValueError(
                f"{self!r}: {m} weights within their caps sum to at most "
                f"{np.sum(caps):.3g}, not to 1; raise the cap"
            )
        return caps

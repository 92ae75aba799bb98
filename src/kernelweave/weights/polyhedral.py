"""A weight set defined by its linear constraints alone."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from kernelweave.protocols import Polyhedron, WeightSet
from kernelweave.weights.programs import linear_program

__all__ = ["PolyhedralSet"]


class PolyhedralSet(WeightSet):
    """``{ w : A w = b, C w <= d, 0 <= low <= w <= high }`` with finite limits.

    A subclass states its constraints in :meth:`polyhedron`; linear programs supply
    everything else that a weight set needs.
    """

    offers = frozenset({"polyhedron"})
    power = 1.0

    @abstractmethod
    def polyhedron(self, m: int) -> Polyhedron:
        """The constraints on m weights."""

    def start(self, m: int) -> np.ndarray:
        """The point furthest from its nearest inequality, (m,).

        Raises
        ------
        ValueError
            If no weights satisfy all constraints.
        """
        return self._centre(m)[0]

    def is_point(self, m: int) -> bool:
        """Whether some inequality has no slack anywhere."""
        return m == 1 or self._centre(m)[1] <= 1e-9

    def support(self, scores: np.ndarray) -> float:
        """``max <scores, w>``, bounded from above by the multipliers of its program.

        For any multipliers y >= 0 of ``C w <= d`` and x of ``A w = b``, the maximum is
        at most ``<y, d> + <x, b>`` plus the maximum of ``<scores - C'y - A'x, w>``
        within the limits.
        """
        allowed, (_, prices, equal_prices) = self._solved(scores)
        rest = scores - allowed.below.T @ prices - allowed.equal.T @ equal_prices
        within = np.max(rest[:, None] * allowed.limits, axis=1)
        bound = prices @ allowed.below_to + equal_prices @ allowed.equal_to
        return float(bound + np.sum(within))

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """A vertex where :meth:`support` is attained, (m,)."""
        return self.scale(self._solved(scores)[1][0])

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """The nearest solution of the equations, pulled inside towards the start."""
        m = len(weights)
        allowed, centre = self.polyhedron(m), self.start(m)
        off = allowed.equal @ weights - allowed.equal_to
        step = weights - np.linalg.pinv(allowed.equal) @ off - centre
        rows, room = _inequalities(allowed)
        slack, change = room - rows @ centre, rows @ step
        closing = change > 0.0
        ratios = np.maximum(slack[closing], 0.0) / change[closing]
        return centre + min(1.0, float(np.min(ratios, initial=np.inf))) * step

    def violation(self, weights: np.ndarray) -> float:
        """The largest violation of a constraint; 0 inside."""
        allowed = self.polyhedron(len(weights))
        rows, room = _inequalities(allowed)
        missed = [
            rows @ weights - room,
            np.abs(allowed.equal @ weights - allowed.equal_to),
        ]
        return float(np.max(np.concatenate([*missed, [0.0]])))

    def _centre(self, m: int) -> tuple[np.ndarray, float]:
        """The point deepest inside the set, and its depth."""
        allowed = self.polyhedron(m)
        rows, room = _inequalities(allowed)
        deeper = Polyhedron(
            np.column_stack([allowed.equal, np.zeros(len(allowed.equal))]),
            allowed.equal_to,
            np.column_stack([rows, np.linalg.norm(rows, axis=1)]),
            room,
            np.tile([-np.inf, np.inf], (m + 1, 1)),
        )
        answer = linear_program(np.append(np.zeros(m), -1.0), deeper)
        if answer is None or answer[0][-1] < -1e-9:
            raise ValueError(f"no {m} weights satisfy all constraints of {self!r}")
        return answer[0][:-1], float(answer[0][-1])

    def _solved(
        self, scores: np.ndarray
    ) -> tuple[Polyhedron, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        scores = np.asarray(scores, dtype=np.float64)
        allowed = self.polyhedron(len(scores))
        if not np.all(np.isfinite(allowed.limits)):
            i = int(np.argmin(np.all(np.isfinite(allowed.limits), axis=1)))
            raise ValueError(
                f"{self!r}: weight {i} has the limits {allowed.limits[i]}; a bound on "
                "the optimum needs finite limits"
            )
        size = float(np.max(np.abs(scores))) or 1.0
        answer = linear_program(-scores / size, allowed)
        if answer is None:
            raise ValueError(f"a linear program over {self!r} could not be solved")
        point, prices, equal_prices = answer
        return allowed, (point, size * prices, size * equal_prices)


def _inequalities(allowed: Polyhedron) -> tuple[np.ndarray, np.ndarray]:
    """All inequalities, limits included, as ``rows w <= room``."""
    one = np.eye(len(allowed.limits))
    rows = np.concatenate([allowed.below, one, -one])
    low, high = allowed.limits.T
    return rows, np.concatenate([allowed.below_to, high, -low])

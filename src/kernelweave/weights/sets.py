"""Weight sets: the simplex, the lp ball, equal weights."""

from __future__ import annotations

import numpy as np

from kernelweave.protocols import Polyhedron, WeightSet, is_positive


class LpBall(WeightSet):
    """``{ w >= 0 : norm_q(w) <= 1 }`` with ``1 < q <= inf``: non-sparse weights.

    Criteria that decrease in every weight attain their minimum on the sphere, so the
    relaxation of the printed equality is tight. ``q = inf`` is the uniform mean.

    Parameters
    ----------
    norm : float
        The exponent q.
    """

    offers = frozenset({"norm", "polyhedron"})

    def __init__(self, norm: float = 2.0) -> None:
        if not (is_positive(norm) or norm == np.inf) or norm <= 1:
            raise ValueError(
                f"LpBall needs norm > 1, got {norm!r}; use Simplex() for norm 1"
            )
        self.norm = self.power = float(norm)

    @property
    def dual_norm(self) -> float:
        """The exponent ``q* = q / (q - 1)`` of the support function."""
        return 1.0 if np.isinf(self.norm) else self.norm / (self.norm - 1.0)

    def start(self, m: int) -> np.ndarray:
        """Equal weights on the sphere."""
        return self.scale(np.ones(m))

    def support(self, scores: np.ndarray) -> float:
        """The dual norm of the positive part of the scores."""
        return _norm(np.maximum(scores, 0.0), self.dual_norm)

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """``w_i ~ max(s_i, 0)^(q* - 1)`` on the sphere."""
        positive = np.maximum(scores, 0.0)
        largest = np.max(positive)
        if largest == 0.0:
            return np.zeros(len(scores))
        raised = (positive / largest) ** (self.dual_norm - 1.0)
        return self.scale(np.where(positive > 0.0, raised, 0.0))  # 0^0 counts as 0

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """Weights divided by their q-norm."""
        return weights / _norm(weights, self.norm)

    def violation(self, weights: np.ndarray) -> float:
        """Largest negative weight, or the excess of the norm over 1."""
        return max(-float(np.min(weights)), _norm(weights, self.norm) - 1.0, 0.0)

    def is_point(self, m: int) -> bool:
        """Whether q is infinite: the best point of a cube is the corner of ones."""
        return m == 1 or bool(np.isinf(self.norm))

    def polyhedron(self, m: int) -> Polyhedron:
        """The simplex, for ``w^q``: criteria attain their minimum on the sphere."""
        return Polyhedron.sum_to_one(m, high=np.inf)

    def __repr__(self) -> str:
        return f"LpBall({self.norm:g})"


def _norm(x: np.ndarray, q: float) -> float:
    """``norm_q(x)``, scaled by the largest entry so that no power overflows."""
    largest = float(np.max(np.abs(x)))
    if largest == 0.0:
        return 0.0
    return largest * float(np.linalg.norm(x / largest, q))


class SumToOne(WeightSet):
    """The base class of sets of weights that sum to one."""

    def start(self, m: int) -> np.ndarray:
        """Uniform weights."""
        return np.full(m, 1.0 / m)

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """Weights divided by their sum."""
        return weights / np.sum(weights)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Simplex(SumToOne):
    """``{ w >= 0 : sum_i w_i = 1 }`` for kernels of equal trace: sparse weights.

    For kernels scaled to trace n this is ``theta' r = 1`` of Ye et al. (2007),
    Eq. 11, with ``w_i = theta_i r_i``.
    """

    offers = frozenset({"norm", "polyhedron", "sparse"})
    norm = power = 1.0

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """All weight on the largest score."""
        best = np.zeros(len(scores))
        best[np.argmax(scores)] = 1.0
        return best

    def violation(self, weights: np.ndarray) -> float:
        """Largest negative weight, or the distance of the sum from 1."""
        return float(max(-np.min(weights), abs(np.sum(weights) - 1.0), 0.0))

    def polyhedron(self, m: int) -> Polyhedron:
        """The sum and the signs, which imply all other limits."""
        return Polyhedron.sum_to_one(m, high=np.inf)


class Uniform(SumToOne):
    """``{ (1/p, ..., 1/p) }``: the mean kernel, the baseline every method must beat."""

    offers = frozenset({"norm", "polyhedron"})
    norm, power = float("inf"), 1.0

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """The only point."""
        return self.start(len(scores))

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """The only point."""
        return self.start(len(weights))

    def violation(self, weights: np.ndarray) -> float:
        """Distance from the only point."""
        return float(np.max(np.abs(weights - 1.0 / len(weights))))

    def is_point(self, m: int) -> bool:
        """Always."""
        return True

    def polyhedron(self, m: int) -> Polyhedron:
        """The only point."""
        return Polyhedron.sum_to_one(m, 1.0 / m, 1.0 / m)

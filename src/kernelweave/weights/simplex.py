"""The l1 set of Eqs. 11 and 40: weights that share one trace."""

from __future__ import annotations

import numpy as np

from kernelweave.protocols import Polyhedron, WeightSet

__all__ = ["Simplex"]


class Simplex(WeightSet):
    """``{ w >= 0 : sum_i w_i = 1 }`` for kernels of equal trace: sparse weights.

    For kernels scaled to trace n this is ``theta' r = 1`` of Ye et al. (2007),
    Eq. 11, with ``w_i = theta_i r_i``.
    """

    offers = frozenset({"norm", "polyhedron", "sparse"})
    norm = power = 1.0

    def start(self, m: int) -> np.ndarray:
        """Uniform weights."""
        return np.full(m, 1.0 / m)

    def support(self, scores: np.ndarray) -> float:
        """The largest score."""
        return float(np.max(scores))

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """All weight on the largest score."""
        best = np.zeros(len(scores))
        best[np.argmax(scores)] = 1.0
        return best

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """Weights divided by their sum."""
        return weights / np.sum(weights)

    def violation(self, weights: np.ndarray) -> float:
        """Largest negative weight, or the distance of the sum from 1."""
        return float(max(-np.min(weights), abs(np.sum(weights) - 1.0), 0.0))

    def polyhedron(self, m: int) -> Polyhedron:
        """The sum and the signs, which imply all other limits."""
        return Polyhedron.sum_to_one(m, high=np.inf)

    def __repr__(self) -> str:
        return "Simplex()"

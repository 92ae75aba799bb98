"""The one-point set: the mean kernel."""

from __future__ import annotations

import numpy as np

from kernelweave.protocols import Polyhedron, WeightSet

__all__ = ["Uniform"]


class Uniform(WeightSet):
    """``{ (1/p, ..., 1/p) }``: the mean kernel, the baseline every method must beat."""

    offers = frozenset({"norm", "polyhedron"})
    norm, power = float("inf"), 1.0

    def start(self, m: int) -> np.ndarray:
        """The only point."""
        return np.full(m, 1.0 / m)

    def support(self, scores: np.ndarray) -> float:
        """The mean score."""
        return float(np.mean(scores))

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

    def __repr__(self) -> str:
        return "Uniform()"

"""The one-point set: the mean kernel."""

from __future__ import annotations

import numpy as np

__all__ = ["Uniform"]


class Uniform:
    """``{ (1/p, ..., 1/p) }``: the mean kernel, the baseline every method must beat."""

    norm = float("inf")

    def start(self, p: int) -> np.ndarray:
        """The only point."""
        return np.full(p, 1.0 / p)

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

    def __repr__(self) -> str:
        return "Uniform()"

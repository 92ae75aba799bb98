"""What a set of allowed kernel weights must be able to say about itself."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

__all__ = ["WeightSet"]


@runtime_checkable
class WeightSet(Protocol):
    """A compact convex set of weights, known by its support function.

    The weights are non-negative, unless the set has a true attribute ``signed``:
    solvers for such sets are registered apart.

    Attributes
    ----------
    norm : float
        The exponent q of the constraint ``sum_i w_i^q = 1``; 1 for the simplex,
        infinity for a set in which every weight is equal.
    """

    norm: float

    def start(self, p: int) -> np.ndarray:
        """A point in the relative interior, (p,)."""
        ...

    def support(self, scores: np.ndarray) -> float:
        """``max <scores, w>`` over the set: what turns a dual point into a bound."""
        ...

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """A point of the set where :meth:`support` is attained, (p,)."""
        ...

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """``weights`` multiplied onto the boundary of the set, (p,)."""
        ...

    def violation(self, weights: np.ndarray) -> float:
        """How far outside the set ``weights`` lie; 0 inside."""
        ...

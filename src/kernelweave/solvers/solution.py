"""What users get back from a solver."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernelweave._array import Array

__all__ = ["Solution", "TraceRow"]


@dataclass(frozen=True)
class TraceRow:
    """One line of the history of a solve."""

    iteration: int
    value: float
    lower_bound: float
    gap: float
    seconds: float


@dataclass(frozen=True)
class Solution:
    """Weights and the proof of how good they are.

    Attributes
    ----------
    weights : ndarray of shape (m,)
        The weights found; if alpha is learned the first is that of the identity.
    value : float
        Upper bound on the criterion at ``weights``, computed outside the solver.
    lower_bound : float
        No allowed weights have a smaller value than this.
    gap : float
        ``(value - lower_bound) / abs(value)``.
    converged : bool
        Whether the gap reached the tolerance.
    status : str
        The outcome as a sentence.
    remarks : tuple of str
        What the numbers alone do not say, e.g. weights that are not unique.
    n_iter, n_factorizations : int
        Points evaluated, and factorisations including those of rejected steps.
    coef, dual : array
        The dual points behind ``value`` and ``lower_bound``.
    method : str
        The solver that found the weights.
    tol : float
        The tolerance asked for.
    trace : tuple of TraceRow
        The history.
    """

    weights: np.ndarray
    value: float
    lower_bound: float
    gap: float
    converged: bool
    status: str
    remarks: tuple[str, ...]
    n_iter: int
    n_factorizations: int
    coef: Array = field(repr=False)
    dual: Array = field(repr=False)
    method: str = "newton"
    tol: float = 1e-8
    trace: tuple[TraceRow, ...] = field(default=(), repr=False)

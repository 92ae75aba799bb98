"""What a solver returns to the user."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kernelweave._array import Array

__all__ = ["Callback", "LocalSolution", "Solution", "Trace", "TraceRow"]


@dataclass(frozen=True)
class TraceRow:
    """One line of the history of a solve; NaN where no bound is known."""

    iteration: int
    value: float
    lower_bound: float
    gap: float
    seconds: float


Callback = Callable[[TraceRow], object]


class Trace:
    """The history of a solve, passed to a callback row by row.

    Parameters
    ----------
    callback : callable, optional
        Called with each new row; a true result requests an early stop.

    Attributes
    ----------
    rows : list of TraceRow
        The history.
    stopped : bool
        Whether the callback has requested a stop.
    """

    def __init__(self, callback: Callback | None = None) -> None:
        self.rows: list[TraceRow] = []
        self.stopped = False
        self._callback, self._started = callback, time.perf_counter()

    def add(
        self, value: float, lower_bound: float = np.nan, gap: float = np.nan
    ) -> TraceRow:
        """Record one more iteration."""
        seconds = time.perf_counter() - self._started
        row = TraceRow(len(self.rows) + 1, value, lower_bound, gap, seconds)
        self.rows.append(row)
        if self._callback is not None and self._callback(row):
            self.stopped = True
        return row


@dataclass(frozen=True)
class Solution:
    """Weights, with a proof of how good they are.

    Attributes
    ----------
    weights : ndarray of shape (m,)
        The weights found; if alpha is learned, the first is that of the identity.
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
        Points evaluated, and factorisations, including those of rejected steps.
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


@dataclass(frozen=True, kw_only=True)
class LocalSolution:
    """Weights for a non-convex problem, and how close they are to stationary.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        The weights found.
    value : float
        The criterion at ``weights``.
    stationarity : float
        The first-order gain that remains, in the measure defined by the search.
    converged : bool
        Whether the stationarity reached the tolerance.
    status : str
        The outcome as a sentence.
    n_iter, n_factorizations : int
        Steps taken, and factorisations (or evaluations) spent.
    lower_bound : float
        No allowed weights have a smaller value; NaN if no bound is known.
    coef : array or None
        The dual point for the weights, if there is one.
    trace : tuple of TraceRow
        The history.
    """

    weights: np.ndarray
    value: float
    stationarity: float
    converged: bool
    status: str
    n_iter: int
    n_factorizations: int = 0
    lower_bound: float = np.nan
    coef: Array | None = field(default=None, repr=False)
    trace: tuple[TraceRow, ...] = field(default=(), repr=False)

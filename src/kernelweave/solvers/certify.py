"""What a solver returns, and the certificate that checks it from outside."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import OptimizeResult

from kernelweave._array import Array, namespace
from kernelweave._tolerances import ALLOWED_VIOLATION, FLOAT32_TOL, ROUNDING_UNITS
from kernelweave.protocols import Bank, Criterion, WeightSet
from kernelweave.weights.signed_sum import SignedSum


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

    def follow(self, unit: float) -> Callable[[OptimizeResult], None]:
        """A callback for ``scipy.optimize.minimize`` that records ``unit * fun``."""

        def report(intermediate_result: OptimizeResult) -> None:
            self.add(unit * float(intermediate_result.fun))
            if self.stopped:
                raise StopIteration

        return report


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What every solver returns."""

    weights: np.ndarray
    value: float
    lower_bound: float = np.nan
    converged: bool
    status: str
    n_iter: int
    n_factorizations: int = 0
    coef: Array = field(default=None, repr=False)
    trace: tuple[TraceRow, ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class Solution(_Found):
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
    gradient : ndarray of shape (m,)
        dJ/dw where the method ended.
    method : str
        The solver that found the weights.
    tol : float
        The tolerance asked for.
    trace : tuple of TraceRow
        The history.
    """

    gap: float
    remarks: tuple[str, ...]
    dual: Array = field(repr=False)
    gradient: np.ndarray = field(repr=False)
    method: str
    tol: float


@dataclass(frozen=True, kw_only=True)
class LocalSolution(_Found):
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

    stationarity: float


def certify(
    criterion: Criterion,
    weight_set: WeightSet,
    weights: np.ndarray,
    coef: Array,
    dual: Array | None = None,
) -> tuple[float, float, float]:
    """Bounds on ``J(weights)`` and on the optimum, valid for any dual points.

    For criteria ``J(w) = max_a [ linear(a) - <w, scores(a)> ]`` every dual point a
    gives ``min J >= linear(a) - support(scores(a))``, however inaccurate it is, and
    ``coef`` likewise gives an upper bound on ``J(weights)``. No figure reported by the
    solver is used. All arithmetic is in float64, whatever the dtype of the kernels, and
    both bounds are moved apart by its rounding, so the gap is never zero.

    Parameters
    ----------
    criterion, weight_set : Criterion, WeightSet
        The problem.
    weights : ndarray of shape (m,)
        Weights in the set.
    coef : array
        A dual point for the upper bound.
    dual : array, optional
        A dual point for the lower bound; by default ``coef``.

    Returns
    -------
    value, lower_bound, gap : float
        The upper bound, the lower bound and their relative difference.

    Raises
    ------
    ValueError
        If the weights are not in the set, so that nothing can be certified.
    """
    violation = weight_set.violation(weights)
    if not violation <= ALLOWED_VIOLATION:
        raise ValueError(
            f"the weights violate {weight_set!r} by {violation:.3g}; "
            "only allowed weights can be certified"
        )
    terms = criterion.certificate_terms(weights, coef, coef if dual is None else dual)
    upper, lower = terms.upper, terms.bound(weight_set)
    unit = ROUNDING_UNITS * float(np.finfo(np.float64).eps)
    rounding = unit * abs(lower) + terms.rounding
    if isinstance(weight_set, SignedSum):  # which allows weights far larger than these
        reach = np.sum(np.abs(weight_set.maximizer(terms.scores)))
        rounding *= max(1.0, float(reach / np.sum(np.abs(weights))))
    if upper + rounding < lower - rounding:  # negative eigenvalues, due to rounding
        rounding += ROUNDING_UNITS * terms.excess
    if np.isfinite(rounding):
        upper, lower = upper + rounding, lower - rounding
    return upper, lower, relative_gap(upper, lower)


def relative_gap(value: float, lower_bound: float) -> float:
    """``(value - lower_bound) / abs(value)``, 0 / 0 = 0; infinite if the value is."""
    if np.isinf(value):
        return np.inf
    difference = value - lower_bound
    if value == 0:
        return 0.0 if difference == 0 else np.inf
    return difference / abs(value)


@dataclass(frozen=True)
class Certificate:
    """How good the learned weights are, computed independently of the solver.

    Attributes
    ----------
    value : float
        The criterion at the learned weights.
    lower_bound : float
        No allowed weights can do better than this; NaN if the problem is not convex.
    gap : float
        ``(value - lower_bound) / abs(value)``.
    status : str
        The outcome as a sentence.
    converged : bool
        Whether the gap (or the stationarity) reached the tolerance.
    problem : str
        What was minimised.
    stationarity : float or None
        For problems that are not convex: relative size of the projected gradient.
    remarks : tuple of str
        Further notes for anyone who interprets the weights.
    """

    value: float
    lower_bound: float
    gap: float
    status: str
    converged: bool
    problem: str
    stationarity: float | None = None
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(cls, solution: Solution, problem: str, error: float = 0.0) -> Certificate:
        """The certificate of a convex problem.

        ``error`` bounds the relative change of the value due to digits that the kernels
        had lost: it widens the bounds.
        """
        return cls(
            value=solution.value,
            lower_bound=solution.lower_bound,
            gap=solution.gap,
            status=solution.status,
            converged=solution.converged,
            problem=problem,
            remarks=solution.remarks,
        ).widened(error)

    def widened(self, error: float) -> Certificate:
        """A copy whose bounds allow for a relative error of the value."""
        if not error > 0:
            return self
        shift = error * abs(self.value)
        value, lower = self.value + shift, self.lower_bound - shift
        gap = relative_gap(value, lower)
        status = f"{self.status}; digits lost in centring widen it to {gap:.1e}"
        return dataclasses.replace(
            self, value=value, lower_bound=lower, gap=gap, status=status
        )

    def with_remarks(self, remarks: list[str]) -> Certificate:
        """A copy with further remarks in front."""
        return dataclasses.replace(self, remarks=(*remarks, *self.remarks))

    def __str__(self) -> str:
        lines = [self.problem, f"  {self.status}"]
        if self.stationarity is None:
            lines.append(f"  value        {self.value:.10g}")
            lines.append(f"  lower bound  {self.lower_bound:.10g}")
            lines.append(f"  gap          {self.gap:.2e} relative")
        else:
            lines.append(f"  value          {self.value:.10g}")
            lines.append(f"  stationarity   {self.stationarity:.2e} relative")
        lines += [f"  note: {remark}" for remark in self.remarks]
        return "\n".join(lines)


def error_of_value(bank: Bank, weights: np.ndarray, slope: float) -> float:
    """Relative error ``slope sum_i w_i e_i`` of a value, from errors e of the kernels.

    The value ``max_a [linear(a) - sum_i w_i a'G_i a]`` changes, to first order, by at
    most ``|a|^2 sum_i w_i e_i`` if the eigenvalues of the kernels change by up to e.

    Parameters
    ----------
    bank : Bank
        The kernels; ``bank.errors`` (p,) are e, or None.
    weights : ndarray of shape (p,)
        w.
    slope : float
        ``|a|^2`` relative to the value. For ``tr(H' (alpha I + G)^-1 H)`` it is at most
        ``1 / alpha``.
    """
    if bank.errors is None:
        return 0.0
    return slope * float(np.sum(np.abs(weights) * bank.errors))


def reachable_tolerance(tol: float, like: Array) -> float:
    """``tol``, or the smallest tolerance that the dtype of ``like`` can reach."""
    single = namespace(like).finfo(like.dtype).bits == 32
    return max(float(tol), FLOAT32_TOL) if single else float(tol)

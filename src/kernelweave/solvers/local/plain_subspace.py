"""Weights for the subspace kernel of Eq. 6: a convex bound, then descent."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from kernelweave.criteria.margin import PlainSubspaceMargin
from kernelweave.protocols import Evaluation, NormSet
from kernelweave.solvers.certify import Callback, LocalSolution, Trace, relative_gap
from kernelweave.solvers.solve import solve

__all__ = ["solve_plain"]

#: Default limit on the steps of the descent.
MAX_ITER = 100
#: First-order decrease, relative to the value, below which a point is a local minimum.
STATIONARY = 1e-3
#: Weights below this share of the largest are set to zero.
ZERO = 1e-9


def solve_plain(
    criterion: PlainSubspaceMargin,
    weights: NormSet,
    *,
    tol: float = 1e-6,
    max_iter: int | None = None,
    callback: Callback | None = None,
) -> LocalSolution:
    """Minimise the non-convex v of :class:`PlainSubspaceMargin` locally.

    A convex minorant gives a lower bound and candidate starts: its most important
    kernel alone, its minimiser, and equal weights, of which the best is used. From
    there v is minimised along its exact gradient. If the bounds meet, the optimum is
    found.

    Parameters
    ----------
    criterion : PlainSubspaceMargin
        The problem.
    weights : WeightSet
        Which weights are allowed: a ball of some norm.
    tol : float, default=1e-6
        Relative gap between the bounds at which to stop.
    max_iter : int, optional
        Maximum number of descent steps.
    callback : callable, optional
        Called with a :class:`TraceRow` after each evaluation; a true result stops the
        search.

    Returns
    -------
    LocalSolution
        The best weights, a lower bound for all weights, and A (n, m) of the machines;
        the stationarity is the largest first-order decrease of v within the set,
        relative to v.
    """
    p = criterion.bank.n_kernels
    largest_sum = weights.support(np.ones(p))
    below = solve(criterion.minorant(largest_sum), weights, tol=tol)
    search = _Search(criterion, weights, below.lower_bound / 2.0, tol, callback)
    single = np.zeros(p)
    single[int(np.argmax(below.weights))] = 1.0
    try:
        for start in (single, below.weights, weights.start(p)):
            search.value(start)
        _descend(search, max_iter or MAX_ITER)
    except _EnoughError:
        pass
    return search.solution(p + below.n_factorizations)


class _EnoughError(Exception):
    """The bounds have met, or the callback requested a stop."""


class _Search:
    """Evaluates v and keeps the best point."""

    def __init__(
        self,
        criterion: PlainSubspaceMargin,
        weights: NormSet,
        lower: float,
        tol: float,
        callback: Callback | None,
    ) -> None:
        self.criterion, self.weights, self.lower = criterion, weights, lower
        self.tol, self.trace = tol, Trace(callback)
        self.best: np.ndarray | None = None
        self.state: Evaluation | None = None

    def value(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient (p,) of v, both relative to the lower bound."""
        w = self.weights.scale(np.where(w > ZERO * np.max(w), w, 0.0))
        state = self.criterion.evaluate(w)
        if self.state is None or state.value < self.state.value:
            self.best, self.state = w, state
        gap = relative_gap(self.state.value, self.lower)
        self.trace.add(state.value, self.lower, gap)
        if self.trace.stopped or gap <= self.tol:
            raise _EnoughError
        # The value does not depend on the scale of w, so the slope along w is zero.
        normal = w ** (self.weights.norm - 1.0)
        slope = state.gradient - float(state.gradient @ w) * normal
        return state.value / self.lower, slope / self.lower

    def solution(self, others: int) -> LocalSolution:
        """The best point; ``others`` counts factorisations made elsewhere."""
        assert self.best is not None and self.state is not None
        gradient, value = self.state.gradient, self.state.value
        fall = float(gradient @ self.best) + self.weights.support(-gradient)
        stationarity, rows = fall / value, self.trace.rows
        converged = stationarity <= STATIONARY
        found = "a local minimum" if converged else "stopped early"
        return LocalSolution(
            weights=self.best,
            value=value,
            stationarity=stationarity,
            converged=converged,
            status=f"{found}, stationary to {stationarity:.0e}",
            n_iter=len(rows),
            n_factorizations=others + len(rows),
            lower_bound=min(self.lower, value),
            coef=np.asarray(self.state.coef),
            trace=tuple(rows),
        )


def _descend(search: _Search, max_iter: int) -> None:
    """Sequential quadratic programming from the best point so far."""
    start, norm = search.best, search.weights.norm
    assert start is not None
    minimize(
        search.value,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(start),
        constraints={
            "type": "eq",
            "fun": lambda w: np.sum(np.maximum(w, 0.0) ** norm) - 1.0,
            "jac": lambda w: norm * np.maximum(w, 0.0) ** (norm - 1.0),
        },
        options={"maxiter": max_iter, "ftol": 1e-10},
    )

"""``solve``: the one entry point, and the one loop, behind every convex estimator."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernelweave._array import FactorizationError, eps
from kernelweave._tolerances import ALLOWED_VIOLATION, ROUNDING_UNITS, SMALL_GAP
from kernelweave.criteria.base import KernelCriterion
from kernelweave.protocols import Criterion, InfeasibleError, Iterate, Method, WeightSet
from kernelweave.solvers.alignment import active_set, aligned_cuts
from kernelweave.solvers.block_newton import block_newton
from kernelweave.solvers.certify import (
    Callback,
    Solution,
    Trace,
    TraceRow,
    certify,
    relative_gap,
)
from kernelweave.solvers.cutting_plane import cutting_plane, spectral_cuts
from kernelweave.solvers.fixed_point import closed_form, em
from kernelweave.solvers.margin import interior_point, svc_newton
from kernelweave.solvers.newton import newton, working_set
from kernelweave.solvers.reference import (
    alignment_sdp,
    margin_qcqp,
    margin_sdp,
    qcqp,
    sdp,
)

#: If several methods of one name fit a problem, the first is used. "auto" means the
#: first that fits, unless the criterion prefers another.
METHODS: tuple[Method, ...] = (
    Method("newton", block_newton, 60, {"expansion"}, {"norm"}),
    Method("interior_point", interior_point, 400, {"saddle"}, {"norm"}),
    Method("newton", svc_newton, 60, {"saddle"}, {"polyhedron"}),
    Method("newton", newton, 100, {"hessian", "likelihood"}, {"polyhedron"}, True),
    Method("newton", newton, 60, {"hessian"}, {"polyhedron"}, True),
    Method("active_set", active_set, 2, {"cosines"}, {"norm"}),
    Method("active_set", aligned_cuts, 2, {"cosines"}, {"polyhedron"}),
    Method("closed_form", closed_form, 2000, {"parts"}, {"norm"}),
    Method("cutting_plane", cutting_plane, 1000, {"averages"}, {"polyhedron"}),
    Method("working_set", working_set, 100, {"hessian", "kernel scores"}, {"norm"}),
    Method("em", em, 20_000, {"likelihood"}, {"norm"}),
    Method("qcqp", qcqp, 2, {"printed program", "kernel scores"}, {"norm"}),
    Method("qcqp", margin_qcqp, 2, {"saddle"}, {"norm"}),
    Method("sdp", sdp, 2, {"printed program"}, {"polyhedron"}),
    Method("sdp", margin_sdp, 2, {"saddle"}, {"polyhedron"}),
    Method("sdp", alignment_sdp, 2, {"cosines"}, {"norm"}),
    Method("spectral_cuts", aligned_cuts, 200, {"cosines"}, {"cuts"}),
    Method("spectral_cuts", spectral_cuts, 300, {"averages"}, {"cuts"}),
    Method("sdp", margin_sdp, 2, {"saddle"}, {"cuts"}),
    Method("sdp", alignment_sdp, 2, {"cosines"}, {"cuts"}),
)


def fitting_methods(criterion: Any, weight_set: Any) -> dict[str, Method]:
    """The methods for a criterion and a weight set, or for their classes, by name."""
    found: dict[str, Method] = {}
    for method in METHODS:
        if not method.lacks(criterion, weight_set):
            found.setdefault(method.name, method)
    return found


def choose_method(criterion: Any, weight_set: Any, method: str | Method) -> Method:
    """The method of that name for a problem; "auto" is the one that suits it best.

    Raises
    ------
    ValueError
        If it does not fit: the message says what is missing, and which methods fit.
    """
    fitting = fitting_methods(criterion, weight_set)
    problem = f"{type(criterion).__name__} over {weight_set!r}"
    if isinstance(method, str) and method in fitting:
        return fitting[method]
    if method == "auto" and fitting:
        return fitting.get(criterion.preferred_method, next(iter(fitting.values())))
    if isinstance(method, Method):
        named, method = [method], method.name
    else:
        named = [m for m in METHODS if m.name == method]
    lacking = min((m.lacks(criterion, weight_set) for m in named), key=len, default=[])
    if named and not lacking:
        return named[0]
    missing = f"; it needs {' and '.join(lacking)}" if lacking else ""
    if not fitting:
        raise ValueError(
            f"no method minimises {problem}: the criterion offers "
            f"{sorted(criterion.offers)}, the weight set {sorted(weight_set.offers)}"
            + missing
        )
    raise ValueError(
        f"method must be 'auto' or one of {sorted(fitting)} for {problem}, got "
        f"{method!r}{missing}"
    )


#: Share of a gap above which rounding explains it, which enters a bound squared, too.
MOSTLY = 0.1
#: A small gap is taken to be limited by rounding once it has not shrunk for this many
#: iterations, nor for as many as it took to reach.
PATIENCE = 25


def solve(
    criterion: Criterion,
    weights: WeightSet,
    method: str | Method = "auto",
    tol: float = 1e-8,
    max_iter: int | None = None,
    callback: Callback | None = None,
    start: np.ndarray | None = None,
) -> Solution:
    """Minimise ``criterion(w)`` over a set of weights, with a certificate.

    Parameters
    ----------
    criterion : Criterion
        What makes a sum of kernels good, e.g. ``Fisher(bank, target, alpha)``.
    weights : WeightSet
        Which weights are allowed, e.g. ``Simplex()`` or ``LpBall(2)``.
    method : str or Method, default="auto"
        The name of a method that fits, such as "newton", "interior_point",
        "closed_form", "cutting_plane" or "sdp", or a method of your own; "auto" picks
        the one that needs the fewest factorisations.
    tol : float, default=1e-8
        Relative gap between value and lower bound at which to stop.
    max_iter : int, optional
        Maximum number of iterations; the default is many times what the method
        usually needs.
    callback : callable, optional
        Called with a :class:`TraceRow` after each iteration; a true result stops the
        solve.
    start : ndarray of shape (m,), optional
        Positive weights near which the optimum is expected, such as those of
        :func:`~kernelweave.solvers.newton.carried_over`. Only Newton's method in
        the weights makes use of them; the optimum is the same.

    Returns
    -------
    Solution
        Weights, value, lower bound, gap and status. A solve that does not converge
        returns the same form, with the gap it reached.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import Fisher, Simplex, solve
    >>> from kernelweave.kernels import DenseBank, center_and_scale
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 4))
    >>> y = np.repeat([1.0, -1.0], 15)
    >>> X[:, 0] += y
    >>> kernels = np.stack([np.outer(x, x) for x in X.T])
    >>> bank = DenseBank(center_and_scale(kernels))
    >>> solution = solve(Fisher(bank, y[:, None], alpha=0.1), Simplex())
    >>> solution.converged, int(solution.weights.argmax())
    (True, 0)
    """
    chosen = choose_method(criterion, weights, method)
    limit = chosen.max_iter if max_iter is None else max_iter
    if limit < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter!r}")
    if not tol > 0:
        raise ValueError(f"tol must be > 0, got {tol!r}")
    if start is not None and chosen.takes_start:
        chosen = replace(chosen, run=partial(chosen.run, start=start))
    run = _iterate(criterion, weights, chosen, tol, limit, callback)
    best, trace, status, n_factorizations = run
    tidy, (value, lower, gap) = _tidy(criterion, weights, best, tol)
    if status.startswith("infeasible"):
        value = gap = np.inf
    converged = abs(gap) <= tol  # bounds that cross by more are not to be trusted
    dual = best.coef if best.dual is None else best.dual
    if converged:
        status = f"optimal: the relative gap {gap:.1e} is within tol={tol:.0e}"
    elif np.isfinite(gap):
        terms = criterion.certificate_terms(tidy, best.coef, dual)
        stated = max(value - terms.upper, terms.rounding)  # by the certificate
        rounding = (stated + terms.excess) / abs(value or 1.0)
        status = _explained(criterion, status, gap, rounding)
    return Solution(
        weights=tidy,
        value=value,
        lower_bound=lower,
        gap=gap,
        converged=converged,
        status=status.format(gap=gap, tol=tol),
        remarks=criterion.remarks(tidy) + weights.remarks(tidy),
        n_iter=len(trace),
        n_factorizations=n_factorizations,
        coef=best.coef,
        dual=dual,
        gradient=best.gradient,
        method=chosen.name,
        tol=tol,
        trace=tuple(trace),
    )


def _explained(criterion: Any, status: str, gap: float, rounding: float) -> str:
    """The reason for stopping, or rounding if it explains the gap better."""
    kernels = isinstance(
        criterion, KernelCriterion
    )  # others have densities, in float64
    single = kernels and eps(criterion.bank.like) > np.finfo(np.float64).eps
    rounding += ROUNDING_UNITS * float(np.finfo(np.float64).eps)
    on_request = status.startswith(("stopped at", "stopped by"))
    if rounding <= MOSTLY * gap and (on_request or not single):
        return status
    reason = (
        f"stopped: rounding in float{32 if single else 64} keeps the relative gap at"
    )
    if gap <= SMALL_GAP:
        return reason + " {gap:.1e}"
    advice = "float64 kernels or more" if single else "more"
    return reason + f" {{gap:.1e}}; {advice} regularisation would help"


def _iterate(
    criterion: Criterion,
    weight_set: WeightSet,
    method: Method,
    tol: float,
    limit: int,
    callback: Callback | None,
) -> tuple[Iterate, list[TraceRow], str, int]:
    """Run a method: best iterate, history, reason for stopping, factorisations."""
    best: Iterate | None = None
    best_row: TraceRow | None = None
    n_factorizations, trace = 0, Trace(callback)
    status = "stopped: the method has no further step; the relative gap is {gap:.1e}"
    try:
        for iterate in method.run(criterion, weight_set):
            n_factorizations += iterate.n_factorizations
            lower = iterate.bound(weight_set)
            row = trace.add(iterate.value, lower, relative_gap(iterate.value, lower))
            rank = row.gap, -row.lower_bound  # the bound, while no gap is finite
            if best_row is None or rank < (best_row.gap, -best_row.lower_bound):
                best, best_row = iterate, row
            idle = row.iteration - best_row.iteration
            if row.gap <= tol:
                status = "stopped: the certificate finds a relative gap of {gap:.1e}"
                break
            if trace.stopped:
                status = "stopped by the callback at relative gap {gap:.1e}"
                break
            if row.iteration >= limit:
                status = f"stopped at max_iter={limit}: "
                status += "relative gap {gap:.1e}, not {tol:.0e}"
                break
            if best_row.gap < SMALL_GAP and idle >= max(PATIENCE, best_row.iteration):
                status = "stopped: rounding keeps the relative gap at {gap:.1e}"
                break
    except FactorizationError as error:
        reason = str(error).replace("{", "(").replace("}", ")")
        status = f"stopped: {reason}; the relative gap is {{gap:.1e}}"
        near = best_row is not None and best_row.gap <= SMALL_GAP
        if isinstance(error, InfeasibleError) and not near:
            # Rounding may have made values finite; else only a dual point is known.
            status = f"infeasible: {reason}"
            start = weight_set.start(criterion.n_weights)
            best = best or Iterate(start, np.inf, np.zeros_like(start), error.coef)
        if best is None:
            raise
    assert best is not None
    return best, trace.rows, status, n_factorizations


def _tidy(
    criterion: Criterion, weight_set: WeightSet, iterate: Iterate, tol: float
) -> tuple[np.ndarray, tuple[float, float, float]]:
    """Set weights to zero that only an interior method keeps positive; certify.

    Views with the same kernel share its weight equally, which changes no sum: of the
    many optima this is the one that does not depend on the order of the views. Under
    complementarity ``w_i z_i = mu`` the weights below ``sqrt(mu)`` are those that
    tend to zero. The certificate decides: if the gap exceeds the tolerance, only
    smaller weights are dropped.
    """

    def judged(found: np.ndarray) -> tuple[np.ndarray, tuple[float, float, float]]:
        return found, certify(criterion, weight_set, found, iterate.coef, iterate.dual)

    weights, scores = iterate.weights, -iterate.gradient
    cuttable = weight_set.offers & {"sparse", "norm"}
    if not cuttable or weight_set.is_point(len(weights)):
        return judged(weights)
    slack = weight_set.support(scores) - float(scores @ weights)
    largest = np.sqrt(max(slack / abs(iterate.value or 1.0), 0.0) + 1e-16)
    first = criterion.n_weights - criterion.n_kernels
    copies = criterion.copies() if "sparse" in cuttable else []
    if copies:
        shared = _shared(weights, copies)
        allowed = weight_set.violation(shared) <= ALLOWED_VIOLATION
        if allowed and judged(shared)[1][2] <= max(tol, judged(weights)[1][2]):
            weights = shared
    for cut in min(1e-4, largest) * np.array([1.0, 1e-2, 1e-4]):
        if "sparse" in cuttable:
            drop = weights < cut
        else:  # on a sphere only kernels that contribute nothing have weight zero
            drop = scores <= 1e-12 * np.max(scores)
        drop[:first] = False
        if not np.any(drop) or not np.any(weights[first:][~drop[first:]] > 0.0):
            break
        tidy = judged(weight_set.scale(np.where(drop, 0.0, weights)))
        if tidy[1][2] <= tol:
            return tidy
    return judged(weights)


def _shared(
    weights: np.ndarray, copies: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """The weights (m,), with those of kernels that are the same divided equally."""
    shared = weights.copy()
    for group, sharing in copies:
        shared[group] = 0.0
        shared[sharing] = np.sum(weights[group]) / len(sharing)
    return shared

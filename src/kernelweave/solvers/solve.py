"""``solve`` for every convex problem, its result, and the certificate.

The methods find weights; the certificate checks them from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelweave._array import DOUBLE_EPS, Array, FactorizationError, eps, namespace
from kernelweave._tolerances import (
    ALLOWED_VIOLATION,
    FLOAT32_TOL,
    NOTABLE,
    ROUNDING_UNITS,
    SMALL_GAP,
)
from kernelweave.exceptions import KernelWarning, require_count
from kernelweave.protocols import (
    Bank,
    Criterion,
    InfeasibleError,
    Iterate,
    Method,
    WeightSet,
    has_cuts,
    relative_gap,
    require_positive,
)
from kernelweave.solvers.alignment import active_set, aligned_cuts, aligned_points
from kernelweave.solvers.block_newton import block_newton
from kernelweave.solvers.cutting_plane import cutting_plane, spectral_cuts
from kernelweave.solvers.fixed_point import closed_form, em
from kernelweave.solvers.frank_wolfe import frank_wolfe
from kernelweave.solvers.loop import OPTIMAL, Callback, GapLoop, Step, TraceRow
from kernelweave.solvers.margin import interior_point, svc_newton
from kernelweave.solvers.newton import newton, working_set
from kernelweave.solvers.reference import alignment_sdp, qcqp, sdp


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of any solver.

    Attributes
    ----------
    value : float
        What was minimised or maximised, at the result.
    lower_bound : float
        No allowed point has a smaller value; NaN if no bound is known.
    converged : bool
        Whether the gap, or the stationarity, reached the tolerance.
    status : str
        The outcome as a sentence.
    n_iter, n_factorizations : int
        Steps taken, and factorisations.
    trace : tuple of TraceRow
        The history.
    """

    value: float
    lower_bound: float = np.nan
    converged: bool
    status: str
    n_iter: int
    n_factorizations: int = 0
    trace: tuple[TraceRow, ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class Solution(Outcome):
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
        The tolerance requested.
    trace : tuple
        The history: one row per iteration, with ``iteration`` (from 1), ``value``,
        ``lower_bound``, ``gap`` and ``seconds`` (since the start); NaN where no bound
        is known.
    """

    weights: np.ndarray
    gap: float
    remarks: tuple[str, ...]
    coef: Array = field(repr=False)
    dual: Array = field(repr=False)
    gradient: np.ndarray = field(repr=False)
    method: str
    tol: float


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """Weights as a method has left them, which :func:`with_certificate` has to prove.

    Attributes
    ----------
    weights : ndarray of shape (m,)
        The weights; those that only an interior method keeps positive are zero.
    iterate : Iterate
        The best point of the method, with its dual points.
    gap : float
        The relative gap of the method's own bounds.
    reason : str
        Why the method ended, with places for ``{size}`` and ``{tol}``.
    n_factorizations : int
        Factorisations, including those of rejected steps.
    method : Method
        The method.
    tol : float
        The tolerance requested.
    trace : tuple of TraceRow
        The history.
    """

    weights: np.ndarray
    iterate: Iterate
    gap: float
    reason: str
    n_factorizations: int
    method: Method
    tol: float
    trace: tuple[TraceRow, ...] = field(repr=False)

    @property
    def is_infeasible(self) -> bool:
        """Whether the criterion is infinite for all weights."""
        return self.reason.startswith("infeasible")

    @property
    def status(self) -> str:
        """The outcome as a sentence, by the method's own gap."""
        if self.gap <= self.tol:
            return OPTIMAL.format(size=self.gap, tol=self.tol)
        return self.reason.format(size=self.gap, tol=self.tol)


@dataclass(frozen=True, kw_only=True)
class LocalSolution(Outcome):
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
    stationarity: float
    coef: Array = field(default=None, repr=False)


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
        If the weights are not in the set, or too many or too few: nothing can be
        certified.
    """
    _require_problem(criterion, weight_set)
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (criterion.n_weights,):
        raise ValueError(
            f"weights must have the shape ({criterion.n_weights},), one per weight of "
            f"the criterion; got {weights.shape}"
        )
    violation = weight_set.violation(weights)
    if not violation <= ALLOWED_VIOLATION:
        raise ValueError(
            f"the weights violate {weight_set!r} by {violation:.3g}; "
            "only allowed weights can be certified"
        )
    terms = criterion.certificate_terms(weights, coef, coef if dual is None else dual)
    upper, lower = terms.upper, terms.bound(weight_set)
    rounding = ROUNDING_UNITS * DOUBLE_EPS * abs(lower) + terms.rounding
    if has_cuts(weight_set):  # it allows weights far larger than these
        reach = np.sum(np.abs(weight_set.maximizer(terms.scores)))
        rounding *= max(1.0, float(reach / np.sum(np.abs(weights))))
    if upper + rounding < lower - rounding:  # negative eigenvalues, due to rounding
        rounding += ROUNDING_UNITS * terms.excess
    if np.isfinite(rounding):
        upper, lower = upper + rounding, lower - rounding
    return upper, lower, relative_gap(upper, lower)


#: Up to this gap weights are nearly optimal, if only lost digits keep it from ``tol``.
NEARLY_OPTIMAL = 1e-2
#: What helps if they may be far from optimal.
RESTORE = (
    "The kernels are nearly constant, so that little is left of their digits: subtract "
    "a constant from the features, or from a precomputed kernel before it is rounded, "
    "or use more regularisation"
)


@dataclass(frozen=True)
class Certificate:
    """How good the learned weights are, computed independently of the solver.

    Attributes
    ----------
    value : float
        The criterion at the learned weights.
    lower_bound : float
        No allowed weights can do better than this; NaN if nothing bounds the problem.
    gap : float
        ``(value - lower_bound) / abs(value)``, or the difference itself if ``unit``
        is not "relative".
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
    unit : str
        Unit of the gap: "relative", or "nats per row" of a log density, which has no
        natural zero.
    tol : float or None
        The tolerance of the gap; None if the problem is judged by something else.
    gap_of_solver : float or None
        The gap on the kernels as they are stored, if digits that these have lost in
        centring widen it.
    """

    value: float
    lower_bound: float
    gap: float
    status: str
    converged: bool
    problem: str
    stationarity: float | None = None
    remarks: tuple[str, ...] = ()
    unit: str = "relative"
    tol: float | None = None
    gap_of_solver: float | None = None

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
            tol=solution.tol,
        ).widened(error)

    def widened(self, error: float) -> Certificate:
        """A copy whose bounds allow for a relative error of the value."""
        return self.moved_apart(error * abs(self.value))

    def moved_apart(self, shift: float) -> Certificate:
        """A copy whose bounds allow for an error of the value.

        It has converged if the wider gap, too, is within the tolerance.
        """
        if not shift > 0:
            return self
        value, lower = self.value + shift, self.lower_bound - shift
        relative = self.unit == "relative"
        gap = relative_gap(value, lower) if relative else value - lower
        converged, status = self.converged, self.status
        status += f"; digits lost in centring widen it to {gap:.1e}"
        if converged and self.tol is not None and not gap <= self.tol:
            converged = False
            word = "nearly optimal" if gap <= NEARLY_OPTIMAL else "uncertain"
            status = status.replace("optimal", word, 1)
        return replace(
            self,
            value=value,
            lower_bound=lower,
            gap=gap,
            status=status,
            converged=converged,
            gap_of_solver=self.gap,
        )

    @property
    def caution(self) -> tuple[str, type[Warning]] | None:
        """What to warn of, and as what, if the gap did not reach the tolerance.

        A gap that only lost digits widen beyond it is worth a warning if it is large.
        """
        if self.converged:
            return None
        if self.gap_of_solver is None:
            return self.status, ConvergenceWarning
        solved = self.tol is not None and self.gap_of_solver <= self.tol
        digits_lost = self.gap > NEARLY_OPTIMAL
        if solved and not digits_lost:
            return None
        advice = f"{self.status}. {RESTORE}" if digits_lost else self.status
        return advice, KernelWarning if solved else ConvergenceWarning

    def with_remarks(self, remarks: list[str]) -> Certificate:
        """A copy with further remarks before its own."""
        return replace(self, remarks=(*remarks, *self.remarks))

    @property
    def numbers(self) -> dict[str, str]:
        """The value and what is known about it, as text under their names."""
        value = {"value": f"{self.value:.10g}"}
        if self.stationarity is not None:
            return value | {"stationarity": f"{self.stationarity:.2e} relative"}
        bound, gap = f"{self.lower_bound:.10g}", f"{self.gap:.2e} {self.unit}"
        return value | {"lower bound": bound, "gap": gap}

    def __str__(self) -> str:
        lines = [self.problem, f"  {self.status}"]
        lines += [f"  {name:<12} {text}" for name, text in self.numbers.items()]
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


def reachable(tol: float, like: Array) -> dict[str, Any]:
    """``tol`` and ``aim`` of :func:`solve` for kernels of the dtype of ``like``.

    In float32 a gap of 1e-4 is enough, but functions are only as close as its root; so
    the aim is ``tol``, as in float64, while the steps get closer.
    """
    single = namespace(like).finfo(like.dtype).bits == 32
    enough = max(float(tol), FLOAT32_TOL) if single else float(tol)
    return {"tol": enough, "aim": float(tol)}


_CURVED = {"hessian", "averages"}  # Newton's method, and cutting planes if it stalls
_BALL = {"norm", "polyhedron"}
_newton = partial(Method, same_point=True)
#: If several methods of one name fit a problem, the first is used. "auto" means the
#: first that fits, unless the criterion prefers another.
METHODS: tuple[Method, ...] = (
    _newton("newton", block_newton, 60, {"expansion", "hessian"}, _BALL),
    _newton("newton", block_newton, 400, {"expansion", *_CURVED}, {"polyhedron"}),
    _newton("interior_point", interior_point, 400, {"saddle", "hessian"}, _BALL),
    _newton("newton", svc_newton, 400, {"saddle", *_CURVED}, {"polyhedron"}),
    _newton("newton", newton, 100, {"hessian", "likelihood"}, {"polyhedron"}, True),
    _newton("newton", newton, 60, {"hessian"}, {"polyhedron"}, True),
    Method("active_set", active_set, 2, {"cosines"}, {"norm"}),
    Method("active_set", aligned_cuts, 2, {"cosines"}, {"polyhedron"}),
    Method("closed_form", closed_form, 2000, {"parts"}, {"norm"}),
    Method("cutting_plane", cutting_plane, 1000, {"averages"}, {"polyhedron"}),
    Method("working_set", working_set, 100, {"hessian", "kernel scores"}, _BALL),
    Method("em", em, 20_000, {"likelihood"}, {"norm"}),
    Method("qcqp", qcqp, 2, {"printed dual"}, {"norm"}),
    Method("sdp", sdp, 2, {"printed program"}, {"polyhedron"}),
    Method("sdp", alignment_sdp, 2, {"cosines"}, {"norm"}),
    Method("spectral_cuts", aligned_cuts, 200, {"cosines"}, {"cuts"}),
    Method("spectral_cuts", spectral_cuts, 300, {"averages"}, {"cuts"}),
    Method("sdp", sdp, 2, {"printed program"}, {"cuts"}),
    Method("sdp", alignment_sdp, 2, {"cosines"}, {"cuts"}),
)
#: They need nothing of a set but its support function. "auto" tries them last, and
#: estimators do not offer them: the sets that these use have faster methods.
GENERAL_METHODS: tuple[Method, ...] = (
    Method("frank_wolfe", aligned_points, 1000, {"cosines"}),
    Method("frank_wolfe", frank_wolfe, 400),
)


def fitting_methods(
    criterion: Any, weight_set: Any, methods: tuple[Method, ...] = METHODS
) -> dict[str, Method]:
    """The methods for a criterion and a weight set, or for their classes, by name."""
    fitting: dict[str, Method] = {}
    for method in methods:
        if not method.lacks(criterion, weight_set):
            fitting.setdefault(method.name, method)
    return fitting


def choose_method(criterion: Any, weight_set: Any, method: str | Method) -> Method:
    """The method of that name for a problem; "auto" is the one that suits it best.

    Raises
    ------
    ValueError
        If it does not fit: the message says what is missing, and which methods fit.
    """
    every_method = METHODS + GENERAL_METHODS
    fitting = fitting_methods(criterion, weight_set, every_method)
    problem = f"{type(criterion).__name__} over {weight_set!r}"
    if isinstance(method, str) and method in fitting:
        return fitting[method]
    if method == "auto" and fitting:
        return fitting.get(criterion.preferred_method, next(iter(fitting.values())))
    if isinstance(method, Method):
        named, method = [method], method.name
    else:
        named = [m for m in every_method if m.name == method]
    lacking = min((m.lacks(criterion, weight_set) for m in named), key=len, default=[])
    if named and not lacking:
        return named[0]
    missing = f"; it needs {' and '.join(lacking)}" if lacking else ""
    if not fitting:
        needs = [(m.name, m.lacks(criterion, weight_set)) for m in every_method]
        fewest = min(len(lacks) for _, lacks in needs)
        nearest = [
            f"{name!r} needs {' and '.join(lacks)}"
            for name, lacks in needs
            if len(lacks) == fewest
        ]
        raise ValueError(
            f"no method minimises {problem}: the criterion offers "
            f"{sorted(criterion.offers)}, the weight set {sorted(weight_set.offers)}"
            f"{missing or '; ' + ', '.join(nearest)}. The docstrings of Criterion and "
            "WeightSet in kernelweave.protocols say how to offer more"
        )
    raise ValueError(
        f"method must be 'auto' or one of {sorted(fitting)} for {problem}, got "
        f"{method!r}{missing}"
    )


#: Share of a gap above which rounding explains it: it also enters a bound squared.
MOSTLY = 0.1
#: Beyond ``tol``, the gap must halve on the way to the aim within this share of the
#: iterations that the method may take: at once for Newton's method, which does so as
#: long as rounding lets it, and within 30 cutting planes. Where values have kinks, as
#: those of machines on subspaces, Newton's method may take a few steps.
FURTHER, KINKED = 0.03, 4


def solve(
    criterion: Criterion,
    weights: WeightSet,
    method: str | Method = "auto",
    tol: float = 1e-8,
    max_iter: int | None = None,
    callback: Callback | None = None,
    start: np.ndarray | None = None,
    aim: float | None = None,
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
        the one that needs the fewest factorisations. "frank_wolfe" fits every set of
        non-negative weights; "auto" picks it where no other method fits.
    tol : float, default=1e-8
        Relative gap between value and lower bound at which to stop.
    max_iter : int, optional
        Maximum number of iterations; the default is many times what the method
        usually needs.
    callback : callable, optional
        Called after each iteration with the new row of ``Solution.trace``; a true
        result stops the solve.
    start : ndarray of shape (m,), optional
        Weights near which the optimum is expected, such as those of
        :func:`~kernelweave.solvers.newton.carried_over`, at any scale. Only Newton's
        method in the weights makes use of them; the optimum is the same.
    aim : float, optional
        A gap below ``tol`` that is not required, but aimed for as long as steps still
        halve the gap.

    Returns
    -------
    Solution
        Weights, value, lower bound, gap and status. A solve that does not converge
        returns a Solution too, with the gap it reached.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import Fisher, Simplex, solve
    >>> from kernelweave.kernels import DenseBank
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 4))
    >>> y = np.repeat([1.0, -1.0], 15)
    >>> X[:, 0] += y
    >>> kernels = np.stack([np.outer(x, x) for x in X.T])
    >>> bank = DenseBank.from_kernels(kernels)
    >>> solution = solve(Fisher(bank, y[:, None], alpha=0.1), Simplex())
    >>> solution.converged, int(solution.weights.argmax())
    (True, 0)
    """
    minimum = find_weights(
        criterion, weights, method, tol, max_iter, callback, start, aim
    )
    return with_certificate(minimum, criterion, weights)


def find_weights(
    criterion: Criterion,
    weights: WeightSet,
    method: str | Method = "auto",
    tol: float = 1e-8,
    max_iter: int | None = None,
    callback: Callback | None = None,
    start: np.ndarray | None = None,
    aim: float | None = None,
) -> Minimum:
    """The weights of :func:`solve` alone, which takes the same arguments.

    For weights that are not shown, such as those of a fold: only the method's own
    bounds say how good they are.
    """
    _require_problem(criterion, weights)
    chosen = choose_method(criterion, weights, method)
    aim = tol if aim is None else aim
    _require_settings(tol, aim, max_iter, callback)
    limit = chosen.max_iter if max_iter is None else max_iter
    # Alignment depends on directions only: to it, a cube is the cone of all weights.
    is_cone = "cosines" in criterion.offers and "norm" in weights.offers
    if weights.is_point(criterion.n_weights) and not is_cone:
        chosen = replace(chosen, run=_only_point)
    elif start is not None and chosen.takes_start:
        start = _inside(criterion, weights, start)
        chosen = replace(chosen, run=partial(chosen.run, start=start))
    smooth = "concave reciprocal" in criterion.offers
    further = max(1 if smooth else KINKED, int(FURTHER * chosen.max_iter))
    loop = GapLoop[Iterate](tol, limit, callback, aim, further)
    best = _iterate(criterion, weights, chosen, loop)
    return Minimum(
        weights=_tidy(criterion, weights, best, tol),
        iterate=best,
        gap=loop.size,
        reason=loop.reason,
        n_factorizations=loop.n_factorizations,
        method=chosen,
        tol=tol,
        trace=tuple(loop.trace.rows),
    )


def with_certificate(
    minimum: Minimum, criterion: Criterion, weight_set: WeightSet
) -> Solution:
    """Certify weights that :func:`find_weights` has found for the same problem."""
    weights, best, tol = minimum.weights, minimum.iterate, minimum.tol
    dual = best.coef if best.dual is None else best.dual
    value, lower, gap = certify(criterion, weight_set, weights, best.coef, dual)
    if minimum.is_infeasible:
        value = gap = np.inf
    converged = abs(gap) <= tol  # bounds that cross by more are not to be trusted
    status = OPTIMAL if converged else minimum.reason
    if not converged and np.isfinite(gap):
        terms = criterion.certificate_terms(weights, best.coef, dual)
        stated = max(value - terms.upper, terms.rounding)  # by the certificate
        rounding = (stated + terms.excess) / abs(value or 1.0)
        zero = lower <= 0.0 <= value
        status = _explained(criterion, status, gap, rounding, zero)
    return Solution(
        weights=weights,
        value=value,
        lower_bound=lower,
        gap=gap,
        converged=converged,
        status=status.format(size=gap, tol=tol),
        remarks=(
            *criterion.remarks(weights),
            *weight_set.remarks(weights),
            *_note_gap(criterion, minimum.method, gap),
        ),
        n_iter=len(minimum.trace),
        n_factorizations=minimum.n_factorizations,
        coef=best.coef,
        dual=dual,
        gradient=best.gradient,
        method=minimum.method.name,
        tol=tol,
        trace=minimum.trace,
    )


def _require_problem(criterion: Any, weights: Any) -> None:
    """Refuse anything but a criterion of some weights and a weight set."""
    such = "criterion must be a criterion such as Fisher(bank, H, alpha)"
    if isinstance(criterion, type) or not hasattr(criterion, "evaluate"):
        raise TypeError(f"{such}; got {criterion!r:.80}")
    is_set = hasattr(weights, "maximizer") or hasattr(weights, "support")
    if isinstance(weights, type) or not is_set:
        raise TypeError(f"weights must be a set such as Simplex(); got {weights!r:.80}")
    names = ["start", "maximizer", "violation"]
    names += ["scale"] if getattr(weights, "offers", None) else []
    lacking = [name for name in names if _is_undefined(weights, name)]
    if lacking:
        raise TypeError(
            f"the weight set {type(weights).__name__} does not define "
            f"{' and '.join(lacking)}. A set that inherits from "
            "kernelweave.protocols.WeightSet is solved, with a certificate, once it "
            "defines start(m), a point inside; maximizer(scores), the point where "
            "<scores, w> is largest; and violation(w), 0 inside. If it offers "
            "anything, such as 'sparse', it needs scale(w) too"
        )
    if not criterion.n_weights:
        raise ValueError("the criterion has no kernels, and so no weights to learn")


def _is_undefined(weights: Any, name: str) -> bool:
    """Whether a weight set lacks a method, or inherits nothing but its description."""
    described = getattr(WeightSet, name)
    defined = getattr(type(weights), name, None)
    return not hasattr(weights, name) or defined is described


def _require_settings(tol: Any, aim: Any, max_iter: Any, callback: Any) -> None:
    """Refuse tolerances, a limit or a callback that make no sense."""
    require_positive(tol=tol, aim=aim)
    if max_iter is not None:
        require_count(1, max_iter=max_iter)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function, got {callback!r:.80}")


#: Share of the way from a given start to the inside of the set: interior methods cannot
#: leave its boundary.
INSIDE = 1e-6


def _inside(
    criterion: Criterion, weight_set: WeightSet, start: np.ndarray
) -> np.ndarray:
    """Weights (m,) to start from, moved into the set."""
    start, m = np.asarray(start), criterion.n_weights
    allowed = start.dtype.kind in "fiu" and np.isfinite(start) & (start >= 0)
    if start.shape != (m,) or not (np.all(allowed) and np.any(start > 0)):
        raise ValueError(
            f"start must hold {m} finite weights >= 0, not all 0; got {start.tolist()}"
        )
    near = weight_set.scale(start / float(np.max(start)))
    return weight_set.scale(near + INSIDE * (weight_set.start(m) - near))


def _only_point(criterion: Criterion, weight_set: WeightSet) -> Iterator[Iterate]:
    """The only point of a set, which takes no method to find."""
    weights = weight_set.start(criterion.n_weights)
    yield Iterate.at(weights, criterion.evaluate(weights, hessian=False))


#: Distance of functions from the optimum per root of the gap. It was up to 13.
PER_ROOT_OF_GAP = 10.0
#: How much closer functions are if a method leads to about the same point.
CLOSER = 5.0


def _note_gap(criterion: Criterion, method: Method, gap: float) -> tuple[str, ...]:
    """How far functions may be from those of float64, where a solver stops at a gap.

    Gaps up to 3e-7 are small enough for a method that leads to about the same point in
    both precisions; others lead to any point within the gap.
    """
    apart = PER_ROOT_OF_GAP * max(gap, 0.0) ** 0.5
    enough = NOTABLE * (CLOSER if method.same_point else 1.0)
    if not _is_single(criterion) or not enough < apart < np.inf:
        return ()
    return (
        f"the solver stopped at a relative gap of {gap:.0e}: functions agree with "
        f"those of float64 to about {min(apart, 1.0):.0e}, ten times its root; pass "
        "the rows in float64 for more",
    )


def _is_single(criterion: Criterion) -> bool:
    """Whether kernels are in float32."""
    return criterion.bank is not None and eps(criterion.bank.like) > DOUBLE_EPS


def _explained(
    criterion: Criterion, status: str, gap: float, rounding: float, zero: bool
) -> str:
    """The reason for stopping, or rounding if it explains the gap better.

    Relative gaps of an optimum that may be ``zero`` stay large, whatever is done.
    """
    single = _is_single(criterion)
    rounding += ROUNDING_UNITS * DOUBLE_EPS
    on_request = status.startswith(("stopped at", "stopped by"))
    if rounding <= MOSTLY * gap and (on_request or not single):
        return status
    precision = f"float{32 if single else 64}"
    if zero:
        return f"stopped: the optimum is zero up to rounding in {precision}"
    reason = f"stopped: rounding in {precision} keeps the relative gap at"
    if gap <= SMALL_GAP:
        return reason + " {size:.1e}"
    advice = "float64 kernels or more" if single else "more"
    return reason + f" {{size:.1e}}; {advice} regularisation would help"


def _iterate(
    criterion: Criterion,
    weight_set: WeightSet,
    method: Method,
    loop: GapLoop[Iterate],
) -> Iterate:
    """Run a method in a loop: the best iterate."""
    try:
        loop.run(_steps(criterion, weight_set, method))
    except FactorizationError as error:
        reason = str(error).replace("{", "(").replace("}", ")")
        loop.reason = f"stopped: {reason}; {loop.remaining}"
        near = loop.best is not None and loop.size <= SMALL_GAP
        if isinstance(error, InfeasibleError) and not near:
            # Rounding may have made values finite; else only a dual point is known.
            loop.reason = f"infeasible: {reason}"
            if loop.best is None:
                start = weight_set.start(criterion.n_weights)
                return Iterate(start, np.inf, np.zeros_like(start), error.coef)
        if loop.best is None:
            raise
    assert loop.best is not None
    return loop.best.point


def _steps(
    criterion: Criterion, weight_set: WeightSet, method: Method
) -> Iterator[Step[Iterate]]:
    """The iterates of a method, with their bounds; there is at least one."""
    iterate = None
    for iterate in method.run(criterion, weight_set):
        lower, count = iterate.bound(weight_set), iterate.n_factorizations
        yield Step(iterate, iterate.value, lower, n_factorizations=count)
    if iterate is None:
        raise ValueError(
            f"the method {method.name!r} has yielded no Iterate: its run(criterion, "
            "weight_set) must yield at least one, such as Iterate.at(weights, "
            "criterion.evaluate(weights))"
        )


#: The largest weight that counts as a zero of an interior method, where that is below
#: the root of the gap; smaller ones to try, as shares of it; the least gap assumed.
LARGEST_ZERO, SHARES, LEAST_GAP = 1e-4, np.array([1.0, 1e-2, 1e-4]), 1e-16
#: Scores up to this share of the largest mean that a kernel contributes nothing.
CONTRIBUTES_NOTHING = 1e-12


def _tidy(
    criterion: Criterion, weight_set: WeightSet, iterate: Iterate, tol: float
) -> np.ndarray:
    """The weights (m,), with zeros for those that only an interior method keeps.

    Views with the same kernel share its weight equally, which changes no sum: of the
    many optima this is the one that does not depend on the order of the views. Under
    complementarity ``w_i z_i = mu`` the weights below ``sqrt(mu)`` are those that
    tend to zero. The certificate decides: if the gap exceeds the tolerance, only
    smaller weights are dropped. It is asked only where something can be changed.
    """

    def gap(changed: np.ndarray) -> float:
        return certify(criterion, weight_set, changed, iterate.coef, iterate.dual)[2]

    weights, scores = iterate.weights, -iterate.gradient
    cuttable = weight_set.offers & {"sparse", "norm"}
    if not cuttable or weight_set.is_point(len(weights)):
        return weights
    slack = weight_set.support(scores) - float(scores @ weights)
    largest = np.sqrt(max(slack / abs(iterate.value or 1.0), 0.0) + LEAST_GAP)
    first = criterion.n_weights - criterion.n_kernels
    copies = criterion.copies() if "sparse" in cuttable else []
    if copies:
        shared = _shared(weights, copies)
        allowed = weight_set.violation(shared) <= ALLOWED_VIOLATION
        if allowed and gap(shared) <= max(tol, gap(weights)):
            weights = shared
    for cut in min(LARGEST_ZERO, largest) * SHARES:
        if "sparse" in cuttable:
            drop = weights < cut
        else:  # on a sphere only kernels that contribute nothing have weight zero
            drop = scores <= CONTRIBUTES_NOTHING * np.max(scores)
        drop[:first] = False
        if not np.any(drop) or not np.any(weights[first:][~drop[first:]] > 0.0):
            break
        tidy = weight_set.scale(np.where(drop, 0.0, weights))
        if gap(tidy) <= tol:
            return tidy
    return weights


def _shared(
    weights: np.ndarray, copies: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """The weights (m,), with those of kernels that are the same divided equally."""
    shared = weights.copy()
    for group, sharing in copies:
        shared[group] = 0.0
        shared[sharing] = np.sum(weights[group]) / len(sharing)
    return shared

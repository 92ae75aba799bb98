"""Local searches for subspaces: joint with SVMs, its weights, and by alignment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from kernelweave._array import (
    Array,
    dot,
    eps,
    from_numpy,
    namespace,
    require_memory,
    solve_triangular,
    squared_norm,
    to_numpy,
)
from kernelweave._tolerances import INVERTIBLE_SQUARE, LOCAL_MINIMUM, ROUNDING_UNITS
from kernelweave.criteria.margin import Margin, SubspaceProblem
from kernelweave.fits.design import RowDesign
from kernelweave.fits.subspace import (
    JointPoint,
    RegularizedKernel,
    Subspace,
    SubspaceSVM,
    normalized,
)
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.protocols import (
    Bank,
    Evaluation,
    NormSet,
    relative_gap,
    weight_remarks,
)
from kernelweave.solvers.loop import BoundsLoop, Callback, LocalLoop, Step, Trace
from kernelweave.solvers.solve import (
    Certificate,
    LocalSolution,
    Outcome,
    error_of_value,
    solve,
)

#: Rounds of the search for fewer dimensions than machines.
MAX_ROUNDS = 50
#: Step lengths tried between two dual points.
LENGTHS = np.linspace(0.05, 1.0, 20)
#: Number of times a descent step is shortened before the search gives up.
MAX_CUTS = 8
#: Default limit on the steps of the descent in the weights.
MAX_ITER = 100
#: What SciPy's SLSQP answers where it has used all of its iterations.
ITERATION_LIMIT = 9
#: Weights below this share of the largest are set to zero.
ZERO = 1e-9
#: Relative decrease below which a step of the descent is not worth taking.
LEAST_DECREASE = 1e-9
#: Slopes at which an ascent ends, as a share of what the tolerance of the whole allows
#: each entry.
SLOPE_SHARE = 1e-2
#: What the stationarity of a subspace is, in words.
SLOPE = "the gradient is {size:.1e} of the value"
#: Relative changes of the value at which the searches of SciPy end: in the weights, far
#: less than a local minimum needs; in subspaces, only where nothing changes at all.
FLAT_IN_WEIGHTS, FLAT_IN_SUBSPACES = 1e-10, 1e-15

Evaluated = tuple[np.ndarray, Evaluation]  # weights (p,), and what v is there
Placed = tuple[JointPoint, np.ndarray]  # and columns (n, l) that make it optimal


@dataclass(frozen=True, kw_only=True)
class JointSolution(Outcome):
    """A subspace with its machines, and bounds on its value.

    Attributes
    ----------
    point : JointPoint
        The best point found, with the smallest upper bound, which is the ``value``.
    gap : float
        ``(value - lower_bound) / value``: no subspace of this dimension has a smaller
        value than ``lower_bound``.
    """

    point: JointPoint
    gap: float


def solve_joint(
    problem: SubspaceSVM,
    n_components: int | None = None,
    *,
    duals: np.ndarray | None = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    callback: Callback | None = None,
) -> JointSolution:
    """Solve Eq. 9 or 20 of Chen et al. (2008) for one kernel.

    Parameters
    ----------
    problem : SubspaceSVM
        The problem.
    n_components : int, optional
        Maximum dimension of the subspace; by default that of the closed form.
    duals : ndarray of shape (n, m), optional
        The dual variables of the closed form, if known.
    tol : float, default=1e-6
        Relative gap to reach.
    max_iter : int, optional
        Maximum number of rounds if there is no closed form.
    callback : callable, optional
        Called with a :class:`TraceRow` after each round; a true result stops the
        search.

    Returns
    -------
    JointSolution
        The best point and its bounds.
    """
    limit = max_iter or MAX_ROUNDS
    if duals is None:
        duals = problem.closed_form().coef()
    if constant := problem.constant_machines(duals):  # any subspace will do
        whole = problem.label_subspace(n_components)
    else:
        whole = problem.subspace(duals)
    if constant or n_components is None or n_components >= len(whole.dependence):
        bound = problem.lower_bound(duals, None)
        rounds = iter([_round(problem.point(whole, duals), bound)])
    else:
        rounds = _search(problem, duals, n_components, limit)
    loop = BoundsLoop[JointPoint](tol, limit, callback)
    best = loop.run(rounds)
    return JointSolution(
        point=best.point,
        value=best.value,
        lower_bound=loop.lower_bound,
        gap=loop.size,
        converged=loop.converged,
        status=loop.status,
        n_iter=loop.n_iter,
        trace=tuple(loop.trace.rows),
    )


def _round(point: JointPoint, lower_bound: float = -np.inf) -> Step[JointPoint]:
    """A round that has led to a point, and to a bound on all subspaces."""
    return Step(point, point.upper, lower_bound)


def _search(
    problem: SubspaceSVM, duals: np.ndarray, n_components: int, limit: int
) -> Iterator[Step[JointPoint]]:
    """From the truncated closed form, raise the lower bound, then lower the value.

    The first half of the rounds alternates between subspace and machines, but moves
    only part of the way to the new dual variables, to where the lower bound, which is
    concave in them, is largest. The second half descends from the best subspace found.
    """
    best: Placed | None = None
    bound = problem.lower_bound(duals, n_components)
    for number in range(max(limit // 2, 1)):
        here = _place(problem, duals, n_components)
        yield _round(here[0], bound)
        if best is None or here[0].upper < best[0].upper:
            best = here
        ahead = here[0].duals - duals
        bounds = problem.bounds_along(duals, ahead, LENGTHS, n_components)
        chosen = int(np.argmax(bounds))
        if bounds[chosen] > bound:
            duals, bound = duals + LENGTHS[chosen] * ahead, float(bounds[chosen])
        else:  # at a kink of the bound, which ever shorter steps leave behind
            duals = duals + 2.0 / (number + 3.0) * ahead
            bound = problem.lower_bound(duals, n_components)
    assert best is not None
    yield from _descend(problem, best, n_components)


def _place(problem: SubspaceSVM, target: np.ndarray, n_components: int) -> Placed:
    """The best subspace for the columns of ``target`` (n, k), with its machines."""
    subspace = problem.subspace(target, n_components)
    assert subspace.axes is not None
    return problem.point(subspace), target @ subspace.axes


def _descend(
    problem: SubspaceSVM, here: Placed, n_components: int
) -> Iterator[Step[JointPoint]]:
    """Projected gradient steps on the value as a function of the subspace.

    In coordinates in which subspaces are projections X, the gradient is
    ``-Z'A A'Z / 2``, and the projection of ``X + eta Z'A A'Z`` is the best subspace for
    the scaled columns of A together with those for which X itself is optimal.
    """
    point, columns = here
    largest = np.max(np.abs(point.duals / problem.design.each[:, None]))
    eta = 1.0 / max(float(largest), INVERTIBLE_SQUARE) ** 2
    while True:
        for _ in range(MAX_CUTS):
            target = np.column_stack([columns, np.sqrt(eta) * point.duals])
            candidate, candidate_columns = _place(problem, target, n_components)
            if candidate.upper < point.upper * (1.0 - LEAST_DECREASE):
                break
            eta /= 4.0
        else:
            return
        yield _round(candidate)
        point, columns, eta = candidate, candidate_columns, 3.0 * eta


def best_plain_kernel(
    bank: Bank,
    target: Array,
    alpha: float,
    n_components: int | None,
    design: RowDesign,
    tol: float,
) -> tuple[np.ndarray, Certificate]:
    """Weights (p,) that sum to one and have the most dependent plain subspace.

    Chen et al. (2008), Eq. 8, for a sum of kernels: the sum of the largest eigenvalues
    of ``L' G (G + alpha I)^-1 G L``. Since ``t^2 / (t + alpha)`` is operator convex, it
    is convex in the weights, and largest at a single kernel. All of them are tried.

    Parameters
    ----------
    bank : Bank
        p centred kernels.
    target : array of shape (n, k)
        L, with columns that sum to zero.
    alpha : float
        Regularisation.
    n_components : int or None
        Maximum number of directions; None keeps all.
    design : RowDesign
        Weights of the rows.
    tol : float
        The gap that lost digits may leave.
    """
    goal, units = design.scale(target), np.eye(bank.n_kernels)
    kernels = (RegularizedKernel(bank.combine(unit), alpha, design) for unit in units)
    values = [
        float(np.sum(kernel.subspace(goal, n_components).dependence))
        for kernel in kernels
    ]
    best = int(np.argmax(values))
    lower = -values[best] * (1.0 + ROUNDING_UNITS * bank.n_samples * eps(target))
    certificate = Certificate(
        value=-values[best],
        lower_bound=lower,
        gap=relative_gap(-values[best], lower),
        status=f"optimal: the best of {len(values)} kernels, and no sum is better",
        converged=True,
        problem="minus the dependence of plain subspaces, l1 weights, "
        f"alpha={alpha:.3g}",
        tol=max(tol, relative_gap(-values[best], lower)),
    )
    slope = float(np.sum(to_numpy(goal) ** 2)) / abs(values[best] or 1.0)
    error = error_of_value(bank, units[best], slope)
    return units[best], certificate.widened(error)


class PlainSubspaceMargin(SubspaceProblem):
    """``v(w) = max_A sum(a) - tr(A' K(w) A) / 2``, ``K(w) = G (G + alpha I)^-1 G``.

    The joint problem of Chen et al. (2008), Eq. 9, with the subspace (of at least k
    dimensions) eliminated, for a sum ``G = sum_i w_i G_i`` of kernels, a case the paper
    leaves open. K is convex in w, so v is neither convex nor concave in general. With
    ``B = alpha (G + alpha I)^-1 A``::

        dv/dw_i = -( tr(A'G_iA) - tr(B'G_iB) ) / 2
        v(w)   >= max_A  sum(a) - sum_i w_i tr(A' K_i A) / 2,    sum(w) <= s
        K_i     = G_i (G_i + (alpha / s) I)^-1 G_i

    The second line holds because ``K(w) <= sum_i w_i K_i`` in the Loewner order: with
    ``sum(w) = t``, K is at most the weighted mean of ``K(t G_i)``, and ``K(t G_i) / t``
    increases with t. Its right side is the convex problem of Lanckriet et al. (2002)
    for the kernels K_i, and for s = 1 it equals v at every single kernel. So its
    minimum bounds v from below, and where that is attained at a single kernel, no sum
    of kernels is better than this one. Row weights enter as in
    :class:`~kernelweave.criteria.margin.SubspaceMargin`, and the parameters are the
    same. A local search needs less than a criterion, whose certificate must bound v.
    """

    uncorrelated = False

    def evaluate(self, weights: np.ndarray) -> Evaluation:
        """Value, gradient and A (n, m) from one factorisation and m SVMs."""
        problem = self.at(weights)
        duals = problem.closed_form().coef()
        value = problem.lower_bound(duals, None)
        a = from_numpy(self.design.unscale(duals), self.bank.like)
        b = self.alpha * problem.kernel.solve(a)
        scores = self.bank.quad(a) - self.bank.quad(b)
        return Evaluation(value, -0.5 * scores, None, duals)

    def minorant(self, total: float = 1.0) -> Margin:
        """The convex lower bound on v, with values twice those of the class docstring.

        Parameters
        ----------
        total : float
            s, the largest sum of weights allowed.
        """
        p, n = self.bank.n_kernels, self.bank.n_samples
        itemsize = np.dtype(np.float64).itemsize
        require_memory(
            p * n * n * itemsize,
            "a second set of kernels, for the lower bound of uncorrelated=False,",
            "use uncorrelated=True, which needs none, or fewer kernels",
            self.bank.like,
        )
        scaled = (total * self.bank.kernel(i) for i in range(p))
        kernels = (RegularizedKernel(gram, self.alpha, self.design) for gram in scaled)
        parts = [kernel.subspace_kernel() / total for kernel in kernels]
        bank = DenseBank(namespace(self.bank.like).stack(parts), self.bank.names)
        return Margin(bank, self.signs, "l1", self.C, self.design.weights)

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Whether the weights are identifiable."""
        return weight_remarks(self.bank, weights, False)


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
    kernel alone, its minimiser, and equal weights; the best of them is used. From
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
    p, norm = criterion.bank.n_kernels, weights.norm
    below = solve(criterion.minorant(weights.support(np.ones(p))), weights, tol=tol)
    loop = BoundsLoop[Evaluated](tol, max_iter or MAX_ITER, callback)
    search = _Search(criterion, weights, below.lower_bound / 2, loop)
    single = np.zeros(p)
    single[int(np.argmax(below.weights))] = 1.0
    try:
        for start in (single, below.weights, weights.start(p)):
            search.value(start)
        assert loop.best is not None
        result = minimize(  # sequential quadratic programming from the best of these
            search.value,
            loop.best.point[0],
            jac=True,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * p,
            constraints={
                "type": "eq",
                "fun": lambda w: np.sum(np.maximum(w, 0.0) ** norm) - 1.0,
                "jac": lambda w: norm * np.maximum(w, 0.0) ** (norm - 1.0),
            },
            options={"maxiter": loop.max_iter, "ftol": FLAT_IN_WEIGHTS},
        )
        if result.status == ITERATION_LIMIT:
            loop.end_at_limit()
        else:
            loop.end_without_step()
    except _EnoughError:
        pass
    assert loop.best is not None
    best, state = loop.best.point
    fall = float(state.gradient @ best) + weights.support(-state.gradient)
    stationarity = fall / state.value
    converged = stationarity <= LOCAL_MINIMUM
    ended = "a local minimum" if converged else loop.status
    n_evaluations = len(loop.trace.rows)
    return LocalSolution(
        weights=best,
        value=state.value,
        stationarity=stationarity,
        converged=converged,
        status=f"{ended}, stationary to {stationarity:.0e}",
        n_iter=n_evaluations,
        n_factorizations=p + below.n_factorizations + n_evaluations,
        lower_bound=min(loop.lower_bound, state.value),
        coef=np.asarray(state.coef),
        trace=tuple(loop.trace.rows),
    )


class _EnoughError(Exception):
    """The loop has ended the search."""


@dataclass
class _Search:
    """Evaluates v for a minimiser of SciPy, and hands each point to the loop."""

    criterion: PlainSubspaceMargin
    weights: NormSet
    lower_bound: float
    loop: BoundsLoop[Evaluated]

    def value(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient (p,) of v, both relative to the lower bound."""
        w = self.weights.scale(np.where(w > ZERO * np.max(w), w, 0.0))
        state = self.criterion.evaluate(w)
        # SciPy counts its own iterations, which may take several evaluations.
        step = Step((w, state), state.value, self.lower_bound, n_iter=0)
        if self.loop.take(step):
            raise _EnoughError
        # The value does not depend on the scale of w, so the slope along w is zero.
        normal = w ** (self.weights.norm - 1.0)
        slope = state.gradient - float(state.gradient @ w) * normal
        return state.value / self.lower_bound, slope / self.lower_bound


@dataclass(frozen=True, kw_only=True)
class AlignmentResult(Outcome):
    """A stationary point of the alignment, found from the HSIC subspace.

    Attributes
    ----------
    subspace : Subspace
        The directions; their alignment, between 0 and 1, is the ``value``.
    start : float
        The alignment of the HSIC subspace.
    stationarity : float
        Norm of the gradient times that of the variables, relative to the value.
    """

    subspace: Subspace
    start: float
    stationarity: float


class _Alignment:
    """``J(U) = <K, L L'> / (norm(K) norm(L L'))``, ``K = F (U'U)^-1 F'``.

    ``F = G W`` with ``W = R^-T U`` and ``R R' = G + alpha I``, so that the subspace
    kernel is that of Eq. 6. In these variables the Hessian is much better conditioned
    than in W. With ``N = U'U`` and ``X = (L L'F / <K, LL'> - F N^-1 F'F / norm(K)^2)
    N^-1`` the gradient is ``2 J (R^-1 G X - U N^-1 F' X)``.

    R is a factor of ``G + alpha I`` for centred W only, which means ``U'v = 0`` with
    ``v = R^-1 1``. Parts along v are removed: rounding errors there would grow, as they
    increase J.
    """

    def __init__(self, kernel: RegularizedKernel, target: Array) -> None:
        self.kernel, self.target = kernel, target
        self.size = np.sqrt(squared_norm(target.T @ target))
        v = solve_triangular(kernel.factor, kernel.design.root(target))  # (n, 1)
        self.null = v / squared_norm(v) ** 0.5

    def centred(self, u: Array) -> Array:
        """U (n, l) without its part along v."""
        return u - self.null @ (self.null.T @ u)

    def evaluate(self, u: Array) -> tuple[float, Array]:
        """J at ``centred(u)`` and its gradient (n, l); O(n^2 l)."""
        u = self.centred(u)
        factor, gram = self.kernel.factor, self.kernel.gram
        features = gram @ solve_triangular(factor, u, transpose=True)
        overlap = self.target.T @ features  # (k, l)
        inverse = from_numpy(np.linalg.inv(to_numpy(u.T @ u)), u)
        moments = inverse @ (features.T @ features)  # N^-1 F'F
        inner = dot(overlap @ inverse, overlap)
        norm2 = dot(moments, moments.T)
        value = inner / (np.sqrt(norm2) * self.size)
        x = self.target @ (overlap / inner) - features @ (moments / norm2)
        x = x @ inverse
        slope = solve_triangular(factor, gram @ x) - u @ (inverse @ (features.T @ x))
        return float(value), self.centred(2.0 * value * slope)


def align_subspace(
    kernel: RegularizedKernel,
    target: Array,
    n_components: int | None = None,
    max_iter: int = 200,
    tol: float = 1e-5,
    callback: Callback | None = None,
) -> AlignmentResult:
    """Maximise the alignment of the subspace kernel of Eq. 6 with the label kernel.

    The subspace of Wu and Farquhar (2007), the baseline of Chen et al. (2008), found by
    L-BFGS from the HSIC subspace of the same dimension. The problem is not convex: the
    result is a stationary point, with no bound on its distance from the optimum.

    Parameters
    ----------
    kernel : RegularizedKernel
        The kernel.
    target : array of shape (n, k)
        Centred factor of the label kernel.
    n_components : int, optional
        Maximum dimension; by default, and at most, that of the HSIC subspace.
    max_iter : int, default=200
        Maximum number of iterations.
    tol : float, default=1e-5
        Stationarity to reach.
    callback : callable, optional
        Called with a :class:`TraceRow` after each iteration; a true result stops the
        search.

    Returns
    -------
    AlignmentResult
        The subspace and its stationarity.
    """
    problem = _Alignment(kernel, target)
    start = kernel.subspace(target, n_components).coef
    # U = R'W = R^-1 (G + alpha I) W does not read the upper triangle of R.
    u = solve_triangular(kernel.factor, kernel.gram @ start + kernel.alpha * start)
    first, _ = problem.evaluate(u)
    loop = LocalLoop[Array](tol, max_iter, callback, SLOPE)
    last = loop.run(_ascents(problem, u, first, max_iter, tol, loop.trace))
    coef = solve_triangular(kernel.factor, last.point, transpose=True)
    return AlignmentResult(
        subspace=normalized(kernel, coef, target),
        value=last.value,
        start=first,
        stationarity=last.stationarity,
        converged=loop.converged,
        status=loop.status,
        n_iter=loop.n_iter,
        trace=tuple(loop.trace.rows),
    )


def _ascents(
    problem: _Alignment, u: Array, value: float, max_iter: int, tol: float, trace: Trace
) -> Iterator[Step[Array]]:
    """Ascents from U (n, l) of this value, and again from where they end.

    Their own iterations are told to the ``trace``; there are at most ``max_iter``.
    """
    left = max_iter
    while True:
        slope_tol = SLOPE_SHARE * tol * value / (u.shape[1] * np.sqrt(u.shape[0]))
        ascent = _ascend(problem, u, left, slope_tol, trace)
        u = problem.centred(from_numpy(ascent.x.reshape(u.shape), u))
        values, vectors = np.linalg.eigh(to_numpy(u.T @ u).astype(np.float64))
        u = u @ from_numpy(vectors / np.sqrt(values), u)  # now U'U = I
        value, slope = problem.evaluate(u)
        size = float(np.sqrt(squared_norm(slope) * squared_norm(u)) / value)
        n_iter = max(int(ascent.nit), 1)
        yield Step(u, value, stationarity=size, n_iter=n_iter, is_told=True)
        if ascent.nit == 0:
            return
        left -= n_iter


def _ascend(
    problem: _Alignment, u: Array, max_iter: int, slope_tol: float, trace: Trace
) -> OptimizeResult:
    """L-BFGS from U (n, l), whose norm fixes the scale of the gradient.

    Steps are normal to U, so its norm grows and the gradient shrinks accordingly.
    """

    def negative(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = problem.evaluate(from_numpy(flat.reshape(u.shape), u))
        return -value, -to_numpy(slope).astype(np.float64).ravel()

    return minimize(
        negative,
        to_numpy(u).astype(np.float64).ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=trace.follow(-1.0),
        options={
            "maxiter": max_iter,
            "gtol": slope_tol,
            "ftol": FLAT_IN_SUBSPACES,
            "maxcor": 20,
        },
    )

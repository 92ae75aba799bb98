"""The papers' own programs, solved by a general solver through cvxpy, for comparison.

They find the same weights as the other methods, at a cost that grows so fast with the
number of rows that a few dozen (margins) or a few hundred are the limit.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np

from kernelweave._array import FactorizationError, psd_factor, to_numpy
from kernelweave._tolerances import NULL_EIGENVALUE
from kernelweave.criteria.fisher import BlockFisher, ClassCentring, Fisher, WithinFisher
from kernelweave.criteria.margin import Margin
from kernelweave.exceptions import library
from kernelweave.kernels.banks.dense import host_stack
from kernelweave.protocols import (
    Bank,
    CosineCriterion,
    Criterion,
    Iterate,
    LinearSet,
    NormSet,
    WeightSet,
    has_cuts,
)
from kernelweave.solvers.alignment import certified
from kernelweave.solvers.cutting_plane import into_set

#: Clarabel is used up to this many entries in the semidefinite blocks (about n = 44 in
#: one block, or one second). Its time grows as n^6, so larger problems go to SCS.
CLARABEL_ENTRIES = 1000
CLARABEL_TOLERANCE = 1e-10
SCS_TOLERANCE = 1e-8
SCS_ITERATIONS = 20_000


def sdp(
    criterion: Criterion,
    weight_set: LinearSet,
    scs_iterations: int = SCS_ITERATIONS,
) -> Iterator[Iterate]:
    """Solve the papers' semidefinite program for a criterion: :func:`sdp_problem`.

    With weights of any sign, and kernels that are nearly collinear, the solver may stop
    early and still report an optimum; the point it finds is pulled into the set and
    certified like that of any other method.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    program, weights = sdp_problem(criterion, weight_set)
    run_solver(program, scs_iterations)
    yield _evaluated(criterion, weight_set, weights.value, program.status)


def sdp_problem(criterion: Criterion, weight_set: LinearSet) -> tuple[Any, Any]:
    """The unsolved cvxpy problem for a criterion, and its weights variable (m,).

    Ye et al. (2007), (9) over (10), (16), (34), (37), (40) or (41), or Lanckriet et al.
    (2002), Eq. 12, and its soft margins: the value and constraints of
    :func:`printed_program`. With weights of any sign the sum of kernels over all rows
    must be PSD.

    Kernels here have trace n, so the papers' ``theta_i r_i`` is our ``w_i`` and their
    ``theta_i G_i`` is our ``w_i G_i / n``. With ``alpha = n lambda`` we then have
    ``alpha M = alpha I + sum_i w_i G_i``. The identity itself has trace n: if its
    weight is learned, ``n M = w_0 I + sum_i w_i G_i``.
    """
    cp, signed = import_cvxpy("method='sdp'"), has_cuts(weight_set)
    weights = cp.Variable(criterion.n_weights, nonneg=not signed, name="weights")
    value, constraints = printed_program(criterion, cp, weights)
    constraints += _allowed_weights(cp, weight_set, weights)
    if has_cuts(weight_set):
        constraints.append(_combined(cp, weight_set.bank, weights) >> 0)
    return cp.Problem(cp.Minimize(value), constraints), weights


@singledispatch
def printed_program(criterion: Any, cp: Any, weights: Any) -> tuple[Any, list[Any]]:
    """The value of a criterion as a convex expression, and its constraints.

    A criterion that offers "printed program" registers a function for its class:
    ``printed_program.register(MyCriterion, function)``. It is given the criterion, the
    module cvxpy and the variable for the weights (m,).
    """
    raise _not_registered(criterion, "printed_program")


def _not_registered(criterion: Any, where: str) -> ValueError:
    name = type(criterion).__name__
    return ValueError(
        f"{name} has no program in kernelweave.solvers.reference; choose another "
        f"method, or give it one with {where}.register({name}, function)"
    )


@printed_program.register(Fisher)
def _fisher_program(fisher: Fisher, cp: Any, weights: Any) -> tuple[Any, list[Any]]:
    """The value of Fisher's criterion and its constraints.

    ======  ==============  ===================  =====================================
    Eq.     target          regularisation       constraint
    ======  ==============  ===================  =====================================
    (9)     any             fixed, within        ``[[N, J G h_j], [., t_j]] >= 0``
    (16)    one column      fixed                ``[[M, a], [a', t]] >= 0``
    (34)    k columns       fixed                ``[[M, h_j], [h_j', t_j]] >= 0``
    (37)    k columns       fixed, block form    ``[[M, H], [H', diag(t)]] >= 0``
    (40)    one column      learned              as (16)
    (41)    k columns       learned              as (34)
    ======  ==============  ===================  =====================================

    with ``M = I + (1/lambda) sum_i theta_i G_i``, or ``sum_i theta_i G_i`` with
    ``G_0 = I`` if the regularisation is learned; each minimises ``sum_j t_j``. For the
    within-class scatter of Kim et al. (2006), Eq. 9, ``G = sum_i theta_i G_i``,
    ``N = lambda I + J G J``, and ``sum_j (t_j - h_j' G h_j) / lambda`` is minimised.
    Rows and columns of the blocks are multiplied by constants, which preserves
    definiteness and saves a first-order solver thousands of iterations.
    """
    alpha = weights[0] if fisher.learns_identity else fisher.alpha
    matrix = _combined(cp, fisher.bank, weights) + alpha * np.eye(fisher.bank.n_samples)
    target, size = _target(fisher)
    return _fisher_cones(cp, fisher, matrix, target / size, size)


@printed_program.register(WithinFisher)
def _within_program(
    fisher: WithinFisher, cp: Any, weights: Any
) -> tuple[Any, list[Any]]:
    """Eq. 9."""
    total = _combined(cp, fisher.bank, weights)
    target, size = _target(fisher)
    centre, identity = _class_centring(fisher)
    matrix = centre @ total @ centre + fisher.alpha * identity
    columns = centre @ total @ (target / size)
    value, cones = _fisher_cones(cp, fisher, matrix, columns, size)
    return value - fisher.scale * cp.trace(target.T @ total @ target), cones


def _target(fisher: Fisher) -> tuple[np.ndarray, np.ndarray]:
    """H (n, k) and the norms of its columns (k,), or 1."""
    target = to_numpy(fisher.target).astype(np.float64)
    size = np.linalg.norm(target, axis=0)
    size[size == 0] = 1.0
    return target, size


def _class_centring(fisher: WithinFisher) -> tuple[np.ndarray, np.ndarray]:
    """J and I, (n, n)."""
    identity = np.eye(fisher.bank.n_samples)
    return ClassCentring(fisher.codes, identity).apply(identity), identity


def _fisher_cones(
    cp: Any, fisher: Fisher, matrix: Any, columns: Any, size: Any
) -> tuple[Any, list[Any]]:
    """``scale sum_j size_j^2 t_j``, with a block for each of the columns (n, k).

    The block form has one for all of them.
    """
    t = cp.Variable(len(size), name="t")  # in units of scale * size^2
    if isinstance(fisher, BlockFisher):
        blocks = [(columns, cp.diag(t))]
    else:
        each = range(len(size))
        blocks = [(columns[:, [j]], t[j : j + 1, None]) for j in each]
    cones = [cp.bmat([[matrix, b], [b.T, corner]]) >> 0 for b, corner in blocks]
    return fisher.scale * cp.sum(cp.multiply(size**2, t)), cones


@printed_program.register(Margin)
def _margin_program(margin: Margin, cp: Any, weights: Any) -> tuple[Any, list[Any]]:
    """The sum of the squared inverse margins, and its constraints."""
    problem, total = margin.problem, _combined(cp, margin.bank, weights)
    tau = weights[0] if margin.learns_identity else problem.tau
    counts = np.ones(margin.bank.n_samples)
    counts[margin.rows] = problem.counts
    value: Any = 0.0
    constraints: list[Any] = []
    for column in margin.signs.T:
        rows = np.flatnonzero(column)
        block, own = total[np.ix_(rows, rows)], counts[rows]
        t, cones = margin_lmi(cp, block, column[rows], problem.bound, tau, own)
        value, constraints = value + t, constraints + cones
    return value, constraints


def margin_lmi(
    cp: Any, kernel: Any, y: np.ndarray, bound: float, tau: Any, counts: np.ndarray
) -> tuple[Any, list[Any]]:
    """A variable t, and constraints equivalent to squared inverse margin <= t.

    Lanckriet et al. (2002), Eq. 8: with ``G = diag(y) K diag(y)``, for some
    ``nu >= 0``, ``delta >= 0`` and lam::

        [[G + tau diag(1/r), e + nu - delta + lam y], [., t - 2 C r'delta]]  PSD

    where delta, the multiplier of ``a <= C r``, is present only if the bound is finite.

    Parameters
    ----------
    cp : module
        cvxpy.
    kernel : expression of shape (n, n)
        K over the labelled rows, affine in the caller's variables.
    y : ndarray of shape (n,)
        +1 and -1.
    bound : float
        C, or infinity.
    tau : float or expression
        The contribution of squared slacks to the diagonal.
    counts : ndarray of shape (n,)
        The row weights r.
    """
    n = len(y)
    t, lam, nu = cp.Variable(), cp.Variable(), cp.Variable(n, nonneg=True)
    side, corner = np.ones(n) + nu + lam * y, t
    if np.isfinite(bound):
        delta = cp.Variable(n, nonneg=True)
        side, corner = side - delta, t - 2.0 * bound * (counts @ delta)
    top = cp.multiply(np.outer(y, y), kernel) + tau * np.diag(1.0 / counts)
    column = cp.reshape(side, (n, 1), order="C")
    corner = cp.reshape(corner, (1, 1), order="C")
    return t, [cp.bmat([[top, column], [column.T, corner]]) >> 0]


def qcqp(criterion: Criterion, weight_set: NormSet) -> Iterator[Iterate]:
    """The duals of the programs of :func:`sdp`: quadratic constraints only.

    ``min cost(B) + t`` subject to ``tr(B' G_i B) <= t`` for all i, with the identity
    among the kernels if its weight is learned. The multipliers of the constraints are
    the weights. For an lq ball, t bounds the dual norm of the scores.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    cp = import_cvxpy("method='qcqp'")
    beta, cost, unit, roots, constraints = printed_dual(criterion, cp)
    scores, t = [cp.sum_squares(root.T @ beta) for root in roots], cp.Variable()
    if weight_set.norm == 1:
        bounds = [score <= t for score in scores]
    else:
        dual_norm = weight_set.norm / (weight_set.norm - 1.0)
        bounds = [cp.pnorm(cp.hstack(scores), dual_norm) <= t]
    program = cp.Problem(cp.Minimize(unit * (cost + t)), constraints + bounds)
    run_solver(program)
    weights = None
    if beta.value is not None and weight_set.norm == 1:
        weights = np.ravel([bound.dual_value for bound in bounds])
    elif beta.value is not None:
        weights = weight_set.maximizer(np.array([score.value for score in scores]))
    yield _evaluated(criterion, weight_set, weights, program.status)


#: The direction B, its cost, a unit for both, roots of all kernels, constraints.
Dual = tuple[Any, Any, float, list[np.ndarray], list[Any]]


@singledispatch
def printed_dual(criterion: Any, cp: Any) -> Dual:
    """The parts of the program of :func:`qcqp`.

    A criterion that offers "printed dual" registers a function for its class, as for
    :func:`printed_program`.
    """
    raise _not_registered(criterion, "printed_dual")


@printed_dual.register(Fisher)
def _fisher_dual(fisher: Fisher, cp: Any) -> Dual:
    """The equivalent form of (16), (34), (40), (41) of Ye et al. (2007).

    The cost is ``alpha norm(B)^2 - 2 tr(B'H)``.
    """
    target = _unit_target(fisher)
    variable = cp.Variable(target.shape)
    alpha = 0.0 if fisher.learns_identity else float(fisher.alpha)
    # In units of alpha the dual has entries of the size of the target.
    unit = alpha or 1.0
    beta = variable / unit
    cost = alpha * cp.sum_squares(beta) - 2.0 * cp.sum(cp.multiply(beta, target))
    identity = [np.eye(len(target))] if fisher.learns_identity else []
    return beta, cost, unit, identity + _roots(fisher.bank), []


@printed_dual.register(WithinFisher)
def _within_dual(fisher: WithinFisher, cp: Any) -> Dual:
    """Eq. 9: the cost is ``alpha norm(V)^2`` with the direction ``H - J V``."""
    target = _unit_target(fisher)
    variable = cp.Variable(target.shape)
    cost = float(fisher.alpha) * cp.sum_squares(variable)
    direction = target - _class_centring(fisher)[0] @ variable
    return direction, cost, 1.0, _roots(fisher.bank), []


@printed_dual.register(Margin)
def _margin_dual(margin: Margin, cp: Any) -> Dual:
    """``max 2 e'a - tau a'Da - t`` over the box and ``y'a = 0``, with ``B = y a``."""
    problem = margin.problem
    signs = problem.signs
    beta = cp.Variable(signs.shape)
    a = cp.multiply(signs, beta)
    constraints = [a >= 0, cp.sum(beta, axis=0) == 0]
    if np.any(signs == 0):
        constraints.append(cp.multiply(signs == 0, beta) == 0)
    if np.isfinite(problem.bound):
        constraints.append(a <= np.outer(problem.bounds, np.ones(signs.shape[1])))
    root = np.diag(np.sqrt(problem.diagonal))
    cost = problem.tau * cp.sum_squares(root @ beta) - 2.0 * cp.sum(a)
    own = [root] if problem.identity else []
    return beta, cost, 1.0, own + _roots(problem.bank), constraints


def _unit_target(fisher: Fisher) -> np.ndarray:
    """The target (n, k), divided by its norm."""
    target = to_numpy(fisher.target).astype(np.float64)
    return target / (np.linalg.norm(target) or 1.0)


def _roots(bank: Bank) -> list[np.ndarray]:
    """R with ``R R' = G_i`` for every kernel, (n, r_i)."""
    return [psd_factor(kernel, NULL_EIGENVALUE) for kernel in host_stack(bank)]


def alignment_sdp(plain: CosineCriterion, weight_set: WeightSet) -> Iterator[Iterate]:
    """Lanckriet et al. (2002), Eq. 11.

    Its first blocks state ``norm(sum_i mu_i K_i) <= 1`` over the labelled rows, for
    which a second-order cone needs only p numbers. For non-negative weights the last
    block, a positive semidefinite sum, is replaced by the sign constraint.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    cp, signed = import_cvxpy("method='sdp'"), has_cuts(weight_set)
    weights = cp.Variable(plain.n_weights, nonneg=not signed)  # of kernels of norm one
    root = psd_factor(plain.correlations, NULL_EIGENVALUE).T
    constraints = [cp.norm(root @ weights) <= 1]
    if has_cuts(weight_set):
        units = plain.unscaled(np.ones(plain.n_weights))
        scaled = cp.multiply(units, weights)
        constraints.append(_combined(cp, weight_set.bank, scaled) >> 0)
    program = cp.Problem(cp.Maximize(plain.cosines @ weights), constraints)
    run_solver(program)
    if weights.value is None:
        raise FactorizationError(f"the cone solver found no weights: {program.status}")
    raw = plain.unscaled(np.asarray(weights.value))
    total = float(np.sum(raw if signed else np.maximum(raw, 0.0)))
    raw = raw / total if total > 0.0 else weight_set.start(plain.n_weights)
    yield certified(plain, weight_set, _inside(plain, weight_set, raw))


def _combined(cp: Any, bank: Bank, weights: Any) -> Any:
    """``sum_i w_i G_i`` (n, n), with the last p of the weights."""
    kernels = host_stack(bank)  # (p, n, n)
    flat = kernels.reshape(len(kernels), -1).T
    own = weights[weights.size - len(kernels) :]
    return cp.reshape(flat @ own, kernels.shape[1:], order="C")


def _allowed_weights(cp: Any, weight_set: LinearSet, weights: Any) -> list[Any]:
    """``w`` in the set, for a variable declared non-negative unless signs are free."""
    m = weights.size
    if weight_set.power != 1:
        return [cp.pnorm(weights, weight_set.power) <= 1]
    allowed = weight_set.polyhedron(m)
    rows, room = allowed.inequalities()
    return [allowed.equal @ weights == allowed.equal_to, rows @ weights <= room]


def _evaluated(
    criterion: Criterion, weight_set: WeightSet, raw: Any, status: str
) -> Iterate:
    """The iterate at the weights found by a cone solver, moved into the set."""
    if raw is None or not np.max(raw) > 0:
        criterion.evaluate(weight_set.start(criterion.n_weights))  # may explain why
        raise FactorizationError(f"the cone solver found no weights: {status}")
    weights = _inside(criterion, weight_set, np.asarray(raw, dtype=np.float64))
    return Iterate.at(weights, criterion.evaluate(weights, hessian=False))


def _inside(criterion: Criterion, weight_set: WeightSet, raw: np.ndarray) -> np.ndarray:
    """Weights (m,) moved into the set, whatever their signs."""
    if has_cuts(weight_set):
        low, high = weight_set.polyhedron(len(raw)).limits.T
        return weight_set.separate(weight_set.scale(np.clip(raw, low, high)))
    return into_set(criterion, weight_set, raw)


def run_solver(problem: Any, scs_iterations: int = SCS_ITERATIONS) -> None:
    """Clarabel for small problems, SCS for the others."""
    blocks = [c.shape[0] for c in problem.constraints if type(c).__name__ == "PSD"]
    if sum(n * (n + 1) // 2 for n in blocks) <= CLARABEL_ENTRIES:
        names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
        options: dict[str, Any] = dict.fromkeys(names, CLARABEL_TOLERANCE)
        options["solver"] = "CLARABEL"
    else:
        options = dict.fromkeys(("eps_abs", "eps_rel"), SCS_TOLERANCE)
        options |= {"solver": "SCS", "max_iters": scs_iterations}
    with warnings.catch_warnings():
        # The certificate measures how accurate the weights are.
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        problem.solve(**options)


def import_cvxpy(owner: str) -> Any:
    """The module, or an error that says how to install it; ``owner`` needs it."""
    extra = "pip install 'kernelweave[sdp]'"
    return library("cvxpy", f"{owner} needs cvxpy; install it with: {extra}")

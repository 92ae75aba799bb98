"""The papers' own programs, solved by a general solver through cvxpy, for comparison.

They find the same weights as the other methods, at a cost that grows so fast with the
number of rows that a few dozen (margins) or a few hundred are the limit.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelweave._array import FactorizationError, psd_factor, to_numpy
from kernelweave._tolerances import NULL_EIGENVALUE
from kernelweave.criteria.alignment import Alignment
from kernelweave.criteria.fisher import BlockFisher, Fisher
from kernelweave.criteria.margin.margin import Margin
from kernelweave.kernels.banks.dense import host_stack
from kernelweave.protocols import (
    Bank,
    Criterion,
    Iterate,
    LinearSet,
    NormSet,
    WeightSet,
)
from kernelweave.solvers.alignment import certified
from kernelweave.solvers.cutting_plane import into_set
from kernelweave.weights.signed_sum import SignedSum

__all__ = [
    "alignment_sdp",
    "import_cvxpy",
    "margin_lmi",
    "margin_qcqp",
    "margin_sdp",
    "run_solver",
    "sdp",
    "sdp_problem",
]

#: Clarabel is used up to this many entries in the semidefinite blocks (about n = 44 in
#: one block, or one second). Its time grows as n^6, so larger problems go to SCS.
CLARABEL_ENTRIES = 1000
CLARABEL_TOLERANCE = 1e-10
SCS_TOLERANCE = 1e-8
SCS_ITERATIONS = 20_000


def sdp(
    fisher: Fisher, weight_set: LinearSet, scs_iterations: int = SCS_ITERATIONS
) -> Iterator[Iterate]:
    """Solve one of the SDPs (16), (34), (37), (40), (41) of Ye et al. (2007).

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    program, weights = sdp_problem(fisher, weight_set)
    run_solver(program, scs_iterations)
    yield _evaluated(fisher, weight_set, weights.value, program.status)


def sdp_problem(fisher: Fisher, weight_set: LinearSet) -> tuple[Any, Any]:
    """The unsolved cvxpy problem for a criterion, and its weights variable (m,).

    ======  ==============  ===================  =====================================
    Eq.     target          regularisation       constraint
    ======  ==============  ===================  =====================================
    (16)    one column      fixed                ``[[M, a], [a', t]] >= 0``
    (34)    k columns       fixed                ``[[M, h_j], [h_j', t_j]] >= 0``
    (37)    k columns       fixed, block form    ``[[M, H], [H', diag(t)]] >= 0``
    (40)    one column      learned              as (16)
    (41)    k columns       learned              as (34)
    ======  ==============  ===================  =====================================

    with ``M = I + (1/lambda) sum_i theta_i G_i``, or ``sum_i theta_i G_i`` with
    ``G_0 = I`` if the regularisation is learned; each minimises ``sum_j t_j``. Rows and
    columns of the blocks are multiplied by constants, which preserves definiteness and
    saves a first-order solver thousands of iterations.

    Kernels here have trace n, so the papers' ``theta_i r_i`` is our ``w_i`` and their
    ``theta_i G_i`` is our ``w_i G_i / n``. With ``alpha = n lambda`` we then have
    ``alpha M = alpha I + sum_i w_i G_i``. The identity itself has trace n: if its
    weight is learned, ``n M = w_0 I + sum_i w_i G_i``.
    """
    cp = import_cvxpy()
    weights = cp.Variable(fisher.n_weights, nonneg=True, name="weights")
    alpha = weights[0] if fisher.learns_alpha else fisher.alpha
    total = _combined(cp, fisher.bank, weights)
    matrix = total + alpha * np.eye(fisher.bank.n_samples)
    target = to_numpy(fisher.target).astype(np.float64)
    size = np.linalg.norm(target, axis=0)
    size[size == 0] = 1.0
    h = target / size
    t = cp.Variable(h.shape[1], name="t")  # in units of scale * size^2
    if isinstance(fisher, BlockFisher):
        cones = [cp.bmat([[matrix, h], [h.T, cp.diag(t)]]) >> 0]
    else:
        cones = [
            cp.bmat([[matrix, h_j[:, None]], [h_j[None, :], t[j : j + 1, None]]]) >> 0
            for j, h_j in enumerate(h.T)
        ]
    total = cp.sum(cp.multiply(fisher.scale * size**2, t))
    constraints = cones + _allowed_weights(cp, weight_set, weights)
    return cp.Problem(cp.Minimize(total), constraints), weights


def margin_sdp(margin: Margin, weight_set: LinearSet) -> Iterator[Iterate]:
    """Lanckriet et al. (2002), Eq. 12, and its soft margins.

    With weights of any sign the sum of kernels over all rows must be PSD. If kernels
    are then nearly collinear, the solver may stop early and still report an optimum;
    the point it finds is pulled into the set and certified like that of any other
    method.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    cp = import_cvxpy()
    signed, problem = isinstance(weight_set, SignedSum), margin.problem
    weights = cp.Variable(margin.n_weights, nonneg=not signed, name="weights")
    total = _combined(cp, margin.bank, weights)
    tau = weights[0] if margin.learns_C else problem.tau
    value, constraints = 0.0, _allowed_weights(cp, weight_set, weights)
    if signed:
        constraints.append(total >> 0)
    for column in margin.signs.T:
        rows = np.flatnonzero(column)
        block = total[np.ix_(rows, rows)]
        t, cones = margin_lmi(cp, block, column[rows], problem.bound, tau)
        value, constraints = value + t, constraints + cones
    program = cp.Problem(cp.Minimize(value), constraints)
    run_solver(program)
    yield _evaluated(margin, weight_set, weights.value, program.status)


def margin_lmi(
    cp: Any, kernel: Any, y: np.ndarray, bound: float, tau: Any
) -> tuple[Any, list[Any]]:
    """A variable t, and constraints equivalent to squared inverse margin <= t.

    Lanckriet et al. (2002), Eq. 8: with ``G = diag(y) K diag(y)``, for some
    ``nu >= 0``, ``delta >= 0`` and lam::

        [[G + tau I, e + nu - delta + lam y], [., t - 2 C e'delta]]  PSD

    where delta, the multiplier of ``a <= C``, is present only if the bound is finite.

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
    """
    n = len(y)
    t, lam, nu = cp.Variable(), cp.Variable(), cp.Variable(n, nonneg=True)
    side, corner = np.ones(n) + nu + lam * y, t
    if np.isfinite(bound):
        delta = cp.Variable(n, nonneg=True)
        side, corner = side - delta, t - 2.0 * bound * cp.sum(delta)
    top = cp.multiply(np.outer(y, y), kernel) + tau * np.eye(n)
    column = cp.reshape(side, (n, 1), order="C")
    corner = cp.reshape(corner, (1, 1), order="C")
    return t, [cp.bmat([[top, column], [column.T, corner]]) >> 0]


def margin_qcqp(margin: Margin, weight_set: NormSet) -> Iterator[Iterate]:
    """The dual of :func:`margin_sdp`, a quadratically constrained program.

    ``max 2 e'a - tau a'a - t`` subject to ``a'G_i a <= t``, the box and ``y'a = 0``;
    the multipliers of the first constraints are the weights. For an lq ball, t bounds
    the dual norm of the scores.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    cp = import_cvxpy()
    problem, signs = margin.problem, margin.problem.signs
    beta, t = cp.Variable(signs.shape), cp.Variable()
    a = cp.multiply(signs, beta)
    constraints = [a >= 0, cp.sum(beta, axis=0) == 0]
    if not problem.all_labelled:
        constraints.append(cp.multiply(signs == 0, beta) == 0)
    if np.isfinite(problem.bound):
        constraints.append(a <= problem.bound)
    roots = [psd_factor(kernel, NULL_EIGENVALUE) for kernel in host_stack(problem.bank)]
    if problem.identity:
        roots.insert(0, np.eye(len(signs)))
    scores = [cp.sum_squares(root.T @ beta) for root in roots]
    weights: Any = None
    if weight_set.is_point(margin.n_weights):
        weights = weight_set.start(margin.n_weights)
        bounds = [sum(w * q for w, q in zip(weights, scores, strict=True)) <= t]
    elif weight_set.norm == 1:
        bounds = [score <= t for score in scores]
    else:
        dual_norm = weight_set.norm / (weight_set.norm - 1.0)
        bounds = [cp.pnorm(cp.hstack(scores), dual_norm) <= t]
    gain = 2.0 * cp.sum(a) - problem.tau * cp.sum_squares(beta) - t
    program = cp.Problem(cp.Maximize(gain), constraints + bounds)
    run_solver(program)
    if weights is None and beta.value is not None:
        if weight_set.norm == 1:
            weights = np.ravel([bound.dual_value for bound in bounds])
        else:
            weights = weight_set.maximizer(np.array([q.value for q in scores]))
    yield _evaluated(margin, weight_set, weights, program.status)


def alignment_sdp(plain: Alignment, weight_set: WeightSet) -> Iterator[Iterate]:
    """Lanckriet et al. (2002), Eq. 11.

    Its first blocks state ``norm(sum_i mu_i K_i) <= 1`` over the labelled rows, for
    which a second-order cone needs only p numbers. For non-negative weights the last
    block, a positive semidefinite sum, is replaced by the sign constraint.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    cp = import_cvxpy()
    signed = isinstance(weight_set, SignedSum)
    weights = cp.Variable(plain.n_weights, nonneg=not signed)  # of kernels of norm one
    root = psd_factor(plain.correlations, NULL_EIGENVALUE).T
    constraints = [cp.norm(root @ weights) <= 1]
    if signed:
        units = plain.unscaled(np.ones(plain.n_weights))
        constraints.append(_combined(cp, plain.bank, cp.multiply(units, weights)) >> 0)
    program = cp.Problem(cp.Maximize(plain.cosines @ weights), constraints)
    run_solver(program)
    if weights.value is None:
        raise FactorizationError(f"the cone solver found no weights: {program.status}")
    raw = plain.unscaled(np.asarray(weights.value))
    if not signed:
        raw = np.maximum(raw, 0.0)
    if not np.sum(raw) > 0.0:
        raw = weight_set.start(plain.n_weights)
    found = weight_set.scale(raw)
    if isinstance(weight_set, SignedSum):
        found = weight_set.separate(found)
    yield certified(plain, weight_set, found)


def _combined(cp: Any, bank: Bank, weights: Any) -> Any:
    """``sum_i w_i G_i`` over all rows, (n, n), with the last p of the weights."""
    kernels = host_stack(bank)
    flat = kernels.reshape(len(kernels), -1).T
    own = weights[weights.size - len(kernels) :]
    return cp.reshape(flat @ own, kernels.shape[1:], order="C")


def _allowed_weights(cp: Any, weight_set: LinearSet, weights: Any) -> list[Any]:
    """``w`` in the set, for a variable declared non-negative unless signs are free."""
    m = weights.size
    if weight_set.is_point(m):
        return [weights == weight_set.start(m)]
    if weight_set.power != 1:
        return [cp.pnorm(weights, weight_set.power) <= 1]
    allowed = weight_set.polyhedron(m)
    low, high = allowed.limits.T
    constraints = [allowed.equal @ weights == allowed.equal_to, weights >= low]
    if len(allowed.below):
        constraints.append(allowed.below @ weights <= allowed.below_to)
    if np.any(np.isfinite(high)):
        constraints.append(weights <= np.minimum(high, 1e9))
    return constraints


def _evaluated(
    criterion: Criterion, weight_set: WeightSet, raw: Any, status: str
) -> Iterate:
    """The iterate at the weights found by a cone solver, moved into the set."""
    if raw is None or not np.max(raw) > 0:
        criterion.evaluate(weight_set.start(criterion.n_weights))  # may explain why
        raise FactorizationError(f"the cone solver found no weights: {status}")
    weights = np.asarray(raw, dtype=np.float64)
    if isinstance(weight_set, SignedSum):
        low, high = weight_set.polyhedron(len(weights)).limits.T
        weights = weight_set.separate(weight_set.scale(np.clip(weights, low, high)))
    else:
        weights = into_set(criterion, weight_set, weights)
    return Iterate.at(weights, criterion.evaluate(weights, hessian=False))


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


def import_cvxpy() -> Any:
    """The module, or an error that says how to install it."""
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError(
            "method='sdp' needs cvxpy; install it with: pip install 'kernelweave[sdp]'"
        ) from error
    return cvxpy

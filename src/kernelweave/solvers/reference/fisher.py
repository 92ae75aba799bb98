"""The semidefinite programs of Ye et al. (2007) as printed, through cvxpy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelweave._array import FactorizationError, to_numpy
from kernelweave.criteria.fisher import BlockFisher, Fisher
from kernelweave.kernels.banks.dense import host_stack
from kernelweave.protocols import Iterate, LinearSet
from kernelweave.solvers.cutting_plane import into_set

__all__ = ["allowed_weights", "import_cvxpy", "run_solver", "sdp", "sdp_problem"]

#: Clarabel is used up to this many entries in the semidefinite blocks (about n = 44 in
#: one block, or one second). Its time grows as n^6, so larger problems go to SCS.
CLARABEL_ENTRIES = 1000
CLARABEL_TOLERANCE = 1e-10
SCS_TOLERANCE = 1e-8
SCS_ITERATIONS = 20_000


def sdp(criterion: Fisher, weight_set: LinearSet) -> Iterator[Iterate]:
    """Solve one of the SDPs (16), (34), (37), (40), (41) with a cone solver.

    For comparison only: it finds the same weights as the other methods, at a cost that
    grows so fast with n that a few hundred rows are the limit.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    problem, variable = sdp_problem(criterion, weight_set)
    run_solver(problem)
    if variable.value is None:
        raise FactorizationError(f"the cone solver found no weights: {problem.status}")
    weights = into_set(criterion, weight_set, np.asarray(variable.value))
    yield Iterate.at(weights, criterion.evaluate(weights, hessian=False))


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
    """
    cp = import_cvxpy()
    weights = cp.Variable(fisher.n_weights, nonneg=True, name="weights")
    matrix = _combined(cp, fisher, weights)
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
    constraints = cones + allowed_weights(cp, weight_set, weights)
    return cp.Problem(cp.Minimize(total), constraints), weights


def _combined(cp: Any, fisher: Any, weights: Any) -> Any:
    """The papers' combined kernel M, times alpha or n, as a function of the weights.

    Kernels here have trace n, so the papers' ``theta_i r_i`` is our ``w_i`` and their
    ``theta_i G_i`` is our ``w_i G_i / n``. With ``alpha = n lambda`` we then have
    ``alpha M = alpha I + sum_i w_i G_i``, (n, n). The identity itself has trace n: if
    its weight is learned, ``n M = w_0 I + sum_i w_i G_i``.
    """
    kernels = host_stack(fisher.bank)
    identity = np.eye(kernels.shape[1])
    if fisher.learns_identity:
        kernels = np.concatenate([identity[None], kernels])
    flat = kernels.reshape(len(kernels), -1).T
    total = cp.reshape(flat @ weights, identity.shape, order="C")
    return total if fisher.learns_identity else total + fisher.alpha * identity


def allowed_weights(cp: Any, weight_set: LinearSet, weights: Any) -> list[Any]:
    """``w`` in the set; the variable itself is declared non-negative."""
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


def run_solver(problem: Any) -> None:
    """Clarabel for small problems, SCS for the others."""
    blocks = [c.shape[0] for c in problem.constraints if type(c).__name__ == "PSD"]
    if sum(n * (n + 1) // 2 for n in blocks) <= CLARABEL_ENTRIES:
        names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
        options: dict[str, Any] = dict.fromkeys(names, CLARABEL_TOLERANCE)
        options["solver"] = "CLARABEL"
    else:
        options = {
            "solver": "SCS",
            "eps_abs": SCS_TOLERANCE,
            "eps_rel": SCS_TOLERANCE,
            "max_iters": SCS_ITERATIONS,
        }
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

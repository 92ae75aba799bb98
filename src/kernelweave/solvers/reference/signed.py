"""The semidefinite programs of Lanckriet et al. (2002) as printed, through cvxpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from kernelweave._array import FactorizationError
from kernelweave.criteria.alignment import Alignment
from kernelweave.criteria.margin import Margin
from kernelweave.kernels.banks.dense import host_stack
from kernelweave.protocols import Iterate, WeightSet
from kernelweave.solvers.alignment import square_root
from kernelweave.solvers.reference.fisher import import_cvxpy, run_solver
from kernelweave.weights.signed_sum import SignedSum

__all__ = ["alignment_sdp", "margin_lmi", "signed_sdp"]


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


def signed_sdp(margin: Margin, weight_set: SignedSum) -> Iterator[Iterate]:
    """Lanckriet et al. (2002), Eq. 12, and its soft margins, with a cone solver.

    For comparison only: n is limited to a few dozen rows, and with nearly collinear
    kernels the solver may stop early and still report an optimum. The point it finds
    is pulled into the set and certified like that of any other method.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    cp = import_cvxpy()
    weights = cp.Variable(margin.n_weights, name="weights")
    own = weights[margin.n_weights - margin.n_kernels :]
    total = _combined(cp, margin.bank, own)
    problem = margin.problem
    tau = weights[0] if margin.learns_identity else problem.tau
    objective, constraints = 0.0, _allowed(cp, weight_set, weights, total)
    for column in margin.signs.T:
        rows = np.flatnonzero(column)
        block = total[np.ix_(rows, rows)]
        t, cones = margin_lmi(cp, block, column[rows], problem.bound, tau)
        objective, constraints = objective + t, constraints + cones
    yield _solved(
        cp.Problem(cp.Minimize(objective), constraints), weights, margin, weight_set
    )


def alignment_sdp(plain: Alignment, weight_set: WeightSet) -> Iterator[Iterate]:
    """Lanckriet et al. (2002), Eq. 11, with a cone solver, for comparison.

    Its first blocks state ``norm(sum_i mu_i K_i) <= 1`` over the labelled rows, for
    which a second-order cone needs only p numbers. For non-negative weights the last
    block, a positive semidefinite sum, is replaced by the sign constraint.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    cp = import_cvxpy()
    weights = cp.Variable(plain.n_weights, name="weights")  # of kernels of norm one
    root, _ = square_root(plain.correlations, plain.cosines)
    constraints = [cp.norm(root @ weights) <= 1]
    signed = "cuts" in weight_set.offers
    if signed:
        units = plain.unscaled(np.ones(plain.n_weights))
        total = _combined(cp, plain.bank, cp.multiply(units, weights))
        constraints.append(total >> 0)
    else:
        constraints.append(weights >= 0)
    problem = cp.Problem(cp.Maximize(plain.cosines @ weights), constraints)
    run_solver(problem)
    if weights.value is None:
        raise FactorizationError(f"the cone solver found no weights: {problem.status}")
    raw = plain.unscaled(np.asarray(weights.value))
    if not signed:
        raw = np.maximum(raw, 0.0)
    if not np.sum(raw) > 0.0:
        raw = weight_set.start(plain.n_weights)
    found = weight_set.scale(raw)
    if isinstance(weight_set, SignedSum):
        found = weight_set.separate(found)
    state = plain.evaluate(found, hessian=False)
    lower = plain.certificate_terms(found, state.coef, state.coef).bound(weight_set)
    yield replace(Iterate.at(found, state), lower_bound=lower)


def _combined(cp: Any, bank: Any, weights: Any) -> Any:
    """``sum_i w_i G_i`` over all rows, (n, n)."""
    kernels = host_stack(bank)
    flat = kernels.reshape(len(kernels), -1).T
    return cp.reshape(flat @ weights, kernels.shape[1:], order="C")


def _allowed(cp: Any, weight_set: SignedSum, weights: Any, total: Any) -> list[Any]:
    limits = weight_set.limits(weights.size)
    return [
        cp.sum(weights) == 1,
        weights >= limits[:, 0],
        weights <= limits[:, 1],
        total >> 0,
    ]


def _solved(
    problem: Any, weights: Any, criterion: Any, weight_set: SignedSum
) -> Iterate:
    """The iterate at the weights found by the cone solver, moved into the set."""
    run_solver(problem)
    if weights.value is None:
        raise FactorizationError(f"the cone solver found no weights: {problem.status}")
    raw = np.asarray(weights.value, dtype=np.float64)
    limits = weight_set.limits(len(raw))
    found = weight_set.separate(
        weight_set.scale(np.clip(raw, limits[:, 0], limits[:, 1]))
    )
    return Iterate.at(found, criterion.evaluate(found, hessian=False))

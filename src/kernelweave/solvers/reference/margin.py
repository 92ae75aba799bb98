"""The margin programs of Lanckriet et al. (2002) for weights >= 0, through cvxpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelweave._array import FactorizationError
from kernelweave._tolerances import NULL_EIGENVALUE
from kernelweave.criteria.margin import Margin
from kernelweave.kernels.banks.dense import host_stack
from kernelweave.protocols import Criterion, Iterate, LinearSet, NormSet, WeightSet
from kernelweave.solvers.cutting_plane import into_set
from kernelweave.solvers.reference.fisher import (
    allowed_weights,
    import_cvxpy,
    run_solver,
)
from kernelweave.solvers.reference.signed import margin_lmi

__all__ = ["margin_qcqp", "margin_sdp"]


def margin_sdp(margin: Margin, weight_set: LinearSet) -> Iterator[Iterate]:
    """Lanckriet et al. (2002), Eq. 12 with its soft margins, as a semidefinite program.

    For comparison only, with a few dozen rows.

    Yields
    ------
    Iterate
        A single one, evaluated at the weights found by the cone solver.
    """
    cp = import_cvxpy()
    weights = cp.Variable(margin.n_weights, nonneg=True, name="weights")
    problem = margin.problem
    kernels = host_stack(problem.bank)
    flat = kernels.reshape(len(kernels), -1).T
    own = weights[margin.n_weights - margin.n_kernels :]
    total = cp.reshape(flat @ own, kernels.shape[1:], order="C")
    tau = weights[0] if problem.identity else problem.tau
    value, constraints = 0.0, allowed_weights(cp, weight_set, weights)
    for column in problem.signs.T:
        rows = np.flatnonzero(column)
        block = total[np.ix_(rows, rows)]
        t, cones = margin_lmi(cp, block, column[rows], problem.bound, tau)
        value, constraints = value + t, constraints + cones
    program = cp.Problem(cp.Minimize(value), constraints)
    run_solver(program)
    yield _evaluated(margin, weight_set, weights.value, program.status)


def margin_qcqp(margin: Margin, weight_set: NormSet) -> Iterator[Iterate]:
    """The dual of :func:`margin_sdp`, a quadratically constrained program.

    ``max 2 e'a - tau a'a - t`` subject to ``a'G_i a <= t``, the box and ``y'a = 0``;
    the multipliers of the first constraints are the weights. For an lq ball, t bounds
    the dual norm of the scores. For comparison only, with a few hundred rows.

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
    scores = [cp.sum_squares(root.T @ beta) for root in _roots(problem)]
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
    if weights is None and weight_set.norm == 1:
        duals = [bound.dual_value for bound in bounds]
        weights = None if duals[0] is None else np.ravel(duals)
    elif weights is None and beta.value is not None:
        weights = weight_set.maximizer(np.array([q.value for q in scores]))
    yield _evaluated(margin, weight_set, weights, program.status)


def _roots(problem: Any) -> list[np.ndarray]:
    """F_i (n, rank) with ``G_i = F_i F_i'``, the identity first if it is a kernel."""
    roots = [np.eye(len(problem.signs))] if problem.identity else []
    for kernel in host_stack(problem.bank):
        values, vectors = np.linalg.eigh(kernel)
        keep = values > NULL_EIGENVALUE * max(float(values[-1]), 0.0)
        roots.append(vectors[:, keep] * np.sqrt(values[keep]))
    return roots


def _evaluated(
    criterion: Criterion, weight_set: WeightSet, raw: Any, status: str
) -> Iterate:
    """The iterate at the weights found by a cone solver, moved into the set."""
    if raw is None or not np.max(raw) > 0:
        criterion.evaluate(weight_set.start(criterion.n_weights))  # may explain why
        raise FactorizationError(f"the cone solver found no weights: {status}")
    weights = into_set(criterion, weight_set, np.asarray(raw, dtype=np.float64))
    return Iterate.at(weights, criterion.evaluate(weights, hessian=False))

"""Interior point in the weights and the inner matrix of the block form jointly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from kernelweave._array import FactorizationError
from kernelweave.criteria.fisher import BlockDual, BlockExpansion
from kernelweave.inner.correlation import (
    TO_CONE_BOUNDARY,
    ComplementaryPair,
    dual_start,
    sym,
    unit_diagonal,
)
from kernelweave.inner.interior_point import BorderedSystem, largest_step, predict
from kernelweave.protocols import ExpansionCriterion, Iterate, NormSet
from kernelweave.solvers.cutting_plane import cutting_plane
from kernelweave.solvers.newton import (
    JUMP,
    LEAST_OF_SPREAD,
    in_powers,
    newton,
    onto_simplex,
    safe_step,
)

#: The spread of a gradient counts as this share of its mean, if it is less.
FLAT_SPREAD = 0.01

#: Newton steps in the weights alone before switching to the joint method.
STEPS_ALONE = 12


def block_newton(criterion: ExpansionCriterion, weight_set: Any) -> Iterator[Iterate]:
    """Newton's method in the weights and, if a kink stalls it, in X as well.

    Where the criterion is smooth, the former needs fewer factorisations and gets closer
    to machine precision; the latter does not rely on smoothness. Nor do cutting planes,
    which take its place where further constraints limit the weights.
    """
    with suppress(FactorizationError):
        yield from islice(newton(criterion, weight_set), STEPS_ALONE)
    then = joint_newton if "norm" in weight_set.offers else cutting_plane
    yield from then(criterion, weight_set)


def joint_newton(
    criterion: ExpansionCriterion, weight_set: NormSet
) -> Iterator[Iterate]:
    """Minimise ``sum t`` over w and t with ``S = diag(t) - A(w)`` PSD (Eq. 37).

    The criterion has kinks wherever its inner maximiser X is not unique, and its
    minimum is often at one. So X is not eliminated but updated with the weights: with
    ``v = w^q`` as in :func:`kernelweave.solvers.newton.newton`, the conditions are::

        tr(X dA/dv_i) + nu - z_i = 0,   diag X = 1,   sum_i v_i = 1,
        v_i z_i = mu,   X S = mu I,   mu -> 0.

    Each step expands A once (one factorisation) and takes Mehrotra's predictor and
    corrector on a system of m + 1 unknowns, once dX and dt are eliminated. Since A is
    convex in w, its curvature could make S indefinite; t is raised to compensate.

    Yields
    ------
    Iterate
        One per expansion, with its lower bound.
    """
    q = weight_set.norm
    weights = weight_set.start(criterion.n_weights)
    at, count = criterion.expand(weights), 1
    unit = float(np.trace(at.matrix)) or 1.0  # makes the iteration scale-invariant
    point = _start(at, weights, q, unit)
    while True:
        # t bounds the value from above, X the optimum from below.
        weights = point.v ** (1.0 / q)
        gradient = criterion.scale * np.einsum("kl,ikl->i", point.x, at.slopes)
        reward = criterion.scale * float(np.sum(point.x * at.matrix))
        lower = reward - float(gradient @ weights) - weight_set.support(-gradient)
        value = criterion.scale * unit * float(np.sum(point.t))
        dual = BlockDual(at.coef, point.x)
        yield Iterate(weights, value, gradient, dual, dual, lower, count)
        system = _BlockSystem(at, point, q, unit)
        predictor, mu = predict(system)
        point, at, count = _move(criterion, system, system.solve(mu, predictor))


class _Point(NamedTuple):
    """Primal (v, t, S) and dual (z, nu, X) variables, or a step in them.

    A is divided by its initial trace, and ``S = diag(t) - A``.
    """

    v: np.ndarray
    t: np.ndarray
    s: np.ndarray
    z: np.ndarray
    nu: float
    x: np.ndarray


def _start(at: BlockExpansion, weights: np.ndarray, q: float, unit: float) -> _Point:
    """Equal weights, X = I, and multipliers as large as the spread of the gradient."""
    g = np.einsum("ikk->i", at.slopes) * weights ** (1.0 - q) / (q * unit)
    nu = -float(np.mean(g))
    spread = max(float(np.max(np.abs(g + nu))), FLAT_SPREAD * abs(nu))
    z = np.maximum(g + nu, LEAST_OF_SPREAD * spread)
    matrix = at.matrix / unit
    t = dual_start(matrix)
    return _Point(weights**q, t, np.diag(t) - matrix, z, nu, np.eye(len(t)))


class _BlockSystem:
    """The linearised conditions at one point, factored once and solved twice."""

    def __init__(
        self, at: BlockExpansion, point: _Point, q: float, unit: float
    ) -> None:
        v, x, m = point.v, point.x, len(point.v)
        self.point, self.q, self.unit = point, q, unit
        self.matrix = at.matrix / unit
        try:
            self.pair = ComplementaryPair(x, point.s)
        except np.linalg.LinAlgError as error:
            raise FactorizationError("rounding prevents a further step") from error
        slopes = at.slopes / unit
        gradient = np.einsum("kl,ikl->i", x, slopes)
        first, hessian = in_powers(gradient, at.bend(x) / unit, v ** (1.0 / q), q)
        self.slopes = slopes * first[:, None, None]  # dA/dv
        # X responds to A by sym(X dA_i S^-1), less what would change its diagonal.
        moved = x @ self.slopes @ self.pair.s_inverse
        self.diagonals = np.einsum("ikk->ki", moved)  # (k, m)
        hessian += sym(moved.reshape(m, -1) @ self.slopes.reshape(m, -1).T)
        hessian -= self.diagonals.T @ self.pair.diagonal_step(self.diagonals)
        self.bordered = BorderedSystem(hessian, v, point.z, np.ones((1, m)))

    def solve(self, mu: float, before: _Point | None = None) -> _Point:
        """The step to ``v z = mu``, ``X S = mu I``; ``before`` gives the correction."""
        point, pair = self.point, self.pair
        change, correction = mu - point.v * point.z, None
        if before is not None:
            change = change - before.v * before.z
            correction = before.x @ before.s
        part = pair.centring(mu, correction)
        dt = pair.diagonal_step(np.diag(part))
        x = point.x + pair.answer(part, np.diag(dt))
        residual = np.einsum("kl,ikl->i", x, self.slopes) + point.nu - point.z
        dv, dnu = self.bordered.solve(change / point.v - residual, np.zeros(1))
        dz = (change - point.z * dv) / point.v
        dt = dt + pair.diagonal_step(self.diagonals @ dv)
        ds = np.diag(dt) - self.moved(dv)
        return _Point(dv, dt, ds, dz, float(dnu[0]), pair.answer(part, ds))

    def mu(self, step: _Point | None = None) -> float:
        v, _, s, z, _, x = self.point
        if step is not None:
            primal, dual = self.lengths(step)
            v, s = v + primal * step.v, s + primal * step.s
            z, x = z + dual * step.z, x + dual * step.x
        return (float(np.sum(x * s)) + float(v @ z)) / (len(v) + len(x))

    def moved(self, dv: np.ndarray) -> np.ndarray:
        """``sum_i dv_i dA/dv_i``, (k, k)."""
        return np.einsum("i,ikl->kl", dv, self.slopes)

    def lengths(self, step: _Point, share: float = 1.0) -> tuple[float, float]:
        """Step lengths of the primal and the dual variables, at most 1."""
        reach_x, reach_s = self.pair.reach(step.x, step.s)
        primal = min(reach_s, largest_step(self.point.v, step.v))
        dual = min(reach_x, largest_step(self.point.z, step.z))
        return min(1.0, share * primal), min(1.0, share * dual)


def _move(
    criterion: ExpansionCriterion, system: _BlockSystem, step: _Point
) -> tuple[_Point, BlockExpansion, int]:
    """Take the step, shortened where A is infinite or jumps; counts the expansions."""
    point = system.point
    primal, dual = system.lengths(step, TO_CONE_BOUNDARY)
    limit = JUMP * system.unit * float(np.trace(system.matrix))
    share, v, tried = safe_step(
        lambda trial: criterion.expand(trial ** (1.0 / system.q)),
        lambda share: onto_simplex(point.v + share * primal * step.v),
        lambda _share, _trial, found: float(np.trace(found.matrix)) <= limit,
    )
    at, primal = tried[-1], share * primal
    matrix = at.matrix / system.unit
    foreseen = system.matrix + primal * system.moved(step.v)
    t = point.t + primal * step.t + np.sum(np.abs(matrix - foreseen), axis=1)
    new = _Point(
        v=v,
        t=t,
        s=np.diag(t) - matrix,
        z=point.z + dual * step.z,
        nu=point.nu + dual * step.nu,
        x=unit_diagonal(point.x + dual * step.x),
    )
    return new, at, len(tried)

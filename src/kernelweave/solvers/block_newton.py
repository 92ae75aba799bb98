"""Interior point on the weights and the inner matrix of the block form together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from scipy import linalg

from kernelweave._array import FactorizationError
from kernelweave.criteria.fisher.block import BlockDual, BlockExpansion, BlockFisher
from kernelweave.inner.correlation import (
    ComplementaryPair,
    dual_start,
    sym,
)
from kernelweave.protocols import Iterate, NormSet
from kernelweave.solvers.newton import largest_step, newton

__all__ = ["block_newton", "joint_newton"]

#: Fraction of the way to the boundary of the cones; bolder steps lose the central path.
TO_BOUNDARY = 0.9
#: A step is halved when the trace of A(w) exceeds this multiple of the last one.
JUMP = 3.0
MAX_HALVINGS = 30
#: Steps on the weights alone before X joins in.
PATIENCE = 12
#: The smallest weight the iteration keeps.
TINY = 1e-200


def block_newton(criterion: BlockFisher, weight_set: Any) -> Iterator[Iterate]:
    """Newton's method on the weights and, if a kink stalls it, on X as well.

    Where the criterion is smooth the first needs fewer factorisations and gets closer
    to machine precision; the second does not depend on that.
    """
    with suppress(FactorizationError):
        yield from islice(newton(criterion, weight_set), PATIENCE)
    yield from joint_newton(criterion, weight_set)


def joint_newton(criterion: BlockFisher, weight_set: NormSet) -> Iterator[Iterate]:
    """Minimise ``sum t`` over w and t with ``S = diag(t) - A(w)`` PSD (Eq. 37).

    The criterion has kinks wherever its inner maximiser X is not unique, and its
    minimum is often at one. So X is not eliminated but moves with the weights: with
    ``v = w^q`` as in :func:`kernelweave.solvers.newton.newton`, the conditions are::

        tr(X dA/dv_i) + nu - z_i = 0,   diag X = 1,   sum_i v_i = 1,
        v_i z_i = mu,   X S = mu I,   mu -> 0.

    Each step expands A once (one factorisation) and takes Mehrotra's predictor and
    corrector on a system of m + 1 unknowns, once dX and dt are eliminated. Since A is
    convex in w, S would lose what A bends; t makes up for it.

    Yields
    ------
    Iterate
        One for each expansion, with its lower bound.
    """
    q = weight_set.norm
    weights = weight_set.start(criterion.n_weights)
    if weight_set.is_point(len(weights)):
        yield Iterate.at(weights, criterion.evaluate(weights, hessian=False))
        return
    at, count = criterion.expand(weights), 1
    unit = float(np.trace(at.matrix)) or 1.0  # one scale for all problems
    point = _start(at, weights, q, unit)
    while True:
        iterate = _iterate(criterion, weight_set, at, point, unit)
        yield replace(iterate, n_factorizations=count)
        system = _System(at, point, q, unit)
        point, at, count = _safe_step(criterion, system, system.predictor_corrector())


@dataclass(frozen=True)
class _Point:
    """Primal (v, t) and dual (z, nu, X) variables; A is in units of its first trace."""

    v: np.ndarray
    t: np.ndarray
    z: np.ndarray
    nu: float
    x: np.ndarray


@dataclass(frozen=True)
class _Step:
    v: np.ndarray
    t: np.ndarray
    z: np.ndarray
    nu: float
    x: np.ndarray
    s: np.ndarray


def _start(at: BlockExpansion, weights: np.ndarray, q: float, unit: float) -> _Point:
    """Equal weights, X = I and multipliers of the size of the gradient's spread."""
    g = np.einsum("ikk->i", at.slopes) * weights ** (1.0 - q) / (q * unit)
    nu = -float(np.mean(g))
    spread = max(float(np.max(np.abs(g + nu))), 0.01 * abs(nu))
    z = np.maximum(g + nu, 0.1 * spread)
    t = dual_start(at.matrix / unit)
    return _Point(weights**q, t, z, nu, np.eye(len(t)))


def _iterate(
    criterion: BlockFisher,
    weight_set: NormSet,
    at: BlockExpansion,
    point: _Point,
    unit: float,
) -> Iterate:
    """What the loop needs: t bounds the value from above, X the optimum from below."""
    weights = point.v ** (1.0 / weight_set.norm)
    gradient = criterion.scale * np.einsum("kl,ikl->i", point.x, at.slopes)
    linear = criterion.scale * float(np.sum(point.x * at.matrix)) - gradient @ weights
    dual = BlockDual(at.coef, point.x)
    return Iterate(
        weights,
        value=criterion.scale * unit * float(np.sum(point.t)),
        gradient=gradient,
        coef=dual,
        dual=dual,
        lower_bound=float(linear) - weight_set.support(-gradient),
    )


class _System:
    """The linearised conditions at one point, factored once and solved twice."""

    def __init__(
        self, at: BlockExpansion, point: _Point, q: float, unit: float
    ) -> None:
        v, x, m = point.v, point.x, len(point.v)
        self.point, self.q, self.unit = point, q, unit
        self.matrix = at.matrix / unit
        try:
            self.pair = ComplementaryPair(x, np.diag(point.t) - self.matrix)
        except np.linalg.LinAlgError as error:
            raise FactorizationError("rounding leaves no room for a step") from error
        weights = v ** (1.0 / q)
        first = weights ** (1.0 - q) / q  # dw/dv
        second = first * (1.0 - q) / q / v  # d2w/dv2, negative
        self.slopes = at.slopes * (first / unit)[:, None, None]  # dA/dv
        hessian = at.bend(x) * first[:, None] * first[None, :] / unit
        bent = np.einsum("kl,ikl->i", x, at.slopes) * second / unit
        hessian[np.diag_indices(m)] += bent
        # X gives way when A moves: sym(X dA_i S^-1), less what keeps its diagonal.
        moved = x @ self.slopes @ self.pair.s_inverse
        self.diagonals = np.einsum("ikk->ki", moved)  # (k, m)
        hessian += sym(moved.reshape(m, -1) @ self.slopes.reshape(m, -1).T)
        hessian -= self.diagonals.T @ self.pair.diagonal_step(self.diagonals)
        # Scaling by v makes the diagonal of order one however small a weight is.
        self.scaling = np.append(v, 1.0)
        bordered = np.ones((m + 1, m + 1))
        bordered[:m, :m] = hessian
        bordered[m, m] = 0.0
        bordered *= self.scaling[:, None] * self.scaling[None, :]
        bordered[np.arange(m), np.arange(m)] += point.z * v
        self.factors = linalg.lu_factor(bordered, check_finite=False)

    def solve(self, mu: float, before: _Step | None = None) -> _Step:
        """The step towards ``v z = mu`` and ``X S = mu I``, corrected by another."""
        point, pair = self.point, self.pair
        complementarity = mu - point.v * point.z
        part = pair.centring(mu)
        if before is not None:
            complementarity = complementarity - before.v * before.z
            part = pair.centring(mu, before.x @ before.s)
        dt = pair.diagonal_step(np.diag(part))
        x = point.x + pair.answer(part, np.diag(dt))
        residual = np.einsum("kl,ikl->i", x, self.slopes) + point.nu - point.z
        right = np.append(complementarity / point.v - residual, 0.0)
        steps = linalg.lu_solve(self.factors, right * self.scaling) * self.scaling
        dv = steps[:-1]
        dt = dt + pair.diagonal_step(self.diagonals @ dv)
        ds = np.diag(dt) - self.moved(dv)
        dz = (complementarity - point.z * dv) / point.v
        return _Step(dv, dt, dz, float(steps[-1]), pair.answer(part, ds), ds)

    def moved(self, dv: np.ndarray) -> np.ndarray:
        """``sum_i dv_i dA/dv_i``, (k, k)."""
        return np.einsum("i,ikl->kl", dv, self.slopes)

    def lengths(self, step: _Step, share: float = 1.0) -> tuple[float, float]:
        """How far the primal and the dual variables go, at most 1."""
        reach_x, reach_s = self.pair.lengths(step.x, step.s)
        primal = min(reach_s, largest_step(self.point.v, step.v))
        dual = min(reach_x, largest_step(self.point.z, step.z))
        return min(1.0, share * primal), min(1.0, share * dual)

    def predictor_corrector(self) -> _Step:
        """Mehrotra's step: try mu = 0, then centre as much as that try suggests."""
        point, pair = self.point, self.pair
        total = pair.gap + float(point.v @ point.z)
        affine = self.solve(0.0)
        primal, dual = self.lengths(affine)
        after = float(np.sum((pair.x + dual * affine.x) * (pair.s + primal * affine.s)))
        after += float((point.v + primal * affine.v) @ (point.z + dual * affine.z))
        mean = total / (len(point.v) + len(point.t))
        mu = (max(after, 0.0) / total) ** 3 * mean
        return self.solve(mu, affine)


def _safe_step(
    criterion: BlockFisher, system: _System, step: _Step
) -> tuple[_Point, BlockExpansion, int]:
    """Halve the primal step while A is infinite there or jumps; and expansions."""
    point = system.point
    primal, dual = system.lengths(step, TO_BOUNDARY)
    limit = JUMP * system.unit * float(np.trace(system.matrix))
    count = 0
    for _ in range(MAX_HALVINGS):
        v = np.maximum(point.v + primal * step.v, TINY)
        v /= np.sum(v)
        try:
            at = criterion.expand(v ** (1.0 / system.q))
        except FactorizationError:
            primal *= 0.5
            continue
        count += 1
        if np.trace(at.matrix) <= limit:
            break
        primal *= 0.5
    else:
        raise FactorizationError(
            "no step along the Newton direction keeps the combined kernel positive "
            "definite"
        )
    foreseen = system.matrix + primal * system.moved(step.v)
    surprise = np.sum(np.abs(at.matrix / system.unit - foreseen), axis=1)
    x = sym(point.x + dual * step.x)
    size = np.sqrt(np.diag(x))  # 1 but for rounding
    new = _Point(
        v=v,
        t=point.t + primal * step.t + surprise,
        z=point.z + dual * step.z,
        nu=point.nu + dual * step.nu,
        x=x / (size[:, None] * size),
    )
    return new, at, count

"""Primal-dual interior point in the weights, with the exact Hessian."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from kernelweave._array import FactorizationError
from kernelweave.inner.interior_point import BorderedSystem, largest_step, predict
from kernelweave.protocols import (
    Criterion,
    Evaluation,
    Iterate,
    LinearSet,
    Polyhedron,
    WeightSet,
)

__all__ = ["newton", "onto_simplex", "safe_step"]

State = TypeVar("State")

#: Fraction of the way to the boundary of the positive orthant.
TO_BOUNDARY = 0.995
#: A step is halved when the value exceeds this multiple of the last one.
JUMP = 3.0
MAX_HALVINGS = 30
#: Lower limit on the weights during the iteration.
TINY = 1e-200
#: For q > 1, a step keeps this share of the weight that the current scores call for.
KEEP = 0.2
#: A weight is too small if its score exceeds this multiple of the common score.
TOO_SMALL = 2.0
#: Number of steps within which the gap must halve; otherwise they may be cycling.
CYCLE = 6
#: Fraction of the way back to the start after iterates came too close to the boundary.
INWARD = 1e-3
#: Relative increase of the value that is more than rounding.
UPHILL = 1e-8
#: Barrier method: first and last parameter, reduction factor, and sufficient decrease.
BARRIER_START, BARRIER_END, BARRIER_FACTOR, SUFFICIENT = 1e-2, 1e-17, 0.1, 1e-4
#: Differences of the merit function below this are noise.
MERIT_NOISE = 1e-13


def newton(
    criterion: Criterion, weight_set: LinearSet, start: np.ndarray | None = None
) -> Iterator[Iterate]:
    """Minimise a criterion over ``{ w >= 0 : A v = b, C v <= d }`` with ``v = w^q``.

    For a ball of norm q, v ranges over the simplex. The criteria of this package grow
    like 1/w where a weight is too small, which a quadratic model predicts poorly. So
    ``F(v) = -J(v^(1/q))^(-q/2)`` is minimised instead of J: the reciprocal of
    ``tr(H' M(w)^-1 H)`` is concave in w, increasing and homogeneous in (alpha, w), so
    its q-th power is concave in v, and so is the root of that. (Of the powers that keep
    F convex, this one took the fewest steps. A criterion that takes negative values, or
    does not offer "concave reciprocal", is minimised directly.) With slacks
    ``s = d - C v`` the optimality conditions are::

        dF/dv + A'nu + C'y - z = 0,   A v = b,   v_i z_i = s_j y_j = mu,   mu -> 0.

    Each step evaluates the criterion once (one factorisation, gradient and Hessian) and
    takes Mehrotra's predictor and corrector on a system of m unknowns plus one per
    equation.

    Parameters
    ----------
    criterion, weight_set : Criterion, WeightSet
        The problem.
    start : ndarray of shape (m,), optional
        A point inside the set; by default ``weight_set.start``.

    Yields
    ------
    Iterate
        One per evaluation, the first at the start.
    """
    q = weight_set.power
    weights = weight_set.start(criterion.n_weights) if start is None else start
    state = criterion.evaluate(weights)
    yield Iterate.at(weights, state)
    if weight_set.is_point(len(weights)):
        return
    # Minimise J / J(start), so that the iteration does not depend on the scale of J.
    bend = _Bend(q, abs(state.value) or 1.0, "concave reciprocal" in criterion.offers)
    region = _Region(weight_set.polyhedron(len(weights)))
    gradient, hessian = bend.derivatives(state, weights)
    x = region.point(weights**q)
    nu, z = _start_multipliers(region, gradient, x)
    gaps, values = [_relative_slack(weight_set, weights, state)], [state.value]
    while not _cycles(gaps, values):
        system = _System(region, gradient, hessian, x, z, nu)
        predictor, mu = predict(system)
        step = system.solve(mu, predictor)
        primal, dual = system.lengths(step, TO_BOUNDARY)
        floor = np.full(len(weights), TINY)
        if region.is_simplex and q > 1:  # no weight should fall far below its score's
            asked = weight_set.maximizer(-state.gradient) ** q
            floor += np.minimum(x, KEEP * asked)
        elif region.is_simplex and bend.concave:
            floor += _grown(x, -state.gradient)
        move = _Move(criterion, region, x, primal * step.x, floor, q)
        x, state = move.until(_no_jump(state.value))
        z, nu = z + dual * step.z, nu + dual * step.nu
        weights = x[: len(weights)] ** (1.0 / q)
        gradient, hessian = bend.derivatives(state, weights)
        yield Iterate.at(weights, state)
        gaps.append(_relative_slack(weight_set, weights, state))
        values.append(state.value)
    start = weight_set.start(len(weights))
    yield from _barrier(criterion, region, region.inward(x, start**q), bend)


class _Region:
    """``{ v >= 0 : A v = b, C v <= d }``; a point x is v (m,) followed by slacks (r,).

    Nonzero limits become rows of C.
    """

    def __init__(self, allowed: Polyhedron) -> None:
        one, (low, high) = np.eye(len(allowed.limits)), allowed.limits.T
        below, above = low > 0.0, np.isfinite(high)
        self.equal, self.equal_to = allowed.equal, allowed.equal_to
        self.below = np.concatenate([allowed.below, one[above], -one[below]])
        self.below_to = np.concatenate([allowed.below_to, high[above], -low[below]])
        self.is_simplex = len(self.below) == 0 and bool(
            np.array_equal(self.equal, np.ones((1, len(one)))) and self.equal_to == 1.0
        )

    def point(self, v: np.ndarray) -> np.ndarray:
        """The point x that belongs to v (m,)."""
        return np.append(v, self.below_to - self.below @ v)

    def move(self, step: np.ndarray) -> np.ndarray:
        """A step in v (m,), with the resulting step in the slacks."""
        return np.append(step, -self.below @ step)

    def pull(self, z: np.ndarray) -> np.ndarray:
        """The adjoint of :meth:`move`: multipliers of x as a force on v, (m,)."""
        m = self.equal.shape[1]
        return z[:m] - self.below.T @ z[m:]

    def onto(self, x: np.ndarray, floor: np.ndarray | float) -> np.ndarray:
        """A point (m + r,) made feasible; on the simplex, with no v below the floor."""
        return onto_simplex(x, floor) if self.is_simplex else np.maximum(x, TINY)

    def inward(self, x: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """A point near x, (m + r,), that is not too close to the boundary."""
        v = x[: len(centre)]
        if self.is_simplex:
            return onto_simplex(v, 1e-6)
        return self.point(v + INWARD * (centre - v))


def _grown(v: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Weights (m,) that are far too small, at the size their scores call for; else 0.

    ``v_i sqrt(score_i / level)``, with the common score at an optimum as the level, is
    the closed-form update of ``J = min_f sum_i |f_i|^2 / v_i``, which never raises J.
    For such a function a quadratic model can at most double the weight.
    """
    level = float(scores @ v)
    if not level > 0:
        return np.zeros_like(v)
    ratio = scores / level
    return np.where(ratio > TOO_SMALL, v * np.sqrt(np.maximum(ratio, 0.0)), 0.0)


def _relative_slack(
    weight_set: WeightSet, weights: np.ndarray, state: Evaluation
) -> float:
    """Largest decrease of the linearised criterion over the set, relative to J."""
    scores = -state.gradient
    slack = weight_set.support(scores) - float(scores @ weights)
    return slack / (abs(state.value) or 1.0)


def _cycles(gaps: list[float], values: list[float]) -> bool:
    """Whether the last steps have failed to halve the best gap, and gone uphill."""
    recent, before = gaps[-CYCLE:], gaps[:-CYCLE]
    if not before or min(recent) <= 0.5 * min(before):
        return False
    if recent[-1] <= 0.5 * recent[-2] <= 0.25 * recent[-3]:  # converging again
        return False
    rises = np.diff(values[-CYCLE:])
    return bool(np.max(rises) > UPHILL * abs(values[-1]))


def _barrier(
    criterion: Criterion, region: _Region, x: np.ndarray, bend: _Bend
) -> Iterator[Iterate]:
    """Newton's method on ``F(v) - mu sum_i log x_i`` with a line search, mu -> 0.

    F is convex, so this converges from any start. It takes more steps than the
    predictor-corrector method, which cycles on rare problems.
    """
    mu, m, root = BARRIER_START, region.equal.shape[1], 1.0 / bend.q
    state = criterion.evaluate(x[:m] ** root)
    spent = state.n_factorizations
    while True:
        x, state, decrease = _barrier_step(criterion, region, x, state, mu, bend)
        count = spent + state.n_factorizations
        yield Iterate.at(x[:m] ** root, replace(state, n_factorizations=count))
        spent = 0
        if decrease <= mu:
            mu = max(BARRIER_END, BARRIER_FACTOR * mu)


def _barrier_step(
    criterion: Criterion,
    region: _Region,
    x: np.ndarray,
    state: Evaluation,
    mu: float,
    bend: _Bend,
) -> tuple[np.ndarray, Evaluation, float]:
    """The next point, its evaluation, and the decrease predicted by the slope."""
    m = region.equal.shape[1]
    gradient, hessian = bend.derivatives(state, x[:m] ** (1.0 / bend.q))
    system = _System(region, gradient, hessian, x, mu / x, np.zeros(len(region.equal)))
    step = system.solve(mu)
    decrease = -float((gradient - region.pull(mu / x)) @ step.x[:m])
    merit = bend.merit(state.value, x, mu)
    length, _ = system.lengths(step, TO_BOUNDARY)

    def accept(share: float, trial: np.ndarray, found: Evaluation) -> bool:
        gained = merit - bend.merit(found.value, trial, mu)
        return gained >= SUFFICIENT * share * length * decrease - MERIT_NOISE

    floor = np.full(m, TINY)
    move = _Move(criterion, region, x, length * step.x, floor, bend.q)
    return *move.until(accept), decrease


@dataclass(frozen=True)
class _Bend:
    """The function F minimised instead of J: ``-(J / unit)^(-q/2)``.

    It is ``J / unit`` if J is negative or its reciprocal is not ``concave``.
    """

    q: float
    unit: float
    concave: bool

    def merit(self, value: float, x: np.ndarray, mu: float) -> float:
        """F plus the barrier, for J = ``value`` at a point x (m + r,)."""
        scaled = value / self.unit
        bent = self.concave and scaled > 0
        objective = -(scaled ** (-0.5 * self.q)) if bent else scaled
        return objective - mu * float(np.sum(np.log(x)))

    def derivatives(
        self, state: Evaluation, w: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradient (m,) and Hessian (m, m) of F in v."""
        assert state.hessian is not None
        q, unit = self.q, self.unit
        value, gradient = state.value / unit, state.gradient / unit
        hessian = state.hessian / unit
        if self.concave and value > 0:
            power = 0.5 * q
            hessian = hessian - (power + 1.0) / value * np.outer(gradient, gradient)
            slope = power * value ** (-power - 1.0)
            gradient, hessian = slope * gradient, slope * hessian
        first = w ** (1.0 - q) / q  # dw/dv
        second = first * (1.0 - q) / q * w**-q  # d2w/dv2, negative
        hessian = hessian * first[:, None] * first[None, :]
        hessian[np.diag_indices(len(w))] += gradient * second
        return gradient * first, hessian


class _Step(NamedTuple):
    x: np.ndarray
    nu: np.ndarray
    z: np.ndarray


class _System:
    """The conditions of :func:`newton`, linearised at one point.

    Eliminating the slacks and all multipliers but nu leaves m + e unknowns.
    """

    def __init__(
        self,
        region: _Region,
        g: np.ndarray,
        hessian: np.ndarray,
        x: np.ndarray,
        z: np.ndarray,
        nu: np.ndarray,
    ) -> None:
        m = len(g)
        self.region, self.x, self.z = region, x, z
        self.residual = g + region.equal.T @ nu - region.pull(z)
        self.missing = region.equal_to - region.equal @ x[:m]
        if len(region.below):
            stiffness = z[m:] / x[m:]
            hessian = hessian + region.below.T @ (stiffness[:, None] * region.below)
        self.bordered = BorderedSystem(hessian, x[:m], z[:m], region.equal)

    def solve(self, mu: float, before: _Step | None = None) -> _Step:
        change = mu - self.x * self.z
        if before is not None:
            change = change - before.x * before.z
        force = self.region.pull(change / self.x)
        dv, dnu = self.bordered.solve(force - self.residual, self.missing)
        dx = self.region.move(dv)
        return _Step(dx, dnu, (change - self.z * dx) / self.x)

    def mu(self, step: _Step | None = None) -> float:
        if step is None:
            return float(np.mean(self.x * self.z))
        primal, dual = self.lengths(step)
        return float(np.mean((self.x + primal * step.x) * (self.z + dual * step.z)))

    def lengths(self, step: _Step, share: float = 1.0) -> tuple[float, float]:
        """Step lengths of x and z: a share of the way to the boundary, at most 1."""
        primal, dual = largest_step(self.x, step.x), largest_step(self.z, step.z)
        return min(1.0, share * primal), min(1.0, share * dual)


def _start_multipliers(
    region: _Region, g: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A dual start: z positive, and as large as the spread of the gradient."""
    nu = np.linalg.lstsq(region.equal.T, -g, rcond=None)[0]
    z = g + region.equal.T @ nu
    spread = float(np.max(np.abs(z))) or 1.0
    z = np.maximum(z, 0.1 * spread)
    centre = float(np.mean(x[: len(z)] * z))
    return nu, np.append(z, centre / x[len(z) :])


Accept = Callable[[float, np.ndarray, Evaluation], bool]


def _no_jump(value: float) -> Accept:
    """Accepts steps that keep the criterion below a multiple of its current value."""
    limit = value + (JUMP - 1) * abs(value)
    return lambda _share, _point, state: state.value <= limit


@dataclass(frozen=True)
class _Move:
    """From x along ``step``, both (m + r,), but with no v below ``floor`` (m,)."""

    criterion: Criterion
    region: _Region
    x: np.ndarray
    step: np.ndarray
    floor: np.ndarray
    q: float

    def until(self, accept: Accept) -> tuple[np.ndarray, Evaluation]:
        """The end of the longest accepted step; counts every factorisation."""
        _, x, tried = safe_step(self._evaluate, self._trial, accept)
        count = sum(state.n_factorizations for state in tried)
        return x, replace(tried[-1], n_factorizations=count)

    def _evaluate(self, x: np.ndarray) -> Evaluation:
        return self.criterion.evaluate(x[: len(self.floor)] ** (1.0 / self.q))

    def _trial(self, share: float) -> np.ndarray:
        return self.region.onto(self.x + share * self.step, self.floor)


def onto_simplex(v: np.ndarray, floor: np.ndarray | float) -> np.ndarray:
    """The point (m,), raised to the floor and scaled to sum to one."""
    v = np.maximum(v, floor)
    return v / np.sum(v)


def safe_step(
    evaluate: Callable[[np.ndarray], State],
    trial: Callable[[float], np.ndarray],
    accept: Callable[[float, np.ndarray, State], bool],
) -> tuple[float, np.ndarray, list[State]]:
    """Halve a step until its end point can be evaluated and is accepted.

    Parameters
    ----------
    evaluate : callable
        Evaluates the criterion at a point; may raise FactorizationError.
    trial : callable
        Returns the point after a share of the step.
    accept : callable
        Decides, from the share, the point and its evaluation, whether to accept it.

    Returns
    -------
    share : float
        1, 1/2, 1/4, ...
    point : ndarray
        The point after that share of the step.
    tried : list
        All evaluations, ending with that of ``point``.

    Raises
    ------
    FactorizationError
        If even the shortest step is rejected.
    """
    tried = []
    for halvings in range(MAX_HALVINGS):
        share = 0.5**halvings
        point = trial(share)
        try:
            tried.append(evaluate(point))
        except FactorizationError:
            continue
        if accept(share, point, tried[-1]):
            return share, point, tried
    raise FactorizationError(
        "no step along the Newton direction keeps the combined kernel positive definite"
    )

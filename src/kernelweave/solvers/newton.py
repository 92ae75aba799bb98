"""Primal-dual interior point on the weights, with the exact Hessian."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kernelweave._array import FactorizationError
from kernelweave.protocols import (
    Criterion,
    Evaluation,
    Iterate,
    LinearSet,
    Polyhedron,
    WeightSet,
)

__all__ = ["largest_step", "newton"]

#: Fraction of the way to the boundary of the positive orthant.
TO_BOUNDARY = 0.995
#: A step is halved when the value exceeds this multiple of the last one.
JUMP = 3.0
MAX_HALVINGS = 30
#: The smallest weight the iteration keeps.
TINY = 1e-200
#: For q > 1, a step keeps this share of the weight that the present scores ask for.
KEEP = 0.2
#: Multiple of the common score from which on a weight of the simplex is too small.
TOO_SMALL = 2.0
#: Steps within which the gap must halve; otherwise they are taken to go in a circle.
CIRCLE = 6
#: Share of the way back to the start, where the iteration was too close to a boundary.
INWARD = 1e-3
#: A rise of the value, relative, that is more than rounding.
UPHILL = 1e-8
#: The barrier method: first and last parameter, factor, and what a step must decrease.
BARRIER_START, BARRIER_END, BARRIER_FACTOR, SUFFICIENT = 1e-2, 1e-17, 0.1, 1e-4
#: Differences of the merit that are noise.
ROUNDING = 1e-13


def newton(
    criterion: Criterion, weight_set: LinearSet, start: np.ndarray | None = None
) -> Iterator[Iterate]:
    """Minimise a criterion over ``{ w >= 0 : A v = b, C v <= d }`` with ``v = w^q``.

    For a ball of norm q that is the simplex, for every q. Criteria of this package grow
    like 1/w where a weight is too small, which a quadratic model foresees badly. So
    ``F(v) = -J(v^(1/q))^(-q/2)`` is minimised in place of J: the reciprocal of
    ``tr(H' M(w)^-1 H)`` is concave in w, increasing and homogeneous in (alpha, w), so
    that its q-th power is concave in v, and the root of that is too. (Of the powers
    that keep F convex this one took the fewest steps. A criterion with negative values,
    or that offers no "concave reciprocal", is minimised as it is.) With slacks
    ``s = d - C v`` the optimality conditions are::

        dF/dv + A'nu + C'y - z = 0,   A v = b,   v_i z_i = s_j y_j = mu,   mu -> 0.

    Each step evaluates the criterion once (one factorisation, gradient and Hessian)
    and takes Mehrotra's predictor and corrector on a system of m unknowns and one for
    each equation.

    Parameters
    ----------
    criterion, weight_set : Criterion, WeightSet
        The problem.
    start : ndarray of shape (m,), optional
        A point inside the set; by default its start.

    Yields
    ------
    Iterate
        One for each evaluation, the first at the start.
    """
    q = weight_set.power
    weights = weight_set.start(criterion.n_weights) if start is None else start
    state = criterion.evaluate(weights)
    yield Iterate.at(weights, state)
    if weight_set.is_point(len(weights)):
        return
    # Work on J / J(start): one scale for all problems.
    bend = _Bend(q, abs(state.value) or 1.0, "concave reciprocal" in criterion.offers)
    region = _Region(weight_set.polyhedron(len(weights)))
    gradient, hessian = bend.derivatives(state, weights)
    x = region.point(weights**q)
    nu, z = _start_multipliers(region, gradient, x)
    gaps, values = [_relative_slack(weight_set, weights, state)], [state.value]
    while not _in_a_circle(gaps, values):
        system = _System(region, gradient, hessian, x, z, nu)
        step_x, step_nu, step_z = system.predictor_corrector()
        length = min(1.0, TO_BOUNDARY * largest_step(x, step_x))
        floor = np.full(len(weights), TINY)
        if region.is_simplex and q > 1:  # no weight needs to be far below its score
            asked = weight_set.maximizer(-state.gradient) ** q
            floor += np.minimum(x, KEEP * asked)
        elif region.is_simplex and bend.concave:
            floor += _grown(x, -state.gradient)
        step = _Step(region, x, step_x, length, floor, q)
        x, state = _safe_step(criterion, step, state.value)
        dual_length = min(1.0, TO_BOUNDARY * largest_step(z, step_z))
        z, nu = z + dual_length * step_z, nu + dual_length * step_nu
        weights = x[: len(weights)] ** (1.0 / q)
        gradient, hessian = bend.derivatives(state, weights)
        yield Iterate.at(weights, state)
        gaps.append(_relative_slack(weight_set, weights, state))
        values.append(state.value)
    start = weight_set.start(len(weights))
    yield from _barrier(criterion, region, region.inward(x, start**q), bend)


class _Region:
    """``{ v >= 0 : A v = b, C v <= d }``; a point x is v (m,), then its slacks (r,).

    Limits other than zero are rows of C.
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
        """The point of v (m,)."""
        return np.append(v, self.below_to - self.below @ v)

    def move(self, step: np.ndarray) -> np.ndarray:
        """A step in v (m,) with what it does to the slacks."""
        return np.append(step, -self.below @ step)

    def pull(self, z: np.ndarray) -> np.ndarray:
        """The adjoint of :meth:`move`: multipliers of x as a force on v, (m,)."""
        m = self.equal.shape[1]
        return z[:m] - self.below.T @ z[m:]

    def inward(self, x: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """A point near x, (m + r,), that is not too close to any boundary."""
        v = x[: len(centre)]
        if self.is_simplex:
            v = np.maximum(v, 1e-6)
            return v / np.sum(v)
        return self.point(v + INWARD * (centre - v))


def _grown(v: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Weights (m,) that are far too small, at the size their scores ask for; else 0.

    ``v_i sqrt(score_i / level)``, with the common score of an optimum as the level, is
    the closed-form update of ``J = min_f sum_i |f_i|^2 / v_i``, which never raises J. A
    quadratic model of such a function does not see further than twice the weight.
    """
    level = float(scores @ v)
    if not level > 0:
        return np.zeros_like(v)
    ratio = scores / level
    return np.where(ratio > TOO_SMALL, v * np.sqrt(np.maximum(ratio, 0.0)), 0.0)


def _relative_slack(
    weight_set: WeightSet, weights: np.ndarray, state: Evaluation
) -> float:
    """What the linearised criterion promises to gain over the set, relative."""
    scores = -state.gradient
    slack = weight_set.support(scores) - float(scores @ weights)
    return slack / (abs(state.value) or 1.0)


def _in_a_circle(gaps: list[float], values: list[float]) -> bool:
    """Whether the last steps have not halved the best gap, and have gone uphill."""
    recent, before = gaps[-CIRCLE:], gaps[:-CIRCLE]
    if not before or min(recent) <= 0.5 * min(before):
        return False
    if recent[-1] <= 0.5 * recent[-2] <= 0.25 * recent[-3]:  # on its way after a leap
        return False
    rises = np.diff(values[-CIRCLE:])
    return bool(np.max(rises) > UPHILL * abs(values[-1]))


def _barrier(
    criterion: Criterion, region: _Region, x: np.ndarray, bend: _Bend
) -> Iterator[Iterate]:
    """Newton's method on ``F(v) - mu sum_i log x_i`` with a line search, mu -> 0.

    F is convex, so this converges from anywhere. It takes more steps than predictor and
    corrector, which on rare problems go round in a circle.
    """
    mu, m, root = BARRIER_START, region.equal.shape[1], 1.0 / bend.q
    state = criterion.evaluate(x[:m] ** root)
    count = state.n_factorizations
    while True:
        gradient, hessian = bend.derivatives(state, x[:m] ** root)
        system = _System(
            region, gradient, hessian, x, mu / x, np.zeros(len(region.equal))
        )
        step, _, _ = system.solve(np.zeros_like(x))
        decrease = -float((gradient - region.pull(mu / x)) @ step[:m])
        merit = bend.merit(state.value, x, mu)
        length = min(1.0, TO_BOUNDARY * largest_step(x, step))
        for _ in range(MAX_HALVINGS):
            trial = _Step(region, x, step, length, np.full(m, TINY), bend.q).trial(0)
            found = _evaluate_or_none(criterion, trial[:m] ** root)
            if found is not None:
                count += found.n_factorizations
                gained = merit - bend.merit(found.value, trial, mu)
                if gained >= SUFFICIENT * length * decrease - ROUNDING:
                    break
            length *= 0.5
        if found is None:
            raise FactorizationError("no step of the barrier method is possible")
        x, state = trial, found
        yield Iterate.at(x[:m] ** root, replace(state, n_factorizations=count))
        count = 0
        if decrease <= mu:
            mu = max(BARRIER_END, BARRIER_FACTOR * mu)


def _evaluate_or_none(criterion: Criterion, weights: np.ndarray) -> Evaluation | None:
    try:
        state = criterion.evaluate(weights)
    except FactorizationError:
        return None
    return state if np.isfinite(state.value) else None


@dataclass(frozen=True)
class _Bend:
    """F in place of J: ``-(J / unit)^(-q/2)``, or ``J / unit`` where J is negative.

    Also the second where the reciprocal of J is not ``concave``.
    """

    q: float
    unit: float
    concave: bool

    def merit(self, value: float, x: np.ndarray, mu: float) -> float:
        """F with the barrier, for J = ``value`` at a point x (m + r,)."""
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


class _System:
    """The linearised conditions at one point, factored once and solved twice."""

    def __init__(
        self,
        region: _Region,
        g: np.ndarray,
        hessian: np.ndarray,
        x: np.ndarray,
        z: np.ndarray,
        nu: np.ndarray,
    ) -> None:
        m, e = len(g), len(nu)
        v = x[:m]
        self.region, self.x, self.z = region, x, z
        self.residual = g + region.equal.T @ nu - region.pull(z)
        self.missing = region.equal_to - region.equal @ v
        # Scaling by v makes the diagonal of order one however small a weight is.
        self.scaling = np.append(v, np.ones(e))
        matrix = np.zeros((m + e, m + e))
        matrix[:m, :m] = hessian
        matrix[m:, :m] = region.equal
        matrix[:m, m:] = region.equal.T
        if len(region.below):
            stiffness = z[m:] / x[m:]
            matrix[:m, :m] += region.below.T @ (stiffness[:, None] * region.below)
        matrix *= self.scaling[:, None] * self.scaling[None, :]
        matrix[np.arange(m), np.arange(m)] += z[:m] * v
        self.matrix = matrix

    def solve(
        self, complementarity: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps in (x, nu, z) towards ``x z = complementarity + x z`` (linearised)."""
        m = len(self.residual)
        force = self.region.pull(complementarity / self.x)
        right = np.append(force - self.residual, self.missing)
        try:
            steps = np.linalg.solve(self.matrix, right * self.scaling) * self.scaling
        except np.linalg.LinAlgError as error:
            raise FactorizationError("the system for a step is singular") from error
        step_x = self.region.move(steps[:m])
        step_z = (complementarity - self.z * step_x) / self.x
        return step_x, steps[m:], step_z

    def predictor_corrector(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mehrotra's step: try mu = 0, then centre as much as that try suggests."""
        product = self.x * self.z
        affine_x, _, affine_z = self.solve(-product)
        after_x = self.x + min(1.0, largest_step(self.x, affine_x)) * affine_x
        after_z = self.z + min(1.0, largest_step(self.z, affine_z)) * affine_z
        mu = float(np.mean(product))
        sigma = (float(np.mean(after_x * after_z)) / mu) ** 3 if mu > 0 else 0.0
        return self.solve(sigma * mu - product - affine_x * affine_z)


def _start_multipliers(
    region: _Region, g: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A dual start: z positive and of the size of the spread of the gradient."""
    nu = np.linalg.lstsq(region.equal.T, -g, rcond=None)[0]
    z = g + region.equal.T @ nu
    spread = float(np.max(np.abs(z))) or 1.0
    z = np.maximum(z, 0.1 * spread)
    centre = float(np.mean(x[: len(z)] * z))
    return nu, np.append(z, centre / x[len(z) :])


def largest_step(x: np.ndarray, step: np.ndarray) -> float:
    """The largest t with ``x + t step >= 0``."""
    falling = step < 0
    return float(np.min(-x[falling] / step[falling])) if np.any(falling) else np.inf


@dataclass(frozen=True)
class _Step:
    """From x along ``direction``, both (m + r,), but with no v below ``floor`` (m,)."""

    region: _Region
    x: np.ndarray
    direction: np.ndarray
    length: float
    floor: np.ndarray
    q: float

    def trial(self, halvings: int) -> np.ndarray:
        """The point after a step halved so many times."""
        moved = self.x + self.length * 0.5**halvings * self.direction
        if not self.region.is_simplex:
            return np.maximum(moved, TINY)
        moved = np.maximum(moved, self.floor)
        return moved / np.sum(moved)


def _safe_step(
    criterion: Criterion, step: _Step, value: float
) -> tuple[np.ndarray, Evaluation]:
    """Halve the step while the criterion is infinite there or jumps."""
    count = 0
    for halvings in range(MAX_HALVINGS):
        x = step.trial(halvings)
        v = x[: len(step.floor)]
        state = _evaluate_or_none(criterion, v ** (1.0 / step.q))
        if state is None:
            continue
        count += state.n_factorizations
        if state.value <= value + (JUMP - 1) * abs(value):
            return x, replace(state, n_factorizations=count)
    raise FactorizationError(
        "no step along the Newton direction keeps the combined kernel positive definite"
    )

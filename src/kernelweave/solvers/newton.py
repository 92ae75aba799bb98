"""Primal-dual interior point on the weights, with the exact Hessian."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from kernelweave._array import FactorizationError
from kernelweave.inner.interior_point import SimplexSystem, largest_step, predict
from kernelweave.protocols import Criterion, Evaluation
from kernelweave.solvers.solution import Iterate
from kernelweave.weights.base import WeightSet

__all__ = ["newton", "onto_simplex", "safe_step"]

State = TypeVar("State")

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
#: Steps within which the gap must halve; otherwise they may be cycling.
CYCLE = 6
#: A rise of the value, relative, that is more than rounding.
UPHILL = 1e-8
#: The barrier method: first and last parameter, factor, and what a step must decrease.
BARRIER_START, BARRIER_END, BARRIER_FACTOR, SUFFICIENT = 1e-2, 1e-17, 0.1, 1e-4
#: Differences of the merit that are noise.
MERIT_NOISE = 1e-13


def newton(
    criterion: Criterion, weight_set: WeightSet, start: np.ndarray | None = None
) -> Iterator[Iterate]:
    """Minimise a criterion over ``{ w >= 0 : sum_i w_i^q = 1 }``.

    In the variables ``v = w^q`` the set is the simplex for every q. Criteria of this
    package grow like 1/w where a weight is too small, which a quadratic model foresees
    badly. So ``F(v) = -J(v^(1/q))^(-q/2)`` is minimised in place of J: the reciprocal
    of ``tr(H' M(w)^-1 H)`` is concave in w, increasing and homogeneous in (alpha, w),
    so that its q-th power is concave in v, and the root of that is too. (Of the powers
    that keep F convex this one took the fewest steps. A criterion with negative values,
    or whose ``reciprocal_is_concave`` is false, is minimised as it is.) The optimality
    conditions are::

        dF/dv_i + nu - z_i = 0,     v_i z_i = mu,     sum_i v_i = 1,     mu -> 0.

    Each step evaluates the criterion once (one factorisation, gradient and Hessian)
    and takes Mehrotra's predictor and corrector on a system of m + 1 unknowns.

    Parameters
    ----------
    criterion, weight_set : Criterion, WeightSet
        The problem.
    start : ndarray of shape (m,), optional
        Positive weights of the set; by default the start of the weight set.

    Yields
    ------
    Iterate
        One for each evaluation, the first at the start.
    """
    q = weight_set.norm
    weights = weight_set.start(criterion.n_weights) if start is None else start
    state = criterion.evaluate(weights)
    yield Iterate(weights, state.value, state.gradient, state.coef)
    if np.isinf(q) or len(weights) == 1:
        return
    bend = bool(getattr(criterion, "reciprocal_is_concave", True))
    unit = abs(state.value) or 1.0  # work on J / J(start): one scale for all problems
    gradient, hessian = _on_simplex(state, weights, q, unit, bend)
    v = weights**q
    nu, z = _start_multipliers(gradient, v)
    gaps, values = [_relative_slack(weight_set, weights, state)], [state.value]
    while not _cycles(gaps, values):
        system = _System(gradient, hessian, v, z, nu)
        predictor, mu = predict(system)
        step = system.solve(mu, predictor)
        primal, dual = system.lengths(step, TO_BOUNDARY)
        floor = np.full_like(v, TINY)
        if q > 1:  # no weight needs to be far below what the scores say now
            floor += np.minimum(v, KEEP * weight_set.maximizer(-state.gradient) ** q)
        elif bend:
            floor += _grown(v, -state.gradient)
        v, state = _descend(criterion, v, primal * step.v, floor, state.value, q)
        z, nu = z + dual * step.z, nu + dual * step.nu
        weights = v ** (1.0 / q)
        gradient, hessian = _on_simplex(state, weights, q, unit, bend)
        yield Iterate(weights, state.value, state.gradient, state.coef)
        gaps.append(_relative_slack(weight_set, weights, state))
        values.append(state.value)
    yield from _barrier(criterion, v, state, q, unit, bend)


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


def _cycles(gaps: list[float], values: list[float]) -> bool:
    """Whether the last steps have not halved the best gap, and have gone uphill."""
    recent, before = gaps[-CYCLE:], gaps[:-CYCLE]
    if not before or min(recent) <= 0.5 * min(before):
        return False
    if recent[-1] <= 0.5 * recent[-2] <= 0.25 * recent[-3]:  # on its way after a leap
        return False
    rises = np.diff(values[-CYCLE:])
    return bool(np.max(rises) > UPHILL * abs(values[-1]))


def _barrier(
    criterion: Criterion,
    v: np.ndarray,
    state: Evaluation,
    q: float,
    unit: float,
    bend: bool,
) -> Iterator[Iterate]:
    """Newton's method on ``F(v) - mu sum_i log v_i`` with a line search, mu -> 0.

    F is convex, so this converges from anywhere. It takes more steps than predictor and
    corrector, which on rare problems cycle.
    """
    mu = BARRIER_START
    v = np.maximum(v, 1e-6)
    v /= np.sum(v)
    state = criterion.evaluate(v ** (1.0 / q))
    while True:
        v, state, decrease = _barrier_step(criterion, v, state, mu, q, unit, bend)
        yield Iterate(v ** (1.0 / q), state.value, state.gradient, state.coef)
        if decrease <= mu:
            mu = max(BARRIER_END, BARRIER_FACTOR * mu)


def _barrier_step(
    criterion: Criterion,
    v: np.ndarray,
    state: Evaluation,
    mu: float,
    q: float,
    unit: float,
    bend: bool,
) -> tuple[np.ndarray, Evaluation, float]:
    """The next v and its evaluation, and the decrease that the slope promised."""
    gradient, hessian = _on_simplex(state, v ** (1.0 / q), q, unit, bend)
    slope = gradient - mu / v
    step, _, _ = SimplexSystem(hessian, v, mu / v).solve(np.zeros_like(v), slope)
    decrease = -float(slope @ step)
    merit = _merit(state.value, v, mu, q, unit, bend)
    length = min(1.0, TO_BOUNDARY * largest_step(v, step))

    def accept(share: float, trial: np.ndarray, found: Evaluation) -> bool:
        gained = merit - _merit(found.value, trial, mu, q, unit, bend)
        return gained >= SUFFICIENT * share * length * decrease - MERIT_NOISE

    _, v, state = safe_step(
        lambda trial: criterion.evaluate(trial ** (1.0 / q)),
        lambda share: onto_simplex(v + share * length * step, TINY),
        accept,
    )
    return v, state, decrease


def _merit(
    value: float, v: np.ndarray, mu: float, q: float, unit: float, bend: bool
) -> float:
    scaled = value / unit
    objective = -(scaled ** (-0.5 * q)) if bend and scaled > 0 else scaled
    return objective - mu * float(np.sum(np.log(v)))


def _on_simplex(
    state: Evaluation, w: np.ndarray, q: float, unit: float, bend: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient (m,) and Hessian (m, m) in v of ``-(J / unit)^(-q/2)``, or of J / unit.

    The second is for negative J, and without ``bend``.
    """
    assert state.hessian is not None
    value, gradient = state.value / unit, state.gradient / unit
    hessian = state.hessian / unit
    if bend and value > 0:
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
    v: np.ndarray
    nu: float
    z: np.ndarray


class _System:
    """The conditions of :func:`newton`, linearised at one point."""

    def __init__(
        self,
        gradient: np.ndarray,
        hessian: np.ndarray,
        v: np.ndarray,
        z: np.ndarray,
        nu: float,
    ) -> None:
        self.v, self.z = v, z
        self.residual = gradient + nu - z
        self.simplex = SimplexSystem(hessian, v, z)

    def solve(self, mu: float, before: _Step | None = None) -> _Step:
        change = mu - self.v * self.z
        if before is not None:
            change = change - before.v * before.z
        return _Step(*self.simplex.solve(change, self.residual))

    def mu(self, step: _Step | None = None) -> float:
        if step is None:
            return float(np.mean(self.v * self.z))
        primal, dual = self.lengths(step)
        return float(np.mean((self.v + primal * step.v) * (self.z + dual * step.z)))

    def lengths(self, step: _Step, share: float = 1.0) -> tuple[float, float]:
        """Lengths for v and z: a share of the way to the boundary, at most 1."""
        primal, dual = largest_step(self.v, step.v), largest_step(self.z, step.z)
        return min(1.0, share * primal), min(1.0, share * dual)


def _start_multipliers(g: np.ndarray, v: np.ndarray) -> tuple[float, np.ndarray]:
    """A dual start: z positive and of the size of the spread of the gradient."""
    nu = -float(np.mean(g))
    z = g + nu
    spread = float(np.max(np.abs(z))) or 1.0
    return nu, np.maximum(z, 0.1 * spread)


def onto_simplex(v: np.ndarray, floor: np.ndarray | float) -> np.ndarray:
    """The point (m,), but not below the floor, scaled to sum to one."""
    v = np.maximum(v, floor)
    return v / np.sum(v)


def _descend(
    criterion: Criterion,
    v: np.ndarray,
    step: np.ndarray,
    floor: np.ndarray,
    value: float,
    q: float,
) -> tuple[np.ndarray, Evaluation]:
    """Go along the step (m,), less far where the criterion is infinite or jumps."""
    limit = value + (JUMP - 1) * abs(value)
    _, v, state = safe_step(
        lambda trial: criterion.evaluate(trial ** (1.0 / q)),
        lambda share: onto_simplex(v + share * step, floor),
        lambda _share, _trial, found: found.value <= limit,
    )
    return v, state


def safe_step(
    evaluate: Callable[[np.ndarray], State],
    trial: Callable[[float], np.ndarray],
    accept: Callable[[float, np.ndarray, State], bool],
) -> tuple[float, np.ndarray, State]:
    """Halve a step until its end can be evaluated and is accepted.

    Parameters
    ----------
    evaluate : callable
        The criterion at a point; it may raise FactorizationError.
    trial : callable
        The point after a share of the step.
    accept : callable
        Whether to take the share that leads to a point with this evaluation.

    Returns
    -------
    share : float
        1, 1/2, 1/4, ...
    point : ndarray
        The point it leads to.
    state : object
        The evaluation there.

    Raises
    ------
    FactorizationError
        If even the shortest step is refused.
    """
    for halvings in range(MAX_HALVINGS):
        share = 0.5**halvings
        point = trial(share)
        try:
            state = evaluate(point)
        except FactorizationError:
            continue
        if accept(share, point, state):
            return share, point, state
    raise FactorizationError(
        "no step along the Newton direction keeps the combined kernel positive definite"
    )

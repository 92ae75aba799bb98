"""Newton's method in the weights: a primal-dual interior point, exact Hessians."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from kernelweave._array import FactorizationError
from kernelweave._tolerances import IDLE
from kernelweave.inner.interior_point import (
    TO_BOUNDARY,
    BorderedSystem,
    largest_step,
    minimize_on_simplex,
    predict,
)
from kernelweave.protocols import (
    Criterion,
    Evaluation,
    Iterate,
    LinearSet,
    NormSet,
    ScoredCriterion,
    relative_gap,
)
from kernelweave.weights.polyhedral import without_flat

State = TypeVar("State")

#: A step is halved when the value exceeds this multiple of the last one.
JUMP = 3.0
MAX_HALVINGS = 30
NO_STEP = (
    "no step along the Newton direction keeps the combined kernel positive definite"
)
#: Least complementary product to aim for where there are slacks: if they tend to zero
#: faster than the dual residual, the system for a step loses all its digits.
LEAST_PRODUCT = 1e-16
#: Lower limit on the weights during the iteration.
TINY = 1e-200
#: For q > 1, a step keeps this share of the weight that the current scores call for,
#: and a start from another norm has at least as much.
KEEP = 0.2
#: A weight is too small if its score exceeds this multiple of the common score.
TOO_SMALL = 2.0
#: Number of steps within which the gap must halve; otherwise they may be cycling.
CYCLE = 10
#: Fraction of the way back to the start after iterates came too close to the boundary.
INWARD = 1e-3
#: On the simplex the last steps, from this gap on, minimise the quadratic model itself.
#: Earlier it would take weights to zero that are needed, and miss rows of a margin that
#: become free.
NEAR = 0.03
#: Share of the gap to which the model is minimised, and the smallest gap to aim for.
MODEL_SHARE, MODEL_GAP = 1e-2, 1e-11
#: A learned regularisation below this costs digits, and gains less than any tolerance.
LEAST_IDENTITY = 1e-12
#: Relative decrease of F below which a step need not lower it, but must not raise it.
ALREADY_CLOSE = 1e-6
#: Share of the gap of a given start that its complementary products add up to.
START_SHARE = 0.1
#: Smallest weight of such a start, relative to the largest.
LEAST_START = 1e-8
#: Smallest multiplier of another start, relative to the spread of the gradient.
LEAST_OF_SPREAD = 0.1
#: Relative increase of the value that is more than rounding.
UPHILL = 1e-8
#: Barrier method: first and last parameter, reduction factor, and sufficient decrease.
BARRIER_START, BARRIER_END, BARRIER_FACTOR, SUFFICIENT = 1e-2, 1e-17, 0.1, 1e-4
#: Differences of the merit function below this are noise.
MERIT_NOISE = 1e-13
#: Steps of the barrier method in a row that may be shorter than this share of Newton's:
#: values too inaccurate for a line search cost ten evaluations and more for each.
CRAWLING, MOST_CRAWLING = 1e-3, 5
#: Working set: number of kernels to begin with, and the most that are added at a time.
FIRST_KERNELS, MOST_ADDED = 50, 100
#: A round is solved to this share of the gap due to the kernels outside.
ROUND_SHARE = 0.1
#: No round needs a smaller gap than this.
SMALLEST_GAP = 1e-10
MOST_STEPS = 60
#: A round starts from the weights of the last one, with this share spread evenly: an
#: interior point method must not start on the boundary.
SPREAD = 0.05


def newton(
    criterion: Criterion,
    weight_set: LinearSet,
    start: np.ndarray | None = None,
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
    equation. On the simplex, once the gap is small, steps go to the minimum of the
    quadratic model instead: they converge quadratically, and to few kernels. Of
    kernels that are the same, only one then has weight; :func:`kernelweave.solve`
    shares it.

    Parameters
    ----------
    criterion, weight_set : Criterion, WeightSet
        The problem.
    start : ndarray of shape (m,), optional
        A point inside the set, the nearer to the optimum the better; by default
        ``weight_set.start``.

    Yields
    ------
    Iterate
        One per evaluation, the first at the start.
    """
    q = weight_set.power
    weights = weight_set.start(criterion.n_weights) if start is None else start
    state = criterion.evaluate(weights)
    yield Iterate.at(weights, state)
    # Minimise J / J(start), so the iteration does not depend on the scale of J.
    problem = _Problem(criterion, weight_set, len(weights), abs(state.value) or 1.0)
    gradient, hessian = problem.derivatives(state, weights)
    x = problem.point(weights**q)
    if start is None or not problem.is_simplex:
        nu, z = _start_multipliers(problem, gradient, x)
    else:
        nu, z = _near_multipliers(gradient, x)
    gaps: list[float] = []
    values: list[float] = []
    may_finish = problem.is_simplex and q == 1
    while True:
        scores = -state.gradient
        slack = weight_set.support(scores) - float(scores @ weights)
        gaps.append(slack / (abs(state.value) or 1.0))
        values.append(state.value)
        if _cycles(gaps, values):
            break
        if may_finish and gaps[-1] <= NEAR:
            # Rounding may be in its way, or a likelihood that is infinitely steep where
            # a weight vanishes: then go on inside the simplex.
            with suppress(FactorizationError):
                yield from _finish(problem, x, state, gaps[-1])
            may_finish = False
        system = _WeightSystem(problem, gradient, hessian, x, z, nu)
        predictor, mu = predict(system, LEAST_PRODUCT if len(problem.below) else 0.0)
        step = system.solve(mu, predictor)
        primal, dual = system.lengths(step, TO_BOUNDARY)
        floor = np.full(len(weights), TINY)
        if problem.is_simplex and q > 1:  # no weight should fall far below its score's
            floor += np.minimum(x, KEEP * weight_set.maximizer(scores) ** q)
        elif problem.is_simplex and problem.concave:
            floor += _grown(x, scores)
        x, state = problem.move(x, primal * step.x, floor, _no_jump(state.value))
        z, nu = z + dual * step.z, nu + dual * step.nu
        weights = problem.weights(x)
        gradient, hessian = problem.derivatives(state, weights)
        yield Iterate.at(weights, state)
    v, centre = x[: problem.m], weight_set.start(problem.m) ** q
    yield from _barrier(problem, problem.point(v + INWARD * (centre - v)))


def _finish(
    problem: _Problem, x: np.ndarray, state: Evaluation, gap: float
) -> Iterator[Iterate]:
    """Minimise the quadratic model of F on the simplex, again and again, from x (m,).

    The model is minimised to a share of the gap, itself proportional to the gap, which
    keeps the convergence quadratic. Ends where the gap has stopped shrinking.
    """
    smallest, idle = gap, 0
    while idle < IDLE:
        x, state = _model_step(problem, x, state, gap)
        yield Iterate.at(problem.weights(x), state)
        scores = -state.gradient
        gap = float(np.max(scores) - scores @ x) / (abs(state.value) or 1.0)
        idle = 0 if gap <= 0.5 * smallest else idle + 1
        smallest = min(smallest, gap)


def _model_step(
    problem: _Problem, x: np.ndarray, state: Evaluation, gap: float
) -> tuple[np.ndarray, Evaluation]:
    """The next point (m,), toward the minimum of the model, and its evaluation."""
    gradient, hessian = problem.derivatives(state, problem.weights(x))
    fixed = problem.criterion.n_weights - problem.criterion.n_kernels
    floor = np.zeros_like(x)
    # no sum is definite without the identity
    least = np.maximum((1.0 - TO_BOUNDARY) * x[:fixed], LEAST_IDENTITY)
    floor[:fixed] = np.minimum(x[:fixed], least)
    if problem.concave:
        floor = np.maximum(floor, _grown(x, -state.gradient))
        floor *= min(1.0, 0.5 / (float(np.sum(floor)) or 1.0))
    size = abs(float(gradient @ x)) or 1.0
    tol = size * max(min(MODEL_SHARE, gap) * gap, MODEL_GAP)
    room = 1.0 - float(np.sum(floor))
    slope = gradient - hessian @ (x - floor)
    step = floor + minimize_on_simplex(hessian, slope, room, tol) - x
    decrease = -float(gradient @ step)
    close = decrease <= ALREADY_CLOSE * size
    merit, no_jump = problem.merit(state.value, x, 0.0), _no_jump(state.value)

    def accept(share: float, trial: np.ndarray, found: Evaluation) -> bool:
        gained = merit - problem.merit(found.value, trial, 0.0)
        enough = gained >= SUFFICIENT * share * decrease - MERIT_NOISE
        level = found.value <= state.value + ALREADY_CLOSE * abs(state.value)
        return no_jump(share, trial, found) and (enough or (close and level))

    return problem.move(x, step, np.full(len(x), TINY), accept)


Accept = Callable[[float, np.ndarray, Evaluation], bool]


class _Problem:
    """``min F(v)`` over ``{ v >= 0 : A v = b, C v <= d }`` with ``v = w^q``.

    F is ``-(J / unit)^(-q/2)``, or ``J / unit`` if J is negative or its reciprocal is
    not ``concave``. A point x is v (m,) followed by the slacks ``d - C v`` (r,);
    nonzero limits become rows of C.
    """

    def __init__(
        self, criterion: Criterion, weight_set: LinearSet, m: int, unit: float
    ) -> None:
        self.criterion, self.m, self.q, self.unit = criterion, m, weight_set.power, unit
        self.concave = "concave reciprocal" in criterion.offers
        allowed, one = weight_set.polyhedron(m), np.eye(m)
        limited = bool(np.any(allowed.limits != [0.0, np.inf]) or len(allowed.below))
        sums = np.array_equal(allowed.equal, np.ones((1, m)))
        self.is_simplex = sums and allowed.equal_to == 1.0 and not limited
        if not self.is_simplex:
            allowed = without_flat(allowed, weight_set.start(m))
        low, high = allowed.limits.T
        below, above = low > 0.0, np.isfinite(high)
        self.equal, self.equal_to = allowed.equal, allowed.equal_to
        self.below = np.concatenate([allowed.below, one[above], -one[below]])
        self.below_to = np.concatenate([allowed.below_to, high[above], -low[below]])

    def point(self, v: np.ndarray) -> np.ndarray:
        """The point x that belongs to v (m,)."""
        return np.append(v, self.below_to - self.below @ v)

    def pull(self, z: np.ndarray) -> np.ndarray:
        """Multipliers of x (m + r,) as a force on v, (m,)."""
        return z[: self.m] - self.below.T @ z[self.m :]

    def weights(self, x: np.ndarray) -> np.ndarray:
        """The weights ``v^(1/q)``, (m,)."""
        return x[: self.m] ** (1.0 / self.q)

    def move(
        self, x: np.ndarray, step: np.ndarray, floor: np.ndarray, accept: Accept
    ) -> tuple[np.ndarray, Evaluation]:
        """The end of the longest accepted step; counts every factorisation.

        On the simplex no v falls below ``floor`` (m,).
        """

        def trial(share: float) -> np.ndarray:
            end = x + share * step
            if self.is_simplex:
                return onto_simplex(end, floor)
            return np.maximum(end, TINY)

        _, x, tried = safe_step(
            lambda x: self.criterion.evaluate(self.weights(x)), trial, accept
        )
        count = sum(state.n_factorizations for state in tried)
        return x, replace(tried[-1], n_factorizations=count)

    def merit(self, value: float, x: np.ndarray, mu: float) -> float:
        """F plus the barrier, for J = ``value`` at a point x (m + r,)."""
        scaled = value / self.unit
        bent = self.concave and scaled > 0
        objective = -(scaled ** (-0.5 * self.q)) if bent else scaled
        return objective - mu * float(np.sum(np.log(x))) if mu > 0 else objective

    def derivatives(
        self, state: Evaluation, w: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradient (m,) and Hessian (m, m) of F in v."""
        assert state.hessian is not None
        value, gradient = state.value / self.unit, state.gradient / self.unit
        hessian = state.hessian / self.unit
        if self.concave and value > 0:
            power = 0.5 * self.q
            hessian = hessian - (power + 1.0) / value * np.outer(gradient, gradient)
            slope = power * value ** (-power - 1.0)
            gradient, hessian = slope * gradient, slope * hessian
        first, hessian = in_powers(gradient, hessian, w, self.q)
        return gradient * first, hessian


def in_powers(
    gradient: np.ndarray, hessian: np.ndarray, w: np.ndarray, q: float
) -> tuple[np.ndarray, np.ndarray]:
    """``dw/dv`` (m,) for ``v = w^q``, and the Hessian (m, m) in v.

    ``gradient`` (m,) and ``hessian`` (m, m) are those in w.
    """
    first = w ** (1.0 - q) / q
    second = first * (1.0 - q) / q * w**-q  # d2w/dv2, negative
    hessian = hessian * first[:, None] * first[None, :]
    hessian[np.diag_indices(len(w))] += gradient * second
    return first, hessian


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


def _cycles(gaps: list[float], values: list[float]) -> bool:
    """Whether the last steps have failed to halve the best gap, and gone uphill."""
    recent, before = gaps[-CYCLE:], gaps[:-CYCLE]
    if not before or min(recent) <= 0.5 * min(before):
        return False
    rises = np.diff(values[-CYCLE:])
    return bool(np.max(rises) > UPHILL * abs(values[-1]))


def _barrier(problem: _Problem, x: np.ndarray) -> Iterator[Iterate]:
    """Newton's method on ``F(v) - mu sum_i log x_i`` with a line search, mu -> 0.

    F is convex, so this converges from any start. It takes more steps than the
    predictor-corrector method, which cycles on rare problems: on 815 of 77,000 at the
    edges of floating point, of which 36, mostly margins, converge only by this. Ends
    where rounding allows only tiny steps.
    """
    mu, crawled = BARRIER_START, 0
    state = problem.criterion.evaluate(problem.weights(x))
    yield Iterate.at(problem.weights(x), state)
    while crawled < MOST_CRAWLING:
        x, state, decrease, share = _barrier_step(problem, x, state, mu)
        crawled = crawled + 1 if share < CRAWLING else 0
        yield Iterate.at(problem.weights(x), state)
        if decrease <= mu:
            mu = max(BARRIER_END, BARRIER_FACTOR * mu)


def _barrier_step(
    problem: _Problem, x: np.ndarray, state: Evaluation, mu: float
) -> tuple[np.ndarray, Evaluation, float, float]:
    """The next point, its evaluation, the decrease predicted, and the share taken."""
    gradient, hessian = problem.derivatives(state, problem.weights(x))
    nu = np.zeros(len(problem.equal))
    system = _WeightSystem(problem, gradient, hessian, x, mu / x, nu)
    step = system.solve(mu)
    decrease = -float((gradient - problem.pull(mu / x)) @ step.x[: problem.m])
    merit = problem.merit(state.value, x, mu)
    length, _ = system.lengths(step, TO_BOUNDARY)

    def accept(share: float, trial: np.ndarray, found: Evaluation) -> bool:
        gained = merit - problem.merit(found.value, trial, mu)
        return gained >= SUFFICIENT * share * length * decrease - MERIT_NOISE

    floor = np.full(problem.m, TINY)
    moved, state = problem.move(x, length * step.x, floor, accept)
    share = np.max(np.abs(moved - x)) / (np.max(np.abs(step.x)) or 1.0)
    return moved, state, decrease, float(share)


class _Step(NamedTuple):
    x: np.ndarray
    nu: np.ndarray
    z: np.ndarray


class _WeightSystem:
    """The conditions of :func:`newton`, linearised at one point.

    Eliminating the slacks and all multipliers but nu leaves m + e unknowns.
    """

    def __init__(
        self,
        problem: _Problem,
        g: np.ndarray,
        hessian: np.ndarray,
        x: np.ndarray,
        z: np.ndarray,
        nu: np.ndarray,
    ) -> None:
        m, equal, below = len(g), problem.equal, problem.below
        self.problem, self.x, self.z = problem, x, z
        self.residual = g + equal.T @ nu - problem.pull(z)
        self.missing = problem.equal_to - equal @ x[:m]
        if len(below):
            stiffness = z[m:] / x[m:]
            hessian = hessian + below.T @ (stiffness[:, None] * below)
        self.bordered = BorderedSystem(hessian, x[:m], z[:m], equal)

    def solve(self, mu: float, before: _Step | None = None) -> _Step:
        change = mu - self.x * self.z
        if before is not None:
            change = change - before.x * before.z
        force = self.problem.pull(change / self.x)
        dv, dnu = self.bordered.solve(force - self.residual, self.missing)
        dx = np.append(dv, -self.problem.below @ dv)  # the slacks move with v
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
    problem: _Problem, g: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A dual start: z positive, and as large as the spread of the gradient."""
    nu = np.linalg.lstsq(problem.equal.T, -g, rcond=None)[0]
    z = g + problem.equal.T @ nu
    spread = float(np.max(np.abs(z))) or 1.0
    z = np.maximum(z, LEAST_OF_SPREAD * spread)
    centre = float(np.mean(x[: len(z)] * z))
    return nu, np.append(z, centre / x[len(z) :])


def _near_multipliers(g: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A dual start for a point (m,) of the simplex that is near the optimum.

    ``nu = -<g, v>`` is that of the optimum, and the products ``v_i z_i`` add up to a
    share of the gap, unless the gradient calls for more.
    """
    level = float(g @ x)
    gap = level - float(np.min(g))
    least = START_SHARE * max(gap, SMALLEST_GAP * abs(level)) / len(x)
    return np.array([-level]), np.maximum(g - level, least / x)


def best_for_parts(
    weights: np.ndarray, scores: np.ndarray, weight_set: NormSet
) -> np.ndarray:
    """``(w_i^2 s_i)^(1/(q+1))``, the best weights for given parts up to scale, (m,)."""
    return (weights**2 * scores) ** (1.0 / (weight_set.norm + 1.0))


def carried_over(
    weights: np.ndarray, gradient: np.ndarray, weight_set: NormSet
) -> np.ndarray:
    """Where to start in the ball of one norm, from the optimum in that of another.

    The parts of :func:`~kernelweave.solvers.fixed_point.closed_form` change little with
    the norm; these are the best weights for them, all positive. Kernels that had no
    weight get some if their scores call for it, since weights grow slowly from nothing.

    Parameters
    ----------
    weights, gradient : ndarray of shape (m,)
        Weights, and dJ/dw there.
    weight_set : WeightSet
        The ball to start in.
    """
    scores = np.maximum(-gradient, 0.0)
    found = best_for_parts(weights, scores, weight_set)
    if not np.max(found) > 0.0:  # nothing depends on the weights
        return weight_set.start(len(weights))
    least = np.maximum(LEAST_START, KEEP * weight_set.maximizer(scores))
    return weight_set.scale(np.maximum(found / np.max(found), least))


def _no_jump(value: float) -> Accept:
    """Accepts steps that keep the criterion below a multiple of its current value."""
    limit = value + (JUMP - 1) * abs(value)
    return lambda _share, _point, state: state.value <= limit


def onto_simplex(v: np.ndarray, floor: np.ndarray | float = TINY) -> np.ndarray:
    """The point (m,), raised to the floor and scaled to sum to one."""
    v = np.maximum(v, floor)
    return v / np.sum(v)


def safe_step(
    evaluate: Callable[[np.ndarray], State],
    trial: Callable[[float], np.ndarray],
    accept: Callable[[float, np.ndarray, State], bool],
    failure: str = NO_STEP,
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
    failure : str
        What the error says if even the shortest step is rejected.

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
    raise FactorizationError(failure)


def working_set(
    criterion: ScoredCriterion, weight_set: LinearSet, spread: float = SPREAD
) -> Iterator[Iterate]:
    """Minimise over the simplex when most of very many kernels get weight zero.

    Each round solves the problem restricted to the working set by :func:`newton`. The
    resulting dual point B gives the score ``tr(B' G_i B)`` of every kernel, inside or
    outside the set. If no score outside exceeds the common score inside, the optimum is
    found, and the scores are its certificate; otherwise the kernels with the largest
    scores join the set, and the next round starts near the current weights. Kernels
    outside are accessed once per round for their score, and never factored or combined.

    For weight sets on which every kernel has a weight, this is :func:`newton` itself.

    Yields
    ------
    Iterate
        One per round, with the weights and the gradient of all kernels.
    """
    if "sparse" not in weight_set.offers or criterion.n_kernels <= FIRST_KERNELS:
        yield from newton(criterion, weight_set)
        return
    fixed = criterion.n_weights - criterion.n_kernels
    scores = criterion.scores(criterion.target)[fixed:]
    inside = np.argsort(-scores, kind="stable")[:FIRST_KERNELS]
    weights, gap = weight_set.start(criterion.n_weights), 1.0
    smallest, idle = np.inf, 0
    while True:
        inside = np.sort(inside)
        places = np.concatenate([np.arange(fixed), fixed + inside])
        restricted = criterion.restricted(inside)
        tol = max(ROUND_SHARE * gap, SMALLEST_GAP)
        near = weights[places] / np.sum(weights[places])
        start = (1.0 - spread) * near + spread / len(near)
        best, count = _round(restricted, weight_set, tol, start)
        weights = np.zeros(criterion.n_weights)
        weights[places] = best.weights
        scores = criterion.scores(best.coef) * criterion.scale
        whole = Iterate(weights, best.value, -scores, best.coef, n_factorizations=count)
        yield whole
        gap = relative_gap(best.value, whole.bound(weight_set))
        outside = np.setdiff1d(np.arange(criterion.n_kernels), inside)
        level = float(scores @ weights)  # the score of every kernel with weight
        better = outside[scores[fixed + outside] > level]
        order = np.argsort(-scores[fixed + better], kind="stable")
        joining = better[order[:MOST_ADDED]]
        idle = idle + 1 if len(joining) == 0 and gap > 0.5 * smallest else 0
        smallest = min(smallest, gap)
        if len(joining) == 0 and (gap <= SMALLEST_GAP or idle >= IDLE):
            return
        inside = np.concatenate([inside, joining])


def _round(
    restricted: Criterion, weight_set: LinearSet, tol: float, start: np.ndarray
) -> tuple[Iterate, int]:
    """The best Newton iterate on the working set, and the factorisations used."""
    best, smallest, count = None, np.inf, 0
    for number, iterate in enumerate(newton(restricted, weight_set, start)):
        count += iterate.n_factorizations
        gap = relative_gap(iterate.value, iterate.bound(weight_set))
        if gap < smallest:
            best, smallest = iterate, gap
        if gap <= tol or number >= MOST_STEPS:
            break
    assert best is not None
    return best, count

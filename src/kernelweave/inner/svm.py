"""Support vector machines with one kernel: bounds from any point, and solvers.

Rows of weight ``r_i`` cost ``r_i`` times as much. In the dual this multiplies the bound
C of the box by ``r_i``, and divides the ``tau = 1/C`` of squared slacks by it, so that
both may differ from row to row::

    norm(f)^2 + 2 C sum_i r_i xi_i      0 <= a_i <= C r_i
    norm(f)^2 + C sum_i r_i xi_i^2      K + diag(1 / (C r_i))

as for ``r_i`` copies of row i, whose variables add up to ``a_i``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from kernelweave._array import (
    FactorizationError,
    psd_factor,
    robust_cholesky,
    solve_factored,
    solve_triangular,
)
from kernelweave._tolerances import NULL_EIGENVALUE, SMALL_GAP
from kernelweave.inner.interior_point import largest_step, predict
from kernelweave.protocols import CertificateTerms

#: Relative difference between the sums of the two classes that counts as rounding.
BALANCED = 1e-14
#: Difference between two sums of weights, relative to that of all, that does as well.
ROUNDED_WEIGHT = 1e-12


@dataclass(frozen=True)
class MarginTerms(CertificateTerms):
    """Bounds whose dual point may still be scaled.

    With ``total = e'a``, ``square = a'diag(tau) a`` and the scores ``q_i = a'G_i a``,
    every factor s with ``s a <= C`` gives
    ``J(u) >= 2 s total - s^2 (square + <q, u>)``.

    Attributes
    ----------
    total, square : float
        As above, summed over the columns.
    largest_factor : float
        The largest s allowed by the box.
    imbalance : float
        Rounding errors of ``y'a = 0``, which cost twice as much, times the intercept.
    """

    total: float = 0.0
    square: float = 0.0
    largest_factor: float = 1.0
    imbalance: float = 0.0

    def lower_bound(self, support: float) -> float:
        """``max_s 2 s total - s^2 (square + support)``."""
        if self.total <= 0.0:
            return 0.0
        s, curvature = self.largest_factor, self.square + support
        if curvature * s > self.total:
            s = self.total / curvature
        if not np.isfinite(s):
            return np.inf
        rounding = 2.0 * s * self.imbalance + max(s**2 - 1.0, 0.0) * self.rounding
        return 2.0 * s * self.total - s**2 * curvature - rounding


#: One number for all rows, or an array of shape (n,).
PerRow = float | np.ndarray


def balanced(coef: np.ndarray, signs: np.ndarray, bound: PerRow) -> np.ndarray:
    """A point of ``0 <= a <= bound, y'a = 0`` near ``coef = a y``, (n,) or (n, k).

    Entries are clipped, then the class with the larger sum is scaled down, which
    preserves zeros and the box. A feasible point is returned unchanged.
    """
    box = bound if np.ndim(bound) == 0 or coef.ndim == 1 else np.reshape(bound, (-1, 1))
    a = np.clip(np.where(np.isfinite(coef), coef, 0.0) * signs, 0.0, box)
    plus = np.sum(np.where(signs > 0, a, 0.0), axis=0)
    minus = np.sum(np.where(signs < 0, a, 0.0), axis=0)
    smaller, larger = np.minimum(plus, minus), np.maximum(plus, minus)
    scale = smaller / np.where(larger > 0, larger, 1.0)
    scale = np.where(larger - smaller <= BALANCED * larger, 1.0, scale)
    too_large = np.where(plus > minus, 1.0, -1.0)
    return np.where(signs == too_large, a * scale, a) * signs


def best_intercept(
    f: np.ndarray, y: np.ndarray, loss: str, weights: PerRow = 1.0
) -> float:
    """The b that minimises the loss of ``f + b``; f and y of shape (n,), y = +-1.

    With ``r_i = y_i - f_i`` a positive row requires ``b >= r_i``, a negative one
    ``b <= r_i``. If a whole interval is optimal, its midpoint is returned.

    Parameters
    ----------
    f, y : ndarray of shape (n,)
        Values without an intercept, and signs.
    loss : {"l1", "l2", "hard"}
        Sum of ``xi``, sum of ``xi^2``, or the margin itself.
    weights : float or ndarray of shape (n,), default=1.0
        Positive weights of the rows in the sum.
    """
    positive = y > 0
    if loss == "hard":
        return -0.5 * float(np.min(f[positive]) + np.max(f[~positive]))
    r, weights = y - f, np.broadcast_to(weights, y.shape)
    if loss == "l1":
        return _middle_of_flat_loss(r, positive, weights)
    need, limit = float(np.max(r[positive])), float(np.min(r[~positive]))
    if need <= limit:
        return 0.5 * (need + limit)
    return _root_of_squared_loss(r, positive, weights)


def best_intercepts(
    f: np.ndarray, signs: np.ndarray, loss: str, weights: PerRow = 1.0
) -> np.ndarray:
    """:func:`best_intercept` of each column of f and signs (n, k); 0: no label."""
    weights = np.broadcast_to(weights, len(f))
    columns = ((f[:, c], y, y != 0) for c, y in enumerate(signs.T))
    return np.array(
        [best_intercept(f[on], y[on], loss, weights[on]) for f, y, on in columns]
    )


def _middle_of_flat_loss(
    r: np.ndarray, positive: np.ndarray, weights: np.ndarray
) -> float:
    """The middle of the b at which the sum of weighted slacks is smallest; all (n,).

    Its slope is minus the weight of the positives, plus that of the breakpoints passed.
    """
    order = np.argsort(r)
    passed, total = np.cumsum(weights[order]), float(np.sum(weights[positive]))
    rounding = ROUNDED_WEIGHT * float(passed[-1])
    first = int(np.searchsorted(passed, total - rounding))
    last = min(int(np.searchsorted(passed, total + rounding)), len(r) - 1)
    return 0.5 * float(r[order[first]] + r[order[last]])


def _root_of_squared_loss(
    r: np.ndarray, positive: np.ndarray, weights: np.ndarray
) -> float:
    """Root b of ``sum_active (r_i - b)``: positives are active above b, others below.

    The weighted sum decreases in b and is linear between the breakpoints, at which
    cumulative sums give its value.
    """
    order = np.argsort(r)
    r, plus = r[order], np.where(positive, weights, 0.0)[order]
    minus = weights[order] - plus
    above = np.sum(plus * r) - np.cumsum(plus * r)
    n_above = np.sum(plus) - np.cumsum(plus)
    below, n_below = np.cumsum(minus * r), np.cumsum(minus)
    slope = above + below - (n_above + n_below) * r
    j = max(int(np.count_nonzero(slope >= 0.0)) - 1, 0)
    count = n_above[j] + n_below[j]
    return float((above[j] + below[j]) / count) if count > 0 else float(r[j])


def primal_value(
    f: np.ndarray, coef: np.ndarray, y: np.ndarray, bound: PerRow, tau: PerRow
) -> float:
    """A valid primal value from ``f = K coef``; all arrays (n,), y = +-1.

    The smaller of the value at f and that at the multiple of f which separates all
    rows, if there is one.
    """
    norm2 = max(float(coef @ f), 0.0)
    # norm(w)^2 / rho^2 with the identity as one more kernel, if it separates the rows
    square, total = norm2 + float(coef @ (tau * coef)), f + tau * coef
    rho = 0.5 * float(np.min(total[y > 0]) - np.max(total[y < 0]))
    hard = square / rho**2 if rho > 0.0 and square > 0.0 else np.inf
    if np.all(np.isfinite(bound)):
        slack = 1.0 - y * (f + best_intercept(f, y, "l1", bound))
        return min(norm2 + 2.0 * float(np.sum(bound * np.maximum(slack, 0.0))), hard)
    if np.all(tau > 0.0):
        prices = 1.0 / tau
        slack = np.maximum(1.0 - y * (f + best_intercept(f, y, "l2", prices)), 0.0)
        return min(norm2 + float(np.sum(prices * slack**2)), hard)
    return hard


#: Maximum number of iterations; 10 to 20 are typical.
MAX_ITER = 100
#: Fraction of the way to the boundary.
TO_BOUNDARY = 0.995
#: A small gap that has not shrunk for this many iterations is limited by rounding.
PATIENCE = 6
#: A variable within this share of its range (or, without one, of the largest
#: variable) from a bound is at it.
AT_BOUND = 1e-9


def solve_low_rank_svm(
    features: np.ndarray, signs: np.ndarray, bound: PerRow, tol: float
) -> np.ndarray:
    """The problem of :func:`solve_machines` for ``K = F F'``, with few features.

    One iteration of this primal-dual interior point method costs ``n l^2``. Unlike
    LIBSVM's, the number of iterations hardly depends on C.

    Parameters
    ----------
    features : ndarray of shape (n, l)
        F.
    signs : ndarray of shape (n, m)
        The y of each problem.
    bound : float or ndarray of shape (n,)
        C.
    tol : float
        Relative gap at which to stop.

    Returns
    -------
    coef : ndarray of shape (n, m)
        ``a y``, feasible to the last digit.
    """
    # Any constant may be subtracted: y'a = 0, and the intercept absorbs it.
    features = features - features.mean(axis=0)
    columns = [_interior_point(features, y, bound, tol) for y in signs.T]
    return balanced(np.column_stack(columns), signs, bound)


class _State(NamedTuple):
    """An interior point, or a step: s and t = 1 - s, w = Q's, and the multipliers."""

    s: np.ndarray
    t: np.ndarray
    w: np.ndarray  # (l + 1,), the intercept last
    below: np.ndarray
    above: np.ndarray

    def moved(self, step: _State, share: float = 1.0) -> _State:
        """The point after this share of the way to the boundary, at most a full step.

        The multipliers and w have a length of their own.
        """
        reach = [largest_step(x, d) for x, d in zip(self, step, strict=True)]
        primal = min(1.0, share * min(reach[:2]))
        dual = min(1.0, share * min(reach[3:]))
        lengths = (primal, primal, dual, dual, dual)
        return _State(*(x + t * d for x, d, t in zip(self, step, lengths, strict=True)))


def _interior_point(
    features: np.ndarray, y: np.ndarray, bound: PerRow, tol: float
) -> np.ndarray:
    """Mehrotra's method on ``min C s'QQ's/2 - r's``, ``a_i = C r_i s_i``.

    C is the mean of the bounds, and ``Q = diag(r y) F``. ``w = Q's`` is a separate
    variable, so that rounding errors in s affect no other condition; so is the slack t,
    because 1 - s loses all digits near s = 1.
    """
    C = float(np.mean(bound))
    r = np.broadcast_to(bound / C, len(y))  # of mean one
    q = (r * y)[:, None] * np.column_stack([np.sqrt(C) * features, np.ones(len(y))])
    share = float(np.sum(r[y > 0])) / len(y)
    s = np.where(y > 0, 1.0 - share, share)  # so that (r y)'s = 0
    square = float(np.sum((q.T @ s) ** 2))
    s = s * min(1.0, float(r @ s) / square) if square > 0 else s
    state = _State(s, 1.0 - s, np.zeros(q.shape[1]), np.ones_like(s), np.ones_like(s))
    best, best_gap, idle = s, np.inf, 0
    for _ in range(MAX_ITER):
        slack = r - q @ state.w
        moments = q.T @ state.s
        value = float(r @ state.s) - 0.5 * float(moments[:-1] @ moments[:-1])
        primal = 0.5 * float(state.w[:-1] @ state.w[:-1])
        primal += float(np.sum(np.maximum(slack, 0.0)))
        gap = abs(primal - value) / abs(primal) + abs(moments[-1]) / len(y)
        idle = 0 if gap < best_gap else idle + 1
        if gap < best_gap:
            best, best_gap = _snapped(state), gap
        if gap <= tol or (idle >= PATIENCE and best_gap < SMALL_GAP):
            break
        try:
            system = _System(q, state, slack, moments)
        except linalg.LinAlgError:  # rounding has made the last steps worthless
            break
        predictor, mu = predict(system)
        step = system.solve(mu, predictor)
        if not np.all(np.isfinite(step.s)):
            break
        state = state.moved(step, TO_BOUNDARY)
    return bound * best * y


def _snapped(state: _State) -> np.ndarray:
    """The entries of s, with those that tend to a bound set to it."""
    s = np.where(state.s < state.t, state.s, 1.0 - state.t)
    s = np.where((state.s < AT_BOUND) & (state.s < state.below), 0.0, s)
    return np.where((state.t < AT_BOUND) & (state.t < state.above), 1.0, s)


class _System:
    """The linearised conditions, reduced to l + 1 unknowns and factored once."""

    def __init__(
        self, q: np.ndarray, state: _State, slack: np.ndarray, moments: np.ndarray
    ) -> None:
        self.q, self.state = q, state
        self.dual_residual = -slack - state.below + state.above
        self.primal_residual = moments - state.w
        self.primal_residual[-1] = moments[-1]
        self.weight = 1.0 / (state.below / state.s + state.above / state.t)
        core = q.T @ (q * self.weight[:, None])
        core[np.diag_indices(len(core) - 1)] += 1.0
        self.core = linalg.cho_factor(core, check_finite=False)

    def solve(self, mu: float, before: _State | None = None) -> _State:
        """The step to ``s below = t above = mu``."""
        state = self.state
        low, high = mu - state.s * state.below, mu - state.t * state.above
        if before is not None:
            low, high = low - before.s * before.below, high - before.t * before.above
        right = -self.dual_residual + low / state.s - high / state.t
        both = self.q.T @ (self.weight * right) + self.primal_residual
        d_w = linalg.cho_solve(self.core, both, check_finite=False)
        d_s = self.weight * (right - self.q @ d_w)
        d_below = (low - state.below * d_s) / state.s
        d_above = (high + state.above * d_s) / state.t
        return _State(d_s, -d_s, d_w, d_below, d_above)

    def mu(self, step: _State | None = None) -> float:
        state = self.state if step is None else self.state.moved(step)
        return float(np.mean(state.s * state.below + state.t * state.above)) / 2


#: Tolerances requested from LIBSVM, in units of the margin, in this order.
VIOLATIONS = (1e-3, 1e-5)
#: Maximum number of LIBSVM steps, each of which changes two variables, and of
#: corrections of its active set, for each machine.
MAX_STEPS, MAX_ROUNDS = 100_000, 30
#: C passed to LIBSVM if there is no box, for a kernel of mean diagonal one.
NO_BOX = 1e4
#: Violation allowed in the condition of a variable at its bound, in margins.
VIOLATED = 1e-10
#: Ridge per row on the kernel between free rows, relative to its mean diagonal, and the
#: number of solves that undo it.
RIDGE, REFINEMENTS = 1e-13, 3


def solve_machines(
    kernel: np.ndarray, signs: np.ndarray, bound: PerRow, tol: float
) -> list[Machine]:
    """``max sum(a) - a' (K o yy') a / 2`` over ``0 <= a <= C``, ``y'a = 0``.

    :func:`solve_machine` on each column of signs, followed by an interior point method
    where the gap is too large. The result is not guaranteed: it has to be certified.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        K.
    signs : ndarray of shape (n, m)
        The y of each problem.
    bound : float or ndarray of shape (n,)
        C.
    tol : float
        Relative gap to reach.
    """
    machines = [solve_machine(kernel, y, bound, tol) for y in signs.T]
    late = np.flatnonzero([machine.gap > tol for machine in machines])
    if len(late):  # low rank and large C: easy for the interior point method
        features = psd_factor(kernel, NULL_EIGENVALUE)
        others = solve_low_rank_svm(features, signs[:, late], bound, tol)
        for j, other in zip(late, others.T, strict=True):
            machine = _polish(kernel, signs[:, j], bound, other, tol, MAX_ROUNDS)
            machines[j] = min(machines[j], machine, key=lambda found: found.gap)
    return machines


def solve_svm(
    kernel: np.ndarray, signs: np.ndarray, bound: PerRow, tol: float
) -> np.ndarray:
    """The coefficients ``a y`` (n, m) of :func:`solve_machines`."""
    machines = solve_machines(kernel, signs, bound, tol)
    return np.column_stack([machine.coef for machine in machines])


@dataclass(frozen=True)
class Machine:
    """A solved machine, with the factor that its derivatives need.

    Attributes
    ----------
    coef : ndarray of shape (n,)
        ``a y``, feasible to the last digit.
    gap : float
        Primal minus dual value, relative to the primal.
    free : ndarray of int
        Rows strictly inside the box.
    factor : ndarray or None
        Cholesky factor of the kernel between those rows.
    n_factorizations : int
        Number of factorisations.
    """

    coef: np.ndarray
    gap: float
    free: np.ndarray
    factor: np.ndarray | None
    n_factorizations: int

    def curvature(self, products: np.ndarray) -> np.ndarray:
        """``2 b'G_i R G_j b`` on the free rows, (m, m), from products (m, n)."""
        m = len(products)
        if self.factor is None:
            return np.zeros((m, m))
        block = np.column_stack([products[:, self.free].T, np.ones(len(self.free))])
        half = solve_triangular(self.factor, block)
        return 2.0 * without_intercept(half.T @ half)


def without_intercept(gram: np.ndarray) -> np.ndarray:
    """``U'RU`` of ``gram = [U, e]' M^-1 [U, e]``, with R the inverse of M on e'b = 0.

    ``R = M^-1 - M^-1 e e' M^-1 / e'M^-1 e``: how the coefficients of an SVM respond to
    a change U of its function, the intercept following.
    """
    return gram[:-1, :-1] - np.outer(gram[:-1, -1], gram[-1, :-1]) / gram[-1, -1]


def solve_machine(
    kernel: np.ndarray,
    y: np.ndarray,
    bound: PerRow,
    tol: float,
    start: np.ndarray | None = None,
    max_steps: int = MAX_STEPS,
    max_rounds: int = MAX_ROUNDS,
) -> Machine:
    """One machine, with or without a box, polished until its gap is small enough.

    LIBSVM identifies the variables at a bound long before the others are accurate; the
    latter then follow from a linear system. If that is not enough, LIBSVM is run again
    with a smaller tolerance.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        K.
    y : ndarray of shape (n,)
        +1 and -1.
    bound : float or ndarray of shape (n,)
        C, or infinity.
    tol : float
        Relative gap to reach.
    start : ndarray of shape (n,), optional
        ``a y`` from a similar machine, whose active set is tried first.
    max_steps, max_rounds : int
        Maximum numbers of LIBSVM's steps, and of corrections of the active set.

    Returns
    -------
    Machine
        The best one found; its gap says how good that is.
    """
    best = None if start is None else _polish(kernel, y, bound, start, tol, max_rounds)
    scale = float(np.mean(np.diagonal(kernel))) or 1.0
    box = float(np.mean(bound))
    shares = np.full(len(y), bound / box) if np.isfinite(box) else None
    box = box if np.isfinite(box) else NO_BOX / scale
    for violation in VIOLATIONS:
        if best is not None and best.gap <= tol:
            break
        svc = SVC(
            C=box,
            kernel="precomputed",
            tol=violation,
            max_iter=max_steps,
            random_state=0,  # otherwise it draws from NumPy's global generator
        )
        with warnings.catch_warnings():  # the accuracy is measured below
            warnings.simplefilter("ignore", ConvergenceWarning)
            svc.fit(kernel, y, sample_weight=shares)
        coef = np.zeros(len(y))
        coef[svc.support_] = svc.dual_coef_[0]
        machine = _polish(kernel, y, bound, coef, tol, max_rounds)
        if best is None or machine.gap < best.gap:
            best = machine
    assert best is not None
    return best


#: The constant feature of an intercept, in units of the others: its weight is small.
CONSTANT = 1e3


def separate(kernel: np.ndarray, y: np.ndarray) -> Machine:
    """The machine with the hard margin of one kernel (n, n), y = +-1 (n,).

    ``min norm(w)^2`` with ``y (Fw + b) >= 1`` is least-distance programming, solved by
    non-negative least squares in finitely many steps (Lawson and Hanson, 1974, Chapter
    23). If there is no margin, the coefficients prove it: their bound is huge.
    """
    features = psd_factor(kernel, NULL_EIGENVALUE)
    features = features - features.mean(axis=0)
    unit = float(np.sqrt(np.sum(features**2) / len(y))) or 1.0
    rows = np.column_stack([features / unit, np.full(len(y), CONSTANT)]) * y[:, None]
    goal = np.append(np.zeros(rows.shape[1]), 1.0)
    stacked = np.vstack([rows.T, np.ones(len(y))])
    try:
        multipliers, _ = nnls(stacked, goal, maxiter=100 * len(y))
    except RuntimeError:  # rounding keeps it from ending
        multipliers = np.ones(len(y))
    coef = balanced(multipliers * y, y, np.inf)
    square = float(coef @ (kernel @ coef))
    if square > 0.0:
        coef = coef * (float(np.sum(np.abs(coef))) / square)
    return _polish(kernel, y, np.inf, coef, 0.0, MAX_ROUNDS)


def _polish(
    kernel: np.ndarray,
    y: np.ndarray,
    bound: PerRow,
    coef: np.ndarray,
    tol: float,
    max_rounds: int,
) -> Machine:
    """Solve on the free rows and correct the active set until nothing is violated."""
    coef = balanced(coef, y, bound)
    gap = _relative_gap(kernel @ coef, coef, y, bound)
    best = Machine(coef, gap, np.arange(0), None, 0)
    a, box = coef * y, np.broadcast_to(bound, len(y))
    room = AT_BOUND * np.where(np.isfinite(box), box, np.max(a))
    free = (a > room) & (a < box - room)
    upper = a >= box - room
    for rounds in range(1, max_rounds + 1):
        inside, fixed = np.flatnonzero(free), np.flatnonzero(upper & ~free)
        beta = np.zeros(len(y))
        beta[fixed] = box[fixed] * y[fixed]
        answer = _solve_free(kernel, y, beta, inside, fixed)
        if answer is None:
            break
        beta[inside], b, factor = answer
        a = beta * y
        low, high = inside[a[inside] < 0.0], inside[a[inside] > box[inside]]
        if len(low) or len(high):
            free[low] = free[high] = False
            upper[low], upper[high] = False, True
            continue
        used = np.append(inside, fixed)
        f = kernel[:, used] @ beta[used]
        gap = _relative_gap(f, beta, y, bound)
        if gap < best.gap or gap <= tol:
            best = Machine(balanced(beta, y, bound), gap, inside, factor, rounds)
        slack = y * (f + b) - 1.0
        wrong = ~free & np.where(upper, slack > VIOLATED, slack < -VIOLATED)
        if gap <= tol or not np.any(wrong):
            break
        free |= wrong
    return best


def _solve_free(
    kernel: np.ndarray,
    y: np.ndarray,
    beta: np.ndarray,
    inside: np.ndarray,
    fixed: np.ndarray,
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Coefficients of the free rows and the intercept, with the factor behind them.

    ``K_ff b_f + b = y_f - K_fb b_b`` and ``1'b = 0``.
    """
    if not len(inside):
        return None
    matrix = kernel[np.ix_(inside, inside)]
    size = float(np.mean(np.diagonal(matrix))) or 1.0
    try:
        factor, _ = robust_cholesky(matrix, [RIDGE], size * len(inside))
    except FactorizationError:
        return None
    right = y[inside] - kernel[np.ix_(inside, fixed)] @ beta[fixed]
    ones = solve_factored(factor, np.ones(len(inside)))
    total, free = -float(np.sum(beta[fixed])), np.zeros(len(inside))
    for _ in range(REFINEMENTS):  # iterative refinement removes the ridge
        step = solve_factored(factor, right - matrix @ free)
        b = float(np.sum(step) + np.sum(free) - total) / float(np.sum(ones))
        free += step - b * ones
    return free, b, factor


def _relative_gap(
    f: np.ndarray, coef: np.ndarray, y: np.ndarray, bound: PerRow
) -> float:
    """Primal minus dual value of ``f = K coef``, relative to the primal; all (n,)."""
    primal = primal_value(f, coef, y, bound, 0.0)
    if np.isinf(primal):
        return np.inf
    return (primal - 2.0 * float(coef @ y) + float(coef @ f)) / abs(primal)


def hinge(
    values: np.ndarray, signs: np.ndarray, weights: PerRow = 1.0
) -> tuple[float, np.ndarray]:
    """The sum of ``max(0, 1 - y (f + b))`` with the best intercepts b, and b (m,).

    Parameters
    ----------
    values, signs : ndarray of shape (n, m)
        f without intercept, and y.
    weights : float or ndarray of shape (n,), default=1.0
        Weights of the rows in the sum.
    """
    intercepts = best_intercepts(values, signs, "l1", weights)
    slack = np.maximum(1.0 - signs * (values + intercepts), 0.0)
    return float(np.sum(np.broadcast_to(weights, len(slack)) @ slack)), intercepts

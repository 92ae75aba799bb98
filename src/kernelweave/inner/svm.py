"""Support vector machines with one kernel, given as a matrix or as few features."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from kernelweave._array import (
    FactorizationError,
    robust_cholesky,
    solve_factored,
    solve_triangular,
)
from kernelweave._tolerances import NULL_EIGENVALUE, SMALL_GAP
from kernelweave.inner.interior_point import largest_step, predict
from kernelweave.inner.margin_bounds import balanced, best_intercept, primal_value

__all__ = ["Machine", "hinge", "solve_low_rank_svm", "solve_machine", "solve_svm"]

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
    features: np.ndarray, signs: np.ndarray, bound: float, tol: float
) -> np.ndarray:
    """The problem of :func:`solve_svm` for ``K = F F'``, with few features.

    One iteration of this primal-dual interior point method costs ``n l^2``. Unlike
    LIBSVM's, the number of iterations hardly depends on C.

    Parameters
    ----------
    features : ndarray of shape (n, l)
        F.
    signs : ndarray of shape (n, m)
        The y of each problem.
    bound : float
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


@dataclass
class _State:
    """An interior point: s and t = 1 - s, w = Q's, and the multipliers."""

    s: np.ndarray
    t: np.ndarray
    w: np.ndarray  # (l + 1,), the intercept last
    below: np.ndarray
    above: np.ndarray

    def moved(self, step: _State, lengths: tuple[float, float]) -> _State:
        """The point after a step of these lengths, primal and dual."""
        of_s, of_w = lengths
        return _State(
            self.s + of_s * step.s,
            self.t + of_s * step.t,
            self.w + of_w * step.w,
            self.below + of_w * step.below,
            self.above + of_w * step.above,
        )

    def lengths(self, step: _State, share: float = 1.0) -> tuple[float, float]:
        """Step lengths: this share of the way to the boundary, at most 1."""
        pairs = ((self.s, step.s), (self.t, step.t))
        others = ((self.below, step.below), (self.above, step.above))
        first, second = (
            min(1.0, share * min(largest_step(x, d) for x, d in some))
            for some in (pairs, others)
        )
        return first, second


def _interior_point(
    features: np.ndarray, y: np.ndarray, bound: float, tol: float
) -> np.ndarray:
    """Mehrotra's method on ``min C s'QQ's/2 - e's``, ``a = C s``, ``Q = diag(y) F``.

    ``w = Q's`` is a separate variable, so that rounding errors in s affect no other
    condition; so is the slack t, because 1 - s loses all digits near s = 1.
    """
    q = y[:, None] * np.column_stack([np.sqrt(bound) * features, np.ones(len(y))])
    share = np.count_nonzero(y > 0) / len(y)
    s = np.where(y > 0, 1.0 - share, share)  # so that y's = 0
    square = float(np.sum((q.T @ s) ** 2))
    s = s * min(1.0, float(np.sum(s)) / square) if square > 0 else s
    state = _State(s, 1.0 - s, np.zeros(q.shape[1]), np.ones_like(s), np.ones_like(s))
    best, best_gap, idle = s, np.inf, 0
    for _ in range(MAX_ITER):
        slack = 1.0 - q @ state.w
        moments = q.T @ state.s
        value = float(np.sum(state.s)) - 0.5 * float(moments[:-1] @ moments[:-1])
        primal = 0.5 * float(state.w[:-1] @ state.w[:-1])
        primal += float(np.sum(np.maximum(slack, 0.0)))
        gap = abs(primal - value) / abs(primal) + abs(moments[-1]) / len(y)
        idle = 0 if gap < best_gap else idle + 1
        if gap < best_gap:
            best, best_gap = _snapped(state), gap
        if gap <= tol or (idle >= PATIENCE and best_gap < SMALL_GAP):
            break
        system = _System(q, state, slack, moments)
        predictor, mu = predict(system)
        step = system.solve(mu, predictor)
        if not np.all(np.isfinite(step.s)):
            break
        state = state.moved(step, state.lengths(step, TO_BOUNDARY))
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
        core[np.arange(len(core) - 1), np.arange(len(core) - 1)] += 1.0
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
        return _State(
            d_s,
            -d_s,
            d_w,
            (low - state.below * d_s) / state.s,
            (high + state.above * d_s) / state.t,
        )

    def mu(self, step: _State | None = None) -> float:
        state = self.state
        if step is not None:
            state = state.moved(step, state.lengths(step))
        return float(np.mean(state.s * state.below + state.t * state.above)) / 2


#: Tolerances requested from LIBSVM, in units of the margin, in this order.
VIOLATIONS = (1e-3, 1e-5)
#: Maximum number of LIBSVM steps, each of which changes two variables, and of
#: corrections of its active set, per machine.
MAX_STEPS, MAX_ROUNDS = 100_000, 30
#: C passed to LIBSVM if there is no box, for a kernel of mean diagonal one.
NO_BOX = 1e4
#: Violation allowed in the condition of a variable at its bound, in margins.
VIOLATED = 1e-10
#: Ridge per row on the kernel between free rows, relative to its mean diagonal, and the
#: number of solves that undo it.
RIDGE, REFINEMENTS = 1e-13, 3


def solve_svm(
    kernel: np.ndarray, signs: np.ndarray, bound: float, tol: float
) -> np.ndarray:
    """``max sum(a) - a' (K o yy') a / 2`` over ``0 <= a <= C``, ``y'a = 0``: ``a y``.

    :func:`solve_machine` on each column of signs, followed by an interior point method
    where the gap is too large. The result is not guaranteed: it has to be certified.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        K.
    signs : ndarray of shape (n, m)
        The y of each problem.
    bound : float
        C.
    tol : float
        Relative gap to reach.

    Returns
    -------
    coef : ndarray of shape (n, m)
        Feasible to the last digit.
    """
    machines = [solve_machine(kernel, y, bound, tol) for y in signs.T]
    coef = np.column_stack([machine.coef for machine in machines])
    late = np.flatnonzero([machine.gap > tol for machine in machines])
    if len(late):  # low rank and large C: easy for the interior point method
        others = solve_low_rank_svm(_factor(kernel), signs[:, late], bound, tol)
        for j, other in zip(late, others.T, strict=True):
            if (
                _relative_gap(kernel @ other, other, signs[:, j], bound)
                < machines[j].gap
            ):
                coef[:, j] = other
    return coef


def _factor(kernel: np.ndarray) -> np.ndarray:
    """F (n, r) with ``F F' = K`` up to rounding."""
    values, vectors = linalg.eigh(kernel)
    keep = values > NULL_EIGENVALUE * values[-1]
    return vectors[:, keep] * np.sqrt(values[keep])


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
        gram = half.T @ half
        return 2.0 * (gram[:m, :m] - np.outer(gram[:m, m], gram[m, :m]) / gram[m, m])


def solve_machine(
    kernel: np.ndarray,
    y: np.ndarray,
    bound: float,
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
    bound : float
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
    box = bound if np.isfinite(bound) else NO_BOX / scale
    for violation in VIOLATIONS:
        if best is not None and best.gap <= tol:
            break
        svc = SVC(C=box, kernel="precomputed", tol=violation, max_iter=max_steps)
        with warnings.catch_warnings():  # the accuracy is measured below
            warnings.simplefilter("ignore", ConvergenceWarning)
            svc.fit(kernel, y)
        coef = np.zeros(len(y))
        coef[svc.support_] = svc.dual_coef_[0]
        machine = _polish(kernel, y, bound, coef, tol, max_rounds)
        if best is None or machine.gap < best.gap:
            best = machine
    assert best is not None
    return best


def _polish(
    kernel: np.ndarray,
    y: np.ndarray,
    bound: float,
    coef: np.ndarray,
    tol: float,
    max_rounds: int,
) -> Machine:
    """Solve on the free rows and correct the active set until nothing is violated."""
    coef = balanced(coef[:, None], y[:, None], bound)[:, 0]
    gap = _relative_gap(kernel @ coef, coef, y, bound)
    best = Machine(coef, gap, np.arange(0), None, 0)
    a = coef * y
    room = AT_BOUND * (bound if np.isfinite(bound) else float(np.max(a)))
    free = (a > room) & (a < bound - room)
    upper = a >= bound - room
    for rounds in range(1, max_rounds + 1):
        inside, fixed = np.flatnonzero(free), np.flatnonzero(upper & ~free)
        beta = np.zeros(len(y))
        beta[fixed] = bound * y[fixed]
        answer = _solve_free(kernel, y, beta, inside, fixed)
        if answer is None:
            break
        beta[inside], b, factor = answer
        a = beta * y
        low, high = inside[a[inside] < 0.0], inside[a[inside] > bound]
        if len(low) or len(high):
            free[low] = free[high] = False
            upper[low], upper[high] = False, True
            continue
        used = np.append(inside, fixed)
        f = kernel[:, used] @ beta[used]
        gap = _relative_gap(f, beta, y, bound)
        if gap < best.gap or gap <= tol:
            feasible = balanced(beta[:, None], y[:, None], bound)[:, 0]
            best = Machine(feasible, gap, inside, factor, rounds)
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
    ones = solve_factored(factor, np.ones((len(inside), 1)))[:, 0]
    total, free = -float(np.sum(beta[fixed])), np.zeros(len(inside))
    for _ in range(REFINEMENTS):  # iterative refinement removes the ridge
        step = solve_factored(factor, (right - matrix @ free)[:, None])[:, 0]
        b = float(np.sum(step) + np.sum(free) - total) / float(np.sum(ones))
        free += step - b * ones
    return free, b, factor


def _relative_gap(
    f: np.ndarray, coef: np.ndarray, y: np.ndarray, bound: float
) -> float:
    """Primal minus dual value of ``f = K coef``, relative to the primal; all (n,)."""
    primal = primal_value(f, coef, y, bound, 0.0)
    if np.isinf(primal):
        return np.inf
    return (primal - 2.0 * float(coef @ y) + float(coef @ f)) / abs(primal)


def hinge(values: np.ndarray, signs: np.ndarray) -> tuple[float, np.ndarray]:
    """The sum of ``max(0, 1 - y (f + b))`` with the best intercepts b, and b (m,).

    Parameters
    ----------
    values, signs : ndarray of shape (n, m)
        f without intercept, and y.
    """
    intercepts = np.array(
        [best_intercept(f, y, "l1") for f, y in zip(values.T, signs.T, strict=True)]
    )
    slack = 1.0 - signs * (values + intercepts)
    return float(np.sum(np.maximum(slack, 0.0))), intercepts

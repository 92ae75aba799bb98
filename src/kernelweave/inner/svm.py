"""Support vector machines with one kernel: bounds from any point, and solvers.

Rows of weight ``r_i`` cost ``r_i`` times as much. In the dual this multiplies the bound
C of the box by ``r_i``, and divides the ``tau = 1/C`` of squared slacks by it, so both
may differ from row to row::

    norm(f)^2 + 2 C sum_i r_i xi_i      0 <= a_i <= C r_i
    norm(f)^2 + C sum_i r_i xi_i^2      K + diag(1 / (C r_i))

as for ``r_i`` copies of row i, whose variables add up to ``a_i``.

Each solver serves where the others are slow or fail:

======================  ================================================================
train_machines          the default. LIBSVM finds the active set; a polish on the free
                        rows makes values, and hence Hessians, exact
solve_low_rank_svm      kernels of low rank with a large C, on which LIBSVM takes very
                        many steps: an interior point of n l^2 per step
separate                a hard margin, in finitely many steps; a path to a tiny margin
                        would be lost in rounding
SaddlePath              (``inner.saddle``) weights and machines together; for given
                        weights, few rows, other devices, and what LIBSVM has missed
======================  ================================================================

:func:`solve_machines` is the first, followed by the second where it fails.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg
from sklearn import config_context
from sklearn.svm import SVC

from kernelweave._array import (
    Array,
    FactorizationError,
    add_to_diagonal,
    cholesky,
    psd_factor,
    solve_factored,
    solve_triangular,
    to_numpy,
)
from kernelweave._tolerances import (
    NULL_EIGENVALUE,
    RIDGE,
    ROUNDED_WEIGHT,
    SMALL_GAP,
)
from kernelweave.inner.interior_point import TO_BOUNDARY, largest_step, predict
from kernelweave.inner.least_distance import least_distance
from kernelweave.protocols import CertificateTerms

#: Relative difference between the sums of the two classes that counts as rounding.
BALANCED = 1e-14


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
        Rounding error of ``y'a = 0``; it costs twice its size times the intercept.
    """

    total: float = 0.0
    square: float = 0.0
    largest_factor: float = 1.0
    imbalance: float = 0.0

    def lower_bound(self, support: float) -> float:
        """``max_s 2 s total - s^2 (square + support)``, less what rounding may add."""
        if self.total <= 0.0:
            return 0.0
        s, curvature = self.largest_factor, self.square + support
        if curvature * s > self.total:
            s = self.total / curvature
        if s > 1.0 and self.rounding > 0.0:  # which is scaled up too
            best = (self.total - self.imbalance) / (curvature + self.rounding)
            s = max(1.0, min(s, best))
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


def primal_values(
    f: np.ndarray,
    coef: np.ndarray,
    signs: np.ndarray,
    bound: PerRow,
    tau: PerRow = 0.0,
    intercepts: np.ndarray | None = None,
) -> np.ndarray:
    """A valid primal value of each column of ``f = K coef``, all (n, m): (m,).

    The smaller of the value at f and that at the multiple of f which separates all
    rows, if there is one. Rows of sign 0 do not take part. The best intercepts (m,)
    are found unless they are given.
    """
    norm2, ridge = np.sum(coef * f, axis=0), np.reshape(tau, (-1, 1)) * coef
    norm2 = np.maximum(norm2, 0.0)
    # norm(w)^2 / rho^2 with the identity as one more kernel, if it separates the rows
    square, total = norm2 + np.sum(coef * ridge, axis=0), f + ridge
    nearest = np.min(np.where(signs > 0, total, np.inf), axis=0)
    rho = 0.5 * (nearest - np.max(np.where(signs < 0, total, -np.inf), axis=0))
    separates = (rho > 0.0) & (square > 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        hard = np.where(separates, square / np.where(separates, rho, 1.0) ** 2, np.inf)
    if np.all(np.isfinite(bound)):
        loss, power, prices = "l1", 1, 2.0 * bound
    elif np.all(tau > np.finfo(np.float64).tiny):  # whose inverse is finite
        loss, power, prices = "l2", 2, 1.0 / tau
    else:
        return hard
    if intercepts is None:
        intercepts = best_intercepts(f, signs, loss, prices)
    slack = np.maximum(np.abs(signs) - signs * (f + intercepts), 0.0)
    losses = np.reshape(prices, (-1, 1)) * slack**power
    return np.minimum(norm2 + np.sum(losses, axis=0), hard)


#: Maximum number of iterations; 10 to 20 are typical.
MAX_MACHINE_STEPS = 100
#: A small gap that has not shrunk for this many iterations is limited by rounding.
STUCK_AFTER = 6
#: A variable within this share of its range, or of the largest variable if that is
#: less, from a bound is at it.
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
    variable, so rounding errors in s affect no other condition; so is the slack t,
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
    for _ in range(MAX_MACHINE_STEPS):
        slack = r - q @ state.w
        moments = q.T @ state.s
        value = float(r @ state.s) - 0.5 * float(moments[:-1] @ moments[:-1])
        primal = 0.5 * float(state.w[:-1] @ state.w[:-1])
        primal += float(np.sum(np.maximum(slack, 0.0)))
        gap = abs(primal - value) / abs(primal) + abs(moments[-1]) / len(y)
        idle = 0 if gap < best_gap else idle + 1
        if gap < best_gap:
            best, best_gap = _snapped(state), gap
        if gap <= tol or (idle >= STUCK_AFTER and best_gap < SMALL_GAP):
            break
        try:
            system = _MachineSystem(q, state, slack, moments)
        except linalg.LinAlgError:  # the gap is beyond the reach of float64
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
    small = state.s < AT_BOUND * np.max(state.s)  # the range, C, may be far larger
    s = np.where(small & (state.s < state.below), 0.0, s)
    return np.where((state.t < AT_BOUND) & (state.t < state.above), 1.0, s)


class _MachineSystem:
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
        if before is not None:  # Mehrotra's correction saves a fifth of the steps
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
MAX_LIBSVM_STEPS, MAX_ACTIVE_SETS = 100_000, 30
#: Corrections in which rows both join and leave the free ones; later, to rule out
#: cycles, rows join only where none has to leave: up to a third of the time with low
#: rank and large C.
BOTH_WAYS = 8
#: C passed to LIBSVM if there is no box, for a kernel of mean diagonal one.
NO_BOX = 1e4
#: Violation allowed in the condition of a variable at its bound, and of a free one, in
#: margins; the latter is also at most this share of the gap to reach.
VIOLATED, REFINED, SHARE_OF_GAP = 1e-10, 1e-11, 1e-2
#: Maximum number of solves that undo the ridge on the kernel between free rows.
REFINEMENTS = 3


def solve_machines(
    kernel: np.ndarray, signs: np.ndarray, bound: PerRow, tol: float
) -> Machines:
    """``max sum(a) - a' (K o yy') a / 2`` over ``0 <= a <= C``, ``y'a = 0``.

    :func:`train_machines`, followed by an interior point method where the gap is too
    large. The result is not guaranteed: it has to be certified.

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
    machines = train_machines(kernel, signs, bound, tol)
    late = machines.late(tol)
    if late:  # low rank and large C: easy for the interior point method
        features = psd_factor(kernel, NULL_EIGENVALUE)
        others = solve_low_rank_svm(features, signs[:, late], bound, tol)
        machines.improve(late, _polish(kernel, signs[:, late], bound, others, tol))
    return machines


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


class Machines(list[Machine]):
    """Solved machines, one per column of signs."""

    def coef(self) -> np.ndarray:
        """The coefficients ``a y``, (n, m)."""
        return np.column_stack([machine.coef for machine in self])

    def curvature(self, products: Array) -> np.ndarray:
        """The Hessian of the sum of values, from products (p, n, m): (p, p)."""
        host = to_numpy(products)
        parts = [machine.curvature(host[:, :, c]) for c, machine in enumerate(self)]
        return np.sum(parts, axis=0)

    @property
    def n_factorizations(self) -> int:
        """Number of factorisations."""
        return sum(machine.n_factorizations for machine in self)

    def late(self, tol: float) -> list[int]:
        """The columns whose gaps are larger than this."""
        return [c for c, machine in enumerate(self) if machine.gap > tol]

    def improve(self, columns: list[int], found: list[Machine]) -> None:
        """Put machines in the place of those with larger gaps."""
        for c, machine in zip(columns, found, strict=True):
            if machine.gap < self[c].gap:
                self[c] = machine


def without_intercept(gram: np.ndarray) -> np.ndarray:
    """``U'RU`` of ``gram = [U, e]' M^-1 [U, e]``, with R the inverse of M on e'b = 0.

    ``R = M^-1 - M^-1 e e' M^-1 / e'M^-1 e``: how the coefficients of an SVM respond to
    a change U of its function, the intercept following.
    """
    return gram[:-1, :-1] - np.outer(gram[:-1, -1], gram[-1, :-1]) / gram[-1, -1]


def train_machines(
    kernel: np.ndarray,
    signs: np.ndarray,
    bound: PerRow,
    tol: float,
    start: np.ndarray | None = None,
    violations: tuple[float, ...] = VIOLATIONS,
    max_steps: int = MAX_LIBSVM_STEPS,
    max_rounds: int = MAX_ACTIVE_SETS,
) -> Machines:
    """Machines with or without a box, polished until their gaps are small enough.

    LIBSVM identifies the variables at a bound long before the others are accurate; the
    latter then follow from a linear system. If that is not enough, LIBSVM is run again
    with a smaller tolerance.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        K.
    signs : ndarray of shape (n, m)
        +1 and -1, one column per machine; 0 marks rows that do not take part.
    bound : float or ndarray of shape (n,)
        C, or infinity.
    tol : float
        Relative gap to reach.
    start : ndarray of shape (n, m), optional
        ``a y`` from similar machines, whose active sets are tried first.
    violations : tuple of float
        Tolerances requested from LIBSVM; there may be none if there is a start.
    max_steps, max_rounds : int
        Maximum numbers of LIBSVM's steps, and of corrections of the active set.

    Returns
    -------
    Machines
        The best ones found; their gaps say how good they are. Those of C >= 1e4 and a
        kernel of low rank stay large: :func:`solve_machines` goes on from there.
    """
    if start is None:
        start = libsvm(kernel, signs, bound, max_steps, violations[0])
        violations = violations[1:]
    machines = _polish(kernel, signs, bound, start, tol, max_rounds)
    for violation in violations:
        late = machines.late(tol)
        if not late:
            break
        coef = libsvm(kernel, signs[:, late], bound, max_steps, violation)
        found = _polish(kernel, signs[:, late], bound, coef, tol, max_rounds)
        machines.improve(late, found)
    return machines


def libsvm(
    kernel: np.ndarray,
    signs: np.ndarray,
    bound: PerRow,
    max_steps: int = MAX_LIBSVM_STEPS,
    violation: float = VIOLATIONS[0],
) -> np.ndarray:
    """``a y`` (n, m) of :func:`train_machines` to this violation, if steps suffice."""
    coef, bounds = np.zeros(signs.shape), np.broadcast_to(bound, len(signs))
    for c, y in enumerate(signs.T):
        rows = np.flatnonzero(y)
        part = kernel if len(rows) == len(y) else kernel[rows].take(rows, axis=1)
        box, shares = float(np.mean(bounds[rows])), None
        if np.isfinite(box):
            shares = bounds[rows] / box
        else:
            box = NO_BOX / (float(np.mean(np.diagonal(part))) or 1.0)
        svc = SVC(
            C=box,
            kernel="precomputed",
            tol=violation,
            max_iter=max_steps,
            random_state=0,  # otherwise it draws from NumPy's global generator
        )
        with warnings.catch_warnings(), config_context(assume_finite=True):
            # the accuracy is measured by the caller
            warnings.filterwarnings("ignore", "Solver terminated early")
            svc.fit(part, y[rows], sample_weight=shares)
        coef[rows[svc.support_], c] = svc.dual_coef_[0]
    return coef


def free_rows(a: np.ndarray, box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which variables (n, m) are strictly inside their box, and which at its top."""
    room = AT_BOUND * np.minimum(box, np.max(a, axis=0))  # C may be far larger than a
    return (a > room) & (a < box - room), (a >= box - room) & (box > 0.0)


#: The constant feature of an intercept, in units of the others: its weight is small.
CONSTANT = 1e3


def separate(kernel: np.ndarray, ridge: np.ndarray, y: np.ndarray) -> Machine:
    """The machine with the hard margin of ``K + diag(ridge)``, y = +-1 (n,).

    ``min norm(w)^2`` with ``y (Fw + b) >= 1`` is least-distance programming. If there
    is no margin, the coefficients prove it: their bound is huge. The ridge (n,) has
    features of its own: it may be less than the rounding of K (n, n).
    """
    features = psd_factor(kernel, NULL_EIGENVALUE)
    features = np.column_stack([features, np.diag(np.sqrt(ridge))])
    features, kernel = features - features.mean(axis=0), kernel + np.diag(ridge)
    unit = float(np.sqrt(np.sum(features**2) / len(y))) or 1.0
    rows = np.column_stack([features / unit, np.full(len(y), CONSTANT)]) * y[:, None]
    try:
        multipliers, _ = least_distance(rows, np.ones(len(y)))
    except FactorizationError:
        multipliers = np.ones(len(y))
    coef = balanced(multipliers * y, y, np.inf)
    square = float(coef @ (kernel @ coef))
    if square > 0.0:
        coef = coef * (float(np.sum(np.abs(coef))) / square)
    return _polish(kernel, y[:, None], np.inf, coef[:, None], 0.0)[0]


def _polish(
    kernel: np.ndarray,
    signs: np.ndarray,
    bound: PerRow,
    coef: np.ndarray,
    tol: float,
    max_rounds: int = MAX_ACTIVE_SETS,
) -> Machines:
    """Solve on the free rows and correct the active sets until nothing is violated.

    All machines (n, m) advance together, so a round costs two products with the
    kernel, and one factorisation of the free rows of each machine.
    """
    start = balanced(coef, signs, bound)
    box = np.where(signs != 0.0, np.reshape(bound, (-1, 1)), 0.0)  # (n, m)
    free, upper = free_rows(start * signs, box)
    none = np.arange(0)
    best = Machines(Machine(column, np.inf, none, None, 0) for column in start.T)
    todo = np.arange(signs.shape[1])  # the machines that are not finished
    for rounds in range(1, max_rounds + 1):
        y, inside, top, most = (x[:, todo] for x in (signs, free, upper, box))
        fixed = np.where(top & ~inside, most, 0.0)
        beta, f, b, factors = _solve_free(kernel, y, inside, fixed, tol)
        low, high = inside & (beta * y < 0.0), inside & (beta * y > most)
        slack = y * (f + b) - 1.0
        violated = np.where(fixed > 0.0, slack > VIOLATED, slack < -VIOLATED)
        joins = ~inside & (most > 0.0) & violated
        solved = np.array([factor is not None for factor in factors])
        feasible = solved & ~np.any(low | high, axis=0)
        gaps = np.where(feasible, _relative_gaps(f, beta, y, bound, b), np.inf)
        beta = balanced(beta, y, bound)
        for j in np.flatnonzero(feasible):
            known, rows = best[todo[j]], np.flatnonzero(inside[:, j])
            if known.factor is None or gaps[j] < known.gap or gaps[j] <= tol:
                machine = Machine(beta[:, j], gaps[j], rows, factors[j], rounds)
                best[todo[j]] = machine
        if rounds > BOTH_WAYS:
            joins &= feasible
        free[:, todo] = (inside & ~low & ~high) | joins
        upper[:, todo] = (top & ~low) | high
        done = feasible & ((gaps <= tol) | ~np.any(joins, axis=0))
        todo = todo[solved & ~done]
        if not len(todo):
            break
    late = best.late(tol)
    own = start[:, late]
    gaps = _relative_gaps(_product(kernel, own), own, signs[:, late], bound)
    pairs = zip(own.T, gaps, strict=True)
    best.improve(late, [Machine(column, gap, none, None, 0) for column, gap in pairs])
    return best


def _solve_free(
    kernel: np.ndarray,
    signs: np.ndarray,
    free: np.ndarray,
    fixed: np.ndarray,
    tol: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray | None]]:
    """Coefficients of all rows, given those at a bound; their functions; intercepts.

    ``K_ff b_f + b = y_f - K_fb b_b`` and ``1'b = 0`` in each column.

    Parameters
    ----------
    kernel, signs, free : ndarray of shape (n, n), (n, m) and (n, m)
        K, y, and which rows are free.
    fixed : ndarray of shape (n, m)
        The variables a of rows at their upper bound, zero elsewhere.
    tol : float
        Relative gap to reach.

    Returns
    -------
    coef, functions : ndarray of shape (n, m)
        ``a y``, and K times that.
    intercepts : ndarray of shape (m,)
        b.
    factors : list of ndarray or None
        Cholesky factor of each ``K_ff``, None if there is none.
    """
    coef, intercepts = fixed * signs, np.zeros(signs.shape[1])
    functions = _product(kernel, coef)
    rows = [np.flatnonzero(column) for column in free.T]
    factors = [_factor(kernel, own) for own in rows]
    solvable = {c: factor for c, factor in enumerate(factors) if factor is not None}
    ones = {c: solve_factored(solvable[c], np.ones(len(rows[c]))) for c in solvable}
    rough = np.array(list(solvable), dtype=np.intp)
    for _ in range(REFINEMENTS):  # iterative refinement removes the ridge
        if not len(rough):
            break
        for c in rough:
            own = rows[c]
            right = signs[own, c] - functions[own, c] - intercepts[c]
            step = solve_factored(solvable[c], right)
            shift = float(np.sum(step) + np.sum(coef[:, c])) / float(np.sum(ones[c]))
            coef[own, c] += step - shift * ones[c]
            intercepts[c] += shift
        functions[:, rough] = _product(kernel, coef[:, rough])
        left = np.where(free, functions + intercepts - signs, 0.0)[:, rough]
        rough = rough[np.max(np.abs(left), axis=0) > min(REFINED, SHARE_OF_GAP * tol)]
    return coef, functions, intercepts, factors


def _factor(kernel: np.ndarray, rows: np.ndarray) -> np.ndarray | None:
    """The Cholesky factor of the kernel between these rows, or None."""
    if not len(rows):
        return None
    matrix = kernel[rows].take(rows, axis=1)
    size = float(np.mean(np.diagonal(matrix))) or 1.0
    add_to_diagonal(matrix, RIDGE * size * len(rows))
    try:
        return cholesky(matrix, overwrite=True)
    except FactorizationError:
        return None


def _product(kernel: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """``K coef`` (n, m), from the rows of the symmetric K that it takes."""
    used = np.flatnonzero(np.any(coef != 0.0, axis=1))
    if 2 * len(used) > len(kernel):
        return kernel @ coef
    return kernel[used].T @ coef[used]


def _relative_gaps(
    f: np.ndarray,
    coef: np.ndarray,
    signs: np.ndarray,
    bound: PerRow,
    intercepts: np.ndarray | None = None,
) -> np.ndarray:
    """Primal minus dual value of ``f = K coef``, relative to the primal, (m,)."""
    primal = primal_values(f, coef, signs, bound, 0.0, intercepts)
    dual = 2.0 * np.sum(coef * signs, axis=0) - np.sum(coef * f, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = (primal - dual) / np.abs(primal)
    return np.where(np.isfinite(primal), gap, np.inf)


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

"""Support vector machines on a few explicit features, by an interior point method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from kernelweave._tolerances import SMALL_GAP
from kernelweave.inner.interior_point import largest_step, predict
from kernelweave.inner.margin_bounds import balanced

__all__ = ["solve_low_rank_svm"]

#: Maximum number of iterations; 10 to 20 are typical.
MAX_ITER = 100
#: Fraction of the way to the boundary.
TO_BOUNDARY = 0.995
#: A small gap that has not shrunk for this many iterations is limited by rounding.
PATIENCE = 6
#: A variable within this share of C from a bound may be set to it.
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

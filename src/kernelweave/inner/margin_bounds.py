"""Bounds on the value of support vector machines, from points of any quality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave.protocols import CertificateTerms

__all__ = [
    "MarginTerms",
    "balanced",
    "best_intercept",
    "hard_margin",
    "primal_value",
]

#: Relative difference between the sums of the two classes that counts as rounding.
BALANCED = 1e-14


@dataclass(frozen=True)
class MarginTerms(CertificateTerms):
    """Bounds whose dual point may still be scaled.

    With ``total = e'a``, ``square = tau a'a`` and the scores ``q_i = a'G_i a``, every
    factor s with ``s a <= C`` gives ``J(u) >= 2 s total - s^2 (square + <q, u>)``.

    Attributes
    ----------
    total, square : float
        As above, summed over the columns.
    largest_factor : float
        The largest s allowed by the box.
    """

    total: float = 0.0
    square: float = 0.0
    largest_factor: float = 1.0

    def factor(self, support: float) -> float:
        """The best s, given that ``<q, u> <= support`` for every allowed ``u``."""
        curvature = self.square + support
        if self.total <= 0.0:
            return 0.0
        if not curvature * self.largest_factor > self.total:
            return self.largest_factor
        return self.total / curvature

    def lower_bound(self, support: float) -> float:
        """``max_s 2 s total - s^2 (square + support)``."""
        s = self.factor(support)
        if np.isinf(s):
            return np.inf
        return 2.0 * s * self.total - s**2 * (self.square + support)


def balanced(coef: np.ndarray, signs: np.ndarray, bound: float) -> np.ndarray:
    """A point of ``0 <= a <= bound, y'a = 0`` near ``coef = a y``, both (n, k).

    Entries are clipped, then the class with the larger sum is scaled down, which
    preserves zeros and the box. A feasible point is returned unchanged.
    """
    a = np.clip(np.where(np.isfinite(coef), coef, 0.0) * signs, 0.0, bound)
    plus = np.sum(np.where(signs > 0, a, 0.0), axis=0)
    minus = np.sum(np.where(signs < 0, a, 0.0), axis=0)
    smaller, larger = np.minimum(plus, minus), np.maximum(plus, minus)
    scale = smaller / np.where(larger > 0, larger, 1.0)
    scale = np.where(larger - smaller <= BALANCED * larger, 1.0, scale)
    too_large = np.where(plus > minus, 1.0, -1.0)
    return np.where(signs == too_large, a * scale, a) * signs


def best_intercept(f: np.ndarray, y: np.ndarray, loss: str) -> float:
    """The b that minimises the loss of ``f + b``; f and y of shape (n,), y = +-1.

    With ``r_i = y_i - f_i`` a positive row requires ``b >= r_i``, a negative one
    ``b <= r_i``. If a whole interval is optimal, its midpoint is returned.

    Parameters
    ----------
    f, y : ndarray of shape (n,)
        Values without an intercept, and signs.
    loss : {"l1", "l2", "hard"}
        Sum of ``xi``, sum of ``xi^2``, or the margin itself.
    """
    positive = y > 0
    if loss == "hard":
        return -0.5 * float(np.min(f[positive]) + np.max(f[~positive]))
    r = y - f
    if loss == "l1":  # the slope of the loss is j - n_plus after j breakpoints
        j = int(np.count_nonzero(positive))
        ordered = np.partition(r, (j - 1, j))
        return 0.5 * float(ordered[j - 1] + ordered[j])
    need, limit = float(np.max(r[positive])), float(np.min(r[~positive]))
    if need <= limit:
        return 0.5 * (need + limit)
    return _root_of_squared_loss(r, positive)


def _root_of_squared_loss(r: np.ndarray, positive: np.ndarray) -> float:
    """Root b of ``sum_active (r_i - b)``: positives are active above b, others below.

    The sum decreases in b and is linear between the breakpoints, at which cumulative
    sums give its value.
    """
    order = np.argsort(r)
    r, plus = r[order], positive[order].astype(np.float64)
    minus = 1.0 - plus
    above, n_above = (
        np.sum(plus * r) - np.cumsum(plus * r),
        np.sum(plus) - plus.cumsum(),
    )
    below, n_below = np.cumsum(minus * r), np.cumsum(minus)
    slope = above + below - (n_above + n_below) * r
    j = max(int(np.count_nonzero(slope >= 0.0)) - 1, 0)
    count = n_above[j] + n_below[j]
    return float((above[j] + below[j]) / count) if count > 0 else float(r[j])


def hard_margin(f: np.ndarray, y: np.ndarray, norm2: float) -> float:
    """``norm(w)^2 / rho^2``, infinite if f does not separate the classes."""
    rho = 0.5 * float(np.min(f[y > 0]) - np.max(f[y < 0]))
    if not (rho > 0.0 and norm2 > 0.0):
        return np.inf
    return norm2 / rho**2


def primal_value(
    f: np.ndarray, coef: np.ndarray, y: np.ndarray, bound: float, tau: float
) -> float:
    """A valid primal value from ``f = K coef``; all arrays (n,), y = +-1.

    The smaller of the value at f and that at the multiple of f which separates all
    rows, if there is one.
    """
    norm2 = max(float(coef @ f), 0.0)
    hard = hard_margin(f + tau * coef, y, norm2 + tau * float(coef @ coef))
    if np.isfinite(bound):
        slack = 1.0 - y * (f + best_intercept(f, y, "l1"))
        return min(norm2 + 2.0 * bound * float(np.sum(np.maximum(slack, 0.0))), hard)
    if tau > 0.0:
        slack = np.maximum(1.0 - y * (f + best_intercept(f, y, "l2")), 0.0)
        return min(norm2 + float(slack @ slack) / tau, hard)
    return hard

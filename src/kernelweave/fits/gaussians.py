"""Classes as Gaussians in the projected space, fitted to leave-one-out projections."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from kernelweave._array import Array, from_numpy, namespace

__all__ = ["ClassGaussians", "HeldOutClasses"]

#: The variance is sought within these multiples of the mean squared distance of rows to
#: their class mean computed without them. Smaller values only fit rows that happen to
#: be perfectly separated; at the upper end little more than the class shares remains.
VARIANCE_RANGE = (1.0, 1e3)
#: Number of rows that the prior mean of a class, a multiple of its target, counts for.
#: Without this prior the means of small classes are mostly noise.
PRIOR_ROWS = 10.0


@dataclass(frozen=True)
class ClassGaussians:
    """``p(z | c) = N(z; mean_c, variance S)`` with the class shares as prior.

    S is the identity, or the diagonal ``spread`` of each row where rows have variances
    of their own: a less certain row says less about its class.

    Projections of the training rows lie closer to their own class than those of new
    rows do, so means and variance come from leave-one-out projections; see
    :class:`HeldOutClasses`.

    Attributes
    ----------
    means : ndarray of shape (k, r)
        Class means; all equal if the projections carry no evidence for the classes.
    variance : float
        Variance of each coordinate around its class mean, in units of the spread.
    log_prior : ndarray of shape (k,)
        Logarithm of the class shares.
    slope : float
        The share of the class target recovered by the projection of a held-out row: 1
        if perfect. If it is 0, only the class shares are known.
    loo_score : float
        Leave-one-out accuracy: each row is left out of its own projection, its class
        mean, the slope and the class shares. The only row of a class counts as wrong.
    """

    means: np.ndarray
    variance: float
    log_prior: np.ndarray
    slope: float
    loo_score: float

    @classmethod
    def fit(
        cls,
        projected: np.ndarray,
        targets: np.ndarray,
        codes: np.ndarray,
        spread: np.ndarray | None = None,
    ) -> ClassGaussians:
        """Fit to leave-one-out projections.

        Parameters
        ----------
        projected, targets : ndarray of shape (n, r)
            Projection of each row by the model fitted without it, and its target. All
            rows of a class share one target, and the targets sum to zero.
        codes : ndarray of int of shape (n,)
            Classes 0 .. k - 1, each of which must occur.
        spread : ndarray of shape (n, r), optional
            Variance of each projection.
        """
        projected = np.asarray(projected, dtype=np.float64)
        _, first, counts = np.unique(codes, return_index=True, return_counts=True)
        sums = np.zeros((len(counts), projected.shape[1]))
        np.add.at(sums, codes, projected)
        held_out = HeldOutClasses(counts, sums, np.asarray(targets)[first])
        return held_out.gaussians(projected, codes, spread)

    @property
    def remark(self) -> str | None:
        """A warning if predictions rest on the class shares alone, else None."""
        if self.slope > 0:
            return None
        return (
            "projections of held-out rows carry no evidence for the classes: "
            "the class shares are predicted for every row "
            f"(the largest is {np.exp(np.max(self.log_prior)):.1%})"
        )

    def log_joint(self, projected: Array, spread: Array | None = None) -> Array:
        """``log p(z, c)`` up to a constant, (m, k), in the library of ``projected``."""
        xp = namespace(projected)
        means = from_numpy(self.means, projected)
        log_prior = from_numpy(self.log_prior, projected)
        if not self.slope > 0:
            return xp.zeros_like(projected[:, :1]) + log_prior[None, :]
        # |z - m|^2 without the term in z alone, which all classes share
        if spread is None:
            linear = projected @ means.T - xp.sum(means * means, axis=1)[None, :] / 2
        else:
            linear = (projected / spread) @ means.T
            linear = linear - (0.5 / spread) @ (means * means).T
        return linear / self.variance + log_prior[None, :]


class HeldOutClasses:
    """Class means of leave-one-out projections, shrunk towards multiples of targets.

    When the model projects its own training rows, the class means are exactly the
    targets times a positive semidefinite matrix, ``H'G M^-1 H / n``. For leave-one-out
    projections Z the means are noisy, and with a weak signal they can even lie on the
    wrong side, which would reverse the classifier. With n_c rows, mean m_c and target
    h_c of class c, and overall mean m::

        slope  s = max(0, <Z, H> / <H, H>)
        mean_c = (n_c m_c + PRIOR_ROWS (m + s h_c)) / (n_c + PRIOR_ROWS)

    and where s = 0 only the class shares are predicted. Two classes can then never be
    swapped, and small classes rely on the slope that all of them share.

    The variance minimises the log loss of rows left out of their class mean, the slope
    and the class shares. It is therefore the variance of new rows around *estimated*
    means; for class c this would be ``1 + 1 / (n_c + PRIOR_ROWS)`` times the variance
    around the true mean, a factor that differs by less than a tenth between classes.

    Parameters
    ----------
    counts : ndarray of shape (k,)
        Number of rows in each class.
    sums : ndarray of shape (k, r)
        Sums of the leave-one-out projections of each class.
    coding : ndarray of shape (k, r)
        Target of each class.
    """

    def __init__(
        self, counts: np.ndarray, sums: np.ndarray, coding: np.ndarray
    ) -> None:
        self.counts = np.asarray(counts, dtype=np.float64)
        self.coding = np.asarray(coding, dtype=np.float64)
        # Without its only row a class is unknown: it takes no part in the slope.
        several = self.counts > 1
        self.usable = np.where(several, self.counts, 0.0)
        self.sums = np.where(several[:, None], sums, 0.0)
        self.center = np.sum(self.sums, axis=0) / max(float(np.sum(self.usable)), 1.0)
        self.found = float(np.sum(self.sums * self.coding))
        self.squares = np.sum(self.coding**2, axis=1)
        self.sought = float(self.usable @ self.squares)

    def gaussians(
        self, projected: np.ndarray, codes: np.ndarray, spread: np.ndarray | None = None
    ) -> ClassGaussians:
        """Class Gaussians, calibrated on leave-one-out projections of some rows.

        Parameters
        ----------
        projected : ndarray of shape (m, r)
            Leave-one-out projections of rows included in the sums.
        codes : ndarray of int of shape (m,)
            Their classes.
        spread : ndarray of shape (m, r), optional
            Variance of each projection.
        """
        log_prior = np.log(self.counts / np.sum(self.counts))
        rows = np.arange(len(codes))
        slope = max(self.found / self.sought, 0.0) if self.sought > 0 else 0.0
        slopes = self._slopes_without(projected, codes)
        weight = np.ones_like(projected) if spread is None else 1.0 / spread
        distances = self._distances(projected, codes, slopes, weight)
        several = self.counts[codes] > 1
        shares = np.tile(self.counts, (len(codes), 1))
        shares[rows, codes] -= several
        shares = np.log(shares / np.sum(shares, axis=1, keepdims=True))
        variance = 1.0
        if slope > 0:
            variance = _best_variance(distances, shares, codes, projected.shape[1])
        informed = (slopes > 0)[:, None]
        scores = shares - np.where(informed, distances / (2.0 * variance), 0.0)
        right = several & (np.argmax(scores, axis=1) == codes)
        means = self._means(slope)
        return ClassGaussians(means, variance, log_prior, slope, float(np.mean(right)))

    def _means(self, slope: float) -> np.ndarray:
        if not slope > 0:
            return np.tile(self.center, (len(self.counts), 1))
        prior = PRIOR_ROWS * (self.center + slope * self.coding)
        return (self.sums + prior) / (self.usable + PRIOR_ROWS)[:, None]

    def _slopes_without(self, z: np.ndarray, own: np.ndarray) -> np.ndarray:
        """The slope without each of the rows ``z`` (m, r), (m,)."""
        several = self.counts[own] > 1
        found = self.found - several * np.sum(z * self.coding[own], axis=1)
        sought = self.sought - several * self.squares[own]
        return np.maximum(found / np.where(sought > 0, sought, np.inf), 0.0)

    def _distances(
        self, z: np.ndarray, own: np.ndarray, slopes: np.ndarray, weight: np.ndarray
    ) -> np.ndarray:
        """Squared distances (m, k) to class means computed without the row.

        The means are ``b_c + s g_c`` with the slope s of each row, so matrix products
        serve all rows and classes; only the row's own class has a different mean.
        """
        size = (self.usable + PRIOR_ROWS)[:, None]
        b = (self.sums + PRIOR_ROWS * self.center) / size
        g = PRIOR_ROWS * self.coding / size
        weighted, s = z * weight, slopes[:, None]
        distances = np.sum(weighted * z, axis=1)[:, None] + weight @ (b**2).T
        distances -= 2.0 * weighted @ b.T
        distances += 2.0 * s * (weight @ (b * g).T - weighted @ g.T)
        distances += s**2 * (weight @ (g**2).T)
        prior = PRIOR_ROWS * (self.center + s * self.coding[own])
        several = (self.counts[own] > 1)[:, None]
        mean = (self.sums[own] - several * z + prior) / (size[own] - several)
        rows = np.arange(len(z))
        distances[rows, own] = np.sum(weight * (z - mean) ** 2, axis=1)
        # Without the row its class has one row fewer, which stretches the coordinate of
        # that class: coordinate c of z is q_c <z, h_c>, coded by 1 / q_c.
        h = self.coding[own]
        along = (self.coding @ b.T)[own] + s * (self.coding @ g.T)[own]  # (m, k)
        along[rows, own] = np.sum(mean * h, axis=1)
        along -= np.sum(z * h, axis=1)[:, None]
        n, own_count = np.sum(self.counts), self.counts[own]
        stretch = (n - own_count) / (n * np.maximum(own_count - 1.0, 1.0))
        stretch *= several[:, 0] * own_count / n * np.mean(weight, axis=1)
        return distances + stretch[:, None] * along**2


def _best_variance(
    distances: np.ndarray, log_shares: np.ndarray, codes: np.ndarray, r: int
) -> float:
    """The shared variance with the smallest log loss, from distances (n, k)."""
    rows = np.arange(len(codes))
    residual = float(np.mean(distances[rows, codes])) / r
    if not residual > 0:
        return 1.0

    def log_loss(log_factor: float) -> float:
        scores = log_shares - distances / (2.0 * residual * np.exp(log_factor))
        return -float(np.mean(log_softmax(scores, axis=1)[rows, codes]))

    low, high = np.log(VARIANCE_RANGE)
    best = minimize_scalar(log_loss, bounds=(low, high), method="bounded")
    return residual * float(np.exp(best.x))

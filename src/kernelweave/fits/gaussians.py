"""Classes as Gaussians in the projected space, fitted to leave-one-out projections."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from kernelweave._array import Array, from_numpy, namespace

__all__ = ["ClassGaussians", "HeldOutClasses"]

#: The variance is searched within these multiples of the mean squared distance of rows
#: to the mean of their class without them. Below it only lie fits to rows that happen
#: to be separated perfectly; at the upper end little but the class shares is left.
VARIANCE_RANGE = (1.0, 1e3)
#: The mean of a class counts as its rows do, its multiple of the target as this many.
#: Without it the means of small classes are mostly noise.
PRIOR_ROWS = 10.0


@dataclass(frozen=True)
class ClassGaussians:
    """``p(z | c) = N(z; mean_c, variance S)`` with the class shares as prior.

    S is the identity, or diagonal with the ``spread`` of each row where rows come with
    a variance of their own: a row that is less certain says less about its class.

    Projections of the training rows themselves lie closer to their class than those of
    new rows do, so means and variance come from leave-one-out projections; see
    :class:`HeldOutClasses`.

    Attributes
    ----------
    means : ndarray of shape (k, r)
        Class means; all the same where projections carry no evidence for the classes.
    variance : float
        Variance of each coordinate around its class mean, in units of the spread.
    log_prior : ndarray of shape (k,)
        Logarithm of the class shares.
    slope : float
        How much of a class's target is found in the projection of a row that was left
        out: 1 for perfect ones. Where it is 0 the class shares are all that is known.
    loo_score : float
        Leave-one-out accuracy: each row is left out of its own projection, the mean of
        its class, the slope and the class shares. The only row of a class counts as
        wrong.
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
            rows of a class have the same target, and the targets sum to zero.
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
        """What to know about the predictions, if they rest on the class shares only."""
        if self.slope > 0:
            return None
        return (
            "projections of rows that were left out carry no evidence for the classes: "
            "the class shares are predicted for every row "
            f"(the largest is {np.exp(np.max(self.log_prior)):.1%})"
        )

    def log_joint(self, projected: Array, spread: Array | None = None) -> Array:
        """``log p(z, c)`` up to a constant, (m, k), where ``projected`` lives."""
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

    The projections Z of training rows by the model itself have class means that are
    exactly the targets times a positive semidefinite matrix, ``H'G M^-1 H / n``. Of
    projections Z of rows left out, the means are noisy, and with a weak signal they can
    even lie on the wrong side, which would reverse the classifier. With n_c rows, mean
    m_c and target h_c of class c, and the mean m of all::

        slope  s = max(0, <Z, H> / <H, H>)
        mean_c = (n_c m_c + PRIOR_ROWS (m + s h_c)) / (n_c + PRIOR_ROWS)

    and where s = 0 nothing but the class shares is predicted. Two classes can then
    never be swapped, and small ones rest on the slope that all of them share.

    The variance minimises the log loss of rows that are left out of the mean of their
    class, of the slope and of the class shares. It is thereby the variance of new rows
    around *estimated* means; that of class c would be ``1 + 1 / (n_c + PRIOR_ROWS)``
    times the one around true means, which differs by less than a tenth among classes.

    Parameters
    ----------
    counts : ndarray of shape (k,)
        Rows of each class.
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
        # Without its only row a class is unknown: the slope is that of the others.
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
            Leave-one-out projections of rows that the sums contain.
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
        """Squared distances (m, k) to class means that do not contain the row.

        The means are ``b_c + s g_c`` with the slope s of each row, so that products
        serve all rows and classes; the mean of the row's own class is another one.
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
        # Without the row the coordinate of its class is coded by one row less, which
        # stretches it: coordinate c of z is q_c <z, h_c>, coded by 1 / q_c.
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

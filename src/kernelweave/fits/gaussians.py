"""Classes as Gaussians in the projected space, fitted to leave-one-out projections."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from kernelweave._array import DOUBLE_EPS, Array, from_numpy, namespace, row_chunks
from kernelweave.fits.ridge import RowDesign

#: The variance is searched for within these multiples of the mean squared distance of
#: rows to their class mean computed without them. Smaller values only fit rows that
#: happen to be perfectly separated; at the upper end little more than the class shares
#: remains.
VARIANCE_RANGE = (1.0, 1e3)
#: Number of rows that the prior mean of a class, a multiple of its target, counts for.
#: Without this prior the means of small classes are mostly noise.
PRIOR_ROWS = 10.0
#: A slope below this many units of rounding counts as zero: projections of held-out
#: rows are differences of targets and residuals. For rows that have nothing in
#: common, whose projections are zero, slopes of up to 11 units were found.
NO_SLOPE = 32.0
#: Temperatures that are considered; 1 leaves the probabilities as they are.
TEMPERATURES = (1.0, 1e4)


@dataclass(frozen=True)
class ClassGaussians:
    """``p(z | c) = N(z; mean_c, variance S)`` with the class shares as prior.

    S is the identity or, where rows have variances of their own, the diagonal of their
    ``spread`` plus the ``scatter``: a less certain row says less about its class, but
    rows of a class differ even where they are certain.

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
        Logarithm of the class shares, or of the priors given in their place.
    slope : float
        The share of the class target recovered by the projection of a held-out row: 1
        if perfect. If it is 0, only the class shares are known.
    loo_score : float
        Leave-one-out accuracy: each row is left out of its own projection, its class
        mean, the slope and the class shares. A class's only row counts as wrong.
        NaN with only two groups: a single group does not determine the slope.
    temperature : float
        Divides the log odds; above 1, probabilities are less certain, labels the same.
        It has the smallest log loss on rows left out, one by one or in folds.
    shift : ndarray of shape (k,) or float
        Logarithm of given priors relative to the class shares, added to the log odds
        that have been calibrated on rows with these shares (Bayes' rule).
    scatter : float
        The mean spread of the rows, added to that of each; 0 if there is none. Spreads
        alone, on nine tables, gave new rows a log loss of 0.21 in place of 0.19.
    """

    means: np.ndarray
    variance: float
    log_prior: np.ndarray
    slope: float
    loo_score: float
    temperature: float = 1.0
    shift: np.ndarray | float = 0.0
    scatter: float = 0.0

    @classmethod
    def fit(
        cls,
        projected: np.ndarray,
        targets: np.ndarray,
        codes: np.ndarray,
        spread: np.ndarray | None = None,
        design: RowDesign | None = None,
        priors: np.ndarray | None = None,
    ) -> ClassGaussians:
        """Fit to leave-one-out projections.

        Parameters
        ----------
        projected, targets : ndarray of shape (n, r)
            Projection of each row by the model fitted without it, and its target. All
            rows of a class share one target, of (weighted) mean zero.
        codes : ndarray of int of shape (n,)
            Classes 0 .. k - 1, each of which must occur.
        spread : ndarray of shape (n, r), optional
            Variance of each projection.
        design : RowDesign, optional
            Weights of the rows, and groups left out together.
        priors : ndarray of shape (k,), optional
            Probabilities of the classes among new rows, in place of their shares.
        """
        design = design or RowDesign(len(codes))
        held_out = HeldOutClasses.of(projected, targets, codes, design)
        projected = projected.astype(np.float64)
        return held_out.gaussians(projected, codes, design, spread, priors)

    @property
    def remark(self) -> str | None:
        """A warning if only class shares are predicted, or if there is no score."""
        if math.isnan(self.loo_score):
            return (
                "there is no loo_score_: with two groups, leaving one out leaves only "
                "one, and class means need two; use more groups to judge the model"
            )
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
        spread = xp.ones_like(projected) if spread is None else spread + self.scatter
        linear = (projected / spread) @ means.T - (0.5 / spread) @ (means * means).T
        shift = from_numpy(np.zeros_like(self.log_prior) + self.shift, projected)
        calibrated = linear / self.variance + (log_prior - shift)[None, :]
        return calibrated / self.temperature + shift[None, :]


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
        Number of rows in each class, or sum of their weights.
    sums : ndarray of shape (k, r)
        (Weighted) sums of the leave-one-out projections of each class.
    coding : ndarray of shape (k, r)
        Target of each class.
    n_units : ndarray of int of shape (k,)
        Number of groups with rows of each class, or of rows.
    precision : float, default=eps of float64
        Rounding error of the projections, relative to the targets.
    """

    def __init__(
        self,
        counts: np.ndarray,
        sums: np.ndarray,
        coding: np.ndarray,
        n_units: np.ndarray,
        precision: float = DOUBLE_EPS,
    ) -> None:
        self.counts, self.n_units = np.asarray(counts, dtype=np.float64), n_units
        self.coding = np.asarray(coding, dtype=np.float64)
        # Without its only row or group a class is unknown: it has no part in the slope.
        self.several = self.n_units > 1
        self.usable = np.where(self.several, self.counts, 0.0)
        self.sums = np.where(self.several[:, None], sums, 0.0)
        self.center = np.sum(self.sums, axis=0) / (float(np.sum(self.usable)) or 1.0)
        self.squares = np.sum(self.coding**2, axis=1)
        self.least = NO_SLOPE * precision
        self.found = float(np.sum(self.sums * self.coding))
        self.sought = float(self.usable @ self.squares)
        self.slope = float(self._slopes(self.found, self.sought))

    @classmethod
    def of(
        cls,
        projected: np.ndarray,
        targets: np.ndarray,
        codes: np.ndarray,
        design: RowDesign,
    ) -> HeldOutClasses:
        """Sums over all rows, from projections and targets (n, r); classes (n,)."""
        _, first = np.unique(codes, return_index=True)
        sums = np.zeros((len(first), projected.shape[1]))
        np.add.at(sums, codes, design.each[:, None] * projected)
        counts = np.bincount(codes, design.each)
        coding, n_units = np.asarray(targets)[first], units_per_class(codes, design)
        precision = float(np.finfo(projected.dtype).eps)
        return cls(counts, sums, coding, n_units, precision)

    def log_joint(
        self,
        projected: np.ndarray,
        codes: np.ndarray,
        design: RowDesign,
        priors: np.ndarray | None = None,
    ) -> np.ndarray:
        """``log p(z, c)`` of each row without it, up to a constant, (n, k).

        Means and slope are those without the row or its group, the variance and the
        class shares, unless ``priors`` (k,) replace them, those of all rows.
        """
        distances, _, variance = self._calibrated(projected, codes, None, design)
        shares = _shares(self.counts) if priors is None else priors
        return np.log(shares)[None, :] - distances / (2.0 * variance)

    def _calibrated(
        self,
        projected: np.ndarray,
        codes: np.ndarray,
        spread: np.ndarray | None,
        design: RowDesign,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Distances and log shares without each row (m, k), and the variance."""
        precision = np.ones_like(projected) if spread is None else 1.0 / spread
        distances, log_shares = self._without(projected, codes, precision, design)
        variance = 1.0
        residual = np.average(_own(distances, codes), weights=design.each)
        residual = float(residual) / projected.shape[1]
        if self.slope > 0 and residual > 0:
            low, high = VARIANCE_RANGE
            scores, bounds = distances / (-2.0 * residual), (1.0 / high, 1.0 / low)
            variance = residual / best_sharpness(
                log_shares, scores, codes, design.each, bounds
            )
        return distances, log_shares, variance

    def gaussians(
        self,
        projected: np.ndarray,
        codes: np.ndarray,
        design: RowDesign,
        spread: np.ndarray | None = None,
        priors: np.ndarray | None = None,
    ) -> ClassGaussians:
        """Class Gaussians, calibrated on leave-one-out projections of some rows.

        Parameters
        ----------
        projected : ndarray of shape (m, r)
            Leave-one-out projections of rows included in the sums.
        codes : ndarray of int of shape (m,)
            Their classes.
        design : RowDesign
            Weights and groups of these rows.
        spread : ndarray of shape (m, r), optional
            Variance of each projection.
        priors : ndarray of shape (k,), optional
            Probabilities of the classes, in place of their shares.
        """
        scatter = 0.0
        if spread is not None:
            scatter = float(np.average(np.mean(spread, axis=1), weights=design.each))
            spread = spread + scatter
        found = self._calibrated(projected, codes, spread, design)
        distances, without, variance = found
        log_shares = np.log(_shares(self.counts))
        # The variance was calibrated on rows with their own shares: p(z | c) stays.
        log_prior = log_shares if priors is None else np.log(priors)
        shift, usable = log_prior - log_shares, self.several[codes]
        evidence, temperature = -distances / (2.0 * variance), 1.0
        if self.slope > 0 and np.any(usable):
            # Shares without a row would reveal its class, with the wrong sign.
            odds, rows = log_shares + evidence, np.flatnonzero(usable)
            own = design.restrict(rows)
            temperature = best_temperature(odds[rows], codes[rows], own)
        scores = without + evidence
        if priors is not None:
            scores = (log_shares + evidence) / temperature + shift
        right = usable & (np.argmax(scores, axis=1) == codes)
        score = float(np.average(right, weights=design.each))
        if self.slope > 0 and len(np.unique(design.units[usable])) == 2:
            score = math.nan
        prior = self.center + self.slope * self.coding
        means = _means(self.sums, self.usable, prior)
        if not self.slope > 0:
            means = np.tile(self.center, (len(self.counts), 1))
        return ClassGaussians(
            means, variance, log_prior, self.slope, score, temperature, shift, scatter
        )

    def _without(
        self, z: np.ndarray, own: np.ndarray, precision: np.ndarray, design: RowDesign
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances to class means, and log shares, without each row, (m, k).

        Rows ``z`` (m, r) of the classes ``own`` (m,) are left out with their groups.
        Distances are 0 if there is no evidence for the classes without the row. The
        means are ``b_c + s h_c`` with the slope s of each group, so matrix products
        serve all rows and classes, which with 500 classes is ten times as fast as row
        by row; only the q pairs of a group and one of its classes have other means.
        """
        unit, several = design.units, self.several[own]
        taken = np.zeros((int(np.max(unit)) + 1, len(self.counts)))  # (g, k)
        np.add.at(taken, (unit, own), np.where(several, design.each, 0.0))
        group, of = np.nonzero(taken)  # (q,), the pairs
        pair = np.zeros(taken.shape, dtype=int)
        pair[group, of] = np.arange(len(of))
        sums, usable = self.sums[of], self.usable[of] - taken[group, of]
        weighted = design.each[:, None] * z
        np.subtract.at(sums, pair[unit, own][several], weighted[several])
        # Of two units, the other would be the only one: the class has no mean.
        alone = self.n_units[of] == 2
        sums[alone], usable[alone] = 0.0, 0.0
        lost = np.sum((self.sums[of] - sums) * self.coding[of], axis=1)
        fewer = (self.usable[of] - usable) * self.squares[of]
        found = self.found - np.bincount(group, lost, minlength=len(taken))
        sought = self.sought - np.bincount(group, fewer, minlength=len(taken))
        # Without any class that has a mean, all that is left of these is rounding.
        missing = np.bincount(group, alone, minlength=len(taken))
        sought[missing == np.sum(self.several)] = 0.0
        slopes = self._slopes(found, sought)  # (g,)
        prior = self.center + slopes[group, None] * self.coding[of]
        means = _means(sums, usable, prior)  # (q, r)
        b = _means(self.sums, self.usable, self.center)
        h = _means(np.zeros_like(b), self.usable, self.coding)
        s = slopes[unit, None]
        distances = _distances(z, precision, b, h, s)
        i, c = np.nonzero(taken[unit])
        its = pair[unit[i], c]
        parts = list(row_chunks(len(i), len(self.counts)))  # there may be many pairs
        for part in parts:
            apart = z[i[part]] - means[its[part]]
            found = np.sum(precision[i[part]] * apart**2, axis=1)
            distances[i[part], c[part]] = found
        # Without the rows their class is smaller, which stretches the coordinate of
        # that class: coordinate c of z is q_c <z, h_c>, coded by 1 / q_c.
        # Something is left of a class with other rows, even next to a huge weight.
        left = np.maximum(self.counts - taken, DOUBLE_EPS * self.counts)
        share, shares = _shares(self.counts), _shares(left)
        along = (self.coding @ b.T)[of] + slopes[group, None] * (self.coding @ h.T)[of]
        j, other = np.nonzero(taken[group])
        for part in row_chunks(len(j), len(self.counts)):
            own_means = means[pair[group[j[part]], other[part]]]
            found = np.sum(own_means * self.coding[of[j[part]]], axis=1)
            along[j[part], other[part]] = found  # (q, k)
        stretch = share[of] * (share[of] / shares[group, of] - 1.0)
        for part in parts:
            rows, places = i[part], its[part]
            where = np.sum(z[rows] * self.coding[c[part]], axis=1)
            size = np.mean(precision[rows], axis=1) * stretch[places]
            apart = along[places] - where[:, None]
            np.add.at(distances, rows, size[:, None] * apart**2)
        return np.where(s > 0, distances, 0.0), np.log(shares)[unit]

    def _slopes(self, found: Any, sought: Any) -> np.ndarray:
        """``<Z, H> / <H, H>``, or 0 where that is negative or rounding."""
        slopes = found / np.where(sought > 0, sought, np.inf)
        return np.where(slopes > self.least, slopes, 0.0)


def _means(sums: np.ndarray, sizes: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Means (k, r) of ``sizes`` (k,) rows each, shrunk towards those of a prior."""
    return (sums + PRIOR_ROWS * prior) / (sizes + PRIOR_ROWS)[:, None]


def _distances(
    z: np.ndarray, precision: np.ndarray, b: np.ndarray, h: np.ndarray, s: np.ndarray
) -> np.ndarray:
    """``sum_r precision_r (z_r - b_r - s h_r)^2`` of every row and class, (m, k).

    z and precision are (m, r), b and h are (k, r), and s is (m, 1).
    """
    weighted = z * precision
    distances = np.sum(weighted * z, axis=1)[:, None] + precision @ (b**2).T
    distances -= 2.0 * weighted @ b.T
    distances += 2.0 * s * (precision @ (b * h).T - weighted @ h.T)
    distances += s**2 * (precision @ (h**2).T)
    return distances


def units_per_class(codes: np.ndarray, design: RowDesign) -> np.ndarray:
    """The number of groups, or of rows, that have each of the classes (n,)."""
    pairs = np.unique(codes * design.n_rows + design.units)
    return np.bincount(pairs // design.n_rows)


def _shares(counts: np.ndarray) -> np.ndarray:
    """Shares of the classes, along the last axis."""
    return counts / np.sum(counts, axis=-1, keepdims=True)


def _own(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The entry of each row (m, k) in the column of its class, (m,)."""
    return table[np.arange(len(codes)), codes]


#: Relative precision of a sharpness.
SHARP_ENOUGH = 1e-9


def best_sharpness(
    offsets: np.ndarray | float,
    scores: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    bounds: tuple[float, float],
    doubt: float = 0.0,
) -> float:
    """The b between ``bounds`` with the smallest log loss of ``softmax(a + b s)``.

    The log loss is convex in b: its derivative, the mean of ``E s - s_own`` under the
    probabilities of the classes, has one root.

    Parameters
    ----------
    offsets : ndarray of shape (n, k) or float
        a.
    scores : ndarray of shape (n, k)
        s; -inf for impossible classes.
    codes : ndarray of shape (n,)
        The class of each row, with a finite score.
    weights : ndarray of shape (n,)
        Weights of the rows.
    bounds : tuple of float
        Smallest and largest b, above zero.
    doubt : float, default=0.0
        The share of every row that belongs to the other possible classes.
    """
    own = _own(scores, codes)
    finite = np.where(np.isfinite(scores), scores, 0.0)
    others = np.maximum(np.sum(np.isfinite(scores), axis=1) - 1, 1)
    own = own + doubt * ((np.sum(finite, axis=1) - own) / others - own)

    def slope(b: float) -> float:
        shares = softmax(offsets + b * scores, axis=1)
        return float(weights @ (np.sum(shares * finite, axis=1) - own))

    low, high = bounds
    # Scores that are all equal say nothing, and their slope is rounding.
    largest = np.max(np.abs(finite), axis=1)
    if slope(high) <= DOUBLE_EPS * scores.shape[1] * float(weights @ largest):
        return high
    if slope(low) >= 0.0:
        return low
    return float(brentq(slope, low, high, xtol=SHARP_ENOUGH * low, rtol=SHARP_ENOUGH))


def best_temperature(scores: np.ndarray, codes: np.ndarray, design: RowDesign) -> float:
    """T >= 1 with the smallest log loss of ``scores / T`` (n, k).

    It is computed as if one more row or group counted as half wrong (Krichevsky
    and Trofimov 1981): if all of few rows are right, T = 1 may leave odds of e^100.
    """
    low, high = TEMPERATURES
    bounds = 1.0 / high, 1.0 / low
    doubt = 0.5 / (number_of_groups(design.units, design.each) + 1.0)
    return 1.0 / best_sharpness(0.0, scores, codes, design.each, bounds, doubt)


def number_of_groups(units: np.ndarray, weights: np.ndarray) -> float:
    """The effective number of groups of rows (n,): it is less if weights differ."""
    sums = np.bincount(units, weights)
    return float(np.sum(sums) ** 2 / np.sum(sums**2))

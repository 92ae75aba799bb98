"""Classes as Gaussians in the projected space, fitted to leave-one-out projections."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2

from kernelweave._array import DOUBLE_EPS, Array, from_numpy, namespace, row_chunks
from kernelweave._text import counted, some
from kernelweave._tolerances import ROUNDED_WEIGHT
from kernelweave.fits.calibration import (
    Calibration,
    LeftOutLoss,
    calibrate,
    with_exceptions,
)
from kernelweave.fits.design import RowDesign

#: The variance is searched for from the squared distance of rows to their class mean
#: computed without them, up to this multiple of it. Smaller values only fit rows that
#: happen to be perfectly separated; at the upper end little more than the class shares
#: remains.
LARGEST_VARIANCE = 1e3
#: In the search for the variance no row costs more than log(k / e), e.g. 7.6 for two
#: classes: two rows of a class, each far from the mean of the other, made the variance
#: of all classes twenty times as large.
BOUNDING_SHARE = 1e-3
#: Number of rows that the prior mean of a class, a multiple of its target, counts for.
#: Without this prior the means of small classes are mostly noise.
PRIOR_ROWS = 10.0
#: A slope below this many units of rounding counts as zero: projections of held-out
#: rows are differences of targets and residuals. For rows that have nothing in
#: common, whose projections are zero, slopes of up to 11 units were found.
NO_SLOPE = 32.0


@dataclass(frozen=True)
class ClassHits:
    """Rows left out, and how many of them were predicted right, by class.

    Attributes
    ----------
    rows, right : ndarray of int of shape (k,)
        Numbers of rows.
    """

    rows: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, right: np.ndarray, codes: np.ndarray, n_classes: int) -> ClassHits:
        """Count the rows of the classes ``codes`` (n,) that are ``right`` (n,)."""
        rows = np.bincount(codes, minlength=n_classes)
        return cls(rows, np.bincount(codes[right], minlength=n_classes))

    def remark(self, classes: np.ndarray) -> str | None:
        """A warning that names the classes (k,) of which no row was right."""
        missed = np.flatnonzero((self.rows > 0) & (self.right == 0))
        if not len(missed):
            return None
        names = [
            f"class {classes.tolist()[c]!r} ({counted(int(self.rows[c]), 'row')})"
            for c in missed
        ]
        return (
            f"no row of {some(names)} was recognised when it was left out, so expect "
            "none to be recognised among new rows, however good the score"
        )


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
    left_out : ClassHits
        How many rows of each class were left out, and how many of them were right.
    temperature : float
        Divides the log odds; above 1, probabilities are less certain, labels the same.
        It has the smallest log loss on rows left out, one by one or in folds.
    exceptions : float
        e, the share of rows that are exceptions, which may belong to any of the k
        classes: probabilities are (1 - e) of those of the Gaussians, plus e / k. It is
        0 unless rows left out demand it; see :func:`~.calibration.calibrate`.
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
    left_out: ClassHits
    temperature: float = 1.0
    exceptions: float = 0.0
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
        scores = with_exceptions(self.scores(projected, spread), self.exceptions)
        shift = np.zeros_like(self.log_prior) + self.shift
        return scores + from_numpy(shift, projected)[None, :]

    def scores(self, projected: Array, spread: Array | None = None) -> Array:
        """Log odds (m, k) for the class shares of the training rows, before exceptions.

        Up to a constant of each row, they are affine functions of its projection.
        """
        xp = namespace(projected)
        log_shares = from_numpy(self.log_prior - self.shift, projected)
        if not self.slope > 0:
            return xp.zeros_like(projected[:, :1]) + log_shares[None, :]
        means = from_numpy(self.means, projected)
        # |z - m|^2 without the term in z alone, which all classes share
        spread = xp.ones_like(projected) if spread is None else spread + self.scatter
        linear = (projected / spread) @ means.T - (0.5 / spread) @ (means * means).T
        return (linear / self.variance + log_shares[None, :]) / self.temperature


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
    and the class shares, bounded at log(k / BOUNDING_SHARE) for each row. Its lower
    limit is that of the distances d to the mean of their class in r dimensions, whose
    mean is ruled by the few rows that are far away, and whose median is not::

        v >= min(mean(d) / r, median(d) / median of chi^2_r)

    It is therefore the variance of new rows around *estimated*
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
        if not self.slope > 0:
            return distances, log_shares, 1.0
        smallest = self._smallest_variance(_own(distances, codes), precision, design)
        scores = distances / (-2.0 * smallest)
        loss = LeftOutLoss(log_shares, scores, codes, design.each)
        sharpness = loss.sharpest_with(BOUNDING_SHARE, 1.0 / LARGEST_VARIANCE, 1.0)
        return distances, log_shares, smallest / sharpness

    def _smallest_variance(
        self, distances: np.ndarray, precision: np.ndarray, design: RowDesign
    ) -> float:
        """The variance of each coordinate, from distances (n,) to the own class mean.

        Above zero: where all distances are rounding, so is the variance.
        """
        r = precision.shape[1]
        # k columns of class coordinates have only k - 1 dimensions
        dimensions = min(r, len(self.counts) - 1)
        mean = float(np.average(distances, weights=design.each)) / r
        median = weighted_median(distances, design.each) * dimensions / r
        # rounding of the projections, in units of the targets
        sizes = self.least**2 * float(self.usable @ self.squares) / np.sum(self.usable)
        rounding = float(sizes * np.mean(precision)) / r
        return max(min(mean, median / float(chi2.ppf(0.5, dimensions))), rounding)

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
        distances, without, variance = self._calibrated(
            projected, codes, spread, design
        )
        log_shares = np.log(_shares(self.counts))
        # The variance was calibrated on rows with their own shares: p(z | c) stays.
        log_prior = log_shares if priors is None else np.log(priors)
        shift, usable = log_prior - log_shares, self.several[codes]
        evidence, calibration = -distances / (2.0 * variance), Calibration()
        if self.slope > 0 and np.any(usable):
            # Shares without a row would reveal its class, with the wrong sign.
            odds, rows = log_shares + evidence, np.flatnonzero(usable)
            calibration = calibrate(odds[rows], codes[rows], design.restrict(rows))
        scores = without + evidence
        if priors is not None:
            scores = (log_shares + evidence) / calibration.temperature
            scores = with_exceptions(scores, calibration.exceptions) + shift
        right = usable & (np.argmax(scores, axis=1) == codes)
        score = float(np.average(right, weights=design.each))
        if self.slope > 0 and len(np.unique(design.units[usable])) == 2:
            score = math.nan
        prior = self.center + self.slope * self.coding
        means = _means(self.sums, self.usable, prior)
        if not self.slope > 0:
            means = np.tile(self.center, (len(self.counts), 1))
        return ClassGaussians(
            means=means,
            variance=variance,
            log_prior=log_prior,
            slope=self.slope,
            loo_score=score,
            left_out=ClassHits.of(right, codes, len(self.counts)),
            temperature=calibration.temperature,
            exceptions=calibration.exceptions,
            shift=shift,
            scatter=scatter,
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


def weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """The median of values (n,), where one of weight 2 counts like two equal ones."""
    ranked = np.argsort(values, kind="stable")
    below = np.cumsum(weights[ranked])
    # rounding of the sums must not move the median of equal weights
    half, near = 0.5 * below[-1], ROUNDED_WEIGHT * below[-1]
    lower = np.searchsorted(below, half - near, "left")
    upper = min(np.searchsorted(below, half + near, "right"), len(ranked) - 1)
    return float(0.5 * (values[ranked[lower]] + values[ranked[upper]]))

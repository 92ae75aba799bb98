"""Estimates over rows that are held out, and their standard errors over groups."""

from __future__ import annotations

import numpy as np

from kernelweave._array import deviations
from kernelweave.fits.calibration import number_of_groups


def ratio_of_means(
    u: np.ndarray, v: np.ndarray, weights: np.ndarray, units: np.ndarray
) -> tuple[float, float]:
    """``R = sum_i w_i u_i / sum_i w_i v_i`` and its standard error over groups.

    With ``d_g = sum_(i in g) w_i (u_i - R v_i) / sum_i w_i v_i``, which are independent
    between groups, the share ``s_g`` of a group in the weight of all, and the effective
    number of groups ``m = 1 / sum_g s_g^2``, the variance is
    ``sum_g d_g^2 / s_g / (m - 1)``. For groups of equal weight that is the variance of
    a mean; it is unbiased if heavy groups vary as much as light ones, and too large if
    they vary less. The sum of ``d_g^2`` alone is too small if a few groups have most of
    the weight, which draw R to themselves.

    Parameters
    ----------
    u, v : ndarray of shape (n, q)
        Numerators and denominators of q ratios, which are averaged.
    weights : ndarray of shape (n,)
        w; rows of weight 0 may hold anything.
    units : ndarray of int of shape (n,)
        The group of each row.
    """

    def by_group(values: np.ndarray) -> np.ndarray:
        return np.stack([np.bincount(units, own) for own in values.T], axis=1)

    w = weights[:, None]
    u, v = (np.where(w > 0, each, 0.0) for each in (u, v))
    total = np.sum(w * v, axis=0)  # (q,)
    ratios = np.sum(w * u, axis=0) / total
    influence = by_group(w * (u - ratios * v) / total)  # (g, q)
    # a group that holds nothing of a ratio cannot tell how much it varies
    sums = by_group(w * ((u != 0) | (v != 0)))
    shares = sums / np.sum(sums, axis=0)
    number = 1.0 / np.sum(shares**2, axis=0)  # (q,)
    # one group alone has no influence: R is its own ratio
    scale = np.where((shares > 0) & (number > 1), shares * (number - 1), 1.0)
    error = np.sqrt(np.sum(np.mean(influence / np.sqrt(scale), axis=1) ** 2))
    return float(np.mean(ratios)), float(error)


def accuracy(
    right: np.ndarray,
    weights: np.ndarray | None = None,
    units: np.ndarray | None = None,
    classes: np.ndarray | None = None,
) -> tuple[float, float]:
    """The share of rows that are right (n,), and its standard error over groups.

    By default every row counts once, and is a group of its own. With ``classes`` (n,)
    it is the balanced accuracy, the mean of the shares in each class. If all rows (of a
    class) are right, or all wrong, their part of the error is that of :func:`doubt`.
    """
    weights = np.ones(len(right)) if weights is None else weights
    units = np.arange(len(right)) if units is None else units
    members = np.ones((len(right), 1))
    if classes is not None:
        present = np.unique(classes[weights > 0])
        members = (classes[:, None] == present[None, :]).astype(float)  # (n, k)
    gains = right.astype(float)[:, None] * members
    share, error = ratio_of_means(gains, members, weights, units)
    unsure = 0.0
    for own, gained in zip(members.T, gains.T, strict=True):
        found = int(np.sum(weights * gained > 0)), int(np.sum(weights * own > 0))
        if found[0] in (0, found[1]):
            unsure += doubt(weights * own, units) / members.shape[1] ** 2
    return share, float(np.sqrt(error**2 + unsure))


def doubt(weights: np.ndarray, units: np.ndarray) -> float:
    """The variance of a share of rows (n,) that is 0 or 1: nothing is certain.

    It is computed as if there were two more groups, one of them right.
    """
    m = number_of_groups(units, weights)
    likely = 1.0 / (m + 2)
    return likely * (1 - likely) / m


def mean_over_folds(scores: np.ndarray) -> tuple[float, float]:
    """Mean and standard error of the scores (f,) that are defined; NaN without any.

    The error is estimated with one degree of freedom fewer than there are folds, and is
    0 if all of them agree.
    """
    known = scores[~np.isnan(scores)]
    if len(known) == 0:
        return float("nan"), float("nan")
    spread = float(deviations(known, ddof=1)) if len(known) > 1 else float("nan")
    return float(np.mean(known)), spread / len(known) ** 0.5

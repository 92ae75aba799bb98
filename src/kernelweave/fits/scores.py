"""How far can a score be trusted? Ratios of means with their standard errors."""

from __future__ import annotations

import numpy as np


def ratio_of_means(
    u: np.ndarray, v: np.ndarray, weights: np.ndarray, units: np.ndarray
) -> tuple[float, float]:
    """``R = sum_i w_i u_i / sum_i w_i v_i`` and its standard error over groups.

    The sums of ``w_i (u_i - R v_i)`` are independent between the m groups with weight,
    and estimated with one degree of freedom less.

    Parameters
    ----------
    u, v : ndarray of shape (n, q)
        Numerators and denominators of q ratios, which are averaged.
    weights : ndarray of shape (n,)
        w; rows of weight 0 may hold anything.
    units : ndarray of int of shape (n,)
        The group of each row.
    """
    w = weights[:, None]
    u, v = (np.where(w > 0, each, 0.0) for each in (u, v))
    total = np.sum(w * v, axis=0)  # (q,)
    ratios = np.sum(w * u, axis=0) / total
    influence = np.mean(w * (u - ratios * v) / total, axis=1)  # (n,)
    m = int(np.sum(np.bincount(units, weights) > 0))
    sums = np.bincount(units, influence)
    error = np.sqrt(m / max(m - 1, 1) * np.sum(sums**2))
    return float(np.mean(ratios)), float(error)


def accuracy(
    right: np.ndarray,
    weights: np.ndarray | None = None,
    units: np.ndarray | None = None,
) -> tuple[float, float]:
    """The share of rows that are right (n,), and its standard error over groups.

    By default every row counts once, and is a group of its own. If all are right, or
    all wrong, the error is that of a share among two groups more, of which one is
    right: nothing is certain.
    """
    weights = np.ones(len(right)) if weights is None else weights
    units = np.arange(len(right)) if units is None else units
    gains = right.astype(float)[:, None]
    share, error = ratio_of_means(gains, np.ones_like(gains), weights, units)
    if share in (0.0, 1.0):
        sums = np.bincount(units, weights)
        m = float(np.sum(sums) ** 2 / np.sum(sums**2))  # groups, if they were equal
        likely = (m * share + 1) / (m + 2)
        error = float(np.sqrt(likely * (1 - likely) / m))
    return share, error

"""Classes as Gaussians in the projected space, fitted to leave-one-out projections."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from kernelweave._array import Array, from_numpy, namespace

__all__ = ["ClassGaussians", "best_variance"]

#: The variance is searched within these multiples of the leave-one-out residual
#: variance. Below it only lie fits to rows that happen to be separated perfectly.
VARIANCE_RANGE = (1.0, 20.0)


@dataclass(frozen=True)
class ClassGaussians:
    """``p(z | c) = N(z; mean_c, variance S)`` with the class shares as prior.

    S is the identity, or diagonal with the ``spread`` of each row where rows come with
    a variance of their own: a row that is less certain says less about its class.

    Projections of the training rows themselves lie closer to their class than those of
    new rows do, so means and variance come from leave-one-out projections. The
    variance minimises the leave-one-out log loss, which calibrates the probabilities.

    Attributes
    ----------
    means : ndarray of shape (k, r)
        Class means.
    variance : float
        Variance of each coordinate around its class mean, in units of the spread.
    log_prior : ndarray of shape (k,)
        Logarithm of the class shares.
    """

    means: np.ndarray
    variance: float
    log_prior: np.ndarray

    @classmethod
    def fit(
        cls, projected: np.ndarray, codes: np.ndarray, spread: np.ndarray | None = None
    ) -> ClassGaussians:
        """Fit to leave-one-out projections (n, r) of rows with class codes (n,)."""
        projected = np.asarray(projected, dtype=np.float64)
        n, k = len(codes), int(codes.max()) + 1
        counts = np.bincount(codes, minlength=k)
        sums = np.zeros((k, projected.shape[1]))
        np.add.at(sums, codes, projected)
        means = sums / counts[:, None]
        log_prior = np.log(counts / n)
        scale = np.ones((1, 1)) if spread is None else spread
        squares = (projected - means[codes]) ** 2 / scale
        residual = float(np.mean(squares)) * n / max(n - k, 1)
        distances = _squared_distances(projected, means, scale)
        variance = best_variance(distances, log_prior, codes, residual)
        return cls(means, variance, log_prior)

    def log_joint(self, projected: Array, spread: Array | None = None) -> Array:
        """``log p(z, c)`` up to a constant, (m, k), where ``projected`` lives."""
        xp = namespace(projected)
        means = from_numpy(self.means, projected)
        log_prior = from_numpy(self.log_prior, projected)
        # |z - m|^2 without the term in z alone, which all classes share
        if spread is None:
            linear = projected @ means.T - xp.sum(means * means, axis=1)[None, :] / 2
        else:
            linear = (projected / spread) @ means.T
            linear = linear - (0.5 / spread) @ (means * means).T
        return linear / self.variance + log_prior[None, :]


def _squared_distances(
    z: np.ndarray, means: np.ndarray, spread: np.ndarray
) -> np.ndarray:
    weight = np.broadcast_to(1.0 / spread, z.shape)
    cross = -2.0 * (z * weight) @ means.T + weight @ (means**2).T
    return cross + np.sum(z**2 * weight, axis=1)[:, None]


def best_variance(
    distances: np.ndarray, log_prior: np.ndarray, codes: np.ndarray, residual: float
) -> float:
    """The shared variance with the smallest log loss, from distances (n, k)."""
    if not residual > 0:
        return 1.0
    rows = np.arange(len(codes))

    def log_loss(log_factor: float) -> float:
        scores = log_prior - distances / (2.0 * residual * np.exp(log_factor))
        return -float(np.mean(log_softmax(scores, axis=1)[rows, codes]))

    low, high = np.log(VARIANCE_RANGE)
    best = minimize_scalar(log_loss, bounds=(low, high), method="bounded")
    return residual * float(np.exp(best.x))

"""Errors on held-out rows along a path of alphas, from second moments."""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array, eigh, eps, from_numpy, namespace, to_numpy
from kernelweave.fits.moment_problem import MomentProblem
from kernelweave.fits.ridge import AlphaPath

__all__ = ["CvPath", "GcvPath"]


class GcvPath(AlphaPath):
    """Generalised cross-validation for every alpha, from one eigendecomposition.

    Golub, Heath and Wahba (1979): where leave-one-out divides the residual of each row
    by its own ``q_i = (M^-1)_ii``, GCV divides all of them by the mean q_i, which is a
    trace over n. With eigenvalues s of the combined kernel over n rows and
    ``q = (sum_j 1/(s_j + alpha) + (n - 1 - r)/alpha) / n``::

        GCV(alpha) = norm(B)^2 / (n k q^2),      B = M^-1 H

    It needs only second moments, and comes close to leave-one-out when no single row
    has much influence, as with many more rows than features.

    Parameters
    ----------
    problem : MomentProblem
        Kernels and targets over r = D + k rows that represent n.
    weights : ndarray of shape (p,)
        Weights of the active kernels.
    """

    def __init__(self, problem: MomentProblem, weights: np.ndarray) -> None:
        gram = problem.bank.combine(weights)
        xp = namespace(gram)
        self.n_samples = problem.n_rows
        trace = float(xp.sum(xp.linalg.diagonal(gram)))
        self.mean_eigenvalue = trace / self.n_samples if trace > 0 else 1.0
        flat = xp.reshape(gram, (-1,))
        largest = float(flat @ flat) ** 0.5 or 1.0
        values, vectors = eigh(gram)
        self.eigenvalues = xp.maximum(values, xp.zeros_like(values))
        self.rotated = vectors.T @ problem.target
        self.smallest_alpha = 10.0 * max(eps(values), problem.precision) * largest

    def mean_precision(self, alpha: float) -> float:
        """q, the mean of ``(M^-1)_ii`` after re-centring."""
        shrink = namespace(self.eigenvalues).sum(1.0 / (self.eigenvalues + alpha))
        rest = (self.n_samples - 1 - int(self.eigenvalues.shape[0])) / alpha
        return max(float(shrink) + rest, 1e-300) / self.n_samples

    def press(self, alphas: np.ndarray) -> np.ndarray:
        """``GCV(alpha)`` for each of ``alphas`` (a,), (a,)."""
        squares = to_numpy(namespace(self.rotated).sum(self.rotated**2, axis=1))
        values = to_numpy(self.eigenvalues)
        entries = self.n_samples * int(self.rotated.shape[1])
        return np.array(
            [
                float(np.sum(squares / (values + a) ** 2))
                / self.mean_precision(a) ** 2
                / entries
                for a in map(float, alphas)
            ]
        )


class CvPath(AlphaPath):
    """Mean squared error of exact k-fold cross-validation along a path of alphas.

    The training moments are the total minus those of the fold: no row is visited
    again. For each fold, kernels and targets are re-centred, and kernels rescaled to
    the right trace, on the rows that remain. With the eigenvalues s and eigenvectors V
    of the second moments of their weighted features Z, the coefficients are
    ``V (s + alpha)^-1 V'Z'H`` for every alpha, and their squared error on the fold is a
    quadratic form in the moments of the fold.

    Parameters
    ----------
    problem : MomentProblem
        Kernels and targets of all rows.
    folds : array of shape (f, 1 + t + D, 1 + t + D)
        ``A'A`` of each fold.
    weights : ndarray of shape (p,)
        Weights of the active kernels.
    """

    def __init__(
        self, problem: MomentProblem, folds: Array, weights: np.ndarray
    ) -> None:
        self.n_samples = problem.n_rows
        self.mean_eigenvalue = float(np.sum(weights))
        self.smallest_alpha = (
            10.0 * problem.precision * problem.n_rows * self.mean_eigenvalue
        )
        total = folds[0, :, :]
        for fold in range(1, folds.shape[0]):
            total = total + folds[fold, :, :]
        self.parts = [
            _Fold(problem, total - folds[f, :, :], folds[f, :, :], weights)
            for f in range(folds.shape[0])
            if round(float(folds[f, 0, 0])) > 0
        ]

    def press(self, alphas: np.ndarray) -> np.ndarray:
        """Mean squared error for each of ``alphas`` (a,), (a,)."""
        k = self.parts[0].cross.shape[1]
        errors = [
            sum(part.error(float(a)) for part in self.parts)
            for a in np.asarray(alphas, dtype=np.float64)
        ]
        return np.array(errors) / (self.n_samples * k)


class _Fold:
    """Training moments in their eigenbasis, and the moments of the held-out rows."""

    def __init__(
        self,
        problem: MomentProblem,
        train: Array,
        held_out: Array,
        weights: np.ndarray,
    ) -> None:
        n = round(float(train[0, 0]))
        if n < 2:
            raise ValueError("cross-validation needs at least 2 rows outside each fold")
        means = train[0, :] / n
        features, target = _columns(problem, train, means, n)
        scale = self._scales(problem, features, weights, n)
        features = features * scale[:, None] * scale[None, :]
        self.values, vectors = eigh(features)
        self.cross = vectors.T @ (target * scale[:, None])  # (D, k)
        # moments of the held-out rows about the means of the training rows
        m = round(float(held_out[0, 0]))
        shifted = held_out - means[:, None] * held_out[0, :][None, :]
        shifted = shifted - held_out[:, 0][:, None] * means[None, :]
        shifted = shifted + m * means[:, None] * means[None, :]
        zz, zh, hh = _blocks(problem, shifted)
        rotate = scale[:, None] * vectors
        self.zz, self.zh = rotate.T @ zz @ rotate, rotate.T @ zh
        self.hh = float(hh)

    @staticmethod
    def _scales(
        problem: MomentProblem, features: Array, weights: np.ndarray, n: int
    ) -> Array:
        """Square root of weight times ``n / trace`` for each feature, (D,)."""
        xp = namespace(features)
        variances = to_numpy(xp.linalg.diagonal(features))
        widths = problem.bank.widths
        ends = np.cumsum([0, *widths])[:-1]
        traces = np.add.reduceat(variances, ends)
        # a kernel that is constant on the training rows predicts nothing here
        factors = np.where(
            traces > 1e-12 * n, weights * n / np.maximum(traces, 1e-300), 0
        )
        return from_numpy(np.sqrt(np.repeat(factors, widths)), features)

    def error(self, alpha: float) -> float:
        """Sum of squared errors on the held-out rows."""
        xp = namespace(self.cross)
        coef = self.cross / (self.values[:, None] + alpha)
        linear = float(xp.sum(coef * self.zh))
        return self.hh - 2.0 * linear + float(xp.sum(coef * (self.zz @ coef)))


def _columns(
    problem: MomentProblem, gram: Array, means: Array, n: int
) -> tuple[Array, Array]:
    """``Z'PZ`` and ``Z'PH`` of n rows, with the scales of the whole problem."""
    features, cross, _ = _blocks(problem, gram - n * means[:, None] * means[None, :])
    return features, cross


def _blocks(problem: MomentProblem, gram: Array) -> tuple[Array, Array, float]:
    """``Z'Z`` (D, D), ``Z'H`` (D, k) and ``tr H'H`` of active, scaled features."""
    d = problem.n_features
    joint = problem.scaled(gram)
    xp = namespace(joint)
    corner = float(xp.sum(xp.linalg.diagonal(joint[d:, d:])))
    return joint[:d, :d], joint[:d, d:], corner

"""Targets, regularised discriminants on one kernel, and leave-one-out errors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from kernelweave._array import (
    Array,
    FactorizationError,
    add_to_diagonal,
    as_float,
    cholesky,
    column_means,
    eigh,
    eps,
    from_numpy,
    lower_inverse,
    namespace,
    solve_factored,
    to_numpy,
    units_of,
)
from kernelweave._memory import row_chunks
from kernelweave._tolerances import SAME_SCORE

__all__ = [
    "AlphaPath",
    "KernelFit",
    "LooPath",
    "binary_target",
    "class_target",
    "factor_regularized",
    "fit_kernel",
    "output_frame",
    "principal_axes",
    "reduced_class_target",
    "signs_of_codes",
]

#: Largest output allowed, relative to the largest float: predictions are sums of them.
ROOM = 1e-6


def binary_target(codes: np.ndarray) -> np.ndarray:
    """``a_i = 1/m+`` in the positive class and ``-1/m-`` in the other, (n, 1).

    Ye et al. (2007), Eq. 8. Class 1, the second in sorted order, is the positive one,
    as in scikit-learn, so that the sign of a projection is that of a decision function.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        0 or 1 for each sample.
    """
    codes = checked_codes(codes, 2)
    counts = np.bincount(codes, minlength=2)
    return np.where(codes == 1, 1.0 / counts[1], -1.0 / counts[0])[:, None]


def class_target(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """``H = E diag(q)^-1 - 1 q'`` with ``q_c = sqrt(n_c / n)``, (n, k).

    Ye et al. (2007), Eq. 25, with the class size of the column in every entry (the
    printed index is the sample's). E is the class indicator matrix. H satisfies
    ``1'H = 0``, ``H q = 0`` and ``H'H = n (I - q q')``.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Classes 0 .. k - 1, each of which must occur.
    n_classes : int
        k.
    """
    codes = checked_codes(codes, n_classes)
    q = np.sqrt(np.bincount(codes, minlength=n_classes) / len(codes))
    target = np.tile(-q, (len(codes), 1))
    target[np.arange(len(codes)), codes] += 1.0 / q[codes]
    return target


def reduced_class_target(
    codes: np.ndarray, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """``H V`` (n, k - 1) and V (k, k - 1), an orthonormal basis of the complement of q.

    Since ``H q = 0``, nothing is lost: ``tr(V'H' M^-1 H V) = tr(H' M^-1 H)`` for every
    M, and ``H = (H V) V'``. Every product has one column fewer.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Classes 0 .. k - 1, each of which must occur.
    n_classes : int
        k.
    """
    target = class_target(codes, n_classes)
    rotation = normal_basis(
        np.sqrt(np.bincount(codes, minlength=n_classes) / len(codes))
    )
    return target @ rotation, rotation


def normal_basis(q: np.ndarray) -> np.ndarray:
    """An orthonormal basis (k, k - 1) of the complement of a unit vector q >= 0 (k,).

    The reflection ``I - u u'/u_1`` with ``u = e_1 + q`` maps e_1 to -q, so its other
    columns are orthogonal to q. Unlike an eigendecomposition, it fixes the signs.
    """
    u = q.copy()
    u[0] += 1.0
    return (np.eye(len(q)) - np.outer(u, u) / u[0])[:, 1:]


def checked_codes(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """``codes`` (n,), or an error that says what is wrong with them."""
    codes = np.asarray(codes)
    if codes.ndim != 1 or not np.issubdtype(codes.dtype, np.integer):
        raise ValueError(
            "class codes must be a vector of integers; "
            f"got dtype {codes.dtype} and shape {codes.shape}"
        )
    if n_classes < 2:
        raise ValueError(f"a target needs at least 2 classes, got {n_classes}")
    if len(codes) == 0 or codes.min() < 0 or codes.max() >= n_classes:
        span = f"{codes.min()} .. {codes.max()}" if len(codes) else "none"
        raise ValueError(
            f"class codes must lie in 0 .. {n_classes - 1}, found {span}; "
            "numpy.unique(y, return_inverse=True) makes such codes"
        )
    missing = np.flatnonzero(np.bincount(codes, minlength=n_classes) == 0)
    if len(missing):
        raise ValueError(
            f"class {missing[0]} of {n_classes} has no samples; leave it out"
        )
    return codes


def signs_of_codes(codes: np.ndarray, k: int) -> np.ndarray:
    """+1 and -1: (n, 1) for two classes, else each class against the rest, (n, k).

    Negative codes mark unlabelled rows, whose signs are 0.
    """
    classes = np.arange(k)[None, :] if k > 2 else np.array([[1]])
    signs = np.where(codes[:, None] == classes, 1.0, -1.0)
    return np.where(codes[:, None] < 0, 0.0, signs)


def output_frame(outputs: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and unit (t,) of each output: in these units, squares do not overflow.

    The unit is 1 for deviations of ordinary size, otherwise the next larger power of 2.

    Parameters
    ----------
    outputs : ndarray of shape (n, t)
        Regression outputs in float64.
    dtype : numpy.dtype
        Floating dtype of the predictions, which must be able to hold them.
    """
    limits = np.finfo(dtype)
    limit = float(limits.max) * ROOM
    if np.max(np.abs(outputs), initial=0.0) > limit:
        i, j = (int(index) for index in np.argwhere(np.abs(outputs) > limit)[0])
        column = f", column {j}" if outputs.shape[1] > 1 else ""
        raise ValueError(
            f"y holds {outputs[i, j]:.3g} in row {i}{column}, but predictions in "
            f"{np.dtype(dtype)}, the dtype of X, must stay below {limit:.1g}. Divide y "
            "by a constant, or pass X in float64."
        )
    mean = column_means(outputs)
    return mean, units_of(np.max(np.abs(outputs - mean), axis=0), limits.bits)


#: The alpha to recommend, in units of eps times the trace. Most kernels need less than
#: one; Gaussians so wide that centring cancels most digits needed up to 16.
ENOUGH = 20.0


def factor_regularized(matrix: Array, alpha: float, unit: float = 1.0) -> Array:
    """Cholesky factor of ``G + alpha I`` for G (n, n), which is overwritten.

    If the smallest eigenvalues of G are rounding errors, the sum is positive definite
    only if alpha exceeds them.

    Parameters
    ----------
    matrix : array of shape (n, n)
        G; its memory is reused.
    alpha : float
        The value added to the diagonal.
    unit : float, default=1.0
        The factor by which the user's alpha was multiplied.

    Raises
    ------
    FactorizationError
        If alpha is too small; the message names one that should be large enough.
    """
    xp = namespace(matrix)
    precision = xp.finfo(matrix.dtype)
    add_to_diagonal(matrix, alpha)
    trace = float(xp.sum(xp.linalg.diagonal(matrix)))
    if not math.isfinite(trace):
        raise FactorizationError(
            "the weighted sum of kernels contains NaN or infinite values; check the "
            "kernels, and rescale data whose squares overflow"
        )
    try:
        factor = cholesky(matrix, overwrite=True)
        pivot = float(xp.min(xp.linalg.diagonal(factor)))
        if pivot**2 < trace * math.sqrt(float(precision.smallest_normal)):
            raise FactorizationError("squares of the inverse overflow")
    except FactorizationError as error:
        enough = max(ENOUGH * float(precision.eps) * trace, 10.0 * alpha) / unit
        advice = ", or float64 input" if precision.bits == 32 else ""
        raise FactorizationError(
            f"alpha={alpha / unit:.3g} is too small for kernels in float"
            f"{precision.bits}: rounding leaves G + alpha I not positive definite; "
            f"use alpha >= {enough:.1g}{advice}"
        ) from error
    return factor


@dataclass(frozen=True)
class KernelFit:
    """``B = (G + alpha I)^-1 H`` and the leave-one-out residuals ``B_i / q_i``.

    Attributes
    ----------
    coef : array of shape (n, k)
        B; new rows project to ``G(x) B``.
    loo_residual : array of shape (n, k)
        Target minus the prediction of the model fitted, and re-centred, without row i.
    """

    coef: Array
    loo_residual: Array


def fit_kernel(gram: Array, target: Array, alpha: float) -> KernelFit:
    """Fit the centred kernel ``gram`` (n, n) of trace n; its memory is reused.

    ``q_i = (M^-1)_ii - 1/(n (alpha + t))`` with ``M = G + alpha I + t 11'/n`` is the
    inverse variance of row i given the others when kernel and target are re-centred
    without it; omitting the last term would leak the label.
    """
    xp, n = namespace(gram), gram.shape[0]
    shift = 1.0
    gram += shift / n
    factor = factor_regularized(gram, alpha)
    coef = solve_factored(factor, target)
    inverse = lower_inverse(factor)
    precision = xp.vecdot(inverse.T, inverse.T) - 1.0 / (n * (alpha + shift))
    return KernelFit(coef, coef / precision[:, None])


def principal_axes(coef: Array, target: Array) -> Array:
    """The rotation of the target columns that orders projections by discrimination.

    The k x k matrix ``H' G M^-1 H = H' (H - alpha B)`` is the between-class scatter in
    units of the regularised total scatter (Ye et al. 2007, Eq. 29); its eigenvectors,
    largest eigenvalue first, are the rotation. The largest entry of each axis is made
    positive.
    """
    explained = to_numpy(target.T @ coef).astype(np.float64)
    # ascending: a small H' M^-1 H means that the kernel explains the direction well
    vectors = np.linalg.eigh((explained + explained.T) / 2)[1]
    largest = np.argmax(np.abs(vectors), axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])
    return from_numpy(vectors, coef)


#: Alphas tried first, relative to the mean eigenvalue.
GRID = np.logspace(-6, 3, 46)


class AlphaPath(ABC):
    """The error on held-out rows, as a function of alpha.

    Attributes
    ----------
    mean_eigenvalue : float
        Mean eigenvalue of the kernel, the unit of alpha.
    smallest_alpha : float
        Below this, rounding dominates the error.
    """

    mean_eigenvalue: float
    smallest_alpha: float

    @abstractmethod
    def press(self, alphas: np.ndarray) -> np.ndarray:
        """Mean squared error for each of ``alphas`` (a,), (a,)."""

    def best_alpha(self, alphas: np.ndarray | None = None) -> float:
        """The alpha with the smallest error.

        Parameters
        ----------
        alphas : ndarray of shape (a,), optional
            Choose among these. By default a grid from 1e-6 to 1e3 times the mean
            eigenvalue (without values that the precision of the kernel cannot resolve),
            refined between the neighbours of its best point.
        """
        grid = self.mean_eigenvalue * GRID if alphas is None else np.sort(alphas)
        if alphas is None:
            grid = grid[grid > min(self.smallest_alpha, 0.5 * grid[-1])]
        errors = self.press(grid)
        # Ties go to the strongest regularisation: for a constant kernel all are equal.
        best = int(np.flatnonzero(errors <= (1 + SAME_SCORE) * np.min(errors))[-1])
        if alphas is not None:
            return float(grid[best])
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        found = minimize_scalar(
            lambda log_alpha: self.press(np.exp([log_alpha]))[0],
            bounds=(np.log(low), np.log(high)),
            method="bounded",
            options={"xatol": 1e-4},
        )
        better = found.fun < (1 - SAME_SCORE) * errors[best]
        return float(np.exp(found.x) if better else grid[best])


class LooPath(AlphaPath):
    """``LOO(alpha)`` for every alpha from one eigendecomposition of a kernel.

    For the centred kernel ``G = U diag(s) U'`` with ``U'1 = 0``, targets H and any
    alpha, with ``d = 1/(s + alpha)`` and ``z = U'H``::

        B = (G + alpha I)^-1 H = U (d * z),    q = (U * U) d,    e = B / q

    Row i of e is the error on sample i of the model fitted without it, with kernel and
    target re-centred on the others. The formula with ``q_i = ((G + alpha I)^-1)_ii``
    instead keeps the centring over all samples and so leaks the held-out label.

    Memory: the n x n kernel, which is overwritten, and the eigenvectors, plus two n x n
    arrays of workspace while they are computed.

    Parameters
    ----------
    gram : array of shape (n, n)
        Centred kernel; its memory is reused.
    target : array of shape (n, k)
        Columns that sum to zero.
    """

    def __init__(self, gram: Array, target: Array) -> None:
        xp, n = namespace(gram), int(gram.shape[0])
        if n < 2:
            raise ValueError(f"leave-one-out needs at least 2 samples, got {n}")
        self.n_samples = n
        trace = float(xp.sum(xp.linalg.diagonal(gram)))
        self.mean_eigenvalue = trace / n if trace > 0 else 1.0
        flat = xp.reshape(gram, (-1,))
        largest = float(flat @ flat) ** 0.5 or 1.0  # no eigenvalue is larger
        # This shift makes the vector of ones the last eigenvector, which is dropped.
        gram += 2.0 * largest / n
        values, vectors = eigh(gram)
        self.eigenvalues = xp.maximum(values[:-1], xp.zeros_like(values[:-1]))
        self.vectors = vectors[:, :-1]
        self.rotated = self.vectors.T @ as_float(target, vectors.dtype)
        self.smallest_alpha = 10.0 * eps(vectors) * largest

    def coef(self, alpha: float) -> Array:
        """``B = (G + alpha I)^-1 H``, (n, k)."""
        return self.vectors @ (self.rotated / (self.eigenvalues[:, None] + alpha))

    def residuals(self, alpha: float) -> Array:
        """Target minus leave-one-out prediction, (n, k)."""
        shrink = 1.0 / (self.eigenvalues + alpha)
        return self.coef(alpha) / self._precision(shrink[:, None])

    def press(self, alphas: np.ndarray) -> np.ndarray:
        """Mean squared leave-one-out error for each of ``alphas`` (a,), (a,)."""
        alphas = np.asarray(alphas, dtype=np.float64)
        if alphas.ndim != 1 or not np.all(np.isfinite(alphas) & (alphas > 0)):
            raise ValueError(f"alphas must be a vector of numbers > 0, got {alphas!r}")
        grid = from_numpy(alphas, self.eigenvalues)
        shrink = 1.0 / (self.eigenvalues[:, None] + grid[None, :])  # (n - 1, a)
        precision = self._precision(shrink)
        errors = np.empty(len(alphas))
        for j in range(len(alphas)):
            coef = self.vectors @ (self.rotated * shrink[:, j : j + 1])
            residual = coef / precision[:, j : j + 1]
            errors[j] = float(namespace(residual).mean(residual * residual))
        return errors

    def _precision(self, shrink: Array) -> Array:
        """``(U * U) D`` for D (n - 1, a), squaring a block of rows at a time."""
        blocks = row_chunks(self.n_samples, self.n_samples)
        parts = [self.vectors[rows, :] ** 2 @ shrink for rows in blocks]
        return namespace(shrink).concat(parts)

"""Regularised kernel discriminant analysis on one kernel, given its weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave._array import (
    Array,
    add_to_diagonal,
    from_numpy,
    lower_inverse,
    namespace,
    solve_factored,
    to_numpy,
)
from kernelweave.fits.regularized import factor_regularized

__all__ = ["KernelFit", "fit_kernel", "principal_axes"]


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
    add_to_diagonal(gram, alpha)
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
    values, vectors = np.linalg.eigh((explained + explained.T) / 2)
    # a small H' M^-1 H means that the kernel explains the direction well
    vectors = vectors[:, np.argsort(values, kind="stable")]
    largest = np.argmax(np.abs(vectors), axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])
    return from_numpy(vectors, coef)

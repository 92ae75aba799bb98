"""Label kernels: what the features of a subspace kernel should depend on."""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array, to_numpy
from kernelweave._tolerances import NULL_EIGENVALUE
from kernelweave.fits.targets import (
    checked_codes,
    normal_basis,
    reduced_class_target,
)
from kernelweave.kernels.checks import symmetric

__all__ = ["column_signs", "label_factor", "target_factor"]

#: Relative rounding error of the square root of a matrix: half the digits are lost.
HALF_OF_THE_DIGITS = 1e-8
#: Relative difference below which two entries count as equally large.
TIE = 1e-6


def label_factor(
    codes: np.ndarray, n_classes: int, kernel: str | Array = "normalized"
) -> np.ndarray:
    """A centred factor L (n, r) of the label kernel: ``P H(y) P = L L'``.

    With the class indicators Y (n, k), Chen et al. (2008), Definition 1::

        "indicator"    H = Y Y'                (pairs within a class count equally)
        "normalized"   H = Y (Y'Y)^-1 Y'       (classes count equally)
        S (k, k)       H = Y S Y'              (S_cd is the similarity of two classes)

    ``G P = G`` for every centred kernel G, so centring H changes no subspace; in
    Eq. 27 it removes the constant that an uncentred "normalized" kernel adds. Since
    the indicators sum to the vector of ones, the first two have rank k - 1 once
    centred, and the null direction is removed exactly.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Classes 0 .. k - 1, each of which must occur.
    n_classes : int
        k.
    kernel : {"normalized", "indicator"} or array of shape (k, k)
        The label kernel; a matrix must be symmetric positive semidefinite.

    Returns
    -------
    factor : ndarray of shape (n, k - 1) or (n, rank(S))
        L, with columns that sum to zero.
    """
    codes = checked_codes(codes, n_classes)
    if isinstance(kernel, str):
        if kernel == "normalized":
            return reduced_class_target(codes, n_classes)[0] / np.sqrt(len(codes))
        if kernel != "indicator":
            raise ValueError(
                "a label kernel is 'normalized', 'indicator' or a matrix over the "
                f"classes; got {kernel!r}"
            )
        root = normal_basis(np.full(n_classes, 1.0 / np.sqrt(n_classes)))
    else:
        root = _root(_checked_kernel(kernel, n_classes))
    share = np.bincount(codes, minlength=n_classes) / len(codes)
    centred = root - share @ root
    if np.max(np.abs(centred)) <= HALF_OF_THE_DIGITS * np.max(np.abs(root)):
        raise ValueError(
            "the label kernel treats all classes alike, so there is nothing to "
            "depend on"
        )
    return centred[codes]


def column_signs(columns: np.ndarray) -> np.ndarray:
    """The sign of the largest entry of each column; the first decides a tie."""
    size = np.abs(columns)
    first = np.argmax(size >= (1.0 - TIE) * np.max(size, axis=0), axis=0)
    return np.where(columns[first, np.arange(columns.shape[1])] < 0, -1.0, 1.0)


def target_factor(y: np.ndarray) -> np.ndarray:
    """Centred outputs L (n, m), for the linear label kernel ``H = y y'``.

    Columns are scaled to unit norm, so the units of measurement do not matter.

    Parameters
    ----------
    y : ndarray of shape (n,) or (n, m)
        Regression outputs.
    """
    outputs = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    if not np.all(np.isfinite(outputs)):
        raise ValueError("the target contains NaN or infinite values")
    centred = outputs - outputs.mean(axis=0)
    size = np.linalg.norm(centred, axis=0)
    constant = size <= HALF_OF_THE_DIGITS**2 * np.sqrt(len(y)) * np.max(
        np.abs(outputs), axis=0
    )
    if np.all(constant):
        raise ValueError("every output is constant, so there is nothing to depend on")
    return centred[:, ~constant] / size[~constant]


def _checked_kernel(kernel: Array, n_classes: int) -> np.ndarray:
    """A symmetric, finite matrix (k, k) of numbers."""
    matrix = np.asarray(to_numpy(kernel))
    if matrix.shape != (n_classes, n_classes):
        raise ValueError(
            f"a label kernel over {n_classes} classes must have the shape "
            f"({n_classes}, {n_classes}); got {matrix.shape}"
        )
    if matrix.dtype.kind not in "fiubO":
        raise ValueError(f"the label kernel must hold real numbers; got {matrix.dtype}")
    matrix = matrix.astype(np.float64)
    if not np.all(np.isfinite(matrix)):
        raise ValueError("the label kernel contains NaN or infinite values")
    return symmetric(matrix, "label_kernel")


def _root(matrix: np.ndarray) -> np.ndarray:
    """R (k, r) with ``R R' = S``: the symmetric root, or r < k columns if rank(S) = r.

    The symmetric root has no arbitrary signs.
    """
    values, vectors = np.linalg.eigh(matrix)
    if values[0] < -HALF_OF_THE_DIGITS * max(abs(values[-1]), abs(values[0])):
        raise ValueError(
            "the label kernel is not positive semidefinite: its smallest eigenvalue is "
            f"{values[0]:.3g}, its largest {values[-1]:.3g}"
        )
    keep = values > NULL_EIGENVALUE * len(values) * values[-1]
    if np.all(keep):
        return (vectors * np.sqrt(values)) @ vectors.T
    if not np.any(keep):
        return np.zeros((len(values), 1))
    root = vectors[:, keep] * np.sqrt(values[keep])
    return (root * column_signs(root))[:, ::-1]

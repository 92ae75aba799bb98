"""Label kernels: what a subspace kernel is asked to depend on."""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array, to_numpy
from kernelweave.criteria.targets import (
    checked_codes,
    normal_basis,
    reduced_class_target,
)

__all__ = ["label_factor", "target_factor"]

#: Negative eigenvalue, relative to the largest, that is still rounding.
ROUNDING = 1e-8


def label_factor(
    codes: np.ndarray, n_classes: int, kernel: str | Array = "normalized"
) -> np.ndarray:
    """A centred factor L (n, r) of the label kernel: ``P H(y) P = L L'``.

    With the class indicators Y (n, k), Chen et al. (2008), Definition 1::

        "indicator"    H = Y Y'                (every pair of a class counts as much)
        "normalized"   H = Y (Y'Y)^-1 Y'       (every class counts as much)
        S (k, k)       H = Y S Y'              (S says how alike two classes are)

    G P = G for every centred kernel G, so that centring H changes no subspace; in
    Eq. 27 it takes away the constant that an uncentred "normalized" kernel adds. Since
    the indicators sum to the vector of ones, the first two have rank k - 1, and the
    direction that carries nothing is taken out exactly.

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
    factor : ndarray of shape (n, k - 1) or (n, k)
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
        root = _symmetric_root(kernel, n_classes)
    share = np.bincount(codes, minlength=n_classes) / len(codes)
    return (root - share @ root)[codes]


def target_factor(y: np.ndarray) -> np.ndarray:
    """Centred outputs L (n, m), for the linear label kernel ``H = y y'`` of numbers.

    Columns are scaled to unit norm, so that no unit of measurement outweighs another.

    Parameters
    ----------
    y : ndarray of shape (n,) or (n, m)
        Numbers.
    """
    outputs = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    if not np.all(np.isfinite(outputs)):
        raise ValueError("the target contains NaN or infinite values")
    centred = outputs - outputs.mean(axis=0)
    size = np.linalg.norm(centred, axis=0)
    constant = size <= ROUNDING**2 * np.sqrt(len(y)) * np.max(np.abs(outputs), axis=0)
    if np.all(constant):
        raise ValueError(
            "every output is constant, so that there is nothing to depend on"
        )
    return centred[:, ~constant] / size[~constant]


def _symmetric_root(kernel: Array, n_classes: int) -> np.ndarray:
    """``S^(1/2)`` (k, k), the symmetric root, which has no arbitrary signs."""
    matrix = np.asarray(to_numpy(kernel), dtype=np.float64)
    if matrix.shape != (n_classes, n_classes):
        raise ValueError(
            f"a label kernel over {n_classes} classes must have the shape "
            f"({n_classes}, {n_classes}); got {matrix.shape}"
        )
    if not np.all(np.isfinite(matrix)):
        raise ValueError("the label kernel contains NaN or infinite values")
    size = float(np.max(np.abs(matrix)))
    if np.max(np.abs(matrix - matrix.T)) > ROUNDING * size:
        raise ValueError("the label kernel is not symmetric; use (S + S.T) / 2")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if values[0] < -ROUNDING * max(abs(values[-1]), abs(values[0])):
        raise ValueError(
            "the label kernel is not positive semidefinite: its smallest eigenvalue is "
            f"{values[0]:.3g}, its largest {values[-1]:.3g}"
        )
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T

"""Target matrices that turn class labels into a Fisher criterion."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import column_means, units_of

__all__ = [
    "binary_target",
    "class_target",
    "output_frame",
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

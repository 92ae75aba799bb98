"""Targets of kernel fits: codings of classes, signs, standardised outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernelweave._array import (
    Array,
    as_floats,
    column_means,
    namespace,
    to_numpy,
    units_of,
)

#: Largest output allowed, relative to the largest float: predictions are sums of them.
OUTPUT_ROOM = 1e-6


def binary_target(codes: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """``a_i = 1/m+`` in the positive class and ``-1/m-`` in the other, (n, 1).

    Ye et al. (2007), Eq. 8. Class 1, the second in sorted order, is the positive one,
    as in scikit-learn, so the sign of a projection is that of a decision function.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        0 or 1 for each sample.
    weights : ndarray of shape (n,), optional
        Row weights; m+ and m- are then sums of weights.
    """
    codes = checked_codes(codes, 2)
    counts = np.bincount(codes, weights, minlength=2)
    return np.where(codes == 1, 1.0 / counts[1], -1.0 / counts[0])[:, None]


def class_target(
    codes: np.ndarray, n_classes: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """``H = E diag(q)^-1 - 1 q'`` with ``q_c = sqrt(n_c / n)``, (n, k).

    Ye et al. (2007), Eq. 25, with the class size of the column in every entry (the
    printed index is the sample's). E is the class indicator matrix. H satisfies
    ``1'H = 0``, ``H q = 0`` and ``H'H = n (I - q q')``. With row weights w of sum N,
    ``q_c^2`` is a share of the weight, ``w'H = 0`` and ``H' diag(w) H = N (I - q q')``.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Classes 0 .. k - 1, each of which must occur.
    n_classes : int
        k.
    weights : ndarray of shape (n,), optional
        Row weights.
    """
    codes = checked_codes(codes, n_classes)
    q = _root_shares(np.bincount(codes, weights))
    return (np.diag(1.0 / q) - q)[codes]


def reduced_class_target(
    codes: np.ndarray, n_classes: int, weights: np.ndarray | None = None
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
    weights : ndarray of shape (n,), optional
        Row weights.
    """
    codes = checked_codes(codes, n_classes)
    coding, rotation = class_coding(np.bincount(codes, weights))
    return coding[codes], rotation


def class_coding(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row of ``H V`` of each class (k, k - 1), and V; ``counts`` (k,) make q.

    Since ``q'V = 0`` it is ``diag(q)^-1 V``.
    """
    q = _root_shares(counts)
    rotation = normal_basis(q)
    return rotation / q[:, None], rotation


def _root_shares(counts: np.ndarray) -> np.ndarray:
    """``q_c``, the root of the share of class c, (k,)."""
    return np.sqrt(counts / np.sum(counts))


def normal_basis(q: np.ndarray) -> np.ndarray:
    """An orthonormal basis (k, k - 1) of the complement of a unit vector q >= 0 (k,).

    The reflection ``I - u u'/u_1`` with ``u = e_1 + q`` maps e_1 to -q, so its other
    columns are orthogonal to q. Unlike an eigendecomposition, it fixes the signs.
    """
    u = q.copy()
    u[0] += 1.0
    return (np.eye(len(q)) - np.outer(u, u) / u[0])[:, 1:]


def checked_target(target: Array, n: int) -> Array:
    """``target`` (n, k), or an error if it has another shape, or is not finite."""
    target = as_floats(target, "the target")
    if target.ndim != 2 or target.shape[0] != n:
        raise ValueError(
            f"the target must have the shape ({n}, k) with one row per sample; got "
            f"{tuple(target.shape)}"
        )
    finite = namespace(target).isfinite(target)
    if not namespace(target).all(finite):
        i, j = np.argwhere(~to_numpy(finite))[0]
        raise ValueError(
            "the target contains NaN or infinite values; the first is "
            f"{float(target[int(i), int(j)])} in row {i}, column {j}"
        )
    return target


def checked_codes(
    codes: np.ndarray, n_classes: int | None = None, n: int | None = None
) -> np.ndarray:
    """``codes`` (n,), or an error if they are not all of 0 .. k - 1, and only these.

    Without ``n_classes``, k is the number of different ones.
    """
    codes = np.asarray(codes)
    if n is not None and codes.shape != (n,):
        raise ValueError(
            f"class codes must be a vector of {n} integers, one per sample; got the "
            f"shape {codes.shape}"
        )
    k = len(np.unique(codes)) if n_classes is None else n_classes
    if k < 2:
        raise ValueError(f"a target needs at least 2 classes, got {k}")
    integers = codes.ndim == 1 and np.issubdtype(codes.dtype, np.integer)
    if not (integers and np.array_equal(np.unique(codes), np.arange(k))):
        raise ValueError(
            f"class codes must be a vector of all integers from 0 to {k - 1}, "
            f"got {np.unique(codes)!r:.60} in the shape {codes.shape}; "
            "numpy.unique(y, return_inverse=True) makes such codes"
        )
    return codes


def checked_signs(
    signs: Array, n: int, name: str = "signs", ndim: int = 2, zeros: bool = False
) -> np.ndarray:
    """The signs +1 and -1 as float64, (n,) or (n, k), or an error with their ``name``.

    With ``zeros``, rows without a label may have 0.
    """
    values = to_numpy(as_floats(signs, f"the {name}")).astype(np.float64)
    shape = values.shape
    if len(shape) != ndim or shape[0] != n or 0 in shape:
        needed = f"({n},) with one entry" if ndim == 1 else f"({n}, k) with one row"
        raise ValueError(f"{name} must have the shape {needed} per sample; got {shape}")
    wrong = ~np.isin(values, (-1.0, 0.0, 1.0) if zeros else (-1.0, 1.0))
    if np.any(wrong):
        i, *column = np.argwhere(wrong)[0]
        place = f"row {i}" + "".join(f", column {c}" for c in column)
        allowed = "+1, -1 or 0 (no label)" if zeros else "+1 or -1"
        raise ValueError(
            f"{name} must be {allowed}; {place} has {float(values[(i, *column)])}"
        )
    return values


def require_both_signs(signs: np.ndarray, name: str = "signs") -> None:
    """Refuse a column of ``signs`` (n,) or (n, k) without both +1 and -1."""
    for c, column in enumerate(signs.reshape(len(signs), -1).T):
        plus, minus = int(np.sum(column > 0)), int(np.sum(column < 0))
        if plus == 0 or minus == 0:
            place = f"column {c} of the {name}" if signs.ndim > 1 else f"the {name}"
            raise ValueError(
                f"{place} must have rows of both classes; got {plus} of +1 and "
                f"{minus} of -1"
            )


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
    limit = float(limits.max) * OUTPUT_ROOM
    if np.max(np.abs(outputs), initial=0.0) > limit:
        i, j = (int(index) for index in np.argwhere(np.abs(outputs) > limit)[0])
        column = f", column {j}" if outputs.shape[1] > 1 else ""
        advice = ", or pass X in float64" if limits.bits == 32 else ""
        raise ValueError(
            f"y holds {outputs[i, j]:.3g} in row {i}{column}, but predictions in "
            f"{np.dtype(dtype)} must stay below {limit:.1g}. Divide y by a constant"
            f"{advice}."
        )
    mean = column_means(outputs)
    return mean, units_of(np.max(np.abs(outputs - mean), axis=0), limits.bits)


#: An output whose deviation is below this, relative to its largest entry, is constant.
CONSTANT_DEVIATION = 1e-14


class StandardOutputs(NamedTuple):
    """Outputs of mean zero and variance one, and how to undo that."""

    target: np.ndarray  # (n, t), zero where an output is constant
    mean: np.ndarray  # (t,)
    unit: np.ndarray  # (t,)

    @classmethod
    def of(
        cls,
        outputs: np.ndarray,
        weights: np.ndarray | None = None,
        dtype: Any = np.float64,
    ) -> StandardOutputs:
        """Outputs (n, t) of any size in this form, for rows of these weights (n,)."""
        mean, unit = output_frame(outputs, dtype)
        centred = (outputs - mean) / unit
        shift = np.average(centred, axis=0, weights=weights)
        centred, mean = centred - shift, mean + shift * unit
        spread = np.sqrt(np.average(centred**2, axis=0, weights=weights))
        varies = spread > CONSTANT_DEVIATION * np.max(np.abs(outputs / unit), axis=0)
        spread = np.where(varies, spread, 1.0)
        return cls(np.where(varies, centred, 0.0) / spread, mean, spread * unit)

    @property
    def varies(self) -> np.ndarray:
        """Which outputs vary by more than rounding, (t,)."""
        return np.any(self.target != 0, axis=0)

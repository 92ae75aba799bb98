"""X holds precomputed kernels: (n, n) or (n, n, p) at fit, (m, n[, p]) afterwards.

A dict of kernels (n, n) names them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from kernelweave._array import (
    Array,
    block_entries,
    is_numpy,
    namespace,
    row_chunks,
    single_or_double,
    to_numpy,
)
from kernelweave._text import counted, prefixed, some, with_names
from kernelweave.views.columns import (
    checked_array,
    column_names,
    floats_of,
    is_dict,
    precomputed_names,
    refuse_no_table,
)
from kernelweave.views.ids import check_kernel_labels


def validate_precomputed(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    allow_nan: bool = False,
) -> tuple[Array, list[str]]:
    """Check a stack of p precomputed kernels and name them.

    The kernels are the last axis, so that scikit-learn's cross-validation cuts rows and
    columns of a stack as it does for a single kernel. A stack of shape (n, n, n) is
    ambiguous; it is read with the kernels last.

    Parameters
    ----------
    estimator : estimator
        If ``reset``, its ``n_features_in_`` is set to n; otherwise it is compared to n,
        and X must hold the kernels in its ``kernel_names_``.
    X : array-like of shape (n, n) or (n, n, p); (m, n) or (m, n, p) if not ``reset``
        Kernel values; at prediction, those between m new rows and the n training rows.
        Or a dict from names to kernels (n, n), or (m, n) if not ``reset``.
    reset : bool
        True in ``fit``, False afterwards.
    allow_nan : bool, default=False
        Whether entries may be NaN; if so, a dict may lack kernels at prediction.

    Returns
    -------
    K : array of shape (n, n, p) or (m, n, p)
        float32 if X is, else float64. It may share memory with X.
    names : list of str
        The keys of a dict, the names in ``views=("precomputed", names)``, or
        ``kernel_0``, ``kernel_1``, ...
    """
    names = precomputed_names(getattr(estimator, "views", None))
    if not reset:
        names = getattr(estimator, "kernel_names_", names)
    labelled = X
    refuse_no_table(X, type(estimator).__name__, precomputed=True)
    if is_dict(X):
        if reset:
            for name, kernel in X.items():
                if hasattr(kernel, "iloc"):
                    check_kernel_labels(kernel, f"The precomputed kernel {name!r}")
        absent = allow_nan and not reset
        X, names, labelled = stack_kernels(X, names, estimator, absent)
    elif reset and hasattr(X, "iloc"):
        check_kernel_labels(X, "The precomputed kernel")
    K = _real_floating(checked_array(X, estimator, allow_nd=True))
    if K.ndim > 3:
        raise ValueError(
            "A precomputed kernel has the shape (n, n), a stack of them (n, n, p); "
            f"found {K.ndim} dimensions, shape {tuple(K.shape)}."
        )
    if K.ndim == 3 and K.shape[2] == 0:
        raise ValueError(
            f"Found a stack of 0 kernels (shape={tuple(K.shape)}). Pass at least one, "
            "on the last axis."
        )
    shape = tuple(K.shape)
    if K.ndim == 2:
        K = namespace(K).expand_dims(K, axis=2)
    p = K.shape[2]
    standard = [f"kernel_{index}" for index in range(p)]
    names = names or standard
    _check_entries(K, names if len(names) == p else standard, allow_nan)
    if reset:
        _check_square(shape)
    elif column_names(labelled) is None:  # else validate_data reports the names
        _check_columns(shape, estimator)
    validate_data(estimator, labelled, reset=reset, skip_check_array=True)
    if len(names) != p and not reset:
        raise ValueError(
            f"{type(estimator).__name__} was fitted on "
            f"{counted(len(names), 'precomputed kernel')}; found {p} in X of shape "
            f"{shape}. Pass the same kernels as in fit, in the same order."
        )
    if len(names) != p:
        raise ValueError(
            f"views names {len(names)} precomputed kernels, {some(map(repr, names))}; "
            f"found {p} in X of shape {shape}. Give one name per kernel."
        )
    return K, names


def stack_kernels(
    kernels: dict[str, Any], names: list[str] | None, estimator: Any, absent: bool
) -> tuple[Array, list[str], Any]:
    """A dict of kernels (m, n) as a stack (m, n, p), its names, and one of the kernels.

    ``names`` are the kernels wanted, all by default; with ``absent`` the dict may lack
    some of them, which become NaN.
    """
    names = list(kernels) if names is None else names
    if not kernels:
        raise ValueError(
            "X is an empty dict. Pass at least one precomputed kernel: a dict from "
            "names to kernels."
        )
    lacking = [name for name in names if name not in kernels]
    if (lacking and not absent) or len(lacking) == len(names):
        hint = ", or set missing='zero' or 'available' if rows may lack kernels"
        raise ValueError(
            f"X lacks {with_names('the precomputed kernel', map(repr, lacking))}; it "
            f"is a dict with the keys {some(map(repr, kernels))}. Add or rename kernels"
            f"{hint if len(lacking) < len(names) else ''}."
        )
    found: dict[str, Array] = {}
    first, labels = "", None
    for name in names:
        if name in lacking:
            continue
        given = kernels[name]
        if type(name) is not str or not name:
            raise TypeError(
                f"The name of a kernel must be a str; found {name!r} in X. Use names "
                "such as 'rna' as the keys of the dict."
            )
        with prefixed(f"Precomputed kernel {name!r}: "):
            found[name] = _real_floating(checked_array(given, estimator))
        first = first or name
        if found[name].shape != found[first].shape:
            raise ValueError(
                "All precomputed kernels must have the same shape; found "
                f"{tuple(found[first].shape)} for {first!r} and "
                f"{tuple(found[name].shape)} for {name!r}. Compute all of them between "
                "the same rows."
            )
        own = list(given.index) if hasattr(given, "iloc") else None
        labels = own if labels is None else labels
        if own is not None and own != labels:
            raise ValueError(
                f"The precomputed kernels {first!r} and {name!r} have different row "
                "labels. Bring them into the same order, or pass arrays if the labels "
                "mean nothing."
            )
    xp = namespace(*found.values())
    nothing = xp.full_like(found[first], xp.nan) if lacking else None
    stack = xp.stack([found.get(name, nothing) for name in names], axis=2)
    return stack, names, kernels[first]


def _real_floating(K: Array) -> Array:
    def refused(place: tuple[int, ...], value: Any, error: Exception) -> str:
        return (
            f"A precomputed kernel must hold numbers only; found {str(value)!r:.60} at "
            f"position {place} ({error}). Correct this entry, or compute the kernel "
            "again."
        )

    if is_numpy(K) and K.dtype.kind not in "fiub":
        K = floats_of(K, refused)
    return single_or_double(K)


def _check_square(shape: tuple[int, ...]) -> None:
    if shape[0] == shape[1]:
        return
    if len(shape) == 3 and shape[1] == shape[2]:
        raise ValueError(
            f"A stack of precomputed kernels must have the shape (n, n, p); found "
            f"{shape}, which has the kernels first. Use numpy.moveaxis(X, 0, -1)."
        )
    raise ValueError(
        f"A precomputed kernel must be square, (n, n) or (n, n, p), at fit; found the "
        f"shape {shape}. If X is a table of features, remove views='precomputed'."
    )


def _check_columns(shape: tuple[int, ...], estimator: Any) -> None:
    n_train = estimator.n_features_in_
    if shape[1] == n_train:
        return
    hint = ""
    if len(shape) == 3 and shape[2] == n_train:
        hint = " The kernels are the first axis: use numpy.moveaxis(X, 0, -1)."
    elif shape[0] == n_train:
        hint = " Is X transposed? Rows are the new samples."
    raise ValueError(
        f"X has {shape[1]} features, but {type(estimator).__name__} is expecting "
        f"{n_train} features as input: precomputed kernels between m new rows and the "
        f"{n_train} training rows have the shape (m, {n_train}) or (m, {n_train}, p); "
        f"found {shape}.{hint}"
    )


def _check_entries(K: Array, names: list[str], allow_nan: bool) -> None:
    xp = namespace(K)
    for rows in row_chunks(K.shape[0], K.shape[1] * K.shape[2], block_entries(K)):
        part = K[rows, :, :]
        odd = xp.isinf(part) if allow_nan else ~xp.isfinite(part)
        if bool(xp.any(odd)):
            i, j, kernel = (int(index) for index in np.argwhere(to_numpy(odd))[0])
            value = float(part[i, j, kernel])
            raise ValueError(
                f"Input X contains {'NaN' if np.isnan(value) else 'infinity'}: "
                f"precomputed kernel {names[kernel]!r} holds {value} at position "
                f"({rows.start + i}, {j}). Recompute it, or drop the row and column of "
                "the affected sample."
            )

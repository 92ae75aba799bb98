"""Check X: its features are those seen at fit, and every entry is a finite number."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, validate_data

from kernelweave._array import (
    Array,
    as_float,
    is_array,
    is_numpy,
    namespace,
    take,
    to_numpy,
)
from kernelweave.views.columns import View, column_names, find_columns, is_table


def validate_features(
    estimator: Any, X: Any, *, reset: bool, sparse: bool = False
) -> Any:
    """Check the shape and feature names of X, but not yet its entries.

    If ``reset``, sets ``n_features_in_`` and ``feature_names_in_`` on the estimator;
    otherwise refuses any other features (:func:`validate_new` finds columns by name
    instead). The entries are checked by :func:`split_views`, since columns that belong
    to no view may hold anything.

    Parameters
    ----------
    estimator : estimator
        Receives ``n_features_in_``; messages name its class.
    X : array-like or DataFrame of shape (n, d)
        A list, a NumPy array, an array of any array API library, or a pandas or polars
        DataFrame.
    reset : bool
        True in ``fit``, False afterwards.
    sparse : bool, default=False
        Whether sparse rows are accepted.

    Returns
    -------
    X : array or DataFrame of shape (n, d)
        The DataFrame itself, a CSR array, or an array in the namespace of the input.
    """
    checked = X
    if column_names(X) is None:
        checked = checked_array(X, estimator, sparse=sparse)
    else:
        _check_not_empty(X.shape, estimator)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return checked


def validate_new(
    estimator: Any,
    X: Any,
    views: list[View],
    positions: list[list[int]],
    *,
    sparse: bool = False,
) -> tuple[Any, list[list[int]]]:
    """Check new rows, and find the columns of each view in them.

    If both the training data and X have column names, columns are matched by name, as
    in scikit-learn's ColumnTransformer: their order does not matter, columns that no
    view uses may be absent, and there may be additional ones. Otherwise columns are
    matched by position, and X must have as many as the training data.

    Parameters
    ----------
    estimator : estimator
        Has ``n_features_in_`` and, if there were names, ``feature_names_in_``.
    X : array-like or DataFrame of shape (m, e)
        New rows, as for :func:`validate_features`.
    views : list of View
        Their names appear in error messages.
    positions : list of list of int
        Columns of each view in the training data.
    sparse : bool, default=False
        Whether sparse rows are accepted.

    Returns
    -------
    X : array or DataFrame of shape (m, e)
        As from :func:`validate_features`.
    positions : list of list of int
        Columns of each view in X.
    """
    fitted = getattr(estimator, "feature_names_in_", None)
    names = column_names(X)
    if fitted is None or not any(isinstance(name, str) for name in names or ()):
        X = validate_features(estimator, X, reset=False, sparse=sparse)
        return X, positions
    _check_not_empty(X.shape, estimator)
    return X, find_columns(X, views, positions, fitted)


def checked_array(
    X: Any, estimator: Any, *, allow_nd: bool = False, sparse: bool = False
) -> Array:
    """X as a real, nonempty array of at least two dimensions and any dtype.

    NumPy arrays, and whatever converts to them, are checked by scikit-learn. Its check
    of other arrays depends on a global switch, so those are checked here.

    Parameters
    ----------
    X : array-like
        The input.
    estimator : estimator
        Its class appears in error messages.
    allow_nd : bool, default=False
        Whether more than two dimensions are allowed.
    sparse : bool, default=False
        Whether sparse rows are accepted, as SciPy arrays.

    Returns
    -------
    X : array
        In the namespace and on the device of the input; never a copy of a dense array.
    """
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError(
            "Masked arrays are not supported: the mask would be lost. Impute the "
            "masked entries first."
        )
    if not is_array(X) or is_numpy(X):
        if isinstance(X, list | tuple) and np.asarray(X).dtype.kind in "US":
            # Otherwise a single string would turn every number into a string.
            X = np.asarray(X, dtype=object)
        return check_array(
            X,
            accept_sparse="csr" if sparse else False,
            dtype=None,
            ensure_all_finite=False,
            allow_nd=allow_nd,
            estimator=estimator,
            input_name="X",
        )
    if "sparse" in str(getattr(X, "layout", "")):
        raise TypeError(
            "Sparse data was passed for X, but dense data is required. Use "
            "'.to_dense()' to convert it."
        )
    if namespace(X).isdtype(X.dtype, "complex floating"):
        raise ValueError(f"Complex data not supported: X has the dtype {X.dtype}.")
    if X.ndim < 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead: X has the shape "
            f"{tuple(X.shape)}. Reshape your data either using X.reshape(-1, 1) if it "
            "has a single feature or X.reshape(1, -1) if it contains a single sample."
        )
    if X.ndim > 2 and not allow_nd:
        raise ValueError(
            f"Found array with dim {X.ndim}, while dim <= 2 is required by "
            f"{type(estimator).__name__}."
        )
    _check_not_empty(X.shape, estimator)
    return X


def _check_not_empty(shape: Any, estimator: Any) -> None:
    for count, what in zip(shape, ("sample", "feature"), strict=False):
        if count == 0:
            raise ValueError(
                f"Found array with 0 {what}(s) (shape={tuple(shape)}) while a minimum "
                f"of 1 is required by {type(estimator).__name__}."
            )


def split_views(
    X: Any, views: list[View], positions: list[list[int]], *, dtype: Any = None
) -> list[Array]:
    """Cut X into one block of finite floats per view.

    Parameters
    ----------
    X : array or DataFrame of shape (n, d)
        What :func:`validate_features` returned.
    views : list of View
        Their names appear in error messages.
    positions : list of list of int
        Columns of each view, from :func:`~kernelweave.views.columns.resolve_columns`.
    dtype : floating dtype, default=None
        Dtype of all blocks. None: float32 if every view is float32, else float64.

    Returns
    -------
    blocks : list of arrays of shape (n, d_view)
        Read-only for the caller: they may share memory with X. CSR blocks if X is
        sparse.
    """
    if issparse(X):
        return _split_sparse(X, views, positions, dtype)
    blocks, labels = float_blocks(X, views, positions, dtype)
    for view, block, names in zip(views, blocks, labels, strict=True):
        _check_finite(block, view, names)
    return blocks


def float_blocks(
    X: Any, views: list[View], positions: list[list[int]], dtype: Any = None
) -> tuple[list[Array], list[list[Any]]]:
    """One block of floats per view, not yet checked, and the names of its columns."""
    names = column_names(X)
    labels = [
        columns if names is None else [names[c] for c in columns]
        for columns in positions
    ]
    blocks = [
        to_float(take_columns(X, columns), f"View {view.name!r}", names_)
        for view, columns, names_ in zip(views, positions, labels, strict=True)
    ]
    xp = namespace(*blocks)
    if dtype is None:
        single = all(block.dtype == xp.float32 for block in blocks)
        dtype = xp.float32 if single else xp.float64
    return [as_float(block, dtype) for block in blocks], labels


def _split_sparse(
    X: Any, views: list[View], positions: list[list[int]], dtype: Any
) -> list[Any]:
    """One CSR block of finite floats per view."""
    dtype = X.dtype if dtype is None and X.dtype == np.float32 else dtype or np.float64
    columns = X.tocsc()
    blocks = [columns[:, chosen].tocsr().astype(dtype) for chosen in positions]
    for view, block in zip(views, blocks, strict=True):
        bad = np.flatnonzero(~np.isfinite(block.data))
        if len(bad):
            row = int(np.searchsorted(block.indptr, bad[0], side="right")) - 1
            found = "NaN" if np.isnan(block.data[bad[0]]) else "infinity"
            raise ValueError(
                f"Input X contains {found}: view {view.name!r}, row {row}, holds "
                f"{block.data[bad[0]]}. Impute such entries, or drop the rows."
            )
    return blocks


def take_columns(X: Any, columns: list[int]) -> Any:
    """The given columns of an array or DataFrame, without a copy if possible."""
    if hasattr(X, "iloc"):
        return X.iloc[:, columns]
    if is_table(X):
        return X.select(columns)
    if not is_array(X):
        return X[:, columns]
    first, last = columns[0], columns[-1]
    if columns == list(range(first, last + 1)):
        return X[:, first : last + 1]  # a view: no copy
    return take(X, columns, axis=1)


def to_float(block: Any, where: str, labels: list[Any]) -> Array:
    """``block`` as float32 if that is its dtype, otherwise as float64.

    Parameters
    ----------
    block : array or DataFrame of shape (n, d)
        Numbers of any dtype, including object; None and pandas' NA become NaN.
    where : str
        Prefix of error messages, such as ``View 'rna'``.
    labels : list
        Names of the d columns in error messages.

    Returns
    -------
    block : array of shape (n, d)
    """
    if hasattr(block, "iloc"):
        frame, block = block, block.to_numpy()
        if block.dtype == object:
            block = frame.to_numpy(dtype=object, na_value=np.nan)
    elif hasattr(block, "get_column"):
        for label, column in zip(labels, block.iter_columns(), strict=True):
            first = column.head(1).to_numpy()
            if first.dtype.kind in "mM":  # polars would turn times into numbers
                _from_objects(first[:, None], where, [label])
        block = block.to_numpy()
    elif is_table(block):
        block = np.column_stack(
            [
                to_float(column.to_numpy()[:, None], where, [label])
                for label, column in zip(labels, block.columns, strict=True)
            ]
        )
    if is_numpy(block) and block.dtype.kind not in "fiub":
        block = _from_objects(block, where, labels)
    xp = namespace(block)
    return block if block.dtype == xp.float32 else as_float(block, xp.float64)


def _from_objects(values: np.ndarray, where: str, labels: list[Any]) -> np.ndarray:
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {where} is complex.")
    is_time = values.dtype.kind in "mM"
    if values.dtype.kind in "SU":
        values = values.astype(object)
    out = np.empty(values.shape)
    for (i, j), value in np.ndenumerate(values):
        try:
            if is_time or isinstance(value, str | bytes):
                raise ValueError("a time" if is_time else "text")
            out[i, j] = np.nan if value is None else value
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"{where}: row {i}, column {labels[j]!r} holds {value!r:.80}, which "
                f"is not a number ({error}). Encode the column as numbers, or leave it "
                "out."
            ) from error
    return out


def _check_finite(block: Array, view: View, labels: list[Any]) -> None:
    xp = namespace(block)
    if bool(xp.all(xp.isfinite(block))):
        return
    values = to_numpy(block)
    i, j = (int(index) for index in np.argwhere(~np.isfinite(values))[0])
    found = "NaN" if np.isnan(values[i, j]) else "infinity"
    absent = np.flatnonzero(np.isnan(values).all(axis=1)).tolist()
    if i in absent:
        shown = ", ".join(map(str, absent[:5])) + (", ..." if len(absent) > 5 else "")
        raise ValueError(
            f"Input X contains NaN: {len(absent)} sample(s) lack the view "
            f"{view.name!r}: all its entries are NaN in row(s) {shown}. "
            "Drop these rows, impute the view, or set missing='available' or "
            "missing='zero' in an estimator that allows missing views."
        )
    rows = np.flatnonzero(~np.isfinite(values).all(axis=1))
    raise ValueError(
        f"Input X contains {found}: view {view.name!r}, row {i}, column {labels[j]!r} "
        f"holds {values[i, j]} ({rows.size} row(s) of the view are affected). Impute "
        "such entries, for example with sklearn.impute.SimpleImputer in a Pipeline, or "
        "drop the rows."
    )

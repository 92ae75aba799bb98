"""Views: their specification, which columns of X belong to each, and checks of X."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import PurePath
from typing import Any

import numpy as np
from scipy.sparse import csc_array, issparse
from sklearn.utils.validation import check_array, validate_data

from kernelweave._array import (
    Array,
    as_float,
    from_numpy,
    is_array,
    is_numpy,
    namespace,
    single_or_double,
    take,
    to_numpy,
)
from kernelweave._text import counted, did_you_mean, prefixed, some, with_names

EXPECTED = (
    "views must be None (all columns), 'precomputed', ('precomputed', names), or a "
    "list of (name, kernel, columns) tuples such as [('rna', 'auto', ['g1', 'g2'])]"
)


@dataclass(frozen=True)
class View:
    """A group of columns and the kernels to be computed on it.

    Parameters
    ----------
    name : str
        Name of the view; the prefix of its nested parameters.
    kernel : object
        Anything that :func:`kernelweave.kernels.spec.resolve_kernels` accepts.
    columns : object
        Anything that :func:`kernelweave.views.columns.resolve_columns` accepts.
    joint : bool, default=False
        Whether the columns belong to several views: a row then lacks this view if it
        lacks any of its entries, not only if it lacks all of them.
    raw : bool, default=False
        Whether its kernels receive the columns as they are in the table, as
        :class:`~kernelweave.views.raw_columns.Columns`, and not as numbers.
    plan : ColumnPlan, optional
        What "auto" does with each column, known after a fit to a table.
    """

    name: str
    kernel: Any
    columns: Any
    joint: bool = False
    raw: bool = False
    plan: Any = None


def is_precomputed(views: object) -> bool:
    """Whether ``views`` says that X holds precomputed kernel matrices."""
    word = views[0] if isinstance(views, tuple) and len(views) == 2 else views
    return isinstance(word, str) and word == "precomputed"


def precomputed_names(views: object) -> list[str] | None:
    """Names of precomputed kernels, if ``views`` gives any: ("precomputed", names)."""
    if not isinstance(views, tuple):
        return None
    names = views[1]
    if not isinstance(names, list | tuple) or not names:
        raise TypeError(
            "views=('precomputed', names) needs a list with one name per kernel; found "
            f"{_brief(names)}."
        )
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(
                f"The name of a kernel must be a str; found {_brief(name)} in views. "
                "Give one name per kernel, such as 'rna'."
            )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"views gives the name {twice[0]!r} to several kernels. Choose a different "
            "name for each."
        )
    return list(names)


def parse_views(views: object, *, reserved: Collection[str] = ()) -> list[View]:
    """Turn the ``views`` parameter into a list of :class:`View`.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns) tuples
        None stands for a single view named "all": every column, with the kernel "auto".
    reserved : collection of str
        Parameter names of the estimator, which no view may use.

    Returns
    -------
    parsed : list of View
        Empty for "precomputed", where there are no column groups.
    """
    if views is None:
        return [View("all", "auto", slice(None))]
    if is_precomputed(views):
        return []
    if isinstance(views, str):
        raise ValueError(f"{EXPECTED}; found the string {views!r}.")
    if not isinstance(views, list):
        raise TypeError(f"{EXPECTED}; found {_brief(views)}.")
    if not views:
        raise ValueError(f"{EXPECTED}; found an empty list.")
    parsed = [_parse_view(index, view) for index, view in enumerate(views)]
    _check_names([view.name for view in parsed], reserved)
    return parsed


def _parse_view(index: int, view: object) -> View:
    if not isinstance(view, tuple):
        raise TypeError(f"{EXPECTED}; found {_brief(view)} at position {index}.")
    if len(view) != 3:
        raise ValueError(
            f"{EXPECTED}; found a tuple of length {len(view)} at position {index}: "
            f"{view!r:.200}."
        )
    name = view[0]
    if not isinstance(name, str):
        raise TypeError(
            f"The name of a view must be a str; found {_brief(name)} at position "
            f"{index} of views. The order is (name, kernel, columns)."
        )
    return View(name, view[1], plain_columns(view[2]))


def plain_columns(columns: Any) -> Any:
    """The columns of a view; those in an Index or Series, say, as a list.

    A list, unlike these, can be saved to a file.
    """
    if hasattr(columns, "to_numpy"):
        return columns.to_numpy().tolist()
    return list(columns) if isinstance(columns, range) else columns


def _check_names(names: list[str], reserved: Collection[str]) -> None:
    for index, name in enumerate(names):
        if not name:
            raise ValueError(
                f"The name of the view at position {index} is empty. Give it a name, "
                "which appears in tables of weights."
            )
        if "__" in name:
            raise ValueError(
                f"The name of a view must not contain '__'; found {name!r}. Two "
                "underscores separate a view from its kernel's parameters."
            )
        if name in reserved:
            raise ValueError(
                f"The view name {name!r} is also a parameter of the estimator. "
                "Choose another name for the view."
            )
        if name in names[:index]:
            raise ValueError(
                f"The view name {name!r} is used twice, at positions "
                f"{names.index(name)} and {index} of views. To use several kernels on "
                "the same columns, give one view a list of kernels."
            )


def _brief(value: object) -> str:
    name = getattr(value, "__name__", None)  # without an address in memory
    text = " ".join((name or repr(value)).split())
    return f"{type(value).__name__} {text:.80}"


Lookup = dict[Any, int] | None  # column name -> position; None without names


ALLOWED = (
    "columns must be a name or an integer, a list or slice of names or integers, "
    "a boolean mask, or a callable that returns one of these"
)


def column_names(X: Any) -> list[Any] | None:
    """Column names of a pandas, polars or pyarrow table; None for anything else."""
    if is_table(X):
        return list(X.column_names)
    is_frame = hasattr(X, "iloc") or hasattr(X, "get_column")
    if is_frame and len(getattr(X, "shape", ())) == 2:
        return list(X.columns)
    return None


def labels_of(names: Sequence[Any] | None, columns: list[int]) -> list[Any]:
    """Names of the columns at these positions, or the positions if there are none."""
    return columns if names is None else [names[c] for c in columns]


def is_arrow(X: object) -> bool:
    """Whether X is a pyarrow dataset or table."""
    return type(X).__module__.split(".")[0] == "pyarrow" and hasattr(X, "to_batches")


def is_table(X: object) -> bool:
    """Whether X is a pyarrow table."""
    return is_arrow(X) and hasattr(X, "column_names")


def is_dict(X: object) -> bool:
    """Whether X is a dict; SciPy's sparse dict of keys is one but holds rows."""
    return isinstance(X, dict) and not issparse(X)


def refuse_no_table(X: Any, owner: str, precomputed: bool = False) -> None:
    """Refuse whatever holds no rows, or holds them in pieces; say what to pass.

    Parameters
    ----------
    X : object
        What the caller gave as rows or, if ``precomputed``, as kernels.
    owner : str
        The estimator, for messages.
    precomputed : bool, default=False
        Whether X should hold kernels.
    """
    if hasattr(X, "collect") and not hasattr(X, "shape"):
        raise TypeError(
            f"X is a {type(X).__name__}, whose rows have not been computed. Pass "
            "X.collect() instead."
        )
    if type(X).__module__.startswith("narwhals."):
        raise TypeError(
            f"X is a {type(X).__name__} of narwhals. Pass the table inside instead, "
            "X.to_native()."
        )
    if is_arrow(X) and not is_table(X):
        raise TypeError(
            f"X is a {type(X).__name__}, whose rows have not been read. Pass "
            "X.to_table() instead."
        )
    if X is None:
        raise ValueError(
            f"X is None, but {owner} needs one row per sample. Pass an array or a "
            "DataFrame."
        )
    if isinstance(X, str | bytes | PurePath):
        text = X if isinstance(X, bytes) else str(X)
        raise ValueError(
            f"X is the text {text!r:.80}, but {owner} needs the rows themselves. If it "
            "is the name of a file, read it first, for example with pandas.read_csv."
        )
    if is_iterator(X) or is_dask(X):
        gather = "X.compute()" if is_dask(X) else "numpy.concatenate(list(X))"
        raise TypeError(
            f"X is of type {type(X).__name__}, whose rows come in portions, but "
            f"{owner} needs all of them at once. Pass {gather}, or use "
            "MultipleKernelFDA or MultipleKernelRidge without precomputed kernels."
        )
    if isinstance(X, list | tuple) and X:
        _refuse_pieces(X, precomputed)
        return
    if getattr(X, "ndim", None) == 1 and hasattr(X, "to_frame"):
        raise ValueError(
            f"Expected 2D array, got 1D array instead: X is a {type(X).__name__} of "
            f"{len(X)} values. Pass X.to_frame() if these are the rows of one column; "
            "a single row is a table too, such as table[i : i + 1]."
        )
    rows = any(hasattr(X, name) for name in ("shape", "__array__"))
    if not rows and not isinstance(X, list | tuple | dict):
        raise TypeError(
            f"X is {_brief(X)}, but {owner} needs one row per sample. "
            "Pass an array or a DataFrame."
        )


def _refuse_pieces(X: Any, precomputed: bool) -> None:
    """Refuse a list of tables, or of portions, and rows of different lengths."""
    shapes = [tuple(getattr(part, "shape", ())) for part in X]
    if all(
        isinstance(part, tuple) and part and len(getattr(part[0], "shape", ())) == 2
        for part in X
    ):
        raise ValueError(
            f"X is a list of {len(X)} pairs, like rows and targets. Portions come "
            "from an iterator: pass iter(X) without y, or all rows in one table."
        )
    if all(isinstance(row, dict) for row in X):
        raise ValueError(
            f"X is a list of {counted(len(X), 'dict')}, one per row. Pass a table "
            "instead, pandas.DataFrame(X)."
        )
    if all(len(shape) == 2 for shape in shapes):
        if precomputed:
            fix = "numpy.stack(X, axis=-1), or a dict from names to kernels"
        else:
            fix = (
                "one table, numpy.hstack(X), and name the columns of each view in "
                "views; kernelweave.join_tables(...) aligns tables by id"
            )
        raise ValueError(
            f"X is a list of {len(X)} arrays, with the shapes "
            f"{some(map(str, shapes))}. Pass {fix}."
        )
    if all(
        isinstance(row, list | tuple) or len(shape) == 1
        for row, shape in zip(X, shapes, strict=True)
    ):
        lengths = [len(row) for row in X]
        for i, length in enumerate(lengths):
            if length != lengths[0]:
                raise ValueError(
                    f"The rows of X have different lengths: row 0 has {lengths[0]} "
                    f"entries, row {i} has {length}. Give every row one entry per "
                    "column, NaN where it is missing."
                )


def is_iterator(X: object) -> bool:
    """Whether X yields portions: an iterator or generator, not a list."""
    return hasattr(X, "__next__")


def is_dask(X: object) -> bool:
    """Whether X is a Dask array, DataFrame or Series."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "dask")


def in_portions(X: Any, y: Any = None) -> bool:
    """Whether rows are read one portion after another, and only once.

    A pyarrow table is, if y names its column of targets; with other targets it is a
    table like any other.
    """
    streamed = is_arrow(X) and (isinstance(y, str) or not is_table(X))
    return is_iterator(X) or streamed or is_dask(X)


def resolve_columns(X: Any, views: list[View]) -> list[list[int]]:
    """Positions of the columns of each view, as ColumnTransformer would find them.

    Parameters
    ----------
    X : array or DataFrame of shape (n, d)
        The training data.
    views : list of View
        The ``columns`` of each may be a name or an integer (negative integers count
        from the end), a list or slice of either (a slice of names includes its end), a
        boolean mask of length d, or a callable of X such as
        :class:`sklearn.compose.make_column_selector`.

    Returns
    -------
    positions : list of list of int
        One list per view, never empty. Views may share columns.
    """
    names = column_names(X)
    lookup = None if names is None else {name: c for c, name in enumerate(names)}
    found = []
    for view in views:
        with prefixed(f"View {view.name!r}: "):
            found.append(_positions(X, view.columns, lookup))
    return found


def find_columns(
    X: Any,
    views: list[View],
    positions: list[list[int]],
    fitted: Sequence[str],
    may_lack: bool = False,
) -> list[list[int]]:
    """Positions of the columns of each view in new data, found by name.

    Parameters
    ----------
    X : DataFrame of shape (m, e)
        New rows. The order of the columns does not matter; columns that no view uses
        may be absent, and there may be additional ones.
    views : list of View
        Their names appear in error messages.
    positions : list of list of int
        Columns of each view in the training data, from :func:`resolve_columns`.
    fitted : sequence of str of length d
        Column names of the training data.
    may_lack : bool, default=False
        Whether a view may lack all of its columns, so that every row lacks the view.

    Returns
    -------
    positions : list of list of int
        Columns of each view in X; none for a view that is absent.
    """
    names = column_names(X) or []
    if names == list(fitted):
        return positions
    if may_lack:
        positions = _without_absent(views, positions, fitted, set(names))
    users: dict[str, list[str]] = {}  # column -> views
    for view, columns in zip(views, positions, strict=True):
        for c in columns:
            users.setdefault(fitted[c], []).append(view.name)
    found: dict[Any, list[int]] = {}
    for c, name in enumerate(names):
        found.setdefault(name, []).append(c)
    absent = [name for name in users if name not in found]
    if absent:
        others = [name for name in found if isinstance(name, str) and name not in users]
        close = difflib.get_close_matches(absent[0], others, n=1)
        hint = f" Is {absent[0]!r} now called {close[0]!r}?" if close else ""
        raise ValueError(
            f"X lacks {with_names('the column', _used(absent, users))}, present in "
            f"fit. Columns are matched by name: add or rename them.{hint}"
        )
    repeated = [name for name in users if len(found[name]) > 1]
    if repeated:
        raise ValueError(
            f"X repeats {with_names('the column name', _used(repeated, users))}. "
            "Rename all but the intended columns."
        )
    return [[found[fitted[c]][0] for c in columns] for columns in positions]


def _without_absent(
    views: list[View],
    positions: list[list[int]],
    fitted: Sequence[str],
    names: set[Any],
) -> list[list[int]]:
    """The columns of each view that has some; a joint one (of products) needs all."""
    found = []
    for view, columns in zip(views, positions, strict=True):
        here = [fitted[c] in names for c in columns]
        absent = not all(here) if view.joint else not any(here)
        found.append([] if absent else columns)
    return positions if not any(found) else found


def _positions(X: Any, given: Any, lookup: Lookup) -> list[int]:
    n_columns, key = X.shape[1], given
    if callable(key):
        try:
            key = key(X)
        except Exception as error:
            raise ValueError(
                f"its column selector failed: {type(error).__name__}: {error}. Give "
                "names or positions, or correct the selector."
            ) from error
    if isinstance(key, slice):
        positions = _from_slice(key, lookup, n_columns)
    else:
        positions = _from_items(_items(key), lookup, n_columns)
    if not positions:
        raise ValueError(
            f"columns={getattr(given, '__name__', given)!r:.80} selects no columns of "
            "X. Remove the view."
        )
    if len(set(positions)) < len(positions):
        names, counts = column_names(X) or range(n_columns), Counter(positions)
        twice = [names[c] for c in counts if counts[c] > 1]
        raise ValueError(
            f"it selects {with_names('the column', map(repr, twice))} twice. Name each "
            "column once."
        )
    return positions


def _items(key: Any) -> list[Any]:
    if isinstance(key, str) or _is_integer(key):
        return [key]
    if is_array(key):
        key = to_numpy(key)
    elif hasattr(key, "to_numpy"):  # an Index or a Series
        key = key.to_numpy()
    if isinstance(key, list | tuple | range) or getattr(key, "ndim", 0) == 1:
        return list(key)
    raise ValueError(f"{ALLOWED}; found {_brief(key)}.")


def _from_items(items: list[Any], lookup: Lookup, n_columns: int) -> list[int]:
    if all(isinstance(item, str) for item in items):
        return [_named(item, lookup) for item in items]
    if all(isinstance(item, bool | np.bool_) for item in items):
        if len(items) != n_columns:
            raise ValueError(
                f"its boolean mask has length {len(items)}, but X has {n_columns} "
                "columns. Give one entry per column."
            )
        return [position for position, chosen in enumerate(items) if chosen]
    if not all(_is_integer(item) for item in items):
        kinds = sorted({type(item).__name__ for item in items})
        hint = _several_levels(lookup or {}) if "tuple" in kinds else ""
        raise ValueError(f"{ALLOWED}; found a list of {', '.join(kinds)}.{hint}")
    outside = [int(item) for item in items if not -n_columns <= item < n_columns]
    if outside:
        raise ValueError(
            f"it selects {with_names('the column position', map(str, outside))}, but X "
            f"has {n_columns} columns. Choose from 0 to {n_columns - 1}."
            f"{INTEGER_NAMES if outside[0] in (lookup or {}) else ''}"
        )
    return [int(item) % n_columns for item in items]


def _from_slice(key: slice, lookup: Lookup, n_columns: int) -> list[int]:
    start = _named(key.start, lookup) if isinstance(key.start, str) else key.start
    stop = _named(key.stop, lookup) + 1 if isinstance(key.stop, str) else key.stop
    try:
        return list(range(n_columns)[start : stop : key.step])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{ALLOWED}; found {key!r}.") from error


def _named(name: str, lookup: Lookup) -> int:
    if lookup is None:
        raise ValueError(
            f"the column {name!r} is given by name, but X has no column names. Pass a "
            "DataFrame, or give positions. Some estimators of scikit-learn, such as "
            "BaggingClassifier, pass on arrays: give positions there. A transformer "
            "before this step keeps names with set_output(transform='pandas')."
        )
    if name not in lookup:
        texts = [key for key in lookup if isinstance(key, str)]
        prefixed = [key for key in texts if key.endswith(f"__{name}")]
        hint = did_you_mean(name, texts)
        if len(prefixed) == 1:
            hint = (
                f" It may be {prefixed[0]!r}: use that name, or the ColumnTransformer "
                "that made it with verbose_feature_names_out=False."
            )
        hint = hint or _several_levels(lookup)
        raise ValueError(
            f"the column {name!r} is not among the {len(lookup)} columns of X."
            f"{hint or f' They are {some(map(repr, lookup))}.'}"
        )
    return lookup[name]


#: What to do about columns that are chosen by names that are not text.
INTEGER_NAMES = (
    " Integers are positions, not names: to use names, pass X.rename(columns=str)."
)


def _several_levels(lookup: dict[Any, int]) -> str:
    """What to do about names of columns that are tuples, if they are."""
    if not any(isinstance(name, tuple) for name in lookup):
        return ""
    return (
        f" Names of columns have several levels, such as {next(iter(lookup))!r}: make "
        "them single names, or give positions."
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _used(names: list[str], users: dict[str, list[str]]) -> Iterator[str]:
    """Each of the columns, with the views that use it."""
    for name in names:
        yield f"{name!r} ({with_names('view', map(repr, users[name]))})"


def validate_features(estimator: Any, X: Any, *, reset: bool) -> Any:
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
        A list, a NumPy array, an array of any array API library, a sparse array, or a
        pandas or polars DataFrame.
    reset : bool
        True in ``fit``, False afterwards.

    Returns
    -------
    X : array or DataFrame of shape (n, d)
        The DataFrame itself, a CSR array, or an array in the namespace of the input.
    """
    refuse_no_table(X, type(estimator).__name__)
    checked = X
    if is_dict(X):
        raise TypeError(
            f"X is a dict with the keys {some(map(repr, X))}. Align several tables "
            "with tables = kernelweave.join_tables(X, on=...), and pass "
            "views=tables.views and X=tables.data. With views='precomputed', X may be "
            "a dict of kernels."
        )
    names = column_names(X)
    if names is None:
        checked = checked_array(X, estimator, sparse=True)
    else:
        _check_not_empty(X.shape, estimator)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"X repeats {with_names('the column name', map(repr, twice))}. Rename all "
            "but one of these columns."
        )
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return checked


def validate_new(
    estimator: Any,
    X: Any,
    views: list[View],
    positions: list[list[int]],
    *,
    may_lack: bool = False,
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
    may_lack : bool, default=False
        Whether a view may lack all of its columns.

    Returns
    -------
    X : array or DataFrame of shape (m, e)
        As from :func:`validate_features`.
    positions : list of list of int
        Columns of each view in X.
    """
    refuse_no_table(X, type(estimator).__name__)
    fitted = getattr(estimator, "feature_names_in_", None)
    names = column_names(X)
    if fitted is None or not any(isinstance(name, str) for name in names or ()):
        return validate_features(estimator, X, reset=False), positions
    _check_not_empty(X.shape, estimator)
    return X, find_columns(X, views, positions, fitted, may_lack)


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
    if isinstance(X, list | tuple):
        given = np.asarray(X)
        # Otherwise a single string would turn every number into a string.
        X = np.asarray(X, dtype=object) if given.dtype.kind in "US" else given
    if not issparse(X) and hasattr(X, "dtype"):
        _check_axes(X, type(estimator).__name__, allow_nd)
        _check_not_empty(X.shape, estimator)
    if not is_array(X) or is_numpy(X):
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
    return X.detach() if getattr(X, "requires_grad", False) else X  # from a torch graph


def _check_axes(X: Any, owner: str, allow_nd: bool) -> None:
    """Refuse an array that is complex or has the wrong number of axes."""
    if isinstance(X, np.ndarray) and X.dtype.names:
        raise ValueError(
            f"X is a structured array with the fields {some(map(repr, X.dtype.names))},"
            f" but {owner} needs one row per sample. Pass pandas.DataFrame(X)."
        )
    if is_array(X) and namespace(X).isdtype(X.dtype, "complex floating"):
        raise ValueError(
            f"Complex data not supported: X has the dtype {X.dtype}. Pass its real and "
            "imaginary parts as columns, or its absolute values."
        )
    shape = tuple(X.shape)
    if len(shape) < 2:
        kind = f"{len(shape)}D" if shape else "scalar"
        raise ValueError(
            f"Expected 2D array, got {kind} array instead: X has the shape {shape}. "
            "Reshape your data either using X.reshape(-1, 1) if it has a single "
            "feature or X.reshape(1, -1) if it contains a single sample."
        )
    if len(shape) > 2 and not allow_nd:
        raise ValueError(
            f"Found array with dim {len(shape)}, while dim <= 2 is required by "
            f"{owner}: X has the shape {shape}. Reshape it to one row per sample, or "
            "set views='precomputed' if it holds kernels."
        )


def _check_not_empty(shape: Any, estimator: Any) -> None:
    for count, what in zip(shape, ("sample", "feature"), strict=False):
        if count == 0:
            raise ValueError(
                f"Found array with 0 {what}(s) (shape={tuple(shape)}) while a minimum "
                f"of 1 is required by {type(estimator).__name__}. Check how the rows "
                "and columns of X were selected."
            )


def split_views(
    X: Any,
    views: list[View],
    positions: list[list[int]],
    *,
    missing: bool = False,
    partial: Sequence[bool] | None = None,
    dtype: Any = None,
) -> tuple[list[Array], np.ndarray]:
    """Cut X into one block of floats per view, with NaN where a row lacks the view.

    Parameters
    ----------
    X : array or DataFrame of shape (n, d)
        What :func:`validate_features` returned.
    views : list of View
        Their names appear in error messages.
    positions : list of list of int
        Columns of each view, from :func:`resolve_columns`.
    missing : bool, default=False
        Whether rows may lack a view; sparse rows, which have no gaps, never do.
    partial : sequence of bool, optional
        For each view, whether individual entries may be NaN because its kernels begin
        with an imputer. By default they may not.
    dtype : floating dtype, default=None
        Dtype of all blocks. None: float32 if every view is float32, else float64.

    Returns
    -------
    blocks : list of arrays of shape (n, d_view)
        Read-only for the caller: they may share memory with X. CSR blocks if X is
        sparse.
    observed : ndarray of bool of shape (n, v)
        Which rows have each view.
    """
    if issparse(X):
        every = np.ones((X.shape[0], len(views)), dtype=bool)
        return _split_sparse(X, views, positions, dtype), every
    labels = [labels_of(column_names(X), columns) for columns in positions]
    blocks = [
        _read_block(X, *view, missing)
        for view in zip(views, positions, labels, strict=True)
    ]
    if dtype is None:
        xp = namespace(*blocks)
        single = all(block.dtype == xp.float32 for block in blocks)
        dtype = xp.float32 if single else xp.float64
    blocks = [as_float(block, dtype) for block in blocks]
    partial = [False] * len(views) if partial is None else partial
    observed = [
        observed_rows(*view, missing)
        for view in zip(blocks, views, labels, partial, strict=True)
    ]
    return blocks, np.stack(observed, axis=1)


class IdReader(ABC):
    """A kernel that looks samples up by id."""

    @abstractmethod
    def places(self, ids: Any, gaps: bool = False) -> np.ndarray:
        """Row numbers (n, 1) of these samples in its matrix: the block of the view."""

    @abstractmethod
    def with_own_ids(self) -> IdReader:
        """A copy that no change of the caller's ids reaches."""


class Piped:
    """Kernels after a transformer."""

    transformer: Any
    kernel: Any


def id_reader(view: View) -> IdReader | None:
    """The kernel of a view that looks samples up by id; None if it takes numbers."""
    kernels = list(each_kernel(view.kernel))
    readers = [one for one in kernels if isinstance(one[1], IdReader)]
    if not readers:
        return None
    if any(before for before, _ in readers):
        raise TypeError(
            f"View {view.name!r}: Similarity looks samples up by id, so no transformer "
            "can come before it. Use it without Pipe."
        )
    if len(kernels) > 1:
        raise ValueError(
            f"View {view.name!r} has {len(kernels)} kernels, and one of them is a "
            "Similarity. Give each Similarity a view of its own; views may share the "
            "column of ids."
        )
    return readers[0][1]


def with_own_ids(view: View) -> View:
    """The view with a copy of the ids that its kernel knows, if it looks samples up."""
    kernel = id_reader(view)
    if kernel is None:
        return view
    with prefixed(f"View {view.name!r}: "):
        own = kernel.with_own_ids()
    alone = not isinstance(view.kernel, list | tuple)
    return replace(view, kernel=own if alone else [own])


def each_kernel(
    spec: Any, before: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The kernels of a view one by one, after the transformers before each of them."""
    if isinstance(spec, list | tuple):
        for item in spec:
            yield from each_kernel(item, before)
    elif isinstance(spec, Piped):
        yield from each_kernel(spec.kernel, (*before, spec.transformer))
    else:
        yield before, spec


def _read_block(
    X: Any, view: View, columns: list[int], labels: list[Any], gaps: bool
) -> Array:
    """The numbers (n, d_view) of a view, not yet checked.

    For a kernel that looks samples up by id, these are their row numbers (n, 1) in its
    matrix, and NaN if they are absent, which they may be if there are ``gaps``.
    """
    kernel, where = id_reader(view), f"View {view.name!r}"
    if kernel is None:
        return to_float(take_columns(X, columns), where, labels)
    if len(columns) != 1:
        raise ValueError(
            f"{where}: Similarity needs one column of ids; columns="
            f"{view.columns!r:.80} selects {len(columns)}."
        )
    with prefixed(f"{where}: "):
        places = kernel.places(take_columns(X, columns), gaps)
    if not is_array(X):
        return places
    return from_numpy(places, X, getattr(namespace(X), places.dtype.name))


def _split_sparse(
    X: Any, views: list[View], positions: list[list[int]], dtype: Any
) -> list[Any]:
    """One CSR block of finite floats per view."""
    dtype = X.dtype if dtype is None and X.dtype == np.float32 else dtype or np.float64
    columns = csc_array(X)  # even of a sparse matrix, whose sums have two axes
    blocks = [columns[:, chosen].tocsr().astype(dtype) for chosen in positions]
    for view, block, columns_ in zip(views, blocks, positions, strict=True):
        if id_reader(view) is not None:
            raise TypeError(
                f"View {view.name!r}: ids cannot be read from sparse rows. Pass a "
                "DataFrame with a column of ids."
            )
        bad = np.flatnonzero(~np.isfinite(block.data))
        if len(bad):
            row = int(np.searchsorted(block.indptr, bad[0], side="right")) - 1
            column = columns_[int(block.indices[bad[0]])]
            found = "NaN" if np.isnan(block.data[bad[0]]) else "infinity"
            raise ValueError(
                f"Input X contains {found}: view {view.name!r}, row {row}, column "
                f"{column} holds {block.data[bad[0]]}. Impute such entries, or drop "
                "the rows."
            )
    return blocks


def observed_rows(
    block: Array, view: View, labels: list[Any], imputed: bool, missing: bool
) -> np.ndarray:
    """Which rows (n,) have the view; all entries of these must be finite.

    Single entries may be NaN if they are ``imputed``. Rows of NaN are those without the
    view if it may be ``missing``; in a view that is the product of others, so are rows
    with any gap, since infinite entries are refused in the others.
    """
    xp = namespace(block)
    finite = xp.isfinite(block)
    if bool(xp.all(finite)):
        return np.ones(block.shape[0], dtype=bool)
    if missing and view.joint and not imputed:
        return np.asarray(to_numpy(xp.all(finite, axis=1)))
    values = to_numpy(block)
    lacks = np.isnan(values).all(axis=1)
    if not missing:
        refuse_lacking(view, lacks)
    odd = np.isinf(values) if imputed else ~to_numpy(finite)
    odd &= ~lacks[:, None]
    if not odd.any():
        return ~lacks
    i, j = (int(index) for index in np.argwhere(odd)[0])
    found = "NaN" if np.isnan(values[i, j]) else "infinity"
    present = ", but other entries of the row are present" if found == "NaN" else ""
    raise ValueError(
        f"Input X contains {found}: view {view.name!r}, row {i}, column {labels[j]!r} "
        f"holds {values[i, j]} ({counted(odd.any(axis=1).sum(), 'row')} affected)"
        f"{present}. Impute such entries, for example with "
        "sklearn.impute.SimpleImputer in a Pipeline, or drop the rows."
    )


def refuse_lacking(view: View, lacks: np.ndarray) -> None:
    """Refuse rows that lack the view; ``lacks`` (n,) marks them."""
    if np.any(lacks):
        absent = map(str, np.flatnonzero(lacks).tolist())
        raise ValueError(
            f"Input X contains NaN: all entries of the view {view.name!r} are NaN in "
            f"{with_names('row', absent)}. Drop such rows, impute the view, or set "
            "missing='zero' or missing='available' if rows may lack views."
        )


def host_like(X: Any) -> Array:
    """An array with the library, device and floating dtype of rows of any form."""
    return X if is_array(X) else np.empty((0, X.shape[1]), dtype=X.dtype)


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
        block = block.to_numpy()
    elif hasattr(block, "get_column"):
        block = block.cast(_wide_integers())
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
    return single_or_double(block)


def _wide_integers() -> dict[Any, Any]:
    """Types of polars that NumPy does not have, and what is read in their place."""
    import polars as pl

    names = ("Int128", "UInt128")  # of which older versions have one or none
    return {getattr(pl, name): pl.Float64 for name in names if hasattr(pl, name)}


def _from_objects(values: np.ndarray, where: str, labels: list[Any]) -> np.ndarray:
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {where} is complex.")
    if values.dtype.kind in "SU":
        values = values.astype(object)

    def refused(place: tuple[int, ...], value: Any, error: Exception) -> str:
        i, j = place
        found = f"{where}: row {i}, column {labels[j]!r} holds"
        if isinstance(error, OverflowError):
            digits = round(int(value).bit_length() * np.log10(2))
            return (
                f"{found} an integer of about {digits} digits, which is beyond the "
                "range of float64. Correct the entry, drop the row, or take logarithms."
            )
        return (
            f"{found} {value!r:.80}, which is not a number ({error}). Encode the "
            "column as numbers, for example with the kernel 'auto' or "
            "Pipe(OneHotEncoder(), ...), or leave it out."
        )

    return floats_of(values, refused)


def floats_of(
    values: np.ndarray, refused: Callable[[tuple[int, ...], Any, Exception], str]
) -> np.ndarray:
    """Entries of any type as floats, None and NA as NaN; text and times are refused.

    ``refused`` says what is wrong, given the place and value of an entry and the error.
    """
    out = np.empty(values.shape)
    for place, value in np.ndenumerate(values):
        try:
            if isinstance(value, str | bytes):
                raise ValueError("text")
            if isinstance(value, np.datetime64 | np.timedelta64):
                raise ValueError("a time")
            absent = value is None or type(value).__name__ == "NAType"  # of pandas
            out[place] = np.nan if absent else value
        except (TypeError, ValueError, OverflowError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(refused(place, value, error)) from error
    return out

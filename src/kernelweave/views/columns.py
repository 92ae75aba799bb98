"""Views: their specification, and which columns of X belong to each."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from kernelweave._array import is_array, to_numpy
from kernelweave._memory import prefixed

EXPECTED = (
    "views must be None (all columns), 'precomputed', or a list of "
    "(name, kernel, columns) tuples such as [('rna', 'auto', ['g1', 'g2'])]"
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
    """

    name: str
    kernel: Any
    columns: Any
    joint: bool = False


def is_precomputed(views: object) -> bool:
    """Whether ``views`` says that X holds precomputed kernel matrices."""
    return isinstance(views, str) and views == "precomputed"


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
    return View(*view)


def _check_names(names: list[str], reserved: Collection[str]) -> None:
    for index, name in enumerate(names):
        if not name:
            raise ValueError(f"The name of the view at position {index} is empty.")
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
    return f"{type(value).__name__} {value!r:.80}"


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


def is_arrow(X: object) -> bool:
    """Whether X is a pyarrow dataset or table."""
    return type(X).__module__.split(".")[0] == "pyarrow" and hasattr(X, "to_batches")


def is_table(X: object) -> bool:
    """Whether X is a pyarrow table."""
    return is_arrow(X) and hasattr(X, "column_names")


def is_iterator(X: object) -> bool:
    """Whether X yields portions: an iterator or generator, not a list."""
    return hasattr(X, "__next__")


def is_dask(X: object) -> bool:
    """Whether X is a Dask array, DataFrame or Series."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "dask")


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
    X: Any, views: list[View], positions: list[list[int]], fitted: Sequence[str]
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

    Returns
    -------
    positions : list of list of int
        Columns of each view in X.
    """
    names = column_names(X) or []
    if names == list(fitted):
        return positions
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
            f"X lacks the column(s) {_used(absent, users)}, which were present in fit. "
            f"Columns are matched by name: add or rename them.{hint}"
        )
    repeated = [name for name in users if len(found[name]) > 1]
    if repeated:
        raise ValueError(
            f"X has several columns with the name(s) {_used(repeated, users)}. Rename "
            "all but the intended ones."
        )
    return [[found[fitted[c]][0] for c in columns] for columns in positions]


def _positions(X: Any, given: Any, lookup: Lookup) -> list[int]:
    n_columns, key = X.shape[1], given
    if callable(key):
        try:
            key = key(X)
        except (TypeError, ValueError) as error:
            raise ValueError(f"its column selector failed: {error}") from error
    if isinstance(key, slice):
        positions = _from_slice(key, lookup, n_columns)
    else:
        positions = _from_items(_items(key), lookup, n_columns)
    if not positions:
        raise ValueError(
            f"columns={given!r:.80} selects no columns of X. Remove the view."
        )
    if len(set(positions)) < len(positions):
        names, counts = column_names(X) or range(n_columns), Counter(positions)
        twice = [names[c] for c in counts if counts[c] > 1]
        raise ValueError(f"the column(s) {some(map(repr, twice))} are selected twice.")
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
                "columns."
            )
        return [position for position, chosen in enumerate(items) if chosen]
    if not all(_is_integer(item) for item in items):
        kinds = sorted({type(item).__name__ for item in items})
        raise ValueError(f"{ALLOWED}; found a list of {', '.join(kinds)}.")
    outside = [int(item) for item in items if not -n_columns <= item < n_columns]
    if outside:
        raise ValueError(
            f"the column position(s) {some(map(str, outside))} are out of range: X has "
            f"{n_columns} columns, 0 to {n_columns - 1}."
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
            "DataFrame, or give positions."
        )
    if name not in lookup:
        known = [other for other in lookup if isinstance(other, str)]
        close = difflib.get_close_matches(name, known)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"the column {name!r} is not among the {len(lookup)} columns of X.{hint}"
        )
    return lookup[name]


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def some(words: Iterable[str], most: int = 5) -> str:
    """The first few words, and how many more there are."""
    words = list(words)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _used(names: list[str], users: dict[str, list[str]]) -> str:
    """The first few columns, each with the views that use it."""
    return some(
        f"{name!r} (view{'s' * (len(users[name]) > 1)} {some(map(repr, users[name]))})"
        for name in names
    )

"""Ids of samples: read them, find them again, and notice different spellings."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from kernelweave._array import is_array, to_numpy
from kernelweave._text import counted, some, with_names

#: Types of single values with one that stands for nothing: NaN or NaT.
MAY_LACK = (float, np.floating, np.datetime64, np.timedelta64)


def read_ids(values: Any) -> list[Any]:
    """One Python object per sample; None where there is no id.

    Parameters
    ----------
    values : array-like of shape (n,), or of shape (n, 1)
        A list, an array, a pandas or polars Series, an Index, or a frame or table of
        one column.
    """
    if hasattr(values, "iloc") and values.ndim == 2:
        values = values.iloc[:, 0]
    elif hasattr(values, "get_column"):
        values = values.get_column(values.columns[0])
    elif hasattr(values, "column_names"):
        values = values.column(0)
    for method in ("tolist", "to_list", "to_pylist"):  # of pandas, polars, pyarrow
        if hasattr(values, method) and not is_array(values):
            values = getattr(values, method)()
    if is_array(values):
        values = np.asarray(to_numpy(values)).reshape(-1).tolist()
    return [None if is_gap(value) else value for value in values]


def is_gap(value: Any) -> bool:
    """Whether a value stands for nothing: None, NaN, NaT, or pandas' NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, MAY_LACK) and bool(np.isnan(value))


def shown(ids: Iterable[Any], most: int = 3) -> str:
    """The first few ids, and how many more there are."""
    return some(map(repr, ids), most)


def check_distinct(ids: Sequence[Any], owner: str) -> None:
    """Refuse rows without an id and repeated ids; ``owner`` begins the message."""
    gaps = [row for row, value in enumerate(ids) if value is None]
    if gaps:
        raise ValueError(
            f"{owner} has no id in {with_names('row', map(str, gaps))} (counted from "
            "0). Fill in the ids, or drop such rows"
        )
    counts = Counter(ids)
    twice = [value for value in counts if counts[value] > 1]
    if twice:
        examples = some((f"{value!r} ({counts[value]} rows)" for value in twice), 3)
        raise ValueError(
            f"{owner} has {counted(len(twice), 'id')} in several rows: {examples}. "
            "Each sample needs one row: average its rows, or choose one of them"
        )


def plain(value: Any) -> str:
    """The same text for ids that differ only in case, blanks at the ends or type.

    'TCGA-01' and 'tcga-01 ' agree, and so do 7, 7.0, '7' and '007'.
    """
    text = str(value).strip().casefold()
    if "_" in text:  # Decimal would read 1_0 as ten
        return text
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return str(number.normalize()) if number.is_finite() else text


def other_spellings(
    unknown: Iterable[Any], known: Iterable[Any]
) -> list[tuple[Any, Any]]:
    """Pairs of an unknown and a known id that are the same but for their spelling."""
    by_text: dict[str, Any] = {}
    for value in known:
        by_text.setdefault(plain(value), value)
    return [
        (value, by_text[plain(value)]) for value in unknown if plain(value) in by_text
    ]


def spelling_hint(pairs: Sequence[tuple[Any, Any]]) -> str:
    """Advice on ids that differ only in spelling."""
    types = sorted({type(value).__name__ for pair in pairs for value in pair})
    if len(types) > 1:
        return (
            f"Some are {' and some '.join(types)}: convert all of them to one type, "
            "for example with ids.astype(str)"
        )
    texts = [[str(value).strip() for value in pair] for pair in pairs]
    width = max(len(text) for pair in texts for text in pair)
    advice = "Spell them the same way"
    if all(a.upper() == b.upper() for a, b in texts):
        return f"{advice}, for example with ids.str.strip().str.upper()"
    if all(a.zfill(width) == b.zfill(width) for a, b in texts):
        return f"{advice}, for example with ids.str.strip().str.zfill({width})"
    return f"{advice} in both"


def check_kernel_labels(K: Any, name: str) -> None:
    """Refuse a frame (n, n) whose rows and columns are labelled differently.

    Labels that merely count rows or columns are ignored.
    """
    columns = K.columns.tolist()
    if not _has_ids(K) or len(K) != len(columns) or columns == [*range(len(columns))]:
        return
    verdict = _compare(K.index, columns)
    if verdict is None:
        return
    same, i = verdict
    what = "its row labels in another order" if same else "other labels"
    fix = "K.loc[:, K.index]" if same else "the same samples in rows and columns"
    raise ValueError(
        f"{name} has {what} on its columns: row {i} is {K.index.tolist()[i]!r}, but "
        f"column {i} is {columns[i]!r}. Pass {fix}, or K.to_numpy() if the "
        "labels mean nothing"
    )


def check_row_order(X: Any, y: Any, owner: str, name: str = "y") -> None:
    """Compare the pandas indexes of X and y, which other code would ignore.

    Parameters
    ----------
    X, y : DataFrame and Series or DataFrame, of n rows each
        The rows and their targets.
    owner : str
        The estimator, for messages.
    name : str, default="y"
        What y is called in messages.

    Raises
    ------
    ValueError
        If both have the same labels in different orders: then almost surely each row
        would get the target of another one.

    Warns
    -----
    UserWarning
        If they have different labels. An index that merely counts the rows, such as
        that of a new Series, is not a label unless the other one has numbers as well.
    """
    if len(X) != len(y) or X.index.equals(y.index):
        return
    verdict = _compare(X.index, y.index)
    if verdict is None:
        return
    same, i = verdict
    ours, theirs = X.index.tolist()[i], y.index.tolist()[i]  # not np.int64(3)
    where = f"row {i} is {ours!r} in X and {theirs!r} in {name}"
    if same:
        raise ValueError(
            f"{owner}: X and {name} have the same row labels (index) in different "
            f"orders: {where}. Pass {name}.loc[X.index], or {name}.to_numpy() if rows "
            "do belong together in the order given"
        )
    counted = not (_has_ids(X) and _has_ids(y))
    if counted and not set(X.index.tolist()) & set(y.index.tolist()):
        return
    warnings.warn(
        f"{owner}: X and {name} have different row labels (index): {where}. Rows are "
        "taken in the order given. Select the same samples in both, or pass "
        f"{name}.to_numpy() if that order is right",
        UserWarning,
        stacklevel=2,
    )


def _has_ids(frame: Any) -> bool:
    """Whether the index of a pandas object does more than count its rows."""
    index = frame.index
    counts = type(index).__name__ == "RangeIndex" and index.start == 0
    return not (counts and index.step == 1)


def _compare(left: Any, right: Any) -> tuple[bool, int] | None:
    """None if both have the same labels in the same order, up to their spelling.

    Otherwise whether they have the same labels at all, and the first place at which
    they differ.
    """
    left, right = [*map(plain, left)], [*map(plain, right)]
    if left == right:
        return None  # a file may have turned one of them into text
    pairs = enumerate(zip(left, right, strict=True))
    return Counter(left) == Counter(right), next(i for i, (a, b) in pairs if a != b)

"""Several tables of the same samples, aligned by id into one frame and its views."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations
from typing import Any

from sklearn.utils import Bunch

from kernelweave._text import counted, did_you_mean, prefixed, some, with_names
from kernelweave.exceptions import library
from kernelweave.views.columns import is_table
from kernelweave.views.ids import (
    check_distinct,
    is_gap,
    other_spellings,
    read_ids,
    shown,
    spelling_hint,
)

#: Name of the column of ids if the tables have them in their indexes.
ID = "id"


def join_tables(
    tables: Mapping[str, Any],
    on: str | Mapping[str, str | None] | None = None,
    *,
    target: str | None = None,
    kernel: Any = "auto",
) -> Bunch:
    """Align tables of the same samples by id: one row per sample, one view per table.

    A sample that is absent from a table lacks that view: its entries there are missing,
    which the ``missing`` parameter of the estimators understands. Ids must agree
    exactly. If some differ in case, blanks or type only, or if tables have no ids in
    common, that is an error with examples, since nearly everything would be missing.

    Parameters
    ----------
    tables : dict of str to DataFrame
        pandas or polars frames, or pyarrow tables, with one row per sample. The keys
        become the names of the views.
    on : str, dict of str to str, or None, default=None
        Name of the column (or of the pandas index) with the ids, for all tables or for
        each; None is the pandas index.
    target : str, default=None
        The column to be predicted, in one of the tables. It is in no view. Samples
        without it, or with nothing else, are left out.
    kernel : kernel or dict of str to kernel, default="auto"
        The kernel of the views, for all tables or for each; "auto" for those that a
        dict does not name.

    Returns
    -------
    joined : Bunch
        data : pandas.DataFrame of shape (n, d)
            One row per sample, with the ids as its index, in the order of the first
            table and then of the others. The first column also holds the ids, for
            :class:`~kernelweave.kernels.Similarity`; it is in no view. Column ``age``
            of table ``clinical`` is called ``clinical.age``.
        views : list of (name, kernel, columns)
            For the ``views`` parameter of the estimators. Tables without columns
            besides ids and target have none; one of ids alone adds samples, such as
            those of a :class:`~kernelweave.kernels.Similarity`.
        target : pandas.Series of length n
            If ``target`` is given, with the same index.
        shared : pandas.DataFrame of shape (t, t)
            How many samples each pair of tables shares; on the diagonal, the number of
            samples in a table.
        left_out : list
            Ids of samples without a target, or with nothing but a target.
        summary : str
            All this in words.

    Examples
    --------
    >>> import pandas as pd
    >>> from kernelweave import join_tables
    >>> rna = pd.DataFrame({"patient": ["a", "b", "c"], "g1": [0.1, 0.5, 0.9]})
    >>> clinical = pd.DataFrame({"patient": ["c", "a"], "age": [61, 48], "ill": [1, 0]})
    >>> joined = join_tables({"rna": rna, "clinical": clinical}, on="patient")
    >>> print(joined.data.to_string(index=False))
    patient  rna.g1  clinical.age  clinical.ill
          a     0.1          48.0           0.0
          b     0.5           NaN           NaN
          c     0.9          61.0           1.0
    >>> print(joined.summary)
    3 samples from 2 tables, matched by 'patient'
      rna: 3 samples, 1 column; no sample lacks it
      clinical: 2 samples, 2 columns; 1 sample lacks it
      in rna and in clinical: 2 samples
      in every table: 2 samples
    """
    if not _is_dict(tables) or not tables:
        raise TypeError(
            "join_tables needs a dict from names to tables, such as {'rna': rna, "
            f"'clinical': clinical}}; found {type(tables).__name__}."
        )
    _check_keys(on, tables, "on")
    _check_keys(kernel, tables, "kernel")
    needed = "join_tables needs pandas: pip install 'kernelweave[tables]'"
    pandas = library("pandas", needed)
    frames: dict[str, Any] = {}
    id_names = []
    for name, table in tables.items():
        if type(name) is not str or not name:
            raise TypeError(f"The name of a table must be a str; found {name!r}.")
        with prefixed(f"Table {name!r}: "):
            column = on.get(name) if isinstance(on, Mapping) else on
            frames[name], id_name = _by_id(_as_pandas(table, pandas), column)
            id_names.append(id_name)
    ids = {name: frame.index.tolist() for name, frame in frames.items()}
    _check_matches(ids)
    everyone = list(dict.fromkeys(chain.from_iterable(ids.values())))
    known, seen, labels = set(everyone), set(everyone), None
    if target is not None:
        labels, owner = _take_target(frames, target)
        known = {i for i, v in zip(labels.index, labels, strict=True) if not is_gap(v)}
        if not frames[owner].shape[1]:
            seen = {v for name in ids if name != owner for v in ids[name]}
    if not any(frame.shape[1] for frame in frames.values()):
        raise ValueError("The tables have no columns besides ids and target.")
    kept = known & seen
    # Without a name, which the column of ids has already.
    index = pandas.Index([value for value in everyone if value in kept])
    data, views = _side_by_side(frames, index, id_names[0], kernel)
    present = pandas.DataFrame({name: index.isin(own) for name, own in ids.items()})
    found = Bunch(
        data=data,
        views=views,
        shared=present.astype(int).T @ present.astype(int),
        left_out=[value for value in everyone if value not in kept],
    )
    if labels is not None:
        found.target = labels.reindex(index)
    found.summary = _summary(found, frames, int(present.all(axis=1).sum()))
    return found


def _check_keys(given: Any, tables: Mapping[str, Any], parameter: str) -> None:
    unknown = [key for key in given if key not in tables] if _is_dict(given) else []
    if unknown:
        raise ValueError(
            f"{parameter} names {with_names('the table', map(repr, unknown), 3)}; the "
            f"tables are {some(map(repr, tables))}."
        )


def _is_dict(value: Any) -> bool:
    return isinstance(value, Mapping)


def _as_pandas(table: Any, pandas: Any) -> Any:
    """A pandas frame with the columns of a pandas, polars or pyarrow table."""
    if isinstance(table, pandas.DataFrame):
        return table
    if is_table(table):
        return table.to_pandas()
    if hasattr(table, "collect") and not hasattr(table, "get_column"):
        raise TypeError("it is lazy; pass table.collect().")
    if hasattr(table, "get_column"):  # polars, column by column: needs no pyarrow
        columns: dict[str, Any] = {}
        for name in table.columns:
            column = table.get_column(name)
            columns[name] = column.to_numpy()
            if str(column.dtype).startswith(("Categorical", "Enum")):
                columns[name] = pandas.Categorical(column.to_list())
        return pandas.DataFrame(columns)
    raise TypeError(
        "a pandas or polars DataFrame, or a pyarrow table, is needed; found "
        f"{type(table).__name__}."
    )


def _by_id(frame: Any, column: str | None) -> tuple[Any, Any]:
    """The frame with checked ids as its index, and the name of the ids."""
    twice = frame.columns[frame.columns.duplicated()].tolist()
    if twice:
        raise ValueError(
            f"it repeats {with_names('the column name', map(repr, twice), 3)}; rename "
            "these columns."
        )
    if frame.index.nlevels > 1:
        raise ValueError(
            f"its index has {frame.index.nlevels} levels; use one of them, or a column "
            "with ids."
        )
    if column is None or (column not in frame.columns and column == frame.index.name):
        if column is None and type(frame.index).__name__ == "RangeIndex":
            raise ValueError(
                "its index merely counts the rows. Name the column that holds the ids "
                f"in on=; the columns are {shown(frame.columns.tolist(), 5)}."
            )
        name, ids = frame.index.name or ID, frame.index
    elif column in frame.columns:
        name, ids = column, frame[column]
        frame = frame.drop(columns=column)
    else:
        known = [other for other in frame.columns if isinstance(other, str)]
        raise ValueError(
            f"there is no column {column!r} with ids; the columns are "
            f"{shown(frame.columns.tolist(), 5)}.{did_you_mean(str(column), known)} If "
            "names differ between tables, give on={table: column, ...}."
        )
    found = read_ids(ids)
    check_distinct(found, "it")
    return frame.set_axis(found, axis=0), name


def _check_matches(ids: dict[str, list[Any]]) -> None:
    """Refuse ids that are spelled differently, and tables that share no sample."""
    for one, other in combinations(ids, 2):
        # 1 and 1.0 are equal to Python, but hint at ids that were read differently.
        left, right = ({(type(v), v) for v in ids[name]} for name in (one, other))
        only_left = [v for v in ids[one] if (type(v), v) not in right]
        only_right = [v for v in ids[other] if (type(v), v) not in left]
        pairs = other_spellings(only_left, only_right)
        if pairs:
            examples = ", ".join(f"{a!r} and {b!r}" for a, b in pairs[:3])
            raise ValueError(
                f"The tables {one!r} and {other!r} spell {counted(len(pairs), 'id')} "
                f"differently: {examples}. {spelling_hint(pairs)}."
            )
    for name, own in ids.items():
        others = {value for key in ids if key != name for value in ids[key]}
        if len(ids) > 1 and others.isdisjoint(own):
            another = next(key for key in ids if key != name)
            raise ValueError(
                f"The table {name!r} shares no id with any other table: it has "
                f"{shown(own)}, while {another!r} has {shown(ids[another])}. "
                "Choose the column of the ids that the tables share; in Python, its "
                "name may differ between tables: on={table: column, ...}."
            )


def _take_target(frames: dict[str, Any], target: str) -> tuple[Any, str]:
    """The column to be predicted, taken out of its frame, and its table."""
    owners = [name for name, frame in frames.items() if target in frame.columns]
    if len(owners) != 1:
        known = [str(c) for frame in frames.values() for c in frame.columns]
        found, hint = "no table", did_you_mean(str(target), known)
        if owners:
            found = f"the tables {some(map(repr, owners))}"
            hint = " Drop it from all but one."
        raise ValueError(
            f"target={target!r} must be a column of one table; it is in {found}.{hint}"
        )
    frame = frames[owners[0]]
    frames[owners[0]] = frame.drop(columns=target)
    return frame[target], owners[0]


def _side_by_side(
    frames: dict[str, Any], index: Any, id_name: str, kernel: Any
) -> tuple[Any, list[tuple[str, Any, list[str]]]]:
    """One frame with the rows of ``index`` and the columns of all; and its views."""
    import pandas

    parts = [pandas.DataFrame({id_name: index}, index=index)]
    views = []
    for name, frame in frames.items():
        if not frame.shape[1]:
            continue
        flags = frame.columns[frame.dtypes == "bool"]
        if len(flags):  # gaps would turn booleans into objects
            frame = frame.astype(dict.fromkeys(flags, "boolean"))
        part = frame.reindex(index)
        part.columns = [f"{name}.{column}" for column in frame.columns]
        parts.append(part)
        own = kernel.get(name, "auto") if _is_dict(kernel) else kernel
        views.append((name, own, list(part.columns)))
    data = pandas.concat(parts, axis=1)
    twice = data.columns[data.columns.duplicated()].tolist()
    if twice:
        raise ValueError(
            f"{with_names('The column name', map(repr, twice), 3)} would be repeated; "
            "rename the columns or the tables."
        )
    return data, views


def _summary(found: Bunch, frames: dict[str, Any], whole: int) -> str:
    """How many samples each table has and shares, one line each."""
    n, shared = len(found.data), found.shared
    lines = [
        f"{counted(n, 'sample')} from {counted(len(frames), 'table')}, matched by "
    ]
    lines[0] += repr(found.data.columns[0])
    for name, frame in frames.items():
        lacking = n - shared.loc[name, name]
        verb = "lacks" if lacking < 2 else "lack"
        lines.append(
            f"  {name}: {counted(n - lacking, 'sample')}, "
            f"{counted(frame.shape[1], 'column')}; "
            f"{counted(lacking, 'sample') if lacking else 'no sample'} {verb} it"
        )
    for one, other in combinations(frames, 2):
        both = counted(shared.loc[one, other], "sample")
        lines.append(f"  in {one} and in {other}: {both}")
    if len(frames) > 1:
        lines.append(f"  in every table: {counted(whole, 'sample')}")
    if "target" in found:
        gone = (
            f"; {counted(len(found.left_out), 'sample')} without it, or with nothing "
        )
        lines.append(f"  target {found.target.name!r}")
        lines[-1] += f"{gone}else, left out" if found.left_out else ""
    return "\n".join(lines)

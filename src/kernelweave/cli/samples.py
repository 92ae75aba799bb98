"""From the files of a command to rows, views, targets and groups."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave._text import counted, some, with_names
from kernelweave.cli.read import (
    MUDATA,
    line_of,
    pandas_or_why,
    read_frame,
    read_mudata,
    suggest,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.views.columns import id_reader
from kernelweave.views.ids import check_distinct, read_ids
from kernelweave.views.raw_columns import DATE
from kernelweave.views.tables import join_tables

#: A column with more distinct values than this hardly ever holds classes.
MANY = 20
#: The view of columns without an underscore, if views are prefixes.
OTHER_VIEW = "other"
#: Header of the column that counts the rows of a file without ids.
ROW = "row"

#: Name, kernel and columns.
View = tuple[str, Any, list[str]]


@dataclass(frozen=True)
class Tables:
    """The files of a command, read.

    Attributes
    ----------
    frames : dict of str to DataFrame
        One table per file, with the ids as its index; a single file without a name is
        called "", and its rows are numbered from 1 if they have no ids.
    files : dict of str to str
        The file of each table.
    id : str or None
        Column of the ids. None: the ids are the index, or a single file has none.
    """

    frames: dict[str, Any]
    files: dict[str, str]
    id: str | None

    @property
    def alone(self) -> bool:
        """Whether there is one file, whose columns keep their names."""
        return list(self.frames) == [""]

    def owners(self, column: str) -> list[tuple[str, str]]:
        """Tables that have a column, given by its name or as TABLE.COLUMN."""
        frames = self.frames.items()
        split = {name: column.removeprefix(f"{name}.") for name in self.frames}
        found = [(name, column) for name, frame in frames if column in frame]
        return found or [(n, split[n]) for n, frame in frames if split[n] in frame]

    def find(self, column: str, what: str) -> tuple[str, str]:
        """The one table that has a column, and the column's name there."""
        found = self.owners(column)
        if not found:
            known = [str(c) for frame in self.frames.values() for c in frame.columns]
            where = some(self.files.values())
            raise ValueError(
                f"{what} {column!r} is not in {where}; {suggest(column, known)}"
            )
        if len(found) > 1:
            raise ValueError(
                f"{what} {column!r} is in {some(self.files[n] for n, _ in found)}; say "
                f"which one you mean, as in {found[0][0]}.{column}"
            )
        return found[0]

    def copies(self, column: str, other: str) -> bool:
        """Whether two columns have the same name, apart from a MuData modality."""
        if self.id is None and not self.alone:
            return column.rpartition(":")[2] == other.rpartition(":")[2]
        return column == other


@dataclass(frozen=True)
class Samples:
    """Rows to learn from, or to predict.

    Attributes
    ----------
    data : DataFrame of shape (n, d)
        The columns of all views. Its index holds the ids or, for a file without ids,
        numbers of rows from 1.
    id_name : str
        Name of the ids.
    views : list of (name, kernel, columns)
        For the ``views`` parameter.
    target : Series of length n, or None
        Values of the label column; None if there is none.
    groups : ndarray of shape (n,) or None
        Values of the groups column.
    remarks : list of str
        Remarks on the rows, to be printed.
    """

    data: Any
    id_name: str
    views: list[View]
    target: Any
    groups: np.ndarray | None
    remarks: list[str] = field(default_factory=list)

    def lacking(self) -> list[str]:
        """Names of the views that each row lacks, separated by semicolons."""
        gaps = [self.data[own].isna().all(axis=1) for _, _, own in self.views]
        names = [name for name, _, _ in self.views]
        return ["; ".join(compress(names, row)) for row in zip(*gaps, strict=True)]


def read_tables(arguments: Sequence[str], id_column: str | None) -> Tables:
    """Read the files named on the command line.

    Parameters
    ----------
    arguments : sequence of str
        ``FILE``, or ``NAME=FILE`` for each table.
    id_column : str or None
        Column of the ids.
    """
    frames: dict[str, Any] = {}
    files: dict[str, str] = {}
    if len(arguments) == 1 and Path(arguments[0]).suffix.lower() in MUDATA:
        frames = read_mudata(arguments[0])
        if id_column is not None:
            raise ValueError(f"{arguments[0]} brings its own ids; leave out --id")
        return Tables(frames, dict.fromkeys(frames, arguments[0]), None)
    ids = [] if id_column is None else [id_column]
    for text in arguments:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            path = text
            name = "" if len(arguments) == 1 else Path(text).name.partition(".")[0]
        if name in frames:
            raise ValueError(
                f"two tables are called {name!r}: {files[name]} and {path}; give them "
                "names: NAME=FILE"
            )
        frames[name], files[name] = read_frame(path, ids), path
    if "" in frames and len(frames) > 1:
        raise ValueError(f"the table {files['']} has no name; use NAME=FILE")
    tables = Tables(frames, files, id_column)
    for name, frame in frames.items():
        given = range(1, len(frame) + 1) if id_column is None else frame.get(id_column)
        if given is None:
            raise ValueError(
                f"{files[name]} has no column {id_column!r} with ids; "
                f"{suggest(str(id_column), list(frame.columns))}"
            )
        index = pandas_or_why().Index(read_ids(given), name=id_column or ROW)
        frames[name] = frame.set_axis(index, axis=0)
    if id_column is None and not tables.alone:
        common = set.intersection(*(set(frame.columns) for frame in frames.values()))
        hint = f"; all of them have {some(map(repr, sorted(common)))}" if common else ""
        raise ValueError(f"tables are joined by id: name its column with --id{hint}")
    return tables


def training_samples(tables: Tables, options: argparse.Namespace) -> Samples:
    """Join the tables, and take label, groups and dropped columns out of the views."""
    if not options.label:
        raise ValueError("name the column to predict with --label")
    label = set(tables.owners(options.label))
    if tables.id in [own for _, own in label]:
        raise ValueError(
            f"--label {options.label} holds the ids; choose another column"
        )
    others = [("drop", column) for column in options.drop]
    others += [("groups", options.groups)] if options.groups else []
    for option, column in others:
        if label and label <= set(tables.owners(column)):
            raise ValueError(f"--{option} {column} is the label; choose another column")
    tables, remarks = _dropped(tables, options.drop)
    if options.groups:  # before the label, which may be the last column of its table
        tables, groups = _taken(tables, options.groups, "the column of groups")
    joined = _join(tables, options.label)
    if options.groups:
        groups = groups.reindex(joined.data.index)
        if groups.isna().any():
            lost = groups.index[groups.isna()].tolist()[0]
            raise ValueError(
                f"the column of groups {options.groups!r} is empty for "
                f"{joined.id_name} {lost!r}; fill it in, or remove the row"
            )
    views = choose_views(joined.views, options)
    if not views:
        raise ValueError(
            f"{some(tables.files.values())}: there are no columns besides the label "
            f"{options.label!r}"
        )
    used = dict.fromkeys(c for _, _, columns in views for c in columns)
    unused = [c for _, _, own in joined.views for c in own if c not in used]
    if unused:
        remarks.append(f"Columns not used: {some(unused, 10)}")
    return replace(
        joined,
        data=with_dates(joined.data[list(used)], tables.files.values()),
        views=views,
        groups=groups.to_numpy() if options.groups else None,
        remarks=[*joined.remarks, *remarks],
    )


def check_unnamed(
    arguments: Sequence[str], columns: Sequence[str], files: Sequence[str]
) -> None:
    """Refuse names of tables, or several tables, for a model of one table.

    Parameters
    ----------
    arguments : sequence of str
        The tables of new rows, as ``FILE`` or ``NAME=FILE``.
    columns : sequence of str
        The columns that the model was fitted to. Those of several tables are called
        TABLE.COLUMN, which a column of a single one may be, too.
    files : sequence of str
        The arguments of the fit; empty if they are unknown.
    """
    joined = all("." in name for name in columns)
    if len(files) == 1 and Path(files[0]).suffix.lower() not in MUDATA:
        joined = "=" in files[0] and joined
    if joined:
        return
    one = f"the model was fitted to one table, with the columns {some(columns, 5)}"
    if len(arguments) > 1:
        raise ValueError(f"{one}; pass one file with all of them")
    name, equals, path = arguments[0].partition("=")
    if equals and not Path(arguments[0]).exists():
        raise ValueError(f"{one}; pass {path!r} without {name + equals!r} before it")


def new_samples(tables: Tables, model: Any, label: str | None) -> Samples:
    """Rows to be predicted by a fitted model, with NaN for tables that are absent."""
    target = None
    if label is not None and tables.owners(label):
        tables, target = _taken(tables, label, "the label column")
    check_numbers(tables, number_columns(model))
    wanted = [str(name) for name in model.feature_names_in_]
    joined = _join(tables, None)
    given = {
        name: [c for c in wanted if tables.alone or c.startswith(f"{name}.")]
        for name in tables.frames
    }
    known = set(joined.data.columns)
    for name, columns in given.items():
        lost = [c for c in columns if c not in known]
        if lost:
            other = "leave out the whole table"
            if tables.alone:
                other = "if the fit had several tables, pass NAME=FILE as it did"
            raise ValueError(
                f"{tables.files[name]} lacks {counted(len(lost), 'column')} that the "
                f"model was fitted to: {some(lost)}; add what is missing, or {other}"
            )
    unknown = [name for name, columns in given.items() if not columns]
    if len(unknown) == len(given):
        known_tables = sorted({c.partition(".")[0] for c in wanted})
        raise ValueError(
            f"none of the tables {some(map(repr, tables.frames))} is known to the "
            "model; pass NAME=FILE with the names used in the fit: "
            f"{some(map(repr, known_tables))}"
        )
    if unknown:
        these = with_names("the table", unknown)
        warnings.warn(f"the model does not know {these}", KernelWarning, stacklevel=2)
    views = views_of_model(model)
    gone = [n for n, _, columns in views if known.isdisjoint(columns)]
    if gone:
        these = with_names("the view", gone)
        warnings.warn(f"no row has {these}", KernelWarning, stacklevel=2)
    if target is not None:
        target = target.reindex(joined.data.index)
    texts = [r["column"] for r in model.column_summary_ if r["kind"] == "text"]
    data = joined.data.reindex(columns=wanted)
    data = with_dates(data, tables.files.values(), texts)
    found = replace(joined, data=data, views=views, target=target)
    return with_labels(found, tables, model)


def number_columns(model: Any) -> set[str]:
    """Names of the columns that a fitted model uses as numbers, as they are."""
    of_ids = {view.name for view in model._views if id_reader(view) is not None}
    return {
        record["column"]
        for record in model.column_summary_
        if record["kind"] == record["use"] == "number" and record["view"] not in of_ids
    }


def check_numbers(tables: Tables, columns: Collection[str]) -> None:
    """Refuse text in columns of numbers; say in which file and line it is."""
    pandas = pandas_or_why()
    for name, frame in tables.frames.items():
        for column in frame.columns:
            cells = frame[column]
            full_name = column if tables.alone else f"{name}.{column}"
            numeric = pandas.api.types.is_numeric_dtype(cells)
            if numeric or full_name not in columns:
                continue
            is_text = cells.map(lambda value: isinstance(value, str)).to_numpy(bool)
            texts = cells.where(is_text).astype(str)
            numbers = [
                pandas.to_numeric(form, errors="coerce").notna().to_numpy()
                for form in (texts, texts.str.replace(",", "."))
            ]
            # text made the rest of the column text, which is not what is wrong
            odd = is_text & ~numbers[0] & ~numbers[1]
            wrong = odd if odd.any() else is_text
            if not wrong.any():
                continue
            row = int(wrong.argmax())
            where = f"{frame.index.name} {frame.index.tolist()[row]!r}"
            if (line := line_of(tables.files[name], row)) is not None:
                where = f"line {line} ({where})"
            raise ValueError(
                f"{tables.files[name]}, {where}: the column {column!r} holds "
                f"{cells.iloc[row]!r:.80}, but held numbers when the model was fitted "
                f"({counted(wrong.sum(), 'cell')} with text); write it as a number, or "
                "leave the cell empty"
            )


def with_dates(data: Any, files: Iterable[str], texts: Sequence[str] = ()) -> Any:
    """The same rows; text that looks like dates becomes dates, except in ``texts``.

    Dates are those in UTC, which are the same wherever a file was written.
    """
    pandas = pandas_or_why()
    data = data.copy(deep=False)
    found = data.columns[data.dtypes.map(pandas.api.types.is_string_dtype)]
    for name in found.difference(texts, sort=False):
        values = data[name].dropna()
        if pandas.api.types.infer_dtype(values) != "string":
            continue  # early versions of pandas: truth values with gaps
        if values.astype(str).str.fullmatch(DATE).all():
            how = {"format": "ISO8601", "errors": "coerce", "utc": True}
            dates = pandas.to_datetime(data[name], **how).dt.tz_localize(None)
            lost = data.loc[dates.isna() & data[name].notna(), name].tolist()
            if lost:
                raise ValueError(
                    f"{some(files)}: the column {name!r} holds "
                    f"{lost[0]!r} among dates; correct it, or leave the cell empty"
                )
            data[name] = dates
    return data


def with_labels(samples: Samples, tables: Tables, model: Any) -> Samples:
    """The same rows; labels that look like dates become dates, as columns do.

    A CSV file then has the same labels as a spreadsheet. The classes of a fitted model
    stay as they are.
    """
    labels, classes = samples.target, getattr(model, "classes_", ())
    if labels is None or set(labels).intersection(classes):
        return samples
    dated = with_dates(labels.to_frame(), tables.files.values())
    return replace(samples, target=dated.iloc[:, 0])


def with_columns_of(model: Any, samples: Samples, tables: Tables) -> Samples:
    """The same rows with the columns of a fitted model, in its order."""
    wanted = [str(name) for name in model.feature_names_in_]
    lost = [name for name in wanted if name not in samples.data]
    if lost and tables.owners(lost[0]):
        raise ValueError(
            f"the model was fitted to the column {lost[0]!r}, which --id, --label, "
            "--groups, --drop or the file of settings takes out of its view; change it"
        )
    if lost:
        raise ValueError(
            f"{', '.join(tables.files.values())}: these are not the rows that the "
            f"model was fitted to, since the column {lost[0]!r} is missing; name the "
            "files of the fit"
        )
    return replace(samples, data=samples.data[wanted], views=views_of_model(model))


def views_of_model(model: Any) -> list[View]:
    """The views of a model that was fitted to a table, with their column names."""
    names = [str(name) for name in model.feature_names_in_]
    return [
        (view.name, view.kernel, [names[i] for i in positions])
        for view, positions in zip(model._views, model._positions, strict=True)
        if not view.joint  # the columns of other views
    ]


def _join(tables: Tables, label: str | None) -> Samples:
    """One row per sample, one view per table; rows without a label are left out."""
    if tables.alone:
        return _single(tables, label)
    frames, target, copies = dict(tables.frames), None, []
    if label is not None:
        owner, target = tables.find(label, "the label column")
        frames[owner] = frames[owner].rename(columns={target: "\0label"})
        for name, frame in frames.items():  # copies would give the answer away
            own = [c for c in map(str, frame.columns) if tables.copies(c, target)]
            copies += [(name, column) for column in own]
            frames[name] = frame.drop(columns=own)
    joined = join_tables(
        frames, on=tables.id, target=None if target is None else "\0label"
    )
    remarks = joined.summary.replace(repr("\0label"), repr(label)).splitlines()
    remarks += [
        f"  left out of {name}: {column!r}, a copy of the label"
        for name, column in copies
    ]
    found = joined.target.rename(label) if target is not None else None
    id_name = str(joined.data.columns[0])
    return Samples(joined.data, id_name, joined.views, found, None, remarks)


def _single(tables: Tables, label: str | None) -> Samples:
    (frame,), (path,) = tables.frames.values(), tables.files.values()
    try:
        check_distinct(read_ids(frame.index), path)
    except ValueError as error:
        if label is None:  # new rows have no groups
            raise
        raise ValueError(
            f"{error}; if several rows belong together, leave out --id and use "
            f"--groups {tables.id}"
        ) from None
    frame, id_name = frame.drop(columns=tables.id or []), str(frame.index.name)
    target, remarks = None, [f"Data: {path}, {counted(len(frame), 'row')}"]
    if label is not None:
        _, label = tables.find(label, "the label column")
        kept = frame[label].notna()
        if not kept.any():
            raise ValueError(f"{path}: the label column {label!r} is empty")
        if not kept.all():
            remarks[0] += f"; without a label and left out: {(~kept).sum()}"
        frame, target = frame[kept].drop(columns=label), frame[label][kept]
    views = [("", "auto", [str(name) for name in frame.columns])]
    return Samples(frame, id_name, views, target, None, remarks)


def _dropped(tables: Tables, drop: Sequence[str]) -> tuple[Tables, list[str]]:
    frames = dict(tables.frames)
    for column in drop:
        # find raises if no table has the column
        owners = tables.owners(column) or [tables.find(column, "the column to drop")]
        for name, own in owners:
            if own != tables.id:  # which is not a feature anyway
                frames[name] = frames[name].drop(columns=own, errors="ignore")
    remarks = [f"Columns dropped: {some(drop, 10)}"] if drop else []
    return replace(tables, frames=frames), remarks


def _taken(tables: Tables, column: str, what: str) -> tuple[Tables, Any]:
    """The tables without a column, and that column; a table left empty is dropped."""
    name, own = tables.find(column, what)
    frame = tables.frames[name]
    values = frame[own]
    if own == tables.id:
        return tables, values
    frames = dict(tables.frames)
    frames[name] = frame.drop(columns=own)
    if not tables.alone and not set(frames[name].columns) - {tables.id}:
        check_distinct(read_ids(frame.index), f"Table {name!r}: it")
        del frames[name]
    return replace(tables, frames=frames), values


def choose_views(tables: list[View], options: argparse.Namespace) -> list[View]:
    """Group columns into views, each with its kernel.

    Parameters
    ----------
    tables : list of (name, kernel, columns)
        The columns of each table, without label, ids and groups. A table called ""
        is a single file, which becomes the view "all" unless the options say otherwise.
    options : argparse.Namespace
        With ``view``, ``view_prefix``, ``kernel`` and ``view_settings``.
    """
    columns = [c for _, _, own in tables for c in own]
    views = {name: own for name, _, own in tables if name and own}
    if options.view_prefix:
        views = {}
        for column in columns:
            prefix, underscore, _ = column.partition("_")
            view = prefix if underscore and prefix else OTHER_VIEW
            views.setdefault(view, []).append(column)
    given: set[str] = set()
    for text in options.view:
        name, equals, wanted = (part.strip() for part in text.partition("="))
        if not (name and equals and wanted):
            raise ValueError(f"--view must be NAME=COLUMNS; got {text!r}")
        if name in given:
            raise ValueError(
                f"the view {name!r} is given twice; list all its columns at once"
            )
        given.add(name)
        items = filter(None, map(str.strip, wanted.split(",")))
        views[name] = matching(name, items, columns)
    kernels: dict[str, Any] = {}
    for name, setting in options.view_settings.items():
        try:
            if "columns" in setting and name not in given:
                views[name] = matching(name, setting["columns"], columns)
            if name not in views:
                raise ValueError(
                    f"'columns' is missing, and there is no table called {name!r}"
                )
            out = set(matching(name, setting.get("drop", ()), views[name]))
        except ValueError as error:
            raise ValueError(f"{options.views}: [views.{name}]: {error}") from None
        views[name] = [column for column in views[name] if column not in out]
        kernels[name] = setting.get("kernel")
    if not views and columns:
        views = {"all": columns}
    usual = options.kernel or "auto"
    return [
        (name, kernels.get(name) or usual, own) for name, own in views.items() if own
    ]


def matching(view: str, items: Any, columns: Sequence[str]) -> list[str]:
    """Columns of these names, else those that match the patterns, else the prefixes."""
    chosen: list[str] = []
    known = set(columns)
    for item in items:
        found = [item] if item in known else []
        found = found or [name for name in columns if fnmatchcase(name, item)]
        found = found or [name for name in columns if name.startswith(item)]
        if not found:
            raise ValueError(
                f"view {view!r}: no column is called {item!r}, matches it or begins "
                f"with it; {suggest(item, columns)}"
            )
        chosen += found
    return list(dict.fromkeys(chosen))


def read_target(samples: Samples, task: str | None) -> tuple[np.ndarray, str, str]:
    """The target as an array, the task, and the reason for it.

    Parameters
    ----------
    samples : Samples
        With a target.
    task : {"classification", "regression"} or None
        As given by the user; None: infer it.

    Returns
    -------
    y : ndarray of shape (n,)
        Integers or strings for a classification, floats for a regression.
    task : str
        "classification" or "regression".
    why : str
        What the column holds.
    """
    name, values = samples.target.name, samples.target.dropna()
    n, k = len(values), values.nunique()
    pandas = pandas_or_why()
    of_kind = pandas.api.types
    numeric = of_kind.is_numeric_dtype(values) and not of_kind.is_bool_dtype(values)
    if task == "regression" and not numeric:  # a spreadsheet may hold numbers as text
        read = pandas.to_numeric(values.astype(str), errors="coerce")
        if read.isna().any():
            text = values[read.isna()].tolist()[0]
            raise ValueError(
                f"the label column {name!r} holds {str(text)!r}, which is not a "
                "number; a regression needs numbers"
            )
        values, numeric = read, True
    numbers = values.to_numpy(dtype=float) if numeric else np.empty(0)
    if not np.isfinite(numbers).all():
        raise ValueError(f"the label column {name!r} holds infinity; correct the cell")
    broken = numbers[numbers != np.round(numbers)]
    kind = "text" if not numeric else "number" if len(broken) else "whole number"
    holds = f"column {name!r} holds {counted(k, f'distinct {kind}')}"
    many, most = k > MANY, k > max(2, n / 2)
    if task is None and kind == "text" and most and (many or k == n):
        raise ValueError(
            f"the label {holds} in {n} rows, which look like row names rather than "
            "classes; name the column of classes with --label, or use --task "
            "classification if they are classes after all"
        )
    if task is None and kind == "whole number" and (many or most):
        raise ValueError(
            f"the label {holds} in {n} rows: are they measurements or classes? Use "
            "--task regression or --task classification"
        )
    task = task or ("regression" if len(broken) else "classification")
    if task == "classification" and len(broken):
        raise ValueError(
            f"the label column {name!r} holds numbers such as {broken[0]:g}, which are "
            "not classes; use --task regression, or bin them into a few classes"
        )
    if not numeric:
        y = np.array([str(value).strip() for value in values])
    else:
        y = numbers if task == "regression" else numbers.astype(np.int64)
    return y, task, f"the {holds}"

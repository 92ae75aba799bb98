"""Read a table of samples, and check the column of classes."""

from __future__ import annotations

import csv
import difflib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

#: A column with more distinct values than this hardly ever holds classes.
MANY = 20
#: Texts that count as an empty cell, in lower case.
MISSING = ("", "na", "n/a", "nan", "null")
DELIMITERS = ",;\t"
#: The view of columns without an underscore, if views are prefixes.
OTHER_VIEW = "other"


@dataclass(frozen=True)
class Table:
    """A table of strings.

    Attributes
    ----------
    path : Path
        The file.
    header : list of str
        Column names.
    rows : list of list of str
        The cells.
    lines : list of int
        The line of the file on which each row ends.
    """

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    @cached_property
    def _positions(self) -> dict[str, int]:
        """Position of each column; searching the header each time is quadratic."""
        return {name: j for j, name in enumerate(self.header)}

    def text(self, column: str) -> list[str]:
        """A column as written in the file, without blanks around the cells."""
        j = self._positions[column]
        return [row[j].strip() for row in self.rows]

    def labels(self, column: str, check: bool = True) -> np.ndarray:
        """A column of classes (n,): integers if all of them are, otherwise strings.

        With ``check``, measurements and row names are refused, which a classifier would
        happily learn.
        """
        texts = self.text(column)
        for line, text in zip(self.lines, texts, strict=True):
            if text.lower() in MISSING:
                raise ValueError(
                    f"{self.path}, line {line}: the label column {column!r} is empty; "
                    "remove the row, or fill in its class"
                )
        labels, numbers = np.asarray(texts), [number(text) for text in texts]
        holds = f"the label column {column!r} of {self.path} holds"
        if None not in numbers:
            values = np.asarray(numbers, dtype=float)
            fractions = values != np.round(values)
            if np.any(fractions):
                raise ValueError(
                    f"{holds} {len(set(numbers))} different numbers such as "
                    f"{texts[np.argmax(fractions)]}, which are not classes; bin them "
                    "into a few classes, or use MultipleKernelRidge in Python, since "
                    "'kernelweave fit' only learns classes"
                )
            labels = values.astype(np.int64)
        doubt = _doubt(labels) if check else ""
        if doubt:
            raise ValueError(
                f"{holds} {doubt}, or use --task classification if they are classes "
                "after all"
            )
        return labels

    def given_classes(self, column: str, classes: np.ndarray) -> list[Any] | None:
        """The classes given in a file of new rows, as values of the model's dtype.

        Parameters
        ----------
        column : str
            The label column of the training rows.
        classes : ndarray of shape (k,)
            Classes of the model.

        Returns
        -------
        given : list of length m, or None
            Class of each row, known to the model or not, and None where the cell is
            empty. None instead of a list if the column is absent or entirely empty.
        """
        if column not in self._positions:
            return None
        numeric = np.issubdtype(classes.dtype, np.integer)
        given: list[Any] = []
        for text in self.text(column):
            # If the classes are numbers, any other text is a class that is unknown.
            value = number(text) if numeric else None
            label = text if value is None else value
            given.append(None if text.lower() in MISSING else label)
        return None if given.count(None) == len(given) else given

    def numbers(self, columns: Sequence[str]) -> np.ndarray:
        """The columns as finite numbers, (n, len(columns))."""
        for name in columns:
            self.require(name, "the column")
        values = np.empty((len(self.rows), len(columns)))
        for j, name in enumerate(columns):
            for i, text in enumerate(self.text(name)):
                value = number(text)
                if value is None:
                    raise ValueError(self._not_a_number(name, i, text))
                values[i, j] = value
        return values

    def require(self, column: str, what: str) -> None:
        """Refuse a column that is not in the header."""
        if column not in self._positions:
            hint = _suggest(column, self.header)
            raise ValueError(f"{what} {column!r} is not in {self.path}; {hint}")

    def _not_a_number(self, column: str, row: int, text: str) -> str:
        where = f"{self.path}, line {self.lines[row]}: column {column!r}"
        drop = f"leave it out with --drop {column!r}"
        if text.lower() in MISSING:
            return f"{where} is empty; fill in such cells, drop the row, or {drop}"
        return (
            f"{where} holds {text!r:.60}, which is not a finite number; encode the "
            f"column as numbers, or {drop}"
        )


def read_table(path: str) -> Table:
    """Read a table with a header, separated by commas, semicolons or tabs.

    Parameters
    ----------
    path : str
        The file, in UTF-8.

    Returns
    -------
    table : Table
        The cells; every row has as many as the header.
    """
    file_path = Path(path)
    if not file_path.exists():
        raise ValueError(f"there is no file {path!r}")
    if file_path.is_dir():
        raise ValueError(f"{path!r} is a folder; name a CSV file")
    try:
        with open(file_path, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(DELIMITERS, key=first.count)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            lines = [
                (reader.line_num, row) for row in reader if any(map(str.strip, row))
            ]
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"{path} is not a CSV file: {error}") from None
    if len(lines) < 2:
        raise ValueError(
            f"{path} has no rows; it needs a header and one row per sample"
        )
    header = [name.strip() for name in lines[0][1]]
    _check_table(path, header, lines)
    numbers, rows = zip(*lines[1:], strict=True)
    return Table(file_path, header, list(rows), list(numbers))


def choose_views(
    table: Table,
    label: str,
    drop: Sequence[str],
    specifications: Sequence[str],
    by_prefix: bool,
) -> dict[str, list[str]]:
    """Group the columns into views.

    Parameters
    ----------
    table : Table
        The table, of which no view has the columns ``label`` and ``drop``.
    label : str
        The label column.
    drop : sequence of str
        Columns to leave out.
    specifications : sequence of str
        ``NAME=COLUMNS`` with names, patterns or prefixes separated by commas, such as
        ``rna=rna_*`` or ``clinical=age,sex``. Without any, all columns are one view.
    by_prefix : bool
        Whether columns that share their prefix up to the first underscore are a view.

    Returns
    -------
    views : dict
        The columns of each view.
    """
    table.require(label, "the label column")
    for name in drop:
        table.require(name, "the column to drop")
    columns = [name for name in table.header if name != label and name not in drop]
    if not columns:
        raise ValueError(f"{table.path} has no columns besides the label {label!r}")
    if not (specifications or by_prefix):
        return {"all": columns}
    views: dict[str, list[str]] = {}
    if by_prefix:
        for column in columns:
            prefix, underscore, _ = column.partition("_")
            view = prefix if underscore and prefix else OTHER_VIEW
            views.setdefault(view, []).append(column)
    for text in specifications:
        name, equals, wanted = (part.strip() for part in text.partition("="))
        if not (name and equals and wanted):
            raise ValueError(f"--view must be NAME=COLUMNS; got {text!r}")
        if name in views:
            raise ValueError(
                f"the view {name!r} is given twice; list all its columns at once"
            )
        items = filter(None, map(str.strip, wanted.split(",")))
        chosen = [column for item in items for column in _matches(name, item, columns)]
        views[name] = list(dict.fromkeys(chosen))
    return views


def _doubt(labels: np.ndarray) -> str:
    """What speaks against classes (n,), integers or strings; empty if nothing does."""
    n, k = len(labels), len(np.unique(labels))
    numeric = np.issubdtype(labels.dtype, np.integer)
    mostly_distinct = k > max(2, n / 2)  # two rows of two classes are still classes
    if numeric and (k > MANY or mostly_distinct):
        return (
            f"{k} different numbers in {n} rows, which look like a measurement rather "
            "than classes; bin them into a few classes, use MultipleKernelRidge in "
            "Python to predict numbers"
        )
    if not numeric and mostly_distinct and (k > MANY or k == n):
        return (
            f"{k} different texts in {n} rows, which look like row names rather than "
            "classes; name the column of the classes with --label"
        )
    return ""


def _matches(view: str, item: str, columns: Sequence[str]) -> list[str]:
    """The column of that name, else those that match the pattern, else the prefix."""
    if item in columns:
        return [item]
    found = [name for name in columns if fnmatchcase(name, item)]
    found = found or [name for name in columns if name.startswith(item)]
    if not found:
        raise ValueError(
            f"view {view!r}: no column is called, matches or begins with {item!r}; "
            f"{_suggest(item, columns)}"
        )
    return found


def _check_table(
    path: str, header: list[str], lines: list[tuple[int, list[str]]]
) -> None:
    repeated = sorted(name for name, count in Counter(header).items() if count > 1)
    if repeated:
        raise ValueError(
            f"{path} has several columns called {repeated[0]!r}; rename them"
        )
    for line, row in lines[1:]:
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {line} has {len(row)} cells, but the header has "
                f"{len(header)}"
            )


def number(text: str) -> float | None:
    """The finite number in a cell; None if the cell holds anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    # Python reads 1_0 as 10.
    return value if math.isfinite(value) and "_" not in text else None


def _suggest(name: str, known: Sequence[str]) -> str:
    by_case = [other for other in known if other.lower() == name.lower()]
    close = by_case or difflib.get_close_matches(name, known, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"its columns are {some(list(map(repr, known)), 8)}"


def some(items: list[str], most: int = 10) -> str:
    """The first items, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more

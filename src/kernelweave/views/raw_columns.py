"""Columns as they are in a table: text, categories, dates, booleans, gaps.

A view whose kernels can read more than numbers keeps its columns in the form in which
the user passed them, as :class:`Columns`. Their kinds are inferred from their types
and, where the type says nothing, from their values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from kernelweave._text import listed
from kernelweave.views.columns import (
    column_names,
    is_table,
    labels_of,
    take_columns,
    to_float,
)
from kernelweave.views.ids import is_gap
from kernelweave.views.streams import concatenate_rows, select_rows

#: Kinds whose values are turned into floats.
MEASURED = ("number", "date", "duration")
#: The largest float64; Python's integers may be larger.
LARGEST_FLOAT = float(np.finfo(np.float64).max)
#: Dates become days since the first of these, and durations become days.
EPOCH, DAY = np.datetime64(0, "D"), np.timedelta64(1, "D")


class Column(NamedTuple):
    """One column, read."""

    #: "number", "boolean", "category" (declared as such), "text", "date", "duration",
    #: "empty" (no values), or a sentence on why it is none of these.
    kind: str
    values: np.ndarray  # (n,) floats if measured, else words, with None in gaps
    gaps: np.ndarray  # (n,) of bool


class Columns:
    """Some rows of the columns of a view, as they are in the table.

    Parameters
    ----------
    table : DataFrame or ndarray of shape (n, d)
        The columns of the view: a pandas or polars DataFrame, or an array of objects.
    labels : list
        Names or positions of the d columns.
    dtype : floating dtype
        Precision in which kernels on these columns are computed.

    Attributes
    ----------
    shape : tuple
        (n, d).
    """

    ndim = 2

    def __init__(self, table: Any, labels: list[Any], dtype: Any = np.float64) -> None:
        self.table, self.labels, self.dtype = table, labels, np.dtype(dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return int(self.table.shape[0]), len(self.labels)

    def __getitem__(self, index: Any) -> Columns:
        """The chosen rows: ``block[rows]`` or ``block[rows, ...]``."""
        rows = index[0] if isinstance(index, tuple) else index
        return self._with(select_rows(self.table, rows))

    def __getstate__(self) -> dict[str, Any]:
        # Columns that were read are not kept: they can be read again. Objects, which
        # are all that a model keeps, become lists, which files hold without any code.
        table = self.table
        if isinstance(table, np.ndarray) and table.dtype.kind == "O":
            table = [_storable(list(column)) for column in table.T]
        return {"table": table, "labels": self.labels, "dtype": self.dtype.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        table = state["table"]
        if isinstance(table, list):
            columns = [as_objects([*map(_plain_value, column)]) for column in table]
            table = np.column_stack(columns)
        self.table, self.labels = table, state["labels"]
        self.dtype = np.dtype(state["dtype"])

    def _with(self, table: Any) -> Columns:
        return Columns(table, self.labels, self.dtype)

    def astype(self, dtype: Any) -> Columns:
        """The same columns, for kernels of another precision."""
        same = self.dtype == np.dtype(dtype)
        return self if same else Columns(self.table, self.labels, dtype)

    @property
    def is_single(self) -> bool:
        """Whether every column is float32."""
        if hasattr(self.table, "get_column"):
            return all(str(dtype) == "Float32" for dtype in self.table.dtypes)
        kinds = getattr(self.table, "dtypes", [getattr(self.table, "dtype", None)])
        return all(kind == np.float32 for kind in kinds)

    def copy(self) -> Columns:
        """In memory of its own."""
        clone = getattr(self.table, "clone", None) or self.table.copy
        return self._with(clone())

    @classmethod
    def concatenate(cls, parts: list[Columns]) -> Columns:
        """The rows of all parts, which must be tables of the same library."""
        libraries = {type(part.table).__module__.partition(".")[0] for part in parts}
        if len(libraries) > 1:
            raise TypeError(
                "Portions of rows are tables of several libraries: "
                f"{listed(sorted(libraries))}. Pass all of them as tables of one."
            )
        return parts[0]._with(concatenate_rows([part.table for part in parts]))

    def as_objects(self) -> Columns:
        """The same cells as an array of objects: None in gaps, times as NumPy's."""
        columns = [_objects_of(self.table, j) for j in range(len(self.labels))]
        return self._with(np.column_stack(columns))

    def column(self, j: int) -> Column:
        """Column j, read."""
        return self._read[j]

    @cached_property
    def _read(self) -> list[Column]:
        if is_plain(self.table):  # at once: there may be many columns
            values = np.asarray(self.table.to_numpy(), dtype=np.float64)
            gaps = np.isnan(values)
            both = zip(values.T, gaps.T, strict=True)
            return [Column("number", *pair) for pair in both]
        return [read_column(self.table, j) for j in range(len(self.labels))]

    @cached_property
    def gaps(self) -> np.ndarray:
        """Which entries (n, d) are missing."""
        return np.stack([column.gaps for column in self._read], axis=1)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The entries as floats (n, d), with NaN in gaps; anything else is an error."""
        found = to_float(self.table, "", self.labels)
        return np.asarray(found, dtype=self.dtype)

    @property
    def measured(self) -> np.ndarray:
        """The numbers, dates and durations (n, d) as floats; zero in all else."""
        read = self._read
        found = [c.values if c.kind in MEASURED else 0.0 * c.gaps for c in read]
        return np.nan_to_num(np.column_stack(found), posinf=np.inf, neginf=-np.inf)

    @property
    def is_numeric(self) -> bool:
        """Whether every column holds numbers."""
        return all(column.kind == "number" for column in self._read)

    @property
    def is_known(self) -> bool:
        """Whether the values of every column are of one known kind."""
        known = {*OBJECTS, "category", "empty"}
        return all(column.kind in known for column in self._read)

    def given(self, flat: bool = False) -> Any:
        """A copy of the table for code that may change it; one column if ``flat``."""
        table = self.copy().table
        if not flat:
            return table
        if hasattr(table, "iloc"):
            return table.iloc[:, 0]
        return table.to_series(0) if hasattr(table, "get_column") else table[:, 0]


def read_columns(X: Any, columns: list[int]) -> Columns:
    """The columns of a view, as they are; pyarrow tables become pandas frames."""
    table = take_columns(X, columns)
    if is_table(table):  # whose metadata would turn columns into an index
        table = table.to_pandas(ignore_metadata=True)
    labels = map(_plain_name, labels_of(column_names(X), columns))
    return Columns(table, list(labels))


def _plain_name(name: Any) -> Any:
    """A column name as files can hold it; names of several levels are tuples."""
    if isinstance(name, tuple):
        return tuple(map(_plain_name, name))
    return name if isinstance(name, str | int | float) else str(name)


def _storable(values: list[Any]) -> Any:
    """Objects as files can hold them: times as an array, others as a list."""
    present = [value for value in values if value is not None]
    for kind in (np.datetime64, np.timedelta64):
        if present and all(isinstance(value, kind) for value in present):
            times = np.full(len(values), "NaT", dtype=np.array(present).dtype)
            times[[value is not None for value in values]] = present
            return times
    return values


def _objects_of(table: Any, j: int) -> np.ndarray:
    """Column j as Python's objects (n,), whatever the library of the table."""
    if hasattr(table, "iloc"):
        times = _times(table.iloc[:, j])
        values = table.iloc[:, j].tolist() if times is None else list(times)
    elif hasattr(table, "get_column"):
        values = table.to_series(j).to_list()
    else:
        values = list(table[:, j])
    return as_objects([_plain_value(value) for value in values])


def _plain_value(value: Any) -> Any:
    """None for a gap, a moment or duration of NumPy, or the value itself."""
    if is_gap(value):
        return None
    return _plain_moment(value) if isinstance(value, date | timedelta) else value


def is_plain(table: Any) -> bool:
    """Whether a table is a pandas frame of NumPy's floats and integers alone."""
    if not hasattr(table, "iloc"):
        return False
    return all(_is_number(dtype) for dtype in set(table.dtypes))


def _is_number(dtype: Any) -> bool:
    """Whether a dtype is one of NumPy's floats and integers."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiu"


def read_column(table: Any, j: int) -> Column:
    """Kind and values of column j of a DataFrame or array."""
    if hasattr(table, "iloc"):
        return _from_pandas(table.iloc[:, j])
    if hasattr(table, "get_column"):
        return _from_polars(table.to_series(j))
    return _from_array(table[:, j])


def _from_pandas(series: Any) -> Column:
    import pandas as pd

    types, dtype = pd.api.types, series.dtype
    gaps = series.isna().to_numpy(dtype=bool)
    if isinstance(dtype, pd.CategoricalDtype):
        return Column("category", words_of(series.to_numpy(dtype=object), gaps), gaps)
    if types.is_bool_dtype(dtype):
        return Column("boolean", words_of(series.to_numpy(dtype=object), gaps), gaps)
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return _from_array(series.to_numpy(dtype=np.float64, na_value=np.nan))
    times = _times(series)
    if times is not None:
        return _from_array(times)
    return _from_objects(series.to_numpy(dtype=object), gaps)


def _times(series: Any) -> np.ndarray | None:
    """The dates, in UTC, or durations of a pandas column; None for other kinds."""
    import pandas as pd

    types = pd.api.types
    if isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    if types.is_datetime64_any_dtype(series.dtype):
        series = pd.to_datetime(series, utc=True).dt.tz_localize(None)
    elif series.dtype.kind != "m":
        return None
    return series.to_numpy()


def _from_polars(series: Any) -> Column:
    import polars as pl

    dtype = series.dtype
    if dtype.is_numeric():
        series = series.cast(pl.Float64)
    if dtype.is_numeric() or dtype.is_temporal():
        return _from_array(series.to_numpy())  # times in UTC, nulls as NaN and NaT
    gaps, values = series.is_null().to_numpy(), as_objects(series.to_list())
    declared = {pl.Boolean: "boolean", pl.Categorical: "category", pl.Enum: "category"}
    if dtype.base_type() in declared:
        return Column(declared[dtype.base_type()], words_of(values, gaps), gaps)
    return _from_objects(values, gaps)


def _from_array(values: np.ndarray) -> Column:
    if values.dtype.kind in "fiu":
        numbers = values.astype(np.float64)
        return Column("number", numbers, np.isnan(numbers))
    if values.dtype.kind in "mM":
        days = _days(values)
        kind = "date" if values.dtype.kind == "M" else "duration"
        return Column(kind, days, np.isnan(days))
    values = values.astype(object)
    return _from_objects(values, np.array([is_gap(value) for value in values]))


def as_objects(values: Sequence[Any]) -> np.ndarray:
    """The values (n,) themselves, whatever NumPy would make of them."""
    out = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        out[i] = value
    return out


def _days(times: Any) -> Any:
    """Durations, or one of them, as days, and dates as days since 1970.

    Each in its own unit: nanoseconds would exclude dates before 1677 or after 2262.
    """
    if times.dtype.kind == "M":
        times = times - EPOCH
    elif np.datetime_data(times.dtype)[0] in ("Y", "M"):  # of mean length
        times = times.astype("m8[s]")
    return times / DAY


#: Types of objects, in the order in which they are tried: for Python, booleans and
#: NumPy's durations are numbers.
OBJECTS: dict[str, tuple[type, ...]] = {
    "boolean": (bool, np.bool_),
    "duration": (timedelta, np.timedelta64),
    "number": (Real, Decimal),
    "text": (str,),
    "date": (date, datetime, np.datetime64),
}


def _kind_of(value: Any) -> str:
    found = (kind for kind, types in OBJECTS.items() if isinstance(value, types))
    return next(found, type(value).__name__)


def _from_objects(values: np.ndarray, gaps: np.ndarray) -> Column:
    """A column of Python objects, whose kind is that of all its values."""
    kinds: dict[str, Any] = {}
    for value in values[~gaps]:
        kinds.setdefault(_kind_of(value), value)
    if not kinds:
        return Column("empty", np.full(len(values), np.nan), gaps)
    if len(kinds) > 1:
        found = " and ".join(f"{value!r:.40} ({kind})" for kind, value in kinds.items())
        return Column(f"values of several kinds, {found}", values, gaps)
    (kind, example), *_ = kinds.items()
    if kind in ("text", "boolean"):
        return Column(kind, words_of(values, gaps), gaps)
    if kind == "number":
        pairs = zip(values, gaps, strict=True)
        try:
            numbers = np.array([np.nan if g else float(v) for v, g in pairs])
        except OverflowError:
            beyond = next(int(v) for v in values[~gaps] if abs(v) > LARGEST_FLOAT)
            digits = round(beyond.bit_length() * np.log10(2))
            return Column(
                f"an integer of about {digits} digits, beyond the range of float64",
                values,
                gaps,
            )
        return Column(kind, numbers, gaps)
    if kind in MEASURED:
        days = np.full(len(values), np.nan)
        days[~gaps] = [_days(_plain_moment(value)) for value in values[~gaps]]
        return Column(kind, days, gaps)
    return Column(f"objects such as {example!r:.40} ({kind})", values, gaps)


def _plain_moment(value: Any) -> Any:
    zone = getattr(value, "utcoffset", lambda: None)()
    value = value.replace(tzinfo=None) - zone if zone is not None else value
    if isinstance(value, OBJECTS["duration"]):
        return np.timedelta64(value)
    return np.datetime64(value)


def words_of(values: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """Values as words, the same for equal values of different types; None in gaps."""
    out = np.full(len(values), None, dtype=object)
    for i in np.flatnonzero(~gaps):
        out[i] = _word(values[i])
    return out


def _word(value: Any) -> str:
    if _kind_of(value) != "number" or isinstance(value, int | np.integer):
        return str(value)  # as floats, long integers could coincide
    number = float(value)
    return str(int(number)) if number.is_integer() else str(number)


def read_as(column: Column, kind: str, where: str) -> np.ndarray:
    """The values (n,) of a column of new rows, whose kind in training was ``kind``."""
    if kind in MEASURED:
        if column.gaps.all():  # no value shows a kind, whatever the type of the column
            return np.full(len(column.gaps), np.nan)
        if column.kind != kind:
            present = column.values[~column.gaps].tolist()
            odd = others(kind, present) if column.kind == "text" else []
            raise ValueError(
                f"{where} held values of the kind {kind!r} in fit, but now "
                f"{column.kind!r}, such as {(odd or present)[0]!r:.40}. Convert the "
                "column."
            )
        return column.values
    if column.kind not in (*MEASURED, "empty"):
        return column.values
    words = words_of(column.values.astype(object), column.gaps)
    if column.kind == "number" and kind == "boolean":
        names = {"0": "False", "1": "True"}
        words = as_objects([names.get(word, word) for word in words])
    return words


#: A date, perhaps with a time and its zone, as text in the form of ISO 8601.
DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?( ?(Z|[+-]\d{2}(:?\d{2})?))?)?"
)


def others(kind: str, words: Sequence[str]) -> list[str]:
    """The words that are no dates or, for any other kind, no numbers.

    Numbers have decimal points or, if more words are numbers that way, commas.
    """
    if kind == "date":
        return [word for word in words if not DATE.fullmatch(word)]
    points = [word for word in words if not _is_written_number(word)]
    commas = [word for word in points if not _is_written_number(word.replace(",", "."))]
    return commas if len(commas) < len(points) else points


def _is_written_number(word: str) -> bool:
    """Whether a word is a number."""
    try:
        return bool(np.isfinite(float(word)))
    except ValueError:
        return False


def common_values(values: np.ndarray) -> list[Any]:
    """The distinct values that are not None, sorted as words."""
    return sorted(Counter(v for v in values if v is not None))

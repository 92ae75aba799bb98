"""What "auto" does with the columns of a table that are not just numbers.

Numbers, dates and durations are numbers, with gaps filled by the median of the column
and marked in a column of their own. Booleans, categories and text of few values are
one-hot: the linear kernel then counts the columns in which two rows agree. Columns from
which nothing can be learned are left out, with a warning.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from kernelweave._text import counted, some, with_names
from kernelweave.exceptions import KernelWarning
from kernelweave.views.columns import View
from kernelweave.views.raw_columns import (
    MEASURED,
    Column,
    Columns,
    as_objects,
    common_values,
    others,
    read_as,
)

#: Text of more values than this, or than half of the rows, is not one-hot encoded.
MOST_VALUES = 40
#: Fewer distinct numbers than this are not taken for row numbers.
FEWEST_IDS = 10
#: How columns are used.
NUMBER, ONE_HOT, LEFT_OUT = "number", "one-hot", "left out"


@dataclass(frozen=True)
class ColumnUse:
    """How a column is used.

    Attributes
    ----------
    column : object
        Its name or position.
    kind : str
        "number", "boolean", "category", "text", "date", "duration" or "empty".
    use : {"number", "one-hot", "left out"}
        What it is turned into.
    n_missing : int
        Number of gaps among the training rows.
    remark : str
        What a user should know about it; empty for an ordinary column.
    values : tuple
        The categories, if it is one-hot; None stands for a gap.
    """

    column: Any
    kind: str
    use: str
    n_missing: int = 0
    remark: str = ""
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ColumnPlan:
    """How the columns of a view are used.

    Attributes
    ----------
    uses : tuple of ColumnUse
        One per column.
    medians : ndarray of shape (d,) or None
        Replacements for the gaps of new rows, if the columns are used as they are.
    """

    uses: tuple[ColumnUse, ...]
    medians: np.ndarray | None = field(default=None, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        # A file that has an object for each of 5,000 columns takes seconds to load.
        ways: dict[ColumnUse, int] = {}
        which = [ways.setdefault(replace(u, column=None), len(ways)) for u in self.uses]
        columns = [use.column for use in self.uses]
        parts = {"columns": columns, "ways": list(ways), "which": np.array(which)}
        return parts | {"medians": self.medians}

    def __setstate__(self, state: dict[str, Any]) -> None:
        pairs = zip(state["columns"], state["which"].tolist(), strict=True)
        uses = tuple(replace(state["ways"][k], column=name) for name, k in pairs)
        object.__setattr__(self, "uses", uses)
        object.__setattr__(self, "medians", state["medians"])

    @property
    def is_plain(self) -> bool:
        """Whether the columns are numbers that can be used as they are."""
        return all(use.kind == "number" and not use.n_missing for use in self.uses)

    def places(self, use: str) -> list[int]:
        """Positions in the view of the columns with this use."""
        return [j for j, own in enumerate(self.uses) if own.use == use]

    def records(self, view: str) -> list[dict[str, Any]]:
        """One record per column, for a table."""
        return [
            {
                "view": view,
                "column": use.column,
                "kind": use.kind,
                "use": use.use,
                "missing": use.n_missing,
                "remark": use.remark,
            }
            for use in self.uses
        ]

    def remarks(self, view: str) -> list[str]:
        """Sentences on the columns that are not simply used as numbers."""
        found: list[str] = []
        for use in (ONE_HOT, NUMBER, LEFT_OUT):
            own = [
                f"{u.column!r} ({u.remark})" if u.remark else repr(u.column)
                for u in self.uses
                if u.use == use and (u.remark or use != NUMBER)
            ]
            if own:
                named = "numbers" if use == NUMBER else use
                found.append(f"view {view!r}: {named}: {some(own, most=12)}")
        return found


def plan_columns(block: Columns, view: str) -> ColumnPlan:
    """Decide what "auto" does with the training rows of a view, and warn about it.

    Parameters
    ----------
    block : Columns
        The training rows that have the view.
    view : str
        Name of the view in messages.
    """
    d = block.shape[1]
    uses = tuple(_use(block.labels[j], block.column(j)) for j in range(d))
    unknown = [use for use in uses if not use.use]
    if unknown and unknown[0].kind == "infinity":
        label = unknown[0].column
        column = block.column(block.labels.index(label))
        row = int(np.argmax(np.isinf(read_as(column, "number", repr(label)))))
        raise ValueError(
            f"Input X contains infinity: column {label!r}, row {row} of those that "
            "have the view. Correct the entry, or drop the row."
        )
    if unknown:
        found = some(f"column {u.column!r} holds {u.kind}" for u in unknown)
        raise ValueError(
            f"'auto' cannot use these columns: {found}. Give such a column values of "
            "one kind, leave it out of the view, or encode it with Pipe(transformer, "
            "...)."
        )
    plan = ColumnPlan(uses)
    if not plan.places(NUMBER) and not plan.places(ONE_HOT):
        why = some(f"{use.column!r}: {use.remark}" for use in uses)
        raise ValueError(
            f"'auto' finds no column to learn from ({why}). {_how_to_write(why)}Encode "
            "text with Pipe(TfidfVectorizer(), 'linear'), or remove the view."
        )
    _warn(plan, view)
    return plan


def _use(label: Any, column: Column) -> ColumnUse:
    kind, values, gaps = column
    n_missing = int(np.sum(gaps))
    if kind == "empty" or n_missing == len(gaps):
        kind = kind if " " not in kind else "empty"
        return ColumnUse(label, kind, LEFT_OUT, n_missing, "no values at all")
    if kind in MEASURED:
        return _measured(label, kind, values[~gaps], n_missing)
    if kind not in ("boolean", "category", "text"):
        return ColumnUse(label, kind, "")
    known, present = common_values(values), len(values) - n_missing
    n_values = len(known)
    reason = ""
    if n_values == 1 and not n_missing:
        reason = ONE_VALUE
    elif kind != "boolean" and n_values == present and present > 2:
        reason = "a different value in every row, as in an id"
    elif kind == "text" and (n_values > MOST_VALUES or 2 * n_values > present > 4):
        reason = f"text of {n_values} different values"
    if reason and kind == "text" and reason != ONE_VALUE:
        strange = [value for value in known if MEASURE.fullmatch(value)]
        # a single cell such as "-" makes a column text
        odd, undated = others("number", known), others("date", known)
        commas = any("," in value for value in {*known} - {*odd})
        if 2 * len(odd) < n_values and (odd or not commas):
            reason = "numbers with commas" if commas else "numbers as text"
            reason += f", next to {odd[0]!r:.40}" if odd else ""
        elif 2 * len(undated) < n_values:
            first = min({*known} - {*undated})
            reason = "dates as text"
            reason += f", next to {undated[0]!r:.40}" if undated else f": {first!r}"
        elif 2 * len(strange) > n_values:
            reason = f"numbers or dates in an unknown form: {strange[0]!r:.40}"
        elif measures := _with_units(known):
            reason = f"numbers with a unit: {measures[0]!r:.40}"
    if reason:
        return ColumnUse(label, kind, LEFT_OUT, n_missing, reason)
    remark = f"{n_values} values"
    if n_missing:
        known = [*known, None]
        remark += f", {counted(n_missing, 'gap')} as one more"
    return ColumnUse(label, kind, ONE_HOT, n_missing, remark, tuple(known))


#: Numbers and dates in other forms, too many to read: 1,234.5 and 5 % and 31.12.20.
MEASURE = re.compile(r"[<>+-]?\d[\d.,'/: -]*%?")
#: A number with a unit, such as 0.13 mg, 5 mmol/l or 36.6 °C; and the most units that
#: a column has, while ids such as 12A and 13B have many endings.
WITH_UNIT = re.compile(
    r"[<>~]?\s*[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?\s*([^\W\d_].*|[%‰°].*)"
)
MOST_UNITS = 3


def _with_units(values: list[str]) -> list[str]:
    """The numbers with units, if these are most of the values."""
    found = {
        value: match[1] for value in values if (match := WITH_UNIT.fullmatch(value))
    }
    few = len(set(found.values())) <= MOST_UNITS
    return list(found) if few and 2 * len(found) > len(values) else []


def _measured(label: Any, kind: str, present: np.ndarray, n_missing: int) -> ColumnUse:
    if not np.all(np.isfinite(present)):
        return ColumnUse(label, "infinity", "")
    low, high = float(np.min(present)), float(np.max(present))
    if low == high and not n_missing:
        return ColumnUse(label, kind, LEFT_OUT, n_missing, ONE_VALUE)
    remarks = [f"{kind} in days"] if kind != "number" else []
    if n_missing:
        remarks.append(f"{counted(n_missing, 'gap')} filled with the median and marked")
    if kind == "number" and looks_like_ids(present):
        remarks.append(COUNTS)
    return ColumnUse(label, kind, NUMBER, n_missing, "; ".join(remarks))


#: The remarks on a column of row numbers, and on one that says nothing.
COUNTS, ONE_VALUE = "counts the rows, as an id does", "the same value in every row"


def looks_like_ids(values: np.ndarray) -> bool:
    """Whether numbers (n,) are different integers that fill at least half their range.

    So do those of a random subset of the rows of a table with row numbers.
    """
    n = len(values)
    if n < FEWEST_IDS or not float(np.max(values) - np.min(values)) + 1 <= 2 * n:
        return False
    return bool(np.all(values == np.floor(values)) and len(np.unique(values)) == n)


def plan_numbers(block: np.ndarray, labels: list[Any], view: str) -> ColumnPlan:
    """The plan for a block of numbers (n, d), which may have very many columns."""
    low, high, n = np.min(block, axis=0), np.max(block, axis=0), len(block)
    narrow = high - low + 1 <= 2 * n if n >= FEWEST_IDS else np.zeros(len(low), bool)
    uses = [ColumnUse(label, "number", NUMBER) for label in labels]
    # If all are constant, so are the kernels, which raises an error of its own.
    constant = NUMBER if np.all(low == high) else LEFT_OUT
    for j in np.flatnonzero(low == high):
        uses[j] = replace(uses[j], use=constant, remark=ONE_VALUE)
    narrow &= np.all(block == np.floor(block), axis=0)
    for j in np.flatnonzero(narrow & (low < high)):
        if looks_like_ids(block[:, j]):
            uses[j] = replace(uses[j], remark=COUNTS)
    plan = ColumnPlan(tuple(uses))
    _warn(plan, view)
    return plan


def _warn(plan: ColumnPlan, view: str) -> None:
    """One warning about all columns of a view that deserve attention."""
    left = [f"{u.column!r} ({u.remark})" for u in plan.uses if u.use == LEFT_OUT]
    odd = [repr(u.column) for u in plan.uses if u.use == NUMBER and COUNTS in u.remark]
    parts = [f"leaves out {with_names('the column', left)}"] if left else []
    if odd:
        these = with_names("the column", odd)
        parts.append(f"uses {these}, whose values count the rows as an id does")
    if parts:
        hint = "Remove constants and ids from the view; a Pipe can encode long text"
        how = _how_to_write(" ".join(left))
        warnings.warn(
            f"view {view!r}: 'auto' {' and '.join(parts)}. {how}{hint}",
            KernelWarning,
            stacklevel=2,
        )


def _how_to_write(reasons: str) -> str:
    """Advice on numbers and dates that were taken for text."""
    advice = ""
    if "dates as text" in reasons:
        advice = "Turn text into dates, for example with pandas.to_datetime. "
    if re.search(r"[(:] ?numbers|dates as text, next", reasons):
        advice += "Write numbers as 1234.5, dates as 2020-12-31, gaps as NA. "
    return advice


class ColumnEncoder(TransformerMixin, BaseEstimator):
    """Turn columns of a table into numbers according to a plan.

    Parameters
    ----------
    plan : ColumnPlan
        What to do with each column.
    part : {"numbers", "one-hot", "all columns"}
        Which of them. All together are on one scale: numbers have unit variance, and
        two different categories are at squared distance one.
    """

    def __init__(self, plan: ColumnPlan, part: str) -> None:
        self.plan = plan
        self.part = part

    @property
    def label(self) -> str:
        """Name for tables."""
        return self.part

    def fit(self, X: Columns, y: Any = None) -> ColumnEncoder:
        """Learn medians and scales from the training rows."""
        if self.part != "one-hot":
            self.imputer_ = SimpleImputer(strategy="median", add_indicator=True)
            numbers = self.imputer_.fit_transform(self._columns(X, NUMBER))
            if self.part == "all columns":
                self.scaler_ = StandardScaler().fit(numbers)
        if self.part != "numbers":
            own = [self.plan.uses[j] for j in self.plan.places(ONE_HOT)]
            values = [as_objects(use.values) for use in own]
            self.encoder_ = OneHotEncoder(
                categories=values, handle_unknown="ignore", sparse_output=False
            ).fit(self._columns(X, ONE_HOT))
        return self

    def transform(self, X: Columns) -> np.ndarray:
        """Numbers (n, e) for the rows."""
        parts = []
        if self.part != "one-hot":
            numbers = self.imputer_.transform(self._columns(X, NUMBER))
            scaled = self.part == "all columns"
            parts.append(self.scaler_.transform(numbers) if scaled else numbers)
        if self.part != "numbers":
            coded = self.encoder_.transform(self._columns(X, ONE_HOT))
            parts.append(coded * 0.5**0.5 if self.part == "all columns" else coded)
        return np.concatenate(parts, axis=1)

    def _columns(self, X: Columns, use: str) -> np.ndarray:
        """The columns (n, c) with this use: floats, or words and None."""
        found = []
        for j in self.plan.places(use):
            own = self.plan.uses[j]
            found.append(read_as(X.column(j), own.kind, f"column {own.column!r}"))
        return np.column_stack(found)


def warn_unseen(view: View, block: Columns, rows: np.ndarray) -> None:
    """Warn about categories and gaps of new rows that no training row has.

    Parameters
    ----------
    view : View
        Its plan says what training rows have.
    block : Columns
        New rows.
    rows : ndarray of bool of shape (m,)
        Which of them have the view.
    """
    found = []
    for j, use in enumerate(view.plan.uses):
        if use.use == LEFT_OUT:
            continue
        column = block.column(j)
        where = f"View {view.name!r}: column {use.column!r}"
        values = read_as(column, use.kind, where)[rows]
        if use.use == ONE_HOT:
            known = set(use.values) | {None}
            new = sorted({v for v in values if v not in known})
            if new:
                count = sum(v in set(new) for v in values)
                named = some(map(repr, new), most=3)
                shown = f"{named} in {counted(count, 'row')}"
                found.append(f"column {use.column!r}: {shown}")
        elif np.any(np.isinf(values)):
            row = np.flatnonzero(rows)[np.argmax(np.isinf(values))]
            raise ValueError(
                f"Input X contains infinity: {where}, row {row}. Correct the entry, or "
                "drop the row."
            )
        gaps = int(np.sum(column.gaps[rows]))
        if gaps and not use.n_missing:
            found.append(f"column {use.column!r}: {counted(gaps, 'gap')}")
    if found:
        _warn_unseen(view, found)


def fill_gaps(
    view: View, block: np.ndarray, medians: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """New rows (m, d) of a view of plain numbers, with medians (d,) in place of gaps.

    A warning names the columns: no training row has a gap there. The columns of a
    product of views are those of others. Only the ``rows`` (m,) that have the view are
    filled.
    """
    gaps = np.isnan(block) & rows[:, None]
    counts = np.sum(gaps, axis=0)
    if not np.any(counts):
        return block
    if not view.joint:
        uses = view.plan.uses
        pairs = [(uses[j].column, counts[j]) for j in np.flatnonzero(counts)]
        _warn_unseen(view, [f"column {c!r}: {counted(k, 'gap')}" for c, k in pairs])
    return np.where(gaps, medians, block).astype(block.dtype)


def _warn_unseen(view: View, found: list[str]) -> None:
    warnings.warn(
        f"view {view.name!r}: new rows hold values or gaps that no training row has. "
        f"{some(found)}. An unknown category equals none of the known ones, and a "
        "number that is missing is replaced by the median of the training rows",
        KernelWarning,
        stacklevel=4,
    )

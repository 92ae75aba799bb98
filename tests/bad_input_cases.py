"""Bad input, one table: what is wrong, and what the message must say.

Every case names what is wrong, changes a small valid problem accordingly, and lists
words that the message must contain: what was found, where, and what to do. It applies
to every estimator that meets its conditions. ``docs/_scripts/error_messages.py`` writes
a page of the user guide from the same table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cache, cached_property
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from estimators import (
    ONE_EACH,
    SETTINGS,
    Condition,
    ask,
    has,
    is_fixed_sum,
    poses_problem,
    takes,
    unless,
)
from kernelweave import (
    KernelAlignment,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    SubspaceKernel,
    TransductiveKernelSVC,
    save,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import feature_importance, weight_ranges
from kernelweave.kernels import RBF, Pipe, Polynomial, Similarity
from kernelweave.persistence import _finished

N = 12  # rows
VIEWS = [("left", RBF(), [0, 1, 2]), ("right", ["linear", RBF()], [3, 4, 5])]
COLUMNS = ["age", "dose", "mass", "g1", "g2", "g3"]
NAMED = [("clinical", RBF(), COLUMNS[:3]), ("genes", "linear", COLUMNS[3:])]

#: Examples in the documentation are by this estimator where a case applies to it.
SHOWN_FIRST = "MultipleKernelFDA-l1"


@dataclass
class Problem:
    """What is given to an estimator; a case changes some of it."""

    X: Any
    y: Any
    params: dict[str, Any]
    fit: dict[str, Any] = field(default_factory=dict)  # other arguments of fit
    later: Callable[[Any], object] | None = None  # what is done once it is fitted


def table() -> tuple[np.ndarray, np.ndarray]:
    """12 rows of two classes, six columns, of numbers whose products are exact."""
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], N // 2)
    X = np.round(8 * rng.normal(size=(N, 6))) / 8
    X[:, 0] += 2 * y
    return X, y


def frame(X: Any = None) -> Any:
    """The table as a DataFrame."""
    import pandas as pd

    return pd.DataFrame(table()[0] if X is None else X, columns=COLUMNS)


def kernels(X: np.ndarray) -> np.ndarray:
    """Two linear kernels on the table, (n, n, 2)."""
    return np.stack([X[:, :3] @ X[:, :3].T, X[:, 3:] @ X[:, 3:].T], axis=-1)


Change = Callable[[Problem], object]


def rows(change: Callable[[Any], Any]) -> Change:
    """X is changed."""

    def apply(p: Problem) -> None:
        p.X = change(p.X)

    return apply


def named(change: Callable[[Any], Any] = lambda X: X) -> Change:
    """X is a changed DataFrame, and views name its columns."""

    def apply(p: Problem) -> None:
        p.X, p.params["views"] = change(frame(p.X)), NAMED

    return apply


def stack(change: Callable[[Any], Any] = lambda K: K) -> Change:
    """X is a changed stack of precomputed kernels."""

    def apply(p: Problem) -> None:
        p.X, p.params["views"] = change(kernels(p.X)), "precomputed"

    return apply


def labels(change: Callable[[Any], Any]) -> Change:
    """y is changed."""

    def apply(p: Problem) -> None:
        p.y = change(p.y)

    return apply


def new(change: Callable[[Any], Any], before: Change = lambda p: None) -> Change:
    """Rows at prediction are changed; ``before`` is how the fit is done."""

    def apply(p: Problem) -> None:
        before(p)
        rows = change(p.X)
        p.later = lambda model: ask(model, rows)

    return apply


def new_lacking(**given: Any) -> Change:
    """Row 7 lacks the view "right" at prediction; the model has other parameters."""

    def apply(p: Problem) -> None:
        X, y, rows = p.X, p.y, at(np.nan, 7, slice(3, 6))(p.X)
        p.later = lambda model: ask(clone(model).set_params(**given).fit(X, y), rows)

    return apply


def arguments(**given: Any) -> Change:
    """Further arguments of ``fit``."""
    return lambda p: p.fit.update(given)


def params(**given: Any) -> Change:
    """Parameters of the estimator."""
    return lambda p: p.params.update(given)


def kernel(spec: Any, **others: Any) -> Change:
    """The kernel of the view "right"."""
    return params(views=[VIEWS[0], ("right", spec, [3, 4, 5])], **others)


def columns(spec: Any) -> Change:
    """The columns of the view "right"."""
    return params(views=[VIEWS[0], ("right", "linear", spec)])


def entry(value: Any, dtype: Any = None) -> Callable[[Any], Any]:
    """Row 7 of column 4 holds another value."""

    def change(X: Any) -> Any:
        X = np.array(X, dtype=dtype)
        X[7, 4] = value
        return X

    return change


def cell(column: str, value: Any) -> Callable[[Any], Any]:
    """Row 7 of a column of a table holds another value."""

    def change(X: Any) -> Any:
        X = X.astype({column: object})
        X.loc[7, column] = value
        return X

    return change


def at(value: Any, *place: Any) -> Callable[[Any], Any]:
    """A copy of an array with another value at a place."""

    def change(K: Any) -> Any:
        K = np.array(K, dtype=complex if isinstance(value, complex) else None)
        K[place] = value
        return K

    return change


def both(*changes: Change) -> Change:
    """Several changes."""

    def apply(p: Problem) -> None:
        for change in changes:
            change(p)

    return apply


def dask(p: Problem) -> None:
    """X and y are Dask arrays of two chunks."""
    import dask.array as da

    p.X, p.y = da.from_array(p.X, chunks=(6, 6)), da.from_array(p.y, chunks=6)


@dataclass(frozen=True)
class Case:
    """Something wrong, and the words that explain it.

    ``{name}`` in the words stands for the class of the estimator.
    """

    group: str
    wrong: str
    change: Change
    found: str
    where: str
    do: str
    error: type[Exception]
    conditions: tuple[Condition, ...]

    @cached_property
    def models(self) -> list[str]:
        """The settings that the case applies to."""
        order = sorted(ONE_EACH, key=lambda name: name != SHOWN_FIRST)
        return [
            n for n in order if all(meets(SETTINGS[n]) for meets in self.conditions)
        ]

    def words(self, name: str) -> list[str]:
        """What the message of the named setting must contain."""
        owner = type(SETTINGS[name]).__name__
        return [w.replace("{name}", owner) for w in (self.found, self.where, self.do)]

    def attempt(self, name: str) -> None:
        """Do what must fail, with the named setting."""
        X, y = table()
        p = Problem(X, y, {"views": VIEWS})
        self.change(p)
        if p.later is not None:
            p.later(fitted(name, _form(p.params["views"])))
            return
        own = SETTINGS[name].get_params(deep=False)
        if own.keys() >= p.params.keys():  # in less time than a clone
            model = type(SETTINGS[name])(**{**own, **p.params})
        else:
            model = clone(SETTINGS[name]).set_params(**p.params)
        model.fit(p.X, p.y, **p.fit)

    @cache  # noqa: B019  (there are as many as rows of the table)
    def refusal(self, name: str) -> tuple[type[Exception], str]:
        """Type and message of the error of the named setting."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", KernelWarning)
                self.attempt(name)
        except ModuleNotFoundError as error:  # of a library that may be absent
            pytest.skip(str(error))
        except Exception as error:
            return type(error), str(error)
        raise AssertionError(f"{name} accepts this: {self.wrong}")


def _form(views: Any) -> str:
    return {id(VIEWS): "views", id(NAMED): "named"}.get(id(views), "precomputed")


@cache
def fitted(name: str, form: str) -> BaseEstimator:
    """The named setting, fitted to the valid problem."""
    X, y = table()
    given = {"views": (X, VIEWS), "named": (frame(X), NAMED)}
    rows, views = given.get(form) or (kernels(X), "precomputed")
    return clone(SETTINGS[name]).set_params(views=views).fit(rows, y)


CASES: list[Case] = []


def section(group: str) -> Callable[..., None]:
    """A function that adds cases to a group."""

    def add(
        wrong: str,
        change: Change,
        found: str,
        where: str,
        do: str,
        *conditions: Condition,
        error: type[Exception] = ValueError,
    ) -> None:
        CASES.append(Case(group, wrong, change, found, where, do, error, conditions))

    return add


def only(kind: type) -> Condition:
    """Whether an estimator is of this class."""
    return lambda model: isinstance(model, kind)


def grouped(model: BaseEstimator) -> bool:
    """Whether ``fit`` takes groups of rows."""
    return "groups" in signature(model.fit).parameters


streams, regresses = has("partial_fit"), only(MultipleKernelRidge)
whole = unless(MultipleKernelFDA, MultipleKernelRidge)
always_classes = unless(MultipleKernelRidge, SubspaceKernel, KernelAlignment)

# --------------------------------------------------------------------------------------
add = section("X as a whole")

add(
    "X is None",
    rows(lambda X: None),
    "X is None",
    "{name} needs one row per sample",
    "Pass an array or a DataFrame",
)
add(
    "a path",
    rows(lambda X: Path("data.csv")),
    "the text 'data.csv'",
    "X is",
    "pandas.read_csv",
)
add(
    "the text of a path",
    rows(lambda X: "data.csv"),
    "the text 'data.csv'",
    "X is",
    "pandas.read_csv",
)
add("bytes", rows(lambda X: b"1,2,3"), "b'1,2,3'", "X is", "pandas.read_csv")
add(
    "a number",
    rows(lambda X: 3.5),
    "float 3.5",
    "X is",
    "Pass an array or a DataFrame",
    error=TypeError,
)
add(
    "a dict of tables",
    rows(lambda X: {"rna": X, "clinical": X}),
    "'rna', 'clinical'",
    "X is a dict",
    "join_tables",
    error=TypeError,
)
add(
    "a set",
    rows(lambda X: {1, 2, 3}),
    "{1, 2, 3}",
    "X is",
    "Pass an array or a DataFrame",
    error=TypeError,
)
add(
    "a list of portions",
    rows(lambda X: [(X[:8], [0, 1] * 4), (X[8:], [0, 1] * 2)]),
    "2 pairs",
    "X is a list",
    "pass iter(X) without y",
)
add(
    "a list of dicts",
    rows(lambda X: [dict(enumerate(row)) for row in X]),
    "X is a list of 12 dicts",
    "one per row",
    "pandas.DataFrame(X)",
)
add(
    "a list of arrays, one per view",
    rows(lambda X: [X[:, :3], X[:, 3:]]),
    "2 arrays, with the shapes (12, 3), (12, 3)",
    "X is a list",
    "numpy.hstack(X)",
)
add(
    "a list of arrays of different widths",
    rows(lambda X: [X[:, :2], X[:, 2:]]),
    "(12, 2), (12, 4)",
    "X is a list",
    "numpy.hstack(X)",
)
add(
    "rows of different lengths",
    rows(lambda X: [list(r[: 5 + i % 2]) for i, r in enumerate(X)]),
    "row 0 has 5 entries, row 1 has 6",
    "rows of X",
    "one entry per column",
)
add(
    "one row without brackets",
    rows(lambda X: X[0]),
    "got 1D array",
    "X has the shape (6,)",
    "X.reshape(1, -1)",
)
add(
    "three axes",
    rows(lambda X: X.reshape(N, 3, 2)),
    "dim 3",
    "X has the shape (12, 3, 2)",
    "one row per sample",
)
add(
    "no rows",
    rows(lambda X: X[:0]),
    "0 sample(s) (shape=(0, 6))",
    "of X",
    "Check how the rows",
)
add(
    "no columns",
    both(rows(lambda X: X[:, :0]), params(views=None)),
    "0 feature(s) (shape=(12, 0))",
    "of X",
    "Check how the rows and columns",
)
add(
    "a table without rows",
    named(lambda X: X.iloc[:0]),
    "0 sample(s) (shape=(0, 6))",
    "of X",
    "Check how the rows",
)
one_row = both(rows(lambda X: X[:1]), labels(lambda y: y[:1]))
add(
    "a single row",
    one_row,
    "1 class in 1 row: 0",
    "needs at least 2 classes",
    "add rows of other classes",
    unless(MultipleKernelRidge, TransductiveKernelSVC),
)
add("a single row in a regression", one_row, "1 sample", "in X", "Add rows", regresses)
add(
    "a masked array",
    rows(lambda X: np.ma.masked_greater(X, 1.0)),
    "Masked arrays",
    "the mask",
    "Impute the masked entries",
    error=TypeError,
)
add(
    "complex numbers",
    rows(lambda X: X + 1j),
    "complex128",
    "X has the dtype",
    "real and imaginary parts",
)
add(
    "dates",
    rows(lambda X: np.full(X.shape, "2020-01-01", "M8[D]")),
    "np.datetime64('2020-01-01')",
    "View 'left': row 0, column 0",
    "leave it out",
)
add(
    "a structured array",
    rows(lambda X: np.zeros(N, dtype=[("age", float), ("dose", float)])),
    "fields 'age', 'dose'",
    "X is",
    "pandas.DataFrame(X)",
)
add(
    "a pandas Series",
    rows(lambda X: frame(X)["age"]),
    "a Series of 12 values",
    "X is",
    "X.to_frame()",
)
add(
    "an estimator in place of rows",
    rows(lambda X: StandardScaler()),
    "StandardScaler",
    "X is",
    "Pass an array or a DataFrame",
    error=TypeError,
)
add(
    "a function in place of rows",
    rows(lambda X: table),
    "function table",
    "X is",
    "Pass an array or a DataFrame",
    error=TypeError,
)


def lazy(X: Any) -> Any:
    import polars as pl

    return pl.from_numpy(X, schema=COLUMNS).lazy()


add(
    "a lazy polars frame",
    rows(lazy),
    "LazyFrame",
    "X is",
    "X.collect()",
    error=TypeError,
)


def wrapped(X: Any) -> Any:
    import narwhals

    return narwhals.from_native(lazy(X).collect())


add(
    "a narwhals frame",
    rows(wrapped),
    "DataFrame of narwhals",
    "X is",
    "X.to_native()",
    error=TypeError,
)


def sparse_tensor(X: Any) -> Any:
    import torch

    return torch.from_numpy(X).to_sparse()


add(
    "a sparse tensor",
    rows(sparse_tensor),
    "Sparse data",
    "for X",
    ".to_dense()",
    error=TypeError,
)
add(
    "a generator, where rows are needed at once",
    both(rows(lambda X: (X for _ in "ab")), labels(lambda y: None)),
    "generator",
    "X is",
    "numpy.concatenate(list(X))",
    whole,
    error=TypeError,
)
add(
    "a Dask array, where rows are needed at once",
    dask,
    "come in portions",
    "X is",
    "X.compute()",
    whole,
    error=TypeError,
)


def renamed(*names: object) -> Callable[[Any], Any]:
    return lambda X: X.set_axis(list(names), axis=1)


def repeated(X: Any) -> Any:
    import pandas as pd

    return pd.concat([X, X[["g1"]]], axis=1)


def multi_index(X: Any) -> Any:
    import pandas as pd

    return X.set_axis(pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]]), axis=1)


add(
    "two columns with the same name",
    named(renamed("age", "dose", "mass", "g1", "g2", "g1")),
    "repeats the column name",
    "'g1'",
    "Rename all but one",
)
add(
    "two columns with the same name, views by position",
    both(named(renamed("age", "dose", "mass", "g1", "g2", "g1")), params(views=VIEWS)),
    "repeats the column name",
    "'g1'",
    "Rename all but one",
)
add(
    "integers as names of columns",
    both(named(renamed(*range(10, 16))), params(views=[("right", "linear", [13, 14])])),
    "the column positions 13, 14",
    "View 'right'",
    "pass X.rename(columns=str)",
)
add(
    "column names of several levels as columns of a view",
    both(named(multi_index), params(views=[("right", "linear", [("a", 1)])])),
    "several levels, such as ('a', 1)",
    "View 'right': columns must be",
    "give positions",
)
add(
    "infinity in a column for 'auto'",
    both(
        named(lambda X: X.assign(age=np.where(np.arange(N) == 7, np.inf, X["age"]))),
        params(views=[("clinical", "auto", ["age", "dose"])]),
    ),
    "contains infinity",
    "View 'clinical': Input X contains infinity: column 'age', row 7",
    "Correct the entry",
)
add(
    "column names with the prefix of a transformer",
    named(renamed("scale__age", "dose", "mass", "g1", "g2", "g3")),
    "It may be 'scale__age'",
    "View 'clinical': the column 'age'",
    "verbose_feature_names_out=False",
)
add(
    "column names with several levels",
    named(multi_index),
    "several levels, such as ('a', 1)",
    "View 'clinical': the column 'age'",
    "give positions",
)
add(
    "column names that are text and numbers",
    named(lambda X: X.rename(columns={"g3": 7})),
    "['int', 'str']",
    "Feature names",
    "X.columns.astype(str)",
    error=TypeError,
)

# --------------------------------------------------------------------------------------
add = section("Entries of X")

for value, name in ((np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")):
    add(
        f"{value} in a view",
        rows(entry(value)),
        f"contains {name}",
        "view 'right', row 7, column 4",
        "SimpleImputer",
    )
add(
    "NaN in a sparse array",
    rows(lambda X: sparse.csr_array(entry(np.nan)(X))),
    "contains NaN",
    "view 'right', row 7",
    "Impute",
)
add(
    "None among numbers",
    rows(entry(None, object)),
    "contains NaN",
    "view 'right', row 7, column 4",
    "SimpleImputer",
)
add(
    "text among numbers",
    rows(entry("four", object)),
    "'four'",
    "View 'right': row 7, column 4",
    "Encode the column",
)
add(
    "a number with a decimal comma",
    rows(entry("3,5", object)),
    "'3,5'",
    "View 'right': row 7, column 4",
    "Encode the column",
)
add(
    "numbers as text",
    rows(lambda X: X.astype(str)),
    "'0.125'",
    "View 'left': row 0, column 0",
    "Encode the column",
)
add(
    "a dict among numbers",
    rows(entry({}, object)),
    "{}",
    "View 'right': row 7, column 4",
    "Encode the column",
    error=TypeError,
)
add(
    "a list among numbers",
    rows(entry([1.0], object)),
    "[1.0]",
    "View 'right': row 7, column 4",
    "Encode the column",
)
add(
    "a complex number among objects",
    rows(entry(1 + 2j, object)),
    "(1+2j)",
    "View 'right': row 7, column 4",
    "leave it out",
    error=TypeError,
)
add(
    "an integer beyond the range of floats",
    rows(entry(10**400, object)),
    "an integer of about 400 digits",
    "View 'right': row 7, column 4",
    "take logarithms",
)
add(
    "an integer beyond the range of floats, for 'auto'",
    both(
        named(cell("g2", 10**400)),
        lambda p: p.params.update(views=[("all", "auto", COLUMNS)]),
    ),
    "an integer of about 400 digits, beyond the range of float64",
    "View 'all': 'auto' cannot use these columns: column 'g2'",
    "leave it out of the view",
)
add(
    "one entry that dwarfs its column",
    rows(entry(1e300)),
    "1e+300",
    "View 'right': row 7, column 4",
    "Correct the entry",
)
add(
    "a row without a view",
    both(rows(at(np.nan, 7, slice(3, 6))), params(missing="error")),
    "entries of the view 'right' are NaN",
    "row 7",
    "missing='available'",
)
add(
    "a row without any entry",
    rows(at(np.nan, 7)),
    "every view is missing",
    "training row 7",
    "drop them",
)
add(
    "text in a table, for a kernel on numbers",
    named(cell("dose", "high")),
    "'high'",
    "View 'clinical': row 7, column 'dose'",
    "the kernel 'auto'",
)
add(
    "dates in a table, for a kernel on numbers",
    named(lambda X: X.assign(dose=np.full(N, "2020-01-01", "M8[s]"))),
    "Timestamp('2020-01-01 00:00:00')",
    "View 'clinical': row 0, column 'dose'",
    "the kernel 'auto'",
    error=TypeError,
)
add(
    "categories in a table, for a kernel on numbers",
    named(
        lambda X: X.assign(
            dose=frame()["dose"].gt(0).map({True: "a", False: "b"}).astype("category")
        )
    ),
    "'b'",
    "View 'clinical': row 0, column 'dose'",
    "OneHotEncoder()",
)
add(
    "pandas' NA in a table",
    named(lambda X: X.astype({"dose": "Float64"}).mask(X > 1)),
    "contains NaN",
    "view 'clinical', row 1, column 'age'",
    "SimpleImputer",
)
add(
    "only constant columns",
    rows(np.ones_like),
    "every kernel is constant",
    "on the training rows",
    "check the features",
)


def with_label(p: Problem) -> None:
    X = frame(p.X).assign(outcome=p.y)
    p.X, p.y, p.params["views"] = (
        X,
        X["outcome"],
        [*NAMED, ("more", "linear", ["outcome"])],
    )


add(
    "a view with the column of y",
    with_label,
    "'outcome' of X is y itself",
    "View 'more'",
    "X.drop(columns='outcome')",
)

# --------------------------------------------------------------------------------------
add = section("Views and their columns")

add(
    "views is the name of a kernel",
    params(views="rbf"),
    "the string 'rbf'",
    "views",
    "a list of (name, kernel, columns) tuples",
)
add(
    "views is a dict",
    params(views={"left": [0, 1]}),
    "found dict {'left': [0, 1]}",
    "views",
    "a list of (name, kernel, columns) tuples",
    error=TypeError,
)
add(
    "views is a number",
    params(views=3),
    "found int 3",
    "views",
    "a list of (name, kernel, columns) tuples",
    error=TypeError,
)
add("no views", params(views=[]), "an empty list", "views", "None (all columns)")
add(
    "a view that is a list",
    params(views=[["left", "rbf", [0]]]),
    "found list ['left', 'rbf', [0]]",
    "at position 0",
    "(name, kernel, columns) tuples",
    error=TypeError,
)
add(
    "a view without a kernel",
    params(views=[("left", [0, 1])]),
    "a tuple of length 2",
    "at position 0: ('left', [0, 1])",
    "(name, kernel, columns) tuples",
)
add(
    "a view whose name is a number",
    params(views=[(1, "rbf", [0])]),
    "int 1",
    "at position 0 of views",
    "The order is (name, kernel, columns)",
    error=TypeError,
)
add(
    "a view without a name",
    params(views=[("", "rbf", [0])]),
    "is empty",
    "the view at position 0",
    "Give it a name",
)
add(
    "two underscores in a name",
    params(views=[("a__b", "rbf", [0])]),
    "must not contain '__'",
    "'a__b'",
    "Two underscores separate",
)
add(
    "a view named like a parameter",
    params(views=[("psd", "rbf", [0])]),
    "also a parameter",
    "'psd'",
    "Choose another name",
)
add(
    "two views with the same name",
    params(views=[("a", "rbf", [0]), ("a", "rbf", [1])]),
    "'a' is used twice",
    "positions 0 and 1 of views",
    "give one view a list of kernels",
)
add(
    "no columns in a view",
    columns([]),
    "columns=[] selects no columns",
    "View 'right'",
    "Remove the view",
)
add(
    "an empty slice",
    columns(slice(3, 3)),
    "columns=slice(3, 3, None) selects no columns",
    "View 'right'",
    "Remove the view",
)
add(
    "a column out of range",
    columns([3, 6]),
    "the column position 6, but X has 6 columns",
    "View 'right'",
    "Choose from 0 to 5",
)
add(
    "a column twice",
    columns([3, 3]),
    "it selects the column 3 twice",
    "View 'right'",
    "Name each column once",
)
add(
    "column names for an array",
    columns(["g3"]),
    "'g3' is given by name",
    "View 'right'",
    "Pass a DataFrame, or give positions",
)
add(
    "a boolean mask that is too short",
    columns([True, False]),
    "length 2, but X has 6",
    "View 'right'",
    "one entry per column",
)
add(
    "positions that are not integers",
    columns([3.0]),
    "a list of float",
    "View 'right'",
    "a list or slice of names or integers",
)
add(
    "names and positions together",
    both(named(), columns(["g1", 4])),
    "a list of int, str",
    "View 'right'",
    "a list or slice of names or integers",
)
add(
    "columns is None",
    columns(None),
    "NoneType None",
    "View 'right'",
    "a list or slice of names or integers",
)
add(
    "a misspelt column",
    both(named(), columns(["doze"])),
    "'doze' is not among the 6 columns",
    "View 'right'",
    "Did you mean 'dose'?",
)
add(
    "a misspelt column in a slice",
    both(named(), columns(slice("g1", "g33"))),
    "'g33' is not among the 6 columns",
    "View 'right'",
    "Did you mean 'g3'?",
)


add(
    "a view that is not in a list",
    params(views=("left", "rbf", [0])),
    "found tuple",
    "views",
    "a list of (name, kernel, columns) tuples",
    error=TypeError,
)
add(
    "a misspelt 'precomputed'",
    params(views="precomputd"),
    "the string 'precomputd'",
    "views",
    "'precomputed'",
)
add(
    "a mask that selects nothing",
    columns([False] * 6),
    "selects no columns",
    "View 'right'",
    "Remove the view",
)
add(
    "a column out of range, from the end",
    columns([0, -7]),
    "the column position -7, but X has 6 columns",
    "View 'right'",
    "Choose from 0 to 5",
)
for value in (1.5, True, {"g1"}, slice(0.5, 2)):
    kind = "slice" if isinstance(value, slice) else f"{type(value).__name__} {value!r}"
    add(
        f"columns={value!r}",
        columns(value),
        f"found {kind}",
        "View 'right'",
        "a list or slice of names or integers",
    )
add(
    "a column that does not exist",
    both(named(), columns(["zzz"])),
    "'zzz' is not among the 6 columns",
    "View 'right'",
    "They are 'age', 'dose'",
)


def broken_selector(X: Any) -> Any:
    raise KeyError("no such column")


add(
    "a column selector that fails",
    columns(broken_selector),
    "KeyError: 'no such column'",
    "View 'right': its column selector",
    "correct the selector",
)
add(
    "a column selector that finds nothing",
    columns(lambda X: []),
    "selects no columns",
    "View 'right'",
    "Remove the view",
)
add(
    "a column selector that returns a table",
    both(named(), columns(lambda X: X)),
    "found ndarray",
    "View 'right'",
    "a callable that returns one of these",
)

# --------------------------------------------------------------------------------------
add = section("Kernels of a view")

add(
    "a misspelt kernel",
    kernel("rfb"),
    "unknown kernel 'rfb'",
    "View 'right'",
    "Did you mean 'rbf'?",
)
add(
    "a misspelt kernel, on a column of text",
    both(kernel("atuo"), rows(entry("high", object))),
    "unknown kernel 'atuo'",
    "View 'right'",
    "Did you mean 'auto'?",
)
add(
    "a kernel that does not exist",
    kernel("wavelet"),
    "unknown kernel 'wavelet'",
    "View 'right'",
    "the known names are 'auto', 'linear'",
)
add(
    "'poly' for 'polynomial'",
    kernel("poly"),
    "unknown kernel 'poly'",
    "View 'right'",
    "Did you mean 'polynomial'?",
)
add(
    "'precomputed' as the kernel of a view",
    kernel("precomputed"),
    "unknown kernel 'precomputed'",
    "View 'right'",
    "set views='precomputed' as a whole",
)
add(
    "the class of a kernel",
    kernel(RBF),
    "the class RBF",
    "View 'right'",
    "pass an instance such as RBF()",
    error=TypeError,
)
add(
    "kernel None",
    kernel(None),
    "NoneType None",
    "View 'right'",
    "a kernel object such as RBF(gamma=0.1)",
    error=TypeError,
)
add(
    "a number as kernel",
    kernel(3),
    "int 3",
    "View 'right'",
    "a kernel object such as RBF(gamma=0.1)",
    error=TypeError,
)
add(
    "a matrix as kernel",
    kernel(np.eye(N)),
    "found ndarray",
    "View 'right'",
    "Similarity(K, ids)",
    error=TypeError,
)
add(
    "an empty list of kernels",
    kernel([]),
    "the list of kernels is empty",
    "View 'right'",
    "Name one, such as 'rbf'",
)
add(
    "a negative gamma",
    kernel(RBF(gamma=-1.0)),
    "found -1.0",
    "View 'right': RBF: gamma",
    "a positive number or 'median'",
)
add(
    "gamma is text",
    kernel(RBF(gamma="small")),
    "found 'small'",
    "View 'right': RBF: gamma",
    "a positive number or 'median'",
)
add(
    "gamma is NaN",
    kernel(RBF(gamma=np.nan)),
    "found nan",
    "View 'right': RBF: gamma",
    "a positive number or 'median'",
)
add(
    "a degree of zero",
    kernel(Polynomial(degree=0)),
    "found 0",
    "View 'right': Polynomial: degree",
    "must be a positive number",
)
add(
    "the class of a transformer in a Pipe",
    kernel(Pipe(StandardScaler, "rbf")),
    "<class 'sklearn.preprocessing._data.StandardScaler'>",
    "View 'right': Pipe: transformer",
    "a scikit-learn transformer object",
    error=TypeError,
)
add(
    "a Pipe without a transformer",
    kernel(Pipe("rbf", "rbf")),
    "found 'rbf'",
    "View 'right': Pipe: transformer",
    "a scikit-learn transformer object",
    error=TypeError,
)
add(
    "a Similarity on several columns",
    kernel(Similarity(np.eye(3), ["a", "b", "c"])),
    "selects 3",
    "View 'right'",
    "needs one column of ids",
)
add(
    "an id that a Similarity does not know",
    both(
        named(lambda X: X.assign(dose=[f"p{i}" for i in range(N)])),
        params(
            views=[("graph", Similarity(np.eye(3), ["p0", "p1", "p2"]), "dose")],
            missing="error",
        ),
    ),
    "'p3', 'p4', 'p5' and 6 more",
    "View 'graph'",
    "missing='available'",
)


def raises(P: Any, Q: Any) -> Any:
    raise KeyError("no such table")


def single(P: Any) -> Any:
    return P @ P.T


def writes(P: Any, Q: Any) -> Any:
    P -= P.mean(axis=0)
    return P @ Q.T


def dented(P: Any, Q: Any) -> Any:
    return P @ Q.T - 3.0 * np.all(P[:, None] == Q, axis=2)


def slanted(P: Any, Q: Any) -> Any:
    return P @ (Q * [1.0, 2.0, 3.0]).T + P[:, :1]


def returning(change: Callable[[Any], Any], name: str) -> Change:
    def function(P: Any, Q: Any) -> Any:
        return change(P @ Q.T)

    function.__name__ = name
    return kernel(function)


add(
    "a function that raises",
    kernel(raises),
    "KeyError: 'no such table'",
    "View 'right': The kernel function 'raises'",
    "Try it on two small arrays",
)
add(
    "a function of one argument",
    kernel(single),
    "takes 1 positional argument but 2 were given",
    "View 'right': The kernel function 'single'",
    "two small arrays of rows",
    error=TypeError,
)
add(
    "a function that writes to its input",
    kernel(writes),
    "read-only",
    "View 'right': The kernel function 'writes'",
    "let it copy them first",
)
add(
    "a function that returns None",
    returning(lambda K: None, "silent"),
    "returned None",
    "View 'right': The kernel function 'silent'",
    "must return the matrix",
)
add(
    "a function that returns text",
    returning(lambda K: K.astype(str), "textual"),
    "returned values of the type <U",
    "View 'right': The kernel function 'textual'",
    "a matrix of real numbers",
)
add(
    "a function that returns complex numbers",
    returning(lambda K: K + 1j, "turned"),
    "complex128",
    "View 'right': The kernel function 'turned'",
    "a matrix of real numbers",
)
add(
    "a function that returns dates",
    returning(lambda K: K.astype("M8[s]"), "dated"),
    "datetime64[s]",
    "View 'right': The kernel function 'dated'",
    "a matrix of real numbers",
)
add(
    "a function that returns objects",
    returning(lambda K: np.full(K.shape, {}), "odd"),
    "object",
    "View 'right': The kernel function 'odd'",
    "a matrix of real numbers",
)
add(
    "a function that returns one value",
    returning(lambda K: 1.0, "scalar"),
    "the shape () instead of (12, 12)",
    "View 'right': The kernel function 'scalar'",
    "must return the matrix",
)
add(
    "a function that returns a diagonal",
    returning(lambda K: np.diagonal(K), "diagonal"),
    "the shape (12,) instead of (12, 12)",
    "View 'right': The kernel function 'diagonal'",
    "must return the matrix",
)
add(
    "a function that returns NaN",
    returning(lambda K: K * np.nan, "holey"),
    "NaN or infinity",
    "View 'right': The kernel function 'holey'",
    "Check its values on the rows",
)
add(
    "a function that is not symmetric",
    kernel(slanted),
    "is not symmetric",
    "Kernel 'right: slanted'",
    "(K + K.T) / 2",
)
add(
    "a function that is not positive semidefinite",
    kernel(dented),
    "smallest eigenvalue is -",
    "right: dented",
    "psd='clip'",
)
add(
    "a function that is not positive semidefinite, with explicit features",
    kernel(dented, features="nystroem"),
    "is not positive semidefinite on 12 of the rows",
    "right: dented",
    "psd='trust'",
    streams,
)

# --------------------------------------------------------------------------------------
add = section("Precomputed kernels")

add(
    "a single precomputed row",
    both(
        rows(lambda X: np.ones((1, 1, 2))),
        params(views="precomputed"),
        labels(lambda y: y[:1]),
    ),
    "1",
    "found 1",
    "rows",
    unless(TransductiveKernelSVC),
)
add(
    "a table in place of a kernel",
    params(views="precomputed"),
    "the shape (12, 6)",
    "must be square",
    "remove views='precomputed'",
)
add(
    "kernels on the first axis",
    stack(lambda K: np.moveaxis(K, -1, 0)),
    "(2, 12, 12), which has the kernels first",
    "A stack of precomputed kernels",
    "numpy.moveaxis(X, 0, -1)",
)
add(
    "a stack that is not square",
    stack(lambda K: K[:, :-1]),
    "the shape (12, 11, 2)",
    "must be square",
    "(n, n) or (n, n, p)",
)
add(
    "four axes",
    stack(lambda K: K[..., None]),
    "4 dimensions, shape (12, 12, 2, 1)",
    "A precomputed kernel",
    "(n, n), a stack of them (n, n, p)",
)
add(
    "no kernels",
    stack(lambda K: K[..., :0]),
    "0 kernels",
    "(shape=(12, 12, 0))",
    "Pass at least one",
)
add(
    "a kernel that is not symmetric",
    stack(at(9.5, 3, 5, 1)),
    "9.5",
    "Kernel 'kernel_1' is not symmetric: entry (3, 5)",
    "(K + K.T) / 2",
)
add(
    "a kernel that is not positive semidefinite",
    stack(lambda K: K - [0, 1] * np.eye(N)[..., None]),
    "smallest eigenvalue is -",
    "kernel_1",
    "psd='clip'",
)
for psd in ("error", "clip"):
    add(
        f"a kernel without a positive eigenvalue, with psd={psd!r}",
        both(
            stack(lambda K: K - [0, 30] * np.eye(N)[..., None]),
            params(psd=psd),
        ),
        "smallest eigenvalue is -",
        "kernel_1",
        "use a positive semidefinite kernel, perhaps this one times -1",
    )
for psd in ("error", "clip", "trust"):
    add(
        f"distances, with psd={psd!r}",
        both(
            rows(lambda X: np.linalg.norm(X[:, None] - X[None], axis=2)),
            params(views="precomputed", psd=psd),
        ),
        "as in a matrix of distances",
        "Kernel 'kernel_0'",
        "Similarity.from_distances(D, ids)",
    )
for value in (np.nan, np.inf, -np.inf):
    add(
        f"{value} in a kernel",
        stack(at(value, 7, 2, 1)),
        f"holds {value}",
        "precomputed kernel 'kernel_1' holds",
        "Recompute it",
    )
add(
    "a complex kernel",
    stack(lambda K: K + 1j),
    "complex128",
    "X has the dtype",
    "real and imaginary parts",
)
add(
    "text in a kernel",
    stack(lambda K: at("a", 7, 2, 1)(K.astype(object))),
    "found 'a'",
    "at position (7, 2, 1)",
    "Correct this entry",
)
add(
    "only constant kernels",
    stack(np.ones_like),
    "every kernel is constant",
    "on the training rows",
    "check the features",
)
add(
    "a sparse kernel",
    stack(lambda K: sparse.csr_array(K[..., 0])),
    "Sparse data",
    "for X",
    ".toarray()",
    error=TypeError,
)


def labelled(p: Problem) -> None:
    import pandas as pd

    ids = [f"p{i}" for i in range(N)]
    p.X = pd.DataFrame(kernels(p.X)[..., 0], index=ids, columns=ids[::-1])
    p.params["views"] = "precomputed"


add(
    "a kernel with rows and columns in different orders",
    labelled,
    "row 0 is 'p0', but column 0 is 'p11'",
    "The precomputed kernel",
    "K.loc[:, K.index]",
)
add(
    "a dict of kernels of different sizes",
    stack(lambda K: {"a": K[..., 0], "b": K[1:, 1:, 1]}),
    "(12, 12) for 'a' and (11, 11) for 'b'",
    "precomputed kernels",
    "between the same rows",
)
add(
    "a dict of kernels with numbers as names",
    stack(lambda K: {1: K[..., 0]}),
    "found 1",
    "in X",
    "names such as 'rna'",
    error=TypeError,
)
add(
    "an empty dict of kernels",
    stack(lambda K: {}),
    "an empty dict",
    "X is",
    "at least one precomputed kernel",
)
add(
    "a dict of tables in place of kernels",
    both(rows(lambda X: {"rna": X}), params(views="precomputed")),
    "the shape (12, 6, 1)",
    "must be square",
    "remove views='precomputed'",
)
add(
    "a dict without a kernel that views names",
    both(stack(lambda K: {"a": K[..., 0]}), params(views=("precomputed", ["a", "b"]))),
    "lacks the precomputed kernel 'b'",
    "a dict with the keys 'a'",
    "Add or rename kernels",
)
add(
    "too many kernel names",
    both(stack(), params(views=("precomputed", ["a", "b", "c"]))),
    "views names 3 precomputed kernels",
    "found 2 in X of shape (12, 12, 2)",
    "one name per kernel",
)
add(
    "two kernels with the same name",
    both(stack(), params(views=("precomputed", ["a", "a"]))),
    "the name 'a' to several kernels",
    "views",
    "Choose a different name",
)
add(
    "kernel names that are numbers",
    both(stack(), params(views=("precomputed", [1, 2]))),
    "int 1",
    "in views",
    "one name per kernel",
    error=TypeError,
)
add(
    "a name that is not in a list",
    both(stack(), params(views=("precomputed", "a"))),
    "found str 'a'",
    "views=('precomputed', names)",
    "a list with one name per kernel",
    error=TypeError,
)
add(
    "interactions of precomputed kernels",
    both(stack(), params(interactions=True)),
    "views='precomputed' provides only kernels",
    "interactions=True",
    "Add products of centred kernels to the stack",
    takes("interactions"),
)

# --------------------------------------------------------------------------------------
add = section("Targets")

add(
    "y is None",
    labels(lambda y: None),
    "y is None",
    "{name} requires y",
    "one target per row of X",
)
add(
    "y is too short",
    labels(lambda y: y[:-1]),
    "y has 11",
    "X has 12 rows",
    "one target per row of X",
)
add(
    "y is too long",
    labels(lambda y: np.append(y, 1)),
    "y has 13",
    "X has 12 rows",
    "one target per row of X",
)
add(
    "y is a number",
    labels(lambda y: 1),
    "got int 1",
    "{name}: y",
    "one target per row of X",
)
add(
    "y is empty",
    labels(lambda y: y[:0]),
    "y has 0",
    "X has 12 rows",
    "one target per row of X",
)
add(
    "y is a dict",
    labels(lambda y: {"a": 1}),
    "got dict {'a': 1}",
    "{name}: y",
    "one target per row of X",
)
add(
    "NaN in y",
    labels(lambda y: np.where(np.arange(N) == 7, np.nan, y)),
    "Input y contains NaN",
    "row 7",
    "Drop such rows",
)
add(
    "a date that is missing in y",
    labels(lambda y: np.where(np.arange(N) == 7, "NaT", "2020-01-01").astype("M8[D]")),
    "Input y contains NaN",
    "row 7",
    "Drop such rows",
)
add(
    "infinity in y",
    labels(lambda y: np.where(np.arange(N) == 7, np.inf, y)),
    "Input y contains infinity",
    "row 7",
    "Drop such rows",
)
add(
    "None among labels",
    labels(lambda y: ["ill", None] * (N // 2)),
    "NaN or None",
    "rows 1, 3, 5, 7, 9 and 1 more",
    "Drop such rows",
    always_classes,
)
add(
    "None among numbers of y",
    labels(lambda y: [1.5, None] * (N // 2)),
    "Input y contains NaN",
    "rows 1, 3, 5, 7, 9 and 1 more",
    "Drop such rows",
    regresses,
)
add(
    "dates of Python as labels",
    labels(lambda y: np.array([date(2020, 1, 1 + label) for label in y])),
    "y holds objects of the type date",
    "such as '2020-01-01' in row 0",
    "pass y.astype(str)",
    unless(MultipleKernelRidge),
)
add(
    "text and numbers among labels",
    labels(lambda y: np.array(["ill", 1] * (N // 2), dtype=object)),
    "y mixes text",
    "(row 0 is 'ill') and numbers (row 1 is 1)",
    "y.astype(str)",
    unless(MultipleKernelRidge, TransductiveKernelSVC),
)
add(
    "y is the name of a column",
    both(named(), labels(lambda y: "age")),
    "the text 'age'",
    "y is",
    "fit(X.drop(columns='age'), X['age'])",
)
add(
    "y is the name of a column that does not exist",
    labels(lambda y: "outcome"),
    "the text 'outcome'",
    "y is",
    "fit(X, table['outcome'])",
)
add(
    "y as one column per class",
    labels(lambda y: np.eye(2)[y]),
    "one column for each of 2 classes",
    "{name}: y",
    "y.argmax(axis=1)",
    always_classes,
)
add(
    "y with three axes",
    labels(lambda y: np.ones((N, 2, 2))),
    "shape (12, 2, 2)",
    "{name}: y has 3 axes",
    "one target per row",
)
add(
    "y with several columns",
    labels(lambda y: np.stack([y, 2 + y], axis=1)),
    "the shape (12, 2)",
    "{name}: y",
    "MultiOutputClassifier",
    always_classes,
)
add(
    "complex numbers in y",
    labels(lambda y: y + 1j),
    "complex128",
    "y has the dtype",
    "Pass its real part",
)
add(
    "quantities where classes are needed",
    labels(lambda y: y + np.linspace(0.1, 0.7, N)),
    "continuous",
    "{name}: Unknown label type",
    "MultipleKernelRidge",
    always_classes,
)
for label in ("ill", 7, True):
    add(
        f"{label!r} as the only class",
        labels(lambda y, label=label: np.full(N, label)),
        f"1 class in 12 rows: {label!r}",
        "needs at least 2 classes",
        "add rows of other classes",
        unless(MultipleKernelRidge, TransductiveKernelSVC),
    )
add(
    "one class, where rows may be unlabelled",
    labels(lambda y: np.full(N, "ill")),
    "1 class in 12 labelled rows: 'ill'",
    "needs labelled rows",
    "mean unlabelled",
    only(TransductiveKernelSVC),
)
add(
    "text as target of a regression",
    labels(lambda y: ["ill", "well"] * (N // 2)),
    "'ill'",
    "in row 0",
    "MultipleKernelFDA",
    regresses,
)
add(
    "numbers as text, as target of a regression",
    labels(lambda y: [str(v / 7) for v in range(N)]),
    "'0.0'",
    "in row 0",
    "y.astype(float)",
    regresses,
)
add(
    "dates as target of a regression",
    labels(lambda y: np.arange(N).astype("M8[D]")),
    "datetime64, such as '1970-01-01'",
    "in row 0",
    "which needs numbers",
    regresses,
)
add(
    "durations as target of a regression",
    labels(lambda y: np.asarray(y, int).astype("m8[D]")),
    "y holds timedelta64",
    "in row 0",
    "y.astype(float)",
    regresses,
)


def arrays(y: np.ndarray) -> np.ndarray:
    found = np.empty(N, dtype=object)
    for row, label in enumerate(y):
        found[row] = np.full(2, label)
    return found


add(
    "an array in each row, as target of a regression",
    labels(arrays),
    "y holds ndarray, such as '[0 0]'",
    "in row 0",
    "needs numbers",
    regresses,
)
add(
    "an array in each row, as label",
    labels(arrays),
    "y holds objects of the type ndarray",
    "{name}: ",
    "y.astype(str)",
    always_classes,
)
add(
    "NaN as decimal, as target",
    labels(lambda y: [Decimal("NaN"), *map(Decimal, range(N - 1))]),
    "Input y contains NaN",
    "in row 0",
    "Drop such rows",
    regresses,
)
add(
    "extended precision beyond the range of floats, as target",
    labels(lambda y: np.where(np.arange(N) == 7, np.longdouble("1e400"), y)),
    "infinity or a value too large",
    "in row 7",
    "Drop such rows",
    regresses,
)
add(
    "an integer beyond the range of floats, as target",
    labels(lambda y: [10**400, *range(N - 1)]),
    "beyond the range of float64",
    "in row 0",
    "take logarithms",
    regresses,
)
add(
    "-1 as a class, although it means unlabelled",
    labels(lambda y: 2 * y - 1),
    "1 class in 6 labelled rows: 1",
    "'-1' mean unlabelled",
    "encode two classes as 0 and 1",
    only(TransductiveKernelSVC),
)
add(
    "no labelled rows",
    labels(lambda y: np.full(N, -1)),
    "no class",
    "0 labelled rows",
    "mean unlabelled",
    only(TransductiveKernelSVC),
)


def shuffled(p: Problem) -> None:
    named()(p)
    p.X.index = [f"p{i}" for i in range(N)]
    import pandas as pd

    p.y = pd.Series(p.y, index=p.X.index[::-1])


add(
    "masked targets",
    labels(lambda y: np.ma.masked_array(y, np.arange(N) < 2)),
    "a masked array",
    "{name}: y is",
    "Drop the masked rows from X and y",
    error=TypeError,
)
add(
    "sparse targets",
    labels(lambda y: sparse.csr_array(np.column_stack([y, 1 - y]))),
    "y is sparse",
    "{name}: y",
    "Pass y.toarray()",
    error=TypeError,
)
add(
    "X and y with rows in different orders",
    shuffled,
    "in different orders",
    "row 0 is 'p0' in X and 'p11' in y",
    "y.loc[X.index]",
)

# --------------------------------------------------------------------------------------
add = section("Weights of rows and classes, groups, priors")

add(
    "weights of the wrong length",
    arguments(sample_weight=np.ones(N - 1)),
    "sample_weight.shape == (11,)",
    "{name}: sample_weight",
    "one number per row",
)
add(
    "masked weights",
    arguments(sample_weight=np.ma.masked_array(np.ones(N), np.arange(N) < 2)),
    "a masked array",
    "{name}: sample_weight is",
    "Drop the masked rows from X and sample_weight",
    error=TypeError,
)
add(
    "folds that were made for rows of weight 0 too",
    lambda p: (
        params(cv=PredefinedSplit(np.arange(N) // 2 % 3))(p),
        arguments(sample_weight=np.where(np.arange(N) == 7, 0.0, 1.0))(p),
    ),
    "there are 11 rows of positive weight",
    "cv: split 0 names row 11",
    "Make the splits for these rows",
    takes("cv", "norm"),
)
EARLY, LATE = np.arange(6), np.arange(6, 12)
add(
    "splits of more rows than there are",
    params(cv=[(EARLY, LATE), (EARLY, LATE + 1)]),
    "there are 12 rows in X",
    "cv: split 1 names row 12",
    "Make the splits for these rows",
    takes("cv", "norm"),
)
add(
    "rows to learn from that are held out as well",
    params(cv=[(EARLY, LATE), (LATE, np.array([0, 7, -1]))]),
    "rows 7, 11 in both its training and its test rows",
    "cv: split 1",
    "Remove them from one of the two",
    takes("cv", "norm"),
)
add(
    "splits that are no pairs",
    params(cv=[EARLY, LATE]),
    "got ndarray",
    "cv: split 0",
    "must be a pair (train, test) of row numbers",
    takes("cv", "norm"),
)
add(
    "splits that are no numbers of rows",
    params(cv=[(EARLY, LATE / 2)]),
    "an array of float64",
    "cv: split 0",
    "rows by number, or by a mask of 12 rows",
    takes("cv", "norm"),
)
add(
    "a generator of splits that has been read",
    params(cv=iter([])),
    "cv holds no splits",
    "can be read only once",
    "pass a list of pairs (train, test)",
    takes("cv", "norm"),
)
add(
    "a negative weight",
    arguments(sample_weight=np.where(np.arange(N) == 7, -1.0, 1.0)),
    "is -1",
    "sample_weight of row 7",
    "0 leaves the row out",
)
add(
    "NaN as weight",
    arguments(sample_weight=np.where(np.arange(N) == 7, np.nan, 1.0)),
    "contains NaN",
    "sample_weight contains NaN in row 7",
    "a finite number",
)
add(
    "infinity as weight",
    arguments(sample_weight=np.where(np.arange(N) == 7, np.inf, 1.0)),
    "contains infinity",
    "row 7",
    "a finite number",
)
add(
    "weights that are all zero",
    arguments(sample_weight=np.zeros(N)),
    "zero for every row",
    "{name}: sample_weight",
    "Give a positive weight",
)
add(
    "a class whose weights are all zero",
    arguments(sample_weight=table()[1]),
    "sample_weight 0",
    "every row of class 0",
    "give one a positive weight",
    always_classes,
)
add(
    "weights whose squares vanish",
    arguments(sample_weight=np.full(N, 1e-320)),
    "add up to 1.2e-319",
    "{name}: ",
    "Multiply sample_weight",
)
add(
    "weights whose squares overflow",
    arguments(sample_weight=np.full(N, 1e154)),
    "add up to 1.2e+155",
    "{name}: ",
    "Divide sample_weight",
)
add(
    "weights with two axes",
    arguments(sample_weight=np.ones((N, 2))),
    "sample_weight.shape == (12, 2), expected (12,)",
    "{name}: sample_weight",
    "one number per row",
)
add(
    "weights that are text",
    arguments(sample_weight=["high"] * N),
    "'high'",
    "{name}: sample_weight",
    "one number per row",
)
add(
    "'balanced' as sample weights",
    arguments(sample_weight="balanced"),
    "'balanced'",
    "{name}: sample_weight",
    "set class_weight",
)
add(
    "weights of zero with precomputed kernels",
    both(stack(), arguments(sample_weight=np.where(np.arange(N) == 7, 0.0, 1.0))),
    "sample_weight 0 leaves 1 row out",
    "{name}",
    "remove such rows and columns",
)
add(
    "an unknown word as class weight",
    params(class_weight="equal"),
    "got 'equal'",
    "The 'class_weight' parameter",
    "'balanced'",
    takes("class_weight"),
)
add(
    "class weights in a list",
    params(class_weight=[1, 2]),
    "got [1, 2]",
    "The 'class_weight' parameter",
    "a dict from classes to weights",
    takes("class_weight"),
)
add(
    "a class weight of zero",
    params(class_weight={0: 0.0}),
    "is 0",
    "class_weight of class 0",
    "a finite number > 0",
    takes("class_weight"),
)
add(
    "a class weight that is text",
    params(class_weight={0: "high"}),
    "is 'high'",
    "class_weight of class 0",
    "a finite number > 0",
    takes("class_weight"),
)
add(
    "a negative class weight",
    params(class_weight={0: -2.0}),
    "is -2",
    "class_weight of class 0",
    "a finite number > 0",
    takes("class_weight"),
)
add(
    "the weight of a class that is not in y",
    params(class_weight={"ill": 2.0}),
    "'ill', but y has 0, 1",
    "{name}: class_weight",
    "the labels of y as keys",
    takes("class_weight"),
)
add(
    "the weight of one class that is not in y, and of one that is",
    params(class_weight={0: 2.0, "ill": 2.0}),
    "0, 'ill', but y has 0, 1",
    "{name}: class_weight",
    "the labels of y as keys",
    takes("class_weight"),
)
add(
    "groups of the wrong length",
    arguments(groups=np.arange(N - 1)),
    "the shape (11,)",
    "groups has",
    "one group per row",
    grouped,
)
add(
    "one group",
    arguments(groups=np.zeros(N)),
    "all rows are in group 0.0",
    "at least 2 groups",
    "leave them out",
    grouped,
)
add(
    "one group among the rows that count",
    arguments(
        groups=np.repeat(["a", "b"], N // 2),
        sample_weight=np.repeat([1.0, 0.0], N // 2),
    ),
    "all rows are in group 'a'",
    "at least 2 groups",
    "leave them out",
    grouped,
)
add(
    "groups with two axes",
    arguments(groups=np.ones((N, 2))),
    "the shape (12, 2)",
    "groups has",
    "one group per row",
    grouped,
)
add(
    "groups of text and numbers",
    arguments(groups=np.array(["a", 1] * (N // 2), dtype=object)),
    "values of several types",
    "groups holds",
    "groups.astype(str)",
    grouped,
)
add(
    "None among groups",
    arguments(groups=["a", None] * (N // 2)),
    "no entry",
    "groups has no entry for rows 1, 3",
    "Give every row a group",
    grouped,
)
add(
    "a date that is missing among groups",
    arguments(groups=np.where(np.arange(N) < 9, "NaT", "2020-01-01").astype("M8[D]")),
    "no entry",
    "groups has no entry for rows 0, 1",
    "Give every row a group",
    grouped,
)
add(
    "NaN among groups",
    arguments(groups=np.where(np.arange(N) == 7, np.nan, 1.0)),
    "no entry",
    "groups has no entry for row 7",
    "Give every row a group",
    grouped,
)


def weights_of(*given: Any) -> Change:
    """Two kernels whose weights are these numbers, or this object."""
    return both(stack(), params(kernel_weights=given[0] if len(given) < 2 else given))


weighted = takes("kernel_weights")
add(
    "weights of fewer kernels than there are",
    weights_of([1.0]),
    "got (1,)",
    "kernel_weights needs one number per kernel",
    "in the order of 'kernel_0', 'kernel_1'",
    weighted,
)
add(
    "weights of kernels that are no numbers",
    weights_of("large", "small"),
    "got ('large', 'small')",
    "kernel_weights",
    "one number per kernel",
    weighted,
)
add(
    "a negative weight of a kernel",
    weights_of(0.5, -0.2),
    "has -0.2",
    "kernel_weights must be finite numbers >= 0; the kernel 'kernel_1'",
    "Leave a kernel out with the weight 0",
    weighted,
)
add(
    "NaN as the weight of a kernel",
    weights_of(np.nan, 1.0),
    "has nan",
    "the kernel 'kernel_0'",
    "Leave a kernel out with the weight 0",
    weighted,
)
add(
    "an infinite weight of a view",
    params(kernel_weights={"left": 1.0, "right": np.inf}),
    "has inf",
    "the view 'right'",
    "must be finite numbers >= 0",
    weighted,
)
add(
    "the weight of a view as text",
    params(kernel_weights={"left": "much"}),
    "has 'much'",
    "the view 'left'",
    "must be finite numbers >= 0",
    weighted,
)
add(
    "weights of kernels that are all zero",
    weights_of(0.0, 0.0),
    "are all zero",
    "kernel_weights",
    "Give at least one kernel a weight > 0",
    weighted,
)
add(
    "weights of kernels whose squares leave the range of numbers",
    weights_of(1e200, 1e200),
    "the sum 2e+200",
    "kernel_weights",
    "by their sum",
    weighted,
)
add(
    "the weight of a view that does not exist",
    params(kernel_weights={"lift": 1.0}),
    "'lift' is neither a view nor a kernel",
    "kernel_weights",
    "Did you mean 'left'?",
    weighted,
)
add(
    "two weights of one kernel",
    kernel(RBF(gamma=0.1), kernel_weights={"right": 1, "right: RBF(gamma=0.1)": 2}),
    "both give the weight",
    "the kernel 'right: RBF(gamma=0.1)'",
    "leave out one of them",
    weighted,
)
add(
    "the weight of one of two kernels with the same name",
    kernel([RBF(gamma=0.1)] * 2, kernel_weights={"right: RBF(gamma=0.1)": 1.0}),
    "2 kernels have the name 'right: RBF(gamma=0.1)'",
    "kernel_weights",
    "pass an array with one number per kernel",
    weighted,
)


def backwards_kernels() -> Any:
    import pandas as pd

    return pd.Series([0.5, 0.5], index=["kernel_1", "kernel_0"])


add(
    "weights of kernels in another order",
    lambda p: weights_of(backwards_kernels())(p),
    "got the index 'kernel_1', 'kernel_0'",
    "kernel_weights",
    "pass kernel_weights.to_dict() for weights by name",
    weighted,
)
add(
    "priors of the wrong length",
    params(priors=[1.0]),
    "got shape (1,)",
    "priors",
    "one number per class",
    takes("priors"),
)


def backwards(values: Any) -> Any:
    import pandas as pd

    return pd.Series(values, index=[1, 0])


add(
    "priors of classes in another order",
    params(priors=backwards([0.25, 0.75])),
    "the classes 1, 0 as its index",
    "priors",
    "Sort it",
    takes("priors"),
)
add(
    "priors that do not sum to 1",
    params(priors=[0.5, 0.6]),
    "sum to 1.1",
    "priors",
    "must be positive and sum to 1",
    takes("priors"),
)
add(
    "a negative prior",
    params(priors=[-0.5, 1.5]),
    "[-0.5, 1.5]",
    "priors",
    "must be positive",
    takes("priors"),
)
add(
    "priors that are text",
    params(priors="balanced"),
    "got 'balanced'",
    "priors",
    "one number per class",
    takes("priors"),
)

# --------------------------------------------------------------------------------------
add = section("Parameters")

BAD = {
    "alpha": (0.0, -1.0, np.nan, np.inf, True, None, "lo", "0.1", [0.1]),
    "C": (0.0, -1.0, np.nan, np.inf, True, None, "big", [1.0]),
    "noise": (0.0, -1.0, np.nan, True, None, "low"),
    "norm": (0.5, 0, -1, np.nan, True, None, "l1", "2", [2]),
    "tol": (0.0, -1e-3, np.nan, np.inf, True, None, "small"),
    "max_iter": (0, -5, 2.5, True, np.nan, "many"),
    "verbose": (-1, 1.5, None, "yes"),
    "psd": ("shift", None, True),
    "missing": ("drop", None, True),
    "features": ("l1", None, True),
    "n_features": (0, -3, 2.5, True, None, "many"),
    "random_state": ("x", -1, 1.5, [1, 2]),
    "device": (3,),
    "solver": ("simplex", None, 1),
    "interactions": ("yes", None, 2),
    "centre": ("yes", None, 1),
    "scale": ("unit", True),
    "cv": (1, 0, -2, 2.5, True, "five"),
    "scoring": ("accurate", 3),
    "margin": ("l3", None),
    "weights": ("each", None),
    "signed": ("yes", None, 1),
    "uncorrelated": ("yes", None, 1),
    "weight_bound": (0, np.nan, np.inf, 1e20, True, "large"),
    "n_components": (0, -1, 1.5, True, "all"),
    "method": ("hsic2", None),
    "output": ("both", None),
    "label_kernel": ("polynomial", None, 3),
    "projection": ("middle", None),
    "concentration": (-0.1, np.nan, True, "much"),
    "amplitude": ("large", None),
    "class_weight": (True, 2.0),
}
for parameter, values in BAD.items():
    for value in values:
        add(
            f"{parameter}={value!r}",
            params(**{parameter: value}),
            f"got {value!r}",
            f"The {parameter!r} parameter of {{name}}",
            "must be",
            takes(parameter),
        )

add(
    "an unknown device",
    params(device="abacus"),
    "device='abacus'",
    "device",
    "leave device at None",
)
add(
    "signed='yes' with a solver for signed=False",
    params(signed="yes", solver="newton"),
    "got 'yes'",
    "The 'signed' parameter of {name}",
    "must be a bool",
    takes("signed", "solver"),
)
add(
    "a parameter that does not exist",
    params(nonsense=1),
    "'nonsense'",
    "for {name}",
    "its parameters",
)
add(
    "a view that does not exist, in set_params",
    both(params(middle__gamma=1.0)),
    "'middle'",
    "for {name}",
    "Its views are ['left', 'right']",
)
add(
    "a kernel's parameter that does not exist",
    both(params(left__gama=1.0)),
    "'gama'",
    "the kernel RBF() of 'left'",
    "Its parameters are",
)

learner = takes("n_features")
fda = only(MultipleKernelFDA)
add(
    "random features of precomputed kernels",
    both(stack(), params(features="random")),
    "views='precomputed'",
    "features='random'",
    "needs columns",
    learner,
)
add(
    "alpha='cv' with precomputed kernels",
    both(stack(), params(alpha="cv")),
    "views='precomputed'",
    "alpha='cv'",
    "needs columns",
    learner,
)
add(
    "missing views on the fly",
    both(rows(at(np.nan, 7, slice(3, 6))), params(features="on_the_fly")),
    "features='on_the_fly' keeps none",
    "row 7 lacks a view",
    "Use another value of features",
    takes("features", "missing"),
)
add(
    "missing views in kernels that are not centred",
    both(rows(at(np.nan, 7, slice(3, 6))), params(centre=False)),
    "centre=False",
    "row 7 lacks a view",
    "drop such rows",
    takes("centre", "missing"),
)
add(
    "new rows that lack a view, if kernels are not centred",
    new_lacking(centre=False),
    "row 7 lacks a view",
    "centre=False",
    "Pass rows that have every view",
    takes("centre", "missing"),
)
add(
    "a row without a view, for explicit features",
    both(rows(at(np.nan, 7, slice(3, 6))), params(features="nystroem")),
    "entries of the view 'right' are NaN",
    "row 7",
    "impute the view",
    streams,
)
add(
    "a view to be completed in new rows, with explicit features",
    new_lacking(features="nystroem", missing="available"),
    "row 7 lacks a view",
    "explicit features",
    "missing='zero'",
    streams,
)
add(
    "noise='em' with weights that are not learned",
    params(noise="em", weights="uniform"),
    "got weights='uniform'",
    "noise='em'",
    "('per_class' or 'shared')",
    only(MixtureKDA),
)

# --------------------------------------------------------------------------------------
add = section("New rows")


def unfitted(p: Problem) -> None:
    p.later = lambda model: ask(clone(model), p.X)


add(
    "a model that is not fitted",
    unfitted,
    "not fitted yet",
    "{name}",
    "Call 'fit'",
    error=NotFittedError,
)
add(
    "new rows that are None",
    new(lambda X: None),
    "X is None",
    "{name} needs one row per sample",
    "Pass an array or a DataFrame",
)
add(
    "a path in place of new rows",
    new(lambda X: "new.csv"),
    "the text 'new.csv'",
    "X is",
    "pandas.read_csv",
)
add(
    "a dict in place of new rows",
    new(lambda X: {"rna": X}),
    "'rna'",
    "X is a dict",
    "join_tables",
    error=TypeError,
)
add(
    "one new row without brackets",
    new(lambda X: X[0]),
    "got 1D array",
    "X has the shape (6,)",
    "X.reshape(1, -1)",
)
add(
    "no new rows",
    new(lambda X: X[:0]),
    "0 sample(s) (shape=(0, 6))",
    "of X",
    "Check how the rows",
)
add(
    "new rows with one column fewer",
    new(lambda X: X[:, :5]),
    "X has 5 features",
    "{name}",
    "is expecting 6 features",
)
add(
    "new rows with one more column",
    new(lambda X: np.hstack([X, X[:, :1]])),
    "X has 7 features",
    "{name}",
    "is expecting 6 features",
)
add(
    "NaN in a new row",
    new(entry(np.nan)),
    "holds nan",
    "view 'right', row 7, column 4",
    "SimpleImputer",
)
add(
    "infinity in a new row",
    new(entry(np.inf)),
    "holds inf",
    "view 'right', row 7, column 4",
    "drop the rows",
)
add(
    "text in a new row",
    new(entry("four", object)),
    "'four'",
    "View 'right': row 7, column 4",
    "Encode the column",
)
add(
    "complex new rows",
    new(lambda X: X + 1j),
    "complex128",
    "X has the dtype",
    "real and imaginary parts",
)
add(
    "a new row far outside the range of the training rows",
    new(entry(1e300)),
    "1e+300",
    "View 'right': row 7, column 4",
    "Correct the entry or drop the row",
)
add(
    "a lazy frame of new rows",
    new(lazy),
    "LazyFrame",
    "X is",
    "X.collect()",
    error=TypeError,
)
add(
    "new rows without a column",
    new(lambda X: X.drop(columns="g1"), named()),
    "'g1'",
    "(view 'genes')",
    "add or rename them",
)
add(
    "new rows with a renamed column",
    new(lambda X: X.rename(columns={"dose": "doses"}), named()),
    "'dose'",
    "(view 'clinical')",
    "Is 'dose' now called 'doses'?",
)
add(
    "new rows with two columns with the same name",
    new(repeated, named()),
    "repeats the column name",
    "'g1' (view 'genes')",
    "Rename all but the intended columns",
)


def tensor(X: Any) -> Any:
    import torch

    return torch.from_numpy(X)


add(
    "new rows from another array library",
    new(tensor),
    "X is an array of torch",
    "fitted on an array of numpy",
    "move X there, or fit again where X is",
)
add(
    "new kernels with one training row fewer",
    new(lambda K: K[:, :-1], stack()),
    "X has 11 features",
    "{name} is expecting 12",
    "the shape (m, 12) or (m, 12, p)",
)
add(
    "new kernels, transposed",
    new(lambda K: K[:, :5], stack()),
    "found (12, 5, 2)",
    "{name} is expecting 12",
    "Is X transposed?",
)
add(
    "new kernels on the first axis",
    new(lambda K: np.moveaxis(K, -1, 0)[:, :5], stack()),
    "found (2, 5, 12)",
    "{name} is expecting 12",
    "numpy.moveaxis(X, 0, -1)",
)
add(
    "one new kernel instead of two",
    new(lambda K: K[..., 0], stack()),
    "found 1 in X of shape (12, 12)",
    "{name} was fitted on 2",
    "Pass the same kernels as in fit",
)
add(
    "three new kernels instead of two",
    new(lambda K: K[..., [0, 1, 1]], stack()),
    "found 3 in X of shape (12, 12, 3)",
    "{name} was fitted on 2",
    "Pass the same kernels as in fit",
)


def shuffled_kernel(p: Problem) -> None:
    import pandas as pd

    ids = [f"p{i}" for i in range(N)]
    K = pd.DataFrame(kernels(p.X)[..., 0], index=ids, columns=ids)
    p.later = lambda model: ask(
        clone(model).set_params(views="precomputed").fit(K, p.y), K[ids[::-1]]
    )


add(
    "new kernels with columns in another order",
    shuffled_kernel,
    "should match those that were passed during fit",
    "feature names",
    "same order",
)
add(
    "NaN in a new kernel",
    new(at(np.nan, 7, 2, 1), stack()),
    "holds nan",
    "precomputed kernel 'kernel_1' holds nan at position (7, 2)",
    "Recompute it",
)
add(
    "infinity in a new kernel",
    new(at(np.inf, 7, 2, 1), stack()),
    "holds inf",
    "precomputed kernel 'kernel_1' holds inf at position (7, 2)",
    "Recompute it",
)

# --------------------------------------------------------------------------------------
add = section("The rows of a fit, for inspection")


def again(rows: Callable[[Any], Any], targets: Callable[[Any], Any]) -> Change:
    """Rows and targets are changed for a function that solves the problem again."""

    def apply(p: Problem) -> None:
        X, y = rows(p.X), targets(p.y)
        p.later = lambda model: weight_ranges(model, X, y)

    return apply


def same(values: Any) -> Any:
    return values


def reverse(values: Any) -> Any:
    return values[::-1]


def all_but_last(values: Any) -> Any:
    return values[:-1]


def turn(values: Any) -> Any:
    """Rows 3 and 4 change places."""
    return values[[0, 1, 2, 4, 3, *range(5, N)]]


WANTS_THE_ROWS_OF_THE_FIT = "weight_ranges needs the rows and targets that the {name}"
PASS_THOSE_OF_THE_FIT = "Pass the X and y that fit was given, or fit again"
add(
    "fewer rows than those of the fit",
    again(all_but_last, all_but_last),
    "it was fitted on 12 rows, and X has 11",
    WANTS_THE_ROWS_OF_THE_FIT,
    PASS_THOSE_OF_THE_FIT,
    poses_problem,
)
add(
    "the rows of the fit in another order",
    again(reverse, reverse),
    "X holds rows of the fit in another order",
    WANTS_THE_ROWS_OF_THE_FIT,
    PASS_THOSE_OF_THE_FIT,
    poses_problem,
)
add(
    "other rows than those of the fit",
    again(lambda X: X + (np.arange(N) == 5)[:, None], same),
    "X has as many rows, but only 11 of them are rows of the fit",
    WANTS_THE_ROWS_OF_THE_FIT,
    PASS_THOSE_OF_THE_FIT,
    poses_problem,
)
add(
    "the targets of the fit in another order",
    again(same, turn),
    "X holds these rows, but y has other targets, or the same in another order",
    WANTS_THE_ROWS_OF_THE_FIT,
    PASS_THOSE_OF_THE_FIT,
    poses_problem,
)


def columns_of_components(p: Problem) -> None:
    """The importance of columns, without the rows that became components."""
    X, y, views = p.X, p.y, [("left", Pipe(PCA(2), "rbf"), [0, 1, 2])]

    def explain(model: BaseEstimator) -> None:
        changed = clone(model).set_params(views=views).fit(X, y)
        feature_importance(changed, "left")

    p.later = explain


add(
    "the columns before a transformer, without rows",
    columns_of_components,
    "keeps the training rows of the view 'left'",
    "after PCA, not the rows themselves",
    "pass the rows over which to average as X",
    is_fixed_sum,
)

# --------------------------------------------------------------------------------------
add = section("Rows in portions")


def portions(*pairs: Any) -> Change:
    def apply(p: Problem) -> None:
        X, y = p.X, p.y
        p.X, p.y = (
            iter([pair(X, y) if callable(pair) else pair for pair in pairs]),
            None,
        )

    return apply


add(
    "an iterator together with y",
    rows(lambda X: iter([X])),
    "got ndarray",
    "an iterator yields pairs (X, y)",
    "leave out y",
    streams,
)
add(
    "an empty iterator",
    portions(),
    "no rows",
    "the input X",
    "Check how they were selected",
    streams,
)
add(
    "an iterator of rows without targets",
    portions(lambda X, y: X),
    "ndarray",
    "portion 0",
    "must yield pairs (X, y)",
    streams,
    error=TypeError,
)
add(
    "a portion with one column fewer",
    portions(lambda X, y: (X, y), lambda X, y: (X[:, :5], y)),
    "X has 5 features",
    "the portion that starts at row 12",
    "is expecting 6 features",
    streams,
)
add(
    "NaN in a later portion",
    portions(lambda X, y: (X, y), lambda X, y: (entry(np.nan)(X), y)),
    "holds nan",
    "the portion that starts at row 12",
    "SimpleImputer",
    streams,
)
add(
    "a portion with one target fewer",
    portions(lambda X, y: (X, y), lambda X, y: (X, y[1:])),
    "y has 11",
    "the portion that starts at row 12",
    "one target per row of X",
    streams,
)
add(
    "a portion of no rows",
    portions(lambda X, y: (X, y), lambda X, y: (X[:0], y[:0])),
    "0 sample(s) (shape=(0, 6))",
    "the portion that starts at row 12",
    "Check how the rows",
    streams,
)
add(
    "weights for rows that come in portions",
    both(portions(lambda X, y: (X, y)), arguments(sample_weight=np.ones(N))),
    "got list_iterator",
    "sample_weight needs all rows at once",
    "Call partial_fit",
    streams,
)


def dask_short(p: Problem) -> None:
    dask(p)
    p.y = p.y[:-1]


def dask_unknown(p: Problem) -> None:
    dask(p)
    import dask.array as da

    p.X = p.X[p.X[:, 0] < 100.0]
    p.y = p.y[da.arange(N, chunks=6) < 9]


def dask_kernels(p: Problem) -> None:
    dask(p)
    p.params["views"] = "precomputed"


add(
    "a Dask array y that is too short",
    dask_short,
    "X has 12 rows, y has 11",
    "X and y",
    "Make both from the same rows",
    streams,
)
add(
    "Dask arrays of unknown and unequal length",
    dask_unknown,
    "has 6 rows, but 3 were found",
    "partition",
    "Make both from the same rows",
    streams,
)
add(
    "Dask arrays as precomputed kernels",
    dask_kernels,
    "got Array",
    "views='precomputed'",
    "takes kernels between all rows at once",
    streams,
)


def portion(*calls: Any, **parameters: Any) -> Change:
    def apply(p: Problem) -> None:
        def later(model: Any) -> None:
            model = clone(model).set_params(**parameters)
            for X, y, given in calls:
                model.partial_fit(X, y, **given)

        p.later = later

    return apply


X0, y0 = table()
add(
    "partial_fit without rows, in the first call",
    portion((None, None, {})),
    "there were none",
    "partial_fit without rows",
    "Pass X and y",
    streams,
)
add(
    "partial_fit with targets but without rows",
    portion((X0, y0, {}), (None, y0, {})),
    "takes no y, classes or sample_weight",
    "partial_fit without rows",
    "Pass X too",
    streams,
)


def finished(p: Problem) -> None:
    def later(model: Any) -> None:
        _finished(clone(model).partial_fit(X0, y0)).partial_fit(X0, y0)

    p.later = later


add(
    "partial_fit of a model that was saved without its rows",
    finished,
    "saved with resumable=False",
    "{name}",
    "Save it with resumable=True",
    streams,
)


def saved_with(transformer: Any) -> Change:
    def apply(p: Problem) -> None:
        view = ("a", Pipe(transformer, "linear"), [0])
        p.later = lambda model: save(clone(model).set_params(views=[view]), "model.kw")

    return apply


add(
    "saving a model that opens the files that rows name",
    saved_with(CountVectorizer(input="filename")),
    "input='filename'",
    "cannot save this {name}",
    "use input='content'",
    fda,
)
add(
    "saving a search over caches",
    saved_with(GridSearchCV(Pipeline([("p", PCA())]), {"memory": ["cache"]})),
    "it sets 'memory' at every fit",
    "cannot save this {name}",
    "leave it out of the search",
    fda,
)
add(
    "partial_fit with a label that is not a class",
    portion((X0, y0, {"classes": [0, 2]})),
    "y contains 1",
    "classes=[0, 2]",
    "Give all labels in classes",
    fda,
)
add(
    "balanced classes for rows that come in portions",
    portion((X0, y0, {"classes": [0, 1]}), class_weight="balanced"),
    "class_weight='balanced'",
    "{name}",
    "give a dict from class to weight",
    fda,
)
add(
    "portions with labels of two types",
    portion((X0, y0, {}), (X0, y0.astype(str), {})),
    "y holds text, but numbers in the first portion",
    "portion that starts at row",
    "Convert y",
    fda,
)
add(
    "portions with different numbers of outputs",
    portion((X0, X0[:, 0], {}), (X0, X0[:, :2], {})),
    "y holds 2 outputs per row, but 1 output per row in the first portion",
    "portion that starts at row",
    "Convert y",
    regresses,
)
add(
    "kernels on the fly for rows that come in portions",
    portion((X0, y0, {}), features="on_the_fly"),
    "features='on_the_fly'",
    "partial_fit takes rows in portions",
    "Set features='auto'",
    streams,
)

"""Real tables: columns of any kind in a view, in every estimator."""

from __future__ import annotations

import pickle
import warnings
from decimal import Decimal

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, csr_matrix, issparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from estimators import EXPLICIT, ONE_EACH, output, some
from kernelweave import (
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    TransductiveKernelSVC,
    load,
    save,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels import Pipe, Standardizer, functions, spec
from kernelweave.models.streaming.intake import SAMPLE_ROWS
from kernelweave.views.raw_columns import Columns, as_objects, read_column
from kernelweave.views.streams import sampled

#: What is done with a column depends on its kind, not on the numbers in it.
pytestmark = pytest.mark.one_seed

pd = pytest.importorskip("pandas")

N = 40
Y = np.tile([0, 1], N // 2)
NOTES = [f"{'well' if label else 'poorly'} day {i % 3}" for i, label in enumerate(Y)]
DAYS = np.datetime64("2020-01-01") + np.arange(N) * 7 % 50
WARDS = [("east", "west", "north")[i % 3] for i in range(N)]
FLAGS = [i % 4 == 0 for i in range(N)]
DOSES = [(7 * i) % 11 for i in range(N)]
#: A column of each kind in the types of pandas: what "auto" makes of it.
KINDS = {
    "float": (DOSES, "float64", "number", "number"),
    "nullable integer": ([None, *DOSES[1:]], "Int64", "number", "number"),
    "arrow integer": (DOSES, "int64[pyarrow]", "number", "number"),
    "text": (WARDS, "str", "text", "one-hot"),
    "objects": ([None, *WARDS[1:]], object, "text", "one-hot"),
    "arrow text": (WARDS, "string[pyarrow]", "text", "one-hot"),
    "category": (WARDS, "category", "category", "one-hot"),
    "boolean": (FLAGS, "bool", "boolean", "one-hot"),
    "nullable boolean": ([None, *FLAGS[1:]], "boolean", "boolean", "one-hot"),
    "date": (DAYS, "datetime64[ns]", "date", "number"),
    "date objects": (list(DAYS.astype(object)), object, "date", "number"),
    "duration": (DAYS - DAYS[0], "timedelta64[ns]", "duration", "number"),
}
#: Columns that are left out, and why.
USELESS = {
    "constant": (["same"] * N, "the same value in every row"),
    "constant number": ([3.0] * N, "the same value in every row"),
    "nothing": ([None] * N, "no values at all"),
    "id": ([f"p{i}" for i in range(N)], "as in an id"),
    "typo": (["-", *map(str, np.arange(1, N) / 8)], "numbers as text, next to '-'"),
    "commas": (
        ["k.A.", *(f"{i},5" for i in range(1, N))],
        "numbers with commas, next to 'k.A.'",
    ),
    "dates": ([f"{i + 1}.12.20" for i in range(N)], "in an unknown form: '1.12.20'"),
    "ISO dates": (["-", *DAYS.astype(str)[1:]], "dates as text, next to '-'"),
    "UTC": ([f"{d}T10:00:00Z" for d in DAYS.astype(str)], "dates as text: "),
    "zones": ([f"{d} 10:00+01:00" for d in DAYS.astype(str)], "dates as text: "),
    "thousands": ([f"{i + 1},000.5" for i in range(N)], "or dates in an unknown form"),
    "per cent": ([f"{i}%" for i in range(N)], "numbers or dates in an unknown form"),
    "units": ([f"{i / 8} mg" for i in range(N)], "numbers with a unit: '0.0 mg'"),
    "some units": (
        ["none", *(f"<{i} mmol/l" if i % 2 else f"{i},5°" for i in range(1, N))],
        "numbers with a unit: '",
    ),
    "ids with numbers": ([f"{i}{chr(65 + i % 26)}" for i in range(N)], "as in an id"),
    "long text": (
        [f"note {i // 2 * 2 + i % 2 * (i > 5)}" for i in range(N)],
        "text of",
    ),
}


def table(*names, **others):
    """A frame of the named columns of KINDS, and a column that tells the classes."""
    columns = {"size": np.random.default_rng(0).normal(size=N) + 2 * Y, **others}
    for name in names:
        values, dtype = KINDS[name][:2]
        columns[name] = pd.Series(values, dtype=dtype)
    return pd.DataFrame(columns)


def same(A, B):
    """1 where two words agree."""
    return np.equal.outer(np.asarray(A), np.asarray(B)).astype(float)


MIXED = table("objects", "category", "boolean", "nullable integer", "date")
MIXED["notes"] = NOTES
VIEWS = [
    ("auto", "auto", ["size", "objects", "boolean", "nullable integer", "date"]),
    ("words", Pipe(TfidfVectorizer(), "linear"), "notes"),
    ("coded", Pipe(OneHotEncoder(handle_unknown="ignore"), "rbf"), ["category"]),
]
STRINGS = ("strings", same, ["category"])
every_estimator = pytest.mark.parametrize("estimator", some())


def quiet(call, *arguments):
    """The result, without the warnings that are not the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)
        return call(*arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_auto_reads_every_kind(kind):
    if "arrow" in kind:
        pytest.importorskip("pyarrow")
    X = table(kind)
    model = KernelFDA(alpha=0.1, cv=None).fit(X, Y)
    record = model.column_summary_[1]
    assert (record["column"], record["kind"], record["use"]) == (kind, *KINDS[kind][2:])
    gaps = int(X[kind].isna().sum())
    assert record["missing"] == gaps
    assert ("gap" in record["remark"]) == bool(gaps)
    scores = model.decision_function(X)
    assert_allclose(model.decision_function(X[[kind, "size"]]), scores)
    assert_allclose(pickle.loads(pickle.dumps(model)).decision_function(X), scores)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "arrow" not in kind])
def test_polars_agrees_with_pandas(kind):
    pl = pytest.importorskip("polars")
    X = table(kind)
    expected = KernelFDA(alpha=0.1, cv=None).fit(X, Y).decision_function(X)
    values = [
        None if gap else v for v, gap in zip(X[kind], X[kind].isna(), strict=True)
    ]
    if kind == "duration":  # early versions of polars do not know those of pandas
        values = [None if v is None else v.to_pytimedelta() for v in values]
    other = pl.DataFrame({"size": X["size"].to_numpy(), kind: values})
    if kind == "category":
        other = other.with_columns(pl.col(kind).cast(pl.Categorical))
    model = KernelFDA(alpha=0.1, cv=None).fit(other, Y)
    assert model.column_summary_[1]["kind"] == KINDS[kind][2]
    assert_allclose(model.decision_function(other), expected, atol=1e-8)
    with pytest.raises(TypeError, match=r"LazyFrame.*Pass X\.collect\(\)"):
        model.predict(other.lazy())


def same_cells(X, Z):
    """The number of columns in which two rows have equal cells, or both have none."""
    assert isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2
    return np.sum([[np.equal.outer(a, b)] for a, b in zip(X.T, Z.T, strict=True)], 0)[0]


def test_what_a_function_reads_is_restored(tmp_path):
    """Objects of Python and times of NumPy, whatever the types of the table."""
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("skops")
    names = pd.ArrowDtype(arrow.dictionary(arrow.int32(), arrow.string()))
    dates, moments = pd.Series([pd.NaT, *DAYS[1:]]), "timestamp[us, tz=UTC][pyarrow]"
    columns = {
        "words": pd.Series([None, *WARDS[1:]], dtype=names),
        "zoned": dates.dt.tz_localize("Europe/Berlin"),
        "months": dates.dt.to_period("M"),
        "days": pd.Series([None, *DAYS[1:].tolist()], dtype=object),
        "spans": pd.Series([None, *(DAYS[1:] - DAYS[0]).tolist()], dtype=object),
        "arrow_dates": dates.astype("date32[pyarrow]"),
        "arrow_spans": (dates - DAYS[0]).astype("duration[us][pyarrow]"),
        "arrow_times": dates.dt.tz_localize("UTC").astype(moments),
        "weeks": pd.Series([pd.NaT, *DAYS[1:].astype("M8[W]")]).astype("category"),
        "decimals": pd.Series([None, *map(Decimal, DOSES[1:])], dtype=object),
        "whole": pd.Series([None, *range(1, N)], dtype="Int64"),
        "flags": pd.Series([None, *FLAGS[1:]], dtype="boolean"),
    }
    X = pd.DataFrame(columns).assign(last=FLAGS)
    view = ("v", same_cells, slice(None))
    model = KernelFDA([view], alpha=0.1, cv=None).fit(X, Y)
    save(model, tmp_path / "model.kw")
    again = load(tmp_path / "model.kw", trusted=[f"{__name__}.same_cells"])
    assert_array_equal(again.decision_function(X), model.decision_function(X))
    (before,), (after,) = (m.kernel_map_.source.features for m in (model, again))
    assert_array_equal(after.table, before.table)
    assert before.table[0].tolist() == [None] * len(columns) + [True]
    types, kept = ([*map(type, rows.table[1, :-1])] for rows in (before, after))
    times = [np.datetime64] * 3 + [np.timedelta64, np.datetime64, np.timedelta64]
    assert types == kept == [str, *times, *[np.datetime64] * 2, Decimal, int, bool]


def test_a_file_holds_nothing_of_a_table_that_auto_reads(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    X = table("text", "date", "category", bins=pd.cut(pd.Series(DOSES, dtype=float), 3))
    X["decimals"] = pd.Series([*map(Decimal, DOSES)], dtype=object)
    X["arrow"] = X["decimals"].astype(pd.ArrowDtype(arrow.decimal128(6, 2)))
    model = KernelFDA(alpha=0.1, cv=None).fit(X, Y)
    save(model, tmp_path / "model.kw")
    again = load(tmp_path / "model.kw")
    assert_array_equal(again.decision_function(X), model.decision_function(X))
    for kept in again.kernel_map_.source.features:
        assert type(kept) is np.ndarray and kept.dtype == np.float64
    assert again.kernel_map_.source.blocks is None


def test_objects_are_those_of_the_table():
    """Whatever its library, and whatever lists they are."""
    pl = pytest.importorskip("polars")
    columns = {"day": DAYS.tolist(), "word": [None, *WARDS[1:]], "list": [[1]] * N}
    arrays = [np.array(list(rows), dtype=object) for rows in columns.values()]
    arrays[2] = as_objects(columns["list"])
    plain = np.column_stack(arrays)
    wanted = Columns(plain, [0, 1, 2]).as_objects().table
    assert wanted[0, 1] is None and wanted[0, 2] == [1]
    assert wanted[3, 0] == np.datetime64(DAYS[3]) and wanted[3, 1] == WARDS[3]
    for library in pd.DataFrame, pl.DataFrame:
        found = Columns(library(columns), [*columns]).as_objects().table
        assert_array_equal(found, wanted)
    again = pickle.loads(pickle.dumps(Columns(wanted, [0, 1, 2], np.float32)))
    assert_array_equal(again.table, wanted)
    assert again.dtype == np.float32 and again.labels == [0, 1, 2]


def test_integers_of_categories_keep_their_digits():
    words = read_column(pd.DataFrame({0: pd.Categorical([2**60, 2**60 + 1, 3])}), 0)
    assert words.values.tolist() == ["1152921504606846976", "1152921504606846977", "3"]


def test_arrow_tables_keep_the_index_of_pandas_as_a_column():
    arrow = pytest.importorskip("pyarrow")
    X = table("text", "date")
    named = arrow.Table.from_pandas(X.set_index("text"))
    assert named.column_names[-1] == "text"
    expected = KernelFDA(alpha=0.1, cv=None).fit(X, Y).decision_function(X)
    model = KernelFDA(alpha=0.1, cv=None).fit(named, Y)
    assert_allclose(model.decision_function(named), expected)
    views = [("one", "rbf", ["size"]), ("two", "auto", ["text", "date"])]
    model = MultipleKernelFDA(views, norm=1, alpha=0.1, features="nystroem", cv=None)
    X = X.assign(ill=Y)
    found = [
        clone(model).fit(arrow.Table.from_pandas(one), "ill").decision_function(X)
        for one in (X, X.set_index("text"), X.set_index("ill"))
    ]
    assert_allclose(found[1:], found[:1] * 2)
    unread = pytest.importorskip("pyarrow.dataset").dataset(named)
    with pytest.raises(TypeError, match=r"InMemoryDataset.*Pass X\.to_table\(\)"):
        KernelFDA().fit(unread, Y)


def test_models_of_polars_are_restored(tmp_path):
    pl = pytest.importorskip("polars")
    pytest.importorskip("skops")
    wards = pl.Series([None, *WARDS[1:]], dtype=pl.Categorical)
    sizes = table()["size"].to_numpy()
    X = pl.DataFrame({"size": sizes, "words": wards, "day": DAYS.tolist()})
    model = KernelFDA(alpha=0.1, cv=None).fit(X, Y)
    save(model, tmp_path / "model.kw")
    again = load(tmp_path / "model.kw")
    assert_array_equal(again.decision_function(X), model.decision_function(X))


def test_a_number_that_dwarfs_its_column_is_named():
    X = table("text", huge=np.where(np.arange(N) == 3, 1e300, np.arange(N) / 4))
    with pytest.raises(ValueError, match=r"row 3, column 'huge' holds 1e\+300, more"):
        KernelFDA(alpha=0.1, cv=None).fit(X, Y)


def test_times_of_any_unit_and_age():
    """Nanoseconds end in 2262, but a table may hold the last day of 9999."""
    pl = pytest.importorskip("polars")
    days = np.array(["0900-03-01", "2020-01-01", "9999-12-31"], dtype="M8[D]")
    dates, spans = days.tolist(), (days - days[0]).tolist()
    number = (days - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    mixed = np.array([np.timedelta64(2, "Y"), np.timedelta64(1, "s"), None])
    for kind, given, expected in (
        ("date", dates, number),
        ("date", days.astype("M8[us]"), number),
        ("duration", spans, number - number[0]),
        ("duration", (days - days[0]).astype("m8[s]"), number - number[0]),
        ("duration", mixed, [730.485, 1 / 86400, np.nan]),
    ):
        plain = np.asarray(given)[:, None]
        tables = [plain, pd.DataFrame(plain, columns=["x"], dtype=plain.dtype)]
        tables += [pl.DataFrame({"x": given})] if isinstance(given, list) else []
        for one in tables:
            column = read_column(one, 0)
            assert column.kind == kind
            assert_allclose(column.values, expected, rtol=1e-15)


@pytest.mark.parametrize("kind", USELESS)
def test_auto_leaves_out_what_it_cannot_use(kind):
    values, why = USELESS[kind]
    X = table(odd=values)
    model = KernelFDA(alpha=0.1, cv=None)
    how = "Write numbers as 1234.5" if "numbers" in why or "form" in why else ""
    how = "Turn text into dates" if "dates as text" in why else how
    with pytest.warns(
        KernelWarning, match=rf"view 'all'.*leaves out .*'odd' .*{why}.*{how}"
    ):
        model.fit(X, Y)
    assert model.column_summary_[1]["use"] == "left out"
    assert any("left out" in remark for remark in model.kernel_map_.remarks)
    expected = KernelFDA(alpha=0.1, cv=None).fit(X[["size"]], Y)
    assert_allclose(
        model.decision_function(X), expected.decision_function(X), atol=1e-8
    )
    if kind not in ("constant number", "nothing"):
        no_column = f"View 'all': 'auto' finds no column.*{how}"
        with pytest.raises(ValueError, match=no_column):
            model.fit(X[["odd"]], Y)


def test_auto_says_how_to_write_dates_and_numbers():
    X = table(day=USELESS["ISO dates"][0], price=USELESS["thousands"][0])
    both = r"Turn text into dates, .* Write numbers as 1234\.5"
    with pytest.warns(KernelWarning, match=both):
        KernelFDA(alpha=0.1, cv=None).fit(X, Y)


def test_auto_names_what_it_does_not_know():
    with pytest.raises(ValueError, match=r"'odd' holds values of several kinds, 1 \(n"):
        KernelFDA().fit(table(odd=[1, "a"] * (N // 2)), Y)
    with pytest.raises(ValueError, match="Input X contains infinity: column 'odd'"):
        KernelFDA().fit(table(odd=np.where(Y == 1, np.inf, 0.0)), Y)
    with pytest.raises(ValueError, match="repeats the column name 'size'"):
        KernelFDA().fit(table("text")[["size", "size"]], Y)
    views = [("one", "auto", ["size"]), ("two", "auto", ["text"])]
    with pytest.raises(ValueError, match=r"interactions=True .*'text' holds values of"):
        MultipleKernelFDA(views, interactions=True).fit(table("text"), Y)
    for value, kind in ([1], r"\[1\] \(list"), (1j, r"1j \(complex"):
        with pytest.raises(ValueError, match=rf"'odd' holds objects such as {kind}\)"):
            KernelFDA().fit(table(odd=[value] * N), Y)
    for order in (np.arange(N), np.random.default_rng(0).permutation(N)[:30]):
        X = table(number=np.arange(N) + 1000).iloc[order]
        with pytest.warns(
            KernelWarning, match="uses the column 'number', whose values count"
        ):
            KernelFDA(cv=None).fit(X, Y[order])


def test_auto_on_numbers_is_as_before():
    X = table("float")
    model = KernelFDA(alpha=0.1, cv=None).fit(X, Y)
    plain = KernelFDA(alpha=0.1, cv=None).fit(X.to_numpy(), Y)
    assert model.kernel_names_ == plain.kernel_names_
    assert_allclose(
        model.decision_function(X), plain.decision_function(X.to_numpy()), atol=1e-12
    )
    with pytest.raises(ValueError, match="Input X contains NaN"):
        plain.fit(np.where(X > 9, np.nan, X), Y)


def test_the_overlap_kernel_counts_agreements():
    X = table("text", "category")[["text", "category"]].assign(flag=FLAGS)
    model = KernelFDA(alpha=0.1, cv=None).fit(X, Y)
    i = model.kernel_names_.index("all: one-hot Linear()")
    _, kernel = model.kernel_map_.source.places[i]
    agree = sum(same(X[name], X[name]) for name in X)
    assert_allclose(kernel.gram(Columns(X, [*X])), agree)


def test_auto_has_kernels_on_numbers_categories_and_both():
    names = KernelFDA(alpha=0.1, cv=None).fit(table("float", "text"), Y).kernel_names_
    for part in ("numbers", "one-hot", "all columns"):
        assert any(name.startswith(f"all: {part}") for name in names), part


def test_each_kernel_of_a_table_gets_what_it_reads():
    X = table("float")
    kernels = [Pipe(PCA(1), "linear"), "laplacian"]
    model = KernelFDA([("v", kernels, slice(None))], alpha=0.1, cv=None)
    plain = clone(model).fit(X.to_numpy(), Y).decision_function(X.to_numpy())
    assert_allclose(model.fit(X, Y).decision_function(X), plain, atol=1e-12)


@pytest.mark.parametrize("estimator", some((*ONE_EACH, *EXPLICIT)))
def test_mixed_tables_in_every_estimator(estimator):
    views = VIEWS if hasattr(estimator, "partial_fit") else [*VIEWS, STRINGS]
    model = clone(estimator).set_params(views=views).fit(MIXED, Y)
    expected = output(model, MIXED)
    assert np.all(np.isfinite(expected))
    again = pickle.loads(pickle.dumps(model))
    mixed_up = MIXED[MIXED.columns[::-1]].assign(more=1)
    assert_allclose(output(again, mixed_up), expected, rtol=1e-6, atol=1e-9)
    kinds = {record["column"]: record["use"] for record in model.column_summary_}
    assert kinds["objects"] == "one-hot" and kinds["notes"] == "as it is"
    new = MIXED.assign(objects="unheard-of").iloc[:3]
    with pytest.warns(KernelWarning, match="'objects': 'unheard-of' in 3 rows"):
        output(model, new)
    with pytest.raises(ValueError, match=r"'size' held values of the kind 'number'"):
        output(model, MIXED.assign(size="large"))


def test_what_is_wrong_with_new_rows():
    X = table("date", "text")
    model = KernelFDA(alpha=0.1, cv=None).fit(X, Y)
    for changes, message in (
        ({"date": [np.nan] + [1.5] * (N - 1)}, "'date' .* now 'number', such as 1.5"),
        ({"date": [*map(str, DAYS[1:]), "soon"]}, "'text', such as 'soon'"),
        ({"size": ["1.5"] * (N - 1) + ["#NV"]}, "'text', such as '#NV'"),
        ({"size": ["1,5"] * (N - 1) + ["#NV"]}, "'text', such as '#NV'"),
        ({"size": [1e300] * N}, "row 0, column 'size' holds 1e.300, so values"),
        ({"size": np.inf}, r"infinity: View 'all': column 'size', row 0\. Correct"),
    ):
        with pytest.raises(ValueError, match=message):
            quiet(model.predict, X.assign(**changes))
    empty = X.assign(**dict.fromkeys(X, None))
    with pytest.warns(KernelWarning, match=f"{N} of {N} rows without any view"):
        model.predict(empty)
    with pytest.raises(ValueError, match="view 'all' are NaN in rows 0, 1"):
        quiet(model.set_params(missing="error").fit, empty, Y)


def test_searches_and_folds():
    model = KernelFDA([*VIEWS, STRINGS], alpha=0.1, cv=None)
    # measured: 1
    assert np.mean(quiet(lambda: cross_val_score(model, MIXED, Y, cv=2))) > 0.9
    grid = {"words__transformer__min_df": [1, 2]}
    search = GridSearchCV(model, grid, cv=2, error_score="raise")
    assert quiet(lambda: search.fit(MIXED, Y)).best_score_ > 0.9  # measured: 1


def test_transformers_receive_the_columns_as_they_are():
    by_name = make_column_transformer(
        (OneHotEncoder(), ["text"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["nullable integer"]),
        sparse_threshold=0.0,
    )
    X = table("text", "nullable integer")
    pipe = Pipe(by_name, "rbf")
    model = KernelFDA([("v", pipe, ["text", "nullable integer"])], cv=None).fit(X, Y)
    features = clone(by_name).fit_transform(X)
    expected = KernelFDA([("v", "rbf", slice(None))], cv=None).fit(features, Y)
    assert_allclose(
        model.decision_function(X), expected.decision_function(features), atol=1e-9
    )
    with pytest.raises(ValueError, match=r"TfidfVectorizer takes a single column"):
        views = [("v", Pipe(TfidfVectorizer(), "linear"), ["text", "size"])]
        KernelFDA(views).fit(X, Y)
    with pytest.raises(
        ValueError, match=r"View 'v': row 0, column 'text' holds 'east'"
    ):
        KernelFDA([("v", "rbf", ["text"])]).fit(X, Y)


def test_sparse_features_stay_sparse():
    seen = []

    def product(X, Z):
        seen.append(issparse(X) and issparse(Z))
        return X @ Z.T

    views = [("v", Pipe(TfidfVectorizer(), [product, "linear"]), "notes")]
    model = KernelFDA(views, cv=None).fit(MIXED, Y)
    model.predict(MIXED)
    assert seen and all(seen)
    first, second = model.kernel_map_.project_each(
        model._observed_rows(MIXED, ""), np.ones(2), model.dual_coef_
    ).transpose(1, 0, 2)
    assert_allclose(first, second, atol=1e-12)


@pytest.mark.measured
def test_labels_reach_the_transformer(rng):
    X = pd.DataFrame(rng.normal(size=(N, 30)))
    X[7] += 3 * Y
    model = KernelFDA([("best", Pipe(SelectKBest(k=1), "linear"), slice(None))])
    model.fit(X.to_numpy(), Y)
    ((_, kernel),) = model.kernel_map_.source.places
    assert kernel.steps[0].get_support(indices=True).tolist() == [7]
    assert not hasattr(model, "cv_score_")  # its folds would share a look at all labels
    assert "judge the model by cross_val_score" in model.kernel_map_.remarks[0]
    partly = np.where(np.arange(N) < 30, Y, -1)
    views = [("best", Pipe(SelectKBest(k=1), "linear"), slice(None))]
    other = TransductiveKernelSVC(views, signed=False).fit(X.to_numpy(), partly)
    assert other.score(X.to_numpy(), Y) > 0.8  # measured: 0.95
    ((_, kernel),) = other.kernel_map_.source.places
    labelled = SelectKBest(k=1).fit(X[:30], Y[:30])
    assert_allclose(kernel.steps[0].scores_, labelled.scores_)
    noise = rng.normal(size=(N, 300))
    fair = cross_val_score(clone(model).set_params(cv=None), noise, Y, cv=5)
    assert np.mean(fair) < 0.75  # measured: 0.53


@every_estimator
def test_a_view_may_be_absent_from_new_rows(estimator):
    overlap = Pipe(OneHotEncoder(handle_unknown="ignore"), "linear")
    views = [("two", overlap, ["objects", "date"]), *VIEWS[1:]]
    views.append(("number", "rbf", ["size"]))
    missing = "zero" if hasattr(estimator, "predict") else "available"
    model = clone(estimator).set_params(views=views, missing=missing)
    X = MIXED.copy()
    X.loc[X.index[:4], "size"] = np.nan
    X.loc[X.index[5:9], "category"] = None
    model.fit(X, Y)
    gone = X.drop(columns=["category", "notes"])
    blank = X.assign(category=None, notes=None)
    expected = quiet(output, model, blank)
    assert_allclose(quiet(output, model, gone), expected, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match=r"lacks the column 'date' \(view 'two'"):
        output(model, X.drop(columns="date"))
    with pytest.raises(ValueError, match="lacks the columns 'objects'"):
        output(model, X[[]].assign(other=1))
    model.set_params(missing="error").fit(MIXED, Y)
    with pytest.raises(ValueError, match="lacks the column 'category'"):
        output(model, MIXED.drop(columns="category"))


def test_absent_rows_of_another_library():
    pl = pytest.importorskip("polars")
    X = table("float", "text")
    X.loc[5:9, "text"] = None
    views = [("size", "rbf", ["size", "float"]), ("ward", "auto", ["text"])]
    model = MixtureKDA(views, missing="available").fit(X, Y)
    other = pl.DataFrame({name: X[name].tolist() for name in X[["size", "float"]]})
    words = [None if gap else v for v, gap in zip(X.text, X.text.isna(), strict=True)]
    other = other.with_columns(pl.Series("text", words))
    assert_allclose(model.predict_proba(other), model.predict_proba(X))
    portions = MultipleKernelFDA(views, norm=1, alpha=0.1, features="nystroem", cv=None)
    portions.partial_fit(X.fillna("east"), Y, classes=[0, 1])
    twice = clone(portions).partial_fit(X.fillna("east"), Y, classes=[0, 1])
    portions.partial_fit(other.fill_null("east"), Y)
    X = X.fillna("east")
    twice.partial_fit(X, Y)
    assert_array_equal(portions.predict_proba(X), twice.predict_proba(X))
    piped = [("v", Pipe(TfidfVectorizer(), "linear"), ["text"])]
    parts = iter([(X, Y), (other.fill_null("east"), Y)])
    with pytest.raises(TypeError, match="several libraries: pandas and polars"):
        clone(portions).set_params(views=piped).fit(parts)


@pytest.mark.parametrize(
    ("library", "sizes"), [("pandas", (1, 11)), ("polars", (7,)), ("pyarrow", (11,))]
)
def test_auto_judges_columns_by_all_first_portions(library, sizes):
    module = pytest.importorskip(library)
    X = table("float", "text")
    order = np.argsort(X.text.to_numpy(), kind="stable")
    X, y = X.iloc[order].reset_index(drop=True), Y[order]
    X = {
        "pandas": lambda: X,
        "polars": lambda: module.DataFrame(X.to_dict("list")),
        "pyarrow": lambda: module.table(X),
    }[library]()
    model = MultipleKernelFDA(
        [("all", "auto", ["float", "text"])], norm=1, alpha=0.1, cv=None
    )
    expected = clone(model).fit(iter([(X, y)])).predict_proba(X)
    for size in sizes:
        starts = range(0, len(y), size)
        parts = ((X[i : i + size], y[i : i + size]) for i in starts)
        found = clone(model).fit(parts).predict_proba(X)
        assert_array_equal(found, expected)


@pytest.mark.one_seed
def test_categories_that_the_sample_lacks_are_known(rng):
    """Columns are judged by all rows; only some of them fix the features."""
    n = 2500
    X = pd.DataFrame({"x": rng.normal(size=n), "word": rng.choice(["a", "b"], n)})
    model = MultipleKernelFDA(features="nystroem", n_features=4, norm=1, alpha=0.1)
    model.set_params(cv=None, random_state=0)
    drawn = sampled(n, SAMPLE_ROWS, 0)
    X.loc[np.setdiff1d(np.arange(n), drawn)[:3], "word"] = "rare"
    model.fit(X, rng.integers(2, size=n))
    (record,) = (row for row in model.column_summary_ if row["column"] == "word")
    assert record["remark"] == "3 values"


KERNELS = {
    "auto": "auto",
    "linear": "linear",
    "rbf": "rbf",
    "cosine": "cosine",
    "polynomial": "polynomial",
    "laplacian": "laplacian",
    "chi2": "chi2",
    "scaled": Pipe(Standardizer(), ["cosine", "rbf"]),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_sparse_rows_in_every_kernel(kernel, rng):
    X = rng.random((N, 8)) * (rng.random((N, 8)) < 0.4)
    model = MultipleKernelFDA([("v", kernel, slice(None))], norm=2, alpha=0.1, cv=None)
    # scikit-learn's vectorizers return sparse matrices, whose sums have two axes
    dense, thin = clone(model).fit(X, Y), clone(model).fit(csr_matrix(X), Y)
    expected = dense.transform(X)
    for found in (thin.transform(csr_array(X)), thin.transform(X)):
        assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@every_estimator
def test_sparse_rows_need_no_dense_copy(estimator, rng, monkeypatch):
    def refuse(X):
        raise AssertionError("a dense copy was made")

    for module in (functions, spec):
        monkeypatch.setattr(module, "dense_rows", refuse)
    X = csr_array(rng.random((N, 30)) * (rng.random((N, 30)) < 0.2))
    scaled = Pipe(Standardizer(), ["rbf", "linear"])
    views = [("v", [scaled, "rbf", "cosine", "laplacian"], slice(None))]
    model = clone(estimator).set_params(views=views).fit(X, Y)
    assert np.all(np.isfinite(output(model, X[:5])))


@pytest.mark.parametrize("estimator", some([*ONE_EACH, *EXPLICIT]))
def test_gaps_that_only_new_rows_have(estimator, rng):
    """A view of numbers alone fills them like one that also has categories."""
    X = pd.DataFrame(rng.normal(size=(N, 4)), columns=list("abcd"))
    views = [("one", "auto", ["a", "b"]), ("two", ["auto", "rbf"], ["c", "d"])]
    model = estimator.set_params(views=views).fit(X, Y)
    new, by_hand = X.head(4).copy(), X.head(4).copy()
    new.loc[0, "b"], by_hand.loc[0, "b"] = np.nan, X.b.median()
    new["c"], by_hand.loc[1, "c"] = new["c"].astype("Float64"), X.c.median()
    new.loc[1, "c"] = pd.NA
    for fitted in model, pickle.loads(pickle.dumps(model)):
        with pytest.warns(KernelWarning, match="column '[bc]': 1 gap") as caught:
            assert_array_equal(output(fitted, new), output(model, by_hand))
        assert len(caught) == 2
    empty = X.drop(index=2).reindex(range(4))
    if isinstance(model, MixtureKDA):
        with pytest.raises(ValueError, match="every view is missing in new row 2"):
            quiet(output, model, empty)
    else:
        with pytest.warns(KernelWarning, match="1 of 4 rows without any view"):
            output(model, empty)


def test_gaps_that_only_new_rows_have_in_products_and_folds(rng):
    X = pd.DataFrame(rng.normal(size=(N, 4)), columns=list("abcd"))
    views = [("one", "auto", ["a", "b"]), ("two", "auto", ["c", "d"])]
    settings = {"norm": 1, "alpha": 0.1, "cv": None}
    model = MultipleKernelFDA(views, interactions=True, **settings).fit(X, Y)
    new = X.head(4).copy()
    new.loc[0, "b"] = np.nan
    with pytest.warns(KernelWarning, match="column 'b': 1 gap"):
        found = output(model, new)
    assert_array_equal(found, output(model, new.fillna({"b": X.b.median()})))
    X.loc[0, "b"] = np.nan
    with pytest.warns(KernelWarning, match="column 'b': 1 gap"):
        scores = cross_val_score(MultipleKernelFDA(views, **settings), X, Y, cv=2)
    assert np.all(np.isfinite(scores))


def test_integers_of_128_bits():
    pl = pytest.importorskip("polars")
    if not hasattr(pl, "Int128"):
        pytest.skip("this version of polars has none")
    rng = np.random.default_rng(0)
    y, dose = np.arange(30) % 2, rng.integers(0, 9, size=30)
    plain = pl.DataFrame({"age": rng.normal(size=30) + y, "dose": dose})
    wide = plain.cast({"dose": pl.Int128})
    labels = pl.Series(y.tolist(), dtype=pl.Int128)
    for views in (None, [("v", "linear", ["age", "dose"])]):
        one = MultipleKernelFDA(views, norm=1).fit(plain, y)
        other = MultipleKernelFDA(views, norm=1).fit(wide, labels)
        assert_allclose(other.predict_proba(wide), one.predict_proba(plain))
        assert other.cv_score_ == one.cv_score_

"""Checks of X: dtypes, containers, missing and infinite entries, feature names."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator

from kernelweave._array import is_numpy, to_numpy
from kernelweave.views.columns import (
    View,
    resolve_columns,
    split_views,
    validate_features,
    validate_new,
)

VIEWS = [View("rna", "auto", slice(0, 2)), View("dna", "auto", slice(2, 4))]


class Model(BaseEstimator):
    pass


def blocks_of(X, views=VIEWS, **kwargs):
    X = validate_features(Model(), X, reset=True)
    return split_views(X, views, resolve_columns(X, views), **kwargs)[0]


def sample(n=6, d=4):
    return np.random.default_rng(0).normal(size=(n, d))


# ---- blocks -----------------------------------------------------------------------


def test_blocks_in_each_library(xp_backend):
    X = xp_backend.asarray(sample())
    rna, dna = blocks_of(X)
    assert type(rna) is type(X)
    np.testing.assert_array_equal(to_numpy(rna), sample()[:, :2])
    np.testing.assert_array_equal(to_numpy(dna), sample()[:, 2:])
    (mixed,) = blocks_of(X, [View("v", "auto", [3, 0])])
    np.testing.assert_array_equal(to_numpy(mixed), sample()[:, [3, 0]])


@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "float32", "float64"])
def test_dtypes_in_each_library(xp_backend, dtype):
    X = xp_backend.asarray(np.arange(12).reshape(3, 4) % 2, dtype=dtype)
    expected = xp_backend.xp.float32 if dtype == "float32" else xp_backend.xp.float64
    for block in blocks_of(X):
        assert block.dtype == expected
    for block in blocks_of(X, dtype=xp_backend.xp.float32):
        assert block.dtype == xp_backend.xp.float32


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, ">f8", "uint8", object])
def test_other_numpy_dtypes_become_float64(dtype):
    X = np.arange(12).reshape(3, 4).astype(dtype)
    for block in blocks_of(X):
        assert block.dtype == np.dtype("=f8")
    np.testing.assert_array_equal(blocks_of(X)[1], [[2, 3], [6, 7], [10, 11]])


def test_list_of_lists():
    np.testing.assert_array_equal(blocks_of([[1, 2, 3, 4]])[1], [[3.0, 4.0]])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_use_only_their_views_columns(library):
    frames = pytest.importorskip(library)
    columns = {
        "text": ["a", "b"],
        "i": [1, 2],
        "f32": np.array([0.5, 1.5], dtype=np.float32),
        "b": [True, False],
        "missing": [np.nan, 1.0],
    }
    X = frames.DataFrame(columns)
    views = [View("x", "auto", ["i", "b"]), View("y", "auto", "f32")]
    x, y = blocks_of(X, views)
    np.testing.assert_array_equal(x, [[1, 1], [2, 0]])
    assert x.dtype == y.dtype == np.float64  # float32 next to integers: a common dtype
    (y,) = blocks_of(X, views[1:])
    assert y.dtype == np.float32
    with pytest.raises(ValueError, match=r"'t'.*row 0, column 'text' holds 'a'"):
        blocks_of(X, [View("t", "auto", ["i", "text"])])
    with pytest.raises(ValueError, match=r"'t'.*row 0, column 'text' holds 'a'"):
        blocks_of(X, [View("t", "auto", ["text"])])


def test_nullable_columns():
    pandas = pytest.importorskip("pandas")
    full = pandas.DataFrame({"a": [1, 2], "b": [True, False]})
    full = full.astype({"a": "Int64", "b": "boolean"})
    view = [View("v", "auto", slice(None))]
    np.testing.assert_array_equal(blocks_of(full, view)[0], [[1, 1], [2, 0]])
    gaps = pandas.DataFrame({"a": [1, None], "b": [1.0, 2.0]}).astype({"a": "Int64"})
    with pytest.raises(ValueError, match=r"NaN.*'v', row 1, column 'a'"):
        blocks_of(gaps, view)
    with pytest.raises(ValueError, match=r"NaN.*'v', row 1, column 0"):
        blocks_of(gaps.to_numpy(dtype=object), view)
    polars = pytest.importorskip("polars")
    gaps = polars.DataFrame({"a": [True, None], "b": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"NaN.*'v', row 1, column 'a'"):
        blocks_of(gaps, view)


def test_times_are_refused():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    when = pandas.to_datetime(["2020-01-01", "2021-01-01"])
    for X in (
        pandas.DataFrame({"t": when}),
        pandas.DataFrame({"t": when, "x": [1.0, 2.0]}),
        polars.DataFrame({"x": [1.0, 2.0], "t": when.to_pydatetime().tolist()}),
        polars.DataFrame({"t": (when - when[0]).to_pytimedelta().tolist()}),
    ):
        with pytest.raises((ValueError, TypeError), match=r"'v'.*column 't' holds"):
            blocks_of(X, [View("v", "auto", slice(None))])


def test_text_in_arrays_and_lists_is_named_but_only_where_used():
    rows = [[1.0, 2.0, "high"], [3.0, 4.0, "low"]]
    view = View("v", "auto", [0, 1])
    for X in (rows, np.array(rows, dtype=object)):
        np.testing.assert_array_equal(blocks_of(X, [view])[0], [[1, 2], [3, 4]])
        with pytest.raises(ValueError, match=r"'w'.*row 0, column 2 holds 'high'"):
            blocks_of(X, [View("w", "auto", slice(None))])
    with pytest.raises(ValueError, match=r"holds '1.5', which is not a number"):
        blocks_of(np.array([["1.5", "2"]]), [view])
    with pytest.raises(TypeError, match=r"column 1 holds \{'a': 1\}.*argument must be"):
        blocks_of(np.array([[1.0, {"a": 1}]], dtype=object), [view])


# ---- missing and infinite -----------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({(4, 3): np.nan}, r"contains NaN: view 'dna', row 4, column 3 holds nan \(1"),
        ({(4, 3): np.inf}, "contains infinity: view 'dna', row 4, column 3 holds inf"),
        ({(1, 0): -np.inf, (2, 1): np.nan}, r"row 1, column 0 holds -inf \(2 row"),
        (
            {(5, 0): np.nan, (5, 1): np.nan, (2, 0): np.nan, (2, 1): np.nan},
            r"NaN: .* view 'rna' are NaN in rows 2, 5.*missing='zero'",
        ),
    ],
)
def test_missing_and_infinite_entries_are_named(xp_backend, entries, message):
    X = sample()
    for place, value in entries.items():
        X[place] = value
    with pytest.raises(ValueError, match=message):
        blocks_of(xp_backend.asarray(X))


def test_columns_outside_views_may_be_missing():
    X = sample()
    X[0, 3] = np.nan
    assert blocks_of(X, [View("v", "auto", [0, 1])])[0].shape == (6, 2)


# ---- memory -----------------------------------------------------------------------


def test_inputs_are_read_but_not_copied_or_written(tmp_path):
    X = sample()
    X.flags.writeable = False
    rna, dna = blocks_of(X)
    assert np.shares_memory(rna, X)
    assert np.shares_memory(dna, X)
    file = np.memmap(tmp_path / "x", dtype=float, mode="w+", shape=(6, 4))
    file[:] = sample()
    file.flush()
    readonly = np.memmap(tmp_path / "x", dtype=float, mode="r", shape=(6, 4))
    for odd in (readonly, np.asfortranarray(sample()), sample()[::-1][::-1]):
        np.testing.assert_array_equal(blocks_of(odd)[1], sample()[:, 2:])


# ---- shapes and names ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5,), "Expected 2D array, got 1D array instead(.|\n)*Reshape your data"),
        ((), "Expected 2D array, got"),
        ((2, 2, 2), "Found array with dim 3"),
        ((0, 3), r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required"),
        ((12, 0), r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of 1 is req"),
    ],
)
def test_shapes(xp_backend, shape, message):
    with pytest.raises(ValueError, match=message):
        validate_features(Model(), xp_backend.asarray(np.zeros(shape)), reset=True)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_empty_frames(library):
    frames = pytest.importorskip(library)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        validate_features(Model(), frames.DataFrame({"a": []}), reset=True)


def test_complex_and_sparse_and_masked():
    for library in ("numpy", "torch", "array_api_strict"):
        xp = pytest.importorskip(library)
        X = xp.asarray(np.ones((3, 2), dtype=complex))
        with pytest.raises(ValueError, match=r"Complex data not supported"):
            validate_features(Model(), X, reset=True)
    for X in (sparse.csr_array(sample()), sparse.coo_matrix(sample())):
        assert validate_features(Model(), X, reset=True).format == "csr"
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"Sparse data was passed.*dense data is"):
        validate_features(Model(), torch.eye(3).to_sparse(), reset=True)
    with pytest.raises(TypeError, match=r"Masked arrays are not supported"):
        validate_features(Model(), np.ma.masked_equal(sample(), 0), reset=True)


def test_number_of_features_is_kept(xp_backend):
    model = Model()
    model.feature_names_in_ = np.array(["old"], dtype=object)
    X = xp_backend.asarray(sample())
    assert validate_features(model, X, reset=True).shape == (6, 4)
    assert model.n_features_in_ == 4
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(ValueError, match=r"X has 3 features, but Model is expecting 4"):
        validate_features(model, X[:, :3], reset=False)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_new_columns_by_name_or_by_position(library):
    frames = pytest.importorskip(library)
    X = frames.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]})
    model, views = Model(), [View("v", "auto", [0]), View("w", "auto", [1, 0])]
    validate_features(model, X, reset=True)
    for new in (X, X[["b", "a"]], X[["c", "b", "a"]]):
        same, positions = validate_new(model, new, views, [[0], [1, 0]])
        assert same is new
        blocks = split_views(new, views, positions)[0]
        np.testing.assert_array_equal(blocks[0], [[1], [2]])
        np.testing.assert_array_equal(blocks[1], [[3, 1], [4, 2]])
    with pytest.raises(ValueError, match=r"lacks .* 'b' \(view 'w'\)"):
        validate_new(model, X[["a"]], views, [[0], [1, 0]])
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        validate_new(model, X[:0], views, [[0], [1, 0]])
    with pytest.warns(UserWarning, match=r"X does not have valid feature names"):
        _, positions = validate_new(model, np.ones((2, 3)), views, [[0], [1, 0]])
    assert positions == [[0], [1, 0]]
    with (
        pytest.warns(UserWarning, match=r"X does not have valid feature names"),
        pytest.raises(ValueError, match=r"X has 2 features, but Model is expecting 3"),
    ):
        validate_new(model, np.ones((2, 2)), views, [[0], [1, 0]])


def test_names_that_are_no_text_are_no_names():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.arange(6.0).reshape(2, 3))
    views, model = [View("v", "auto", [0])], Model()
    validate_features(model, X, reset=True)
    assert validate_new(model, X[[2, 1, 0]], views, [[0]])[1] == [[0]]
    with pytest.raises(ValueError, match=r"X has 2 features, but Model is expecting 3"):
        validate_new(model, X[[0, 1]], views, [[0]])
    named = X.set_axis(list("abc"), axis=1)
    with pytest.warns(UserWarning, match=r"was fitted without feature names"):
        validate_new(model, named, views, [[0]])
    validate_features(model, named, reset=True)
    named[7] = 1.0  # a name that is not a string belongs to no view
    assert validate_new(model, named[[7, *"cba"]], views, [[0]])[1] == [[3]]


@pytest.mark.parametrize("kind", ["date32[day]", "timestamp[us, tz=UTC]"])
def test_times_of_arrow_in_pandas_are_refused(kind):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    days = pandas.Series(np.array(["2020-01-01", "NaT"], dtype="M8[us]"))
    X = days.astype("timestamp[us, tz=UTC][pyarrow]").astype(f"{kind}[pyarrow]")
    with pytest.raises(TypeError, match=r"row 0, column 'when' holds .*not a number"):
        blocks_of(pandas.DataFrame({"when": X}), [View("v", "linear", "when")])


def test_arrow_tables_are_read_column_by_column():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(
        {
            "text": ["a", "b"],
            "gap": [None, 2],
            "flag": [True, False],
            "small": pyarrow.array([0.5, 1.5], pyarrow.float32()),
            "when": pyarrow.array([0, 1], pyarrow.timestamp("s")),
        }
    )
    flag, small = blocks_of(table, [View("v", "auto", "flag"), View("w", "auto", 3)])
    np.testing.assert_array_equal(flag, [[1], [0]])
    np.testing.assert_array_equal(small, [[0.5], [1.5]])
    assert flag.dtype == np.float64
    assert blocks_of(table, [View("w", "auto", "small")])[0].dtype == np.float32
    with pytest.raises(ValueError, match=r"'v', row 0, column 'gap' holds nan"):
        blocks_of(table, [View("v", "auto", ["flag", "gap"])])
    with pytest.raises(ValueError, match=r"'v'.*column 'text' holds 'a'"):
        blocks_of(table, [View("v", "auto", ["flag", "text"])])
    with pytest.raises(ValueError, match=r"'v'.*column 'when' holds .* \(a time\)"):
        blocks_of(table, [View("v", "auto", ["flag", "when"])])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_feature_names_must_stay(library):
    frames = pytest.importorskip(library)
    X = frames.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    model = Model()
    assert validate_features(model, X, reset=True) is X
    assert model.feature_names_in_.tolist() == ["a", "b"]
    validate_features(model, X, reset=False)
    with pytest.raises(ValueError, match=r"must be in the same order"):
        validate_features(model, X[["b", "a"]], reset=False)
    with pytest.raises(ValueError, match=r"yet now missing:\n- b"):
        validate_features(model, X[["a"]], reset=False)
    with pytest.warns(UserWarning, match=r"X does not have valid feature names"):
        validate_features(model, np.ones((2, 2)), reset=False)


def test_repeated_column_names_are_refused():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.ones((2, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match=r"repeats the column name"):
        validate_features(Model(), X, reset=True)


def test_torch_needs_no_switch_and_gives_no_warning():
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = validate_features(Model(), torch.asarray(sample()), reset=True)
    assert not is_numpy(X)

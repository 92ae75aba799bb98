"""Rows that lack views are found, and other missing entries refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator

from kernelweave._array import namespace, to_numpy
from kernelweave.views.columns import (
    parse_views,
    resolve_columns,
    split_views,
    validate_features,
)
from kernelweave.views.missing import (
    ObservedViews,
    fill_rows,
    read_kernels,
    take_rows,
)

VIEWS = [("left", "rbf", [0, 1]), ("right", "rbf", [3, 4])]


class Model(BaseEstimator):
    """Receives ``n_features_in_``."""


@pytest.fixture
def table():
    """Ten rows; 1 and 4 lack the left view, 4 and 7 the right; no view has column 2."""
    X = np.arange(50.0).reshape(10, 5)
    X[[1, 4], :2] = np.nan
    X[[4, 7], 3:] = np.nan
    X[5, 2] = np.nan
    return X


def split(X, **kwargs):
    views = parse_views(VIEWS)
    X = validate_features(Model(), X, reset=True)
    positions = resolve_columns(X, views)
    return ObservedViews(*split_views(X, views, positions, missing=True, **kwargs))


def assert_found(data):
    assert np.flatnonzero(~data.observed[:, 0]).tolist() == [1, 4]
    assert np.flatnonzero(~data.observed[:, 1]).tolist() == [4, 7]
    assert not data.observed.all()


def test_rows_without_a_view(table, xp_backend):
    data = split(xp_backend.asarray(table))
    assert_found(data)
    for block, columns in zip(data.blocks, ([0, 1], [3, 4]), strict=True):
        assert namespace(block) is namespace(xp_backend.asarray(table))
        assert_allclose(to_numpy(block), table[:, columns])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(table, library):
    frames = pytest.importorskip(library)
    X = frames.DataFrame({str(c): column for c, column in enumerate(table.T)})
    assert_found(split(X))
    if library == "pandas":
        X = X.astype(object).where(X.notna(), None)
        assert_found(split(X))


def test_nothing_missing(table):
    data = split(np.nan_to_num(table))
    assert data.observed.all() and data.observed.shape == (10, 2)


def test_dtypes(table):
    assert split(table.astype(np.float32)).blocks[0].dtype == np.float32
    assert split(table.astype(np.float32), dtype=np.float64).blocks[1].dtype == float
    assert split(table).blocks[0].dtype == np.float64


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_single_entry_is_named(table, value):
    table[8, 3] = value
    name = "NaN" if np.isnan(value) else "infinity"
    wanted = rf"contains {name}: view 'right', row 8, column 3 holds {value}.*SimpleImp"
    with pytest.raises(ValueError, match=wanted):
        split(table)


def test_single_entries_for_an_imputer(table):
    table[8, 3] = np.nan
    assert_found(split(table, partial=[False, True]))
    with pytest.raises(ValueError, match="row 8"):
        split(table, partial=[True, False])
    table[8, 3] = np.inf
    with pytest.raises(ValueError, match=r"infinity.*row 8"):
        split(table, partial=[True, True])


def test_infinite_row_does_not_lack_the_view(table):
    table[8, 3:] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        split(table)


# Kernels ------------------------------------------------------------------------------


@pytest.fixture
def stack(rng):
    """Two kernels over 8 rows; rows 2 and 5 lack the second."""
    X = rng.normal(size=(8, 4))
    K = np.stack([X @ X.T, np.exp(X @ X.T / 9)], axis=-1)
    K[[2, 5], :, 1] = np.nan
    K[:, [2, 5], 1] = np.nan
    return K


def test_kernel_rows(stack, xp_backend):
    model = Model()
    data, names = read_kernels(model, xp_backend.asarray(stack), reset=True)
    assert names == ["kernel_0", "kernel_1"] and model.n_features_in_ == 8
    assert data.observed[:, 0].all()
    assert np.flatnonzero(~data.observed[:, 1]).tolist() == [2, 5]
    assert_allclose(to_numpy(data.blocks), np.nan_to_num(stack))


@pytest.mark.parametrize("axis", [0, 1], ids=["columns", "rows"])
def test_row_or_column_is_enough(stack, axis):
    K = np.nan_to_num(stack, nan=3.0)
    np.moveaxis(K, axis, 0)[[2, 5], :, 1] = np.nan
    data, _ = read_kernels(Model(), K, reset=True)
    assert np.flatnonzero(~data.observed[:, 1]).tolist() == [2, 5]


def test_one_kernel_and_frames(stack):
    pd = pytest.importorskip("pandas")
    for X in (stack[:, :, 1], pd.DataFrame(stack[:, :, 1], columns=list("abcdefgh"))):
        data, _ = read_kernels(Model(), X, reset=True)
        assert data.blocks.shape == (8, 8, 1)
        assert np.flatnonzero(~data.observed[:, 0]).tolist() == [2, 5]


def test_single_value_is_named(stack):
    stack[3, 6, 0] = np.nan
    with pytest.raises(ValueError, match=r"'kernel_0' holds nan at position \(3, 6\)"):
        read_kernels(Model(), stack, reset=True)
    stack[3, 6, 0] = np.inf
    with pytest.raises(ValueError, match=r"infinity.*'kernel_0'.*\(3, 6\)"):
        read_kernels(Model(), stack, reset=True)


def test_new_rows(stack):
    model = Model()
    data, model.kernel_names_ = read_kernels(model, stack, reset=True)
    new = np.ones((3, 8, 2))
    new[0, [2, 5], 1] = np.nan  # these training rows lack the kernel anyway
    new[1, :, 1] = np.nan
    new[2, :, 0] = np.nan
    seen = read_kernels(model, new, reset=False, trained=data.observed)[0]
    assert seen.observed.tolist() == [[True, True], [True, False], [False, True]]
    new[0, 3, 1] = np.nan
    with pytest.raises(ValueError, match=r"'kernel_1' holds nan at position \(0, 3\)"):
        read_kernels(model, new, reset=False, trained=data.observed)


def test_shapes_are_checked_all_the_same(stack):
    with pytest.raises(ValueError, match="square"):
        read_kernels(Model(), stack[:5], reset=True)
    with pytest.raises(ValueError, match="kernels first"):
        read_kernels(Model(), np.moveaxis(stack, 2, 0), reset=True)
    model = Model()
    _, model.kernel_names_ = read_kernels(model, stack, reset=True)
    with pytest.raises(ValueError, match="fitted on 2 precomputed"):
        read_kernels(model, stack[:, :, 1], reset=False)


def test_integers_have_no_gaps():
    data, _ = read_kernels(Model(), np.eye(3, dtype=int), reset=True)
    assert data.observed.all()


def test_take_and_fill(xp_backend):
    block = xp_backend.asarray(np.arange(6.0).reshape(3, 2))
    rows = np.array([True, False, True])
    assert to_numpy(take_rows(block, rows)).tolist() == [[0, 1], [4, 5]]
    assert take_rows(block, np.ones(3, bool)) is block
    filled = fill_rows(block, rows)
    assert to_numpy(filled).tolist() == [[0, 1], [0, 1], [4, 5]]
    assert to_numpy(fill_rows(block, ~rows)).tolist() == [[2, 3]] * 3
    for nothing_to_fill in (np.ones(3, bool), np.zeros(3, bool)):
        assert fill_rows(block, nothing_to_fill) is block

"""Views that share columns: as if the table held a copy of them for each view."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.impute import SimpleImputer

from estimators import EXPLICIT, ONE_EACH, in_turn, output, some
from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelRidge
from kernelweave import _array as memory
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import weights_table
from kernelweave.kernels import RBF, Pipe

#: Column 2 is in two views; the copied table has it twice, as columns 2 and 3.
SHARED = [
    ("a", RBF(), [0, 1, 2]),
    ("b", ["linear", RBF()], [2, 3]),
    ("c", "rbf", [4, 5]),
]
APART = [
    ("a", RBF(), [0, 1, 2]),
    ("b", ["linear", RBF()], [3, 4]),
    ("c", "rbf", [5, 6]),
]
COPIES = [0, 1, 2, 2, 3, 4, 5]
TWINS = [("one", "rbf", [0, 1]), ("other", RBF(), [1, 0]), ("third", "rbf", [1, 2])]

NAMES = (*ONE_EACH, "MultipleKernelFDA", "KernelAlignment-features")
every_estimator = pytest.mark.parametrize(
    "estimator", some((*NAMES, *EXPLICIT), cv=None)
)


@pytest.fixture
def table(rng):
    """50 rows of two classes; columns 0, 2 and 4 are informative."""
    y = np.tile([0, 1], 25)
    X = rng.normal(size=(50, 6))
    X[:, [0, 2, 4]] += y[:, None] * [2.0, 1.0, 1.0]
    return X, y


def assert_same_model(shared, apart, X):
    assert shared.kernel_names_ == apart.kernel_names_
    assert_allclose(shared.kernel_weights_, apart.kernel_weights_, atol=1e-7)
    assert_allclose(output(shared, X), output(apart, X[:, COPIES]), atol=1e-6)
    assert list(shared.view_weights_) == ["a", "b", "c"]
    for row, same in zip(weights_table(shared), weights_table(apart), strict=True):
        assert (row["view"], row["kernel"]) == (same["view"], same["kernel"])
        assert row["view_weight"] == pytest.approx(same["view_weight"], abs=1e-7)


@pytest.mark.one_seed
@every_estimator
def test_a_shared_column_is_a_copied_column(estimator, table):
    X, y = table
    shared = clone(estimator).set_params(views=SHARED).fit(X, y)
    apart = clone(estimator).set_params(views=APART).fit(X[:, COPIES], y)
    assert_same_model(shared, apart, X)


@pytest.mark.one_seed
@in_turn(estimator=some(NAMES), missing=["available", "zero"])
def test_rows_that_lack_views_which_share_columns(estimator, missing, table):
    X, y = table
    X[:5, :4] = np.nan  # lack a and b
    X[5:9, 4:] = np.nan  # lack c
    model = clone(estimator).set_params(missing=missing)
    shared = clone(model).set_params(views=SHARED).fit(X, y)
    apart = clone(model).set_params(views=APART).fit(X[:, COPIES], y)
    assert_same_model(shared, apart, X)


def test_a_row_that_lacks_one_view_has_a_gap_in_the_other(table):
    X, y = table
    X[3, :3] = np.nan  # lacks a, and one entry of b
    model = KernelFDA(SHARED, missing="zero", cv=None)
    with pytest.raises(ValueError, match=r"view 'b', row 3, column 2 holds nan"):
        model.fit(X, y)
    imputed = [SHARED[0], ("b", Pipe(SimpleImputer(), "rbf"), [2, 3]), SHARED[2]]
    model.set_params(views=imputed).fit(X, y)
    assert model.kernel_map_.source.observed[3].tolist() == [False, True, True]


@pytest.mark.parametrize("estimator", some(EXPLICIT))
def test_portions(estimator, table):
    X, y = table
    shared = clone(estimator).set_params(views=SHARED)
    apart = clone(estimator).set_params(views=APART)
    for part in (slice(0, 30), slice(30, 35), slice(35, 50)):
        shared.partial_fit(X[part], y[part])
        apart.partial_fit(X[part][:, COPIES], y[part])
    assert_same_model(shared, apart, X)
    pairs = ((X[part], y[part]) for part in (slice(0, 20), slice(20, 50)))
    again = ((X[part][:, COPIES], y[part]) for part in (slice(0, 20), slice(20, 50)))
    assert_same_model(shared.fit(pairs), apart.fit(again), X)


# Twins --------------------------------------------------------------------------------


def warned(call, *arguments):
    """The warnings about twins."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*arguments)
    assert all(warning.category is KernelWarning for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.one_seed
@every_estimator
def test_twins_are_told_once_in_fit(estimator, table):
    X, y = table
    model = clone(estimator).set_params(views=TWINS)
    for _ in range(2):
        (message,) = warned(model.fit, X, y)
        assert "the views 'one' and 'other' have a kernel" in message
        assert "cannot be told apart" in message and "third" not in message
    assert warned(output, model, X) == []


def test_twins_have_the_weight_of_one_together(table):
    """Norm 1: the optimum depends only on the sum of their weights."""
    X, y = table
    alone = MultipleKernelFDA(TWINS[1:], norm=1, alpha=0.1, tol=1e-9, cv=None).fit(X, y)
    model = MultipleKernelFDA(TWINS, norm=1, alpha=0.1, tol=1e-9, cv=None)
    assert len(warned(model.fit, X, y)) == 1
    assert_allclose(model.certificate_.value, alone.certificate_.value, rtol=1e-8)
    together = model.view_weights_["one"] + model.view_weights_["other"]
    assert together == pytest.approx(alone.view_weights_["other"], abs=1e-4)


def test_twins_are_told_once_where_memory_is_short(table, monkeypatch):
    X, y = np.tile(table[0], (5, 1)), np.tile(table[1], 5)
    model = MultipleKernelFDA(TWINS, norm=1, n_features=8, cv=None)
    monkeypatch.setattr(memory, "_host_bytes", lambda: 4 * 250 * 250 * 8 - 1)
    assert len(warned(model.fit, X, y)) == 1
    assert model.features_.representation == "moments"


def test_twins_are_told_with_the_first_portion(table):
    X, y = table
    model = MultipleKernelRidge(TWINS, norm=1, alpha=0.1, n_features=8, cv=None)
    assert len(warned(model.partial_fit, X[:20], y[:20])) == 1
    assert warned(model.partial_fit, X[20:], y[20:]) == []
    pairs = ((X[i : i + 25], y[i : i + 25]) for i in (0, 25))
    assert len(warned(model.fit, pairs)) == 1

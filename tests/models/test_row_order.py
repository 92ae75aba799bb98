"""Rows in another order, rows that do not belong together, targets that are none."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import cross_val_score

from estimators import every_estimator, in_turn, output, some
from kernelweave import (
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    ProbabilisticKDA,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import view_ablation

pd = pytest.importorskip("pandas")

IDS = [f"s{i}" for i in range(30)]


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    y = pd.Series(np.tile([0, 1], 15), index=IDS, name="label")
    X = pd.DataFrame(rng.normal(size=(30, 4)), index=IDS, columns=list("abcd"))
    X["a"] += 2 * y
    return X, y


def kernel_of(X):
    return X @ X.T + np.eye(len(X))


@every_estimator
def test_the_same_ids_in_another_order(estimator, table):
    X, y = table
    match = r"same row labels .*different orders: row 0 is 's0' in X and 's29' in y"
    with pytest.raises(ValueError, match=match):
        clone(estimator).fit(X, y[::-1])
    with pytest.raises(ValueError, match=match):
        clone(estimator).set_params(views="precomputed").fit(kernel_of(X), y[::-1])


@pytest.mark.parametrize("name", ["sample_weight", "groups"])
def test_weights_and_groups_of_rows_in_another_order(name, table):
    X, y = table
    own = pd.Series(np.arange(30) % 5 + 1, index=IDS)
    match = rf"different orders: row 0 is 's0' in X and 's29' in {name}"
    with pytest.raises(ValueError, match=match):
        KernelFDA(cv=None).fit(X, y, **{name: own[::-1]})
    KernelFDA(cv=None).fit(X, y, **{name: own})


def test_weights_of_a_portion_in_another_order(table):
    X, y = table
    own = pd.Series(np.arange(30) % 5 + 1, index=IDS)
    model = MultipleKernelFDA(norm=1, cv=None).partial_fit(X, y, sample_weight=own)
    with pytest.raises(ValueError, match=r"different orders.* 's29' in sample_weight"):
        model.partial_fit(X, y, sample_weight=own[::-1])
    with pytest.raises(TypeError, match="sample_weight is a masked array"):
        model.partial_fit(X, y, sample_weight=np.ma.masked_equal(own, 2))


@every_estimator
def test_other_ids_are_a_warning(estimator, table):
    X, y = table
    y.index = [f"t{i}" for i in range(30)]
    with pytest.warns(UserWarning, match="different row labels .*'s0' in X and 't0'"):
        clone(estimator).fit(X, y)


@in_turn(estimator=some(), case=list(range(6)))
def test_indexes_that_say_nothing(estimator, case, table):
    X, y = table
    wanted = output(clone(estimator).fit(X, y), X)
    numbered = X.reset_index(drop=True)
    rows, targets = (
        (X, y.to_numpy()),
        (X, y.reset_index(drop=True)),  # a new Series counts its rows
        (numbered, y),
        (numbered, y.reset_index(drop=True)),
        (numbered, pd.Series(y.to_numpy(), index=np.arange(30).astype(str))),
        (X.to_numpy(), y),
    )[case]
    assert_allclose(output(clone(estimator).fit(rows, targets), rows), wanted)


def test_shuffled_numbers_are_ids(table):
    X, y = table
    X, y = X.reset_index(drop=True), y.reset_index(drop=True)
    with pytest.raises(
        ValueError, match=r"different orders: row 0 is 29 in X and 0 in y"
    ):
        KernelFDA(cv=None).fit(X[::-1], y)
    with pytest.warns(UserWarning, match="different row labels"):
        KernelFDA(cv=None).fit(X[5:], y[5:].reset_index(drop=True))


@every_estimator
def test_a_kernel_whose_rows_contradict_its_columns(estimator, table):
    X, y = table
    K = kernel_of(X)
    model = clone(estimator).set_params(views="precomputed")
    with pytest.raises(
        ValueError, match=r"another order on its columns: row 0 is 's0'"
    ):
        clone(model).fit(K[K.columns[::-1]], y)
    with pytest.raises(ValueError, match=r"other labels on its columns"):
        clone(model).fit(K.rename(columns={"s3": "x"}), y)
    wanted = output(clone(model).fit(K.to_numpy(), y), K.to_numpy())
    assert_allclose(output(model.fit(K, y), K), wanted, rtol=1e-9, atol=1e-12)


# The same rows in another order -------------------------------------------------------

WITH_FOLDS = (
    KernelFDA(),
    MultipleKernelFDA(),
    MultipleKernelFDA(features="nystroem", n_features=40, norm=1),
    ProbabilisticKDA(),
    MixtureKDA(),
    MultipleKernelRidge(),
    MultipleKernelSVC(C="cv", norm="cv", class_weight="balanced"),
)
CONTAINERS = {
    "array": np.asarray,
    "table": lambda X: pd.DataFrame(X, columns=list("abcdef")).assign(
        word=np.where(X[:, 0] > 0, "p", "q")
    ),
    "sparse": csr_array,
    "binary": lambda X: (X > 0).astype(float),
}


def assert_same_in_any_order(model, form, X, y, new, rng, **of_rows):
    """``form(rows, others)`` is what is given for rows, to a model of the others."""
    wanted = None
    for order in (np.arange(len(X)), *(rng.permutation(len(X)) for _ in range(2))):
        mixed = {name: values[order] for name, values in of_rows.items()}
        fitted = clone(model).fit(form(X[order], X[order]), y[order], **mixed)
        found = output(fitted, form(new, X[order])), getattr(fitted, "cv_score_", None)
        wanted = found if wanted is None else wanted
        assert found[1] == pytest.approx(wanted[1], abs=1e-6)
        assert_allclose(found[0], wanted[0], atol=1e-6 * np.max(np.abs(wanted[0])))


@in_turn(model=WITH_FOLDS, container=list(CONTAINERS))
def test_the_order_of_rows_changes_nothing(model, container, rng):
    X, y = rng.normal(size=(60, 6)).round(1), np.arange(60) % 3
    X[:, :3] += 2 * np.eye(3)[y]
    X[np.abs(X) < 0.3] = 0.0
    X[50:] = X[40:50]  # some rows are equal, but not their targets
    y = X[:, 0] + y if is_regressor(model) else y

    def form(rows, _):
        return CONTAINERS[container](rows)

    assert_same_in_any_order(model, form, X, y, X[:20], rng)


@pytest.mark.parametrize("model", WITH_FOLDS)
def test_the_order_of_rows_of_precomputed_kernels_changes_nothing(model, rng):
    if getattr(model, "features", "auto") != "auto":
        pytest.skip("features need columns")
    X, y = rng.normal(size=(60, 6)), np.arange(60) % 3
    X[:, :3] += 2 * np.eye(3)[y]
    y = X[:, 0] + y if is_regressor(model) else y
    model = clone(model).set_params(views="precomputed")

    def form(rows, others):
        squares = np.sum((rows[:, None] - others[None]) ** 2, axis=2)
        return np.stack([np.exp(-0.1 * squares), rows @ others.T], axis=-1)

    assert_same_in_any_order(model, form, X, y, X[:20], rng)


@pytest.mark.parametrize(
    "model", [KernelFDA(), MultipleKernelFDA(norm=1), MultipleKernelRidge(norm=1)]
)
def test_neither_the_order_of_rows_nor_the_names_of_groups_change_anything(model, rng):
    X, y = rng.normal(size=(60, 6)), np.arange(60) % 2
    X[:, 0] += 2 * y
    y = X[:, 0] + y if is_regressor(model) else y
    groups = rng.integers(0, 14, size=60)
    weights = rng.uniform(0.5, 2.0, size=60)

    def form(rows, _):
        return rows

    of_rows = {"groups": groups, "sample_weight": weights}
    assert_same_in_any_order(model, form, X, y, X[:20], rng, **of_rows)
    renamed = rng.permutation(14)[groups]
    scores = [clone(model).fit(X, y, groups=own).cv_score_ for own in (groups, renamed)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-9)


# Names of precomputed kernels ---------------------------------------------------------


@every_estimator
def test_a_dict_names_precomputed_kernels(estimator, table):
    X, y = table
    kernels = {"all": kernel_of(X), "ab": kernel_of(X[["a", "b"]])}
    stack = np.stack(list(kernels.values()), axis=-1)
    plain = clone(estimator).set_params(views="precomputed").fit(stack, y)
    named = clone(estimator).set_params(views="precomputed", missing="error")
    named.fit(kernels, y)
    assert named.kernel_names_ == ["all", "ab"]
    assert list(named.view_weights_) == ["all", "ab"]
    new = {name: kernels[name].iloc[:7] for name in ("ab", "all")}
    assert_allclose(output(named, new), output(plain, stack[:7]))
    with pytest.raises(ValueError, match=r"lacks the precomputed kernel.*'ab'.*'all'"):
        output(named, {"all": kernels["all"]})
    with pytest.raises(ValueError, match=r"same row labels"):
        clone(named).fit(kernels, y[::-1])


def test_names_of_a_stack_survive_cross_validation(table):
    X, y = table
    stack = np.stack([kernel_of(X), kernel_of(X[["a"]])], axis=-1)
    plain = MultipleKernelFDA("precomputed", norm=1, alpha=0.1, cv=None)
    named = clone(plain).set_params(views=("precomputed", ["all", "a"]))
    wanted = cross_val_score(plain, stack, y, cv=2)
    assert_allclose(cross_val_score(named, stack, y, cv=2), wanted)
    assert named.fit(stack, y).kernel_names_ == ["all", "a"]
    found = view_ablation(named, stack, y, cv=2)
    assert {row["view"] for row in found.views} == {"all", "a"}
    for names, match in (
        (["all"], "names 1 .*found 2"),
        (["a", "a"], "'a' to several"),
    ):
        with pytest.raises(ValueError, match=match):
            clone(named).set_params(views=("precomputed", names)).fit(stack, y)


def test_a_dict_may_lack_a_kernel(table):
    X, y = table
    kernels = {"all": kernel_of(X), "ab": kernel_of(X[["a", "b"]])}
    model = KernelFDA("precomputed", cv=None, missing="zero").fit(kernels, y)
    stack = np.stack([kernels["all"], np.full((30, 30), np.nan)], axis=-1)
    with pytest.warns(KernelWarning, match="30 of 30 rows lack the view 'ab'"):
        found = output(model, {"all": kernels["all"]})
    model.fit(np.stack(list(kernels.values()), axis=-1), y)
    with pytest.warns(KernelWarning, match="30 of 30 rows lack the view 'kernel_1'"):
        assert_allclose(found, output(model, stack))
    with pytest.raises(ValueError, match=r"same shape.*\(30, 30\).*\(30, 29\)"):
        model.predict(
            {"kernel_0": kernels["all"], "kernel_1": kernels["ab"].iloc[:, 1:]}
        )


# Targets that are none ----------------------------------------------------------------


@every_estimator
def test_targets_that_are_none(estimator, table):
    X, y = table
    with pytest.raises(
        ValueError, match=r"y is the text 'a'.*fit\(X.drop\(columns='a'\)"
    ):
        clone(estimator).fit(X.assign(a="text"), "a")
    if not is_classifier(estimator):
        return
    with pytest.raises(ValueError, match=r"one-hot.*y.argmax\(axis=1\)"):
        clone(estimator).fit(X, np.eye(2)[y])
    with pytest.raises(ValueError, match=r"one-hot.*y.idxmax\(axis=1\)"):
        clone(estimator).fit(X, pd.get_dummies(y))
    text = y.map({0: "ill", 1: "well"}).astype(object)
    for gap in (None, np.nan, pd.NA):
        text.iloc[[3, 8]] = gap
        with pytest.raises(ValueError, match="NaN or None in rows 3, 8"):
            clone(estimator).fit(X, text)


@pytest.mark.parametrize("estimator", some(["KernelFDA", "KernelAlignment"]))
def test_mixed_labels(estimator, table):
    X, y = table
    mixed = ["ill" if label else 0 for label in y]
    match = r"y mixes numbers \(row 0 is 0\) and text \(row 1 is 'ill'\)"
    for given in (mixed, np.array(mixed, dtype=object)):
        with pytest.raises(ValueError, match=match):
            clone(estimator).fit(X, given)


def test_text_in_a_regression(table):
    X, _ = table
    given = ["1.5", "ill"] * 15
    with pytest.raises(ValueError, match=r"y holds text.*needs numbers.*KernelFDA"):
        MultipleKernelRidge(cv=None).fit(X, given)


def looks_like_regression(y):
    """Whether a classifier warns; labels need no relation to the rows."""
    X = np.random.default_rng(0).normal(size=(len(y), 2))
    model = KernelFDA([("v", "linear", [0, 1])], alpha=1.0, cv=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return any("regression" in str(w.message) for w in caught)


def test_quantities_look_like_regression():
    rng = np.random.default_rng(0)
    assert looks_like_regression(rng.integers(18, 90, size=200))  # ages
    assert looks_like_regression(rng.integers(25, 346, size=150))
    assert looks_like_regression(rng.normal(100, 20, size=200).round())
    assert looks_like_regression(rng.permutation(60))  # single rows


def test_classes_do_not():
    rng = np.random.default_rng(0)
    assert not looks_like_regression(np.arange(200) % 100)  # people, two pictures each
    assert not looks_like_regression(1 + np.arange(200) % 50)
    missing = np.arange(200) % 50  # a fold that lost a few classes
    assert not looks_like_regression(missing[~np.isin(missing, [0, 7, 8, 9, 49])])
    assert not looks_like_regression(rng.integers(1, 11, size=60))  # grades
    assert not looks_like_regression(rng.integers(18, 90, size=200).astype(str))

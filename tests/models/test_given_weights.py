"""``KernelFDA(kernel_weights=...)``: weights from anywhere, on rows of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import kernelweave
from kernelweave import (
    Fisher,
    KernelFDA,
    LpBall,
    MultipleKernelFDA,
    Simplex,
    solve,
)
from kernelweave._array import namespace, to_numpy
from kernelweave.criteria import BlockFisher, WithinFisher, class_target
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import KernelWeightsDisplay, view_ablation
from kernelweave.kernels import RBF, DenseBank, Linear, center_and_scale

VIEWS = [("a", [RBF(gamma=0.2), Linear()], [0, 1, 2]), ("b", RBF(gamma=0.3), [3, 4, 5])]
LINEAR = [("a", "linear", [0, 1, 2]), ("b", "linear", [3, 4, 5])]
WEIGHTS = np.array([0.7, 0.0, 1.8])
N = 60


@pytest.fixture
def data(rng):
    """Rows (90, 6) and their classes, of which the first 60 are for training."""
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 6))
    X[:, 0] += y
    X[:, 4] += 0.7 * (y == 1)
    return X, y


def kernels_of(X, Z):
    """The three kernels of VIEWS between rows, (p, m, n)."""
    (_, (wide, linear), one), (_, narrow, two) = VIEWS
    return np.stack(
        [
            wide(X[:, one], Z[:, one]),
            linear(X[:, one], Z[:, one]),
            narrow(X[:, two], Z[:, two]),
        ]
    )


def same(one, other, X, Z=None):
    """Equal models of rows X, or of other rows Z of the second."""
    Z = X if Z is None else Z
    assert_allclose(one.loo_error_, other.loo_error_, rtol=1e-8)
    for name in ("transform", "predict_proba"):
        found, wanted = getattr(one, name)(X), getattr(other, name)(Z)
        assert_allclose(to_numpy(found), to_numpy(wanted), atol=1e-8)


@pytest.mark.parametrize("alpha", [0.3, "loo"])
def test_the_kernel_is_the_sum_with_these_weights(alpha, data):
    X, y = data
    model = KernelFDA(VIEWS, alpha=alpha, kernel_weights=WEIGHTS, cv=None)
    model.fit(X[:N], y[:N])
    whole = np.tensordot(WEIGHTS, center_and_scale(kernels_of(X[:N], X[:N])), axes=1)
    alone = KernelFDA("precomputed", alpha=alpha, scale=None, cv=None)
    alone.fit(whole, y[:N])
    assert_allclose(model.alpha_, alone.alpha_, rtol=1e-6)
    same(model, alone, X[:N], whole)
    assert model.kernel_weights_.tolist() == WEIGHTS.tolist()
    assert model.view_weights_ == {"a": 0.7, "b": 1.8}
    assert model.view_shares_ == pytest.approx({"a": 0.28, "b": 0.72})


@pytest.mark.parametrize(
    "weights",
    [
        [0.7, 0.0, 1.8],
        {"b": 1.8, "a: RBF(gamma=0.2)": 0.7},
        {"a: Linear()": 0, "b: RBF(gamma=0.3)": 1.8, "a: RBF(gamma=0.2)": 0.7},
    ],
    ids=str,
)
def test_by_place_or_by_name(weights, data):
    X, y = data
    by_place = KernelFDA(VIEWS, kernel_weights=WEIGHTS, cv=3).fit(X, y)
    model = KernelFDA(VIEWS, kernel_weights=weights, cv=3).fit(X, y)
    same(model, by_place, X)
    assert model.cv_score_ == by_place.cv_score_


def test_the_weight_of_a_view_is_divided_among_its_kernels(data):
    X, y = data
    model = KernelFDA(VIEWS, kernel_weights={"a": 3.0, "b": 1.0}, cv=None).fit(X, y)
    assert model.kernel_weights_.tolist() == [1.5, 1.5, 1.0]
    assert model.view_weights_ == {"a": 3.0, "b": 1.0}


def test_a_table_column_in_the_order_of_the_kernels(data):
    pd = pytest.importorskip("pandas")
    X, y = data
    plain = KernelFDA(VIEWS, kernel_weights=WEIGHTS, cv=None).fit(X, y)
    own = pd.Series(WEIGHTS, index=plain.kernel_names_)
    same(KernelFDA(VIEWS, kernel_weights=own, cv=None).fit(X, y), plain, X)
    with pytest.raises(
        ValueError, match=r"got the index .* kernel_weights.to_dict\(\)"
    ):
        KernelFDA(VIEWS, kernel_weights=own[::-1], cv=None).fit(X, y)


@pytest.mark.parametrize("alpha", [0.1, "learn"])
@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2)], ids=repr)
def test_weights_of_the_block_form(alpha, weight_set, data):
    """Eq. 37 of Ye et al. (2007), with the identity among the kernels (41)."""
    X, y = data
    bank = DenseBank.from_kernels(kernels_of(X, X))
    target = class_target(y, 3)
    exact = solve(Fisher(bank, target, alpha), weight_set, tol=1e-6)
    problem = BlockFisher(bank, target, alpha)
    block = solve(problem, weight_set, tol=1e-6)
    # X = I is allowed in the inner problem of the block form, and gives the exact one.
    assert block.converged and block.value > exact.lower_bound
    assert np.max(np.abs(block.weights - exact.weights)) > 1e-5
    learned, weights = problem.split(block.weights)
    model = KernelFDA(VIEWS, alpha=learned, kernel_weights=weights, cv=None).fit(X, y)
    whole = bank.combine(weights)
    alone = KernelFDA("precomputed", alpha=learned, scale=None, cv=None).fit(whole, y)
    same(model, alone, X, whole)


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2)], ids=repr)
@pytest.mark.parametrize("k", [2, 3])
def test_weights_of_the_scatter_within_classes(k, weight_set, data):
    """Eq. 9 of Ye et al. (2007)."""
    X, y = data
    X, y = X[y < k], y[y < k]
    bank = DenseBank.from_kernels(kernels_of(X, X))
    target = class_target(y, k)
    problem = WithinFisher(bank, target, 0.1 * k / len(y), y)
    within = solve(problem, weight_set, tol=1e-6)
    assert within.converged and within.value < 0
    total = solve(Fisher(bank, target, 0.1), weight_set, tol=1e-6)
    if k > 2:  # two classes of equal size: total scatter is within plus between
        assert np.max(np.abs(within.weights - total.weights)) > 1e-5
    model = KernelFDA(VIEWS, alpha=0.1, kernel_weights=within.weights, cv=None)
    assert model.fit(X, y).score(X, y) > 1.2 / k  # measured: 0.8 or more


@pytest.mark.parametrize("factor", [1e-20, 3.0, 1e20])
def test_a_common_factor_of_weights_and_alpha_changes_nothing(factor, data):
    X, y = data
    for alpha in (0.3, "loo"):
        one = KernelFDA(VIEWS, alpha=alpha, kernel_weights=WEIGHTS, cv=3).fit(X, y)
        if alpha != "loo":
            alpha *= factor
            if factor < 1e-10:
                continue  # such an alpha is below the rounding of any kernel
        other = KernelFDA(VIEWS, alpha=alpha, kernel_weights=factor * WEIGHTS, cv=3)
        other.fit(X, y)
        same(other, one, X)
        assert other.cv_score_ == one.cv_score_
        assert_allclose(other.alpha_, factor * one.alpha_, rtol=1e-6)


def kinds_of_rows():
    """How rows are changed, parameters, and arguments of the fit."""
    rng = np.random.default_rng(0)

    def lacking(X):
        X = X.copy()
        X[::7, 3:] = np.nan
        X[3::14, :3] = np.nan
        return X

    def stacked(X):
        return np.moveaxis(kernels_of(X, X), 0, -1)

    def thin(X):
        return sparse.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))

    weights, groups = rng.uniform(0.5, 2.0, 90), rng.permutation(np.arange(90) // 3)
    yield "weights", None, {}, {"sample_weight": weights}
    yield "groups", None, {}, {"groups": groups}
    yield "both", None, {}, {"sample_weight": weights, "groups": groups}
    yield "classes", None, {"class_weight": "balanced", "priors": [0.2, 0.3, 0.5]}, {}
    yield "zero", lacking, {"missing": "zero"}, {}
    yield "available", lacking, {"missing": "available"}, {}
    yield "products", None, {"interactions": True}, {}
    yield "precomputed", stacked, {"views": "precomputed"}, {}
    yield "sparse", thin, {"views": LINEAR}, {}
    yield "on the fly", None, {"features": "on_the_fly"}, {}
    yield "as they are", None, {"scale": None}, {}


@pytest.mark.parametrize(
    ("change", "settings", "given"),
    [pytest.param(*rest, id=name) for name, *rest in kinds_of_rows()],
)
@pytest.mark.parametrize("norm", [1, 2])
def test_learned_weights_give_the_model_that_learned_them(
    norm, change, settings, given, data
):
    X, y = data
    X = X if change is None else change(X)
    settings = {"views": VIEWS, "alpha": 0.1, "cv": None, **settings}
    learned = MultipleKernelFDA(norm=norm, **settings).fit(X, y, **given)
    model = KernelFDA(kernel_weights=learned.kernel_weights_, **settings)
    model.fit(X, y, **given)
    same(model, learned, X)
    assert_allclose(model.kernel_weights_, learned.kernel_weights_, rtol=1e-12)
    assert model.view_shares_ == pytest.approx(learned.view_shares_)


def test_on_every_array_library(data, other_backend):
    X, y = data
    plain = KernelFDA(VIEWS, kernel_weights=WEIGHTS, cv=3).fit(X, y)
    there = other_backend.asarray(X)
    for weights in (WEIGHTS, other_backend.asarray(WEIGHTS)):
        model = KernelFDA(VIEWS, kernel_weights=weights, cv=3).fit(there, y)
        assert namespace(model.kernel_weights_) is namespace(there)
        assert_allclose(to_numpy(model.transform(there)), plain.transform(X), atol=1e-8)


@pytest.mark.parametrize("scoring", [None, "balanced_accuracy"])
def test_folds_use_the_same_weights(scoring, data):
    X, y = data
    folds = list(StratifiedKFold(3).split(X, y))
    model = KernelFDA(VIEWS, kernel_weights=WEIGHTS, cv=folds, scoring=scoring)
    model.fit(X, y)
    scores = []
    for train, test in folds:
        part = clone(model).set_params(cv=None).fit(X[train], y[train])
        scores.append(part.score(X[test], y[test]))
    assert model.cv_score_ == pytest.approx(np.mean(scores))


def test_kernels_that_are_constant_without_a_fold_keep_the_others_weights(data):
    """Weights follow their kernels, not their places among those that vary."""
    X, y = data
    X = np.column_stack([np.where(np.arange(90) == 7, 1.0, 0.0), X])
    views = [("rare", "linear", [0]), ("a", "linear", [1]), ("b", "linear", [5])]
    rest = np.setdiff1d(np.arange(90), [7, 8, 9])
    folds = [(rest, np.array([7, 8, 9])), (np.arange(60), np.arange(60, 90))]
    model = KernelFDA(views, alpha=0.1, kernel_weights=[0.5, 3.0, 0.2], cv=folds)
    without = KernelFDA(views[1:], alpha=0.1, kernel_weights=[3.0, 0.2], cv=None)
    without.fit(X[rest], y[rest])
    right = np.zeros(33)
    right[:3] = without.predict(X[7:10]) == y[7:10]
    other = clone(model).set_params(cv=None).fit(X[:60], y[:60])
    right[3:] = other.predict(X[60:]) == y[60:]
    assert model.fit(X, y).cv_score_ == pytest.approx(np.mean(right))
    # With a weight for the rare one alone, nothing is left to learn from without it.
    model.set_params(kernel_weights=[1.0, 0.0, 0.0], cv=folds[1:]).fit(X, y)
    expected = model.cv_score_
    assert model.set_params(cv=folds).fit(X, y).cv_score_ == expected


def test_constant_kernels_have_no_weight(data):
    X, y = data
    X[:, 3:] = 1.0
    model = KernelFDA(LINEAR, kernel_weights=[0.4, 0.6], cv=None)
    with pytest.warns(KernelWarning, match="view 'b'.*constant"):
        model.fit(X, y)
    assert model.kernel_weights_.tolist() == [0.4, 0.0]
    with (
        pytest.warns(KernelWarning, match="view 'b'.*constant"),
        pytest.raises(ValueError, match=r"every kernel with a weight .* is constant"),
    ):
        model.set_params(kernel_weights={"b": 1.0}).fit(X, y)
    assert model.kernel_weights_.tolist() == [0.4, 0.0]  # as before


@pytest.mark.parametrize(
    "weights", [WEIGHTS, [0.7, 0.0, 1.8], {"a": np.float64(0.7), "b": 1.8}], ids=str
)
def test_saved_and_loaded(weights, data, tmp_path):
    X, y = data
    model = KernelFDA(VIEWS, kernel_weights=weights, cv=3).fit(X, y)
    kernelweave.save(model, tmp_path / "model.kw")
    loaded = kernelweave.load(tmp_path / "model.kw")
    same(loaded, model, X)
    again = clone(loaded).fit(X, y)
    assert again.kernel_weights_.tolist() == model.kernel_weights_.tolist()


def test_a_search_over_weights(data):
    X, y = data
    grid = {"kernel_weights": [None, {"a": 1.0}, [0.0, 0.0, 1.0]]}
    found = GridSearchCV(KernelFDA(VIEWS, cv=None), grid, cv=3).fit(X, y)
    assert found.best_estimator_.kernel_weights == found.best_params_["kernel_weights"]


def test_inspection_of_given_weights(data):
    X, y = data
    model = KernelFDA(VIEWS, alpha=0.3, kernel_weights=WEIGHTS, cv=None).fit(X, y)
    display = KernelWeightsDisplay.from_estimator(model)
    assert display.title == "Kernel weights, as given"
    folds = list(StratifiedKFold(3).split(X, y))
    result = view_ablation(model, X, y, cv=folds)
    assert [row["view"] for row in result.views] == ["a", "b"]
    # Without a view, the others keep their weights.
    alone = clone(model).set_params(views=VIEWS[1:], kernel_weights=[1.8])
    wrong = []
    for train, test in folds:
        proba = alone.fit(X[train], y[train]).predict_proba(X[test])
        wrong.append(-np.log(proba[np.arange(len(test)), y[test]]))
    (row,) = (row for row in result.views if row["view"] == "a")
    assert row["loss_without"] == pytest.approx(np.mean(np.concatenate(wrong)))

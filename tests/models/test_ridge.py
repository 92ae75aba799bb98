"""Regression: outputs, constants, weights."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import r2_score

from kernelweave import MultipleKernelRidge

VARIANTS = [
    pytest.param({}, id="default"),
    pytest.param({"norm": 1, "alpha": 0.1}, id="l1"),
    pytest.param({"norm": 1.5, "alpha": "learn"}, id="l1.5-learn"),
]
every_variant = pytest.mark.parametrize("params", VARIANTS)


@every_variant
def test_predicts(params, regression):
    model = MultipleKernelRidge(regression.views, **params, cv=None)
    model.fit(regression.X, regression.y)
    predicted = model.predict(regression.new)
    assert predicted.shape == regression.new_y.shape
    score = model.score(regression.new, regression.new_y)
    assert score == r2_score(regression.new_y, predicted)
    assert score > 0.0  # measured over 301 seeds: 0.17 to 0.97
    noise = model.view_weights_["third"]
    # measured over 21 seeds: at most 0.43 of the sum
    assert noise < 0.5 * sum(model.view_weights_.values())


@every_variant
def test_unit_and_origin_of_y_do_not_matter(params, regression):
    one = MultipleKernelRidge(regression.views, **params, cv=None)
    one.fit(regression.X, regression.y)
    other = MultipleKernelRidge(regression.views, **params, cv=None)
    other.fit(regression.X, 1e3 * regression.y - 7e3)
    assert_allclose(other.kernel_weights_, one.kernel_weights_, atol=1e-6)
    assert_allclose(other.loo_error_, one.loo_error_, rtol=1e-6)
    moved = 1e3 * one.predict(regression.new) - 7e3
    assert_allclose(other.predict(regression.new), moved, atol=1e-6)


@every_variant
def test_several_outputs(params, regression, rng):
    y = np.column_stack([regression.y, -3 * regression.y, regression.y + 100])
    flat = MultipleKernelRidge(regression.views, **params, cv=None)
    flat.fit(regression.X, regression.y)
    model = MultipleKernelRidge(regression.views, **params, cv=None).fit(
        regression.X, y
    )
    predicted = model.predict(regression.new)
    assert predicted.shape == (len(regression.new), 3)
    single = flat.predict(regression.new)
    # Copies of an output change nothing, whatever their units.
    # measured in 40 seeds: up to 9e-5, and three times that
    assert_allclose(predicted[:, 0], single, atol=3e-4)
    assert_allclose(predicted[:, 1], -3 * single, atol=1e-3)
    assert_allclose(predicted[:, 2], single + 100, atol=3e-4)
    assert model.intercept_.shape == (3,)
    assert model.dual_coef_.shape == (60, 3)


def test_outputs_share_their_weights(regression, rng):
    y = np.column_stack([regression.X[:, 0], regression.X[:, 3]])
    model = MultipleKernelRidge(regression.views, norm=1, alpha=0.1, cv=None)
    weights = model.fit(regression.X, y).view_weights_
    # measured over 21 seeds: 0.36 or more
    assert weights["first"] > 0.2 and weights["second"] > 0.2


def test_one_column_is_flattened_with_a_warning(regression):
    from sklearn.exceptions import DataConversionWarning

    model = MultipleKernelRidge(regression.views, norm=2, alpha=0.1, cv=None)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model.fit(regression.X, regression.y[:, None])
    assert model.predict(regression.new).shape == (25,)


@every_variant
@pytest.mark.parametrize("value", [0.0, 1 / 3, -1e6])
def test_constant_output(params, value, regression):
    model = MultipleKernelRidge(regression.views, **params, cv=None)
    model.fit(regression.X, np.full(60, value))
    assert_allclose(model.predict(regression.new), value, rtol=1e-9, atol=1e-9)
    assert np.all(np.isfinite(model.kernel_weights_))
    assert_allclose(model.loo_error_, 0.0, atol=1e-12)
    assert model.certificate_.converged
    assert np.isfinite(model.certificate_.value)


@pytest.mark.parametrize("features", ["auto", "exact"])
def test_the_certificate_names_ridge_regression(features, regression):
    views = regression.views
    if features == "exact":
        views = [(name, "linear", columns) for name, _, columns in views]
    model = MultipleKernelRidge(views, alpha=0.1, norm=2, features=features, cv=None)
    problem = model.fit(regression.X, regression.y).certificate_.problem
    assert problem == "ridge regression, l2 weights, alpha=0.1"


@every_variant
def test_one_constant_output_among_others(params, regression):
    y = np.column_stack([regression.y, np.full(60, 5.0)])
    model = MultipleKernelRidge(regression.views, **params, cv=None).fit(
        regression.X, y
    )
    predicted = model.predict(regression.new)
    assert_allclose(predicted[:, 1], 5.0, rtol=1e-9)
    assert np.all(np.isfinite(predicted))


def test_integers_are_numbers(regression):
    y = np.round(10 * regression.y).astype(int)
    model = MultipleKernelRidge(regression.views, norm=2, alpha=0.1, cv=None)
    assert_allclose(
        model.fit(regression.X, y).predict(regression.new),
        model.fit(regression.X, y.astype(float)).predict(regression.new),
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_output_that_is_not_finite(bad, regression):
    y = regression.y.copy()
    y[3] = bad
    with pytest.raises(ValueError, match="y contains"):
        MultipleKernelRidge(regression.views, cv=None).fit(regression.X, y)


def two_targets(rng):
    """A target that the first two views explain, and one of noise at scale 1e4."""
    X = rng.normal(size=(500, 8))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + X[:, 4]
    y += 0.15 * rng.normal(size=500)
    views = [("a", "auto", [0, 1, 2]), ("b", "auto", [3, 4]), ("c", "auto", [5, 6, 7])]
    return X, np.column_stack([y, 1e4 * rng.normal(size=500)]), views


# With one alpha for both targets R2 fell by 0.05 to 0.15 over five draws, with one for
# each by 0.02 at most.
@pytest.mark.parametrize(
    "params",
    [
        pytest.param({}, id="kernels"),
        pytest.param({"features": "nystroem", "n_features": 40}, id="rows of features"),
        pytest.param({"alpha": "cv", "n_features": 20, "norm": 1}, id="moments"),
    ],
)
@pytest.mark.parametrize("seed", [0])
def test_a_noisy_target_does_not_spoil_another(params, seed):
    X, Y, views = two_targets(np.random.default_rng(seed))
    train, new = slice(0, 120), slice(120, None)
    model = MultipleKernelRidge(views, **params, cv=None)
    alone = model.fit(X[train], Y[train, 0]).score(X[new], Y[new, 0])
    both = model.fit(X[train], Y[train])
    predicted = both.predict(X[new])
    # measured: 0.82 to 0.93
    assert alone > 0.75
    # measured: by 0.037 at least
    assert r2_score(Y[new, 0], predicted[:, 0]) > alone - 0.04
    # measured: -0.022 at worst
    assert r2_score(Y[new, 1], predicted[:, 1]) > -0.2  # shared: the same
    assert both.alpha_.shape == both.loo_errors_.shape == (2,)
    assert both.alpha_[1] > 10 * both.alpha_[0]
    assert both.loo_error_ == pytest.approx(np.mean(both.loo_errors_))
    # of the variance: nothing is explained; measured: 1.01 to 1.02
    assert both.loo_errors_[1] > 0.9


@pytest.mark.parametrize("how", ["kernels", "groups", "moments", "folds"])
def test_columns_are_fits_of_single_targets_at_the_same_weights(how, rng):
    X, Y, views = two_targets(rng)
    X, Y, rows = X[:90], Y[:90], {}
    params = {"norm": np.inf}  # the weights are then equal, whatever the targets
    if how == "groups":
        rows = {"groups": np.arange(90) // 3}
    if how in ("moments", "folds"):
        params |= {"n_features": 20, "features": "nystroem"}
    if how == "folds":
        params["alpha"] = "cv"
    model = MultipleKernelRidge(views, **params, cv=None)
    both = model.fit(X, Y, **rows)
    alpha, errors, predicted = both.alpha_, both.loo_errors_, both.predict(X)
    for j in range(2):
        one = model.fit(X, Y[:, j], **rows)
        assert isinstance(one.alpha_, float)
        assert_allclose(alpha[j], one.alpha_, rtol=1e-6)
        assert_allclose(errors[j], one.loo_error_, rtol=1e-6)
        assert_allclose(predicted[:, j], one.predict(X), atol=1e-6 * np.std(Y[:, j]))


def test_a_given_alpha_is_shared_by_all_targets(rng):
    X, Y, views = two_targets(rng)
    for alpha in (0.3, "learn"):
        model = MultipleKernelRidge(views, norm=1, alpha=alpha, cv=None).fit(
            X[:60], Y[:60]
        )
        assert isinstance(model.alpha_, float)
        assert model.loo_error_ == pytest.approx(np.mean(model.loo_errors_))


def test_targets_of_a_score_that_are_no_numbers_are_named(regression):
    model = MultipleKernelRidge(regression.views, norm=1, alpha=0.1, cv=None)
    model.fit(regression.X, regression.y)
    values = regression.y.tolist()
    for value, words in ((None, "NaN or None.* in row 7"), ("x", "'x' in row 7")):
        values[7] = value
        with pytest.raises(ValueError, match=f"MultipleKernelRidge: .*{words}"):
            model.score(regression.X, values)

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
    pytest.param({"objective": "loo"}, id="loo"),
]
every_variant = pytest.mark.parametrize("params", VARIANTS)


@every_variant
def test_predicts(params, regression):
    model = MultipleKernelRidge(regression.views, **params)
    model.fit(regression.X, regression.y)
    predicted = model.predict(regression.new)
    assert predicted.shape == regression.new_y.shape
    score = model.score(regression.new, regression.new_y)
    assert score == r2_score(regression.new_y, predicted)
    assert score > 0.3
    if "objective" in params:
        # It may give weight to noise that helps by chance. The error it minimises is
        # smaller than with the weights of the convex problem, up to a local minimum.
        plain = MultipleKernelRidge(regression.views).fit(regression.X, regression.y)
        assert model.loo_error_ <= 1.2 * plain.loo_error_
    else:
        noise = model.view_weights_["third"]
        assert noise < 0.5 * sum(model.view_weights_.values())


@every_variant
def test_unit_and_origin_of_y_do_not_matter(params, regression):
    one = MultipleKernelRidge(regression.views, **params)
    one.fit(regression.X, regression.y)
    other = MultipleKernelRidge(regression.views, **params)
    other.fit(regression.X, 1e3 * regression.y - 7e3)
    if "objective" in params:
        # Not convex: in a flat valley the weights move, though the error hardly does.
        assert_allclose(other.loo_error_, one.loo_error_, rtol=2e-2)
        return
    assert_allclose(other.kernel_weights_, one.kernel_weights_, atol=1e-6)
    assert_allclose(other.loo_error_, one.loo_error_, rtol=1e-6)
    moved = 1e3 * one.predict(regression.new) - 7e3
    assert_allclose(other.predict(regression.new), moved, atol=1e-3)


@every_variant
def test_several_outputs(params, regression, rng):
    y = np.column_stack([regression.y, -3 * regression.y, regression.y + 100])
    flat = MultipleKernelRidge(regression.views, **params)
    flat.fit(regression.X, regression.y)
    model = MultipleKernelRidge(regression.views, **params).fit(regression.X, y)
    predicted = model.predict(regression.new)
    assert predicted.shape == (len(regression.new), 3)
    single = flat.predict(regression.new)
    # Copies of an output change nothing, whatever their units.
    assert_allclose(predicted[:, 0], single, atol=1e-4)
    assert_allclose(predicted[:, 1], -3 * single, atol=1e-3)
    assert_allclose(predicted[:, 2], single + 100, atol=1e-4)
    assert model.intercept_.shape == (3,)
    assert model.dual_coef_.shape == (60, 3)


def test_outputs_share_their_weights(regression, rng):
    y = np.column_stack([regression.X[:, 0], regression.X[:, 3]])
    model = MultipleKernelRidge(regression.views, norm=1, alpha=0.1)
    weights = model.fit(regression.X, y).view_weights_
    assert weights["first"] > 0.1 and weights["second"] > 0.1


def test_one_column_is_flattened_with_a_warning(regression):
    from sklearn.exceptions import DataConversionWarning

    model = MultipleKernelRidge(regression.views, norm=2, alpha=0.1)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model.fit(regression.X, regression.y[:, None])
    assert model.predict(regression.new).shape == (25,)


@every_variant
@pytest.mark.parametrize("value", [0.0, 1 / 3, -1e6])
def test_constant_output(params, value, regression):
    model = MultipleKernelRidge(regression.views, **params)
    model.fit(regression.X, np.full(60, value))
    assert_allclose(model.predict(regression.new), value, rtol=1e-9, atol=1e-9)
    assert np.all(np.isfinite(model.kernel_weights_))
    assert_allclose(model.loo_error_, 0.0, atol=1e-12)
    assert model.certificate_.converged
    assert np.isfinite(model.certificate_.value)


@every_variant
def test_one_constant_output_among_others(params, regression):
    y = np.column_stack([regression.y, np.full(60, 5.0)])
    model = MultipleKernelRidge(regression.views, **params).fit(regression.X, y)
    predicted = model.predict(regression.new)
    assert_allclose(predicted[:, 1], 5.0, rtol=1e-9)
    assert np.all(np.isfinite(predicted))


def test_integers_are_numbers(regression):
    y = np.round(10 * regression.y).astype(int)
    model = MultipleKernelRidge(regression.views, norm=2, alpha=0.1)
    assert_allclose(
        model.fit(regression.X, y).predict(regression.new),
        model.fit(regression.X, y.astype(float)).predict(regression.new),
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_output_that_is_not_finite(bad, regression):
    y = regression.y.copy()
    y[3] = bad
    with pytest.raises(ValueError, match="y contains"):
        MultipleKernelRidge(regression.views).fit(regression.X, y)

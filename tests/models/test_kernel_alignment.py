"""Weights by alignment: closed forms, invariances, use by other classifiers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from estimators import SETTINGS, in_turn, of, some
from kernelweave import KernelAlignment, Simplex, solve
from kernelweave.criteria import WithinFisher, binary_target
from kernelweave.kernels import DenseBank, center_and_scale

MODELS = some(SETTINGS, of(KernelAlignment))
every_model = pytest.mark.parametrize("model", MODELS)


def stack_of(problem):
    return center_and_scale(np.ascontiguousarray(np.moveaxis(problem.K, -1, 0)))


def cosine(A, B):
    return np.sum(A * B) / np.linalg.norm(A) / np.linalg.norm(B)


def target_kernel(y):
    if len(np.unique(y)) == 2:
        H = np.where(y == 1, 1.0, -1.0)[:, None]
    else:
        H = (y[:, None] == np.unique(y)).astype(float)
    H = H - H.mean(axis=0)
    return H @ H.T


@pytest.mark.parametrize("k", [2, 4])
def test_no_weights_are_better_aligned(k, make_problem, rng):
    problem = make_problem(k)
    model = KernelAlignment(problem.views).fit(problem.X, problem.y)
    stack, T = stack_of(problem), target_kernel(problem.y)
    own = cosine(np.tensordot(model.kernel_weights_, stack, axes=1), T)
    assert_allclose(model.alignment_, own, rtol=1e-8)
    assert_allclose(model.kernel_alignments_, [cosine(K, T) for K in stack], rtol=1e-8)
    assert_allclose(-model.certificate_.value, model.alignment_, rtol=1e-10)
    assert np.all(model.kernel_weights_ >= 0)
    assert_allclose(model.kernel_weights_.sum(), 1.0)
    start = np.abs(rng.normal(size=len(stack)))
    found = minimize(
        lambda w: -cosine(np.tensordot(np.abs(w), stack, axes=1), T), start
    )
    assert model.alignment_ >= -found.fun - 1e-7


def test_signed_weights_subtract_what_is_not_aligned(rng):
    """The target is the difference of two kernels; neither of them is centred."""
    y = np.where(np.arange(30) % 3, 1.0, -1.0)
    noise = rng.normal(size=(30, 60))
    noise, T = noise @ noise.T / 60, np.outer(y, y)
    K = np.stack([T + noise, noise], axis=-1)
    model = KernelAlignment("precomputed", centre=False).fit(K, y)
    expected = [cosine(K[:, :, i], T) for i in range(2)]
    assert_allclose(model.kernel_alignments_, expected, rtol=1e-8)
    model = KernelAlignment("precomputed", signed=True, weight_bound=5.0).fit(K, y)
    assert_allclose(model.alignment_, 1.0)
    assert model.kernel_weights_[1] < 0.0


def test_joint_weights_are_at_least_as_aligned_as_others(make_problem):
    problem = make_problem(3, n=15)
    joint = KernelAlignment(problem.views).fit(problem.X, problem.y)
    alone = KernelAlignment(problem.views, method="independent")
    alone.fit(problem.X, problem.y)
    signed = KernelAlignment(problem.views, signed=True).fit(problem.X, problem.y)
    assert joint.alignment_ >= alone.alignment_ - 1e-12
    assert joint.alignment_ >= np.max(joint.kernel_alignments_) - 1e-12
    assert signed.alignment_ >= joint.alignment_ - 1e-6
    assert not hasattr(alone, "certificate_")
    assert_allclose(
        alone.kernel_weights_, alone.kernel_alignments_ / alone.kernel_alignments_.sum()
    )


@every_model
def test_columns_and_kernels_give_the_same_transform(model, make_problem):
    problem = make_problem(3, n=15)
    columns = clone(model).set_params(views=problem.views).fit(problem.X, problem.y)
    kernels = clone(model).set_params(views="precomputed").fit(problem.K, problem.y)
    one, other = columns.transform(problem.new), kernels.transform(problem.new_K)
    if model.output == "features":
        one = one @ columns.transform(problem.X).T
        other = other @ kernels.transform(problem.K).T
    assert_allclose(one, other, atol=1e-6)


@in_turn(model=MODELS, left_out=[0, 2])
def test_fit_transform_computes_no_kernel_twice(
    model, left_out, make_problem, monkeypatch
):
    problem, computed = make_problem(3, n=15), []
    weights = np.repeat([0.0, 1.0], [left_out, len(problem.y) - left_out])
    model = clone(model).set_params(views=problem.views)
    expected = model.fit(problem.X, problem.y, weights).transform(problem.X)
    transform = KernelAlignment.transform
    monkeypatch.setattr(
        KernelAlignment, "transform", lambda *a: computed.append(1) or transform(*a)
    )
    found = model.fit_transform(problem.X, problem.y, sample_weight=weights)
    assert_allclose(found, expected, atol=1e-8)
    # Rows that are left out are in no bank, nor are features.
    assert len(computed) == (left_out > 0 or model.output == "features")


def test_features_have_the_kernel_as_inner_products(make_problem):
    problem = make_problem(2)
    kernel = KernelAlignment(problem.views).fit(problem.X, problem.y)
    features = KernelAlignment(problem.views, output="features")
    seen = features.fit_transform(problem.X, problem.y)
    assert_allclose(seen @ seen.T, kernel.transform(problem.X), atol=1e-8)
    few = KernelAlignment(problem.views, output="features", n_components=3)
    assert_allclose(few.fit_transform(problem.X, problem.y), seen[:, :3], atol=1e-8)
    assert few.get_feature_names_out().tolist() == [
        f"kernelalignment{i}" for i in range(3)
    ]


def test_a_pipeline_with_any_kernel_classifier(make_problem):
    problem = make_problem(3, separation=3.0)
    pipe = make_pipeline(KernelAlignment(problem.views), SVC(kernel="precomputed"))
    # measured: 0.68 to 0.98
    assert cross_val_score(pipe, problem.X, problem.y, cv=3).mean() > 0.4
    search = GridSearchCV(pipe, {"kernelalignment__method": ["joint", "independent"]})
    # measured: 0.64 to 1
    assert search.fit(problem.X, problem.y).score(problem.new, problem.new_y) > 0.4


def test_numbers_are_a_target_too(regression):
    model = KernelAlignment(regression.views).fit(regression.X, regression.y)
    y = regression.y - regression.y.mean()
    stack = stack_of(regression)
    expected = cosine(
        np.tensordot(model.kernel_weights_, stack, axes=1), np.outer(y, y)
    )
    assert_allclose(model.alignment_, expected, rtol=1e-8)
    both = np.column_stack([regression.y, 1e6 * regression.y])
    again = KernelAlignment(regression.views).fit(regression.X, both)
    assert_allclose(again.kernel_weights_, model.kernel_weights_, atol=1e-7)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "best"}, "'method' parameter of KernelAlignment must be one of"),
        ({"output": "matrix"}, "'output' parameter"),
        (
            {"centre": 1},
            "'centre' parameter of KernelAlignment must be a bool; got 1",
        ),
        ({"signed": True, "method": "independent"}, "no signed form"),
        ({"n_components": 0}, "'n_components' parameter"),
        ({"tol": -1}, "'tol' parameter"),
    ],
)
def test_bad_parameters_are_named(parameters, message, make_problem):
    problem = make_problem(2, n=20)
    with pytest.raises(ValueError, match=message):
        KernelAlignment(problem.views, **parameters).fit(problem.X, problem.y)


@pytest.mark.parametrize("y", [np.zeros(20), np.full(20, "a")])
def test_a_target_of_one_value_is_refused(y, make_problem):
    problem = make_problem(2, n=20)
    with pytest.raises(ValueError, match="at least 2"):
        KernelAlignment(problem.views).fit(problem.X, y)


def test_an_optimum_of_zero_has_no_advice():
    """No kernel sees the classes; more regularisation, if there is any, is no help."""
    y = np.arange(30) % 2
    signs = 2.0 * y - 1.0
    blind = np.eye(30) - np.outer(signs, signs) / 30
    Q = blind @ np.random.default_rng(0).normal(size=(30, 5))
    told = "stopped: the optimum is zero up to rounding in float64"
    kernels, model = np.stack([blind, Q @ Q.T]), KernelAlignment("precomputed")
    with pytest.warns(ConvergenceWarning, match=f"{told}$"):
        model.fit(np.moveaxis(kernels, 0, -1), y)
    assert model.certificate_.status == told
    bank, target = DenseBank.from_kernels(kernels), binary_target(y)
    problem = WithinFisher(bank, target, 0.1 * 2 / 30, y)
    assert solve(problem, Simplex(), tol=1e-6).status == told

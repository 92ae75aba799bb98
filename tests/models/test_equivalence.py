"""Equivalent statements of a problem have the same answer."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone, is_classifier
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import KernelCenterer

from estimators import fits_with, in_turn, kinds, some
from kernelweave import (
    Fisher,
    KernelFDA,
    LpBall,
    MultipleKernelFDA,
    MultipleKernelRidge,
    Simplex,
    solve,
)
from kernelweave.fits.targets import binary_target, reduced_class_target
from kernelweave.kernels import DenseBank, Linear, center_and_scale

#: These are identities: they hold for every draw.
pytestmark = pytest.mark.one_seed

CLASSIFIERS = some(
    (
        "KernelFDA-fixed",
        "KernelFDA",
        "MultipleKernelFDA-l1",
        "MultipleKernelFDA-l2-learn",
        "MultipleKernelFDA-l4/3",
    ),
    tol=1e-10,
)
CLASSES = pytest.mark.parametrize("k", [2, 4])


def assert_same_certificate(one, other, rtol=1e-8):
    """Equal optimal values; equal weights where the norm makes them unique."""
    if not hasattr(one, "certificate_"):
        return
    assert_allclose(other.certificate_.value, one.certificate_.value, rtol=rtol)


@in_turn(estimator=CLASSIFIERS, k=[2, 4])
def test_columns_and_kernels_give_the_same_classifier(estimator, k, make_problem):
    problem = make_problem(k)
    if getattr(estimator, "cv", None) is not None:  # else rows are in another order
        estimator = clone(estimator).set_params(cv=StratifiedKFold(3))
    columns = clone(estimator).set_params(views=problem.views)
    kernels = clone(estimator).set_params(views="precomputed")
    columns.fit(problem.X, problem.y)
    kernels.fit(problem.K, problem.y)
    assert_allclose(kernels.kernel_weights_, columns.kernel_weights_, atol=1e-10)
    assert_allclose(kernels.alpha_, columns.alpha_, rtol=1e-8)
    for method in ("transform", "decision_function", "predict_proba"):
        assert_allclose(
            getattr(kernels, method)(problem.new_K),
            getattr(columns, method)(problem.new),
            rtol=1e-8,
            atol=1e-10,
        )
    assert np.array_equal(kernels.predict(problem.new_K), columns.predict(problem.new))


def test_columns_and_kernels_give_the_same_regression(regression):
    columns = MultipleKernelRidge(regression.views, cv=None).fit(
        regression.X, regression.y
    )
    kernels = MultipleKernelRidge("precomputed", cv=None).fit(
        regression.K, regression.y
    )
    assert_allclose(
        kernels.predict(regression.new_K), columns.predict(regression.new), atol=1e-10
    )


@CLASSES
def test_one_kernel_may_come_without_a_third_axis(k, make_problem):
    problem = make_problem(k)
    flat = KernelFDA("precomputed", cv=None).fit(problem.K[:, :, 0], problem.y)
    deep = KernelFDA("precomputed", cv=None).fit(problem.K[:, :, :1], problem.y)
    assert_allclose(
        flat.transform(problem.new_K[:, :, 0]), deep.transform(problem.new_K[:, :, :1])
    )


@in_turn(estimator=CLASSIFIERS, k=[2, 4])
def test_order_of_rows(estimator, k, make_problem, rng):
    problem = make_problem(k)
    model = clone(estimator).set_params(views=problem.views).fit(problem.X, problem.y)
    order = rng.permutation(len(problem.y))
    mixed = clone(model).fit(problem.X[order], problem.y[order])
    assert_same_certificate(model, mixed)
    assert_allclose(mixed.loo_error_, model.loo_error_, rtol=1e-6)
    assert_allclose(
        mixed.transform(problem.new), model.transform(problem.new), atol=1e-6
    )


@in_turn(estimator=CLASSIFIERS, k=[2, 4])
def test_order_and_scale_of_kernels(estimator, k, make_problem, rng):
    problem = make_problem(k)
    model = clone(estimator).set_params(views="precomputed")
    model.fit(problem.K, problem.y)
    order = rng.permutation(5)
    scale = 10.0 ** rng.uniform(-8, 8, size=5)
    other = clone(model).fit((problem.K * scale)[:, :, order], problem.y)
    assert_same_certificate(model, other)
    assert_allclose(other.kernel_weights_, model.kernel_weights_[order], atol=1e-5)
    assert_allclose(
        other.transform((problem.new_K * scale)[:, :, order]),
        model.transform(problem.new_K),
        atol=1e-6,
    )


@in_turn(estimator=CLASSIFIERS, k=[2, 4])
def test_order_of_views_and_columns(estimator, k, make_problem):
    problem = make_problem(k)
    model = clone(estimator).set_params(views=problem.views).fit(problem.X, problem.y)
    backwards = [
        (name, kernel, list(range(9))[columns][::-1])
        if isinstance(columns, slice)
        else (name, kernel, columns[::-1])
        for name, kernel, columns in problem.views[::-1]
    ]
    other = clone(model).set_params(views=backwards).fit(problem.X, problem.y)
    assert_same_certificate(model, other)
    assert other.view_weights_.keys() == model.view_weights_.keys()
    for view, weight in model.view_weights_.items():
        assert_allclose(other.view_weights_[view], weight, atol=1e-5)
    assert_allclose(
        other.transform(problem.new), model.transform(problem.new), atol=1e-6
    )


@in_turn(estimator=CLASSIFIERS, k=[2, 3, 5])
def test_names_of_classes(estimator, k, make_problem):
    problem = make_problem(k)
    names = np.array(["e", "d", "c", "b", "a"][5 - k :])  # their order is reversed
    model = clone(estimator).set_params(views=problem.views).fit(problem.X, problem.y)
    other = clone(model).fit(problem.X, names[problem.y])
    assert_same_certificate(model, other)
    proba = model.predict_proba(problem.new)
    assert_allclose(other.predict_proba(problem.new), proba[:, ::-1], atol=1e-6)
    # which of two equally probable classes is predicted depends on their order
    rows = problem.new[np.ptp(np.sort(proba)[:, -2:], axis=1) > 1e-5]
    if len(rows):
        assert np.array_equal(other.predict(rows), names[model.predict(rows)])


# Against other programs ---------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 5])
def test_linear_kernel_and_tiny_alpha_are_linear_discriminants(k, make_problem):
    problem = make_problem(k, n=150, m=300, separation=4.0)
    views = [("all", Linear(), slice(None))]
    model = KernelFDA(views, alpha=1e-9, cv=None).fit(problem.X, problem.y)
    lda = LinearDiscriminantAnalysis().fit(problem.X, problem.y)
    ours, theirs = model.transform(problem.new), lda.transform(problem.new)
    assert ours.shape == theirs.shape == (300, k - 1)
    for j in range(k - 1):
        assert abs(np.corrcoef(ours[:, j], theirs[:, j])[0, 1]) > 1 - 1e-6
    # One variance for all axes and held-out class means: similar, but not equal.
    agree = model.predict(problem.new) == lda.predict(problem.new)
    assert np.mean(agree) > (0.97 if k == 2 else 0.88)  # measured: by 0.03 at least


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("outputs", [None, 1, 3])
def test_one_kernel_is_kernel_ridge(alpha, outputs, regression, rng):
    y = regression.y
    if outputs == 3:
        y = np.column_stack([y, 100 * y + rng.normal(size=len(y)), -y + 5])
    K, new = regression.K[:, :, 0], regression.new_K[:, :, 0]
    centre = KernelCenterer().fit(K)
    scale = len(K) / np.trace(centre.transform(K))
    theirs = KernelRidge(alpha=alpha, kernel="precomputed")
    theirs.fit(scale * centre.transform(K), y - y.mean(axis=0))
    expected = theirs.predict(scale * centre.transform(new)) + y.mean(axis=0)
    ours = MultipleKernelRidge("precomputed", norm=1, alpha=alpha, cv=None).fit(K, y)
    assert_allclose(ours.predict(new), expected, rtol=1e-8, atol=1e-9)
    assert ours.kernel_weights_.tolist() == [1.0]


# Against simpler models ---------------------------------------------------------------


@CLASSES
@pytest.mark.parametrize("norm", [1, 4 / 3, 2, np.inf, "loo"])
@pytest.mark.parametrize("alpha", [0.1, "loo"])
def test_one_kernel_leaves_nothing_to_learn(k, norm, alpha, make_problem):
    problem = make_problem(k)
    views = problem.views[:1]
    single = KernelFDA(views, alpha=alpha, cv=None).fit(problem.X, problem.y)
    model = MultipleKernelFDA(views, norm=norm, alpha=alpha, cv=None).fit(
        problem.X, problem.y
    )
    assert_allclose(model.kernel_weights_, [1.0])
    assert_allclose(model.alpha_, single.alpha_, rtol=1e-6)
    assert_allclose(
        model.decision_function(problem.new),
        single.decision_function(problem.new),
        rtol=1e-6,
        atol=1e-8,
    )


@CLASSES
def test_infinite_norm_is_the_uniform_mean(k, make_problem):
    problem = make_problem(k)
    uniform = KernelFDA(problem.views, cv=None).fit(problem.X, problem.y)
    model = MultipleKernelFDA(problem.views, norm=np.inf, cv=None).fit(
        problem.X, problem.y
    )
    share = model.kernel_weights_ / np.sum(model.kernel_weights_)
    assert_allclose(share, uniform.kernel_weights_)
    assert_allclose(
        model.alpha_ / np.sum(model.kernel_weights_), uniform.alpha_, rtol=1e-6
    )
    assert_allclose(
        model.predict_proba(problem.new), uniform.predict_proba(problem.new), atol=1e-4
    )


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("alpha", [0.3, "learn"])
def test_weights_solve_the_problem_by_hand(k, norm, alpha, make_problem):
    problem = make_problem(k)
    bank = DenseBank(center_and_scale(np.moveaxis(problem.K, -1, 0)))
    if k == 2:
        target = binary_target(problem.y)
    else:
        target, _ = reduced_class_target(problem.y, k)
    weight_set = Simplex() if norm == 1 else LpBall(norm)
    by_hand = solve(Fisher(bank, target, alpha), weight_set, tol=1e-10)
    model = MultipleKernelFDA(problem.views, norm=norm, alpha=alpha, tol=1e-10, cv=None)
    model.fit(problem.X, problem.y)
    assert_allclose(model.certificate_.value, by_hand.value, rtol=1e-9)
    assert_allclose(model.certificate_.lower_bound, by_hand.lower_bound, rtol=1e-9)
    assert np.linalg.norm(model.kernel_weights_, norm) == pytest.approx(1.0)
    if alpha == "learn":  # the same direction, and alpha in the same unit
        scaled = by_hand.weights / np.linalg.norm(by_hand.weights[1:], norm)
        assert_allclose(
            np.append(model.alpha_, model.kernel_weights_), scaled, atol=1e-5
        )
    else:
        assert_allclose(model.kernel_weights_, by_hand.weights, atol=1e-5)
        assert model.alpha_ == alpha


# Leave-one-out against refits ---------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("alpha", [1e-3, 0.1, 5.0])
def test_leave_one_out_error_of_a_classifier(k, alpha, make_problem):
    problem = make_problem(k, n=24)
    n = len(problem.y)
    model = KernelFDA(problem.views, alpha=alpha, cv=None).fit(problem.X, problem.y)
    G = np.mean(center_and_scale(np.moveaxis(problem.K, -1, 0)), axis=0)
    target, _ = reduced_class_target(problem.y, k)
    errors = []
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        centre = KernelCenterer().fit(G[np.ix_(rest, rest)])
        mean = target[rest].mean(axis=0)
        coef = np.linalg.solve(
            centre.transform(G[np.ix_(rest, rest)]) + alpha * np.eye(n - 1),
            target[rest] - mean,
        )
        predicted = centre.transform(G[i : i + 1, rest]) @ coef + mean
        errors.append((target[i] - predicted[0]) ** 2)
    assert_allclose(model.loo_error_, np.mean(errors), rtol=1e-8)


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 5.0])
def test_leave_one_out_error_of_a_regression(alpha, regression):
    K, y = regression.K[:25, :25, 0], regression.y[:25]
    model = MultipleKernelRidge("precomputed", norm=1, alpha=alpha, cv=None).fit(K, y)
    unit = 25 / np.trace(KernelCenterer().fit_transform(K))
    errors = []
    for i in range(25):
        rest = np.delete(np.arange(25), i)
        part = K[np.ix_(rest, rest)]
        # alpha is relative to the mean eigenvalue, which changes without row i
        without = 24 / np.trace(KernelCenterer().fit_transform(part))
        refit = MultipleKernelRidge(
            "precomputed", norm=1, alpha=alpha * without / unit, cv=None
        )
        refit.fit(part, y[rest])
        errors.append((y[i] - refit.predict(K[i : i + 1, rest])[0]) ** 2)
    assert_allclose(model.loo_error_, np.mean(errors) / np.var(y), rtol=1e-8)


@CLASSES
@pytest.mark.parametrize("kind", kinds(fits_with("groups"), is_classifier, norm=np.inf))
def test_chosen_alpha_has_the_smallest_leave_one_out_error(kind, k, make_problem):
    problem = make_problem(k)
    chosen = kind(problem.views).fit(problem.X, problem.y)
    for factor in (0.2, 0.7, 0.97, 1.03, 1.5, 5.0):
        other = kind(problem.views, alpha=factor * chosen.alpha_)
        other.fit(problem.X, problem.y)
        assert other.loo_error_ >= chosen.loo_error_ * (1 - 1e-6)
    same = kind(problem.views, alpha=chosen.alpha_).fit(problem.X, problem.y)
    assert_allclose(same.loo_error_, chosen.loo_error_, rtol=1e-7)
    assert_allclose(
        same.transform(problem.new), chosen.transform(problem.new), atol=1e-8
    )

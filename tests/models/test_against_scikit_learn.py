"""Against scikit-learn's models of one kernel, with weights of rows and classes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as Gaussian
from sklearn.gaussian_process.kernels import ConstantKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from kernelweave import (
    KernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    ProbabilisticKDA,
)
from kernelweave.kernels import RBF

N = 40
VIEW = [("all", RBF(gamma=0.1), slice(None))]


@pytest.fixture
def table(rng):
    """Rows, their classes, an output, row weights, and new rows."""
    X = rng.normal(size=(N, 4))
    y = np.arange(N) % 2
    X[:, 0] += 1.5 * y
    output = X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=N)
    return X, y, output, rng.uniform(0.2, 3.0, N), rng.normal(size=(15, 4))


def centred(X, new, weights):
    """The weighted centring of RBF kernels, of unit mean diagonal: G, cross, scale."""
    K, cross, share = RBF(0.1)(X), RBF(0.1)(new, X), weights / np.sum(weights)
    mean, grand = share @ K, share @ K @ share
    G = K - mean - mean[:, None] + grand
    scale = 1.0 / float(share @ np.diag(G))
    moved = cross - mean - (cross @ share)[:, None] + grand
    return scale * G, scale * moved, scale


def test_ridge_with_weighted_rows(table):
    X, _, output, weights, new = table
    G, cross, _ = centred(X, new, weights)
    middle = np.average(output, weights=weights)
    theirs = KernelRidge(alpha=0.3, kernel="precomputed")
    theirs.fit(G, output - middle, sample_weight=weights)
    ours = MultipleKernelRidge(VIEW, norm=1, alpha=0.3, cv=None)
    ours.fit(X, output, sample_weight=weights)
    assert_allclose(ours.predict(new), theirs.predict(cross) + middle, atol=1e-9)


def test_ridge_is_a_gaussian_process_with_a_free_mean(table):
    """Weights divide the noise; a constant kernel of large variance frees the mean."""
    X, _, output, weights, new = table
    _, _, scale = centred(X, new, weights)
    kernel = scale * Gaussian(np.sqrt(5.0)) + ConstantKernel(1e7)
    theirs = GaussianProcessRegressor(kernel, alpha=0.3 / weights, optimizer=None)
    ours = MultipleKernelRidge(VIEW, norm=1, alpha=0.3, cv=None)
    ours.fit(X, output, sample_weight=weights)
    assert_allclose(ours.predict(new), theirs.fit(X, output).predict(new), atol=1e-5)


def test_uncertainty_is_that_of_a_gaussian_process(table):
    X, y, _, _, new = table
    _, _, scale = centred(X, new, np.ones(N))
    kernel = scale * Gaussian(np.sqrt(5.0)) + ConstantKernel(1e5)
    theirs = GaussianProcessRegressor(kernel, alpha=0.2, optimizer=None)
    _, deviation = theirs.fit(X, y).predict(new, return_std=True)
    ours = ProbabilisticKDA(VIEW, noise=0.2).fit(X, y)
    _, variance = ours.predict_distribution(new)
    wanted = (deviation**2 + 0.2)[:, None] * ours.amplitude_
    assert_allclose(variance, wanted, rtol=1e-4)


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0, 1: 0.5}])
@pytest.mark.parametrize("weighted", [False, True])
def test_support_vectors_with_weights(table, class_weight, weighted):
    X, y, _, weights, new = table
    y = np.where(np.arange(N) < 28, 0, y)
    given = weights if weighted else None
    ours = MultipleKernelSVC(VIEW, C=2.0, norm=1, tol=1e-10, class_weight=class_weight)
    ours.fit(X, y, sample_weight=given)
    each = weights if weighted else np.ones(N)
    prices = class_weight or {0: 1.0, 1: 1.0}
    if class_weight == "balanced":  # in terms of the weights of the rows
        prices = {c: np.sum(each) / (2 * np.sum(each[y == c])) for c in (0, 1)}
    each = each * np.where(y == 1, prices[1], prices[0])
    G, cross, _ = centred(X, new, each)
    theirs = SVC(C=2.0, kernel="precomputed", tol=1e-10)
    theirs.fit(G, y, sample_weight=each)
    found, wanted = ours.decision_function(new), theirs.decision_function(cross)
    assert_allclose(found, wanted, atol=1e-4)


def test_discriminants_with_weighted_rows(rng):
    """Whole-number weights are repeated rows, which scikit-learn can take."""
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 4))
    X[:, 0] += 4 * y
    X[:, 1] += 4 * (y == 1)
    weights, new = rng.integers(1, 4, 60), rng.normal([4, 1, 0, 0], size=(50, 4))
    theirs = LinearDiscriminantAnalysis().fit(
        np.repeat(X, weights, axis=0), np.repeat(y, weights)
    )
    model = KernelFDA([("all", "linear", slice(None))], alpha=1e-9, cv=None)
    ours = model.fit(X, y, sample_weight=weights)
    found, wanted = ours.transform(new), theirs.transform(new)
    for j in range(2):
        assert abs(np.corrcoef(found[:, j], wanted[:, j])[0, 1]) > 1 - 1e-6


@pytest.mark.measured
def test_balanced_classes_have_equal_priors(rng):
    """``class_weight="balanced"`` moves the border to that of equal priors."""
    y = (np.arange(200) % 10 == 0).astype(int)
    X = rng.normal(size=(200, 2)) + 2.0 * y[:, None]
    new = rng.normal(size=(300, 2)) + 1.0
    model = KernelFDA([("all", "linear", slice(None))], alpha=1e-9, cv=None)
    ours = model.set_params(class_weight="balanced").fit(X, y)
    # The scatter is weighted as well, so the directions differ slightly.
    theirs = LinearDiscriminantAnalysis(priors=[0.5, 0.5]).fit(X, y)
    assert np.mean(ours.predict(new) == theirs.predict(new)) > 0.93  # measured: 0.98
    assert_array_equal(np.unique(ours.predict(new)), [0, 1])

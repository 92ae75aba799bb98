"""Weights of rows: whole numbers are repetitions, whatever the model makes of rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from kernelweave import ProbabilisticKDA, SubspaceKernel
from kernelweave.fits.predictive import PredictivePath, choose_noise
from kernelweave.fits.ridge import RowDesign, class_target
from kernelweave.kernels import RBF, Linear

#: Kernels whose parameters do not depend on the rows.
VIEWS = [("a", RBF(gamma=0.2), [0, 1, 2]), ("b", [Linear(), RBF(gamma=0.5)], [2, 3])]
N, K, NOISE = 30, 3, 0.3


@pytest.fixture
def rows(rng):
    codes = rng.permutation(np.arange(N) % K)
    X = rng.normal(size=(N, 4)) + codes[:, None]
    return X, np.array(["u", "v", "w"])[codes], rng.integers(1, 5, N)


@pytest.mark.parametrize(
    "model",
    [
        ProbabilisticKDA(VIEWS, noise=NOISE, amplitude="unit"),
        ProbabilisticKDA(VIEWS, noise="ml"),
    ],
    ids=repr,
)
def test_whole_weights_are_repeated_rows(model, rows):
    X, y, weights = rows
    new = X + 0.3
    one = clone(model).fit(X, y, sample_weight=weights)
    many = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    for found, wanted in zip(
        one.predict_distribution(new), many.predict_distribution(new), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(one.noise_, many.noise_, rtol=1e-9)
    np.testing.assert_allclose(one.amplitude_, many.amplitude_, rtol=1e-8)
    np.testing.assert_allclose(
        one.gaussians_.log_prior, many.gaussians_.log_prior, rtol=1e-12
    )


def test_whole_weights_are_repeated_rows_where_views_are_missing(rows):
    X, y, weights = rows
    X = X.copy()
    X[::7, :2], X[1::7, 3] = np.nan, np.nan
    views = [("a", RBF(gamma=0.2), [0, 1]), ("b", "linear", [3]), ("c", Linear(), [2])]
    model = ProbabilisticKDA(views, noise=NOISE, amplitude="unit", missing="zero")
    one = clone(model).fit(X, y, sample_weight=weights)
    many = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    for found, wanted in zip(
        one.predict_distribution(X), many.predict_distribution(X), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-8)


def test_weights_of_one_and_zero(rows):
    X, y, _ = rows
    plain = ProbabilisticKDA(VIEWS).fit(X, y)
    ones = ProbabilisticKDA(VIEWS).fit(X, y, sample_weight=np.ones(N))
    np.testing.assert_allclose(ones.predict_proba(X), plain.predict_proba(X))
    keep = np.arange(N) % 5 > 0
    zeros = ProbabilisticKDA(VIEWS).fit(X, y, sample_weight=keep * 1.0)
    fewer = ProbabilisticKDA(VIEWS).fit(X[keep], y[keep])
    np.testing.assert_allclose(zeros.predict_proba(X), fewer.predict_proba(X))
    assert zeros.loo_score_ == fewer.loo_score_
    assert zeros.loo_log_density_ == pytest.approx(fewer.loo_log_density_)


def test_a_row_is_predicted_without_any_of_its_weight(rng):
    """Against the Gaussian process with a free intercept, fitted without the row."""
    X, codes = rng.normal(size=(N, 3)), np.arange(N) % K
    weights = rng.uniform(0.3, 3.0, N)
    kernel, noise = X @ X.T + np.exp(-((X[:, None, 0] - X[None, :, 0]) ** 2)), 0.4
    design = RowDesign(N, weights)
    mean = np.eye(N) - np.outer(np.ones(N), weights) / design.total
    root = np.sqrt(weights)
    gram = root[:, None] * (mean @ kernel @ mean.T) * root
    target = class_target(codes, K, weights)
    path = PredictivePath(gram, target, design=design)
    expert = choose_noise(path, noise / path.mean_eigenvalue, "unit")
    for i in range(N):
        rest = np.arange(N) != i
        ones = np.ones((N - 1, 1))
        own = kernel[np.ix_(rest, rest)] + noise * np.diag(1 / weights[rest])
        system = np.block([[own, ones], [ones.T, np.zeros((1, 1))]])
        cross = np.r_[kernel[i, rest], 1.0]
        solved = np.linalg.solve(system, cross)
        # the noise is that of a row of weight one
        variance = kernel[i, i] + noise - cross @ solved
        np.testing.assert_allclose(expert.mean[i], solved[:-1] @ target[rest])
        np.testing.assert_allclose(expert.variance[i], variance)
    middle = np.average(target, axis=0, weights=weights)
    np.testing.assert_allclose(middle, 0.0, atol=1e-12)
    score = weights @ expert.log_density
    np.testing.assert_allclose(expert.grid.score(expert.tables)[0], score)


SUBSPACES = {
    "plain": SubspaceKernel(VIEWS, norm=1, alpha=NOISE),
    "learned": SubspaceKernel(VIEWS, norm=2, alpha="learn"),
    "uncorrelated": SubspaceKernel(VIEWS, norm=2, alpha=NOISE, uncorrelated=True),
    "indicator": SubspaceKernel(VIEWS, norm=2, alpha=NOISE, label_kernel="indicator"),
    "alignment": SubspaceKernel(VIEWS, norm=2, alpha=NOISE, method="alignment"),
    "numbers": SubspaceKernel(VIEWS, norm=2, alpha=NOISE, label_kernel="linear"),
}


@pytest.mark.parametrize("model", SUBSPACES.values(), ids=SUBSPACES)
def test_subspaces_of_repeated_rows(model, rows):
    X, y, weights = rows
    if model.label_kernel == "linear":
        y = X[:, :2] ** 2
    one = clone(model).fit(X, y, sample_weight=weights)
    many = clone(model).fit(
        np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0)
    )
    plain = clone(model).fit(X, y)
    # Exact, but for the alignment, which ends where its slope is small enough.
    close = 5e-3 if model.method == "alignment" else 1e-10
    np.testing.assert_allclose(one.kernel_weights_, many.kernel_weights_, atol=1e-10)
    np.testing.assert_allclose(one.dependence_, many.dependence_, rtol=close)
    assert one.certificate_.value == pytest.approx(many.certificate_.value, rel=1e-10)
    found, wanted = one.transform(X), many.transform(X)
    size = np.max(np.abs(wanted))
    np.testing.assert_allclose(found, wanted, atol=close * size)
    np.testing.assert_allclose(one.embedding_, found, atol=1e-10 * size)
    other = plain.transform(X)
    assert np.max(np.abs(found - other)) > 0.05 * size  # 0.09 or more
    if model.uncorrelated:  # with respect to the weights
        covariance = found.T @ (weights[:, None] * found) / np.sum(weights)
        assert np.max(np.abs(covariance - np.diag(np.diag(covariance)))) < 1e-8


def test_leave_one_out_choices_with_weights_ignore_rows_of_weight_zero(rows):
    X, y, _ = rows
    keep = np.arange(N) % 5 > 0
    zeros = SubspaceKernel(VIEWS).fit(X, y, sample_weight=2.0 * keep)
    fewer = SubspaceKernel(VIEWS).fit(X[keep], y[keep], sample_weight=np.full(24, 2.0))
    assert zeros.alpha_ == fewer.alpha_
    assert zeros.norm_ == fewer.norm_
    np.testing.assert_array_equal(zeros.transform(X), fewer.transform(X))


@pytest.mark.parametrize("model", [ProbabilisticKDA(VIEWS), SubspaceKernel(VIEWS)])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(N), "sample_weight of row 0 is -1"),
        (np.zeros(N), "at least one non-zero"),
        (np.ones(N - 1), "sample_weight.shape"),
    ],
)
def test_what_is_refused(model, weights, message, rows):
    X, y, _ = rows
    with pytest.raises(ValueError, match=message):
        clone(model).fit(X, y, sample_weight=weights)

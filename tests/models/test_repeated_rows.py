"""Weights of rows: whole numbers are repetitions, whatever the model makes of rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss

from estimators import kinds, takes
from kernelweave import (
    KernelFDA,
    MixtureKDA,
    ProbabilisticKDA,
    SubspaceKernel,
    SubspaceKernelSVC,
)
from kernelweave.criteria.margin import SubspaceMargin
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.datasets import fetch_views
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.design import RowDesign
from kernelweave.fits.predictive import PredictivePath, _log_density, choose_noise
from kernelweave.fits.targets import class_target
from kernelweave.kernels import RBF, Linear
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.solvers.mixture import residual_moments, stack, truncated_em
from kernelweave.solvers.solve import solve
from kernelweave.weights import Simplex

# Folds are tested in test_refits.py.
Single = partial(ProbabilisticKDA, cv=None)
Mixture = partial(MixtureKDA, cv=None)
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
        Single(VIEWS, noise=NOISE, amplitude="unit"),
        Single(VIEWS, noise="ml"),
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
    model = Single(views, noise=NOISE, amplitude="unit", missing="zero")
    one = clone(model).fit(X, y, sample_weight=weights)
    many = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    for found, wanted in zip(
        one.predict_distribution(X), many.predict_distribution(X), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-8)


def test_weights_of_one_and_zero(rows):
    X, y, _ = rows
    plain = Single(VIEWS).fit(X, y)
    ones = Single(VIEWS).fit(X, y, sample_weight=np.ones(N))
    np.testing.assert_allclose(ones.predict_proba(X), plain.predict_proba(X))
    keep = np.arange(N) % 5 > 0
    zeros = Single(VIEWS).fit(X, y, sample_weight=keep * 1.0)
    fewer = Single(VIEWS).fit(X[keep], y[keep])
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
    error = weights @ (target - expert.mean) ** 2 / design.total
    score = -0.5 * design.total * np.log(error)
    np.testing.assert_allclose(expert.grid.score()[0], score)


@pytest.fixture(scope="module")
def wisconsin():
    """Half of a table, a third of whose rows have equal ones, and the other half."""
    data = fetch_views("breast_cancer_wisconsin", as_frame=False)
    order = np.random.default_rng(0).permutation(len(data.data))
    (X, new), (y, new_y) = (
        (part[order[::2]], part[order[1::2]]) for part in (data.data, data.target)
    )
    plain = KernelFDA(cv=None).fit(X, y)
    return X, y, new, new_y, log_loss(new_y, plain.predict_proba(new))


@pytest.mark.parametrize("kind", kinds(takes("noise")))
def test_equal_rows_do_not_choose_the_noise(kind, wisconsin):
    """At no noise, the third of the rows that has equal ones is predicted exactly."""
    X, y, new, new_y, wanted = wisconsin
    found = log_loss(new_y, kind().fit(X, y).predict_proba(new))
    # measured: 1.10 and 1.05; by the largest density it was 3.7 and 1.9
    assert found < 1.3 * wanted


@pytest.mark.parametrize(
    "model",
    [
        Single(noise="ml"),
        Mixture(noise="ml"),
        Mixture(noise="em"),
    ],
    ids=repr,
)
def test_likelihoods_say_where_they_cost_accuracy(model, wisconsin):
    X, y, *_ = wisconsin
    with pytest.warns(KernelWarning, match=r"1\.[5-9] times as large.*noise='loo'"):
        model.fit(X, y)
    assert any("rows left out" in text for text in model.kernel_map_.remarks)


def test_copies_do_not_take_the_noise_from_the_likelihood(rows):
    """Of every row there are four, as if weights had that factor."""
    X, y, _ = rows
    y = np.roll(y, 3)  # some labels are wrong, so that there is noise
    one = Single(VIEWS, noise="ml").fit(X, y)
    many = Single(VIEWS, noise="ml").fit(np.tile(X, (4, 1)), np.tile(y, 4))
    np.testing.assert_allclose(many.noise_, 4.0 * one.noise_)


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
    # Exact, but for the alignment, which ends where its slope is small enough: up to
    # 0.03 with 60 seeds.
    close = 0.2 if model.method == "alignment" else 1e-10
    np.testing.assert_allclose(one.kernel_weights_, many.kernel_weights_, atol=1e-10)
    np.testing.assert_allclose(one.dependence_, many.dependence_, rtol=close)
    assert one.certificate_.value == pytest.approx(many.certificate_.value, rel=1e-10)
    found, wanted = one.transform(X), many.transform(X)
    size = np.max(np.abs(wanted))
    np.testing.assert_allclose(found, wanted, atol=close * size)
    np.testing.assert_allclose(one.embedding_, found, atol=1e-10 * size)
    other = plain.transform(X)
    assert np.max(np.abs(found - other)) > 0.05 * size  # measured: 0.09 or more
    if model.uncorrelated:  # with respect to the weights
        covariance = found.T @ (weights[:, None] * found) / np.sum(weights)
        assert np.max(np.abs(covariance - np.diag(np.diag(covariance)))) < 1e-8


MACHINES = {
    "default": SubspaceKernelSVC(VIEWS, tol=1e-8),
    "even weights": SubspaceKernelSVC(VIEWS, norm=2, class_weight="balanced", tol=1e-8),
    # After the first round, the variables of machines with so small a kernel are not
    # unique, and the local search depends on them.
    "few": SubspaceKernelSVC(VIEWS, norm=np.inf, n_components=2, max_iter=1),
    "correlated": SubspaceKernelSVC(VIEWS, uncorrelated=False, alpha=NOISE),
    "cuts": SubspaceKernelSVC(VIEWS, solver="cutting_plane", tol=1e-5),
}


@pytest.mark.parametrize("model", MACHINES.values(), ids=MACHINES)
def test_machines_on_subspaces_of_repeated_rows(model, rows):
    X, y, weights = rows
    one = clone(model).fit(X, y, sample_weight=weights)
    many = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    # with 24 seeds 1.3e-6, 4e-5 and 6e-6 at most
    np.testing.assert_allclose(one.kernel_weights_, many.kernel_weights_, atol=2e-5)
    wanted = many.decision_function(X)
    close = 5e-4 * np.max(np.abs(wanted))
    np.testing.assert_allclose(one.decision_function(X), wanted, atol=close)
    Z, wanted = one.transform(X), many.transform(X)
    size = np.max(np.abs(wanted @ wanted.T))
    np.testing.assert_allclose(Z @ Z.T, wanted @ wanted.T, atol=1e-4 * size)
    for name in ("value", "lower_bound"):
        values = [getattr(m.certificate_, name) for m in (one, many)]
        assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert "weighted rows" in one.certificate_.problem
    other = clone(model).fit(X, y).decision_function(X)
    assert np.max(np.abs(one.decision_function(X) - other)) > 2 * close


def test_derivatives_of_the_weighted_subspace_margin(rows):
    """Also the bounds: any point is below, any function above the value."""
    X, y, weights = rows
    codes, design = np.unique(y, return_inverse=True)[1], RowDesign(N, weights * 0.7)
    mean = np.eye(N) - np.outer(np.ones(N), design.weights) / design.total
    root = np.sqrt(design.weights)
    grams = [X[:, [j]] @ X[:, [j]].T + 0.1 * np.eye(N) for j in range(3)]
    stack = np.stack([root[:, None] * (mean @ g @ mean.T) * root for g in grams])
    signs = np.where(np.eye(K)[codes] > 0, 1.0, -1.0)
    bank = DenseBank(stack, list("abc"))
    criterion = SubspaceMargin(bank, signs, 0.5, 2.0, 1e-12, design)
    at, step = np.array([0.2, 0.5, 0.3]), 1e-5 * np.array([1.0, -2.0, 1.5])
    state = criterion.evaluate(at)
    ahead, behind = (criterion.evaluate(at + s * step) for s in (1.0, -1.0))
    assert ahead.value - behind.value == pytest.approx(
        2 * state.gradient @ step, rel=1e-5
    )
    np.testing.assert_allclose(
        ahead.gradient - behind.gradient, 2 * state.hessian @ step, rtol=1e-5
    )
    terms = criterion.certificate_terms(at, state.coef, state.coef)
    assert terms.upper == pytest.approx(state.value, rel=1e-9)
    lower = terms.linear - terms.scores @ at
    assert lower == pytest.approx(state.value, rel=1e-9)


@pytest.mark.parametrize("noise", [NOISE, "ml"])
@pytest.mark.parametrize("missing", ["error", "available", "zero"])
def test_experts_on_repeated_rows(noise, missing, rows):
    X, y, weights = rows
    views = [("a", RBF(gamma=0.2), [0, 1]), ("b", [Linear(), RBF(gamma=0.5)], [2, 3])]
    if missing != "error":
        X = X.copy()
        X[::7, :2], X[1::7, 2:] = np.nan, np.nan
    model = Mixture(views, noise=noise, weights="uniform", missing=missing)
    one = clone(model).fit(X, y, sample_weight=weights)
    many = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(one.transform(X), many.transform(X), atol=1e-9)
    np.testing.assert_allclose(one.noise_, many.noise_, rtol=1e-9)
    plain = clone(model).fit(X, y)
    # measured over 21 seeds: 0.1 or more
    assert np.max(np.abs(one.transform(X) - plain.transform(X))) > 0.01


@pytest.mark.parametrize("kind", ["per_class", "stacking", "available"])
def test_weights_of_a_mixture_count_rows_as_often_as_they_weigh(kind, rows):
    X, y, weights = rows
    options = {"weights": kind}
    if kind == "available":
        X = X.copy()
        X[::7, :3] = np.nan
        options = {"missing": kind}
    views = [("a", RBF(gamma=0.2), [0, 1, 2]), ("b", [Linear(), RBF(gamma=0.5)], [3])]
    model = Mixture(views, noise=NOISE, **options, tol=1e-8)
    model.fit(X, y, sample_weight=weights)
    target = class_target(np.unique(y, return_inverse=True)[1], K, weights)
    seen = np.repeat(model.observed_, weights, axis=0)
    for c in range(K):
        residual = target[:, [c]] - model.loo_mean_[:, :, c]
        variance = model.loo_variance_[:, :, c]
        prior = 0.1 * np.sum(weights) / 3
        if kind == "stacking":
            repeated = np.repeat(residual, weights, axis=0)
            wanted = stack(residual_moments(repeated, seen))[0]
        elif kind == "available":
            table = _log_density(residual, variance)
            table = np.repeat(table, weights, axis=0)
            wanted = truncated_em(table, seen, prior, tol=1e-9).weights
        else:
            table = -0.5 * (residual**2 / variance + np.log(2 * np.pi * variance))
            table = np.repeat(table, weights, axis=0)
            wanted = solve(MixtureLikelihood(table, prior), Simplex()).weights
        np.testing.assert_allclose(model.class_weights_[:, c], wanted, atol=1e-4)
    assert model.certificate_.converged
    assert model.certificate_.problem.endswith("weighted rows")


@pytest.mark.measured
def test_a_mixture_leaves_a_row_out_with_all_of_its_weight(rows):
    """A row's density is the same if it, but no other row, has another weight."""
    X, y, weights = rows
    model = Mixture(VIEWS, noise=NOISE, projection="posterior")
    model.fit(X, y, sample_weight=weights)
    posterior = model.sample_weights(X[:5])
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0)
    copies = np.repeat(np.arange(N), weights)
    many = clone(model).fit(X[copies], y[copies])
    # copies say more about each other than other rows do
    assert many.certificate_.value < model.certificate_.value
    single = weights == 1  # these rows have no copies
    first = np.searchsorted(copies, np.flatnonzero(single))
    # the class shares, and so the targets, are the same: so are the predictions
    np.testing.assert_allclose(
        model.loo_mean_[single], many.loo_mean_[first], atol=1e-8
    )


@pytest.mark.parametrize("kind", kinds(takes("noise")))
def test_class_weights_and_priors(kind, rng):
    codes = np.repeat([0, 1], [34, 6])
    X = rng.normal(size=(40, 4)) + codes[:, None]
    model = kind(VIEWS, noise=NOISE, class_weight="balanced").fit(X, codes)
    each = 40 / (2 * np.bincount(codes))[codes]
    weighted = kind(VIEWS, noise=NOISE).fit(X, codes, sample_weight=each)
    np.testing.assert_allclose(model.predict_proba(X), weighted.predict_proba(X))
    np.testing.assert_allclose(np.exp(model.gaussians_.log_prior), 0.5)
    plain = kind(VIEWS, noise=NOISE).fit(X, codes)
    shifted = kind(VIEWS, noise=NOISE, priors=[0.5, 0.5]).fit(X, codes)
    odds, known = (np.diff(np.log(m.predict_proba(X)))[:, 0] for m in (shifted, plain))
    np.testing.assert_allclose(odds - known, np.log(34 / 6), atol=1e-6)
    with pytest.raises(ValueError, match="priors"):
        kind(VIEWS, priors=[0.5, 0.6]).fit(X, codes)


def test_leave_one_out_choices_with_weights_ignore_rows_of_weight_zero(rows):
    X, y, _ = rows
    keep = np.arange(N) % 5 > 0
    zeros = SubspaceKernel(VIEWS).fit(X, y, sample_weight=2.0 * keep)
    fewer = SubspaceKernel(VIEWS).fit(X[keep], y[keep], sample_weight=np.full(24, 2.0))
    assert zeros.alpha_ == fewer.alpha_
    assert zeros.norm_ == fewer.norm_
    np.testing.assert_array_equal(zeros.transform(X), fewer.transform(X))

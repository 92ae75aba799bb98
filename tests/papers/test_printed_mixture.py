"""The mixture of Zhao et al. (2009) as printed: what it computes, and where it ends."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.base import clone

from kernelweave import ProbabilisticKDA
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.targets import class_target
from kernelweave.kernels import RBF
from reproduce.reference.printed_mixture import (
    fit_printed_mixture,
    fit_printed_posterior,
    printed_variance,
)

UNCONVERGED = "ignore::sklearn.exceptions.ConvergenceWarning"
VIEWS = [("a", RBF(), slice(0, 20)), ("b", RBF(), slice(20, 40))]


@pytest.fixture
def problem(rng):
    """Thirty rows of two classes; the first of 40 columns tells them apart."""
    y = np.arange(30) % 2
    X = rng.normal(size=(30, 40))
    X[:, 0] += 3 * y
    return X, y


@pytest.mark.filterwarnings(UNCONVERGED)
def test_it_warns_and_falls_to_the_floor(problem):
    X, y = problem
    with pytest.warns(KernelWarning, match=r"printed.*unbounded.*of 4 noise levels"):
        model = fit_printed_mixture(VIEWS, X, y)
    assert model.noise_.min() < 1e-10
    assert np.all(model.amplitude_ == 1)
    assert np.all(np.isfinite(model.predict_proba(X)))
    assert model.certificate_.stationarity is not None
    again = pickle.loads(pickle.dumps(model))
    assert_allclose(again.transform(X), model.transform(X))


@pytest.mark.measured
@pytest.mark.filterwarnings(UNCONVERGED)
def test_it_depends_on_where_it_starts(problem):
    weights = []
    for noise in (1.0, 0.01):
        with pytest.warns(KernelWarning):
            model = fit_printed_mixture(VIEWS, *problem, noise=noise, max_iter=50)
        weights.append(model.class_weights_)
    assert np.abs(weights[0] - weights[1]).max() > 1e-3  # measured: 0.14


@pytest.mark.filterwarnings(UNCONVERGED)
def test_it_is_the_printed_one(rng):
    """Eqs. 13-14 and 17-20, line by line, with an inverse for every step."""
    n, p, steps = 30, 4, 4
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 2 * p)) + y[:, None]
    K = np.stack([RBF(gamma=0.2)(X[:, 2 * e : 2 * e + 2]) for e in range(p)], axis=-1)
    with pytest.warns(KernelWarning, match="as printed"):
        model = fit_printed_mixture("precomputed", K, y, max_iter=steps, tol=1e-12)
    P = np.eye(n) - 1 / n
    kernels = [P @ K[:, :, e] @ P for e in range(p)]
    kernels = [n * G / np.trace(G) for G in kernels]
    target = class_target(y, 3)

    def densities(t, noise):
        columns = []
        for G, level in zip(kernels, noise, strict=True):
            inverse = np.linalg.inv(G + level * np.eye(n))
            mean = G @ inverse @ t
            variance = level + np.diagonal(G - G @ inverse @ G)
            columns.append((stats.norm.pdf(t, mean, np.sqrt(variance)), mean))
        return np.stack(columns, axis=2)

    for c in range(3):
        t, share, noise = target[:, c], np.full(p, 1 / p), np.ones(p)
        for _ in range(steps):
            density, mean = densities(t, noise)
            gamma = share * density
            gamma /= gamma.sum(axis=1, keepdims=True)
            share = gamma.mean(axis=0)
            noise = np.sum(gamma * (t[:, None] - mean) ** 2, axis=0) / gamma.sum(axis=0)
        assert_allclose(model.class_weights_[:, c], share, atol=1e-8)
        assert_allclose(model.noise_[:, c], noise, rtol=1e-7)
        gamma = share * densities(t, noise)[0]
        gamma /= gamma.sum(axis=1, keepdims=True)
        assert_allclose(model.responsibilities_[:, :, c], gamma, atol=1e-7)


@pytest.mark.filterwarnings(UNCONVERGED, "ignore::kernelweave.exceptions.KernelWarning")
@pytest.mark.parametrize(
    "fit",
    [partial(fit_printed_mixture, projection="posterior"), fit_printed_posterior],
    ids=["mixture", "posterior"],
)
def test_posterior_weights_sum_to_less_than_one(problem, fit):
    X, y = problem
    X[::5, 20:] = np.nan  # these rows lack the second view
    model = fit(VIEWS, X, y, missing="available")
    share = model.sample_weights(X)
    complete = np.arange(30) % 5 > 0
    assert np.all(share[complete].sum(axis=1) < 1)
    assert_allclose(share[~complete], [[1, 0]] * 6)
    assert np.all(np.isfinite(model.predict_proba(X)))
    assert model.score(X, y) > 0.6  # measured: 0.97 to 1


def test_only_the_posterior_weights_differ(problem):
    printed = fit_printed_posterior(VIEWS, *problem)
    plain = clone(printed).fit(*problem)
    assert_allclose(printed.class_weights_, plain.class_weights_)
    assert_allclose(printed.loo_mean_, plain.loo_mean_)
    assert_allclose(plain.sample_weights(problem[0]).sum(axis=1), 1.0)
    assert printed.sample_weights(problem[0]).sum(axis=1).max() < 1.0


@pytest.mark.filterwarnings(UNCONVERGED, "ignore::kernelweave.exceptions.KernelWarning")
def test_rows_without_an_expert_for_a_class_do_not_count_there(problem):
    """Some rows have the first view only, which has no rows of the third class."""
    X, y = problem
    y[20:] = 2
    X[20:, :20] = np.nan
    X[:4, 20:] = np.nan
    model = fit_printed_mixture(VIEWS, X, y, missing="available", max_iter=3)
    assert np.isfinite(model.certificate_.value)
    assert_allclose(model.class_weights_[:, 2], [0, 1])


@pytest.mark.parametrize("setting", [{"noise": "loo"}, {"max_iter": None}])
def test_the_noise_and_the_steps_are_numbers(problem, setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"'{name}' parameter of MixtureKDA must be"):
        fit_printed_mixture(VIEWS, *problem, **setting)


@pytest.mark.measured
def test_the_printed_variance(rng):
    """Eq. 14 of Zhao et al. (2009), with a dense inverse and amplitude 1."""
    X, y = rng.standard_normal((24, 2)), np.arange(24) % 3
    new = np.vstack([rng.standard_normal((5, 2)), [[50.0, 50.0]]])
    model = ProbabilisticKDA(
        [("all", RBF(gamma=0.3), slice(None))], noise=0.2, amplitude="unit"
    ).fit(X, y)
    gram = model.kernel_map_.cross(model._observed_rows(X, "predict"), np.ones(1))
    cross = model.kernel_map_.cross(model._observed_rows(new, "predict"), np.ones(1))
    noise = model.noise_[0]
    inverse = np.linalg.pinv(gram + gram @ gram / noise, rcond=1e-10, hermitian=True)
    expected = noise + np.einsum("mi,ij,mj->m", cross, inverse, cross)
    variance = printed_variance(model, new)
    assert_allclose(variance[:, 0], expected, rtol=1e-5)
    assert (variance < model.predict_distribution(new)[1]).all()

"""Probabilistic discriminant analysis: means, variances, probabilities."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as GPKernel
from sklearn.metrics import log_loss

from kernelweave import KernelFDA, MixtureKDA, ProbabilisticKDA
from kernelweave._array import eigh, to_numpy
from kernelweave.exceptions import KernelWarning
from kernelweave.fits import alpha as alpha_paths
from kernelweave.fits.targets import class_target
from kernelweave.kernels import RBF, Linear
from kernelweave.views.missing import ObservedViews

# Folds are tested in test_refits.py.
Single = partial(ProbabilisticKDA, cv=None)
Mixture = partial(MixtureKDA, cv=None)
ONE = [("all", RBF(gamma=0.1), slice(None))]


@pytest.mark.parametrize("noise", [1e-8, 1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("k", [2, 4])
def test_distances_are_those_of_discriminant_analysis(make_problem, noise, k):
    """Theorem 1 at every noise level, on training and on new rows."""
    problem = make_problem(k)
    plain = KernelFDA(problem.views, alpha=noise, cv=None).fit(problem.X, problem.y)
    model = Single(problem.views, noise=noise).fit(problem.X, problem.y)
    rows = np.vstack([problem.X, problem.new])
    wanted = pdist(plain.transform(rows))
    assert_allclose(
        pdist(model.transform(rows)), wanted, rtol=1e-4, atol=1e-6 * wanted.max()
    )
    assert model.transform(rows).shape == (len(rows), k)


def test_projection_of_shared_noise_is_normal_to_the_class_shares(make_problem):
    problem = make_problem(3)
    model = Single(problem.views, noise=0.1).fit(problem.X, problem.y)
    shares = np.sqrt(np.bincount(problem.y) / len(problem.y))
    assert_allclose(model.transform(problem.new) @ shares, 0.0, atol=1e-10)


def test_distribution_is_that_of_a_gaussian_process(make_problem):
    """An independent regressor on the same centred kernel, which is linear in g."""
    problem = make_problem(2, n=40)
    noise = 0.2
    model = Single(ONE, noise=noise).fit(problem.X, problem.y)
    n = len(problem.X)
    raw, cross = RBF(gamma=0.1)(problem.X), RBF(gamma=0.1)(problem.new, problem.X)
    means, grand = raw.mean(axis=0), raw.mean()
    G = raw - means - means[:, None] + grand
    scale = n / np.trace(G)
    regressor = GaussianProcessRegressor(GPKernel(np.sqrt(5.0)), optimizer=None)
    regressor.set_params(alpha=noise / scale).fit(problem.X, np.zeros(n))
    target = class_target(problem.y, 2)
    g = cross - means - cross.mean(axis=1, keepdims=True) + grand
    M = G + noise / scale * np.eye(n)
    found, variance = model.predict_distribution(problem.new)
    assert_allclose(found, g @ np.linalg.solve(M, target), atol=1e-8)
    own = 1 - 2 * cross.mean(axis=1) + grand
    wanted = own - np.sum(g * np.linalg.solve(M, g.T).T, axis=1)
    wanted = scale * wanted + noise * (1 + 1 / n)
    assert_allclose(variance, wanted[:, None] * model.amplitude_[None, :], rtol=1e-7)
    # Near and far, it is as uncertain as the other one; the intercept is all they
    # differ in.
    _, deviation = regressor.predict(problem.new, return_std=True)
    order = np.corrcoef(variance[:, 0], deviation**2)[0, 1]
    # measured over 21 seeds: 0.997 or more
    assert order > 0.99


@pytest.mark.measured
def test_far_from_the_data_nothing_is_known(make_problem):
    problem = make_problem(3)
    model = Single(ONE).fit(problem.X, problem.y)
    near, far = problem.X[:5], problem.X[:5] + 1000.0
    assert np.all(
        model.predict_distribution(far)[1] > model.predict_distribution(near)[1]
    )
    entropy = [
        -(p * np.log(p)).sum(axis=1).mean()
        for p in (model.predict_proba(near), model.predict_proba(far))
    ]
    assert entropy[1] > entropy[0]


@pytest.mark.filterwarnings(
    "ignore:.*noise='ml' chose:kernelweave.exceptions.KernelWarning"
)
@pytest.mark.parametrize("noise", [0.05, "loo", "ml"])
def test_leave_one_out_is_refitting(make_problem, noise):
    problem = make_problem(3, n=24)
    model = Single("precomputed", noise=noise, amplitude="unit")
    K = RBF(gamma=0.1)(problem.X)
    model.fit(K, problem.y)
    target = class_target(problem.y, 3)
    P = np.eye(24) - 1 / 24
    scale = 24 / np.trace(P @ K @ P)
    for i in range(0, 24, 5):
        rest = np.delete(np.arange(24), i)
        inner, cross = scale * K[np.ix_(rest, rest)], scale * K[i, rest]
        means, grand = inner.mean(axis=0), inner.mean()
        G = inner - means - means[:, None] + grand
        g = cross - means - cross.mean() + grand
        for c in range(3):
            y = target[rest, c]
            M = G + model.noise_[c] * np.eye(23)
            mean = y.mean() + g @ np.linalg.solve(M, y - y.mean())
            assert_allclose(model.loo_mean_[i, c], mean, atol=1e-8)


@pytest.mark.measured
@pytest.mark.parametrize("noise", ["loo", "ml", 0.1])
@pytest.mark.parametrize("amplitude", ["profile", "unit"])
def test_classifies(make_problem, noise, amplitude):
    problem = make_problem(3, n=90, m=60, separation=3.0)
    model = Single(problem.views, noise=noise, amplitude=amplitude)
    model.fit(problem.X, problem.y)
    plain = KernelFDA(problem.views, cv=None).fit(problem.X, problem.y)
    wanted = plain.score(problem.new, problem.new_y)
    # measured: 0.93 to 0.95
    assert model.score(problem.new, problem.new_y) > wanted - 0.15
    # measured: 0.017 to 0.044
    assert abs(model.loo_score_ - model.score(problem.new, problem.new_y)) < 0.2
    proba = model.predict_proba(problem.new)
    assert_allclose(proba.sum(axis=1), 1.0)
    assert log_loss(problem.new_y, proba) < np.log(3)  # measured: 0.11 to 0.16
    assert np.array_equal(proba.argmax(axis=1), model.predict(problem.new))
    assert model.noise_.shape == model.amplitude_.shape == (3,)
    assert np.all(model.loo_variance_ > 0)
    assert model.get_feature_names_out().tolist() == [
        f"probabilistickda{c}" for c in range(3)
    ]


@pytest.mark.parametrize("seed", [1, 3])
def test_certain_rows_of_a_class_lie_apart_too(seed):
    """One coordinate of iris has a hundredth of the noise of the other two."""
    X, y = load_iris(return_X_y=True)
    train, new = np.split(np.random.default_rng(seed).permutation(150), 2)
    models = Single(), KernelFDA(cv=None)
    found, wanted = (
        log_loss(y[new], model.fit(X[train], y[train]).predict_proba(X[new]))
        for model in models
    )
    # measured: 1.14 and 0.94; by predictive variances alone it was 4.6 and 3.2
    assert found < 1.5 * wanted


def test_two_classes_have_one_coordinate_twice(make_problem):
    problem = make_problem(2, n=50)
    model = Single(problem.views).fit(problem.X[:45], problem.y[:45])
    assert model.noise_[0] == model.noise_[1]
    counts = np.sqrt(np.bincount(problem.y[:45]))
    assert_allclose(model.transform(problem.new) @ counts, 0.0, atol=1e-8)


def test_kernels_and_columns_say_the_same(make_problem):
    problem = make_problem(3)
    columns = Single(problem.views).fit(problem.X, problem.y)
    kernels = Single("precomputed").fit(problem.K, problem.y)
    diagonal = np.stack(
        [
            np.diagonal(K)
            for K in problem.grams(problem.new, problem.new).transpose(2, 0, 1)
        ],
        axis=1,
    )
    found = kernels.predict_distribution(problem.new_K, diagonal)
    wanted = columns.predict_distribution(problem.new)
    assert_allclose(found[0], wanted[0], atol=1e-8)
    assert_allclose(found[1], wanted[1], rtol=1e-6)


def test_rows_outside_the_span_of_the_others(rng):
    """Without their diagonal, new rows are as far outside as training rows."""
    X, y, new = (
        rng.normal(size=(60, 300)),
        np.arange(60) % 2,
        rng.normal(size=(60, 300)),
    )
    for columns, rtol in ((300, 0.4), (10, 1e-6)):  # measured: 0.15 to 0.29
        rows, fresh = X[:, :columns], new[:, :columns]
        model = Single("precomputed", noise=0.1).fit(rows @ rows.T, y)
        wanted = model.predict_distribution(fresh @ rows.T, np.sum(fresh**2, axis=1))
        found = model.predict_distribution(fresh @ rows.T)
        assert_allclose(found[1], wanted[1], rtol=rtol)


def test_constant_diagonal_is_known(make_problem):
    problem = make_problem(3)
    model = Single("precomputed").fit(RBF(gamma=0.1)(problem.X), problem.y)
    cross = RBF(gamma=0.1)(problem.new, problem.X)
    found = model.predict_distribution(cross)[1]
    assert_allclose(found, model.predict_distribution(cross, np.ones(25))[1])
    for bad in (np.ones(24), np.ones((25, 2)), np.full(25, np.nan)):
        with pytest.raises(ValueError, match="diagonal must hold"):
            model.predict_distribution(cross, bad)


@pytest.mark.parametrize(
    "change", [lambda K: 100 * K, lambda K: K + 7.0], ids=["scaled", "shifted"]
)
def test_units_of_a_kernel_do_not_matter(make_problem, change):
    problem = make_problem(3)
    one = Single("precomputed").fit(problem.K, problem.y)
    other = clone(one).fit(change(problem.K), problem.y)
    assert_allclose(other.noise_, one.noise_)
    assert_allclose(
        other.predict_proba(change(problem.new_K)),
        one.predict_proba(problem.new_K),
        atol=1e-6,
    )


def test_order_of_rows_and_classes_does_not_matter(make_problem, rng):
    problem = make_problem(3)
    model = Single(problem.views).fit(problem.X, problem.y)
    shuffled = rng.permutation(len(problem.y))
    again = clone(model).fit(problem.X[shuffled], problem.y[shuffled])
    assert_allclose(
        again.predict_proba(problem.new), model.predict_proba(problem.new), atol=1e-7
    )
    renamed = clone(model).fit(problem.X, 2 - problem.y)
    assert_allclose(
        renamed.predict_proba(problem.new)[:, ::-1],
        model.predict_proba(problem.new),
        atol=1e-7,
    )


def test_class_with_one_row(make_problem):
    problem = make_problem(2)
    y = problem.y.copy()
    y[7] = 5
    model = Single(problem.views).fit(problem.X, y)
    assert np.all(np.isfinite(model.predict_proba(problem.new)))
    assert model.classes_.tolist() == [0, 1, 5]


# Rows that lack views; what is common to all estimators is in test_missing.py


def with_gaps(X, rng, share=0.3):
    """Rows that lack views of three columns at random, but never all; the mask."""
    seen = rng.random((len(X), 3)) > share
    seen[np.arange(len(X)), rng.integers(3, size=len(X))] = True
    return np.where(np.repeat(seen, 3, axis=1), X, np.nan), seen


every_mode = pytest.mark.parametrize("missing", ["zero", "available"])
#: The view of each of the five kernels.
VIEW_OF = [0, 1, 1, 2, 2]


@every_mode
@pytest.mark.parametrize("noise", [1e-3, 0.1, 3.0])
def test_distances_with_gaps_are_those_of_discriminant_analysis(
    make_problem, rng, missing, noise
):
    problem = make_problem(3)
    X, new = with_gaps(problem.X, rng)[0], with_gaps(problem.new, rng)[0]
    plain = KernelFDA(problem.views, alpha=noise, missing=missing, cv=None).fit(
        X, problem.y
    )
    model = Single(problem.views, noise=noise, missing=missing)
    model.fit(X, problem.y)
    assert_allclose(model.noise_, noise)
    rows = np.vstack([X, new])
    wanted = pdist(plain.transform(rows))
    assert_allclose(
        pdist(model.transform(rows)), wanted, rtol=1e-5, atol=1e-7 * wanted.max()
    )


def test_variance_with_gaps_by_hand(make_problem, rng):
    """Zeros for a missing kernel, and its prior variance, 1, for the uncertainty."""
    problem = make_problem(2, n=40)
    X, seen = with_gaps(problem.X, rng)
    new, new_seen = with_gaps(problem.new, rng)
    noise, n = 0.2, 40
    model = Single(problem.views, noise=noise, missing="zero")
    model.set_params(amplitude="unit").fit(X, problem.y)
    G, g = np.zeros((n, n)), np.zeros((len(new), n))
    length, lacked = np.zeros(len(new)), np.zeros(len(new))
    own = problem.grams(problem.new, problem.new)
    for i, v in enumerate(VIEW_OF):
        here, there = seen[:, v], new_seen[:, v]
        K, k = problem.K[np.ix_(here, here, [i])], problem.new_K[:, here, i]
        K, P = K[:, :, 0], np.eye(here.sum()) - 1 / here.sum()
        scale = here.sum() / np.trace(P @ K @ P) / 5
        G[np.ix_(here, here)] += scale * P @ K @ P
        g[np.ix_(there, here)] += (scale * (k - K.mean(axis=0)) @ P)[there]
        same = np.diagonal(own[:, :, i]) - 2 * k.mean(axis=1) + K.mean()
        length += np.where(there, scale * same, 0.0)
        lacked += ~there / 5
    inverse = np.linalg.inv(G + noise * np.eye(n))
    wanted = length - np.sum(g @ inverse * g, axis=1) + noise * (1 + 1 / n) + lacked
    mean, variance = model.predict_distribution(new)
    assert_allclose(mean, g @ inverse @ class_target(problem.y, 2), atol=1e-8)
    assert_allclose(variance, np.stack([wanted, wanted], axis=1), rtol=1e-7)
    # Left out, a training row is a new row.
    filled = Single("precomputed", noise=noise * n / np.trace(G))
    filled.set_params(amplitude="unit").fit(G, problem.y)
    assert_allclose(model.loo_mean_, filled.loo_mean_, atol=1e-8)
    beyond = (~seen[:, VIEW_OF]).mean(axis=1)[:, None]
    scale = np.trace(G) / n
    assert_allclose(model.loo_variance_, scale * filled.loo_variance_ + beyond)


@every_mode
def test_variance_of_training_rows_with_gaps(make_problem, rng, missing):
    problem = make_problem(3)
    X, seen = with_gaps(problem.X, rng)
    model = Single(problem.views, noise=0.3, missing=missing)
    model.fit(X, problem.y)
    rows = model._observed_rows(X, "test")
    G = model.kernel_map_.cross(rows, model.kernel_weights_)
    n = len(G)
    smooth = np.diagonal(G @ np.linalg.inv(G + 0.3 * np.eye(n)))
    wanted = 0.3 * (smooth + 1 + 1 / n) + (~seen[:, VIEW_OF]).mean(axis=1)
    _, variance = model.predict_distribution(X)
    assert_allclose(variance, wanted[:, None] * model.amplitude_, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*(lacks? the view|without any view)")
@every_mode
def test_less_is_known_of_rows_with_gaps(make_problem, rng, missing):
    problem = make_problem(3)
    X, _ = with_gaps(problem.X, rng)
    model = Single(problem.views, missing=missing).fit(X, problem.y)
    for columns in (9, 6, 3, 0):
        rows = np.where(np.arange(9) < columns, problem.new, np.nan)
        mean, variance = model.predict_distribution(rows)
        floor = model.noise_ * (1 + 1 / 60) + (9 - columns) // 3 * 0.2
        assert np.all(variance >= floor * model.amplitude_)
    assert_allclose(mean, 0.0)
    prior = model.noise_ * (1 + 1 / 60) + 1.0
    assert_allclose(variance, np.tile(prior * model.amplitude_, (25, 1)))


@every_mode
def test_kernels_with_gaps_say_what_columns_say(make_problem, rng, missing):
    problem = make_problem(3)
    X, seen = with_gaps(problem.X, rng)
    new, new_seen = with_gaps(problem.new, rng)
    columns = Single(problem.views, missing=missing).fit(X, problem.y)
    K, cross = problem.K, problem.new_K
    own = problem.grams(problem.new, problem.new)
    diagonal = np.diagonal(own).T.copy()  # (m, 5)
    for i, v in enumerate(VIEW_OF):
        K[~seen[:, v], :, i] = np.nan
        K[:, ~seen[:, v], i] = np.nan
        cross[~new_seen[:, v], :, i] = np.nan
        diagonal[~new_seen[:, v], i] = np.nan
    kernels = Single("precomputed", missing=missing).fit(K, problem.y)
    assert_allclose(kernels.loo_variance_, columns.loo_variance_, rtol=1e-6)
    wanted = columns.predict_distribution(new)
    for found, expected in zip(
        kernels.predict_distribution(cross, diagonal), wanted, strict=True
    ):
        assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    without = kernels.predict_distribution(cross)[1]
    assert np.all(
        np.isfinite(without) & (without > kernels.noise_ * kernels.amplitude_)
    )
    diagonal[0, np.flatnonzero(new_seen[0][VIEW_OF])[0]] = np.nan
    with pytest.raises(ValueError, match="diagonal must hold"):
        kernels.predict_distribution(cross, diagonal)


def test_every_library(make_problem, other_backend):
    problem = make_problem(3)
    wanted = Single(problem.views).fit(problem.X, problem.y)
    X, new = other_backend.asarray(problem.X), other_backend.asarray(problem.new)
    model = clone(wanted).fit(X, problem.y)
    assert_allclose(to_numpy(model.noise_), wanted.noise_)
    for name in ("transform", "decision_function", "predict_proba", "predict"):
        found = getattr(model, name)(new)
        assert type(found) is type(new)
        assert_allclose(to_numpy(found), getattr(wanted, name)(problem.new), atol=1e-7)
    for found, expected in zip(
        model.predict_distribution(new),
        wanted.predict_distribution(problem.new),
        strict=True,
    ):
        assert_allclose(to_numpy(found), expected, atol=1e-7)
    single = clone(model).fit(other_backend.asarray(problem.X, "float32"), problem.y)
    mean, variance = single.predict_distribution(other_backend.asarray(problem.new))
    assert "float32" in str(mean.dtype) and "float32" in str(variance.dtype)


def test_pickle_and_clipped_kernels(make_problem):
    problem = make_problem(2)
    K = Linear()(problem.X)
    K -= 0.5 * np.eye(len(K))
    model = Single("precomputed", psd="clip")
    with pytest.warns(KernelWarning, match="clipping"):
        model.fit(K, problem.y)
    again = pickle.loads(pickle.dumps(model))
    assert_allclose(again.predict_proba(K), model.predict_proba(K))
    # What was clipped does not reappear as uncertainty about the training rows.
    rows = ObservedViews.complete(K[:, :, None])
    G = model.kernel_map_.cross(rows, np.ones(1))
    n, noise = len(K), to_numpy(model.noise_)
    for c in range(2):
        smooth = np.diagonal(G @ np.linalg.inv(G + noise[c] * np.eye(n)))
        wanted = model.amplitude_[c] * noise[c] * (1 + 1 / n + smooth)
        found = model.predict_distribution(K, np.diagonal(K))[1][:, c]
        assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("noise", ["loo", "ml", 0.1])
def test_one_eigendecomposition_serves_all(make_problem, monkeypatch, noise):
    problem, calls = make_problem(4), []

    def counted(gram):
        calls.append(gram.shape)
        return eigh(gram)

    monkeypatch.setattr(alpha_paths, "eigh", counted)
    Single(problem.views, noise=noise).fit(problem.X, problem.y)
    assert calls == [(60, 60)]
    Mixture(problem.views, noise=noise).fit(problem.X, problem.y)
    assert len(calls) == 1 + 5


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("noise", 0.0),
        ("noise", "em"),
        ("noise", np.inf),
        ("noise", None),
        ("amplitude", "free"),
        ("amplitude", 1.0),
        ("psd", "shift"),
        ("verbose", -1),
    ],
)
def test_bad_parameters_are_named(make_problem, parameter, value):
    problem = make_problem(2)
    model = Single(problem.views).set_params(**{parameter: value})
    with pytest.raises(ValueError, match=rf"{parameter!r} parameter.*{value!r}"):
        model.fit(problem.X, problem.y)

"""Probabilistic discriminant analysis: means, variances, probabilities."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as GPKernel
from sklearn.metrics import log_loss

from kernelweave import KernelFDA, ProbabilisticKDA
from kernelweave._array import to_numpy
from kernelweave.criteria.targets import class_target
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels import RBF, Linear

ONE = [("all", RBF(gamma=0.1), slice(None))]


@pytest.fixture
def make_problem(make_problem):
    """Without a view called "noise", which is a parameter here."""

    def make(*args, **kwargs):
        problem = make_problem(*args, **kwargs)
        names = ("first", "second", "third")
        problem.views = [
            (name, *view[1:]) for name, view in zip(names, problem.views, strict=True)
        ]
        return problem

    return make


@pytest.mark.parametrize("noise", [1e-8, 1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("k", [2, 4])
def test_distances_are_those_of_discriminant_analysis(make_problem, noise, k):
    """Theorem 1 at every noise level, on training and on new rows."""
    problem = make_problem(k)
    plain = KernelFDA(problem.views, alpha=noise).fit(problem.X, problem.y)
    model = ProbabilisticKDA(problem.views, noise=noise).fit(problem.X, problem.y)
    rows = np.vstack([problem.X, problem.new])
    wanted = pdist(plain.transform(rows))
    assert_allclose(
        pdist(model.transform(rows)), wanted, rtol=1e-4, atol=1e-6 * wanted.max()
    )
    assert model.transform(rows).shape == (len(rows), k)


def test_projection_of_shared_noise_is_normal_to_the_class_shares(make_problem):
    problem = make_problem(3)
    model = ProbabilisticKDA(problem.views, noise=0.1).fit(problem.X, problem.y)
    shares = np.sqrt(np.bincount(problem.y) / len(problem.y))
    assert_allclose(model.transform(problem.new) @ shares, 0.0, atol=1e-10)


def test_distribution_is_that_of_a_gaussian_process(make_problem):
    """An independent regressor on the same centred kernel, which is linear in g."""
    problem = make_problem(2, n=40)
    noise = 0.2
    model = ProbabilisticKDA(ONE, noise=noise).fit(problem.X, problem.y)
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
    assert order > 0.9


def test_far_from_the_data_nothing_is_known(make_problem):
    problem = make_problem(3)
    model = ProbabilisticKDA(ONE).fit(problem.X, problem.y)
    near, far = problem.X[:5], problem.X[:5] + 1000.0
    assert np.all(
        model.predict_distribution(far)[1] > model.predict_distribution(near)[1]
    )
    entropy = [
        -(p * np.log(p)).sum(axis=1).mean()
        for p in (model.predict_proba(near), model.predict_proba(far))
    ]
    assert entropy[1] > entropy[0]


@pytest.mark.parametrize("noise", [0.05, "loo", "ml"])
def test_leave_one_out_is_refitting(make_problem, noise):
    problem = make_problem(3, n=24)
    model = ProbabilisticKDA("precomputed", noise=noise, amplitude="unit")
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


@pytest.mark.parametrize("noise", ["loo", "ml", 0.1])
@pytest.mark.parametrize("amplitude", ["profile", "unit"])
def test_classifies(make_problem, noise, amplitude):
    problem = make_problem(3, n=90, m=60, separation=3.0)
    model = ProbabilisticKDA(problem.views, noise=noise, amplitude=amplitude)
    model.fit(problem.X, problem.y)
    plain = KernelFDA(problem.views).fit(problem.X, problem.y)
    wanted = plain.score(problem.new, problem.new_y)
    assert model.score(problem.new, problem.new_y) > wanted - 0.15
    assert abs(model.loo_score_ - model.score(problem.new, problem.new_y)) < 0.2
    proba = model.predict_proba(problem.new)
    assert_allclose(proba.sum(axis=1), 1.0)
    assert log_loss(problem.new_y, proba) < np.log(3)
    assert np.array_equal(proba.argmax(axis=1), model.predict(problem.new))
    assert model.noise_.shape == model.amplitude_.shape == (3,)
    assert np.all(model.loo_variance_ > 0)
    assert model.get_feature_names_out().tolist() == [
        f"probabilistickda{c}" for c in range(3)
    ]


def test_two_classes_have_one_coordinate_twice(make_problem):
    problem = make_problem(2, n=50)
    model = ProbabilisticKDA(problem.views).fit(problem.X[:45], problem.y[:45])
    assert model.noise_[0] == model.noise_[1]
    counts = np.sqrt(np.bincount(problem.y[:45]))
    assert_allclose(model.transform(problem.new) @ counts, 0.0, atol=1e-8)


def test_kernels_and_columns_say_the_same(make_problem):
    problem = make_problem(3)
    columns = ProbabilisticKDA(problem.views).fit(problem.X, problem.y)
    kernels = ProbabilisticKDA("precomputed").fit(problem.K, problem.y)
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
    # What is not known is not made up: the variance within the span of the rows.
    assert np.all(kernels.predict_distribution(problem.new_K)[1] <= found[1] + 1e-12)


def test_constant_diagonal_is_known(make_problem):
    problem = make_problem(3)
    model = ProbabilisticKDA("precomputed").fit(RBF(gamma=0.1)(problem.X), problem.y)
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
    one = ProbabilisticKDA("precomputed").fit(problem.K, problem.y)
    other = clone(one).fit(change(problem.K), problem.y)
    assert_allclose(other.noise_, one.noise_)
    assert_allclose(
        other.predict_proba(change(problem.new_K)),
        one.predict_proba(problem.new_K),
        atol=1e-6,
    )


def test_order_of_rows_and_classes_does_not_matter(make_problem, rng):
    problem = make_problem(3)
    model = ProbabilisticKDA(problem.views).fit(problem.X, problem.y)
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
    model = ProbabilisticKDA(problem.views).fit(problem.X, y)
    assert np.all(np.isfinite(model.predict_proba(problem.new)))
    assert model.classes_.tolist() == [0, 1, 5]


def test_every_library(make_problem, xp_backend):
    problem = make_problem(3)
    wanted = ProbabilisticKDA(problem.views).fit(problem.X, problem.y)
    X, new = xp_backend.asarray(problem.X), xp_backend.asarray(problem.new)
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
    single = clone(model).fit(xp_backend.asarray(problem.X, "float32"), problem.y)
    mean, variance = single.predict_distribution(xp_backend.asarray(problem.new))
    assert "float32" in str(mean.dtype) and "float32" in str(variance.dtype)


def test_pickle_and_clipped_kernels(make_problem):
    problem = make_problem(2)
    K = Linear()(problem.X)
    K -= 0.5 * np.eye(len(K))
    model = ProbabilisticKDA("precomputed", psd="clip")
    with pytest.warns(KernelWarning, match="clipping"):
        model.fit(K, problem.y)
    again = pickle.loads(pickle.dumps(model))
    assert_allclose(again.predict_proba(K), model.predict_proba(K))


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
    model = ProbabilisticKDA(problem.views).set_params(**{parameter: value})
    with pytest.raises(ValueError, match=rf"{parameter!r} parameter.*{value!r}"):
        model.fit(problem.X, problem.y)

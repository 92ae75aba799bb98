"""The mixture of probabilistic discriminants: values, invariances, missing views."""

from __future__ import annotations

import pickle
import re
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score

from estimators import in_turn
from kernelweave import KernelFDA, MixtureKDA, ProbabilisticKDA
from kernelweave._array import to_numpy
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.predictive import PredictivePath
from kernelweave.fits.targets import class_target
from kernelweave.kernels import RBF, Linear, Pipe
from kernelweave.models.mixture import weights as _mixture_weights
from kernelweave.models.mixture.projection import posterior_weights, prior_weights
from kernelweave.solvers import solve
from kernelweave.solvers.mixture import truncated_responsibilities
from kernelweave.weights import Simplex
from reproduce.reference.printed_mixture import printed_weights

#: New rows may lack views that few training rows lack.
LACKING = "ignore:.*(lacks? the view|without any view)"
pytestmark = pytest.mark.filterwarnings(
    f"{LACKING}:kernelweave.exceptions.KernelWarning"
)

# Folds are tested in test_refits.py.
Single = partial(ProbabilisticKDA, cv=None)
Mixture = partial(MixtureKDA, cv=None)
SETTINGS = [
    pytest.param({}, id="default"),
    pytest.param({"concentration": 0.0}, id="likelihood"),
    pytest.param({"weights": "shared"}, id="shared"),
    pytest.param({"weights": "uniform"}, id="uniform"),
    pytest.param({"weights": "stacking"}, id="stacking"),
    pytest.param({"noise": "em"}, id="noise-em"),
    pytest.param({"noise": "ml"}, id="noise-ml"),
    pytest.param({"noise": 0.3}, id="noise-fixed"),
    pytest.param({"projection": "posterior"}, id="posterior"),
    pytest.param({"solver": "em"}, id="em"),
]
UNCONVERGED = "ignore::sklearn.exceptions.ConvergenceWarning"
every_setting = pytest.mark.parametrize("setting", SETTINGS)


def gaussians(problem, rows):
    """Three kernels with ones on the diagonal, (m, n, 3)."""
    return np.stack(
        [
            RBF(gamma=0.2)(rows[:, c : c + 3], problem.X[:, c : c + 3])
            for c in (0, 3, 6)
        ],
        axis=-1,
    )


def with_gaps(X, rng, share=0.3, columns=(slice(0, 3), slice(3, 6), slice(6, 9))):
    """Rows that lack views at random, but never all of them."""
    X = X.copy()
    lacks = rng.random((len(X), len(columns))) < share
    lacks[np.arange(len(X)), rng.integers(len(columns), size=len(X))] = False
    for v, where in enumerate(columns):
        X[lacks[:, v], where] = np.nan
    return X, ~lacks


# Values of a deterministic problem ----------------------------------------------------


@pytest.fixture(scope="module")
def oracle():
    """Twelve rows, three kernels, noise 0.5 and amplitude 1: densities and means."""
    i = np.arange(12)
    y = np.repeat([0, 1, 2], [3, 4, 5])
    X = np.stack([np.sin(1 + 1.7 * i), np.cos(0.3 + 2.3 * i), np.sin(0.5 + 0.9 * i)], 1)
    X += 0.5 * np.eye(3)[y]
    new = np.array([[0.2, 0.1, -0.3], [1.0, -0.5, 0.4]])
    target, P = class_target(y, 3), np.eye(12) - 1 / 12
    log_density, means, crosses = (
        np.empty((12, 3, 3)),
        np.empty((2, 3, 3)),
        [],
    )
    for e, (columns, gamma) in enumerate(
        (([0], 1.0), ([1, 2], 0.5), ([0, 1, 2], 0.25))
    ):
        kernel = RBF(gamma=gamma)
        K, cross = kernel(X[:, columns]), kernel(new[:, columns], X[:, columns])
        path = PredictivePath(P @ K @ P, target)
        log_density[:, e] = path.loo(np.array([0.5])).log_density(np.ones((1, 3)))[0]
        means[:, e] = (cross - K.mean(axis=0)) @ path.coef(0.5)
        crosses.append(cross)
    weights, gamma, values = np.empty((3, 3)), np.empty((12, 3, 3)), []
    for c in range(3):
        criterion = MixtureLikelihood(log_density[:, :, c])
        found = solve(criterion, Simplex(), tol=1e-12)
        weights[:, c] = found.weights
        values.append(-12 * (found.value + criterion.offset))
        gamma[:, :, c] = truncated_responsibilities(
            log_density[:, :, c], np.ones((12, 3), dtype=bool), found.weights
        )
    near = np.stack([crosses[e] @ gamma[:, e] for e in range(3)], axis=1)
    return weights, values, means, near, gamma.sum(axis=0)


def test_weights_and_objective(oracle):
    weights, values = oracle[:2]
    wanted = [
        [0.8588255542, 0.0, 0.6018419244],
        [0.1411744458, 0.0, 0.0],
        [0.0, 1.0, 0.3981580756],
    ]
    assert_allclose(weights, wanted, atol=1e-7)
    assert_allclose(values, [-17.3270067882, -13.1777435944, -16.2831149644], atol=1e-8)


@pytest.mark.parametrize(
    ("form", "first", "second"),
    [
        (
            None,
            [-0.3376650789, 0.3194058612, 0.0224809165],
            [0.2538899257, -0.2403246859, -0.0808900916],
        ),
        (
            posterior_weights,
            [-0.3381089033, 0.3194058612, 0.0250659407],
            [0.2541933455, -0.2403246859, -0.0749604543],
        ),
        (printed_weights, [-0.2622189015, 0.3194058612, 0.0272337968], None),
    ],
)
def test_projections(oracle, form, first, second):
    weights, _, means, near, mass = oracle
    usable = np.ones((2, 3, 3), dtype=bool)
    share = prior_weights(weights, usable)
    if form is not None:
        share = form(share, near, mass)
    found = np.sum(share * means, axis=1)
    assert_allclose(found[0], first, atol=1e-7)
    if second is not None:
        assert_allclose(found[1], second, atol=1e-7)
        assert_allclose(share.sum(axis=1), 1.0)
    else:
        assert_allclose(share.sum(axis=1)[0], [0.7645, 1.0, 0.5225], atol=1e-4)


# The estimator ------------------------------------------------------------------------


@pytest.mark.one_seed
@every_setting
def test_classifies_and_agrees_with_itself(make_problem, setting):
    problem = make_problem(3, n=45, m=60, separation=3.0)
    model = Mixture(problem.views, **setting).fit(problem.X, problem.y)
    plain = KernelFDA(problem.views, cv=None).fit(problem.X, problem.y)
    wanted = plain.score(problem.new, problem.new_y)
    # measured: by 0.08 at least
    assert model.score(problem.new, problem.new_y) > wanted - 0.2
    # measured: 0 to 0.16
    assert abs(model.loo_score_ - model.score(problem.new, problem.new_y)) < 0.35
    assert_allclose(model.class_weights_.sum(axis=0), 1.0)
    assert_allclose(model.kernel_weights_, model.class_weights_.mean(axis=1))
    assert_allclose(sum(model.view_weights_.values()), 1.0)
    assert_allclose(model.responsibilities_.sum(axis=1), 1.0)
    assert model.noise_.shape == model.amplitude_.shape == (5, 3)
    assert np.all(model.loo_variance_ > 0) and model.observed_.all()
    proba = model.predict_proba(problem.new)
    assert np.array_equal(proba.argmax(axis=1), model.predict(problem.new))
    Z = model.transform(problem.new)
    assert Z.shape == (60, 3)
    assert_allclose(model.kernel(problem.new), Z @ Z.T)
    assert_allclose(
        model.kernel(problem.new, problem.X), Z @ model.transform(problem.X).T
    )
    if setting.get("weights") == "uniform":
        assert not hasattr(model, "certificate_")
    else:
        assert model.certificate_.converged, model.certificate_
        assert model.certificate_.lower_bound <= model.certificate_.value
        assert model.certificate_.gap < 1e-5
    again = pickle.loads(pickle.dumps(model))
    assert_allclose(again.predict_proba(problem.new), proba)


def by_hand(problem, noise):
    """Densities (n, p, k) and means of new rows (m, p, k) of all experts."""
    K, cross = problem.K, problem.new_K
    n, k = len(problem.y), int(problem.y.max()) + 1
    target, P = class_target(problem.y, k), np.eye(n) - 1 / n
    densities, means = [], []
    for e in range(K.shape[2]):
        raw = K[:, :, e]
        scale = n / np.trace(P @ raw @ P)
        path = PredictivePath(scale * P @ raw @ P, target)
        table = path.loo(np.array([noise]))
        densities.append(table.log_density(table.amplitude())[0])
        g = cross[:, :, e] - raw.mean(axis=0)
        means.append(scale * (g - g.mean(axis=1, keepdims=True)) @ path.coef(noise))
    return np.stack(densities, axis=1), np.stack(means, axis=1)


@pytest.mark.parametrize("concentration", [0.0, 0.1, 1.0])
def test_fit_is_the_solution_of_its_problem(make_problem, concentration):
    problem = make_problem(3)
    model = Mixture(
        problem.views, noise=0.2, concentration=concentration, tol=1e-10
    ).fit(problem.X, problem.y)
    densities, means = by_hand(problem, 0.2)
    prior = concentration * 60 / 5
    total = 0.0
    for c in range(3):
        criterion = MixtureLikelihood(densities[:, :, c], prior)
        found = solve(criterion, Simplex(), tol=1e-10)
        total += found.value + criterion.offset
        assert_allclose(model.class_weights_[:, c], found.weights, atol=1e-5)
        w = np.maximum(model.class_weights_[:, c], 1e-300)
        mixed = np.exp(densities[:, :, c]) @ w
        scores = (np.exp(densities[:, :, c]) / mixed[:, None]).sum(axis=0) + prior / w
        assert scores.max() <= (60 + 5 * prior) * (1 + 1e-7)
    assert_allclose(model.certificate_.value, total, atol=1e-8)
    wanted = np.einsum("pc,mpc->mc", model.class_weights_, means)
    assert_allclose(model.transform(problem.new), wanted, atol=1e-7)


def test_one_kernel_is_probabilistic_discriminant_analysis(make_problem):
    problem = make_problem(3)
    views = [("all", RBF(gamma=0.1), slice(None))]
    mixture = Mixture(views).fit(problem.X, problem.y)
    single = Single(views).fit(problem.X, problem.y)
    assert_allclose(mixture.noise_[0], single.noise_)
    assert_allclose(
        mixture.transform(problem.new), single.transform(problem.new), atol=1e-10
    )
    assert mixture.class_weights_.tolist() == [[1.0, 1.0, 1.0]]


def test_more_prior_is_more_even(make_problem):
    problem = make_problem(3)
    spread = [
        Mixture(problem.views, concentration=c).fit(problem.X, problem.y)
        for c in (0.0, 0.1, 10.0)
    ]
    deviation = [np.std(model.class_weights_) for model in spread]
    assert deviation[0] > deviation[1] > deviation[2]
    # measured over 21 seeds: at most 0.004
    assert deviation[2] < 0.02


def test_informative_kernels_get_the_weight(make_problem):
    problem = make_problem(3, n=120, separation=4.0)
    model = Mixture(problem.views).fit(problem.X, problem.y)
    # measured over 21 seeds: at most 0.08
    assert model.view_weights_["third"] < 0.2


@pytest.mark.parametrize(
    "setting", [{}, {"weights": "stacking"}, {"noise": "ml"}], ids=str
)
@pytest.mark.parametrize(
    "change", [lambda K: 100 * K, lambda K: K + 7.0], ids=["scaled", "shifted"]
)
def test_units_of_a_kernel_do_not_matter(make_problem, change, setting):
    problem = make_problem(3)
    one = Mixture("precomputed", **setting).fit(problem.K, problem.y)
    other = clone(one).fit(change(problem.K), problem.y)
    assert_allclose(other.class_weights_, one.class_weights_, atol=1e-4)
    assert_allclose(
        other.transform(change(problem.new_K)), one.transform(problem.new_K), atol=1e-4
    )


def test_two_classes_have_equal_weights(make_problem):
    problem = make_problem(2, n=50)
    model = Mixture(problem.views, tol=1e-9).fit(problem.X[:45], problem.y[:45])
    assert_allclose(model.class_weights_[:, 0], model.class_weights_[:, 1], atol=1e-5)


def test_order_does_not_matter(make_problem, rng):
    problem = make_problem(3)
    model = Mixture("precomputed", tol=1e-9).fit(problem.K, problem.y)
    wanted = model.transform(problem.new_K)
    kernels = rng.permutation(5)
    other = clone(model).fit(problem.K[:, :, kernels], problem.y)
    assert_allclose(other.class_weights_, model.class_weights_[kernels], atol=1e-5)
    assert_allclose(other.transform(problem.new_K[:, :, kernels]), wanted, atol=1e-5)
    rows = rng.permutation(60)
    other = clone(model).fit(problem.K[np.ix_(rows, rows)], problem.y[rows])
    assert_allclose(other.transform(problem.new_K[:, rows]), wanted, atol=1e-5)
    other = clone(model).fit(problem.K, 2 - problem.y)
    assert_allclose(other.transform(problem.new_K)[:, ::-1], wanted, atol=1e-5)


def test_duplicated_kernel_shares_its_weight(make_problem):
    problem = make_problem(3)
    twice = np.concatenate([problem.K, 3.0 * problem.K[:, :, :1]], axis=2)
    new = np.concatenate([problem.new_K, 3.0 * problem.new_K[:, :, :1]], axis=2)
    model = Mixture("precomputed", concentration=0.0, tol=1e-9)
    wanted = clone(model).fit(problem.K, problem.y).transform(problem.new_K)
    assert_allclose(model.fit(twice, problem.y).transform(new), wanted, atol=1e-4)


def test_noise_inside_the_mixture_increases_the_likelihood(make_problem):
    problem = make_problem(3)
    fixed = Mixture(problem.views, tol=1e-9).fit(problem.X, problem.y)
    joint = clone(fixed).set_params(noise="em").fit(problem.X, problem.y)
    assert joint.certificate_.value <= fixed.certificate_.value + 1e-9
    assert np.isin(np.round(joint.noise_, 9), np.round(np.logspace(-3, 2, 21), 9)).all()


def test_shared_weights_are_mean_responsibilities(make_problem):
    """One expert is responsible for all coordinates of a row (Eqs. 19 and 20)."""
    problem = make_problem(3)
    model = Mixture(problem.views, weights="shared", concentration=0.0, tol=1e-10)
    found = model.fit(problem.X, problem.y).responsibilities_
    assert_allclose(found, np.repeat(found[:, :, :1], 3, axis=2))
    assert_allclose(found.mean(axis=0), model.class_weights_, atol=1e-6)


def test_equal_weights_have_no_certificate_left_over(make_problem):
    problem = make_problem(3)
    model = Mixture(problem.views).fit(problem.X, problem.y)
    model.set_params(weights="uniform").fit(problem.X, problem.y)
    assert not hasattr(model, "certificate_")


def test_stacking_has_the_smallest_error(make_problem):
    problem = make_problem(3)
    errors = {
        weights: Mixture(problem.views, weights=weights)
        .fit(problem.X, problem.y)
        .loo_error_
        for weights in ("stacking", "per_class", "shared", "uniform")
    }
    assert errors["stacking"] == min(errors.values())
    model = MixtureKDA(problem.views, weights="stacking").fit(problem.X, problem.y)
    assert "squared error of the mixed mean" in model.certificate_.problem


def test_class_with_one_row(make_problem):
    problem = make_problem(2)
    y = problem.y.copy()
    y[7] = 5
    model = Mixture(problem.views).fit(problem.X, y)
    assert np.all(np.isfinite(model.predict_proba(problem.new)))


# Weights of a row ---------------------------------------------------------------------


def test_prior_weights_are_the_same_for_all_rows(make_problem):
    problem = make_problem(3)
    model = Mixture(problem.views).fit(problem.X, problem.y)
    found = model.sample_weights(problem.new, per_class=True)
    assert_allclose(found, np.broadcast_to(model.class_weights_, (25, 5, 3)))
    assert_allclose(model.sample_weights(problem.new), found.mean(axis=2))


def test_posterior_weights_tell_regions_apart():
    """The first kernel is informative left of 0, the second right of it."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    place = np.repeat([-4.0, 4.0], 100)
    X = np.column_stack([place, place]) + rng.normal(size=(200, 2)) * 0.3
    signal = np.column_stack([y, y]) + rng.normal(size=(200, 2)) * 0.05
    signal[100:, 0] = rng.random(100)
    signal[:100, 1] = rng.random(100)
    table = np.column_stack([X[:, 0], signal[:, 0], X[:, 1], signal[:, 1]])
    views = [("one", RBF(gamma=1.0), [0, 1]), ("two", RBF(gamma=1.0), [2, 3])]
    model = Mixture(views, projection="posterior").fit(table, y)
    share = model.sample_weights(table)
    # measured: 0.66 and 0.33
    assert share[:100, 0].mean() > share[100:, 0].mean() + 0.2
    assert_allclose(share.sum(axis=1), 1.0)
    assert_allclose(
        model.sample_weights(table[:5], projection="prior"),
        np.broadcast_to(model.kernel_weights_, (5, 2)),
    )
    with pytest.raises(ValueError, match="projection must be"):
        model.sample_weights(table, projection="both")


def test_a_training_row_has_no_part_in_its_own_posterior_weights(make_problem):
    """One that resembles no other keeps the prior weights."""
    problem = make_problem(3)
    X = problem.X.copy()
    X[7] += 1e3
    views = [("all", [RBF(gamma=0.1), RBF(gamma=0.5)], slice(None))]
    model = MixtureKDA(views, projection="posterior").fit(X, problem.y)
    share = model._projector.shares(model._rows(X, ""), local=True, own=True)
    assert_allclose(share[7].mean(axis=-1), model.kernel_weights_)
    assert not np.allclose(model.sample_weights(X)[7], model.kernel_weights_)


def test_posterior_weights_far_from_all_rows_are_prior(make_problem):
    problem = make_problem(3)
    model = Mixture(
        [("all", [RBF(gamma=0.1), RBF(gamma=0.5)], slice(None))], projection="posterior"
    ).fit(problem.X, problem.y)
    far = model.sample_weights(problem.X[:3] + 1e4)
    assert_allclose(far, np.broadcast_to(model.kernel_weights_, (3, 2)))


def test_kernels_that_are_not_similarities(make_problem):
    problem = make_problem(3)
    model = Mixture("precomputed", projection="posterior")
    with pytest.raises(ValueError, match=r"precomputed kernel 1.*projection='prior'"):
        model.fit(problem.K, problem.y)
    prior = Mixture("precomputed").fit(problem.K, problem.y)
    with pytest.raises(ValueError, match="no negative entries"):
        prior.sample_weights(problem.new_K, projection="posterior")
    fine = clone(model).fit(gaussians(problem, problem.X), problem.y)
    new = gaussians(problem, problem.new)
    assert_allclose(fine.sample_weights(new).sum(axis=1), 1.0)
    new[0, 0, 0] = -0.5
    with pytest.raises(ValueError, match=r"-0\.5 for a new row"):
        fine.transform(new)
    columns = Mixture([("all", Linear(), slice(None))], projection="posterior")
    columns.fit(problem.X, problem.y)  # (1 + cosine) / 2
    zeros = np.zeros((1, 9))
    assert np.all(np.isfinite(columns.transform(zeros)))


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_posterior_weights_for_columns_of_any_size(make_problem, scale):
    """Products of squared norms would leave the range of numbers."""
    problem = make_problem(3)
    halves = [("a", Linear(), slice(0, 4)), ("b", Linear(), slice(4, 9))]
    model = Mixture(halves, projection="posterior")
    expected = clone(model).fit(problem.X, problem.y).transform(problem.new)
    model.fit(scale * problem.X, problem.y)
    assert_allclose(model.transform(scale * problem.new), expected, rtol=1e-6)


# Missing views ------------------------------------------------------------------------


def test_without_gaps_missing_changes_nothing(make_problem):
    problem = make_problem(3)
    plain = Mixture(problem.views).fit(problem.X, problem.y)
    for missing in ("available", "zero"):
        model = clone(plain).set_params(missing=missing).fit(problem.X, problem.y)
        assert_allclose(model.class_weights_, plain.class_weights_, atol=1e-12)
        assert_allclose(model.transform(problem.new), plain.transform(problem.new))
        kernels = Mixture("precomputed", missing=missing).fit(problem.K, problem.y)
        assert_allclose(
            kernels.transform(problem.new_K), plain.transform(problem.new), atol=1e-5
        )


def test_gaps_are_an_error_if_asked(make_problem, rng):
    problem = make_problem(3)
    X, _ = with_gaps(problem.X, rng)
    model = Mixture(problem.views, missing="error")
    with pytest.raises(ValueError, match="all entries of the view"):
        model.fit(X, problem.y)
    model.fit(problem.X, problem.y)
    with pytest.raises(ValueError, match="all entries of the view"):
        model.predict(X)


# Without a prior the likelihood of rows with gaps is flat where weights vanish.
@pytest.mark.one_seed
@pytest.mark.filterwarnings(UNCONVERGED)
@pytest.mark.parametrize(
    ("setting", "missing"),
    [
        *(pytest.param(*p.values, "available", id=p.id) for p in SETTINGS),
        pytest.param({}, "zero", id="zero"),
        pytest.param({"projection": "posterior"}, "zero", id="zero-kde"),
    ],
)
def test_gaps_in_training_and_new_rows(make_problem, rng, setting, missing):
    problem = make_problem(3, n=48, m=80, separation=3.0)
    X, seen = with_gaps(problem.X, rng)
    new, _ = with_gaps(problem.new, rng)
    model = Mixture(problem.views, missing=missing, **setting).fit(X, problem.y)
    assert model.score(new, problem.new_y) > 0.4  # measured: 0.76 to 0.98
    assert np.all(np.isfinite(model.predict_proba(new)))
    assert_allclose(model.class_weights_.sum(axis=0), 1.0)
    kernel_of_view = [0, 1, 1, 2, 2]
    if missing == "available":
        assert np.array_equal(model.observed_, seen[:, kernel_of_view])
        assert np.all(model.responsibilities_[~model.observed_] == 0)
        assert np.array_equal(np.isnan(model.loo_mean_[:, :, 0]), ~model.observed_)
    else:
        assert model.observed_.all()
    assert_allclose(model.responsibilities_.sum(axis=1), 1.0)


def test_each_expert_is_trained_on_its_rows(make_problem, rng):
    problem = make_problem(3)
    X, seen = with_gaps(problem.X, rng)
    model = Mixture(problem.views, missing="available", noise=0.2)
    model.fit(X, problem.y)
    alone = Mixture(problem.views[:1], noise=0.2, weights="uniform")
    rows = seen[:, 0]
    target = class_target(problem.y, 3)
    alone.fit(X[rows], problem.y[rows])
    only_first = problem.new.copy()
    only_first[:, 3:] = np.nan
    # The other's targets use its own class proportions: compare up to these.
    own = class_target(problem.y[rows], 3)
    found, wanted = model.transform(only_first), alone.transform(problem.new)
    scale = np.array([np.ptp(target[rows, c]) / np.ptp(own[:, c]) for c in range(3)])
    assert_allclose(found, wanted * scale + target[rows].mean(axis=0), atol=1e-8)


def test_weights_are_divided_by_those_that_are_there(make_problem, rng):
    problem = make_problem(3)
    X, _ = with_gaps(problem.X, rng)
    model = Mixture(problem.views, missing="available").fit(X, problem.y)
    new, seen = with_gaps(problem.new, rng)
    share = model.sample_weights(new, per_class=True)
    usable = seen[:, [0, 1, 1, 2, 2]]
    wanted = usable[:, :, None] * model.class_weights_[None]
    assert_allclose(share, wanted / wanted.sum(axis=1, keepdims=True))
    zero = clone(model).set_params(missing="zero").fit(X, problem.y)
    assert_allclose(
        zero.sample_weights(new, per_class=True),
        np.broadcast_to(zero.class_weights_, share.shape),
    )


def test_experts_without_weight_count_alike_where_they_are_all_there_is():
    weights = np.array([[1.0], [0.0], [0.0]])
    usable = np.array([[True] * 3, [False, True, True], [False] * 3])[:, :, None]
    found = prior_weights(weights, usable)[:, :, 0]
    assert_allclose(found, [[1, 0, 0], [0, 0.5, 0.5], [0, 0, 0]])


@pytest.mark.parametrize("missing", ["available", "zero"])
def test_view_missing_for_all_new_rows(make_problem, missing):
    problem = make_problem(3, separation=3.0)
    model = Mixture(problem.views, missing=missing).fit(problem.X, problem.y)
    new = problem.new.copy()
    new[:, :3] = np.nan
    assert np.all(np.isfinite(model.predict_proba(new)))
    share = model.sample_weights(new)
    assert np.all((share[:, 0] == 0) == (missing == "available"))


def test_zeros_are_zeros(make_problem, rng):
    """Against kernels that are centred, scaled and filled by hand."""
    problem = make_problem(3)
    views = [("first", RBF(gamma=0.1), [0, 1, 2]), ("second", Linear(), [3, 4, 5])]
    X, seen = with_gaps(problem.X, rng, columns=(slice(0, 3), slice(3, 6)))
    model = Mixture(views, missing="zero", noise=0.3, tol=1e-9).fit(X, problem.y)
    filled = np.zeros((60, 60, 2))
    for v, (_, kernel, columns) in enumerate(views):
        rows = seen[:, v]
        K = kernel(problem.X[rows][:, columns])
        P = np.eye(len(K)) - 1 / len(K)
        filled[np.ix_(rows, rows, [v])] = (P @ K @ P)[:, :, None]
    wanted = Mixture("precomputed", noise=0.3, tol=1e-9).fit(filled, problem.y)
    assert_allclose(model.class_weights_, wanted.class_weights_, atol=1e-5)
    assert_allclose(model.loo_mean_, wanted.loo_mean_, atol=1e-8)
    assert_allclose(model.transform(X), wanted.transform(filled), atol=1e-5)
    nothing = np.full((1, 9), np.nan)
    assert_array_equal(model.transform(nothing), 0.0)
    assert_allclose(model.predict_proba(nothing)[0], np.bincount(problem.y) / 60)


def test_no_view_left(make_problem):
    problem = make_problem(3)
    model = Mixture(problem.views, missing="available").fit(problem.X, problem.y)
    problem.X[4] = problem.new[7] = np.nan
    with pytest.raises(ValueError, match="every view is missing in new row 7"):
        model.predict(problem.new)
    for missing in ("available", "zero"):
        model.set_params(missing=missing)
        with pytest.raises(
            ValueError, match=r"every view is missing in training row 4\. "
        ):
            clone(model).fit(problem.X, problem.y)


def test_class_absent_from_a_view(make_problem):
    problem = make_problem(3)
    X = problem.X.copy()
    X[problem.y == 2, :3] = np.nan
    model = Mixture(problem.views, missing="available")
    with pytest.warns(KernelWarning, match="'first' has fewer than 2 rows of class 2"):
        model.fit(X, problem.y)
    assert model.class_weights_[0, 2] == 0 and model.class_weights_[0, 0] > 0
    assert any("first" in remark for remark in model.certificate_.remarks)
    # A row with only that view does not bear on that class: the mean of the target.
    only = problem.new.copy()
    only[:, 3:] = np.nan
    assert_allclose(model.transform(only)[:, 2], 0.0)
    assert np.all(np.isfinite(model.predict_proba(only)))
    shared = clone(model).set_params(weights="shared")
    with pytest.warns(KernelWarning, match="view 'first'"):
        shared.fit(X, problem.y)
    assert np.all(shared.class_weights_[0] == 0)


def test_class_absent_from_every_view_but_in_parts(make_problem):
    problem = make_problem(2, n=30)
    views = problem.views[:2]
    X = problem.X.copy()
    X[problem.y == 0, :3] = np.nan
    X[problem.y == 1, 3:6] = np.nan
    model = Mixture(views, missing="available")
    with (
        pytest.warns(KernelWarning),
        pytest.raises(ValueError, match="class 0 has fewer than 2 rows in every view"),
    ):
        model.fit(X, problem.y)


def test_entries_of_a_row_that_is_there(make_problem):
    problem = make_problem(2)
    problem.X[7, 1] = np.nan
    model = Mixture(problem.views, missing="available")
    with pytest.raises(ValueError, match=r"view 'first', row 7, column 1 holds nan"):
        model.fit(problem.X, problem.y)
    views = [("first", Pipe(SimpleImputer(), "rbf"), [0, 1, 2]), *problem.views[1:]]
    model.set_params(views=views).fit(problem.X, problem.y)
    assert model.observed_.all()
    problem.new[3, 2] = np.nan
    problem.new[4, :3] = np.nan
    assert np.all(np.isfinite(model.transform(problem.new)))
    assert model.sample_weights(problem.new)[4, 0] == 0


def test_kernels_with_gaps_say_what_columns_say(make_problem, rng):
    problem = make_problem(3)
    X, seen = with_gaps(problem.X, rng)
    new, new_seen = with_gaps(problem.new, rng)
    columns = Mixture(problem.views, missing="available").fit(X, problem.y)
    K, cross = problem.K, problem.new_K
    for e, v in enumerate([0, 1, 1, 2, 2]):
        K[~seen[:, v], :, e] = np.nan
        K[:, ~seen[:, v], e] = np.nan
        cross[~new_seen[:, v], :, e] = np.nan
        cross[:, ~seen[:, v], e] = np.nan
    kernels = Mixture("precomputed", missing="available").fit(K, problem.y)
    assert_allclose(kernels.class_weights_, columns.class_weights_, atol=1e-5)
    assert_allclose(kernels.transform(cross), columns.transform(new), atol=1e-5)
    cross[0, seen[:, 0], 0] = 1.0
    cross[0, np.flatnonzero(seen[:, 0])[2], 0] = np.nan
    with pytest.raises(ValueError, match=r"'kernel_0' holds nan at position \(0, "):
        kernels.predict(cross)


def test_frames_and_search(make_problem, rng):
    pd = pytest.importorskip("pandas")
    problem = make_problem(3)
    X, _ = with_gaps(problem.X, rng, 0.2)
    frame = pd.DataFrame(X, columns=list("abcdefghi"))
    views = [
        ("first", "rbf", ["a", "b", "c"]),
        ("second", "rbf", ["d", "e", "f"]),
        ("third", "rbf", ["g", "h", "i"]),
    ]
    model = Mixture(views, missing="available")
    assert np.all(np.isfinite(cross_val_score(model, frame, problem.y, cv=3)))
    search = GridSearchCV(model, {"concentration": [0.01, 1.0]}, cv=3)
    search.fit(frame, problem.y)
    assert search.best_estimator_.predict(frame).shape == (60,)


# Libraries, progress, parameters ------------------------------------------------------


@in_turn(
    other_backend=["array_api_strict", "torch", "torch", "array_api_strict"],
    setting=[{"projection": "posterior"}, {"weights": "stacking", "noise": "ml"}],
    gaps=[False, False, True, True],
    indirect=["other_backend"],
)
def test_every_library(make_problem, rng, other_backend, setting, gaps):
    problem = make_problem(3)
    X, new = problem.X, problem.new
    if gaps:
        X, new = with_gaps(X, rng)[0], with_gaps(new, rng)[0]
    missing = "available" if gaps else "error"
    wanted = Mixture(problem.views, missing=missing, **setting).fit(X, problem.y)
    model = clone(wanted).fit(other_backend.asarray(X), problem.y)
    assert_allclose(to_numpy(model.class_weights_), wanted.class_weights_, atol=1e-5)
    there = other_backend.asarray(new)
    assert type(model.kernel_weights_) is type(there)
    for name in ("transform", "predict_proba", "predict", "kernel", "sample_weights"):
        found = getattr(model, name)(there)
        assert type(found) is type(there)
        assert_allclose(to_numpy(found), getattr(wanted, name)(new), atol=1e-4)
    kernels = Mixture("precomputed", missing="zero")
    kernels.fit(other_backend.asarray(problem.K), problem.y)
    labels = kernels.predict(other_backend.asarray(problem.new_K))
    assert to_numpy(labels).shape == (25,)


class AllTablesAreLarge(MixtureKDA):
    """Solves tables of any size on the device."""

    _large_table = 0


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
def test_large_tables_stay_where_they_are(
    make_problem, rng, xp_backend, monkeypatch, gaps
):
    problem = make_problem(3)
    X = with_gaps(problem.X, rng)[0] if gaps else problem.X
    missing = "available" if gaps else "error"
    wanted = Mixture(problem.views, missing=missing).fit(X, problem.y)
    seen = []
    name = "truncated_em" if gaps else "MixtureLikelihood"
    real = getattr(_mixture_weights, name)

    def spy(table, *args, **settings):
        seen.append(type(table))
        return real(table, *args, **settings)

    monkeypatch.setattr(_mixture_weights, name, spy)
    there = xp_backend.asarray(X)
    model = AllTablesAreLarge(problem.views, missing=missing, cv=None)
    found = model.fit(there, problem.y)
    assert set(seen) == {type(there)}
    assert_allclose(to_numpy(found.class_weights_), wanted.class_weights_, atol=1e-5)


def test_single_precision(make_problem, xp_backend):
    problem = make_problem(3)
    X = xp_backend.asarray(problem.X, "float32")
    model = Mixture(problem.views).fit(X, problem.y)
    found = model.transform(xp_backend.asarray(problem.new, "float32"))
    assert found.dtype == X.dtype and model.kernel_weights_.dtype == X.dtype
    wanted = Mixture(problem.views).fit(problem.X, problem.y)
    # measured: up to 1.2e-5 apart
    assert_allclose(to_numpy(found), wanted.transform(problem.new), atol=1e-4)
    assert type(model.certificate_.gap) is float and model.certificate_.converged


def test_stop_before_the_optimum_is_told(make_problem):
    problem = make_problem(3)
    model = Mixture(problem.views, solver="em", max_iter=2, concentration=0.0)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        model.fit(problem.X, problem.y)
    assert not model.certificate_.converged and model.certificate_.gap > 1e-6
    assert "optimal" not in model.certificate_.status


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
def test_verbose(make_problem, rng, capsys, gaps):
    problem = make_problem(2)
    X = with_gaps(problem.X, rng)[0] if gaps else problem.X
    missing = "available" if gaps else "error"
    model = Mixture(problem.views, missing=missing).fit(X, problem.y)
    assert capsys.readouterr().out == ""
    model.set_params(verbose=2).fit(X, problem.y)
    lines = capsys.readouterr().out.splitlines()
    assert sum("kernel" in line for line in lines) == 5
    pattern = r"\[MixtureKDA +\d+\.\d\d s\] (iteration \d+: value .*|kernel \d ready)"
    assert all(re.fullmatch(pattern, line) for line in lines)
    assert not any("nan" in line for line in lines)


def test_constant_kernels_have_no_weight(make_problem):
    problem = make_problem(2)
    views = [("flat", "rbf", [9]), ("first", ["rbf", "linear"], [0, 1, 2])]
    X = np.column_stack([problem.X, np.ones(60)])
    model = Mixture(views)
    with pytest.warns(KernelWarning, match="view 'flat'.*constant"):
        model.fit(X, problem.y)
    assert model.class_weights_[0].tolist() == [0.0, 0.0]
    new = np.column_stack([problem.new, np.zeros(25)])
    assert np.all(np.isfinite(model.predict_proba(new)))
    with (
        pytest.warns(KernelWarning),
        pytest.raises(ValueError, match="every kernel is constant"),
    ):
        Mixture(views[:1]).fit(X, problem.y)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("weights", "equal"),
        ("concentration", -0.1),
        ("concentration", "auto"),
        ("projection", "both"),
        ("noise", 0),
        ("missing", "impute"),
        ("solver", "sdp"),
        ("tol", 0.0),
        ("max_iter", 0),
        ("psd", "shift"),
        ("verbose", -1),
    ],
)
def test_bad_parameters_are_named(make_problem, parameter, value):
    problem = make_problem(2)
    model = Mixture(problem.views).set_params(**{parameter: value})
    with pytest.raises(ValueError, match=rf"{parameter!r} parameter.*{value!r}"):
        model.fit(problem.X, problem.y)


def test_noise_by_likelihood_needs_likelihood_weights(make_problem):
    problem = make_problem(2)
    for weights in ("uniform", "stacking"):
        model = Mixture(problem.views, noise="em", weights=weights)
        with pytest.raises(ValueError, match=rf"noise='em'.*{weights!r}"):
            model.fit(problem.X, problem.y)


def test_weights_that_stopped_short_name_their_class():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    views = [("sepal", "rbf", [0, 1]), ("petal", "rbf", [2, 3])]
    model = Mixture(views, solver="em", max_iter=1, tol=1e-13)
    with pytest.warns(ConvergenceWarning, match="of class 'setosa'"):
        model.fit(X[::3], names[y[::3]])


def test_rows_are_as_certain_as_the_views_they_have(rng):
    """Also if no training row has shown what a weak view by itself is worth."""
    y = rng.integers(0, 2, 900)
    X = rng.normal(size=(900, 4))
    X[:, 0] += 4 * y
    X[:, 2] += y
    views = [("strong", RBF(gamma=0.2), [0, 1]), ("weak", RBF(gamma=0.2), [2, 3])]
    new, labels = X[150:].copy(), y[150:]
    new[:, :2] = np.nan
    model = Mixture(views, missing="available").fit(X[:150], y[:150])
    # measured: 0.60 to 0.65; 0.63 to 0.92 if all rows were taken to be as certain
    assert log_loss(labels, model.predict_proba(new)) < np.log(2)
    # the error of these rows is that of rows left out
    error = np.mean((class_target(y[:150], 2) - model.loo_mean_[:, 1]) ** 2)
    assert_allclose(model._projector.spread(np.array([[False, True]])), error)

"""Shares sum to one; the weights of a half are those of a model fitted to it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
)
from kernelweave.inspection import weight_intervals, weights_table
from kernelweave.inspection._problem import problem_of
from kernelweave.inspection.view_shares import _halves

VIEWS = [
    ("good", "linear", slice(0, 2)),
    ("fair", ["linear", "rbf"], slice(2, 4)),
    ("junk", "linear", slice(4, 6)),
]
#: All kinds of convex problems; the tolerance makes their solutions comparable.
LEARNERS = {
    "fda": MultipleKernelFDA(norm=1, tol=1e-8, cv=None),
    "fda-norm2": MultipleKernelFDA(norm=2, alpha="learn", tol=1e-8, cv=None),
    "fda-alpha": MultipleKernelFDA(norm=4 / 3, alpha=0.3, tol=1e-8, cv=None),
    "fda-within": MultipleKernelFDA(
        norm=2, alpha=0.3, scatter="within", tol=1e-8, cv=None
    ),
    "fda-block": MultipleKernelFDA(
        norm=2, alpha=0.3, formulation="block", tol=1e-8, cv=None
    ),
    "ridge": MultipleKernelRidge(norm=1, tol=1e-8, cv=None),
    "svc": MultipleKernelSVC(norm=2, tol=1e-7),
    "svc-per-class": MultipleKernelSVC(norm=2, weights="per_class", tol=1e-7),
    "alignment": KernelAlignment(),
}


def make_data(rng, n=60, n_classes=3):
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, 6))
    X[:, 0] += 2.0 * y
    X[:, 2] += 1.0 * (y == 1)
    return X, y


def as_kernels(X):
    """Linear kernels, which depend on no other rows, (n, n, p)."""
    blocks = (X[:, 0:2], X[:, 2:4], X[:, 4:6])
    return np.stack([block @ block.T for block in blocks], axis=2)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_shares_are_those_of_the_table(rng, norm):
    X, y = make_data(rng)
    model = MultipleKernelFDA(VIEWS, norm=norm, alpha=0.1, cv=None).fit(X, y)
    shares = model.view_shares_
    assert list(shares) == ["good", "fair", "junk"]
    assert sum(shares.values()) == pytest.approx(1)
    for view, share in shares.items():
        rows = [row for row in weights_table(model) if row["view"] == view]
        assert share == pytest.approx(sum(row["share"] for row in rows))


def test_shares_of_signed_weights(rng):
    X, y = make_data(rng, n_classes=2)
    model = MultipleKernelSVC("precomputed", signed=True).fit(as_kernels(X), y)
    shares = np.array(list(model.view_shares_.values()))
    assert np.all(shares >= 0)
    assert np.sum(shares) == pytest.approx(1)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_half_is_learned_as_the_estimator_learns(rng, name):
    X, y = make_data(rng)
    K = as_kernels(X)
    y = X[:, 0] + X[:, 2] if name == "ridge" else y
    model = LEARNERS[name].set_params(views="precomputed").fit(K, y)
    problem = problem_of(model, K, y, "test")
    rows = np.sort(rng.permutation(len(y))[:30])
    found = problem.shares(problem.weights(problem.restricted(rows), rows))
    alone = model.fit(K[np.ix_(rows, rows)], y[rows])
    # Weights of gap g are determined to about sqrt(g), and problems are solved to 1e-5.
    np.testing.assert_allclose(found, list(alone.view_shares_.values()), atol=0.01)


@pytest.mark.one_seed
def test_a_half_with_gaps(rng):
    X, y = make_data(rng)
    X[::4, 2:4] = np.nan
    X[1::4, 4:6] = np.nan
    views = [(name, "linear", columns) for name, _, columns in VIEWS]
    model = MultipleKernelFDA(views, norm=2, alpha=0.3, missing="zero", cv=None).fit(
        X, y
    )
    problem = problem_of(model, X, y, "test")
    rows = np.sort(rng.permutation(len(y))[:30])
    found = problem.shares(problem.weights(problem.restricted(rows), rows))
    model.fit(X[rows], y[rows])
    np.testing.assert_allclose(found, list(model.view_shares_.values()), atol=0.01)
    model.set_params(missing="available").fit(X, y)
    for row in weight_intervals(model, X, y, n_resamples=4, random_state=0):
        assert 0 <= row["low"] <= row["share"] <= row["high"] <= 1


def test_halves_are_complementary_and_stratified(rng):
    X, y = make_data(rng, n=61)
    y[0] = 2
    problem = problem_of(
        MultipleKernelFDA(VIEWS, norm=1, cv=None).fit(X, y), X, y, "test"
    )
    first, second = _halves(problem, np.random.RandomState(0))
    np.testing.assert_array_equal(np.sort(np.append(first, second)), np.arange(61))
    for code in range(3):
        sizes = [np.sum(y[rows] == code) for rows in (first, second)]
        assert abs(sizes[0] - sizes[1]) <= 1


@pytest.mark.one_seed
def test_intervals_tell_good_views_from_junk(rng):
    X, y = make_data(rng, n=90)
    model = MultipleKernelFDA(VIEWS, norm=1, cv=None).fit(X, y)
    rows = weight_intervals(model, X, y, n_resamples=30, random_state=0)
    again = weight_intervals(model, X, y, n_resamples=30, random_state=0)
    assert rows == again
    good, _, junk = rows
    # Measured with 30 seeds: the smallest distance between the intervals is 0.2.
    assert good["low"] > junk["high"]
    assert good["selected"] == 1.0
    narrow = weight_intervals(
        model, X, y, n_resamples=30, confidence=0.5, random_state=0
    )
    for wide, row in zip(rows, narrow, strict=True):
        assert wide["low"] <= row["low"] <= row["share"] <= row["high"] <= wide["high"]
        assert list(row) == ["view", "share", "low", "high", "selected", "n_resamples"]


@pytest.mark.one_seed
def test_looks_into_pipelines_and_searches(rng):
    X, y = make_data(rng)
    inner = MultipleKernelFDA(VIEWS, norm=1, cv=None)
    pipe = make_pipeline(StandardScaler(), inner)
    search = GridSearchCV(pipe, {"multiplekernelfda__norm": [1]}, cv=2).fit(X, y)
    rows = weight_intervals(search, X, y, n_resamples=4, random_state=0)
    direct = inner.fit(StandardScaler().fit_transform(X), y)
    scaled = StandardScaler().fit_transform(X)
    assert rows == weight_intervals(direct, scaled, y, n_resamples=4, random_state=0)


@pytest.mark.one_seed
def test_refusals(rng):
    X, y = make_data(rng)
    model = MultipleKernelFDA(VIEWS, norm=1, cv=None).fit(X, y)
    for changes, match in (
        ({"n_resamples": 1}, "n_resamples must be an int >= 2, got 1"),
        ({"confidence": 95}, "between 0 and 1, got 95"),
    ):
        with pytest.raises(ValueError, match=match):
            weight_intervals(model, X, y, **changes)
    with pytest.raises(ValueError, match="it was fitted on 60 rows, and X has 30"):
        weight_intervals(model, X[:30], y[:30])
    with pytest.raises(ValueError, match="fitted on 60 rows, but y has 30"):
        weight_intervals(model, X, y[:30])
    with pytest.raises(ValueError, match="its certified optimum is"):
        weight_intervals(model, X, rng.permutation(y))
    alone = np.where(np.arange(60) == 7, 3, y)
    model.fit(X, alone)
    with pytest.raises(ValueError, match="class number 3 in sorted order has 1"):
        weight_intervals(model, X, alone)


@pytest.mark.one_seed
@pytest.mark.parametrize(
    ("model", "error", "match"),
    [
        (
            KernelFDA(cv=None),
            TypeError,
            "KernelFDA does not learn its weights that way",
        ),
        (MixtureKDA(), TypeError, "MixtureKDA does not learn"),
        (MultipleKernelFDA(norm=np.inf, cv=None), ValueError, "all weights are equal"),
        (
            MultipleKernelFDA(objective="loo", cv=None),
            ValueError,
            "not a convex problem",
        ),
        (
            MultipleKernelFDA(norm=1, scatter="within", cv=None),
            ValueError,
            "provisional alpha",
        ),
        (
            MultipleKernelFDA(norm=1, class_weight={0: 2}, cv=None),
            ValueError,
            "rows have weig",
        ),
        (
            MultipleKernelFDA(norm=1, features="random", n_features=20, cv=None),
            ValueError,
            "explicit features",
        ),
        (KernelAlignment(method="independent"), ValueError, "each kernel by itself"),
        (MultipleKernelSVC(signed=True), ValueError, "both signs are no shares"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_models_without_a_convex_problem(rng, model, error, match):
    X, y = make_data(rng, n_classes=2)
    model.set_params(views=[(name, "linear", cols) for name, _, cols in VIEWS])
    with pytest.raises(error, match=match):
        weight_intervals(model.fit(X, y), X, y)

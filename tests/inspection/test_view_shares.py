"""Shares sum to one; the weights of a half are those of a model fitted to it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimators import ONE_EACH, OWN_WAYS, in_turn, poses_problem, some
from kernelweave import (
    KernelAlignment,
    MultipleKernelFDA,
    MultipleKernelSVC,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import (
    view_pvalues,
    weight_intervals,
    weight_ranges,
    weights_table,
)
from kernelweave.inspection._problem import problem_of
from kernelweave.inspection.view_shares import _halves

VIEWS = [
    ("good", "linear", slice(0, 2)),
    ("fair", ["linear", "rbf"], slice(2, 4)),
    ("junk", "linear", slice(4, 6)),
]
#: All kinds of convex problems; the tolerance makes their solutions comparable.
LEARNERS = some(
    (*ONE_EACH, *OWN_WAYS, "MultipleKernelFDA-l2-learn", "MultipleKernelFDA-l4/3"),
    poses_problem,
    views="precomputed",
    cv=None,
    tol=1e-8,
)


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


@in_turn(model=LEARNERS, weighted=[True, False, True, False])
def test_a_half_is_learned_as_the_estimator_learns(rng, model, weighted):
    X, y = make_data(rng)
    X[:, 2] += 2.0 * (y == 1)  # weights of a class without support are arbitrary
    K, given = as_kernels(X), np.ones(len(y))
    y = X[:, 0] + X[:, 2] if is_regressor(model) else y
    if weighted:
        given = rng.uniform(0.2, 4.0, len(y))
    fit = {} if np.all(given == 1.0) else {"sample_weight": given}
    model = clone(model).fit(K, y, **fit)
    problem = problem_of(model, K, y, "test")
    rows = np.sort(rng.permutation(len(y))[:30])
    bank = problem.restricted(rows)
    found = problem.shares(problem.weights(bank, rows, tol=1e-8))
    fit = {name: weights[rows] for name, weights in fit.items()}
    alone = model.fit(K[np.ix_(rows, rows)], y[rows], **fit)
    # Weights of gap g are determined to about sqrt(g).
    np.testing.assert_allclose(found, list(alone.view_shares_.values()), atol=1e-4)


def test_weighted_rows_are_judged_as_weighted_rows(rng):
    """Whole-number weights have the ranges of repeated rows, and decoys are centred."""
    X, y = make_data(rng, n=30)
    X[:, 2] += y
    given = rng.integers(1, 4, len(y))
    views = [("a", "linear", slice(0, 2)), ("b", "linear", slice(2, 4))]
    model = MultipleKernelFDA(views, norm=2, alpha=0.3, cv=None, tol=1e-8)
    model.fit(X, y, sample_weight=given)
    copies = np.repeat(np.arange(30), given)
    found = weight_ranges(model, X, y)
    problem = problem_of(model, X, y, "test")
    orders = {name: rng.permutation(30) for name in problem.names}
    for gram in problem.shuffled(orders):
        np.testing.assert_allclose(gram @ given, 0.0, atol=1e-9)
        assert np.diag(gram) @ given == pytest.approx(np.sum(given))
    model.fit(X[copies], y[copies])
    for row, wanted in zip(
        found, weight_ranges(model, X[copies], y[copies]), strict=True
    ):
        for end in ("low", "high", "share"):
            assert row[end] == pytest.approx(wanted[end], abs=1e-6)


@pytest.mark.measured
def test_balanced_models_are_judged(rng):
    X, y = make_data(rng, n=60, n_classes=2)
    keep = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:10]]
    X, y = X[keep], y[keep]
    plain = {"norm": 1, "alpha": 0.1, "cv": None}
    model = MultipleKernelFDA(VIEWS, class_weight="balanced", **plain)
    values = view_pvalues(model.fit(X, y), X, y, n_decoys=19, random_state=0)
    assert values["good"] == 0.05
    model = MultipleKernelSVC(VIEWS, C="cv", class_weight="balanced", tol=1e-2)
    model.fit(X, y)
    good, _, junk = weight_intervals(model, X, y, n_resamples=4, random_state=0)
    assert good["low"] > junk["share"]


@pytest.mark.one_seed
def test_a_half_with_gaps(rng):
    X, y = make_data(rng)
    X[::4, 2:4] = np.nan
    X[1::4, 4:6] = np.nan
    views = [(name, "linear", columns) for name, _, columns in VIEWS]
    model = MultipleKernelFDA(
        views, norm=2, alpha=0.3, missing="zero", cv=None, tol=1e-8
    ).fit(X, y)
    problem = problem_of(model, X, y, "test")
    rows = np.sort(rng.permutation(len(y))[:30])
    found = problem.shares(problem.weights(problem.restricted(rows), rows, tol=1e-8))
    model.fit(X[rows], y[rows])
    np.testing.assert_allclose(found, list(model.view_shares_.values()), atol=1e-4)
    model.set_params(missing="available").fit(X, y)
    for row in weight_intervals(model, X, y, n_resamples=4, random_state=0):
        assert 0 <= row["low"] <= row["share"] <= row["high"] <= 1


@pytest.mark.parametrize("grouped", [False, True])
def test_halves_are_complementary_and_stratified(rng, grouped):
    y, units = rng.permutation(np.arange(60) % 3), np.arange(60)
    if grouped:  # groups of two classes, and of one
        y, units = np.repeat([0, 1, 1, 2, 2, 2], 10), np.arange(60) // 5
        y[units == 0] = [0, 0, 1, 1, 1]
    members = np.zeros((units.max() + 1, 3), dtype=bool)
    members[units, y] = True
    first, second = _halves(units, members, np.random.RandomState(0))
    np.testing.assert_array_equal(np.sort(np.append(first, second)), np.arange(60))
    assert not set(units[first]) & set(units[second])
    for pattern in np.unique(members, axis=0):
        own = np.flatnonzero(np.all(members == pattern, axis=1))
        counts = [len(set(units[rows]) & set(own)) for rows in (first, second)]
        assert abs(counts[0] - counts[1]) <= 1


def test_intervals_keep_groups_together(rng):
    """Halves of copies are not halves at all; copies in one half are like weights."""
    X, y = make_data(rng, n=30)
    views = [(name, "linear", columns) for name, _, columns in VIEWS]
    model = MultipleKernelFDA(views, norm=1, alpha=0.5, cv=None)
    settings = {"n_resamples": 6, "random_state": 0}
    model.fit(X, y, sample_weight=np.full(30, 2.0))
    expected = weight_intervals(model, X, y, **settings)
    X, y, groups = np.tile(X, (2, 1)), np.tile(y, 2), np.tile(np.arange(30), 2)
    found = weight_intervals(model.fit(X, y), X, y, groups=groups, **settings)
    for one, other in zip(found, expected, strict=True):
        for key in ("low", "high", "share"):
            assert one[key] == pytest.approx(other[key], abs=1e-6)


def test_groups_that_cannot_be_halved(rng):
    X, y = make_data(rng, n=30)
    model = MultipleKernelFDA(VIEWS, norm=1, alpha=0.5, cv=None).fit(X, y)
    with pytest.raises(ValueError, match="needs at least 2 groups; class 0 has 1"):
        weight_intervals(model, X, y, groups=y)
    with pytest.raises(ValueError, match=r"groups has the shape \(3,\)"):
        weight_intervals(model, X, y, groups=[1, 2, 3])
    words = (
        "divides the groups into halves, .*but there is 1: all rows are in group 'a'"
    )
    with pytest.raises(ValueError, match=words):
        weight_intervals(model, X, y, groups=["a"] * 30)
    y = np.repeat([0, 1, 1, 2, 2, 0], 5)
    model.fit(X, y)
    with pytest.raises(ValueError, match="no two halves of the groups"):
        weight_intervals(model, X, y, groups=np.repeat([0, 1, 2], 10))


@pytest.mark.measured
def test_intervals_tell_good_views_from_junk(rng):
    X, y = make_data(rng, n=90)
    model = MultipleKernelFDA(VIEWS, norm=1, cv=None).fit(X, y)
    rows = weight_intervals(model, X, y, n_resamples=30, random_state=0)
    few, again = (
        weight_intervals(model, X, y, n_resamples=4, random_state=0) for _ in range(2)
    )
    assert few == again
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
        ({"n_resamples": 1}, "n_resamples must be an int >= 2; got 1"),
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
    alone = np.where(np.arange(60) == 7, "rare", y.astype(str))
    model.fit(X, alone)
    with pytest.raises(ValueError, match="class 'rare' has 1"):
        weight_intervals(model, X, alone)


@pytest.mark.one_seed
@pytest.mark.parametrize(
    ("model", "match"),
    [
        (MultipleKernelFDA(norm=np.inf, cv=None), "all weights are equal"),
        (
            MultipleKernelFDA(norm=1, features="random", n_features=20, cv=None),
            "explicit features",
        ),
        (KernelAlignment(method="independent"), "each kernel separately"),
        (MultipleKernelSVC(signed=True), "both signs cannot be read"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_settings_without_a_convex_problem(rng, model, match):
    X, y = make_data(rng, n_classes=2)
    model.set_params(views=[(name, "linear", cols) for name, _, cols in VIEWS])
    with pytest.raises(ValueError, match=match):
        weight_intervals(model.fit(X, y), X, y)


@pytest.mark.one_seed
@pytest.mark.parametrize(
    "model", some(ONE_EACH, lambda model: not poses_problem(model))
)
def test_other_models_have_no_convex_problem(rng, model):
    X, y = make_data(rng, n_classes=2)
    match = f"knows that of .*; got {type(model).__name__}"
    with pytest.raises(TypeError, match=match):
        weight_intervals(model.set_params(views=VIEWS).fit(X, y), X, y)


@pytest.mark.one_seed
def test_a_view_without_a_kernel_that_varies_has_no_share(rng):
    X, y = make_data(rng, n_classes=2)
    X[:, -1] = 1.0
    views = [("good", "linear", [0, 1]), ("constant", "linear", [-1])]
    with pytest.warns(KernelWarning):
        model = MultipleKernelFDA(views, norm=2, alpha=0.3, cv=None).fit(X, y)
    found = weight_intervals(model, X, y, n_resamples=2, random_state=0)[1]
    assert found["low"] == found["share"] == found["high"] == 0.0
    assert weight_ranges(model, X, y)[1]["high"] == 0.0
    assert view_pvalues(model, X, y, n_decoys=1, random_state=0)["constant"] == 1.0

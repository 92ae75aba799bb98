"""Products of kernels of different views: what they learn, what they leave alone."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from estimators import PLAIN, kinds, takes
from kernelweave import (
    MultipleKernelFDA,
    MultipleKernelRidge,
)
from kernelweave._array import to_numpy
from kernelweave.inspection import (
    contributions,
    view_ablation,
    view_permutation_importance,
    weights_table,
)
from kernelweave.kernels.functions import RBF, Linear, Pipe, Standardizer
from kernelweave.kernels.interactions import BETWEEN, REFERENCE_ROWS, ViewProducts

VIEWS = [("a", "auto", slice(0, 3)), ("b", "auto", slice(3, 6))]
MODELS = [
    *[case.values[0]() for case in kinds(takes("interactions"), C=10)],
    MultipleKernelFDA(**PLAIN, features="nystroem", n_features=50),
]


def problem(rng, n=160, kind="product"):
    """Rows of two views, numbers that depend on a product or a sum, and labels."""
    X = rng.normal(size=(n, 6))
    f = X[:, 0] * X[:, 3] if kind == "product" else X[:, 0] + np.sin(X[:, 3])
    f = f + 0.1 * rng.normal(size=n)
    return X, f, np.where(f > 0, "up", "down")


def targets(model, f, labels):
    return f if isinstance(model, MultipleKernelRidge) else labels


def share(model):
    weights = model.view_weights_
    return weights.get(BETWEEN, 0.0) / sum(weights.values())


def centred(K):
    """Kernel (n, n) centred in both arguments, with mean diagonal one."""
    P = np.eye(len(K)) - 1.0 / len(K)
    G = P @ K @ P
    return G * len(G) / np.trace(G)


@pytest.mark.parametrize("base", [Linear(), RBF(gamma=0.3)], ids=lambda k: k.label)
def test_kernel_is_the_sum_over_pairs_of_products_of_centred_kernels(base, rng):
    X, groups = rng.normal(size=(40, 7)), [[0, 3], [1, 2, 6], [4, 5]]
    kernel = ViewProducts(groups, base).resolve(X)
    own = [centred(base(X[:, g])) for g in groups]
    wanted = own[0] * own[1] + own[0] * own[2] + own[1] * own[2]
    found = kernel.gram(X)
    np.testing.assert_allclose(found, wanted, atol=1e-11)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(kernel.gram(X[:9], X), found[:9], atol=1e-11)
    np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(found), atol=1e-11)
    assert np.linalg.eigvalsh(found)[0] > -1e-10


def test_kernel_on_every_array_library(xp_backend):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(20, 4)), rng.normal(size=(7, 4))
    kernel = ViewProducts([[0, 1], [2, 3]], RBF(gamma=0.3))
    wanted = kernel.resolve(X).gram(Z, X)
    here = kernel.resolve(xp_backend.asarray(X))
    found = here.gram(xp_backend.asarray(Z), xp_backend.asarray(X))
    np.testing.assert_allclose(to_numpy(found), wanted, atol=1e-12)


def test_centring_over_some_of_many_rows_is_close_to_that_over_all(rng):
    X = rng.normal(size=(5 * REFERENCE_ROWS, 4))
    kernel = ViewProducts([[0, 1], [2, 3]], RBF(gamma=0.3)).resolve(X)
    linear = ViewProducts([[0, 1], [2, 3]], Linear()).resolve(X)
    for factor in linear._factors:  # means of products are those at one mean row
        np.testing.assert_allclose(factor.gram(X[:5], X).mean(axis=1), 0.0, atol=1e-12)
    X = X[:300]
    own = [centred(rbf_kernel(X[:, g], gamma=0.3)) for g in ([0, 1], [2, 3])]
    error = np.linalg.norm(kernel.gram(X) - own[0] * own[1])
    # Two centrings, over 256 and over 300 rows; measured: 0.08 to 0.2 of the norm
    assert error < 0.3 * np.linalg.norm(own[0] * own[1])


@pytest.mark.measured
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_products_are_learned_where_sums_are_at_chance(model, rng):
    X, f, labels = problem(rng, n=400)
    y = targets(model, f, labels)
    model = clone(model).set_params(views=VIEWS)
    without = clone(model).fit(X[:160], y[:160]).score(X[160:], y[160:])
    model.set_params(interactions=True).fit(X[:160], y[:160])
    assert without < 0.6  # measured: R2 -0.34 to 0, accuracy 0.45 to 0.56
    assert model.score(X[160:], y[160:]) > 0.64  # measured: 0.75 to 0.99
    assert list(model.view_weights_) == ["a", "b", BETWEEN]
    # 1 / 7 where all kernels count alike; measured: 0.4 or more where it is learned
    assert share(model) > 0.14
    assert {row["view"] for row in weights_table(model)} == {"a", "b", BETWEEN}


@pytest.mark.parametrize("missing", ["zero", "available"])
def test_rows_without_a_view_have_no_products(missing, rng):
    X, _, labels = problem(rng)
    X[::5, :3] = np.nan
    X[1::5, 3:] = np.nan
    model = MultipleKernelFDA(
        VIEWS, norm=1, alpha=0.1, missing=missing, interactions=True, cv=None
    ).fit(X, labels)
    found = contributions(model, X)
    total = found.parts.sum(axis=1) + found.intercept
    np.testing.assert_allclose(total, model.decision_function(X), atol=1e-8)
    if missing == "zero":
        gaps = np.isnan(X).any(axis=1)
        assert not np.any(found.parts[gaps, 2])
        assert np.any(found.parts[~gaps, 2])
        note = f"view {BETWEEN!r}: {np.sum(gaps)} of {len(X)} training rows lack it"
        assert any(note in remark for remark in model.certificate_.remarks)


def test_inspection_treats_products_as_a_part_of_their_own(rng):
    X, _, labels = problem(rng, n=90)
    model = MultipleKernelFDA(VIEWS, norm=1, alpha=0.1, interactions=True, cv=None)
    model.fit(X[:60], labels[:60])
    found = contributions(model, X[60:])
    assert found.views == ["a", "b", BETWEEN]
    total = found.parts.sum(axis=1) + found.intercept
    np.testing.assert_allclose(total, model.decision_function(X[60:]), atol=1e-10)
    rows = view_permutation_importance(model, X[60:], labels[60:], n_repeats=1)
    assert [row["view"] for row in rows] == ["a", "b"]
    ablation = view_ablation(model, X[:60], labels[:60], cv=2)
    assert [row["view"] for row in ablation.views] == ["a", "b"]


def test_single_view_and_shared_columns(rng):
    X, f, _ = problem(rng, n=60)
    alone = MultipleKernelRidge([("a", "auto", slice(0, 6))], norm=1, cv=None)
    plain = clone(alone).fit(X, f)
    model = alone.set_params(interactions=True).fit(X, f)
    assert model.kernel_names_ == plain.kernel_names_
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    shared = [("a", "auto", [0, 1, 2]), ("b", "auto", [2, 3, 0])]
    model = MultipleKernelRidge(shared, norm=1, interactions=True, cv=None).fit(X, f)
    products = Pipe(Standardizer(), ViewProducts([[0, 1, 2], [2, 3, 0]], Linear()))
    wanted = products(X[:, :4])
    P = np.eye(len(X)) - 1 / len(X)
    wanted = P @ wanted @ P
    index = model.kernel_names_.index(f"{BETWEEN}: z-scored products of Linear")
    rows = model._observed_rows(X, "predict")
    found = next(iter(model.kernel_map_.centred(rows, [index])))
    np.testing.assert_allclose(found, wanted * len(X) / np.trace(wanted), atol=1e-10)


@pytest.mark.parametrize(
    ("views", "changes", "message"),
    [
        ("precomputed", {}, "interactions=True needs columns"),
        ([*VIEWS, (BETWEEN, "rbf", [0])], {}, "one of the views has this name"),
        (VIEWS, {"interactions": "auto"}, "must be a bool; got 'auto'"),
        (VIEWS, {"missing": "zero"}, "each of the 20 training rows lacks one"),
    ],
)
def test_what_is_refused(views, changes, message, rng):
    X, f, _ = problem(rng, n=20)
    if changes.get("missing") == "zero":
        X[::2, :3], X[1::2, 3:] = np.nan, np.nan
    X = X @ X.T if views == "precomputed" else X
    model = MultipleKernelRidge(views, **{"interactions": True, **changes}, cv=None)
    with pytest.raises(ValueError, match=message):
        model.fit(X, f)

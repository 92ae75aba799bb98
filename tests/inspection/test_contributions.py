"""Parts of views add up to the decision, for every estimator and kind of input."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone, is_regressor
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimators import ONE_EACH, OWN_WAYS, SETTINGS, has, in_turn, lacks, some, unless
from kernelweave import (
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    ProbabilisticKDA,
)
from kernelweave._array import to_numpy
from kernelweave.inspection import contributions
from kernelweave.kernels import RBF

# Parts are sums of the same products whatever the numbers are.
pytestmark = pytest.mark.one_seed

VIEWS = [
    ("acids", ["linear", "rbf"], slice(0, 5)),
    ("phenols", "polynomial", slice(5, 9)),
    ("colour", ["rbf", "laplacian"], slice(9, 13)),
]
X, y = load_wine(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
NEW = X[::9]
ONE_OF_EACH = some((*ONE_EACH, *OWN_WAYS), has("predict"))
classes = pytest.mark.parametrize("n_classes", [2, 3])


def rows_of(n_classes):
    """Every sixth row of the first classes."""
    return np.flatnonzero(y < n_classes)[::6]


def decision(model, rows):
    name = "predict" if is_regressor(model) else "decision_function"
    return to_numpy(getattr(model, name)(rows))


def assert_adds_up(model, rows):
    """Parts and intercept sum to the decision, to the rounding of its products."""
    found = contributions(model, rows)
    wanted = decision(model, rows)
    size = np.abs(to_numpy(getattr(model, "dual_coef_", np.ones(1)))).max()
    total = found.parts.sum(axis=1) + found.intercept
    assert total.shape == wanted.shape
    assert_allclose(total, wanted, rtol=1e-11, atol=1e-12 * max(1.0, size))
    assert found.parts.shape[1] == len(found.views)
    return found


def with_gaps(rows, rng):
    """A copy in which views are missing at random, but never all of a row."""
    rows = rows.copy()
    lacks = rng.random((len(rows), 3)) < 0.25
    lacks[np.arange(len(rows)), rng.integers(3, size=len(rows))] = False
    for v, (_, _, columns) in enumerate(VIEWS):
        rows[lacks[:, v], columns] = np.nan
    return rows, lacks


@in_turn(estimator=some(SETTINGS, has("predict"), tol=0.1), n_classes=[2, 3, 3])
def test_columns(estimator, n_classes):
    rows = rows_of(n_classes)
    if "features" in estimator.get_params() and estimator.features == "exact":
        views = [(name, "linear", columns) for name, _, columns in VIEWS]
    else:
        views = VIEWS
    model = clone(estimator).set_params(views=views).fit(X[rows], y[rows])
    found = assert_adds_up(model, NEW)
    assert found.views == ["acids", "phenols", "colour"]


@pytest.mark.parametrize("estimator", ONE_OF_EACH)
def test_precomputed(estimator):
    rows = rows_of(2)
    K = np.stack([RBF()(X[:, columns]) for _, _, columns in VIEWS], axis=-1)
    model = clone(estimator).set_params(views="precomputed")
    model.fit(K[np.ix_(rows, rows)], y[rows])
    found = assert_adds_up(model, K[::9][:, rows])
    assert found.views == model.kernel_names_


@pytest.mark.filterwarnings("ignore:.*lacks? the view")
@in_turn(estimator=ONE_OF_EACH, missing=["zero", "available", "available"])
def test_missing_views(estimator, missing, rng):
    rows = rows_of(3)
    train, _ = with_gaps(X[rows], rng)
    new, lacks = with_gaps(NEW, rng)
    model = clone(estimator).set_params(views=VIEWS, missing=missing)
    found = assert_adds_up(model.fit(train, y[rows]), new)
    if missing == "zero" and type(model).__name__ != "MixtureKDA":
        assert np.all(found.parts[lacks] == 0)


@pytest.mark.filterwarnings("ignore:.*without any view")
@pytest.mark.parametrize("estimator", some(["KernelFDA", "ProbabilisticKDA"]))
def test_without_any_view_only_class_shares_are_known(estimator):
    model = clone(estimator).set_params(views=VIEWS, missing="zero").fit(X, y)
    empty = np.full((2, 13), np.nan)
    found = assert_adds_up(model, empty)
    assert np.all(found.parts == 0)
    assert_allclose(found.intercept, np.tile(np.log(np.bincount(y) / len(y)), (2, 1)))


def test_several_targets():
    model = MultipleKernelRidge(VIEWS[:2], alpha=0.1, norm=2, cv=None).fit(X, X[:, 9:])
    found = assert_adds_up(model, NEW)
    assert found.parts.shape == (len(NEW), 2, 4)
    assert_array_equal(found.outputs, np.arange(4))


def test_no_evidence_means_no_parts(rng):
    """On pure noise predictions rest on the class shares, and so no view speaks."""
    noise, labels = rng.standard_normal((40, 13)), np.tile([0, 1], 20)
    for seed in range(20):
        rows = np.random.default_rng(seed).permutation(40)
        model = KernelFDA(VIEWS, alpha=0.1, cv=None).fit(noise[rows], labels)
        if not model.gaussians_.slope > 0:
            break
    assert model.gaussians_.slope == 0
    assert np.all(assert_adds_up(model, noise).parts == 0)


# A mixture weights its experts row by row, and a probabilistic model its rows.
@pytest.mark.parametrize(
    "estimator", some(ONE_EACH, has("predict"), unless(MixtureKDA, ProbabilisticKDA))
)
def test_parts_average_to_zero_over_training_rows(estimator):
    model = clone(estimator).set_params(views=VIEWS).fit(X[::6], y[::6])
    parts = contributions(model, X[::6]).parts
    assert_allclose(parts.mean(axis=0), 0, atol=1e-10 * max(1.0, np.abs(parts).max()))


def test_parts_are_shapley_values():
    """Averages over all orders in which views are known, others being drawn."""
    train = X[::6]
    model = KernelFDA(VIEWS, alpha=0.1, cv=None).fit(train, y[::6])
    row = X[1]

    def value(known):
        mixed = train.copy()
        for v in known:
            mixed[:, VIEWS[v][2]] = row[VIEWS[v][2]]
        return model.decision_function(mixed).mean(axis=0)

    shapley = np.zeros((3, 3))
    for order in permutations(range(3)):
        for place, v in enumerate(order):
            gain = value(order[: place + 1]) - value(order[:place])
            shapley[v] += gain / 6
    assert_allclose(contributions(model, row[None]).parts[0], shapley, atol=1e-9)


@classes
def test_frame(n_classes):
    pd = pytest.importorskip("pandas")
    rows = rows_of(n_classes)
    model = MultipleKernelFDA(VIEWS, alpha=0.1, norm=2, cv=None).fit(X[rows], y[rows])
    table = pd.DataFrame(NEW, index=[f"wine {i}" for i in range(len(NEW))])
    frame = contributions(model, table, as_frame=True)
    assert list(frame.index) == list(table.index)
    scores = model.decision_function(NEW)
    if n_classes == 2:
        assert list(frame.columns) == ["acids", "phenols", "colour", "intercept"]
        assert_allclose(frame.sum(axis=1), scores)
        return
    for c, label in enumerate(model.classes_):
        assert list(frame[label].columns)[-1] == "intercept"
        assert_allclose(frame[label].sum(axis=1), scores[:, c])


def test_pipelines_and_searches():
    raw = load_wine().data
    pipe = make_pipeline(StandardScaler(), MultipleKernelSVC(VIEWS))
    search = GridSearchCV(pipe, {"multiplekernelsvc__C": [1.0]}, cv=2).fit(raw, y)
    found = contributions(search, raw[::9])
    total = found.parts.sum(axis=1) + found.intercept
    assert_allclose(total, search.decision_function(raw[::9]), atol=1e-12)


def test_other_array_libraries(other_backend):
    rows = other_backend.asarray(X)
    model = MultipleKernelFDA(VIEWS, alpha=0.1, norm=2, cv=None).fit(rows, y)
    found = assert_adds_up(model, rows)
    assert isinstance(found.parts, np.ndarray)


def test_portions_of_sparse_rows():
    """Moments of explicit features, from two portions of rows."""
    views = [(name, "linear", columns) for name, _, columns in VIEWS]
    model = MultipleKernelFDA(views, norm=2, alpha=0.1, features="nystroem", cv=None)
    for part in (slice(0, None, 2), slice(1, None, 2)):
        model.partial_fit(csr_array(X[part]), y[part])
    assert_adds_up(model, csr_array(NEW))


@pytest.mark.parametrize("model", some(ONE_EACH, lacks("predict"), views=VIEWS))
def test_refusals(model):
    with pytest.raises(TypeError, match="does not predict"):
        contributions(model.fit(X, y), X)


@pytest.mark.parametrize("kind", [KernelFDA, MixtureKDA, ProbabilisticKDA])
@classes
def test_given_priors_are_part_of_the_intercept(kind, n_classes):
    rows = rows_of(n_classes)
    priors = [[0.9, 0.1], [0.7, 0.2, 0.1]][n_classes - 2]
    model = kind(VIEWS, cv=None, priors=priors).fit(X[rows], y[rows])
    assert_adds_up(model, NEW)


@classes
def test_parts_add_up_to_the_log_odds_before_exceptions(n_classes):
    """Exceptions bound the decision, but change neither its sign nor its order."""
    rows = rows_of(n_classes)
    model = KernelFDA(VIEWS, cv=None).fit(X[rows], y[rows])
    plain = decision(model, NEW)
    model.gaussians_ = replace(model.gaussians_, exceptions=0.05)
    bounded, parts = decision(model, NEW), contributions(model, NEW)
    total = parts.parts.sum(axis=1) + parts.intercept
    assert_allclose(total, plain, rtol=1e-11)
    if n_classes == 2:
        assert_array_equal(np.sign(bounded), np.sign(total))
        assert_array_equal(np.argsort(bounded), np.argsort(total))
        assert np.max(np.abs(bounded)) <= np.log(0.975 / 0.025)
    assert_array_equal(model.predict(NEW), model.classes_[_largest(total)])


def _largest(decisions):
    """The class that wins, from log odds (m,) or scores (m, k)."""
    if decisions.ndim == 1:
        return (decisions > 0).astype(int)
    return decisions.argmax(axis=1)

"""``sample_weight`` and ``class_weight``: repeated rows, rows left out, balance."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from estimators import in_turn, output, some
from kernelweave import (
    KernelAlignment,
    MultipleKernelSVC,
    TransductiveKernelSVC,
)
from kernelweave._array import to_numpy
from kernelweave.kernels import RBF, Linear
from kernelweave.models.shared.inputs import read_row_weights
from kernelweave.models.shared.margin import C_GRID
from kernelweave.views.missing import ObservedViews

#: Fixed widths: "auto" kernels would fit theirs to the rows, repeated or not.
VIEWS = [
    ("a", [Linear(), RBF(gamma=0.3)], slice(0, 3)),
    ("b", [RBF(gamma=0.1), RBF(gamma=0.05)], slice(3, 6)),
]
MARGINS = {
    "l1": {"C": 0.7},
    "l2": {"margin": "l2", "C": 2.0},
    "hard": {"margin": "hard"},
    "learn": {"margin": "l2", "C": "learn"},
}
every_margin = pytest.mark.parametrize("margin", MARGINS.values(), ids=MARGINS)


@pytest.fixture
def data(rng):
    """Rows of three overlapping classes, whole-number weights, each copy's row."""
    n = 24
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 6)) + 0.8 * rng.normal(size=(3, 6))[y]
    weights = rng.integers(1, 5, n)
    return X, y, weights, np.repeat(np.arange(n), weights)


def assert_same(found, expected, X, atol):
    """Two fits agree in weights, C, decision values and certificate."""
    assert found.certificate_.converged and expected.certificate_.converged
    assert_allclose(found.kernel_weights_, expected.kernel_weights_, atol=atol)
    assert_allclose(1 / found.C_, 1 / expected.C_, atol=atol)
    assert_allclose(found.margin_, expected.margin_, rtol=10 * atol)
    scores = expected.decision_function(X)
    size = np.max(np.abs(scores))
    assert_allclose(found.decision_function(X), scores, atol=10 * atol * size)
    for name in ("value", "lower_bound"):
        values = (getattr(m.certificate_, name) for m in (found, expected))
        assert next(values) == pytest.approx(next(values), rel=3 * found.tol)


@every_margin
@in_turn(solver=["interior_point", "newton"], norm=[1, 2])
def test_whole_number_weights_are_repeated_rows(data, margin, solver, norm):
    X, y, weights, copies = data
    model = MultipleKernelSVC(VIEWS, **margin, norm=norm, solver=solver, tol=1e-8)
    found = sklearn.clone(model).fit(X, y, weights)
    expected = sklearn.clone(model).fit(X[copies], y[copies])
    # Values are accurate to 1e-8, points to about its square root.
    # measured in 40 seeds: up to 8e-5
    assert_same(found, expected, X, atol=3e-4)
    assert "weighted rows" in found.certificate_.problem


@pytest.mark.parametrize(
    "model",
    [
        MultipleKernelSVC(VIEWS, C=1, class_weight="balanced", tol=1e-8),
        MultipleKernelSVC(VIEWS, C=1, class_weight={0: 3.0, 2: 0.5}, tol=1e-8),
        MultipleKernelSVC(VIEWS[:1], signed=True, tol=1e-4),
        MultipleKernelSVC(VIEWS[:1], solver="cutting_plane", tol=1e-4, max_iter=500),
        TransductiveKernelSVC(VIEWS, signed=False, tol=1e-8),
    ],
    ids=["balanced", "dict", "signed", "cutting", "transductive"],
)
def test_settings_with_repeated_rows(data, model):
    X, y, weights, copies = data
    if isinstance(model, TransductiveKernelSVC):
        y = np.where(np.arange(len(y)) % 4, y, -1)
    found = sklearn.clone(model).fit(X, y, weights)
    expected = sklearn.clone(model).fit(X[copies], y[copies])
    assert_same(found, expected, X, atol=1e-4)
    if isinstance(model, TransductiveKernelSVC):
        assert_array_equal(found.transduction_[copies], expected.transduction_)


@pytest.mark.measured
@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({}, "two"),
        ({}, "numbers"),
        ({"signed": True, "views": VIEWS[:1]}, "three"),
        ({"method": "independent"}, "three"),
    ],
)
def test_alignment_with_repeated_rows(data, rng, options, target):
    X, y, weights, copies = data
    y = {"two": y == 1, "three": y, "numbers": rng.normal(size=(len(y), 2)) + X[:, :2]}
    y = y[target]
    model = KernelAlignment(VIEWS, output="features", n_components=3)
    model.set_params(**options)
    found = sklearn.clone(model).fit(X, y, sample_weight=weights)
    expected = sklearn.clone(model).fit(X[copies], y[copies])
    atol = 1e-4 if "signed" in options else 1e-7
    assert_allclose(found.kernel_weights_, expected.kernel_weights_, atol=atol)
    assert_allclose(found.alignment_, expected.alignment_, rtol=1e-7)
    assert_allclose(found.kernel_alignments_, expected.kernel_alignments_, rtol=1e-7)
    plain = sklearn.clone(model).fit(X, y)
    # measured: 0.023 to 0.058
    assert np.abs(plain.alignment_ - found.alignment_) > 1e-3
    # the features have the same leading directions
    Z, expected_Z = found.transform(X), expected.transform(X)
    kernel = expected_Z @ expected_Z.T
    size = np.max(np.abs(kernel))
    assert_allclose(Z @ Z.T, kernel, atol=max(50 * atol, 1e-6) * size)


@in_turn(
    model=some(views=[("a", "auto", slice(0, 3)), ("b", "auto", slice(3, 6))]),
    frame=[False, True],
)
def test_weight_zero_leaves_a_row_out(data, model, frame):
    """Also out of the kernel parameters: the widths of "auto" kernels."""
    X, y, _, _ = data
    X = X.copy()
    X[::5] *= 100.0
    weights = np.ones(len(y))
    weights[::5] = 0.0
    expected = sklearn.clone(model).fit(X[weights > 0], y[weights > 0])
    given = X
    if frame:
        given = pytest.importorskip("pandas").DataFrame(X).add_prefix("x")
    found = sklearn.clone(model).fit(given, y, sample_weight=weights)
    assert_array_equal(found.kernel_weights_, expected.kernel_weights_)
    assert_array_equal(output(found, given), output(expected, X))


def test_transduction_labels_the_rows_left_out(data):
    X, y, _, _ = data
    partly, weights = np.where(np.arange(len(y)) % 4, y, -1), np.ones(len(y))
    weights[[0, 1, 4, 5]] = 0.0
    model = TransductiveKernelSVC(VIEWS, signed=False).fit(X, partly, weights)
    assert model.transduction_.shape == y.shape
    assert model.kernel_.shape == (len(y) - 4, len(y) - 4)
    assert_array_equal(model.transduction_[partly >= 0], y[partly >= 0])
    unlabelled = partly < 0
    assert_array_equal(model.transduction_[unlabelled], model.predict(X)[unlabelled])


@pytest.mark.parametrize("k", [2, 3])
def test_balanced_machines_are_those_of_scikit_learn(rng, k):
    """SVC(class_weight="balanced") on the learned kernel has the same function."""
    y = np.repeat(np.arange(k), [40, 8, 12][:k])
    X = rng.normal(size=(len(y), 6)) + rng.normal(size=(k, 6))[y]
    model = MultipleKernelSVC(VIEWS, C=0.7, class_weight="balanced", tol=1e-8)
    model.fit(X, y)
    kernel_map, weights = model.kernel_map_, to_numpy(model.kernel_weights_)
    rows = ObservedViews.complete([X[:, :3], X[:, 3:]])
    kernel = kernel_map.cross(rows, weights)
    scores = np.reshape(model.decision_function(X), (len(y), -1))
    each = len(y) / (k * np.bincount(y))
    for c, found in enumerate(scores.T):
        target = y == (1 if k == 2 else c)
        if k == 2:
            svc = SVC(C=0.7, kernel="precomputed", class_weight="balanced", tol=1e-8)
            svc.fit(kernel, target)
        else:  # one against the rest, with the weights of the k classes
            svc = SVC(C=0.7, kernel="precomputed", tol=1e-8)
            svc.fit(kernel, target, sample_weight=each[y])
        # measured: up to 9e-5 apart
        assert_allclose(found, svc.decision_function(kernel), atol=5e-4)


@pytest.mark.parametrize("margin", ["l1", "l2"])
def test_a_common_factor_is_a_factor_of_C(data, margin):
    X, y, weights, _ = data
    model = MultipleKernelSVC(VIEWS, margin=margin, C=0.02, tol=1e-8)
    found = sklearn.clone(model).fit(X, y, sample_weight=50.0 * weights)
    expected = sklearn.clone(model).set_params(C=1.0).fit(X, y, sample_weight=weights)
    assert_allclose(found.kernel_weights_, expected.kernel_weights_, atol=1e-7)
    assert_allclose(found.decision_function(X), expected.decision_function(X))
    # one number for all rows
    scalar = sklearn.clone(model).fit(X, y, sample_weight=50.0)
    plain = sklearn.clone(model).set_params(C=1.0).fit(X, y)
    assert_allclose(scalar.decision_function(X), plain.decision_function(X), atol=1e-6)


def test_weights_of_one_change_nothing(data):
    X, y, _, _ = data
    plain = MultipleKernelSVC(VIEWS).fit(X, y)
    ones = MultipleKernelSVC(VIEWS).fit(X, y, sample_weight=np.ones(len(y)))
    assert_array_equal(plain.decision_function(X), ones.decision_function(X))
    # every class has the same number of rows
    same = MultipleKernelSVC(VIEWS, C=1, class_weight="balanced").fit(X, y)
    assert_array_equal(plain.decision_function(X), same.decision_function(X))


@pytest.mark.parametrize("missing", ["zero", "available"])
def test_rows_that_lack_a_view(data, missing):
    X, y, weights, copies = data
    X = X.copy()
    X[3::6, :3] = np.nan
    model = MultipleKernelSVC(VIEWS, missing=missing, tol=1e-8)
    found = sklearn.clone(model).fit(X, y, weights)
    expected = sklearn.clone(model).fit(X[copies], y[copies])
    if missing == "zero":
        assert_same(found, expected, X, atol=1e-4)
    else:  # completed kernels are clipped over the distinct rows, or over the copies
        # measured: by up to 0.09
        assert_allclose(found.kernel_weights_, expected.kernel_weights_, atol=0.3)


def test_precomputed_kernels(data):
    X, y, weights, copies = data
    K = X @ X.T
    model = MultipleKernelSVC("precomputed", tol=1e-8)
    found = sklearn.clone(model).fit(K, y, weights)
    expected = sklearn.clone(model).fit(K[copies][:, copies], y[copies])
    scores = found.decision_function(K), expected.decision_function(K[:, copies])
    assert_allclose(*scores, atol=1e-4 * np.max(np.abs(scores)))
    weights[3] = 0
    with pytest.raises(ValueError, match=r"sample_weight 0 leaves 1 row out.*remove"):
        model.fit(K, y, weights)


def test_arrays_of_other_libraries(data, xp_backend):
    X, y, weights, _ = data
    weights[:2] = 0
    expected = MultipleKernelSVC(VIEWS, tol=1e-8).fit(X, y, weights)
    model = MultipleKernelSVC(VIEWS, tol=1e-8)
    given = xp_backend.asarray(X)
    model.fit(given, y, xp_backend.asarray(weights.astype(float)))
    scores = to_numpy(model.decision_function(given))
    assert_allclose(scores, expected.decision_function(X), atol=1e-6)


def test_weights_are_routed(data):
    X, y, weights, _ = data
    models = {}
    with sklearn.config_context(enable_metadata_routing=True):
        for asked in (True, False):
            model = MultipleKernelSVC(VIEWS, C=0.1)
            model.set_fit_request(sample_weight=asked)
            model.set_score_request(sample_weight=True)
            params = {"sample_weight": weights}
            models[asked] = cross_validate(
                model, X, y, params=params, cv=3, return_estimator=True
            )["estimator"]
    pairs = zip(models[True], models[False], strict=True)
    for weighted, plain in pairs:
        assert "weighted rows" in weighted.certificate_.problem
        assert "weighted rows" not in plain.certificate_.problem


def test_balanced_weights_find_the_rare_class(rng):
    """With 8 % of the rows in one class, the plain machine hardly ever predicts it."""
    y = np.r_[np.zeros(110, int), np.ones(10, int)]
    X = rng.normal(size=(120, 6)) + 0.5 * y[:, None]
    new = rng.normal(size=(500, 6)) + 0.5  # of the rare class
    model = MultipleKernelSVC([("all", Linear(), slice(None))], C=0.1)
    balanced = sklearn.clone(model).set_params(class_weight="balanced")
    hits = [np.mean(m.fit(X, y).predict(new)) for m in (model, balanced)]
    # measured over 21 seeds: none, and 0.55 to 0.81 of them
    assert hits[1] > hits[0] + 0.3


@pytest.mark.parametrize("margin", ["l1", "l2"])
def test_chosen_C_is_best_on_folds(rng, margin):
    """Against machines of scikit-learn, for which squared slacks are a ridge."""
    y = np.repeat([0, 1], [48, 12])
    X = rng.normal(size=(60, 6)) + 0.6 * y[:, None]
    order = np.argsort(X[:, 0])  # in which folds are drawn
    X, y = X[order], y[order]
    weights = 60 / (2 * np.bincount(y))[y]
    views = [("all", RBF(gamma=0.2), slice(None))]
    model = MultipleKernelSVC(views, margin=margin, C="cv", class_weight="balanced")
    model.fit(X, y)
    kernel = model.kernel_map_.cross(ObservedViews.complete([X]), [1.0])
    score = []
    for C in C_GRID:
        right = np.zeros(60)
        for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
            K, r = kernel[np.ix_(train, train)], weights[train]
            if margin == "l2":
                machine = SVC(C=1e9, kernel="precomputed", tol=1e-6)
                machine.fit(K + np.diag(1 / (C * r)), y[train])
            else:
                machine = SVC(C=C, kernel="precomputed", tol=1e-6).fit(K, y[train], r)
            right[test] = machine.predict(kernel[np.ix_(test, train)]) == y[test]
        score.append(right @ weights / np.sum(weights))
    chosen = np.argmin(np.abs(C_GRID - model.C_))
    assert score[chosen] >= np.max(score) - 0.02  # measured: equal in 16 cases
    fixed = sklearn.clone(model).set_params(C=model.C_).fit(X, y)
    assert_array_equal(fixed.decision_function(X), model.decision_function(X))
    assert "C=" in model.certificate_.problem and model.certificate_.converged


def test_folds_with_a_single_class_choose_nothing(rng):
    """The only row of a class is held out in one of them."""
    X, y = rng.normal(size=(12, 6)), np.repeat([0, 1], [11, 1])
    for own in ({"class_weight": "balanced"}, {"C": 1.0, "norm": "cv"}):
        model = MultipleKernelSVC(VIEWS, **own, tol=1e-2).fit(X, y)
        assert model.certificate_.converged


@pytest.mark.measured
def test_few_positives_need_a_small_C(rng):
    """With 5 positives of 100 rows C=1 lets every one of them have its own way."""
    y = np.repeat([0, 1], [95, 5])
    X = rng.normal(size=(100, 9))
    X[:, :3] += 1.5 * y[:, None]
    truth = np.repeat([0, 1], 500)
    new = rng.normal(size=(1000, 9))
    new[:, :3] += 1.5 * truth[:, None]
    views = [
        (name, RBF(gamma=0.2), slice(i, i + 3))
        for name, i in zip("abc", (0, 3, 6), strict=True)
    ]
    plain = MultipleKernelSVC(views, C=1, class_weight="balanced", tol=1e-3)
    chosen = sklearn.clone(plain).set_params(C="cv").fit(X, y)
    auto = sklearn.clone(plain).set_params(C="auto").fit(X[::2], y[::2])
    both = sklearn.clone(plain).set_params(C="cv", norm="cv").fit(X[::2], y[::2])
    assert (auto.C_, auto.norm_) == (both.C_, both.norm_)
    # measured: 0.84 against 0.74
    assert chosen.score(new, truth) > plain.fit(X, y).score(new, truth) + 0.02
    assert chosen.C_ < 1.0
    assert chosen.norm_ == 1.0


@pytest.mark.measured
@pytest.mark.one_seed
def test_norms_chosen_on_folds(rng):
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 60))
    X[:, 0] += 3.0 * y
    cuts = [0, 1, 15, 30, 45, 60]
    views = [(f"v{i}", Linear(), slice(i, j)) for i, j in pairwise(cuts)]
    model = MultipleKernelSVC(views, norm="cv", tol=1e-3).fit(X, y)
    assert model.norm_ < np.inf  # one view of five matters
    model.fit(X[:, :1] + 0.1 * X, y)
    assert model.norm_ == np.inf  # nothing is gained by a choice
    one = MultipleKernelSVC(views[:1], norm="cv").fit(X, y)
    assert one.norm_ == 1.0 and one.C_ == 1.0


@pytest.mark.measured
@pytest.mark.one_seed
def test_norms_chosen_on_folds_differ_where_each_class_has_its_own_weights(rng):
    """Each class has a view of its own: one set of weights for all needs every view."""
    y = np.arange(80) % 4
    X = rng.normal(size=(80, 80))
    X[:, ::20] += 2.5 * (y[:, None] == np.arange(4))
    views = [(f"v{c}", Linear(), slice(20 * c, 20 * c + 20)) for c in range(4)]
    model = MultipleKernelSVC(views, norm="cv", tol=1e-3).fit(X, y)
    assert model.norm_ == np.inf
    alone = OneVsRestClassifier(model).fit(X, y).estimators_
    assert all(one.norm_ < np.inf for one in alone)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (MultipleKernelSVC(VIEWS, C="cv", margin="hard"), "needs slacks"),
        (MultipleKernelSVC(VIEWS, norm="cv", signed=True), "needs norm=1"),
        (TransductiveKernelSVC(VIEWS, C="cv"), "> 0 or 'learn'"),
    ],
)
def test_what_folds_cannot_choose(data, model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*data[:2])


def test_reading_weights():
    X, y = np.empty((5, 1)), np.array(["a", "b", "b", "b", "?"])
    keep, weights = read_row_weights(X, y, None, None, "Model")
    assert_array_equal(keep, np.arange(5))
    assert weights is None
    keep, weights = read_row_weights(X, None, [0, 1, 2, 1, 1], None, "Model")
    assert_array_equal(keep, [1, 2, 3, 4])
    assert_array_equal(weights, [1, 2, 1, 1])
    # unlabelled rows have no class, and so no class weight
    labelled = y != "?"
    args = (X, y, None, "balanced", "Model", labelled)
    assert_allclose(read_row_weights(*args)[1], [2, 2 / 3, 2 / 3, 2 / 3, 1])
    # "balanced" counts rows as often as their weights say
    args = (X, y, [3, 1, 1, 1, 7], "balanced", "Model", labelled)
    assert_allclose(read_row_weights(*args)[1], [3, 1, 1, 1, 7])

"""Folds of models that are fitted again to the raw rows of each of them."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import coo_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict

from estimators import in_turn
from kernelweave import MixtureKDA, ProbabilisticKDA
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.fits.calibration import calibrate
from kernelweave.fits.design import RowDesign
from kernelweave.kernels import RBF
from kernelweave.learn.folds import COOLEST
from kernelweave.models.shared import refits

#: Kernels with given widths and a constant diagonal: precomputed ones are the same.
FIXED = [("a", RBF(gamma=0.2), slice(0, 3)), ("b", RBF(gamma=0.1), slice(3, 6))]
#: Kernels whose widths are learned.
LEARNED = [("a", "auto", slice(0, 3)), ("b", "rbf", slice(3, 6))]
N = 45
SPLITTER = StratifiedKFold(3, shuffle=True, random_state=0)
MODELS = {
    "expert": ProbabilisticKDA(LEARNED, cv=3),
    "mixture": MixtureKDA(LEARNED, cv=3),
    "posterior": MixtureKDA(
        LEARNED, cv=3, weights="stacking", noise="ml", projection="posterior"
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)
#: One model of each class.
both = pytest.mark.parametrize("name", ["expert", "mixture"])


@pytest.fixture
def data(rng):
    codes = rng.permutation(np.arange(N) % 3)
    X = rng.normal(size=(N, 6))
    X[:, 0] += codes
    X[:, 3] -= codes == 1
    return X, np.array(["x", "y", "z"])[codes]


def splits_of(X, y):
    """The folds of cv=3, which are drawn in the order of the first column."""
    order = np.argsort(X[:, 0])
    pairs = SPLITTER.split(X[order], y[order])
    return [(np.sort(order[train]), np.sort(order[test])) for train, test in pairs]


def honest(model):
    """What the folds of a fitted model have found."""
    return model.cv_score_, model.cv_standard_error_, model.gaussians_.temperature


def refitted(model, X, y, weights=None):
    """Predictions (n,) and log odds (n, k) of refits, without priors and exceptions."""
    predicted, scores = y.copy(), np.zeros((N, 3))
    for train, test in splits_of(X, y):
        own = None if weights is None else weights[train]
        part = clone(model).set_params(cv=None).fit(X[train], y[train], own)
        predicted[test] = part.predict(X[test])
        gaussians = part.gaussians_
        part.gaussians_ = replace(gaussians, exceptions=0.0)
        scores[test] = part.decision_function(X[test]) - gaussians.shift
    return predicted, scores


@every_model
def test_folds_are_refits_by_scikit_learn(data, name):
    (X, y), model = data, MODELS[name]
    found, plain = clone(model).fit(X, y), clone(model).set_params(cv=None).fit(X, y)
    predicted, scores = refitted(model, X, y)
    assert np.array_equal(predicted, cross_val_predict(plain, X, y, cv=splits_of(X, y)))
    codes = np.unique(y, return_inverse=True)[1]
    right = predicted == y
    error = np.std(right, ddof=1) / N**0.5
    relative = calibrate(scores, codes, RowDesign(N), COOLEST).temperature
    temperature = max(1.0, plain.gaussians_.temperature * relative)
    expected = np.mean(right), error, temperature
    assert honest(found) == pytest.approx(expected, rel=1e-6)
    assert not hasattr(plain, "cv_score_")
    for attribute in ("kernel_weights_", "noise_", "loo_score_", "n_iter_"):
        same = np.array_equal(getattr(found, attribute), getattr(plain, attribute))
        assert same, attribute
    assert np.array_equal(found.predict(X), plain.predict(X))


@both
def test_weights_priors_and_class_weights(data, rng, name):
    (X, y), model = data, clone(MODELS[name])
    weights = rng.uniform(0.3, 3.0, N)
    model.set_params(priors=[0.2, 0.3, 0.5], class_weight={"y": 2.0})
    model.fit(X, y, sample_weight=weights)
    predicted, scores = refitted(model, X, y, weights)
    each = weights * np.where(y == "y", 2.0, 1.0)
    codes = np.unique(y, return_inverse=True)[1]
    relative = calibrate(scores, codes, RowDesign(N, each), COOLEST).temperature
    alone = clone(model).set_params(cv=None).fit(X, y, sample_weight=weights)
    temperature = max(1.0, alone.gaussians_.temperature * relative)
    assert model.cv_score_ == pytest.approx(np.average(predicted == y, weights=each))
    assert model.gaussians_.temperature == pytest.approx(temperature, rel=1e-6)


@both
def test_rows_of_weight_zero_do_not_matter(data, name):
    (X, y), model = data, MODELS[name]
    more, labels = np.insert(X, [0, 7, 20], 50.0, axis=0), np.insert(y, [0, 7, 20], "x")
    weights = np.insert(np.ones(N), [0, 7, 20], 0.0)
    found = clone(model).fit(more, labels, sample_weight=weights)
    assert honest(found) == honest(clone(model).fit(X, y))


def frame(X, library):
    table = pytest.importorskip(library)
    make = table.table if library == "pyarrow" else table.DataFrame
    return make({f"c{i}": column for i, column in enumerate(X.T)})


class NoArray:
    """Holds rows, and has neither a shape nor items."""

    def __init__(self, X):
        self.X = X

    def __array__(self, dtype=None, copy=None):
        return np.array(self.X, dtype=dtype)


def kernels(X):
    return {name: kernel(X[:, columns]) for name, kernel, columns in FIXED}


def labelled_kernels(X):
    pandas = pytest.importorskip("pandas")
    rows = [f"row {i}" for i in range(len(X))]
    return {
        name: pandas.DataFrame(kernel, index=rows, columns=rows)
        for name, kernel in kernels(X).items()
    }


def stack(X):
    return np.stack(list(kernels(X).values()), axis=2)


FORMS = {
    "list": (np.ndarray.tolist, FIXED),
    "pandas": (lambda X: frame(X, "pandas"), FIXED),
    "polars": (lambda X: frame(X, "polars"), FIXED),
    "pyarrow": (lambda X: frame(X, "pyarrow"), FIXED),
    "sparse": (coo_array, FIXED),
    "only __array__": (NoArray, FIXED),
    "stack": (stack, "precomputed"),
    "nested lists": (lambda X: stack(X).tolist(), "precomputed"),
    "dict": (kernels, "precomputed"),
    "dict of frames": (labelled_kernels, "precomputed"),
}


@in_turn(form=[*FORMS], name=["expert", "mixture", "mixture", "expert"])
def test_every_form_of_rows(data, name, form):
    (X, y), model = data, clone(MODELS[name])
    make, views = FORMS[form]
    if views == "precomputed":  # whose rows are in another order
        model.set_params(cv=SPLITTER)
    wanted = clone(model).set_params(views=FIXED).fit(X, y)
    model.set_params(views=views).fit(make(X), y)
    assert honest(model) == pytest.approx(honest(wanted), rel=1e-6)


@both
def test_every_library(data, xp, name):
    (X, y), model = data, clone(MODELS[name])
    codes = np.unique(y, return_inverse=True)[1]
    for make, views in ((np.asarray, FIXED), (stack, "precomputed")):
        wanted = clone(model).set_params(views=views).fit(make(X), codes)
        model.set_params(views=views).fit(xp.asarray(make(X)), xp.asarray(codes))
        assert type(model.kernel_weights_) is type(xp.asarray(X))
        assert honest(model) == pytest.approx(honest(wanted), rel=1e-6)


@both
def test_a_column_that_only_a_table_has(data, name):
    """Text is encoded anew in each fold, and a value that it lacks is no warning."""
    X, y = data
    table = frame(X, "pandas")
    table["group"] = np.where(np.arange(N) == 7, "other", y)
    model = clone(MODELS[name]).set_params(views=None).fit(table, y)
    assert model.cv_score_ > 0.9  # measured: 0.98 to 1


@both
def test_noise_does_not_look_certain(name):
    """The log loss, in excess of the class shares, was 0.15 and 0.61 without folds."""
    views = [(f"view {i}", "auto", slice(4 * i, 4 * i + 4)) for i in range(3)]
    losses, y = [], np.arange(30) % 5
    for draw in range(2):
        rng = np.random.default_rng(draw)
        X, new = rng.normal(size=(30, 12)), rng.normal(size=(500, 12))
        model = clone(MODELS[name]).set_params(views=views, cv=3).fit(X, y)
        losses.append(log_loss(rng.integers(0, 5, 500), model.predict_proba(new)))
    assert np.mean(losses) - np.log(5) < 0.03  # measured: 0.006 at most


def without_a_view(X):
    """The columns of "b" are missing outside the first fold."""
    X[N // 3 :, 3:] = np.nan
    return {"missing": "available"}


def constant(X):
    """Nothing varies outside the first fold."""
    X[N // 3 :] = 0.0
    return {}


@pytest.mark.parametrize(
    ("spoil", "why"), [(without_a_view, "'b'"), (constant, "constant")]
)
@both
def test_a_fold_that_cannot_be_learned(data, name, spoil, why):
    X, y = data
    model = clone(MODELS[name]).set_params(views=FIXED, cv=KFold(3), **spoil(X))
    model.fit(X, y)
    (remark,) = [text for text in model.kernel_map_.remarks if "cv_score_" in text]
    start = "there is no cv_score_: without the rows of fold 1 of 3, "
    assert remark.startswith(start) and why in remark
    assert not hasattr(model, "cv_score_")
    plain = clone(model).set_params(cv=None).fit(X, y)
    assert model.gaussians_.temperature == plain.gaussians_.temperature


@both
def test_two_rows_are_too_few(data, name):
    X, y = data
    two = [np.flatnonzero(y == label)[0] for label in "xy"]
    model = clone(MODELS[name]).fit(X[two], y[two])
    assert "too few rows or groups" in " / ".join(model.kernel_map_.remarks)


@both
def test_a_class_of_one_row(data, name):
    """Some folds lack it, with its prior and its weight; its row is an error."""
    (X, y), model = data, clone(MODELS[name])
    keep = np.r_[np.flatnonzero(y != "z"), np.flatnonzero(y == "z")[:1]]
    X[:, 0] += 20.0 * (y == "y") - 20.0 * (y == "z")
    given = {"priors": [0.4, 0.4, 0.2], "class_weight": {"z": 3.0}}
    model.set_params(**given).fit(X[keep], y[keep])
    weights = np.where(y[keep] == "z", 3.0, 1.0)
    assert model.cv_score_ == pytest.approx(np.average(y[keep] != "z", weights=weights))


def test_warnings_are_not_repeated(data):
    model = clone(MODELS["mixture"]).set_params(solver="em", max_iter=1, tol=1e-13)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(*data)
    assert [each.category for each in found] == [ConvergenceWarning]
    assert np.isfinite(model.cv_score_)


@both
def test_an_interrupted_fold_leaves_the_model_as_it_was(data, name, monkeypatch):
    def interrupt(*given):
        raise KeyboardInterrupt

    (X, y), model = data, clone(MODELS[name]).fit(*data)
    before = dict(vars(model))
    monkeypatch.setattr(refits, "end_fold", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:30], y[:30])
    assert vars(model) == before


@both
def test_folds_that_do_not_fit_into_memory(data, name, monkeypatch):
    def refuse(*given):
        raise MemoryRefusedError("no room")

    monkeypatch.setattr(refits, "of_classes", refuse)
    model = clone(MODELS[name]).fit(*data)
    assert "there is no cv_score_: no room" in model.kernel_map_.remarks
    assert model.gaussians_.temperature >= 1.0


@both
@pytest.mark.parametrize("value", [1, 2.5, "five"])
def test_cv_is_checked(data, name, value):
    with pytest.raises(ValueError, match=r"'cv' parameter of .*KDA must be None, an "):
        clone(MODELS[name]).set_params(cv=value).fit(*data)

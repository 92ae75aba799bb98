"""A model shares no memory with its caller, and a failed call leaves no trace."""

from __future__ import annotations

import copy
import gc
import inspect
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.impute import KNNImputer
from sklearn.preprocessing import StandardScaler

import kernelweave
from estimators import NOT_CONVERGED, ONE_EACH, SETTINGS, in_turn, some
from kernelweave import (
    MultipleKernelFDA,
    MultipleKernelRidge,
    TransductiveKernelSVC,
)
from kernelweave._array import to_numpy
from kernelweave.exceptions import KernelWeaveConvergenceWarning
from kernelweave.kernels import RBF, Pipe
from kernelweave.kernels.functions import Standardizer
from kernelweave.kernels.moments import CHUNK_ROWS

PACKAGE = str(Path(kernelweave.__file__).parent)
VIEWS = [("left", "rbf", [0, 1, 2]), ("right", ["linear", RBF(gamma=0.2)], [3, 4, 5])]

#: Also a mixture that remembers its training rows.
NAMES = (*ONE_EACH, "MixtureKDA-posterior")
EVERY = some(NAMES, views=VIEWS)
every_estimator = pytest.mark.parametrize("estimator", EVERY)

METHODS = (
    "predict",
    "decision_function",
    "predict_proba",
    "transform",
    "predict_distribution",
    "kernel",
)


def draw(n=24, columns=6, seed=0):
    """Rows of three classes, and class codes."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 3
    X = rng.normal(size=(n, columns))
    X[:, 0] += 2 * codes
    X[:, 4] -= codes
    return X, codes


def targets_for(model, codes, names=("red", "green", "blue")):
    """The form of y that an estimator takes."""
    if isinstance(model, MultipleKernelRidge):
        return np.stack([codes + 0.1 * np.arange(len(codes)), -1.0 * codes], axis=1)
    if isinstance(model, TransductiveKernelSVC):
        return np.where(np.arange(len(codes)) % 5 == 4, -1, codes)
    return np.array(names)[codes]


def answers(model, rows):
    """All predictions of a fitted model for rows, as bytes."""
    found = {}
    for name in METHODS:
        if hasattr(model, name):
            value = getattr(model, name)(rows)
            parts = value if isinstance(value, tuple) else (value,)
            found[name] = [np.ascontiguousarray(to_numpy(part)) for part in parts]
    return {name: [part.tobytes() for part in parts] for name, parts in found.items()}


def overwrite(data):
    """Write other numbers to the same memory."""
    if hasattr(data, "iloc"):
        data.iloc[...] = np.asarray(data)[::-1].copy()
    elif hasattr(data, "data") and hasattr(data, "indptr"):
        data.data *= -3.0
    elif isinstance(data, np.ndarray):
        data[...] = data[::-1].copy()
        data[0] = data[1]
    else:
        data[...] = -2 * data


# What the caller writes to ------------------------------------------------------------


def as_frame(X):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "frame": as_frame,
}


def check_independence(model, X, y, new):
    """Fitting leaves X and y unchanged; overwriting them leaves the model unchanged."""
    kept = np.array(to_numpy(X)), np.array(y)
    model.fit(X, y)
    assert np.array_equal(np.asarray(to_numpy(X)), kept[0], equal_nan=True)
    assert np.array_equal(np.asarray(y), kept[1])
    expected = answers(model, new)
    overwrite(X)
    overwrite(y)
    assert not np.array_equal(np.asarray(to_numpy(X)), kept[0], equal_nan=True)
    assert answers(model, new) == expected


@in_turn(estimator=EVERY, layout=list(LAYOUTS))
def test_rows_are_the_callers(estimator, layout):
    model, (X, codes) = clone(estimator), draw()
    new = LAYOUTS[layout](draw(10, seed=1)[0])
    check_independence(model, LAYOUTS[layout](X), targets_for(model, codes), new)


@in_turn(
    estimator=EVERY,
    other_backend=["array_api_strict", "torch"],
    indirect=["other_backend"],
)
def test_rows_of_other_libraries_are_the_callers(estimator, other_backend):
    model, (X, codes) = clone(estimator), draw()
    new = other_backend.asarray(draw(10, seed=1)[0])
    # asarray of a NumPy array may share its memory
    X = other_backend.asarray(X.copy())
    check_independence(model, X, targets_for(model, codes), new)


@in_turn(estimator=EVERY * 2, missing=["available", "zero"], gaps=[False, True, True])
def test_rows_with_gaps_are_the_callers(estimator, missing, gaps):
    model, (X, codes) = clone(estimator).set_params(missing=missing), draw()
    if gaps:
        X[3, :3], X[7, 3:] = np.nan, np.nan
    check_independence(model, X, targets_for(model, codes), draw(10, seed=1)[0])


def stack_of(rows, references):
    return np.stack(
        [RBF(gamma=0.1)(rows, references), RBF(gamma=1)(rows, references)], axis=-1
    )


@in_turn(
    estimator=EVERY,
    order=["C", "F"],
    dtype=["float64", "float32"],
    single=[False, True, True],
)
def test_kernels_are_the_callers(estimator, order, dtype, single):
    model, (X, codes) = clone(estimator).set_params(views="precomputed"), draw()
    K, new = stack_of(X, X), stack_of(draw(10, seed=1)[0], X)
    if single:
        K, new = K[:, :, 0], new[:, :, 0]
    K, new = (np.array(part, dtype=dtype, order=order) for part in (K, new))
    check_independence(model, K, targets_for(model, codes), new)


@in_turn(estimator=EVERY, missing=["error", "available", "zero"])
def test_kernels_are_let_go_of(estimator, missing):
    model, (X, codes) = clone(estimator), draw()
    model.set_params(views="precomputed", missing=missing)
    K = stack_of(X, X)
    gc.freeze()  # no need to check what was there before
    model.fit(K, targets_for(model, codes))
    last = weakref.ref(K)
    del K
    gc.collect()
    gc.unfreeze()
    assert last() is None


EXPLICIT = {
    "moments": {"features": "nystroem", "n_features": 5},
    "rows": {"features": "nystroem", "n_features": 20},
    "random": {"features": "random", "n_features": 6, "alpha": "cv"},
    "exact": {"features": "exact", "alpha": "cv"},
}


@pytest.mark.parametrize("settings", EXPLICIT)
@in_turn(
    kind=["array", "sparse", "frame"],
    estimator=[MultipleKernelFDA, MultipleKernelRidge],
)
def test_rows_of_explicit_features_are_the_callers(estimator, settings, kind):
    make = {"array": np.array, "sparse": csr_array, "frame": as_frame}[kind]
    views = [("left", ["linear", Pipe(Standardizer(), "linear")], [0, 1, 2])]
    right = "linear" if settings == "exact" else "rbf"
    views += [("right", right, [3, 4, 5])]
    model = estimator(views, **EXPLICIT[settings], cv=None)
    X, codes = draw(30)
    X, new, y = make(X), make(draw(10, seed=1)[0]), targets_for(model, codes)
    model.fit(X, y)
    expected = answers(model, new)
    overwrite(X)
    overwrite(y)
    assert answers(model, new) == expected


@pytest.mark.parametrize("kind", ["array", "sparse", "frame"])
@pytest.mark.parametrize("estimator", [MultipleKernelFDA, MultipleKernelRidge])
def test_portions_are_the_callers(estimator, kind):
    make = {"array": np.array, "sparse": csr_array, "frame": as_frame}[kind]
    X, codes = draw(40)
    # 40 rows do not fill a chunk: they wait for more
    model, same = (estimator(VIEWS, n_features=5, norm=1, cv=None) for _ in range(2))
    y = targets_for(model, codes)
    classes = {} if estimator is MultipleKernelRidge else {"classes": np.unique(y)}
    for part in (slice(0, 25), slice(25, 40)):
        same.partial_fit(make(X[part]), y[part].copy(), **classes)
        rows, targets = make(X[part]), y[part].copy()
        given = {key: value.copy() for key, value in classes.items()}
        model.partial_fit(rows, targets, **given, solve=False)
        for mine in (rows, targets, *given.values()):
            overwrite(mine)
        classes = {}
    model.partial_fit()
    assert answers(model, make(X)) == answers(same, make(X))


def test_an_iterator_may_reuse_its_memory():
    X, codes = draw(60)
    buffer, labels = np.empty((20, 6)), np.empty(20, dtype=int)

    def portions():
        for start in range(0, 60, 20):
            buffer[...] = X[start : start + 20]
            labels[...] = codes[start : start + 20]
            yield buffer, labels

    cut = ((X[s : s + 20], codes[s : s + 20]) for s in range(0, 60, 20))
    model, same = (
        MultipleKernelFDA(VIEWS, n_features=5, norm=1, cv=None) for _ in range(2)
    )
    assert answers(model.fit(portions()), X) == answers(same.fit(cut), X)


@pytest.mark.parametrize("features", ["auto", "nystroem"])
@pytest.mark.parametrize("transformer", [StandardScaler(copy=False), KNNImputer()])
def test_transformers_get_rows_of_their_own(features, transformer):
    pipe = Pipe(transformer, RBF(gamma=0.1))
    before = dict(vars(transformer))
    model = MultipleKernelFDA([("all", pipe, slice(None))], features=features, cv=None)
    X, codes = draw()
    new = draw(10, seed=1)[0]
    same = clone(transformer).set_params(**{"copy": True}).fit(X)
    views = [("all", RBF(gamma=0.1), slice(None))]
    expected = clone(model).set_params(views=views).fit(same.transform(X), codes)
    check_independence(model, X, codes, new)
    for rows in (new, new):  # the second time, too
        found, wanted = model.transform(rows), expected.transform(same.transform(new))
        np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert vars(transformer) == before  # a clone was fitted


def dot(P, Q):
    return P @ Q.T


def rude(P, Q):
    K = P @ Q.T
    P *= 0.0
    Q -= 7.0
    return K


def test_a_kernel_cannot_write_to_tensors_of_others():
    """Arrays of NumPy are read-only for it; where nothing is, it gets copies."""
    torch = pytest.importorskip("torch")
    X, codes = draw()
    tensor, new = torch.from_numpy(X.copy()), torch.from_numpy(draw(10, seed=1)[0])
    polite = MultipleKernelFDA([("all", ["rbf", dot], slice(None))], cv=None)
    model = clone(polite).set_params(views=[("all", ["rbf", rude], slice(None))])
    check_independence(model, tensor, codes.copy(), new)
    assert answers(model, new) == answers(polite.fit(torch.from_numpy(X), codes), new)


# What a failure leaves ----------------------------------------------------------------


def interrupted(call, *arguments, number=0):
    """Call; an interrupt comes as the ``number``-th function of the package is entered.

    Returns how many were entered.
    """
    entered = 0

    def watch(frame, event, argument):
        nonlocal entered
        code = frame.f_code
        # Python swallows exceptions raised when a generator is discarded.
        if code.co_flags & inspect.CO_GENERATOR:
            return
        if event == "call" and code.co_filename.startswith(PACKAGE):
            entered += 1
            if entered == number:
                raise KeyboardInterrupt

    earlier = sys.getprofile()
    sys.setprofile(watch)
    try:
        call(*arguments)
    finally:
        sys.setprofile(earlier)
    return entered


def moments_of(total):
    """Some of the calls 1 to ``total``: spread out, with more near the end."""
    spread = np.linspace(1, total, 4).astype(int)
    return sorted({*spread.tolist(), total - 1})


class Untouched:
    """Remembers a model and checks that it stays unchanged."""

    def __init__(self, model, rows):
        self.model, self.rows = model, rows
        self.before, self.expected = dict(vars(model)), answers(model, rows)

    def check(self):
        found = vars(self.model)
        assert found.keys() == self.before.keys()
        assert all(found[name] is value for name, value in self.before.items())
        assert answers(self.model, self.rows) == self.expected


def check_unfitted(model, rows):
    """No attribute of a fit is left, and the model reports that it is not fitted."""
    assert vars(model).keys() == vars(clone(model)).keys()
    ask = model.predict if hasattr(model, "predict") else model.transform
    with pytest.raises(NotFittedError):
        ask(rows)


def two_problems(model):
    """Training rows and targets, and others with more columns and new names."""
    (X, codes), (Z, others) = draw(24), draw(30, columns=7, seed=2)
    names = ("cat", "dog", "fox")
    return (X, targets_for(model, codes)), (Z, targets_for(model, others, names))


@pytest.mark.parametrize(
    "estimator", some(ONE_EACH) + some(["MultipleKernelFDA"], cv=2)
)
def test_an_interrupt_leaves_no_trace(estimator):
    model = clone(estimator).set_params(views=VIEWS)
    (X, y), other = two_problems(model)
    unfitted = clone(model)
    guard = Untouched(model.fit(X, y), X)
    total = interrupted(copy.deepcopy(model).fit, *other)
    for number in moments_of(total):
        with pytest.raises(KeyboardInterrupt):
            interrupted(model.fit, *other, number=number)
        guard.check()
    for number in (2, total):
        with pytest.raises(KeyboardInterrupt):
            interrupted(unfitted.fit, *other, number=number)
        check_unfitted(unfitted, X)
    assert answers(model.fit(*other), other[0]) == answers(
        clone(model).fit(*other), other[0]
    )


@in_turn(estimator=EVERY, error=[KeyboardInterrupt, ValueError, SystemExit])
def test_a_kernel_that_fails_leaves_no_trace(estimator, error):
    left = {"calls": -1}

    def dot(P, Q):
        left["calls"] -= 1
        if left["calls"] == 0:
            raise error("no more")
        return P @ Q.T

    model = clone(estimator)
    views = [("left", ["rbf", dot], [0, 1, 2]), ("right", dot, [3, 4, 5])]
    model.set_params(views=views)
    (X, y), other = two_problems(model)
    unfitted = clone(model)
    guard = Untouched(model.fit(X, y), X)
    for calls in (1, 2):  # the first view is computed, or both are
        left["calls"] = calls
        with pytest.raises(error, match="no more"):
            model.fit(*other)
        guard.check()
    left["calls"] = 2
    with pytest.raises(error, match="no more"):
        unfitted.fit(*other)
    check_unfitted(unfitted, X)


@pytest.mark.parametrize("name", NOT_CONVERGED)
def test_a_convergence_warning_turned_error_leaves_no_trace(name):
    model = clone(SETTINGS[name]).set_params(views=VIEWS)
    (X, y), other = two_problems(model)
    unfitted = clone(model).set_params(**NOT_CONVERGED[name])
    model.fit(X, y).set_params(**NOT_CONVERGED[name])
    guard = Untouched(model, X)
    for each in (model, unfitted):
        with (
            warnings.catch_warnings(),
            pytest.raises(KernelWeaveConvergenceWarning),
        ):
            warnings.simplefilter("error")
            each.fit(*other)
    guard.check()
    for key, value in NOT_CONVERGED[name].items():  # as set, not as they were
        assert getattr(model, key) == value
    check_unfitted(unfitted, X)


@every_estimator
def test_refused_input_leaves_no_trace(estimator):
    model = clone(estimator)
    (X, y), (Z, other) = two_problems(model)
    constant = Z.copy()
    constant[:, :3] = 1.0  # a warning, which is an error here
    hole = Z.copy()
    hole[4, 4] = np.nan
    bad = [(constant, other), (hole, other), (Z, other[1:]), (Z, None), (Z[:1], y[:1])]
    unfitted = clone(model)
    guard = Untouched(model.fit(X, y), X)
    for arguments in bad:
        for each in (model, unfitted):
            with (
                warnings.catch_warnings(),
                pytest.raises((ValueError, UserWarning)),
            ):
                warnings.simplefilter("error")
                each.fit(*arguments)
        guard.check()
        check_unfitted(unfitted, X)


@every_estimator
def test_fit_transform_and_set_params_are_whole(estimator):
    model = clone(estimator)
    (X, y), other = two_problems(model)
    guard = Untouched(model.fit(X, y), X)
    with pytest.raises(ValueError, match="nonsense"):
        model.set_params(views="precomputed", verbose=1, nonsense=3)
    guard.check()
    if hasattr(model, "fit_transform"):
        fit = interrupted(clone(model).fit, *other)
        total = interrupted(clone(model).fit_transform, *other)
        assert total > fit
        for number in (fit // 2, fit + 2, total):  # the last two in transform
            with pytest.raises(KeyboardInterrupt):
                interrupted(model.fit_transform, *other, number=number)
            guard.check()


@in_turn(solve=[False, True], estimator=[MultipleKernelRidge, MultipleKernelFDA])
def test_an_interrupted_portion_is_not_half_added(estimator, solve):
    cut = CHUNK_ROWS["cpu"] + 100
    X, codes = draw(2 * cut)
    model = estimator(
        VIEWS, n_features=5, norm=1, random_state=np.random.RandomState(0), cv=None
    )
    y = targets_for(model, codes)
    clean, unfitted = clone(model), clone(model)
    first, second = (X[:cut], y[:cut]), (X[cut:], y[cut:])
    X = X[:30]
    for number in (2, 30, 200):  # the first portion: nothing is left of it
        with pytest.raises(KeyboardInterrupt):
            interrupted(unfitted.partial_fit, *first, number=number)
        check_unfitted(unfitted, X)
    for each in (model, unfitted, clean):
        each.partial_fit(*first)
    guard = Untouched(model, X)
    assert answers(unfitted, X) == guard.expected  # the same draws from random_state
    second = (*second, None, solve)
    total = interrupted(copy.deepcopy(model).partial_fit, *second)
    for number in moments_of(total):
        with pytest.raises(KeyboardInterrupt):
            interrupted(model.partial_fit, *second, number=number)
        guard.check()
    for each in (model, clean):
        each.partial_fit(*second).partial_fit()
    expected = answers(clean, X)
    assert answers(model, X) == expected
    total = interrupted(copy.deepcopy(model).partial_fit)
    for number in moments_of(total):  # solving again does not modify the moments
        with pytest.raises(KeyboardInterrupt):
            interrupted(model.partial_fit, number=number)
        assert answers(model.partial_fit(), X) == expected


@pytest.mark.parametrize("features", ["nystroem", "random"])
def test_interrupted_explicit_features_leave_no_trace(features):
    model = MultipleKernelFDA(VIEWS, features=features, n_features=5, cv=None)
    (X, y), other = two_problems(model)
    guard = Untouched(model.fit(X, y), X)
    total = interrupted(copy.deepcopy(model).fit, *other)
    for number in moments_of(total):
        with pytest.raises(KeyboardInterrupt):
            interrupted(model.fit, *other, number=number)
        guard.check()

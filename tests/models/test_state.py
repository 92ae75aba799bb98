"""A model shares no memory with its caller, and a failed call leaves no trace."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import gc
import inspect
import os
import pickle
import signal
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone, is_regressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.impute import KNNImputer
from sklearn.preprocessing import StandardScaler

import kernelweave
from estimators import (
    EXPLICIT,
    NOT_CONVERGED,
    ONE_EACH,
    SETTINGS,
    ask,
    has,
    in_turn,
    kinds,
    some,
    takes,
    targets_for,
)
from kernelweave import (
    MultipleKernelFDA,
    _array,
)
from kernelweave._array import to_numpy
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.kernels import RBF, Pipe
from kernelweave.kernels.functions import Standardizer
from kernelweave.kernels.moments import CHUNK_ROWS

PACKAGE = str(Path(kernelweave.__file__).parent)
VIEWS = [("left", "rbf", [0, 1, 2]), ("right", ["linear", RBF(gamma=0.2)], [3, 4, 5])]

#: Also a mixture that remembers its training rows.
NAMES = (*ONE_EACH, "MixtureKDA-posterior")
EVERY = some(NAMES, views=VIEWS)
every_estimator = pytest.mark.parametrize("estimator", EVERY)

#: Random moments of each call at which something goes wrong: many with new seeds.
FEW = 2
MOMENTS = 50 if os.environ.get("KERNELWEAVE_TESTS_SEED") else FEW

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
    gc.freeze()  # what was there before need not be checked, now or in later tests
    model.fit(K, targets_for(model, codes))
    last = weakref.ref(K)
    del K
    gc.collect()
    assert last() is None


HELD_AS = {
    "moments": {"features": "nystroem", "n_features": 5},
    "rows": {"features": "nystroem", "n_features": 20},
    "random": {"features": "random", "n_features": 6, "alpha": "cv"},
    "exact": {"features": "exact", "alpha": "cv"},
}


@in_turn(
    settings=[*HELD_AS] * 2,
    kind=["array", "sparse", "frame"],
    estimator=[each for each in kinds(has("partial_fit")) for _ in HELD_AS],
)
def test_rows_of_explicit_features_are_the_callers(estimator, settings, kind):
    make = {"array": np.array, "sparse": csr_array, "frame": as_frame}[kind]
    views = [("left", ["linear", Pipe(Standardizer(), "linear")], [0, 1, 2])]
    right = "linear" if settings == "exact" else "rbf"
    views += [("right", right, [3, 4, 5])]
    model = estimator(views, **HELD_AS[settings], cv=None)
    X, codes = draw(30)
    X, new, y = make(X), make(draw(10, seed=1)[0]), targets_for(model, codes)
    model.fit(X, y)
    expected = answers(model, new)
    overwrite(X)
    overwrite(y)
    assert answers(model, new) == expected


@pytest.mark.parametrize("kind", ["array", "sparse", "frame"])
@pytest.mark.parametrize("estimator", kinds(has("partial_fit")))
def test_portions_are_the_callers(estimator, kind):
    make = {"array": np.array, "sparse": csr_array, "frame": as_frame}[kind]
    X, codes = draw(40)
    # 40 rows do not fill a chunk: they wait for more
    model, same = (estimator(VIEWS, n_features=5, norm=1, cv=None) for _ in range(2))
    y = targets_for(model, codes)
    classes = {} if is_regressor(model) else {"classes": np.unique(y)}
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


class Fault(BaseException):
    """An exception that nobody expects."""


def signalled():
    """Ctrl-C, as it arrives from the operating system."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, earlier)  # a job in the background ignores it


def raising(error):
    """A function that raises an exception."""

    def fail():
        raise error("injected")

    return fail


FAULTS = {
    "signal": (signalled, KeyboardInterrupt),
    "memory": (raising(MemoryError), MemoryError),
    "exit": (raising(SystemExit), SystemExit),
    "unknown": (raising(Fault), Fault),
}


@functools.cache
def headers(filename):
    """The lines of ``with`` statements, up to their bodies.

    They are traced once more on the way out, before what was entered is left. Signals
    never arrive there, so faults must not be injected there.
    """
    tree = ast.parse(Path(filename).read_text(encoding="utf-8"))
    found = (node for node in ast.walk(tree) if isinstance(node, ast.With))
    return {line for w in found for line in range(w.lineno, w.body[0].lineno)}


def interrupted(call, *arguments, number=0, fault=signalled, **keywords):
    """Call; a fault occurs as the ``number``-th line of the package is reached.

    Returns how many lines were executed.
    """
    lines = 0

    def follow(frame, event, argument):
        nonlocal lines
        if event == "line":
            lines += 1
            if 0 < number <= lines:
                place = frame.f_lineno, frame.f_code.co_filename
                if place[0] not in headers(place[1]):
                    fault()
        return follow

    def watch(frame, event, argument):
        code = frame.f_code
        # Python swallows exceptions raised when a generator is discarded.
        own = code.co_filename.startswith(PACKAGE)
        return follow if own and not code.co_flags & inspect.CO_GENERATOR else None

    earlier = sys.gettrace()
    sys.settrace(watch)
    try:
        call(*arguments, **keywords)
    finally:
        sys.settrace(earlier)
    return lines


def surroundings():
    """What a call might leave changed in the whole process."""
    filters = [(action, kind) for action, _, kind, *_ in warnings.filters]
    threads = [library.get_num_threads() for library in _array._libraries()]
    return np.geterr(), filters, np.random.get_state()[1].tobytes(), threads  # noqa: NPY002


class Untouched:
    """Remembers a model, its input and its surroundings; checks that all stay so."""

    def __init__(self, model, rows, *given):
        self.model, self.rows, self.given = model, rows, given
        self.expected, self.before = answers(model, rows), dict(vars(model))
        self.bytes, self.around = self.content(), surroundings()

    def content(self):
        """Everything that the model and its input consist of; None if unknown."""
        with contextlib.suppress(AttributeError, pickle.PicklingError, TypeError):
            return pickle.dumps((self.before, self.given))

    def check(self):
        found = vars(self.model)
        assert found.keys() == self.before.keys()
        assert all(found[name] is value for name, value in self.before.items())
        assert answers(self.model, self.rows) == self.expected
        assert self.content() == self.bytes
        assert surroundings() == self.around


def check_unfitted(model, rows):
    """No attribute of a fit is left, and the model reports that it is not fitted."""
    assert vars(model).keys() == vars(clone(model)).keys()
    ask = model.predict if hasattr(model, "predict") else model.transform
    with pytest.raises(NotFittedError):
        ask(rows)


def two_problems(model):
    """Training rows and targets, and others with more columns and new names."""
    (X, codes), (Z, others) = draw(18), draw(21, columns=7, seed=2)
    names = ("cat", "dog", "fox")
    return (X, targets_for(model, codes)), (Z, targets_for(model, others, names))


def calls_of(model, other):
    """Everything that changes a model, or must not: functions of a model."""
    X, y = other
    calls = {
        "fit": lambda m: m.fit(X, y),
        "set_params": lambda m: m.set_params(
            right__1__gamma=0.7, psd="clip", verbose=0
        ),
        "ask": lambda m: ask(m, draw(30, seed=3)[0]),
    }
    if hasattr(model, "fit_transform"):
        calls["fit_transform"] = lambda m: m.fit_transform(X, y)
    return calls


def fault_everywhere(model, call, guard, rng, moments):
    """Faults at random lines of a call leave no trace.

    A fault that is caught on its way, as one while memory is asked for, must not change
    the result. Returns the number of lines, and how many faults were not caught.
    """
    clean = copy.deepcopy(model)
    total, came = interrupted(call, clean), 0
    last = (
        [total] if moments > 1 else []
    )  # a fit that is complete, but has not returned
    for number in (*last, *rng.integers(1, total + 1, size=moments)):
        fault, error = FAULTS[rng.choice(list(FAULTS))]
        try:
            interrupted(call, model, number=number, fault=fault)
        except error:
            came += 1
            guard.check()
        else:
            new = draw(10, columns=clean.n_features_in_)[0]
            assert answers(model, new) == answers(clean, new)
            model.__dict__ = dict(guard.before)
    return total, came


@pytest.mark.parametrize("estimator", some((*NAMES, *EXPLICIT)))
def test_a_fault_leaves_no_trace(estimator, rng):
    model = clone(estimator).set_params(views=VIEWS)
    (X, y), other = two_problems(model)
    unfitted, new, draws = clone(model), other[0], surroundings()[2]
    guard = Untouched(model.fit(X, y), X, X, y, *other)
    assert guard.around[2] == draws, "the caller's random numbers have changed"
    with pytest.raises(ValueError, match="nonsense"):
        model.set_params(views="precomputed", verbose=1, nonsense=3)
    guard.check()
    lines = {}
    for name, call in calls_of(model, other).items():
        moments = MOMENTS if MOMENTS > FEW or name == "fit" else 1
        lines[name], came = fault_everywhere(model, call, guard, rng, moments)
        assert came >= moments // 2
    last = lines["fit"] - 2 * len(vars(model))  # there are no results to forget
    for number in (2, *rng.integers(3, last, size=MOMENTS - FEW), last):
        with pytest.raises(KeyboardInterrupt):
            interrupted(unfitted.fit, *other, number=number)
        check_unfitted(unfitted, X)
    assert answers(unfitted.fit(*other), new) == answers(model.fit(*other), new)


def other_values(model):
    """Another value of every parameter, most of them ones that no fit accepts."""
    chosen = {
        "missing": "zero" if model.missing != "zero" else "error",
        "views": VIEWS if model.views == "precomputed" else "precomputed",
        "output": "kernel"
        if getattr(model, "output", "") == "features"
        else "features",
        "projection": "prior",
    }
    if getattr(model, "projection", "") == "prior":
        chosen["projection"] = "posterior"
    given = model.get_params(deep=False)
    return {name: chosen.get(name, "nonsense") for name in given}


@pytest.mark.parametrize("form", ["error", "zero", "available", "precomputed"])
@pytest.mark.parametrize("estimator", some((*NAMES, "KernelAlignment-features")))
def test_parameters_count_from_the_next_fit_on(estimator, form):
    """A fitted model answers as it was fitted; one whose refit failed does too."""
    model, (X, codes), new = clone(estimator), draw(), draw(10, seed=1)[0]
    y = targets_for(model, codes)
    if form == "precomputed":
        model.set_params(views=form)
        kernels = [RBF(gamma=g) for g in (0.1, 0.3)]
        train, new = (
            np.stack([kernel(rows, X) for kernel in kernels], axis=-1)
            for rows in (X, new)
        )
    else:
        model.set_params(views=VIEWS, missing=form)
        train = X
        if form != "error":
            train, new = train.copy(), new.copy()
            train[1::4, :3] = new[1::4, :3] = np.nan
    guard = Untouched(model.fit(train, y), new)
    for name, value in other_values(model).items():
        guard.before[name] = value
        setattr(model, name, value)
    guard.bytes = guard.content()
    guard.check()
    with pytest.raises((TypeError, ValueError)):
        model.fit(train, y)
    guard.check()


class Impatient:
    """A callback that fails at one of its calls."""

    def __init__(self, number):
        self.left = number

    def setup(self, estimator, context):
        self.tick()

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.tick()

    def on_fit_task_end(self, estimator, context, *, metadata=None):
        self.tick()

    def __reduce__(self):
        return Impatient, (0,)  # what it has counted is not part of a model

    def tick(self):
        self.left -= 1
        if self.left == 0:
            raise Fault("no patience")


@every_estimator
def test_a_callback_that_fails_leaves_no_trace(estimator, rng):
    model = clone(estimator)
    (X, y), other = two_problems(model)
    counter = Impatient(0)
    clone(model).set_callbacks(counter).fit(*other)
    model.fit(X, y)
    for number in rng.integers(1, 1 - counter.left, size=MOMENTS // FEW):
        model.set_callbacks(Impatient(number))
        guard = Untouched(model, X, X, y, *other)
        with pytest.raises(Fault, match="no patience"):
            model.fit(*other)
        guard.check()


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
            pytest.raises(ConvergenceWarning),
        ):
            warnings.simplefilter("error")
            each.fit(*other)
    guard.check()
    for key, value in NOT_CONVERGED[name].items():  # as set, not as they were
        assert getattr(model, key) == value
    check_unfitted(unfitted, X)


@every_estimator
def test_refused_input_leaves_no_trace(estimator, monkeypatch):
    model = clone(estimator)
    if takes("n_features")(model):  # "auto" turns to features where memory is scarce
        model.set_params(features="exact")
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
    monkeypatch.setattr(_array, "_host_bytes", lambda: 1000)
    for each in (model, unfitted):
        with pytest.raises(MemoryRefusedError):
            each.fit(Z, other)
    guard.check()
    check_unfitted(unfitted, X)


@in_turn(solve=[False, True], estimator=kinds(has("partial_fit")))
def test_an_interrupted_portion_is_not_half_added(estimator, solve, rng):
    cut = CHUNK_ROWS["cpu"] + 100
    X, codes = draw(2 * cut)
    model = estimator(
        VIEWS, n_features=5, norm=1, random_state=np.random.RandomState(0), cv=None
    )
    y = targets_for(model, codes)
    clean, unfitted = clone(model), clone(model)
    first, second = (X[:cut], y[:cut]), (X[cut:], y[cut:])
    X = X[:30]
    for number in (2, 70, 450):  # the first portion: nothing is left of it
        with pytest.raises(KeyboardInterrupt):
            interrupted(unfitted.partial_fit, *first, number=number)
        check_unfitted(unfitted, X)
    for each in (model, unfitted, clean):
        each.partial_fit(*first)
    guard = Untouched(model, X)
    assert answers(unfitted, X) == guard.expected  # the same draws from random_state
    second = (*second, None, solve)
    total = interrupted(copy.deepcopy(model).partial_fit, *second)
    for number in rng.integers(1, total + 1, size=MOMENTS):
        with pytest.raises(KeyboardInterrupt):
            interrupted(model.partial_fit, *second, number=number)
        guard.check()
    for each in (model, clean):
        each.partial_fit(*second).partial_fit()
    expected = answers(clean, X)
    assert answers(model, X) == expected
    total = interrupted(copy.deepcopy(model).partial_fit)
    for number in rng.integers(
        1, total + 1, size=MOMENTS
    ):  # solving again does not modify the moments
        with pytest.raises(KeyboardInterrupt):
            interrupted(model.partial_fit, number=number)
        assert answers(model.partial_fit(), X) == expected

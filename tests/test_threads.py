"""Small problems run on one thread of linear algebra, and leave no trace of it."""

from __future__ import annotations

import math
import threading
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController, threadpool_limits

from estimators import WITH_FOLDS, ask, every_estimator, some
from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelSVC, _array
from kernelweave._array import FEW_ENTRIES, few_threads
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels import RBF, Laplacian, center_and_scale
from kernelweave.kernels.maps.kernel_map import FeatureSource, KernelMap
from kernelweave.views.columns import View


def counts():
    """Numbers of threads of the libraries of linear algebra.

    Other tests import cvxpy, which brings one that was built without threads.
    """
    pools = ThreadpoolController().select(user_api="blas").info()
    without = ("disabled", "sequential")
    return {p["num_threads"] for p in pools if p.get("threading_layer") not in without}


@pytest.fixture(autouse=True)
def _two_threads():
    """Also where the suite is run with one; every test must restore them."""
    with threadpool_limits(limits=2, user_api="blas"):
        if counts() != {2}:
            pytest.skip("this library of linear algebra has no threads")
        yield
        assert counts() == {2}


@pytest.fixture
def seen():
    """Numbers of threads in each call of :func:`noting`."""
    return []


def noting(seen):
    def kernel(X, Z):
        seen.append(counts())
        return X @ Z.T

    return [("a", kernel, [0, 1]), ("b", "linear", [2])]


def rows(n=24):
    X = np.random.default_rng(0).normal(size=(n, 3))
    y = np.arange(n) % 2
    X[:, 0] += 2 * y
    return X, y


@every_estimator
def test_few_rows_take_one_thread(estimator, seen):
    X, y = rows()
    model = clone(estimator).set_params(views=noting(seen)).fit(X, y)
    fitting = len(seen)
    ask(model, X)
    assert len(seen) > fitting and all(found == {1} for found in seen)


def test_many_rows_take_all_threads():
    def kernel(X, Z):  # the rest of the fit would take long
        raise ValueError(f"called with {counts()}")

    X, y = rows(math.isqrt(FEW_ENTRIES) + 1)
    with pytest.raises(ValueError, match=r"called with \{2\}"):
        KernelFDA([("a", kernel, [0, 1])]).fit(X, y)


def test_many_rows_are_predicted_by_all_threads(seen):
    X, y = rows()
    model = KernelFDA(noting(seen), cv=None).fit(X, y)
    few = FEW_ENTRIES // len(X)
    for n, threads in ((few, 1), (few + 1, 2)):
        seen.clear()
        model.predict(np.zeros((n, 3)))
        assert seen and all(found == {threads} for found in seen)


def test_portions_and_other_libraries_keep_their_threads():
    X, _ = rows()
    strict = pytest.importorskip("array_api_strict")
    for other in (iter([X]), None, strict.asarray(X)):
        with few_threads(other):
            assert counts() == {2}
    with few_threads(X.tolist()):
        assert counts() == {1}


def test_an_error_restores_the_threads():
    X, y = rows()
    with pytest.raises(ValueError, match="norm"):
        MultipleKernelFDA(norm=0).fit(X, y)
    assert counts() == {2}


def test_fits_that_overlap_restore_the_threads():
    """The first to begin ends first."""
    begun, done, after = threading.Event(), threading.Event(), []

    def other():
        # Where the number is that of the process, a limit that ends would set it to 1.
        threadpool_limits(limits=2, user_api="blas")
        with few_threads([0]):
            begun.set()
            done.wait(10)
        after.append(counts())

    with few_threads([0]):
        thread = threading.Thread(target=other)
        thread.start()
        begun.wait(10)
    assert counts() == {2}
    done.set()
    thread.join()
    assert after == [{2}]


@pytest.mark.parametrize(
    "model",
    [
        *some(WITH_FOLDS),
        *some(),
        pytest.param(KernelFDA(scoring="balanced_accuracy"), id="scoring"),
        pytest.param(MultipleKernelSVC(solver="newton", C=1e3), id="newton"),
        pytest.param(MultipleKernelSVC(C="cv"), id="C by folds"),
    ],
)
def test_fits_that_overlap_hide_no_warnings(model, monkeypatch):
    """The filters of warnings belong to all threads, of which any may restore them."""
    X, y = rows(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(warnings.catch_warnings, "__exit__", lambda *_: None)
        clone(model).fit(X, y)
        monkeypatch.undo()
        for kind in (UserWarning, KernelWarning, ConvergenceWarning):
            with pytest.raises(kind):
                warnings.warn("in the next fit", kind, stacklevel=1)


@pytest.mark.parametrize("storage", ["matrices", "on_the_fly"])
def test_passes_in_threads_are_those_in_one(storage, rng, monkeypatch):
    monkeypatch.setattr(_array, "FEW_ENTRIES", 1000**2)  # in parts of fewer rows
    n, weights, found = 1010, np.array([0.3, 0.7]), []
    X, b = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    X[3] = X[20] = X[20] * 1e3  # rows at distance 0, and far from all others
    part = np.delete(np.arange(n), [0, 7])
    assert len(part) ** 2 > _array.FEW_ENTRIES  # even a part of one kernel
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            source = FeatureSource([View("a", [RBF(), Laplacian()], [0, 1, 2])], [X])
            bank = KernelMap(source, storage=storage).fit()
            answers = [bank.combine(weights), bank.apply(b), bank.apply(b[:, :1])]
            found.append([*answers, bank.restrict(part).kernel(1)])
    for one, two in zip(*found, strict=True):
        assert np.max(np.abs(two - one)) <= 1e-12 * np.max(np.abs(one))
    gram = center_and_scale(RBF()(X)[None])[0]
    assert_allclose(found[0][1][0], gram @ b, rtol=1e-9, atol=1e-9)


def test_an_error_in_a_thread_reaches_the_caller():
    many = FEW_ENTRIES + 1

    def divide(parts):
        assert counts() == {1}
        return [1 // part for part in parts]

    assert _array.in_threads(divide, [1, 2, 1, 3], many) == [[1, 1], [0, 0]]
    with pytest.raises(ZeroDivisionError):
        _array.in_threads(divide, [1, 0], many)

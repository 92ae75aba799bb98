"""Precomputed kernels: shapes, missing entries, symmetry."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator

from kernelweave._array import CACHE_ENTRIES, CHUNK_ENTRIES, to_numpy
from kernelweave.kernels.checks import check_symmetric
from kernelweave.views.precomputed import validate_precomputed


class Model(BaseEstimator):
    pass


def stack(n=5, p=3):
    A = np.random.default_rng(0).normal(size=(p, n, n))
    return np.moveaxis(A @ A.transpose(0, 2, 1), 0, -1)


def fitted(n=5):
    model = Model()
    model.n_features_in_ = n
    model.kernel_names_ = ["a", "b", "c"]
    return model


def test_one_kernel_and_a_stack(xp_backend):
    model = Model()
    X = xp_backend.asarray(stack())
    K, names = validate_precomputed(model, X, reset=True)
    assert K is X
    assert names == ["kernel_0", "kernel_1", "kernel_2"]
    assert model.n_features_in_ == 5
    model.kernel_names_ = names
    K, names = validate_precomputed(model, X[:, :, 1], reset=True)
    assert tuple(K.shape) == (5, 5, 1)
    np.testing.assert_array_equal(to_numpy(K[:, :, 0]), stack()[:, :, 1])
    K, _ = validate_precomputed(model, X[:2, :, :], reset=False)
    assert tuple(K.shape) == (2, 5, 3)


def test_kernels_last_where_all_sizes_agree():
    X = stack(4, 4)
    K, _ = validate_precomputed(Model(), X, reset=True)
    np.testing.assert_array_equal(K[:, :, 1], X[:, :, 1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_dtypes(xp_backend, dtype):
    X = xp_backend.asarray(np.eye(3), dtype=dtype)
    K, _ = validate_precomputed(Model(), X, reset=True)
    expected = xp_backend.xp.float32 if dtype == "float32" else xp_backend.xp.float64
    assert K.dtype == expected


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frame_lists_and_objects(library):
    frames = pytest.importorskip(library)
    K = stack()[:, :, 0]
    model = Model()
    names = [f"s{i}" for i in range(5)]
    frame = frames.DataFrame(dict(zip(names, K.T, strict=True)))
    for X in (K.tolist(), K.astype(object), frame):
        found, _ = validate_precomputed(model, X, reset=True)
        np.testing.assert_array_equal(found[:, :, 0], K)
    assert model.feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match=r"feature names should match"):
        validate_precomputed(model, frame[names[:3]], reset=False)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 5, 5), r"\(n, n, p\); found \(3, 5, 5\).*numpy.moveaxis\(X, 0, -1\)"),
        ((4, 5), r"must be square.*found the shape \(4, 5\)"),
        ((4, 5, 3), r"must be square.*found the shape \(4, 5, 3\)"),
        ((5, 5, 0), r"stack of 0 kernels \(shape=\(5, 5, 0\)\)"),
        ((2, 2, 2, 2), r"found 4 dimensions, shape \(2, 2, 2, 2\)"),
        ((5,), "Expected 2D array, got 1D array"),
        ((12, 0), r"0 feature\(s\) \(shape=\(12, 0\)\)"),
    ],
)
def test_shapes_at_fit(xp_backend, shape, message):
    with pytest.raises(ValueError, match=message):
        validate_precomputed(Model(), xp_backend.asarray(np.zeros(shape)), reset=True)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 4, 3), r"X has 4 features.*expecting 5.*\(m, 5\) .*found \(2, 4, 3\)\.$"),
        ((5, 2), r"found \(5, 2\)\. Is X transposed"),
        ((3, 2, 5), r"found \(3, 2, 5\)\. .*numpy\.moveaxis"),
        ((2, 5, 2), "fitted on 3 precomputed kernel.*found 2"),
        ((2, 5), "fitted on 3 precomputed kernel.*found 1"),
    ],
)
def test_shapes_at_predict(xp_backend, shape, message):
    X = xp_backend.asarray(np.zeros(shape))
    with pytest.raises(ValueError, match=message):
        validate_precomputed(fitted(), X, reset=False)


@pytest.mark.parametrize(
    ("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
@pytest.mark.parametrize(("n", "p"), [(5, 3), (400, 8)], ids=["one chunk", "more"])
def test_bad_entries_are_located(xp_backend, value, word, n, p):
    assert (n * n * p > CHUNK_ENTRIES) == (n == 400)
    X = np.ones((n, n, p))
    X[n - 2, 1, 2] = value
    where = rf"precomputed kernel 'kernel_2' holds {value} at position \({n - 2}, 1"
    message = f"contains {word}: {where}"
    with pytest.raises(ValueError, match=message):
        validate_precomputed(Model(), xp_backend.asarray(X), reset=True)


def test_complex_sparse_and_text():
    with pytest.raises(ValueError, match=r"Complex data not supported"):
        validate_precomputed(Model(), np.ones((3, 1), dtype=complex), reset=True)
    with pytest.raises(TypeError, match=r"Sparse data was passed"):
        validate_precomputed(Model(), sparse.eye_array(3).tocsr(), reset=True)
    with pytest.raises(ValueError, match=r"must hold numbers only.*'a'"):
        validate_precomputed(Model(), [["a", "b"], ["b", "a"]], reset=True)
    X = np.eye(2).astype(object)
    X[0, 0] = {"a": 1}
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        validate_precomputed(Model(), X, reset=True)


@pytest.mark.parametrize("n", [7, 300], ids=["one chunk", "more"])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_symmetry(xp_backend, scale, n):
    assert (n * n > CACHE_ENTRIES) == (n == 300)
    K = stack(n, 1)[:, :, 0]
    K = (K + K.T) / 2 * scale
    assert check_symmetric(xp_backend.asarray(K), "a", 1e-10) == 0
    K[n - 3, 2] += 1e-3 * np.abs(K).max()
    K[n - 1, 0] += 5e-4 * np.abs(K).max()
    X = xp_backend.asarray(K)
    assert check_symmetric(X, "a", 1e-2) == pytest.approx(1e-3)
    with pytest.raises(ValueError, match=r"Kernel 'a' is not symmetric") as caught:
        check_symmetric(X, "a", 1e-4)
    message = str(caught.value)
    assert f"(2, {n - 3})" in message and f"({n - 3}, 2)" in message
    assert str(K[n - 3, 2]) in message
    assert str(K[2, n - 3]) in message


def test_asymmetry_is_measured_by_the_largest_entry(xp_backend):
    K = np.array([[1e-9, 2.0], [2.0 + 1e-12, 1e-9]])  # symmetric, but not a kernel
    assert check_symmetric(xp_backend.asarray(K), "a", 1e-10) < 1e-11
    with pytest.raises(ValueError, match="not symmetric"):
        check_symmetric(xp_backend.asarray(K), "a", 1e-14)


def test_zero_kernel_is_symmetric(xp_backend):
    assert check_symmetric(xp_backend.asarray(np.zeros((3, 3))), "a", 1e-10) == 0

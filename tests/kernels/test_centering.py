"""Centring in feature space: training rows, test rows, constants."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.preprocessing import KernelCenterer

from kernelweave._array import to_numpy
from kernelweave.kernels import RBF, KernelMap, Linear, center_and_scale
from kernelweave.kernels.centering import center_in_place
from kernelweave.kernels.maps.kernel_map import FeatureSource
from kernelweave.kernels.maps.missing import CompletedKernelMap
from kernelweave.views.columns import View
from kernelweave.views.missing import ObservedViews

DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])


def tolerance(dtype):
    return 1e-10 if dtype == "float64" else 1e-4  # measured: up to 1.4e-5


@DTYPES
@pytest.mark.parametrize("n", [2, 3, 25])
def test_training_rows(n, dtype, rng, xp_backend):
    X = rng.normal(size=(n, 4)) + 3.0
    K = X @ X.T
    given = xp_backend.asarray(K.copy(), dtype)
    centering = center_in_place(given)
    P = np.eye(n) - 1 / n
    expected = P @ K @ P
    expected *= n / np.trace(expected)
    found = to_numpy(given)
    atol = tolerance(dtype) * 10
    assert_allclose(found, expected, atol=atol)
    assert_allclose(found.sum(axis=0), 0.0, atol=n * atol)
    assert_allclose(np.trace(found), n, rtol=tolerance(dtype))
    assert_allclose(centering.scale, n / np.trace(P @ K @ P), rtol=tolerance(dtype))
    assert centering.projector is None


@DTYPES
@pytest.mark.parametrize("m", [1, 6])
def test_new_rows(m, dtype, rng, xp_backend):
    X, Z = rng.normal(size=(25, 4)) + 3.0, rng.normal(size=(m, 4)) - 1.0
    centering = center_in_place(xp_backend.asarray(X @ X.T, dtype))
    found = to_numpy(centering(xp_backend.asarray(Z @ X.T, dtype)))
    mean = X.mean(axis=0)  # the feature space of a linear kernel is explicit
    scale = 25 / np.sum((X - mean) ** 2)
    assert_allclose(
        found, scale * (Z - mean) @ (X - mean).T, atol=10 * tolerance(dtype)
    )
    theirs = KernelCenterer().fit(X @ X.T).transform(Z @ X.T)
    assert_allclose(found, scale * theirs, atol=10 * tolerance(dtype))


@DTYPES
def test_training_rows_as_new_rows(dtype, rng, xp_backend):
    X = rng.normal(size=(15, 4))
    K = xp_backend.asarray(X @ X.T, dtype)
    G = xp_backend.asarray(X @ X.T, dtype)
    centering = center_in_place(G)
    assert_allclose(to_numpy(centering(K)), to_numpy(G), atol=tolerance(dtype))


@pytest.mark.parametrize("scale", [1e-150, 1e-12, 1.0, 1e12, 1e150])
def test_scale_is_forgotten(scale, rng):
    X = rng.normal(size=(2, 12, 3))
    K = X @ X.transpose(0, 2, 1)
    assert_allclose(center_and_scale(scale * K), center_and_scale(K), atol=1e-11)


def test_stack_is_copied(rng, xp_backend):
    X = rng.normal(size=(3, 12, 3))
    K = X @ X.transpose(0, 2, 1)
    given = xp_backend.asarray(K)
    found = to_numpy(center_and_scale(given))
    assert_allclose(to_numpy(given), K)
    for G, raw in zip(found, K, strict=True):
        alone = raw.copy()
        center_in_place(alone)
        assert_allclose(G, alone, atol=1e-12)


@DTYPES
@pytest.mark.parametrize("n", [2, 30, 301])
def test_constant_kernel_is_zero(n, dtype, xp_backend):
    for value in (0.0, 1.0, 1 / 3, 1e-30, 1e30):
        K = xp_backend.asarray(np.full((n, n), value), dtype)
        centering = center_in_place(K)
        assert centering.scale == 0.0
        assert np.all(to_numpy(K) == 0.0)
        cross = xp_backend.asarray(np.full((2, n), value), dtype)
        assert np.all(to_numpy(centering(cross)) == 0.0)


def test_kernel_far_from_the_origin_is_not_constant(rng):
    X = rng.normal(size=(20, 3))
    far = X + 1e4
    found = center_and_scale((far @ far.T)[None])[0]
    assert_allclose(found, center_and_scale((X @ X.T)[None])[0], atol=1e-5)


# Weighted rows ------------------------------------------------------------------------


@pytest.fixture
def repeated(rng):
    """Rows, whole-number weights, and the row of each copy."""
    weights = rng.integers(1, 5, 12)
    return rng.normal(size=(12, 6)) + 2.0, weights, np.repeat(np.arange(12), weights)


def weighted_map(X, weights, scale_rows=True):
    views = [View("a", [Linear(), RBF(gamma=0.2)], list(range(6)))]
    return KernelMap(FeatureSource(views, [X]), "error", weights, scale_rows)


def test_weighted_rows_are_repeated_rows(repeated, rng):
    X, weights, copies = repeated
    new = ObservedViews.complete([rng.normal(size=(5, 6))])
    plain = weighted_map(X[copies], None)
    expected = plain.fit().stack
    for scale_rows in (True, False):
        found = weighted_map(X, weights.astype(float), scale_rows)
        G = found.fit().stack
        root = np.sqrt(weights) if scale_rows else np.ones(12)
        G = G / root[:, None] / root
        assert_allclose(G[:, copies][:, :, copies], expected, atol=1e-12)
        for i in range(2):
            rows = next(found.centred(new, [i])), next(plain.centred(new, [i]))
            assert_allclose(rows[0][:, copies], rows[1], atol=1e-12)
        lengths = [m.cross_and_lengths(new, np.ones(2))[1] for m in (found, plain)]
        assert_allclose(*lengths, atol=1e-12)


@pytest.mark.parametrize("equal_trace", [False, True])
@pytest.mark.parametrize("scale_rows", [False, True])
def test_weighted_rows_that_lack_a_view(repeated, rng, equal_trace, scale_rows):
    X, weights, copies = repeated
    views = [View("a", Linear(), [0, 1, 2]), View("b", RBF(gamma=0.3), [3, 4, 5])]
    observed = rng.random((12, 2)) < 0.7
    observed[~observed.any(axis=1), 0] = True
    observed[:3] = True

    def stack(rows, given, scale_rows=False):
        blocks = [X[rows][:, :3], X[rows][:, 3:]]
        source = FeatureSource(views, blocks, observed[rows])
        options = (equal_trace, given, scale_rows)
        return CompletedKernelMap(source, "error", "zero", *options).fit().stack

    expected = stack(copies, None)
    G = stack(np.arange(12), weights.astype(float), scale_rows)
    root = np.sqrt(weights) if scale_rows else np.ones(12)
    G = G / root[:, None] / root
    assert_allclose(G[:, copies][:, :, copies], expected, atol=1e-12)

"""Diagonals and smallest entries of raw kernels, and squared norms of new rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave._array import to_numpy
from kernelweave.kernels import RBF, KernelMap, Linear
from kernelweave.kernels.maps.kernel_map import FeatureSource, PrecomputedSource
from kernelweave.kernels.maps.missing import CompletedKernelMap
from kernelweave.views.columns import View
from kernelweave.views.missing import ObservedViews

KERNELS = [RBF(gamma=0.3), Linear()]
WEIGHTS = np.array([0.25, 0.75])


@pytest.fixture
def rows(rng):
    return rng.normal(size=(70, 3)), rng.normal(size=(45, 3))


def feature_map(X):
    view = View("all", KERNELS, slice(None))
    return KernelMap(FeatureSource([view], [X]))


def test_diagonals_and_least_entries(rows):
    X, new = rows
    kernel_map = feature_map(X)
    kernel_map.fit()
    source = kernel_map.source
    for i, kernel in enumerate(KERNELS):
        diagonal, lowest = source.as_defined(i)
        assert_allclose(diagonal, np.diag(kernel(X)))
        assert_allclose(lowest, kernel(X).min())
        (gram,) = source.cross([new], [i])
        assert_allclose(source.cross_as_defined(i, gram, [new]), kernel(new, X))
        assert_allclose(source.diagonal_as_defined(i, [new]), np.diag(kernel(new)))
    # the origin of a linear kernel is the mean of the training rows
    about = X.mean(axis=0)
    for Z in (X, new):
        assert_allclose(source.diagonal(1, [Z]), np.sum((Z - about) ** 2, axis=1))
        assert_allclose(source.diagonal(0, [Z]), 1.0)


def test_lengths_of_new_rows(rows, xp_backend):
    """``g(x, x)`` is ``k(x, x)``, centred by the training rows."""
    X, new = rows
    kernel_map = feature_map(xp_backend.asarray(X))
    kernel_map.fit()
    new_rows, own_rows = (
        ObservedViews.complete([xp_backend.asarray(Z)]) for Z in (new, X)
    )
    cross, norms = kernel_map.cross_and_lengths(new_rows, WEIGHTS)
    wanted_cross, wanted = 0.0, 0.0
    for kernel, weight in zip(KERNELS, WEIGHTS, strict=True):
        K, k = kernel(X), kernel(new, X)
        P = np.eye(70) - 1 / 70
        scale = weight * 70 / np.trace(P @ K @ P)
        own = np.diag(kernel(new)) - 2 * k.mean(axis=1) + K.mean()
        wanted = wanted + scale * own
        wanted_cross = wanted_cross + scale * (k - K.mean(axis=0)) @ P
    assert_allclose(to_numpy(norms), wanted, atol=1e-10)
    assert_allclose(to_numpy(cross), wanted_cross, atol=1e-10)
    # for training rows it is the diagonal of the training kernel
    own_cross, own = kernel_map.cross_and_lengths(own_rows, WEIGHTS)
    assert_allclose(to_numpy(own), np.diag(to_numpy(own_cross)), atol=1e-10)


def test_precomputed_kernels_tell_only_constant_diagonals(rows):
    X, new = rows
    stack = np.stack([kernel(X) for kernel in KERNELS], axis=-1)
    kernel_map = KernelMap(PrecomputedSource(stack, ["a", "b"]))
    kernel_map.fit()
    cross = np.stack([kernel(new, X) for kernel in KERNELS], axis=-1)
    assert_allclose(kernel_map.source.diagonal(0, cross), 1.0)
    assert np.all(np.isneginf(kernel_map.source.diagonal(1, cross)))
    given_rows = ObservedViews.complete(cross)
    assert np.all(np.isneginf(kernel_map.cross_and_lengths(given_rows, WEIGHTS)[1]))
    given = np.stack([np.diag(kernel(new)) for kernel in KERNELS], axis=1)
    _, norms = kernel_map.cross_and_lengths(given_rows, WEIGHTS, given)
    features = feature_map(X)
    features.fit()
    wanted = features.cross_and_lengths(ObservedViews.complete([new]), WEIGHTS)[1]
    assert_allclose(norms, wanted, atol=1e-9)


# Rows that lack views -----------------------------------------------------------------


def completed_map(X, seen, missing):
    views = [View(name, RBF(gamma=0.3), slice(None)) for name in "ab"]
    source = FeatureSource(views, [X[:, :2], X[:, 2:]], seen)
    kernel_map = CompletedKernelMap(source, "error", missing)
    kernel_map.fit()
    return kernel_map


@pytest.mark.parametrize("missing", ["zero", "available"])
def test_lengths_of_rows_that_lack_views(rng, missing):
    """Zero, or the mean over available kernels, centred again like the kernel."""
    X, new = rng.normal(size=(30, 4)), rng.normal(size=(12, 4))
    seen, there = np.ones((30, 2), bool), np.ones((12, 2), bool)
    seen[:9, 0] = seen[9:14, 1] = there[:4, 0] = there[4:7, 1] = there[7] = False
    kernel_map = completed_map(X, seen, missing)
    rows = ObservedViews([new[:, :2], new[:, 2:]], there)
    zero = completed_map(X, seen, "zero")
    filled = np.stack([zero.cross(rows, weights) for weights in np.eye(2)])
    lengths = np.zeros((2, 12))
    for v, columns in enumerate((slice(0, 2), slice(2, 4))):
        centering = kernel_map.centerings[v]
        own = RBF(gamma=0.3)(new[:, columns], X[seen[:, v], columns]).mean(axis=1)
        length = centering.scale * (1 - 2 * own + centering.grand_mean)
        lengths[v] = np.where(there[:, v], length, 0.0)
    if missing == "available":
        shared = there[:, None, :] & seen[None, :, :]  # (m, n, v)
        mean = filled.sum(axis=0) / np.maximum(shared.sum(axis=2), 1)
        known = there.any(axis=1)
        average = lengths.sum(axis=0) / np.maximum(there.sum(axis=1), 1)
        for v in range(2):
            cross = np.where(shared[:, :, v], filled[v], mean).mean(axis=1)
            length = np.where(there[:, v], lengths[v], average)
            repair = kernel_map.repairs[v]
            length = repair.scale * (length - 2 * cross + repair.grand_mean)
            kept = np.linalg.eigvalsh(repair.projector)[-1]  # the factor of clipping
            lengths[v] = np.where(known, kept * length, 0.0)
    for v, weights in enumerate(np.eye(2)):
        cross, norms = kernel_map.cross_and_lengths(rows, weights)
        assert_allclose(norms, lengths[v], atol=1e-9)
        assert_allclose(cross, kernel_map.cross(rows, weights), atol=1e-12)
    both = kernel_map.cross_and_lengths(rows, np.array([0.3, 0.7]))[1]
    assert_allclose(both, 0.3 * lengths[0] + 0.7 * lengths[1], atol=1e-9)
    lacking = kernel_map.lacking(there, np.array([0.3, 0.7]))
    assert_allclose(lacking[[0, 4, 7, 8]], [0.3, 0.7, 1.0, 0.0])


def test_diagonals_of_kernels_that_rows_lack(rng):
    X, seen = rng.normal(size=(20, 4)), np.ones((20, 2), bool)
    seen[3:8, 1] = False
    source = completed_map(X, seen, "zero").source
    (first, _), (second, lowest) = source.as_defined(0), source.as_defined(1)
    assert (len(first), len(second)) == (20, 15)
    assert_allclose(np.concatenate([first, second]), 1.0)
    assert_allclose(lowest, RBF(gamma=0.3)(X[seen[:, 1], 2:]).min())

"""What a watched source remembers of raw kernels, and lengths of new rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave._array import to_numpy
from kernelweave.kernels import RBF, KernelMap, Linear
from kernelweave.kernels.sources import FeatureSource, PrecomputedSource
from kernelweave.kernels.watched import WatchedSource, centred_rows
from kernelweave.views.spec import View

KERNELS = [RBF(gamma=0.3), Linear()]
WEIGHTS = np.array([0.25, 0.75])


@pytest.fixture
def rows(rng):
    return rng.normal(size=(70, 3)), rng.normal(size=(45, 3))


def feature_map(X):
    view = View("all", KERNELS, slice(None))
    return KernelMap(WatchedSource(FeatureSource([view], [X])))


def test_diagonals_and_least_entries(rows):
    X, new = rows
    kernel_map = feature_map(X)
    kernel_map.fit()
    source = kernel_map.source
    for i, kernel in enumerate(KERNELS):
        assert_allclose(source.diagonals[i], np.diag(kernel(X)))
        assert_allclose(source.lowest[i], kernel(X).min())
    found = list(source.diagonal([new], [1]))
    assert len(found) == 1
    assert_allclose(found[0], np.sum(new**2, axis=1))
    both = list(source.diagonal([new], [0, 1]))
    assert_allclose(both[0], 1.0)


def test_lengths_of_new_rows(rows, xp_backend):
    """``g(x, x)`` is what centring with the training rows makes of ``k(x, x)``."""
    X, new = rows
    kernel_map = feature_map(xp_backend.asarray(X))
    kernel_map.fit()
    cross, norms = centred_rows(kernel_map, [xp_backend.asarray(new)], WEIGHTS)
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
    # at a training row it is the diagonal of the training kernel
    own_cross, own = centred_rows(kernel_map, [xp_backend.asarray(X)], WEIGHTS)
    assert_allclose(to_numpy(own), np.diag(to_numpy(own_cross)), atol=1e-10)


def test_precomputed_kernels_tell_only_constant_diagonals(rows):
    X, new = rows
    stack = np.stack([kernel(X) for kernel in KERNELS], axis=-1)
    kernel_map = KernelMap(WatchedSource(PrecomputedSource(stack, ["a", "b"])))
    kernel_map.fit()
    cross = np.stack([kernel(new, X) for kernel in KERNELS], axis=-1)
    found = list(kernel_map.source.diagonal(cross, [0, 1]))
    assert_allclose(found[0], 1.0)
    assert np.all(np.isneginf(found[1]))
    assert np.all(np.isneginf(centred_rows(kernel_map, cross, WEIGHTS)[1]))
    given = np.stack([np.diag(kernel(new)) for kernel in KERNELS], axis=1)
    _, norms = centred_rows(kernel_map, cross, WEIGHTS, given)
    features = feature_map(X)
    features.fit()
    assert_allclose(norms, centred_rows(features, [new], WEIGHTS)[1], atol=1e-9)

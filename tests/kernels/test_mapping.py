"""From rows to the bank, and to projections of new rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave import _array
from kernelweave._array import to_numpy
from kernelweave.exceptions import KernelWarning, MemoryRefusedError
from kernelweave.kernels import RBF, KernelMap, Linear, center_and_scale
from kernelweave.kernels.maps.kernel_map import FeatureSource, PrecomputedSource
from kernelweave.views.columns import View
from kernelweave.views.missing import ObservedViews


@pytest.fixture
def rows(rng):
    return rng.normal(size=(20, 4)), rng.normal(size=(7, 4))


def feature_source(X, xp_backend=None):
    move = np.asarray if xp_backend is None else xp_backend.asarray
    views = [View("left", [Linear(), RBF(0.2)], None), View("right", RBF(0.5), None)]
    return FeatureSource(views, [move(X[:, :2]), move(X[:, 2:])])


def raw(X, Z):
    return np.stack(
        [
            Linear()(X[:, :2], Z[:, :2]),
            RBF(0.2)(X[:, :2], Z[:, :2]),
            RBF(0.5)(X[:, 2:], Z[:, 2:]),
        ]
    )


def test_bank_holds_centred_kernels(rows, xp_backend):
    X, _ = rows
    kernel_map = KernelMap(feature_source(X, xp_backend))
    seen = []
    bank = kernel_map.fit(seen.append)
    assert seen == [0, 1, 2]
    assert_allclose(to_numpy(bank.stack), center_and_scale(raw(X, X)), atol=1e-10)
    assert kernel_map.names == bank.names
    assert kernel_map.view_names == ["left", "left", "right"]
    assert kernel_map.active == [0, 1, 2] and kernel_map.remarks == []


def test_projection_of_new_rows(rows, rng, xp_backend):
    X, new = rows
    kernel_map = KernelMap(feature_source(X, xp_backend))
    kernel_map.fit()
    weights, coef = np.array([0.2, 0.0, 0.8]), rng.normal(size=(20, 3))
    blocks = [xp_backend.asarray(new[:, :2]), xp_backend.asarray(new[:, 2:])]
    rows = ObservedViews.complete(blocks)
    found = kernel_map.project(rows, weights, xp_backend.asarray(coef))
    cross = np.zeros((7, 20))
    for weight, K, k in zip(weights, raw(X, X), raw(new, X), strict=True):
        m, g = K.mean(axis=0), K.mean()
        scale = 20 / (np.trace(K) - 20 * g)
        cross += weight * scale * (k - m - k.mean(axis=1, keepdims=True) + g)
    assert_allclose(to_numpy(found), cross @ coef, atol=1e-9)


def test_training_rows_project_to_the_bank(rows, rng):
    X, _ = rows
    kernel_map = KernelMap(feature_source(X))
    bank = kernel_map.fit()
    weights, coef = rng.uniform(size=3), rng.normal(size=(20, 2))
    same = ObservedViews.complete([X[:, :2], X[:, 2:]])
    found = kernel_map.project(same, weights, coef)
    assert_allclose(found, bank.combine(weights) @ coef, atol=1e-10)


def test_columns_and_stack_agree(rows, rng):
    X, new = rows
    weights, coef = rng.uniform(size=3), rng.normal(size=(20, 2))
    columns = KernelMap(feature_source(X))
    stack = np.moveaxis(raw(X, X), 0, -1)
    kept = stack.copy()
    kernels = KernelMap(PrecomputedSource(stack, ["a", "b", "c"]))
    assert_allclose(kernels.fit().stack, columns.fit().stack, atol=1e-12)
    assert np.array_equal(stack, kept), "the input was changed"
    assert kernels.source.stack is None, "the training kernels are still held"
    of_kernels = ObservedViews.complete(np.moveaxis(raw(new, X), 0, -1))
    of_columns = ObservedViews.complete([new[:, :2], new[:, 2:]])
    assert_allclose(
        kernels.project(of_kernels, weights, coef),
        columns.project(of_columns, weights, coef),
        atol=1e-10,
    )


def test_a_slight_asymmetry_is_averaged_out(rows):
    X, _ = rows
    stack = np.moveaxis(raw(X, X), 0, -1).copy()
    stack[3, 5, 0] += 1e-9
    bank = KernelMap(PrecomputedSource(stack, ["a", "b", "c"])).fit()
    assert_allclose(bank.stack[0], bank.stack[0].T, atol=1e-14)


@pytest.mark.parametrize("constant", [0, 1, 2])
def test_constant_kernels_leave_the_bank(constant, rows):
    X, _ = rows
    stack = np.moveaxis(raw(X, X), 0, -1).copy()
    stack[:, :, constant] = 4.0
    kernel_map = KernelMap(PrecomputedSource(stack, ["a", "b", "c"]))
    name = "abc"[constant]
    with pytest.warns(
        KernelWarning, match=rf"kernel {constant} \('{name}'\).*constant"
    ):
        bank = kernel_map.fit()
    rest = [i for i in range(3) if i != constant]
    assert kernel_map.active == rest and bank.n_kernels == 2
    assert bank.names == ["abc"[i] for i in rest]
    assert_allclose(bank.stack, center_and_scale(raw(X, X)[rest]), atol=1e-10)
    spread = kernel_map.spread(np.array([0.25, 0.75]))
    assert spread[constant] == 0.0 and spread[rest].tolist() == [0.25, 0.75]


@pytest.mark.filterwarnings("ignore::kernelweave.exceptions.KernelWarning")
def test_nothing_but_constant_kernels():
    kernel_map = KernelMap(PrecomputedSource(np.ones((5, 5, 2)), ["a", "b"]))
    with pytest.raises(ValueError, match="every kernel is constant"):
        kernel_map.fit()


def test_clipped_kernel_is_consistent_on_training_rows(rows, rng):
    X, _ = rows
    stack = np.moveaxis(raw(X, X), 0, -1).copy()
    stack[:, :, 1] -= 0.1 * np.eye(20)
    kernel_map = KernelMap(PrecomputedSource(stack.copy(), ["a", "b", "c"]), psd="clip")
    with pytest.warns(KernelWarning, match="'b'.*clipping"):
        bank = kernel_map.fit()
    (remark,) = kernel_map.remarks
    assert "'b'" in remark
    weights, coef = np.array([0.1, 0.6, 0.3]), rng.normal(size=(20, 2))
    assert_allclose(
        kernel_map.project(ObservedViews.complete(stack), weights, coef),
        bank.combine(weights) @ coef,
        atol=1e-9,
    )


def test_memory_is_counted_in_the_dtype_of_the_data(rows, monkeypatch):
    X, _ = rows
    needed = {np.float64: 7 * 400 * 8, np.float32: 7 * 400 * 4}
    for dtype, n_bytes in needed.items():
        monkeypatch.setattr(_array, "_host_bytes", lambda n=n_bytes: n - 1)
        with pytest.raises(MemoryRefusedError, match=f"{n_bytes:,} bytes"):
            KernelMap(feature_source(X.astype(dtype)), storage="matrices").fit()
        monkeypatch.setattr(_array, "_host_bytes", lambda n=n_bytes: n)
        KernelMap(feature_source(X.astype(dtype))).fit()

"""A bank of features agrees with a bank of the corresponding kernels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave._array import to_numpy
from kernelweave.kernels import DenseBank
from kernelweave.kernels.banks.features import FeatureBank

WIDTHS = [3, 1, 9]


@pytest.fixture
def banks(rng, xp_backend):
    Z = rng.normal(size=(8, 13))
    there = FeatureBank(xp_backend.asarray(Z), WIDTHS, list("abc"))
    blocks = [Z[:, :3], Z[:, 3:4], Z[:, 4:]]
    return there, DenseBank(np.stack([z @ z.T for z in blocks]), list("abc"))


@pytest.mark.parametrize("weights", [[0.2, 0.3, 0.5], [0.0, 1.0, 0.0], [1, -2, 0.5]])
def test_combine(banks, weights):
    bank, dense = banks
    expected = dense.combine(np.array(weights))
    assert_allclose(to_numpy(bank.combine(np.array(weights))), expected, atol=1e-12)
    again = bank.combine(np.array(weights), out=bank.combine(np.ones(3)))
    assert_allclose(to_numpy(again), expected, atol=1e-12)
    assert_allclose(to_numpy(bank.combine(np.zeros(3))), 0.0)


def test_products(banks, rng, xp_backend):
    bank, dense = banks
    b = rng.normal(size=(8, 2))
    there = xp_backend.asarray(b)
    assert_allclose(to_numpy(bank.apply(there)), dense.apply(b), atol=1e-12)
    assert_allclose(to_numpy(bank.quad(there)), dense.quad(b), atol=1e-12)
    assert_allclose(bank.sizes(np.arange(3)), dense.sizes(np.arange(3)))
    assert bank.n_rows == dense.n_rows == 8
    single = xp_backend.asarray(b, "float32")
    assert bank.apply(single).dtype == single.dtype


@pytest.mark.parametrize("widths", [[3, 0, 10], [0, 13], [13, 0]])
def test_a_kernel_without_features_is_zero(rng, widths):
    Z, b = rng.normal(size=(8, 13)), rng.normal(size=(8, 2))
    bank = FeatureBank(Z, widths)
    expected = [np.sum(b * (bank.kernel(i) @ b)) for i in range(len(widths))]
    assert_allclose(bank.quad(b), expected, atol=1e-12)


def test_subset(banks, rng):
    bank, dense = banks
    some, same = bank.subset(np.array([0, 2])), dense.subset(np.array([0, 2]))
    assert some.names == same.names == ["a", "c"] and some.n_kernels == 2
    w = np.array([0.3, 0.4])
    assert_allclose(to_numpy(some.combine(w)), same.combine(w), atol=1e-12)
    assert_allclose(same.stack[1], dense.stack[2])
    assert bank.restrict(np.arange(8)) is bank  # no copy


def test_triangular_features_take_a_short_cut(rng):
    U = np.concatenate([np.triu(rng.normal(size=(13, 13))), np.zeros((2, 13))])
    short, long = (FeatureBank(U, WIDTHS, triangular=t) for t in (True, False))
    out = None
    for weights in ([0.2, 0.3, 0.5], [0.0, 1.0, 0.0], [1.0, -1.0, 2.0]):
        out = short.combine(np.array(weights), out=out)
        assert_allclose(out, long.combine(np.array(weights)), atol=1e-12)
        assert_allclose(out, out.T)
    # a subset of the columns is no longer triangular
    part = short.subset(np.array([1, 2]))
    assert not part.triangular


def test_columns_must_fit():
    with pytest.raises(ValueError, match=r"5 columns are needed.*\(4, 3\)"):
        FeatureBank(np.ones((4, 3)), [2, 3])

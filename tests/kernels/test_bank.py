"""Products of the dense bank against plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave._array import inner_products, is_numpy, to_numpy
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.kernels.banks.spectral import spectral_bank

SHAPES = pytest.mark.parametrize(("p", "n", "k"), [(1, 2, 1), (3, 11, 1), (7, 20, 4)])
DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])


def draw(rng, p, n):
    factors = rng.normal(size=(p, n, 3))
    return center_and_scale(factors @ factors.transpose(0, 2, 1))


def tolerance(dtype):
    size = 1e-11 if dtype == "float64" else 1e-4
    return {"rtol": size, "atol": size}


def test_from_kernels_centres_a_copy(rng, xp_backend):
    factors = rng.normal(size=(3, 11, 4)) + 2.0
    given = xp_backend.asarray(factors @ factors.transpose(0, 2, 1))
    before = to_numpy(given).copy()
    bank = DenseBank.from_kernels(given, ["a", "b", "c"])
    found = to_numpy(bank.stack)
    assert bank.names == ["a", "b", "c"]
    assert_allclose(found.sum(axis=1), 0.0, atol=1e-10)
    assert_allclose(np.trace(found, axis1=1, axis2=2), 11.0)
    P = np.eye(11) - 1 / 11
    assert_allclose(found[1], 11 * P @ before[1] @ P / np.trace(P @ before[1] @ P))
    np.testing.assert_array_equal(to_numpy(given), before)
    with pytest.raises(ValueError, match=r"\(p, n, n\); got shape \(11, 11\)"):
        DenseBank.from_kernels(given[0, :, :])


def test_integers_and_lists_become_floats(rng):
    links = (rng.uniform(size=(2, 6, 6)) < 0.4).astype(int)
    links = links @ links.transpose(0, 2, 1)
    expected = center_and_scale(links.astype(float), np.arange(1.0, 7.0))
    for given in (links, links.tolist()):
        weighted = center_and_scale(given, [1, 2, 3, 4, 5, 6])
        np.testing.assert_array_equal(weighted, expected)
        assert DenseBank.from_kernels(given).stack.dtype == np.float64
    with pytest.raises(ValueError, match=r"\(p, n, n\); got shape \(6, 6\)"):
        center_and_scale(links[0])
    with pytest.raises(ValueError, match="one per row; got"):
        center_and_scale(links, [1.0, 2.0])
    for made in (DenseBank, center_and_scale, lambda K: spectral_bank(K[0])):
        for wrong, found in ((links * 1j, "complex128"), (links.astype(str), "<U")):
            with pytest.raises(
                ValueError, match=f"must hold real numbers; got {found}"
            ):
                made(wrong)


@SHAPES
@DTYPES
def test_combine(p, n, k, dtype, rng, xp_backend):
    stack, weights = draw(rng, p, n), rng.uniform(size=p)
    bank = DenseBank(xp_backend.asarray(stack, dtype))
    expected = np.einsum("i,ijk->jk", weights, stack)
    for entries in (bank.block_entries, 1, 3 * p * n):
        bank.block_entries = entries
        found = bank.combine(weights)
        assert found.dtype == bank.stack.dtype
        assert_allclose(to_numpy(found), expected, **tolerance(dtype))
    bank.many_samples, bank.triangle_rows = 0, 4
    half = np.triu if is_numpy(found) else np.tril  # what cholesky reads
    found = bank.combine(2 * weights, out=found, lower=True)
    assert_allclose(half(to_numpy(found)), half(2 * expected), **tolerance(dtype))
    again = bank.combine(np.zeros(p), out=found)
    assert again is found
    assert_allclose(to_numpy(again), 0.0)
    assert_allclose(to_numpy(bank.stack), stack, **tolerance(dtype))


@SHAPES
@pytest.mark.parametrize(
    ("dtype", "b_dtype"),
    # Certificates widen kernels; nothing asks for less precision than they have.
    [("float64", "float64"), ("float32", "float32"), ("float32", "float64")],
)
def test_apply_and_quad(p, n, k, dtype, b_dtype, rng, xp_backend):
    stack, b = draw(rng, p, n), rng.normal(size=(n, k))
    bank = DenseBank(xp_backend.asarray(stack, dtype))
    right = xp_backend.asarray(b, b_dtype)
    # The kernels as stored, widened to the precision of b.
    kept = to_numpy(bank.stack).astype(np.float64)
    applied, quad = bank.apply(right), bank.quad(right)
    assert applied.dtype == right.dtype and quad.dtype == np.float64
    assert applied.shape == (p, n, k) and quad.shape == (p,)
    assert_allclose(
        to_numpy(applied), np.einsum("ijk,kl->ijl", kept, b), **tolerance(b_dtype)
    )
    expected = np.einsum("jl,ijk,kl->i", b, kept, b)
    assert_allclose(quad, expected, **tolerance(b_dtype))
    assert_allclose(inner_products(applied, right), expected, **tolerance(b_dtype))


def test_float32_kernels_are_widened_by_blocks(rng, xp_backend):
    stack, b = draw(rng, 3, 17), rng.normal(size=(17, 2))
    bank = DenseBank(xp_backend.asarray(stack, "float32"))
    right = xp_backend.asarray(b)
    whole = to_numpy(bank.apply(right))
    bank.block_entries = 2 * 17
    assert_allclose(to_numpy(bank.apply(right)), whole, rtol=1e-12)


def test_names(rng):
    stack = draw(rng, 2, 5)
    assert DenseBank(stack).names == ["kernel 0", "kernel 1"]
    assert DenseBank(stack, ["a", "b"]).names == ["a", "b"]
    bank = DenseBank(stack)
    assert (bank.n_kernels, bank.n_samples) == (2, 5)


@pytest.mark.parametrize("shape", [(5, 5), (5, 4, 3), (4, 4, 2), (1, 2, 3, 3)])
def test_bad_shape(shape):
    with pytest.raises(ValueError, match=r"\(p, n, n\); got shape") as caught:
        DenseBank(np.zeros(shape))
    assert str(shape) in str(caught.value)

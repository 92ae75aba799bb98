"""Rank-one kernels from eigenvectors: their sum, and new rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from kernelweave._array import to_numpy
from kernelweave.kernels import DenseBank, SpectralBank, center_and_scale, spectral_bank
from kernelweave.weights import SignedSum


def gaussian(A, B):
    squared = np.sum((A[:, None, :] - B[None, :, :]) ** 2, axis=2)
    return np.exp(-0.3 * squared)


def test_the_eigenvalues_are_the_weights_that_give_the_kernel_back(rng):
    X = rng.standard_normal((9, 3))
    K = gaussian(X, X)
    bank = spectral_bank(K)
    assert isinstance(bank, SpectralBank) and isinstance(bank, DenseBank)
    np.testing.assert_allclose(bank.combine(bank.eigenvalues / 9), K, atol=1e-12)
    np.testing.assert_allclose(np.trace(bank.stack, axis1=1, axis2=2), 9.0)
    assert np.all(np.diff(bank.eigenvalues) <= 0)
    assert np.all(np.linalg.matrix_rank(bank.stack, tol=1e-9) == 1)


def test_centred_kernels_give_centred_kernels(rng):
    X = rng.standard_normal((9, 3))
    bank = spectral_bank(center_and_scale(gaussian(X, X)[None])[0])
    assert bank.n_kernels == 8  # the vector of ones is in the null space
    np.testing.assert_allclose(np.sum(bank.stack, axis=1), 0.0, atol=1e-10)


def test_only_as_many_as_the_rank(rng):
    Z = rng.standard_normal((10, 3))
    assert spectral_bank(Z @ Z.T).n_kernels == 3
    assert spectral_bank(Z @ Z.T, 2).names == ["eigenvector 0", "eigenvector 1"]
    with pytest.raises(ValueError, match=r"an integer from 1 to 3, .* got 4"):
        spectral_bank(Z @ Z.T, 4)


def test_new_rows_extend_old_ones(rng):
    X, new = rng.standard_normal((12, 2)), rng.standard_normal((4, 2))
    bank = spectral_bank(gaussian(X, X), 5)
    np.testing.assert_allclose(bank.cross(gaussian(X, X)), bank.stack, atol=1e-9)
    cross = bank.cross(gaussian(new, X))
    assert cross.shape == (5, 4, 12)
    # All eigenvectors, weighted by their eigenvalues, recover the base kernel.
    every = spectral_bank(gaussian(X, X))
    total = np.tensordot(every.eigenvalues / 12, every.cross(gaussian(new, X)), 1)
    np.testing.assert_allclose(total, gaussian(new, X), atol=1e-6)
    with pytest.raises(ValueError, match=r"12 rows of the bank; got .* \(4, 3\)"):
        bank.cross(np.ones((4, 3)))


def test_a_sum_is_semidefinite_only_without_negative_weights(rng):
    X = rng.standard_normal((8, 2))
    weight_set = SignedSum(spectral_bank(gaussian(X, X), 4))
    assert weight_set.violation(np.array([0.2, 0.3, 0.5, 0.0])) <= 1e-12
    # eigenvalues: the weights times n; the largest of the mean kernel is n / 4
    found = weight_set.violation(np.array([0.6, 0.3, 0.2, -0.1]))
    assert found == pytest.approx(0.4)


def test_every_array_library(xp_backend, rng):
    X = rng.standard_normal((7, 2))
    K = gaussian(X, X)
    there = xp_backend.xp.asarray(K, device=xp_backend.device)
    bank = spectral_bank(there, 3)
    np.testing.assert_allclose(
        to_numpy(bank.stack), spectral_bank(K, 3).stack, atol=1e-10
    )
    np.testing.assert_allclose(to_numpy(there), K)  # the input is unchanged


BAD = {
    "shape": (np.ones((3, 2)), r"square matrix \(n, n\); got shape \(3, 2\)"),
    "asymmetric": (np.triu(np.ones((3, 3))), "not symmetric"),
    "nan": (np.full((3, 3), np.nan), "NaN"),
    "zero": (np.zeros((3, 3)), "no positive eigenvalue"),
    "negative": (-np.eye(3), "no positive eigenvalue"),
}


@pytest.mark.parametrize("K, message", BAD.values(), ids=BAD)
def test_bad_input_is_named(K, message):
    with pytest.raises(ValueError, match=message):
        spectral_bank(K)


def test_a_sparse_kernel_is_refused(rng):
    Z = rng.standard_normal((10, 3))
    for make in (spectral_bank, DenseBank):
        with pytest.raises(TypeError, match=r"must be dense.*csr_array.*\.toarray\(\)"):
            make(csr_array(Z @ Z.T))

"""Kernels that are positive semidefinite, nearly so, or not at all."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave import KernelFDA, MultipleKernelSVC
from kernelweave._array import to_numpy
from kernelweave.criteria.alignment import Alignment
from kernelweave.dependence import hsic
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.subspace import label_factor
from kernelweave.kernels import DenseBank
from kernelweave.kernels.banks.spectral import spectral_bank
from kernelweave.kernels.centering import Standard, center_in_place
from kernelweave.kernels.checks import ensure_psd
from kernelweave.kernels.maps.kernel_map import KernelMap, PrecomputedSource

N = 30


def with_lowest(rng, lowest, dtype=float):
    """A centred kernel of trace n with one eigenvalue equal to ``lowest`` times n."""
    basis, _ = np.linalg.qr(np.column_stack([np.ones(N), rng.normal(size=(N, N - 1))]))
    values = rng.uniform(0.5, 1.5, size=N - 1)
    values[0] = 0.0
    values *= N * (1 - lowest) / np.sum(values)
    values[0] = lowest * N
    return (basis[:, 1:] * values) @ basis[:, 1:].T


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("policy", ["error", "clip"])
def test_semidefinite_kernels_pass_unchanged(dtype, policy, rng, xp_backend):
    for rank in (1, 3, N - 1, 100):
        X = rng.normal(size=(N, rank))
        K = xp_backend.asarray(X @ X.T, dtype)
        center_in_place(K)
        before = to_numpy(K).copy()
        assert ensure_psd(K, "kernel 'a'", policy) == (None, None), rank
        assert np.array_equal(to_numpy(K), before)


@pytest.mark.parametrize("lowest", [-1e-10, -1e-8, -5e-7])
@pytest.mark.parametrize("policy", ["error", "clip"])
def test_within_rounding_the_diagonal_is_raised(lowest, policy, rng, xp_backend):
    G = with_lowest(rng, lowest)
    given = xp_backend.asarray(G.copy())
    projector, remark = ensure_psd(given, "kernel 3 ('dna')", policy)
    assert projector is None
    assert remark.startswith("kernel 3 ('dna') has the eigenvalue -")
    assert "within rounding" in remark and "was added to its diagonal" in remark
    assert_allclose(to_numpy(given), G - lowest * N * np.eye(N), atol=1e-12)
    assert np.linalg.eigvalsh(to_numpy(given))[0] > -1e-12


def test_rounding_of_single_precision_is_larger(rng, xp_backend):
    given = xp_backend.asarray(with_lowest(rng, -1e-6), "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        projector, _ = ensure_psd(given, "k", "error")
    assert projector is None


@pytest.mark.parametrize("level", [None, 1e-9, 1e9])
def test_a_narrow_kernel_takes_no_factorisation(level, rng, xp_backend, monkeypatch):
    places = rng.permutation(N)  # rows at a distance of at least one
    K = xp_backend.asarray(np.exp(-5.0 * (places[:, None] - places) ** 2))
    center_in_place(K)
    K *= level or 1.0
    monkeypatch.setattr("kernelweave.kernels.checks.cholesky", pytest.fail)
    assert ensure_psd(K, "k", "error", level=level) == (None, None)


@pytest.mark.parametrize("size", [0.01, 0.5, 3.0])
def test_a_negative_eigenvalue_along_the_ones_is_found(size, rng, xp_backend):
    """Without centring, nothing is known about that direction."""
    K = with_lowest(rng, 0.0) - size / N
    with pytest.raises(ValueError, match=f"smallest eigenvalue is -{size:.3g} "):
        ensure_psd(xp_backend.asarray(K), "k", "error")


@pytest.mark.parametrize("excess", [1e-3, 0.5])
def test_one_pair_of_rows_makes_a_narrow_kernel_indefinite(excess, xp_backend):
    K = np.eye(N)
    K[-1, -2] = K[-2, -1] = 1.0 + excess
    K = xp_backend.asarray(K)
    center_in_place(K)
    with pytest.raises(ValueError, match="k is not positive semidefinite"):
        ensure_psd(K, "k", "error")


@pytest.mark.parametrize("lowest", [-2e-6, -1e-3, -0.3])
def test_indefinite_kernels_are_refused(lowest, rng, xp_backend):
    given = xp_backend.asarray(with_lowest(rng, lowest))
    with pytest.raises(ValueError) as caught:
        ensure_psd(given, "kernel 3 ('dna')", "error")
    message = str(caught.value)
    assert message.startswith("kernel 3 ('dna') is not positive semidefinite")
    assert f"smallest eigenvalue is {lowest * N:.3g}" in message
    assert "trace 30" in message and "psd='clip'" in message


@pytest.mark.parametrize("policy", ["error", "clip"])
def test_a_largest_eigenvalue_of_rounding_is_stated_as_zero(policy, rng):
    """Nothing would be left of such a kernel if it were clipped."""
    direction = rng.normal(size=N)
    direction -= direction.mean()
    given = np.outer(direction, direction) * (-N / (direction @ direction))
    with pytest.raises(ValueError, match=r"\(the largest is 0\); .* times -1"):
        ensure_psd(given, "kernel 3", policy)


@pytest.mark.parametrize("lowest", [-2e-6, -1e-3, -0.3])
def test_clipping(lowest, rng, xp_backend):
    G = with_lowest(rng, lowest)
    given = xp_backend.asarray(G.copy())
    with pytest.warns(KernelWarning, match=r"kernel 3 \('dna'\) was indefinite"):
        projector, remark = ensure_psd(given, "kernel 3 ('dna')", "clip")
    clipped, projector = to_numpy(given), to_numpy(projector)
    values, vectors = np.linalg.eigh(G)
    expected = (vectors * np.maximum(values, 0.0)) @ vectors.T
    assert_allclose(clipped, expected * N / np.trace(expected), atol=1e-10)
    assert_allclose(np.trace(clipped), N)
    assert_allclose(clipped.sum(axis=0), 0.0, atol=1e-10)
    # A training row passed as a new row gives the row of the training kernel.
    assert_allclose(G @ projector, clipped, atol=1e-10)
    share = -values[0] / np.sum(np.abs(values))
    assert f"removed {100 * share:.2g} %" in remark


def test_trust_does_not_look():
    """An indefinite kernel passes unchecked; a valid one gives the same model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    y = np.repeat([0, 1], 15)
    good, bad = X @ X.T, np.tanh(3 * X @ X.T - 2)
    checked = KernelFDA("precomputed", alpha=100.0, cv=None).fit(good, y)
    trusted = KernelFDA("precomputed", alpha=100.0, psd="trust", cv=None).fit(good, y)
    np.testing.assert_array_equal(checked.dual_coef_, trusted.dual_coef_)
    with pytest.raises(ValueError, match="not positive semidefinite"):
        KernelFDA("precomputed", alpha=100.0, cv=None).fit(bad, y)
    KernelFDA("precomputed", alpha=100.0, psd="trust", cv=None).fit(bad, y)


#: Everything that is handed a symmetric matrix by its user.
TAKERS = {
    "hsic": lambda K: hsic(K, np.eye(len(K))),
    "spectral_bank": lambda K: spectral_bank(K).eigenvalues,
    "Alignment": lambda K: Alignment(DenseBank(K[None]), target_kernel=K).cosines,
    "label_factor": lambda K: label_factor(np.arange(len(K)), len(K), K),
}


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
def test_rounding_of_single_precision_is_no_asymmetry(take, rng):
    """A kernel that was computed in float32 and handed over in float64."""
    F = rng.normal(size=(12, 12)).astype(np.float32)
    K = (F @ F.T + 12 * np.eye(12)).astype(np.float64)
    bent = K.copy()
    bent[3, 5] += 1e-6 * np.max(K)
    np.testing.assert_allclose(take(bent), take((bent + bent.T) / 2), rtol=1e-12)
    bent[3, 5] += 1e-2 * np.max(K)
    with pytest.raises(ValueError, match=r"is not symmetric: entry \((3, 5|5, 3)\)"):
        take(bent)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_rounding_is_measured_by_the_scale_of_a_kernel(unit, rng):
    for lowest in (-1e-8, -1e-3):
        G = with_lowest(rng, lowest)
        given = unit * G
        if lowest < -1e-6:
            with pytest.raises(ValueError, match="not positive semidefinite"):
                ensure_psd(given, "k", "error", level=unit)
        else:
            _, remark = ensure_psd(given, "k", "error", level=unit)
            assert "within rounding" in remark
            assert np.linalg.eigvalsh(given)[0] > -1e-12 * unit


@pytest.mark.parametrize("diagonal", [3.0, -1.0])
@pytest.mark.parametrize("unit", [1e-9, 1e3])
def test_a_kernel_that_is_not_scaled_keeps_its_unit_when_it_is_clipped(
    unit, diagonal, rng
):
    """Also where its trace is negative."""
    K, y = rng.normal(size=(N, N)), np.arange(N) % 2
    K = K + K.T + diagonal * np.eye(N)
    found = []
    for u in (1.0, unit):
        model = MultipleKernelSVC("precomputed", scale=None, psd="clip", C=0.1 / u)
        with pytest.warns(KernelWarning, match="was indefinite"):
            model.fit(u * K, y)
        found.append(model.decision_function(u * K))
    assert_allclose(found[1], found[0], atol=1e-6)
    with pytest.raises(ValueError, match="not positive semidefinite"):
        MultipleKernelSVC("precomputed", scale=None).fit(unit * K, y)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("diagonal", [3.0, -1.0])
def test_the_level_of_a_clipped_kernel_is_its_mean_eigenvalue(centre, diagonal, rng):
    K, weights = rng.normal(size=(N, N)), rng.uniform(0.2, 3.0, N)
    K = K + K.T + diagonal * np.eye(N)
    for given, total in ((None, N), (weights, np.sum(weights))):
        source = PrecomputedSource(K[:, :, None], ["k"])
        kernel_map = KernelMap(source, "clip", given, standard=Standard(centre, None))
        with pytest.warns(KernelWarning, match="was indefinite"):
            bank = kernel_map.fit()
        # row weights are part of the bank
        assert_allclose(np.trace(bank.kernel(0)), kernel_map.levels[0] * total)

"""Subspaces against the eigenproblems of the theorems, their limits and values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from kernelweave._array import to_numpy
from kernelweave.criteria import Fisher
from kernelweave.fits.subspace import (
    RegularizedKernel,
    decorrelated,
    label_factor,
    normalized,
)
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.solvers.local.subspace import _Alignment, align_subspace
from kernelweave.weights import Simplex

BOTH = pytest.mark.parametrize("uncorrelated", [False, True])


def centred(K):
    P = np.eye(len(K)) - 1 / len(K)
    return P @ K @ P


def known_problem():
    """A problem with known values: three classes, 60 rows, 4 columns."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.standard_normal((3, 4))[y] * 1.2 + rng.standard_normal((60, 4))
    return X, y, np.sum((X[:, None] - X[None]) ** 2, axis=-1)


def random_problem(rng, n=40, k=4, rank=None):
    y = np.arange(n) % k
    Z = rng.normal(size=(n, rank or 2 * n)) + 0.5 * rng.normal(size=(k, 1))[y]
    return centred(Z @ Z.T / Z.shape[1]), y, label_factor(y, k)


def eigenproblem(G, L, alpha, size, uncorrelated):
    """The subspace kernel from the n x n eigenproblem of the theorem."""
    M = G @ L @ L.T @ G
    N = G @ G + alpha * G if uncorrelated else G + alpha * np.eye(len(G))
    if uncorrelated:  # N is singular along the vector of ones, where M vanishes too
        N = N + 1.0 / len(G)
    _, vectors = linalg.eigh(M, N, subset_by_index=[len(G) - size, len(G) - 1])
    F = G @ vectors
    return F @ F.T


@pytest.mark.parametrize(
    ("alpha", "w", "q", "trace_w", "trace_q"),
    [
        (
            0.01,
            [5.36463477, 2.56797859],
            [0.95613709, 0.91643483],
            12.3030752417,
            1.9126945536,
        ),
        (
            1.0,
            [4.69195702, 2.07860684],
            [0.68517302, 0.49560218],
            10.8652546055,
            1.5742604500,
        ),
    ],
)
def test_known_values(alpha, w, q, trace_w, trace_q):
    _, y, squared = known_problem()
    G = centred(np.exp(-squared / 5))
    assert np.trace(G) == pytest.approx(48.352452184652414, rel=1e-12)
    kernel = RegularizedKernel(G, alpha)
    for uncorrelated, values, trace in ((False, w, trace_w), (True, q, trace_q)):
        found = kernel.subspace(label_factor(y, 3), uncorrelated=uncorrelated)
        np.testing.assert_allclose(found.dependence, values, rtol=1e-8)
        assert np.sum(found.features**2) == pytest.approx(trace, rel=1e-9)


@pytest.mark.parametrize(
    ("xi", "value", "weights"),
    [
        (1e-3, 0.07932728578749, (0.82488005, 0.00986662, 0.16525333)),
        (1e-2, 0.49873974541974, (0.68517086, 0.07338705, 0.24144209)),
        (1e-1, 1.13722712943372, (0, 0.00284136, 0.99715864)),
    ],
)
def test_known_weights_are_those_of_the_fisher_criterion(xi, value, weights):
    """Eq. 27 for kernels of trace one; alpha = n xi for those of trace n."""
    from kernelweave import solve

    _, y, squared = known_problem()
    widths = np.array([0.5, 5, 50])[:, None, None]
    bank = DenseBank(center_and_scale(np.exp(-squared / widths)))
    criterion = Fisher(bank, label_factor(y, 3), 60 * xi)
    solution = solve(criterion, Simplex(), tol=1e-10)
    assert solution.value == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(solution.weights, weights, atol=2e-5)


@BOTH
def test_features_keep_their_digits_next_to_a_large_alpha(rng, uncorrelated):
    G, _, L = random_problem(rng)
    found = RegularizedKernel(G, 1e9).subspace(L, uncorrelated=uncorrelated)
    np.testing.assert_allclose(found.features, G @ found.coef, rtol=1e-9, atol=1e-15)


def test_uncentred_label_kernel_adds_one(rng):
    """Eq. 27 with ``Y (Y'Y)^-1 Y'`` as printed: the weights are not affected."""
    G, y, L = random_problem(rng)
    Y = np.eye(4)[y]
    H = Y @ np.linalg.inv(Y.T @ Y) @ Y.T
    for xi in (1e-3, 1.0):
        printed = np.trace(np.linalg.solve(np.eye(40) + G / xi, H))
        found = Fisher(DenseBank(G[None]), L, xi).evaluate(np.ones(1)).value
        assert printed == pytest.approx(found + 1.0, rel=1e-9)


@pytest.mark.parametrize("kernel", ["normalized", "indicator", "matrix"])
def test_three_solvers_of_the_weights_agree(rng, kernel):
    """The SDP (30), the SILP (35) and Newton's method on Eq. 27, to 1e-6."""
    pytest.importorskip("cvxpy")
    from kernelweave import solve

    n, k = 21, 3
    y = np.arange(n) % k
    X = rng.normal(size=(n, 3)) + 1.5 * rng.normal(size=(k, 3))[y]
    squared = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    widths = np.array([0.5, 5.0, 50.0])[:, None, None]
    bank = DenseBank(center_and_scale(np.exp(-squared / widths)))
    if kernel == "matrix":
        kernel = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]])
    L = label_factor(y, k, kernel)
    L = L / np.linalg.norm(L)
    found = {
        method: solve(Fisher(bank, L, 0.3), Simplex(), method=method, tol=tol)
        for method, tol in (("newton", 1e-9), ("cutting_plane", 5e-7), ("sdp", 1e-5))
    }
    best = found["newton"]
    assert best.converged, best.status
    for method, other in found.items():
        assert other.converged, (method, other.status)
        assert other.value == pytest.approx(best.value, rel=1e-6), method


@BOTH
@pytest.mark.parametrize("alpha", [1e-3, 0.3, 30.0])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_theorems(rng, uncorrelated, alpha, size):
    G, _, L = random_problem(rng)
    found = RegularizedKernel(G, alpha).subspace(L, size, uncorrelated)
    expected = eigenproblem(G, L, alpha, size, uncorrelated)
    scale = np.max(np.abs(expected))
    kernel = found.features @ found.features.T
    np.testing.assert_allclose(kernel, expected, atol=1e-8 * scale)
    np.testing.assert_allclose(G @ found.coef, found.features, atol=1e-9)
    np.testing.assert_allclose(found.features.sum(axis=0), 0, atol=1e-9)
    overlap = np.sum((L.T @ found.features) ** 2, axis=0)
    np.testing.assert_allclose(found.dependence, overlap, rtol=1e-8)
    assert np.all(np.diff(found.dependence) <= 0)


@BOTH
def test_normalisation(rng, uncorrelated):
    G, _, L = random_problem(rng)
    W = RegularizedKernel(G, 0.2).subspace(L, None, uncorrelated).coef
    N = G @ G + 0.2 * G if uncorrelated else G + 0.2 * np.eye(40)
    np.testing.assert_allclose(W.T @ N @ W, np.eye(3), atol=1e-9)


@BOTH
def test_closed_form_at_full_rank(rng, uncorrelated):
    G, _, L = random_problem(rng)
    F = RegularizedKernel(G, 0.5).subspace(L, None, uncorrelated).features
    T = G @ np.linalg.inv(G + 0.5 * np.eye(40))
    left = T @ L if uncorrelated else G @ T @ L
    middle = L.T @ T @ L if uncorrelated else L.T @ G @ T @ L
    expected = left @ np.linalg.pinv(middle, rtol=1e-10) @ left.T
    np.testing.assert_allclose(F @ F.T, expected, atol=1e-10)


def test_limits(rng):
    """Theorem 3.1 as alpha tends to 0 and 4.1 as it grows: the class centroids."""
    G, _, L = random_problem(rng)
    middle = np.linalg.pinv(L.T @ G @ L, rtol=1e-10)
    centroid = G @ L @ middle @ L.T @ G
    scale = np.max(np.abs(centroid))
    w = RegularizedKernel(G, 1e-9).subspace(L).features
    q = RegularizedKernel(G, 1e8).subspace(L, None, True).features
    np.testing.assert_allclose(w @ w.T, centroid, atol=1e-5 * scale)
    np.testing.assert_allclose(1e8 * q @ q.T, centroid, atol=1e-5 * scale)
    block = RegularizedKernel(G, 1e-9).subspace(L, None, True).features
    np.testing.assert_allclose(block @ block.T, L @ L.T, atol=1e-4)


@BOTH
def test_there_are_no_more_directions_than_the_rank(rng, uncorrelated):
    G, y, L = random_problem(rng)
    kernel = RegularizedKernel(G, 0.1)
    all_of_them = kernel.subspace(L, 100, uncorrelated)
    assert all_of_them.coef.shape == (40, 3)
    # a factor that includes the null direction gives the same number
    more = label_factor(y, 4, np.eye(4))
    again = kernel.subspace(more, None, uncorrelated)
    assert again.coef.shape == (40, 3)
    # fewer directions are the leading ones
    few = kernel.subspace(L, 2, uncorrelated)
    np.testing.assert_allclose(few.coef, all_of_them.coef[:, :2], rtol=1e-9)
    # the rank of the kernel limits the number too
    G, _, L = random_problem(rng, rank=2)
    found = RegularizedKernel(G, 0.1).subspace(L, None, uncorrelated)
    assert found.coef.shape[1] == 2


@BOTH
def test_order_of_rows_does_not_matter(rng, uncorrelated):
    G, _, L = random_problem(rng)
    order = rng.permutation(40)
    found = RegularizedKernel(G, 0.1).subspace(L, None, uncorrelated)
    moved = RegularizedKernel(G[np.ix_(order, order)], 0.1).subspace(
        L[order], None, uncorrelated
    )
    np.testing.assert_allclose(moved.coef, found.coef[order], atol=1e-9)
    np.testing.assert_allclose(moved.features, found.features[order], atol=1e-9)


def test_decorrelated_features(rng):
    G, _, L = random_problem(rng)
    alpha = 1.0
    plain = RegularizedKernel(G, alpha).subspace(L, None, True)
    Q, F = plain.coef, plain.features  # Eq. 19 in place of Eq. 15: not uncorrelated
    np.testing.assert_allclose(F.T @ F, np.eye(3) - alpha * Q.T @ G @ Q, atol=1e-9)
    assert abs(np.corrcoef(plain.features.T)[0, 1]) > 1e-8
    found = decorrelated(plain, L, alpha)
    covariance = found.features.T @ found.features
    off = covariance - np.diag(np.diag(covariance))
    np.testing.assert_allclose(off, 0, atol=1e-12)
    assert np.all(np.diag(covariance) <= 1 + 1e-12)
    np.testing.assert_allclose(
        found.features @ found.features.T,
        plain.features @ plain.features.T,
        atol=1e-12,
    )
    N = G @ G + alpha * G
    np.testing.assert_allclose(found.coef.T @ N @ found.coef, np.eye(3), atol=1e-9)
    assert np.sum(found.dependence) == pytest.approx(np.sum(plain.dependence))


def test_normalized_depends_on_the_span_only(rng):
    G, _, L = random_problem(rng)
    kernel = RegularizedKernel(G, 0.3)
    best = kernel.subspace(L, 2)
    mixed = normalized(kernel, best.coef @ rng.normal(size=(2, 2)), L)
    np.testing.assert_allclose(mixed.coef, best.coef, atol=1e-7)
    np.testing.assert_allclose(mixed.dependence, best.dependence, rtol=1e-9)


def test_alignment_gradient(rng):
    G, _, L = random_problem(rng, n=25)
    problem = _Alignment(RegularizedKernel(G, 0.1), L)
    U, D = rng.normal(size=(2, 25, 2))
    _, slope = problem.evaluate(U)
    ahead, back = (problem.evaluate(U + h * D)[0] for h in (1e-5, -1e-5))
    assert np.sum(slope * D) == pytest.approx((ahead - back) / 2e-5, rel=1e-5)
    np.testing.assert_allclose(U.T @ slope, 0, atol=1e-9)  # only the span counts


def test_alignment_is_that_of_centred_coefficients(rng):
    """Others would have norms in the factor that they do not have in Eq. 6."""
    G, _, L = random_problem(rng, n=25)
    kernel = RegularizedKernel(G, 0.1)
    problem = _Alignment(kernel, L)
    U, apart = rng.normal(size=(25, 2)), rng.normal(size=(1, 2))
    value, slope = problem.evaluate(U)
    assert problem.evaluate(U + problem.null @ apart)[0] == pytest.approx(value)
    np.testing.assert_allclose(problem.null.T @ slope, 0, atol=1e-12)
    W = linalg.solve_triangular(
        np.tril(kernel.factor), problem.centred(U), trans=1, lower=True
    )
    np.testing.assert_allclose(W.sum(axis=0), 0, atol=1e-9)
    F, inner = G @ W, W.T @ (G + 0.1 * np.eye(25)) @ W
    K, H = F @ np.linalg.solve(inner, F.T), L @ L.T
    cosine = np.sum(K * H) / np.linalg.norm(K) / np.linalg.norm(H)
    assert value == pytest.approx(cosine, rel=1e-9)


def test_alignment_improves_on_hsic():
    _, y, squared = known_problem()
    kernel = RegularizedKernel(centred(np.exp(-squared / 5)), 0.1)
    L = label_factor(y, 3)
    found = align_subspace(kernel, L, max_iter=2000, tol=1e-2)
    F = found.subspace.features
    K, H = F @ F.T, L @ L.T
    cosine = np.sum(K * H) / np.linalg.norm(K) / np.linalg.norm(H)
    assert found.value == pytest.approx(cosine, rel=1e-9)
    assert found.converged
    assert found.value > 0.99 > found.start  # measured: 0.998 and 0.63
    W = found.subspace.coef
    M = kernel.gram + 0.1 * np.eye(60)
    np.testing.assert_allclose(W.T @ M @ W, np.eye(2), atol=1e-9)
    stopped = align_subspace(kernel, L, callback=lambda row: row.iteration >= 3)
    assert stopped.n_iter == 3 and not stopped.converged


@BOTH
def test_other_libraries_and_float32(rng, xp_backend, uncorrelated):
    G, _, L = random_problem(rng)
    expected = RegularizedKernel(G, 0.1).subspace(L, None, uncorrelated)
    for dtype, atol in (("float64", 1e-9), ("float32", 5e-3)):
        there = (xp_backend.asarray(a, dtype) for a in (G, L))
        gram, target = there
        found = RegularizedKernel(gram, 0.1).subspace(target, None, uncorrelated)
        assert found.features.dtype == gram.dtype
        np.testing.assert_allclose(
            to_numpy(found.features),
            expected.features,
            atol=atol * np.max(np.abs(expected.features)),
        )


def test_bad_input(rng):
    G, _, L = random_problem(rng)
    for alpha in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="alpha must be a finite number > 0"):
            RegularizedKernel(G, alpha)
    with pytest.raises(ValueError, match="does not depend on the labels"):
        RegularizedKernel(0 * G, 1.0).subspace(L)

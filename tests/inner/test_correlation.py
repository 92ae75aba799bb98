"""The inner k x k problem: feasibility, the gap, closed forms and an SDP solver."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.inner.correlation import (
    ComplementaryPair,
    maximize_correlation,
    nearest_correlation,
)


def random_psd(rng, k, rank):
    b = rng.normal(size=(k, rank))
    return b @ b.T


CASES = {
    "k=1": lambda rng: np.array([[3.0]]),
    "k=2": lambda rng: random_psd(rng, 2, 2),
    "rank one": lambda rng: random_psd(rng, 5, 1),
    "rank two": lambda rng: random_psd(rng, 10, 2),
    "full": lambda rng: random_psd(rng, 12, 12),
    "k=60": lambda rng: random_psd(rng, 60, 20),
    "indefinite": lambda rng: random_psd(rng, 6, 3) - random_psd(rng, 6, 2),
    "negative": lambda rng: -random_psd(rng, 4, 4),
    "identity": lambda rng: np.eye(4),
    "zero row": lambda rng: np.diag([2.0, 0.0, 1.0]),
    "balanced": lambda rng: np.eye(4) - 0.25,  # a whole face of maximisers
    "ill scaled": lambda rng: (
        random_psd(rng, 6, 6) * np.outer(*[10.0 ** rng.uniform(-8, 8, 6)] * 2)
    ),
    "tiny": lambda rng: 1e-200 * random_psd(rng, 3, 3),
    "huge": lambda rng: 1e200 * random_psd(rng, 3, 3),
}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_both_solutions_are_feasible_and_close_the_gap(make, rng):
    a = make(rng)
    k, size = len(a), np.max(np.abs(a))
    found = maximize_correlation(a)
    assert np.allclose(np.diag(found.correlation), 1, atol=1e-14)
    assert np.linalg.eigvalsh(found.correlation)[0] >= -1e-14 * k
    slack = np.diag(found.diagonal / size) - a / size
    assert np.linalg.eigvalsh(slack)[0] >= -1e-14 * k
    assert np.isclose(found.value, np.sum(found.correlation * a), rtol=1e-12)
    assert np.isclose(found.upper, np.sum(found.diagonal), rtol=1e-12)
    assert found.upper >= found.value - 1e-15 * k * size
    assert found.upper - found.value <= 2e-12 * max(found.upper, size)
    assert found.n_iter <= 40


def test_zero_matrix():
    found = maximize_correlation(np.zeros((3, 3)))
    assert found.value == found.upper == found.mu == 0.0
    assert np.array_equal(found.correlation, np.eye(3))
    assert np.array_equal(found.curvature(np.ones((2, 3, 3))), np.zeros((2, 2)))


@pytest.mark.parametrize("k", [2, 3, 8])
def test_rank_one_maximum_is_the_squared_l1_norm(k, rng):
    a = rng.normal(size=k)
    found = maximize_correlation(np.outer(a, a))
    assert np.isclose(found.value, np.sum(np.abs(a)) ** 2, rtol=1e-11)
    assert np.allclose(found.correlation, np.outer(np.sign(a), np.sign(a)), atol=1e-5)


def test_two_by_two_in_closed_form(rng):
    a = random_psd(rng, 2, 2)
    expected = a[0, 0] + a[1, 1] + 2 * abs(a[0, 1])
    assert np.isclose(maximize_correlation(a).value, expected, rtol=1e-11)


@pytest.mark.parametrize("k", [3, 6])
def test_agrees_with_an_sdp_solver(k, rng):
    cp = pytest.importorskip("cvxpy")
    a = random_psd(rng, k, k - 1)
    x = cp.Variable((k, k), PSD=True)
    problem = cp.Problem(cp.Maximize(cp.trace(a @ x)), [cp.diag(x) == 1])
    problem.solve(solver="CLARABEL")
    assert np.isclose(maximize_correlation(a).value, problem.value, rtol=1e-7)


def test_scaling_and_permutation(rng):
    a = random_psd(rng, 7, 4)
    order = rng.permutation(7)
    value = maximize_correlation(a).value
    assert np.isclose(maximize_correlation(1e-3 * a).value, 1e-3 * value, rtol=1e-11)
    permuted = maximize_correlation(a[np.ix_(order, order)])
    assert np.isclose(permuted.value, value, rtol=1e-11)


def test_a_looser_tolerance_is_met_and_central(rng):
    a = random_psd(rng, 8, 8)
    found = maximize_correlation(a, tol=1e-6)
    assert 1e-8 < (found.upper - found.value) / found.upper <= 1e-6
    product = found.correlation @ (np.diag(found.diagonal) - a)
    eigenvalues = np.linalg.eigvals(product).real
    # measured: up to 5e-4 apart
    assert np.allclose(eigenvalues, found.mu, rtol=5e-3, atol=0)


def test_where_rounding_ends_the_search_the_best_point_is_kept(rng):
    a = random_psd(rng, 8, 8)
    found = maximize_correlation(a, tol=1e-300)
    assert found.upper - found.value <= 1e-12 * found.upper


def central_point(a, mu, t):
    """X of ``min sum t - mu log det(diag(t) - A)`` by pure Newton steps from t."""
    for _ in range(30):
        inverse = np.linalg.inv(np.diag(t) - a)
        step = np.linalg.solve(mu * inverse**2, mu * np.diag(inverse) - 1)
        length = 1.0
        while np.linalg.eigvalsh(np.diag(t + length * step) - a)[0] <= 0:
            length /= 2
        t = t + length * step
    return mu * np.linalg.inv(np.diag(t) - a)


@pytest.mark.parametrize("tol", [1e-1, 1e-2])
def test_curvature_is_the_derivative_of_the_smoothed_maximiser(tol, rng):
    k, m = 5, 3
    slopes = np.stack([random_psd(rng, k, k) - random_psd(rng, k, k) for _ in range(m)])
    a = random_psd(rng, k, k)
    found = maximize_correlation(a, tol)
    curvature = found.curvature(slopes)
    assert np.linalg.eigvalsh(curvature)[0] >= -1e-9 * np.max(curvature)
    step = 1e-2 * found.mu / np.max(np.abs(slopes))
    start = found.diagonal + found.mu
    differences = np.empty((m, m))
    for i in range(m):
        x = [central_point(a + s * step * slopes[i], found.mu, start) for s in (1, -1)]
        differences[i] = np.einsum("kl,jkl->j", (x[0] - x[1]) / (2 * step), slopes)
    atol = 2e-3 * np.max(np.abs(differences))  # measured: up to 2e-4
    assert np.allclose(curvature, differences, atol=atol)


def test_nearest_correlation(rng):
    x = nearest_correlation(rng.normal(size=(5, 5)))
    assert np.allclose(np.diag(x), 1)
    assert np.linalg.eigvalsh(x)[0] >= -1e-14
    assert np.allclose(nearest_correlation(x), x)
    assert np.allclose(nearest_correlation(-np.eye(3)), np.eye(3))


def test_pair_refuses_an_indefinite_slack():
    with pytest.raises(np.linalg.LinAlgError):
        ComplementaryPair(np.eye(2), np.diag([1.0, -1.0]))


@pytest.mark.parametrize("bad", [np.ones((2, 3)), np.full((2, 2), np.nan), np.ones(2)])
def test_bad_matrices(bad):
    with pytest.raises(ValueError, match="square and finite"):
        maximize_correlation(bad)

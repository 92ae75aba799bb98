"""The joint problem: closed form, and search between two bounds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine

from estimators import in_turn
from kernelweave.fits.subspace import RegularizedKernel, SubspaceSVM, label_factor
from kernelweave.fits.targets import signs_of_codes
from kernelweave.inner.svm import hinge, solve_machines
from kernelweave.solvers.local.subspace import solve_joint

BOTH = pytest.mark.parametrize("uncorrelated", [False, True])


def centred(K):
    P = np.eye(len(K)) - 1 / len(K)
    return P @ K @ P


def known_problem(uncorrelated, alpha, C):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.standard_normal((3, 4))[y] * 1.2 + rng.standard_normal((60, 4))
    squared = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    kernel = RegularizedKernel(centred(np.exp(-squared / 5)), alpha)
    return SubspaceSVM(kernel, signs_of_codes(y, 3), C, uncorrelated)


@pytest.fixture(scope="module")
def wine():
    """Half of wine, a Gaussian kernel: the data on which the alternation cycles."""
    X, y = load_wine(return_X_y=True)
    X, y = X[::2], y[::2]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    squared = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    return centred(np.exp(-squared / np.median(squared))), y


def wine_problem(wine, uncorrelated, alpha, C):
    gram, y = wine
    kernel = RegularizedKernel(gram, alpha)
    return SubspaceSVM(kernel, signs_of_codes(y, 3), C, uncorrelated), label_factor(
        y, 3
    )


@pytest.mark.parametrize(
    ("uncorrelated", "alpha", "C", "value", "intercepts"),
    [
        (False, 0.1, 10.0, 300.316729, (-0.575649, -0.481658, -0.542049)),
        (True, 1.0, 600.0, 720.958635, (-0.503538, -0.417317, -0.513565)),
    ],
)
def test_known_saddle_points(uncorrelated, alpha, C, value, intercepts):
    solution = solve_joint(known_problem(uncorrelated, alpha, C))
    assert solution.converged and solution.n_iter == 1
    assert solution.point.upper == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(solution.point.intercepts, intercepts, atol=1e-5)


@BOTH
def test_closed_form_is_a_saddle_point(wine, uncorrelated):
    """The machines on the reduced kernel are those on the whole regularised one."""
    problem, _ = wine_problem(wine, uncorrelated, 0.3, 5.0)
    solution = solve_joint(problem)
    G, alpha = problem.kernel.gram, problem.kernel.alpha
    T = G @ np.linalg.inv(G + alpha * np.eye(len(G)))
    K = T if uncorrelated else G @ T
    duals = solve_machines((K + K.T) / 2, problem.signs, 5.0, 1e-10).coef()
    np.testing.assert_allclose(G @ solution.point.coef, K @ duals, atol=1e-6)
    retrained = problem.point(solution.point.subspace)
    assert retrained.upper == pytest.approx(solution.point.upper, rel=1e-6)
    best = problem.subspace(solution.point.duals)
    assert best.coef.shape[1] <= 3
    assert solution.lower_bound == pytest.approx(solution.point.upper, rel=1e-8)


@BOTH
@pytest.mark.parametrize("size", [1, 2])
def test_search_improves_on_the_truncated_closed_form(wine, uncorrelated, size):
    problem, _ = wine_problem(wine, uncorrelated, 0.1, 1.0)
    duals = problem.closed_form().coef()
    truncated = problem.point(problem.subspace(duals, size)).upper
    relaxed = problem.lower_bound(duals, None)
    solution = solve_joint(problem, size, duals=duals, max_iter=8)
    assert solution.point.subspace.coef.shape[1] == size
    assert solution.trace[0].value == pytest.approx(truncated, rel=1e-8)
    assert relaxed <= solution.lower_bound <= solution.point.upper
    assert solution.point.upper < truncated
    if size == 2:
        # measured: 0.0033 and 0.0044
        assert solution.gap < 0.01
    assert "stopped" in solution.status
    # the value of the point is what machines on its features reach
    F = solution.point.subspace.features
    f = F @ (F.T @ solution.point.duals)
    value = 0.5 * np.sum(solution.point.duals * f) + hinge(f, problem.signs)[0]
    assert value == pytest.approx(solution.point.upper, rel=1e-9)


def test_steps_to_the_largest_bound_close_the_gap():
    rng, n, k = np.random.default_rng(0), 40, 4
    y = np.arange(n) % k
    X = rng.normal(size=(n, 3)) + 2.0 * rng.normal(size=(k, 3))[y]
    squared = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    kernel = RegularizedKernel(centred(np.exp(-squared / 6.0)), 0.1)
    problem = SubspaceSVM(kernel, signs_of_codes(y, k), 0.1, False)
    solution = solve_joint(problem, 1, duals=problem.closed_form().coef(), max_iter=8)
    assert solution.gap < 0.009  # measured: 0.005; with steps of given lengths 0.013


@pytest.mark.one_seed
@in_turn(uncorrelated=[False, True] * 2, alpha=[0.1, 0.1, 5.0], C=[0.1, 50.0, 5.0])
def test_search_is_never_worse_than_the_truncated_closed_form(
    rng, uncorrelated, alpha, C
):
    n, k = 30, 3
    y = np.arange(n) % k
    X = rng.normal(size=(n, 3)) + 2.0 * rng.normal(size=(k, 3))[y]
    squared = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    kernel = RegularizedKernel(centred(np.exp(-squared / 6.0)), alpha)
    problem = SubspaceSVM(kernel, signs_of_codes(y, k), C, uncorrelated)
    duals = problem.closed_form().coef()
    relaxed = problem.lower_bound(duals, None)
    uppers = []
    for size in range(1, k):
        truncated = problem.point(problem.subspace(duals, size)).upper
        solution = solve_joint(problem, size, duals=duals, max_iter=4)
        assert solution.point.upper <= truncated * (1 + 1e-9)
        assert relaxed * (1 - 1e-9) <= solution.lower_bound
        assert solution.lower_bound <= solution.point.upper * (1 + 1e-9)
        uppers.append(solution.point.upper)
    assert min(uppers) >= relaxed * (1 - 1e-9)


@BOTH
def test_lower_bound_holds_for_any_feasible_duals(rng, wine, uncorrelated):
    problem, _ = wine_problem(wine, uncorrelated, 0.5, 1.0)
    best = solve_joint(problem, 2, max_iter=10).point.upper
    signs = problem.signs
    counts = np.stack([np.sum(signs > 0, axis=0), np.sum(signs < 0, axis=0)])
    for _ in range(5):
        share = rng.uniform(0, 0.3)
        a = share * np.where(signs > 0, 1 / counts[0], 1 / counts[1]) * counts.min()
        assert problem.lower_bound(a * signs, 2) <= best
    lengths = [0.0, 0.3, 1.0]
    A, B = a * signs, 0.5 * a * signs
    along = problem.bounds_along(A, B - A, lengths, 2)
    expected = [problem.lower_bound(A + t * (B - A), 2) for t in lengths]
    np.testing.assert_allclose(along, expected, rtol=1e-9)


def test_two_classes_need_one_dimension(wine):
    gram, y = wine
    kernel = RegularizedKernel(gram, 0.5)
    problem = SubspaceSVM(kernel, signs_of_codes((y > 0).astype(int), 2), 1.0, True)
    solution = solve_joint(problem, 1)
    assert solution.converged and solution.n_iter == 1
    assert solution.point.subspace.coef.shape[1] == 1


def test_callback_stops(wine):
    problem, _ = wine_problem(wine, True, 0.1, 1.0)
    solution = solve_joint(problem, 1, callback=lambda row: row.iteration >= 2)
    assert solution.n_iter == 2
    assert "callback" in solution.status

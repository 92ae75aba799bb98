"""The inner machines, checked against each other, LIBSVM and their own gaps."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from kernelweave.fits.targets import signs_of_codes
from kernelweave.inner.svm import (
    best_intercept,
    hinge,
    separate,
    solve_low_rank_svm,
    solve_machines,
)


def draw(rng, n=70, k=3, features=4):
    y = np.arange(n) % k
    F = rng.normal(size=(n, features))
    F += 1.5 * rng.normal(size=(k, features))[y]
    return F, signs_of_codes(y, k)


def bounds(K, coef, signs, C):
    f = K @ coef
    loss, _ = hinge(f, signs)
    square = 0.5 * np.sum(coef * f)
    return np.sum(coef * signs) - square, square + C * loss


def assert_feasible(coef, signs, C):
    a = coef * signs
    assert np.all(a >= 0) and np.all(a <= C)
    np.testing.assert_allclose(coef.sum(axis=0), 0, atol=1e-10 * C * len(coef))


@pytest.mark.measured
@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("k", [2, 3])
def test_low_rank_and_dense_machines_agree(rng, C, k):
    F, signs = draw(rng, k=k)
    K = F @ F.T
    dense = solve_machines(K, signs, C, 1e-8).coef()
    low_rank = solve_low_rank_svm(F, signs, C, 1e-9)
    for coef in (dense, low_rank):
        assert_feasible(coef, signs, C)
        lower, upper = bounds(K, coef, signs, C)
        # LIBSVM stops at a given violation; low-rank kernels cannot be polished
        assert -1e-12 * upper <= upper - lower <= 2e-5 * upper
    values = [bounds(K, coef, signs, C)[0] for coef in (dense, low_rank)]
    assert values[0] == pytest.approx(values[1], rel=2e-5)


@pytest.mark.parametrize(
    ("C", "drawn"),
    [(1e-2, None), (1.0, None), (1e4, None), (1e4, 117)],  # a = 3e-9 was taken for zero
)
def test_interior_point_on_separated_and_mixed_classes(rng, C, drawn):
    rng = rng if drawn is None else np.random.default_rng(drawn)
    for shift in (0.0, 20.0):  # noise, and classes far apart
        F, signs = draw(rng, n=120, features=2)
        F[:, 0] += shift * signs[:, 0]
        coef = solve_low_rank_svm(F, signs, C, 1e-9)
        assert_feasible(coef, signs, C)
        lower, upper = bounds(F @ F.T, coef, signs, C)
        # measured over 200 seeds: up to 3e-7, and with C = 1e4, the factor of all
        # rounding in the upper bound, up to 1.6e-3
        assert (upper - lower) / upper < (1e-5 if C <= 1 else 1e-2)


def test_machine_is_that_of_scikit_learn(rng):
    F, signs = draw(rng, k=2)
    machine = SVC(kernel="linear", C=0.7, tol=1e-8).fit(F, signs[:, 0])
    coef = solve_low_rank_svm(F, signs, 0.7, 1e-10)
    f = F @ (F.T @ coef)
    found = (f + hinge(f, signs)[1])[:, 0]
    np.testing.assert_allclose(found, machine.decision_function(F), atol=1e-4)


def test_polished_digits(rng):
    """The free variables are solved for: the gap is far below LIBSVM's tolerance."""
    F, signs = draw(rng, n=50, features=60)
    K = F @ F.T / 60
    coef = solve_machines(K, signs, 10.0, 1e-6).coef()
    lower, upper = bounds(K, coef, signs, 10.0)
    assert (upper - lower) / upper < 1e-9


def test_unbalanced_and_tiny_problems():
    F = np.array([[0.0], [1.0], [5.0]])
    signs = np.array([[-1.0], [-1.0], [1.0]])
    for solver in (
        solve_low_rank_svm,
        lambda F, *rest: solve_machines(F @ F.T, *rest).coef(),
    ):
        coef = solver(F, signs, 1.0, 1e-8)
        # the margin lies between 1 and 5: slope 1/2
        np.testing.assert_allclose(F.T @ coef, [[0.5]], atol=1e-4)


def test_the_coefficients_of_a_tiny_margin_are_scaled():
    """``sum(a) - a'Qa / 2`` is largest at ``sum(a) = a'Qa``."""
    for seed in range(1, 12):
        rng = np.random.default_rng(seed)
        X, y = 100.0 * rng.normal(size=(18, 4)), rng.choice([-1.0, 1.0], 18)
        coef = separate(X @ X.T, np.full(18, 1e-9), y).coef
        square = np.sum((X.T @ coef) ** 2) + 1e-9 * np.sum(coef**2)
        # measured on four kinds of processors: 0.03 to 1.001; before scaling 8e-11
        assert 0.01 <= square / np.sum(np.abs(coef)) <= 1.01


def test_hinge_takes_the_best_intercept(rng):
    _, signs = draw(rng)
    values = rng.normal(size=signs.shape)
    loss, intercepts = hinge(values, signs)
    for shift in (-0.1, 0.0, 0.1):
        there = np.maximum(1 - signs * (values + intercepts + shift), 0)
        assert np.sum(there) >= loss - 1e-9


@pytest.mark.parametrize("loss", ["l1", "l2", "hard"])
def test_of_many_best_intercepts_the_middle_is_taken(loss):
    """With ``-6 + b <= -1`` and ``2 + b >= 1`` there is no loss for b in [-1, 5]."""
    f, y = np.array([2.0, 3.0, -6.0, -9.0]), np.array([1.0, 1.0, -1.0, -1.0])
    assert best_intercept(f, y, loss) == 2.0


@pytest.mark.measured
def test_a_low_rank_and_a_large_box_are_left_to_the_interior_point_method():
    F, signs = draw(np.random.default_rng(2), n=40, features=2)
    machines = solve_machines(F @ F.T, signs, 1e4, 1e-8)
    assert (
        max(machine.gap for machine in machines) < 1e-4
    )  # measured: 3e-6; LIBSVM's own: 0.9


def test_a_hard_margin_of_any_size_is_found_exactly(rng):
    """Two clusters in a plane, as close as 1e-5; then one of them within the other."""
    for apart in (1.0, 1e-5):
        X = np.column_stack([np.repeat([0.5, -0.5], 10) * apart, rng.normal(size=20)])
        y = np.repeat([1.0, -1.0], 10)
        machine = separate(X @ X.T, np.zeros(20), y)
        assert np.sum(np.abs(machine.coef)) == pytest.approx(4.0 / apart**2, rel=1e-4)
        # measured: up to 3e-6; the entries of the kernel hold no more digits
        assert machine.gap < 1e-4
    mixed = np.where(np.arange(20) % 2, 1.0, -1.0)
    inside = separate(X @ X.T, np.zeros(20), mixed)
    total, square = np.sum(np.abs(inside.coef)), np.sum((X.T @ inside.coef) ** 2)
    assert square < 1e-13 * total**2 and np.isinf(inside.gap)

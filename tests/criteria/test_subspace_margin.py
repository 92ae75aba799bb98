"""The joint criterion: derivatives, bounds, and the SVMs it represents."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import LpBall, Simplex, solve
from kernelweave.criteria import SubspaceMargin
from kernelweave.fits.targets import signs_of_codes
from kernelweave.inner.svm import hinge, solve_machines
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.solvers import certify
from kernelweave.weights import Uniform


def known_kernel(width=5.0):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.standard_normal((3, 4))[y] * 1.2 + rng.standard_normal((60, 4))
    K = np.exp(-np.sum((X[:, None] - X[None]) ** 2, axis=-1) / width)
    P = np.eye(60) - 1 / 60
    return P @ K @ P, signs_of_codes(y, 3)


def random_criterion(rng, alpha=0.5, C=20.0, k=3, n=36, p=3):
    y = np.arange(n) % k
    parts = []
    for i in range(p):
        X = rng.normal(size=(n, 3))
        X[:, 0] += (2.0 - 0.6 * i) * (y == 1)
        X[:, 1] -= (1.5 - 0.4 * i) * (y == 2)
        squared = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
        parts.append(np.exp(-squared / 4.0))
    bank = DenseBank(center_and_scale(np.array(parts)))
    return SubspaceMargin(bank, signs_of_codes(y, k), alpha, C)


def dense_kernel(criterion, weights):
    G = np.tensordot(weights, criterion.bank.stack, 1)
    return G @ np.linalg.inv(G + criterion.alpha * np.eye(len(G)))


def test_known_value():
    G, signs = known_kernel()
    criterion = SubspaceMargin(DenseBank(G[None]), signs, 1.0, 600.0)
    solution = solve(criterion, Simplex(), tol=1e-10)
    assert solution.value == pytest.approx(720.958635, rel=1e-8)
    assert solution.converged
    _, intercepts = hinge(G @ criterion.split(solution.coef)[1], signs)
    np.testing.assert_allclose(intercepts, [-0.503538, -0.417317, -0.513565], atol=1e-5)


@pytest.mark.parametrize("C", [1.0, 20.0, 500.0])
@pytest.mark.parametrize("k", [2, 3])
def test_value_and_derivatives(rng, C, k):
    criterion = random_criterion(rng, C=C, k=k)
    weights = np.array([0.5, 0.3, 0.2])
    state = criterion.evaluate(weights)
    K = dense_kernel(criterion, weights)
    a = solve_machines(K, criterion.signs, C, 1e-10).coef()
    value = np.sum(a * criterion.signs) - 0.5 * np.sum(a * (K @ a))
    assert state.value == pytest.approx(value, rel=1e-8)
    h = 1e-5
    for i, step in enumerate(h * np.eye(3)):
        ahead, back = (criterion.evaluate(weights + s) for s in (step, -step))
        slope = (ahead.value - back.value) / (2 * h)
        assert state.gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-6 * value)
    np.testing.assert_allclose(state.hessian, state.hessian.T, rtol=1e-8)
    assert np.all(state.gradient <= 0)
    assert np.min(np.linalg.eigvalsh(state.hessian)) >= -1e-8 * np.max(state.hessian)


def test_hessian_where_no_variable_changes_sides():
    _, signs = known_kernel()
    stack = center_and_scale(np.array([known_kernel(w)[0] for w in (0.5, 5.0, 50.0)]))
    criterion = SubspaceMargin(DenseBank(stack), signs, 0.6, 60.0)
    weights, h = np.array([0.2, 0.3, 0.5]), 1e-5
    state = criterion.evaluate(weights)
    for i, step in enumerate(h * np.eye(3)):
        ahead, back = (criterion.evaluate(weights + s).gradient for s in (step, -step))
        np.testing.assert_allclose(
            state.hessian[i],
            (ahead - back) / (2 * h),
            atol=1e-5 * np.max(state.hessian),
        )


@pytest.mark.parametrize("quality", [0.0, 1e-3, 1.0])
def test_bounds_hold_for_any_point(rng, quality):
    criterion = random_criterion(rng)
    weights = rng.dirichlet(np.ones(3))
    exact = criterion.evaluate(weights, hessian=False).coef
    size = quality * np.max(np.abs(exact))
    coef, dual = (exact + size * rng.normal(size=exact.shape) for _ in range(2))
    terms = criterion.certificate_terms(weights, coef, dual)
    value = criterion.evaluate(weights).value
    assert terms.upper >= value * (1 - 1e-8)
    for u in [weights, *rng.dirichlet(np.ones(3), size=4)]:
        there = criterion.evaluate(u, hessian=False).value
        assert terms.linear - terms.scores @ u <= there + 1e-7 * abs(there)
    if quality == 0.0:
        assert terms.upper == pytest.approx(value, rel=1e-7)
        assert terms.linear - terms.scores @ weights == pytest.approx(value, rel=1e-7)


def test_rounding_of_the_dual_constraint_is_no_gain(rng):
    """With outputs of zero, the value is twice C times the rows of the rarer class."""
    n, C = 29, 0.01
    signs = np.where(np.arange(n) < 13, 1.0, -1.0)[:, None]
    bank = DenseBank(center_and_scale([np.eye(n)]))
    criterion = SubspaceMargin(bank, signs, 1e15, C)
    a = np.where(signs > 0, C, 13 / 16 * C * (1 + 9e-15)) * signs
    zero = np.zeros_like(a)
    value, lower_bound, gap = certify(
        criterion, Uniform(), [1.0], np.hstack([zero, zero]), np.hstack([a, a])
    )
    assert value == pytest.approx(26 * C, rel=1e-13)
    assert lower_bound <= 26 * C and 0.0 <= gap < 1e-13


def test_primal_is_the_penalised_machine(rng):
    """Half of (f'f plus alpha times the squared norm of f), plus C times the hinge."""
    criterion = random_criterion(rng)
    weights = np.array([0.2, 0.5, 0.3])
    state = criterion.evaluate(weights, hessian=False)
    _, b = criterion.split(state.coef)
    G = np.tensordot(weights, criterion.bank.stack, 1)
    beta = b / criterion.alpha
    f = G @ beta
    penalty = 0.5 * (np.sum(f**2) + criterion.alpha * np.sum(beta * f))
    expected = penalty + criterion.C * hinge(f, criterion.signs)[0]
    found = criterion.primal(weights, state.coef)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2), Uniform()], ids=repr)
def test_methods_agree(rng, weight_set):
    criterion = random_criterion(rng, alpha=2.0, C=10.0)
    newton = solve(criterion, weight_set, tol=1e-6)
    assert newton.converged, newton.status
    cuts = solve(criterion, weight_set, method="cutting_plane", tol=1e-5)
    assert cuts.converged, cuts.status
    assert newton.value == pytest.approx(cuts.value, rel=2e-5)
    assert newton.n_factorizations <= cuts.n_factorizations
    for w in rng.dirichlet(np.ones(3), size=3):  # no other weights are better
        there = criterion.evaluate(weight_set.scale(w), hessian=False).value
        assert there >= newton.lower_bound * (1 - 1e-9)


def test_three_rows_and_a_box_that_holds_them():
    """The value is nearly linear in the weights: its reciprocal is not concave."""
    upper = [
        [0.666, -0.415, -0.251, 1.249, -0.834, 1.085],
        [1.400, 0.078, -1.478, 0.022, -0.100, 1.578],
        [1.097, -0.221, -0.876, 0.624, -0.403, 1.279],
    ]
    stack = np.zeros((3, 3, 3))
    rows, columns = np.triu_indices(3)
    stack[:, rows, columns] = stack[:, columns, rows] = upper
    signs = np.array([[-1.0], [1.0], [-1.0]])
    criterion = SubspaceMargin(DenseBank(stack), signs, 1000.0, 1001.737)
    solution = solve(criterion, Simplex(), tol=1e-6)
    assert solution.converged, solution.status
    assert solution.n_factorizations <= 15
    # measured: 1
    assert solution.weights[0] > 0.999


def test_there_is_no_sdp(rng):
    with pytest.raises(ValueError, match=r"SubspaceMargin over .* got 'sdp'; it needs"):
        solve(random_criterion(rng), Simplex(), method="sdp")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": 0.0}, "C must be"),
        ({"C": np.inf}, "C must be"),
        ({"C": "learn"}, "C must be a finite number > 0, got 'learn'"),
        ({"alpha": "learn"}, "alpha must be"),
        ({"alpha": -1.0}, "alpha must be a finite number > 0, got -1.0"),
        ({"signs": np.ones((60, 1))}, "both classes; got 60 of [+]1 and 0 of -1"),
        ({"signs": np.zeros((60, 1))}, r"\+1 or -1"),
    ],
)
def test_bad_input(change, message):
    G, signs = known_kernel()
    given = {"bank": DenseBank(G[None]), "signs": signs, "alpha": 1.0, "C": 1.0}
    with pytest.raises(ValueError, match=message):
        SubspaceMargin(**(given | change))

"""Weighted rows: whole-number weights are repeated rows, for every margin and method.

The repeated rows go through code without weights, and the programs through cvxpy share
nothing with the other solvers.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from estimators import in_turn
from kernelweave._array import to_numpy
from kernelweave.criteria import Alignment
from kernelweave.criteria.margin import Margin
from kernelweave.inner.svm import (
    best_intercept,
    hinge,
    solve_low_rank_svm,
    train_machines,
)
from kernelweave.kernels import DenseBank
from kernelweave.solvers import solve
from kernelweave.weights import LpBall, Simplex, Uniform

KINDS = ["hard", "l1", "l2", "learn"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def pair(margins, rng, kind, n=40, k=1, unlabelled=0):
    """A weighted problem, the same one with repeated rows, and the row of each copy."""
    X, y = margins.data(n, 1)
    signs = y[:, None]
    if k > 1:
        signs = np.column_stack([y, *np.where(X[:, 2 : k + 1] > 0, 1.0, -1.0).T])
        signs[3:5, 0] = 0.0
    if unlabelled:
        signs[-unlabelled:] = 0.0
    stack = margins.kernels(X)
    weights = rng.integers(1, 5, n).astype(float)
    copies = np.repeat(np.arange(n), weights.astype(int))
    settings = margins.kinds[kind]
    weighted = Margin(DenseBank(stack), signs, **settings, row_weights=weights)
    bank = DenseBank(stack[:, copies][:, :, copies])
    return weighted, Margin(bank, signs[copies], **settings), copies


def summed(coef, copies):
    """The sum of the coefficients of the copies of each row."""
    return np.stack([np.bincount(copies, column) for column in to_numpy(coef).T], 1)


@every_kind
@in_turn(
    weight_set=[Simplex(), LpBall(2), Uniform(), LpBall(2)],
    method=["interior_point", "newton"],
)
def test_whole_numbers_are_repeated_rows(margins, rng, kind, weight_set, method):
    weighted, repeated, copies = pair(margins, rng, kind)
    found = solve(weighted, weight_set, method, tol=1e-9)
    expected = solve(repeated, weight_set, "interior_point", tol=1e-9)
    assert found.converged and expected.converged
    assert found.value == pytest.approx(expected.value, rel=2e-9)
    # Values are accurate to the gap, points to its square root.
    np.testing.assert_allclose(found.weights, expected.weights, atol=2e-4)
    expected_coef = summed(expected.coef, copies)
    size = np.max(np.abs(expected_coef))
    np.testing.assert_allclose(to_numpy(found.coef), expected_coef, atol=5e-4 * size)
    np.testing.assert_allclose(
        weighted.intercept(found.weights, found.coef),
        repeated.intercept(expected.weights, expected.coef),
        atol=1e-4,
    )


@in_turn(kind=KINDS * 2, method=["interior_point", "newton", "cutting_plane"])
def test_columns_and_missing_labels(margins, rng, kind, method):
    weighted, repeated, _ = pair(margins, rng, kind, k=3, unlabelled=8)
    found = solve(weighted, Simplex(), method, tol=1e-5)
    expected = solve(repeated, Simplex(), tol=1e-9)
    assert found.converged
    assert found.value == pytest.approx(expected.value, rel=2e-5)
    assert found.lower_bound <= expected.value * (1 + 1e-9)


@every_kind
@pytest.mark.parametrize("method", ["qcqp", "sdp"])
def test_fractional_weights_against_the_program_through_cvxpy(margins, kind, method):
    pytest.importorskip("cvxpy")
    X, y = margins.data(40, 1)
    signs = np.where(np.arange(40) < 24, y, 0.0)[:, None]
    weights = np.random.default_rng(5).uniform(0.05, 4.0, 40)
    bank = DenseBank(margins.kernels(X))
    criterion = Margin(bank, signs, **margins.kinds[kind], row_weights=weights)
    found = solve(criterion, Simplex(), tol=1e-8)
    oracle = solve(criterion, Simplex(), method, tol=1e-5)
    assert found.converged and oracle.converged
    assert oracle.value == pytest.approx(found.value, rel=1e-5)
    if kind != "hard":  # the weights of rows matter; measured: 0.9 to 48 % apart
        plain = Margin(bank, signs, **margins.kinds[kind])
        assert solve(plain, Simplex(), tol=1e-6).value != pytest.approx(
            found.value, rel=3e-3
        )


@every_kind
def test_bounds_hold_at_any_point(margins, rng, kind):
    """The certificate bounds the optimum from any weights, function and dual point."""
    weighted, repeated, copies = pair(margins, rng, kind)
    optimum = solve(repeated, Simplex(), tol=1e-9).value
    each = np.bincount(copies)[:, None]
    for _ in range(10):
        weights = rng.dirichlet(np.ones(weighted.n_weights))
        coef, dual = rng.exponential(size=(2, len(each), 1)) * weighted.signs
        terms = weighted.certificate_terms(weights, coef, dual)
        assert terms.upper >= optimum * (1 - 1e-9)
        assert terms.bound(Simplex()) <= optimum * (1 + 1e-9)
        # and both are those of the copies that share the coefficients equally
        shared = repeated.certificate_terms(
            weights, (coef / each)[copies], (dual / each)[copies]
        )
        assert terms.upper == pytest.approx(shared.upper, rel=1e-9)
        if kind != "l1":  # the box cuts other coefficients first
            assert terms.bound(Simplex()) == pytest.approx(
                shared.bound(Simplex()), rel=1e-9
            )


@every_kind
def test_gradient_and_hessian_are_those_of_repeated_rows(margins, rng, kind):
    weighted, repeated, _ = pair(margins, rng, kind)
    weights = rng.dirichlet(np.ones(weighted.n_weights))
    found, expected = weighted.evaluate(weights), repeated.evaluate(weights)
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    np.testing.assert_allclose(found.gradient, expected.gradient, rtol=1e-5)
    size = np.max(np.abs(expected.hessian))
    # measured: up to 6e-5 of the largest
    np.testing.assert_allclose(found.hessian, expected.hessian, atol=5e-4 * size)


@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_a_common_factor_is_a_factor_of_C(margins, rng, kind):
    X, y = margins.data(40, 2)
    bank, weights = DenseBank(margins.kernels(X)), rng.uniform(0.1, 3.0, 40)
    margin, C = margins.kinds[kind]["margin"], margins.kinds[kind]["C"]
    one = Margin(bank, y[:, None], margin, C, row_weights=50.0 * weights)
    other = Margin(bank, y[:, None], margin, 50.0 * C, row_weights=weights)
    for weight_set in (Simplex(), LpBall(2)):
        found, expected = (solve(c, weight_set, tol=1e-9) for c in (one, other))
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-9)


def test_hard_margins_ignore_weights(margins, rng):
    X, y = margins.data(40, 1)
    bank = DenseBank(margins.kernels(X))
    plain = solve(Margin(bank, y[:, None], "hard"), Simplex())
    weighted = Margin(bank, y[:, None], "hard", row_weights=rng.uniform(0.01, 9.0, 40))
    assert solve(weighted, Simplex()).value == plain.value


@pytest.mark.parametrize("wrong", [[0.0, 1.0], [-1.0, 1.0], [np.nan, 1.0]], ids=str)
def test_weights_that_are_not_positive_are_refused(margins, wrong):
    X, y = margins.data(20, 1)
    weights, bank = np.resize(wrong, 20), DenseBank(margins.kernels(X))
    with pytest.raises(ValueError, match=r"must be positive.*row 0 has"):
        Margin(bank, y[:, None], row_weights=weights)
    with pytest.raises(ValueError, match=r"must be positive.*row 0 has"):
        Alignment(bank, y, row_weights=weights)
    with pytest.raises(ValueError, match=r"must have the shape \(20,\).*got \(19,\)"):
        Margin(bank, y[:, None], row_weights=np.ones(19))


# One machine --------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_a_machine_with_weights_is_that_of_scikit_learn(margins, rng, C):
    X, y = margins.data(60, 3)
    kernel, weights = margins.kernels(X)[0], rng.uniform(0.05, 5.0, 60)
    svc = SVC(kernel="precomputed", C=C, tol=1e-8)
    expected = svc.fit(kernel, y, sample_weight=weights).decision_function(kernel)
    features = np.linalg.cholesky(kernel + 1e-12 * np.eye(60))
    low_rank = solve_low_rank_svm(features, y[:, None], C * weights, 1e-10)[:, 0]
    machine = train_machines(kernel, y[:, None], C * weights, 1e-9)[0]
    assert machine.gap <= 1e-9
    for coef in (machine.coef, low_rank):
        assert np.all((coef * y >= 0) & (coef * y <= C * weights))
        f = kernel @ coef
        found = f + best_intercept(f, y, "l1", weights)
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.max(np.abs(f)))


@pytest.mark.parametrize("loss", ["l1", "l2", "hard"])
def test_intercepts_are_those_of_repeated_rows(rng, loss):
    for _ in range(30):
        f, y = rng.normal(size=12), np.where(rng.random(12) < 0.5, 1.0, -1.0)
        y[:2] = [1.0, -1.0]
        weights = rng.integers(1, 5, 12)
        copies = np.repeat(np.arange(12), weights)
        expected = best_intercept(f[copies], y[copies], loss)
        assert best_intercept(f, y, loss, weights) == pytest.approx(expected, abs=1e-12)
        # an interval of best intercepts is recognised in spite of rounding
        found = best_intercept(f, y, loss, weights / 3.0)
        assert found == pytest.approx(expected, abs=1e-12)


def test_hinge_of_weighted_rows(rng):
    signs = np.where(rng.random((15, 2)) < 0.5, 1.0, -1.0)
    values, weights = rng.normal(size=(15, 2)), rng.integers(1, 4, 15)
    copies = np.repeat(np.arange(15), weights)
    loss, intercepts = hinge(values, signs, weights)
    expected, those = hinge(values[copies], signs[copies])
    assert loss == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(intercepts, those, atol=1e-12)

"""Mixture weights: EM, Newton, an independent solver, and rows that lack experts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from kernelweave._array import to_numpy
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.solvers import solve
from kernelweave.solvers.fixed_point import em
from kernelweave.solvers.mixture import (
    residual_moments,
    stack,
    truncated_em,
    truncated_responsibilities,
)
from kernelweave.solvers.solve import fitting_methods
from kernelweave.weights import CappedSimplex, LpBall, Simplex, Uniform

PRIORS = [0.0, 0.3]


@pytest.fixture
def densities(rng):
    """Log densities (60, 5), of which two experts are good."""
    table = rng.normal(size=(60, 5)) - 2.0
    table[:30, 0] += 2.0
    table[30:, 3] += 2.0
    return table


@pytest.fixture
def observed(rng):
    seen = rng.random((60, 5)) < 0.7
    seen[np.arange(60), rng.integers(5, size=60)] = True
    return seen


def likelihood(table, seen, weights, prior=0.0):
    """The truncated likelihood per row, by definition."""
    log_weights = np.where(seen, np.log(weights), -np.inf)
    rows = logsumexp(np.where(seen, table, 0.0) + log_weights, axis=1)
    rows -= logsumexp(log_weights, axis=1)
    return (rows.sum() + prior * np.log(weights).sum()) / len(table)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("method", ["newton", "em"])
def test_optimum_against_an_independent_solver(densities, method, prior):
    cvxpy = pytest.importorskip("cvxpy")
    criterion = MixtureLikelihood(densities, prior)
    found = solve(criterion, Simplex(), method=method, tol=1e-7)
    assert found.converged, found.status
    w = cvxpy.Variable(5)
    objective = cvxpy.sum(cvxpy.log(np.exp(densities) @ w))
    if prior:
        objective += prior * cvxpy.sum(cvxpy.log(w))
    problem = cvxpy.Problem(
        cvxpy.Maximize(objective / len(densities)), [cvxpy.sum(w) == 1, w >= 0]
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        problem.solve(solver="CLARABEL")
    atol = 1e-6 if problem.status == "optimal" else 1e-4
    assert_allclose(found.value + criterion.offset, -problem.value, atol=atol)
    # Points are accurate to the square root; measured: up to 1.3e-5.
    assert_allclose(found.weights, w.value, atol=0.1 * atol**0.5)


@pytest.mark.parametrize("prior", PRIORS)
def test_conditions_of_the_optimum(densities, prior):
    criterion = MixtureLikelihood(densities, prior)
    found = solve(criterion, Simplex(), tol=1e-10)
    w, n = found.weights, len(densities)
    ratio = np.exp(densities)
    scores = (ratio / (ratio @ w)[:, None]).sum(axis=0)
    scores += prior / np.maximum(w, 1e-300)
    scores /= n + 5 * prior
    assert np.max(scores) <= 1 + 1e-8
    assert_allclose(scores[w > 1e-4], 1.0, atol=1e-6)
    # the bound that follows from them: (n + p kappa) log max g
    bound = (1 + 5 * prior / n) * np.log(np.max(scores))
    assert found.value - found.lower_bound <= bound + 1e-10
    assert found.lower_bound <= found.value


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(
    "weight_set", [LpBall(1.5), LpBall(8), CappedSimplex(0.4), Uniform()], ids=repr
)
def test_the_optimum_is_certified_on_every_set(densities, rng, weight_set, prior):
    """Dual points were scaled for the simplex: gaps of 0.1, and EM ended elsewhere."""
    criterion = MixtureLikelihood(densities, prior)
    for method in fitting_methods(criterion, weight_set):
        solution = solve(criterion, weight_set, method=method)
        assert solution.converged
        for _ in range(20):
            other = weight_set.scale(rng.dirichlet(np.ones(criterion.n_kernels)))
            assert criterion.evaluate(other).value >= solution.lower_bound


def test_newton_takes_few_steps(densities):
    criterion = MixtureLikelihood(densities)
    fast = solve(criterion, Simplex(), tol=1e-8)
    slow = solve(criterion, Simplex(), method="em", tol=1e-8)
    assert fast.converged and slow.converged
    assert fast.n_iter <= 25 and fast.n_iter < slow.n_iter
    assert_allclose(fast.weights, slow.weights, atol=1e-5)


@pytest.mark.parametrize("prior", PRIORS)
def test_every_step_increases_the_likelihood(densities, prior):
    values = []
    for iterate in em(MixtureLikelihood(densities, prior), Simplex()):
        values.append(iterate.value)
        assert_allclose(iterate.weights.sum(), 1.0)
        if len(values) == 60:
            break
    assert np.all(np.diff(values) <= 1e-13)


@pytest.mark.parametrize("method", ["newton", "em"])
@pytest.mark.parametrize("prior", PRIORS)
def test_where_it_starts_does_not_matter(densities, rng, method, prior):
    class Elsewhere(Simplex):
        def start(self, p):
            return rng.dirichlet(np.ones(p))

    criterion = MixtureLikelihood(densities, prior)
    plain = solve(criterion, Simplex(), method=method, tol=1e-8)
    other = solve(criterion, Elsewhere(), method=method, tol=1e-8)
    assert plain.converged and other.converged
    assert_allclose(other.value, plain.value, atol=1e-7)
    assert_allclose(other.weights, plain.weights, atol=1e-5)


def test_max_iter_is_not_called_optimal(densities):
    found = solve(MixtureLikelihood(densities), Simplex(), method="em", max_iter=3)
    assert not found.converged and "max_iter=3" in found.status
    assert found.gap > found.tol


def test_one_expert():
    for method in ("newton", "em"):
        criterion = MixtureLikelihood(np.zeros((4, 1)))
        found = solve(criterion, Simplex(), method=method)
        assert found.converged and found.weights.tolist() == [1.0]


def test_duplicated_expert_shares_its_weight(densities):
    double = np.column_stack([densities, densities[:, 0]])
    once = solve(MixtureLikelihood(densities), Simplex(), tol=1e-10)
    twice = solve(MixtureLikelihood(double), Simplex(), tol=1e-10)
    joined = twice.weights[:5] + twice.weights[5] * np.eye(5)[0]
    assert_allclose(joined, once.weights, atol=1e-5)


# Rows that lack experts ---------------------------------------------------------------


@pytest.mark.parametrize("prior", PRIORS)
def test_all_observed_is_the_plain_mixture(densities, prior):
    everything = np.ones(densities.shape, dtype=bool)
    found = truncated_em(densities, everything, prior, tol=1e-8)
    criterion = MixtureLikelihood(densities, prior)
    plain = solve(criterion, Simplex(), tol=1e-9)
    assert found.converged
    assert_allclose(found.value, plain.value + criterion.offset, atol=1e-7)
    assert_allclose(found.weights, plain.weights, atol=1e-5)
    joint = np.exp(densities) * plain.weights
    assert_allclose(
        truncated_responsibilities(densities, everything, plain.weights),
        joint / joint.sum(axis=1, keepdims=True),
        atol=1e-12,
    )


@pytest.mark.parametrize("prior", [0.3, 2.0])
def test_truncated_maximum_against_a_direct_search(densities, observed, prior):
    densities[~observed] = np.nan  # must not be read
    found = truncated_em(densities, observed, prior, tol=1e-7)
    assert found.converged, found.status
    w = np.maximum(found.weights, 1e-300)
    value = -likelihood(densities, observed, w, prior)
    assert_allclose(found.value, value, atol=1e-10)

    def objective(logits):
        return -likelihood(densities, observed, np.exp(log_softmax(logits)), prior)

    direct = minimize(objective, np.zeros(5), method="BFGS")
    assert_allclose(found.value, direct.fun, atol=1e-6)
    # measured: up to 3.4e-5 apart
    assert_allclose(found.weights, np.exp(log_softmax(direct.x)), atol=2e-4)


def test_every_truncated_step_increases_the_likelihood(densities, observed):
    values = [
        truncated_em(densities, observed, tol=1e-15, max_iter=steps).value
        for steps in range(1, 60)
    ]
    assert np.all(np.diff(values) <= 1e-13)


def test_experts_seen_more_often_are_not_favoured(rng):
    """With identical experts, the mean responsibilities would still favour one."""
    table = np.zeros((400, 2))
    seen = np.ones((400, 2), dtype=bool)
    seen[:300, 1] = False
    found = truncated_em(table, seen)
    assert_allclose(found.weights, 0.5, atol=1e-6)
    share = truncated_responsibilities(table, seen, found.weights)[:, 0]
    assert np.mean(share) == pytest.approx((300 + 100 / 2) / 400, abs=1e-6)


def test_extrapolated_steps_are_few(densities, observed):
    found = truncated_em(densities, observed, prior=0.3)
    assert found.converged and found.status.startswith("stationary: a step changes")
    assert found.n_iter <= 45  # measured: 11 to 21; without extrapolation 94 to 406


def test_truncated_search_that_is_stopped(densities, observed):
    rows = []
    found = truncated_em(
        densities, observed, callback=lambda row: rows.append(row) or len(rows) == 2
    )
    assert not found.converged and "stopped by the callback" in found.status
    assert len(rows) == 2 and found.n_iter <= 4
    short = truncated_em(densities, observed, max_iter=3)
    assert not short.converged and "max_iter=3" in short.status
    assert short.stationarity > 1e-6


def test_row_without_experts_is_an_error(densities, observed):
    observed[4] = False
    with pytest.raises(ValueError, match="row 4 has no expert"):
        truncated_em(densities, observed)


def test_responsibilities_where_all_weights_are_zero():
    seen = np.array([[True, False, False], [False, True, True]])
    found = truncated_responsibilities(np.zeros((2, 3)), seen, np.array([1.0, 0, 0]))
    assert_allclose(found, [[1, 0, 0], [0, 0.5, 0.5]])


# Least squares ------------------------------------------------------------------------


def test_stacking_against_an_independent_solver(rng):
    residual = rng.normal(size=(50, 6)) * np.linspace(0.5, 2, 6) + rng.normal(
        size=(50, 1)
    )
    moments = residual_moments(residual, np.ones(residual.shape, dtype=bool))
    assert_allclose(moments, residual.T @ residual / 50)
    weights, value, lower = stack(moments)
    assert weights.min() >= 0 and abs(weights.sum() - 1) < 1e-12
    assert lower <= value and value - lower < 1e-7 * value
    cvxpy = pytest.importorskip("cvxpy")
    w = cvxpy.Variable(6)
    loss = cvxpy.sum_squares(residual @ w) / 50
    problem = cvxpy.Problem(cvxpy.Minimize(loss), [cvxpy.sum(w) == 1, w >= 0])
    problem.solve(solver="CLARABEL")
    assert_allclose(value, problem.value, rtol=1e-6)
    assert_allclose(weights, w.value, atol=1e-5)


def test_stacking_of_equal_and_of_perfect_experts():
    weights, value, _ = stack(np.ones((3, 3)))
    assert_allclose(weights.sum(), 1.0)
    assert_allclose(value, 1.0)
    assert_allclose(stack(np.zeros((2, 2)))[0], 0.5)


def test_moments_with_gaps_stay_positive(rng):
    residual = rng.normal(size=(12, 8))
    seen = rng.random((12, 8)) < 0.4
    seen[:, 0] = True
    residual[~seen] = np.nan
    moments = residual_moments(residual, seen)
    assert np.all(np.isfinite(moments))
    assert np.linalg.eigvalsh(moments)[0] > -1e-10
    weights, value, lower = stack(moments)
    assert np.isfinite(value) and lower <= value + 1e-12 and weights.min() >= 0


@pytest.mark.parametrize("method", ["newton", "em"])
def test_array_libraries_agree(xp_backend, densities, observed, method):
    table = xp_backend.asarray(densities)
    settings = {"method": method, "tol": 1e-5}
    found = solve(MixtureLikelihood(table, 0.3), Simplex(), **settings)
    expected = solve(MixtureLikelihood(densities, 0.3), Simplex(), **settings)
    assert_allclose(found.weights, expected.weights, atol=1e-9)
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert found.lower_bound == pytest.approx(expected.lower_bound, rel=1e-12)
    rows = truncated_em(table, observed, 0.3)
    same = truncated_em(densities, observed, 0.3)
    assert_allclose(rows.weights, same.weights, atol=1e-7)
    assert_allclose(
        to_numpy(truncated_responsibilities(table, observed, same.weights)),
        truncated_responsibilities(densities, observed, same.weights),
        atol=1e-14,
    )

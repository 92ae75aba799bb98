"""The papers' column generation."""

from __future__ import annotations

import sys
from itertools import islice

import numpy as np
import pytest

from estimators import in_turn
from kernelweave._array import FactorizationError
from kernelweave.protocols import Evaluation
from kernelweave.solvers import certify, solve
from kernelweave.solvers.cutting_plane import cutting_plane
from kernelweave.weights import LpBall, Simplex, Uniform

SETS = [Simplex(), LpBall(1.2), LpBall(1.5), LpBall(2), LpBall(4)]
every_set = pytest.mark.parametrize("weight_set", SETS, ids=repr)
sets_and_penalties = in_turn(weight_set=SETS * 2, penalty=[1e-8, 1e-2, "learn"])


def require(weight_set):
    if weight_set.norm != 1:
        pytest.importorskip("clarabel")


@sets_and_penalties
def test_bounds_only_improve_and_can_be_certified(small_problem, weight_set, penalty):
    """The master's value is a bound because it comes with a dual point."""
    require(weight_set)
    criterion = small_problem(penalty)
    optimum = solve(criterion, weight_set, tol=1e-9).value
    value, bound = np.inf, -np.inf
    for iterate in islice(cutting_plane(criterion, weight_set), 12):
        certified = certify(
            criterion, weight_set, iterate.weights, iterate.coef, iterate.dual
        )
        assert certified[0] == pytest.approx(iterate.value, rel=1e-6)
        assert certified[1] >= iterate.lower_bound - 1e-9 * abs(iterate.value)
        assert iterate.lower_bound <= optimum * (1 + 1e-9)
        assert iterate.value <= value
        assert iterate.lower_bound >= bound
        value, bound = iterate.value, iterate.lower_bound


@sets_and_penalties
def test_reaches_a_gap_of_one_in_a_million(small_problem, weight_set, penalty):
    require(weight_set)
    criterion = small_problem(penalty)
    solution = solve(criterion, weight_set, method="cutting_plane", tol=1e-6)
    assert solution.converged
    expected = solve(criterion, weight_set, tol=1e-9).value
    assert solution.value == pytest.approx(expected, rel=1e-6)


@every_set
def test_starts_where_table_1_does(small_problem, weight_set):
    require(weight_set)
    criterion = small_problem(1e-2)
    first = next(cutting_plane(criterion, weight_set))
    np.testing.assert_allclose(first.weights, weight_set.start(10))
    state = criterion.evaluate(first.weights)
    assert first.value == pytest.approx(state.value)
    # One cut: the master is the linearisation, with the dual point of the cut.
    scores = -state.gradient
    bound = state.value + scores @ first.weights - weight_set.support(scores)
    assert first.lower_bound == pytest.approx(bound, rel=1e-9)
    np.testing.assert_allclose(first.dual, state.coef)


@pytest.mark.parametrize("weight_set", [Uniform(), LpBall(np.inf)], ids=repr)
def test_sets_without_a_choice_need_no_master(small_problem, weight_set, monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    only = solve(small_problem(1e-2), weight_set, method="cutting_plane")
    assert only.converged and only.n_factorizations == 1
    np.testing.assert_allclose(only.weights, weight_set.start(10))


def test_a_missing_package_is_named(small_problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(ImportError, match=r"needs Clarabel.*kernelweave\[cone\]"):
        solve(small_problem(1e-2), LpBall(2), method="cutting_plane")
    assert solve(
        small_problem(1e-2), Simplex(), method="cutting_plane", tol=1e-6
    ).converged


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(1.5)], ids=repr)
def test_vertices_where_the_criterion_is_infinite(make, weight_set):
    """Equal rows in different classes: no kernel works without the identity."""
    require(weight_set)
    X, y = make.load("breast_cancer", 60)
    X, y = np.concatenate([X, X[:8]]), np.concatenate([y, 1 - y[:8]])
    stack = make.gaussian_stack(X, np.logspace(0.5, 2, 5))
    criterion = make.class_problem(X, y, "learn", stack=stack)
    solution = solve(criterion, weight_set, method="cutting_plane", tol=1e-6)
    assert solution.converged
    assert solution.weights[0] > 0.5  # measured: 0.86
    expected = solve(criterion, weight_set)
    assert solution.value == pytest.approx(expected.value, rel=1e-6)


def test_an_identity_that_is_not_needed(wine_stack, make):
    """The optimal regularisation is zero, where the certificate cannot be computed."""
    stack, y = wine_stack
    criterion = make.class_problem(None, y, "learn", stack=stack)
    solution = solve(criterion, Simplex(), method="cutting_plane", tol=1e-6)
    assert solution.converged
    assert 0 < solution.weights[0] < 1e-6
    assert solution.value == pytest.approx(12804.59676310, rel=1e-6)


def test_degenerate_kernels(make):
    X, y = make.with_duplicates(*make.load("wine", 60))
    stack = make.degenerate_stack(X)
    for penalty in (1e-4, "learn"):
        criterion = make.class_problem(X, y, penalty, stack=stack)
        solution = solve(criterion, Simplex(), method="cutting_plane", tol=1e-6)
        assert solution.converged


class Steep:
    """``J(w) = 1 / w_1 + 10 w_1``, which is infinite at a vertex of the simplex."""

    n_weights = n_kernels = 2

    def __init__(self, raises: bool) -> None:
        self.raises = raises

    def evaluate(self, weights, hessian=True):
        w = weights[0]
        if self.raises and w < 1e-9:
            raise FactorizationError("the matrix is singular")
        w = max(w, 1e-15)
        gradient = np.array([10.0 - 1.0 / w**2, 0.0])
        return Evaluation(1.0 / w + 10.0 * w, gradient, None, np.array([1.0 / w]))


@pytest.mark.parametrize("raises", [True, False])
def test_a_vertex_where_the_value_explodes_is_approached_by_halves(raises):
    iterates = list(islice(cutting_plane(Steep(raises), Simplex()), 20))
    assert iterates[-1].value == pytest.approx(2 * np.sqrt(10), rel=1e-6)
    assert iterates[-1].weights[0] == pytest.approx(1 / np.sqrt(10), abs=1e-6)
    assert iterates[-1].lower_bound == pytest.approx(2 * np.sqrt(10), rel=1e-5)


def test_a_start_outside_the_domain_is_an_error():
    class Nowhere(Steep):
        def evaluate(self, weights, hessian=True):
            raise FactorizationError("the matrix is singular")

    with pytest.raises(FactorizationError):
        next(cutting_plane(Nowhere(True), Simplex()))

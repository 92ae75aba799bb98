"""Newton's method around libsvm: few machines, and a fallback when they fail."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from kernelweave._array import FactorizationError
from kernelweave.criteria.margin import MANY_ROWS, Margin
from kernelweave.inner.svm import solve_machine
from kernelweave.kernels import DenseBank
from kernelweave.protocols import Method
from kernelweave.solvers import margin, solve
from kernelweave.weights import LpBall, Simplex

KINDS = ["hard", "l1", "l2", "learn"]
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2)], ids=repr)
@pytest.mark.parametrize("p", [3, 10])
def test_few_machines_reach_the_interior_points_value(margins, kind, weight_set, p):
    criterion, _ = margins.reference(200, 1, p, kind)
    expected = solve(criterion, weight_set, tol=1e-8)
    solution = solve(criterion, weight_set, "newton", tol=1e-6)
    assert solution.converged and solution.n_iter <= 10
    assert solution.value == pytest.approx(expected.value, rel=2e-6)


@every_kind
def test_value_and_derivatives_are_those_of_the_criterion(margins, rng, kind):
    criterion, _ = margins.reference(80, int(rng.integers(1000)), 3, kind)
    weights = rng.dirichlet(np.ones(criterion.n_weights))
    machines = margin._Machines(criterion)
    for _ in range(2):  # the second starts from the active set of the first
        found, expected = machines.evaluate(weights), criterion.evaluate(weights)
        assert found.value == pytest.approx(expected.value, rel=1e-8)
        np.testing.assert_allclose(found.gradient, expected.gradient, rtol=1e-4)
        size = np.max(np.abs(expected.hessian))
        np.testing.assert_allclose(found.hessian, expected.hessian, atol=1e-2 * size)


def test_several_columns_and_missing_labels(margins, rng):
    X, y = margins.data(90, int(rng.integers(1000)))
    signs = np.column_stack([y, np.where(X[:, 2] > 0, 1.0, -1.0)])
    signs[60:] = 0.0
    signs[5:9, 0] = 0.0
    criterion = Margin(DenseBank(margins.kernels(X)), signs, "l1", 0.5)
    expected = solve(criterion, Simplex(), tol=1e-8)
    solution = solve(criterion, Simplex(), "newton", tol=1e-6)
    assert solution.converged
    assert solution.value == pytest.approx(expected.value, rel=2e-6)


def test_where_libsvm_fails_the_interior_point_helps(margins):
    hasty = partial(solve_machine, max_steps=1, max_rounds=1)
    method = Method("hasty", partial(margin.svc_newton, solve_one=hasty), max_iter=60)
    criterion, _ = margins.reference(60, 0, 3, "l1")
    solution = solve(criterion, Simplex(), method, tol=1e-6)
    assert solution.converged
    assert solution.value == pytest.approx(4.85697904, rel=2e-6)
    assert solution.n_factorizations > 3 * solution.n_iter


def test_where_newton_fails_cutting_planes_go_on(margins, monkeypatch):
    def no_step(criterion, weight_set):
        raise FactorizationError("no step")
        yield

    monkeypatch.setattr(margin, "newton", no_step)
    criterion, _ = margins.reference(60, 0, 3, "l1")
    solution = solve(criterion, Simplex(), "newton", tol=1e-6)
    assert solution.converged
    assert solution.value == pytest.approx(4.85697904, rel=2e-6)


def test_auto_takes_libsvm_for_many_rows_and_a_box_that_matters(margins):
    X, y = margins.data(MANY_ROWS + 1, 0)
    bank, signs = DenseBank(margins.kernels(X)), y[:, None]
    chosen = {
        kind: Margin(bank, signs, **margins.kinds[kind]).preferred_method
        for kind in KINDS
    }
    assert chosen == {
        "hard": "interior_point",
        "l1": "newton",
        "l2": "interior_point",
        "learn": "interior_point",
    }
    criterion = Margin(bank, signs, **margins.kinds["l1"])
    assert solve(criterion, Simplex(), tol=1e-6).method == "newton"
    large = Margin(bank, signs, "l1", 1e4)
    assert large.preferred_method == "interior_point"
    few, _ = margins.reference(60, 0, 3, "l1")
    assert few.preferred_method == "interior_point"

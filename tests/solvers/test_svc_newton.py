"""Newton's method around libsvm: few machines, and a fallback when they fail."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave._array import FactorizationError
from kernelweave.criteria import margin as criteria_margin
from kernelweave.criteria.margin import LIBSVM_FROM, Margin
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.inner import svm
from kernelweave.inner.svm import train_machines
from kernelweave.kernels import RBF, DenseBank, center_and_scale
from kernelweave.solvers import margin, solve
from kernelweave.solvers.solve import fitting_methods
from kernelweave.weights import CappedSimplex, LpBall, Simplex

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


def _is_degenerate(criterion, weights, coef) -> bool:
    """Whether a row is about to join or leave the free ones: the Hessian jumps."""
    problem, signs = criterion.problem, criterion.signs[criterion.rows, 0]
    a = coef[criterion.rows, 0] * signs
    top = np.minimum(problem.bounds, np.max(a))
    inside = (a > 1e-9 * top) & (a < problem.bounds - 1e-9 * top)
    if not np.any(inside):
        return True
    beta = (a * signs)[:, None]
    f = problem.functions(weights, problem.products(beta))[:, 0]
    f = f + problem.split(weights)[0] * problem.diagonal * beta[:, 0]
    intercept = np.median((signs - f)[inside])
    slack = np.abs(signs * (f + intercept) - 1.0)
    room = np.minimum(a, problem.bounds - a) / top
    return bool(np.min(np.where(inside, room, slack)) < 1e-3)


@every_kind
def test_value_and_derivatives_are_those_of_the_criterion(margins, rng, kind):
    criterion, _ = margins.reference(80, int(rng.integers(1000)), 3, kind)
    weights = rng.dirichlet(np.ones(criterion.n_weights))
    machines = criterion.by_libsvm(may_give_up=False)
    for _ in range(2):  # the second starts from the active set of the first
        found, expected = machines.evaluate(weights), criterion.evaluate(weights)
        assert found.value == pytest.approx(expected.value, rel=1e-8)
        np.testing.assert_allclose(found.gradient, expected.gradient, rtol=1e-4)
        if _is_degenerate(criterion, weights, found.coef):
            return
        size = np.max(np.abs(expected.hessian))
        np.testing.assert_allclose(found.hessian, expected.hessian, atol=1e-4 * size)


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


@pytest.mark.parametrize("weight_set", [Simplex(), CappedSimplex(1.0)], ids=repr)
def test_where_libsvm_fails_the_interior_point_helps(margins, weight_set, monkeypatch):
    """It takes over, or solves the machines on sets that it does not know."""

    def hasty(kernel, signs, bound, tol, *_):
        return train_machines(kernel, signs, bound, tol, max_steps=1, max_rounds=1)

    monkeypatch.setattr(criteria_margin, "train_machines", hasty)
    criterion, _ = margins.reference(60, 0, 3, "l1")
    solution = solve(criterion, weight_set, "newton", tol=1e-6)
    assert solution.converged
    assert solution.value == pytest.approx(4.85697904, rel=2e-6)
    factorizations = solution.n_factorizations / solution.n_iter
    assert (factorizations > 3) == ("norm" not in weight_set.offers)


@pytest.fixture
def all_free(rng):
    """Rows far from each other: all of them support each machine."""
    X, signs = rng.normal(size=(60, 200)), np.sign(rng.normal(size=(60, 2)))
    bank = DenseBank(center_and_scale(np.stack([np.exp(X @ X.T / 400), X @ X.T])))
    return Margin(bank, signs, "l1", 10.0)


def test_where_most_rows_are_free_the_interior_point_takes_over(all_free):
    found, expected = (
        solve(all_free, Simplex(), method, tol=1e-6)
        for method in ("newton", "interior_point")
    )
    assert found.converged
    assert found.n_factorizations == expected.n_factorizations
    np.testing.assert_array_equal(found.weights, expected.weights)
    methods = fitting_methods(all_free, Simplex())  # it may take as many steps
    assert methods["newton"].max_iter >= methods["interior_point"].max_iter


def test_where_the_interior_point_lacks_memory_newton_goes_on(all_free, monkeypatch):
    def refuse(*_):
        raise MemoryRefusedError("too many rows")

    expected = solve(all_free, Simplex(), tol=1e-6)
    monkeypatch.setattr(margin, "interior_point", refuse)
    found = solve(all_free, Simplex(), "newton", tol=1e-6)
    assert found.converged
    assert found.value == pytest.approx(expected.value, rel=2e-6)


def test_machines_of_many_classes_share_their_products(rng, monkeypatch):
    """A round costs at most four products with the kernel, whatever the columns."""
    X, codes = rng.normal(size=(120, 6)), np.arange(120) % 12
    X += 2.0 * rng.normal(size=(12, 6))[codes]
    kernel = np.exp(-np.sum((X[:, None] - X) ** 2, axis=2) / 12)
    signs = np.where(codes[:, None] == np.arange(12), 1.0, -1.0)
    counted, product = [], svm._product
    monkeypatch.setattr(
        svm, "_product", lambda *parts: counted.append(1) or product(*parts)
    )
    machines = train_machines(kernel, signs, 1.0, 1e-9)
    rounds = max(machine.n_factorizations for machine in machines)
    assert len(counted) <= 4 * rounds
    for c, machine in enumerate(machines):
        assert machine.gap <= 1e-9
        alone = train_machines(kernel, signs[:, [c]], 1.0, 1e-9)[0]
        np.testing.assert_allclose(machine.coef, alone.coef, atol=1e-9)


def test_a_box_far_larger_than_the_variables_does_not_matter(rng):
    X = rng.standard_normal((60, 6))
    signs = np.where(X[:, :1] + 0.5 * rng.standard_normal((60, 1)) > 0, 1.0, -1.0)
    kernel = RBF(1 / 6)(X)
    without = train_machines(kernel, signs, np.inf, 1e-9)[0]
    for bound in 1e11, 1e13:  # in their units some support vectors look like zeros
        machine = train_machines(kernel, signs, bound, 1e-9)[0]
        assert machine.gap <= 1e-9
        np.testing.assert_allclose(machine.coef, without.coef, rtol=1e-6, atol=1e-6)


def test_where_newton_fails_cutting_planes_go_on(margins, monkeypatch):
    def no_step(criterion, weight_set):
        raise FactorizationError("no step")
        yield

    monkeypatch.setattr(margin, "newton", no_step)
    criterion, _ = margins.reference(60, 0, 3, "l1")
    solution = solve(criterion, Simplex(), "newton", tol=1e-6)
    assert solution.converged
    assert solution.value == pytest.approx(4.85697904, rel=2e-6)


@every_kind
def test_auto_takes_libsvm_for_many_rows(margins, kind):
    X, y = margins.data(LIBSVM_FROM, 0)
    bank = DenseBank(margins.kernels(X))
    many = Margin(bank, y[:, None], **margins.kinds[kind])
    assert many.preferred_method == "newton"
    few, _ = margins.reference(60, 0, 3, kind)
    assert few.preferred_method == "interior_point"

"""The margin criterion: reference values, derivatives, and bounds that always hold."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from estimators import in_turn
from kernelweave._array import FactorizationError, to_numpy
from kernelweave.criteria.margin import Margin
from kernelweave.inner.svm import balanced, best_intercept
from kernelweave.kernels import DenseBank
from kernelweave.protocols import InfeasibleError
from kernelweave.solvers import certify
from kernelweave.weights import LpBall, Simplex, Uniform

MARGINS = [
    {"margin": "hard"},
    {"margin": "l1", "C": 0.3},
    {"margin": "l2", "C": 2.0},
    {"margin": "l2", "C": "learn"},
]
every_margin = pytest.mark.parametrize("kind", MARGINS, ids=str)
every_set = pytest.mark.parametrize(
    "weight_set", [Simplex(), LpBall(1.5), Uniform()], ids=repr
)


def problem(rng, kind, n=24, p=3, k=1, unlabelled=0):
    """Full-rank kernels, so that every margin exists, and weights that sum to one."""
    parts = rng.standard_normal((p, n, n))
    stack = parts @ parts.transpose(0, 2, 1) / n + 0.1 * np.eye(n)
    signs = np.where(rng.random((n, k)) < 0.5, 1.0, -1.0)
    signs[:2] = np.array([[1.0], [-1.0]])
    if unlabelled:
        signs[n - unlabelled :] = 0.0
        signs[n // 2, 0] = 0.0  # this row has no label in one column only
    criterion = Margin(DenseBank(stack), signs, **kind)
    return criterion, rng.dirichlet(np.ones(criterion.n_weights))


def value_at(criterion, weights):
    return criterion.evaluate(weights, hessian=False).value


@every_margin
@pytest.mark.parametrize(("k", "unlabelled"), [(1, 0), (3, 5), (1, 22)])
def test_gradient_and_hessian_are_those_of_the_value(rng, kind, k, unlabelled):
    criterion, weights = problem(rng, kind, p=2, k=k, unlabelled=unlabelled)
    state = criterion.evaluate(weights)
    steps = 1e-4 * np.eye(len(weights))
    ahead = [criterion.evaluate(weights + step, hessian=False) for step in steps]
    behind = [criterion.evaluate(weights - step, hessian=False) for step in steps]
    slopes = [(a.value - b.value) / 2e-4 for a, b in zip(ahead, behind, strict=True)]
    np.testing.assert_allclose(state.gradient, slopes, rtol=1e-4)
    rows = [
        (a.gradient - b.gradient) / 2e-4 for a, b in zip(ahead, behind, strict=True)
    ]
    size = np.max(np.abs(state.hessian)) + 1e-4 * np.max(np.abs(state.gradient))
    # The active set may change within a finite-difference step.
    # measured in 100 seeds: up to 1.6e-3
    np.testing.assert_allclose(state.hessian, rows, rtol=0, atol=5e-3 * size)
    np.testing.assert_allclose(state.hessian, state.hessian.T, atol=1e-9 * size)


@pytest.mark.parametrize("kind", [MARGINS[0], *MARGINS[2:]], ids=str)
def test_an_active_set_continues_where_a_path_gives_up(rng, kind):
    """Of machines without a box: value, gradient, Hessian and dual point are equal.

    A path ends at a gap of 1e-6 at most, which determines all but the value to 1e-3.
    """
    criterion, weights = problem(rng, kind, k=2, unlabelled=5)
    expected = criterion.evaluate(weights)
    criterion.path_steps = 2
    found = criterion.evaluate(weights)
    assert found.n_factorizations < expected.n_factorizations
    assert found.value == pytest.approx(expected.value, rel=2e-6)
    for name in ("gradient", "hessian", "coef"):  # measured in 80 seeds: up to 2e-3
        wanted = getattr(expected, name)
        size = np.max(np.abs(wanted))
        np.testing.assert_allclose(getattr(found, name), wanted, atol=0.01 * size)


def gap_parts(criterion, weights, coef):
    """Products of slacks and multipliers whose sum is the primal minus the dual value.

    With ``m = y (K a y + b)`` and ``xi = max(1 - m, 0)``, as ``y'a = 0``::

        l1    sum_i  2 a_i max(m_i - 1, 0) + 2 (C - a_i) xi_i
        l2    sum_i  2 a_i max(m_i - 1, 0) + (xi_i - tau a_i)^2 / tau
        hard  sum_i  2 a_i (m_i / rho - 1),  plus  a'K a (1 / rho - 1)^2,  rho = min m
    """
    tau, kernel_weights = criterion.problem.split(weights)
    f = np.tensordot(kernel_weights, criterion.bank.stack, 1) @ coef
    f_and_b = f + criterion.intercept(weights, coef)
    parts = []
    for c, y in enumerate(criterion.signs.T):
        a, m = (coef[:, c] * y)[y != 0], (f_and_b[:, c] * y)[y != 0]
        xi, over = np.maximum(1 - m, 0), np.maximum(m - 1, 0)
        if criterion.margin == "l1":
            parts += [2 * a * over, 2 * (criterion.problem.bound - a) * xi]
        elif criterion.margin == "l2":
            parts += [2 * a * over, (xi - tau * a) ** 2 / tau]
        else:
            rho = np.min(m)
            parts += [
                2 * a * (m / rho - 1),
                [coef[:, c] @ f[:, c] * (1 / rho - 1) ** 2],
            ]
    return np.concatenate(parts)


@every_margin
def test_the_dual_point_satisfies_its_conditions(rng, kind):
    criterion, weights = problem(rng, kind, k=2, unlabelled=4)
    state = criterion.evaluate(weights)
    coef = to_numpy(state.coef)
    a = coef * criterion.signs
    assert np.all(coef[criterion.signs == 0] == 0)
    assert np.min(a) >= 0 and np.max(a) <= criterion.problem.bound
    np.testing.assert_allclose(coef.sum(axis=0), 0, atol=1e-12 * a.sum())
    # No product exceeds their sum, the duality gap. SVMs are solved to a gap of 1e-11
    # relative to the value; the largest of 4,000 was 1.1e-11.
    parts = gap_parts(criterion, weights, coef)
    assert np.min(parts) >= 0
    assert np.sum(parts) <= 1e-10 * state.value


def test_the_machine_is_that_of_scikit_learn(rng):
    criterion, weights = problem(rng, {"margin": "l1", "C": 0.3}, n=40)
    state = criterion.evaluate(weights)
    kernel = np.tensordot(weights, criterion.bank.stack, 1)
    svc = SVC(C=0.3, kernel="precomputed", tol=1e-8).fit(kernel, criterion.signs[:, 0])
    expected = np.zeros(40)
    expected[svc.support_] = svc.dual_coef_[0]
    np.testing.assert_allclose(state.coef[:, 0], expected, atol=1e-5)
    f = kernel @ state.coef + criterion.intercept(weights, state.coef)
    np.testing.assert_allclose(f[:, 0], svc.decision_function(kernel), atol=1e-4)


@pytest.mark.one_seed
@in_turn(
    kind=[kind for kind in MARGINS for _ in range(3)],
    weight_set=[Simplex(), LpBall(1.5), Uniform()],
    size=[1e-3, 1.0, 1e3, 1.0],
)
def test_bounds_hold_for_any_dual_point(rng, kind, weight_set, size):
    criterion, _ = problem(rng, kind, k=2, unlabelled=4)
    weights = weight_set.start(criterion.n_weights)
    coef = size * rng.standard_normal(criterion.signs.shape)
    dual = size * rng.standard_normal(criterion.signs.shape)
    upper, lower, _ = certify(criterion, weight_set, weights, coef, dual)
    if not isinstance(weight_set, Uniform):
        others = [weight_set.scale(rng.random(len(weights))) for _ in range(3)]
        assert lower <= min(value_at(criterion, other) for other in others) * (1 + 1e-9)
    value = value_at(criterion, weights)
    assert lower <= value * (1 + 1e-9)
    assert upper >= value * (1 - 1e-9)


@every_margin
def test_the_best_points_have_no_gap(rng, kind):
    criterion, _ = problem(rng, kind)
    weights = np.full(criterion.n_weights, 1 / criterion.n_weights)
    state = criterion.evaluate(weights)
    upper, lower, gap = certify(criterion, Uniform(), weights, state.coef)
    assert abs(gap) < 1e-9
    assert lower <= state.value * (1 + 1e-9) and state.value <= upper * (1 + 1e-9)


def test_a_point_is_judged_again_without_a_pass_over_the_kernels(rng, monkeypatch):
    criterion, weights = problem(rng, MARGINS[1])
    coef = criterion.evaluate(weights).coef
    passes, apply = [], DenseBank.apply
    monkeypatch.setattr(DenseBank, "apply", lambda *a: passes.append(1) or apply(*a))
    first = criterion.certificate_terms(weights, coef, coef)
    criterion.intercept(weights, coef)
    moved = criterion.certificate_terms(weights[::-1], coef, coef)
    assert len(passes) == 1 and moved.upper != first.upper
    other = criterion.certificate_terms(weights, 0.5 * coef, 0.5 * coef)
    assert len(passes) == 2 and other.upper != first.upper


def test_a_point_is_made_feasible_and_then_left_alone(rng):
    signs = np.where(rng.random((30, 2)) < 0.4, 1.0, -1.0)
    signs[0], signs[1], signs[-3:] = 1.0, -1.0, 0.0
    coef = rng.standard_normal((30, 2))
    coef[4] = np.nan
    once = balanced(coef, signs, 0.7)
    a = once * signs
    assert np.min(a) >= 0 and np.max(a) <= 0.7
    np.testing.assert_allclose(once.sum(axis=0), 0, atol=1e-13)
    np.testing.assert_array_equal(balanced(once, signs, 0.7), once)


@pytest.mark.parametrize("loss", ["l1", "l2", "hard"])
def test_no_other_intercept_is_better(rng, loss):
    y = np.where(rng.random(25) < 0.4, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    f = rng.standard_normal(25) + rng.choice([0.0, 5.0]) * y

    def cost(b):
        if loss == "hard":
            return -np.min(y * (f + b))
        slack = np.maximum(1 - y * (f + b), 0)
        return np.sum(slack if loss == "l1" else slack**2)

    best = best_intercept(f, y, loss)
    grid = np.concatenate([np.linspace(-9, 9, 4001), best + np.array([-1e-6, 1e-6])])
    assert cost(best) <= min(cost(b) for b in grid) + 1e-9


def test_weights_of_either_sign_are_evaluated(rng):
    criterion, _ = problem(rng, {"margin": "l1", "C": 0.3})
    weights = np.array([1.0, 0.5, -0.01])
    whole = np.tensordot(weights, criterion.bank.stack, 1)
    single = Margin(DenseBank(whole[None]), criterion.signs, "l1", 0.3)
    assert value_at(criterion, weights) == pytest.approx(
        value_at(single, np.ones(1)), rel=1e-9
    )


def test_an_indefinite_sum_is_an_error_where_machines_are_trained(rng):
    criterion, _ = problem(rng, {"margin": "l1", "C": 0.3}, n=210)
    assert criterion.trains
    with pytest.raises(FactorizationError, match="not positive"):
        criterion.evaluate(np.array([1.5, -1.0, 0.5]))


@pytest.mark.parametrize("drawn", [None, 214227606])  # and one that scaled rounding up
def test_not_separable_is_an_error_with_a_proof(rng, drawn):
    n, rng = 20, rng if drawn is None else np.random.default_rng(drawn)
    X = rng.standard_normal((n, 2))
    X[1] = X[0]
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)[:, None]
    criterion = Margin(DenseBank((X @ X.T)[None]), signs, "hard")
    with pytest.raises(InfeasibleError, match="separates the two classes") as caught:
        criterion.evaluate(np.ones(1))
    _, lower, gap = certify(criterion, Uniform(), np.ones(1), caught.value.coef)
    # measured: 7e12 to 4e15
    assert lower > 1e10 and gap == np.inf
    assert isinstance(caught.value, FactorizationError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"margin": "l3"}, "margin must be 'l1', 'l2' or 'hard', got 'l3'"),
        ({"C": 0.0}, "C must be a finite float > 0 or 'learn', got 0.0"),
        ({"C": np.inf}, "margin='hard' allows no errors"),
        ({"C": None}, "C must be a finite float > 0 or 'learn', got None"),
        ({"C": "auto"}, "C must be a float > 0 or 'learn', got 'auto'"),
        ({"C": "learn"}, "C='learn' needs margin='l2'"),
    ],
)
def test_bad_parameters_are_named(arguments, message):
    bank = DenseBank(np.eye(4)[None])
    with pytest.raises(ValueError, match=message):
        Margin(bank, np.array([[1.0], [-1.0], [1.0], [-1.0]]), **arguments)


@pytest.mark.parametrize(
    ("signs", "message"),
    [
        (np.ones(4), r"shape \(4, k\) with one row per sample; got \(4,\)"),
        (np.ones((3, 1)), r"shape \(4, k\) with one row per sample; got \(3, 1\)"),
        (np.ones((4, 0)), r"got \(4, 0\)"),
        (np.array([[1.0], [2.0], [-1.0], [0.0]]), "row 1, column 0 has"),
        (np.array([[1.0], [np.nan], [-1.0], [0.0]]), "row 1, column 0 has"),
        (np.array([[1.0], [1.0], [0.0], [1.0]]), "3 of [+]1 and 0 of -1"),
    ],
)
def test_bad_signs_are_named(signs, message):
    with pytest.raises(ValueError, match=message):
        Margin(DenseBank(np.eye(4)[None]), signs)


def test_remarks_name_what_is_not_identifiable(rng):
    criterion, _ = problem(rng, {"margin": "l2", "C": "learn"})
    stack = np.concatenate([criterion.bank.stack, criterion.bank.stack[:1]])
    twice = Margin(DenseBank(stack), criterion.signs, "l2", "learn")
    remarks = " ".join(twice.remarks(np.array([0.0, 0.4, 0.2, 0.2, 0.2])))
    assert "'kernel 0' and 'kernel 3' are the same" in remarks
    assert "the learned C is infinite" in remarks

"""The certificate: it trusts no solver and accepts no weights outside the set."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.protocols import relative_gap
from kernelweave.solvers import certify, solve
from kernelweave.weights import LpBall, Simplex, Uniform

SETS = [Simplex(), LpBall(1.5), LpBall(2), LpBall(4), Uniform()]
every_set = pytest.mark.parametrize("weight_set", SETS, ids=repr)
every_penalty = pytest.mark.parametrize("penalty", [1e-4, 1e-2, "learn"])


@every_set
@every_penalty
def test_bounds_enclose_the_optimum_for_any_dual_point(
    small_problem, rng, weight_set, penalty
):
    criterion = small_problem(penalty)
    optimum = solve(criterion, weight_set)
    start = weight_set.start(criterion.n_weights)
    exact = criterion.evaluate(start).coef
    for noise in (0.0, 1e-3, 1.0, 30.0):
        coef = exact + noise * np.max(np.abs(exact)) * rng.standard_normal(exact.shape)
        value, lower, gap = certify(criterion, weight_set, start, coef)
        assert lower <= optimum.value * (1 + 1e-12)
        assert value >= optimum.lower_bound * (1 - 1e-12)
        assert gap == pytest.approx((value - lower) / abs(value))


@every_set
@every_penalty
def test_a_better_dual_point_gives_a_better_bound(small_problem, weight_set, penalty):
    criterion = small_problem(penalty)
    optimum = solve(criterion, weight_set)
    start = weight_set.start(criterion.n_weights)
    coef = criterion.evaluate(start).coef
    own = certify(criterion, weight_set, start, coef)
    lent = certify(criterion, weight_set, start, coef, optimum.dual)
    assert lent[0] == pytest.approx(own[0], rel=1e-12)
    assert lent[1] >= own[1] * (1 - 1e-12)
    assert lent[1] == pytest.approx(optimum.lower_bound, rel=1e-9)


@every_set
@every_penalty
def test_the_solution_can_be_certified_again(small_problem, weight_set, penalty):
    criterion = small_problem(penalty)
    solution = solve(criterion, weight_set)
    again = certify(
        criterion, weight_set, solution.weights, solution.coef, solution.dual
    )
    assert again == (solution.value, solution.lower_bound, solution.gap)


def test_a_dual_point_may_be_changed_in_place(small_problem):
    """Products with it are remembered by value, or the bounds would be of another."""
    criterion = small_problem(1e-2)
    start = Simplex().start(criterion.n_weights)
    coef = criterion.evaluate(start).coef
    before = certify(criterion, Simplex(), start, coef)
    coef *= 1.5
    after = certify(criterion, Simplex(), start, coef)
    expected = certify(small_problem(1e-2), Simplex(), start, coef.copy())
    assert after == pytest.approx(expected, rel=1e-12)
    assert after[1] < before[1] < before[0] < after[0]
    with pytest.raises(ValueError, match=r"dual point must have the shape .* got \(3,"):
        certify(criterion, Simplex(), start, coef[:3])


@every_set
@pytest.mark.parametrize("spoil", ["negative", "too much", "nan"])
def test_weights_outside_the_set_are_refused(small_problem, weight_set, spoil):
    criterion = small_problem(1e-2)
    weights = weight_set.start(10)
    coef = criterion.evaluate(weights).coef
    if spoil == "negative":
        weights[3] = -1e-3
    elif spoil == "too much":
        weights *= 1.001
    else:
        weights[0] = np.nan
    with pytest.raises(ValueError, match=r"weights violate .* only allowed weights"):
        certify(criterion, weight_set, weights, coef)


def test_weights_may_be_a_list_with_one_number_per_kernel(small_problem):
    criterion, weights = small_problem(1e-2), [0.1] * 10
    coef = criterion.evaluate(np.array(weights)).coef
    for weight_set in (Simplex(), LpBall(2)):
        assert certify(criterion, weight_set, weights, coef)[0] > 0.0
    with pytest.raises(ValueError, match=r"the shape \(10,\), .* got \(9,\)"):
        certify(criterion, Simplex(), [1 / 9] * 9, coef)


def test_rounding_of_the_weights_is_forgiven(small_problem):
    criterion = small_problem(1e-2)
    weights = Simplex().start(10) * (1 + 1e-12)
    value, lower, _ = certify(
        criterion, Simplex(), weights, criterion.evaluate(weights).coef
    )
    assert value >= lower


@pytest.mark.parametrize(
    ("value", "lower", "gap"),
    [(4.0, 3.0, 0.25), (-4.0, -5.0, 0.25), (0.0, 0.0, 0.0), (0.0, -1.0, np.inf)],
)
def test_the_gap_is_relative_to_the_size_of_the_value(value, lower, gap):
    assert relative_gap(value, lower) == gap

"""Sets defined by linear constraints, checked against linear programs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from kernelweave import Alignment, Fisher, Margin, Simplex, solve
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.protocols import Polyhedron, WeightSet
from kernelweave.weights import CappedSimplex, PolyhedralSet


class Budgets(PolyhedralSet):
    """``sum_i w_i = 1, 0.02 <= w_i <= 0.6``, and half of them sum to at most 0.4."""

    def polyhedron(self, m):
        half = (np.arange(m) < m / 2).astype(float)[None, :]
        return Polyhedron.sum_to_one(m, 0.02, 0.6, half, np.array([0.4]))


SETS = [CappedSimplex(0.3), CappedSimplex(0.999), CappedSimplex(2.0), Budgets()]
every_set = pytest.mark.parametrize("weight_set", SETS, ids=repr)
M = 7


def truth(weight_set, scores):
    """The largest ``<scores, w>``, from a separate linear program."""
    allowed = weight_set.polyhedron(len(scores))
    found = linprog(
        -scores,
        A_ub=allowed.below,
        b_ub=allowed.below_to,
        A_eq=allowed.equal,
        b_eq=allowed.equal_to,
        bounds=allowed.limits,
    )
    return -found.fun


@every_set
def test_support_is_attained_and_never_too_small(weight_set, rng):
    for scale in (1e-8, 1.0, 1e8):
        scores = scale * rng.normal(size=M)
        expected = scale * truth(weight_set, scores / scale)
        found = weight_set.support(scores)
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-9 * scale)
        best = weight_set.maximizer(scores)
        assert weight_set.violation(best) <= 1e-9
        assert scores @ best == pytest.approx(expected, rel=1e-7, abs=1e-7 * scale)
        assert scores @ best <= found + 1e-9 * scale


@every_set
def test_start_is_inside_every_inequality(weight_set):
    assert isinstance(weight_set, WeightSet)
    start, allowed = weight_set.start(M), weight_set.polyhedron(M)
    assert np.all(allowed.below @ start < allowed.below_to)
    assert np.all((allowed.limits[:, 0] < start) & (start < allowed.limits[:, 1]))
    assert_allclose(allowed.equal @ start, allowed.equal_to, atol=1e-9)
    assert not weight_set.is_point(M)
    assert weight_set.is_point(1) or not isinstance(weight_set, CappedSimplex)


@every_set
def test_anything_is_moved_onto_the_set_and_what_is_inside_stays(weight_set, rng):
    for _ in range(20):
        anything = rng.exponential(size=M) * (rng.uniform(size=M) < 0.6)
        inside = weight_set.scale(anything)
        assert weight_set.violation(inside) <= 1e-9
        assert_allclose(weight_set.scale(inside), inside, atol=1e-9)


@every_set
def test_violation_names_what_is_wrong(weight_set):
    start = weight_set.start(M)
    negative = start.copy()
    negative[2] = -0.25
    assert weight_set.violation(negative) >= 0.25
    assert weight_set.violation(start + 0.5) >= 0.4
    assert weight_set.violation(start) <= 1e-9
    assert np.isnan(weight_set.violation(start * np.nan))


class Limited(PolyhedralSet):
    """``sum_i a_i w_i = to`` or ``<= to``, within limits."""

    def __init__(self, factors, equal=True, low=0.0, high=np.inf, to=1.0):
        self.factors, self.equal, self.to = np.atleast_2d(factors), equal, to
        self.limits = np.empty((self.factors.shape[1], 2))
        self.limits[:, 0], self.limits[:, 1] = low, high

    def polyhedron(self, m):
        none, rows = (
            (np.zeros((0, m)), np.zeros(0)),
            (self.factors, np.array([self.to])),
        )
        parts = (*rows, *none) if self.equal else (*none, *rows)
        return Polyhedron(*parts, self.limits)


def some_kernels(rng):
    """Five kernels over nine rows, centred, (5, 9, 9)."""
    return center_and_scale(np.stack([np.outer(x, x) for x in rng.normal(size=(5, 9))]))


@pytest.mark.parametrize("equal", [True, False])
def test_other_constraints_may_stand_in_for_upper_limits(equal, rng):
    factors = rng.uniform(0.5, 2.0, size=5)
    without, stated = (
        Limited(factors, equal, high=high) for high in (np.inf, 1.0 / factors)
    )
    for scores in rng.normal(size=(5, 5)):
        expected = stated.support(scores)
        assert without.support(scores) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    target = np.linspace(-1.0, 1.0, 9)[:, None]
    criterion = Fisher(DenseBank(some_kernels(rng)), target, 0.1)
    solutions = [solve(criterion, weight_set) for weight_set in (without, stated)]
    assert all(solution.converged for solution in solutions)
    assert solutions[0].value == pytest.approx(solutions[1].value, rel=1e-7)


WRONG = {
    "limits of weight 2 is nan": {"high": [1.0, 1.0, np.nan]},
    "limits of weight 1 is inf": {"low": [0.0, np.inf, 0.0]},
    "limits of weight 0 is -inf": {"high": [-np.inf, 1.0, 1.0]},
    "below of row 1 is nan": {"below": [[1.0, 0.0, 0.0], [0.0, np.nan, 0.0]]},
    "below_to of row 0 is inf": {"below": [[1.0, 0.0, 0.0]], "below_to": [np.inf]},
}


@pytest.mark.parametrize("words", WRONG)
def test_odd_numbers_in_constraints_are_named(words):
    constraints = {name: np.array(numbers) for name, numbers in WRONG[words].items()}
    with pytest.raises(ValueError, match=rf"Polyhedron: {words}\. State a finite"):
        Polyhedron.sum_to_one(3, **constraints)


def test_limits_that_cannot_be_are_named():
    with pytest.raises(ValueError, match=r"Limited: weight 1 has no upper limit, and"):
        Limited([1.0, 0.0, 1.0]).start(3)
    with pytest.raises(ValueError, match=r"weight 0 has no upper limit"):
        Limited([1.0, -1.0]).support(np.ones(2))
    with pytest.raises(ValueError, match=r"no 2 weights satisfy all .* of Limited"):
        Limited([-1.0, -1.0]).support(np.ones(2))
    with pytest.raises(ValueError, match=r"Limited: weight 1 has the lower limit -0.5"):
        Limited([1.0, 1.0], low=[0.0, -0.5]).is_point(2)


def test_weights_are_capped_in_proportion():
    """``min(cap, t w)``: weights below their caps keep their ratios."""
    found = CappedSimplex(0.4).scale(np.array([8.0, 1.0, 2.0, 0.0]))
    assert_allclose(found, [0.4, 0.2, 0.4, 0.0], atol=1e-12)
    few = CappedSimplex(0.4).scale(np.array([1.0, 0.0, 0.0, 0.0]))
    assert_allclose(few, [0.4, 0.2, 0.2, 0.2], atol=1e-12)
    each = CappedSimplex([1.0, 0.1, 0.1])
    assert_allclose(each.scale(np.ones(3)), [0.8, 0.1, 0.1], atol=1e-12)


def test_caps_without_room_leave_one_point():
    tight = CappedSimplex(1.0 / 6.0)
    assert tight.is_point(6)
    assert_allclose(tight.scale(np.arange(6.0)), np.full(6, 1 / 6), atol=1e-12)


def test_impossible_sets_are_named():
    with pytest.raises(ValueError, match=r"CappedSimplex\(0.1\): 5 .* most 0.5"):
        CappedSimplex(0.1).start(5)
    with pytest.raises(ValueError, match=r"Simplex\(0.2499999\): .* most 0.9999996"):
        CappedSimplex(0.2499999).start(4)
    with pytest.raises(ValueError, match=r"has 2 caps for 5 weights"):
        CappedSimplex([0.5, 0.6]).start(5)
    with pytest.raises(ValueError, match=r"no 1 weights satisfy .* Budgets$"):
        Budgets().start(1)
    with pytest.raises(ValueError, match=r"Flat: weight 0 can only be 0; leave out"):
        Flat("fixed", 0.0).start(4)


class Flat(PolyhedralSet):
    """Constraints that leave no room somewhere, in one of three ways."""

    def __init__(self, how, level=0.2):
        self.how, self.level = how, level

    def polyhedron(self, m):
        first = np.eye(m)[:1]
        if self.how == "fixed":
            at = np.where(first[0] == 1.0, self.level, np.nan)
            low, high = np.nan_to_num(at, nan=0.0), np.nan_to_num(at, nan=1.0)
            return Polyhedron.sum_to_one(m, low, high)
        if self.how == "between":
            both, room = np.concatenate([first, -first]), self.level * np.array([1, -1])
            return Polyhedron.sum_to_one(m, below=both, below_to=room)
        # the first, all others, and their sum
        equal = np.concatenate([first, 1.0 - first, np.ones((1, m))])
        to = np.array([self.level, 1.0 - self.level, 1.0])
        free = np.tile([0.0, 1.0], (m, 1))
        return Polyhedron(equal, to, np.zeros((0, m)), np.zeros(0), free)


@pytest.mark.parametrize("how", ["fixed", "between", "redundant"])
def test_constraints_may_leave_no_room(how, rng):
    """Of a fixed weight, once an arbitrary point of the set was the answer."""
    X, y = rng.normal(size=(30, 4)), np.where(np.arange(30) % 2, 1.0, -1.0)
    X += y[:, None] * np.array([1.0, 0.6, 0.3, 0.0])
    stack = np.stack([np.outer(x, x) for x in X.T]) + 0.1 * np.eye(30)
    bank, weight_set = DenseBank(center_and_scale(stack)), Flat(how)
    assert not weight_set.is_point(4)
    assert Flat(how, 0.3).is_point(2)
    moved = weight_set.scale(rng.dirichlet(np.ones(4)))
    assert_allclose(weight_set.scale(moved), moved, atol=1e-12)
    for criterion in (
        Fisher(bank, y[:, None], 0.1),
        Margin(bank, y[:, None], "l1", 1.0),
        Alignment(bank, y),
    ):
        solution = solve(criterion, weight_set)
        assert solution.converged, solution.status
        assert solution.weights[0] == pytest.approx(0.2)


@pytest.mark.parametrize(
    "allowed",
    [
        Limited(np.ones(5), equal=False),
        Limited(np.ones(5), equal=False, high=0.4),
        Limited(np.full(5, 0.5), equal=True),
        Limited(np.zeros(5), equal=False, high=[0.1, 0.2, 0.3, 0.4, 0.5]),
        Limited(np.full(5, 1.97), to=3.0),
    ],
    ids=["sum <= 1", "sum <= 1 within a box", "sum = 2", "box", "weighted sum"],
)
def test_alignment_depends_on_the_cone_only(allowed, rng):
    """Rounding of a weighted sum once became constraints that took the optimum."""
    criterion = Alignment(DenseBank(some_kernels(rng)), np.linspace(-1.0, 1.0, 9))
    solution = solve(criterion, allowed)
    assert solution.converged, solution.status
    best = solve(criterion, Simplex())
    assert solution.value == pytest.approx(best.value, rel=1e-7)


def test_alignment_within_a_box_away_from_zero(rng):
    """Over ``0.1 <= w_i <= 0.5`` no weight exceeds five times another."""
    criterion = Alignment(DenseBank(some_kernels(rng)), np.linspace(-1.0, 1.0, 9))
    ratios = np.concatenate(
        [np.eye(5)[i] - 5.0 * np.delete(np.eye(5), i, 0) for i in range(5)]
    )
    cone = Budgets()
    cone.polyhedron = lambda m: Polyhedron.sum_to_one(m, below=ratios)
    solutions = [
        solve(criterion, weight_set)
        for weight_set in (Limited(np.zeros(5), equal=False, low=0.1, high=0.5), cone)
    ]
    assert all(solution.converged for solution in solutions)
    assert solutions[0].value == pytest.approx(solutions[1].value, rel=1e-7)


def test_caps_are_positive_numbers():
    for cap in (0.0, -1.0, float("nan"), np.inf, [[0.5]], "half", None):
        with pytest.raises(ValueError, match="cap must be a number > 0"):
            CappedSimplex(cap)
    caps = np.array([0.5, 0.5, 0.1])
    weight_set = CappedSimplex(caps)
    caps[:] = 1.0
    assert np.max(weight_set.maximizer(np.arange(3.0))) == 0.5

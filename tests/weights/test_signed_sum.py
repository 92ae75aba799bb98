"""Weights of any sign: the set, checked against eigenvalues and a cone solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from estimators import in_turn
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.solvers.reference import run_solver
from kernelweave.weights import SignedSum, Simplex, WeightSet
from kernelweave.weights.polyhedral import box_maximizer


def make(rng, n=10, p=4, bound=100.0, rank=None):
    parts = [rng.standard_normal((n, rank or 2 * n)) for _ in range(p)]
    stack = center_and_scale(np.stack([z @ z.T for z in parts]))
    return SignedSum(DenseBank(stack), bound)


def lowest(weight_set, weights):
    total = weight_set.bank.combine(np.asarray(weights)[-weight_set.bank.n_kernels :])
    return np.linalg.eigvalsh(total)[0]


def test_follows_the_protocol(rng):
    weight_set = make(rng)
    assert isinstance(weight_set, WeightSet)
    assert repr(weight_set) == "SignedSum(bound=100)"
    assert "cuts" in weight_set.offers
    start = weight_set.start(4)
    np.testing.assert_allclose(start, 0.25)
    assert weight_set.violation(start) == 0.0
    np.testing.assert_allclose(weight_set.scale(np.array([3.0, -1, 1, 1])).sum(), 1)


def test_it_contains_the_simplex_and_more(rng):
    weight_set = make(rng)
    for weights in (*rng.dirichlet(np.ones(4), size=5), *np.eye(4)):
        assert weight_set.violation(weights) <= 1e-12
    point = weight_set.maximizer(-np.eye(4)[0])
    # measured over 21 seeds: -0.79 to -0.38
    assert point[0] < -0.1
    assert weight_set.violation(point) <= 1e-10


def test_violation_measures_what_is_wrong(rng):
    weight_set = make(rng, bound=3.0)
    assert weight_set.violation(np.full(4, 0.5)) == pytest.approx(1.0)
    assert np.isnan(weight_set.violation(np.full(4, np.nan)))
    far = np.array([-2.0, 1.0, 1.0, 1.0])
    largest = np.linalg.eigvalsh(weight_set.bank.combine(np.full(4, 0.25)))[-1]
    expected = -lowest(weight_set, far) / largest
    assert weight_set.violation(far) == pytest.approx(expected, rel=1e-6)
    assert weight_set.violation(np.array([10.0, -8.0, -2.0, 1.0])) >= 7.0
    others = np.array([-0.2, 0.3, 0.3, 0.3, 0.3])
    assert weight_set.violation(others) == pytest.approx(0.2)


def test_pulling_back_ends_on_the_boundary(rng):
    weight_set = make(rng)
    for _ in range(5):
        outside = weight_set.scale(np.array([-0.9, 0.6, 0.6, 0.7]) + rng.random(4))
        cuts = len(weight_set.cuts)
        inside = weight_set.separate(outside)
        assert np.sum(inside) == pytest.approx(1.0)
        assert weight_set.violation(inside) <= 1e-10
        if lowest(weight_set, outside) < -1e-6:
            new = weight_set.cuts[cuts:]
            assert len(new) and np.all(new @ outside < 0)
            assert np.min(np.abs(new @ inside)) <= 1e-9  # it touches the set
            # A point slightly further along the segment lies outside.
            beyond = inside + 1e-3 * (outside - inside)
            null = np.sort(np.linalg.eigvalsh(weight_set.bank.combine(beyond)))
            assert null[0] < -1e-9
    uniform = weight_set.start(4)
    assert weight_set.separate(uniform) is uniform


def test_cuts_hold_on_the_set(rng):
    weight_set = make(rng)
    points = [weight_set.maximizer(rng.standard_normal(4)) for _ in range(2)]
    points += [*np.eye(4), *rng.dirichlet(np.ones(4), size=3)]
    assert np.min(weight_set.cuts @ np.array(points).T) >= -1e-9
    np.testing.assert_allclose(weight_set.cuts.mean(axis=1), 1.0, atol=1e-9)


def test_support_is_that_of_a_cone_solver(rng):
    cp = pytest.importorskip("cvxpy")
    weight_set = make(rng, bound=5.0)
    stack = weight_set.bank.stack
    for _ in range(2):
        scores = rng.standard_normal(4)
        w = cp.Variable(4)
        total = cp.reshape(stack.reshape(4, -1).T @ w, (10, 10), order="C")
        allowed = [cp.sum(w) == 1, cp.abs(w) <= 5, total >> 0]
        problem = cp.Problem(cp.Maximize(scores @ w), allowed)
        run_solver(problem)
        support, point = weight_set.support(scores), weight_set.maximizer(scores)
        assert support == pytest.approx(problem.value, rel=1e-5, abs=1e-6)
        assert support >= problem.value - 1e-5  # the accuracy of the cone solver
        assert weight_set.violation(point) <= 1e-10
        assert scores @ point == pytest.approx(support, rel=1e-6, abs=1e-7)


def test_support_is_sharp_whatever_the_bound():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((12, 5))
    distances = np.sum((X[:, None] - X[None]) ** 2, axis=2)
    widths = 10.0 ** rng.uniform(-2, 1, size=4)
    kernels = np.exp(-widths[:, None, None] * distances)
    weight_set = SignedSum(DenseBank(center_and_scale(kernels)), bound=1e6)
    scores = rng.standard_normal(4)
    point = weight_set.maximizer(scores)
    missing = weight_set.support(scores) - scores @ point
    # 1e-10; 6e-7 if the sum of the weights has a multiplier, which is rounded
    assert missing <= 1e-8 * np.max(np.abs(scores)) * np.max(np.abs(point))


def test_support_is_never_below_that_of_the_simplex(rng):
    weight_set = make(rng, p=5, n=12)
    for _ in range(2):
        scores = rng.standard_normal(5)
        assert weight_set.support(scores) >= Simplex().support(scores) - 1e-9


def test_support_is_homogeneous():
    weight_set = make(np.random.default_rng(0))
    scores = np.array([0.2, 3.0, 1.0, 0.5])
    expected = weight_set.support(scores)
    for factor in (1e-100, 1e-6, 1e6, 1e100):
        found = weight_set.support(factor * scores)
        assert found == pytest.approx(factor * expected, rel=1e-8), factor


def test_weights_of_other_terms_stay_positive(rng):
    weight_set = make(rng)
    scores = np.array([-5.0, 0.1, 0.2, 0.3, 0.4])
    point = weight_set.maximizer(scores)
    assert point[0] >= 0.0
    assert weight_set.violation(point) <= 1e-10
    top = weight_set.maximizer(np.array([5.0, 0, 0, 0, 0]))
    np.testing.assert_allclose(top, [1, 0, 0, 0, 0], atol=1e-9)
    inside = weight_set.separate(np.array([-0.2, 0.3, 0.3, 0.3, 0.3]))
    assert inside[0] == 0.0 and np.sum(inside) == pytest.approx(1.0)


def test_one_kernel_leaves_no_choice(rng):
    weight_set = make(rng, p=1)
    assert weight_set.support(np.array([-3.0])) == pytest.approx(-3.0)
    np.testing.assert_allclose(weight_set.maximizer(np.array([2.0])), [1.0])


def test_kernels_of_low_rank(rng):
    """Common null spaces add no constraint; disjoint ranges allow no negative sign."""
    n = 9
    vectors = np.linalg.qr(rng.standard_normal((n, n)))[0][:, :3]
    stack = n * np.einsum("ip,jp->pij", vectors, vectors)
    weight_set = SignedSum(DenseBank(stack))
    assert weight_set.support(-np.eye(3)[0]) == pytest.approx(0.0, abs=1e-9)
    assert weight_set.support(np.array([1.0, 2, 3])) == pytest.approx(3.0, abs=1e-8)


def test_points_beyond_the_bound_are_pulled_inside(rng):
    """Alignment at its bound ended in an error: weights 6e-9 beyond it."""
    stack = make(rng).bank.stack
    twins = SignedSum(DenseBank(np.stack([stack[0], stack[0]])), bound=1.5)
    for excess in (1e-8, 1.0):
        inside = twins.separate(np.array([1.5 + excess, -0.5 - excess]))
        assert twins.violation(inside) <= 1e-12
        assert inside == pytest.approx([1.5, -0.5])


def test_remarks(rng):
    weight_set = make(rng, bound=2.0)
    assert weight_set.remarks(weight_set.start(4)) == ()
    held = weight_set.remarks(np.array([2.0, -1.0, 0.0, 0.0]))
    assert len(held) == 1 and "bound 2" in held[0] and "'kernel 0'" in held[0]
    stack = weight_set.bank.stack
    twins = SignedSum(DenseBank(np.concatenate([stack, stack[:1]])))
    assert any("collinear" in remark for remark in twins.remarks(twins.start(5)))
    scaled = SignedSum(DenseBank(stack * np.array([1, 1, 1, 9.0])[:, None, None]))
    assert any("equal trace" in remark for remark in scaled.remarks(scaled.start(4)))


def test_box_maximizer_solves_a_linear_program(rng):
    limits = np.array([[0.0, 1.0], [-2.0, 2.0], [-2.0, 2.0], [-2.0, 2.0]])
    for _ in range(10):
        scores = rng.standard_normal(4)
        best = linprog(-scores, A_eq=np.ones((1, 4)), b_eq=[1.0], bounds=limits)
        assert scores @ box_maximizer(scores, limits) == pytest.approx(
            -best.fun, abs=1e-9
        )


@in_turn(
    xp_backend=["numpy", "array_api_strict", "torch"],
    dtype=["float32", "float64", "float32"],
    indirect=["xp_backend"],
)
def test_every_array_library(xp_backend, rng, dtype):
    here = make(rng, p=3)
    stack = xp_backend.xp.asarray(
        here.bank.stack,
        dtype=getattr(xp_backend.xp, dtype),
        device=xp_backend.device,
    )
    there = SignedSum(DenseBank(stack))
    scores = rng.standard_normal(3)
    rel = 1e-7 if dtype == "float64" else 1e-3
    assert there.support(scores) == pytest.approx(here.support(scores), rel=rel)
    assert there.violation(there.maximizer(scores)) <= 1e-9


BAD = {
    "bound": ({"bound": 0.5}, "bound must be a number from 1 to 1e\\+10, got 0.5"),
    "infinite": ({"bound": np.inf}, "a number from 1 to"),
    "none": ({"bound": None}, "a number from 1 to .* got None"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        SignedSum(DenseBank(np.eye(4)[None]), **arguments)


def test_a_kernel_of_zeros_is_named():
    bank = DenseBank(np.stack([np.eye(4), np.zeros((4, 4))]), ["good", "empty"])
    with pytest.raises(ValueError, match=r"kernel 1 \('empty'\) has the trace 0"):
        SignedSum(bank)

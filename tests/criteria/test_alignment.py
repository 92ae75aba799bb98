"""Alignment against its definition, known values and a cone solver."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelweave import Simplex, solve
from kernelweave._array import to_numpy
from kernelweave.criteria import Alignment
from kernelweave.criteria.alignment import Target
from kernelweave.kernels import DenseBank, center_and_scale, spectral_bank
from kernelweave.solvers.alignment import aligned_cuts
from kernelweave.weights import CappedSimplex, LpBall, SignedSum, Uniform

both = pytest.mark.parametrize("centred", [True, False])


def random_stack(rng, n=12, p=4):
    parts = [rng.standard_normal((n, rank)) for rank in rng.integers(1, n, size=p)]
    return np.stack([z @ z.T for z in parts])


def random_problem(rng, centred, n=12, p=4):
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    y[-3:] = 0.0  # unlabelled
    return Alignment(DenseBank(random_stack(rng, n, p)), y, centred=centred), y


def dense(stack, weights, target, centred):
    """The definition, without any shortcuts."""
    kernel = np.tensordot(weights, stack, 1)
    if centred:
        P = np.eye(len(target)) - 1 / len(target)
        kernel, target = P @ kernel @ P, P @ target @ P
    size = np.linalg.norm(kernel) * np.linalg.norm(target)
    return np.sum(kernel * target) / size


@both
def test_value_is_the_definition(rng, centred):
    criterion, y = random_problem(rng, centred)
    rows = np.flatnonzero(y)
    stack = criterion.bank.stack[:, rows][:, :, rows]
    T = np.outer(y[rows], y[rows])
    for weights in (*rng.dirichlet(np.ones(4), size=3), rng.standard_normal(4)):
        expected = dense(stack, weights, T, centred)
        assert criterion.alignment(weights) == pytest.approx(expected, abs=1e-12)
        assert criterion.evaluate(weights).value == pytest.approx(-expected, abs=1e-12)
    singles = [dense(stack, one, T, centred) for one in np.eye(4)]
    np.testing.assert_allclose(criterion.cosines, singles, atol=1e-12)


@both
def test_gradient_and_hessian_are_those_of_the_value(rng, centred):
    criterion, _ = random_problem(rng, centred)
    weights = rng.dirichlet(np.ones(4)) + 0.05
    state, steps = criterion.evaluate(weights), 1e-5 * np.eye(4)
    there = [criterion.evaluate(weights + step) for step in steps]
    back = [criterion.evaluate(weights - step) for step in steps]
    slopes = [(a.value - b.value) / 2e-5 for a, b in zip(there, back, strict=True)]
    bends = [(a.gradient - b.gradient) / 2e-5 for a, b in zip(there, back, strict=True)]
    np.testing.assert_allclose(slopes, state.gradient, atol=1e-7)
    np.testing.assert_allclose(bends, state.hessian, atol=1e-6)
    assert criterion.evaluate(weights, hessian=False).hessian is None


@given(
    seed=st.integers(0, 2**32 - 1),
    quality=st.sampled_from([0.0, 1e-6, 1e-2, 1.0, 100.0]),
    centred=st.booleans(),
    weight_set=st.sampled_from([Simplex(), LpBall(2), LpBall(np.inf)]),
)
def test_the_bound_holds_for_any_dual_point(seed, quality, centred, weight_set):
    rng = np.random.default_rng(seed)
    criterion, _ = random_problem(rng, centred)
    dual = solve(criterion, weight_set).dual
    dual = dual + quality * np.max(np.abs(dual)) * rng.standard_normal(4)
    terms = criterion.certificate_terms(rng.dirichlet(np.ones(4)), dual, dual)
    lower = terms.bound(weight_set)
    for weights in (*rng.dirichlet(np.ones(4), size=5), *np.eye(4)):
        assert lower <= -criterion.alignment(weights) + 1e-12


@both
@pytest.mark.parametrize(
    "weight_set", [Simplex(), LpBall(2), LpBall(np.inf), Uniform()], ids=repr
)
def test_the_optimum_is_certified(rng, centred, weight_set):
    criterion, _ = random_problem(rng, centred)
    solution = solve(criterion, weight_set, tol=1e-10)
    assert solution.converged
    assert solution.method == "active_set"
    assert solution.value == pytest.approx(-criterion.alignment(solution.weights))
    if not isinstance(weight_set, Uniform):
        same = solve(criterion, Simplex(), tol=1e-10)
        assert solution.value == pytest.approx(same.value, rel=1e-12)


@both
def test_the_optimum_is_that_of_a_cone_solver(rng, centred):
    pytest.importorskip("cvxpy")
    criterion, _ = random_problem(rng, centred)
    ours, cone = solve(criterion, Simplex()), solve(criterion, Simplex(), "sdp", 1e-4)
    assert cone.converged
    assert cone.value == pytest.approx(ours.value, rel=1e-5)
    assert cone.value >= ours.lower_bound - 1e-12


@both
def test_kernels_that_vanish_may_take_weight_within_caps(rng, centred):
    """Weight that a cap keeps from the best kernels is lost least on such a kernel."""
    _, y = random_problem(rng, centred)
    stack = np.concatenate(
        [random_stack(rng, len(y), 4), np.zeros((2, len(y), len(y)))]
    )
    criterion = Alignment(DenseBank(stack), y, centred=centred)
    for share in (1.01, 1.3, 2.0, 4.0):
        solution = solve(criterion, CappedSimplex(share / 6), tol=1e-6)
        assert solution.converged, solution.status


def problem_of_the_note(margin_data, n=60, seed=0):
    X, y = margin_data.rows(n, seed)
    return X, np.where(np.arange(n) < 0.6 * n, y, 0.0)


def test_known_values(margin_data):
    X, y = problem_of_the_note(margin_data)
    bank = DenseBank(margin_data.three(X))
    criterion = Alignment(bank, y, centred=False)
    solution = solve(criterion, Simplex(), tol=1e-10)
    assert solution.value == pytest.approx(-0.21560323, abs=5e-9)
    # mu of the paper is our dual point divided by the alignment: it has w'S w = 1.
    unit = solution.dual / 0.21560323
    np.testing.assert_allclose(unit, [0, 0.077398, 0.045036], atol=2e-6)
    signed = solve(criterion, SignedSum(bank), tol=1e-9)
    assert signed.converged
    assert signed.value == pytest.approx(-0.2168637, abs=5e-8)


def test_known_value_of_rank_one_kernels(margin_data):
    X, y = problem_of_the_note(margin_data)
    bank = spectral_bank(margin_data.gaussians(X, [2.0])[0], 15)
    criterion = Alignment(bank, y, centred=False)
    for weight_set in (Simplex(), SignedSum(bank)):
        solution = solve(criterion, weight_set, tol=1e-8)
        assert solution.converged
        assert solution.value == pytest.approx(-0.34112812, abs=5e-9)
        assert np.min(solution.weights) >= -1e-9


@both
def test_signed_weights_are_those_of_the_semidefinite_program(rng, centred):
    pytest.importorskip("cvxpy")
    criterion, _ = random_problem(rng, centred, n=14)
    bank = criterion.bank
    ours = solve(criterion, SignedSum(bank), tol=1e-7)
    cone = solve(criterion, SignedSum(bank), "sdp", tol=1e-3)
    assert ours.converged
    assert ours.n_iter <= 20  # without bounds of their own, cuts never end
    assert ours.value <= solve(criterion, Simplex()).value + 1e-7
    assert cone.value == pytest.approx(ours.value, rel=1e-4)
    assert cone.value >= ours.lower_bound - 1e-9


@both
def test_scale_and_order_of_the_kernels_do_not_matter(rng, centred):
    criterion, y = random_problem(rng, centred)
    stack = criterion.bank.stack
    expected = solve(criterion, Simplex()).value
    scales = np.array([1e12, 1.0, 1e-12, 3.0])[:, None, None]
    order = rng.permutation(4)
    for changed in (stack * scales, stack[order], 7.0 * stack):
        other = Alignment(DenseBank(changed), y, centred=centred)
        solution = solve(other, Simplex(), tol=1e-9)
        assert solution.converged
        assert solution.value == pytest.approx(expected, rel=1e-9)


def test_a_target_kernel_is_the_product_of_its_factor(rng):
    stack, n = random_stack(rng), 12
    factor = rng.standard_normal((n, 2))
    rows = np.array([1, 3, 4, 8, 10])
    for centred in (True, False):
        one = Alignment(DenseBank(stack), factor, rows=rows, centred=centred)
        two = Alignment(
            DenseBank(stack),
            target_kernel=factor @ factor.T,
            rows=np.isin(np.arange(n), rows),
            centred=centred,
        )
        np.testing.assert_allclose(one.cosines, two.cosines, atol=1e-12)
        np.testing.assert_allclose(one.correlations, two.correlations, atol=1e-12)


def test_linear_sets_take_one_problem(rng):
    criterion, _ = random_problem(rng, True)
    assert len(list(islice(aligned_cuts(criterion, CappedSimplex(0.5)), 2))) == 1


def test_the_target_itself_is_found(rng):
    y = np.repeat([1.0, -1.0], 6)
    stack = np.concatenate([random_stack(rng), np.outer(y, y)[None]])
    solution = solve(Alignment(DenseBank(stack), y), Simplex())
    np.testing.assert_allclose(solution.weights, np.eye(5)[4], atol=1e-9)
    assert solution.value == pytest.approx(-1.0, abs=1e-12)


def test_degenerate_kernels(rng):
    """A duplicate, a kernel of zeros, a constant kernel and one of rank one."""
    y = np.repeat([1.0, -1.0], 6)
    stack = random_stack(rng, p=2)
    more = [stack[0], np.zeros((12, 12)), np.ones((12, 12)), np.outer(y, y) + 1e-3]
    criterion = Alignment(DenseBank(np.concatenate([stack, more])), y)
    assert criterion.cosines[3] == criterion.cosines[4] == 0.0
    solution = solve(criterion, Simplex())
    assert solution.converged
    assert solution.weights[3] == solution.weights[4] == 0.0


def test_nearly_equal_kernels_leave_no_gap(rng):
    """Their differences were left out as rounding: the gap was up to 2e-6."""
    Z, labels = rng.normal(size=(20, 3)), np.where(np.arange(20) % 2, 1.0, -1.0)
    parts = rng.normal(size=(6, 20, 1))
    shares = 10.0 ** -np.linspace(6.0, 7.5, 6)[:, None, None]
    stack = center_and_scale(Z @ Z.T + shares * (parts @ np.swapaxes(parts, 1, 2)))
    found = solve(Alignment(DenseBank(stack), labels), Simplex())
    assert found.gap < 1e-7  # measured: 6e-12, in one of thousands of draws 1e-8


def test_twins_are_named(rng):
    y = np.repeat([1.0, -1.0], 6)
    stack = np.stack([np.outer(y, y) + np.eye(12)] * 2)
    solution = solve(Alignment(DenseBank(stack), y), Simplex())
    assert solution.converged
    assert any("the same up to scale" in remark for remark in solution.remarks)


def test_a_target_that_centring_takes_away_has_no_norm(rng):
    counts = rng.uniform(1.0, 2.0, 9)
    for values, is_factor in ((np.full((9, 2), 0.1), True), (np.full((9, 9), 0.1), 0)):
        assert Target(values, bool(is_factor), True, counts).norm == 0.0


def test_nothing_to_align_is_said():
    y = np.repeat([1.0, -1.0], 4)
    other = np.tile([1.0, -1.0], 4)
    bank = DenseBank(np.outer(other, other)[None])
    for weight_set in (Simplex(), SignedSum(bank)):
        solution = solve(Alignment(bank, y), weight_set)
        assert solution.value == pytest.approx(0.0, abs=1e-12)
        assert any("no kernel is aligned" in remark for remark in solution.remarks)


def test_float32_and_other_libraries_give_the_same(xp_backend, rng):
    stack = center_and_scale(random_stack(rng))
    y = np.where(np.arange(12) % 2, 1.0, -1.0)
    y[:2] = 0.0
    expected = Alignment(DenseBank(stack), y)
    xp = xp_backend.xp
    for dtype, atol in ((xp.float64, 1e-12), (xp.float32, 1e-5)):
        there = xp.asarray(stack, dtype=dtype, device=xp_backend.device)
        labels = xp.asarray(y, dtype=dtype, device=xp_backend.device)
        criterion = Alignment(DenseBank(there), labels)
        assert to_numpy(criterion.cosines).dtype == np.float64
        np.testing.assert_allclose(criterion.cosines, expected.cosines, atol=atol)
        assert solve(criterion, Simplex()).converged


BAD = {
    "both": ({"target": np.ones(4), "target_kernel": np.eye(4)}, "either target"),
    "neither": ({}, "either target"),
    "length": ({"target": np.ones(3)}, r"one row per sample; got \(3, 1\)"),
    "nan": ({"target": np.array([1, np.nan, 1, -1])}, "NaN"),
    "shape": ({"target_kernel": np.eye(3)}, r"shape \(4, 4\).*\(3, 3\)"),
    "asymmetric": ({"target_kernel": np.triu(np.ones((4, 4)))}, "not symmetric"),
    "infinite": ({"target_kernel": np.full((4, 4), np.inf)}, "infinite"),
    "rows": ({"target": np.ones(4), "rows": [0, 4]}, "between 0 and 3; got 0 to 4"),
    "mask": ({"target": np.ones(4), "rows": np.ones(3, bool)}, r"shape \(4,\)"),
    "float rows": ({"target": np.ones(4), "rows": [0.5, 1.0]}, "row numbers or a mask"),
    "one row": ({"target": np.array([1.0, 0, 0, 0])}, "at least 2 labelled rows"),
    "one class": ({"target": np.ones(4)}, "only one class"),
    "one class, by factors, but for rounding": (
        {"target": np.full(4, 0.1), "row_weights": np.array([0.3, 1.0, 0.7, 0.1])},
        "only one class",
    ),
    "one class, by a kernel, but for rounding": (
        {
            "target_kernel": np.full((4, 4), 0.1),
            "row_weights": np.array([0.3, 1.0, 0.7, 0.1]),
        },
        "only one class",
    ),
    "zero": ({"target_kernel": np.zeros((4, 4)), "centred": False}, "target is zero"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Alignment(DenseBank(np.eye(4)[None]), **arguments)


# Weighted rows ------------------------------------------------------------------------


@both
@pytest.mark.parametrize("given", ["factor", "kernel"])
def test_whole_number_weights_are_repeated_rows(rng, centred, given):
    n, p = 12, 4
    stack, weights = random_stack(rng, n, p), rng.integers(1, 5, n)
    copies = np.repeat(np.arange(n), weights)
    H = np.eye(3)[np.arange(n) % 3]
    H[-2:] = 0.0  # unlabelled
    if given == "kernel":
        H = H @ H.T
        targets = [{"target_kernel": H}, {"target_kernel": H[copies][:, copies]}]
    else:
        targets = [{"target": H}, {"target": H[copies]}]
    weighted = Alignment(
        DenseBank(stack), **targets[0], centred=centred, row_weights=weights
    )
    bank = DenseBank(stack[:, copies][:, :, copies])
    repeated = Alignment(bank, **targets[1], centred=centred)
    for name in ("cosines", "correlations", "norms"):
        expected = getattr(repeated, name)
        np.testing.assert_allclose(getattr(weighted, name), expected, rtol=1e-10)
    found, expected = (solve(c, Simplex(), tol=1e-9) for c in (weighted, repeated))
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-9)
    assert found.lower_bound == pytest.approx(expected.lower_bound, rel=1e-9)


@pytest.mark.parametrize("signed", [False, True])
def test_weighted_alignment_against_a_cone_solver(rng, signed):
    pytest.importorskip("cvxpy")
    criterion, y = random_problem(rng, True)
    weights = rng.uniform(0.1, 4.0, len(y))
    weighted = Alignment(criterion.bank, y, row_weights=weights)
    weight_set = Simplex()
    if signed:
        weight_set = SignedSum(criterion.bank, bound=5.0, row_weights=weights)
    found = solve(weighted, weight_set, tol=1e-6)
    oracle = solve(weighted, weight_set, "sdp", tol=1e-4)
    assert found.converged
    assert oracle.lower_bound - 1e-9 <= found.value
    assert found.lower_bound - 1e-9 <= oracle.value
    if oracle.converged:  # the cone solver may give up, and says so
        assert oracle.value == pytest.approx(found.value, abs=1e-4)
    plain = solve(criterion, Simplex(), tol=1e-6)
    assert abs(plain.value - found.value) > 1e-5  # measured: mostly 1e-3 or more

"""The Fisher criterion against dense linear algebra and the papers' numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_wine

from kernelweave._array import FactorizationError, to_numpy
from kernelweave.criteria.fisher import BlockFisher, Fisher, WithinFisher
from kernelweave.fits.targets import binary_target, class_target
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.weights import LpBall, Simplex, Uniform

ALPHAS = [1e-3, 0.7, "learn"]
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)
every_width = pytest.mark.parametrize("k", [1, 3])


def random_problem(rng, alpha, n=14, p=4, k=2):
    """A criterion on random kernels of different ranks, and weights that sum to one."""
    parts = [rng.standard_normal((n, rank)) for rank in rng.integers(1, 2 * n, size=p)]
    bank = DenseBank(center_and_scale(np.stack([z @ z.T for z in parts])))
    target = rng.standard_normal((n, k))
    criterion = Fisher(bank, target - target.mean(axis=0), alpha)
    return criterion, rng.dirichlet(np.ones(criterion.n_weights))


def dense_value(criterion, weights):
    """``s tr(H' M^-1 H)`` without any shortcuts; the target sums to zero."""
    kernels = to_numpy(criterion.bank.stack).astype(np.float64)
    target = to_numpy(criterion.target64)
    n = len(target)
    alpha, rest = criterion.alpha, weights
    if criterion.learns_identity:
        alpha, rest = weights[0], weights[1:]
    matrix = alpha * np.eye(n) + np.tensordot(rest, kernels, 1)
    scale = n if criterion.learns_identity else alpha
    return scale * np.sum(target * np.linalg.solve(matrix, target))


@every_alpha
@every_width
def test_value_is_the_formula(rng, alpha, k):
    criterion, weights = random_problem(rng, alpha, k=k)
    expected = dense_value(criterion, weights)
    assert criterion.evaluate(weights).value == pytest.approx(expected, rel=1e-9)
    assert criterion.evaluate(weights, hessian=False).hessian is None
    assert criterion.n_weights == 4 + (alpha == "learn")
    assert criterion.n_kernels == 4


@every_alpha
@every_width
def test_gradient_and_hessian_are_those_of_the_value(rng, alpha, k):
    criterion, weights = random_problem(rng, alpha, k=k)
    state = criterion.evaluate(weights)
    steps = 1e-5 * np.diag(weights)
    slopes, bends = [], []
    for step in steps:
        there, back = (
            criterion.evaluate(weights + step),
            criterion.evaluate(weights - step),
        )
        width = 2 * np.sum(step)
        slopes.append((there.value - back.value) / width)
        bends.append((there.gradient - back.gradient) / width)
    size = np.abs(state.gradient) + state.value
    assert np.all(np.abs(np.array(slopes) - state.gradient) <= 1e-6 * size)
    scale = np.sqrt(np.outer(np.diag(state.hessian), np.diag(state.hessian)))
    assert np.all(np.abs(np.array(bends) - state.hessian) <= 1e-5 * scale)
    np.testing.assert_allclose(state.hessian, state.hessian.T, rtol=1e-9)
    assert np.all(state.gradient <= 0)
    assert np.min(np.linalg.eigvalsh(state.hessian / scale)) >= -1e-9


@given(
    seed=st.integers(0, 2**32 - 1),
    alpha=st.sampled_from([1e-6, 0.3, 50.0, "learn"]),
    quality=st.sampled_from([0.0, 1e-6, 1e-2, 1.0, 100.0]),
    k=st.integers(1, 3),
)
def test_bounds_hold_for_any_dual_points(seed, alpha, quality, k):
    rng = np.random.default_rng(seed)
    criterion, weights = random_problem(rng, alpha, n=10, p=3, k=k)
    exact = criterion.evaluate(weights).coef
    size = quality * float(np.max(np.abs(exact)))
    coef, dual = (exact + size * rng.standard_normal(exact.shape) for _ in range(2))
    terms = criterion.certificate_terms(weights, coef, dual)
    value = dense_value(criterion, weights)
    assert terms.upper >= value - 1e-8 * (abs(terms.upper) + value)
    points = [weights, *rng.dirichlet(np.ones(criterion.n_weights), size=5)]
    for u in points:
        lower = terms.linear - terms.scores @ u
        there = dense_value(criterion, u)
        assert lower <= there + 1e-8 * (abs(lower) + there)
    if quality == 0.0:
        assert terms.upper == pytest.approx(value, rel=1e-8)
        assert terms.linear - terms.scores @ weights == pytest.approx(value, rel=1e-8)


@every_alpha
def test_the_upper_and_the_lower_bound_use_their_own_point(rng, alpha):
    criterion, weights = random_problem(rng, alpha)
    good = criterion.evaluate(weights).coef
    bad = good + rng.standard_normal(good.shape)
    both = criterion.certificate_terms(weights, good, bad)
    assert both.upper == pytest.approx(
        criterion.certificate_terms(weights, good, good).upper, rel=1e-12
    )
    worse = criterion.certificate_terms(weights, bad, bad)
    assert both.linear == pytest.approx(worse.linear, rel=1e-12)
    np.testing.assert_allclose(both.scores, worse.scores, rtol=1e-12)
    assert worse.upper > both.upper


@every_alpha
def test_float32_kernels_are_judged_in_float64(rng, alpha):
    criterion, weights = random_problem(rng, alpha)
    single = Fisher(
        DenseBank(criterion.bank.stack.astype(np.float32)),
        criterion.target.astype(np.float32),
        alpha,
    )
    state = single.evaluate(weights)
    assert state.coef.dtype == np.float32
    assert state.gradient.dtype == state.hessian.dtype == np.float64
    terms = single.certificate_terms(weights, state.coef, state.coef)
    assert terms.scores.dtype == np.float64
    value = dense_value(single, weights)  # of the kernels after they were rounded
    assert value <= terms.upper * (1 + 1e-12)
    assert terms.upper == pytest.approx(value, rel=1e-4)
    assert terms.linear - terms.scores @ weights <= value * (1 + 1e-12)


@every_alpha
def test_other_array_libraries_agree_with_numpy(xp_backend, alpha):
    criterion, weights = random_problem(np.random.default_rng(0), alpha)
    there = Fisher(
        DenseBank(xp_backend.asarray(criterion.bank.stack)),
        xp_backend.asarray(criterion.target),
        alpha,
    )
    expected, state = criterion.evaluate(weights), there.evaluate(weights)
    assert state.value == pytest.approx(expected.value, rel=1e-10)
    np.testing.assert_allclose(state.gradient, expected.gradient, rtol=1e-9)
    np.testing.assert_allclose(state.hessian, expected.hessian, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(to_numpy(state.coef), expected.coef, atol=1e-9)
    terms = there.certificate_terms(weights, state.coef, state.coef)
    assert terms.upper == pytest.approx(expected.value, rel=1e-8)


def gaussian_bank(X):
    widths = np.logspace(-1, 2, 10)
    squared = np.sum((X[:, None, :] - X[None, :, :]) ** 2, axis=-1)
    return DenseBank(center_and_scale(np.exp(-squared / widths[:, None, None] ** 2)))


def test_values_in_the_papers_units():
    """With unit-trace kernels, lambda and H of Eq. 25, as in the papers."""
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    n = len(y)
    criterion = Fisher(gaussian_bank(X), class_target(y, 3), n * 1e-2)
    weights = np.zeros(10)
    weights[[5, 9]] = 0.96518051, 0.03481949
    value = criterion.evaluate(weights).value
    assert value == pytest.approx(50.8700110109, rel=1e-11)
    learned = Fisher(gaussian_bank(X), class_target(y, 3), "learn")
    weights = np.zeros(11)
    weights[[0, 6]] = 0.51831136, 0.48168864
    assert learned.evaluate(weights).value == pytest.approx(13683.57813375, rel=1e-11)


def test_binary_value_is_equation_7_of_both_papers(rng):
    """``F_2 = a'a - J`` is the largest Fisher ratio, for the target of Eq. 8."""
    n, penalty = 20, 0.03
    Z = rng.standard_normal((n, 3))
    codes = np.arange(n) % 2
    bank = DenseBank(center_and_scale((Z @ Z.T)[None]))
    a = binary_target(codes)
    value = Fisher(bank, a, n * penalty).evaluate(np.ones(1)).value
    unit = (Z - Z.mean(axis=0)) / np.linalg.norm(Z - Z.mean(axis=0))
    mean_gap = unit[codes == 1].mean(axis=0) - unit[codes == 0].mean(axis=0)
    total = unit.T @ unit + penalty * np.eye(3)
    ratio = mean_gap @ np.linalg.solve(total, mean_gap)
    assert np.sum(a**2) - value == pytest.approx(ratio, rel=1e-9)


def test_within_value_is_equation_9_of_ye(rng):
    """For a kernel of trace one lambda is alpha / n, as the kernel here has trace n."""
    n, y = 30, (np.arange(30) % 3 == 0).astype(int)
    X = rng.standard_normal((n, 3))
    K = np.exp(-np.sum((X[:, None] - X[None]) ** 2, axis=-1))
    P = np.eye(n) - 1.0 / n
    G = P @ K @ P / np.trace(P @ K @ P)
    a, J, lam = np.where(y == 1, 1.0 / 10, -1.0 / 20), np.zeros((n, n)), 1e-2
    for c in (0, 1):
        rows = np.flatnonzero(y == c)
        m = len(rows)
        J[np.ix_(rows, rows)] = (np.eye(m) - 1.0 / m) / np.sqrt(m)
    inner = np.linalg.solve(lam * np.eye(n) + J @ G @ J, J @ G)
    value = a @ G @ (np.eye(n) - J @ inner) @ a / lam
    bank = DenseBank.from_kernels(K[None])
    found = WithinFisher(bank, binary_target(y), n * lam, y).evaluate(np.ones(1))
    assert found.value == pytest.approx(-value, rel=1e-9)


def test_values_decrease_in_every_weight_and_are_convex(rng):
    for alpha in ALPHAS:
        criterion, weights = random_problem(rng, alpha)
        other = rng.dirichlet(np.ones(criterion.n_weights))
        here, there = (dense_value(criterion, w) for w in (weights, other))
        assert criterion.evaluate(weights + 0.1).value < here
        middle = criterion.evaluate(0.5 * (weights + other)).value
        assert middle <= 0.5 * (here + there) * (1 + 1e-12)


def test_a_learned_alpha_of_zero_is_no_obstacle(rng):
    """All kernels annihilate the vector of ones; the factor must not be singular."""
    n = 12
    Z = rng.standard_normal((n, 3 * n))
    bank = DenseBank(center_and_scale((Z @ Z.T)[None]))
    target = rng.standard_normal((n, 1))
    criterion = Fisher(bank, target - target.mean(), "learn")
    value = criterion.evaluate(np.array([0.0, 1.0])).value
    expected = n * np.sum(criterion.target * np.linalg.pinv(bank.stack[0]) @ target)
    assert value == pytest.approx(expected, rel=1e-8)


def test_a_singular_combination_is_an_error_of_its_own(rng):
    z = rng.standard_normal((12, 1))
    bank = DenseBank(center_and_scale((z @ z.T)[None]))
    target = rng.standard_normal((12, 1))
    criterion = Fisher(bank, target - target.mean(), "learn")
    with pytest.raises(FactorizationError):
        criterion.evaluate(np.array([-1e-3, 1.0]))


@pytest.mark.parametrize(
    "alpha", [0.0, -1.0, float("nan"), float("inf"), "loo", "Learn", "", None, [1.0]]
)
def test_a_bad_alpha_is_named(rng, alpha):
    criterion, _ = random_problem(rng, 1.0)
    with pytest.raises(ValueError, match=r"alpha must be a float > 0 or 'learn', got"):
        Fisher(criterion.bank, criterion.target, alpha)


def test_alpha_may_come_from_an_array(rng, xp_backend):
    """Such as a share of the mean eigenvalue."""
    criterion, weights = random_problem(rng, 0.5)
    alpha = xp_backend.xp.mean(xp_backend.asarray(np.array([0.25, 0.75])))
    given = Fisher(criterion.bank, criterion.target, alpha)
    assert given.evaluate(weights).value == criterion.evaluate(weights).value
    with pytest.raises(ValueError, match="alpha must be a float > 0"):
        Fisher(criterion.bank, criterion.target, -alpha)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_target_with_nan_is_refused(rng, bad):
    criterion, _ = random_problem(rng, 1.0)
    target = criterion.target.copy()
    target[3, 0] = bad
    with pytest.raises(ValueError, match=r"NaN or infinite .* in row 3, column 0"):
        Fisher(criterion.bank, target, 1.0)


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2), Uniform()], ids=repr)
def test_remarks_take_all_weights(rng, weight_set):
    for alpha in ALPHAS:
        criterion, _ = random_problem(rng, alpha)
        remarks = criterion.remarks(weight_set.start(criterion.n_weights))
        assert isinstance(remarks, tuple)


@pytest.mark.parametrize("kind", [Fisher, BlockFisher])
def test_the_target_may_be_changed_later(rng, kind):
    criterion, weights = random_problem(rng, 0.7)
    target = np.array(to_numpy(criterion.target64))
    later = kind(criterion.bank, target, 0.7)
    target *= 3
    expected = kind(criterion.bank, target / 3, 0.7).evaluate(weights).value
    assert later.evaluate(weights).value == pytest.approx(expected, rel=1e-9)


def test_alpha_beyond_float64_is_refused(rng):
    criterion, _ = random_problem(rng, 0.7)
    for alpha in (10**400, -(10**400), np.inf):
        with pytest.raises(ValueError, match="alpha must be a float > 0 or 'learn'"):
            Fisher(criterion.bank, criterion.target64, alpha)

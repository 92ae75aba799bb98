"""Weights of any sign: known values, semidefinite programs, and failure modes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from kernelweave import Fisher, LpBall, Simplex, certify, solve
from kernelweave.criteria import BlockFisher, Margin
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.fits.targets import binary_target
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.solvers.cutting_plane import nearest_point
from kernelweave.weights import SignedSum

CRITERIA = [("hard", 1.0), ("l1", 0.1), ("l2", 1.0), ("l2", "learn")]
every_margin = pytest.mark.parametrize("margin, C", CRITERIA, ids=str)


def partly_labelled(y, share=0.6):
    signs = np.where(np.arange(len(y)) < share * len(y), y, 0.0)
    if np.unique(signs[signs != 0]).size == 1:
        signs[0] *= -1  # both classes are needed
    return signs[:, None]


def problem(margin_data, margin, C, n=60, seed=0, stack=None, scale=3.0):
    """Kernels scaled to the sum of all traces, as in the paper's experiment."""
    X, y = margin_data.rows(n, seed)
    stack = margin_data.three(X) if stack is None else stack(X)
    return Margin(DenseBank(scale * stack), partly_labelled(y), margin, C)


@pytest.fixture(scope="module")
def solved(margin_data):
    """16 rows of a seed: the criterion, the set with its cuts, and the solution."""

    @cache
    def make(margin, C, seed):
        criterion = problem(margin_data, margin, C, n=16, seed=seed)
        weight_set = SignedSum(criterion.bank)
        return criterion, weight_set, solve(criterion, weight_set, tol=1e-5)

    return make


@pytest.mark.parametrize(
    "margin, C, value, weights",
    [
        ("hard", 1.0, 11.171305, [-0.1299, 0.9817, 0.1482]),
        ("l1", 0.1, 4.856887, None),
        ("l2", 1.0, 8.249801, None),
    ],
)
def test_known_values(margin_data, margin, C, value, weights):
    criterion = problem(margin_data, margin, C)
    solution = solve(criterion, SignedSum(criterion.bank), tol=1e-7)
    assert solution.converged and solution.method == "spectral_cuts"
    assert solution.value == pytest.approx(value, rel=3e-7)
    if weights is not None:
        # measured: 1.4e-4 apart
        np.testing.assert_allclose(solution.weights, weights, atol=5e-4)
    assert solution.remarks == ()


def test_known_value_with_a_learned_price(margin_data):
    """At trace n the identity is a kernel like the others; the value scales."""
    criterion = problem(margin_data, "l2", "learn", scale=1.0)
    solution = solve(criterion, SignedSum(criterion.bank), tol=1e-7)
    assert solution.converged
    assert solution.value / 3 == pytest.approx(10.79151670, rel=3e-7)
    # measured: 2.5e-5 apart
    assert solution.weights[0] == pytest.approx(0.86402, abs=1e-4)


@pytest.mark.parametrize(
    "margin, C, value", [("hard", 1.0, 4.114610), ("l2", 1.0, 3.460978)]
)
def test_known_values_of_five_gaussians(margin_data, margin, C, value):
    criterion = problem(
        margin_data,
        margin,
        C,
        n=40,
        seed=1,
        stack=lambda X: margin_data.gaussians(X, np.logspace(-1, 2, 5)),
        scale=5.0,
    )
    solution = solve(criterion, SignedSum(criterion.bank), tol=1e-7)
    assert solution.value == pytest.approx(value, rel=5e-7)


@pytest.mark.one_seed
@every_margin
def test_it_is_the_semidefinite_program(solved, global_random_seed, margin, C):
    pytest.importorskip("cvxpy")
    criterion, _, ours = solved(margin, C, global_random_seed)
    cone = solve(criterion, SignedSum(criterion.bank), "sdp", tol=1e-3)
    assert ours.converged
    assert cone.value == pytest.approx(ours.value, rel=2e-4)
    assert cone.value >= ours.lower_bound * (1 - 1e-9)


@pytest.mark.one_seed
@every_margin
def test_more_weights_are_never_worse(solved, global_random_seed, margin, C):
    criterion, _, signed = solved(margin, C, global_random_seed)
    positive = solve(criterion, Simplex(), tol=1e-4)
    assert signed.converged
    assert signed.lower_bound <= positive.value
    assert signed.value <= positive.value * (1 + 2e-4)


@pytest.mark.one_seed
@every_margin
def test_the_certificate_is_computed_outside(solved, global_random_seed, margin, C):
    criterion, weight_set, solution = solved(margin, C, global_random_seed)
    assert weight_set.violation(solution.weights) <= 1e-9
    fresh = SignedSum(criterion.bank)  # has none of the cuts
    value, lower, gap = certify(
        criterion, fresh, solution.weights, solution.coef, solution.dual
    )
    assert value == pytest.approx(solution.value, rel=1e-12)
    assert lower == pytest.approx(solution.lower_bound, rel=1e-5)
    assert gap <= 2e-5


def test_order_and_common_scale_of_the_kernels(margin_data):
    criterion = problem(margin_data, "hard", 1.0, n=16)
    stack, signs = criterion.bank.stack, criterion.signs
    solution = solve(criterion, SignedSum(criterion.bank), tol=1e-6)
    turned = DenseBank(stack[[2, 0, 1]])
    other = solve(Margin(turned, signs, "hard"), SignedSum(turned), tol=1e-6)
    assert other.value == pytest.approx(solution.value, rel=2e-6)
    # measured: up to 2.9e-4 apart, with the lowest versions of the libraries
    np.testing.assert_allclose(other.weights, solution.weights[[2, 0, 1]], atol=1e-3)
    for factor in (1e6, 1e-6):
        bank = DenseBank(factor * stack)
        scaled = solve(Margin(bank, signs, "hard"), SignedSum(bank), tol=1e-6)
        assert scaled.value * factor == pytest.approx(solution.value, rel=2e-6)


def test_several_columns_share_the_weights(margin_data):
    X, y = margin_data.rows(16, 0)
    signs = np.concatenate(
        [partly_labelled(y), partly_labelled(np.sign(X[:, [2]])[:, 0])], axis=1
    )
    bank = DenseBank(margin_data.three(X))
    both = solve(Margin(bank, signs, "l1", 0.5), SignedSum(bank), tol=1e-4)
    each = [
        solve(Margin(bank, column[:, None], "l1", 0.5), SignedSum(bank), tol=1e-4)
        for column in signs.T
    ]
    assert both.converged
    assert both.value >= sum(one.lower_bound for one in each)


@pytest.mark.parametrize(
    ("kind", "alpha", "rows"),
    [(Fisher, 0.5, (40, 3)), (Fisher, "learn", (40, 3)), (BlockFisher, 1.0, (20, 0))],
)
def test_fisher_criteria_take_weights_of_any_sign(margin_data, kind, alpha, rows):
    X, y = margin_data.rows(*rows)
    bank = DenseBank(center_and_scale(margin_data.three(X)))
    criterion = kind(bank, binary_target((y > 0).astype(int)), alpha)
    signed = solve(criterion, SignedSum(bank), tol=1e-6)
    assert signed.converged
    assert signed.value <= solve(criterion, Simplex()).value * (1 + 1e-6)


def test_other_criteria_are_refused_by_name(margin_data, rng):
    X, _ = margin_data.rows(20, 0)
    bank = DenseBank(center_and_scale(margin_data.three(X)))
    criterion = MixtureLikelihood(rng.normal(size=(20, 3)))
    with pytest.raises(ValueError, match="no method minimises MixtureLikelihood"):
        solve(criterion, SignedSum(bank))


def test_collinear_kernels_are_reported_with_the_bound(margin_data):
    """Ten Gaussians: the value keeps falling as the bound grows."""

    def ten(X):
        return margin_data.gaussians(X, np.logspace(-1, 2, 10))

    values = []
    for bound in (3.0, 10.0):
        criterion = problem(margin_data, "hard", 1.0, 30, 1, ten, 10.0)
        solution = solve(criterion, SignedSum(criterion.bank, bound), tol=1e-3)
        values.append(solution)
        assert solution.converged
        assert any("collinear" in remark for remark in solution.remarks)
        assert any(f"bound {bound:g}" in remark for remark in solution.remarks)
    assert values[1].value < values[0].lower_bound


def test_what_cannot_be_separated_is_infeasible(margin_data):
    X, y = margin_data.rows(30, 0)
    X, y = np.concatenate([X, X[:2]]), np.concatenate([y, -y[:2]])
    bank = DenseBank(margin_data.three(X))
    solution = solve(Margin(bank, y[:, None], "hard"), SignedSum(bank))
    assert not solution.converged
    assert solution.status.startswith("infeasible")
    assert solution.value == np.inf


def test_machines_are_trained_at_the_edge_of_the_cone(rng):
    """Sums that the set allows, but for rounding, once counted as indefinite."""
    n = 240  # from 200 rows on, machines are trained by libsvm
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    X = rng.normal(size=(n, 5)) + 2.0 * y[:, None]
    square = np.sum((X[:, None] - X[None]) ** 2, axis=2)
    stack = np.stack([X @ X.T, np.exp(-square / 1000.0), (1.0 + X @ X.T / 5.0) ** 3])
    bank = DenseBank(center_and_scale(stack))
    solution = solve(Margin(bank, y[:, None], "hard"), SignedSum(bank), tol=1e-5)
    assert solution.converged, solution.status
    assert np.min(solution.weights) < -0.3  # measured: -1.17 to -1.09


@pytest.mark.parametrize("case", ["twins", "rank one", "one kernel", "ideal"])
def test_degenerate_kernels(margin_data, case):
    X, y = margin_data.rows(20, 0)
    stack = margin_data.three(X)
    ones, ideal = np.outer(X[:, 0], X[:, 0]), np.outer(y, y)
    stack = {
        "twins": np.concatenate([stack, stack[:1]]),
        "rank one": np.concatenate([stack, ones[None] * 20 / np.trace(ones)]),
        "one kernel": stack[1:2],
        "ideal": np.concatenate([stack, ideal[None]]),
    }[case]
    bank = DenseBank(stack)
    solution = solve(Margin(bank, y[:, None], "l1", 1.0), SignedSum(bank), tol=1e-4)
    assert solution.converged
    if case == "ideal":
        assert solution.value == pytest.approx(1.0, rel=1e-4)


def test_few_iterations_are_reported_as_such(margin_data):
    criterion = problem(margin_data, "l2", 1.0)
    solution = solve(criterion, SignedSum(criterion.bank), max_iter=3)
    assert not solution.converged and solution.n_iter == 3
    assert "max_iter=3" in solution.status
    assert solution.lower_bound <= 8.249801 <= solution.value


def test_the_nearest_point_is_a_projection(rng):
    cp = pytest.importorskip("cvxpy")
    for _ in range(5):
        rows, centre = rng.standard_normal((6, 4)), rng.dirichlet(np.ones(4))
        right = rows @ rng.dirichlet(np.ones(4)) - 0.05  # a feasible point exists
        w = cp.Variable(4)
        allowed = [rows @ w >= right, cp.sum(w) == 1]
        cp.Problem(cp.Minimize(cp.sum_squares(w - centre)), allowed).solve(
            solver="CLARABEL"
        )
        point = nearest_point(rows, right, centre)
        np.testing.assert_allclose(point, w.value, atol=1e-5)
    assert nearest_point(rows, rows @ centre - 1.0, centre) is centre
    impossible = np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]])
    assert nearest_point(impossible, np.array([2.0, 2.0]), centre) is None


def test_a_set_without_signs_keeps_its_methods(margin_data):
    criterion = problem(margin_data, "l2", 1.0, n=30)
    with pytest.raises(ValueError, match="method must be"):
        solve(criterion, LpBall(2), "spectral_cuts")
    with pytest.raises(ValueError, match=r"method must be 'auto' or one of \['sdp'"):
        solve(criterion, SignedSum(criterion.bank), "newton")


@pytest.mark.parametrize(
    "name, sigma, paper", [("sonar", 0.1, 0.352), ("heart", 0.5, 0.285)]
)
def test_the_margins_of_the_papers_table(margin_data, data_dir, name, sigma, paper):
    """Lanckriet et al. (2002), Table 1, K*: needs negative weights, and is 2/norm(w).

    The paper's numbers are means over 30 splits; here is one.
    """
    pd = pytest.importorskip("pandas")
    table = pd.read_csv(data_dir / f"{name}.csv.gz").dropna()
    X, labels = table.iloc[:, :-1].to_numpy(float), table.iloc[:, -1].to_numpy()
    y = np.where(labels == np.unique(labels)[1], 1.0, -1.0)
    stack = margin_data.three(X)
    stack[1] = margin_data.gaussians(X, [sigma])[0]
    train = np.random.default_rng(1000).permutation(len(y))[: round(0.6 * len(y))]
    signs = np.zeros((len(y), 1))
    signs[train, 0] = y[train]
    bank = DenseBank(3 * stack)
    criterion = Margin(bank, signs, "hard")
    signed = solve(criterion, SignedSum(bank), tol=1e-4)
    assert signed.converged
    # measured on sonar: 1.2 %
    assert 2 / np.sqrt(signed.value) == pytest.approx(paper, rel=0.05)
    assert np.all(np.sign(signed.weights) == [1, 1, -1])
    positive = solve(criterion, Simplex(), tol=1e-4)
    np.testing.assert_allclose(positive.weights, [0, 1, 0], atol=1e-6)
    assert signed.value < 0.95 * positive.value

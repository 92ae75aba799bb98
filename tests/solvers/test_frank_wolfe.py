"""Sets that have nothing but a support function: solved, certified, and checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import stress_certificates
from kernelweave import Alignment, CappedSimplex, Fisher, LpBall, Margin, Simplex, solve
from kernelweave.criteria import BlockFisher, WithinFisher
from kernelweave.criteria.margin import SubspaceMargin
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.protocols import Criterion, WeightSet
from kernelweave.solvers.frank_wolfe import _updated
from kernelweave.weights import GroupBall

#: Groups of unequal sizes, by the number of kernels.
GROUPS = {6: [0, 0, 0, 1, 1, 2], 20: [i // 6 for i in range(20)]}


def problem(p, seed, n=40):
    """Gaussian kernels of random widths on pairs of columns, and signs (n, 1)."""
    rng = np.random.default_rng(seed)
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    X = rng.normal(size=(n, p))
    X[:, :3] += signs[:, None] * [1.5, 1.0, 0.5]
    stack = []
    for _ in range(p):
        pair = X[:, rng.choice(p, 2, replace=False)]
        squared = np.sum((pair[:, None] - pair[None]) ** 2, axis=2)
        stack.append(np.exp(-squared / 10 ** rng.uniform(-1, 1)))
    return DenseBank(center_and_scale(np.array(stack))), signs[:, None]


class Ellipsoid(WeightSet):
    """``{ w >= 0 : sum_i (w_i / a_i)^2 <= 1 }``, as a user would state it."""

    def __init__(self, axes):
        self.axes = np.asarray(axes, dtype=float)

    def start(self, m):
        return self.axes / (2.0 * m**0.5)

    def maximizer(self, scores):
        positive = np.maximum(scores, 0.0) * self.axes
        return self.axes * positive / (np.linalg.norm(positive) or 1.0)

    def violation(self, weights):
        excess = float(np.linalg.norm(weights / self.axes)) - 1.0
        return max(excess, -float(np.min(weights)), 0.0)


class WithoutHessian(Criterion):
    """Another criterion, of which only value and gradient are known."""

    offers = frozenset()

    def __init__(self, whole):
        self.whole, self.bank = whole, whole.bank
        self.certificate_terms = whole.certificate_terms

    @property
    def n_kernels(self):
        return self.whole.n_kernels

    @property
    def n_weights(self):
        return self.whole.n_weights

    def evaluate(self, weights, hessian=True):
        assert not hessian
        return replace(self.whole.evaluate(weights, hessian=False), hessian=None)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("p", GROUPS)
@pytest.mark.parametrize("alpha", [1.0, 0.01])
def test_fisher_over_groups_is_the_cone_program(seed, p, alpha):
    cp = pytest.importorskip("cvxpy")
    (bank, signs), groups = problem(p, seed), np.array(GROUPS[p])
    found = solve(Fisher(bank, signs, alpha), GroupBall(groups))
    assert (found.method, found.converged) == ("frank_wolfe", True)
    w = cp.Variable(p, nonneg=True)
    total = sum(w[i] * bank.kernel(i) for i in range(p))
    norms = [cp.norm(w[np.flatnonzero(groups == g)]) for g in np.unique(groups)]
    value = cp.matrix_frac(signs[:, 0], total + alpha * np.eye(len(signs)))
    program = cp.Problem(cp.Minimize(value), [cp.sum(cp.hstack(norms)) <= 1])
    program.solve("CLARABEL")
    assert found.value == pytest.approx(alpha * program.value, rel=1e-6)
    # measured: up to 5e-5 apart
    np.testing.assert_allclose(found.weights, w.value, atol=5e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("p", GROUPS)
def test_alignment_over_groups_is_the_cone_program(seed, p):
    """All balls span the same cone: that of all non-negative weights."""
    cp = pytest.importorskip("cvxpy")
    bank, signs = problem(p, seed)
    criterion = Alignment(bank, signs)
    found = solve(criterion, GroupBall(GROUPS[p]))
    assert (found.method, found.converged) == ("frank_wolfe", True)
    u = cp.Variable(p, nonneg=True)
    root = np.linalg.cholesky(criterion.correlations)
    gain = criterion.cosines @ u
    expected = cp.Problem(cp.Maximize(gain), [cp.norm(root.T @ u) <= 1])
    assert -found.value == pytest.approx(expected.solve("CLARABEL"), rel=1e-6)


def test_alignment_over_another_cone():
    bank, signs = problem(6, 0)
    criterion, narrow = Alignment(bank, signs), CappedSimplex(0.3)
    exact = solve(criterion, narrow)
    found = solve(criterion, narrow, method="frank_wolfe")
    assert found.converged and exact.method == "active_set"
    assert found.value == pytest.approx(exact.value, rel=1e-7)
    assert narrow.violation(found.weights) <= 1e-12


def test_alignment_where_nothing_is_aligned():
    bank, signs = problem(6, 0)
    against = Alignment(bank, target_kernel=-signs @ signs.T)
    ball = GroupBall(GROUPS[6])
    assert np.max(against.cosines) < 0.0
    found = solve(against, ball, max_iter=50)
    np.testing.assert_allclose(found.weights, ball.start(6))


CRITERIA = {
    "fisher": lambda bank, signs: Fisher(bank, signs, 0.5),
    "tiny alpha": lambda bank, signs: Fisher(bank, signs, 1e-4),
    "learned": lambda bank, signs: Fisher(bank, signs, "learn"),
    "within": lambda bank, signs: WithinFisher(bank, signs, 0.5, np.arange(40) % 2),
    "block": lambda bank, signs: BlockFisher(bank, np.hstack([signs, -signs]), 0.5),
    "l1": lambda bank, signs: Margin(bank, signs, "l1", 0.5),
    "l2": lambda bank, signs: Margin(bank, signs, "l2", 1.0),
    "hard": lambda bank, signs: Margin(bank, signs, "hard"),
    "learned C": lambda bank, signs: Margin(bank, signs, "l2", "learn"),
    "subspace": lambda bank, signs: SubspaceMargin(bank, signs, 0.5, 2.0),
}


@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(1.2), LpBall(2)], ids=repr)
@pytest.mark.parametrize("name", CRITERIA)
def test_it_finds_the_optimum_of_the_other_methods(name, weight_set):
    criterion = CRITERIA[name](*problem(20, 0))
    known = solve(criterion, weight_set)
    found = solve(criterion, weight_set, method="frank_wolfe")
    assert found.method == "frank_wolfe" and found.converged
    assert found.value == pytest.approx(known.value, rel=2e-8)
    assert found.n_iter <= 15  # measured: up to 11


@pytest.mark.parametrize("p", [5, 20, 100])
def test_it_takes_as_many_factorisations_as_newton(p):
    bank, signs = problem(p, 0, n=60)
    criterion = Fisher(bank, signs, 0.1)
    for weight_set in (Simplex(), LpBall(1.2), LpBall(2), GroupBall(np.arange(p) // 5)):
        found = solve(criterion, weight_set, method="frank_wolfe")
        assert found.converged
        assert found.n_factorizations <= 12  # measured: 5 to 9; Newton's: 5 to 10


@pytest.mark.parametrize("name", ["fisher", "learned", "l2", "block"])
def test_value_and_gradient_are_enough(name):
    whole = CRITERIA[name](*problem(20, 0))
    for allowed in (Simplex(), LpBall(2), GroupBall(np.arange(whole.n_weights) // 6)):
        known = solve(whole, allowed)
        found = solve(WithoutHessian(whole), allowed, method="frank_wolfe", tol=1e-6)
        assert found.converged
        assert found.value == pytest.approx(known.value, rel=2e-6)
        assert found.n_iter <= 100  # measured: up to 62


@pytest.mark.parametrize("unit", [1e-80, 1e80])
@pytest.mark.parametrize("exact", [True, False], ids=["hessian", "gradient"])
def test_units_of_the_target_do_not_matter(unit, exact):
    """The value is quadratic in the target: squares of gradients are out of range."""
    bank, signs = problem(20, 0)
    found = []
    for target in (signs, unit * signs):
        criterion = Fisher(bank, target, 0.5)
        criterion = criterion if exact else WithoutHessian(criterion)
        found.append(solve(criterion, GroupBall(GROUPS[20]), tol=1e-6))
        assert found[-1].converged
    assert found[1].value == pytest.approx(unit**2 * found[0].value, rel=2e-6)


def test_a_likelihood_over_groups():
    densities = np.random.default_rng(0).normal(size=(50, 6))
    mixture = MixtureLikelihood(densities)
    for allowed in (Simplex(), LpBall(2)):
        known = solve(mixture, allowed)
        found = solve(mixture, allowed, method="frank_wolfe")
        assert found.converged
        assert found.value == pytest.approx(known.value, rel=1e-7)
    assert solve(mixture, GroupBall(GROUPS[6])).converged


def test_limits_of_the_group_ball():
    bank, signs = problem(6, 0)
    criterion = Fisher(bank, signs, 0.5)
    for groups, limit in ((["all"] * 6, LpBall(2)), (range(6), Simplex())):
        found, known = solve(criterion, GroupBall(groups)), solve(criterion, limit)
        assert found.value == pytest.approx(known.value, rel=2e-8)
        np.testing.assert_allclose(found.weights, known.weights, atol=1e-3)


def test_groups_that_say_nothing_get_no_weight():
    bank, signs = problem(20, 0)
    ball = GroupBall(GROUPS[20])
    found = solve(Fisher(bank, signs, 10.0), ball)
    norms = np.array(list(ball.group_norms(found.weights).values()))
    assert np.any(norms == 0.0) and np.sum(norms) == pytest.approx(1.0)


def test_a_set_of_ones_own_needs_no_more_than_its_support_function():
    """Scaling the kernels turns the ellipsoid into the ball."""
    bank, signs = problem(6, 0)
    axes = np.array([1.0, 2.0, 0.5, 1.5, 3.0, 0.2])
    scaled = DenseBank(axes[:, None, None] * np.asarray(bank.stack))
    found = solve(Fisher(bank, signs, 0.5), Ellipsoid(axes))
    known = solve(Fisher(scaled, signs, 0.5), LpBall(2))
    assert (found.method, found.converged) == ("frank_wolfe", True)
    assert found.value == pytest.approx(known.value, rel=2e-8)
    np.testing.assert_allclose(found.weights, axes * known.weights, atol=1e-3)


class SupportAlone(WeightSet):
    """A set that states its support function, but not where it is attained."""

    def support(self, scores):
        return float(np.max(scores))


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({}, "Partial does not define start and maximizer and violation. A set that"),
        (
            {"start": Ellipsoid.start, "violation": Ellipsoid.violation},
            r"does not define maximizer.*maximizer\(scores\), the point where <scores",
        ),
        (
            dict(vars(Ellipsoid), offers=frozenset({"sparse"})),
            r"does not define scale.*such as 'sparse', it needs scale\(w\) too",
        ),
    ],
    ids=["nothing", "no maximizer", "no scale"],
)
def test_a_set_that_lacks_a_part_is_told_which(own, words):
    criterion = Fisher(*problem(6, 0), 0.5)
    criterion.evaluate = None  # no work is done
    own = {name: part for name, part in own.items() if name[0] != "_"}
    with pytest.raises(TypeError, match=words):
        solve(criterion, type("Partial", (SupportAlone,), own)())


def test_the_update_of_the_hessian():
    """It maps the step to the change, stays definite, and skips what is not convex."""
    rng = np.random.default_rng(0)
    step, hessian = rng.normal(size=4), np.diag([1.0, 2.0, 3.0, 4.0])
    change = hessian[::-1, ::-1] @ step
    updated = _updated(hessian, step, change)
    np.testing.assert_allclose(updated @ step, change)
    np.testing.assert_allclose(updated, updated.T)
    assert np.linalg.eigvalsh(updated)[0] > 0.0
    assert _updated(hessian, step, -change) is hessian


@pytest.mark.parametrize(("make", "seed"), [("mixture", 161), ("within", 184)])
def test_rounding_that_spoils_the_model_does_not_end_the_solve(make, seed):
    """Within a gap of 1e-5 and 5e-3 the model had no minimum below its start."""
    rng = np.random.default_rng(seed)
    rng.integers(20)
    criterion, allowed = getattr(stress_certificates, make)(rng)
    assert solve(criterion, allowed, method="frank_wolfe", tol=1e-6).converged


def test_a_learned_regularisation_never_vanishes():
    """The certificate divides by it; here the kernels leave it no weight."""
    rng = np.random.default_rng(0)
    signs = np.where(np.arange(20) % 2, 1.0, -1.0)[:, None]
    X = rng.normal(size=(20, 40)) + 5.0 * signs
    stack = np.exp(-((X.T[:, :, None] - X.T[:, None, :]) ** 2) / 8.0)
    criterion = Fisher(DenseBank(center_and_scale(stack)), signs, "learn")
    found = solve(criterion, Simplex(), method="frank_wolfe", tol=1e-7)
    assert found.converged and 0.0 < found.weights[0] < 1e-9

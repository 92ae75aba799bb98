"""The problem from moments against the same problem over all rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave import Fisher, LpBall, Simplex, certify, solve
from kernelweave._array import FactorizationError
from kernelweave.criteria.fisher import PrimalFisher
from kernelweave.fits.alpha import LooPath
from kernelweave.fits.moment_problem import CvPath, GcvPath, MomentProblem
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.kernels.banks.features import block_sums
from kernelweave.weights import Uniform

ALPHAS = [1e-3, 0.3, "learn"]
WIDTHS = [4, 1, 12, 3]
EPS = float(np.finfo(float).eps)


class Rows:
    """Rows with the features of four kernels and two targets, and their moments."""

    def __init__(self, rng, n=60, offset=3.0):
        self.n = n
        self.T = rng.normal(size=(n, 2)) + 1.0
        self.Z = rng.normal(size=(n, sum(WIDTHS))) * rng.uniform(0.1, 3, sum(WIDTHS))
        self.Z = self.Z + offset + self.T[:, :1]
        self.A = np.concatenate([np.ones((n, 1)), self.T, self.Z], axis=1)
        self.coding = np.array([[1.0, 0.2], [0.0, 2.0]])
        ends = np.cumsum([0, *WIDTHS])
        self.blocks = [slice(a, b) for a, b in pairwise(ends)]
        self.target = (self.T - self.T.mean(axis=0)) @ self.coding
        grams = np.stack([self.Z[:, b] @ self.Z[:, b].T for b in self.blocks])
        self.bank = DenseBank(center_and_scale(grams))

    def problem(self, asarray=np.asarray, precision=EPS):
        names = [f"kernel {i}" for i in range(4)]
        gram = asarray(self.A.T @ self.A)
        return MomentProblem(gram, self.coding, WIDTHS, names, precision)


@pytest.fixture
def rows(rng):
    return Rows(rng)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_same_function_as_over_all_rows(rows, alpha, rng, xp_backend):
    primal = PrimalFisher(rows.problem(xp_backend.asarray), alpha)
    dual = Fisher(rows.bank, rows.target, alpha)
    assert primal.n_weights == dual.n_weights and primal.offers == dual.offers
    for _ in range(3):
        weights = rng.dirichlet(np.ones(dual.n_weights))
        found, expected = primal.evaluate(weights), dual.evaluate(weights)
        assert found.value == pytest.approx(expected.value, rel=1e-10)
        # a gradient much smaller than the value is a difference of larger terms
        size = np.abs(expected.gradient) + expected.value
        assert np.all(np.abs(found.gradient - expected.gradient) <= 1e-9 * size)
        size = np.abs(expected.hessian).max()
        assert_allclose(found.hessian, expected.hessian, atol=1e-8 * size)
        scores = primal.scores(found.coef) * primal.scale
        assert_allclose(-scores, found.gradient, rtol=1e-9)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2), Uniform()], ids=repr)
@pytest.mark.parametrize(
    "method", ["auto", "closed_form", "cutting_plane", "qcqp", "sdp"]
)
def test_solvers_cannot_tell(rows, alpha, weight_set, method):
    if method in ("qcqp", "sdp"):
        pytest.importorskip("cvxpy")
    tol = 1e-9 if method == "auto" else 1e-3
    primal = solve(
        PrimalFisher(rows.problem(), alpha), weight_set, method=method, tol=tol
    )
    dual = solve(Fisher(rows.bank, rows.target, alpha), weight_set, tol=1e-9)
    assert primal.converged and dual.converged
    assert primal.value == pytest.approx(dual.value, rel=2 * tol)
    # certify the weights of one with the dual point of the other
    value, _, _ = certify(
        Fisher(rows.bank, rows.target, alpha), weight_set, primal.weights, dual.coef
    )
    assert value >= dual.lower_bound * (1 - 1e-9)
    assert primal.n_factorizations <= dual.n_factorizations + 1 or method != "auto"


def test_certificate_holds_for_any_dual_point(rows, rng):
    primal = PrimalFisher(rows.problem(), 0.2)
    best = solve(primal, Simplex(), tol=1e-10)
    for size in (0.0, 1e-3, 1.0):
        coef = best.coef + size * rng.normal(size=best.coef.shape)
        weights = rng.dirichlet(np.ones(4))
        value, lower, _ = certify(primal, Simplex(), weights, coef)
        assert lower <= best.value * (1 + 1e-9)
        assert value >= primal.evaluate(weights).value * (1 - 1e-9)


def test_kernels_have_trace_n(rows):
    problem = rows.problem()
    squares = block_sums(np.sum(problem.bank.features**2, axis=0), problem.bank.widths)
    assert_allclose(squares, rows.n, rtol=1e-9)
    assert problem.n_rows == problem.bank.n_rows == rows.n
    assert_allclose(problem.mean, rows.Z.mean(axis=0))


def test_more_features_than_rows(rng):
    rows = Rows(rng, n=12)
    for alpha in (0.1, "learn"):
        primal = solve(PrimalFisher(rows.problem(), alpha), Simplex(), tol=1e-6)
        dual = solve(Fisher(rows.bank, rows.target, alpha), Simplex(), tol=1e-8)
        assert primal.value == pytest.approx(dual.value, rel=1e-5)


def test_a_constant_kernel_is_left_out(rng):
    rows = Rows(rng)
    rows.A[:, 3 + 4] = 7.0
    problem = rows.problem()
    assert problem.active == [0, 2, 3] and problem.scales[1] == 0
    assert problem.bank.names == ["kernel 0", "kernel 2", "kernel 3"]
    keep = [i for i in range(23) if i != 7]
    small = MomentProblem(
        rows.A[:, keep].T @ rows.A[:, keep], rows.coding, [4, 12, 3], list("abc"), EPS
    )
    weights = np.array([0.2, 0.3, 0.5])
    found = PrimalFisher(problem, 0.1).evaluate(weights).value
    assert found == pytest.approx(PrimalFisher(small, 0.1).evaluate(weights).value)
    rows.A[:, 3:] = 1.0
    with pytest.raises(ValueError, match="every kernel is constant"):
        rows.problem()


def test_moments_of_single_precision_are_raised_until_they_can_be_factored(rng):
    rows = Rows(rng, n=400)
    rows.A[:, 3:7] = rows.A[:, 3:4]  # four equal columns
    gram = (rows.A.T.astype(np.float32) @ rows.A.astype(np.float32)).astype(float)
    names = [f"kernel {i}" for i in range(4)]
    precision = float(np.finfo(np.float32).eps)
    problem = MomentProblem(gram, rows.coding, WIDTHS, names, precision)
    assert 1e-7 < problem.jitter < 1e-3  # measured: 2.6e-6
    exact = rows.problem()
    weights = np.full(4, 0.25)
    found, expected = (PrimalFisher(p, 0.1).evaluate(weights) for p in (problem, exact))
    assert found.value == pytest.approx(expected.value, rel=1e-3)
    broken = gram.copy()
    broken[5, 6] = broken[6, 5] = 1e9
    with pytest.raises(FactorizationError, match="lost too many digits"):
        MomentProblem(broken, rows.coding, WIDTHS, names, precision)


def test_gcv_is_leave_one_out_with_the_mean_influence(rng):
    rows = Rows(rng, n=300)
    weights = rng.dirichlet(np.ones(4))
    alphas = np.logspace(-2, 3, 6)
    path = GcvPath(rows.problem(), weights)
    gram = rows.bank.combine(weights)
    n = rows.n
    P = np.eye(n) - 1 / n
    for alpha, found in zip(alphas, path.press(alphas), strict=True):
        inverse = np.linalg.inv(gram + alpha * np.eye(n))
        q = np.trace(P @ inverse @ P) / n
        B = inverse @ rows.target
        assert found == pytest.approx(np.mean(B**2) / q**2, rel=1e-8)
    loo = LooPath(gram.copy(), rows.target)
    assert_allclose(path.press(alphas), loo.press(alphas), rtol=0.2)  # measured: 0.005
    chosen, best = loo.press([path.best_alpha(), loo.best_alpha()])
    assert chosen <= 1.005 * best  # measured: 1.0003 in 150 draws
    assert_allclose(path.mean_eigenvalue, 1.0)


def test_cross_validation_is_exact(rng):
    rows = Rows(rng, n=80)
    weights = rng.dirichlet(np.ones(4))
    folds = rng.integers(3, size=80)
    grams = np.stack([rows.A[folds == f].T @ rows.A[folds == f] for f in range(3)])
    alphas = np.array([0.01, 1.0, 30.0])
    found = CvPath(rows.problem(), grams, weights).press(alphas)
    for alpha, error in zip(alphas, found, strict=True):
        total = 0.0
        for f in range(3):
            train, left = folds != f, folds == f
            Z = rows.Z - rows.Z[train].mean(axis=0)
            H = rows.target - rows.target[train].mean(axis=0)
            for w, b in zip(weights, rows.blocks, strict=True):
                Z[:, b] *= np.sqrt(w * np.sum(train) / np.sum(Z[train][:, b] ** 2))
            gram = Z[train].T @ Z[train] + alpha * np.eye(Z.shape[1])
            coef = np.linalg.solve(gram, Z[train].T @ H[train])
            total += np.sum((H[left] - Z[left] @ coef) ** 2)
        assert error == pytest.approx(total / (80 * 2), rel=1e-9)
    with pytest.raises(ValueError, match="needs rows outside"):
        CvPath(rows.problem(), grams.sum(axis=0)[None], weights)

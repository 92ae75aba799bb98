"""The block form: printed values, derivatives, bounds at any dual point, an SDP."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from kernelweave._array import to_numpy
from kernelweave.criteria.fisher import BlockDual, BlockFisher, Fisher
from kernelweave.fits.targets import class_target
from kernelweave.inner.correlation import nearest_correlation
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.solvers.newton import newton
from kernelweave.solvers.solve import certify
from kernelweave.weights import LpBall, Simplex

LOADERS = {"wine": load_wine, "iris": load_iris, "cancer": load_breast_cancer}


def centre(gram):
    gram = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    return gram * (len(gram) / np.trace(gram))


def gaussians(name, step):
    """Ten Gaussians of the papers on every step-th row, standardised on all rows."""
    x, y = LOADERS[name](return_X_y=True)
    x = ((x - x.mean(axis=0)) / x.std(axis=0))[::step]
    distance = ((x[:, None] - x[None]) ** 2).sum(axis=-1)
    widths = np.logspace(-1, 2, 10)
    stack = np.stack([centre(np.exp(-distance / s**2)) for s in widths])
    return DenseBank(stack), class_target(y[::step], int(y.max()) + 1)


def random_bank(rng, k=4, n=30, p=5):
    """Kernels that each separate some classes better than others."""
    codes = np.arange(n) % k
    kernels = []
    for i in range(p):
        z = rng.normal(size=(n, 4))
        z[:, 0] += 3 * (codes == i % k)
        kernels.append(centre(z @ z.T))
    return DenseBank(np.stack(kernels)), class_target(codes, k)


def random_weights(rng, criterion, count=None):
    m = criterion.n_weights  # away from 0, where a learned alpha makes M singular
    return 0.9 * rng.dirichlet(np.ones(m), size=count) + 0.1 / m


def weight_set(norm):
    return Simplex() if norm == 1 else LpBall(norm)


ALPHAS = pytest.mark.parametrize("alpha", [0.3, "learn"])


def newton_path(criterion, allowed, limit):
    """Weights, certified value and gap of the first iterate that reaches 1e-8."""
    for iterate in itertools.islice(newton(criterion, allowed), limit):
        value, _, gap = certify(criterion, allowed, iterate.weights, iterate.coef)
        if gap <= 1e-8:
            break
    return iterate.weights, value, gap


def test_wine_optimum_of_equation_37():
    bank, target = gaussians("wine", 6)
    criterion = BlockFisher(bank, target, 1e-2 * bank.n_samples)
    *_, last = itertools.islice(newton(criterion, Simplex()), 9)
    value, lower, gap = certify(criterion, Simplex(), last.weights, last.coef)
    assert abs(value - 8.960434920) < 1e-9
    assert gap < 1e-11 and lower <= value
    expected = np.zeros(10)
    expected[4:6] = 0.25055591, 0.74944409
    assert np.allclose(last.weights, expected, atol=1e-7)
    *_, exact = itertools.islice(newton(Fisher(bank, target, 0.3), Simplex()), 9)
    assert abs(exact.value - 4.834601868) < 1e-8  # Eq. 34 is another problem


@pytest.mark.parametrize(
    ("data", "lam", "norm"),
    [  # every pair of a data set and a penalty, and so on
        ((("wine", 4), ("iris", 5), ("cancer", 12))[(i + j) % 3], lam, norm)
        for i, lam in enumerate((1e-8, 1e-2, 1, "learn"))
        for j, norm in enumerate((1, 1.5, 2, 4))
    ],
    ids=str,
)
def test_newton_closes_the_gap_in_few_factorisations(data, lam, norm):
    bank, target = gaussians(*data)
    alpha = lam if lam == "learn" else lam * bank.n_samples
    criterion = BlockFisher(bank, target, alpha)
    _, _, gap = newton_path(criterion, weight_set(norm), 12)
    assert -1e-10 <= gap <= 1e-8


@ALPHAS
def test_value_at_any_weights_is_that_of_the_sdp(alpha, rng):
    cp = pytest.importorskip("cvxpy")
    bank, target = random_bank(rng)
    criterion = BlockFisher(bank, target, alpha)
    w = random_weights(rng, criterion)
    regularisation, kernel_weights = criterion.split(w)
    m = bank.combine(kernel_weights) + regularisation * np.eye(bank.n_samples)
    a = target.T @ np.linalg.solve(m, target)
    t = cp.Variable(len(a))
    inner = cp.Problem(cp.Minimize(cp.sum(t)), [cp.diag(t) - (a + a.T) / 2 >> 0])
    inner.solve(solver="CLARABEL")
    value = criterion.evaluate(w).value
    assert np.isclose(value, criterion.scale * inner.value, rtol=1e-7)


def test_optimum_is_that_of_the_printed_sdp(rng):
    cp = pytest.importorskip("cvxpy")
    bank, target = random_bank(rng, k=3, n=12, p=3)
    n, k, lam = 12, 3, 0.05
    w, t = cp.Variable(3, nonneg=True), cp.Variable(k)
    m = np.eye(n) + sum(w[i] * bank.stack[i] / (n * lam) for i in range(3))
    block = cp.bmat([[m, target], [target.T, cp.diag(t)]])
    problem = cp.Problem(cp.Minimize(cp.sum(t)), [block >> 0, cp.sum(w) == 1])
    problem.solve(solver="CLARABEL")
    criterion = BlockFisher(bank, target, n * lam)
    _, value, gap = newton_path(criterion, Simplex(), 25)
    assert gap <= 1e-8
    assert np.isclose(value, problem.value, rtol=1e-6)


@ALPHAS
def test_derivatives_by_differences(alpha, rng):
    bank, target = random_bank(rng)
    criterion = BlockFisher(bank, target, alpha)
    w, h = random_weights(rng, criterion) + 0.1, 1e-5
    state = criterion.evaluate(w)
    sides = [
        [criterion.evaluate(w + s * h * e, hessian=False) for s in (1, -1)]
        for e in np.eye(len(w))
    ]
    slope = [(a.value - b.value) / (2 * h) for a, b in sides]
    bend = [(a.gradient - b.gradient) / (2 * h) for a, b in sides]
    assert np.allclose(state.gradient, slope, rtol=1e-5)
    # measured: up to 2e-4 of the largest
    assert np.allclose(state.hessian, bend, atol=1e-3 * np.max(state.hessian))
    assert np.all(state.gradient <= 0)
    assert np.linalg.eigvalsh(state.hessian)[0] >= -1e-9 * np.max(state.hessian)
    assert sides[0][0].hessian is None


@ALPHAS
@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-2, 1.0])
def test_bounds_hold_for_any_dual_point(alpha, noise, rng):
    bank, target = random_bank(rng)
    criterion = BlockFisher(bank, target, alpha)
    w = random_weights(rng, criterion)
    state = criterion.evaluate(w)

    def perturbed():
        b = state.coef.coef
        x = state.coef.correlation + noise * rng.normal(size=(4, 4))
        size = noise * np.max(np.abs(b))
        return BlockDual(b + size * rng.normal(size=b.shape), x)

    coef, dual = perturbed(), perturbed()
    terms = criterion.certificate_terms(w, coef, dual)
    assert terms.upper >= state.value * (1 - 1e-11)
    for other in [w, *random_weights(rng, criterion, 5)]:
        value = criterion.evaluate(other, hessian=False).value
        assert terms.linear - terms.scores @ other <= value * (1 + 1e-11)
    if noise == 0.0:
        assert np.isclose(terms.upper, state.value, rtol=1e-10)
        assert np.isclose(terms.linear - terms.scores @ w, state.value, rtol=1e-10)
    assert criterion.certificate_terms(w, coef, coef).upper == terms.upper


def test_an_average_of_dual_points_is_at_least_as_good(rng):
    bank, target = random_bank(rng)
    criterion = BlockFisher(bank, target, 0.3)
    points = [criterion.evaluate(w).coef for w in random_weights(rng, criterion, 3)]
    shares = rng.dirichlet(np.ones(3))
    average = sum(float(s) * p for s, p in zip(shares, points, strict=True))
    assert np.allclose(np.diag(average.correlation), 1)
    u = random_weights(rng, criterion)

    def bound(point):
        terms = criterion.certificate_terms(u, point, point)
        return terms.linear - terms.scores @ u

    parts = np.array([bound(p) for p in points])
    rounding = 1e-10 * np.max(np.abs(parts))
    assert shares @ parts <= bound(average) + rounding
    assert bound(average) <= criterion.evaluate(u).value * (1 + 1e-11)
    with pytest.raises(TypeError):
        average + 1.0


@ALPHAS
def test_lies_between_fisher_and_k_times_fisher(alpha, rng):
    """X = I is allowed, and ``tr(XA) <= k tr A`` because no X exceeds k."""
    bank, target = random_bank(rng)
    block, exact = BlockFisher(bank, target, alpha), Fisher(bank, target, alpha)
    for w in random_weights(rng, block, 4):
        plain = exact.evaluate(w).value
        assert plain * (1 - 1e-11) <= block.evaluate(w).value <= 4 * plain


def test_one_column_is_the_fisher_criterion(rng):
    bank, target = random_bank(rng, k=2)
    block = BlockFisher(bank, target[:, :1], 0.3)
    exact = Fisher(bank, target[:, :1], 0.3)
    w = random_weights(rng, block)
    found, expected = block.evaluate(w), exact.evaluate(w)
    assert np.isclose(found.value, expected.value, rtol=1e-11)
    assert np.allclose(found.hessian, expected.hessian, rtol=1e-8)


def test_two_classes_have_a_fixed_correlation(rng):
    bank, target = random_bank(rng, k=2)
    block = BlockFisher(bank, target, 0.3)
    state = block.evaluate(random_weights(rng, block))
    assert np.allclose(state.coef.correlation, [[1, -1], [-1, 1]], atol=1e-5)


@ALPHAS
def test_expansion_is_a_with_its_derivatives(alpha, rng):
    bank, target = random_bank(rng)
    criterion = BlockFisher(bank, target, alpha)
    w, h = random_weights(rng, criterion) + 0.1, 1e-5
    at = criterion.expand(w)
    assert criterion.expand(w, second=False).halves is None
    x = nearest_correlation(rng.normal(size=(4, 4)))
    bend = at.bend(x)
    for i, e in enumerate(np.eye(len(w))):
        after, before = criterion.expand(w + h * e), criterion.expand(w - h * e)
        slope = (after.matrix - before.matrix) / (2 * h)
        assert np.allclose(at.slopes[i], slope, atol=1e-6 * np.max(np.abs(slope)))
        row = np.einsum("kl,jkl->j", x, after.slopes - before.slopes) / (2 * h)
        assert np.allclose(bend[i], row, atol=1e-5 * np.max(np.abs(bend)))


@ALPHAS
def test_other_libraries_and_float32(alpha, rng, xp_backend):
    bank, target = random_bank(rng)
    reference = BlockFisher(bank, target, alpha)
    w = random_weights(rng, reference)
    expected = reference.evaluate(w)
    for dtype, rtol in [("float64", 1e-9), ("float32", 1e-3)]:
        other = DenseBank(xp_backend.asarray(bank.stack, dtype))
        criterion = BlockFisher(other, xp_backend.asarray(target), alpha)
        found = criterion.evaluate(w)
        assert str(found.coef.coef.dtype).endswith(dtype)
        assert np.isclose(found.value, expected.value, rtol=rtol)
        assert np.allclose(found.gradient, expected.gradient, rtol=10 * rtol)
        terms = criterion.certificate_terms(w, found.coef, found.coef)
        lower = terms.linear - terms.scores @ w
        assert lower <= terms.upper * (1 + 1e-12)
        assert np.isclose(terms.upper, expected.value, rtol=rtol)
        mixed = 0.5 * found.coef + 0.5 * found.coef
        # compare B X, as X may be singular: only B X enters the bound
        before = to_numpy(found.coef.coef) @ found.coef.correlation
        after = to_numpy(mixed.coef) @ mixed.correlation
        # measured: up to 4e-6
        assert np.allclose(after, before, rtol=0, atol=1e-4)


def test_is_marked_as_the_block_form(rng):
    assert "expansion" in BlockFisher.offers
    assert "expansion" not in Fisher.offers
    with pytest.raises(ValueError, match="alpha must be a float > 0 or 'learn'"):
        BlockFisher(*random_bank(rng), -1.0)

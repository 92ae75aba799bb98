"""The within-class criterion: Eq. 9 as printed, derivatives, bounds, solvers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from kernelweave._array import to_numpy
from kernelweave.criteria.fisher import ClassCentring, WithinFisher
from kernelweave.fits.targets import binary_target, class_target
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.solvers.fixed_point import closed_form
from kernelweave.solvers.newton import newton
from kernelweave.solvers.solve import certify
from kernelweave.weights import LpBall, Simplex

SIZES = [[8, 12], [1, 9], [6, 7, 8, 2]]


def centre(gram):
    gram = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    return gram * (len(gram) / np.trace(gram))


def problem(rng, sizes, p=4):
    """Raw kernels (p, n, n), codes and the target of the printed equations."""
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    n, kernels = len(codes), []
    for i in range(p):
        z = rng.normal(size=(n, 3)) + 1.5 * (codes == i % len(sizes))[:, None]
        kernels.append(z @ z.T)
    k = len(sizes)
    target = binary_target(codes) if k == 2 else class_target(codes, k)
    return np.stack(kernels), codes, target


def criterion_of(rng, sizes, alpha=0.3, p=4):
    kernels, codes, target = problem(rng, sizes, p)
    bank = DenseBank(np.stack([centre(g) for g in kernels]))
    return WithinFisher(bank, target, alpha, codes)


def dense_centring(codes):
    j = np.zeros((len(codes), len(codes)))
    for c in np.unique(codes):
        rows = np.flatnonzero(codes == c)
        block = np.eye(len(rows)) - 1 / len(rows)
        j[np.ix_(rows, rows)] = block / np.sqrt(len(rows))
    return j


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_centring_is_the_printed_matrix(sizes, rng, xp_backend):
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    n, j = len(codes), dense_centring(codes)
    b, m = rng.normal(size=(3, n, 2)), rng.normal(size=(n, n))
    centring = ClassCentring(codes, xp_backend.asarray(b[0]))
    assert np.allclose(to_numpy(centring.apply(xp_backend.asarray(b[0]))), j @ b[0])
    assert np.allclose(to_numpy(centring.apply(xp_backend.asarray(b))), j @ b)
    both = xp_backend.asarray(m.copy())
    centring.apply_both_sides(both)
    assert np.allclose(to_numpy(both), j @ m @ j)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("lam", [1e-4, 1e-2, 1.0])
def test_value_is_minus_the_printed_equation_9(sizes, lam, rng):
    """In the paper's units: raw kernels scaled to unit centred trace, and lambda."""
    kernels, codes, target = problem(rng, sizes)
    n, j = len(codes), dense_centring(codes)
    traces = [np.trace(g - g.mean(axis=0)) for g in kernels]
    weights = rng.dirichlet(np.ones(len(kernels)))
    g = sum(w * gram / r for w, gram, r in zip(weights, kernels, traces, strict=True))
    inner = np.linalg.solve(lam * np.eye(n) + j @ g @ j, j @ g)
    printed = np.trace(target.T @ (g - g @ j @ inner) @ target) / lam
    bank = DenseBank(np.stack([centre(gram) for gram in kernels]))
    found = WithinFisher(bank, target, n * lam, codes).evaluate(weights)
    assert np.isclose(found.value, -printed, rtol=1e-9)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_derivatives_by_differences(sizes, rng):
    criterion = criterion_of(rng, sizes)
    w, h = rng.dirichlet(np.ones(4)) + 0.1, 1e-6
    state = criterion.evaluate(w)
    sides = [
        [criterion.evaluate(w + s * h * e, hessian=False) for s in (1, -1)]
        for e in np.eye(4)
    ]
    slope = [(a.value - b.value) / (2 * h) for a, b in sides]
    bend = [(a.gradient - b.gradient) / (2 * h) for a, b in sides]
    assert np.allclose(state.gradient, slope, rtol=1e-6, atol=1e-8 * abs(state.value))
    assert np.allclose(
        state.hessian, bend, rtol=1e-6, atol=1e-6 * np.max(state.hessian)
    )
    assert np.all(state.gradient <= 0)
    assert np.linalg.eigvalsh(state.hessian)[0] >= -1e-9 * np.max(state.hessian)
    assert sides[0][0].hessian is None


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-2, 1.0])
def test_bounds_hold_for_any_dual_point(sizes, noise, rng):
    criterion = criterion_of(rng, sizes)
    w = rng.dirichlet(np.ones(4))
    state = criterion.evaluate(w)
    coef, dual = (
        state.coef + noise * rng.normal(size=state.coef.shape) for _ in range(2)
    )
    terms = criterion.certificate_terms(w, coef, dual)
    rounding = 1e-10 * abs(state.value)
    assert terms.upper >= state.value - rounding
    for other in [w, *rng.dirichlet(np.ones(4), size=5)]:
        value = criterion.evaluate(other, hessian=False).value
        assert terms.linear - terms.scores @ other <= value + rounding
    if noise == 0.0:
        assert np.isclose(terms.upper, state.value, rtol=1e-9)
        assert np.isclose(terms.linear - terms.scores @ w, state.value, rtol=1e-9)
    shared = criterion.certificate_terms(w, coef, coef)
    assert shared.upper == terms.upper
    own = criterion.certificate_terms(w, dual, dual)
    assert terms.linear == own.linear
    assert np.array_equal(terms.scores, own.scores)


def gaussians(name, step):
    load = {"wine": load_wine, "iris": load_iris, "cancer": load_breast_cancer}[name]
    x, y = load(return_X_y=True)
    x = ((x - x.mean(axis=0)) / x.std(axis=0))[::step]
    distance = ((x[:, None] - x[None]) ** 2).sum(axis=-1)
    widths = np.logspace(-1, 2, 10)
    return DenseBank(np.stack([centre(np.exp(-distance / s**2)) for s in widths])), y[
        ::step
    ]


def weight_set(norm):
    return Simplex() if norm == 1 else LpBall(norm)


@pytest.mark.parametrize(
    ("data", "lam", "norm"),
    [  # every pair of a data set and a penalty, and so on
        ((("wine", 4), ("iris", 5), ("cancer", 12))[(i + j) % 3], lam, norm)
        for i, lam in enumerate((1e-8, 1e-4, 1e-2, 1))
        for j, norm in enumerate((1, 1.5, 2, 4))
    ],
    ids=str,
)
def test_newton_closes_the_gap_in_few_factorisations(data, lam, norm):
    bank, codes = gaussians(*data)
    k, allowed = int(codes.max()) + 1, weight_set(norm)
    target = binary_target(codes) if k == 2 else class_target(codes, k)
    criterion = WithinFisher(bank, target, lam * len(codes), codes)
    for iterate in itertools.islice(newton(criterion, allowed), 12):
        value, _, gap = certify(criterion, allowed, iterate.weights, iterate.coef)
        if gap <= 1e-8:
            break
    assert -1e-10 <= gap <= 1e-8
    assert value < 0


def test_newton_finds_the_best_of_two_kernels(rng):
    criterion = criterion_of(rng, [10, 15], p=2)

    def along(a):
        return criterion.evaluate(np.array([a, 1 - a]), hessian=False).value

    best = minimize_scalar(
        along, bounds=(0, 1), method="bounded", options={"xatol": 1e-10}
    )
    *_, last = itertools.islice(newton(criterion, Simplex()), 15)
    assert np.isclose(last.value, min(best.fun, along(0), along(1)), rtol=1e-8)


@pytest.mark.parametrize("norm", [1, 1.5, 2])
def test_closed_form_decreases_and_converges(norm, rng):
    """Its derivation only needs J(w) = max_a [linear(a) - <scores(a), w>]."""
    criterion, allowed = criterion_of(rng, [10, 15]), weight_set(norm)
    path = list(itertools.islice(closed_form(criterion, allowed), 300))
    values = np.array([iterate.value for iterate in path])
    assert np.all(np.diff(values) <= 1e-10 * abs(values[0]))
    *_, exact = itertools.islice(newton(criterion, allowed), 20)
    # measured over 21 seeds: at most 5e-7 of the value, and 3e-16 with other norms
    assert values[-1] - exact.value <= (1e-4 if norm == 1 else 1e-8) * abs(exact.value)


def test_other_libraries_and_float32(rng, xp_backend):
    kernels, codes, target = problem(rng, [6, 7, 8])
    stack = np.stack([centre(g) for g in kernels])
    w = rng.dirichlet(np.ones(len(stack)))
    expected = WithinFisher(DenseBank(stack), target, 0.5, codes).evaluate(w)
    for dtype, rtol in [("float64", 1e-9), ("float32", 2e-4)]:
        bank = DenseBank(xp_backend.asarray(stack, dtype))
        criterion = WithinFisher(bank, xp_backend.asarray(target), 0.5, codes)
        found = criterion.evaluate(w)
        assert np.isclose(found.value, expected.value, rtol=rtol)
        scale = np.max(np.abs(expected.gradient))
        assert np.allclose(found.gradient, expected.gradient, rtol, rtol * scale)
        scale = np.max(expected.hessian)
        assert np.allclose(found.hessian, expected.hessian, rtol, rtol * scale)
        terms = criterion.certificate_terms(w, found.coef, found.coef)
        assert terms.scores.dtype == np.float64
        # both bounds hold for the kernels as stored, so the gap is not negative
        assert terms.upper - (terms.linear - terms.scores @ w) >= -1e-12 * abs(
            expected.value
        )
        assert np.isclose(terms.upper, expected.value, rtol=rtol)


def test_duplicate_kernels_are_remarked_on(rng):
    kernels, codes, target = problem(rng, [8, 8], p=2)
    stack = np.stack([centre(g) for g in (*kernels, kernels[0])])
    criterion = WithinFisher(DenseBank(stack), target, 0.1, codes)
    (remark,) = criterion.remarks(np.array([0.5, 0.5, 0.0]))
    assert "'kernel 0' and 'kernel 2'" in remark
    assert criterion.n_weights == criterion.n_kernels == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": "learn"}, "has no learned regularisation; give a float > 0"),
        ({"alpha": 0.0}, "alpha must be a finite number > 0, got 0.0"),
        ({"alpha": np.nan}, "got nan"),
        ({"codes": np.zeros(3, dtype=int)}, "codes must be a vector of 10 integers"),
        ({"codes": np.arange(10) % 2.0}, r"integers .* got array\(\[0., 1.\]"),
        ({"target": np.full((10, 1), np.nan)}, "the target contains NaN"),
    ],
)
def test_bad_parameters_are_named(change, message):
    codes = np.arange(10) % 2
    bank = DenseBank(centre(np.eye(10))[None])
    parameters = {"target": binary_target(codes), "alpha": 1.0, "codes": codes} | change
    with pytest.raises(ValueError, match=message):
        WithinFisher(bank, **parameters)

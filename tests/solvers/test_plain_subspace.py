"""Weights for the subspace kernel of Eq. 6: a non-convex problem with two bounds."""

from __future__ import annotations

import numpy as np
import pytest

from estimators import in_turn
from kernelweave import LpBall, Simplex, solve
from kernelweave.criteria import SubspaceMargin
from kernelweave.fits.targets import signs_of_codes
from kernelweave.inner.svm import solve_machines
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.solvers.local.subspace import PlainSubspaceMargin, solve_plain

SETS = [Simplex(), LpBall(1.5), LpBall(2)]
every_set = pytest.mark.parametrize("weights", SETS, ids=repr)


def draw_bank(rng, n=36, p=3, k=3):
    y = np.arange(n) % k
    parts = []
    for i in range(p):
        X = rng.normal(size=(n, 3))
        X[:, 0] += (2.0 - 0.6 * i) * (y == 1)
        X[:, 1] -= (1.5 - 0.4 * i) * (y == 2)
        squared = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
        parts.append(np.exp(-squared / 4.0))
    return DenseBank(center_and_scale(np.array(parts))), y


def draw_criterion(rng, alpha=0.5, C=2.0, **sizes):
    bank, y = draw_bank(rng, **sizes)
    return PlainSubspaceMargin(bank, signs_of_codes(y, 3), alpha, C)


def draw_weights(rng, weight_set, p=3):
    return weight_set.scale(rng.dirichlet(np.ones(p)))


@pytest.mark.parametrize("C", [0.1, 2.0, 50.0])
def test_value_and_gradient(rng, C):
    criterion = draw_criterion(rng, C=C)
    w = np.array([0.5, 0.3, 0.2])
    state = criterion.evaluate(w)
    G = np.tensordot(w, criterion.bank.stack, 1)
    K = G @ np.linalg.solve(G + 0.5 * np.eye(len(G)), G)
    a = solve_machines((K + K.T) / 2, criterion.signs, C, 1e-10).coef()
    value = np.sum(a * criterion.signs) - 0.5 * np.sum(a * (K @ a))
    assert state.value == pytest.approx(value, rel=1e-8)
    h = 1e-5
    for i, step in enumerate(h * np.eye(3)):
        ahead, back = (criterion.evaluate(w + s).value for s in (step, -step))
        slope = (ahead - back) / (2 * h)
        assert state.gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-5 * value)


def test_what_is_convex_and_what_is_not(rng):
    """Two classes of one size and small C: every variable is at its bound.

    There v is concave in the weights, with its minimum at one kernel, and no convex
    solver could be right; that of Eq. 39 is convex all the same.
    """
    bank, y = draw_bank(rng, k=2)
    signs = signs_of_codes(y, 2)
    plain = PlainSubspaceMargin(bank, signs, 0.5, 1e-3)
    uncorrelated = SubspaceMargin(bank, signs, 0.5, 1e-3)
    ends = np.eye(3)[:2]
    middle = ends.mean(axis=0)

    def excess(criterion):
        values = [criterion.evaluate(w).value for w in (*ends, middle)]
        return (values[2] - np.mean(values[:2])) / values[2]

    assert excess(plain) > 1e-7
    assert excess(uncorrelated) < -1e-7
    solution = solve_plain(plain, Simplex())
    assert np.max(solution.weights) == 1.0
    assert solution.value == pytest.approx(solution.lower_bound, rel=1e-6)


@every_set
def test_minorant_is_below_and_exact_at_single_kernels(rng, weights):
    criterion = draw_criterion(rng)
    total = weights.support(np.ones(3))
    minorant = criterion.minorant(total)
    for w in [draw_weights(rng, weights) for _ in range(4)]:
        v = criterion.evaluate(w).value
        assert minorant.evaluate(w, hessian=False).value / 2 <= v * (1 + 1e-8)
    if total == 1.0:
        for w in np.eye(3):
            v = criterion.evaluate(w).value
            bound = minorant.evaluate(w, hessian=False).value / 2
            assert bound == pytest.approx(v, rel=1e-7)


@pytest.mark.parametrize("weights", SETS[1:], ids=repr)
def test_minorant_of_copies_is_exact_at_equal_weights(rng, weights):
    """Weights that sum to s > 1 are one kernel s times as large."""
    bank, y = draw_bank(rng, p=1)
    twice = DenseBank(np.concatenate([bank.stack, bank.stack]))
    criterion = PlainSubspaceMargin(twice, signs_of_codes(y, 3), 2.0, 2.0)
    w = weights.start(2)
    bound = criterion.minorant(np.sum(w)).evaluate(w, hessian=False).value / 2
    assert bound == pytest.approx(criterion.evaluate(w).value, rel=1e-7)


@pytest.mark.one_seed
@in_turn(  # each set with two of three problems
    weights=SETS * 2,
    alpha=[0.1, 2.0, 2.0, 2.0, 2.0, 0.1],
    C=[1.0, 0.2, 20.0, 0.2, 20.0, 1.0],
)
def test_bounds_enclose_every_weight(rng, weights, alpha, C):
    criterion = draw_criterion(rng, alpha, C)
    found = solve_plain(criterion, weights)
    assert weights.violation(found.weights) < 1e-9
    assert found.lower_bound <= found.value
    assert criterion.evaluate(found.weights).value == pytest.approx(
        found.value, rel=1e-9
    )
    # no other point evaluated is better, and the bound holds everywhere
    for w in (weights.start(3), *(weights.scale(e) for e in np.eye(3))):
        assert criterion.evaluate(w).value >= found.lower_bound * (1 - 1e-8)
    assert found.value <= criterion.evaluate(weights.start(3)).value * (1 + 1e-9)
    for w in [draw_weights(rng, weights) for _ in range(6)]:
        assert criterion.evaluate(w).value >= found.lower_bound * (1 - 1e-8)
    assert -1e-6 <= found.stationarity < 1e-4  # measured: up to 9e-6


def test_descent_never_ends_above_its_start(rng):
    criterion = draw_criterion(rng, 2.0, 20.0)
    minorant = solve(criterion.minorant(), Simplex(), tol=1e-6)
    found = solve_plain(criterion, Simplex())
    assert found.value <= criterion.evaluate(minorant.weights).value * (1 + 1e-9)
    assert found.lower_bound == pytest.approx(minorant.lower_bound / 2, rel=1e-6)
    rows = []
    stopped = solve_plain(
        criterion, Simplex(), callback=lambda row: rows.append(row) or len(rows) == 2
    )
    assert len(rows) == 2 and stopped.value == min(row.value for row in rows)

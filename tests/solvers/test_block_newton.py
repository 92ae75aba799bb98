"""The joint interior point of the block form, where its criterion has kinks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernelweave.criteria.fisher import BlockFisher
from kernelweave.fits.targets import class_target
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.solvers.block_newton import joint_newton
from kernelweave.solvers.solve import certify, solve
from kernelweave.weights import CappedSimplex, LpBall, Simplex, Uniform


def centre(gram):
    gram = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    return gram * (len(gram) / np.trace(gram))


def kernels_for(kind, rng, k, n, p):
    codes = np.arange(n) % k
    kernels = []
    for i in range(p):
        z = rng.normal(size=(n, 3))
        if kind == "one class each":
            z[:, 0] += 4 * (codes == i % k)
        elif kind == "pairs":
            a, b = rng.choice(k, 2, replace=False)
            z[:, 0] += 4.0 * (codes == a) - 4.0 * (codes == b)
        elif kind == "ideal":
            z = (codes == i % k).astype(float)[:, None]
        kernels.append(centre(z @ z.T))
    return DenseBank(np.stack(kernels)), class_target(codes, k)


def run(criterion, allowed, limit):
    for iterate in itertools.islice(joint_newton(criterion, allowed), limit):
        gap = (iterate.value - iterate.lower_bound) / iterate.value
        if gap <= 1e-8:
            break
    return gap, iterate


@pytest.mark.parametrize(
    ("kind", "lam", "norm"),
    [  # every pair of kernels and a penalty, and so on
        (kind, lam, (1, 1.5, 2, 4)[(i + j) % 4])
        for i, kind in enumerate(("noise", "one class each", "pairs", "ideal"))
        for j, lam in enumerate((1e-8, 1e-3, 1, "learn"))
    ],
)
def test_kinks_do_not_stop_it(kind, lam, norm):
    bank, target = kernels_for(kind, np.random.default_rng(0), k=5, n=60, p=15)
    alpha = lam if lam == "learn" else lam * bank.n_samples
    criterion = BlockFisher(bank, target, alpha)
    allowed = Simplex() if norm == 1 else LpBall(norm)
    gap, last = run(criterion, allowed, 22)
    assert gap <= 1e-8
    value, lower, certified = certify(
        criterion, allowed, last.weights, last.coef, last.dual
    )
    assert -1e-8 <= certified <= 1.1e-8
    assert lower <= value <= last.value * (1 + 1e-8)


def test_one_allowed_point(rng):
    bank, target = kernels_for("pairs", rng, k=3, n=20, p=4)
    criterion = BlockFisher(bank, target, 0.5)
    only = solve(criterion, Uniform())
    assert only.n_factorizations == 1
    assert np.isclose(only.value, criterion.evaluate(np.full(4, 0.25)).value)


@pytest.mark.parametrize("lam", [1, "learn"])
def test_the_joint_method_takes_over_where_newton_stalls(lam):
    bank, target = kernels_for("pairs", np.random.default_rng(0), k=5, n=60, p=15)
    alpha = lam if lam == "learn" else lam * bank.n_samples
    solution = solve(BlockFisher(bank, target, alpha), Simplex())
    assert solution.converged
    assert 12 < solution.n_factorizations <= 36


def test_cutting_planes_take_over_within_caps():
    """As many columns as rows: Newton's method alone ended at a gap of 0.32."""
    Z = np.random.default_rng(2).normal(size=(6, 5, 2))
    bank = DenseBank(np.stack([centre(z @ z.T) for z in Z]))
    problem = BlockFisher(bank, class_target(np.arange(5), 5), "learn")
    found = solve(problem, CappedSimplex(0.3), tol=1e-6)
    assert found.converged

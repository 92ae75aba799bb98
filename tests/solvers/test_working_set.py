"""Many kernels, a few at a time: the same optimum with the same certificate."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from kernelweave import Fisher, LpBall, Simplex, solve
from kernelweave.kernels import DenseBank
from kernelweave.kernels.banks.features import FeatureBank
from kernelweave.protocols import Method
from kernelweave.solvers.newton import working_set


def problem(rng, alpha, n=30, p=110, width=2):
    Z = rng.normal(size=(n, p, width))
    target = rng.normal(size=(n, 2))
    Z[:, :5, 0] += target[:, :1]
    target = target - target.mean(axis=0)
    Z = Z - Z.mean(axis=0)
    Z *= np.sqrt(n / np.sum(Z**2, axis=(0, 2)))[None, :, None]
    return Fisher(FeatureBank(Z.reshape(n, -1), [width] * p), target, alpha)


@pytest.mark.parametrize("alpha", [0.05, 2.0, "learn"])
def test_same_optimum_as_newton(alpha, rng):
    criterion = problem(rng, alpha)
    found = solve(criterion, Simplex(), tol=1e-8)
    assert found.method == "working_set" and found.converged
    expected = solve(criterion, Simplex(), method="newton", tol=1e-8)
    assert expected.method == "newton"
    assert found.value == pytest.approx(expected.value, rel=2e-8)
    assert found.n_factorizations >= found.n_iter
    # the weights of one pass the certificate of the other
    assert abs(found.lower_bound / expected.lower_bound - 1) < 2e-8


def test_kernels_outside_are_neither_combined_nor_factored(rng, monkeypatch):
    criterion = problem(rng, 2.0, p=300)
    calls = {"combine": [], "apply": [], "quad": []}

    def watch(name):
        original = getattr(FeatureBank, name)

        def watched(self, *arguments, **options):
            calls[name].append(self.n_kernels)
            return original(self, *arguments, **options)

        monkeypatch.setattr(FeatureBank, name, watched)

    for name in calls:
        watch(name)
    solution = solve(criterion, Simplex(), tol=1e-6)
    assert solution.converged and max(calls["combine"]) < 300
    assert np.sum(solution.weights > 0) <= max(calls["combine"])
    # scores at the beginning and after each round, products for the certificate
    assert calls["quad"].count(300) == solution.n_iter + 1
    assert calls["apply"].count(300) <= 2


@pytest.mark.measured
@pytest.mark.parametrize("alpha", [0.05, "learn"])
def test_a_round_starts_where_the_last_one_ended(alpha, rng):
    criterion = problem(rng, alpha, p=300)
    warm = solve(criterion, Simplex(), tol=1e-6)
    cold_starts = Method("cold", partial(working_set, spread=1.0), 100)
    cold = solve(criterion, Simplex(), method=cold_starts, tol=1e-6)
    assert warm.converged and cold.converged
    assert warm.value == pytest.approx(cold.value, rel=2e-6)
    assert warm.n_factorizations <= cold.n_factorizations


def test_other_sets_and_few_kernels_go_to_newton(rng):
    criterion = problem(rng, 0.3)
    l2 = solve(criterion, LpBall(2), method="working_set", tol=1e-8)
    assert l2.value == pytest.approx(
        solve(criterion, LpBall(2), method="newton", tol=1e-8).value, rel=1e-8
    )
    few = criterion.restricted(np.arange(10))
    assert few.n_kernels == 10 and few.preferred_method == "newton"
    assert solve(few, Simplex(), method="working_set").converged


def test_dense_kernels_too(rng):
    criterion = problem(rng, 0.3, p=60)
    features = criterion.bank.features
    stack = np.stack([features[:, b] @ features[:, b].T for b in criterion.bank.blocks])
    dense = Fisher(DenseBank(stack), criterion.target, 0.3)
    assert dense.preferred_method == "newton"
    found = solve(dense, Simplex(), method="working_set", tol=1e-8)
    expected = solve(criterion, Simplex(), tol=1e-8)
    assert found.value == pytest.approx(expected.value, rel=2e-8)

"""Many kernels, few at a time: the same optimum with the same certificate."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import Fisher, LpBall, Simplex, solve
from kernelweave.kernels import DenseBank
from kernelweave.kernels.feature_bank import FeatureBank


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
    criterion = problem(rng, 2.0)
    widest = []
    original = FeatureBank.combine

    def watched(self, *arguments, **options):
        widest.append(self.n_kernels)
        return original(self, *arguments, **options)

    monkeypatch.setattr(FeatureBank, "combine", watched)
    solution = solve(criterion, Simplex(), tol=1e-6)
    assert solution.converged and max(widest) < 110
    assert np.sum(solution.weights > 0) <= max(widest)


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
    criterion = problem(rng, 0.3, p=30)
    features = criterion.bank.features
    stack = np.stack([features[:, b] @ features[:, b].T for b in criterion.bank.blocks])
    dense = Fisher(DenseBank(stack), criterion.target, 0.3)
    assert dense.preferred_method == "newton"
    found = solve(dense, Simplex(), method="working_set", tol=1e-8)
    expected = solve(criterion, Simplex(), tol=1e-8)
    assert found.value == pytest.approx(expected.value, rel=2e-8)

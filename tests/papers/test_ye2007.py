"""The methods of Ye et al. (2007) as the paper poses them."""

from __future__ import annotations

import numpy as np
import pytest

from reproduce import ye2007
from reproduce.experiment import Split


def test_kim_is_printed_9_over_10(monkeypatch, rng):
    """The ratio (9), with the matrix J below (8), of the best convex sum (10)."""
    n = 30
    y = (np.arange(n) % 3 == 0).astype(int)
    X = rng.uniform(size=(n, 3)) + 0.3 * y[:, None]
    split = Split(X, y, X, y)
    monkeypatch.setattr(ye2007, "measured", lambda model, *_: model.fit(X, y))
    model = ye2007.BINARY[ye2007.KIM](split)
    kernels = np.stack([kernel(X) for kernel in ye2007.GAUSSIANS])
    alike = y[:, None] == y
    sizes = alike.sum(axis=0)
    J = (np.eye(n) - alike / sizes) / np.sqrt(sizes)
    a = np.where(y == 1, 1 / y.sum(), -1 / (n - y.sum()))

    def printed(weights):
        G, lam = np.tensordot(weights, kernels, 1), ye2007.LAMBDA
        N = lam * np.eye(n) + J @ G @ J
        return a @ (G @ a - G @ J @ np.linalg.solve(N, J @ G @ a)) / lam

    best = printed(model.kernel_weights_)
    assert model.kernel_weights_.sum() == pytest.approx(1)
    problem = ye2007.kim_problem(X, y)
    value = problem.evaluate(model.kernel_weights_, hessian=False).value
    assert -value == pytest.approx(best, rel=1e-5)
    for weights in [*np.eye(10), *rng.dirichlet(np.ones(10), size=20)]:
        assert printed(weights) <= best * (1 + 1e-5)

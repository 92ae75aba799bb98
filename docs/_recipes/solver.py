"""A new solver: the Frank-Wolfe method.

A ``Method`` consists of a generator function, which takes a criterion and a weight set
and yields an ``Iterate`` for each point it evaluates, and of what it needs from both.
The loop, the tolerance, the callback, the history and the certificate are shared: a
solver never prints and never judges its own result. The package's methods are listed in
``METHODS`` in ``solvers/solve.py``; your own can be passed to ``solve`` directly.
"""

from __future__ import annotations

import numpy as np

from kernelweave import Alignment, CappedSimplex, Fisher, LpBall, Simplex, solve
from kernelweave.datasets import make_views
from kernelweave.kernels import RBF, DenseBank
from kernelweave.protocols import Iterate, Method


def frank_wolfe(criterion, weight_set):
    """``w <- w + t (v - w)``, where v minimises the linearised criterion."""
    weights = weight_set.start(criterion.n_weights)
    state = criterion.evaluate(weights, hessian=True)
    while True:
        yield Iterate.at(weights, state)
        step = weight_set.maximizer(-state.gradient) - weights
        curvature = float(step @ state.hessian @ step)
        slope = -float(state.gradient @ step)
        if slope <= 0.0 or weight_set.is_point(len(weights)):
            return
        t = 1.0 if curvature <= slope else slope / curvature
        weights = weights + t * step
        state = criterion.evaluate(weights, hessian=True)


#: It needs nothing from the weight set, so it works on any.
FRANK_WOLFE = Method("frank_wolfe", frank_wolfe, 500, needs=frozenset({"hessian"}))


if __name__ == "__main__":
    data = make_views(n_samples=60, n_views=4, n_informative=2, random_state=0)
    X, y = np.asarray(data.data), np.where(data.target == 0, 1.0, -1.0)[:, None]
    grams = [RBF()(X[:, columns]) for _, _, columns in data.views]
    bank = DenseBank.from_kernels(np.stack(grams))
    criterion = Fisher(bank, y - y.mean(), alpha=1.0)
    for weight_set in (Simplex(), LpBall(2), CappedSimplex(0.4)):
        found = solve(criterion, weight_set, method=FRANK_WOLFE, tol=1e-3)
        best = solve(criterion, weight_set)
        assert found.converged and found.n_factorizations == found.n_iter
        assert abs(found.value - best.value) <= 1e-3 * best.value
        print(f"{weight_set!r:20} {found.n_iter:4} steps, Newton {best.n_iter}")
    try:
        solve(Alignment(bank, y), Simplex(), method=FRANK_WOLFE)
    except ValueError as error:
        print(error)
    else:
        raise AssertionError("a criterion without a Hessian was not refused")

"""A new solver: exponentiated gradient, which is mirror descent on the simplex.

A ``Method`` consists of a generator function, which takes a criterion and a weight set
and yields an ``Iterate`` for each point it evaluates, and of what it needs from both.
The loop, the tolerance, the callback, the history and the certificate are shared: a
solver never prints and never judges its own result. The package's methods are listed in
``METHODS`` in ``solvers/solve.py``; your own can be passed to ``solve`` directly.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import rel_entr, softmax

from kernelweave import CappedSimplex, Fisher, LpBall, Margin, Simplex, solve
from kernelweave.datasets import make_views
from kernelweave.kernels import RBF, DenseBank
from kernelweave.protocols import Iterate, Method


def exponentiated_gradient(criterion, weight_set):
    """``w_i <- w_i exp(-t g_i) / sum_j w_j exp(-t g_j)`` with the gradient g at w.

    This is the minimum over the simplex of ``<g, u> + KL(u, w) / t``. The length t is
    halved until ``J(w) + <g, u - w> + KL(u, w) / t`` is above J(u), so that the value
    never rises, and doubled before the next step.
    """
    weights = weight_set.start(criterion.n_weights)
    state = criterion.evaluate(weights, hessian=False)
    length = 1.0 / np.max(np.abs(state.gradient))
    while True:
        yield Iterate.at(weights, state)
        spent, length = 0, 2.0 * length
        while True:
            trial = softmax(np.log(weights) - length * state.gradient)
            after = criterion.evaluate(trial, hessian=False)
            spent += after.n_factorizations
            model = state.gradient @ (trial - weights)
            model += np.sum(rel_entr(trial, weights)) / length
            if after.value <= state.value + model:
                break
            length *= 0.5
        weights, state = trial, replace(after, n_factorizations=spent)


#: Only the simplex offers both: a norm, which is 1 if minimisers are sparse.
EXPONENTIATED = Method(
    "exponentiated_gradient",
    exponentiated_gradient,
    max_iter=2000,
    set_needs=frozenset({"norm", "sparse"}),
)


if __name__ == "__main__":
    data = make_views(n_samples=60, n_views=4, n_informative=2, random_state=0)
    X, y = np.asarray(data.data), np.where(data.target == 0, 1.0, -1.0)[:, None]
    grams = [RBF()(X[:, columns]) for _, _, columns in data.views]
    bank = DenseBank.from_kernels(np.stack(grams))
    for criterion in (Fisher(bank, y - y.mean(), alpha=1.0), Margin(bank, y)):
        found = solve(criterion, Simplex(), method=EXPONENTIATED, tol=1e-3)
        best = solve(criterion, Simplex())
        assert found.converged and found.n_factorizations >= found.n_iter
        assert abs(found.value - best.value) <= 1e-3 * best.value
        values = [row.value for row in found.trace]
        assert np.all(np.diff(values) <= 1e-9 * best.value)
        print(f"{found.n_iter} steps, {best.n_iter} of {best.method!r}")
    for weight_set in (LpBall(2), CappedSimplex(0.4)):
        try:
            solve(criterion, weight_set, method=EXPONENTIATED)
        except ValueError as error:
            print(error)
        else:
            raise AssertionError("a set that does not fit was not refused")

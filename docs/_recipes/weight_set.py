"""A new weight set: groups of kernels, each with a budget.

A set defined by linear constraints inherits from ``PolyhedralSet`` and states them; the
rest follows. Any other set implements the protocol ``WeightSet``: ``start(m)`` is an
interior point, ``support(scores)`` the maximum of ``<scores, w>`` over the set (which
turns a dual point into a lower bound), ``violation(w)`` the distance from the set, and
``offers`` declares what methods may rely on.
"""

from __future__ import annotations

import numpy as np

from kernelweave import Fisher, Margin, Simplex, solve
from kernelweave.datasets import make_views
from kernelweave.kernels import RBF, DenseBank
from kernelweave.protocols import Polyhedron
from kernelweave.weights import PolyhedralSet


class GroupBudgets(PolyhedralSet):
    """``{ w >= 0 : sum_i w_i = 1, sum_{i in group} w_i <= budget for each group }``."""

    def __init__(self, groups, budget):
        self.groups, self.budget = np.asarray(groups), budget

    def polyhedron(self, m):
        """The constraints on m weights."""
        below = np.stack([self.groups == g for g in np.unique(self.groups)])
        return Polyhedron.sum_to_one(
            m, below=below.astype(float), below_to=np.full(len(below), self.budget)
        )

    def __repr__(self):
        return f"GroupBudgets(budget={self.budget:g})"


if __name__ == "__main__":
    data = make_views(n_samples=40, n_views=3, n_informative=1, random_state=0)
    X, signs = np.asarray(data.data), np.where(data.target[:, None] == 0, 1.0, -1.0)
    views = [columns for _, _, columns in data.views]
    grams = [RBF(factor=f)(X[:, columns]) for columns in views for f in (0.5, 2.0)]
    bank = DenseBank.from_kernels(np.stack(grams))
    target = signs - signs.mean()

    allowed = GroupBudgets([0, 0, 1, 1, 2, 2], budget=0.5)
    for criterion in (Fisher(bank, target, alpha=1.0), Margin(bank, signs)):
        free = solve(criterion, Simplex())
        for method in ("newton", "cutting_plane"):
            solution = solve(criterion, allowed, method=method, tol=1e-6)
            groups = solution.weights.reshape(3, 2).sum(axis=1)
            assert solution.converged and np.all(groups <= 0.5 + 1e-9)
            assert solution.value >= free.value * (1 - 1e-9)
            print(f"{type(criterion).__name__:7} {method:14} {groups.round(3)}")

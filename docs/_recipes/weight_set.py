"""New weight sets: groups of kernels, each with a budget, and weights near given ones.

A set defined by linear constraints inherits from ``PolyhedralSet`` and states them; the
rest follows. Any other convex set inherits from the protocol ``WeightSet`` and says
where its support function ``max <scores, w>`` is attained, ``maximizer(scores)``: that
turns a dual point into a lower bound, and is all that Frank-Wolfe needs. Besides,
``start(m)`` is a point inside and ``violation(w)`` the distance from the set, by which
the certificate refuses weights that are not allowed. Properties that faster methods
could rely on are declared in ``offers``; there need not be any.
"""

from __future__ import annotations

import numpy as np

from kernelweave import Fisher, Margin, Simplex, solve
from kernelweave.datasets import make_views
from kernelweave.kernels import RBF, DenseBank
from kernelweave.protocols import Polyhedron, WeightSet
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


class Near(WeightSet):
    """``{ w : norm_2(w - centre) <= radius }``: weights that stay near given ones.

    With a radius of at most the least weight of the centre, none becomes negative.
    """

    def __init__(self, centre, radius):
        self.centre, self.radius = np.asarray(centre, dtype=float), radius

    def start(self, m):
        """The centre, a point inside."""
        return self.centre

    def maximizer(self, scores):
        """``centre + radius scores / |scores|``, where <scores, w> is largest."""
        return self.centre + self.radius * scores / (np.linalg.norm(scores) or 1.0)

    def violation(self, weights):
        """How far the weights are outside; 0 inside."""
        return max(0.0, float(np.linalg.norm(weights - self.centre)) - self.radius)

    def __repr__(self):
        return f"Near(radius={self.radius:g})"


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

    # Of the second set the solver knows nothing but the points that its support
    # function is attained at; the gap is certified all the same. On a sphere the
    # optimum is the point in the direction of the scores.
    equal = np.full(6, 1 / 6)
    for criterion in (Fisher(bank, target, alpha=1.0), Margin(bank, signs)):
        for radius in (0.01, 0.1):
            allowed = Near(equal, radius)
            near = solve(criterion, allowed, tol=1e-6)
            assert near.method == "frank_wolfe" and near.converged
            scores = -criterion.evaluate(near.weights).gradient
            np.testing.assert_allclose(
                near.weights, allowed.maximizer(scores), atol=1e-2 * radius
            )
            print(f"{type(criterion).__name__:7} {radius:<5g} {near.weights.round(3)}")

"""
Norms and solvers
=================

One problem under four norms, and one norm under three solvers.
"""

# %%
# The problem
# -----------
# Five views of synthetic data, each with the six kernels of ``"auto"``; the first two
# views are informative about the classes, the other three are noise.

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import make_views

data = make_views(n_samples=240, n_views=5, n_informative=2, random_state=0)

# %%
# The norm of the weights
# -----------------------
# A norm of 1 makes the weights sparse: views of noise get next to nothing. Larger norms
# spread them, down to the uniform mean at infinity. Which norm is best for a data set
# depends on how many of its kernels matter; ``norm="loo"``, the default, finds out.

import matplotlib.pyplot as plt
import numpy as np

norms = {"1": 1, "4/3": 4 / 3, "2": 2, "inf": float("inf")}
models = {
    name: MultipleKernelFDA(data.views, norm=norm).fit(data.data, data.target)
    for name, norm in norms.items()
}

names = [name for name, _, _ in data.views]
positions = np.arange(len(names))
colors = ["#0072B2", "#56B4E9", "#E69F00", "#8C8C8C"]
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for i, ((norm, model), color) in enumerate(zip(models.items(), colors, strict=True)):
    weights = np.array([model.view_weights_[name] for name in names])
    label = f"{norm}  (leave-one-out accuracy {model.loo_score_:.3f})"
    ax.bar(
        positions + 0.2 * (i - 1.5),
        weights / weights.sum(),
        0.18,
        color=color,
        label=label,
    )
ax.set_xticks(
    positions,
    [f"{n}\n{'informative' if n in data.informative else 'noise'}" for n in names],
)
ax.set_ylabel("share of the weights")
ax.legend(title="norm", frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %%
# The solver
# ----------
# The function underneath is ``solve(criterion, weights)``. Newton's method with the
# exact Hessian needs a handful of factorisations; the closed-form update and the
# cutting planes of the papers reach the same optimum, and the same certificate applies
# to all three.

from kernelweave import Fisher, LpBall, solve
from kernelweave.kernels import RBF, DenseBank

X = np.asarray(data.data)
grams = [
    RBF(factor=1 / width)(X[:, columns])
    for _, _, columns in data.views
    for width in (0.1, 0.3, 1.0, 3.0)
]
bank = DenseBank.from_kernels(np.stack(grams))
target = np.eye(3)[data.target]
criterion = Fisher(bank, target - target.mean(axis=0), alpha=0.1)
solutions = {
    method: solve(criterion, LpBall(4 / 3), method=method, tol=1e-8)
    for method in ("newton", "closed_form", "cutting_plane")
}
for method, solution in solutions.items():
    print(
        f"{method:14} value {solution.value:.10f}  gap {solution.gap:.0e}  "
        f"{solution.n_factorizations:3} factorisations"
    )

# %%
# The gap between value and lower bound is known at every iteration, so the solver can
# stop as soon as the weights are good enough, with a proof that they are.

from kernelweave.inspection import ConvergenceDisplay

display = ConvergenceDisplay.from_solution(solutions)

# %%
# The value and the lower bound themselves: the optimum lies between the two lines.

display = ConvergenceDisplay.from_solution(solutions["newton"], kind="bounds")

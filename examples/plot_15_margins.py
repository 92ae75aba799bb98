"""
Margins, alignment and rows without labels
==========================================

Three ways to weight the same kernels: by the margin, by the alignment with the labels,
and by the margin of a kernel that is learned on unlabelled rows too.
"""

# %%
# Two moons with one row in eight labelled
# ----------------------------------------
# The kernels are Gaussians of four widths and a linear kernel. The widest are too
# smooth for the moons; the narrowest sees every row in isolation.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from kernelweave import KernelAlignment, MultipleKernelSVC, TransductiveKernelSVC
from kernelweave.kernels import RBF

X, y = make_moons(240, noise=0.12, random_state=3)
rng = np.random.default_rng(0)
labelled = rng.permutation(len(y)) < 30
gammas = (0.1, 1.0, 10.0, 100.0)
bank = ["linear", *(RBF(gamma) for gamma in gammas)]
views = [("moons", bank, [0, 1])]
names = ["linear", *(f"Gaussian\n$\\gamma$ = {gamma:g}" for gamma in gammas)]

# %%
# Three answers
# -------------
# The margin and the alignment use the 30 labelled rows. The transductive machine sees
# all 240, and may use negative weights as long as the sum remains a kernel over all of
# them.

margin = MultipleKernelSVC(views, C=10).fit(X[labelled], y[labelled])
aligned = KernelAlignment(views).fit(X[labelled], y[labelled])
transductive = TransductiveKernelSVC(views, C=10)
transductive.fit(X, np.where(labelled, y, -1))
print(transductive.certificate_)

# %%
# Weights and boundaries
# ----------------------
# The boundaries of the two machines, in the colours of the right panel, agree between
# the moons and diverge where there are no labelled rows.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
models = {
    "margin": (margin, "#0072B2"),
    "alignment": (aligned, "#E69F00"),
    "margin, transductive, signed": (transductive, "#009E73"),
}
places = np.arange(len(names))
for i, (name, (model, color)) in enumerate(models.items()):
    right.bar(
        places + 0.27 * (i - 1), model.kernel_weights_, 0.25, color=color, label=name
    )
right.axhline(0.0, color="black", linewidth=0.8)
right.set_xticks(places, names)
right.set_ylabel("kernel weight")
right.legend(frameon=False, loc="lower right", fontsize="small")

grid_x, grid_y = np.meshgrid(np.linspace(-1.5, 2.5, 120), np.linspace(-1.0, 1.8, 90))
grid = np.column_stack([grid_x.ravel(), grid_y.ravel()])
left.scatter(*X[~labelled].T, s=8, color="#BBBBBB", label="no label")
for label, marker, fill in ((0, "o", "white"), (1, "^", "black")):
    own = labelled & (y == label)
    left.scatter(
        *X[own].T,
        s=34,
        c=fill,
        marker=marker,
        edgecolor="black",
        label=f"class {label}",
    )
for name in ("margin", "margin, transductive, signed"):
    model, color = models[name]
    scores = model.decision_function(grid).reshape(grid_x.shape)
    left.contour(grid_x, grid_y, scores, levels=[0.0], colors=color, linewidths=2)
left.legend(frameon=False, fontsize="small", loc="upper left")
left.set_title("boundaries in the colours of the right panel", fontsize="medium")
left.set(xlabel="first column", ylabel="second column")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)

# %%
# On the rows without a label both machines are equally accurate: 30 labels are enough
# for these moons.

hidden = ~labelled
print(f"margin        {margin.score(X[hidden], y[hidden]):.3f}")
found = np.mean(transductive.transduction_[hidden] == y[hidden])
print(f"transductive  {found:.3f}")
plt.show()

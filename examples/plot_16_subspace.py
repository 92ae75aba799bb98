"""
Subspace kernels: a few features that depend on the labels
==========================================================

A kernel has as many directions as there are rows, and most of them say nothing about
the labels. Subspace kernels keep those that do.
"""

# %%
# Two directions for three classes
# --------------------------------
# The data are five views of synthetic samples, three of which are noise. Three classes
# have two directions and no more. Kernel principal components ignore the labels and
# look for the largest variance; that this mostly reflects the classes here is luck.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import KernelPCA

from kernelweave import SubspaceKernel, SubspaceKernelSVC
from kernelweave.datasets import make_views
from kernelweave.fits.subspace import RegularizedKernel, SubspaceSVM, label_factor
from kernelweave.kernels import RBF, DenseBank
from kernelweave.solvers.local.subspace import solve_joint

data = make_views(400, 5, 2, 3, separation=2.0, random_state=0, as_frame=False)
X, y = data.data[:150], data.target[:150]
X_new, y_new = data.data[150:], data.target[150:]
colors = ["#0072B2", "#D55E00", "#009E73"]

models = {
    "kernel PCA": KernelPCA(2, kernel="rbf"),
    "HSIC": SubspaceKernel(data.views),
    "HSIC, uncorrelated": SubspaceKernel(data.views, uncorrelated=True),
    "joint with the SVM": SubspaceKernelSVC(data.views, C=0.1, alpha=10.0),
}
figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X, y)
    Z = model.transform(X_new)
    for label, color in enumerate(colors):
        own = Z[y_new == label]
        ax.scatter(own[:, 0], own[:, 1], s=8, color=color, alpha=0.7, linewidths=0)
    ax.set_title(name, fontsize=10, loc="left")
    ax.set(xlabel="first feature", xticks=[], yticks=[])
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("second feature")
figure.legend(data.target_names, loc="outside right center", frameon=False, fontsize=9)

# %%
# All points are new samples. The weights of the views were learned with the subspace,
# and all but exclude the noise. (A subspace learned together with the machines needs a
# C and an alpha that keep them from fitting every row: with C = 1 and a small alpha any
# kernel will do, and the noise gets a share of the weight.)

for name in ("HSIC", "joint with the SVM"):
    weights = models[name].view_weights_
    print(name, {view: round(weight, 2) for view, weight in weights.items()})

# %%
# The alternation as printed, and where it should converge
# --------------------------------------------------------
# To learn subspace and machines together, the paper alternates between them. Each round
# gives a value no smaller and a bound no larger than the optimum. With enough
# dimensions the optimum is known in closed form, and the alternation cycles around it.

gram = DenseBank.from_kernels(RBF(factor=1.0)(X, X)[None]).kernel(0)
kernel = RegularizedKernel(gram, alpha=0.5)
signs = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for ax, C in zip(axes, (0.02, 1.0), strict=True):
    problem = SubspaceSVM(kernel, signs, C, uncorrelated=False)
    optimum = solve_joint(problem).point.upper
    start = kernel.subspace(label_factor(y, 3))
    rounds, bounds, subspace = range(1, 9), [], start
    for _ in rounds:
        point = problem.point(subspace)
        bounds.append((point.upper, problem.lower_bound(point.duals, 3)))
        subspace = problem.subspace(point.duals, 3)
    upper, lower = np.array(bounds).T / optimum
    ax.plot(rounds, upper, "o-", color="#D55E00", label="value of the machines")
    ax.plot(rounds, lower, "s-", color="#0072B2", label="lower bound")
    ax.axhline(1.0, color="#8C8C8C", linestyle="--", label="closed form")
    ax.set_title(f"C = {C:g}", fontsize=10, loc="left")
    ax.set_xlabel("round")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("value / optimum")
axes[0].legend(frameon=False, fontsize=8)

# %%
# With a small C the machines hardly depend on the kernel and the bounds are close; with
# C = 1 they never meet. The estimator uses the closed form and certifies it:

print(models["joint with the SVM"].certificate_)

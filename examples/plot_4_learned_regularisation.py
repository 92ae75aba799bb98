"""
Learned regularisation against leave-one-out
============================================

The papers learn alpha with the weights, in one convex problem. The leave-one-out error
shows how good that alpha is for rows that were not seen.
"""

# %%
# Two ways to an alpha
# --------------------
# ``alpha="learn"`` adds the identity to the kernels, and its weight is alpha: the best
# value for the criterion. ``alpha="loo"`` keeps the weights and takes the alpha with
# the smallest leave-one-out error, in closed form for a whole path of alphas.
#
# The data are two views of synthetic samples that overlap, and one view of noise, with
# Gaussian kernels of three widths on each. A thousand further samples tell what is
# right.

import matplotlib.pyplot as plt
import numpy as np

from kernelweave import MultipleKernelFDA, MultipleKernelRidge
from kernelweave.datasets import make_views
from kernelweave.fits.loo_path import LooPath
from kernelweave.fits.targets import reduced_class_target
from kernelweave.kernels import RBF, center_and_scale

data = make_views(1150, 3, 2, 2, separation=1.5, random_state=3, as_frame=False)
X, y = data.data[:150], data.target[:150]
X_new, y_new = data.data[150:], data.target[150:]


def stack_of(rows, factors):
    """Kernels between rows and training rows, (m, n, p), kernels last."""
    kernels = [
        RBF(factor=factor)(rows[:, columns], X[:, columns])
        for _, _, columns in data.views
        for factor in factors
    ]
    return np.stack(kernels, axis=-1)


# %%
# For a fitted model, the combined kernel gives the leave-one-out error of every alpha.
# The error on new samples takes a fit for each alpha. Both are in units of the variance
# of the class target, so that 1 is as bad as guessing the mean.

alphas = np.logspace(-6, 2.5, 35)


def error_curves(model, factors):
    """Leave-one-out error, and error on new samples, for each alpha."""
    stack = stack_of(X, factors)
    # The model's weights are for kernels of trace n; 1 - mean(K) is what centring
    # leaves of the trace of a Gaussian kernel, for each row.
    weights = model.kernel_weights_ / (1 - stack.mean(axis=(0, 1)))
    kernel, kernel_new = stack @ weights, stack_of(X_new, factors) @ weights

    target, _ = reduced_class_target(y, 2)
    loo = LooPath(center_and_scale(kernel[None])[0], target).press(alphas)
    new = []
    for alpha in alphas:
        ridge = MultipleKernelRidge("precomputed", norm=1, alpha=alpha).fit(kernel, y)
        new.append(np.mean((ridge.predict(kernel_new) - y_new) ** 2) / np.var(y))
    return loo, new


def draw(ax, title, factors):
    """Both curves, and where the two ways end; returns the learned model."""
    stack = stack_of(X, factors)
    learned = MultipleKernelFDA("precomputed", norm=1, alpha="learn").fit(stack, y)
    chosen = MultipleKernelFDA("precomputed", norm=1, alpha="loo").fit(stack, y)
    loo, new = error_curves(learned, factors)
    ax.semilogx(alphas, loo, color="#0072B2", label="leave-one-out error")
    ax.semilogx(
        alphas, new, color="#8C8C8C", linestyle="--", label="error, new samples"
    )
    for name, model, color, marker in (
        ("learned", learned, "#D55E00", "s"),
        ("leave-one-out", chosen, "#0072B2", "o"),
    ):
        at = max(model.alpha_, alphas[0])
        height = np.interp(np.log(at), np.log(alphas), loo)
        label = f"alpha, {name}: {model.alpha_:.2g}"
        ax.semilogx(at, height, marker, color=color, markersize=8, label=label)
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel("alpha")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return learned


# %%
# The curves
# ----------
# On the left, the learned alpha is more than leave-one-out asks for, at nearly the same
# error. On the right, a very narrow Gaussian joins the kernels of each view. To the
# training rows such a kernel is nearly the identity, so it takes over the part of
# alpha, and alpha itself goes to zero: below 0.1 the curve is flat.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
wide = draw(axes[0], "three widths a view", (0.3, 1, 3))
narrow = draw(axes[1], "and a very narrow one", (0.3, 1, 3, 100))
axes[0].set_ylabel("squared error / variance")
axes[0].set_ylim(0.3, 1.3)

# %%
# The certificate says so
# -----------------------
# The weights on the right are optimal all the same. What cannot be known from them is
# noted beside the proof.

print(wide.certificate_)
print()
print(narrow.certificate_)

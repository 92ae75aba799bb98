"""
Learned regularisation against leave-one-out
============================================

The papers learn alpha together with the weights, in one convex problem. The
leave-one-out error shows how good that alpha is for unseen rows.
"""

# %%
# Two ways to choose alpha
# ------------------------
# ``alpha="learn"`` adds the identity to the kernels, and its weight is alpha: the best
# value for the criterion. ``alpha="loo"`` keeps the weights and takes the alpha with
# the smallest leave-one-out error, in closed form for a whole path of alphas.
#
# The data are two views of synthetic samples from overlapping classes, and one view of
# noise, with Gaussian kernels of three widths on each. A thousand further samples show
# which alpha is right.

import matplotlib.pyplot as plt
import numpy as np

from kernelweave import MultipleKernelFDA, MultipleKernelRidge
from kernelweave.datasets import make_views
from kernelweave.fits.alpha import LooPath
from kernelweave.fits.targets import reduced_class_target
from kernelweave.kernels import RBF, DenseBank

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
# For a fitted model, the combined kernel gives the leave-one-out error for every alpha.
# The error on new samples needs one fit per alpha. Both are in units of the variance of
# the class target, so an error of 1 is no better than predicting the mean.

alphas = np.logspace(-6, 2.5, 35)


def error_curves(model, factors):
    """Leave-one-out error, and error on new samples, for each alpha."""
    stack = stack_of(X, factors)
    # The model's weights refer to kernels of trace n; 1 - mean(K) is the mean diagonal
    # of a Gaussian kernel after centring.
    weights = model.kernel_weights_ / (1 - stack.mean(axis=(0, 1)))
    kernel, kernel_new = stack @ weights, stack_of(X_new, factors) @ weights

    target, _ = reduced_class_target(y, 2)
    centred = DenseBank.from_kernels(kernel[None]).kernel(0)
    loo = LooPath(centred, target).press(alphas)
    new = []
    for alpha in alphas:
        ridge = MultipleKernelRidge("precomputed", norm=1, alpha=alpha).fit(kernel, y)
        new.append(np.mean((ridge.predict(kernel_new) - y_new) ** 2) / np.var(y))
    return loo, new


def draw(ax, title, factors):
    """Plot both curves and both choices of alpha; return the learned model."""
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
# On the left, the learned alpha is larger than leave-one-out would choose, with nearly
# the same error. On the right, a very narrow Gaussian is added to the kernels of each
# view. On the training rows such a kernel is nearly the identity, so it takes over the
# role of alpha, and alpha itself goes to zero (the square is at the edge of the
# picture): below 0.1 the curve is flat.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
wide = draw(axes[0], "three widths per view", (0.3, 1, 3))
narrow = draw(axes[1], "three widths and a very narrow one", (0.3, 1, 3, 100))
axes[0].set_ylabel("squared error / variance")
axes[0].set_ylim(0.3, 1.3)

# %%
# The certificate says so
# -----------------------
# The weights on the right are optimal nonetheless. A note next to the proof says what
# they do not determine.

print(wide.certificate_)
print()
print(narrow.certificate_)

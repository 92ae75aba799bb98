"""
How many features are enough?
=============================

Explicit features replace n x n kernels by second moments that need only one pass over
the rows. Accuracy and the held-out kernel error show when there are enough features.
"""

# %%
# Data and the exact answer
# -------------------------
# Three classes differ in the phase of a wave in the first view and in the spread of the
# second view; the third view is noise. With 2,000 rows the exact kernels still fit in
# memory.

import matplotlib.pyplot as plt
import numpy as np

from kernelweave import MultipleKernelFDA
from kernelweave.kernels import RBF

rng = np.random.default_rng(0)


def draw(n):
    """Draw n rows and their classes."""
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, 6))
    X[:, 1] = np.sin(2 * X[:, 0] + 2.1 * y) + 0.4 * rng.normal(size=n)
    X[:, 2:4] *= 1 + 0.7 * (y == 2)[:, None]
    return X, y


X, y = draw(2000)
X_new, y_new = draw(3000)
views = [(f"view {i}", RBF(factor=2), [2 * i, 2 * i + 1]) for i in range(3)]
exact = MultipleKernelFDA(views, norm=1, cv=None).fit(X, y)
print(exact.features_)
print(f"accuracy {exact.score(X_new, y_new):.3f}")

# %%
# Nystroem and random features
# ----------------------------
# We now fit the same model from moments. The kernel error is measured on rows that were
# not used to build the features.

sizes = [4, 8, 16, 32, 64, 128]
found = {}
for how in ("nystroem", "random"):
    models = [
        MultipleKernelFDA(views, norm=1, features=how, n_features=size).fit(X, y)
        for size in sizes
    ]
    found[how] = (
        [100 * model.score(X_new, y_new) for model in models],
        [model.features_.worst_error for model in models],
    )

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for how, color, marker in (("nystroem", "#0072B2", "o"), ("random", "#D55E00", "s")):
    for ax, values in zip(axes, found[how], strict=True):
        ax.plot(sizes, values, marker=marker, color=color, label=how)
axes[0].axhline(
    100 * exact.score(X_new, y_new), color="#8C8C8C", ls="--", label="exact"
)
axes[0].set_ylabel("accuracy on new rows, %")
axes[1].set_ylabel("worst held-out kernel error")
axes[1].set_yscale("log")
for ax in axes:
    ax.set_xscale("log", base=2)
    ax.set_xlabel("features of each kernel")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)

# %%
# A stream
# --------
# Rows may come in portions, and the result does not depend on how they are divided. The
# certificate holds for the approximate kernels given by the features, and says how good
# the approximation is.


def portions(size):
    """The same rows, a few at a time."""
    for start in range(0, len(y), size):
        yield X[start : start + size], y[start : start + size]


streamed = [
    MultipleKernelFDA(views, norm=1, n_features=64).fit(portions(size))
    for size in (2000, 7)
]
same = np.array_equal(streamed[0].feature_coef_, streamed[1].feature_coef_)
print("the same to the last bit:", same)
print(streamed[0].certificate_)

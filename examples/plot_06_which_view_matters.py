"""
How far can I trust the weights?
================================

Weights are learned for every view, but a weight is not yet an answer. How certain is
it? Could it be different without loss? Would a useless view get as much? And which view
no longer needs to be measured?
"""

# %%
# The data
# --------
# Ten measurements of cell nuclei in 190 tumours: their mean, their standard error and
# their worst value. We add ten columns of noise, which no method should need.

import matplotlib.pyplot as plt
import numpy as np

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import fetch_views
from kernelweave.inspection import (
    AblationDisplay,
    ViewSharesDisplay,
    view_ablation,
    weight_ranges,
)

cancer = fetch_views("breast_cancer", as_frame=False)
noise = np.random.default_rng(0).standard_normal((len(cancer.data), 10))
X, y = np.hstack([cancer.data, noise])[::3], cancer.target[::3]
kernels = ["linear", "rbf"]
views = [(name, kernels, columns) for name, _, columns in cancer.views]
views.append(("noise", kernels, slice(30, 40)))
model = MultipleKernelFDA(views, norm=1).fit(X, y)

# %%
# How certain are the shares?
# ---------------------------
# A bar is the share of a view in the combined kernel. Its interval comes from fits to
# halves of the rows, and the p-value says how often a copy of the view with its rows in
# random order, learned together with it, gets as much weight. The worst values clearly
# matter, the standard errors add something, and the means, which say the same as the
# worst values, are not needed in addition.

display = ViewSharesDisplay.from_estimator(
    model, X, y, n_resamples=60, n_decoys=39, random_state=0
)

# %%
# Could the weights be different?
# -------------------------------
# The criterion of the model is proven to be optimal, but other weights may be nearly as
# good. For every view, the darker band contains all shares for which the criterion can
# stay within 0.1 % of its optimum, the lighter one those within 1 %. No weights outside
# the bands are that good: a proof by duality, not a sample.

figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
for within, alpha in ((0.01, 0.25), (0.001, 0.6)):
    rows = weight_ranges(model, X, y, within=within)
    for height, row in enumerate(rows):
        ax.barh(
            height,
            100 * (row["high"] - row["low"]),
            left=100 * row["low"],
            height=0.55,
            color="#0072B2",
            alpha=alpha,
        )
        ax.plot(2 * [100 * row["share"]], [height - 0.33, height + 0.33], color="black")
ax.set_yticks(range(len(rows)), [row["view"] for row in rows])
ax.invert_yaxis()
ax.set_xlim(-0.5, 100)
ax.set_xlabel("share of the combined kernel [%]")
ax.set_title("Shares within 0.1 % and 1 % of the optimum", fontsize=10, loc="left")
ax.spines[["top", "right"]].set_visible(False)

# %%
# Which view need not be measured?
# --------------------------------
# Weights cannot answer this, held-out rows can. On the left, the loss on rows left out,
# without each view and with it alone; on the right, the loss as views are dropped one
# after the other. The worst values alone predict the same rows as well as the best set
# does, up to one standard error of the difference.

result = view_ablation(model, X, y, random_state=0)
display = AblationDisplay(result=result).plot()
print(result.recommendation)

# %%
# What if a view is expensive?
# ----------------------------
# With a cost for each view, the order changes: the view that saves most per unit of
# loss goes first.

cost = {"mean": 1.0, "error": 1.0, "worst": 20.0, "noise": 1.0}
result = view_ablation(model, X, y, cost=cost, random_state=0)
for step in result.order:
    kept = ", ".join(step["views"])
    print(f"cost {step['cost']:4.0f}  log loss {step['loss']:.2f}  {kept}")

"""
Calibrated probabilities and prediction sets
============================================

``CalibratedClassifierCV`` gives probabilities to a classifier that has none, and MAPIE
turns probabilities into sets of classes that contain the true one as often as promised.
Both are well maintained elsewhere; this is how to use them here.
"""

# %%
# Three parts of the data
# -----------------------
# Models are fitted to the first part, eight images of each digit, and calibrated on the
# second; all results are measured on the third.

import matplotlib.pyplot as plt
import numpy as np
from mapie.classification import SplitConformalClassifier
from mapie.metrics.classification import (
    classification_coverage_score,
    classification_mean_width_score,
)
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.metrics import log_loss
from sklearn.model_selection import ShuffleSplit, train_test_split

from kernelweave import MultipleKernelFDA, MultipleKernelSVC
from kernelweave.datasets import fetch_views

digits = fetch_views("digits", as_frame=False)
X, y = digits.data, digits.target
rows = np.arange(len(X))
train, rest = train_test_split(rows, train_size=80, stratify=y, random_state=0)
held, new = train_test_split(rest, train_size=500, random_state=0)

# %%
# Probabilities
# -------------
# ``MultipleKernelFDA`` has its own probabilities, fitted to leave-one-out projections.
# A support vector machine has none: ``CalibratedClassifierCV`` learns from folds of the
# training rows how to turn decision values into probabilities. With several classes and
# few rows, a single temperature serves better than one sigmoid per class, the default
# (with which the log loss below would be 0.77).

views = digits.views
models = {
    "MultipleKernelFDA": MultipleKernelFDA(views, norm=2),
    "MultipleKernelSVC, calibrated": CalibratedClassifierCV(
        MultipleKernelSVC(views), method="temperature", cv=4
    ),
}
for name, model in models.items():
    model.fit(X[train], y[train])
    loss = log_loss(y[new], model.predict_proba(X[new]))
    print(f"{name:30} accuracy {model.score(X[new], y[new]):.3f}, log loss {loss:.3f}")

# %%
# Calibration curves
# ------------------
# scikit-learn's ``CalibrationDisplay`` compares the probability of each predicted class
# with how often that class was right, here in five groups of new rows. Where its
# probabilities are smallest, the discriminant is a little too confident.

figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
for name, model in models.items():
    probabilities = model.predict_proba(X[new])
    right = model.predict(X[new]) == y[new]
    CalibrationDisplay.from_predictions(
        right,
        probabilities.max(axis=1),
        n_bins=5,
        strategy="quantile",
        name=name,
        ax=ax,
    )
ax.set(xlabel="largest probability", ylabel="share of correct predictions")

# %%
# Prediction sets
# ---------------
# The rows held out say how small the probability of a true class can be. With n of them
# and a level c, take all classes whose probability is at least the
# :math:`\lceil (n + 1) c \rceil`-th largest of these. This set contains the true class
# of a new row with probability at least c, whatever the model, as long as rows held out
# and new rows come in random order. It holds on average over rows, not for each class
# or each view on its own; and the worse the model, the larger the sets. A level below
# the accuracy of the model leaves some sets empty: their mean size is then below one.
#
# The coverage under a single division into rows held out and new rows is a matter of
# chance, so twenty divisions are shown. Their mean is the level, as promised; their
# spread is what to expect from a single one.

levels = np.array([0.8, 0.9, 0.95, 0.99])
divisions = list(ShuffleSplit(20, train_size=500, random_state=0).split(rest))
coverage = {name: np.empty((len(divisions), len(levels))) for name in models}
print("level   coverage         classes per set")
for name, model in models.items():
    width = np.empty_like(coverage[name])
    for i, (first, second) in enumerate(divisions):
        held_out, unseen = rest[first], rest[second]
        conformal = SplitConformalClassifier(
            model, confidence_level=levels, prefit=True
        )
        conformal.conformalize(X[held_out], y[held_out])
        _, sets = conformal.predict_set(X[unseen])  # (rows, classes, levels)
        coverage[name][i] = classification_coverage_score(y[unseen], sets)
        width[i] = classification_mean_width_score(sets)
    print(name)
    for level, own, sizes in zip(levels, coverage[name].T, width.T, strict=True):
        share = f"{own.mean():.3f} +- {own.std():.3f}"
        print(f"{level:.2f}    {share}    {sizes.mean():.2f}")

# %%

figure, ax = plt.subplots(figsize=(5.5, 4), layout="constrained")
ax.plot([0.78, 1.0], [0.78, 1.0], color="black", linewidth=0.8)
for i, (name, own) in enumerate(coverage.items()):
    style = {"color": ("#0072B2", "#D55E00")[i], "marker": "os"[i]}
    places = np.tile(levels + 0.004 * (2 * i - 1), len(own))
    ax.scatter(places, own.ravel(), s=14, alpha=0.6, linewidths=0, label=name, **style)
ax.set(xlabel="level asked for", ylabel="coverage of new rows, twenty divisions")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# Rows with more than one class in their set deserve a closer look: here are some, with
# the classes between which the model cannot decide.

conformal = SplitConformalClassifier(
    models["MultipleKernelFDA"], confidence_level=0.95, prefit=True
).conformalize(X[held], y[held])
sets = conformal.predict_set(X[new])[1][:, :, 0]
several = np.flatnonzero(sets.sum(axis=1) > 1)[:6]
figure, axes = plt.subplots(1, len(several), figsize=(8, 1.9), layout="constrained")
for ax, i in zip(axes, several, strict=True):
    ax.imshow(digits.images[new[i]], cmap="gray_r")
    ax.set_title(", ".join(map(str, np.flatnonzero(sets[i]))), fontsize=9)
    ax.axis("off")

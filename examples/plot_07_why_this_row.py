"""
Why this row?
=============

A decision is a sum over kernels, so it can be split into the parts of the views without
any approximation: which view supported which class? Inside a view, gradients say which
columns moved the decision; and held-out rows say what all this is worth.
"""

# %%
# The data
# --------
# Ten properties of cell nuclei, in three views: their mean, its standard error and the
# worst values. We add a view of ten columns of noise, which should contribute nothing,
# and hold out half of the tumours.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.calibration import CalibrationDisplay
from sklearn.model_selection import train_test_split

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import fetch_views
from kernelweave.inspection import (
    ContributionsDisplay,
    FeatureImportanceDisplay,
    contributions,
    view_permutation_importance,
)

cancer = fetch_views("breast_cancer", as_frame=True)
X, y = cancer.data, cancer.target_names[cancer.target]
noise = np.random.default_rng(0).standard_normal((len(X), 10))
X = X.join(pd.DataFrame(noise, columns=[f"noise {j}" for j in range(10)]))
views = [*cancer.views, ("noise", "auto", slice(30, 40))]
X_train, X_new, y_train, y_new = train_test_split(
    X, y, train_size=0.5, stratify=y, random_state=0
)
model = MultipleKernelFDA(views, norm=2).fit(X_train, y_train)
print(f"accuracy on held-out rows: {model.score(X_new, y_new):.3f}")

# %%
# The parts of every decision
# ---------------------------
# ``contributions`` returns one column per view and the intercept, which is the decision
# value of an average row; each row sums to the log odds, to the last digit.

parts = contributions(model, X_new, as_frame=True)
print(parts.head().round(2))
error = np.abs(parts.sum(axis=1) - model.decision_function(X_new)).max()
print(f"largest deviation from decision_function: {error:.0e}")

# %%
# One point per row and view. The worst values decide, and the other two views help. The
# noise contributes as well, since the model cannot know that it is noise, but as often
# for one class as for the other: a part explains the decision, not the tumour.

display = ContributionsDisplay.from_estimator(model, X_new)

# %%
# One row
# -------
# The tumour about which the model is least certain: the views disagree.

certainty = np.abs(model.decision_function(X_new))
doubtful = int(np.argmin(certainty))
display = ContributionsDisplay.from_estimator(model, X_new, row=doubtful)
print(f"true class: {y_new[doubtful]}")

# %%
# Inside a view
# -------------
# Dark bars are the mean change of the log odds per standard deviation of a column,
# light bars its root mean square. The fit is repeated on twenty subsamples of 63 % of
# the training rows: where the 90 % interval (the line) contains zero, the name is grey.

display = FeatureImportanceDisplay.from_estimator(
    model, "worst", X=X_train, y=y_train, n_resamples=20, random_state=0
)

# %%
# The columns of noise also move the decision, but in no consistent direction: of ten
# intervals at 90 %, about one may miss zero.

display = FeatureImportanceDisplay.from_estimator(
    model, "noise", X=X_train, y=y_train, n_resamples=20, random_state=0
)

# %%
# What is a view worth?
# ---------------------
# The parts describe the model. What a view is worth for new rows is seen by shuffling
# it in rows that were held out: the noise is worth nothing there. On the training rows,
# where it helped to memorise labels, it seems useful, and the result warns of this. The
# logarithmic loss is more sensitive than accuracy.

for rows, labels in ((X_new, y_new), (X_train, y_train)):
    found = view_permutation_importance(
        model, rows, labels, scoring="neg_log_loss", random_state=0
    )
    print(found[0]["rows"])
    table = pd.DataFrame(found).set_index("view")
    print(table[["mean", "deviation"]].round(3), end="\n\n")

# %%
# Are the log odds right?
# -----------------------
# Explanations of badly calibrated probabilities would mislead. On held-out rows,
# scikit-learn's ``CalibrationDisplay`` compares predicted with observed frequencies.

figure, ax = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
display = CalibrationDisplay.from_estimator(
    model, X_new, y_new, n_bins=5, strategy="quantile", pos_label="malignant", ax=ax
)

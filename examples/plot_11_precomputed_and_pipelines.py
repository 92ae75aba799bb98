"""
Precomputed kernels and pipelines
=================================

Precomputed kernels are passed as one stack, kernel parameters are searched like those
of a pipeline, and cross-validation splits both correctly.
"""

# %%
# A stack of kernels
# ------------------
# We compute one kernel for each of three views of handwritten digits. The kernels are
# in the last axis, ``(n, n, p)``, so that the indexing used by scikit-learn in
# cross-validation, rows first and then columns, is correct for the whole stack. The
# widths follow from a rule that uses the rows only, never the labels.

import matplotlib.pyplot as plt
import numpy as np

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import fetch_views
from kernelweave.kernels import RBF, DenseBank

digits = fetch_views("digits", as_frame=False)
rows = np.argsort(digits.target[:400], kind="stable")  # by class, for the picture
X, y = digits.data[rows], digits.target[rows]
names = [name for name, _, _ in digits.views]
stack = np.stack([RBF()(X[:, columns]) for _, _, columns in digits.views], axis=-1)
print(stack.shape)

# %%
# The weights are learned, and the combined kernel shows the ten digits as blocks.

model = MultipleKernelFDA(views="precomputed", norm=1).fit(stack, y)
# Centred and scaled as by the model, (p, n, n)
scaled = DenseBank.from_kernels(np.moveaxis(stack, -1, 0)).stack
titles = [
    f"{name}, weight {weight:.2f}"
    for name, weight in zip(names, model.kernel_weights_, strict=True)
]
panels = [*scaled, np.tensordot(model.kernel_weights_, scaled, axes=1)]
figure, axes = plt.subplots(1, 4, figsize=(9, 2.7), layout="constrained")
for ax, title, kernel in zip(axes, [*titles, "weighted sum"], panels, strict=True):
    ax.imshow(kernel, cmap="Blues", vmin=0, vmax=1)
    ax.set_title(title, fontsize=10)
    ax.set_xticks([])
    ax.set_yticks([])

# %%
# Cross-validation of a stack
# ---------------------------
# ``cross_val_predict`` labels each row by a model that has not seen it.

from sklearn.metrics import ConfusionMatrixDisplay, accuracy_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

folds = StratifiedKFold(4, shuffle=True, random_state=0)
predicted = cross_val_predict(
    MultipleKernelFDA(views="precomputed", norm=1, cv=None), stack, y, cv=folds
)
print(f"accuracy {accuracy_score(y, predicted):.3f}")
figure, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
display = ConfusionMatrixDisplay.from_predictions(
    y, predicted, ax=ax, cmap="Blues", colorbar=False
)

# %%
# Search over a parameter of one kernel
# -------------------------------------
# With features as input, a kernel parameter is addressed through the name of its view:
# ``pixels__gamma``. The estimator may also be the last step of a pipeline.

from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler

views = [
    ("pixels", RBF(), slice(0, 64)),
    ("fourier", "auto", slice(64, 98)),
]
pipeline = Pipeline(
    [("scale", MinMaxScaler()), ("fda", MultipleKernelFDA(views, norm=1, cv=None))]
)
gammas = np.logspace(-3, 1, 7)
grid = {"fda__pixels__gamma": gammas}
search = GridSearchCV(pipeline, grid, cv=folds).fit(X, y)

# %%
# A search finds one width. With a list of widths, the weights choose in a single fit,
# and may combine several: here all seven are used together, without a search. Bars are
# one standard error over the folds.

mixed = pipeline.set_params(fda__pixels=[RBF(gamma=gamma) for gamma in gammas])
together = accuracy_score(y, cross_val_predict(mixed, X, y, cv=folds))

figure, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
mean, deviation = (search.cv_results_[f"{name}_test_score"] for name in ("mean", "std"))
error = deviation / np.sqrt(folds.n_splits - 1)
ax.errorbar(gammas, mean, error, fmt="o-", elinewidth=1, color="#0072B2")
ax.set_xscale("log")
ax.axhline(together, color="#D55E00", linestyle="--")
ax.annotate(
    "all widths at once, weights learned",
    (gammas[0], together),
    xytext=(0, 5),
    textcoords="offset points",
    color="#D55E00",
)
ax.set_xlabel("pixels__gamma")
ax.set_ylabel("accuracy, cross-validated")
ax.spines[["top", "right"]].set_visible(False)

"""
Rows that lack a view
=====================

Some samples lack some of the views. The missing entries of a kernel can be set to zero
or taken from the other kernels. We compare both with two simple alternatives: filling
in column means, and dropping every row with a gap.
"""

# %%
# The data
# --------
# The three views of the tumours contain nearly the same information. The views of the
# synthetic samples are independent of each other given the class: two of the four are
# informative, and what one of them says about a sample is not contained in the other.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import fetch_views, make_views

tables = {
    "tumours, three views": fetch_views("breast_cancer", as_frame=False),
    "synthetic, two of four views": make_views(
        569, 4, 2, 3, separation=2.5, random_state=0, as_frame=False
    ),
}


def with_gaps(data, rate, rng):
    """A copy of the rows in which each view is missing with probability ``rate``."""
    X, lacks = data.data.copy(), rng.random((len(data.data), len(data.views))) < rate
    spared = rng.integers(len(data.views), size=len(X))  # no row loses every view
    lacks[np.arange(len(X)), spared] = False
    for v, (_, _, columns) in enumerate(data.views):
        X[np.ix_(lacks[:, v], np.arange(X.shape[1])[columns])] = np.nan
    return X


# %%
# Four methods
# ------------
# A row lacks a view if all its entries in the columns of that view are NaN. With
# ``missing="zero"`` it is treated, kernel by kernel, as the mean of the rows that have
# the view; ``missing="available"`` fills each gap of a kernel with the mean of the
# kernels that both rows have.


def fit_and_score(way, views, X, y, X_new, y_new):
    """Accuracy on new rows; NaN where the method does not apply."""
    if way == "complete rows only":
        whole = ~np.isnan(X).any(axis=1)
        X, y = X[whole], y[whole]
        if np.isnan(X_new).any() or min(np.bincount(y), default=0) < 2:
            return np.nan
    if way == "column means":
        imputer = SimpleImputer().fit(X)
        X, X_new = imputer.transform(X), imputer.transform(X_new)
    missing = way if way in ("zero", "available") else "error"
    model = MultipleKernelFDA(views, norm=2, missing=missing, cv=None)
    return model.fit(X, y).score(X_new, y_new)


ways = {
    "available": ("#0072B2", "o"),
    "zero": ("#D55E00", "s"),
    "column means": ("#009E73", "^"),
    "complete rows only": ("#8C8C8C", "x"),
}
rates, n_splits = np.linspace(0, 0.5, 5), 5


def accuracies(data, everywhere):
    """Mean accuracy and its standard error, (ways, rates) each."""
    scores = np.zeros((len(ways), len(rates), n_splits))
    for r, rate in enumerate(rates):
        for split in range(n_splits):
            rng = np.random.default_rng(100 * r + split)
            gaps = with_gaps(data, rate, rng)
            train, new = train_test_split(
                np.arange(len(gaps)),
                train_size=120,
                stratify=data.target,
                random_state=split,
            )
            X_new = (gaps if everywhere else data.data)[new]
            y, y_new = data.target[train], data.target[new]
            for w, way in enumerate(ways):
                scores[w, r, split] = fit_and_score(
                    way, data.views, gaps[train], y, X_new, y_new
                )
    return scores.mean(axis=2), scores.std(axis=2, ddof=1) / np.sqrt(n_splits)


# %%
# What it costs
# -------------
# Bars are one standard error over five splits. With gaps in the training rows only,
# filling costs little, about a percentage point where half of the views are missing,
# and dropping rows costs a lot. With gaps in the new rows too, no method can recover
# what was not measured. No way of filling is far ahead of the others, column means
# included: with five splits the differences cannot be distinguished from chance. The
# grey line ends where too few rows have every view.

figure, axes = plt.subplots(
    2, 2, figsize=(9, 6.4), layout="constrained", sharex=True, sharey="row"
)
for row, (title, data) in enumerate(tables.items()):
    for column, everywhere in enumerate((False, True)):
        ax = axes[row, column]
        curves, errors = accuracies(data, everywhere)
        for w, (way, (color, marker)) in enumerate(ways.items()):
            ax.errorbar(
                100 * rates + 0.6 * (w - 1.5),  # side by side
                curves[w],
                errors[w],
                color=color,
                marker=marker,
                elinewidth=0.8,
                label=way,
            )
        where = "training and new rows" if everywhere else "training rows only"
        ax.set_title(f"{title}: gaps in {where}", fontsize=9, loc="left")
        ax.spines[["top", "right"]].set_visible(False)
    axes[row, 0].set_ylabel("accuracy on new rows")
for ax in axes[1]:
    ax.set_xlabel("views missing [%]")
axes[0, 0].legend(frameon=False, fontsize=8, loc="lower left")

# %%
# What the certificate reports
# ----------------------------
# The certificate says how many rows lack each view, and how much of a completed kernel
# had to be removed to make it positive semidefinite: the larger that part, the less
# the views can stand in for each other.

data = tables["synthetic, two of four views"]
X = with_gaps(data, 0.3, np.random.default_rng(0))[:200]
model = MultipleKernelFDA(data.views, norm=2, missing="available")
print(model.fit(X, data.target[:200]).certificate_)

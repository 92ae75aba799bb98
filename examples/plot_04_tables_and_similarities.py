"""
Several tables and a matrix of distances
========================================

The samples of a study are spread over two tables, in different orders, and a third
source is a matrix of distances from another program. Not every sample is in every
source. We align the tables by id, add the distances, and ask what each source
contributes.
"""

# %%
# The sources
# -----------
# The tumours of the breast cancer data, taken apart: a table of mean values, one of
# standard errors, one of diagnoses, and city-block distances between the ranks of the
# largest cells.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from sklearn.model_selection import cross_val_score

from kernelweave import MultipleKernelFDA, join_tables
from kernelweave.datasets import fetch_views
from kernelweave.kernels import Similarity

cancer = fetch_views("breast_cancer")
ids = [f"T-{i:03d}" for i in range(len(cancer.data))]
whole = cancer.data.set_axis(ids, axis=0)
rng = np.random.default_rng(0)


def some_ids(count):
    """Some of the first 300 samples, in random order."""
    return rng.permutation(ids[:300])[:count].tolist()


mean = whole.iloc[:, 0:10].loc[some_ids(200)]
error = whole.iloc[:, 10:20].loc[some_ids(200)]
diagnoses = pd.DataFrame({"diagnosis": cancer.target}, index=ids)

compared = some_ids(200)
ranks = whole.iloc[:, 20:30].rank(pct=True).loc[compared]
distances = cdist(ranks, ranks, "cityblock")

# %%
# One frame, one view per table
# -----------------------------
# Samples that a table lacks stay, with gaps. The ids come first, in a column that is in
# no view. Tables with nothing but diagnoses, or nothing but ids, add no views either;
# the latter adds the samples that were compared but are in no table.

tables = {
    "mean": mean,
    "error": error,
    "compared": pd.DataFrame(index=compared),
    "diagnoses": diagnoses,
}
joined = join_tables(tables, target="diagnosis")
print(joined.summary)
print(joined.data.iloc[:3, :3])

# %%
# Distances on the column of ids
# ------------------------------
# The distances become a Gaussian kernel, whose width is set on the training rows of
# each fit. It is positive semidefinite if distances are those of points in some
# Euclidean space, which is true of the square roots of city-block distances. Tumours
# that were not compared lack this view.

kernel = Similarity.from_distances(np.sqrt(distances), compared)
views = [*joined.views, ("distances", kernel, "id")]

# %%
# What each source adds
# ---------------------
# Cross-validation splits the frame into folds, and the kernel looks up the entries that
# each fold needs. Samples that have none of the chosen views count as wrong half of the
# time, so that all bars are over the same samples: together, the sources reach more of
# them, and say more about each. Lines are one standard error over the folds.

has = {"distances": joined.data["id"].isin(compared)}
for name, _, columns in joined.views:
    has[name] = joined.data[columns].notna().any(axis=1)

scores = {}
for chosen in (
    ["mean"],
    ["error"],
    ["distances"],
    ["mean", "error"],
    ["mean", "error", "distances"],
):
    used = [view for view in views if view[0] in chosen]
    rows = np.logical_or.reduce([has[name] for name in chosen])
    model = MultipleKernelFDA(used, norm=2, cv=None)
    found = cross_val_score(model, joined.data[rows], joined.target[rows], cv=5)
    reached = rows.mean()
    scores[f"{', '.join(chosen)}\n({reached:.0%} of samples)"] = (
        found * reached + 0.5 * (1 - reached)
    )

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=[3, 2]
)
places = np.arange(len(scores))[::-1]
left.barh(
    places,
    [found.mean() for found in scores.values()],
    xerr=[found.std(ddof=1) / np.sqrt(len(found)) for found in scores.values()],
    color=["#8C8C8C"] * 3 + ["#56B4E9", "#0072B2"],
    error_kw={"elinewidth": 1},
)
left.set_yticks(places, scores)
left.set_xlim(0.5, 1.0)
left.set_xlabel("accuracy in five folds, all samples")

model = MultipleKernelFDA(views, norm=2, cv=None)
model.fit(joined.data, joined.target)
shares = model.view_shares_
right.barh(list(shares)[::-1], list(shares.values())[::-1], color="#0072B2")
right.set_xlabel("share of the weights")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)

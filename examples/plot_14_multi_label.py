"""
Several labels per row
======================

A gene can have several functions at once. scikit-learn's ``MultiOutputClassifier`` fits
one classifier per label; each learns its own weights, which show which view matters for
which function.
"""

# %%
# Yeast
# -----
# Each of 2417 genes of baker's yeast is described by its expression in 79 microarray
# experiments and by a phylogenetic profile of 24 numbers (Elisseeff and Weston 2002),
# and belongs to some of 14 functional classes. The data come with the package river;
# without it, random labels of a similar kind stand in.

import gzip
import importlib.util
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import hamming_loss, label_ranking_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.multioutput import MultiOutputClassifier

from kernelweave import MultipleKernelFDA
from kernelweave.inspection import contributions


def load_yeast():
    """Features (n, 103), labels (n, 14) and their names."""
    spec = importlib.util.find_spec("river")
    if spec is None:
        X, Y = make_multilabel_classification(
            2417, 103, n_classes=14, n_labels=4, random_state=0
        )
        return X, Y, [f"Class{j}" for j in range(1, 15)]
    (folder,) = spec.submodule_search_locations
    with gzip.open(Path(folder) / "datasets" / "yeast.csv.gz", "rt") as file:
        header = file.readline().strip().split(",")
        cells = np.array([line.strip().split(",") for line in file])
    labels = [name for name in header if name.startswith("Class")]
    place = {name: j for j, name in enumerate(header)}
    X = cells[:, [place[f"Att{j}"] for j in range(1, 104)]].astype(float)
    Y = np.char.lower(cells[:, [place[name] for name in labels]])
    return X, np.isin(Y, ["true", "1", "1.0"]).astype(int), labels


X, Y, labels = load_yeast()
common = Y.mean(axis=0) > 0.05  # one class in a hundred is too rare for 400 rows
Y, labels = Y[:, common], np.array(labels)[common].tolist()
X_train, X_new, Y_train, Y_new = train_test_split(X, Y, train_size=400, random_state=0)
print(f"{Y.shape[1]} labels, {Y.sum(axis=1).mean():.1f} of them per gene")

# %%
# One classifier per label
# ------------------------

views = [("expression", "auto", slice(0, 79)), ("phylogeny", "auto", slice(79, 103))]
model = MultiOutputClassifier(MultipleKernelFDA(views, norm=1)).fit(X_train, Y_train)
probabilities = np.stack([p[:, 1] for p in model.predict_proba(X_new)], axis=1)

# %%
# On new genes the labels are predicted better than from their frequencies alone: fewer
# of them are wrong, and fewer pairs of a right and a wrong label are in the wrong
# order.

frequencies = np.tile(Y_train.mean(axis=0), (len(Y_new), 1))
for name, guess in (("frequencies", frequencies), ("two views", probabilities)):
    wrong = hamming_loss(Y_new, guess > 0.5)
    order = label_ranking_loss(Y_new, guess)
    print(f"{name:12} wrong labels {wrong:.3f}, wrong pairs {order:.3f}")

# %%
# Which view for which function?
# ------------------------------
# Each classifier has its own kernel weights, here of norm 1, which lets them differ
# most. Expression has the larger share for nearly all functions. How well each label
# can be predicted is measured by the area under its ROC curve, on new genes.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 4.2), layout="constrained", sharey=True
)
heights = np.arange(len(labels))
shares = np.array(
    [[own.view_shares_[view] for view, _, _ in views] for own in model.estimators_]
)
left.barh(heights, shares[:, 0], color="#0072B2", label="expression")
left.barh(heights, shares[:, 1], left=shares[:, 0], color="#D55E00", label="phylogeny")
left.set(yticks=heights, yticklabels=labels, xlim=(0, 1))
left.set_xlabel("share of the combined kernel")
left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
right.plot(
    roc_auc_score(Y_new, probabilities, average=None), heights, "o", color="black"
)
right.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
right.set_xlabel("area under the ROC curve, new genes")
left.invert_yaxis()
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)

# %%
# Everything else works label by label: here the parts of the two views in the log odds
# of each label, for one new gene.

print("label      expression  phylogeny  intercept")
for name, own in list(zip(labels, model.estimators_, strict=True))[:5]:
    found = contributions(own, X_new[:1])
    first, second = found.parts[0]
    print(f"{name:10} {first:+10.2f} {second:+10.2f} {found.intercept[0]:+10.2f}")

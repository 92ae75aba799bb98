"""
Kernels on sequences
====================

A kernel need not start from numbers. Here the samples are strings of DNA, each view
compares them in its own way, and the weights say which comparison matters.
"""

# %%
# Sequences
# ---------
# The sequences are drawn at random, so that the answer is known: 90 letters each, and
# two classes. Sequences of the first class contain the word ``TATAAT`` somewhere, those
# of the second the same letters in another order, ``TAATTA``. Only words distinguish
# the classes; neither the frequency of letters nor a position does.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import cross_val_score

from kernelweave import KernelFDA, MultipleKernelFDA
from kernelweave.kernels import Pipe

rng = np.random.default_rng(0)
classes = np.arange(240) % 2
sequences = []
for label in classes:
    letters = rng.choice(list("ACGT"), size=90)
    at = rng.integers(0, 84)
    letters[at : at + 6] = list(["TATAAT", "TAATTA"][label])
    sequences.append("".join(letters))
table = pd.DataFrame({"sequence": sequences})
print(sequences[0])

# %%
# Two ways to write a kernel
# --------------------------
# The spectrum kernel counts the words of k letters that two sequences share. Its
# features are explicit, so a scikit-learn vectoriser in a ``Pipe`` is enough, and
# vocabularies are learned from the training rows of each fold.


def spectrum(k):
    """Shared words of k letters, as a cosine: Leslie, Eskin and Noble (2002)."""
    words = CountVectorizer(analyzer="char", ngram_range=(k, k), lowercase=False)
    return Pipe(words, "cosine")


# %%
# Any function of two sets of rows that returns their Gram matrix is a kernel too, after
# a check that it is positive semidefinite. This one compares letters in the same place,
# in runs of up to three: the weighted-degree kernel of Rätsch and Sonnenburg (2004).


def weighted_degree(X, Z):
    """Runs of one to three equal letters in the same place: (n, m)."""
    rows, others = (
        np.array([list(text) for text in np.ravel(part)]) for part in (X, Z)
    )
    same = rows[:, None, :] == others[None, :, :]
    gram, run = same.sum(axis=2, dtype=float), same
    for length in (2, 3):
        run = run[:, :, :-1] & same[:, :, length - 1 :]
        gram += run.sum(axis=2) * (4 - length) / 3
    return gram


views = [
    ("letters", spectrum(1), "sequence"),
    ("words of 3", spectrum(3), "sequence"),
    ("words of 4", spectrum(4), "sequence"),
    ("words of 6", spectrum(6), "sequence"),
    ("places", weighted_degree, "sequence"),
]

# %%
# Which comparison matters?
# -------------------------
# Each view alone, equal weights, and learned weights, in five folds, with standard
# errors over the folds. Words of six letters identify the motif; the frequency of
# letters and their positions say nothing. With the weights learned, nobody has to know
# the length of the motif.

scores = {}
for view in views:
    scores[view[0]] = cross_val_score(KernelFDA([view], cv=None), table, classes)
scores["equal weights"] = cross_val_score(KernelFDA(views, cv=None), table, classes)
learned = MultipleKernelFDA(views, norm=1, cv=None)
scores["learned weights"] = cross_val_score(learned, table, classes)
shares = learned.fit(table, classes).view_shares_

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.4), layout="constrained", width_ratios=[3, 2]
)
left.barh(
    list(scores),
    [found.mean() for found in scores.values()],
    xerr=[found.std(ddof=1) / np.sqrt(5) for found in scores.values()],
    color=["#8C8C8C"] * len(views) + ["#56B4E9", "#0072B2"],
    error_kw={"elinewidth": 1},
)
left.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
left.set_xlabel("accuracy in five folds")
left.set_xlim(0.3, 1.0)
right.barh(list(shares), list(shares.values()), color="#0072B2")
right.set_xlabel("share of the combined kernel")
for ax in (left, right):
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)

"""
Which views does a prediction rest on?
======================================

A mixture of probabilistic discriminants has one expert per kernel. Its weights can
depend on the sample, and on the views that the sample has.
"""

# %%
# Views that are informative for half of the samples
# --------------------------------------------------
# Two sensors measure a position and a signal. The class shows in the signal of the
# first sensor on the left, and in that of the second on the right; elsewhere the
# signals are noise. A third sensor carries no information.

import matplotlib.pyplot as plt
import numpy as np

from kernelweave import MixtureKDA
from kernelweave.kernels import RBF

rng = np.random.default_rng(0)
n = 300
y = np.arange(n) % 2
position = rng.uniform(-3, 3, size=n)
left = position < 0


def sensor(good):
    """Position and signal; the signal reveals the class where ``good`` is True."""
    signal = np.where(good, 2.0 * y - 1, rng.choice([-1.0, 1.0], size=n))
    return np.column_stack([position, signal + 0.4 * rng.normal(size=n)])


X = np.hstack([sensor(left), sensor(~left), sensor(np.zeros(n, dtype=bool))])
views = [
    ("first", RBF(gamma=1.0), [0, 1]),
    ("second", RBF(gamma=1.0), [2, 3]),
    ("third", RBF(gamma=1.0), [4, 5]),
]
train = np.arange(n) < 200

# %%
# Weights of the mixture, and of each sample
# ------------------------------------------
# The weights of the mixture maximise the likelihood of each row given all others, and
# come with a certificate.

model = MixtureKDA(views, projection="posterior").fit(X[train], y[train])
print(model.certificate_)
print({name: round(weight, 2) for name, weight in model.view_weights_.items()})
print(f"accuracy on new samples {model.score(X[~train], y[~train]):.2f}")

# %%
# For each training row, ``responsibilities_`` shows which expert predicted it best. A
# new sample takes the weights of the rows it is similar to (``sample_weights``): the
# first sensor dominates on the left, the second on the right.

share = model.sample_weights(X[~train])
responsible = model.responsibilities_.mean(axis=2)
colors = ("#0072B2", "#D55E00", "#8C8C8C")
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
for ax, rows, table, title in (
    (axes[0], train, responsible, "training rows: responsibilities"),
    (axes[1], ~train, share, "new rows: weights"),
):
    for v, (name, _, _) in enumerate(views):
        ax.plot(position[rows], table[:, v], ".", color=colors[v], label=name)
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel("position")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("share of the sensor")
axes[1].legend(frameon=False, fontsize=9)

# %%
# Sensors that fail
# -----------------
# A row of NaN means that a sample lacks a view. Each expert learns from the rows that
# have its view, and the weights of a sample are renormalised over the views it has.
# Here more and more readings are lost, in training and in new samples. Bars are one
# standard error of the accuracy on 100 new samples: the two ways cannot be
# distinguished here.

shares = np.linspace(0, 0.5, 6)
accuracy = {"available": [], "zero": []}
for lost in shares:
    holes = X.copy()
    lacks = rng.random((n, 3)) < lost
    lacks[np.arange(n), rng.integers(3, size=n)] = False  # one sensor is always there
    for v, (_, _, columns) in enumerate(views):
        holes[np.ix_(lacks[:, v], columns)] = np.nan
    for missing, scores in accuracy.items():
        model = MixtureKDA(views, missing=missing, cv=None)  # for labels alone
        model.fit(holes[train], y[train])
        scores.append(model.score(holes[~train], y[~train]))

figure, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
for i, (missing, scores) in enumerate(accuracy.items()):
    right = np.array(scores)
    error = np.sqrt(right * (1 - right) / np.sum(~train))
    places = 100 * shares + i - 0.5  # side by side
    ax.errorbar(
        places, 100 * right, 100 * error, fmt="o-", color=colors[i], label=missing
    )
ax.set_xlabel("readings lost (%)")
ax.set_ylabel("accuracy (%)")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, title='missing="..."')
plt.show()

"""
Which view spoke for this sample?
=================================

A mixture of probabilistic discriminants has one expert a kernel. Its weights can depend
on the sample, and on the views that the sample has.
"""

# %%
# Views that know half of the samples each
# ----------------------------------------
# Two sensors measure a position and a signal. The class shows in the signal of the
# first sensor on the left, and in that of the second one on the right; elsewhere a
# signal is noise. A third sensor knows nothing.

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
    """Position and signal; the signal tells the class where ``good`` is True."""
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
# The weights of the mixture are those with the largest likelihood of each row given all
# others, with a certificate.

model = MixtureKDA(views, projection="posterior").fit(X[train], y[train])
print(model.certificate_)
print({name: round(weight, 2) for name, weight in model.view_weights_.items()})
print(f"accuracy on new samples {model.score(X[~train], y[~train]):.2f}")

# %%
# The training rows say which expert predicted them best (``responsibilities_``). A new
# sample takes the weights of the rows it is similar to (``sample_weights``): on the
# left the first sensor speaks, on the right the second one.

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
# A row of NaN says that a sample lacks a view. Each expert learns from its own rows,
# and the weights of a sample are divided by the sum of those it has. Here more and more
# readings are lost, in training and in new samples.

shares = np.linspace(0, 0.5, 6)
accuracy = {"available": [], "zero": []}
for lost in shares:
    holes = X.copy()
    lacks = rng.random((n, 3)) < lost
    lacks[np.arange(n), rng.integers(3, size=n)] = False  # one sensor is always there
    for v, (_, _, columns) in enumerate(views):
        holes[np.ix_(lacks[:, v], columns)] = np.nan
    for missing, scores in accuracy.items():
        model = MixtureKDA(views, missing=missing).fit(holes[train], y[train])
        scores.append(model.score(holes[~train], y[~train]))

figure, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
for (missing, scores), color in zip(accuracy.items(), colors, strict=False):
    ax.plot(100 * shares, 100 * np.array(scores), "o-", color=color, label=missing)
ax.set_xlabel("readings lost (%)")
ax.set_ylabel("accuracy (%)")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, title='missing="..."')
plt.show()

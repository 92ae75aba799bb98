"""
Where in the image is the answer?
=================================

Every part of an image can be a view. The learned weights then form a map: they say
which parts distinguish the classes. The 60,000 digits of MNIST, exactly and with a
certificate, take 20 seconds on one GPU (see :doc:`/user_guide/scale`); this smaller set
runs on any laptop.
"""

# %%
# Parts of an image as views
# --------------------------
# The digits have eight by eight pixels. Views may overlap, so we take the whole image
# with four widths of a Gaussian kernel, and each quadrant and the middle with two:
# 14 kernels in six views.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from kernelweave import KernelFDA, MultipleKernelFDA
from kernelweave.inspection import weight_intervals
from kernelweave.kernels import RBF

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=400, stratify=y, random_state=0
)
place = np.arange(64).reshape(8, 8)
parts = {
    "image": place,
    "top left": place[:5, :5],
    "top right": place[:5, 3:],
    "bottom left": place[3:, :5],
    "bottom right": place[3:, 3:],
    "middle": place[2:6, 2:6],
}
views = [
    (
        name,
        [RBF(factor=f) for f in ((0.5, 2, 4, 8) if name == "image" else (2, 6))],
        part,
    )
    for name, part in ((name, where.ravel().tolist()) for name, where in parts.items())
]

# %%
# Learned and equal weights, and one kernel
# -----------------------------------------
# All three are judged on the same digits, which no model has seen. On such images every
# part is informative, so equal weights do as well as learned ones, and neither does
# better than one kernel on the whole image. What the weights add is the answer to
# "where?".

models = {
    "learned weights": MultipleKernelFDA(views, norm=1, cv=None),
    "equal weights": KernelFDA(views, cv=None),
    "one kernel on the image": KernelFDA(
        [("image", RBF(factor=2), slice(None))], cv=None
    ),
}
for name, model in models.items():
    right = model.fit(X_train, y_train).predict(X_test) == y_test
    error = right.std() / np.sqrt(len(right))
    print(f"{name}: {100 * right.mean():.1f} % ± {100 * error:.1f} right")
learned = models["learned weights"]
print(learned.certificate_.status)

# %%
# The map
# -------
# A view's share is spread evenly over its pixels. The lines on the right show how far
# the shares move when rows are drawn again: where they are long, do not trust the map
# in detail.

shares = np.zeros((8, 8))
for name, where in parts.items():
    shares.ravel()[where.ravel()] += 100 * learned.view_shares_[name] / where.size
found = weight_intervals(learned, X_train, y_train, n_resamples=20, random_state=0)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
drawn = left.imshow(shares, cmap="cividis", vmin=0)
left.set(title="Share of each pixel", xticks=[], yticks=[])
figure.colorbar(drawn, ax=left, label="share (%)")
rows = np.arange(len(found))[::-1]
mean = np.array([100 * row["share"] for row in found])
low = np.array([100 * row["low"] for row in found])
high = np.array([100 * row["high"] for row in found])
right.barh(rows, mean, color="#56B4E9")
right.hlines(rows, low, high, color="black", linewidth=1)
right.set_yticks(rows, [row["view"] for row in found])
right.set(title="Share of each view, with 95 % intervals", xlabel="share (%)")
plt.show()

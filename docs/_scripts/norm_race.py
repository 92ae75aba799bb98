"""Norms chosen with a sample of the rows, and by comparing all of them on all rows.

``python docs/_scripts/norm_race.py [ROWS] [DEVICE]`` prints both for eight problems, of
which the digits of MNIST need ``KERNELWEAVE_DATA``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from kernelweave import MultipleKernelFDA, MultipleKernelRidge
from kernelweave.kernels import RBF
from kernelweave.learn.search import NORM_GRID

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from gpu_goals import D, digit_views
from problems import overlapping, ten_gaussians


def views_of_ten(n: int, informative: int, noise: float) -> tuple:
    """Ten views of four columns, X and numbers that some of the views explain."""
    rng = np.random.default_rng(informative)
    X, f = rng.normal(size=(n, 40)), np.zeros(n)
    for v in range(informative):
        a, b, c, d = X[:, 4 * v : 4 * v + 4].T
        f += np.sin(2 * a) * b + np.cos(c + d)
    f = (f - f.mean()) / f.std() + noise * rng.normal(size=n)
    views = [(f"v{v}", RBF(gamma=0.25), slice(4 * v, 4 * v + 4)) for v in range(10)]
    return views, X, f


def problems(n: int):
    """Name, estimator, views, X and y of each problem."""
    X, codes = overlapping(n)
    yield (
        "ten widths",
        MultipleKernelFDA,
        [("all", ten_gaussians(X), slice(0, D))],
        X,
        codes,
    )
    if "KERNELWEAVE_DATA" in os.environ:
        data = np.load(Path(os.environ["KERNELWEAVE_DATA"]) / "mnist.npz")
        X, codes = data["X"][:n] / 255.0, data["y"][:n].astype(int)
        yield "MNIST", MultipleKernelFDA, digit_views(X), X, codes
    for informative in (2, 5, 10):
        views, X, f = views_of_ten(n, informative, 0.5)
        codes = np.digitize(f, np.quantile(f, [0.33, 0.67]))
        yield f"{informative} views, classes", MultipleKernelFDA, views, X, codes
        views, X, f = views_of_ten(n, informative, 2.0)
        yield f"{informative} views, numbers", MultipleKernelRidge, views, X, f


if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    device = sys.argv[2] if len(sys.argv) > 2 else None
    for name, kind, views, X, y in problems(n):
        raced, *every = (
            kind(views, norm=norm, cv=None, device=device).fit(X, y)
            for norm in ("loo", *NORM_GRID)
        )
        best = min(every, key=lambda model: model.loo_error_)
        found = [f"norm {m.norm_:.3g}, error {m.loo_error_:.5f}" for m in (raced, best)]
        print(f"{name:18} sample first: {found[0]}; all rows: {found[1]}", flush=True)

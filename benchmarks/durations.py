"""Predicted and measured processor time of fits: ``durations.py [--rows 1000 2500]``

One thread. A fit is predicted as ``LongFitWarning`` does, from the sizes of the problem
and rates measured just before, here in processor time. The ratio should lie between a
third and three.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
import warnings
from typing import Any

import numpy as np

from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelRidge
from kernelweave.kernels import RBF
from kernelweave.models.shared import base
from kernelweave.models.shared.duration import FitSize, measure_rates, seconds_of

L1 = {"norm": 1, "alpha": "learn", "cv": None}
#: Estimator, number of kernels and of classes, and parameters.
FITS: dict[str, tuple[type, int, int, dict[str, Any]]] = {
    "default": (MultipleKernelFDA, 8, 2, {}),
    "no folds": (MultipleKernelFDA, 8, 2, {"cv": None}),
    "ten classes, no folds": (MultipleKernelFDA, 8, 10, {"cv": None}),
    "one norm": (MultipleKernelFDA, 8, 2, L1),
    "on the fly": (MultipleKernelFDA, 8, 2, {"features": "on_the_fly"}),
    "64, on the fly": (MultipleKernelFDA, 64, 2, {"features": "on_the_fly", **L1}),
    "groups": (MultipleKernelFDA, 8, 2, {}),
    "ridge, 32, no folds": (MultipleKernelRidge, 32, 2, {"cv": None}),
    "equal weights": (KernelFDA, 8, 2, {}),
}


def compare(name: str, n: int) -> None:
    """Print the measured and the predicted seconds of a fit to n rows."""
    kind, p, k, params = FITS[name]
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 10))
    y = np.argmax(X[:, :k] + 0.7 * rng.normal(size=(n, k)), axis=1)
    kernels = [RBF(gamma=gamma) for gamma in np.geomspace(0.01, 1, p // 2)]
    views = [("left", kernels, slice(0, 5)), ("right", kernels, slice(5, 10))]
    groups = np.arange(n) // 10 if name == "groups" else None
    sizes: list[FitSize] = []
    base.warn_if_long = lambda size, *others: sizes.append(size)  # type: ignore
    rates = measure_rates(X.dtype, time.process_time)
    start = time.process_time()
    kind(views, **params).fit(X, y, groups=groups)
    measured = time.process_time() - start
    predicted = sum(seconds_of(sizes[0], rates).values())
    ratio = predicted / measured
    print(f"{name:24}{n:>7,}{measured:>9.2f}{predicted:>9.2f}{ratio:>7.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 2500])
    warnings.simplefilter("ignore")
    print("fit                        rows measured predicted ratio")
    for n_rows in parser.parse_args().rows:
        for fit in FITS:
            compare(fit, n_rows)

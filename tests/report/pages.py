"""One small report of each kind, with names that try to break the page."""

from __future__ import annotations

import functools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from kernelweave import (
    KernelFDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
)
from kernelweave.report import write_report

HOSTILE = '<script>alert("1")</script>'
VIEWS = [(f"a & {HOSTILE}", "linear", [0, 1]), ("b\"'", "rbf", [2, 3])]
FAST = {"cv": 2, "n_resamples": 2, "n_decoys": 1}


def data(kind: str):
    """An unfitted model, rows and targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(45, 4))
    y = np.array([HOSTILE, "b", "c"])[np.arange(45) % 3]
    X[:, 0] += np.arange(45) % 3
    few = {"norm": 1, "alpha": 0.1, "cv": None}
    if kind == "two classes":
        return MultipleKernelFDA(VIEWS, **few), X, np.where(y == "c", "b", y)
    if kind == "three classes":
        return KernelFDA(VIEWS, alpha=0.1, cv=None), X, y
    if kind == "regression":
        return MultipleKernelRidge(VIEWS, **few), X, X[:, 0] + X[:, 2]
    if kind == "several targets":
        return MultipleKernelRidge(VIEWS, **few), X, X[:, [0, 2]]
    if kind == "no probabilities":
        return MultipleKernelSVC(VIEWS, tol=1e-2), X, y
    if kind == "precomputed":
        kernels = np.stack([X @ X.T, X[:, :2] @ X[:, :2].T], axis=2)
        views = ("precomputed", [HOSTILE, "two"])
        return MultipleKernelFDA(views, **few), kernels, y
    if kind == "missing views":
        X[::5, :2] = np.nan
        return MultipleKernelFDA(VIEWS, missing="available", **few), X, y
    if kind == "one view":
        return MultipleKernelFDA([("all", "rbf", slice(None))], **few), X, y
    if kind == "mixed table":
        import pandas as pd

        X = pd.DataFrame(X, columns=[HOSTILE, "x" * 80, "w", "z"])
        X["smoker"] = np.where(np.arange(45) % 2, "often", "never")
        views = [("lab", "rbf", [HOSTILE, "w"]), ("clinic", "auto", ["z", "smoker"])]
        return MultipleKernelFDA(views, **few), X, y
    raise ValueError(kind)


KINDS = (
    "two classes",
    "three classes",
    "regression",
    "several targets",
    "no probabilities",
    "precomputed",
    "missing views",
    "one view",
    "mixed table",
)


@functools.cache
def text_of(kind: str) -> str:
    """The report of this kind, of which nothing else is left in its folder."""
    model, X, y = data(kind)
    with TemporaryDirectory() as folder:
        path = Path(folder, "report.html")
        write_report(model.fit(X, y), X, y, path, title=f"{kind} {HOSTILE}", **FAST)
        assert list(Path(folder).iterdir()) == [path]
        return path.read_text(encoding="utf-8")

"""``kernelweave demo``: which views of a tumour tell whether it is malignant?"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelweave
from kernelweave.cli.folder import Draft, new_results
from kernelweave.cli.held_out import new_rows
from kernelweave.cli.output import (
    print_certificate,
    print_table,
    print_weights,
    shown_warnings,
    write_results,
)
from kernelweave.datasets import load_breast_cancer_views
from kernelweave.models import KernelFDA, MultipleKernelFDA

__all__ = ["run_demo"]

N_NOISE = 10


def run_demo(out: str) -> None:
    """Learn view weights on bundled data, compare models, print and write results.

    Parameters
    ----------
    out : str
        Folder for the results.
    """
    with new_results(out) as draft:
        _demo(draft)


def _demo(draft: Draft) -> None:
    cancer = load_breast_cancer_views(as_frame=False)
    noise = np.random.default_rng(0).standard_normal((len(cancer.data), N_NOISE))
    X = np.hstack([cancer.data, noise])  # (569, 40)
    y = cancer.target_names[cancer.target]
    start = cancer.data.shape[1]
    views = [*cancer.views, ("noise", "auto", slice(start, start + N_NOISE))]
    rows = np.arange(len(X))
    train, test = train_test_split(rows, stratify=y, random_state=0)
    print(
        f"kernelweave {kernelweave.__version__}: which views tell malignant tumours "
        "from benign ones?\n\n"
        f"Data: {len(X)} tumours (breast cancer in Wisconsin, from scikit-learn), "
        f"{len(train)} to learn\nfrom and {len(test)} to test on. Views: the mean, the "
        "error and the worst value of ten\nmeasurements of cell nuclei, and ten "
        "columns of pure noise.\n"
    )
    model, seconds = _timed_fit(MultipleKernelFDA(views), X[train], y[train])
    print(f"View weights, learned in {seconds:.2f} s:\n")
    print_weights(model)
    print("\nCertificate:\n")
    print_certificate(model)
    print(f"\nAccuracy on the {len(test)} tumours the models have not seen:\n")
    _print_comparison(model, seconds, views, X, y, train, test)
    identity = {"row": rows[test], "class": y[test]}
    how = f"{len(test)} tumours that the model has not seen"
    write_results(draft, model, new_rows(model, X[test], y[test], how), identity)


def _timed_fit(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[Any, float]:
    started = time.perf_counter()
    with shown_warnings():
        model.fit(X, y)
    return model, time.perf_counter() - started


def _print_comparison(
    model: Any,
    seconds: float,
    views: list[Any],
    X: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
) -> None:
    uniform = _timed_fit(KernelFDA(views), X[train], y[train])
    support = make_pipeline(StandardScaler(), SVC())
    fits = {
        "MultipleKernelFDA, learned weights": (model, seconds),
        "KernelFDA, equal weights": uniform,
        "scikit-learn's SVC, RBF kernel, all columns": _timed_fit(
            support, X[train], y[train]
        ),
    }
    print_table(
        ("model", "accuracy", "seconds"),
        [
            (name, f"{100 * fitted.score(X[test], y[test]):.1f} %", f"{took:.2f}")
            for name, (fitted, took) in fits.items()
        ],
    )

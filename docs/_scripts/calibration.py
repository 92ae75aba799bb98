"""How far can class probabilities be trusted? Log loss and calibration on new rows.

    python docs/_scripts/calibration.py [--splits 10]
    python docs/_scripts/calibration.py --noise

Stratified 60/40 splits. Prints the table in docs/user_guide/probabilities.md, or log
losses on pure noise, which that page and docs/user_guide/mixture.md quote.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import replace

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelweave import KernelFDA, MixtureKDA, MultipleKernelFDA, ProbabilisticKDA
from kernelweave.datasets import fetch_views
from kernelweave.fits.gaussians import ClassGaussians

N_BINS = 15


def data_sets():
    """Name, rows, classes and views of each data set."""
    cancer = fetch_views("breast_cancer", as_frame=False)
    yield "breast cancer", cancer.data, cancer.target, cancer.views
    wine = load_wine()
    yield "wine", wine.data, wine.target, None
    digits = fetch_views("digits", as_frame=False)
    yield "digits", digits.data, digits.target, digits.views


def calibration_error(proba: np.ndarray, codes: np.ndarray) -> float:
    """``sum_b n_b / n |accuracy_b - confidence_b|`` over bins of the largest class."""
    confidence = proba.max(axis=1)
    right = proba.argmax(axis=1) == codes
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    return sum(
        abs(np.sum(right[bins == b]) - np.sum(confidence[bins == b]))
        for b in range(N_BINS)
    ) / len(codes)


def with_training_gaussians(model, X, codes):
    """The same model, with Gaussians fitted to the projections of the training rows."""
    naive = copy.copy(model)
    # No row is left out here: the target of a row is the mean of its class.
    projected = model.transform(X)
    targets = np.stack([projected[codes == c].mean(axis=0) for c in np.unique(codes)])
    found = ClassGaussians.fit(projected, targets[codes], codes)
    naive.gaussians_ = replace(found, temperature=1.0, exceptions=0.0)
    return naive


def predictions(X, y, views, train, test):
    """Class probabilities (m, k) of each method for the rows ``test``."""
    ours = MultipleKernelFDA(views).fit(X[train], y[train])
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    support = make_pipeline(
        StandardScaler(), CalibratedClassifierCV(SVC(), method="sigmoid", cv=5)
    )
    models = {
        "MultipleKernelFDA": ours,
        "same, training Gaussians": with_training_gaussians(ours, X[train], y[train]),
        "logistic regression": logistic.fit(X[train], y[train]),
        "calibrated SVC": support.fit(X[train], y[train]),
    }
    return {name: model.predict_proba(X[test]) for name, model in models.items()}


def print_noise(n_draws: int = 20) -> None:
    """Log loss on new rows of 5 classes, after 30 rows of noise in three views."""
    views = [(f"view {i}", "auto", slice(4 * i, 4 * i + 4)) for i in range(3)]
    models = {
        "KernelFDA": KernelFDA(views),
        "MultipleKernelFDA": MultipleKernelFDA(views),
        "KernelFDA, cv=None": KernelFDA(views, cv=None),
        "MultipleKernelFDA, cv=None": MultipleKernelFDA(views, cv=None),
        "ProbabilisticKDA": ProbabilisticKDA(views),
        "MixtureKDA": MixtureKDA(views),
        "ProbabilisticKDA, cv=None": ProbabilisticKDA(views, cv=None),
        "MixtureKDA, cv=None": MixtureKDA(views, cv=None),
    }
    for name, model in models.items():
        losses = []
        for draw in range(n_draws):
            rng = np.random.default_rng(draw)
            X, new = rng.standard_normal((30, 12)), rng.standard_normal((500, 12))
            proba = model.fit(X, np.arange(30) % 5).predict_proba(new)
            losses.append(log_loss(rng.integers(0, 5, 500), proba))
        print(f"{name}: {np.mean(losses):.2f}, at most {max(losses):.2f}", flush=True)
    print(f"class shares: {np.log(5):.2f}")


def print_few_rows(n_draws: int = 40) -> None:
    """Log loss on new rows of 2 classes, after 4 to 30 rows of noise in three views."""
    views = [(f"view {i}", "auto", slice(3 * i, 3 * i + 3)) for i in range(3)]
    for n in (4, 6, 8, 10, 14, 20, 30):
        losses = []
        for draw in range(n_draws):
            rng = np.random.default_rng(draw)
            X, new = rng.standard_normal((n, 9)), rng.standard_normal((500, 9))
            model = MultipleKernelFDA(views).fit(X, np.arange(n) % 2)
            proba = model.predict_proba(new)
            losses.append(log_loss(rng.integers(0, 2, 500), proba))
        print(f"{n} rows: {np.mean(losses):.2f}, at most {max(losses):.2f}", flush=True)
    print(f"class shares: {np.log(2):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--noise", action="store_true")
    options = parser.parse_args()
    if options.noise:
        print_noise()
        return print_few_rows()
    n_splits = options.splits
    print("| data | method | log loss | calibration error | accuracy |")
    print("| --- | --- | --- | --- | --- |")
    for data, X, y, views in data_sets():
        splits = StratifiedShuffleSplit(n_splits, test_size=0.4, random_state=0)
        pooled: dict[str, list] = {}
        for train, test in splits.split(X, y):
            for name, proba in predictions(X, y, views, train, test).items():
                pooled.setdefault(name, []).append((proba, y[test]))
        for name, pairs in pooled.items():
            losses = [log_loss(truth, proba) for proba, truth in pairs]
            # Bins need many rows, so the rows of all splits are pooled.
            proba = np.vstack([p for p, _ in pairs])
            truth = np.concatenate([t for _, t in pairs])
            print(
                f"| {data} | {name} | {np.mean(losses):.3f} ± {np.std(losses):.3f} | "
                f"{100 * calibration_error(proba, truth):.1f} % | "
                f"{100 * np.mean(proba.argmax(axis=1) == truth):.1f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()

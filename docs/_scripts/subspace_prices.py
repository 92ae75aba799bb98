"""Where to start the search for C and alpha of SubspaceKernelSVC.

    KERNELWEAVE_DATA=folder python docs/_scripts/subspace_prices.py [--splits 10]

Stratified random splits with at most 200 training rows and 600 new ones. Prints the
table in docs/user_guide/subspace.md: errors in percent on new rows.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import StratifiedShuffleSplit

from kernelweave import MultipleKernelFDA, MultipleKernelSVC, SubspaceKernelSVC
from kernelweave.datasets import fetch_views

ONE_VIEW = {
    "iris": load_iris,
    "wine": load_wine,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
}
SETS = ("iris", "wine", "breast cancer", "nutrimouse", "msrc_v5", "digits")
TRAIN, TEST = 200, 600
#: uncorrelated, alpha, C
PRICES = (
    (True, 1.0, 1.0),
    (True, 3.0, 1.0),
    (True, 10.0, 0.3),
    (True, 10.0, 1.0),
    (True, 10.0, 3.0),
    (True, 30.0, 1.0),
    (True, "loo", 1.0),
    (False, 1.0, 1.0),
    (False, 10.0, 1.0),
    (False, "loo", 1.0),
)


def models(views: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for uncorrelated, alpha, C in PRICES:
        kind = "uncorrelated" if uncorrelated else "plain"
        shown = '"loo"' if alpha == "loo" else f"{alpha:g}"
        found[f"{kind}, alpha = {shown}, C = {C:g}"] = SubspaceKernelSVC(
            views, alpha=alpha, C=C, uncorrelated=uncorrelated
        )
    found["`MultipleKernelSVC()`"] = MultipleKernelSVC(views)
    found["`MultipleKernelFDA()`"] = MultipleKernelFDA(views)
    return found


def data_of(name: str) -> tuple[np.ndarray, np.ndarray, Any]:
    if name in ONE_VIEW:
        return (*ONE_VIEW[name](return_X_y=True), None)
    bunch = fetch_views(name, as_frame=False)
    return bunch.data, bunch.target, bunch.views


def errors(name: str, number: int) -> dict[str, float]:
    """Errors of every model on one split."""
    X, y, views = data_of(name)
    rows = min(TRAIN, len(y) // 2)
    new = min(TEST, len(y) - rows)
    draw = StratifiedShuffleSplit(
        1, train_size=rows, test_size=new, random_state=number
    )
    train, test = next(draw.split(X, y))
    found = {}
    for title, model in models(views).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant pixels; a gap above tol
            model.fit(X[train], y[train])
        found[title] = 100.0 * (1.0 - model.score(X[test], y[test]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    run = Parallel(n_jobs=options.jobs)
    means = {}
    for name in SETS:
        splits = run(delayed(errors)(name, i) for i in range(options.splits))
        means[name] = {t: np.mean([split[t] for split in splits]) for t in splits[0]}
    print("| | " + " | ".join(SETS) + " | mean |")
    print("| --- |" + " --: |" * (len(SETS) + 1))
    for title in means[SETS[0]]:
        cells = [means[name][title] for name in SETS]
        shown = " | ".join(f"{cell:.1f}" for cell in [*cells, np.mean(cells)])
        print(f"| {title} | {shown} |")


if __name__ == "__main__":
    main()

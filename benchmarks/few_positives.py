"""Balanced accuracy with 5 % positives: ``few_positives.py [--rows 200 400]``

Prints the table of docs/user_guide/margins.md. Three views of ten columns; the signal
is in one of them or in all. Every model has ``class_weight="balanced"``, and the
support vector machines of scikit-learn get the mean of the same kernels.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelSVC

sys.path.insert(0, str(Path(__file__).parents[1]))
from reproduce.results import Estimate

WIDTH, SHARE, N_NEW = 10, 0.05, 2000
VIEWS = [(f"v{i}", "auto", slice(i * WIDTH, (i + 1) * WIDTH)) for i in range(3)]
BALANCED = {"class_weight": "balanced"}
#: Distance between the classes, by where the signal is.
DISTANCE = {"one": 2.88, "all": 1.728}


def draw(seed: int, n: int, where: str) -> list[np.ndarray]:
    """Rows and labels to learn from, and 2,000 new rows, a quarter of them positive."""
    rng, drawn = np.random.default_rng(seed), []
    columns = WIDTH if where == "one" else 3 * WIDTH
    direction = np.arange(3 * WIDTH) < columns
    for m, positive in ((n, max(round(SHARE * n), 2)), (N_NEW, N_NEW // 4)):
        y = (np.arange(m) < positive).astype(int)
        X = rng.normal(size=(m, 3 * WIDTH))
        X += DISTANCE[where] * y[:, None] * direction / np.sqrt(columns)
        drawn += [X, y]
    return drawn


def scores(seed: int, n: int, where: str) -> dict[str, float]:
    """The balanced accuracy of every model on the new rows of one draw."""
    X, y, new, truth = draw(seed, n, where)
    mean = KernelFDA(VIEWS, alpha=1.0, cv=None).fit(X, y)
    weights = np.asarray(mean.kernel_weights_)

    def gram(rows: np.ndarray) -> np.ndarray:
        read = mean._observed_rows(rows, "predict")
        return np.asarray(mean.kernel_map_.cross(read, weights))

    machine = SVC(kernel="precomputed", **BALANCED)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    search = GridSearchCV(
        machine, {"C": np.logspace(-2, 2, 9)}, cv=folds, scoring="balanced_accuracy"
    )
    found = {
        "SVC, C=1": machine.fit(gram(X), y).predict(gram(new)),
        "SVC, C from folds": search.fit(gram(X), y).predict(gram(new)),
    }
    models = {
        "C=1": MultipleKernelSVC(VIEWS, C=1, **BALANCED),
        'C="cv"': MultipleKernelSVC(VIEWS, C="cv", **BALANCED),
        "default": MultipleKernelSVC(VIEWS, **BALANCED),
        "MultipleKernelFDA": MultipleKernelFDA(VIEWS, cv=None, **BALANCED),
        "KernelFDA": KernelFDA(VIEWS, cv=None, **BALANCED),
    }
    found |= {name: model.fit(X, y).predict(new) for name, model in models.items()}
    return {name: balanced_accuracy_score(truth, p) for name, p in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 400])
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    for where in DISTANCE:
        for n in options.rows:
            every = [scores(seed, n, where) for seed in range(options.draws)]
            print(f"{n} rows, signal in {where}")
            for name in every[0]:
                values = np.array([one[name] for one in every])
                lead = values - [one["SVC, C=1"] for one in every]
                print(
                    f"  {name:18} {Estimate.of(values):.3f}, minus SVC "
                    f"{Estimate.of(lead):+.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

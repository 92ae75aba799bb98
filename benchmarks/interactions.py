"""What do products of kernels of different views gain, and what do they cost?

    KERNELWEAVE_DATA=folder python benchmarks/interactions.py [--splits 8]

The real data sets of benchmarks/study.py with at least two views, and drawn data in
which columns of two views are multiplied, added, or both. Each model is fitted without
and with products. Prints the tables of docs/user_guide/defaults.md.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from harness import clocked
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from study import SETS, Task

from kernelweave import MultipleKernelFDA, MultipleKernelRidge

sys.path.insert(0, str(Path(__file__).parents[1]))
from reproduce.results import Estimate

#: f(X) of rows X (n, 10), whose first five columns are one view, the others another.
DRAWN = {
    "a product": lambda X, rng: X[:, 0] * X[:, 5],
    "a product and a sum": lambda X, rng: X[:, 0] * X[:, 5] + X[:, 1] + X[:, 6],
    "a sum of functions": lambda X, rng: X[:, 0] + np.sin(2 * X[:, 5]),
    "a product within a view": lambda X, rng: X[:, 0] * X[:, 1] + X[:, 5],
    "noise": lambda X, rng: rng.normal(size=len(X)),
}
VIEWS = [("a", "auto", slice(0, 5)), ("b", "auto", slice(5, 10))]
#: Rows for training, and noise as a multiple of the deviation of f.
TRAINING, NOISES, DRAWS = 150, (0.1, 1.0), 24


def pair(model, X, y, judge):
    """``judge(model)`` and seconds, without and with."""
    found = []
    for interactions in (False, True):
        unfitted = model(interactions=interactions)
        fitted, seconds, _ = clocked(partial(unfitted.fit, X, y))
        found.append([*judge(fitted), seconds])
    return found


def real(n_splits):
    """What products change of accuracy, log loss and time."""
    gains, ratio = [], []
    for name, load in SETS.items():
        try:
            blocks, y = load()
        except FileNotFoundError as error:
            print(f"{name}: left out: {error}")
            continue
        if len(blocks) < 2:
            continue
        splitter = StratifiedShuffleSplit(n_splits, test_size=0.4, random_state=3)
        table = np.array([_split(blocks, y, *rows) for rows in splitter.split(y, y)])
        gain = (table[:, 1] - table[:, 0])[:, :2] * (100, 1)
        gains.append(gain.mean(axis=0))
        ratio.append(table[:, 1, -1].mean() / table[:, 0, -1].mean())
        print(
            f"{name}: {100 * table[:, 0, 0].mean():.1f}, "
            f"{Estimate.of(gain[:, 0]):+.2f}",
            flush=True,
        )
    gains = np.array(gains)  # (sets, 2)
    won, lost = np.sum(gains[:, 0] > 0.05), np.sum(gains[:, 0] < -0.05)
    print(
        f"accuracy {Estimate.of(gains[:, 0]):+.2f}, won {won}, lost {lost}, "
        f"log loss {Estimate.of(gains[:, 1]):+.4f}"
    )
    print(f"time of a fit with products, relative to one without: {np.mean(ratio):.2f}")


def _split(blocks, y, train, test):
    task = Task(blocks, y, train, test)

    def judge(model):
        proba = model.predict_proba(task.T)
        return model.score(task.T, task.t), log_loss(
            task.t, proba, labels=model.classes_
        )

    return pair(
        lambda **options: MultipleKernelFDA(task.views, **options),
        task.X,
        task.y,
        judge,
    )


def drawn():
    """R2 on new rows without products, and what they add to it."""
    for name, function in DRAWN.items():
        for noise in NOISES:
            table = []
            for seed in range(DRAWS):
                rng = np.random.default_rng(seed)
                X = rng.normal(size=(1200, 10))
                f = function(X, rng)
                y = f + noise * f.std() * rng.normal(size=len(f))
                new = slice(TRAINING, None)
                table.append(
                    pair(
                        lambda **options: MultipleKernelRidge(
                            VIEWS, cv=None, **options
                        ),
                        X[:TRAINING],
                        y[:TRAINING],
                        lambda model, X=X, y=y, new=new: [model.score(X[new], y[new])],
                    )
                )
            table = np.array(table)
            without, with_products = table[:, 0, 0], table[:, 1, 0]
            print(
                f"{name}, noise {noise}: {without.mean():.3f}, products "
                f"{Estimate.of(with_products - without):+.3f}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=8)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    drawn()
    real(arguments.splits)


if __name__ == "__main__":
    main()

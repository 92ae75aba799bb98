"""Which default serves users best? Accuracy on real multi-view data sets.

    KERNELWEAVE_DATA=folder python benchmarks/study.py [--splits 10] [--write-docs]

Stratified 60/40 splits; every method sees the same rows, and kernel methods use the
same kernels ("auto" on each view). Hyperparameters are chosen within the training rows:
by leave-one-out for ours, by cross-validation for the others. Results are saved to
benchmarks/results/study.json after every split, so an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelweave import KernelFDA, MultipleKernelFDA
from kernelweave.datasets import MissingDataError, fetch_expression, fetch_views

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / "results" / "study.json"
PAGE = HERE.parent / "docs" / "user_guide" / "defaults.md"


# ------------------------------------------------------------------ the data sets


def blocks_of(bunch, rows=None):
    """Views of a data set as arrays, and class codes in the order of the names."""
    blocks = {name: bunch.data[:, columns] for name, _, columns in bunch.views}
    names = bunch.target_names[bunch.target]
    return limit(blocks, np.unique(names, return_inverse=True)[1], rows)


def limit(blocks, y, rows):
    """Keep ``rows`` rows at random."""
    if rows is None or rows >= len(y):
        return blocks, y
    keep = np.sort(np.random.default_rng(0).permutation(len(y))[:rows])
    return {v: b[keep] for v, b in blocks.items()}, y[keep]


def views(name, rows=None, **options):
    return lambda: blocks_of(fetch_views(name, as_frame=False, **options), rows)


def pathways(name):
    return lambda: blocks_of(fetch_expression(name, as_frame=False))


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return {"mean": X[:, :10], "error": X[:, 10:20], "worst": X[:, 20:]}, y


def digits():
    X, y = load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8)
    blocks = {
        "pixels": X,
        "profiles": np.hstack([images.sum(1), images.sum(2)]),
        "fourier": np.abs(np.fft.fft2(images)).reshape(len(X), -1)[:, :36],
    }
    return limit(blocks, y, 600)


def leaves():
    blocks, y = views("leaves100")()
    rows = y < 40
    return {v: b[rows] for v, b in blocks.items()}, y[rows]


SETS = {
    "msrc_v5": views("msrc_v5"),
    "nutrimouse diet": views("nutrimouse"),
    "nutrimouse genotype": views("nutrimouse", target="genotype"),
    "mfeat (800 rows)": views("mfeat", rows=800),
    "leaves (40 species)": leaves,
    "prostate, pathways": pathways("prostate"),
    "ALL fusion, pathways": pathways("all_fusion"),
    "leukemia, pathways": pathways("leukemia"),
    "p53, pathways": pathways("p53"),
    "breast cancer": cancer,
    "digits (600 rows)": digits,
}


# ------------------------------------------------------------------ the methods


class Task:
    """One split: rows, views, and the common kernels, computed once."""

    def __init__(self, blocks, y, train, test):
        X = np.hstack(list(blocks.values()))
        ends = np.cumsum([b.shape[1] for b in blocks.values()])
        starts = np.r_[0, ends[:-1]]
        self.views = [
            (name.replace("__", "_"), "auto", slice(int(a), int(b)))
            for name, a, b in zip(blocks, starts, ends, strict=True)
        ]
        self.X, self.T, self.y, self.t = X[train], X[test], y[train], y[test]

    def score(self, model, views=True):
        start = time.process_time()
        model.fit(self.X, self.y)
        return model.score(self.T, self.t), time.process_time() - start


def ours(**parameters):
    return lambda task: task.score(MultipleKernelFDA(task.views, **parameters))


def single_view(task):
    start = time.process_time()
    models = [KernelFDA([view]).fit(task.X, task.y) for view in task.views]
    best = min(models, key=lambda m: m.loo_error_)
    return best.score(task.T, task.t), time.process_time() - start


def mean_kernel_svc(task):
    start = time.process_time()
    mean = KernelFDA(task.views, alpha=1.0).fit(task.X, task.y)
    weights = np.asarray(mean.kernel_weights_)
    identity = np.eye(len(task.y))
    rows = mean._rows(task.X, "predict")
    K = mean.kernel_map_.project(rows, weights, identity)
    search = GridSearchCV(
        SVC(kernel="precomputed"), {"C": np.logspace(-2, 4, 7)}, cv=folds(task)
    ).fit(K, task.y)
    Kt = mean.kernel_map_.project(mean._rows(task.T, "predict"), weights, identity)
    return search.score(Kt, task.t), time.process_time() - start


def folds(task):
    return int(np.clip(np.bincount(task.y).min(), 2, 5))


def rbf_svc(task):
    grid = {"svc__C": np.logspace(-1, 3, 5), "svc__gamma": [0.1, 0.3, 1, 3]}
    scale = 1.0 / task.X.shape[1]
    grid["svc__gamma"] = [g * scale for g in grid["svc__gamma"]]
    pipe = make_pipeline(StandardScaler(), SVC())
    return task.score(GridSearchCV(pipe, grid, cv=folds(task)))


def ridge(task):
    return task.score(
        make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(-2, 5, 15)))
    )


def forest(task):
    return task.score(RandomForestClassifier(500, random_state=0))


METHODS = {
    "default": ours(),
    "norm 1, alpha learned": ours(norm=1, alpha="learn"),
    "norm 1, alpha loo": ours(norm=1),
    "norm 4/3, alpha loo": ours(norm=4 / 3),
    "norm 2, alpha loo": ours(norm=2),
    "objective loo": ours(objective="loo"),
    "uniform (KernelFDA)": lambda task: task.score(KernelFDA(task.views)),
    "best single view": single_view,
    "SVC, mean kernel, CV": mean_kernel_svc,
    "RBF-SVC, concatenated, CV": rbf_svc,
    "ridge, concatenated, CV": ridge,
    "random forest": forest,
}


# ------------------------------------------------------------------ run and report


def run(n_splits):
    RESULTS.parent.mkdir(exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, load in SETS.items():
        try:
            blocks, y = load()
        except MissingDataError as error:
            print(f"{name}: left out: {error}")
            continue
        splitter = StratifiedShuffleSplit(n_splits, test_size=0.4, random_state=7)
        for number, (train, test) in enumerate(splitter.split(y, y)):
            done = results.setdefault(name, {}).setdefault(str(number), {})
            task = Task(blocks, y, train, test)
            for method, score in METHODS.items():
                if method not in done:
                    done[method] = score(task)
            RESULTS.write_text(json.dumps(results, indent=0))
        means = {m: np.mean([s[m][0] for s in results[name].values()]) for m in METHODS}
        print(name, {m: round(100 * a, 1) for m, a in means.items()}, flush=True)
    return results


def page(results):
    """The accuracy table and the paired differences, as Markdown."""
    methods = list(METHODS)
    accuracy = np.array(
        [
            [np.mean([split[m][0] for split in splits.values()]) for m in methods]
            for splits in results.values()
        ]
    )
    lines = ["| set | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for name, row in zip(results, accuracy, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{100 * a:.1f}" for a in row) + " |")
    total = accuracy.mean(axis=0)
    lines.append(
        "| **mean** | " + " | ".join(f"**{100 * a:.1f}**" for a in total) + " |"
    )
    seconds = [
        np.mean([split[m][1] for s in results.values() for split in s.values()])
        for m in methods
    ]
    lines.append("| CPU s per fit | " + " | ".join(f"{s:.2f}" for s in seconds) + " |")
    lines += [
        "",
        "| default minus | difference | standard error over sets | sets won / lost |",
        "|---|---|---|---|",
    ]
    for j, method in enumerate(methods[1:], start=1):
        difference = 100 * (accuracy[:, 0] - accuracy[:, j])
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        won, lost = int(np.sum(difference > 0.05)), int(np.sum(difference < -0.05))
        lines.append(
            f"| {method} | {difference.mean():+.2f} | {error:.2f} | {won} / {lost} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--write-docs", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    text = page(run(arguments.splits))
    print(text)
    if arguments.write_docs:
        before, mark, _ = PAGE.read_text().partition("<!-- study -->\n")
        PAGE.write_text(before + mark + "\n" + text + "\n")


if __name__ == "__main__":
    main()

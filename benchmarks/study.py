"""Which default serves users best? Real data with several views, and rivals.

    KERNELWEAVE_DATA=folder python benchmarks/study.py [--splits 6] [--write-docs]

Stratified 60/40 splits; every method sees the same rows, and kernel methods use the
same kernels ("auto" on each view). Hyperparameters are chosen within the training rows:
by leave-one-out for ours, by cross-validation for the others. Accuracy, balanced
accuracy and log loss are measured on the test rows. Results are saved to
benchmarks/results/study.json after every split, so an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import warnings

import numpy as np
from harness import clocked
from joblib import Parallel, delayed
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelSVC
from kernelweave.datasets import fetch_expression, fetch_views

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from reproduce.results import Estimate

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
    blocks = {"mean": X[:, :10], "error": X[:, 10:20], "worst": X[:, 20:]}
    return limit(blocks, y, 300)


def digits():
    X, y = load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8)
    blocks = {
        "pixels": X,
        "profiles": np.hstack([images.sum(1), images.sum(2)]),
        "fourier": np.abs(np.fft.fft2(images)).reshape(len(X), -1)[:, :36],
    }
    return limit(blocks, y, 300)


def first_classes(name, count):
    """The rows of the first classes."""

    def load():
        blocks, y = views(name)()
        return {v: b[y < count] for v, b in blocks.items()}, y[y < count]

    return load


def table(name, groups, rows=None):
    """A table of the papers, its columns split into ``groups``: name -> columns."""

    def load():
        bunch = fetch_views(name, as_frame=False)
        blocks = {view: bunch.data[:, columns] for view, columns in groups.items()}
        blocks = {
            view: block[:, np.ptp(block, axis=0) > 0] for view, block in blocks.items()
        }
        return limit(blocks, bunch.target, rows)

    return load


def wine():
    bunch = load_wine()
    columns = {
        "acids": [0, 1, 2, 3, 4],
        "phenols": [5, 6, 7, 8],
        "light": [9, 10, 11, 12],
    }
    return {view: bunch.data[:, c] for view, c in columns.items()}, bunch.target


def quarters(size):
    """The four quarters of a square image of ``size`` x ``size`` pixels."""
    pixels, half = np.arange(size * size).reshape(size, size), size // 2
    cuts = (slice(0, half), slice(half, size))
    return {
        f"{up} {side}": pixels[rows, columns].ravel()
        for up, rows in zip(("upper", "lower"), cuts, strict=True)
        for side, columns in zip(("left", "right"), cuts, strict=True)
    }


def spans(**ends):
    """Consecutive columns, given by the end of each group."""
    starts = [0, *ends.values()]
    return {
        name: slice(start, end)
        for (name, end), start in zip(ends.items(), starts, strict=False)
    }


ALL = {"all": slice(None)}
SETS = {
    "msrc_v5": views("msrc_v5"),
    "msrc_v5 (105 rows)": views("msrc_v5", rows=105),
    "nutrimouse diet": views("nutrimouse"),
    "nutrimouse genotype": views("nutrimouse", target="genotype"),
    "mfeat (300 rows)": views("mfeat", rows=300),
    "leaves (40 species)": first_classes("leaves100", 40),
    "prostate, hallmarks": pathways("prostate"),
    "ALL fusion, hallmarks": pathways("all_fusion"),
    "leukemia, hallmarks": pathways("leukemia"),
    "p53, hallmarks": pathways("p53"),
    "breast cancer (300 rows)": cancer,
    "digits (300 rows)": digits,
    "sonar": table("sonar", spans(low=20, middle=40, high=60)),
    "heart": table("heart", spans(patient=4, lab=7, effort=13)),
    "wine": wine,
    "satimage (300 rows)": table(
        "satimage", {f"band {b}": slice(b, 36, 4) for b in range(4)}, 300
    ),
    "segment (300 rows)": table("segment", spans(place=5, edges=9, colour=19), 300),
    "waveform (300 rows)": table(
        "waveform", spans(start=7, middle=14, end=21, noise=40), 300
    ),
    "ionosphere": table(
        "ionosphere", {"real": slice(0, 34, 2), "imaginary": slice(1, 34, 2)}
    ),
    "usps (300 rows)": table("usps", quarters(16), 300),
    "brain_tumor1": table("brain_tumor1", ALL),
    "brain_tumor2": table("brain_tumor2", ALL),
}


# ------------------------------------------------------------------ the methods


def side_by_side(blocks, kernel="auto"):
    """The columns of all views in one array, and where each view is in it."""
    found, start = [], 0
    for name, block in blocks.items():
        end = start + block.shape[1]
        found.append((name.replace("__", "_"), kernel, slice(start, end)))
        start = end
    return np.hstack(list(blocks.values())), found


class Task:
    """One split: rows and views."""

    def __init__(self, blocks, y, train, test):
        X, self.views = side_by_side(blocks)
        self.X, self.T, self.y, self.t = X[train], X[test], y[train], y[test]
        self.folds = int(np.clip(np.bincount(y[train]).min(), 2, 5))

    def each_view(self, model):
        """``model`` on the columns of each view."""
        return [
            (name, make_pipeline(columns_of(columns), model(name)))
            for name, _, columns in self.views
        ]

    def score(self, model):
        """Accuracy, balanced accuracy, log loss on the test rows, and CPU seconds."""
        labels, seconds, _ = clocked(lambda: model.fit(self.X, self.y).predict(self.T))
        loss = None
        if hasattr(model, "predict_proba"):
            loss = log_loss(self.t, model.predict_proba(self.T), labels=model.classes_)
        right = float(np.mean(labels == self.t))
        return right, balanced_accuracy_score(self.t, labels), loss, seconds


def columns_of(columns):
    return ColumnTransformer([("view", "passthrough", columns)])


class MeanKernelSVC(SVC):
    """An SVM on the mean of the kernels, which are centred and of equal trace."""

    def __init__(self, views, C=1.0):
        super().__init__(C=C, kernel="precomputed")
        self.views = views

    def fit(self, X, y):
        self.mean_ = KernelFDA(self.views, alpha=1.0).fit(X, y)
        self.weights_ = np.asarray(self.mean_.kernel_weights_)
        search = GridSearchCV(
            SVC(kernel="precomputed"),
            {"C": np.logspace(-2, 4, 7)},
            cv=int(np.clip(np.bincount(y).min(), 2, 5)),
        )
        self.search_ = search.fit(self._kernel(X), y)
        return self

    def _kernel(self, X):
        rows = self.mean_._observed_rows(X, "predict")
        identity = np.eye(self.mean_.kernel_map_.source.n_samples)
        return self.mean_.kernel_map_.project(rows, self.weights_, identity)

    def predict(self, X):
        return self.search_.predict(self._kernel(X))


class BestView:
    """Our classifier on the view with the smallest leave-one-out error."""

    def __init__(self, views):
        self.views = views

    def fit(self, X, y):
        models = [KernelFDA([view]).fit(X, y) for view in self.views]
        self.best_ = min(models, key=lambda model: model.loo_error_)
        self.classes_ = self.best_.classes_
        return self

    def predict(self, X):
        return self.best_.predict(X)

    def predict_proba(self, X):
        return self.best_.predict_proba(X)


def stack_of_views(task):
    """Logistic regression on held-out class scores of every view."""
    final = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        {"logisticregression__C": np.logspace(-3, 1, 5)},
        cv=task.folds,
        scoring="neg_log_loss",
    )
    return StackingClassifier(
        task.each_view(lambda name: KernelFDA()),
        final,
        cv=task.folds,
        stack_method="decision_function",
    )


def blend(task):
    """The mean of the probabilities of the default, equal weights and the stack."""
    parts = [
        ("learned", MultipleKernelFDA(task.views)),
        ("uniform", KernelFDA(task.views)),
        ("stack", stack_of_views(task)),
    ]
    return task.score(VotingClassifier(parts, voting="soft"))


def rbf_search(folds, factors=(0.1, 0.3, 1, 3), costs=(0.1, 1, 10, 100, 1000)):
    """A Gaussian SVM; gamma in units of one over the number of columns."""

    def search(width):
        grid = {"svc__C": costs, "svc__gamma": [factor / width for factor in factors]}
        return GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=folds)

    return search


def late_fusion(task):
    """The mean of the calibrated probabilities of an SVM on every view."""
    widths = {name: c.stop - c.start for name, _, c in task.views}
    search = rbf_search(min(task.folds, 3), factors=(1,), costs=(1, 10, 100))
    model = VotingClassifier(
        task.each_view(
            lambda name: CalibratedClassifierCV(
                search(widths[name]), cv=min(task.folds, 3), ensemble=False
            )
        ),
        voting="soft",
    )
    return task.score(model)


def ridge(task):
    return task.score(
        make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(-2, 5, 15)))
    )


def ours(**parameters):
    return lambda task: task.score(MultipleKernelFDA(task.views, **parameters))


METHODS = {
    "default": ours(),
    "norm 1": ours(norm=1),
    "norm 4/3": ours(norm=4 / 3),
    "norm 2": ours(norm=2),
    "norm 1, alpha learned": ours(norm=1, alpha="learn"),
    "uniform (KernelFDA)": lambda task: task.score(KernelFDA(task.views)),
    "MultipleKernelSVC": lambda task: task.score(MultipleKernelSVC(task.views)),
    "best single view": lambda task: task.score(BestView(task.views)),
    "stacking of views": lambda task: task.score(stack_of_views(task)),
    "late fusion of SVMs": late_fusion,
    "SVM, mean kernel": lambda task: task.score(MeanKernelSVC(task.views)),
    "SVM, all columns": lambda task: task.score(
        rbf_search(task.folds)(task.X.shape[1])
    ),
    "ridge, all columns": ridge,
    "random forest": lambda task: task.score(
        RandomForestClassifier(500, random_state=0)
    ),
    "gradient boosting": lambda task: task.score(
        HistGradientBoostingClassifier(min_samples_leaf=5, random_state=0)
    ),
    "blend": blend,
}


# ------------------------------------------------------------------ run and report


def measure(blocks, y, train, test, done):
    """All methods on one split; those ``done`` are not repeated."""
    warnings.simplefilter("ignore")
    task = Task(blocks, y, train, test)
    for method, score in METHODS.items():
        if method not in done:
            done[method] = score(task)
    return done


def run(n_splits, n_jobs):
    RESULTS.parent.mkdir(exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, load in SETS.items():
        try:
            blocks, y = load()
        except FileNotFoundError as error:
            print(f"{name}: left out: {error}")
            continue
        done = results.setdefault(name, {})
        splitter = StratifiedShuffleSplit(n_splits, test_size=0.4, random_state=7)
        found = Parallel(n_jobs)(
            delayed(measure)(blocks, y, train, test, done.get(str(number), {}))
            for number, (train, test) in enumerate(splitter.split(y, y))
        )
        done.update({str(number): split for number, split in enumerate(found)})
        RESULTS.write_text(json.dumps(results, indent=0))
        means = {m: np.mean([split[m][0] for split in found]) for m in METHODS}
        print(name, {m: round(float(100 * a), 1) for m, a in means.items()}, flush=True)
    return results


def means_over_splits(results, quantity):
    """(sets, methods); NaN where a method has no such quantity."""
    return np.array(
        [
            [
                np.mean(
                    [
                        np.nan if s[m][quantity] is None else s[m][quantity]
                        for s in splits.values()
                    ]
                )
                for m in METHODS
            ]
            for splits in results.values()
        ]
    )


def page(results):
    """The accuracy table and the paired differences, as Markdown."""
    methods = list(METHODS)
    accuracy, balanced, loss, seconds = (
        means_over_splits(results, quantity) for quantity in range(4)
    )
    lines = ["| set | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for name, row in zip(results, accuracy, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{100 * a:.1f}" for a in row) + " |")
    for title, table, form in (
        ("**mean**", 100 * accuracy, "**{:.1f}**"),
        ("balanced accuracy", 100 * balanced, "{:.1f}"),
        ("log loss", loss, "{:.2f}"),
        ("CPU seconds per fit", seconds, "{:.2f}"),
    ):
        cells = [form.format(v) if np.isfinite(v) else "" for v in table.mean(axis=0)]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| default minus | accuracy | sets won / lost | balanced accuracy | log loss |",
        "|---|---|---|---|---|",
    ]
    for j, method in enumerate(methods[1:], start=1):
        right = 100 * (accuracy[:, 0] - accuracy[:, j])
        won, lost = int(np.sum(right > 0.05)), int(np.sum(right < -0.05))
        cells = [
            with_error(right, 1),
            f"{won} / {lost}",
            with_error(100 * (balanced[:, 0] - balanced[:, j]), 1),
            with_error(loss[:, 0] - loss[:, j], 2),
        ]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_error(differences, digits):
    """Mean and standard error over the sets."""
    if not np.all(np.isfinite(differences)):
        return ""
    return f"{Estimate.of(differences):+.{digits}f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write-docs", action="store_true")
    arguments = parser.parse_args()
    text = page(run(arguments.splits, arguments.jobs))
    print(text)
    if arguments.write_docs:
        before, mark, _ = PAGE.read_text().partition("<!-- study -->\n")
        PAGE.write_text(before + mark + "\n" + text + "\n")


if __name__ == "__main__":
    main()

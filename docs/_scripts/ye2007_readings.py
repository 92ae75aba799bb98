"""Which interpretation of Ye, Chen, Ji (2007) comes closest to its results?

    KERNELWEAVE_DATA=folder python docs/_scripts/ye2007_readings.py [--splits 100]

Accuracy of SDP_theta,lambda on splits other than those of the tables: for several
scalings of the columns, choices of a hundred rows per class of USPS, and classifiers
after projection; and for Sonar with choices made in hindsight, on the test rows. Prints
the tables in docs/papers/ye2007.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.preprocessing import minmax_scale, normalize, scale

from kernelweave.datasets import fetch_views
from kernelweave.kernels import RBF
from kernelweave.models import KernelFDA, MultipleKernelFDA

sys.path.insert(0, str(Path(__file__).parents[2]))
from reproduce import ye2007
from reproduce.experiment import Split
from reproduce.results import Estimate
from reproduce.run import split_generator

Data = tuple[np.ndarray, np.ndarray]
#: Name of the table and number of classes used; None: all classes, with all rows.
ROWS: dict[str, tuple[str, int | None]] = {
    "Sonar": ("sonar", None),
    "Heart": ("heart", None),
    "Cancer": ("breast_cancer_wisconsin", None),
    "Ionosphere": ("ionosphere", None),
    "Wine (3)": ("wine", None),
    "USPS (3)": ("usps", 3),
    "USPS (6)": ("usps", 6),
    "USPS (8)": ("usps", 8),
    "Waveform (3)": ("waveform", 3),
}
PRINTED = {
    row: cells["accuracy"].value
    for experiment in ye2007.PAPER.experiments
    for (row, column), cells in experiment.published.items()
    if column == ye2007.LEARNED
}


SCALINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "unscaled": lambda X: X,
    "unit variance": scale,
    "[0, 1]": minmax_scale,
    "[-1, 1]": partial(minmax_scale, feature_range=(-1, 1)),
    "rows of unit length": normalize,
}
#: Kernel widths are a factor of 2.15 apart; these shift the data relative to them.
FACTORS = (0.25, 0.35, 0.5, 0.7, 1.4, 2.0, 2.8, 4.0)


def principal(X: np.ndarray, rank: int, whiten: bool = False) -> np.ndarray:
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return np.sqrt(len(X)) * U[:, :rank] if whiten else U[:, :rank] * s[:rank]


def more_scalings(X: np.ndarray) -> dict[str, np.ndarray]:
    """Further scalings of non-negative columns, such as those of Sonar."""
    unit, standard = minmax_scale(X), scale(X)
    ranks = np.argsort(np.argsort(X, axis=0), axis=0) / (len(X) - 1)
    found = {f"[0, 1] times {c:g}": c * unit for c in FACTORS}
    bases = {
        "unscaled": X,
        "[0, 1]": unit,
        "unit variance": standard,
        "roots in [0, 1]": minmax_scale(np.sqrt(X)),
        "logarithms": scale(np.log(X + 1e-3)),
        "ranks": ranks,
    }
    for title, base in bases.items():
        if title not in SCALINGS:
            found[title] = base
        centred = scale(base, with_std=False)
        found[f"{title}, centred, rows of unit length"] = normalize(centred)
        found[f"{title}, 20 principal components"] = principal(base, 20)
    found["whitened"] = principal(X, X.shape[1], whiten=True)
    return found


def fit(split: Split) -> KernelFDA | MultipleKernelFDA:
    """SDP_theta,lambda: (40) for two classes, (37) with learned lambda for more."""
    X, y = split.train, split.y_train
    if len(np.unique(y)) > 2:
        problem = ye2007.block_problem(X, y)
        alpha, weights = problem.split(ye2007.best_weights(problem))
        model = KernelFDA(ye2007.VIEWS, alpha=alpha, kernel_weights=weights, cv=None)
        return model.fit(X, y)
    return MultipleKernelFDA(ye2007.VIEWS, norm=1, alpha="learn").fit(X, y)


def split_of(data: Data, number: int) -> Split:
    """A split that is used in none of the tables."""
    several = len(np.unique(data[1])) > 2
    draw = ye2007.three_to_two if several else ye2007.four_to_one
    return draw(data, split_generator("readings", number))


def accuracy(data: Data, number: int) -> float:
    split = split_of(data, number)
    return 100.0 * fit(split).score(split.test, split.y_test)


def by_classifier(data: Data, number: int) -> list[float]:
    """Gaussians of equal variance, nearest centroids, nearest neighbours."""
    split = split_of(data, number)
    model = fit(split)
    train, test = model.transform(split.train), model.transform(split.test)
    found = [model.score(split.test, split.y_test)]
    for other in (NearestCentroid(), KNeighborsClassifier(1)):
        found.append(other.fit(train, split.y_train).score(test, split.y_test))
    return [100.0 * share for share in found]


def usps(classes: int, first_digit: int, number: int | None) -> Data:
    """The first hundred rows of each digit, or a hundred drawn at random."""
    bunch = fetch_views("usps", as_frame=False)
    rng = None if number is None else split_generator("rows of usps", number)
    chosen = []
    for digit in range(first_digit, first_digit + classes):
        own = np.flatnonzero(bunch.target == digit)
        own = own if rng is None else rng.permutation(own)
        chosen.append(own[: ye2007.MOST_PER_CLASS])
    rows = np.concatenate(chosen)
    return bunch.data[rows], bunch.target[rows]


def text(values: list[float]) -> str:
    """Mean and standard error."""
    return f"{Estimate.of(np.array(values)):.2f}"


def scalings(run: Parallel, splits: int) -> Iterator[list[str]]:
    yield ["data set", "paper", *SCALINGS]
    for row, (name, classes) in ROWS.items():
        X, y = ye2007.table(name, classes, scaled=False)
        cells = [
            text(run(delayed(accuracy)((scaled(X), y), i) for i in range(splits)))
            for scaled in SCALINGS.values()
        ]
        yield [row, f"{PRINTED[row]:.2f}", *cells]


def choices_of_usps(run: Parallel, splits: int) -> Iterator[list[str]]:
    """Choices of rows, a new random one for every tenth of the splits."""
    yield ["data set", "paper", "first rows", "random rows", "random rows, 1 to k"]
    draws = max(2, splits // 10)
    for classes in (3, 6, 8):
        row = f"USPS ({classes})"
        fixed = usps(classes, 0, None)
        cells = [text(run(delayed(accuracy)(fixed, i) for i in range(splits)))]
        for first in (0, 1):
            drawn = [usps(classes, first, d) for d in range(draws)]
            means = [
                np.mean(run(delayed(accuracy)(data, i) for i in range(10)))
                for data in drawn
            ]
            cells.append(f"{text(means)} (sd {np.std(means, ddof=1):.2f})")
        yield [row, f"{PRINTED[row]:.2f}", *cells]


def classifiers(run: Parallel, splits: int) -> Iterator[list[str]]:
    yield ["data set", "paper", "Gaussians", "nearest centroids", "nearest neighbours"]
    rows = {r: rows for e in ye2007.PAPER.experiments[:2] for r, rows in e.rows.items()}
    for row, data in rows.items():
        found = run(delayed(by_classifier)(data(), i) for i in range(splits))
        yield [row, f"{PRINTED[row]:.2f}", *map(text, zip(*found, strict=True))]


WIDTHS, ALPHAS = np.logspace(-0.5, 1, 13), np.logspace(-5, 0, 6)
SHIFTS = np.linspace(-0.3, 0.3, 25)


def by_threshold(data: Data, number: int) -> np.ndarray:
    """Thresholds between the centroids of two classes, up to 0.3 from the middle."""
    split = split_of(data, number)
    model = fit(split)
    train, test = (model.transform(X)[:, 0] for X in (split.train, split.test))
    low, high = (train[split.y_train == c].mean() for c in (0, 1))
    place = (test - low) / (high - low)  # 0 at one centroid, 1 at the other
    right = (place > 0.5 + SHIFTS[:, None]) == (split.y_test == 1)
    return 100.0 * right.mean(axis=1)


def by_single_kernel(data: Data, number: int) -> np.ndarray:
    """A single kernel, with width and alpha from a grid."""
    split = split_of(data, number)
    found = []
    for width in WIDTHS:
        views = [("all", RBF(gamma=1.0 / width**2), slice(None))]
        for alpha in ALPHAS:
            model = KernelFDA(views, alpha=alpha).fit(split.train, split.y_train)
            found.append(100.0 * model.score(split.test, split.y_test))
    return np.array(found)


def sonar_in_hindsight(run: Parallel, splits: int) -> Iterator[list[str]]:
    yield ["chosen in hindsight", "accuracy"]
    data = ye2007.table("sonar")
    for title, method in (
        ("nothing", accuracy),
        ("threshold", by_threshold),
        ("a single kernel and alpha", by_single_kernel),
    ):
        found = np.array(run(delayed(method)(data, i) for i in range(splits)))
        found = found.reshape(splits, -1)
        yield [title, text(found[:, np.argmax(found.mean(axis=0))])]


def more_on_sonar(run: Parallel, splits: int) -> Iterator[list[str]]:
    yield ["columns", "accuracy"]
    X, y = ye2007.table("sonar", scaled=False)
    for title, scaled in more_scalings(X).items():
        found = run(delayed(accuracy)((scaled, y), i) for i in range(splits))
        yield [title, text(found)]


TABLES = (
    scalings,
    choices_of_usps,
    classifiers,
    sonar_in_hindsight,
    more_on_sonar,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="one of the tables, by its name")
    options = parser.parse_args()
    run = Parallel(n_jobs=options.jobs)
    for table in TABLES:
        if options.only not in ("", table.__name__):
            continue
        print(f"\n{table.__name__.replace('_', ' ')}, {options.splits} splits\n")
        for i, cells in enumerate(table(run, options.splits)):
            print("| " + " | ".join(cells) + " |", flush=True)
            if i == 0:
                print("|" + " --- |" * len(cells))


if __name__ == "__main__":
    main()

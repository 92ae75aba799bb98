"""Data and kernels of the benchmarks, computed before any clock starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from kernelweave.fits.targets import binary_target, reduced_class_target
from kernelweave.kernels import RBF, DenseBank

#: Widths of the papers: exp(-d^2 / sigma^2).
PAPER_WIDTHS = np.logspace(-1, 2, 10)


@dataclass(frozen=True)
class Split:
    """Training and test kernels, (p, n, n) and (p, m, n), with class codes."""

    train: np.ndarray
    test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray


def gaussians(
    X: np.ndarray, Z: np.ndarray, groups: list[np.ndarray], widths: np.ndarray
) -> np.ndarray:
    """``exp(-d^2 / sigma^2)`` for every group of columns and width, (p, n, m).

    Widths are multiplied by the square root of the fraction of columns in the group,
    so that they mean the same for large and small groups.
    """
    stack = np.empty((len(groups) * len(widths), len(X), len(Z)))
    for g, columns in enumerate(groups):
        squared = euclidean_distances(X[:, columns], Z[:, columns], squared=True)
        squared *= X.shape[1] / len(columns)
        for w, sigma in enumerate(widths):
            np.exp(-squared / sigma**2, out=stack[g * len(widths) + w])
    return stack


def column_groups(d: int, count: int, seed: int = 0) -> list[np.ndarray]:
    """All columns, then random halves of them."""
    rng = np.random.default_rng(seed)
    halves = [np.sort(rng.choice(d, d // 2, replace=False)) for _ in range(count - 1)]
    return [np.arange(d), *halves]


def standardized(
    X: np.ndarray, y: np.ndarray, n: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A stratified split into n training rows and the rest, columns standardised."""
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, train_size=n, stratify=y, random_state=seed
    )
    scaler = StandardScaler().fit(X_train)
    return scaler.transform(X_train), scaler.transform(X_test), y_train, y_test


def cancer(n: int, p: int) -> Split:
    """Breast cancer, two classes; the papers' ten widths on p / 10 column groups."""
    return _split(*load_breast_cancer(return_X_y=True), n, p)


def digits_halves(n: int, p: int) -> Split:
    """Digits 0 to 4 against 5 to 9; the papers' ten widths on p / 10 column groups."""
    X, y = load_digits(return_X_y=True)
    return _split(X, (y > 4).astype(int), n, p)


def digits(n: int, p: int) -> Split:
    """Digits, ten classes; the papers' ten widths on p / 10 column groups."""
    return _split(*load_digits(return_X_y=True), n, p)


def _split(X: np.ndarray, y: np.ndarray, n: int, p: int) -> Split:
    X_train, X_test, y_train, y_test = standardized(X, y, n)
    groups = column_groups(X.shape[1], p // 10)
    train = gaussians(X_train, X_train, groups, PAPER_WIDTHS)
    test = gaussians(X_test, X_train, groups, PAPER_WIDTHS)
    return Split(train, test, y_train, y_test)


def digits_bank(n: int, p: int, k: int) -> tuple[DenseBank, np.ndarray]:
    """Digits, ten classes or (k = 1) 0 to 4 against 5 to 9: bank and target (n, k).

    Gaussians at 5 widths from 0.3 to 3 times the median distance, on all pixels and on
    random halves of them.
    """
    X, y = load_digits(return_X_y=True)
    X, _, y, _ = standardized(X, y, n)
    groups = column_groups(X.shape[1], p // 5)
    widths = widths_around_median(X, 5)
    bank = DenseBank.from_kernels(gaussians(X, X, groups, widths))
    if k == 1:
        return bank, binary_target((y > 4).astype(int))
    return bank, reduced_class_target(y, 10)[0]


def ten_classes(n: int, d: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic rows (n, d) in ten classes, fifteen informative columns."""
    X, y = make_classification(
        n_samples=n,
        n_features=d,
        n_informative=15,
        n_redundant=0,
        n_classes=10,
        class_sep=1.5,
        random_state=0,
    )
    return StandardScaler().fit_transform(X), y


def overlapping(n: int, k: int = 10, d: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping classes in d columns: X (n, d) and codes (n,)."""
    rng, codes = np.random.default_rng(0), np.arange(n) % k
    return rng.normal(size=(n, d)) + rng.normal(size=(k, d))[codes], codes


def ten_gaussians(X: np.ndarray) -> list[RBF]:
    """Ten Gaussian kernels, of widths of 0.3 to 3 typical distances."""
    typical = 2.0 * np.sum(np.var(X, axis=0))  # the mean squared distance of two rows
    widths = np.logspace(np.log10(0.3), np.log10(3.0), 10)
    return [RBF(gamma=float(1.0 / (typical * width**2))) for width in widths]


def widths_around_median(X: np.ndarray, count: int) -> np.ndarray:
    """Widths from 0.3 to 3 times the median distance, (count,)."""
    middle = np.median(euclidean_distances(X[:500]))
    return middle * np.logspace(np.log10(0.3), np.log10(3.0), count)

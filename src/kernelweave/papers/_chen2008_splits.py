"""The data of Chen et al. (2008), split into halves, with a width for the kernel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelweave.datasets import fetch_table, load_wine
from kernelweave.kernels import RBF
from kernelweave.models import KernelFDA
from kernelweave.papers.experiment import Split

__all__ = [
    "GENE_WIDTHS",
    "PER_CLASS",
    "WIDTHS",
    "Halves",
    "Rows",
    "first_rows",
    "halves",
    "halves_and_setting",
    "normalised",
    "rows_of",
    "with_setting",
]

#: Maximum number of rows per class, as in the paper.
PER_CLASS = 300
WIDTHS = (1e-3, 1e-2, 0.1, 0.5, 1.0)
GENE_WIDTHS = (10.0, 50.0, 100.0, 200.0)
#: The widths in the figures, where they are not chosen.
FIGURE_WIDTHS = {"satimage": 0.01, "segment": 0.01, "wine": 0.5, "usps": 0.1}


@dataclass(frozen=True)
class Halves(Split):
    """A split, and the widths among which its Gaussian kernel is chosen.

    Attributes
    ----------
    widths : tuple of float
        The kernel is ``exp(-|x - z|^2 / sigma)`` with sigma one of these.
    """

    widths: tuple[float, ...]

    @functools.cached_property
    def sigma(self) -> float:
        """The width with the smallest leave-one-out error."""
        if len(self.widths) == 1:
            return self.widths[0]
        models = [KernelFDA(self.views((sigma,))) for sigma in self.widths]
        errors = [m.fit(self.train, self.y_train).loo_error_ for m in models]
        return self.widths[int(np.argmin(errors))]

    def views(self, sigmas: Sequence[float]) -> list[tuple[str, list[RBF], slice]]:
        """Kernels of these widths on all columns."""
        kernels = [RBF(gamma=1.0 / sigma) for sigma in sigmas]
        return [("all", kernels, slice(0, self.train.shape[1]))]


#: Rows, their classes, and the widths to choose from.
Rows = tuple[np.ndarray, np.ndarray, tuple[float, ...]]


@functools.cache
def rows_of(name: str, per_class: int = PER_CLASS) -> Rows:
    """The rows of a table that are used, after scaling."""
    bunch = load_wine(as_frame=False) if name == "wine" else None
    bunch = bunch or fetch_table(name, as_frame=False)
    X, y = first_rows(bunch.data, bunch.target, per_class)
    return normalised(X), y, GENE_WIDTHS if "tumor" in name else WIDTHS


def first_rows(
    X: np.ndarray, y: np.ndarray, per_class: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first ``per_class`` rows of each class, or all if there are fewer."""
    first = [np.flatnonzero(y == c)[:per_class] for c in np.unique(y)]
    return X[np.concatenate(first)], y[np.concatenate(first)]


def normalised(X: np.ndarray) -> np.ndarray:
    """Columns in [0, 1], divided by the square root of their number."""
    span = np.ptp(X, axis=0)
    return (X - X.min(axis=0)) / np.where(span > 0, span, 1.0) / np.sqrt(X.shape[1])


def halves(data: Rows, rng: np.random.Generator) -> Halves:
    """A split into training rows and as many test rows."""
    X, y, widths = data
    split = Split.draw(X, y, 0.5, rng)
    return Halves(split.train, split.y_train, split.test, split.y_test, widths)


def with_setting(name: str, setting: float, per_class: int) -> tuple[Rows, float]:
    """A row of a figure: a data set with a fixed width, and a dimension or C."""
    X, y, _ = rows_of(name, per_class)
    return (X, y, (FIGURE_WIDTHS[name],)), setting


def halves_and_setting(
    data: tuple[Rows, float], rng: np.random.Generator
) -> tuple[Halves, float]:
    """A split of a row of a figure."""
    return halves(data[0], rng), data[1]

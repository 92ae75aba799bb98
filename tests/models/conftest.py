"""Problems shared by the tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from kernelweave.kernels import RBF, Laplacian, Linear, Polynomial

#: Kernels with all parameters fixed, so that they do not depend on the rows chosen.
VIEWS = [
    ("first", RBF(gamma=0.1), [0, 1, 2]),
    ("second", [Linear(), RBF(gamma=0.3)], [3, 4, 5]),
    ("third", [Laplacian(gamma=0.2), Polynomial(2, gamma=0.2)], slice(6, 9)),
]
COLUMNS = [[0, 1, 2], [3, 4, 5], [3, 4, 5], [6, 7, 8], [6, 7, 8]]


@dataclass
class Problem:
    """Training and new rows, as columns and as kernels."""

    X: np.ndarray  # (n, 9)
    y: np.ndarray
    new: np.ndarray  # (m, 9)
    views: list
    new_y: np.ndarray

    def grams(self, rows: np.ndarray, references: np.ndarray) -> np.ndarray:
        """Raw kernels as a stack (m, n, 5)."""
        kernels = [
            kernel
            for _, given, _ in self.views
            for kernel in (given if isinstance(given, list) else [given])
        ]
        return np.stack(
            [
                kernel(rows[:, columns], references[:, columns])
                for kernel, columns in zip(kernels, COLUMNS, strict=True)
            ],
            axis=-1,
        )

    @property
    def K(self) -> np.ndarray:
        """Kernels between the training rows, (n, n, 5)."""
        return self.grams(self.X, self.X)

    @property
    def new_K(self) -> np.ndarray:
        """Kernels between new and training rows, (m, n, 5)."""
        return self.grams(self.new, self.X)


@pytest.fixture
def make_problem(rng):
    """Draw n rows of k classes; columns 0-2 and 3-5 are informative."""

    def make(k=2, n=60, m=25, separation=1.5):
        labels = np.arange(n + m) % k
        centres = rng.normal(size=(k, 6))
        centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
        rows = rng.normal(size=(n + m, 9))
        rows[:, :6] += centres[labels]
        return Problem(rows[:n], labels[:n], rows[n:], list(VIEWS), labels[n:])

    return make


@pytest.fixture
def regression(rng):
    """A smooth function of columns 0 and 3 with noise."""
    rows = rng.normal(size=(85, 9))
    y = np.sin(rows[:, 0]) + 0.5 * rows[:, 3] + 0.2 * rng.normal(size=85)
    return Problem(rows[:60], y[:60], rows[60:], list(VIEWS), y[60:])

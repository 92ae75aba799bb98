"""Nystroem features of any kernel, and the choice of their landmarks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from kernelweave._array import Array
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.features.base import FeatureMap

__all__ = [
    "LANDMARKS",
    "NystroemFeatures",
    "kernel_kmeans_plus_plus",
    "leverage_scores",
    "pivoted_cholesky",
    "uniform",
]

#: Leverage scores are computed recursively if there are more rows than this multiple of
#: the number of landmarks, and more than this absolute number.
DIRECT_FACTOR, DIRECT_ROWS = 2, 64


def uniform(
    kernel: Kernel, X: np.ndarray, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices (m,) of m rows of X (n, d), all equally likely."""
    return np.sort(rng.choice(X.shape[0], size=m, replace=False))


def kernel_kmeans_plus_plus(
    kernel: Kernel, X: np.ndarray, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices (m,) of m rows far from each other.

    The seeding of k-means++ (Arthur and Vassilvitskii 2007) with the kernel distance: a
    row is drawn with probability proportional to the minimum of
    ``k(x, x) + k(l, l) - 2 k(x, l)`` over the landmarks l drawn so far.
    """
    n = X.shape[0]
    diagonal = _diagonal(kernel, X)
    chosen = [int(rng.integers(n))]
    distance = np.full(n, np.inf)
    while len(chosen) < m:
        last = chosen[-1]
        column = kernel.gram(X, X[last : last + 1])[:, 0]
        distance = np.minimum(distance, diagonal + diagonal[last] - 2.0 * column)
        distance = np.maximum(distance, 0.0)
        distance[chosen] = 0.0
        total = float(np.sum(distance))
        if not total > 0:  # all remaining rows are duplicates of landmarks
            break
        chosen.append(int(np.searchsorted(np.cumsum(distance), rng.random() * total)))
    return np.sort(np.unique(chosen))


def pivoted_cholesky(
    kernel: Kernel, X: np.ndarray, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices (m,) of m rows, each drawn according to the residual diagonal.

    Chen, Epperly, Tropp and Webber (2022): a partial Cholesky factorisation of the
    kernel whose pivots are drawn with probability proportional to the diagonal of the
    residual. It finds rows that resemble no landmark, such as those of a rare cluster.
    """
    left = _diagonal(kernel, X)
    factor = np.zeros((X.shape[0], m))
    chosen: list[int] = []
    smallest = 1e-12 * float(np.max(left))
    while len(chosen) < m and float(np.max(left)) > smallest:
        j, total = len(chosen), np.cumsum(left)
        row = int(np.searchsorted(total, rng.random() * total[-1]))
        row = row if left[row] > smallest else int(np.argmax(left))
        column = kernel.gram(X, X[row : row + 1])[:, 0]
        column = column - factor[:, :j] @ factor[row, :j]
        factor[:, j] = column / np.sqrt(max(column[row], smallest))
        left = np.maximum(left - factor[:, j] ** 2, 0.0)
        left[row] = 0.0
        chosen.append(row)
    return np.sort(np.array(chosen, dtype=int))


def leverage_scores(
    kernel: Kernel, X: np.ndarray, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices (m,) of m rows drawn according to their ridge leverage scores.

    The recursion of Musco and Musco (2017): the scores ``(K (K + lambda I)^-1)_ii`` of
    all rows are estimated through landmarks drawn from half of them, whose own scores
    are estimated from half of that half, and so on. lambda is the sum of all but the m
    largest eigenvalues, divided by m.
    """
    probability = _recursive_scores(kernel, X, np.arange(X.shape[0]), m, rng)
    probability = probability / np.sum(probability)
    return np.sort(rng.choice(X.shape[0], size=m, replace=False, p=probability))


def _recursive_scores(
    kernel: Kernel, X: np.ndarray, rows: np.ndarray, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Estimated leverage scores of X[rows], all positive."""
    size = max(DIRECT_FACTOR * m, DIRECT_ROWS)
    if len(rows) <= size:
        landmarks = rows
    else:
        half = np.sort(rng.choice(rows, size=len(rows) // 2, replace=False))
        scores = _recursive_scores(kernel, X, half, m, rng)
        size = min(len(half), size)
        landmarks = rng.choice(half, size=size, replace=False, p=scores / scores.sum())
    square = kernel.gram(X[landmarks])
    values = np.linalg.eigvalsh(square)
    tail = max(float(np.sum(values[: max(len(values) - m, 1)])), 0.0)
    penalty = max(tail / m, 1e-4 * float(values[-1]))
    cross = kernel.gram(X[rows], X[landmarks])  # (r, l)
    # k_ii - k_i'(K + lambda I)^-1 k_i is lambda times the score, given the landmarks
    factor = np.linalg.cholesky(square + penalty * np.eye(len(landmarks)))
    explained = np.sum(solve_triangular(factor, cross.T, lower=True) ** 2, axis=0)
    left = (_diagonal(kernel, X[rows]) - explained) / penalty
    return np.clip(left, 1e-6, 1.0)


def _diagonal(kernel: Kernel, X: np.ndarray) -> np.ndarray:
    """``k(x, x)`` of each row, (n,)."""
    if kernel.base in ("sqeuclidean", "l1", "chi2"):  # at distance 0 from itself
        return kernel.from_base(np.zeros((X.shape[0], 1)))[:, 0]
    parts = [
        np.diagonal(kernel.gram(X[i : i + 256])) for i in range(0, X.shape[0], 256)
    ]
    return np.concatenate(parts)


Choose = Callable[[Kernel, np.ndarray, int, np.random.Generator], np.ndarray]
LANDMARKS: dict[str, Choose] = {
    "uniform": uniform,
    "kmeans++": kernel_kmeans_plus_plus,
    "leverage": leverage_scores,
    "pivoted": pivoted_cholesky,
}


class NystroemFeatures(FeatureMap):
    """``z(x) = L^(-1/2) V' k(X_m, x)`` with ``k(X_m, X_m) = V L V'``.

    Williams and Seeger (2001): the projection of the kernel's feature vectors onto the
    span of those of m landmarks ``X_m``. It is exact for the landmarks, never
    overestimates ``k(x, x)``, and adapts to the data, whereas random features depend on
    the kernel alone.

    Parameters
    ----------
    kernel : Kernel
        Any kernel, resolved.
    sample : ndarray of shape (s, d)
        Rows from which landmarks are chosen.
    n_features : int
        Number m of landmarks, at most s. Directions that are rounding error are
        dropped.
    rng : numpy.random.Generator
        Draws the landmarks.
    landmarks : {"uniform", "kmeans++", "leverage", "pivoted"}, default="pivoted"
        How they are drawn.
    precision : float, default=2.2e-16
        Machine precision of the rows to be mapped.
    """

    how = "Nystroem"
    arrays = ("landmarks", "projection")

    def __init__(
        self,
        kernel: Kernel,
        sample: np.ndarray,
        n_features: int,
        rng: np.random.Generator,
        landmarks: str = "pivoted",
        precision: float = float(np.finfo(np.float64).eps),
    ) -> None:
        if landmarks not in LANDMARKS:
            raise ValueError(
                f"landmarks must be one of {sorted(LANDMARKS)}, got {landmarks!r}"
            )
        rows = np.unique(np.asarray(sample, dtype=np.float64), axis=0)
        m = min(int(n_features), len(rows))
        chosen = LANDMARKS[landmarks](kernel, rows, m, rng)
        self.landmarks = rows[chosen]  # (m, d)
        if len(chosen) == 0:  # a kernel that is zero everywhere
            self.landmarks = rows[:1]
        values, vectors = np.linalg.eigh(kernel.gram(self.landmarks))
        kept = values > 10.0 * len(values) * precision * values[-1]
        self.projection = vectors[:, kept] / np.sqrt(values[kept])  # (m, D)
        super().__init__(kernel, max(int(np.sum(kept)), 1))
        if not np.any(kept):
            self.projection = np.zeros((len(values), 1))

    def transform(self, X: Array) -> Array:
        """Features (m, D) of the rows X (m, d)."""
        return self.kernel.gram(X, self.landmarks) @ self.projection

    def is_reference(self, X: np.ndarray) -> np.ndarray:
        """Which rows are landmarks."""
        known = {row.tobytes() for row in np.ascontiguousarray(self.landmarks)}
        rows = np.ascontiguousarray(X, dtype=np.float64)
        return np.array([row.tobytes() in known for row in rows], dtype=bool)

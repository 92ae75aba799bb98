"""The bank of explicit features: p kernels as products of a tall matrix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from scipy import linalg

from kernelweave._array import (
    Array,
    as_float,
    from_numpy,
    is_numpy,
    namespace,
    row_chunks,
    squared_norm,
    take,
    to_numpy,
    zeros,
)
from kernelweave.kernels.banks.dense import KernelBank, are_all

#: A weight this far below the largest adds nothing to a sum of doubles.
NOTHING = 1e-18


class FeatureBank(KernelBank):
    """Kernels ``G_i = Z_i Z_i'`` of rank D_i, held as one array Z (n, D).

    Stores ``n D`` numbers where a :class:`DenseBank` stores ``n^2 p``. The rows are
    those of the data, or a smaller set with the same second moments.

    Parameters
    ----------
    features : array of shape (n, D)
        Centred and scaled features of all kernels, side by side.
    widths : sequence of int
        The number D_i of features of each kernel.
    names : sequence of str, optional
        One name per kernel.
    n_rows : int, optional
        The number of data rows behind the kernels; by default n.
    triangular : bool, default=False
        Whether the features are upper triangular, with rows of zeros below; summing
        the kernels then takes a third of the work.
    """

    def __init__(
        self,
        features: Array,
        widths: list[int],
        names: list[str] | None = None,
        n_rows: int | None = None,
        triangular: bool = False,
    ) -> None:
        if features.ndim != 2 or features.shape[1] != sum(widths):
            raise ValueError(
                f"{sum(widths)} columns are needed for kernels of {widths} features; "
                f"got shape {tuple(features.shape)}"
            )
        super().__init__(features, len(widths), features.shape[0], names, n_rows)
        self.features = features
        self.widths = [int(width) for width in widths]
        self.triangular = triangular
        ends = np.cumsum([0, *self.widths])
        self.blocks = [slice(int(a), int(b)) for a, b in pairwise(ends)]

    #: Whether a subset of the kernels can be taken without copying n x n matrices.
    is_cheap_to_cut = True
    held_as = "features"

    def kernel(self, i: int) -> Array:
        """``G_i = Z_i Z_i'``, (n, n)."""
        own = self.features[:, self.blocks[i]]
        return own @ own.T

    def row_blocks(self) -> Iterator[tuple[slice, Array]]:
        """All kernels, a few rows at a time: the slice of rows, and (p, r, n)."""
        xp, n = namespace(self.features), self.n_samples
        own = [self.features[:, columns] for columns in self.blocks]
        for rows in row_chunks(n, self.n_kernels * n):
            yield rows, xp.stack([part[rows, :] @ part.T for part in own])

    def diagonals(self) -> np.ndarray:
        """The diagonal of every kernel in float64, (p, n)."""
        squares = to_numpy(self.features).astype(np.float64) ** 2
        return np.stack([np.sum(squares[:, part], axis=1) for part in self.blocks])

    def combine(
        self, weights: np.ndarray, out: Array | None = None, lower: bool = False
    ) -> Array:
        """``sum_i w_i Z_i Z_i'``, (n, n); kernels of weight zero are not accessed.

        With ``lower``, possibly only the triangle that :func:`cholesky` reads.
        """
        weights = np.asarray(weights, dtype=np.float64)
        used = np.flatnonzero(np.abs(weights) > NOTHING * np.max(np.abs(weights)))
        if len(used) == 0:
            return zeros((self.n_samples, self.n_samples), self.like)
        if self.triangular and is_numpy(self.features) and np.all(weights >= 0):
            return self._combine_triangular(weights, out, lower)
        columns = self.columns(used)
        spread = np.repeat(weights[used], [self.widths[i] for i in used])
        if np.all(spread >= 0):  # X X' takes half the work where the library spots it
            scaled = columns * from_numpy(np.sqrt(spread), self.like)[None, :]
            if is_numpy(scaled):  # no second matrix
                return np.matmul(scaled, scaled.T, out=out)
            return scaled @ scaled.T
        return (columns * from_numpy(spread, self.like)[None, :]) @ columns.T

    def _combine_triangular(
        self, weights: np.ndarray, out: Array | None, one_triangle: bool
    ) -> Array:
        """``U U'`` for the upper triangle U of the weighted features, by LAPACK.

        It overwrites U with the triangle of the product that :func:`cholesky` reads, so
        a factorisation needs no memory other than ``out``.
        """
        width, n = self.features.shape[1], self.n_samples
        out = np.empty((n, n), dtype=self.features.dtype) if out is None else out
        spread = np.sqrt(self.per_feature(weights))
        np.multiply(self.features, spread[None, :], out=out[:, :width])
        out[:, width:] = 0.0
        lauum = linalg.get_lapack_funcs("lauum", (out,))
        # The transpose of a C-ordered array needs no copy.
        product, _ = lauum(out.T, lower=1, overwrite_c=1)
        upper = product.T
        if one_triangle:
            return upper
        upper = np.triu(upper)
        upper += np.triu(upper, 1).T
        return upper

    def per_feature(self, values: np.ndarray) -> np.ndarray:
        """The value of its kernel for each feature, (D,), from ``values`` (p,)."""
        return np.repeat(values, self.widths)

    def feature_coef(
        self, coef: Array, weights: np.ndarray, scales: np.ndarray
    ) -> np.ndarray:
        """``s_i w_i Z_i'B`` of the kernels with weight, for features before scaling.

        The bank holds features ``s_i Z_i``, B is ``coef`` (n, k), and the result has
        the shape (D_used, k).
        """
        inner = to_numpy(self.features.T @ coef)  # (D, k)
        factors = self.per_feature(weights * scales)
        return (inner * factors[:, None])[self.per_feature(weights > 0)]

    def feature_gram(self, weights: np.ndarray) -> np.ndarray:
        """``sqrt(w_i w_j) Z_i'Z_j`` of kernels with weight, (D_used, D_used)."""
        roots = np.sqrt(self.per_feature(weights))
        used = np.flatnonzero(roots)
        features = to_numpy(self.features).astype(np.float64)[:, used] * roots[used]
        return features.T @ features

    def columns(self, kernels: np.ndarray) -> Array:
        """The features of some kernels side by side; not copied if all are taken."""
        if are_all(kernels, self.n_kernels):
            return self.features
        parts = [self.features[:, self.blocks[int(i)]] for i in kernels]
        return namespace(self.features).concat(parts, axis=1)

    def subset(self, kernels: np.ndarray) -> FeatureBank:
        """A bank of some of the kernels."""
        widths = [self.widths[int(i)] for i in kernels]
        names = [self.names[int(i)] for i in kernels]
        return FeatureBank(self.columns(kernels), widths, names, self.n_rows)

    def restrict(self, rows: np.ndarray) -> FeatureBank:
        """The kernels on some of the rows."""
        if are_all(rows, self.n_samples):
            return self
        return FeatureBank(take(self.features, rows), self.widths, self.names)

    def apply(self, b: Array) -> Array:
        """``G_i B`` for every kernel, (p, n, k), in the precision of ``b`` (n, k)."""
        features = as_float(self.features, b.dtype)
        inner = features.T @ b  # (D, k)
        parts = [features[:, block] @ inner[block, :] for block in self.blocks]
        return namespace(b).stack(parts)

    def quad(self, b: Array) -> np.ndarray:
        """``tr(B' G_i B) = norm(Z_i'B)^2`` for every kernel, (p,)."""
        inner = as_float(self.features, b.dtype).T @ b
        squares = to_numpy(namespace(inner).sum(inner * inner, axis=1))
        return block_sums(squares.astype(np.float64), self.widths)

    def sizes(self, kernels: np.ndarray) -> np.ndarray:
        """Frobenius norms of the kernels with these indices."""
        parts = [self.features[:, self.blocks[int(i)]] for i in kernels]
        narrow = [part if part.shape[1] < part.shape[0] else part.T for part in parts]
        return np.array([squared_norm(part.T @ part) ** 0.5 for part in narrow])


def block_sums(values: np.ndarray, widths: list[int]) -> np.ndarray:
    """Sums of ``values`` (D,) over the features of each kernel, (p,)."""
    parts = np.split(values, np.cumsum(widths)[:-1])  # which may be empty
    return np.array([np.sum(part) for part in parts])

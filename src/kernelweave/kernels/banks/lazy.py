"""The bank made on the fly: p kernels of n rows, none of which is stored.

A pass computes every kernel again, one tile of rows and columns after another, and each
pair of rows only once. Kernels of a view that are functions of the same products or
distances share them within a tile. Nothing is centred in memory: with the means m and g
of a kernel K, known from one first pass, and its scale s::

    sum_i w_i G_i = sum_i w_i s_i K_i - 1 u' - u 1' + v 11',   u = sum_i w_i s_i m_i
    G_i B         = s_i (K_i B - 1 m_i'B - m_i 1'B + g_i 1 1'B),   v = sum_i w_i s_i g_i
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernelweave._array import (
    Array,
    add,
    add_scaled,
    add_to_diagonal,
    as_float,
    block_entries,
    empty,
    eps,
    from_numpy,
    in_threads,
    is_numpy,
    is_on_gpu,
    namespace,
    row_chunks,
    squared_norm,
    take,
    to_numpy,
    zeros,
)
from kernelweave.kernels.banks.dense import KernelBank, are_all
from kernelweave.kernels.base import KernelGroup
from kernelweave.kernels.centering import center_tiles
from kernelweave.protocols import FoldKernels

#: Rows and columns of a tile, which should fit into the cache of a processor; on a GPU
#: it should keep all of its units busy.
TILE = {"host": 256, "gpu": 8192}


class OnTheFlyBank(KernelBank):
    """Kernels ``G_1, ..., G_p`` that are computed in every pass over the pairs of rows.

    A new bank holds the kernels as defined: with means 0 and scale 1.

    Parameters
    ----------
    groups : list of KernelGroup
        The kernels, numbered 0 .. p - 1.
    names : list of str
        One name per kernel.
    n_samples : int
        n.
    like : array
        An array with the namespace, device and dtype of the kernels.
    tile_rows : int, optional
        Rows of a tile; by default as many as ``TILE`` says.
    """

    #: A subset takes no memory, but a round of a working set takes factorisations that
    #: cost more than passes over all kernels: 30 of them where Newton's method takes 8.
    is_cheap_to_cut = False
    held_as = "on the fly"

    def __init__(
        self,
        groups: list[KernelGroup],
        names: list[str],
        n_samples: int,
        like: Array,
        tile_rows: int | None = None,
    ) -> None:
        p = len(names)
        super().__init__(like, p, n_samples, names)
        self.groups = groups
        self.tile_rows = tile_rows or TILE["gpu" if is_on_gpu(like) else "host"]
        self._means = zeros((p, n_samples), like, namespace(like).float64)
        self._grand, self._shifts, self.scales = np.zeros(p), np.zeros(p), np.ones(p)
        self._roots: np.ndarray | None = None

    @property
    def tiles(self) -> OnTheFlyBank:
        """The kernels as defined."""
        size = self.n_samples
        return OnTheFlyBank(self.groups, self.names, size, self.like, self.tile_rows)

    def centred(
        self,
        centerings: Sequence[Any],
        row_weights: np.ndarray | None = None,
        shifts: np.ndarray | None = None,
    ) -> OnTheFlyBank:
        """These kernels, centred and scaled.

        Parameters
        ----------
        centerings : sequence of Centering
            m, g and s of each as ``row_means``, ``grand_mean`` and ``scale``.
        row_weights : ndarray of shape (n,), optional
            Rows and columns are multiplied by their roots.
        shifts : ndarray of shape (p,), optional
            Added to the diagonal of each kernel, to make up for rounding.
        """
        bank, xp = self.tiles, namespace(self.like)
        bank._means = xp.stack([as_float(c.row_means, xp.float64) for c in centerings])
        bank._grand = np.array([c.grand_mean for c in centerings])
        bank.scales = np.array([c.scale for c in centerings])
        bank._shifts = bank._shifts if shifts is None else shifts
        bank._roots = None if row_weights is None else np.sqrt(row_weights)
        return bank

    def tile(
        self, rows: slice, columns: slice, other: OnTheFlyBank | None = None
    ) -> Iterator[tuple[int, Array]]:
        """The number of each kernel, in any order, and its values (r, c) as defined.

        The array may be shared with the next kernel: do not modify it. The columns are
        rows of ``other`` if given, which has the same kernels.
        """
        for g, group in enumerate(self.groups):
            theirs = None if other is None else other.groups[g]
            yield from group.tile(rows, columns, theirs)

    def _in_threads(
        self, task: Callable[[list[tuple[slice, slice]]], Any]
    ) -> list[Any]:
        """Deal the tiles of :meth:`lower` out to threads, for NumPy arrays."""
        tiles = list(self.lower())
        if not is_numpy(self.like):  # others have threads, or a GPU, of their own
            return [task(tiles)]
        with np.errstate(over="ignore", invalid="ignore"):
            return in_threads(task, tiles, self.n_kernels * self.n_samples**2 // 2)

    def lower(self) -> Iterator[tuple[slice, slice]]:
        """Rows and columns of tiles that cover the lower triangle once."""
        parts = list(row_chunks(self.n_samples, 1, self.tile_rows))
        for number, rows in enumerate(parts):
            for columns in parts[: number + 1]:
                yield rows, columns

    def kernel(self, i: int) -> Array:
        """``G_i``, (n, n), in new memory."""
        return self.combine(np.eye(self.n_kernels)[i])

    def combine(
        self, weights: np.ndarray, out: Array | None = None, lower: bool = False
    ) -> Array:
        """``sum_i w_i G_i``, (n, n), in one pass over the pairs of rows.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            w. Kernels of weight zero are not computed.
        out : array of shape (n, n), optional
            Memory for the result.
        lower : bool, default=False
            Whether the result is only factored: entries that :func:`cholesky` does not
            read, those above the diagonal or, of NumPy arrays, below it, are then
            unspecified.
        """
        n, given = self.n_samples, np.asarray(weights, dtype=np.float64)
        used = np.flatnonzero(given)
        if out is None or len(used) == 0:
            out = zeros((n, n), self.like)
        if len(used) == 0:
            return out
        part, factors = self.subset(used), (given * self.scales)[used]
        mean = from_numpy(given * self.scales, self._means) @ self._means
        mean = as_float(mean, self.like.dtype)
        grand = float((given * self.scales) @ self._grand)
        roots = None if self._roots is None else from_numpy(self._roots, self.like)
        host = is_numpy(out)

        def task(parts: list[tuple[slice, slice]]) -> None:
            for rows, columns in parts:
                if host:  # LAPACK reads the rows of NumPy as columns
                    rows, columns = columns, rows
                total = None
                for i, tile in part.tile(rows, columns):
                    weight = float(factors[i])
                    if total is None:
                        total = tile * weight
                    else:
                        total = add_scaled(total, tile, weight)
                total -= mean[None, columns]
                total -= (mean[rows] - grand)[:, None]
                if roots is not None:
                    total *= roots[rows, None]
                    total *= roots[None, columns]
                out[rows, columns] = total
                if rows != columns and not lower:
                    out[columns, rows] = total.T

        part._in_threads(task)
        shift = float(given @ self._shifts)
        if shift:
            add_to_diagonal(out, shift if roots is None else shift * roots * roots)
        return out

    def apply(self, b: Array) -> Array:
        """``G_i B`` for every kernel, (p, n, k), in the precision of ``b`` (n, k)."""
        roots = None
        if self._roots is not None:
            roots = from_numpy(self._roots[:, None], b)
            b = b * roots

        def task(tiles: list[tuple[slice, slice]]) -> Array:
            out = zeros((self.n_kernels, *b.shape), b)
            for rows, columns in tiles:
                for i, tile in self.tile(rows, columns):
                    tile = as_float(tile, b.dtype)
                    out[i, rows, :] += tile @ b[columns, :]
                    if rows != columns:
                        out[i, columns, :] += tile.T @ b[rows, :]
            return out

        out = functools.reduce(operator.iadd, self._in_threads(task))
        means = as_float(self._means, b.dtype)
        inner, sums = means @ b, namespace(b).sum(b, axis=0)[None, :]  # (p, k), (1, k)
        for i in range(self.n_kernels):
            part = out[i, :, :] - means[i, :, None] * sums
            part += float(self._grand[i]) * sums - inner[i, None, :]
            part *= float(self.scales[i])
            if self._shifts[i]:
                part += float(self._shifts[i]) * b
            out[i, :, :] = part if roots is None else part * roots
        return out

    def rounded_traces(self) -> np.ndarray:
        """The traces (p,) before centring, in the scale of the bank.

        Products use the kernels as they are, whose size determines the rounding.
        """
        raw = np.abs(self._raw_diagonals()) * self.scales[:, None]
        return np.sum(raw if self._roots is None else raw * self._roots**2, axis=1)

    def entry_errors(self) -> np.ndarray:
        """Those of the dtype, divided by the share of the trace left by centring."""
        traces, before = np.sum(np.abs(self.diagonals()), axis=1), self.rounded_traces()
        return eps(self.like) * (before / np.where(traces > 0, traces, before))

    def row_blocks(self) -> Iterator[tuple[slice, Array]]:
        """All kernels, a few rows at a time: the slice of rows, and (p, r, n)."""
        n, p = self.n_samples, self.n_kernels
        for rows in row_chunks(n, p * n, block_entries(self.like)):
            out = empty((p, rows.stop - rows.start, n), self.like)
            for i, tile in self.tile(rows, slice(0, n)):
                out[i, :, :] = self._centred(i, tile, rows, slice(0, n))
            yield rows, out

    def _raw_diagonals(self) -> np.ndarray:
        """``k_i(x, x)`` of every kernel and row in float64, (p, n)."""
        out = np.empty((self.n_kernels, self.n_samples))
        for group in self.groups:
            for i, kernel in group.kernels:
                out[i] = to_numpy(kernel.diagonal(group.rows.X))
        return out

    def diagonals(self) -> np.ndarray:
        """The diagonal of every kernel in float64, (p, n)."""
        means = to_numpy(self._means)
        raw = self._raw_diagonals() - 2.0 * means + self._grand[:, None]
        found = raw * self.scales[:, None] + self._shifts[:, None]
        return found if self._roots is None else found * self._roots**2

    def sizes(self, kernels: np.ndarray) -> np.ndarray:
        """Frobenius norms of the kernels with these indices."""
        part = self.subset(kernels)
        squares = np.zeros(part.n_kernels)
        for rows, columns in part.lower():
            for i, tile in part.tile(rows, columns):
                times = 1.0 if rows == columns else 2.0
                centred = part._centred(i, tile, rows, columns)
                squares[i] += times * squared_norm(centred)
        return np.sqrt(squares)

    def _centred(self, i: int, tile: Array, rows: slice, columns: slice) -> Array:
        """A tile of ``G_i``, (r, c), in new memory."""
        mean = as_float(self._means[i, :], self.like.dtype)
        part = tile - mean[None, columns]
        part -= (mean[rows] - float(self._grand[i]))[:, None]
        part *= float(self.scales[i])
        shift = float(self._shifts[i])
        if shift:  # only where a kernel was indefinite by rounding
            index = np.arange(self.n_samples)
            same = index[rows, None] == index[None, columns]
            part += shift * from_numpy(same, tile)
        if self._roots is not None:
            roots = from_numpy(self._roots, tile)
            part *= roots[rows, None]
            part *= roots[None, columns]
        return part

    def subset(self, kernels: Sequence[int] | np.ndarray) -> OnTheFlyBank:
        """A bank of the kernels with these indices, in this order."""
        chosen = [int(i) for i in kernels]
        place = {i: number for number, i in enumerate(chosen)}
        groups = []
        for group in self.groups:
            kept = [(place[i], kernel) for i, kernel in group.kernels if i in place]
            groups += [replace(group, kernels=kept)] if kept else []
        part = self._with(groups, len(chosen), self.n_samples)
        part.names = [self.names[i] for i in chosen]
        part.views = self.views and [self.views[i] for i in chosen]
        part._means = take(self._means, np.asarray(chosen))
        part._grand, part.scales = self._grand[chosen], self.scales[chosen]
        part._shifts = self._shifts[chosen]
        return part

    def restrict(self, rows: np.ndarray) -> OnTheFlyBank:
        """The kernels on some of the rows, with the centring of all of them."""
        if are_all(rows, self.n_samples):
            return self
        rows = np.asarray(rows)
        groups = [group.restrict(rows) for group in self.groups]
        part = self._with(groups, self.n_kernels, len(rows))
        part._means = take(self._means, rows, axis=1)
        part._roots = None if self._roots is None else self._roots[rows]
        part.n_rows = len(rows)
        return part

    def _with(
        self, groups: list[KernelGroup], n_kernels: int, n_samples: int
    ) -> OnTheFlyBank:
        part = copy.copy(self)
        part._forget()
        part.groups, part.n_kernels, part.n_samples = groups, n_kernels, n_samples
        return part

    def space_of_fold(self, n: int) -> None:
        """A fold takes no memory."""

    def fold(
        self,
        train: np.ndarray,
        test: np.ndarray,
        row_weights: np.ndarray | None,
        space: Array | None = None,
    ) -> FoldKernels:
        """Kernels of the rows ``train`` as if there were no others, and of ``test``."""
        return _FoldOnTheFly(self, train, test, row_weights)


class _FoldOnTheFly:
    """:class:`FoldKernels` that are recomputed in every pass."""

    def __init__(
        self,
        whole: OnTheFlyBank,
        train: np.ndarray,
        test: np.ndarray,
        row_weights: np.ndarray | None,
    ) -> None:
        self.tiles = whole.tiles.restrict(train)
        self.others = whole.tiles.restrict(test)
        self.weights = None if row_weights is None else row_weights[train]
        standard, shares = whole._standard_of_fold(self.weights)
        noise = [0.0] * whole.n_kernels
        self.centerings = list(center_tiles(self.tiles, noise, shares, standard))
        if not standard.is_default:
            pairs = zip(self.centerings, whole.scales, strict=True)
            self.centerings = [replace(c, scale=c.scale * s) for c, s in pairs]
        self.active = [i for i, c in enumerate(self.centerings) if c.scale > 0]

    @property
    def bank(self) -> OnTheFlyBank:
        """The kernels that vary over the rows ``train``; there must be at least one."""
        own = [self.centerings[i] for i in self.active]
        return self.tiles.subset(self.active).centred(own, self.weights)

    def cross(self, weights: np.ndarray) -> Array:
        """``sum_i w_i G_i`` between held-out rows and those of the fold, (m, n)."""
        n, like, parts = self.tiles.n_samples, self.tiles.like, []
        full = np.zeros(self.tiles.n_kernels)
        full[self.active] = weights
        for rows in row_chunks(self.others.n_samples, n, block_entries(like)):
            total = None
            tiles = self.others.tile(rows, slice(0, n), self.tiles)
            for i, gram in tiles:
                if full[i] != 0:
                    total = add(total, self.centerings[i](gram) * float(full[i]))
            parts.append(total)
        return namespace(like).concat(parts)

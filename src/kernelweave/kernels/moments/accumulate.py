"""Accumulate the moments of rows that arrive in portions of any size."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from scipy import sparse

from kernelweave._array import detached, namespace
from kernelweave.kernels.moments.reduction import FixedTree
from kernelweave.kernels.moments.sums import ChunkRecipe, Moments

__all__ = ["CHUNK_ROWS", "RowAccumulator", "concatenate_rows"]

#: Rows per chunk on a CPU and on a GPU.
CHUNK_ROWS = {"cpu": 8192, "gpu": 32768}


class RowAccumulator:
    """Cut rows into chunks of equal size and sum their moments in a fixed tree.

    The result depends on the rows and their order, but not on the portions in which
    they arrived: portions are joined or cut into chunks of ``chunk_rows``, and rows
    that do not fill a chunk wait for the next ones.

    Parameters
    ----------
    recipe : ChunkRecipe
        Computes the moments of a chunk.
    chunk_rows : int
        Rows per chunk.
    first : int, default=0
        Number of the first chunk.
    """

    def __init__(self, recipe: ChunkRecipe, chunk_rows: int, first: int = 0) -> None:
        self.recipe, self.chunk_rows, self.first = recipe, int(chunk_rows), first
        self.tree: FixedTree[Moments] = FixedTree()
        self.waiting: tuple[list[Any], np.ndarray] | None = None

    def push(self, views: list[Any], y: np.ndarray) -> None:
        """Add rows: one block (m, d_view) per view, and y (m,) or (m, t)."""
        if self.waiting is not None:
            pairs = zip(self.waiting[0], views, strict=True)
            views = [concatenate_rows([old, new]) for old, new in pairs]
            y = np.concatenate([self.waiting[1], y])
            self.waiting = None
        start = 0
        while y.shape[0] - start >= self.chunk_rows:
            part = slice(start, start + self.chunk_rows)
            rows = [block[part, :] for block in views]
            self.tree.push(self.recipe(rows, y[part], self._number))
            start = part.stop
        if start < y.shape[0]:
            # The caller may overwrite rows that have not been summed yet.
            rows = [detached(block[start:, :]) for block in views]
            self.waiting = rows, np.array(y[start:])

    def added(self, views: list[Any], y: np.ndarray) -> RowAccumulator:
        """A copy with more rows; this object is unchanged even if an error occurs."""
        new = copy.copy(self)
        new.tree = copy.copy(self.tree)
        new.push(views, y)
        return new

    def total(self) -> Moments:
        """The moments of all rows so far; more may follow."""
        if self.waiting is None:
            return self.tree.total()
        return self.tree.total(self.recipe(*self.waiting, self._number))

    @property
    def _number(self) -> int:
        """The number of the next chunk."""
        return self.first + self.tree.count


def concatenate_rows(blocks: list[Any]) -> Any:
    """Blocks of rows stacked vertically, in their own library."""
    if len(blocks) == 1:
        return blocks[0]
    if sparse.issparse(blocks[0]):
        return sparse.vstack(blocks).tocsr()
    return namespace(*blocks).concat(blocks, axis=0)

"""Sources of raw Gram matrices: groups of columns, or precomputed kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from kernelweave._array import Array, detached, namespace, to_numpy
from kernelweave._memory import CACHE_ENTRIES, row_chunks
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.checks import symmetric
from kernelweave.kernels.frame import check_outliers, name_largest
from kernelweave.kernels.spec import gram_stack, resolve_kernels
from kernelweave.views.columns import View
from kernelweave.views.missing import take_rows

__all__ = ["FeatureSource", "PrecomputedSource", "Source"]


class Source(Protocol):
    """Raw kernels among the training rows, and between new rows and training rows.

    Attributes
    ----------
    names, view_names : list of str
        The name of each kernel and of the view it belongs to.
    observed : ndarray of bool of shape (n, v) or None
        Which training rows have which view; None if no row lacks a view.
    noise : list of float
        Trace per row of each centred kernel that rounding of its input accounts for.
    """

    names: list[str]
    view_names: list[str]
    observed: np.ndarray | None
    noise: list[float]

    @property
    def n_samples(self) -> int:
        """The number n of training rows."""
        ...

    @property
    def like(self) -> Array:
        """An array with the namespace, device and dtype of the kernels."""
        ...

    def fill(self, stack: Array) -> Iterator[bool]:
        """Write symmetric Gram matrices to ``stack`` (p, n, n), one at a time.

        If some rows lack the view, the matrix over the others goes into the upper left
        corner of its slot, and the rest of the slot is undefined.

        Yields
        ------
        bool
            Once matrix i is in place, whether it is known to be PSD.
        """
        ...

    def cross(self, rows: Any, wanted: list[int]) -> Iterator[Array]:
        """Gram matrices (m, n) of the kernels ``wanted`` for new rows."""
        ...

    def out_of_range(self, i: int, rows: Any = None) -> str:
        """The entry of new rows, or of the training rows, for which kernel i overflows.

        ``rows`` has the form that ``cross`` accepts, with NaN where a row lacks a view.
        """
        ...


class FeatureSource:
    """Kernels on groups of columns, with parameters fixed by the training rows.

    Parameters
    ----------
    views : list of View
        The names and kernels of the views.
    blocks : list of arrays of shape (n, d_view)
        The training rows of each view. Blocks that share memory with an array of the
        caller are copied, since predictions need them for the life of the model.
    observed : ndarray of bool of shape (n, v), default=None
        Which rows have which view, if some lack one; rows that lack a view are ignored
        there.
    """

    def __init__(
        self,
        views: list[View],
        blocks: list[Array],
        observed: np.ndarray | None = None,
    ) -> None:
        self._n_samples = int(blocks[0].shape[0])
        self.views, self.observed = views, observed
        if observed is not None:
            blocks = [take_rows(*pair) for pair in zip(blocks, observed.T, strict=True)]
        self.blocks = [detached(block) for block in blocks]
        for v, (view, block) in enumerate(zip(views, self.blocks, strict=True)):
            check_outliers(view, block, self._numbers(v))
        self.kernels: list[list[Kernel]] = [
            resolve_kernels(view.kernel, block, view.name)
            for view, block in zip(views, self.blocks, strict=True)
        ]
        self.view_names = [
            view.name
            for view, kernels in zip(views, self.kernels, strict=True)
            for _ in kernels
        ]
        self.names = [
            f"{view.name}: {kernel.label}"
            for view, kernels in zip(views, self.kernels, strict=True)
            for kernel in kernels
        ]
        self.noise = [kernel.noise for kernels in self.kernels for kernel in kernels]

    @property
    def n_samples(self) -> int:
        """The number n of training rows."""
        return self._n_samples

    @property
    def like(self) -> Array:
        """The first block."""
        return self.blocks[0]

    def fill(self, stack: Array) -> Iterator[bool]:
        """Compute one Gram matrix (n, n) at a time."""
        slots = iter(range(len(self.names)))
        for kernels, block in zip(self.kernels, self.blocks, strict=True):
            grams, size = gram_stack(kernels, block), block.shape[0]
            for kernel in kernels:
                i = next(slots)
                stack[i, :size, :size] = next(grams)
                if not kernel.psd:
                    _symmetrize(stack[i, :size, :size], self.names[i])
                yield kernel.psd

    def cross(self, rows: list[Array], wanted: list[int]) -> Iterator[Array]:
        """Gram matrices (m, n) of the kernels ``wanted`` for the blocks ``rows``."""
        first = 0
        for kernels, block, new in zip(self.kernels, self.blocks, rows, strict=True):
            chosen = [
                kernels[i - first] for i in wanted if 0 <= i - first < len(kernels)
            ]
            first += len(kernels)
            if chosen:
                yield from gram_stack(chosen, new, block)

    def place(self, i: int) -> tuple[int, Kernel]:
        """The view number of kernel i, and the kernel itself."""
        return [(v, k) for v, kernels in enumerate(self.kernels) for k in kernels][i]

    def _numbers(self, v: int) -> np.ndarray | None:
        """Indices of the training rows that have view v; None if all of them do."""
        return None if self.observed is None else np.flatnonzero(self.observed[:, v])

    def out_of_range(self, i: int, rows: list[Array] | None = None) -> str:
        """View, row, column and value of the entry for which kernel i overflows."""
        v, kernel = self.place(i)
        numbers = self._numbers(v) if rows is None else None
        block = (self.blocks if rows is None else rows)[v]
        return name_largest(self.views[v], kernel.label, kernel.steps, block, numbers)


class PrecomputedSource:
    """Precomputed kernels: a stack (n, n, p) at fit, (m, n, p) for new rows.

    Parameters
    ----------
    stack : array of shape (n, n, p)
        The kernels.
    names : list of str
        One name per kernel.
    observed : ndarray of bool of shape (n, p), default=None
        Which rows have which kernel, if some lack one.
    """

    def __init__(
        self, stack: Array, names: list[str], observed: np.ndarray | None = None
    ) -> None:
        self.observed = observed
        self.stack: Array | None = stack
        self._n_samples = int(stack.shape[0])
        self.names = names
        self.view_names = names
        self.noise = [0.0] * len(names)

    @property
    def n_samples(self) -> int:
        """The number n of training rows."""
        return self._n_samples

    @property
    def like(self) -> Array:
        """The stack itself."""
        return self.stack

    def fill(self, stack: Array) -> Iterator[bool]:
        """Copy the kernels, and then release the input."""
        assert self.stack is not None
        xp = namespace(stack)
        # Kernels are the last axis of the input: in blocks of rows, it is read once.
        row_size = self.n_samples * len(self.names)
        for rows in row_chunks(self.n_samples, row_size, CACHE_ENTRIES):
            stack[:, rows, :] = xp.permute_dims(self.stack[rows, :, :], (2, 0, 1))
        self.stack = None  # a fitted model no longer needs the training kernels
        for i, name in enumerate(self.names):
            slot = stack[i, :, :]
            if self.observed is not None and not np.all(self.observed[:, i]):
                own = take_rows(
                    take_rows(slot, self.observed[:, i]).T, self.observed[:, i]
                )
                slot = stack[i, : own.shape[0], : own.shape[0]]
                slot[...] = own.T
            _symmetrize(slot, name)
            yield False

    def cross(self, rows: Array, wanted: list[int]) -> Iterator[Array]:
        """Slices (m, n) of the stack ``rows``."""
        for i in wanted:
            yield rows[:, :, i]

    def out_of_range(self, i: int, rows: Array | None = None) -> str:
        """A message with the largest entry of kernel i; at fit, with its name only."""
        found = f"Kernel {self.names[i]!r}"
        if rows is not None:
            values = np.nan_to_num(to_numpy(rows[:, :, i]))
            where = np.unravel_index(np.abs(values).argmax(), values.shape)
            place = tuple(int(index) for index in where)
            found += f": entry {place} is {values[where]:.3g}. It"
        return (
            f"{found} holds values that are too large or too small to compute with. "
            "Multiply the kernel by a constant, for training and new rows alike: its "
            "scale is normalised away anyway."
        )


def _symmetrize(gram: Array, name: str) -> None:
    """Average out, in place, any asymmetry beyond the last few bits."""
    average = symmetric(gram, name)
    if average is not gram:
        gram[...] = average

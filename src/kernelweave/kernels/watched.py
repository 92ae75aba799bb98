"""A source of kernels that remembers what centring forgets: diagonals and signs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelweave._array import Array, namespace
from kernelweave.kernels.mapping import KernelMap
from kernelweave.kernels.resolve import gram_stack
from kernelweave.kernels.sources import FeatureSource, Source
from kernelweave.views.chunks import row_chunks

__all__ = ["WatchedSource", "centred_rows"]

#: Rows whose Gram matrix is computed for its diagonal.
DIAGONAL_ROWS = 32
#: Relative deviation of the diagonal of a kernel that is constant up to rounding.
SAME_DIAGONAL = 1e-6


class WatchedSource:
    """Any source, with the diagonal and the least entry of each raw kernel kept.

    Parameters
    ----------
    source : Source
        Where raw kernels come from.

    Attributes
    ----------
    diagonals : list of arrays of shape (n,)
        ``k(x_i, x_i)`` of each kernel, known once ``fill`` is through.
    lowest : list of float
        The least entry of each kernel.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names, self.view_names = source.names, source.view_names
        self.observed: np.ndarray | None = source.observed
        self.observed = source.observed
        self.diagonals: list[Array] = []
        self.lowest: list[float] = []

    @property
    def n_samples(self) -> int:
        """The number n of training rows."""
        return self.source.n_samples

    @property
    def like(self) -> Array:
        """What the source has."""
        return self.source.like

    def fill(self, stack: Array) -> Iterator[bool]:
        """Fill as the source does, and look at each matrix on the way."""
        xp = namespace(stack)
        for i, known_psd in enumerate(self.source.fill(stack)):
            diagonal = xp.linalg.diagonal(stack[i, :, :])
            self.diagonals.append(xp.asarray(diagonal, copy=True))
            self.lowest.append(float(xp.min(stack[i, :, :])))
            yield known_psd

    def cross(self, rows: Any, wanted: list[int]) -> Iterator[Array]:
        """Gram matrices (m, n) of the kernels ``wanted`` for new rows."""
        return self.source.cross(rows, wanted)

    def diagonal(self, rows: Any, wanted: list[int]) -> Iterator[Array]:
        """``k(x, x)`` (m,) of the kernels ``wanted`` for new rows.

        A precomputed kernel tells only if its diagonal is constant; minus infinity
        stands for what is not known.
        """
        if isinstance(self.source, FeatureSource):
            yield from self._computed(self.source, rows, wanted)
            return
        for i in wanted:
            xp = namespace(rows)
            known = self.diagonals[i]
            low, high = float(xp.min(known)), float(xp.max(known))
            constant = high - low <= SAME_DIAGONAL * abs(high)
            yield (high if constant else -np.inf) * xp.ones_like(rows[:, 0, 0])

    def _computed(
        self, source: FeatureSource, rows: list[Array], wanted: list[int]
    ) -> Iterator[Array]:
        first = 0
        for kernels, block in zip(source.kernels, rows, strict=True):
            own = range(first, first + len(kernels))
            chosen = [kernels[i - first] for i in wanted if i in own]
            first += len(kernels)
            if chosen:
                xp = namespace(block)
                parts = [
                    xp.stack([xp.linalg.diagonal(K) for K in gram_stack(chosen, piece)])
                    for part in row_chunks(block.shape[0], 1, DIAGONAL_ROWS)
                    for piece in (block[part, :],)
                ]
                joined = xp.concat(parts, axis=1)  # (chosen, m)
                yield from (joined[j, :] for j in range(len(chosen)))


def centred_rows(
    kernel_map: KernelMap, rows: Any, weights: Any, diagonal: Array | None = None
) -> tuple[Array, Array]:
    """``g(x)`` (m, n) and ``g(x, x)`` (m,) of the weighted sum of centred kernels.

    Parameters
    ----------
    kernel_map : KernelMap
        Fitted on a :class:`WatchedSource`.
    rows : list of arrays, or array of shape (m, n, p)
        New rows, as ``kernel_map.project`` takes them.
    weights : ndarray of shape (p,)
        Weights of all kernels.
    diagonal : array of shape (m, p), optional
        ``k(x, x)`` of all raw kernels where it is known better.
    """
    source = kernel_map.source
    assert isinstance(source, WatchedSource)
    wanted = [i for i, weight in enumerate(weights) if weight != 0]
    own: Iterator[Array]
    if diagonal is None:
        own = source.diagonal(rows, wanted)
    else:
        own = (diagonal[:, i] for i in wanted)
    total, norms = None, None
    for i, gram, same in zip(wanted, source.cross(rows, wanted), own, strict=True):
        xp, centering, weight = namespace(gram), kernel_map.centerings[i], weights[i]
        term = centering(gram) * float(weight)
        length = same - 2.0 * xp.mean(gram, axis=1) + centering.grand_mean
        length = length * (centering.scale * float(weight))
        total = term if total is None else total + term
        norms = length if norms is None else norms + length
    return total, norms

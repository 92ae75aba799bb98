"""A source of kernels that records what centring discards: diagonals and signs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from kernelweave._array import Array, device, from_numpy, namespace
from kernelweave._memory import row_chunks
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.frame import Frame
from kernelweave.kernels.maps.kernel_map import Centering, KernelMap
from kernelweave.kernels.maps.missing import CompletedKernelMap
from kernelweave.kernels.maps.sources import FeatureSource, Source
from kernelweave.kernels.spec import gram_stack
from kernelweave.views.missing import ObservedViews, take_rows

__all__ = ["DiagonalSource", "centred_rows"]

#: Diagonals are computed from Gram matrices of this many rows.
DIAGONAL_ROWS = 32
#: Relative spread up to which the diagonal of a kernel counts as constant.
CONSTANT_DIAGONAL = 1e-6


class DiagonalSource:
    """Any source, recording the diagonal and the smallest entry of each raw kernel.

    Parameters
    ----------
    source : Source
        The source of the raw kernels.

    Attributes
    ----------
    diagonals : list of arrays of shape (n_i,)
        ``k(x_i, x_i)`` of each kernel over the rows that have it, complete once
        ``fill`` is exhausted. The origin of the columns may have been moved.
    lowest : list of float
        The smallest entry of each kernel, with the same proviso.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names, self.view_names = source.names, source.view_names
        self.observed: np.ndarray | None = source.observed
        self.noise = source.noise
        self.diagonals: list[Array] = []
        self.lowest: list[float] = []
        self._defined: dict[int, tuple[Array, float]] = {}

    @property
    def n_samples(self) -> int:
        """The number n of training rows."""
        return self.source.n_samples

    @property
    def like(self) -> Array:
        """An array with the namespace, device and dtype of the kernels."""
        return self.source.like

    def fill(self, stack: Array) -> Iterator[bool]:
        """Fill the stack as the source does, and record what is needed on the way."""
        xp = namespace(stack)
        for i, known_psd in enumerate(self.source.fill(stack)):
            size = self._n_rows(i)
            own = stack[i, :size, :size]
            self.diagonals.append(xp.asarray(xp.linalg.diagonal(own), copy=True))
            self.lowest.append(float(xp.min(own)))
            yield known_psd

    def cross(self, rows: Any, wanted: list[int]) -> Iterator[Array]:
        """Gram matrices (m, n) of the kernels ``wanted`` for new rows."""
        return self.source.cross(rows, wanted)

    def out_of_range(self, i: int, rows: Any = None) -> str:
        """The message of the source."""
        return self.source.out_of_range(i, rows)

    def diagonal(self, rows: Any, wanted: list[int]) -> Iterator[Array]:
        """``k(x, x)`` (m,) of the kernels ``wanted`` for new rows.

        For a precomputed kernel this is known only if its diagonal is constant; minus
        infinity stands for unknown values.
        """
        if isinstance(self.source, FeatureSource):
            yield from self._computed(self.source, rows, wanted)
            return
        for i in wanted:
            xp = namespace(rows)
            known = self.diagonals[i]
            low, high = float(xp.min(known)), float(xp.max(known))
            constant = high - low <= CONSTANT_DIAGONAL * abs(high)
            yield (high if constant else -np.inf) * xp.ones_like(rows[:, 0, 0])

    def as_defined(self, i: int) -> tuple[Array, float]:
        """Diagonal (n_i,) and smallest entry of kernel i, with the origin at zero."""
        place = self._moved(i)
        if place is None:
            return self.diagonals[i], self.lowest[i]
        if i not in self._defined:
            block, kernel, _ = place
            gram, xp = kernel.gram(block), namespace(block)
            diagonal = xp.asarray(xp.linalg.diagonal(gram), copy=True)
            self._defined[i] = diagonal, float(xp.min(gram))
        return self._defined[i]

    def cross_as_defined(self, i: int, gram: Array, rows: Any) -> Array:
        """Kernel i (m, n) of new rows with the origin at zero, given its ``cross``."""
        place = self._moved(i)
        return gram if place is None else place[1].gram(rows[place[2]], place[0])

    def diagonal_as_defined(self, i: int, rows: Any) -> Array:
        """``k(x, x)`` (m,) of new rows with the origin at zero."""
        place = self._moved(i)
        if place is None:
            (own,) = self.diagonal(rows, [i])
        else:
            (own,) = _diagonals(lambda part: [place[1].gram(part)], rows[place[2]])
        return own

    def _moved(self, i: int) -> tuple[Array, Kernel, int] | None:
        """Training rows, kernel and view number of kernel i, if its origin moved."""
        if not isinstance(self.source, FeatureSource):
            return None
        v, kernel = self.source.place(i)
        moved = any(isinstance(step, Frame) and step.affine for step in kernel.steps)
        return (self.source.blocks[v], kernel, v) if moved else None

    def _n_rows(self, i: int) -> int:
        """Number of training rows that have kernel i."""
        if self.observed is None:
            return self.n_samples
        views = list(dict.fromkeys(self.view_names))
        return int(np.sum(self.observed[:, views.index(self.view_names[i])]))

    def _computed(
        self, source: FeatureSource, rows: list[Array], wanted: list[int]
    ) -> Iterator[Array]:
        first = 0
        for kernels, block in zip(source.kernels, rows, strict=True):
            own = range(first, first + len(kernels))
            chosen = [kernels[i - first] for i in wanted if i in own]
            first += len(kernels)
            if chosen:
                yield from _diagonals(partial(gram_stack, chosen), block)


def _diagonals(grams: Callable[[Array], Iterable[Array]], rows: Array) -> list[Array]:
    """``k(x, x)`` (m,) of each kernel whose Gram matrices ``grams`` computes."""
    xp = namespace(rows)
    parts = [
        xp.stack([xp.linalg.diagonal(K) for K in grams(rows[part, :])])
        for part in row_chunks(rows.shape[0], 1, DIAGONAL_ROWS)
    ]
    joined = xp.concat(parts, axis=1)  # (kernels, m)
    return [joined[j, :] for j in range(joined.shape[0])]


def centred_rows(
    kernel_map: KernelMap, rows: Any, weights: Any, diagonal: Array | None = None
) -> tuple[Array, Array]:
    """``g(x)`` (m, n) and ``g(x, x)`` (m,) of the weighted sum of centred kernels.

    Parameters
    ----------
    kernel_map : KernelMap
        Fitted on a :class:`DiagonalSource`.
    rows : list of arrays, array of shape (m, n, p), or ObservedViews
        New rows, in the form that ``kernel_map.project`` accepts.
    weights : ndarray of shape (p,)
        Weights of all kernels.
    diagonal : array of shape (m, p), optional
        ``k(x, x)`` of all precomputed kernels; those of other kernels are computed.
    """
    source = kernel_map.source
    assert isinstance(source, DiagonalSource)
    wanted = [i for i, weight in enumerate(weights) if weight != 0]
    if isinstance(source.source, FeatureSource):
        diagonal = None
    if isinstance(kernel_map, CompletedKernelMap):
        lengths = _CompletedLengths(kernel_map, rows, diagonal)
        total = None
        for i, centred in zip(
            wanted, kernel_map.centred(rows, wanted, lengths), strict=True
        ):
            term = centred * float(weights[i])
            total = term if total is None else total + term
        return total, lengths.total(wanted, weights, total)
    own: Iterator[Array]
    if diagonal is None:
        own = source.diagonal(rows, wanted)
    else:
        own = (diagonal[:, i] for i in wanted)
    total, norms = None, None
    for i, gram, same in zip(wanted, source.cross(rows, wanted), own, strict=True):
        centering, weight = kernel_map.centerings[i], float(weights[i])
        term = kernel_map.center(i, gram, rows) * weight
        length = _centred_length(centering, gram, same) * weight
        total = term if total is None else total + term
        norms = length if norms is None else norms + length
    return total, norms


class _CompletedLengths:
    """``g_i(x, x)`` of rows that may lack views, collected while they are centred."""

    def __init__(
        self, kernel_map: CompletedKernelMap, rows: ObservedViews, given: Array | None
    ) -> None:
        self.kernel_map, self.rows, self.given = kernel_map, rows, given
        self.seen = rows.observed[:, kernel_map.view_of]  # (m, p)
        self.own: dict[int, Array] = {}
        self.completed: dict[int, Array] = {}

    def measure(self, i: int, gram: Array) -> None:
        """Use kernel i (m_i, n_i) between the rows that have it; all others get 0."""
        xp, mask = namespace(gram), self.seen[:, i]
        centering = self.kernel_map.centerings[i]
        length = _centred_length(centering, gram, self._diagonal(i))
        where = xp.asarray(np.maximum(np.cumsum(mask) - 1, 0), device=device(gram))
        length = xp.take(length, where, axis=0)
        keep = xp.asarray(mask, device=device(gram))
        self.own[i] = xp.where(keep, length, xp.zeros_like(length))

    def complete(self, i: int, gram: Array) -> None:
        """Use the completed kernel i (m, n); means replace what a row lacks."""
        xp, active = namespace(gram), self.kernel_map.active
        counts = np.sum(self.seen[:, active], axis=1)
        mean = xp.zeros_like(gram[:, 0])
        for length in self.own.values():
            mean = mean + length
        mean = mean / from_numpy(np.maximum(counts, 1), gram)
        keep = xp.asarray(self.seen[:, i], device=device(gram))
        length = xp.where(keep, self.own.get(i, mean), mean)
        repair = self.kernel_map.repairs.get(i)
        if repair is not None:
            length = _centred_length(repair, gram, length)
            known = xp.asarray(counts > 0, device=device(gram))
            length = xp.where(known, length, xp.zeros_like(length))
        self.completed[i] = length

    def total(self, wanted: list[int], weights: np.ndarray, like: Array) -> Array:
        """The weighted sum of the lengths, (m,); a kernel no row has adds nothing."""
        lengths = self.own | self.completed
        found = namespace(like).zeros_like(like[:, 0])
        for i in wanted:
            if i in lengths:
                found = found + lengths[i] * float(weights[i])
        return found

    def _diagonal(self, i: int) -> Array:
        """``k_i(x, x)`` of the rows that have kernel i."""
        if self.given is not None:
            return take_rows(self.given[:, i], self.seen[:, i])
        source, blocks = self.kernel_map.source, self.rows.blocks
        assert isinstance(source, DiagonalSource)
        if isinstance(blocks, list):
            pairs = zip(blocks, self.rows.observed.T, strict=True)
            (own,) = source.diagonal([take_rows(*pair) for pair in pairs], [i])
            return own
        (own,) = source.diagonal(blocks, [i])
        return take_rows(own, self.seen[:, i])


def _centred_length(centering: Centering, gram: Array, same: Array) -> Array:
    """``g(x, x)`` (m,) from ``k(x)`` (m, n) and ``k(x, x)`` (m,)."""
    xp, projector = namespace(gram), centering.projector
    length = same - 2.0 * xp.mean(gram, axis=1) + centering.grand_mean
    scale = centering.scale
    if projector is not None:  # r times a projection of rank k has trace r k
        squares = float(xp.sum(projector * projector))
        scale *= squares / float(xp.linalg.trace(projector))
    return length * scale

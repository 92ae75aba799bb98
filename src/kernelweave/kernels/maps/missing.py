"""Kernels when some rows lack a view: fill in zeros, or available means.

Let ``O_i`` be the ``n_i`` rows that have kernel i, and ``P_i = I - 11'/n_i`` the
centring over these rows alone::

    on O_i x O_i   G_i = s_i P_i K_i P_i,   s_i = n_i / tr(P_i K_i P_i)
    "zero"         G_i = 0 elsewhere
    "available"    G_i(a, b) = mean of G_l(a, b) over all l with a and b in O_l, or 0

With trace ``n_i``, not n, the mean squared norm of an observed row is one in every
kernel: the meaning of an entry does not depend on how many other rows lack the kernel,
whereas trace n would magnify the few rows of a rare view by ``n / n_i``. Zero is the
mean of the observed rows, so a zero-filled kernel is already centred over all n rows
and positive semidefinite. A kernel completed with available entries is neither: it is
centred once more, scaled to trace n, and clipped. In both cases the kernels are
completed before any kernel weight is applied, so problems stay convex in the weights.
With row weights, means and traces are weighted, and ``n_i`` is the sum of the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np

from kernelweave._array import (
    Array,
    add,
    device,
    from_numpy,
    namespace,
    row_chunks,
    take,
    zeros,
)
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.centering import (
    STANDARD,
    Centering,
    Standard,
    center_in_place,
)
from kernelweave.kernels.checks import clip_to_psd
from kernelweave.kernels.maps.kernel_map import (
    KernelMap,
    Source,
    Storage,
    moved_rows,
)
from kernelweave.views.missing import ObservedViews, rows_lacking, take_rows


class CompletedKernelMap(KernelMap):
    """Turn rows that may lack views into centred kernels against the training rows.

    If no row lacks a view, at fit or at prediction, it agrees with :class:`KernelMap`.
    If only new rows do, the kernels of the fit need not have been kept as matrices.

    Parameters
    ----------
    source : Source
        The source of the raw kernels; knows which training rows have which view.
    psd : {"error", "clip", "trust"}
        What to do with a kernel that is not positive semidefinite on its own rows.
    missing : {"available", "zero"}
        What replaces the entries of rows that lack a kernel.
    equal_trace : bool, default=False
        Whether kernels filled with zeros are scaled to trace n instead of ``n_i``.
        Weights that may be negative require this: with unequal traces, the sum of the
        weights would not bound the sum of the kernels.
    row_weights, scale_rows, storage, work_matrices, standard
        As for :class:`KernelMap`. Rows that lack views need matrices, and kernels that
        are centred and scaled.

    Attributes
    ----------
    observed : ndarray of bool of shape (n, p)
        Which training rows have which kernel.
    repairs : dict of int to Centering
        The second centring, with its projector, of each kernel that was completed with
        available entries.
    """

    def __init__(
        self,
        source: Source,
        psd: Literal["error", "clip", "trust"],
        missing: Literal["available", "zero"],
        equal_trace: bool = False,
        row_weights: np.ndarray | None = None,
        scale_rows: bool = True,
        storage: Storage = "auto",
        work_matrices: float | None = None,
        standard: Standard = STANDARD,
    ) -> None:
        super().__init__(
            source, psd, row_weights, scale_rows, storage, work_matrices, standard
        )
        assert source.observed is not None
        self.missing, self.equal_trace = missing, equal_trace
        views = list(dict.fromkeys(self.view_names))
        self.view_of = np.array([views.index(name) for name in self.view_names])
        self.observed = source.observed[:, self.view_of]
        self.repairs: dict[int, Centering] = {}

    def _may_recompute(self) -> bool:
        return bool(np.all(self.observed)) and super()._may_recompute()

    def _allocate(self, like: Array) -> Array:
        try:
            return super()._allocate(like)
        except MemoryRefusedError as error:
            if np.all(self.observed):
                raise
            n_lacking = int(np.sum(~np.all(self.observed, axis=1)))
            raise MemoryRefusedError(
                f"{error}. Only rows that lack a view, {n_lacking} of "
                f"{len(self.observed)}, need kernels as matrices: drop these rows, or "
                "impute the view"
            ) from error

    def _complete(self, bank: DenseBank) -> None:
        removed: dict[int, float] = {}
        if self.missing == "available" and not np.all(self.observed[:, self.active]):
            removed = self._fill(bank)
        self._remark_gaps(removed)

    @property
    def seen(self) -> np.ndarray | None:
        """Which training rows have which view, (n, v)."""
        return self.source.observed

    def check_gaps(self, observed: np.ndarray, missing: str) -> None:
        """Refuse rows that lack views if kernels are not centred and scaled."""
        if not self.standard.is_default:
            raise ValueError(
                f"{rows_lacking(observed)}, for which missing={missing!r} needs "
                "kernels that are centred and scaled, but the model was fitted with "
                "centre=False or scale=None. Pass rows that have every view, or leave "
                "both parameters at their defaults"
            )

    def lacking(self, observed: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Total weight (m,) of the kernels that each row lacks.

        Parameters
        ----------
        observed : ndarray of bool of shape (m, v)
            Which rows have which view.
        weights : ndarray of shape (p,)
            Weights of all kernels.
        """
        return ~observed[:, self.view_of] @ weights

    def _center(
        self, i: int, slot: Array, known_psd: bool, shares: Array | None = None
    ) -> Centering:
        """Centre kernel i, in a corner of ``slot``, and move its entries into place."""
        rows = self.observed[:, i]
        if np.all(rows):  # nothing to move: no copies
            return super()._center(i, slot, known_psd)
        size = int(np.sum(rows))
        own = namespace(slot).asarray(slot[:size, :size], copy=True)
        centering = super()._center(i, own, known_psd, self._shares(own, rows))
        if self.equal_trace and self.missing == "zero":
            given = self.row_weights
            each = np.ones(len(rows)) if given is None else given
            factor = float(np.sum(each) / np.sum(each[rows]))
            own *= factor
            scale = centering.scale * factor
            centering = dataclasses.replace(centering, scale=scale)
        slot[...] = spread_out(own, rows, rows)
        return centering

    def _fill(self, bank: DenseBank) -> dict[int, float]:
        """Complete zero-filled kernels; return the share that clipping removed."""
        n, stack = bank.n_samples, bank.stack
        mean = bank.combine(np.ones(bank.n_kernels))  # a sum so far: zeros add nothing
        seen = self.observed[:, self.active]
        for part in row_chunks(n, n, self.chunk_entries):
            mean[part, :] /= _shared(seen[part], seen, mean)
        removed = {}
        for slot, i in enumerate(self.active):
            rows = self.observed[:, i]
            if np.all(rows):
                continue
            for part in row_chunks(n, n, self.chunk_entries):
                stack[slot, part, :] += _outside(mean[part, :], rows[part], rows)
            gram = stack[slot, :, :]
            centering = center_in_place(gram, shares=self._shares(gram))
            projector, removed[i] = clip_to_psd(gram)
            self.repairs[i] = dataclasses.replace(centering, projector=projector)
        return removed

    def _remark_gaps(self, removed: dict[int, float]) -> None:
        """One remark per view: how many rows lack it, and what replaced them."""
        n = len(self.observed)
        for view in dict.fromkeys(self.view_names):
            own = [i for i in self.active if self.view_names[i] == view]
            lacking = n - int(np.sum(self.observed[:, own[0]])) if own else 0
            if lacking == 0:
                continue
            remark = f"view {view!r}: {lacking} of {n} training rows lack it; "
            if self.missing == "zero":
                remark += "they are zero in its kernels"
            else:
                worst = 100 * max(removed[i] for i in own)
                remark += (
                    "their entries are means over the other kernels, and clipping "
                    f"removed at most {worst:.2g} % of the spectrum of its kernels"
                )
            self.remarks.append(remark)

    def _held(self) -> int:
        """Completion needs all kernels of a chunk at the same time."""
        return 1 + (len(self.names) if self.missing == "available" else 0)

    def centred_and_lengths(
        self,
        rows: ObservedViews,
        wanted: list[int],
        lengths: bool,
        diagonal: Array | None = None,
    ) -> Iterator[tuple[Array, Array]]:
        """``G_i(rows)`` (m, n) and, with ``lengths``, ``g_i(x, x)`` (m,), else None."""
        rows = moved_rows(rows, self.source.like)
        seen = rows.observed[:, self.view_of]  # (m, p)
        complete = np.all(seen[:, wanted]) and np.all(self.observed[:, wanted])
        if self.missing == "zero" or complete:
            yield from self._zero_filled(rows, seen, wanted, lengths, diagonal)
            return
        kept, mean, mean_length, active = {}, None, None, self.active
        filled = self._zero_filled(rows, seen, active, lengths, diagonal)
        for i, (gram, length) in zip(active, filled, strict=True):
            mean = add(mean, gram)
            mean_length = add(mean_length, length) if lengths else None
            if i in wanted:
                kept[i] = gram, length
        mean = mean / _shared(seen[:, active], self.observed[:, active], mean)
        counts = np.sum(seen[:, active], axis=1)
        if lengths:
            mean_length = mean_length / from_numpy(np.maximum(counts, 1), mean)
        for i in wanted:
            gram, length = kept.pop(i)
            gram = gram + _outside(mean, seen[:, i], self.observed[:, i])
            length = length + _where(~seen[:, i], mean_length) if lengths else None
            if i in self.repairs:  # a row that lacks every view stays zero
                if lengths:
                    length = _where(counts > 0, self.repairs[i].length(gram, length))
                gram = _where(counts > 0, self.repairs[i](gram))
            yield gram, length

    def _zero_filled(
        self,
        rows: ObservedViews,
        seen: np.ndarray,
        wanted: list[int],
        lengths: bool,
        diagonal: Array | None,
    ) -> Iterator[tuple[Array, Array]]:
        """``G_i(rows)`` and ``g_i(x, x)``, zero for rows that lack the kernel."""
        blocks, listed = rows.blocks, isinstance(rows.blocks, list)
        if listed:
            pairs = zip(rows.blocks, rows.observed.T, strict=True)
            blocks = [take_rows(*pair) for pair in pairs]
        present = [i for i in wanted if np.any(seen[:, i])]
        grams = self.source.cross(blocks, present)
        for i in wanted:
            own, trained = seen[:, i], self.observed[:, i]
            if i not in present:
                nothing = zeros((len(seen), self.source.n_samples), rows.like)
                yield nothing, nothing[:, 0]
                continue
            gram, length = next(grams), None
            if not listed:
                gram = take_rows(take_rows(gram, own).T, trained).T
            if lengths:
                same = self.source.diagonal(i, blocks, diagonal)
                same = same if listed else take_rows(same, own)
                length = spread_out(self.centerings[i].length(gram, same), own)
            yield spread_out(self.center(i, gram, rows.blocks), own, trained), length

    def _work_matrices(self) -> int:
        """Each completed kernel needs a projector for new rows; they share a mean."""
        gaps = int(np.sum(~np.all(self.observed, axis=0)))
        completed = self.missing == "available" and gaps > 0
        return super()._work_matrices() + (gaps + 1 if completed else 0)


def spread_out(own: Array, *masks: np.ndarray) -> Array:
    """``own`` placed where the mask of each axis is True, with zeros elsewhere."""
    for axis, mask in enumerate(masks):
        if np.all(mask):
            continue
        where = np.maximum(np.cumsum(mask) - 1, 0)  # arbitrary where mask is False
        own = take(own, where, axis)
        own = _where(mask, own) if axis == 0 else _where(mask, own.T).T
    return own


def _where(rows: np.ndarray, values: Array) -> Array:
    """``values`` (a,) or (a, b) in the rows that are True, zeros elsewhere."""
    xp = namespace(values)
    keep = xp.asarray(rows, device=device(values))
    keep = keep if values.ndim == 1 else keep[:, None]
    return xp.where(keep, values, xp.zeros_like(values))


def _outside(values: Array, rows: np.ndarray, columns: np.ndarray) -> Array:
    """``values`` (a, b) where row or column is False, zero where both are True."""
    both = from_numpy(rows, values)[:, None] * from_numpy(columns, values)[None, :]
    return values * (1.0 - both)


def _shared(rows: np.ndarray, columns: np.ndarray, like: Array) -> Array:
    """Number (a, b) of kernels that rows (a, p) and columns (b, p) share, or 1."""
    counts = from_numpy(rows, like) @ from_numpy(columns, like).T
    return counts + namespace(like).astype(counts == 0, like.dtype)

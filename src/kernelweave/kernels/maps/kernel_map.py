"""Centring in feature space and scaling to trace n: training and test side by side.

With ``P = I - 11'/n``, ``m = K1/n`` and ``g = 1'K1/n^2``::

    training rows   G    = s P K P                  = s (K - 1m' - m1' + g 11')
    test rows       G(x) = s (k(x) - m - mean(k(x)) 1 + g 1)
    scale           s    = n / tr(P K P)

so that every kernel has mean eigenvalue one and its original scale is forgotten.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

import numpy as np

from kernelweave._array import (
    Array,
    device,
    eps,
    from_numpy,
    is_numpy,
    is_square_safe,
    namespace,
)
from kernelweave._memory import CACHE_ENTRIES, numbered, require_memory, row_chunks
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.checks import ensure_psd
from kernelweave.kernels.maps.sources import Source

__all__ = [
    "Centering",
    "KernelMap",
    "OutOfRangeError",
    "center_and_scale",
    "center_in_place",
    "warn_constant",
]


class OutOfRangeError(ValueError):
    """Kernel values, their trace or its reciprocal overflow in this precision."""


@dataclass(frozen=True)
class Centering:
    """What centring a test row of one kernel requires from the training rows.

    Attributes
    ----------
    row_means : array of shape (n,)
        The vector m.
    grand_mean : float
        The scalar g.
    scale : float
        The scalar s; 0 if the kernel is constant on the training rows.
    projector : array of shape (n, n) or None
        If the kernel was clipped, the projector onto the eigenvectors that were kept.
    """

    row_means: Array
    grand_mean: float
    scale: float
    projector: Array | None = None

    def __call__(self, cross: Array) -> Array:
        """Centre and scale test rows ``cross`` (m, n) against the training rows."""
        xp = namespace(cross)
        shift = xp.mean(cross, axis=1, keepdims=True) - self.grand_mean
        centred = (cross - self.row_means[None, :] - shift) * self.scale
        return centred if self.projector is None else centred @ self.projector


def center_in_place(gram: Array, noise: float = 0.0) -> Centering:
    """Centre a training Gram matrix (n, n) and scale it to trace n, in place.

    A kernel whose centred trace is within rounding error is set to zero.

    Parameters
    ----------
    gram : array of shape (n, n)
        The kernel.
    noise : float, default=0.0
        Trace per row that rounding of the kernel's input accounts for.
    """
    xp, n = namespace(gram), gram.shape[0]
    before = float(xp.linalg.trace(gram))
    row_means = xp.mean(gram, axis=1)
    grand_mean = float(xp.mean(row_means))
    trace = before - n * grand_mean  # of P K P
    rounding = 10 * n * eps(gram) * max(abs(before), n * abs(grand_mean))
    rounding = max(rounding, n * noise)
    if not (isfinite(trace) and isfinite(n / trace if trace > rounding else 0.0)):
        raise OutOfRangeError("the kernel is out of range")
    if trace <= rounding:
        _subtract_means(gram, row_means, grand_mean, 1.0)
        largest = max(float(xp.max(gram)), -float(xp.min(gram)))
        if largest <= rounding:
            gram *= 0.0
            return Centering(row_means, grand_mean, 0.0)
        gram *= 1.0 / largest  # not a kernel: ensure_psd will report it
        return Centering(row_means, grand_mean, 1.0 / largest)
    _subtract_means(gram, row_means, grand_mean, n / trace)
    return Centering(row_means, grand_mean, n / trace)


def center_and_scale(kernels: Array) -> Array:
    """A centred copy of a stack (p, n, n), every kernel with trace n."""
    xp = namespace(kernels)
    stack = xp.asarray(kernels, copy=True)
    for i in range(stack.shape[0]):
        center_in_place(stack[i, :, :])
    return stack


def _subtract_means(
    gram: Array, row_means: Array, grand_mean: float, scale: float
) -> None:
    """``scale (K - 1m' - m1' + g 11')`` in place, in one pass over the memory."""
    for rows in row_chunks(gram.shape[0], gram.shape[0], CACHE_ENTRIES):
        part = gram[rows, :]
        part -= row_means[None, :]
        part -= (row_means[rows] - grand_mean)[:, None]
        part *= scale
        if not is_numpy(gram):  # the standard does not guarantee views
            gram[rows, :] = part


#: n x n arrays that a fit may hold besides the bank; counted before any allocation.
WORK_MATRICES = 4


class KernelMap:
    """Turn rows into centred kernels of trace n against the training rows.

    Parameters
    ----------
    source : Source
        The source of the raw kernels.
    psd : {"error", "clip", "trust"}
        What to do with a kernel that is not positive semidefinite; "trust" skips the
        check.

    Attributes
    ----------
    names, view_names : list of str
        The name of each of the p kernels and of its view.
    active : list of int
        Kernels that vary over the training rows; the bank holds only these.
    remarks : list of str
        What was done to the kernels.
    """

    #: Entries of a chunk of rows; None is the default of :func:`row_chunks`.
    chunk_entries: int | None = None

    def __init__(
        self, source: Source, psd: Literal["error", "clip", "trust"] = "error"
    ) -> None:
        self.source = source
        self.psd = psd
        self.names, self.view_names = source.names, source.view_names
        self.centerings: list[Centering] = []
        self.active: list[int] = []
        self.remarks: list[str] = []
        self._work: Array | None = None

    def fit(self, progress: Callable[[int], object] | None = None) -> DenseBank:
        """Compute, check, centre and scale all kernels; return the active ones."""
        stack = self._allocate(self.source.like)
        for i, known_psd in enumerate(self.source.fill(stack)):
            centering = self._center(i, stack[i, :, :], known_psd)
            self.active += [i] if centering.scale > 0 else []
            self.centerings.append(centering)
            if progress is not None:
                progress(i)
        self._work = None
        self.remarks += warn_constant(self.names, self.view_names, self.active)
        if not self.active:
            raise ValueError(
                f"every one of the {len(self.names)} kernel(s) is constant on the "
                "training rows, so there is nothing to learn from; check the features"
            )
        for slot_number, i in enumerate(self.active):  # close the gaps
            if slot_number < i:
                stack[slot_number, :, :] = stack[i, :, :]
        names = [self.names[i] for i in self.active]
        return DenseBank(stack[: len(self.active), :, :], names)

    def _center(self, i: int, slot: Array, known_psd: bool) -> Centering:
        """Centre and scale kernel i (n, n) in place, and check that it is a kernel."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                centering = center_in_place(slot, self.source.noise[i])
        except OutOfRangeError as error:
            raise ValueError(self.source.out_of_range(i)) from error
        if centering.scale > 0 and not known_psd and self.psd != "trust":
            fits = self._work is not None and self._work.shape == slot.shape
            if is_numpy(slot) and not fits:
                self._work = np.empty_like(slot)
            projector, remark = ensure_psd(slot, self._title(i), self.psd, self._work)
            centering = dataclasses.replace(centering, projector=projector)
            self.remarks += [remark] if remark else []
        return centering

    def center(self, i: int, gram: Array, rows: Any) -> Array:
        """``G_i(rows)`` (m, n) from the raw kernel (m, n); errors name a row too large.

        Parameters
        ----------
        i : int
            The kernel.
        gram : array of shape (m, n)
            Its values between new rows and training rows.
        rows : list of arrays, or array of shape (m, n, p)
            The new rows.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            centred = self.centerings[i](gram)
        if not is_square_safe(centred):
            raise ValueError(self.source.out_of_range(i, rows))
        return centred

    def spread(self, weights: np.ndarray) -> np.ndarray:
        """Weights of all p kernels from those of the bank; constant kernels get 0."""
        full = np.zeros(len(self.names))
        full[self.active] = weights
        return full

    def project(self, rows: Any, weights: np.ndarray, coef: Array) -> Array:
        """``sum_i w_i G_i(rows) coef``: (m, k) for all p weights and coef (n, k).

        With weights (p, k), every column of ``coef`` has its own weights. Kernels with
        weight zero are not computed, and rows are processed one chunk at a time.
        """
        xp = namespace(coef)
        used = weights if weights.ndim == 1 else np.any(weights != 0, axis=1)
        wanted = [int(i) for i in np.flatnonzero(used)]
        pieces = list(self.pieces(rows))
        m = pieces[-1][0].stop
        out = xp.zeros((m, coef.shape[1]), dtype=coef.dtype, device=device(coef))
        for part, piece in pieces:
            with numbered(part.start):
                if weights.ndim == 1:
                    out[part, :] = self.cross(piece, weights) @ coef
                    continue
                for i, centred in zip(wanted, self.centred(piece, wanted), strict=True):
                    own = coef * from_numpy(weights[i], coef)[None, :]
                    out[part, :] += centred @ own
        return out

    def project_each(self, rows: Any, weights: np.ndarray, coef: Array) -> Array:
        """The terms ``w_i G_i(rows) coef`` of :meth:`project`, (m, p, k)."""
        xp = namespace(coef)
        shared = weights[:, None] if weights.ndim == 1 else weights  # (p, 1) or (p, k)
        wanted = [int(i) for i in np.flatnonzero(np.any(shared != 0, axis=1))]
        pieces = list(self.pieces(rows))
        shape = (pieces[-1][0].stop, len(self.names), coef.shape[1])
        out = xp.zeros(shape, dtype=coef.dtype, device=device(coef))
        for part, piece in pieces:
            with numbered(part.start):
                for i, centred in zip(wanted, self.centred(piece, wanted), strict=True):
                    own = coef * from_numpy(shared[i], coef)[None, :]
                    out[part, i, :] = centred @ own
        return out

    def cross(self, rows: Any, weights: np.ndarray) -> Array:
        """``sum_i w_i G_i(rows)``, (m, n), for all p weights."""
        wanted = [int(i) for i in np.flatnonzero(weights)]
        total = None
        for i, centred in zip(wanted, self.centred(rows, wanted), strict=True):
            term = centred * float(weights[i])
            total = term if total is None else total + term
        return total

    def pieces(self, rows: Any) -> Iterator[tuple[slice, Any]]:
        """The rows, one chunk at a time, in the form in which they were given."""
        blocks = rows if isinstance(rows, list) else [rows]
        n, entries = self.source.n_samples, self.chunk_entries
        for part in row_chunks(blocks[0].shape[0], n, entries):
            piece = [block[part, ...] for block in blocks]
            yield part, piece if isinstance(rows, list) else piece[0]

    def centred(self, rows: Any, wanted: list[int]) -> Iterator[Array]:
        """``G_i(rows)``, (m, n), of the kernels ``wanted``, one at a time."""
        for i, gram in zip(wanted, self.source.cross(rows, wanted), strict=True):
            yield self.center(i, gram, rows)

    def _allocate(self, like: Array) -> Array:
        xp, p, n = namespace(like), len(self.names), self.source.n_samples
        itemsize, work = xp.finfo(like.dtype).bits // 8, self._work_matrices()
        require_memory(
            (p + work) * n * n * itemsize,
            f"a dense bank of {p} kernels over {n} rows (with {work} work matrices)",
            "use fewer kernels or rows, or float32 input",
            like=like,
        )
        return xp.empty((p, n, n), dtype=like.dtype, device=device(like))

    def _work_matrices(self) -> int:
        return WORK_MATRICES

    def _title(self, i: int) -> str:
        return f"kernel {i} ({self.names[i]!r})"


def warn_constant(
    names: list[str], view_names: list[str], active: list[int]
) -> list[str]:
    """One remark, and warning, per view with kernels that are not ``active``."""
    remarks = []
    for view in dict.fromkeys(view_names):
        own = [i for i, name in enumerate(view_names) if name == view]
        constant = [i for i in own if i not in set(active)]
        if constant:
            which = ", ".join(f"kernel {i} ({names[i]!r})" for i in constant[:3])
            more = f" and {len(constant) - 3} more" if len(constant) > 3 else ""
            remarks.append(
                f"view {view!r}: {which}{more} (of {len(own)} in the view) is "
                "constant on the training rows and gets weight 0"
            )
            warnings.warn(remarks[-1], KernelWarning, stacklevel=3)
    return remarks

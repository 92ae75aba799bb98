"""Banks of kernels: products derived from one kernel at a time, or from a stack.

Their kernels are centred in feature space and scaled to trace n.

With ``P = I - 11'/n``, ``m = K1/n`` and ``g = 1'K1/n^2``::

    training rows   G    = s P K P                  = s (K - 1m' - m1' + g 11')
    test rows       G(x) = s (k(x) - m - mean(k(x)) 1 + g 1)
    scale           s    = n / tr(P K P)

so that every kernel has mean eigenvalue one and its original scale is forgotten. With
row weights w of sum N, means are weighted, ``s = N / sum_i w_i (P K P)_ii``, and
training rows and columns may be multiplied by ``sqrt(w)``, so that a weighted problem
of least squares is one of unweighted rows (see
:class:`~kernelweave.fits.ridge.RowDesign`). :class:`Standard` says which of this is
done.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kernelweave._array import (
    CACHE_ENTRIES,
    DOUBLE_EPS,
    Array,
    add_scaled,
    as_float,
    block_entries,
    each_in_threads,
    empty,
    eps,
    from_numpy,
    has_views,
    in_double,
    inner_products,
    is_numpy,
    largest_of,
    namespace,
    require_memory,
    row_chunks,
    squared_norm,
    take,
    tensor_sum,
    to_numpy,
    zeros,
)
from kernelweave._tolerances import LIKE_IDENTITY, SAME
from kernelweave.protocols import Bank

if TYPE_CHECKING:  # which builds on this module
    from kernelweave.kernels.banks.lazy import OnTheFlyBank

#: Rows that show which kernels are nothing like the identity.
SCREENED = 128
#: Times the difference of two diagonals that its product with a random vector reaches.
DIAGONAL_SLACK = 10.0
#: Share of the largest possible rounding error that sums over stored kernels reach at
#: most, as errors of either sign cancel; in thousands of problems it was 0.02.
REACHED = 0.1
#: Decimal digits that centring may cancel without remark: ordinary kernels lose fewer.
LOST_DIGITS = 4


class KernelBank(ABC):
    """Every method of the protocol ``Bank``, derived from :meth:`kernel` alone.

    A subclass may recompute kernel i on every call, and then stores none of them. A
    subclass with a faster way to compute a product overrides that product.

    Parameters
    ----------
    like : array
        An array with the namespace, device and dtype of the kernels.
    n_kernels, n_samples : int
        p and n.
    names : sequence of str, optional
        One name per kernel.
    n_rows : int, optional
        The number of data rows behind the kernels; by default n.
    """

    #: Whether a subset of the kernels can be taken without copying n x n matrices.
    is_cheap_to_cut = False
    #: Bounds (p,) on the errors of the kernels' eigenvalues, if these matter.
    errors: np.ndarray | None = None
    #: The view of each kernel, if it is known.
    views: list[str] | None = None
    #: How the kernels were centred and scaled; None: centred, to trace n.
    standard: Any = None

    def __init__(
        self,
        like: Array,
        n_kernels: int,
        n_samples: int,
        names: Sequence[str] | None = None,
        n_rows: int | None = None,
    ) -> None:
        self.like = like
        self.n_kernels, self.n_samples = int(n_kernels), int(n_samples)
        self.names = list(names or (f"kernel {i}" for i in range(self.n_kernels)))
        self.n_rows = self.n_samples if n_rows is None else int(n_rows)
        self._forget()

    def _forget(self) -> None:
        """Forget what is known of the kernels: every norm asks about the same ones."""
        self._same: list[np.ndarray] | None = None
        self._likeness: dict[int, float] = {}

    @abstractmethod
    def kernel(self, i: int) -> Array:
        """``G_i``, (n, n); the caller must not modify it."""

    def row_blocks(self) -> Iterator[tuple[slice, Array]]:
        """All kernels, a few rows at a time: the slice of rows, and (p, r, n)."""
        xp, n = namespace(self.like), self.n_samples
        for rows in row_chunks(n, self.n_kernels * n):
            parts = [self.kernel(i)[rows, :] for i in range(self.n_kernels)]
            yield rows, xp.stack(parts)

    def combine(
        self, weights: np.ndarray, out: Array | None = None, lower: bool = False
    ) -> Array:
        """``sum_i w_i G_i``, (n, n); kernels of weight zero are not accessed.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            w.
        out : array of shape (n, n), optional
            Memory that may be used for the result; always use the returned array.
        lower : bool, default=False
            Whether the result is only factored: entries that :func:`cholesky` does not
            read, those above the diagonal or, of NumPy arrays, below it, are then
            unspecified.
        """
        total = zeros((self.n_samples, self.n_samples), self.like)
        for i in np.flatnonzero(weights):
            total = add_scaled(total, self.kernel(int(i)), float(weights[i]))
        return total

    def apply(self, b: Array) -> Array:
        """``G_i B`` for every kernel, (p, n, k), in the precision of ``b`` (n, k)."""
        kernels = (self.kernel(i) for i in range(self.n_kernels))
        return namespace(b).stack([as_float(kernel, b.dtype) @ b for kernel in kernels])

    def quad(self, b: Array) -> Array:
        """``tr(B' G_i B)`` for every kernel, (p,)."""
        return inner_products(self.apply(b), b)

    def diagonals(self) -> np.ndarray:
        """The diagonal of every kernel in float64, (p, n)."""
        diagonal = namespace(self.like).linalg.diagonal
        kernels = (self.kernel(i) for i in range(self.n_kernels))
        return np.stack([to_numpy(diagonal(k)).astype(np.float64) for k in kernels])

    def sizes(self, kernels: np.ndarray) -> np.ndarray:
        """Frobenius norms of the kernels with these indices."""
        return np.array([squared_norm(self.kernel(int(i))) ** 0.5 for i in kernels])

    def restrict(self, rows: np.ndarray) -> Bank:
        """The same kernels, restricted to the rows with these indices."""
        return _Part(self, np.arange(self.n_kernels), np.asarray(rows))

    def rounded_traces(self) -> np.ndarray:
        """The traces (p,) that rounding errors of sums over kernels are measured by."""
        return REACHED * np.sum(np.abs(self.diagonals()), axis=1)

    def entry_errors(self) -> np.ndarray:
        """Relative rounding errors of the entries, (p,): those of their dtype."""
        return np.full(self.n_kernels, eps(self.like))

    def same_kernels(self) -> list[np.ndarray]:
        """Groups of indices of kernels with equal products with one random vector."""
        if self._same is None:
            self._same = _groups(self) if self.n_kernels > 1 else []
        return self._same

    def identity_likeness(self, kernels: np.ndarray) -> np.ndarray:
        """Cosine between the centred identity and each of ``kernels``, indices (c,)."""
        known = self._likeness
        new = np.array([i for i in kernels if int(i) not in known], dtype=int)
        if len(new):
            if self.n_samples > SCREENED:
                # Fewer rows of a kernel look more like the identity than all of them.
                some = self.restrict(
                    np.arange(0, self.n_samples, -(-self.n_samples // SCREENED))
                )
                found = _cosines(some, new)
                known.update(zip(new.tolist(), found.tolist(), strict=True))
                new = new[found > LIKE_IDENTITY]
            found = _cosines(self, new, self.n_rows)
            known.update(zip(new.tolist(), found.tolist(), strict=True))
        return np.array([known[int(i)] for i in kernels])

    def subset(self, kernels: np.ndarray) -> Bank:
        """A bank of the kernels with these indices."""
        return _Part(self, np.asarray(kernels), np.arange(self.n_samples))


def are_all(indices: np.ndarray, n: int) -> bool:
    """Whether these are the indices of all n rows or kernels, in their order."""
    return np.array_equal(indices, np.arange(n))


def _cosines(bank: Bank, kernels: np.ndarray, n_rows: int | None = None) -> np.ndarray:
    """Cosines to the centred identity of ``n_rows``, or of the rows with an entry."""
    if not len(kernels):
        return np.empty(0)
    sizes = bank.sizes(kernels)
    sizes = np.where(sizes > 0, sizes, np.inf)
    diagonals = bank.diagonals()[kernels]
    rows = np.count_nonzero(diagonals, axis=1) if n_rows is None else n_rows
    return np.sum(diagonals, axis=1) / (sizes * np.sqrt(np.maximum(rows - 1, 1)))


def _groups(bank: Bank) -> list[np.ndarray]:
    probe = np.random.default_rng(0).standard_normal((bank.n_samples, 1))
    tolerance = SAME[namespace(bank.like).finfo(bank.like.dtype).bits]
    # Kernels are the same only if their diagonals are, and no norm exceeds a trace.
    diagonals = bank.diagonals()
    traces = np.sum(np.abs(diagonals), axis=1)
    keys = np.sort((diagonals @ probe)[:, 0])
    if np.all(np.diff(keys) > DIAGONAL_SLACK * tolerance * np.max(traces)):
        return []
    sketch = to_numpy(bank.apply(from_numpy(probe, bank.like)))[:, :, 0]
    sketch = sketch.astype(np.float64)
    sketch /= np.max(np.abs(sketch)) or 1.0  # squares stay in range
    size = np.linalg.norm(sketch, axis=1)
    order = np.argsort(size, kind="stable")  # equal kernels become neighbours
    gaps = np.linalg.norm(np.diff(sketch[order], axis=0), axis=1)
    same = (gaps <= tolerance * size[order[1:]]) & (size[order[:-1]] > 0)
    groups = np.split(order, np.flatnonzero(~same) + 1)
    return [np.sort(group) for group in groups if len(group) > 1]


class _Part(KernelBank):
    """Some kernels of a bank on some of its rows, recomputed on every use."""

    def __init__(self, whole: Bank, kernels: np.ndarray, rows: np.ndarray) -> None:
        names = [whole.names[int(i)] for i in kernels]
        every = are_all(rows, whole.n_samples)
        n_rows = whole.n_rows if every else None
        super().__init__(whole.like, len(kernels), len(rows), names, n_rows)
        self.standard = whole.standard
        self._whole, self._kernels = whole, kernels
        self._rows = None if every else rows

    def kernel(self, i: int) -> Array:
        """``G_i`` on these rows, (n, n)."""
        gram = self._whole.kernel(int(self._kernels[i]))
        return gram if self._rows is None else take_square(gram, self._rows)


def take_square(gram: Array, rows: np.ndarray, out: Array | None = None) -> Array:
    """The submatrix of a matrix (n, n) with these rows and columns, (r, r).

    It is written to ``out``, if given.
    """
    if not is_numpy(gram):
        found = take(take(gram, rows), rows, axis=1)
        if out is None:
            return found
        out[...] = found
        return out
    out = np.empty((len(rows), len(rows)), gram.dtype) if out is None else out

    def write(part: slice) -> None:  # whole rows stay in cache until they are cut
        np.take(gram[rows[part]], rows, axis=1, out=out[part], mode="wrap")

    parts = row_chunks(len(rows), gram.shape[1], CACHE_ENTRIES)
    each_in_threads(write, parts, out.size)
    return out


def combine_in_double(
    bank: Bank, weights: np.ndarray, out: Array | None = None
) -> Array:
    """``sum_i w_i G_i`` in float64, whatever the dtype of the kernels, (n, n)."""
    xp = namespace(bank.like)
    if bank.like.dtype == xp.float64:
        return bank.combine(weights, out=out)
    total = zeros((bank.n_samples, bank.n_samples), bank.like, xp.float64)
    for i, weight in enumerate(weights):
        total = add_scaled(total, as_float(bank.kernel(i), xp.float64), float(weight))
    return total


def host_stack(bank: Bank) -> np.ndarray:
    """All kernels in host memory and float64, (p, n, n)."""
    kernels = (to_numpy(bank.kernel(i)) for i in range(bank.n_kernels))
    return np.stack([kernel.astype(np.float64) for kernel in kernels])


# ------------------------------------------------------------------------ centring


@dataclass(frozen=True)
class Standard:
    """What is done to every kernel K: ``G = s P K P``, or ``G = s K``.

    A machine or a regression with a free intercept is the same on K and on ``P K P``:
    its coefficients sum to zero. What centring changes there is the trace by which
    kernels are scaled and, for weights of any sign, which sums are positive
    semidefinite. Least squares is computed from centred kernels in either case, so that
    its leave-one-out formulas hold.

    Attributes
    ----------
    centre : bool
        Whether G is centred.
    scale : {"trace", "given trace", None}
        s: ``n / tr(G / s)``, ``n / tr(K)`` whether G is centred or not, or 1.
    """

    centre: bool = True
    scale: Literal["trace", "given trace"] | None = "trace"

    @classmethod
    def of(cls, model: Any, least_squares: bool) -> Standard:
        """What the parameters ``centre`` and ``scale`` of an estimator ask for."""
        if model.centre or not least_squares:
            return cls(bool(model.centre), model.scale)
        return cls(True, None if model.scale is None else "given trace")

    @property
    def is_default(self) -> bool:
        """Whether neither the origin nor the unit of a kernel matters."""
        return self == Standard()

    @property
    def again(self) -> Standard:
        """For some of the rows of such kernels: a scale other than trace n stays."""
        return self if self.is_default else Standard(self.centre, None)

    def factor(self, trace: float, given: float, n: int) -> float:
        """s, from the trace of G / s and that of K."""
        if self.scale is None:
            return 1.0
        if self.scale == "trace":
            return n / trace
        if not given > 0.0:  # positive semidefinite only once it is centred
            raise TraceError(given)
        return n / given


class TraceError(ValueError):
    """A kernel that varies has no positive trace before it is centred."""


#: Centred kernels of trace n.
STANDARD = Standard()


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
    shares : array of shape (n,) or None
        ``w / N``; None if all rows count the same.
    cancelled : float
        The largest entry on the diagonal, relative to the mean after centring: how many
        times more the kernel's entries are rounded than those of G.
    centre : bool
        Whether rows are centred at all; otherwise they are only scaled.
    level : float
        The mean eigenvalue of G; 1 if kernels are scaled to a trace.
    """

    row_means: Array
    grand_mean: float
    scale: float
    projector: Array | None = None
    shares: Array | None = None
    cancelled: float = 1.0
    centre: bool = True
    level: float = 1.0

    def scaled(
        self, standard: Standard, trace: float, given: float, highest: float
    ) -> Centering:
        """With the scale asked for, if the trace is that of a kernel that varies.

        ``given`` is the trace of K, and ``highest`` its largest diagonal entry.
        """
        n = self.row_means.shape[0]
        return dataclasses.replace(
            self,
            scale=standard.factor(trace, given, n),
            cancelled=highest * (n / trace) if self.centre else 1.0,
            level=1.0 if standard.scale is not None else trace / n,
        )

    def limited(self, largest: float, rounding: float) -> Centering:
        """For a matrix without trace: zero or, as ``ensure_psd`` will say, no kernel.

        ``largest`` is its largest entry once it is centred.
        """
        if not isfinite(largest):
            raise ValueError(OUT_OF_RANGE)
        scale = 1.0 / largest if largest > rounding else 0.0
        return dataclasses.replace(self, scale=scale)

    def __call__(self, cross: Array) -> Array:
        """Centre and scale test rows ``cross`` (m, n) against the training rows."""
        if self.centre:
            shift = (_means(cross, self.shares) - self.grand_mean)[:, None]
            centred = cross - self.row_means[None, :]
            centred -= shift
            centred *= self.scale
        else:
            centred = cross * self.scale
        return centred if self.projector is None else centred @ self.projector

    def length(self, cross: Array, same: Array) -> Array:
        """``g(x, x)`` (m,) of test rows, from ``k(x)`` (m, n) and ``k(x, x)`` (m,)."""
        xp, scale = namespace(cross), self.scale
        if self.projector is not None:  # r times a projection of rank k has trace r k
            squares = float(xp.sum(self.projector * self.projector))
            scale *= squares / float(xp.linalg.trace(self.projector))
        if not self.centre:
            return same * scale
        return (same - 2.0 * _means(cross, self.shares) + self.grand_mean) * scale


def _means(rows: Array, shares: Array | None) -> Array:
    """The (weighted) mean of each row (m, n), (m,)."""
    if shares is not None:
        return rows @ shares
    if not is_numpy(rows):
        return namespace(rows).mean(rows, axis=1)
    found = np.empty(len(rows), rows.dtype)

    def write(part: slice) -> None:
        np.mean(rows[part], axis=1, out=found[part])

    each_in_threads(write, row_chunks(*rows.shape), rows.size)
    return found


def center_in_place(
    gram: Array,
    noise: float = 0.0,
    shares: Array | None = None,
    standard: Standard = STANDARD,
) -> Centering:
    """Centre a training Gram matrix (n, n) and scale it to trace n, in place.

    A kernel whose centred trace is within rounding error is set to zero; one whose
    values, trace or reciprocal trace overflow is a ValueError.

    Parameters
    ----------
    gram : array of shape (n, n)
        The kernel.
    noise : float, default=0.0
        Trace per row that rounding of the kernel's input accounts for.
    shares : array of shape (n,), optional
        ``w / N``: means are weighted, and the scale is ``N / sum_i w_i (P K P)_ii``.
    standard : Standard, optional
        Whether to centre, and what to scale by.
    """
    xp, n = namespace(gram), gram.shape[0]
    diagonal = xp.linalg.diagonal(gram)
    before = float(xp.sum(diagonal if shares is None else diagonal * shares * n))
    row_means, grand_mean = zeros((n,), gram), 0.0
    if standard.centre:
        row_means = _means(gram, shares)
        grand_mean = float(_means(row_means[None, :], shares)[0])
    found = Centering(row_means, grand_mean, 1.0, shares=shares, centre=standard.centre)
    trace, rounding = _centred_trace(found, before, noise, eps(gram))
    if trace > rounding:
        found = found.scaled(standard, trace, before, largest_of(diagonal))
        _subtract_means(gram, found)
        return found
    _subtract_means(gram, found)
    found = found.limited(largest_of(gram), rounding)
    gram *= found.scale
    return found


#: The message of the error, to which others add the view, row and column.
OUT_OF_RANGE = "the kernel is out of range"


def _centred_trace(
    found: Centering, before: float, noise: float, precision: float
) -> tuple[float, float]:
    """The trace of ``P K P``, and up to where it is rounding; ValueError on overflow.

    ``before`` is the trace of K.
    """
    n, grand_mean = found.row_means.shape[0], found.grand_mean
    trace, rounding = before - n * grand_mean, 0.0
    if found.centre:
        rounding = 10 * n * precision * max(abs(before), n * abs(grand_mean))
        rounding = max(rounding, n * noise)
    if not (isfinite(trace) and isfinite(n / trace if trace > rounding else 0.0)):
        raise ValueError(OUT_OF_RANGE)
    return trace, rounding


def center_tiles(
    tiles: OnTheFlyBank,
    noise: Sequence[float],
    shares: Array | None = None,
    standard: Standard = STANDARD,
) -> Iterator[Centering]:
    """The centring of every kernel, from one pass over the pairs of rows.

    As from :func:`center_in_place`, for kernels of which no matrix is kept.
    """
    xp, n, like = namespace(tiles.like), tiles.n_samples, tiles.like
    each = np.full(n, 1.0 / n) if shares is None else to_numpy(shares).astype(float)
    means = zeros((tiles.n_kernels, n), like, xp.float64)
    if standard.centre:
        means = tiles.apply(in_double(each[:, None], like))[:, :, 0]
    grand = to_numpy(means) @ each
    diagonals = np.asarray(tiles.diagonals())  # (p, n)
    before = n * (diagonals @ each)
    for i, own in enumerate(noise):
        row_means, given = as_float(means[i, :], like.dtype), float(before[i])
        found = Centering(
            row_means, float(grand[i]), 1.0, shares=shares, centre=standard.centre
        )
        trace, rounding = _centred_trace(found, given, own, eps(like))
        if trace > rounding:
            yield found.scaled(standard, trace, given, float(np.max(diagonals[i])))
            continue
        alone = tiles.subset([i]).centred([found])
        largest = max(float(xp.max(xp.abs(block))) for _, block in alone.row_blocks())
        yield found.limited(largest, rounding)


def lost_in_centring(gram: Array, centering: Centering) -> float:
    """Bound on the error of eigenvalues of a centred kernel (n, n), if it matters.

    Each entry of the kernel is rounded by up to eps times its size; n such errors add
    up in an eigenvalue. It is 0 if fewer than :data:`LOST_DIGITS` digits cancelled.
    """
    if not centering.cancelled > 10.0**LOST_DIGITS:
        return 0.0
    return gram.shape[-1] * eps(gram) * centering.cancelled


def center_and_scale(kernels: Array, row_weights: np.ndarray | None = None) -> Array:
    """A centred copy of a stack (p, n, n), every kernel with trace n.

    With row weights w (n,) of sum N, means are weighted and ``sum_i w_i K_ii = N``.
    """
    xp = namespace(kernels)
    stack = xp.asarray(kernels, copy=True)
    shares = None
    if row_weights is not None:
        shares = from_numpy(row_weights / np.sum(row_weights), stack)
    for i in range(stack.shape[0]):
        center_in_place(stack[i, :, :], shares=shares)
    return stack


def _subtract_means(gram: Array, found: Centering) -> None:
    """``scale (K - 1m' - m1' + g 11')`` in place, in one pass over the memory."""
    n, row_means = gram.shape[0], found.row_means

    def change(rows: slice) -> None:
        part = gram[rows, :]
        if found.centre:
            part -= row_means[None, :]
            part -= (row_means[rows] - found.grand_mean)[:, None]
        part *= found.scale
        if not has_views(gram):
            gram[rows, :] = part

    parts = row_chunks(n, n, block_entries(gram, CACHE_ENTRIES))
    each_in_threads(change, parts, n * n if is_numpy(gram) else 0)


# ------------------------------------------------------------------- stored kernels


class DenseBank(KernelBank):
    """Centred kernels ``G_1, ..., G_p`` of trace n, held as one array (p, n, n).

    Parameters
    ----------
    stack : array of shape (p, n, n)
        Symmetric positive semidefinite matrices whose rows sum to zero;
        :meth:`from_kernels` takes any others.
    names : sequence of str, optional
        One name per kernel.

    Attributes
    ----------
    n_kernels, n_samples : int
        p and n.
    """

    def __init__(self, stack: Array, names: list[str] | None = None) -> None:
        if stack.ndim != 3 or stack.shape[1] != stack.shape[2]:
            raise ValueError(
                "a DenseBank takes an array of shape (p, n, n); "
                f"got shape {tuple(stack.shape)}"
            )
        super().__init__(stack, stack.shape[0], stack.shape[1], names)
        self.stack = stack

    @classmethod
    def from_kernels(cls, kernels: Array, names: list[str] | None = None) -> DenseBank:
        """A bank of any kernels: copies of them, centred and scaled to trace n.

        Parameters
        ----------
        kernels : array of shape (p, n, n)
            Symmetric positive semidefinite matrices.
        names : sequence of str, optional
            One name per kernel.
        """
        given = cls(kernels, names)  # which checks the shape
        return cls(center_and_scale(given.stack), given.names)

    def kernel(self, i: int) -> Array:
        """``G_i``, (n, n), a view of the bank's memory."""
        return self.stack[i, :, :]

    def entry_errors(self) -> np.ndarray:
        """Stored kernels are taken as they are, and multiplied in float64."""
        return np.full(self.n_kernels, DOUBLE_EPS)

    #: Passes over the kernels take blocks of rows of about this many entries.
    block_entries = 2**25
    #: From so many samples on, a factorisation is given a triangle only, in blocks of
    #: so many rows: a third less to read, but more calls.
    many_samples, triangle_rows = 1000, 32
    #: Most and fewest rows of one product of :meth:`apply`, the multiplications up to
    #: which BLAS takes matrices as they are, and the samples below which one is enough.
    most_rows, fewest_rows, small_product, few_samples = 64, 8, 1_000_000, 256

    def row_blocks(self) -> Iterator[tuple[slice, Array]]:
        """All kernels, a few rows at a time: the slice of rows, and (p, r, n)."""
        for rows in row_chunks(self.n_samples, self.n_kernels * self.n_samples):
            yield rows, self.stack[:, rows, :]

    def subset(self, kernels: np.ndarray) -> DenseBank:
        """A bank of some of the kernels, copied."""
        parts = [self.kernel(int(i)) for i in kernels]
        stack = namespace(self.stack).stack(parts)
        return DenseBank(stack, [self.names[int(i)] for i in kernels])

    def restrict(self, rows: np.ndarray) -> DenseBank:
        """The kernels on some of the rows, copied unless all rows are taken."""
        if are_all(rows, self.n_samples):
            return self
        n = len(rows)
        bits = namespace(self.stack).finfo(self.stack.dtype).bits
        require_memory(
            self.n_kernels * n * n * bits // 8,
            f"{self.n_kernels} kernels of {n} rows",
            "use fewer rows",
            self.stack,
        )
        out = empty((self.n_kernels, n, n), self.stack)
        for i in range(self.n_kernels):
            take_square(self.kernel(i), rows, out[i, :, :])
        return DenseBank(out, self.names)

    def combine(
        self, weights: np.ndarray, out: Array | None = None, lower: bool = False
    ) -> Array:
        """``sum_i w_i G_i``, (n, n), in one pass over the kernels.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            w.
        out : array of shape (n, n), optional
            Memory for the result.
        lower : bool, default=False
            Whether the result is only factored: entries that :func:`cholesky` does not
            read, those above the diagonal or, of NumPy arrays, below it, are then
            unspecified.
        """
        n, w = self.n_samples, np.asarray(weights, dtype=np.float64)
        out = zeros((n, n), self.stack) if out is None else out
        if is_numpy(self.stack):
            self._combine_rows(w, out, lower and n >= self.many_samples)
            return out
        for rows in row_chunks(n, self.n_kernels * n, self.block_entries):
            # GPU libraries index the entries of one product with 32 bits
            columns = slice(0, rows.stop if lower else n)
            part = out[rows, columns]
            part[...] = self.stack[0, rows, columns]
            part *= float(w[0])
            for i in range(1, self.n_kernels):
                part = add_scaled(part, self.stack[i, rows, columns], float(w[i]))
            if not has_views(out):
                out[rows, columns] = part
        return out

    def _combine_rows(self, w: np.ndarray, out: np.ndarray, triangle: bool) -> None:
        """Fill the rows of ``out`` (n, n), or only what LAPACK reads of them.

        It takes the rows of NumPy for columns: its lower triangle is on the right.
        """
        n, w = self.n_samples, from_numpy(w, self.stack)

        def write(rows: slice) -> None:
            if triangle:
                stack = self.stack[:, rows, rows.start :].transpose(1, 0, 2)
                np.matmul(w, stack, out=out[rows, rows.start :])
            else:
                out[rows, :] = tensor_sum(w, self.stack[:, rows, :])

        size = self.triangle_rows * n if triangle else self.block_entries // 8
        parts = row_chunks(n, n if triangle else self.n_kernels * n, size)
        each_in_threads(write, parts, self.stack.size)

    def apply(self, b: Array) -> Array:
        """``G_i B`` for every kernel, (p, n, k), in the precision of ``b`` (n, k)."""
        if not is_numpy(b) or b.dtype != self.stack.dtype:
            return super().apply(b)
        flat = self.stack.reshape(-1, self.n_samples)
        room = self.small_product // max(b.size, 1)
        if self.n_samples < self.few_samples or (room < self.fewest_rows):
            return (flat @ b).reshape(self.n_kernels, *b.shape)  # one tall product
        # A tall product is copied into BLAS's own layout, which costs more than the
        # product with few columns; blocks of few rows are multiplied as they are.
        out, b = np.empty((len(flat), b.shape[1]), b.dtype), np.ascontiguousarray(b)
        count = min(self.most_rows, 2 ** (room.bit_length() - 1))
        if b.shape[1] == 1:
            count = len(flat)

        def write(part: slice) -> None:
            for start in range(part.start, part.stop, count):
                rows = slice(start, min(start + count, part.stop))
                np.matmul(flat[rows], b, out=out[rows])

        each_in_threads(write, row_chunks(len(flat), self.n_samples), flat.size)
        return out.reshape(self.n_kernels, *b.shape)

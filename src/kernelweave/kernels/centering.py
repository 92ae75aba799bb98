"""Centring in feature space and scaling to trace n: training and test side by side.

With ``P = I - 11'/n``, ``m = K1/n`` and ``g = 1'K1/n^2``::

    training rows   G    = s P K P                  = s (K - 1m' - m1' + g 11')
    test rows       G(x) = s (k(x) - m - mean(k(x)) 1 + g 1)
    scale           s    = n / tr(P K P)

so that every kernel has mean eigenvalue one and its original scale is forgotten. With
row weights w of sum N, means are weighted, ``s = N / sum_i w_i (P K P)_ii``, and
training rows and columns may be multiplied by ``sqrt(w)``, so that a weighted problem
of least squares is one of unweighted rows (see
:class:`~kernelweave.fits.design.RowDesign`). :class:`Standard` says which of these
steps are taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kernelweave._array import (
    CACHE_ENTRIES,
    Array,
    as_float,
    block_entries,
    checked_stack,
    each_in_threads,
    eps,
    from_numpy,
    has_views,
    in_double,
    is_numpy,
    largest_of,
    namespace,
    row_chunks,
    to_numpy,
    zeros,
)
from kernelweave._tolerances import ROUNDING_UNITS
from kernelweave.kernels.checks import checked_row_weights

if TYPE_CHECKING:  # banks centre their kernels with what is here
    from kernelweave.kernels.banks.lazy import OnTheFlyBank

#: Decimal digits that centring may cancel without remark: ordinary kernels lose fewer.
LOST_DIGITS = 4
#: Roundings of an entry before it is centred: its own, and those of three means.
ROUNDINGS = 4


@dataclass(frozen=True)
class Standard:
    """How every kernel K is centred and scaled: ``G = s P K P``, or ``G = s K``.

    A machine or a regression with a free intercept is the same on K and on ``P K P``:
    its coefficients sum to zero. Centring changes only the trace by which kernels are
    scaled and, for weights of any sign, which sums are positive semidefinite. Least
    squares is computed from centred kernels in either case, so its leave-one-out
    formulas hold.

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
        """As the parameters ``centre`` and ``scale`` of an estimator say."""
        if model.centre or not least_squares:
            return cls(bool(model.centre), model.scale)
        return cls(True, None if model.scale is None else "given trace")

    @property
    def is_default(self) -> bool:
        """Whether neither the origin nor the unit of a kernel matters."""
        return self == Standard()

    @property
    def again(self) -> Standard:
        """For some rows of such kernels, where a scale other than trace n is kept."""
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
    """Means and scale of one kernel over the training rows, to centre test rows with.

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
        """With the scale requested, if the trace is that of a kernel that varies.

        ``given`` is the trace of K, and ``highest`` its largest diagonal entry.
        """
        n = self.row_means.shape[0]
        return dataclasses.replace(
            self,
            scale=standard.factor(trace, given, n),
            cancelled=highest * (n / trace) if self.centre else 1.0,
            level=1.0 if standard.scale is not None else trace / n,
        )

    def limited(self, standard: Standard, largest: float, rounding: float) -> Centering:
        """For a matrix of trace 0: zero, or not a kernel, as ``ensure_psd`` will say.

        ``largest`` is its largest entry once it is centred.
        """
        if not isfinite(largest):
            raise ValueError(OUT_OF_RANGE)
        if not largest > rounding:
            return dataclasses.replace(self, scale=0.0)
        if standard.scale is None:
            return dataclasses.replace(self, level=largest)
        return dataclasses.replace(self, scale=1.0 / largest)

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
    return namespace(rows).mean(rows, axis=1) if shares is None else rows @ shares


def center_in_place(
    gram: Array,
    noise: float = 0.0,
    shares: Array | None = None,
    standard: Standard = STANDARD,
) -> Centering:
    """Centre a training Gram matrix (n, n) and scale it to trace n, in place.

    A kernel whose centred trace is within rounding error is set to zero; one whose
    values, trace or reciprocal trace overflow raises a ValueError.

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
    found = found.limited(standard, largest_of(gram), rounding)
    gram *= found.scale
    return found


#: The message of the error, to which others add the view, row and column.
OUT_OF_RANGE = "the kernel is out of range"


def _centred_trace(
    found: Centering, before: float, noise: float, precision: float
) -> tuple[float, float]:
    """The trace of ``P K P``, and its rounding error; ValueError on overflow.

    ``before`` is the trace of K.
    """
    n, grand_mean = found.row_means.shape[0], found.grand_mean
    trace, rounding = before - n * grand_mean, 0.0
    if found.centre:
        size = max(abs(before), n * abs(grand_mean))
        rounding = max(ROUNDING_UNITS * n * precision * size, n * noise)
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

    As from :func:`center_in_place`, for kernels whose matrices are not kept.
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
        yield found.limited(standard, largest, rounding)


def lost_in_centring(gram: Array, centering: Centering) -> float:
    """Bound on the error of eigenvalues of a centred kernel (n, n), if it matters.

    An entry and the means that are subtracted from it are rounded by up to eps times
    the largest entry each, and n such errors add up in an eigenvalue. So relative to
    the mean eigenvalue it is known to within ``b = 4 n eps`` times the largest entry
    before centring, divided by the mean entry on the diagonal after it. One rule
    follows for all kernels: with ``b`` of about 0.4 or more a kernel is constant up to
    rounding (:func:`center_in_place`); up to there it is accepted, eigenvalues down to
    ``-b`` count as zero, and certificates are widened by ``b``.

    The bound is 0 if fewer than :data:`LOST_DIGITS` digits cancelled.
    """
    if not centering.cancelled > 10.0**LOST_DIGITS:
        return 0.0
    entries = ROUNDINGS * eps(gram) * centering.cancelled
    return gram.shape[-1] * entries * centering.level


def center_and_scale(kernels: Array, row_weights: np.ndarray | None = None) -> Array:
    """A centred copy of a stack (p, n, n), every kernel with trace n.

    With row weights w (n,) of sum N, means are weighted and ``sum_i w_i K_ii = N``.
    """
    given = checked_stack(kernels)
    stack, shares = namespace(given).asarray(given, copy=True), None
    if row_weights is not None:
        weights = checked_row_weights(row_weights, stack.shape[1])
        shares = from_numpy(weights / np.sum(weights), stack)
    for i in range(stack.shape[0]):
        try:
            center_in_place(stack[i, :, :], shares=shares)
        except ValueError as error:
            raise ValueError(
                f"kernel {i} holds NaN, infinity, or numbers beyond the range of "
                f"{stack.dtype}; correct it, or rescale it"
            ) from error
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

"""Centring in feature space and scaling to trace n: training and test side by side.

With ``P = I - 11'/n``, ``m = K1/n`` and ``g = 1'K1/n^2``::

    training rows   G    = s P K P                  = s (K - 1m' - m1' + g 11')
    test rows       G(x) = s (k(x) - m - mean(k(x)) 1 + g 1)
    scale           s    = n / tr(P K P)

so that every kernel has mean eigenvalue one and its original scale is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from kernelweave._array import Array, eps, is_numpy, namespace
from kernelweave._chunks import CACHE_ENTRIES, row_chunks

__all__ = ["Centering", "OutOfRangeError", "center_and_scale", "center_in_place"]


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

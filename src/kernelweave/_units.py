"""Powers of two that scale numbers of any size so that their squares can be computed.

In double precision squares overflow beyond 1e154 and underflow below 1e-162, in single
precision beyond 1e19 and below 1e-22. Division by a power of two is exact, so any
quantity whose final result is independent of its unit may be rescaled first.
"""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array, as_float, from_numpy, namespace, to_numpy

__all__ = [
    "column_means",
    "is_square_safe",
    "largest_of",
    "units_of",
]

#: Largest binary exponent of numbers that are not rescaled: their squares, sums of many
#: squares, and the reciprocals of these sums neither overflow nor underflow.
ORDINARY = {32: 128 // 4, 64: 1024 // 3}
#: Largest sum of squares allowed, as a fraction of the largest finite number: it leaves
#: room for the computations that follow.
ROOM = 1e-8
#: Binary exponent of the largest unit; its reciprocal is a normal number, too.
EXTREME = {32: 125, 64: 1021}


def units_of(sizes: np.ndarray | float, bits: int) -> np.ndarray:
    """The power of two just above each size; 1 if the size is ordinary or zero.

    Parameters
    ----------
    sizes : ndarray or float
        Largest absolute values, nonnegative.
    bits : {32, 64}
        Precision in which the numbers are multiplied.
    """
    _, exponents = np.frexp(np.asarray(sizes, dtype=np.float64))
    ordinary = (np.abs(exponents) <= ORDINARY[bits]) | (np.asarray(sizes) == 0)
    exponents = np.clip(exponents, -EXTREME[bits], EXTREME[bits])
    return np.where(ordinary, 1.0, np.ldexp(1.0, exponents))


def largest_of(X: Array) -> float:
    """The largest absolute value of an array; NaN if it contains one."""
    xp = namespace(X)
    return max(float(xp.max(X)), -float(xp.min(X)))


def is_square_safe(X: Array) -> bool:
    """Whether all entries and the sum of their squares are finite, with room left."""
    xp = namespace(X)
    flat = xp.reshape(X, (-1,))
    with np.errstate(over="ignore", invalid="ignore"):
        return float(flat @ flat) <= ROOM * float(xp.finfo(X.dtype).max)


def column_means(X: Array) -> Array:
    """Means (d,) of the columns of X (n, d), whatever their size."""
    xp = namespace(X)
    largest = to_numpy(xp.max(xp.abs(X), axis=0))
    units = units_of(largest, xp.finfo(X.dtype).bits)
    plain = bool(np.all(units == 1))
    units = from_numpy(units, X)
    # Sums of many float32 numbers need float64; the data themselves do not.
    total = xp.sum(X if plain else X / units, axis=0, dtype=xp.float64)
    return as_float(total / X.shape[0], X.dtype) * units

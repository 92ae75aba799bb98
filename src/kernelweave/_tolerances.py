"""What counts as zero, constant, equal or solved, where several modules must agree.

A number that belongs to one algorithm stays beside it. All of these are relative to the
size of what they are compared with.
"""

from __future__ import annotations

from kernelweave._array import Array, namespace

__all__ = [
    "ALLOWED_VIOLATION",
    "CONSTANT_VARIANCE",
    "FLOAT32_TOL",
    "INVERTIBLE_SQUARE",
    "NULL_EIGENVALUE",
    "ROUNDING_UNITS",
    "SAME_SCORE",
    "SMALL_GAP",
    "reachable_tolerance",
]

#: Distance from their set at which weights may still be certified. Scaling onto a set
#: leaves some p machine precisions; a cone solver leaves more, and is scaled as well.
ALLOWED_VIOLATION = 1e-9
#: The smallest gap worth asking for with kernels in single precision: their entries,
#: known to 6e-8, are summed and divided by alpha before they enter a bound.
FLOAT32_TOL = 1e-4
#: A gap below this that no longer shrinks is held up by rounding; a larger one may be
#: a path that has only paused.
SMALL_GAP = 1e-3
#: Eigenvalue, relative to the largest, that is rounding: an eigensolver in double
#: precision errs by about n eps, which is 1e-13 for 500 rows.
NULL_EIGENVALUE = 1e-13
#: Machine precisions that a short computation may lose.
ROUNDING_UNITS = 10.0
#: Variance, in machine precisions of the second moment, that is rounding: the mean's
#: square cancels, and the sums run over very many rows.
CONSTANT_VARIANCE = 1e4
#: Scores of two settings that differ by less are the same, so that no choice depends on
#: the last digits of a machine or an array library.
SAME_SCORE = 1e-6
#: The smallest number whose inverse can be squared in double precision.
INVERTIBLE_SQUARE = 1e-150


def reachable_tolerance(tol: float, like: Array) -> float:
    """``tol``, or what kernels with the dtype of ``like`` can be asked for instead."""
    single = namespace(like).finfo(like.dtype).bits == 32
    return max(float(tol), FLOAT32_TOL) if single else float(tol)

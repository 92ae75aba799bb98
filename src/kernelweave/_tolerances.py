"""What counts as zero, constant, equal or solved, where several modules must agree.

A tolerance that belongs to a single algorithm is defined next to it, with its reason.
All values here are relative to the size of the quantity they are compared with.
"""

from __future__ import annotations

#: Distance from their set up to which weights may be certified. Scaling onto a set
#: leaves an error of about p eps; the weights of a cone solver, which are further
#: off, are scaled as well.
ALLOWED_VIOLATION = 1e-9
#: The smallest gap worth requesting with kernels in single precision: their entries,
#: accurate to 6e-8, are summed and divided by alpha before they enter a bound.
FLOAT32_TOL = 1e-4
#: Change of functions by float32, relative to the largest value, worth reporting.
NOTABLE = 1e-3
#: A gap below this that no longer shrinks is limited by rounding; with a larger gap
#: the iteration may merely have stalled for a while.
SMALL_GAP = 1e-3
#: Steps in a row without progress, such as halving the gap, after which only rounding
#: is left: one or two may fail by chance.
IDLE = 3
#: Eigenvalues below this, relative to the largest, are rounding errors: an eigensolver
#: in double precision errs by about n eps, which is 1e-13 for 500 rows.
NULL_EIGENVALUE = 1e-13
#: Eigenvalues up to this may be rounding, in units of machine precision times n and the
#: size of the kernel: its entries have errors too, and more than the eigensolver's.
EIGENVALUE_UNITS = 100.0
#: Added to the diagonal of a singular matrix, relative to its trace: as much as
#: rounding changes eigenvalues anyway. Equal kernels make systems singular.
RIDGE = NULL_EIGENVALUE
#: Error of a short computation, in units of machine precision.
ROUNDING_UNITS = 10.0
#: Variance that counts as rounding, in units of machine precision times the second
#: moment: the square of the mean cancels, and the sums run over very many rows.
CONSTANT_VARIANCE = 1e4
#: Two settings whose scores differ by less are tied: no choice should depend on the
#: last digits, which vary between machines and array libraries.
SAME_SCORE = 1e-6
#: The smallest number whose inverse can be squared in double precision.
INVERTIBLE_SQUARE = 1e-150
#: Stands for zero where a logarithm or a quotient needs a positive number.
NEXT_TO_ZERO = 1e-300
#: Cosine to the centred identity above which a kernel acts as regularisation.
LIKE_IDENTITY = 0.95
#: Sum of the kernel weights below which only the identity is left: the target is
#: unrelated to every kernel, and their shares mean nothing.
NO_KERNEL = 1e-6
#: Weights up to this share of the largest are not worth a remark.
NEGLIGIBLE_WEIGHT = 1e-3
#: Difference between two sums of row weights, relative to the total, due to rounding.
ROUNDED_WEIGHT = 1e-12
#: First-order decrease, relative to the value, that a local search leaves at a minimum.
LOCAL_MINIMUM = 1e-3
#: Relative difference of two kernels below which they count as one, for each precision.
SAME = {32: 1e-4, 64: 1e-8}
#: With fewer rows than this, rounding errors in sums over them do not cancel.
FEW_ROWS = 40

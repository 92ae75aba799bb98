"""Factor a regularised kernel, or say how much regularisation it needs."""

from __future__ import annotations

import math

from kernelweave._array import Array, FactorizationError, cholesky, namespace

__all__ = ["factor_regularized"]

#: The alpha to recommend, in units of eps times the trace. Most kernels need less than
#: one; Gaussians so wide that centring cancels most digits needed up to 16.
ENOUGH = 20.0


def factor_regularized(matrix: Array, alpha: float, unit: float = 1.0) -> Array:
    """Cholesky factor of ``G + alpha I``, given as a matrix (n, n) to overwrite.

    If the smallest eigenvalues of G are rounding errors, the sum is positive definite
    only if alpha exceeds them.

    Parameters
    ----------
    matrix : array of shape (n, n)
        The sum; its memory is reused.
    alpha : float
        The value added to the diagonal.
    unit : float, default=1.0
        The factor by which the user's alpha was multiplied.

    Raises
    ------
    FactorizationError
        If alpha is too small; the message names one that should be large enough.
    """
    xp = namespace(matrix)
    precision = xp.finfo(matrix.dtype)
    trace = float(xp.sum(xp.linalg.diagonal(matrix)))
    if not math.isfinite(trace):
        raise FactorizationError(
            "the weighted sum of kernels contains NaN or infinite values; check the "
            "kernels, and rescale data whose squares overflow"
        )
    try:
        factor = cholesky(matrix, overwrite=True)
        pivot = float(xp.min(xp.linalg.diagonal(factor)))
        if pivot**2 < trace * math.sqrt(float(precision.smallest_normal)):
            raise FactorizationError("squares of the inverse overflow")
    except FactorizationError as error:
        enough = max(ENOUGH * float(precision.eps) * trace, 10.0 * alpha) / unit
        advice = ", or float64 input" if precision.bits == 32 else ""
        raise FactorizationError(
            f"alpha={alpha / unit:.3g} is too small for kernels in float"
            f"{precision.bits}: rounding leaves G + alpha I not positive definite; "
            f"use alpha >= {enough:.1g}{advice}"
        ) from error
    return factor

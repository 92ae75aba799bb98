"""Factor a kernel with its regularisation, or say which regularisation it needs."""

from __future__ import annotations

import math

from kernelweave._array import Array, FactorizationError, cholesky, namespace

__all__ = ["factor_regularized"]

#: What to advise, in units of eps times the trace. Most kernels need less than one of
#: them; Gaussians so wide that centring cancels most digits needed up to 16.
ENOUGH = 20.0


def factor_regularized(matrix: Array, alpha: float, unit: float = 1.0) -> Array:
    """Cholesky factor of ``G + alpha I``, given that sum (n, n) to overwrite.

    A kernel whose smallest eigenvalues are rounding is positive definite only if alpha
    is larger than that rounding.

    Parameters
    ----------
    matrix : array of shape (n, n)
        The sum; its memory is reused.
    alpha : float
        What was added to the diagonal.
    unit : float, default=1.0
        What a user's parameter alpha was multiplied by.

    Raises
    ------
    FactorizationError
        With an alpha that rounding should leave alone, if this one is too small.
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

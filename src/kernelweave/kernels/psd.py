"""Is a given matrix a kernel at all? Accept, shift, clip or refuse."""

from __future__ import annotations

import warnings
from typing import Literal

from kernelweave._array import (
    Array,
    FactorizationError,
    add_to_diagonal,
    cholesky,
    eigh,
    eps,
    namespace,
)
from kernelweave.exceptions import KernelWarning

__all__ = ["ensure_psd"]

#: Smallest eigenvalue, relative to the trace, below which a kernel is indefinite.
#: Kernels computed in single precision and handed over in double are not.
INDEFINITE = 1e-6


def ensure_psd(
    gram: Array, name: str, policy: Literal["error", "clip"]
) -> tuple[Array | None, str | None]:
    """Make a centred kernel of trace n positive semidefinite, in place.

    One Cholesky factorisation answers for a kernel that is; eigenvalues are computed
    only for one that is not.

    Returns
    -------
    projector : array of shape (n, n) or None
        For test rows, if negative eigenvalues were clipped.
    remark : str or None
        What was done, if anything.
    """
    n = gram.shape[0]
    rounding = 100 * eps(gram)
    if _is_psd(gram, rounding * n):
        return None, None
    xp = namespace(gram)
    values, vectors = eigh(xp.asarray(gram, copy=True))
    lowest = float(values[0])
    if lowest >= -rounding * n:
        return None, None
    if lowest >= -max(INDEFINITE, 10 * rounding) * n:
        add_to_diagonal(gram, -lowest)
        return None, (
            f"{name} has the eigenvalue {lowest:.1e} at trace {n}, within rounding of "
            f"positive semidefinite; {-lowest:.1e} was added to its diagonal"
        )
    largest = float(values[-1])
    if policy == "error":
        raise ValueError(
            f"{name} is not positive semidefinite: after centring and scaling to trace "
            f"{n} its smallest eigenvalue is {lowest:.3g} (the largest is "
            f"{largest:.3g}); use a positive semidefinite kernel, or psd='clip' to set "
            "negative eigenvalues to zero"
        )
    first = int(xp.sum(xp.astype(values <= 0, xp.int64)))
    positive, vectors = values[first:], vectors[:, first:]
    share = float(xp.sum(values[:first]) / xp.sum(xp.abs(values)))
    rescale = n / float(xp.sum(positive))
    gram[...] = (vectors * (rescale * positive)[None, :]) @ vectors.T
    remark = (
        f"{name} was indefinite (smallest eigenvalue {lowest:.3g} at trace {n}); "
        f"clipping removed {-100 * share:.2g} % of its spectrum"
    )
    warnings.warn(remark, KernelWarning, stacklevel=2)
    return rescale * (vectors @ vectors.T), remark


def _is_psd(gram: Array, shift: float) -> bool:
    xp = namespace(gram)
    trial = xp.asarray(gram, copy=True)
    trial += 1.0 / gram.shape[0]  # the vector of ones is in the null space by design
    add_to_diagonal(trial, shift)
    try:
        cholesky(trial, overwrite=True)
    except FactorizationError:
        return False
    return True

"""Is the given matrix a kernel at all? Accept, shift, clip or refuse it.

And are the given numbers row weights?
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np

from kernelweave._array import (
    CACHE_ENTRIES,
    Array,
    FactorizationError,
    add_to_diagonal,
    block_entries,
    cholesky,
    eigh,
    eps,
    largest_of,
    namespace,
    row_chunks,
    to_numpy,
)
from kernelweave._tolerances import EIGENVALUE_UNITS
from kernelweave.exceptions import KernelWarning

#: A kernel with an eigenvalue below minus this times its trace is indefinite. Kernels
#: computed in single precision and passed in double precision are within this bound.
INDEFINITE = 1e-6
#: As above, in units of the error of eigenvalues, which single precision makes larger.
INDEFINITE_UNITS = 10
#: Asymmetry in units of machine precision that is left as it is: the last digits.
LAST_DIGITS = 8
#: Asymmetry, relative to the largest entry, that is rounding and gets averaged out:
#: what long sums in single precision leave, even if passed in double precision.
#: A matrix that is not a kernel is off by far more.
ASYMMETRY = 1e-4
#: Eigenvalues up to this multiple of the mean are noise if a matrix is not a kernel.
NOISE = 1e-2


def ensure_psd(
    gram: Array,
    name: str,
    policy: Literal["error", "clip"],
    error: float = 0.0,
    level: float | None = None,
) -> tuple[Array | None, str | None]:
    """Make a centred kernel positive semidefinite, in place.

    If the kernel is positive semidefinite, its rows may show it, or one Cholesky
    factorisation does; eigenvalues are computed only if it is not.

    Parameters
    ----------
    gram : array of shape (n, n)
        The kernel.
    name : str
        Its name in messages.
    policy : {"error", "clip"}
        What to do with negative eigenvalues beyond rounding.
    error : float, default=0.0
        Bound on the errors of the eigenvalues, if more digits were lost than usual.
    level : float, optional
        The mean eigenvalue, by which rounding is measured; clipping then keeps the
        scale of the kernel. By default the trace is n, and clipping restores it.

    Returns
    -------
    projector : array of shape (n, n) or None
        The projector for test rows, if negative eigenvalues were clipped.
    remark : str or None
        What was done, if anything.
    """
    trace = gram.shape[0] * (1.0 if level is None else level)
    rounding = EIGENVALUE_UNITS * eps(gram)
    spectrum = _indefinite_spectrum(gram, trace)
    if spectrum is None:
        return None, None
    values, vectors = spectrum
    lowest = float(values[0])
    if lowest >= -max(max(INDEFINITE, INDEFINITE_UNITS * rounding) * trace, error):
        add_to_diagonal(gram, -lowest)
        return None, (
            f"{name} has the eigenvalue {lowest:.1e} at trace {trace:.6g}, within "
            f"rounding of positive semidefinite; {-lowest:.1e} was added to its "
            "diagonal"
        )
    largest = float(values[-1])
    if abs(largest) <= rounding * trace:  # whose digits differ between machines
        largest = 0.0
    if policy == "error" or largest <= 0.0:
        others = "or psd='clip' to set negative eigenvalues to zero"
        raise ValueError(
            f"{name} is not positive semidefinite: as used here, with trace "
            f"{float(namespace(values).sum(values)):.3g}, its smallest eigenvalue is "
            f"{lowest:.3g} (the largest is {largest:.3g}); use a positive semidefinite "
            f"kernel, {others if largest > 0.0 else 'perhaps this one times -1'}"
        )
    # The sign of a zero eigenvalue is random, and test rows need not be orthogonal to
    # its eigenvector.
    projector, share = _clip(gram, values, vectors, rounding * trace, level is None)
    remark = (
        f"{name} was indefinite (smallest eigenvalue {lowest:.3g} at trace "
        f"{trace:.6g}); clipping removed {100 * share:.2g} % of its spectrum"
    )
    warnings.warn(remark, KernelWarning, stacklevel=2)
    return projector, remark


def clip_to_psd(gram: Array) -> tuple[Array | None, float]:
    """Clip a centred matrix of trace n that is not expected to be a kernel, in place.

    New rows need not lie in the range of such a matrix, so eigenvectors with tiny
    eigenvalues would carry nothing but noise: if anything is clipped, eigenvalues below
    1 % of the mean are clipped too.

    Returns
    -------
    projector : array of shape (n, n) or None
        The projector for test rows, if negative eigenvalues were clipped.
    share : float
        Share of the sum of absolute eigenvalues that was removed.
    """
    n = gram.shape[0]
    spectrum = _indefinite_spectrum(gram, n)
    zero = max(EIGENVALUE_UNITS * eps(gram) * n, NOISE)
    return _clip(gram, *spectrum, zero) if spectrum else (None, 0.0)


def _clip(
    gram: Array, values: Array, vectors: Array, zero: float, to_trace: bool = True
) -> tuple[Array, float]:
    """Drop eigenvalues up to ``zero``, and scale to trace n: projector, share."""
    xp, n = namespace(gram), gram.shape[0]
    first = int(xp.sum(xp.astype(values <= zero, xp.int64)))
    positive, vectors = values[first:], vectors[:, first:]
    sizes = xp.abs(values)
    share = float(xp.sum(sizes[:first]) / xp.sum(sizes))
    rescale = n / float(xp.sum(positive)) if to_trace else 1.0
    gram[...] = (vectors * (rescale * positive)[None, :]) @ vectors.T
    return rescale * (vectors @ vectors.T), share


def _indefinite_spectrum(gram: Array, trace: float) -> tuple[Array, Array] | None:
    """Eigenvalues and eigenvectors, or None if none is negative beyond rounding."""
    xp, n = namespace(gram), gram.shape[0]
    shift = EIGENVALUE_UNITS * eps(gram) * trace
    # Centring puts the vector of ones in the null space: give it the mean eigenvalue.
    centred = abs(float(xp.sum(gram))) <= shift * n
    trial = gram + (trace / n**2 if centred else 0.0)
    if _is_dominant(trial):
        return None
    add_to_diagonal(trial, shift)
    try:
        cholesky(trial, overwrite=True)
    except FactorizationError:
        values, vectors = eigh(xp.asarray(gram, copy=True))
        return (values, vectors) if float(values[0]) < -shift else None
    return None


def _is_dominant(A: Array) -> bool:
    """Whether ``a_ii >= sum_j |a_ij|``, j other than i, in every row of A (n, n).

    By Gershgorin's theorem no eigenvalue of such a matrix is negative. This spares
    narrow kernels the factorisation; nearly all others fail in the first row.
    """
    xp, diagonal = namespace(A), namespace(A).linalg.diagonal(A)
    chunks = row_chunks(A.shape[0], A.shape[1], block_entries(A, CACHE_ENTRIES))
    for rows in (slice(0, 1), *chunks):
        sums = xp.sum(xp.abs(A[rows, :]), axis=1)
        if not bool(xp.all(sums <= 2.0 * diagonal[rows])):
            return False
    return True


def looks_like_distances(K: Array) -> bool:
    """Whether a matrix (n, n) is 0 on the diagonal, and positive or 0 elsewhere.

    Only the zero kernel is: ``k(x, z)^2 <= k(x, x) k(z, z)``.
    """
    xp = namespace(K)
    largest = float(xp.max(K))
    diagonal = float(xp.max(xp.abs(xp.linalg.diagonal(K))))
    small = ASYMMETRY * largest
    return largest > 0 and diagonal <= small and float(xp.min(K)) >= -small


def refuse_distances(K: Array, name: str) -> None:
    """Refuse distances (n, n) in place of a kernel; say how to turn them into one."""
    if looks_like_distances(K):
        raise ValueError(
            f"Kernel {name!r} is not positive semidefinite: its diagonal is 0 and no "
            "entry is negative, as in a matrix of distances. Turn distances D into "
            "similarities: Similarity.from_distances(D, ids) is a kernel for a column "
            "of ids, and numpy.exp(-(D / numpy.median(D)) ** 2) is a precomputed one"
        )


def symmetric(K: Array, name: str) -> Array:
    """K (n, n), or ``(K + K') / 2`` if they differ by more than the last digits.

    Raises
    ------
    ValueError
        If they differ by more than rounding.
    """
    apart = check_symmetric(K, name)
    return (K + K.T) * 0.5 if apart > LAST_DIGITS * eps(K) else K


def checked_matrix(K: Array, name: str, n: int, over: str) -> np.ndarray:
    """A symmetric matrix (n, n) over n classes or rows, in host memory and float64."""
    matrix = np.asarray(to_numpy(K))
    if matrix.shape != (n, n):
        raise ValueError(
            f"{name} must have the shape ({n}, {n}), since there are {n} {over}; got "
            f"{matrix.shape}"
        )
    if matrix.dtype.kind not in "fiubO":
        raise ValueError(f"{name} must hold real numbers; got {matrix.dtype}")
    matrix = matrix.astype(np.float64)
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f"{name} contains NaN or infinite values")
    return symmetric(matrix, name)


def check_symmetric(K: Array, name: str, tol: float = ASYMMETRY) -> float:
    """Refuse a kernel whose asymmetry is more than rounding.

    Parameters
    ----------
    K : array of shape (n, n)
        Kernel matrix with finite entries.
    name : str
        Name of the kernel in the error message.
    tol : float, default=1e-4
        Largest ``|K_ij - K_ji|`` allowed, relative to the largest ``|K_ij|``.

    Returns
    -------
    asymmetry : float
        Largest ``|K_ij - K_ji|`` relative to the largest ``|K_ii|`` or, if that ratio
        exceeds ``tol``, to the largest ``|K_ij|``; 0 if symmetric.
    """
    xp = namespace(K)
    worst, where = 0.0, slice(0, 0)
    for rows in row_chunks(K.shape[0], K.shape[1], block_entries(K, CACHE_ENTRIES)):
        before = slice(0, rows.stop)  # each pair of entries is compared once
        difference = K[rows, before] - K[before, rows].T
        largest = largest_of(difference)
        if largest > worst:
            worst, where = largest, rows
    if worst == 0.0:
        return 0.0
    # The largest entry of a kernel is on its diagonal; read all of K only if in doubt.
    scale = float(xp.max(xp.abs(xp.linalg.diagonal(K))))
    if worst > tol * scale:
        scale = largest_of(K)
    if worst > tol * scale:
        gap = np.abs(to_numpy(K[where, :] - K[:, where].T))
        i, j = (int(index) for index in np.unravel_index(gap.argmax(), gap.shape))
        i += where.start
        raise ValueError(
            f"Kernel {name!r} is not symmetric: entry ({i}, {j}) is {float(K[i, j])} "
            f"but ({j}, {i}) is {float(K[j, i])}. If either value may be used, pass "
            "(K + K.T) / 2."
        )
    return worst / scale if scale > 0 else 0.0


def is_symmetric(K: Array) -> bool:
    """Whether :func:`check_symmetric` accepts K (n, n)."""
    try:
        check_symmetric(K, "")
    except ValueError:
        return False
    return True


def checked_row_weights(row_weights: np.ndarray | None, n: int) -> np.ndarray:
    """Positive weights of n rows in float64, (n,); ones by default."""
    if row_weights is None:
        return np.ones(n)
    weights = np.asarray(row_weights, dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"row_weights must have the shape ({n},), one per row; got {weights.shape}"
        )
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if np.any(wrong):
        i = int(np.argmax(wrong))
        raise ValueError(
            f"row_weights must be positive finite numbers; row {i} has "
            f"{float(weights[i])!r}. Leave out rows of weight 0"
        )
    return weights

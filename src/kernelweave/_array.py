"""Array namespaces: one set of operations for NumPy, torch and CuPy, at any scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import array_api_compat as compat
import numpy as np
from scipy import linalg

Array = Any
#: The namespace of NumPy arrays.
NUMPY = compat.array_namespace(np.empty(0))


class FactorizationError(ValueError):
    """A matrix that had to be positive definite was not."""


def is_array(x: object) -> bool:
    """Whether ``x`` is an array of a library that follows the array API."""
    return bool(compat.is_array_api_obj(x))


def namespace(*arrays: Array) -> Any:
    """The array namespace shared by ``arrays`` (scalars and None are skipped)."""
    # A fit asks hundreds of times, nearly always about one plain NumPy array.
    if len(arrays) == 1 and type(arrays[0]) is np.ndarray:
        return NUMPY
    return compat.array_namespace(*(a for a in arrays if is_array(a)))


def is_numpy(x: object) -> bool:
    """Whether ``x`` is a plain NumPy array."""
    return bool(compat.is_numpy_array(x))


def device(x: Array) -> Any:
    """The device that holds ``x``."""
    return compat.device(x)


def eps(x: Array) -> float:
    """Machine precision of the dtype of ``x``."""
    return float(namespace(x).finfo(x.dtype).eps)


def to_numpy(x: Array) -> np.ndarray:
    """``x`` in host memory as a NumPy array (no copy if it already is one)."""
    if is_numpy(x) or not is_array(x):
        return np.asarray(x)
    if compat.is_torch_array(x):
        return x.detach().cpu().numpy()
    if compat.is_cupy_array(x):
        return x.get()
    try:
        return np.asarray(x)
    except (RuntimeError, TypeError):  # array-api-strict off its default device
        return np.asarray(namespace(x).from_dlpack(x))


def from_numpy(x: np.ndarray, like: Array, dtype: Any = None) -> Array:
    """Move the NumPy array ``x`` to the namespace, device and dtype of ``like``."""
    xp = namespace(like)
    return xp.asarray(
        x, dtype=like.dtype if dtype is None else dtype, device=device(like)
    )


def in_double(x: np.ndarray, like: Array) -> Array:
    """Move the NumPy array ``x`` to namespace and device of ``like``, in float64."""
    return from_numpy(x, like, namespace(like).float64)


def empty(shape: tuple[int, ...], like: Array, dtype: Any = None) -> Array:
    """A new array with the namespace, device and dtype of ``like``."""
    dtype = like.dtype if dtype is None else dtype
    return namespace(like).empty(shape, dtype=dtype, device=device(like))


def zeros(shape: tuple[int, ...], like: Array, dtype: Any = None) -> Array:
    """Zeros with the namespace, device and dtype of ``like``."""
    dtype = like.dtype if dtype is None else dtype
    return namespace(like).zeros(shape, dtype=dtype, device=device(like))


def take(x: Array, index: np.ndarray | list[int], axis: int = 0) -> Array:
    """The entries of ``x`` at an index in host memory."""
    xp = namespace(x)
    return xp.take(x, xp.asarray(index, device=device(x)), axis=axis)


def same_home(x: Array, like: Array) -> bool:
    """Whether ``x`` lives in the same namespace and on the same device as ``like``."""
    return namespace(x) is namespace(like) and device(x) == device(like)


def at_home(x: Array, like: Array) -> Array:
    """``x`` itself, or moved to the namespace, device and dtype of ``like``."""
    return x if same_home(x, like) else from_numpy(to_numpy(x), like)


def as_float(x: Array, dtype: Any) -> Array:
    """``x`` in the floating dtype ``dtype`` (no copy if it already has it)."""
    return namespace(x).astype(x, dtype, copy=False)


def detached(x: Array) -> Array:
    """``x`` in memory of its own, so that nobody else can change it.

    A copy in C order, unless ``x`` is a NumPy array that owns its memory: pass a slice
    of an array to which others hold a reference. Sparse arrays are returned unchanged,
    and tables are copied.
    """
    if hasattr(x, "table"):
        return x.copy()
    if not is_array(x) or (type(x) is np.ndarray and x.flags.owndata):
        return x
    if is_numpy(x):
        return np.array(x, order="C")
    return namespace(x).asarray(x, copy=True)


def add_to_diagonal(a: Array, value: float | Array) -> None:
    """``a += value I`` in place for contiguous square ``a`` and value () or (n,)."""
    if compat.is_torch_array(a):
        a.diagonal().add_(value)
    elif is_numpy(a) or compat.is_cupy_array(a):
        a.reshape(-1)[:: a.shape[0] + 1] += value
    else:  # the standard does not guarantee views: use a mask
        xp = namespace(a)
        a += value * xp.eye(a.shape[0], dtype=a.dtype, device=device(a))


def add_scaled(out: Array, x: Array, factor: float) -> Array:
    """``out += factor x``, without a temporary where the library allows it."""
    if compat.is_torch_array(out):
        return out.add_(x, alpha=factor)
    out += x * factor
    return out


def cholesky(a: Array, *, overwrite: bool = False) -> Array:
    """Lower Cholesky factor of ``a`` (n, n), or :class:`FactorizationError`.

    ``overwrite`` lets LAPACK reuse the memory of ``a``; the strict upper triangle of
    the result is then undefined, so use it through :func:`solve_triangular` only.
    """
    if is_numpy(a):
        try:
            # a.T of a C-ordered symmetric matrix is Fortran-ordered: no copy is made.
            factor, _ = linalg.cho_factor(
                a.T, lower=True, overwrite_a=overwrite, check_finite=False
            )
        except linalg.LinAlgError as error:
            raise FactorizationError(str(error)) from error
        if not np.isfinite(np.diagonal(factor)).all():  # LAPACK lets NaN through
            raise FactorizationError("the matrix contains NaN or infinity")
        return factor
    if compat.is_torch_array(a):
        import torch

        factor, info = torch.linalg.cholesky_ex(a)
        if int(info) != 0:
            raise FactorizationError(f"leading minor {int(info)} is not positive")
        return factor
    try:
        factor = namespace(a).linalg.cholesky(a)
    except Exception as error:  # every library raises its own class
        raise FactorizationError(str(error)) from error
    if not bool(namespace(a).isfinite(factor[-1, -1])):  # CuPy returns NaN instead
        raise FactorizationError("the matrix is not positive definite")
    return factor


def robust_cholesky(
    a: Array,
    shares: Iterable[float],
    unit: float | Array = 1.0,
    diagonal: float | Array = 0.0,
) -> tuple[Array, float]:
    """Factor ``a + diag(diagonal + share unit)`` for the first share that works.

    Rounding may have made a positive semidefinite matrix indefinite. Of the result only
    the lower triangle is defined, as after ``cholesky(overwrite=True)``.

    Parameters
    ----------
    a : array of shape (n, n)
        The matrix, which is left as it is.
    shares : iterable of float
        What to try, in ascending order.
    unit, diagonal : float or array of shape (n,)
        As above.

    Returns
    -------
    factor : array of shape (n, n)
        L.
    share : float
        The share that was needed.

    Raises
    ------
    FactorizationError
        If not even the last share suffices.
    """
    for share in shares:
        trial = np.array(a, order="C") if is_numpy(a) else detached(a)
        add_to_diagonal(trial, diagonal + share * unit)
        try:
            return cholesky(trial, overwrite=True), share
        except FactorizationError as error:
            failure = error
    raise failure


def solve_triangular(factor: Array, b: Array, *, transpose: bool = False) -> Array:
    """Solve ``L x = b`` (or ``L' x = b``) for the lower factor of :func:`cholesky`."""
    if is_numpy(factor):
        return linalg.solve_triangular(
            factor, b, lower=True, trans=1 if transpose else 0, check_finite=False
        )
    if compat.is_torch_array(factor):
        import torch

        a = factor.T if transpose else factor
        return torch.linalg.solve_triangular(a, b, upper=transpose)
    if compat.is_cupy_array(factor):
        from cupyx.scipy.linalg import solve_triangular as cupy_solve

        return cupy_solve(factor, b, lower=True, trans=1 if transpose else 0)
    xp = namespace(factor, b)
    return xp.linalg.solve(factor.T if transpose else factor, b)


def lower_inverse(factor: Array) -> Array:
    """``L^-1`` of the lower factor, (n, n)."""
    if is_numpy(factor):
        trtri = linalg.get_lapack_funcs("trtri", (factor,))
        inverse, info = trtri(factor, lower=1)
        if info != 0:
            raise FactorizationError(f"zero pivot at {info}")
        return np.triu(inverse.T).T  # np.tril is slow in Fortran order
    identity = zeros(factor.shape, factor)
    add_to_diagonal(identity, 1.0)
    return solve_triangular(factor, identity)


def eigh(a: Array) -> tuple[Array, Array]:
    """Eigenvalues (ascending) and eigenvectors of a symmetric ``a``, overwriting it."""
    if is_numpy(a):
        return linalg.eigh(
            a.T, overwrite_a=True, check_finite=False, driver="evd", lower=False
        )
    values, vectors = namespace(a).linalg.eigh(a)
    return values, vectors


def psd_factor(K: np.ndarray, null: float = 0.0) -> np.ndarray:
    """F (n, r) with ``F F' = K`` for K (n, n) positive semidefinite up to rounding.

    Eigenvalues up to ``null`` times the largest are dropped; the columns are sorted by
    eigenvalue, smallest first.
    """
    values, vectors = np.linalg.eigh(K)
    keep = values > null * max(values[-1], 0.0)
    return vectors[:, keep] * np.sqrt(values[keep])


def solve_factored(factor: Array, b: Array) -> Array:
    """``(L L')^-1 b``."""
    return solve_triangular(factor, solve_triangular(factor, b), transpose=True)


def solve_stack(factor: Array, products: Array) -> Array:
    """``L^-1 P_i`` for a stack (m, n, k), as an array (n, m, k)."""
    xp = namespace(products)
    m, n, k = products.shape
    flat = xp.reshape(xp.permute_dims(products, (1, 0, 2)), (n, m * k))
    return xp.reshape(solve_triangular(factor, flat), (n, m, k))


def gram_of_stack(half: Array) -> np.ndarray:
    """``<T_i, T_j>`` for an array (n, m, k), as (m, m) in float64."""
    xp = namespace(half)
    flat = xp.reshape(xp.permute_dims(half, (1, 0, 2)), (half.shape[1], -1))
    return to_numpy(flat @ flat.T).astype(np.float64)


def tensor_sum(weights: np.ndarray, products: Array) -> Array:
    """``sum_i w_i P_i`` for a stack (m, n, k)."""
    xp = namespace(products)
    flat = xp.reshape(products, (products.shape[0], -1))
    total = from_numpy(np.asarray(weights), products) @ flat
    return xp.reshape(total, products.shape[1:])


def dot(a: Array, b: Array) -> float:
    """``<a, b>``."""
    return float(namespace(a).sum(a * b))


def squared_norm(a: Array) -> float:
    """``norm(a)^2``."""
    return dot(a, a)


def inner_products(products: Array, b: Array) -> Array:
    """``<products_i, B>`` for a stack (p, n, k) and B (n, k): (p,)."""
    xp = namespace(products)
    flat = xp.reshape(products, (products.shape[0], -1))
    return flat @ xp.reshape(b, (-1,))


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

"""Arrays of NumPy, torch and CuPy: one set of operations, at any scale.

Also what they cost: the memory that is free, blocks of rows that fit into it, and the
threads of linear algebra.
"""

from __future__ import annotations

import contextvars
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import array_api_compat as compat
import numpy as np
from scipy import linalg
from scipy.sparse import issparse
from threadpoolctl import ThreadpoolController

from kernelweave.exceptions import MemoryRefusedError

Part = TypeVar("Part")
Result = TypeVar("Result")

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
    return type(x) is np.ndarray or bool(compat.is_numpy_array(x))


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
        x = x.detach().cpu()
        # which NumPy does not have
        return (x.float() if x.dtype is namespace(x).bfloat16 else x).numpy()
    if compat.is_cupy_array(x):
        return x.get()
    try:
        return np.asarray(x)
    except (RuntimeError, TypeError):  # array-api-strict off its default device
        return np.asarray(namespace(x).from_dlpack(x))


def from_numpy(x: np.ndarray, like: Array, dtype: Any = None) -> Array:
    """Move the NumPy array ``x`` to the namespace, device and dtype of ``like``."""
    if type(like) is np.ndarray:
        return np.asarray(x, dtype=like.dtype if dtype is None else dtype)
    xp = namespace(like)
    if compat.is_torch_array(like) and not np.asarray(x).flags.writeable:
        x = np.array(x)  # torch would warn that it cannot protect memory it shares
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


def single_or_double(block: Array) -> Array:
    """Numbers as float32 if that is their dtype, otherwise as float64."""
    xp = namespace(block)
    return block if block.dtype == xp.float32 else as_float(block, xp.float64)


def is_real(x: Array) -> bool:
    """Whether an array of any library holds real numbers, integers or booleans."""
    kinds = ("real floating", "integral", "bool")
    return bool(namespace(x).isdtype(x.dtype, kinds))


def as_floats(values: Any, name: str = "kernels") -> Array:
    """Numbers in an array of any library, or in lists, as floats.

    ``name`` says in messages what they are.
    """
    if issparse(values):
        raise TypeError(
            f"{name} must be dense, but are a {type(values).__name__}. Pass .toarray()"
        )
    values = values if is_array(values) else np.asarray(values)
    if not is_real(values):
        raise ValueError(f"{name} must hold real numbers; got {values.dtype}")
    return single_or_double(values)


def checked_stack(kernels: Any) -> Array:
    """Square matrices as one array (p, n, n) of floats."""
    stack = as_floats(kernels)
    if stack.ndim != 3 or stack.shape[1] != stack.shape[2]:
        raise ValueError(
            "a bank of kernels takes an array of shape (p, n, n); "
            f"got shape {tuple(stack.shape)}"
        )
    return stack


def detached(x: Array) -> Array:
    """``x`` in memory of its own, so that nobody else can change it.

    A copy in C order, unless ``x`` is a NumPy array that owns its memory: pass a slice
    of an array to which others hold a reference. Sparse arrays are returned unchanged.
    """
    if not is_array(x) or (type(x) is np.ndarray and x.flags.owndata):
        return x
    if is_numpy(x):
        return np.array(x, order="C")
    return namespace(x).asarray(x, copy=True)


def add(total: Array | None, term: Array) -> Array:
    """``total + term``, where None stands for a sum without terms."""
    return term if total is None else total + term


def add_to_diagonal(a: Array, value: float | Array) -> None:
    """``a += value I`` in place for contiguous square ``a`` and value () or (n,)."""
    if isinstance(value, float):  # which may leave the range of float32
        value = min(value, float(namespace(a).finfo(a.dtype).max) / (2 * a.shape[0]))
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


def has_views(x: Array) -> bool:
    """Whether a slice of ``x`` shares its memory, which the standard leaves open."""
    return is_numpy(x) or compat.is_torch_array(x) or compat.is_cupy_array(x)


DOUBLE_EPS = float(np.finfo(np.float64).eps)
#: Rows and columns of the blocks in which GPU libraries factor a matrix in place.
BLOCK = 1024
#: As above, for NumPy arrays, where larger blocks would waste more of the triangle.
HOST_BLOCK = 512
#: Rows above which NumPy arrays are also factored in blocks: OpenBLAS's own parallel
#: factorisation writes beyond its buffers with about 15,000 rows or more, on two
#: threads of a processor with AVX-512, and ends the program.
LAPACK_ROWS = 8192
#: Rows of a triangle that are squared while they are in the cache.
CACHED_ROWS = 64
#: Columns of an inverse that are in memory together.
INVERSE_COLUMNS = 512


def _spans(n: int, size: int | None = None) -> list[slice]:
    size = size or BLOCK
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _in_blocks(a: Array, block: int | None) -> bool:
    """Whether ``a`` is factored in blocks; LAPACK needs no copy of a NumPy array."""
    return a.shape[0] > (block or BLOCK) and has_views(a) and not is_numpy(a)


def cholesky(a: Array, *, overwrite: bool = False, block: int | None = None) -> Array:
    """Lower Cholesky factor of ``a`` (n, n), or :class:`FactorizationError`.

    Only the lower triangle is read; of NumPy arrays the upper one, since LAPACK takes
    their rows for columns.

    ``overwrite`` allows the memory of ``a`` to be reused, so that no second matrix is
    needed; the strict upper triangle of the result is then undefined, so use it through
    :func:`solve_triangular` only.

    ``block`` is the size of blocks and of the largest matrix that needs none; functions
    that take the factor must be given the same size.
    """
    if _in_blocks(a, block):
        return _cholesky_in_place(a if overwrite else detached(a), block or BLOCK)
    if is_numpy(a) and a.shape[0] > (block or LAPACK_ROWS):
        rows = a if overwrite else np.array(a, order="C")
        return _cholesky_in_place(rows.T, block or HOST_BLOCK)
    if is_numpy(a):
        # LAPACK itself, as in solve_triangular: SciPy's own checks take longer than a
        # small factorisation, and solvers need hundreds of them.
        potrf = linalg.get_lapack_funcs("potrf", (a,))
        # a.T of a C-ordered symmetric matrix is Fortran-ordered: no copy is made.
        factor, minor = potrf(a.T, lower=1, overwrite_a=overwrite, clean=0)
        if minor:
            raise FactorizationError(f"leading minor {minor} is not positive")
        if not np.isfinite(np.diagonal(factor)).all():  # LAPACK lets NaN through
            raise FactorizationError("the matrix contains NaN or infinity")
        return factor
    if compat.is_torch_array(a):
        import torch

        factor, info = torch.linalg.cholesky_ex(a)  # a lack of memory stays an error
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


def _cholesky_in_place(a: Array, block: int) -> Array:
    """Overwrite the lower triangle of ``a`` by its factor, some columns at a time.

    With the factor of all columns to the left in place, those of a block J are::

        A_JJ - L_J L_J' = L_JJ L_JJ',    L_IJ = (A_IJ - L_I L_J') L_JJ^-T    below it

    so nearly all of the work is one product per block. GPUs are slow at
    triangular solves, so each corner is inverted once. The strict upper triangle of the
    corner, which nobody reads, keeps the inverse for :func:`_solve_in_blocks`.
    """
    n, xp, host = a.shape[0], namespace(a), is_numpy(a)
    for own in _spans(n, block):
        below = slice(own.stop, n)
        if own.start:
            left = slice(0, own.start)
            _subtract_product(a[own.start :, own], a[own.start :, left], a[own, left])
        # of NumPy arrays, cholesky reads the other triangle
        corner = cholesky(a[own, own].T if host else a[own, own])
        a[own, own] = corner
        if not host:
            identity = xp.eye(corner.shape[0], dtype=a.dtype, device=device(a))
            inverse = solve_triangular(corner, identity)
            a[own, own] = xp.tril(corner) + xp.triu(inverse.T, k=1)
        if host:
            trsm = linalg.get_blas_funcs("trsm", (a,))
            part = a[below, own]
            a[below, own] = trsm(1.0, corner, part, side=1, lower=1, trans_a=1)
        elif eps(a) > DOUBLE_EPS:  # the error of an inverse would show
            a[below, own] = solve_triangular(corner, a[below, own].T).T
        else:
            a[below, own] = a[below, own] @ inverse.T
    return a


def _corner(block: Array) -> tuple[Array, Array]:
    """``L_JJ`` and its inverse, from a corner of :func:`_cholesky_in_place`."""
    xp = namespace(block)
    upper = xp.triu(block, k=1)
    add_to_diagonal(upper, 1.0 / xp.linalg.diagonal(block))
    return xp.tril(block), upper.T


def _subtract_product(out: Array, left: Array, right: Array) -> None:
    """``out -= left @ right.T`` in place for views of one matrix."""
    if compat.is_torch_array(out):
        out.addmm_(left, right.T, alpha=-1.0)
        return
    if is_numpy(out):  # a third of the time, in the order of its memory
        out -= (right @ left.T).T
        return
    for part in _spans(left.shape[1]):  # CuPy copies the factors of a product
        out -= left[:, part] @ right[:, part].T


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


def solve_triangular(
    factor: Array, b: Array, *, transpose: bool = False, block: int | None = None
) -> Array:
    """Solve ``L x = b`` (or ``L' x = b``) for the lower factor of :func:`cholesky`."""
    if is_numpy(factor):
        if not b.size:
            return np.zeros_like(b)
        trtrs = linalg.get_lapack_funcs("trtrs", (factor, b))
        if factor.flags.f_contiguous:
            found, zero = trtrs(factor, b, lower=1, trans=transpose)
        else:  # LAPACK expects Fortran order: L is the transpose of what it sees
            found, zero = trtrs(factor.T, b, lower=0, trans=not transpose)
        if zero:
            raise linalg.LinAlgError(f"entry {zero} of the factor's diagonal is 0")
        return found
    if _in_blocks(factor, block):
        return _solve_in_blocks(factor, b, transpose, _spans(factor.shape[0], block))
    if compat.is_torch_array(factor):
        import torch

        a = factor.T if transpose else factor
        return torch.linalg.solve_triangular(a, b, upper=transpose)
    if compat.is_cupy_array(factor):
        from cupyx.scipy.linalg import solve_triangular as cupy_solve

        return cupy_solve(factor, b, lower=True, trans=1 if transpose else 0)
    xp = namespace(factor, b)
    return xp.linalg.solve(factor.T if transpose else factor, b)


def _solve_in_blocks(
    factor: Array, b: Array, transpose: bool, spans: list[slice]
) -> Array:
    """:func:`solve_triangular` without a copy of the factor."""
    n, x = factor.shape[0], namespace(b).asarray(b, copy=True)
    for own in reversed(spans) if transpose else spans:
        known = slice(own.stop, n) if transpose else slice(0, own.start)
        if known.start < known.stop:
            block = factor[known, own].T if transpose else factor[own, known]
            x[own, ...] -= block @ x[known, ...]
        corner, inverse = _corner(factor[own, own])
        if transpose:
            corner, inverse = corner.T, inverse.T
        found = inverse @ x[own, ...]
        found += inverse @ (x[own, ...] - corner @ found)  # as exact as substitution
        x[own, ...] = found
    return x


def inverse_diagonal(factor: Array, *, block: int | None = None) -> Array:
    """The diagonal (n,) of ``(L L')^-1``, the sums of squares of the columns of L^-1.

    ``factor`` is from ``cholesky(overwrite=True)`` and may be overwritten: beyond it,
    the memory is that of a few of its columns.
    """
    if is_numpy(factor):
        inverse, found = _inverted("trtri", factor, overwrite=True), []
        for own in _spans(factor.shape[0], block or INVERSE_COLUMNS):
            corner = np.tril(inverse[own, own])
            below = inverse[own.stop :, own]
            found.append(
                np.einsum("ij,ij->j", corner, corner)
                + np.einsum("ij,ij->j", below, below)
            )
        return np.concatenate(found)
    parts = _inverse_columns(factor, block)
    xp = namespace(factor)
    return xp.concat([xp.sum(columns * columns, axis=0) for _, columns in parts])


def lower_inverse(factor: Array) -> Array:
    """``L^-1`` of the lower factor, (n, n)."""
    if is_numpy(factor):
        # np.tril is slow in Fortran order
        return np.triu(_inverted("trtri", factor).T).T
    found = zeros(factor.shape, factor)
    for own, columns in _inverse_columns(factor):
        found[own.start :, own] = columns
    return found


def _inverted(routine: str, factor: np.ndarray, overwrite: bool = False) -> np.ndarray:
    """The triangle that a routine of LAPACK for inverses makes of the lower factor."""
    function = linalg.get_lapack_funcs(routine, (factor,))
    inverse, pivot = function(factor, lower=1, overwrite_c=overwrite)
    if pivot:
        raise FactorizationError(f"zero pivot at {pivot}")
    return inverse


def _inverse_columns(
    factor: Array, block: int | None = None
) -> Iterator[tuple[slice, Array]]:
    """``L^-1``, a few columns at a time, without the rows of zeros above them."""
    xp, n, home = namespace(factor), factor.shape[0], device(factor)
    for own in _spans(n, block):
        shape = n - own.start, own.stop - own.start
        identity = xp.eye(*shape, dtype=factor.dtype, device=home)
        part = factor[own.start :, own.start :]
        yield own, solve_triangular(part, identity, block=block)


def inverse_factored(factor: Array) -> Array:
    """``(L L')^-1`` (n, n) for the lower factor, whose memory is reused."""
    if not is_numpy(factor):
        half = lower_inverse(factor)
        return half.T @ half
    upper = _inverted("potri", factor, overwrite=True).T  # below it, nothing yet
    for rows in _spans(len(upper), CACHED_ROWS):
        corner = np.triu(upper[rows, rows])
        upper[rows, rows] = corner + np.triu(corner, 1).T
        upper[rows.stop :, rows] = upper[rows, rows.stop :].T
    return upper


def inverse_squares(factor: Array) -> tuple[Array, Array]:
    """Diagonals (n,) of ``M^-1`` and of ``M^-2``, for the lower factor of M.

    The memory of the factor is reused.
    """
    if is_numpy(factor):  # half the time of the general way
        # LAPACK fills one triangle, the upper one in C order
        upper = _inverted("potri", factor, overwrite=True).T
        diagonal = np.diagonal(upper).copy()
        squares = -(diagonal**2)  # which both sums below include
        for own in _spans(len(upper), CACHED_ROWS):
            part = np.triu(upper[own, own.start :])
            part *= part
            squares[own] += np.sum(part, axis=1)
            squares[own.start :] += np.sum(part, axis=0)
        return diagonal, squares
    half = lower_inverse(factor)
    xp, n = namespace(half), half.shape[0]
    diagonal, squares = zeros((n,), half), zeros((n,), half)
    for own in _spans(n):  # no temporary array is larger than some rows
        columns = half[own.start :, own]
        diagonal[own] = xp.sum(columns * columns, axis=0)
        # rows of M^-1 = L^-T L^-1 up to the diagonal, where L^-1 has no zeros
        part = columns.T @ half[own.start :, : own.stop]
        squares[own] += xp.sum(part * part, axis=1)
        if own.start:
            left = part[:, : own.start]
            squares[: own.start] += xp.sum(left * left, axis=0)
    return diagonal, squares


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


def solve_factored(factor: Array, b: Array, *, block: int | None = None) -> Array:
    """``(L L')^-1 b``."""
    half = solve_triangular(factor, b, block=block)
    return solve_triangular(factor, half, transpose=True, block=block)


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


def centred(matrix: Array) -> Array:
    """``P K P``, (n, n), with ``P = I - 11'/n``, of a symmetric matrix."""
    xp = namespace(matrix)
    means = xp.mean(matrix, axis=1)
    return matrix - means[:, None] - means[None, :] + xp.mean(means)


def dot(a: Array, b: Array) -> float:
    """``<a, b>``."""
    return float(namespace(a).sum(a * b))


def squared_norm(a: Array) -> float:
    """``norm(a)^2``."""
    flat = namespace(a).reshape(a, (-1,))
    return float(flat @ flat)  # no array of squares


def inner_products(products: Array, b: Array) -> np.ndarray:
    """``<products_i, B>`` for a stack (p, n, k) and B (n, k), as (p,) in float64."""
    xp = namespace(products)
    flat = xp.reshape(products, (products.shape[0], -1))
    return to_numpy(flat @ xp.reshape(b, (-1,))).astype(np.float64)


#: Largest binary exponent of numbers that are not rescaled: their squares, sums of many
#: squares, and the reciprocals of these sums neither overflow nor underflow.
ORDINARY = {32: 128 // 4, 64: 1024 // 3}
#: Largest sum of squares allowed, as a fraction of the largest finite number: it leaves
#: room for the computations that follow.
ROOM = 1e-8
#: Binary exponent of the largest unit; its reciprocal is a normal number as well.
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


def deviations(values: np.ndarray, ddof: int = 0) -> np.ndarray:
    """The standard deviations over the first axis of numbers of any size."""
    unit = units_of(np.max(np.abs(values), axis=0), 64)
    return np.std(values / unit, axis=0, ddof=ddof) * unit


def largest_of(X: Array) -> float:
    """The largest absolute value of an array; NaN if it contains one."""
    xp = namespace(X)
    return max(float(xp.max(X)), -float(xp.min(X)))


def is_square_safe(X: Array) -> bool:
    """Whether all entries and the sum of their squares are finite, with room left."""
    with np.errstate(over="ignore", invalid="ignore"):
        return squared_norm(X) <= ROOM * float(namespace(X).finfo(X.dtype).max)


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


def available_bytes(like: Any = None) -> int | None:
    """Free memory on the device of ``like``, in bytes; None if it is unknown."""
    if like is not None and compat.is_torch_array(like) and like.is_cuda:
        import torch

        free, _ = torch.cuda.mem_get_info(like.device)
        reserved = torch.cuda.memory_reserved(like.device)
        return int(free + reserved - torch.cuda.memory_allocated(like.device))
    if like is not None and compat.is_cupy_array(like):
        import cupy

        free, _ = cupy.cuda.runtime.memGetInfo()
        return int(free + cupy.get_default_memory_pool().free_bytes())
    return _host_bytes()


def require_memory(n_bytes: int, purpose: str, advice: str, like: Any = None) -> None:
    """Refuse a request that would not fit, stating the sizes; allocate nothing."""
    available = available_bytes(like)
    if available is not None and n_bytes > available:
        raise MemoryRefusedError(
            f"{purpose} needs {n_bytes:,} bytes ({n_bytes / 2**30:.1f} GiB), but "
            f"{available:,} bytes ({available / 2**30:.1f} GiB) are free; {advice}"
        )


def _host_bytes() -> int | None:
    """Free host memory: the machine's, or this process's own limit if smaller."""
    limits = [_from_proc(), _from_cgroup(), _from_rlimit()]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _from_proc() -> int | None:
    with suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _from_cgroup() -> int | None:
    with suppress(OSError, ValueError):
        limit, used = (
            int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii"))
            for name in ("memory.max", "memory.current")
        )
        return max(limit - used, 0)
    return None


def _from_rlimit() -> int | None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
            return max(soft - int(pages) * resource.getpagesize(), 0)
    return None


#: A block of a few megabytes: large enough for BLAS, small next to a kernel matrix.
CHUNK_ENTRIES = 2**20
#: A block that stays in cache while several operations are applied to it.
CACHE_ENTRIES = 2**16
#: A block for a GPU, where every operation has a fixed cost.
GPU_ENTRIES = 2**26


def is_on_gpu(x: Any) -> bool:
    """Whether the array ``x`` is in the memory of a GPU."""
    return bool(compat.is_cupy_array(x) or (compat.is_torch_array(x) and x.is_cuda))


def block_entries(like: Any, host: int = CHUNK_ENTRIES) -> int:
    """Entries of a block of an array like this: ``host``, or many more on a GPU."""
    return GPU_ENTRIES if is_on_gpu(like) else host


def row_chunks(
    n_rows: int, row_size: int, entries: int | None = None
) -> Iterator[slice]:
    """Slices of ``range(n_rows)`` with about ``entries`` entries each.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    row_size : int
        Number of entries in one row.
    entries : int, optional
        Target number of entries per slice; ``CHUNK_ENTRIES`` by default.

    Yields
    ------
    rows : slice
        Consecutive ranges that together cover every row once.
    """
    step = max(1, (entries or CHUNK_ENTRIES) // max(1, row_size))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


#: Fits to n rows with n^2 up to this, and predictions of m rows from n with m n up to
#: this, use one thread. Fits of 100 to 2000 rows were slower with two threads than
#: with one, by a factor that fell from 10 to 2.
FEW_ENTRIES = 2000**2


@functools.cache
def _libraries() -> list[Any]:
    """Libraries of linear algebra; finding them takes 25 ms, setting them 25 us."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def available_threads() -> int:
    """As many threads as linear algebra may use at this moment."""
    numbers = [library.get_num_threads() or 1 for library in _libraries()]
    return max(numbers, default=1)


@contextmanager
def few_threads(X: Any, row_size: int | None = None) -> Iterator[None]:
    """One thread of linear algebra if X has few rows; otherwise as many as before.

    A fit of a few hundred rows makes thousands of calls of a few microseconds to
    LAPACK. OpenBLAS wakes all its threads for each of them, and those that find nothing
    to do spin until the call is over: on two cores, a fit of 500 rows took ten times
    the processor time of a fit with one thread, and on a busy machine ten times as
    long.

    Parameters
    ----------
    X : object
        Rows. Those in portions, of unknown number, and arrays of libraries other than
        NumPy, which have threads or devices of their own, change nothing.
    row_size : int, optional
        Entries computed for each row; by default, as many as there are rows.
    """
    n_rows = None if is_array(X) and not is_numpy(X) else _n_rows(X)
    if n_rows is None or n_rows * (row_size or n_rows) > FEW_ENTRIES:
        yield
        return
    with _one_thread():
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread of linear algebra."""
    # Some libraries count threads per calling thread, others for the whole process.
    # Where fits overlap, only those that found several threads restore them, so that
    # neither kind is left with one.
    found = [(library, library.get_num_threads()) for library in _libraries()]
    several = [(library, number) for library, number in found if (number or 1) > 1]
    try:
        for library, _ in several:
            library.set_num_threads(1)
        yield
    finally:
        for library, number in several:
            library.set_num_threads(number)


def in_threads(
    task: Callable[[list[Part]], Result], parts: Sequence[Part], entries: int
) -> list[Result]:
    """Deal parts out to as many threads as linear algebra may use at this moment.

    NumPy computes without Python's lock, so passes over matrices gain as much
    from a second core as BLAS does.

    Parameters
    ----------
    task : callable
        Takes the parts of one thread, in their order.
    parts : sequence
        Independent parts of the work.
    entries : int
        How many numbers are computed in all; for few, no thread is started.

    Returns
    -------
    results : list
        One for each thread.
    """
    count = 1
    if entries > FEW_ENTRIES:
        count = min(available_threads(), len(parts))
    if count <= 1:
        return [task(list(parts))]
    dealt = [list(parts[i::count]) for i in range(count)]
    # Each thread works in a copy of the context, which holds NumPy's error state.
    contexts = [contextvars.copy_context() for _ in dealt]
    with _one_thread(), ThreadPoolExecutor(count) as pool:
        pairs = zip(contexts, dealt, strict=True)
        futures = [pool.submit(context.run, task, own) for context, own in pairs]
        return [future.result() for future in futures]


def each_in_threads(
    work: Callable[[Part], object], parts: Iterable[Part], entries: int
) -> None:
    """Do something with every part, as :func:`in_threads` does with lists of them."""

    def task(own: list[Part]) -> None:
        for part in own:
            work(part)

    in_threads(task, list(parts), entries)


def _n_rows(X: Any) -> int | None:
    """The number of rows, if it is known."""
    if hasattr(X, "dask"):
        return None
    shape = getattr(X, "shape", None)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    return len(X) if isinstance(X, list | tuple) else None

"""The base class of kernels, and the pairwise matrices from which they are computed."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.spatial.distance import cdist, squareform
from sklearn.base import clone
from sklearn.metrics.pairwise import additive_chi2_kernel, manhattan_distances

from kernelweave._array import (
    CACHE_ENTRIES,
    Array,
    add_to_diagonal,
    as_float,
    block_entries,
    each_in_threads,
    eps,
    has_views,
    is_array,
    is_numpy,
    namespace,
    row_chunks,
    take,
    to_numpy,
    zeros,
)
from kernelweave._sklearn import BaseEstimator
from kernelweave._text import prefixed
from kernelweave.views.streams import select_rows

MEDIAN_ROWS = 2000
#: Diagonals are computed from Gram matrices of this many rows.
DIAGONAL_ROWS = 32
#: The pairwise matrices in which every row is at distance 0 from itself.
DISTANCES = ("sqeuclidean", "l1", "chi2")
#: The origin used to compute distances is determined from at most this many rows.
MIDDLE_ROWS = 31
#: Error of a squared distance, in units of machine precision times the squared lengths:
#: a few roundings, to which those of the sum over the columns are added.
ROUNDED_DISTANCE = 8


@cache
def defaults_of(kind: type) -> dict[str, Any]:
    """The default of each parameter of ``__init__``, in its order."""
    names = BaseEstimator._get_param_names.__func__(kind)  # type: ignore[attr-defined]
    parameters = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    return {name: p.default for name, p in parameters.items() if name in names}


def key_of(value: Any) -> Hashable:
    """A hashable key, equal for kernels, transformers or parameters that are equal."""
    if isinstance(value, list | tuple):
        return tuple(map(key_of, value))
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, dict):
        return frozenset((name, key_of(own)) for name, own in value.items())
    if hasattr(value, "get_params") and not isinstance(value, type):
        return type(value), key_of(value.get_params(deep=False))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return id(value)
    return id(value) if is_array(value) else value


class Kernel(BaseEstimator):
    """A kernel ``k(x, z)`` on the rows of a view.

    Subclasses store their parameters in ``__init__``, fix those that depend on data in
    :meth:`resolve`, and define either ``base`` and :meth:`from_base`, or :meth:`gram`.
    Only resolved kernels can be evaluated; calling a kernel resolves it first. Those
    that define :meth:`gradient` can be explained column by column.

    Attributes
    ----------
    psd : bool
        Whether every Gram matrix is positive semidefinite, so no check is needed.
    base : {"dot", "sqeuclidean", "l1", "chi2"} or None
        The pairwise matrix of which the Gram matrix is an entrywise function. Kernels
        with the same base share it.
    forgets : {"affine", "unit"} or None
        Changes of the columns that leave the kernel, centred and scaled to trace n,
        unchanged: a common change of unit ("unit"), a change of unit and origin
        ("affine"), or neither.
    takes_columns : bool
        Whether the kernel may be given columns of a table that are not numbers.
    ignores_origin : bool
        Whether the kernel, once centred, does not depend on the origin of its columns.
    """

    psd: bool = True
    base: str | None = None
    forgets: str | None = None
    takes_columns: bool = False
    ignores_origin: bool = False

    @classmethod
    def _get_param_names(cls) -> list[str]:
        # Kernels are copied in every fit, and inspecting a signature takes longer.
        return sorted(defaults_of(cls))  # type: ignore[arg-type]

    @property
    def steps(self) -> tuple[Any, ...]:
        """Fitted transformers applied to the features before the kernel."""
        return ()

    @property
    def core(self) -> Kernel:
        """The kernel that is applied after the steps."""
        return self

    @property
    def noise(self) -> float:
        """Trace per row of the centred kernel that is rounding of its columns."""
        return 0.0

    @property
    def label(self) -> str:
        """Name for tables: the class and its non-default parameters."""
        kind: Any = type(self)
        params = self.get_params(deep=False)
        shown = [
            f"{name}={brief(params[name])}"
            for name, default in defaults_of(kind).items()
            if key_of(params[name]) != key_of(default)
        ]
        return f"{kind.__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        """Kernels are equal if they have the same class and equal parameters."""
        if type(self) is not type(other):
            return NotImplemented
        return key_of(self) == key_of(other)

    __hash__ = None  # type: ignore[assignment]

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """A copy whose data-dependent parameters are fixed from the training rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Training rows of the view.
        memo : dict, default=None
            Cache shared by kernels on the same rows.

        Returns
        -------
        kernel : Kernel
        """
        return clone(self)

    def from_base(self, base: Array) -> Array:
        """Gram matrix (n, m) from the base matrix (n, m), which is not modified."""
        raise TypeError(f"{type(self).__name__} is not computed from a base matrix.")

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix of a resolved kernel on floating arrays; see :meth:`__call__`."""
        return self.from_base(base_matrix(str(self.base), X, Z))

    def diagonal(self, X: Array) -> Array:
        """``k(x, x)`` (n,) of a resolved kernel for the rows of X (n, d)."""
        if self.base in DISTANCES:
            like = np.empty((0, 1), X.dtype) if issparse(X) else X
            return self.from_base(zeros((X.shape[0], 1), like))[:, 0]
        parts = row_chunks(X.shape[0], 1, DIAGONAL_ROWS)
        grams = [self.gram(X[part, :]) for part in parts]
        xp = namespace(*grams)
        return xp.concat([xp.linalg.diagonal(gram) for gram in grams])

    def gradient(self, X: np.ndarray, Z: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """Gradients of ``f_c(x) = sum_j coef_jc k(x, z_j)`` for a resolved kernel.

        A kernel need not define this. Without it,
        :func:`~kernelweave.inspection.feature_importance` refuses the kernel by name.

        Parameters
        ----------
        X : ndarray of shape (m, d)
            Rows at which the gradients are taken, in float64, as are Z and coef.
        Z : ndarray of shape (n, d)
            The rows z_j.
        coef : ndarray of shape (n, q)
            Coefficients of q functions.

        Returns
        -------
        ndarray of shape (m, d, q)
            ``sum_j coef_jc dk(x_i, z_j) / dx_il`` at ``[i, l, c]``.

        Raises
        ------
        NotImplementedError
            If the kernel states no gradient.
        """
        raise NotImplementedError(
            f"no gradient is known for the kernel {self.label!r}: a subclass of "
            "kernelweave.kernels.Kernel states its own in gradient(X, Z, coef)"
        )

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """Gram matrix between the rows of X and those of Z.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        Z : array-like of shape (m, d), default=None
            Reference rows, X itself if None. Data-dependent parameters that are not yet
            fixed are taken from them.

        Returns
        -------
        K : array of shape (n, m)
            In the namespace and floating dtype of the input; exactly symmetric if Z is
            None.
        """
        X = self._as_rows(X)
        if Z is not None:
            Z = self._as_rows(Z)
            if X.shape[1] != Z.shape[1]:
                raise ValueError(f"X has {X.shape[1]} columns, but Z has {Z.shape[1]}.")
            if issparse(X) != issparse(Z):
                X, Z = csr_array(X), csr_array(Z)
            if issparse(X):
                dtype = np.result_type(X.dtype, Z.dtype)
                X, Z = X.astype(dtype), Z.astype(dtype)
            else:
                dtype = namespace(X, Z).result_type(X, Z)
                X, Z = as_float(X, dtype), as_float(Z, dtype)
        return self.resolve(X if Z is None else Z).gram(X, Z)

    def _as_rows(self, X: Any) -> Array:
        X = csr_array(X) if issparse(X) else X if is_array(X) else np.asarray(X)
        if X.ndim != 2:
            raise ValueError(f"A kernel needs 2-D arrays of rows; found {X.ndim}-D.")
        values = X.data if issparse(X) else X
        xp = namespace(values)
        if xp.isdtype(values.dtype, "complex floating"):
            raise ValueError("A kernel needs real numbers; found complex ones.")
        if not xp.isdtype(values.dtype, "real floating"):
            X = X.astype(np.float64) if issparse(X) else as_float(X, xp.float64)
        values = X.data if issparse(X) else X
        if not (self.takes_columns or bool(xp.all(xp.isfinite(values)))):
            raise ValueError("A kernel needs finite numbers; found NaN or infinity.")
        return X


def brief(value: Any) -> str:
    """The value of a parameter, for tables."""
    if is_array(value) and value.ndim > 0:  # unlike NumPy's numbers
        return f"array of shape {tuple(value.shape)}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def check_parameter(
    kernel: Kernel, name: str, *, word: str | None = None, zero: bool = False
) -> None:
    """Refuse a parameter that is neither a positive number nor ``word``."""
    value = getattr(kernel, name)
    if word is not None and isinstance(value, str) and value == word:
        return
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and 0 <= value < float("inf") and (zero or value > 0)):
        choices = "a number >= 0" if zero else "a positive number"
        raise ValueError(
            f"{type(kernel).__name__}: {name} must be {choices}"
            f"{f' or {word!r}' if word else ''}; found {value!r}."
        )


def exp_(a: Array) -> Array:
    """``exp(a)``, overwriting ``a`` where the library allows it."""
    xp = namespace(a)
    try:
        return xp.exp(a, out=a)
    except TypeError:  # the standard itself has no out=
        return xp.exp(a)


def base_matrix(base: str, X: Array, Z: Array | None = None) -> Array:
    """Pairwise matrix of shape (n, m) from which several kernels are computed.

    Parameters
    ----------
    base : {"dot", "sqeuclidean", "l1", "chi2"}
        ``x'z``, ``|x - z|^2``, ``|x - z|_1`` or ``sum (x - z)^2 / (x + z)``.
    X : array of shape (n, d)
        Rows, floating.
    Z : array of shape (m, d), default=None
        Reference rows, X itself if None; then the result is exactly symmetric.

    Returns
    -------
    base : array of shape (n, m)
        A new array.
    """
    if base == "dot":
        return _dot(X, Z)
    if base == "sqeuclidean":
        return _sqeuclidean(X, Z)
    if issparse(X):
        if base == "l1":
            rows = (None if a is None else _with_short_indices(a) for a in (X, Z))
            return as_float(manhattan_distances(*rows), X.dtype)
        X, Z = X.toarray(), None if Z is None else Z.toarray()
    if base == "l1":
        if is_numpy(X):
            return as_float(cdist(X, X if Z is None else Z, "cityblock"), X.dtype)
        return _sum_columns(X, Z, lambda xp, x, z: xp.abs(x - z))
    for rows in (X,) if Z is None else (X, Z):
        _check_nonnegative(rows)
    if is_numpy(X):  # a fifth of the time of the general way
        # compiled for memory that may be written to, although it never is
        rows = (None if a is None else np.require(a, None, "W") for a in (X, Z))
        distances = additive_chi2_kernel(*rows)
        distances *= -1
        return distances
    return _sum_columns(X, Z, _chi2_term)


def _dot(X: Array, Z: Array | None) -> Array:
    if issparse(X):
        return (X @ (X if Z is None else Z).T).toarray()
    if Z is not None:
        return X @ Z.T
    if is_numpy(X):
        X = np.ascontiguousarray(X)  # lets NumPy compute one triangle and mirror it
        return X @ X.T
    K = X @ X.T
    for rows in row_chunks(K.shape[0], K.shape[0], block_entries(K)):
        K[rows.stop :, rows] = K[rows, rows.stop :].T
        K[rows, rows] = (K[rows, rows] + K[rows, rows].T) / 2
    return K


def _with_short_indices(X: csr_array) -> csr_array:
    """The same rows for distances that are compiled for indices of 32 bits."""
    if max(X.shape[1], X.nnz) > np.iinfo(np.int32).max:
        return X  # refused there, not cut off here
    indices = (own.astype(np.int32, copy=False) for own in (X.indices, X.indptr))
    return csr_array((X.data, *indices), X.shape)


def _sqeuclidean(X: Array, Z: Array | None) -> Array:
    """``|x|^2 + |z|^2 - 2 x'z`` after moving the origin to the middle of the rows.

    Moving the origin reduces cancellation. Distances within rounding error of zero are
    set to zero, so that duplicates are at distance exactly 0.
    """
    center = _middle(X if Z is None else Z)
    X, norms = _about(X, center)
    norms_z = norms
    if Z is not None:
        Z, norms_z = _about(Z, center)
    return _distances(_negative_dot(X, Z), norms, norms_z, X.shape[1], Z is None)


def _negative_dot(X: Array, Z: Array | None) -> Array:
    """``-2 x'z``, (n, m)."""
    if Z is not None:
        return _dot(X * -2.0, Z)
    D = _dot(X, None)
    D *= -2.0
    return D


def _about(X: Array, center: Array | None) -> tuple[Array, Array]:
    """Rows (n, d) with their origin at ``center`` (d,), and squared lengths (n,)."""
    if center is None:
        return X, X.multiply(X).sum(axis=1)
    X = X - center
    return X, namespace(X).sum(X * X, axis=1)


def _distances(
    D: Array, norms: Array, norms_z: Array, n_columns: int, same: bool
) -> Array:
    """Turn ``-2 x'z`` (n, m) into squared distances, in place.

    ``norms`` (n,) and ``norms_z`` (m,) are squared lengths; ``same`` says that the rows
    are compared with themselves. Entries (i, j) and (j, i) are computed alike.
    """
    rounding = _rounding(n_columns, D)
    for rows in row_chunks(D.shape[0], D.shape[1], block_entries(D, CACHE_ENTRIES)):
        total = norms[rows, None] + norms_z[None, :]
        part = D[rows, :]
        part += total
        total *= rounding
        # 0, or NaN, which is refused, if squares have overflowed
        part *= as_float(part > total, part.dtype)
        if not has_views(D):
            D[rows, :] = part
    if same:
        add_to_diagonal(D, -namespace(D).linalg.diagonal(D))
    return D


def _rounding(n_columns: int, D: Array) -> float:
    """Distances up to this times the sum of both squared lengths count as zero."""
    return (ROUNDED_DISTANCE + n_columns**0.5) * eps(D)


class PairwiseRows:
    """:func:`base_matrix` between any of the same rows, one tile after another.

    Whatever depends on a single row is computed only once.

    Parameters
    ----------
    base : {"dot", "sqeuclidean", "l1", "chi2"} or None
        As in :func:`base_matrix`; None for rows whose kernels share no matrix.
    X : array, sparse array or Columns of shape (n, d)
        Rows, floating.
    """

    def __init__(self, base: str | None, X: Array) -> None:
        self.base = base
        self.norms: Array | None = None  # the squared lengths of the rows
        if base == "chi2":
            _check_nonnegative(X)  # here, where the number of a row is known
        if base == "sqeuclidean":
            X, self.norms = _about(X, _middle(X))
        self.X = X

    @cached_property
    def _factors(self) -> tuple[Array, Array] | None:
        """Rows ``(-2x, |x|^2, 1)`` and ``(z, 1, |z|^2)``, whose products are distances.

        Passes over a tile take longer than its products: without these, a fit on the
        fly takes 8 % longer on a processor, and 14 % with 100,000 rows on a GPU.
        """
        if self.norms is None or issparse(self.X):
            return None
        xp, norms = namespace(self.X), self.norms[:, None]
        ones = norms * 0.0 + 1.0
        left = xp.concat([self.X * -2.0, norms, ones], axis=1)
        return left, xp.concat([self.X, ones, norms], axis=1)

    def restrict(self, rows: np.ndarray) -> PairwiseRows:
        """Only the rows with these indices."""
        part = copy.copy(self)
        part.X = select_rows(self.X, rows)
        part.norms = None if self.norms is None else take(self.norms, rows)
        part.__dict__.pop("_factors", None)
        return part

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""
        return self.X.shape

    def tile(
        self, rows: slice, columns: slice, other: PairwiseRows | None = None
    ) -> Array:
        """Some rows against some rows, of ``other`` if given: (r, c), a new array."""
        same = other is None and rows == columns
        other = self if other is None else other
        X, Z = self.X[rows, :], None if same else other.X[columns, :]
        if self.norms is None or other.norms is None:
            return base_matrix(str(self.base), X, Z)
        norms, norms_z = self.norms[rows], other.norms[columns]
        if same or self._factors is None or other._factors is None:
            D = _negative_dot(X, Z)
            return _distances(D, norms, norms_z, X.shape[1], same)
        D = _dot(self._factors[0][rows, :], other._factors[1][columns, :])
        # Few tiles have rows as close as rounding: the others are left as they are.
        xp, rounding = namespace(D), _rounding(X.shape[1], D)
        near = rounding * (float(xp.max(norms)) + float(xp.max(norms_z)))
        if float(xp.min(D)) <= near:
            D *= as_float(rounding * (norms[:, None] + norms_z[None, :]) < D, D.dtype)
        return D

    def against_all(self, rows: slice) -> np.ndarray:
        """Some rows against all of them, (r, n), a new array.

        Unlike those of a tile, these entries are computed exactly as their mirror
        images in other rows.
        """
        X = self.X[rows]
        if self.norms is None:
            same = X.shape[0] == self.X.shape[0]
            return base_matrix(str(self.base), X, None if same else self.X)
        D = _negative_dot(X, self.X)
        _distances(D, self.norms[rows], self.norms, X.shape[1], same=False)
        each = np.arange(X.shape[0])
        D[each, rows.start + each] = 0.0
        return D


@contextmanager
def guarded(view: str) -> Iterator[None]:
    """Errors name the view, if it has a name.

    Values that are not finite are reported by the callers, who can name the rows.
    """
    prefix = f"View {view!r}: " if view else ""
    with prefixed(prefix), np.errstate(over="ignore", invalid="ignore"):
        yield


@dataclass(frozen=True)
class KernelGroup:
    """Kernels on the same rows that share a matrix, or none.

    Attributes
    ----------
    rows : PairwiseRows
        The rows after all transformers, and the matrix that the kernels share.
    kernels : list of (int, Kernel)
        The number of each kernel in the bank, and the kernel itself.
    view : str
        The name of the view, for messages.
    """

    rows: PairwiseRows
    kernels: list[tuple[int, Kernel]]
    view: str

    def restrict(self, rows: np.ndarray) -> KernelGroup:
        """Only the rows with these indices."""
        return replace(self, rows=self.rows.restrict(rows))

    def tile(
        self, rows: slice, columns: slice, other: KernelGroup | None = None
    ) -> Iterator[tuple[int, Array]]:
        """Kernels (r, c) between some rows and some rows, of ``other`` if given."""
        theirs, base = None if other is None else other.rows, None
        if self.rows.base is not None:
            with guarded(self.view):
                base = self.rows.tile(rows, columns, theirs)
        for i, kernel in self.kernels:
            with guarded(self.view):
                if base is None:
                    gram = self._gram(kernel, rows, columns, theirs)
                else:
                    gram = kernel.from_base(base)
            yield i, gram

    def fill(self, stack: Array) -> None:
        """Write each kernel to the upper left (n, n) of its place in a stack.

        On a processor, a few rows of the shared matrix stay in cache until all kernels
        are made of them. Each pair of rows is computed twice: writing a block across
        the rows of a matrix takes longer than computing its exponentials again.
        """
        with guarded(self.view):
            base, shared, n = self.rows.base, self.rows.X, self.rows.shape[0]
            if base is not None and is_numpy(shared):
                self._fill_in_cache(stack)
                return
            shared = shared if base is None else base_matrix(base, shared)
            for i, kernel in self.kernels:
                own = kernel.gram if base is None else kernel.from_base
                stack[i, :n, :n] = own(shared)

    def _fill_in_cache(self, stack: np.ndarray) -> None:
        n = self.rows.shape[0]

        def write(rows: slice) -> None:
            base = self.rows.against_all(rows)
            for i, kernel in self.kernels:
                stack[i, rows, :n] = kernel.from_base(base)

        parts = row_chunks(n, n, CACHE_ENTRIES)
        each_in_threads(write, parts, len(self.kernels) * n * n)

    def _gram(
        self, kernel: Kernel, rows: slice, columns: slice, theirs: PairwiseRows | None
    ) -> Array:
        """A kernel (r, c) that shares no matrix with others."""
        same = theirs is None and rows == columns
        theirs = self.rows if theirs is None else theirs
        X, Z = self.rows.X[rows, :], None if same else theirs.X[columns, :]
        gram = kernel.gram(X, Z)
        if kernel.psd:  # symmetric by definition: half the work
            return gram
        back = gram if Z is None else kernel.gram(Z, X)  # symmetric only up to rounding
        return (gram + back.T) * 0.5


def _middle(X: Array) -> Array | None:
    """Medians (d,) of the columns over a few rows: unlike means, robust to outliers.

    With the mean as origin, a single entry of 1e9 would cost all other rows digits.
    None for sparse rows: zero is in the middle of most columns.
    """
    if issparse(X):
        return None
    some = X[:: -(-X.shape[0] // MIDDLE_ROWS), :]
    return namespace(X).sort(some, axis=0)[some.shape[0] // 2, :]


def _sum_columns(X: Array, Z: Array | None, term: Any) -> Array:
    """Sum of ``term(xp, x_j, z_j)`` over the columns j, without (n, m, d) arrays."""
    xp, Z = namespace(X), X if Z is None else Z
    D = zeros((X.shape[0], Z.shape[0]), X)
    for rows in row_chunks(*D.shape):
        for j in range(X.shape[1]):
            D[rows, :] += term(xp, X[rows, j][:, None], Z[:, j][None, :])
    return D


def _chi2_term(xp: Any, x: Array, z: Array) -> Array:
    total = x + z
    return (x - z) ** 2 / (total + as_float(total == 0, total.dtype))


def _check_nonnegative(X: Array) -> None:
    if issparse(X):
        if not np.any(X.data < 0):
            return
        X = X.toarray()
    xp = namespace(X)
    if bool(xp.any(X < 0)):
        values = to_numpy(X)
        i, j = (int(index) for index in np.argwhere(values < 0)[0])
        raise ValueError(
            f"Negative values in data: the chi2 kernel needs nonnegative features, but "
            f"row {i}, feature {j} holds {values[i, j]}. Shift or transform the "
            "features, or use another kernel."
        )


def median_distance(X: Array, base: str, memo: dict[str, float] | None = None) -> float:
    """Median distance over all pairs of distinct rows.

    Up to 2000 rows, all pairs are used; beyond that, only every s-th row, with s the
    smallest step that leaves at most 2000 rows. A median of 0 is replaced by the mean.

    Parameters
    ----------
    X : array of shape (n, d)
        Training rows.
    base : {"sqeuclidean", "l1"}
        The distance.
    memo : dict, default=None
        Cache of the result, with the key ``base``.

    Returns
    -------
    median : float
        0 only if all the rows used are equal.
    """
    memo = {} if memo is None else memo
    if base not in memo:
        step = -(-X.shape[0] // MEDIAN_ROWS)
        rows = X[::step, :]
        rows = (rows if issparse(X) else to_numpy(rows)).astype(np.float64)
        pairs = squareform(base_matrix(base, rows), checks=False)
        memo[base] = median_or_mean(pairs)
    return memo[base]


def median_or_mean(values: np.ndarray) -> float:
    """The median of values (n,), or their mean if it is 0; 0 if there are none."""
    if not values.size:
        return 0.0
    return float(np.median(values)) or float(values.mean())

"""The kernel functions, each documented by its formula, on features or transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, signature
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, clone
from sklearn.feature_selection import SelectorMixin, VarianceThreshold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize
from sklearn.utils import get_tags
from sklearn.utils.sparsefuncs import mean_variance_axis

from kernelweave._array import (
    Array,
    as_float,
    at_home,
    column_means,
    eps,
    from_numpy,
    is_array,
    is_numpy,
    is_real,
    namespace,
    require_memory,
    to_numpy,
    units_of,
)
from kernelweave._tolerances import ROUNDING_UNITS
from kernelweave.kernels.base import (
    Kernel,
    brief,
    check_parameter,
    exp_,
    median_distance,
)
from kernelweave.kernels.encoding import ColumnEncoder
from kernelweave.views.columns import Piped, host_like
from kernelweave.views.composition import nested_params, with_params
from kernelweave.views.raw_columns import Columns

#: Relative difference up to which deviations of columns count as equal: those of scaled
#: columns in single precision differ by as much.
EVEN = 1e-6


class Linear(Kernel):
    """``k(x, z) = x'z``."""

    base = "dot"
    forgets = "affine"
    ignores_origin = True

    def from_base(self, base: Array) -> Array:
        """The base matrix itself: no copy is made."""
        return base

    def gradient(self, X: np.ndarray, Z: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """``Z'coef``, the same for all rows."""
        return np.broadcast_to(Z.T @ coef, (len(X), Z.shape[1], coef.shape[1]))


class Polynomial(Kernel):
    """``k(x, z) = (gamma x'z + coef0)^degree``.

    Parameters
    ----------
    degree : int, default=3
        Degree, at least 1.
    gamma : float or "scale", default="scale"
        Positive factor. "scale" is the reciprocal of the mean of ``x'x`` over the
        training rows, which makes the kernel independent of the unit of the features.
    coef0 : float, default=1.0
        Nonnegative constant; with a negative one the kernel might be indefinite.
    """

    base = "dot"

    def __init__(
        self, degree: int = 3, gamma: float | str = "scale", coef0: float = 1.0
    ) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0

    @property
    def forgets(self) -> str | None:  # type: ignore[override]
        """The unit of the columns, if gamma comes from them."""
        return "unit" if self.gamma == "scale" else None

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """Fix gamma from the training rows X (n, d)."""
        check_parameter(self, "gamma", word="scale")
        check_parameter(self, "coef0", zero=True)
        check_parameter(self, "degree")
        degree: Any = self.degree
        if not isinstance(degree, Integral):
            raise ValueError(
                f"Polynomial: degree must be an integer; found {self.degree!r}."
            )
        if self.gamma != "scale":
            return clone(self)
        values = X.data if issparse(X) else X
        xp = namespace(values)
        mean = float(xp.sum(values * values, dtype=xp.float64)) / X.shape[0]
        return clone(self).set_params(gamma=1 / mean if mean > 0 else 1.0)

    def from_base(self, base: Array) -> Array:
        """Gram matrix (n, m) from the inner products (n, m)."""
        K = base * float(self.gamma)
        K += float(self.coef0)
        factor = K
        for _ in range(self.degree - 1):
            K = K * factor
        return K

    def gradient(self, X: np.ndarray, Z: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """``sum_j a_j q gamma (gamma x'z_j + coef0)^(q - 1) z_j`` of degree q."""
        gamma, degree = float(self.gamma), int(self.degree)
        inner = gamma * (X @ Z.T) + float(self.coef0)
        return _weighted_sums(degree * gamma * inner ** (degree - 1), Z, coef)


class _Exponential(Kernel):
    """``k(x, z) = exp(-gamma distance(x, z))`` for the distance named by ``base``."""

    gamma: float | str

    @property
    def forgets(self) -> str | None:  # type: ignore[override]
        """Changes that scale all distances, if gamma comes from these."""
        changes = "affine" if self.ignores_origin else "unit"
        return changes if self.gamma == "median" else None

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """Fix gamma from the training rows X (n, d)."""
        check_parameter(self, "gamma", word="median")
        if self.gamma != "median":
            return clone(self)
        median = median_distance(X, str(self.base), memo)
        return clone(self).set_params(gamma=1 / median if median > 0 else 1.0)

    def from_base(self, base: Array) -> Array:
        """Gram matrix (n, m) from the distances (n, m)."""
        return exp_(base * -float(self.gamma))

    def _gradient_by_column(
        self,
        X: np.ndarray,
        Z: np.ndarray,
        coef: np.ndarray,
        slope: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """``-gamma sum_j a_j k(x, z_j) slope(x_l, z_jl)``, one column l at a time.

        ``slope`` is the derivative of the distance in one column: (m, 1) and (1, n)
        entries to (m, n).
        """
        K = self.gram(X, Z)
        columns = [
            (K * slope(X[:, None, j], Z[None, :, j])) @ coef for j in range(X.shape[1])
        ]
        return -float(self.gamma) * np.stack(columns, axis=1)


class RBF(_Exponential):
    """``k(x, z) = exp(-factor gamma |x - z|^2)``.

    Parameters
    ----------
    gamma : float or "median", default="median"
        Positive factor. "median" is the reciprocal of the median squared distance
        between training rows (a subset of at most 2000 rows if there are more; the mean
        distance if the median is 0; gamma = 1 if all rows are equal).
    factor : float, default=1.0
        Positive multiplier of gamma, useful with "median".
    """

    base = "sqeuclidean"
    ignores_origin = True

    def __init__(self, gamma: float | str = "median", factor: float = 1.0) -> None:
        self.gamma = gamma
        self.factor = factor

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """Fix gamma from the training rows X (n, d) and absorb factor into it."""
        check_parameter(self, "factor")
        kernel = super().resolve(X, memo)
        gamma = float(kernel.get_params()["gamma"]) * float(self.factor)
        return kernel.set_params(gamma=gamma, factor=1.0)

    def gradient(self, X: np.ndarray, Z: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """``-2 gamma sum_j a_j k(x, z_j) (x - z_j)``."""
        K = self.gram(X, Z)
        towards = _weighted_sums(K, Z, coef) - (K @ coef)[:, None, :] * X[:, :, None]
        return 2.0 * float(self.gamma) * towards


class Laplacian(_Exponential):
    """``k(x, z) = exp(-gamma |x - z|_1)``.

    Parameters
    ----------
    gamma : float or "median", default="median"
        Positive factor. "median" is the reciprocal of the median l1 distance between
        training rows, computed as for :class:`RBF`.
    """

    base = "l1"
    ignores_origin = True

    def __init__(self, gamma: float | str = "median") -> None:
        self.gamma = gamma

    def gradient(self, X: np.ndarray, Z: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """``-gamma sum_j a_j k(x, z_j) sign(x - z_j)``, zero for terms with a kink.

        Where a coordinate of x equals that of z_j, as at every training row, the term
        has two one-sided derivatives; zero is their mean.
        """
        return self._gradient_by_column(X, Z, coef, lambda x, z: np.sign(x - z))


class Chi2(_Exponential):
    """``k(x, z) = exp(-gamma sum_j (x_j - z_j)^2 / (x_j + z_j))`` for x, z >= 0.

    Parameters
    ----------
    gamma : float or "median", default=1.0
        Positive factor. "median" is the reciprocal of the median chi2 distance between
        training rows, computed as for :class:`RBF`.
    """

    base = "chi2"

    def __init__(self, gamma: float | str = 1.0) -> None:
        self.gamma = gamma

    def gradient(self, X: np.ndarray, Z: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """``-gamma sum_j a_j k(x, z_j) (x - z_j) (x + 3 z_j) / (x + z_j)^2``."""

        def slope(x: np.ndarray, z: np.ndarray) -> np.ndarray:
            total = x + z
            return (x - z) * (x + 3.0 * z) / np.where(total == 0, 1.0, total) ** 2

        return self._gradient_by_column(X, Z, coef, slope)


class Cosine(Kernel):
    """``k(x, z) = x'z / (|x| |z|)``; 0 where x or z is 0."""

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of the rows of X (n, d) and Z (m, d)."""
        return Linear().gram(unit_rows(X), None if Z is None else unit_rows(Z))

    def gradient(self, X: np.ndarray, Z: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """``sum_j a_j (z_j/|z_j| - cos(x, z_j) x/|x|) / |x|``; zero where x is."""
        units, norms = unit_rows(X), np.linalg.norm(X, axis=1)
        slope = np.broadcast_to(
            unit_rows(Z).T @ coef, (len(X), Z.shape[1], coef.shape[1])
        )
        along = (units @ unit_rows(Z).T) @ coef  # (m, q)
        tangent = slope - along[:, None, :] * units[:, :, None]
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        return tangent * inverse[:, None, None]


def _weighted_sums(K: np.ndarray, Z: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """``sum_j K_ij coef_jc Z_jl`` as (m, d, q), one function at a time."""
    return np.stack([K @ (a[:, None] * Z) for a in coef.T], axis=2)


def unit_rows(X: Array) -> Array:
    """Rows of X (n, d), scaled to length one; rows of zeros stay as they are."""
    if issparse(X):
        return normalize(normalize(X, norm="max"))
    xp = namespace(X)
    # Dividing by the largest entry first keeps squares of tiny entries from underflow.
    largest = xp.max(xp.abs(X), axis=1, keepdims=True)
    X = X / (largest + as_float(largest == 0, X.dtype))
    norms = xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))
    return X / (norms + as_float(norms == 0, X.dtype))


class CallableKernel(Kernel):
    """``k(x, z) = function(X, Z)[i, j]`` for row i of X and row j of Z.

    Parameters
    ----------
    function : callable
        Takes two arrays of rows, (n, d) and (m, d), and returns their Gram matrix
        (n, m), which is checked for symmetry and definiteness. Numbers arrive as arrays
        of floats, which are read-only. Columns of a table that hold anything else, such
        as text, arrive as arrays of objects, with NumPy's dates and None in gaps; those
        of a view with a single column are one-dimensional.
    """

    psd = False
    takes_columns = True

    def __init__(self, function: Callable[[Array, Array], Array]) -> None:
        self.function = function

    @property
    def label(self) -> str:
        """The name of the function or, for another object, of its class."""
        function, fixed = self.function, ""
        if isinstance(function, partial):  # which Python does not nest
            own = [f"{brief(value):.40}" for value in function.args]
            own += [f"{k}={brief(value):.40}" for k, value in function.keywords.items()]
            function, fixed = function.func, f"({', '.join(own)})"
        name = getattr(function, "__name__", type(function).__name__)
        return f"{name}{fixed}"

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of the rows of X (n, d) and Z (m, d)."""
        like, given = host_like(X), protected(X)
        K = self._called(given, given if Z is None else protected(Z))
        K = K.toarray() if issparse(K) else K
        K, xp = K if is_array(K) else np.asarray(K), namespace(like)
        wanted = (X.shape[0], (X if Z is None else Z).shape[0])
        if tuple(K.shape) != wanted:
            raise ValueError(
                f"The kernel function {self.label!r} returned the shape "
                f"{tuple(K.shape)} instead of {wanted}. It is called once with two "
                "arrays of rows and must return the matrix of all kernel values."
            )
        if not is_real(K):
            raise ValueError(
                f"The kernel function {self.label!r} returned values of the type "
                f"{K.dtype}. It must return a matrix of real numbers."
            )
        # A copy, since the function may keep a reference to its result.
        K = xp.astype(at_home(K, like), like.dtype, copy=True)
        if not bool(xp.all(xp.isfinite(K))):
            raise ValueError(
                f"The kernel function {self.label!r} returned NaN or infinity. Check "
                "its values on the rows of this view."
            )
        return K

    def _called(self, X: Any, Z: Any) -> Any:
        """The result of the function; if it fails, an error that names it."""
        try:
            K = self.function(X, Z)
        except MemoryError:
            raise
        except Exception as error:
            advice = "Try it on two small arrays of rows, (n, d) and (m, d)"
            if "read-only" in str(error):
                advice = "It must not write to its arguments: let it copy them first"
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"The kernel function {self.label!r} failed: {type(error).__name__}: "
                f"{error}. {advice}."
            ) from error
        if K is None:
            raise ValueError(
                f"The kernel function {self.label!r} returned None. It must return the "
                "matrix of all kernel values."
            )
        return K


def protected(X: Any) -> Any:
    """Rows that a function cannot change: read-only or, if they cannot be, a copy.

    A single column of a table becomes one-dimensional.
    """
    if isinstance(X, Columns):
        return X.given(flat=X.shape[1] == 1)
    if issparse(X):
        X = X.copy()
        X.data.flags.writeable = False
    elif is_numpy(X):
        X = X.view()
        X.flags.writeable = False
    else:
        X = namespace(X).asarray(X, copy=True)
    return X


class Standardizer(BaseEstimator):
    """``(x - mean) / deviation``, column by column, in any array library.

    Columns that are constant up to rounding are only centred.

    Parameters
    ----------
    per_column : bool, default=True
        If False, all columns are divided by the same number, the root mean square of
        their deviations, so that columns with more variance keep more influence.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (d,)
        Mean and deviation of the training columns.
    """

    noise_: float = 0.0

    def __init__(self, per_column: bool = True) -> None:
        self.per_column = per_column

    @property
    def label(self) -> str:
        """Name for tables."""
        return "z-scored" if self.per_column else "centred"

    @property
    def is_even(self) -> bool:
        """Whether all columns have the same deviation."""
        xp = namespace(self.scale_)
        return bool(xp.max(self.scale_) <= xp.min(self.scale_) * (1 + EVEN))

    def fit(self, X: Array, y: Any = None) -> Standardizer:
        """Learn mean and deviation from the rows of X (n, d)."""
        largest = largest_entries(X)
        xp, unit = namespace(largest), largest + as_float(largest == 0, X.dtype)
        if issparse(X):
            scaled = divided(X, unit).astype(np.float64)
            mean, variance = mean_variance_axis(scaled, axis=0)
            self.mean_ = as_float(mean * unit, X.dtype)
        else:
            self.mean_ = column_means(X)
            centered = (X - self.mean_) / unit
            squares = xp.sum(centered * centered, axis=0, dtype=xp.float64)
            variance = squares / X.shape[0]
        deviation = as_float(xp.sqrt(variance), X.dtype)
        constant = as_float(deviation <= ROUNDING_UNITS * eps(unit), X.dtype)
        self.scale_ = (1 - constant) * deviation * unit + constant
        if not self.per_column:
            largest = xp.max(self.scale_)
            share = (1 - constant) * (self.scale_ / largest)
            common = largest * xp.sqrt(xp.mean(share * share))
            self.scale_ = xp.ones_like(self.scale_) * (common if common > 0 else 1.0)
        return self

    def transform(self, X: Array) -> Array:
        """Standardise the rows of X (m, d).

        Sparse rows are only divided by the deviations, which keeps them sparse; this
        suffices for kernels that do not depend on the origin once they are centred.
        """
        if issparse(X):
            return divided(X, self.scale_)
        return (X - self.mean_) / self.scale_


class Frame(Standardizer):
    """``(x - origin) / unit``, where unit is a power of two, 1 for ordinary numbers.

    Centring and scaling to trace n make a linear kernel independent of both, but only
    after the products have been formed: by then a column of timestamps around 1.7e9
    seconds has lost half of its digits, and a column around 1e160 has overflowed. So
    the origin is subtracted from the columns, and the unit divided out, first.

    Parameters
    ----------
    affine : bool, default=True
        Whether to move the origin to the column means; otherwise it stays at zero.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (d,)
        The origin, and the unit repeated for each column.
    unit_ : float
        The unit, common to all columns.
    noise_ : float
        Bound on the total variance of the columns if rounding of their entries explains
        all of it; 0 if any column varies more than that.
    """

    def __init__(self, affine: bool = True) -> None:
        self.affine = affine

    def fit(self, X: Array, y: Any = None, bits: int | None = None) -> Frame:
        """Learn origin and unit from the rows of X (n, d).

        ``bits`` is the precision of the rows to be transformed; that of X by default.
        """
        largest = largest_entries(X)
        xp, own = namespace(largest), namespace(largest).finfo(X.dtype).bits
        bits = own if bits is None else bits
        self.mean_ = xp.zeros_like(largest)
        moved = largest
        if self.affine and not issparse(X):  # sparse columns have zero as an entry
            self.mean_ = column_means(X)
            moved = largest_entries(X - self.mean_)
        sizes, spread = (to_numpy(a).astype(np.float64) for a in (largest, moved))
        self.unit_ = float(units_of(spread.max(), bits))
        self.scale_ = xp.ones_like(self.mean_) * self.unit_
        precision = eps(largest) if bits == own else float(np.finfo(np.float32).eps)
        rounding = ROUNDING_UNITS * precision * sizes
        varies = not self.affine or bool(np.any(spread > rounding))
        self.noise_ = 0.0 if varies else float(np.sum((rounding / self.unit_) ** 2))
        return self

    def transform(self, X: Array) -> Array:
        """The rows of X (m, d), with the new origin and unit."""
        if issparse(X):
            return X if self.unit_ == 1.0 else divided(X, self.scale_)
        X = X - self.mean_ if self.affine else X
        return X if self.unit_ == 1.0 else X / self.scale_


def largest_entries(X: Any) -> Array:
    """The largest absolute value (d,) of each column of rows (n, d)."""
    if issparse(X):
        return np.asarray(abs(X).max(axis=0).toarray(), dtype=X.dtype).reshape(-1)
    return namespace(X).max(namespace(X).abs(X), axis=0)


def divided(X: Any, scale: np.ndarray) -> Any:
    """Sparse rows (n, d) with each column divided by an entry of ``scale`` (d,)."""
    found = csr_array(X, copy=True)
    found.data /= np.asarray(scale, dtype=found.dtype)[found.indices]
    return found


def dense_rows(X: Any) -> np.ndarray:
    """Sparse rows (n, d) as a dense array, if that fits into memory."""
    require_memory(
        X.shape[0] * X.shape[1] * X.dtype.itemsize,
        f"a dense copy of {X.shape[0]} sparse rows of {X.shape[1]} columns",
        "use kernels that keep them sparse: 'linear', 'rbf', 'cosine', 'polynomial'",
    )
    return X.toarray()


class Pipe(Piped, Kernel):
    """A kernel on transformed features: ``k(t(x), t(z))``.

    Parameters
    ----------
    transformer : transformer
        Any scikit-learn transformer, such as ``PCA(10)`` or ``OneHotEncoder()``. A
        clone of it is fitted on the training rows: to their targets only if it says
        that it needs them, by its tags or by a ``fit(X, y)`` without a default for y.
        All others never see y, so that scores on held-out rows stay honest; one with
        ``fit(X, y=None)`` that is to use y needs ``tags.target_tags.required = True``
        in its ``__sklearn_tags__``. From a table it
        receives the columns of the view as they are: text, categories, dates, gaps. One
        that takes text, such as ``TfidfVectorizer()``, receives the single column of
        its view. From arrays it receives NumPy arrays, except for
        ``kernelweave.kernels.Standardizer()``, a ``StandardScaler()`` that works in the
        array library of the data.
    kernel : Kernel, str, callable or list of these
        The kernel, or kernels, on the transformed features. The kernels of a list share
        the fitted transformer and their base matrices.
    """

    takes_columns = True

    def __init__(self, transformer: Any, kernel: Any) -> None:
        self.transformer = transformer
        self.kernel = kernel

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; ``kernel__0__gamma`` reaches into a list of kernels."""
        params = super().get_params(deep=deep)
        if deep:
            params.update((f"kernel__{k}", v) for k, v in nested_params(self.kernel))
        return params

    def set_params(self, **params: Any) -> Pipe:
        """Set parameters; the kernel objects passed by the user are not modified."""
        nested = {k: params.pop(k) for k in list(params) if k.startswith("kernel__")}
        super().set_params(**params)
        if nested:
            changes = {k.removeprefix("kernel__"): v for k, v in nested.items()}
            self.kernel = with_params(self.kernel, changes, "kernel")
        return self

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """Gram matrix of finite numbers; X and Z may have gaps if they are imputed."""
        K = super().__call__(X, Z)
        if not bool(namespace(K).all(namespace(K).isfinite(K))):
            raise ValueError(
                "A kernel needs finite numbers; found NaN or infinity after the "
                f"transformer {type(self.transformer).__name__}. Drop such rows, or "
                "impute their gaps first, for example with Pipe(SimpleImputer(), ...)."
            )
        return K

    @property
    def psd(self) -> bool:  # type: ignore[override]
        """Whether the kernel after the transformer is positive semidefinite."""
        return self.core.psd

    @property
    def steps(self) -> tuple[Any, ...]:
        """The transformers, in the order in which they are applied."""
        return (self.transformer, *self.kernel.steps)

    @property
    def core(self) -> Kernel:
        """The kernel after all transformers."""
        return self.kernel.core

    @property
    def noise(self) -> float:
        """Trace per row of the centred kernel that is rounding of its columns."""
        ours = (step for step in self.steps if isinstance(step, Standardizer))
        return sum(step.noise_ for step in ours)

    @property
    def label(self) -> str:
        """Names of the transformer and of the kernel."""
        inner = self.kernel.label if isinstance(self.kernel, Kernel) else self.kernel
        if isinstance(self.transformer, Standardizer | ColumnEncoder):
            return f"{self.transformer.label} {inner}"
        return f"{type(self.transformer).__name__} > {inner}"

    def fit_transformer(self, X: Array, y: Any = None) -> tuple[Any, Array]:
        """A clone of the transformer fitted on X (n, d), and the transformed X.

        The targets y (n,) or (n, t) of the rows may be masked where they are unknown: a
        transformer that needs targets is then fitted on the other rows.
        """
        usable = all(hasattr(self.transformer, name) for name in ("fit", "transform"))
        if not usable or isinstance(self.transformer, type):
            raise TypeError(
                "Pipe: transformer must be a scikit-learn transformer object; found "
                f"{self.transformer!r}."
            )
        fitted, rows = clone(self.transformer), X
        if isinstance(y, np.ma.MaskedArray):
            known = np.flatnonzero(~np.ma.getmaskarray(y))
            rows, y = X[known], y.data[known]
        if needs_targets(fitted):
            fitted.fit(_given(fitted, rows), y)
        else:
            _fit_without_targets(fitted, X, rows, y)
        return fitted, apply_step(fitted, X)

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """Fit transformer and kernel on the training rows X (n, d)."""
        if not isinstance(self.kernel, Kernel):
            raise TypeError(
                f"Pipe: a single kernel object is needed here; found {self.kernel!r}. "
                "Names and lists are allowed only in the views of an estimator."
            )
        fitted, features = self.fit_transformer(X)
        return Pipe(fitted, self.kernel.resolve(features))

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of the rows of X (n, d) and Z (m, d)."""
        Z = None if Z is None else apply_step(self.transformer, Z)
        return self.kernel.gram(apply_step(self.transformer, X), Z)


class Framed(Pipe):
    """A resolved kernel on columns with an origin and unit chosen by a :class:`Frame`.

    Centred and scaled to trace n, it equals the kernel on the original columns. Called
    directly, it follows the plain definition: no origin is subtracted, and the unit is
    1 unless squares of the entries would overflow or underflow.
    """

    @property
    def label(self) -> str:
        """Name of the kernel, with the unit if that is not 1."""
        unit = self.transformer.unit_
        if unit == 1.0:
            return self.kernel.label
        return f"{self.kernel.label} in units of 2^{int(np.log2(unit))}"

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """Itself: all parameters are fixed."""
        return self

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of X (n, d) and Z (m, d), with the origin at zero."""
        unit = self.transformer.unit_
        if unit != 1.0:
            X, Z = X / unit, None if Z is None else Z / unit
        return self.kernel.gram(X, Z)


def first_step(transformer: Any) -> Any:
    """The transformer that receives the columns: in a Pipeline, the first step."""
    while isinstance(transformer, Pipeline):
        transformer = transformer.steps[0][1]
    return transformer


def _fit_without_targets(fitted: Any, X: Any, rows: Any, y: Any) -> None:
    """Fit a transformer on X (n, d) alone.

    If that fails, and a fit to the rows with targets y does not, the error says why y
    was not passed.
    """
    try:
        fitted.fit(_given(fitted, X))
    except Exception as error:
        if y is None:
            raise
        try:
            clone(fitted).fit(_given(fitted, rows), y)
        except Exception:
            raise error from None
        name = type(fitted).__name__
        raise ValueError(
            f"{name} cannot be fitted without y ({error}), but does not say that it "
            "needs y, so scores of held-out rows would be too good. Set "
            "tags.target_tags.required = True in its __sklearn_tags__"
        ) from error


def needs_targets(transformer: Any) -> bool:
    """Whether a transformer, or one inside it, is fitted to y; all others never see it.

    Its tags say so, or a y without a default in its ``fit``: some of scikit-learn's,
    such as PLSRegression, have no such tag. Selections of columns may not need y in
    general, and are fitted to it all the same.
    """
    if isinstance(transformer, type):
        return False
    if isinstance(transformer, Pipeline):
        return any(needs_targets(step) for _, step in transformer.steps)
    if isinstance(transformer, SelectorMixin):
        return not isinstance(transformer, VarianceThreshold)
    fitted = hasattr(transformer, "get_params")  # unlike words and functions
    if fitted and get_tags(transformer).target_tags.required:
        return True
    if fitted and _demands_targets(transformer):
        return True
    inside = [
        *(getattr(transformer, "transformers", None) or ()),  # of a ColumnTransformer
        *(getattr(transformer, "transformer_list", None) or ()),  # of a FeatureUnion
    ]
    return any(needs_targets(item[1]) for item in inside)


def _demands_targets(transformer: Any) -> bool:
    """Whether ``fit`` has a y without a default."""
    try:
        parameters = signature(transformer.fit).parameters
    except (AttributeError, TypeError, ValueError):  # none, or none that is known
        return False
    return "y" in parameters and parameters["y"].default is Parameter.empty


def _given(transformer: Any, X: Any) -> Any:
    """The input of a transformer: a copy, since some keep their input or change it."""
    if isinstance(transformer, Standardizer):
        return X.numbers if isinstance(X, Columns) else X
    if isinstance(X, Columns):
        if isinstance(transformer, ColumnEncoder):
            return X
        first = first_step(transformer)
        takes_tables = not hasattr(first, "__sklearn_tags__") or (
            get_tags(first).input_tags.two_d_array
        )
        if not takes_tables and X.shape[1] > 1:
            raise ValueError(
                f"{type(first).__name__} takes a single column of text, but the view "
                f"has {X.shape[1]} columns. Give each its own view, or use a "
                "ColumnTransformer."
            )
        return X.given(flat=not takes_tables)
    return X.copy() if issparse(X) else np.array(to_numpy(X))


def apply_step(fitted: Any, X: Array) -> Array:
    """X (n, d) transformed to features (n, e), in the library and device of X."""
    if isinstance(fitted, Standardizer):
        return fitted.transform(_given(fitted, X))
    features = fitted.transform(_given(fitted, X))
    name, kept = type(fitted).__name__, issparse(features)
    features = features if kept else np.asarray(features)
    if not kept and features.dtype.kind not in "fiub":
        features = _as_numbers(features, name)
    if features.ndim != 2 or features.shape[0] != X.shape[0] or not features.shape[1]:
        raise ValueError(
            f"{name} returned features of the shape {features.shape} for "
            f"{X.shape[0]} rows."
        )
    if not np.isfinite(features.data if kept else features).all():
        raise ValueError(
            f"{name} returned NaN or infinity. Put an imputer such as SimpleImputer "
            "before it, in a Pipeline."
        )
    like = host_like(X)
    if kept and is_numpy(like):
        return csr_array(features).astype(like.dtype)
    return from_numpy(features.toarray() if kept else features, like)


def _as_numbers(features: np.ndarray, name: str) -> np.ndarray:
    try:
        return features.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} returned features that are not numbers ({error}). Use a "
            "transformer that encodes them, such as OneHotEncoder."
        ) from error


def apply_steps(steps: tuple[Any, ...], X: Array) -> Array:
    """X (n, d) after all fitted transformers, in their order."""
    for step in steps:
        X = apply_step(step, X)
    return X


class ViewRows:
    """Rows of one view, and what the transformers of its kernels make of them, once.

    Kernels that begin with the same fitted transformers share their results.

    Parameters
    ----------
    rows : array, sparse array or Columns of shape (n, d)
        The rows, as they are.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        #: By the form in which they are read and the ids of the transformers so far.
        self.results: dict[tuple[Any, ...], Any] = {}

    def path(self, kernel: Kernel) -> tuple[Any, ...]:
        """The form of the rows, and the transformers, that a resolved kernel needs."""
        return (form_for(kernel, self.rows), *map(id, kernel.steps))

    def seen_by(self, kernel: Kernel) -> Any:
        """The rows after the transformers of a resolved kernel, as its core takes them.

        Returns
        -------
        rows : array, sparse array or Columns of shape (n, e)
        """
        return self.after(form_for(kernel, self.rows), kernel.steps)

    def after(self, form: str, steps: tuple[Any, ...]) -> Any:
        """The rows in a form that :func:`form_for` names, after fitted transformers."""
        path: tuple[Any, ...] = (form,)
        if path not in self.results:
            self.results[path] = in_form(self.rows, form)
        for step in steps:
            before, path = self.results[path], (*path, id(step))
            if path not in self.results:
                self.results[path] = apply_step(step, before)
        return self.results[path]

    def forget(self, still_needed: Sequence[tuple[Any, ...]]) -> None:
        """Drop all results but those on the way to the paths ``still_needed``."""
        for path in list(self.results):
            if not any(needed[: len(path)] == path for needed in still_needed):
                del self.results[path]


def form_for(kernel: Kernel, X: Any) -> str:
    """The form in which a resolved kernel takes rows X (n, d) of its view.

    Columns of a table become numbers unless a transformer ("cells"), or the kernel
    itself ("objects"), reads them as they are. Sparse rows become dense for a kernel
    that needs the origin of its columns after these have been centred.
    """
    if isinstance(X, Columns):
        if kernel.steps:
            return "numbers" if isinstance(kernel.steps[0], Standardizer) else "cells"
        return "objects" if kernel.core.takes_columns else "numbers"
    centred = any(type(step) is Standardizer for step in kernel.steps)
    needs_origin = centred and not kernel.core.ignores_origin
    return "dense" if issparse(X) and needs_origin else "rows"


def in_form(X: Any, form: str) -> Any:
    """Rows X (n, d) of a view in a form that :func:`form_for` names."""
    if form == "numbers":
        return X.numbers
    if form == "objects":
        return X.as_objects()
    return dense_rows(X) if form == "dense" else X


def rows_for(kernel: Kernel, X: Any) -> Any:
    """Rows X (n, d) of a view, in the form that a resolved kernel takes."""
    return in_form(X, form_for(kernel, X))


def seen_by(kernel: Kernel, X: Any) -> Any:
    """The input of the core of a resolved kernel, for rows X (n, d) of its view."""
    return ViewRows(X).seen_by(kernel)


def with_origin_at_zero(kernel: Kernel, rows: Any) -> Any:
    """Rows (n, e) that the core of a kernel sees, without the origin of a Frame.

    The kernel of these is the kernel as it is defined.
    """
    last = kernel.steps[-1] if kernel.steps else None
    if not isinstance(last, Frame) or not last.affine or issparse(rows):
        return rows
    return rows + last.mean_ / last.unit_

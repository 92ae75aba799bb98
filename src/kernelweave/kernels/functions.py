"""The kernel functions, each documented by its formula."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone

from kernelweave._array import (
    Array,
    as_float,
    from_numpy,
    is_array,
    namespace,
    same_home,
    to_numpy,
)
from kernelweave.kernels.base import (
    Kernel,
    check_parameter,
    exp_,
    median_distance,
)

__all__ = [
    "RBF",
    "CallableKernel",
    "Chi2",
    "Cosine",
    "Laplacian",
    "Linear",
    "Polynomial",
]


class Linear(Kernel):
    """``k(x, z) = x'z``."""

    base = "dot"

    @property
    def forgets(self) -> str | None:
        """Origin and unit of the columns."""
        return "affine"

    def from_base(self, base: Array) -> Array:
        """The base matrix itself: no copy is made."""
        return base


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
    def forgets(self) -> str | None:
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
        xp = namespace(X)
        mean = float(xp.sum(X * X, dtype=xp.float64)) / X.shape[0]
        return clone(self).set_params(gamma=1 / mean if mean > 0 else 1.0)

    def from_base(self, base: Array) -> Array:
        """Gram matrix (n, m) from the inner products (n, m)."""
        K = base * float(self.gamma)
        K += float(self.coef0)
        factor = K
        for _ in range(self.degree - 1):
            K = K * factor
        return K


class _Exponential(Kernel):
    """``k(x, z) = exp(-gamma distance(x, z))`` for the distance named by ``base``."""

    gamma: float | str

    @property
    def forgets(self) -> str | None:
        """Origin and unit of the columns, if gamma comes from them."""
        return "affine" if self.gamma == "median" else None

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

    def __init__(self, gamma: float | str = "median", factor: float = 1.0) -> None:
        self.gamma = gamma
        self.factor = factor

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """Fix gamma from the training rows X (n, d) and absorb factor into it."""
        check_parameter(self, "factor")
        kernel = super().resolve(X, memo)
        gamma = float(kernel.get_params()["gamma"]) * float(self.factor)
        return kernel.set_params(gamma=gamma, factor=1.0)


class Laplacian(_Exponential):
    """``k(x, z) = exp(-gamma |x - z|_1)``.

    Parameters
    ----------
    gamma : float or "median", default="median"
        Positive factor. "median" is the reciprocal of the median l1 distance between
        training rows, computed as for :class:`RBF`.
    """

    base = "l1"

    def __init__(self, gamma: float | str = "median") -> None:
        self.gamma = gamma


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

    @property
    def forgets(self) -> str | None:
        """The unit of the columns, if gamma comes from them."""
        return "unit" if self.gamma == "median" else None


class Cosine(Kernel):
    """``k(x, z) = x'z / (|x| |z|)``; 0 where x or z is 0."""

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of the rows of X (n, d) and Z (m, d)."""
        return Linear().gram(unit_rows(X), None if Z is None else unit_rows(Z))


def unit_rows(X: Array) -> Array:
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
        (n, m), which is checked for symmetry and definiteness.
    """

    psd = False

    def __init__(self, function: Callable[[Array, Array], Array]) -> None:
        self.function = function

    @property
    def label(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__name__", self.function))

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of the rows of X (n, d) and Z (m, d)."""
        xp = namespace(X)
        # Copies, since the function may overwrite its arguments.
        X = xp.asarray(X, copy=True)
        Z = X if Z is None else xp.asarray(Z, copy=True)
        K = self.function(X, Z)
        K = K if is_array(K) else np.asarray(K)
        wanted = (X.shape[0], Z.shape[0])
        if tuple(K.shape) != wanted:
            raise ValueError(
                f"The kernel function {self.label!r} returned the shape "
                f"{tuple(K.shape)} instead of {wanted}. It is called once with two "
                "arrays of rows and must return the matrix of all kernel values."
            )
        K = K if same_home(K, X) else from_numpy(to_numpy(K), X)
        # A copy, since the function may keep a reference to its result.
        K = namespace(K).astype(K, X.dtype, copy=True)
        if not bool(namespace(K).all(namespace(K).isfinite(K))):
            raise ValueError(
                f"The kernel function {self.label!r} returned NaN or infinity. Check "
                "its values on the rows of this view."
            )
        return K

"""Kernels on transformed features."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone

from kernelweave._array import Array, as_float, eps, from_numpy, namespace, to_numpy
from kernelweave._units import column_means
from kernelweave.kernels.base import Kernel
from kernelweave.views.composition import nested_params, with_params

__all__ = ["Pipe", "Standardizer"]


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
        return bool(xp.max(self.scale_) <= xp.min(self.scale_) * (1 + 1e-6))

    def fit(self, X: Array, y: Any = None) -> Standardizer:
        """Learn mean and deviation from the rows of X (n, d)."""
        xp = namespace(X)
        n = X.shape[0]
        self.mean_ = column_means(X)
        largest = xp.max(xp.abs(X), axis=0)
        unit = largest + as_float(largest == 0, X.dtype)
        centered = (X - self.mean_) / unit
        variance = xp.sum(centered * centered, axis=0, dtype=xp.float64) / n
        deviation = as_float(xp.sqrt(variance), X.dtype)
        constant = as_float(deviation <= 10 * eps(X), X.dtype)
        self.scale_ = (1 - constant) * deviation * unit + constant
        if not self.per_column:
            largest = xp.max(self.scale_)
            share = (1 - constant) * (self.scale_ / largest)
            common = largest * xp.sqrt(xp.mean(share * share))
            self.scale_ = xp.ones_like(self.scale_) * (common if common > 0 else 1.0)
        return self

    def transform(self, X: Array) -> Array:
        """Standardise the rows of X (m, d)."""
        return (X - self.mean_) / self.scale_


class Pipe(Kernel):
    """A kernel on transformed features: ``k(t(x), t(z))``.

    Parameters
    ----------
    transformer : transformer
        Any scikit-learn transformer that needs no y, such as ``PCA(10)``. A clone of it
        is fitted on the training rows. It receives NumPy arrays, except for
        :class:`Standardizer`, which works in the array library of the data.
    kernel : Kernel, str, callable or list of these
        The kernel, or kernels, on the transformed features. The kernels of a list share
        the fitted transformer and their base matrices.
    """

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

    @property
    def psd(self) -> bool:  # type: ignore[override]
        """Whether the kernel after the transformer is positive semidefinite."""
        return self.core.psd

    @property
    def base(self) -> str | None:  # type: ignore[override]
        """The base matrix of the kernel after the transformer."""
        return self.core.base

    @property
    def noise(self) -> float:  # type: ignore[override]
        """Trace per row that is rounding error of the transformed columns."""
        return self.kernel.noise

    @property
    def steps(self) -> tuple[Any, ...]:
        """The transformers, in the order in which they are applied."""
        return (self.transformer, *self.kernel.steps)

    @property
    def core(self) -> Kernel:
        """The kernel after all transformers."""
        return self.kernel.core

    @property
    def label(self) -> str:
        """Names of the transformer and of the kernel."""
        inner = self.kernel.label if isinstance(self.kernel, Kernel) else self.kernel
        if isinstance(self.transformer, Standardizer):
            return f"{self.transformer.label} {inner}"
        return f"{type(self.transformer).__name__} > {inner}"

    def fit_transformer(self, X: Array) -> tuple[Any, Array]:
        """A clone of the transformer fitted on X (n, d), and the transformed X."""
        usable = all(hasattr(self.transformer, name) for name in ("fit", "transform"))
        if not usable or isinstance(self.transformer, type):
            raise TypeError(
                "Pipe: transformer must be a scikit-learn transformer object; found "
                f"{self.transformer!r}."
            )
        fitted = clone(self.transformer)
        # A copy, since some transformers keep the training data or work in place.
        fitted.fit(X if isinstance(fitted, Standardizer) else np.array(to_numpy(X)))
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

    def from_base(self, base: Array) -> Array:
        """Gram matrix (n, m) from the base matrix (n, m) of transformed features."""
        return self.core.from_base(base)

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of the rows of X (n, d) and Z (m, d)."""
        X = apply_step(self.transformer, X)
        Z = None if Z is None else apply_step(self.transformer, Z)
        return self.kernel.gram(X, Z)


def apply_step(fitted: Any, X: Array) -> Array:
    """X (n, d) transformed to features (n, e), in the library and device of X."""
    if isinstance(fitted, Standardizer):
        return fitted.transform(X)
    features = fitted.transform(np.array(to_numpy(X)))  # it may work in place
    name = type(fitted).__name__
    if issparse(features):
        raise TypeError(f"{name} returned sparse features; dense ones are needed.")
    features = np.asarray(features)
    if features.ndim != 2 or features.shape[0] != X.shape[0] or not features.shape[1]:
        raise ValueError(
            f"{name} returned features of the shape {features.shape} for "
            f"{X.shape[0]} rows."
        )
    if not np.isfinite(features).all():
        raise ValueError(f"{name} returned NaN or infinity.")
    return from_numpy(features, X)

"""Exact feature maps: linear, cosine and low-degree polynomial kernels."""

from __future__ import annotations

from itertools import combinations_with_replacement
from math import comb, factorial

import numpy as np

from kernelweave._array import Array, namespace
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.features.base import FeatureMap
from kernelweave.kernels.functions import Cosine, Linear, Polynomial, unit_rows

__all__ = [
    "CosineFeatures",
    "LinearFeatures",
    "PolynomialFeatures",
    "exact_map",
    "exact_width",
]


def exact_width(kernel: Kernel, n_columns: int) -> int | None:
    """Number of exact features of a kernel on d columns, None if there are none."""
    core = kernel.core
    if isinstance(core, Linear | Cosine):
        return n_columns
    if isinstance(core, Polynomial):
        homogeneous = float(core.coef0) == 0
        return comb(n_columns + core.degree - homogeneous, core.degree)
    return None


def exact_map(kernel: Kernel, sample: np.ndarray) -> FeatureMap:
    """The exact map of a resolved kernel for rows like those of ``sample`` (m, d)."""
    if isinstance(kernel, Linear):
        return LinearFeatures(kernel, sample.shape[1])
    if isinstance(kernel, Cosine):
        return CosineFeatures(kernel, sample.shape[1])
    if isinstance(kernel, Polynomial):
        return PolynomialFeatures(kernel, sample.shape[1])
    raise ValueError(f"{kernel.label} has no finite exact features")


class LinearFeatures(FeatureMap):
    """``z(x) = x`` for ``k(x, y) = x'y``.

    Columns far from zero keep their digits because a
    :class:`~kernelweave.kernels.functions.Frame` has already been applied to them.
    """

    exact, how = True, "exact"

    def transform(self, X: Array) -> Array:
        """The rows themselves: no copy is made."""
        return X


class CosineFeatures(FeatureMap):
    """``z(x) = x / |x|`` for ``k(x, y) = x'y / (|x| |y|)``."""

    exact, how = True, "exact"

    def transform(self, X: Array) -> Array:
        """Rows of unit length."""
        return unit_rows(X)


class PolynomialFeatures(FeatureMap):
    """The monomials of ``(gamma x'y + c)^q``, each times the root of its coefficient.

    With ``x_0 = sqrt(c / gamma)``, ``k(x, y) = gamma^q (x_0 y_0 + x'y)^q``, and the
    monomial with exponents e has the coefficient ``gamma^q q! / prod e_j!``.

    Parameters
    ----------
    kernel : Polynomial
        The kernel, resolved.
    n_columns : int
        Number d of columns.
    """

    exact, how = True, "exact"

    def __init__(self, kernel: Polynomial, n_columns: int) -> None:
        degree, c = int(kernel.degree), float(kernel.coef0)
        gamma = float(kernel.gamma)
        first = 0 if c > 0 else 1  # column 0 is the constant
        terms = list(combinations_with_replacement(range(first, n_columns + 1), degree))
        super().__init__(kernel, len(terms))
        self.terms = np.array(terms, dtype=np.int64)  # (D, q)
        self.constant = (c / gamma) ** 0.5
        exponents = [np.bincount(term, minlength=1) for term in self.terms]
        ways = [
            factorial(degree) / np.prod([factorial(e) for e in x]) for x in exponents
        ]
        self.factors = np.sqrt(np.array(ways) * gamma**degree)  # (D,)

    arrays = ("factors",)

    def transform(self, X: Array) -> Array:
        """Monomials (m, D) of the rows X (m, d)."""
        xp = namespace(X)
        ones = xp.ones_like(X[:, :1]) * self.constant
        columns = xp.concat([ones, X], axis=1)
        out = self.factors[None, :]
        for j in range(self.terms.shape[1]):
            index = xp.asarray(self.terms[:, j], device=X.device)
            out = out * xp.take(columns, index, axis=1)
        return out

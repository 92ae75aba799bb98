"""Explicit feature maps: exact, random Fourier and Nystroem features."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import combinations_with_replacement
from math import comb, factorial
from typing import Any, ClassVar

import numpy as np

from kernelweave._array import Array, from_numpy, namespace, require_memory, take
from kernelweave._tolerances import ROUNDING_UNITS
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.functions import (
    RBF,
    Cosine,
    Laplacian,
    Linear,
    Polynomial,
    unit_rows,
)

#: Landmarks reproduce a kernel if they leave at most this of its diagonal, relative to
#: its largest entry: the rounding of a partial factorisation.
EXHAUSTED = 1e-12


class FeatureMap:
    """``z(x)`` with ``k(x, y) = z(x)'z(y)``, exactly or approximately.

    A map is fitted with NumPy on a sample of rows and may then be moved to another
    array library or device. It holds nothing but numbers, so it can be sent to workers.

    Attributes
    ----------
    kernel : Kernel
        The kernel that is mapped, resolved and without the steps of a pipe.
    n_features : int
        Length of z.
    how : str
        The kind of map, for remarks.
    exact : bool
        Whether ``k(x, y) = z(x)'z(y)`` holds up to rounding.
    """

    exact: bool = False
    how: str = ""
    #: Names of the array attributes that :meth:`to` moves.
    arrays: ClassVar[tuple[str, ...]] = ()

    def __init__(self, kernel: Kernel, n_features: int) -> None:
        self.kernel = kernel
        self.n_features = int(n_features)

    def transform(self, X: Array) -> Array:
        """Features (m, D) of the rows X (m, d), in the library and dtype of X."""
        raise TypeError(f"{type(self).__name__} does not compute features")

    def is_reference(self, X: np.ndarray) -> np.ndarray:
        """Mask (m,) of the rows X (m, d) from which the map was built.

        The map may be exact there: an error measured on these rows is too optimistic.
        """
        return np.zeros(X.shape[0], dtype=bool)

    def to(self, like: Array) -> Any:
        """A copy whose arrays have the library, device and dtype of ``like``."""
        moved = copy.copy(self)
        for name in self.arrays:
            setattr(moved, name, from_numpy(np.asarray(getattr(self, name)), like))
        return moved

    def __repr__(self) -> str:
        return f"<{self.how}, {self.n_features} features of {self.kernel.label}>"


def exact_width(kernel: Kernel, n_columns: int) -> int | None:
    """Number of exact features of a kernel on d columns, None if there are none."""
    if isinstance(kernel, Linear | Cosine):
        return n_columns
    if isinstance(kernel, Polynomial):
        homogeneous = float(kernel.coef0) == 0
        return comb(n_columns + kernel.degree - homogeneous, kernel.degree)
    return None


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
            out = out * take(columns, self.terms[:, j], axis=1)
        return out


EXACT: dict[type[Kernel], Callable[[Any, int], FeatureMap]] = {
    Linear: LinearFeatures,
    Cosine: CosineFeatures,
    Polynomial: PolynomialFeatures,
}


def exact_map(kernel: Kernel, sample: np.ndarray) -> FeatureMap:
    """The exact map of a resolved kernel for rows like those of ``sample`` (m, d)."""
    for kind, features in EXACT.items():
        if isinstance(kernel, kind):
            return features(kernel, sample.shape[1])
    raise ValueError(
        f"{kernel.label} has no finite exact features; use features='nystroem' or "
        "'random', or a linear, cosine or polynomial kernel"
    )


class FourierFeatures(FeatureMap):
    """``z(x) = sqrt(2/D) [cos(W'x), sin(W'x)]``, so that ``E z(x)'z(y) = k(x, y)``.

    Rahimi and Recht (2007): the columns of W are drawn from the spectrum of the kernel,
    a Gaussian of variance ``2 gamma`` for ``exp(-gamma |x - y|^2)`` and, in each
    coordinate, a Cauchy distribution of scale gamma for ``exp(-gamma |x - y|_1)``.
    Gaussian frequencies are made orthogonal in blocks of d, which lowers the error (Yu
    et al. 2016). Cosine and sine at the same frequency make ``z(x)'z(x) = 1`` exactly.

    Parameters
    ----------
    kernel : RBF or Laplacian
        The kernel, resolved.
    n_columns : int
        Number d of columns.
    n_features : int
        Number D of features; an odd number is rounded up.
    rng : numpy.random.Generator
        Draws the frequencies.
    origin : ndarray of shape (d,), optional
        Subtracted from all rows, so that the phases of columns far from zero keep their
        digits; the kernel does not depend on it.
    n_rows : int, default=0
        Rows whose features will be kept, at least.
    """

    how = "random Fourier"
    arrays = ("frequencies", "origin")

    def __init__(
        self,
        kernel: RBF | Laplacian,
        n_columns: int,
        n_features: int,
        rng: np.random.Generator,
        origin: np.ndarray | None = None,
        n_rows: int = 0,
    ) -> None:
        half = -(-int(n_features) // 2)
        # the draws of a frequency serve two features, and are copied once
        require_features(kernel, n_rows, 2 * half, n_columns)
        super().__init__(kernel, 2 * half)
        gamma = float(kernel.gamma)
        if isinstance(kernel, RBF):
            draws = _orthogonal_gaussians(n_columns, half, rng) * np.sqrt(2 * gamma)
        else:
            draws = rng.standard_cauchy((n_columns, half)) * gamma
        self.frequencies = draws  # (d, D / 2)
        self.origin = np.zeros(n_columns) if origin is None else origin
        self.size = float(np.sqrt(2.0 / self.n_features))  # so that z(x)'z(x) = 1

    def transform(self, X: Array) -> Array:
        """Cosines and sines (m, D) of the rows X (m, d)."""
        xp = namespace(X)
        phase = (X - self.origin) @ self.frequencies
        return xp.concat([xp.cos(phase), xp.sin(phase)], axis=1) * self.size


def _orthogonal_gaussians(d: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """(d, m) standard normal columns, orthogonal within blocks of d columns."""
    n_blocks = -(-m // d)
    blocks, squares = np.empty((n_blocks, d, d)), np.empty((n_blocks, d))
    for b in range(n_blocks):
        blocks[b] = rng.standard_normal((d, d))
        squares[b] = rng.chisquare(d, size=d)
    blocks = np.linalg.qr(blocks)[0]  # at once: there may be very many of few columns
    blocks *= np.sqrt(squares)[:, None, :]
    return np.reshape(np.transpose(blocks, (1, 0, 2)), (d, -1))[:, :m]


def pivoted_cholesky(
    kernel: Kernel, X: np.ndarray, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices (m,) of m rows, each drawn according to the residual diagonal.

    Chen, Epperly, Tropp and Webber (2022): a partial Cholesky factorisation of the
    kernel whose pivots are drawn with probability proportional to the diagonal of the
    residual. It finds rows that resemble no landmark, such as those of a rare cluster.
    """
    left = kernel.diagonal(X)
    factor = np.zeros((X.shape[0], m))
    chosen: list[int] = []
    smallest = EXHAUSTED * float(np.max(left))
    while len(chosen) < m and float(np.max(left)) > smallest:
        j, total = len(chosen), np.cumsum(left)
        row = int(np.searchsorted(total, rng.random() * total[-1]))
        row = row if left[row] > smallest else int(np.argmax(left))
        column = kernel.gram(X, X[row : row + 1])[:, 0]
        column = column - factor[:, :j] @ factor[row, :j]
        factor[:, j] = column / np.sqrt(max(column[row], smallest))
        left = np.maximum(left - factor[:, j] ** 2, 0.0)
        left[row] = 0.0
        chosen.append(row)
    return np.sort(np.array(chosen, dtype=int))


#: Advice where approximate features would not fit.
FEWER = "use a smaller n_features; 200 to 2,000 are usual"


def require_features(kernel: Kernel, n: int, n_features: int, n_numbers: int) -> None:
    """Refuse features of n rows that would not fit, before any of them is made.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    n : int
        Rows whose features are kept, at least.
    n_features : int
        Number of features.
    n_numbers : int
        Numbers that determine each feature.
    """
    require_memory(
        8 * n_features * (n + n_numbers),
        f"n_features={n_features:,} for the kernel {kernel.label!r} and {n:,} rows",
        FEWER,
    )


class NystroemFeatures(FeatureMap):
    """``z(x) = L^(-1/2) V' k(X_m, x)`` with ``k(X_m, X_m) = V L V'``.

    Williams and Seeger (2001): the projection of the kernel's feature vectors onto the
    span of those of m landmarks ``X_m``. It is exact for the landmarks, never
    overestimates ``k(x, x)``, and adapts to the data, whereas random features depend on
    the kernel alone.

    Parameters
    ----------
    kernel : Kernel
        Any kernel, resolved.
    sample : ndarray of shape (s, d)
        Rows from which landmarks are chosen.
    n_features : int
        Number m of landmarks, at most s. Directions that are rounding error are
        dropped.
    rng : numpy.random.Generator
        Draws the landmarks.
    precision : float, default=2.2e-16
        Machine precision of the rows to be mapped.
    """

    how = "Nystroem"
    arrays = ("landmarks", "projection")

    def __init__(
        self,
        kernel: Kernel,
        sample: np.ndarray,
        n_features: int,
        rng: np.random.Generator,
        precision: float = float(np.finfo(np.float64).eps),
    ) -> None:
        rows = np.unique(np.asarray(sample, dtype=np.float64), axis=0)
        m = min(int(n_features), len(rows))
        # the partial factor, the kernel between landmarks and its eigenvectors
        require_features(kernel, len(rows), m, 2 * m)
        chosen = pivoted_cholesky(kernel, rows, m, rng)
        self.landmarks = rows[chosen]  # (m, d)
        if len(chosen) == 0:  # a kernel that is zero everywhere
            self.landmarks = rows[:1]
        values, vectors = np.linalg.eigh(kernel.gram(self.landmarks))
        kept = values > ROUNDING_UNITS * len(values) * precision * values[-1]
        self.projection = vectors[:, kept] / np.sqrt(values[kept])  # (m, D)
        super().__init__(kernel, max(int(np.sum(kept)), 1))
        if not np.any(kept):
            self.projection = np.zeros((len(values), 1))

    def transform(self, X: Array) -> Array:
        """Features (m, D) of the rows X (m, d)."""
        return self.kernel.gram(X, self.landmarks) @ self.projection

    def is_reference(self, X: np.ndarray) -> np.ndarray:
        """Which rows are landmarks."""
        known = {row.tobytes() for row in np.ascontiguousarray(self.landmarks)}
        rows = np.ascontiguousarray(X, dtype=np.float64)
        return np.array([row.tobytes() in known for row in rows], dtype=bool)

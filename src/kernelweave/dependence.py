"""The Hilbert-Schmidt independence criterion of kernels or features, with a test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from kernelweave._array import (
    Array,
    as_float,
    centred,
    device,
    is_array,
    namespace,
    row_chunks,
    take,
)
from kernelweave.exceptions import require_count
from kernelweave.kernels.checks import symmetric
from kernelweave.views.columns import is_iterator

Estimator = Literal["biased", "unbiased"]
#: Relative difference below which two statistics count as tied.
TIE = 1e-10


@dataclass(frozen=True)
class DependenceTest:
    """The outcome of :func:`hsic_test`.

    Attributes
    ----------
    statistic : float
        HSIC of the samples as paired.
    p_value : float
        Share of the pairings drawn, including the given one, with a statistic at least
        as large.
    null : ndarray of shape (n_permutations,)
        HSIC under random pairings.
    """

    statistic: float
    p_value: float
    null: np.ndarray = field(repr=False)


def hsic(
    K: Array | Iterable[tuple[Array, Array]],
    L: Array | None = None,
    estimator: Estimator = "biased",
    *,
    features: bool = False,
) -> float:
    """The dependence between two paired samples, as measured by two kernels.

    The squared Hilbert-Schmidt norm of the cross-covariance between the feature spaces
    of K and L, estimated (Chen et al. 2008, Eq. 5; Song et al. 2007) by::

        biased     (n - 1)^-2  tr(K P L P),                 P = I - 11'/n
        unbiased   [ tr(A B) + 1'A1 1'B1 / ((n-1)(n-2)) - 2 1'AB1 / (n-2) ] / (n(n-3))

    where A and B are K and L with their diagonals set to zero. For characteristic
    kernels, such as the Gaussian, the population value is zero if and only if the
    samples are independent. The unbiased estimate may be negative.

    With ``features=True``, explicit features Z and Y take the place of the kernels
    ``K = ZZ'`` and ``L = YY'``. Both estimates then need only sums over the rows, such
    as ``tr(K P L P) = norm(Z' P Y)^2``: rows may arrive in portions, and the memory
    needed is that of ``Z'Y`` for any n.

    Parameters
    ----------
    K, L : array of shape (n, n)
        Symmetric kernels between the rows of the first and the second sample, row i of
        one paired with row i of the other. They need not be centred. With
        ``features=True``, the features (n, D_z) and (n, D_y) of the two samples: the
        columns of a linear kernel, say, and class indicators; or, as K alone, an
        iterator of pairs of arrays (m, D_z) and (m, D_y).
    estimator : {"biased", "unbiased"}, default="biased"
        Which estimate to compute.
    features : bool, default=False
        Whether K and L are features instead of kernels.

    Returns
    -------
    value : float
        The estimate.

    See Also
    --------
    hsic_test : Is the dependence significant?

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.dependence import hsic
    >>> from kernelweave.kernels import RBF
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 1))
    >>> y = x**2 + 0.1 * rng.normal(size=(200, 1))  # dependent, not correlated
    >>> K, L = RBF(1.0)(x, x), RBF(1.0)(y, y)
    >>> round(hsic(K, L), 2), round(hsic(K, L[::-1, ::-1]), 2)
    (0.05, 0.0)

    In one pass over the rows, thirty at a time:

    >>> Z = np.hstack([x, x**2])
    >>> portions = ((Z[i : i + 30], y[i : i + 30]) for i in range(0, 200, 30))
    >>> bool(np.isclose(hsic(portions, features=True), hsic(Z @ Z.T, y @ y.T)))
    True
    """
    if features:
        return _of_features(K, L, estimator)
    if L is None or is_iterator(K):
        raise ValueError(
            f"pass two kernels K and L; got {_kinds(K, L)}. An iterator of features "
            "needs features=True"
        )
    return float(_statistics(K, L, estimator, 0, None)[0])


def hsic_test(
    K: Array,
    L: Array,
    *,
    estimator: Estimator = "unbiased",
    n_permutations: int = 999,
    rng: Any = None,
) -> DependenceTest:
    """Test independence by permuting the pairing between the rows of K and L.

    ``p = (1 + #{ null >= statistic }) / (1 + n_permutations)``, which is valid for any
    number of permutations if the pairs are exchangeable. Ties count against dependence.

    Parameters
    ----------
    K, L : array of shape (n, n)
        Kernels, as for :func:`hsic`.
    estimator : {"biased", "unbiased"}, default="unbiased"
        Which statistic to use; the two differ only in their treatment of the diagonal.
    n_permutations : int, default=999
        Number of random pairings; each costs one pass over both kernels.
    rng : None, int or numpy.random.Generator, default=None
        Source of the permutations.

    Returns
    -------
    DependenceTest
        Statistic, p-value and the null distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.dependence import hsic_test
    >>> from kernelweave.kernels import RBF
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(60, 1))
    >>> y = np.cos(3 * x) + 0.2 * rng.normal(size=(60, 1))
    >>> hsic_test(RBF(1.0)(x, x), RBF(1.0)(y, y), n_permutations=199, rng=0).p_value
    0.005
    """
    require_count(1, n_permutations=n_permutations)
    found = _statistics(K, L, estimator, int(n_permutations), rng)
    statistic, null = float(found[0]), found[1:]
    at_least = int(np.sum(null >= statistic - TIE * np.max(np.abs(found))))
    return DependenceTest(statistic, (1 + at_least) / (1 + len(null)), null)


def _check_pairs(n: int, estimator: str) -> None:
    """Refuse unknown estimators, and fewer pairs than an estimator needs."""
    if estimator not in ("biased", "unbiased"):
        raise ValueError(f"estimator must be 'biased' or 'unbiased', got {estimator!r}")
    least = 4 if estimator == "unbiased" else 2
    if n < least:
        raise ValueError(
            f"the {estimator} estimate needs at least {least} pairs, got {n}"
        )


def _statistics(
    K: Array, L: Array, estimator: str, n_permutations: int, rng: Any
) -> np.ndarray:
    """HSIC of the pairs as they are, and with the rows of L in random orders, (1 + R,).

    Both kernels are centred so that HSIC is a multiple of their inner product. For the
    biased estimate, this is P K P. For the unbiased one, it is the U-centring of
    Szekely and Rizzo (2014): ``a_ij - r_i/(n-2) - r_j/(n-2) + s/((n-1)(n-2))`` off the
    diagonal, with the row sums r and the total s of the kernel without its diagonal.
    Centring before multiplying avoids cancellation of large constants.
    """
    K, L = _finite_matrix(K, "K"), _finite_matrix(L, "L")
    n, unbiased = int(K.shape[0]), estimator == "unbiased"
    if not K.shape == L.shape == (n, n):
        raise ValueError(
            "K and L must be square kernels (n, n) over the same pairs; K has shape "
            f"{tuple(K.shape)}, L has shape {tuple(L.shape)}"
        )
    _check_pairs(n, estimator)
    centre = _u_centred if unbiased else centred
    K, L = centre(symmetric(K, "K")), centre(symmetric(L, "L"))
    generator, totals = np.random.default_rng(rng), []
    for r in range(1 + n_permutations):
        order = generator.permutation(n) if r else np.arange(n)
        total = 0.0
        for rows in row_chunks(n, n):
            block = take(take(L, order[rows]), order, axis=1)
            total += float(namespace(K).sum(K[rows, :] * block))
        totals.append(total)
    return np.array(totals) / (n * (n - 3) if unbiased else (n - 1) ** 2)


def _u_centred(kernel: Array) -> Array:
    """The U-centred kernel (n, n), zero on the diagonal."""
    xp, n = namespace(kernel), kernel.shape[0]
    # The result is invariant under any shift; this one minimises cancellation.
    kernel = kernel - xp.mean(kernel)
    sums = xp.sum(kernel, axis=1) - xp.linalg.diagonal(kernel)
    kernel = kernel - (sums[:, None] + sums[None, :]) / (n - 2)
    kernel += xp.sum(sums) / ((n - 1) * (n - 2))
    diagonal = xp.eye(n, dtype=xp.bool, device=device(kernel))
    return xp.where(diagonal, xp.zeros_like(kernel), kernel)


def _finite_matrix(x: Any, name: str, where: str = "") -> Array:
    """A matrix without NaN in double precision."""
    x = x if is_array(x) else np.asarray(x, dtype=np.float64)
    xp = namespace(x)
    x = as_float(x, xp.float64)
    if x.ndim != 2:
        raise ValueError(
            f"{name} must have two axes, got the shape {tuple(x.shape)}{where}"
        )
    if not bool(xp.all(xp.isfinite(x))):
        raise ValueError(f"{name} contains NaN or infinite values{where}")
    return x


def _kinds(K: Any, L: Any) -> str:
    return f"{type(K).__name__} and {'no L' if L is None else type(L).__name__}"


def _of_features(K: Any, L: Any, estimator: str) -> float:
    """:func:`hsic` of features K (n, D_z) and L (n, D_y), or of portions of both."""
    if is_iterator(K) != (L is None):
        raise ValueError(
            "pass two arrays of features K and L, or an iterator of pairs (K, L) "
            f"alone; got {_kinds(K, L)}"
        )
    pairs = K if L is None else [(K, L)]
    n, sums, shifts = 0, None, None
    for number, pair in enumerate(pairs):
        z, y = _checked_portion(pair, number, shifts)
        xp = namespace(z, y)
        if shifts is None:
            shifts = xp.mean(z, axis=0), xp.mean(y, axis=0)
        # The estimates are invariant under a shift of the features, and rounding errors
        # are smallest when the features are centred near zero.
        new = _row_sums(z - shifts[0][None, :], y - shifts[1][None, :])
        sums = new if sums is None else [a + b for a, b in zip(sums, new, strict=True)]
        n += int(z.shape[0])
    if sums is None:
        raise ValueError("the iterator is empty; pass at least one pair of arrays")
    _check_pairs(n, estimator)
    return _from_sums(n, sums, estimator)


def _row_sums(z: Array, y: Array) -> list[Array]:
    """The sums over rows of z (m, D_z) and y (m, D_y) that the estimates need."""
    xp = namespace(z, y)
    k, l = xp.sum(z * z, axis=1), xp.sum(y * y, axis=1)  # noqa: E741 diagonals
    over_rows = [xp.sum(a, axis=0) for a in (z, y, k, l, k * l)]
    return [z.T @ y, z.T @ l, y.T @ k, *over_rows]


def _from_sums(n: int, sums: list[Array], estimator: str) -> float:
    """The estimate from the sums of n rows."""
    cross, z_l, y_k, z, y, k, l, k_l = sums  # noqa: E741
    xp = namespace(cross)
    if estimator == "biased":
        centred = cross - z[:, None] * y[None, :] / n
        return float(xp.sum(centred * centred)) / (n - 1) ** 2
    # A = K and B = L without their diagonals
    product = xp.sum(cross * cross) - k_l
    of_sums = (z @ z - k) * (y @ y - l)
    between = z @ (cross @ y) - z @ z_l - y @ y_k + k_l
    total = product + of_sums / ((n - 1) * (n - 2)) - 2.0 * between / (n - 2)
    return float(total) / (n * (n - 3))


def _checked_portion(
    pair: Any, number: int, shifts: tuple[Array, Array] | None
) -> tuple[Array, Array]:
    """Finite features z (m, D_z) and y (m, D_y) in double precision.

    After the first portion, ``shifts`` (D_z,) and (D_y,) give the widths to expect.
    """
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(
            "an iterator of features must yield pairs (K, L); portion "
            f"{number} is {type(pair).__name__}"
        )
    where = f" in portion {number}"
    z, y = _finite_matrix(pair[0], "K", where), _finite_matrix(pair[1], "L", where)
    widths = tuple(int(a.shape[-1]) for a in shifts or (z, y))
    if (z.shape[1], y.shape[1]) != widths or z.shape[0] != y.shape[0]:
        raise ValueError(
            f"portion {number} must have as many rows in K as in L, and {widths} "
            f"columns as in the first portion; got the shapes {tuple(z.shape)} and "
            f"{tuple(y.shape)}"
        )
    return z, y

"""The Hilbert-Schmidt independence criterion of kernels or features, and a test."""

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
        Share of all pairings, including this one, with a statistic at least as large.
    null : ndarray of shape (n_permutations,)
        HSIC under random pairings.
    """

    statistic: float
    p_value: float
    null: np.ndarray = field(repr=False)


def hsic(K: Array, L: Array, estimator: Estimator = "biased") -> float:
    """The dependence between two paired samples, as measured by two kernels.

    The squared Hilbert-Schmidt norm of the cross-covariance between the feature spaces
    of K and L, estimated (Chen et al. 2008, Eq. 5; Song et al. 2007) by::

        biased     (n - 1)^-2  tr(K P L P),                 P = I - 11'/n
        unbiased   [ tr(A B) + 1'A1 1'B1 / ((n-1)(n-2)) - 2 1'AB1 / (n-2) ] / (n(n-3))

    where A and B are K and L with their diagonals set to zero. For characteristic
    kernels, such as the Gaussian, the population value is zero if and only if the
    samples are independent. The unbiased estimate may be negative.

    Parameters
    ----------
    K, L : array of shape (n, n)
        Symmetric kernels between the rows of the first and the second sample, row i of
        one paired with row i of the other. They need not be centred.
    estimator : {"biased", "unbiased"}, default="biased"
        Which estimate to compute.

    Returns
    -------
    value : float
        The estimate.

    See Also
    --------
    hsic_test : Is the dependence significant?
    hsic_of_features : The estimate from explicit features, in one pass over the rows.

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
    """
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
            "K and L must be square kernels (n, n) over the same pairs; K has the "
            f"shape {tuple(K.shape)}, L {tuple(L.shape)}"
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


def hsic_of_features(
    Z: Array | Iterable[tuple[Array, Array]],
    Y: Array | None = None,
    estimator: Estimator = "biased",
) -> float:
    """:func:`hsic` of the kernels ``K = ZZ'`` and ``L = YY'``, without n x n matrices.

    With explicit features on both sides, the two estimates of :func:`hsic` need only
    sums over the rows: for the biased one (Chen et al. 2008, Eq. 5)::

        tr(K P L P) = norm(Z' P Y)^2,      P = I - 11'/n

    and for the unbiased one also ``sum_i |z_i|^2 y_i``, ``sum_i |y_i|^2 z_i`` and the
    like. So rows may arrive in portions, and the memory needed is D_z x D_y for any n.

    Parameters
    ----------
    Z : array of shape (n, D_z), or iterator of pairs of arrays (m, D_z) and (m, D_y)
        Features of the first sample: the columns of a linear kernel, or the output of a
        map such as :class:`~kernelweave.kernels.features.maps.NystroemFeatures`.
    Y : array of shape (n, D_y), optional
        Features of the second sample, such as class indicators; None if Z is an
        iterator.
    estimator : {"biased", "unbiased"}, default="biased"
        Which estimate to compute.

    Returns
    -------
    value : float
        The estimate.

    See Also
    --------
    hsic : The estimate for any two n x n kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.dependence import hsic_of_features
    >>> from kernelweave.dependence import hsic
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(100, 3))
    >>> Y = Z[:, :1] + rng.normal(size=(100, 1))
    >>> bool(np.isclose(hsic_of_features(Z, Y), hsic(Z @ Z.T, Y @ Y.T)))
    True
    >>> portions = ((Z[i : i + 30], Y[i : i + 30]) for i in range(0, 100, 30))
    >>> bool(np.isclose(hsic_of_features(portions), hsic(Z @ Z.T, Y @ Y.T)))
    True
    """
    if is_iterator(Z) != (Y is None):
        raise ValueError(
            "pass two arrays Z and Y, or an iterator of pairs (Z, Y) alone; got "
            f"{type(Z).__name__} and {'no Y' if Y is None else type(Y).__name__}"
        )
    pairs: Any = Z if Y is None else [(Z, Y)]
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
        raise ValueError("the iterator has no portions: there is nothing to compare")
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

    From the second portion on, ``shifts`` (D_z,) and (D_y,) tell their widths.
    """
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(
            "an iterator of features must yield pairs (Z, Y); portion "
            f"{number} is {type(pair).__name__}"
        )
    where = f" in portion {number}"
    z, y = _finite_matrix(pair[0], "Z", where), _finite_matrix(pair[1], "Y", where)
    widths = tuple(int(a.shape[-1]) for a in shifts or (z, y))
    if (z.shape[1], y.shape[1]) != widths or z.shape[0] != y.shape[0]:
        raise ValueError(
            f"portion {number} must have as many rows in Z as in Y, and {widths} "
            f"columns as in the first portion; got the shapes {tuple(z.shape)} and "
            f"{tuple(y.shape)}"
        )
    return z, y

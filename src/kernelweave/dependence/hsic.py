"""The Hilbert-Schmidt independence criterion, and a permutation test with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from kernelweave._array import Array, device, from_numpy, is_array, namespace
from kernelweave._memory import row_chunks
from kernelweave.kernels.checks import symmetric

__all__ = ["DependenceTest", "hsic", "hsic_test"]

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
    pair = _Pair(K, L, estimator)
    return pair.statistic(None)


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
    if int(n_permutations) != n_permutations or n_permutations < 1:
        raise ValueError(f"n_permutations must be an int >= 1, got {n_permutations!r}")
    pair = _Pair(K, L, estimator)
    generator = np.random.default_rng(rng)
    statistic = pair.statistic(None)
    null = np.array(
        [
            pair.statistic(generator.permutation(pair.n))
            for _ in range(int(n_permutations))
        ]
    )
    largest = max(abs(statistic), float(np.max(np.abs(null))))
    at_least = int(np.sum(null >= statistic - TIE * largest))
    return DependenceTest(statistic, (1 + at_least) / (1 + len(null)), null)


def check_pairs(n: int, estimator: str) -> None:
    """Refuse unknown estimators, and fewer pairs than an estimator needs."""
    if estimator not in ("biased", "unbiased"):
        raise ValueError(f"estimator must be 'biased' or 'unbiased', got {estimator!r}")
    least = 4 if estimator == "unbiased" else 2
    if n < least:
        raise ValueError(
            f"the {estimator} estimate needs at least {least} pairs, got {n}"
        )


class _Pair:
    """Two kernels, centred so that HSIC is a multiple of their inner product.

    For the biased estimate, this is P K P. For the unbiased one, it is the U-centring
    of Szekely and Rizzo (2014): ``a_ij - r_i/(n-2) - r_j/(n-2) + s/((n-1)(n-2))`` off
    the diagonal, with the row sums r and the total s of the kernel without its
    diagonal. Centring before multiplying avoids cancellation of large constants.
    """

    def __init__(self, K: Array, L: Array, estimator: str) -> None:
        K, L = _checked(K, "K"), _checked(L, "L")
        if L.shape != K.shape:
            raise ValueError(
                "the two kernels must be over the same pairs: K has the shape "
                f"{tuple(K.shape)}, L {tuple(L.shape)}"
            )
        n, unbiased = int(K.shape[0]), estimator == "unbiased"
        check_pairs(n, estimator)
        self.n, self.scale = n, 1.0 / (n * (n - 3) if unbiased else (n - 1) ** 2)
        centre = _u_centred if unbiased else _centred
        self.K, self.L = centre(K), centre(L)

    def statistic(self, order: np.ndarray | None) -> float:
        """HSIC with the rows of L permuted by ``order`` (n,), or unpermuted if None."""
        xp = namespace(self.K)
        if order is not None:
            order = from_numpy(order, self.L, dtype=xp.int64)
        total = 0.0
        for rows in row_chunks(self.n, self.n):
            if order is None:
                block = self.L[rows, :]
            else:
                block = xp.take(xp.take(self.L, order[rows], axis=0), order, axis=1)
            total += float(xp.sum(self.K[rows, :] * block))
        return self.scale * total


def _centred(kernel: Array) -> Array:
    """``P K P``, (n, n)."""
    xp = namespace(kernel)
    means = xp.mean(kernel, axis=1)
    return kernel - means[:, None] - means[None, :] + xp.mean(means)


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


def _checked(kernel: Array, name: str) -> Array:
    """A finite, symmetric kernel in double precision."""
    if not is_array(kernel):
        kernel = np.asarray(kernel, dtype=np.float64)
    xp = namespace(kernel)
    kernel = xp.astype(kernel, xp.float64, copy=False)
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1]:
        raise ValueError(
            f"{name} must be a square kernel (n, n); got the shape "
            f"{tuple(kernel.shape)}"
        )
    if not bool(xp.all(xp.isfinite(kernel))):
        raise ValueError(f"{name} contains NaN or infinite values")
    return symmetric(kernel, name)

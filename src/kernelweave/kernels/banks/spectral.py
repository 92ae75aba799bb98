"""Rank-one kernels, and explicit features, from the eigenvectors of one kernel."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from kernelweave._array import (
    Array,
    as_floats,
    eigh,
    eps,
    from_numpy,
    namespace,
    require_memory,
    to_numpy,
)
from kernelweave._tolerances import EIGENVALUE_UNITS
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.checks import symmetric


class SpectralBank(DenseBank):
    """The kernels ``G_i = n v_i v_i'`` of orthonormal vectors, each of trace n.

    A sum ``sum_i w_i G_i`` is positive semidefinite if and only if no weight is
    negative, since the weights are the eigenvalues of the sum up to the factor n.

    Parameters
    ----------
    vectors : array of shape (n, p)
        Orthonormal columns.
    eigenvalues : array of shape (p,)
        The corresponding eigenvalues of the original kernel, all positive.
    names : sequence of str, optional
        One name per kernel.
    """

    def __init__(
        self, vectors: Array, eigenvalues: Array, names: list[str] | None = None
    ) -> None:
        n, p = vectors.shape
        xp = namespace(vectors)
        require_memory(
            p * n * n * (xp.finfo(vectors.dtype).bits // 8),
            f"a bank of {p} rank-one kernels over {n} rows",
            "ask for fewer components",
            like=vectors,
        )
        columns = xp.permute_dims(vectors, (1, 0))
        stack = columns[:, :, None] * (columns * float(n))[:, None, :]
        super().__init__(stack, names)
        self.vectors, self.eigenvalues = vectors, eigenvalues

    def cross(self, K: Array) -> Array:
        """The kernels between new rows and those of the bank, (p, m, n).

        An eigenvector extends to a new row x by ``v_i(x) = sum_j k(x, x_j) v_ij /
        lambda_i``, which reproduces ``v_i`` on the rows of the bank (Nystrom). Small
        eigenvalues make this extension sensitive to noise.

        Parameters
        ----------
        K : array of shape (m, n)
            The base kernel between new rows and those of the bank, centred in the same
            way as the base kernel itself.
        """
        n = self.vectors.shape[0]
        if K.ndim != 2 or K.shape[1] != n:
            raise ValueError(
                f"K must have one column for each of the {n} rows of the bank; got "
                f"shape {tuple(K.shape)}"
            )
        xp = namespace(self.vectors)
        extended = xp.permute_dims(K @ self.vectors / self.eigenvalues[None, :], (1, 0))
        columns = xp.permute_dims(self.vectors, (1, 0)) * float(n)
        return extended[:, :, None] * columns[:, None, :]


def spectral_bank(K: Array, n_components: int | None = None) -> SpectralBank:
    """``K_i = v_i v_i'`` for the leading eigenvectors of K, scaled to trace n.

    Lanckriet et al. (2002), Section 4: learning the weights of these kernels amounts to
    learning the spectrum of K. Requiring a positive semidefinite sum is the same as
    requiring non-negative weights. Centre K first if the kernels have to be centred:
    its eigenvectors are then orthogonal to the vector of ones.

    Parameters
    ----------
    K : array of shape (n, n)
        A symmetric positive semidefinite matrix over all known rows, labelled or not.
    n_components : int, optional
        Number of eigenvectors, largest eigenvalue first; by default all those with an
        eigenvalue above the rounding error.

    Returns
    -------
    SpectralBank
        p = ``n_components`` kernels, together with the eigenvectors and eigenvalues.
    """
    K = as_floats(K)
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(
            f"K must be a square matrix (n, n); got shape {tuple(K.shape)}"
        )
    xp, n = namespace(K), K.shape[0]
    if not bool(xp.all(xp.isfinite(K))):
        raise ValueError("K contains NaN or infinite values")
    values, vectors = eigh(xp.asarray(symmetric(K, "K"), copy=True))
    values, vectors = xp.flip(values), xp.flip(vectors, axis=1)
    spectrum = to_numpy(values).astype(np.float64)
    rounding = n * eps(K) * abs(spectrum[0])
    rank = int(np.count_nonzero(spectrum > rounding))
    if rank == 0:
        raise ValueError("K has no positive eigenvalue")
    p: Any = rank if n_components is None else n_components
    if not (isinstance(p, Integral) and 1 <= int(p) <= rank):
        raise ValueError(
            f"n_components must be an integer from 1 to {rank}, the number of "
            f"eigenvalues of K above {rounding:.1e}; got {n_components!r}"
        )
    names = [f"eigenvector {i}" for i in range(p)]
    return SpectralBank(vectors[:, :p], values[:p], names)


def feature_coefficients(gram: Array, n_components: int | None = None) -> Array:
    """``V D^(-1/2)`` (n, r) for the r largest eigenvalues D of a kernel (n, n).

    Rows of the kernel times this matrix are features whose inner products reproduce the
    kernel; the largest entry of each eigenvector is made positive. ``gram`` is
    overwritten.
    """
    xp, n = namespace(gram), gram.shape[0]
    values, vectors = eigh(gram)
    floor = EIGENVALUE_UNITS * n * eps(values) * float(values[-1])
    keep = int(xp.sum(xp.astype(values > floor, xp.int64)))
    keep = max(1, min(keep, n_components or keep))
    values, vectors = xp.flip(values)[:keep], xp.flip(vectors, axis=1)[:, :keep]
    host = to_numpy(vectors)
    largest = np.argmax(np.abs(host), axis=0)
    signs = np.sign(host[largest, np.arange(keep)])  # makes the features unique
    scale = from_numpy(signs, vectors) / xp.sqrt(values)
    return vectors * scale[None, :]

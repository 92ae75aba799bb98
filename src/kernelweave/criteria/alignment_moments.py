"""Inner products of kernels with each other and with a target kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernelweave._array import Array, as_float, eps, from_numpy, namespace, to_numpy
from kernelweave._tolerances import ROUNDING_UNITS
from kernelweave.protocols import Bank

__all__ = ["FactorTarget", "KernelTarget", "kernel_moments"]


class FactorTarget:
    """A target kernel ``H H'`` in blocks of rows, from its factor H (n, k).

    Attributes
    ----------
    norm : float
        The Frobenius norm of ``H H'``.
    """

    def __init__(self, factor: np.ndarray, centred: bool) -> None:
        size = np.linalg.norm(factor)
        self._factor = factor - np.mean(factor, axis=0) if centred else factor
        self.norm = float(np.linalg.norm(self._factor.T @ self._factor))
        if self.norm <= (10 * len(factor) * np.finfo(float).eps * size) ** 2:
            self.norm = 0.0

    def block(self, rows: slice) -> np.ndarray:
        """(r, n)."""
        return self._factor[rows] @ self._factor.T


class KernelTarget:
    """A target kernel T (n, n) in blocks of rows."""

    def __init__(self, kernel: np.ndarray, centred: bool) -> None:
        size = float(np.linalg.norm(kernel))
        if centred:
            means = np.mean(kernel, axis=1)
            kernel = kernel - means[:, None] - means[None, :] + np.mean(means)
        self._kernel = kernel
        self.norm = float(np.linalg.norm(kernel))
        if self.norm <= 10 * len(kernel) * np.finfo(float).eps * size:
            self.norm = 0.0

    def block(self, rows: slice) -> np.ndarray:
        """(r, n)."""
        return self._kernel[rows]


def kernel_moments(
    bank: Bank,
    rows: np.ndarray,
    target: FactorTarget | KernelTarget,
    centred: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Norms, correlations and cosines to the target of the kernels over some rows.

    One pass over the kernels, or two if they are to be centred. Blocks of rows are
    converted to float64, so that sums over float32 kernels lose no accuracy. Each
    kernel is first divided by its largest entry, so scales may differ by many orders
    of magnitude.

    Parameters
    ----------
    bank : Bank
        p kernels.
    rows : ndarray of int, shape (n,)
        Row numbers, sorted.
    target : FactorTarget or KernelTarget
        T over these rows.
    centred : bool
        Whether to centre the kernels over these rows.

    Returns
    -------
    norms : ndarray of shape (p,)
        ``norm(G_i)``, zero for a kernel that vanishes.
    correlations : ndarray of shape (p, p)
        ``<G_i, G_j> / (norm(G_i) norm(G_j))``, zero if either vanishes.
    cosines : ndarray of shape (p,)
        ``<G_i, T> / (norm(G_i) norm(T))``.
    """
    p, n = bank.n_kernels, len(rows)
    # A kernel is positive semidefinite: its largest entry is on the diagonal.
    sizes = np.max(np.abs(bank.diagonals()[:, rows]), axis=1)
    units = np.where(sizes > 0, sizes, 1.0)
    means = _row_means(bank, rows) / units[:, None] if centred else None
    gram, inner, before = np.zeros((p, p)), np.zeros(p), np.zeros(p)
    for part, block in _blocks(bank, rows):
        block = block / from_numpy(units, block)[:, None, None]
        if means is not None:
            before += to_numpy(namespace(block).sum(block * block, axis=(1, 2)))
            block = _centre(block, means, part)
        flat = namespace(block).reshape(block, (p, -1))
        goal = from_numpy(target.block(part).reshape(-1), flat)
        gram += to_numpy(flat @ flat.T)
        inner += to_numpy(flat @ goal)
    squares = np.diag(gram).copy()
    if centred:
        # Rounding that centring leaves of a constant kernel.
        left = (ROUNDING_UNITS * n * eps(bank.like)) ** 2
        squares[squares <= left * before] = 0.0
    norms = np.sqrt(squares)
    whole = np.where(norms > 0, norms, np.inf)
    correlations = gram / whole[:, None] / whole[None, :]
    return norms * units, correlations, inner / whole / target.norm


def _blocks(bank: Bank, rows: np.ndarray) -> Iterator[tuple[slice, Array]]:
    """The kernels between ``rows``, float64, a few rows (p, r, n) at a time."""
    xp, every = namespace(bank.like), len(rows) == bank.n_samples
    columns = from_numpy(rows, bank.like, dtype=xp.int64)
    for part, block in bank.row_blocks():
        if not every:
            first = part.start
            part = slice(*map(int, np.searchsorted(rows, (first, part.stop))))
            block = xp.take(block, columns[part] - first, axis=1)
            block = xp.take(block, columns, axis=2)
        yield part, as_float(block, xp.float64)


def _row_means(bank: Bank, rows: np.ndarray) -> np.ndarray:
    """Means (p, n) of the rows of each kernel, over ``rows``."""
    chosen = np.zeros((bank.n_samples, 1))
    chosen[rows] = 1.0 / len(rows)
    dtype = namespace(bank.like).float64
    sums = bank.apply(from_numpy(chosen, bank.like, dtype))
    return to_numpy(sums)[:, rows, 0]


def _centre(block: Array, means: np.ndarray, part: slice) -> Array:
    """Subtract row and column means (p, n) from rows ``part`` of the kernels."""
    home = from_numpy(means, block)
    grand = from_numpy(np.mean(means, axis=1), block)
    shift = home[:, part] - grand[:, None]
    return block - home[:, None, :] - shift[:, :, None]

"""The dense kernel bank: p centred Gram matrices and the products solvers need."""

from __future__ import annotations

import numpy as np

from kernelweave._array import (
    Array,
    add_scaled,
    as_float,
    device,
    from_numpy,
    inner_products,
    is_numpy,
    namespace,
)
from kernelweave._chunks import row_chunks

__all__ = ["DenseBank"]

#: Passes over the kernels go by blocks of rows of about this many entries.
BLOCK_ENTRIES = 2**25


class DenseBank:
    """Centred kernels ``G_1, ..., G_p`` of trace n, held as one array (p, n, n).

    Solvers touch kernels through the products below only, so a bank of explicit
    features or a bank on a cluster can stand in for this one.

    Parameters
    ----------
    stack : array of shape (p, n, n)
        Symmetric positive semidefinite matrices whose rows sum to zero.
    names : sequence of str, optional
        One name per kernel.

    Attributes
    ----------
    n_kernels, n_samples : int
        p and n.
    """

    def __init__(self, stack: Array, names: list[str] | None = None) -> None:
        if stack.ndim != 3 or stack.shape[1] != stack.shape[2]:
            raise ValueError(
                "a DenseBank takes an array of shape (p, n, n); "
                f"got shape {tuple(stack.shape)}"
            )
        self.stack = stack
        self.n_kernels, self.n_samples = int(stack.shape[0]), int(stack.shape[1])
        self.names = list(names or (f"kernel {i}" for i in range(self.n_kernels)))

    @property
    def like(self) -> Array:
        """An array with the namespace, device and dtype of the kernels."""
        return self.stack

    @property
    def n_rows(self) -> int:
        """The number of data rows behind the kernels."""
        return self.n_samples

    def traces(self, kernels: np.ndarray) -> np.ndarray:
        """Traces of the kernels with these indices: n, or less if rows lack a view."""
        trace = namespace(self.stack).linalg.trace
        return np.array([float(trace(self.stack[int(i), :, :])) for i in kernels])

    #: Whether a subset of the kernels takes no copy of n x n matrices.
    is_cheap_to_cut = False

    def subset(self, kernels: np.ndarray) -> DenseBank:
        """A bank of some of the kernels, copied."""
        xp = namespace(self.stack)
        parts = [self.stack[int(i), :, :] for i in kernels]
        return DenseBank(xp.stack(parts), [self.names[int(i)] for i in kernels])

    def sizes(self, kernels: np.ndarray) -> np.ndarray:
        """Frobenius norms of the kernels with these indices."""
        flat = (
            namespace(self.stack).reshape(self.stack[int(i), :, :], (-1,))
            for i in kernels
        )
        return np.array([float(x @ x) ** 0.5 for x in flat])

    def combine(
        self, weights: np.ndarray, out: Array | None = None, lower: bool = False
    ) -> Array:
        """``sum_i w_i G_i``, (n, n), in one pass over the kernels.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            w.
        out : array of shape (n, n), optional
            Where to put the result.
        lower : bool, default=False
            Whether the caller reads the lower triangle only, as a factorisation does;
            entries above it may then be anything finite or not.
        """
        xp, n = namespace(self.stack), self.n_samples
        if out is None:
            out = xp.zeros((n, n), dtype=self.stack.dtype, device=device(self.stack))
        w = np.asarray(weights, dtype=np.float64)
        for rows in row_chunks(n, self.n_kernels * n, BLOCK_ENTRIES):
            if is_numpy(self.stack):
                block = self.stack[:, rows, :]
                flat = xp.reshape(block, (self.n_kernels, -1))
                total = from_numpy(w, block) @ flat
                out[rows, :] = xp.reshape(total, block.shape[1:])
            else:  # GPU libraries count the entries of one product in 32 bits
                columns = slice(0, rows.stop if lower else n)
                part = self.stack[0, rows, columns] * float(w[0])
                for i in range(1, self.n_kernels):
                    part = add_scaled(part, self.stack[i, rows, columns], float(w[i]))
                out[rows, columns] = part
        return out

    def apply(self, b: Array) -> Array:
        """``G_i B`` for every kernel, (p, n, k), in the precision of ``b`` (n, k)."""
        xp = namespace(self.stack)
        if b.dtype == self.stack.dtype:
            if is_numpy(b):
                flat = xp.reshape(self.stack, (-1, self.n_samples))  # one tall product
                return xp.reshape(flat @ b, (self.n_kernels, *b.shape))
            return xp.stack([self.stack[i, :, :] @ b for i in range(self.n_kernels)])
        # A float64 certificate on float32 kernels: upcast a block of rows at a time.
        shape = (self.n_kernels, *b.shape)
        out = xp.empty(shape, dtype=b.dtype, device=device(b))
        for i in range(self.n_kernels):
            for rows in row_chunks(self.n_samples, self.n_samples, BLOCK_ENTRIES):
                out[i, rows, :] = as_float(self.stack[i, rows, :], b.dtype) @ b
        return out

    def quad(self, b: Array) -> Array:
        """``tr(B' G_i B)`` for every kernel, (p,)."""
        return inner_products(self.apply(b), b)

"""The dense kernel bank: p centred Gram matrices and the products solvers need."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernelweave._array import (
    Array,
    add_scaled,
    as_float,
    device,
    from_numpy,
    is_numpy,
    namespace,
)
from kernelweave._chunks import row_chunks
from kernelweave._memory import require_memory
from kernelweave.kernels.banks.base import KernelBank, take_square

__all__ = ["DenseBank"]


class DenseBank(KernelBank):
    """Centred kernels ``G_1, ..., G_p`` of trace n, held as one array (p, n, n).

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
        super().__init__(stack, stack.shape[0], stack.shape[1], names)
        self.stack = stack

    def kernel(self, i: int) -> Array:
        """``G_i``, (n, n), a view of the bank's memory."""
        return self.stack[i, :, :]

    #: Passes over the kernels take blocks of rows of about this many entries.
    block_entries = 2**25

    def row_blocks(self) -> Iterator[tuple[slice, Array]]:
        """All kernels, a few rows at a time: the slice of rows, and (p, r, n)."""
        for rows in row_chunks(self.n_samples, self.n_kernels * self.n_samples):
            yield rows, self.stack[:, rows, :]

    def subset(self, kernels: np.ndarray) -> DenseBank:
        """A bank of some of the kernels, copied."""
        parts = [self.kernel(int(i)) for i in kernels]
        stack = namespace(self.stack).stack(parts)
        return DenseBank(stack, [self.names[int(i)] for i in kernels])

    def restrict(self, rows: np.ndarray) -> DenseBank:
        """The kernels on some of the rows, copied unless all rows are taken."""
        n = len(rows)
        if n == self.n_samples:
            return self
        xp, shape = namespace(self.stack), (self.n_kernels, n, n)
        require_memory(
            self.n_kernels * n * n * xp.finfo(self.stack.dtype).bits // 8,
            f"{self.n_kernels} kernels of {n} rows",
            "use fewer rows",
            self.stack,
        )
        out = xp.empty(shape, dtype=self.stack.dtype, device=device(self.stack))
        for i in range(self.n_kernels):
            out[i, :, :] = take_square(self.kernel(i), rows)
        return DenseBank(out, self.names)

    def combine(
        self, weights: np.ndarray, out: Array | None = None, lower: bool = False
    ) -> Array:
        """``sum_i w_i G_i``, (n, n), in one pass over the kernels.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            w.
        out : array of shape (n, n), optional
            Memory for the result.
        lower : bool, default=False
            Whether the caller reads only the lower triangle, as a factorisation does;
            the entries above it are then unspecified and need not be finite.
        """
        xp, n = namespace(self.stack), self.n_samples
        if out is None:
            out = xp.zeros((n, n), dtype=self.stack.dtype, device=device(self.stack))
        w = np.asarray(weights, dtype=np.float64)
        for rows in row_chunks(n, self.n_kernels * n, self.block_entries):
            if is_numpy(self.stack):
                block = self.stack[:, rows, :]
                flat = xp.reshape(block, (self.n_kernels, -1))
                total = from_numpy(w, block) @ flat
                out[rows, :] = xp.reshape(total, block.shape[1:])
            else:  # GPU libraries index the entries of one product with 32 bits
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
            for rows in row_chunks(self.n_samples, self.n_samples, self.block_entries):
                out[i, rows, :] = as_float(self.stack[i, rows, :], b.dtype) @ b
        return out

"""Banks of kernels: products derived from one kernel at a time, or from a stack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelweave._array import (
    CACHE_ENTRIES,
    DOUBLE_EPS,
    Array,
    add,
    add_scaled,
    as_float,
    checked_stack,
    each_in_threads,
    empty,
    eps,
    from_numpy,
    has_views,
    inner_products,
    is_numpy,
    namespace,
    require_memory,
    row_chunks,
    squared_norm,
    take,
    tensor_sum,
    to_numpy,
    zeros,
)
from kernelweave._tolerances import LIKE_IDENTITY, SAME
from kernelweave.kernels.centering import (
    STANDARD,
    Centering,
    Standard,
    center_and_scale,
    center_in_place,
)
from kernelweave.protocols import Bank, FoldKernels

#: Rows that show which kernels are nothing like the identity.
SCREENED = 128
#: The product of a random vector with the difference of two diagonals is at most this
#: many times the size of the difference.
DIAGONAL_SLACK = 10.0
#: Largest share of the worst possible rounding error that sums over stored kernels
#: reach, as errors of either sign cancel; in thousands of problems it was 0.02.
REACHED = 0.1


class KernelBank(ABC):
    """Every method of the protocol ``Bank``, derived from :meth:`kernel` alone.

    A subclass may recompute kernel i on every call, and then stores none of them. A
    subclass with a faster way to compute a product overrides that product.

    Parameters
    ----------
    like : array
        An array with the namespace, device and dtype of the kernels.
    n_kernels, n_samples : int
        p and n.
    names : sequence of str, optional
        One name per kernel.
    n_rows : int, optional
        The number of data rows behind the kernels; by default n.
    """

    #: Whether a subset of the kernels can be taken without copying n x n matrices.
    is_cheap_to_cut = False
    #: What the bank keeps in memory: "kernels", "features" or, if "on the fly", rows.
    held_as = "kernels"
    #: Bounds (p,) on the errors of the kernels' eigenvalues, if these matter.
    errors: np.ndarray | None = None
    #: The view of each kernel, if it is known.
    views: list[str] | None = None
    #: How the kernels were centred and scaled; None: centred, to trace n.
    standard: Any = None

    def __init__(
        self,
        like: Array,
        n_kernels: int,
        n_samples: int,
        names: Sequence[str] | None = None,
        n_rows: int | None = None,
    ) -> None:
        self.like = like
        self.n_kernels, self.n_samples = int(n_kernels), int(n_samples)
        self.names = list(names or (f"kernel {i}" for i in range(self.n_kernels)))
        if len(self.names) != self.n_kernels:
            raise ValueError(
                f"{self.n_kernels} kernels need as many names; got {len(self.names)}"
            )
        self.n_rows = self.n_samples if n_rows is None else int(n_rows)
        self._forget()

    def _forget(self) -> None:
        """Clear the cache of what every norm and certificate asks about the kernels."""
        self._same: list[np.ndarray] | None = None
        self._likeness: dict[int, float] = {}
        self._traces: np.ndarray | None = None

    @abstractmethod
    def kernel(self, i: int) -> Array:
        """``G_i``, (n, n); the caller must not modify it."""

    def row_blocks(self) -> Iterator[tuple[slice, Array]]:
        """All kernels, a few rows at a time: the slice of rows, and (p, r, n)."""
        xp, n = namespace(self.like), self.n_samples
        for rows in row_chunks(n, self.n_kernels * n):
            parts = [self.kernel(i)[rows, :] for i in range(self.n_kernels)]
            yield rows, xp.stack(parts)

    def combine(
        self, weights: np.ndarray, out: Array | None = None, lower: bool = False
    ) -> Array:
        """``sum_i w_i G_i``, (n, n); kernels of weight zero are not accessed.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            w.
        out : array of shape (n, n), optional
            Memory that may be used for the result; always use the returned array.
        lower : bool, default=False
            Whether the result is only factored: entries that :func:`cholesky` does not
            read, those above the diagonal or, of NumPy arrays, below it, are then
            unspecified.
        """
        total = zeros((self.n_samples, self.n_samples), self.like)
        for i in np.flatnonzero(weights):
            total = add_scaled(total, self.kernel(int(i)), float(weights[i]))
        return total

    def apply(self, b: Array) -> Array:
        """``G_i B`` for every kernel, (p, n, k), in the precision of ``b`` (n, k)."""
        kernels = (self.kernel(i) for i in range(self.n_kernels))
        return namespace(b).stack([as_float(kernel, b.dtype) @ b for kernel in kernels])

    def quad(self, b: Array) -> np.ndarray:
        """``tr(B' G_i B)`` for every kernel, (p,)."""
        return inner_products(self.apply(b), b)

    def diagonals(self) -> np.ndarray:
        """The diagonal of every kernel in float64, (p, n)."""
        diagonal = namespace(self.like).linalg.diagonal
        kernels = (self.kernel(i) for i in range(self.n_kernels))
        return np.stack([to_numpy(diagonal(k)).astype(np.float64) for k in kernels])

    def sizes(self, kernels: np.ndarray) -> np.ndarray:
        """Frobenius norms of the kernels with these indices."""
        return np.array([squared_norm(self.kernel(int(i))) ** 0.5 for i in kernels])

    def restrict(self, rows: np.ndarray) -> KernelBank:
        """The same kernels, restricted to the rows with these indices."""
        return _Part(self, np.arange(self.n_kernels), np.asarray(rows))

    def rounded_traces(self) -> np.ndarray:
        """The traces (p,) that rounding errors of sums over kernels are measured by."""
        if self._traces is None:
            self._traces = REACHED * np.sum(np.abs(self.diagonals()), axis=1)
        return self._traces

    def entry_errors(self) -> np.ndarray:
        """Relative rounding errors of the entries, (p,): those of their dtype."""
        return np.full(self.n_kernels, eps(self.like))

    def same_kernels(self) -> list[np.ndarray]:
        """Groups of indices of kernels with equal products with one random vector."""
        if self._same is None:
            self._same = _groups(self) if self.n_kernels > 1 else []
        return self._same

    def identity_likeness(self, kernels: np.ndarray) -> np.ndarray:
        """Cosine between the centred identity and each of ``kernels``, indices (c,)."""
        known, asked = self._likeness, [int(i) for i in kernels]
        new = np.array([i for i in asked if i not in known], dtype=int)
        if len(new):
            known.update(zip(new.tolist(), self._screened(new).tolist(), strict=True))
        return np.array([known[i] for i in asked])

    def _screened(self, kernels: np.ndarray) -> np.ndarray:
        """:meth:`identity_likeness`, from some of the rows where these are enough."""
        n = self.n_samples
        if n <= SCREENED:
            return _cosines(self, kernels, self.n_rows)
        # Fewer rows of a kernel look more like the identity than all of them.
        found = _cosines(self.restrict(np.arange(0, n, -(-n // SCREENED))), kernels)
        alike = found > LIKE_IDENTITY
        found[alike] = _cosines(self, kernels[alike], self.n_rows)
        return found

    def subset(self, kernels: np.ndarray) -> KernelBank:
        """A bank of the kernels with these indices."""
        return _Part(self, np.asarray(kernels), np.arange(self.n_samples))

    def space_of_fold(self, n: int) -> Array | None:
        """Memory for the kernels of n rows in :meth:`fold`, if they take any."""
        p, like = self.n_kernels, self.like
        require_memory(
            p * n * n * namespace(like).finfo(like.dtype).bits // 8,
            f"{p} kernels of the {n} rows of a fold",
            "use cv=None",
            like,
        )
        return empty((p * n * n,), like)

    def fold(
        self,
        train: np.ndarray,
        test: np.ndarray,
        row_weights: np.ndarray | None,
        space: Array | None,
    ) -> FoldKernels:
        """Kernels of the rows ``train`` as if there were no others, and of ``test``."""
        return _StoredFold(self, train, test, row_weights, space)

    def _standard_of_fold(
        self, own: np.ndarray | None
    ) -> tuple[Standard, Array | None]:
        """How the kernels of a fold are scaled, and shares (m,) of its row weights."""
        standard = (self.standard or STANDARD).again
        if own is None:
            return standard, None
        return standard, from_numpy(own / float(np.sum(own)), self.like)


class _StoredFold:
    """:class:`FoldKernels` in the memory ``space``."""

    def __init__(
        self,
        whole: KernelBank,
        train: np.ndarray,
        test: np.ndarray,
        row_weights: np.ndarray | None,
        space: Array,
    ) -> None:
        n, p, like = len(train), whole.n_kernels, whole.like
        self.whole, self.train, self.test = whole, train, test
        self.roots = None if row_weights is None else np.sqrt(row_weights)[:, None]
        own = None if row_weights is None else row_weights[train]
        standard, shares = whole._standard_of_fold(own)
        stack = namespace(like).reshape(space[: p * n * n], (p, n, n))
        self.centerings: list[Centering] = []
        self.active: list[int] = []
        for i in range(p):
            slot = stack[len(self.active), :, :]
            take_square(whole.kernel(i), train, slot)
            self._unweight(slot, train, train)
            centering = center_in_place(slot, shares=shares, standard=standard)
            if own is not None:
                root = from_numpy(np.sqrt(own)[:, None], slot)
                slot *= root
                slot *= root.T
            self.centerings.append(centering)
            self.active += [i] if centering.scale > 0 else []
        names = [whole.names[i] for i in self.active]
        self.bank = DenseBank(stack[: len(self.active), :, :], names)

    def _unweight(self, gram: Array, rows: np.ndarray, columns: np.ndarray) -> None:
        """Divide by the roots of the weights that the kernels were multiplied by."""
        if self.roots is not None:
            root = from_numpy(self.roots, gram)
            gram /= take(root, rows)
            gram /= take(root, columns).T

    def cross(self, weights: np.ndarray) -> Array:
        """``sum_i w_i G_i`` between held-out rows and those of the fold, (m, n)."""
        total = None
        for weight, i in zip(weights, self.active, strict=True):
            if weight != 0:
                block = take(take(self.whole.kernel(i), self.test), self.train, axis=1)
                self._unweight(block, self.test, self.train)
                total = add(total, self.centerings[i](block) * float(weight))
        assert total is not None
        return total


def are_all(indices: np.ndarray, n: int) -> bool:
    """Whether these are the indices of all n rows or kernels, in their order."""
    return np.array_equal(indices, np.arange(n))


def _cosines(bank: Bank, kernels: np.ndarray, n_rows: int | None = None) -> np.ndarray:
    """Cosines to the centred identity of ``n_rows``, or of the rows with an entry."""
    if not len(kernels):
        return np.empty(0)
    sizes = bank.sizes(kernels)
    sizes = np.where(sizes > 0, sizes, np.inf)
    diagonals = bank.diagonals()[kernels]
    rows = np.count_nonzero(diagonals, axis=1) if n_rows is None else n_rows
    return np.sum(diagonals, axis=1) / (sizes * np.sqrt(np.maximum(rows - 1, 1)))


def _groups(bank: Bank) -> list[np.ndarray]:
    probe = np.random.default_rng(0).standard_normal((bank.n_samples, 1))
    tolerance = SAME[namespace(bank.like).finfo(bank.like.dtype).bits]
    # Kernels are the same only if their diagonals are, and no norm exceeds a trace.
    diagonals = bank.diagonals()
    traces = np.sum(np.abs(diagonals), axis=1)
    keys = np.sort((diagonals @ probe)[:, 0])
    if np.all(np.diff(keys) > DIAGONAL_SLACK * tolerance * np.max(traces)):
        return []
    sketch = to_numpy(bank.apply(from_numpy(probe, bank.like)))[:, :, 0]
    sketch = sketch.astype(np.float64)
    sketch /= np.max(np.abs(sketch)) or 1.0  # squares stay in range
    size = np.linalg.norm(sketch, axis=1)
    order = np.argsort(size, kind="stable")  # equal kernels become neighbours
    gaps = np.linalg.norm(np.diff(sketch[order], axis=0), axis=1)
    same = (gaps <= tolerance * size[order[1:]]) & (size[order[:-1]] > 0)
    groups = np.split(order, np.flatnonzero(~same) + 1)
    return [np.sort(group) for group in groups if len(group) > 1]


class _Part(KernelBank):
    """Some kernels of a bank on some of its rows, recomputed on every use."""

    def __init__(self, whole: Bank, kernels: np.ndarray, rows: np.ndarray) -> None:
        names = [whole.names[int(i)] for i in kernels]
        every = are_all(rows, whole.n_samples)
        n_rows = whole.n_rows if every else None
        super().__init__(whole.like, len(kernels), len(rows), names, n_rows)
        self.standard = whole.standard
        self._whole, self._kernels = whole, kernels
        self._rows = None if every else rows

    def kernel(self, i: int) -> Array:
        """``G_i`` on these rows, (n, n)."""
        gram = self._whole.kernel(int(self._kernels[i]))
        return gram if self._rows is None else take_square(gram, self._rows)


def take_square(gram: Array, rows: np.ndarray, out: Array | None = None) -> Array:
    """The submatrix of a matrix (n, n) with these rows and columns, (r, r).

    It is written to ``out``, if given.
    """
    if not is_numpy(gram):
        found = take(take(gram, rows), rows, axis=1)
        if out is None:
            return found
        out[...] = found
        return out
    out = np.empty((len(rows), len(rows)), gram.dtype) if out is None else out

    def write(part: slice) -> None:  # whole rows stay in cache until they are cut
        np.take(gram[rows[part]], rows, axis=1, out=out[part], mode="wrap")

    parts = row_chunks(len(rows), gram.shape[1], CACHE_ENTRIES)
    each_in_threads(write, parts, out.size)
    return out


def combine_in_double(
    bank: Bank, weights: np.ndarray, out: Array | None = None
) -> Array:
    """``sum_i w_i G_i`` in float64, whatever the dtype of the kernels, (n, n)."""
    xp = namespace(bank.like)
    if bank.like.dtype == xp.float64:
        return bank.combine(weights, out=out)
    total = zeros((bank.n_samples, bank.n_samples), bank.like, xp.float64)
    for i, weight in enumerate(weights):
        total = add_scaled(total, as_float(bank.kernel(i), xp.float64), float(weight))
    return total


def host_stack(bank: Bank) -> np.ndarray:
    """All kernels in host memory and float64, (p, n, n)."""
    kernels = (to_numpy(bank.kernel(i)) for i in range(bank.n_kernels))
    return np.stack([kernel.astype(np.float64) for kernel in kernels])


class DenseBank(KernelBank):
    """Centred kernels ``G_1, ..., G_p`` of trace n, held as one array (p, n, n).

    Parameters
    ----------
    stack : array of shape (p, n, n)
        Symmetric positive semidefinite matrices whose rows sum to zero;
        :meth:`from_kernels` takes any others. Floats are not copied, which would double
        the memory: do not change the array while the bank is in use.
    names : sequence of str, optional
        One name per kernel.

    Attributes
    ----------
    n_kernels, n_samples : int
        p and n.
    """

    def __init__(self, stack: Array, names: list[str] | None = None) -> None:
        stack = checked_stack(stack)
        super().__init__(stack, stack.shape[0], stack.shape[1], names)
        self.stack = stack

    @classmethod
    def from_kernels(cls, kernels: Array, names: list[str] | None = None) -> DenseBank:
        """A bank of any kernels: copies of them, centred and scaled to trace n.

        Parameters
        ----------
        kernels : array of shape (p, n, n)
            Symmetric positive semidefinite matrices.
        names : sequence of str, optional
            One name per kernel.
        """
        return cls(center_and_scale(kernels), names)

    def kernel(self, i: int) -> Array:
        """``G_i``, (n, n), a view of the bank's memory."""
        return self.stack[i, :, :]

    def entry_errors(self) -> np.ndarray:
        """Stored kernels are taken as they are, and multiplied in float64."""
        return np.full(self.n_kernels, DOUBLE_EPS)

    #: Passes over the kernels take blocks of rows of about this many entries.
    block_entries = 2**25
    #: With this many samples or more, a factorisation gets only a triangle, in blocks
    #: of this many rows: a third less to read, but more calls.
    many_samples, triangle_rows = 1000, 32
    #: Most and fewest rows of one product of :meth:`apply`, the multiplications up to
    #: which BLAS takes matrices as they are, and the samples below which one will do.
    most_rows, fewest_rows, small_product, few_samples = 64, 8, 1_000_000, 256

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
        if are_all(rows, self.n_samples):
            return self
        n = len(rows)
        bits = namespace(self.stack).finfo(self.stack.dtype).bits
        require_memory(
            self.n_kernels * n * n * bits // 8,
            f"{self.n_kernels} kernels of {n} rows",
            "use fewer rows",
            self.stack,
        )
        out = empty((self.n_kernels, n, n), self.stack)
        for i in range(self.n_kernels):
            take_square(self.kernel(i), rows, out[i, :, :])
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
            Whether the result is only factored: entries that :func:`cholesky` does not
            read, those above the diagonal or, of NumPy arrays, below it, are then
            unspecified.
        """
        n, w = self.n_samples, np.asarray(weights, dtype=np.float64)
        out = zeros((n, n), self.stack) if out is None else out
        if is_numpy(self.stack):
            self._combine_rows(w, out, lower and n >= self.many_samples)
            return out
        for rows in row_chunks(n, self.n_kernels * n, self.block_entries):
            # GPU libraries index the entries of one product with 32 bits
            columns = slice(0, rows.stop if lower else n)
            part = out[rows, columns]
            part[...] = self.stack[0, rows, columns]
            part *= float(w[0])
            for i in range(1, self.n_kernels):
                part = add_scaled(part, self.stack[i, rows, columns], float(w[i]))
            if not has_views(out):
                out[rows, columns] = part
        return out

    def _combine_rows(self, w: np.ndarray, out: np.ndarray, triangle: bool) -> None:
        """Fill the rows of ``out`` (n, n), or only what LAPACK reads of them.

        LAPACK takes NumPy's rows for columns: its lower triangle is the upper one here.
        """
        n, w = self.n_samples, from_numpy(w, self.stack)

        def write(rows: slice) -> None:
            if triangle:
                stack = self.stack[:, rows, rows.start :].transpose(1, 0, 2)
                np.matmul(w, stack, out=out[rows, rows.start :])
            else:
                out[rows, :] = tensor_sum(w, self.stack[:, rows, :])

        size = self.triangle_rows * n if triangle else self.block_entries // 8
        parts = row_chunks(n, n if triangle else self.n_kernels * n, size)
        each_in_threads(write, parts, self.stack.size)

    def apply(self, b: Array) -> Array:
        """``G_i B`` for every kernel, (p, n, k), in the precision of ``b`` (n, k)."""
        if not is_numpy(b) or b.dtype != self.stack.dtype:
            return super().apply(b)
        flat = self.stack.reshape(-1, self.n_samples)
        room = self.small_product // max(b.size, 1)
        if self.n_samples < self.few_samples or (room < self.fewest_rows):
            return (flat @ b).reshape(self.n_kernels, *b.shape)  # one tall product
        # A tall product is copied into BLAS's own layout, which costs more than the
        # product with few columns; blocks of few rows are multiplied as they are.
        out, b = np.empty((len(flat), b.shape[1]), b.dtype), np.ascontiguousarray(b)
        count = min(self.most_rows, 2 ** (room.bit_length() - 1))

        def write(part: slice) -> None:
            for start in range(part.start, part.stop, count):
                rows = slice(start, min(start + count, part.stop))
                np.matmul(flat[rows], b, out=out[rows])

        each_in_threads(write, row_chunks(len(flat), self.n_samples), flat.size)
        return out.reshape(self.n_kernels, *b.shape)

"""The order of rows by their contents, which is the same however they are passed.

Folds that are drawn by row number would differ between two copies of a table whose rows
are in different orders, and with them every score and probability. Rows are therefore
put in the order of their values first: the first column decides, then the second, as in
a dictionary.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import issparse

from kernelweave._array import Array, to_numpy
from kernelweave.views.missing import ObservedViews
from kernelweave.views.raw_columns import MEASURED, Column, Columns, words_of

#: Columns of the first view that usually tell all rows apart.
FEW_COLUMNS = 8
#: Digits of a sum over a row of a kernel: the order of the summands changes the others.
ROW_SUM_DIGITS = 9
#: The bit of the sign of a float64.
SIGN = np.uint64(1 << 63)


def ranks_of_rows(
    data: ObservedViews, targets: np.ndarray, weights: np.ndarray | None
) -> np.ndarray:
    """Ranks (n,) of rows by what they hold, from 0; equal rows have equal ranks.

    Parameters
    ----------
    data : ObservedViews
        One block per view, or a stack of precomputed kernels.
    targets : ndarray of shape (n,) or (n, t)
        They decide between rows of equal values.
    weights : ndarray of shape (n,) or None
        They decide next.
    """
    listed = isinstance(data.blocks, list)
    found = _ranks_of_values(data.blocks) if listed else _ranks_of_kernels(data.blocks)
    if np.all(np.bincount(found) == 1):
        return found
    axis = 0 if targets.ndim > 1 else None  # labels may be objects
    codes = np.unique(targets, axis=axis, return_inverse=True)[1].reshape(-1)
    return _ranks([found, codes] + ([] if weights is None else [weights]))


def _ranks(keys: list[np.ndarray]) -> np.ndarray:
    """Ranks (n,) by the first of several keys, (n,) or (n, q), then the second, ..."""
    rows = np.column_stack(keys)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


def _ranks_of_values(blocks: list[Any]) -> np.ndarray:
    """Ranks (n,) by the columns of each block."""
    keys = _keys(blocks[0], FEW_COLUMNS)
    if len(set(keys)) < len(keys):  # by all columns: the order of the others stays
        whole = [_keys(block, block.shape[1]) for block in blocks]
        keys = [b"".join(parts) for parts in zip(*whole, strict=True)]
    place = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys])


def _ranks_of_kernels(stack: Array) -> np.ndarray:
    """Ranks (n,) by what rows of kernels (n, n, p) hold, in any order of the columns.

    Those are the sums of the entries and of their squares, and the diagonal.
    """
    keys: list[np.ndarray] = []
    for i in range(stack.shape[2]):
        kernel = to_numpy(stack[:, :, i]).astype(np.float64)
        largest = max(float(np.max(kernel)), -float(np.min(kernel)))
        kernel /= largest or 1.0  # squares must not overflow
        squares = np.einsum("ij,ij->i", kernel, kernel)
        sums = np.sum(kernel, axis=1), squares, np.diagonal(kernel) * len(kernel)
        keys.append(np.round(np.column_stack(sums) / len(kernel), ROW_SUM_DIGITS) + 0.0)
        found = _ranks(keys)
        if np.max(found) + 1 == len(found):
            break
    return found


def _keys(block: Any, width: int) -> list[bytes]:
    """For each row, bytes that sort as the values of its first columns do.

    Rows are the same and in the same order as arrays, sparse arrays or tables.
    """
    width = min(width, block.shape[1])
    if issparse(block):
        return _sparse_keys(block.tocsr()[:, :width])
    if not isinstance(block, Columns):
        return [row.tobytes() for row in _sortable(to_numpy(block[:, :width]))]
    columns = [block.column(j) for j in range(width)]
    if all(column.kind in MEASURED for column in columns):
        values = np.column_stack([column.values for column in columns])
        return [row.tobytes() for row in _sortable(values)]
    parts = map(_column_keys, columns)
    return [b"".join(row) for row in zip(*parts, strict=True)]


def _sortable(values: np.ndarray) -> np.ndarray:
    """Integers that sort as the floats do, bytewise too; NaN come last."""
    values = values.astype(np.float64) + 0.0  # -0.0 equals 0.0
    bits = np.where(np.isnan(values), np.nan, values).view(np.uint64)
    return np.where(bits >= SIGN, ~bits, bits | SIGN).astype(">u8")


def _sparse_keys(block: Any) -> list[bytes]:
    """Of rows that differ first in a column, one may have no entry there, so zero.

    It is the larger one if the entry of the other is negative: such entries sort before
    the end of a row, positive ones after it, and earlier columns are further from it.
    """
    rows = block.copy()
    rows.sum_duplicates()
    rows.eliminate_zeros()
    negative = rows.data < 0
    dtype = [("side", "u1"), ("column", ">u8"), ("value", ">u8")]
    entries = np.empty(rows.nnz, dtype=dtype)
    entries["side"] = np.where(negative, 0, 2)
    entries["column"] = np.where(negative, rows.indices, rows.shape[1] - rows.indices)
    entries["value"] = _sortable(rows.data)
    return [entries[a:b].tobytes() + b"\1" for a, b in pairwise(rows.indptr)]


def _column_keys(column: Column) -> list[bytes]:
    """Numbers or words of a column of a table; gaps come last."""
    if column.kind in MEASURED:
        return [row.tobytes() for row in _sortable(column.values[:, None])]
    words = words_of(column.values, column.gaps)
    encoded = [None if w is None else w.encode("utf-8", "surrogatepass") for w in words]
    return [b"\xff" if word is None else word + b"\0" for word in encoded]

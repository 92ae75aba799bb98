"""Digests of rows, by which a model tells its training rows from others.

It keeps no row as it was given, only what its kernels see of it. Whoever has a row can
find out whether it was among them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from kernelweave._array import CACHE_ENTRIES, row_chunks, to_numpy
from kernelweave.views.raw_columns import Columns, words_of

#: Odd numbers that spread the bits of the cells (Steele, Lea and Flood 2014).
MIX_STEP, MIX_FIRST, MIX_SECOND = (
    np.uint64(value)
    for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def digests_of(block: Any) -> np.ndarray:
    """Numbers that are equal for rows with equal cells, and differ for all others.

    Parameters
    ----------
    block : array, sparse array or Columns of shape (n, d)
        Rows of a view.

    Returns
    -------
    digests : ndarray of uint64 of shape (n, 2)
        Of the rows, and of the rows rounded to single precision: those of a table may
        come back as either.
    """
    if isinstance(block, Columns):
        return np.repeat(_of_cells(block)[:, None], 2, axis=1)
    rows = csr_array(block) if issparse(block) else block
    digests = np.zeros((rows.shape[0], 2), dtype=np.uint64)
    for part in row_chunks(rows.shape[0], rows.shape[1], CACHE_ENTRIES):
        piece = rows[part, :] if issparse(rows) else to_numpy(rows[part, :])
        for column, dtype in enumerate((np.float64, np.float32)):
            digests[part, column] = _of_numbers(piece, dtype)
    return digests


def fits_single(block: Any) -> bool:
    """Whether single precision holds all numbers of the rows."""
    if isinstance(block, Columns):
        return False
    rows = block.data if issparse(block) else to_numpy(block)
    with np.errstate(over="ignore"):
        return np.array_equal(rows, rows.astype(np.float32), equal_nan=True)


def _of_numbers(rows: Any, dtype: Any) -> np.ndarray:
    """Sums (n,) over the cells that are not zero, whether zeros are stored or not."""
    if not issparse(rows):
        return np.sum(_of_entries(rows, np.arange(rows.shape[1]), dtype), axis=1)
    entries = _of_entries(rows.data, rows.indices, dtype)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries)])
    return sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]  # both wrap around


def _of_entries(values: np.ndarray, columns: np.ndarray, dtype: Any) -> np.ndarray:
    """A number for each value in its column, 0 for zeros."""
    with np.errstate(over="ignore"):
        values = values.astype(dtype).astype(np.float64)
    places = _mixed(columns.astype(np.uint64) + np.uint64(1))
    mixed = _mixed(values.view(np.uint64) + places)
    return np.where(values == 0, np.uint64(0), mixed)


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Each number, with every bit a function of all of its bits (splitmix64)."""
    bits = bits * MIX_STEP
    bits = (bits ^ (bits >> np.uint64(30))) * MIX_FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * MIX_SECOND
    return bits ^ (bits >> np.uint64(31))


def _of_cells(block: Columns) -> np.ndarray:
    """Digests (n,) of the words in the columns of a table."""
    columns = [block.column(j) for j in range(block.shape[1])]
    words = [words_of(c.values.astype(object), c.gaps) for c in columns]
    hashes = (
        hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=8)
        for row in zip(*words, strict=True)
    )
    numbers = [int.from_bytes(one.digest(), "little") for one in hashes]
    return np.array(numbers, dtype=np.uint64)

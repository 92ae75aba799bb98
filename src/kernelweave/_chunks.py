"""Walk over a large matrix a few rows at a time, so that temporaries stay small."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["CACHE_ENTRIES", "row_chunks"]

#: A block of a few megabytes: large enough for BLAS, small beside a kernel matrix.
CHUNK_ENTRIES = 2**20
#: A block that stays in a processor's cache while several things are done to it.
CACHE_ENTRIES = 2**16


def row_chunks(
    n_rows: int, row_size: int, entries: int | None = None
) -> Iterator[slice]:
    """Slices of ``range(n_rows)`` with about ``entries`` entries each.

    Parameters
    ----------
    n_rows : int
        Number of rows to walk over.
    row_size : int
        Number of entries in one row.
    entries : int, optional
        Number of entries to aim at; by default ``CHUNK_ENTRIES``.

    Yields
    ------
    rows : slice
        Consecutive row ranges that cover all rows once.
    """
    step = max(1, (entries or CHUNK_ENTRIES) // max(1, row_size))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))

"""Process a large matrix a few rows at a time, so that temporaries stay small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["CACHE_ENTRIES", "numbered", "row_chunks"]

#: A block of a few megabytes: large enough for BLAS, small next to a kernel matrix.
CHUNK_ENTRIES = 2**20
#: A block that stays in cache while several operations are applied to it.
CACHE_ENTRIES = 2**16


def row_chunks(
    n_rows: int, row_size: int, entries: int | None = None
) -> Iterator[slice]:
    """Slices of ``range(n_rows)`` with about ``entries`` entries each.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    row_size : int
        Number of entries in one row.
    entries : int, optional
        Target number of entries per slice; ``CHUNK_ENTRIES`` by default.

    Yields
    ------
    rows : slice
        Consecutive ranges that together cover every row once.
    """
    step = max(1, (entries or CHUNK_ENTRIES) // max(1, row_size))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


class numbered:
    """Prefix error messages with the first row of the portion, unless it is row 0."""

    def __init__(self, start: int) -> None:
        self.start = start

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.start and isinstance(error, TypeError | ValueError):
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"In the portion that starts at row {self.start:,} (row numbers below "
                f"count from there): {error}"
            ) from error

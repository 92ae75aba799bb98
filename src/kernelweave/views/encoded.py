"""Rows of a table after the transformers of its kernels: numbers, and no cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.views.streams import concatenate_rows, select_rows


class EncodedRows:
    """Rows of a view, in the form in which each of its kernels takes them.

    What waits for further batches of rows is kept like this, so that a model holds none
    of the cells of the table.

    Parameters
    ----------
    parts : list of ndarrays or sparse arrays of shape (n, e)
        The rows after each distinct chain of transformers.

    Attributes
    ----------
    shape : tuple
        n, and the number of columns of all parts together.
    dtype : dtype
        That of the numbers.
    """

    ndim = 2

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.parts[0].shape[0], sum(part.shape[1] for part in self.parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the numbers."""
        return np.dtype(self.parts[0].dtype)

    def __getitem__(self, index: Any) -> EncodedRows:
        """The chosen rows: ``block[rows]`` or ``block[rows, ...]``."""
        rows = index[0] if isinstance(index, tuple) else index
        return EncodedRows([select_rows(part, rows) for part in self.parts])

    def copy(self) -> EncodedRows:
        """In memory of its own."""
        return EncodedRows([part.copy() for part in self.parts])

    @classmethod
    def concatenate(cls, blocks: list[EncodedRows]) -> EncodedRows:
        """The rows of all blocks."""
        parts = zip(*(block.parts for block in blocks), strict=True)
        return cls([concatenate_rows(list(pieces)) for pieces in parts])

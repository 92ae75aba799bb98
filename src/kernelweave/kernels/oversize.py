"""Name the entry that makes a kernel overflow, or dwarfs the rest of its column."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import Array, namespace, to_numpy
from kernelweave._units import largest_of
from kernelweave.kernels.transformed import Standardizer, apply_step
from kernelweave.views.spec import View

__all__ = ["check_outliers", "name_largest"]

#: How many times the typical size of its column an entry may be, per precision in bits.
DWARFS = {32: 2.0**42, 64: 2.0**341}


def check_outliers(view: View, block: Array, numbers: np.ndarray | None = None) -> None:
    """Refuse a training column in which one entry is so large that all others are lost.

    No change of unit helps: next to the square of 1e300, the squares of all other
    entries vanish. Blocks of ordinary size are accepted without a look at each column.

    Parameters
    ----------
    view : View
        The view of these columns.
    block : array of shape (n, d)
        The training rows.
    numbers : ndarray of shape (n,), optional
        Indices of these rows in X; 0, 1, ... by default.
    """
    limit = DWARFS[namespace(block).finfo(block.dtype).bits]
    if not largest_of(block) > limit:  # NaN passes, too: it is checked elsewhere
        return
    sizes = np.abs(to_numpy(block).astype(np.float64))
    for j, column in enumerate(sizes.T):
        i = int(column.argmax())
        if column[i] > limit and column[i] / limit > np.median(column[column > 0]):
            row = i if numbers is None else int(numbers[i])
            raise ValueError(
                f"View {view.name!r}: row {row}, column "
                f"{_column(view, j, len(sizes.T))} holds {float(block[i, j]):.3g}, "
                f"more than {limit:.0e} times the typical value of this column: next "
                "to its square, those of the other rows vanish. Correct the entry, "
                "drop the row, or take logarithms."
            )


def name_largest(
    view: View,
    label: str,
    steps: tuple[Any, ...],
    block: Array,
    numbers: np.ndarray | None = None,
) -> str:
    """A message that names the largest entry seen by a kernel with non-finite values.

    Parameters
    ----------
    view : View
        The view of these columns.
    label : str
        The name of the kernel.
    steps : tuple of transformers
        The transformers that are applied before the kernel.
    block : array of shape (m, d)
        The rows; NaN where a row lacks the view.
    numbers : ndarray of shape (m,), optional
        Indices of these rows in X; 0, 1, ... by default.
    """
    values = to_numpy(block)
    seen = block
    with np.errstate(over="ignore", invalid="ignore"):
        for step in steps:
            if not isinstance(step, Standardizer):
                break  # from here on, columns are no longer those of the view
            seen = apply_step(step, seen)
    # A row that lacks the view is NaN in the input; an overflow only after the steps.
    sizes = np.where(np.isnan(values), -1.0, np.abs(to_numpy(seen)))
    sizes = np.where(np.isnan(sizes), np.inf, sizes)
    i, j = (int(index) for index in np.unravel_index(sizes.argmax(), sizes.shape))
    row = i if numbers is None else int(numbers[i])
    return (
        f"View {view.name!r}: row {row}, column {_column(view, j, values.shape[1])} "
        f"holds {values[i, j]:.3g}, so that values of the kernel {label} are "
        f"beyond the range of {values.dtype}. Correct the entry or drop the row; if "
        "the number is right, rescale the column, or standardise it with "
        "Pipe(Standardizer(), ...)."
    )


def _column(view: View, j: int, width: int) -> str:
    """Name of column j of a view, or its position."""
    columns = view.columns
    if isinstance(columns, str):
        return repr(columns)
    listed = isinstance(columns, list | tuple) and len(columns) == width
    if listed and all(type(c) in (str, int) for c in columns):
        return repr(columns[j])
    if isinstance(columns, slice) and all(
        c is None or (type(c) is int and c >= 0) for c in (columns.start, columns.step)
    ):
        return repr((columns.start or 0) + j * (columns.step or 1))
    return f"{j} of the view"

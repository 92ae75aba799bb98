"""Name the cell that is too much for a kernel, or for the rest of its column."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import Array, namespace, to_numpy
from kernelweave._units import largest_of
from kernelweave.kernels.transformed import Standardizer, apply_step
from kernelweave.views.spec import View

__all__ = ["check_outliers", "name_largest"]

#: How many times as large as is usual an entry may be, by the precision in bits.
DWARFS = {32: 2.0**42, 64: 2.0**341}


def check_outliers(view: View, block: Array, numbers: np.ndarray | None = None) -> None:
    """Refuse a training column that one entry dwarfs so that its others are lost.

    No unit helps there: beside the square of 1e300 those of all other rows are zero.
    Columns of ordinary size are not looked at one by one.

    Parameters
    ----------
    view : View
        Whose columns they are.
    block : array of shape (n, d)
        The training rows.
    numbers : ndarray of shape (n,), optional
        The numbers of these rows, by default from 0 on.
    """
    limit = DWARFS[namespace(block).finfo(block.dtype).bits]
    if not largest_of(block) > limit:  # nor NaN, which is for others to judge
        return
    sizes = np.abs(to_numpy(block).astype(np.float64))
    for j, column in enumerate(sizes.T):
        i = int(column.argmax())
        if column[i] > limit and column[i] / limit > np.median(column[column > 0]):
            row = i if numbers is None else int(numbers[i])
            raise ValueError(
                f"View {view.name!r}: row {row}, column "
                f"{_column(view, j, len(sizes.T))} holds {float(block[i, j]):.3g}, "
                f"more than {limit:.0e} times what is usual in this column: beside its "
                "square those of the other rows are zero. Correct the entry, drop the "
                "row, or take logarithms."
            )


def name_largest(
    view: View,
    label: str,
    steps: tuple[Any, ...],
    block: Array,
    numbers: np.ndarray | None = None,
) -> str:
    """A message about the entry that a kernel whose values are not finite sees largest.

    Parameters
    ----------
    view : View
        Whose columns they are.
    label : str
        The name of the kernel.
    steps : tuple of transformers
        What rows pass before the kernel sees them.
    block : array of shape (m, d)
        The rows; NaN where one lacks the view.
    numbers : ndarray of shape (m,), optional
        The numbers of these rows, by default from 0 on.
    """
    values = to_numpy(block)
    seen = block
    with np.errstate(over="ignore", invalid="ignore"):
        for step in steps:
            if not isinstance(step, Standardizer):
                break  # its columns are no longer those of the view
            seen = apply_step(step, seen)
    # A row that lacks the view is NaN throughout; one whose square overflows is not.
    sizes = np.where(np.isnan(values), -1.0, np.abs(to_numpy(seen)))
    sizes = np.where(np.isnan(sizes), np.inf, sizes)
    i, j = (int(index) for index in np.unravel_index(sizes.argmax(), sizes.shape))
    row = i if numbers is None else int(numbers[i])
    return (
        f"View {view.name!r}: row {row}, column {_column(view, j, values.shape[1])} "
        f"holds {values[i, j]:.3g}, so that values of the kernel {label} are "
        f"beyond the range of {values.dtype}. Correct the entry or drop the row; if "
        "the number is right, divide the column, or standardise it: "
        "Pipe(Standardizer(), ...)."
    )


def _column(view: View, j: int, width: int) -> str:
    """The name of column j of a view, or its number."""
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

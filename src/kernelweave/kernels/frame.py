"""A convenient origin and unit for columns whose kernel does not depend on them.

Centring and scaling to trace n make a linear kernel independent of both, but only after
the products have been formed: by then a column of timestamps around 1.7e9 seconds has
lost half of its digits, and a column around 1e160 has overflowed. So the origin is
subtracted from the columns, and the unit divided out, first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import (
    Array,
    column_means,
    eps,
    largest_of,
    namespace,
    to_numpy,
    units_of,
)
from kernelweave._tolerances import ROUNDING_UNITS
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.functions import Pipe, Standardizer, apply_step
from kernelweave.views.columns import View

__all__ = ["Frame", "Framed", "check_outliers", "name_largest"]


class Frame(Standardizer):
    """``(x - origin) / unit``, where unit is a power of two, 1 for ordinary numbers.

    Parameters
    ----------
    affine : bool, default=True
        Whether to move the origin to the column means; otherwise it stays at zero.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (d,)
        The origin, and the unit repeated for each column.
    unit_ : float
        The unit, common to all columns.
    noise_ : float
        Bound on the total variance of the columns if rounding of their entries explains
        all of it; 0 if any column varies more than that.
    """

    def __init__(self, affine: bool = True) -> None:
        self.affine = affine

    def fit(self, X: Array, y: Any = None, bits: int | None = None) -> Frame:
        """Learn origin and unit from the rows of X (n, d).

        ``bits`` is the precision of the rows to be transformed; that of X by default.
        """
        xp = namespace(X)
        own = xp.finfo(X.dtype).bits
        bits = own if bits is None else bits
        self.mean_ = column_means(X) if self.affine else xp.zeros_like(X[0, :])
        sizes = to_numpy(xp.max(xp.abs(X), axis=0)).astype(np.float64)
        spread = to_numpy(xp.max(xp.abs(X - self.mean_), axis=0)).astype(np.float64)
        self.unit_ = float(units_of(spread.max(), bits))
        self.scale_ = xp.ones_like(self.mean_) * self.unit_
        precision = eps(X) if bits == own else float(np.finfo(np.float32).eps)
        rounding = ROUNDING_UNITS * precision * sizes
        varies = not self.affine or bool(np.any(spread > rounding))
        self.noise_ = 0.0 if varies else float(np.sum((rounding / self.unit_) ** 2))
        return self

    def transform(self, X: Array) -> Array:
        """The rows of X (m, d), with the new origin and unit."""
        X = X - self.mean_ if self.affine else X
        return X if self.unit_ == 1.0 else X / self.scale_


class Framed(Pipe):
    """A resolved kernel on columns with an origin and unit chosen by a :class:`Frame`.

    Centred and scaled to trace n, it equals the kernel on the original columns. Called
    directly, it follows the plain definition: no origin is subtracted, and the unit is
    1 unless squares of the entries would overflow or underflow.
    """

    @property
    def noise(self) -> float:  # type: ignore[override]
        """Trace per row of the centred linear kernel that is rounding error."""
        return float(self.transformer.noise_)

    @property
    def label(self) -> str:
        """Name of the kernel, with the unit if that is not 1."""
        unit = self.transformer.unit_
        if unit == 1.0:
            return self.kernel.label
        return f"{self.kernel.label} in units of 2^{int(np.log2(unit))}"

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """Itself: all parameters are fixed."""
        return self

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of X (n, d) and Z (m, d), with the origin at zero."""
        unit = self.transformer.unit_
        if unit != 1.0:
            X, Z = X / unit, None if Z is None else Z / unit
        return self.kernel.gram(X, Z)


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

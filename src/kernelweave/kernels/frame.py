"""Where a kernel that cannot tell puts the origin and the unit of its columns.

Centring and scaling to trace n make a linear kernel forget both, but only after the
products were formed: at 1.7e9 a column of seconds has lost half of its digits by then,
and at 1e160 everything. So both are taken off the columns first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import Array, eps, namespace, to_numpy
from kernelweave._tolerances import ROUNDING_UNITS
from kernelweave._units import column_means, units_of
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.transformed import Pipe, Standardizer

__all__ = ["Frame", "Framed"]


class Frame(Standardizer):
    """``(x - origin) / unit``, the unit a power of two and 1 for ordinary numbers.

    Parameters
    ----------
    affine : bool, default=True
        Whether the origin moves to the mean of the columns; else it stays at zero.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (d,)
        The origin, and the unit for each column.
    unit_ : float
        The unit, the same for all columns.
    noise_ : float
        The variance of all columns together if it is nothing but the rounding of their
        entries, 0 if any column has more.
    """

    def __init__(self, affine: bool = True) -> None:
        self.affine = affine

    def fit(self, X: Array, y: Any = None, bits: int | None = None) -> Frame:
        """Learn origin and unit from the rows of X (n, d).

        ``bits`` is the precision of the rows to come, by default that of X.
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
        """The rows of X (m, d) as the kernel sees them."""
        X = X - self.mean_ if self.affine else X
        return X if self.unit_ == 1.0 else X / self.scale_


class Framed(Pipe):
    """A resolved kernel on columns with an origin and a unit of their own.

    The centred kernel of trace n is that on the columns as they are. Called directly,
    it gives the plain definition: nothing is subtracted, and the unit is 1 unless the
    columns are of a size whose squares are no numbers.
    """

    @property
    def noise(self) -> float:  # type: ignore[override]
        """The trace for each row of a centred linear kernel that is rounding."""
        return float(self.transformer.noise_)

    @property
    def label(self) -> str:
        """The name of the kernel, and the unit if it is not 1."""
        unit = self.transformer.unit_
        if unit == 1.0:
            return self.kernel.label
        return f"{self.kernel.label} in units of 2^{int(np.log2(unit))}"

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """Itself: all parameters are fixed."""
        return self

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of the rows of X (n, d) and Z (m, d), origin at zero."""
        unit = self.transformer.unit_
        if unit != 1.0:
            X, Z = X / unit, None if Z is None else Z / unit
        return self.kernel.gram(X, Z)

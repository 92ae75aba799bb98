"""A convenient origin and unit for columns whose kernel does not depend on them.

Centring and scaling to trace n make a linear kernel independent of both, but only after
the products have been formed: by then a column of timestamps around 1.7e9 seconds has
lost half of its digits, and a column around 1e160 has overflowed. So the origin is
subtracted from the columns, and the unit divided out, first.
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

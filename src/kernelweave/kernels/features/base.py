"""The base class of explicit feature maps."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np

from kernelweave._array import Array, from_numpy
from kernelweave.kernels.base import Kernel

__all__ = ["FeatureMap"]


class FeatureMap:
    """``z(x)`` with ``k(x, y) = z(x)'z(y)``, exactly or approximately.

    A map is fitted with NumPy on a sample of rows and may then be moved to another
    array library or device. It holds nothing but numbers, so it can be sent to workers.

    Attributes
    ----------
    kernel : Kernel
        The kernel that is mapped, resolved and without the steps of a pipe.
    n_features : int
        Length of z.
    how : str
        The kind of map, for remarks.
    exact : bool
        Whether ``k(x, y) = z(x)'z(y)`` holds up to rounding.
    """

    exact: bool = False
    how: str = ""
    #: Names of the array attributes that :meth:`to` moves.
    arrays: ClassVar[tuple[str, ...]] = ()

    def __init__(self, kernel: Kernel, n_features: int) -> None:
        self.kernel = kernel
        self.n_features = int(n_features)

    def transform(self, X: Array) -> Array:
        """Features (m, D) of the rows X (m, d), in the library and dtype of X."""
        raise TypeError(f"{type(self).__name__} does not compute features")

    def write(self, X: Array, out: Array) -> None:
        """Write the features of the rows X (m, d) to ``out`` (m, D)."""
        out[...] = self.transform(X)

    def is_reference(self, X: np.ndarray) -> np.ndarray:
        """Mask (m,) of the rows X (m, d) from which the map was built.

        The map may be exact there: an error measured on these rows is too optimistic.
        """
        return np.zeros(X.shape[0], dtype=bool)

    def to(self, like: Array) -> Any:
        """A copy whose arrays have the library, device and dtype of ``like``."""
        moved = copy.copy(self)
        for name in self.arrays:
            setattr(moved, name, from_numpy(np.asarray(getattr(self, name)), like))
        return moved

    def __repr__(self) -> str:
        return f"<{self.how}, {self.n_features} features of {self.kernel.label}>"

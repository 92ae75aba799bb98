"""What an explicit feature map of a kernel is."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np

from kernelweave._array import Array, from_numpy
from kernelweave.kernels.base import Kernel

__all__ = ["FeatureMap"]


class FeatureMap:
    """``z(x)`` with ``k(x, y) = z(x)'z(y)``, exactly or nearly.

    A map is fitted on a sample of rows with NumPy and may then be moved to another
    array library or device. It holds numbers only, so that it can be sent to workers.

    Attributes
    ----------
    kernel : Kernel
        The kernel behind the map, resolved, without the steps of a pipe.
    n_features : int
        Length of z.
    how : str
        What kind of map it is, for remarks.
    exact : bool
        Whether ``k(x, y) = z(x)'z(y)`` holds up to rounding.
    """

    exact: bool = False
    how: str = ""
    #: Names of the attributes that are arrays and move with :meth:`to`.
    arrays: ClassVar[tuple[str, ...]] = ()

    def __init__(self, kernel: Kernel, n_features: int) -> None:
        self.kernel = kernel
        self.n_features = int(n_features)

    def transform(self, X: Array) -> Array:
        """Features (m, D) of the rows X (m, d), in the library and dtype of X."""
        raise TypeError(f"{type(self).__name__} does not compute features")

    def write(self, X: Array, out: Array) -> None:
        """Put the features of the rows X (m, d) into ``out`` (m, D)."""
        out[...] = self.transform(X)

    def is_reference(self, X: np.ndarray) -> np.ndarray:
        """Which of the rows X (m, d) the map was built on and so knows exactly, (m,).

        An error measured on these would look too good.
        """
        return np.zeros(X.shape[0], dtype=bool)

    def to(self, like: Array) -> Any:
        """A copy whose arrays live where ``like`` does, in its dtype."""
        moved = copy.copy(self)
        for name in self.arrays:
            setattr(moved, name, from_numpy(np.asarray(getattr(self, name)), like))
        return moved

    def __repr__(self) -> str:
        return f"<{self.how}, {self.n_features} features of {self.kernel.label}>"

"""A new kernel: inverse multiquadric, ``k(x, z) = scale / sqrt(1 + |x - z|^2 / c^2)``.

Its diagonal is ``scale``, not one. Subclass ``Kernel``: the constructor stores the
parameters, and ``resolve(X)`` returns a copy in which those that depend on the data are
determined from the training rows. Define ``base`` and ``from_base`` for a function of a
matrix that several kernels share, such as the squared distances, or ``gram(X, Z)``.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine

from kernelweave import MultipleKernelFDA
from kernelweave._array import namespace
from kernelweave.kernels import Kernel
from kernelweave.kernels.base import median_distance


class InverseMultiquadric(Kernel):
    """``k(x, z) = scale / sqrt(1 + |x - z|^2 / c^2)``."""

    base = "sqeuclidean"

    def __init__(self, c="median", scale=1.0):
        self.c = c
        self.scale = scale

    def resolve(self, X, memo=None):
        """A copy in which c is the median distance between training rows."""
        kernel = super().resolve(X, memo)
        if self.c == "median":
            kernel.c = median_distance(X, "sqeuclidean", memo) ** 0.5
        return kernel

    def from_base(self, base):
        """Gram matrix from squared distances."""
        return self.scale / namespace(base).sqrt(1.0 + base / self.c**2)


if __name__ == "__main__":
    X, y = load_wine(return_X_y=True)
    X = X / np.std(X, axis=0)
    kernel = InverseMultiquadric(scale=100.0)
    np.testing.assert_allclose(np.diag(kernel(X)), 100.0)
    assert np.linalg.eigvalsh(kernel(X))[0] > -1e-9

    # Kernels are centred and scaled elsewhere, so a constant factor changes no model,
    # whether it uses kernel matrices or explicit features.
    for features in ("exact", "nystroem"):
        models = [
            MultipleKernelFDA(
                [("wine", some, slice(None))], norm=1, features=features, cv=None
            )
            for some in (kernel, InverseMultiquadric())
        ]
        loud, quiet = (model.fit(X, y) for model in models)
        np.testing.assert_allclose(
            loud.predict_proba(X), quiet.predict_proba(X), atol=1e-6
        )
        assert loud.score(X, y) > 0.95

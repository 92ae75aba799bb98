"""New kernels: inverse multiquadric, ``k(x, z) = scale / sqrt(1 + |x - z|^2 / c^2)``,
whose diagonal is ``scale``, not one, and Tanimoto.

Subclass ``Kernel``: the constructor stores the parameters, and ``resolve(X)`` returns a
copy in which those that depend on the data are determined from the training rows.
Define ``base`` and ``from_base`` for a function of a matrix that several kernels share,
such as the squared distances, or else ``gram(X, Z=None)``. With
``gradient(X, Z, coef)`` as well, ``feature_importance`` says which columns matter;
without it, the kernel is refused there by name.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace
from sklearn.datasets import load_wine

from kernelweave import MultipleKernelFDA
from kernelweave.inspection import feature_importance
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
        return self.scale / array_namespace(base).sqrt(1.0 + base / self.c**2)

    def gradient(self, X, Z, coef):
        """``sum_j coef_jc dk(x_i, z_j) / dx_i`` at the rows of X (m, d), as (m, d, q).

        Z (n, d) and coef (n, q) are NumPy arrays in float64, as is X. Here
        ``dk(x, z) / dx = -scale / c^2 (1 + |x - z|^2 / c^2)^(-3/2) (x - z)``.
        """
        slope = -(self.gram(X, Z) ** 3) / (self.scale * self.c) ** 2  # (m, n)
        at_rows = np.einsum("ij,jc,il->ilc", slope, coef, X)
        return at_rows - np.einsum("ij,jc,jl->ilc", slope, coef, Z)


class Tanimoto(Kernel):
    """``k(x, z) = x'z / (|x|^2 + |z|^2 - x'z)``."""

    def gram(self, X, Z=None):
        """Gram matrix (n, m) between the rows of X and those of Z, or of X itself."""
        Z, xp = X if Z is None else Z, array_namespace(X)
        products = X @ Z.T
        squares = xp.sum(X**2, axis=1)[:, None] + xp.sum(Z**2, axis=1)[None, :]
        return products / (squares - products)


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

    # Check a gradient against finite differences.
    rng = np.random.default_rng(0)
    resolved, coef, step = kernel.resolve(X), rng.normal(size=(50, 3)), 1e-6
    slopes = resolved.gradient(X[:4], X[50:100], coef)
    for j in range(X.shape[1]):
        shift = step * (np.arange(X.shape[1]) == j)
        change = resolved(X[:4] + shift, X[50:100]) - resolved(X[:4] - shift, X[50:100])
        np.testing.assert_allclose(slopes[:, j], change @ coef / (2 * step), atol=1e-6)
    rows = feature_importance(quiet, "wine", X=X)
    top = max(rows, key=lambda row: row["importance"])
    assert load_wine().feature_names[top["feature"]] == "flavanoids"

    # A kernel defined by gram alone is used in the same ways, except for gradients.
    for features in ("exact", "on_the_fly", "nystroem"):
        view = ("wine", Tanimoto(), slice(None))
        model = MultipleKernelFDA([view], alpha=0.1, cv=None, features=features)
        assert model.fit(X, y).score(X, y) > 0.95
    try:
        feature_importance(model, "wine", X=X)
    except TypeError as error:
        print(error)
    else:
        raise AssertionError("a kernel without a gradient was not refused")

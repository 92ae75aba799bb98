"""Random Fourier features of Gaussian and Laplacian kernels."""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array, is_numpy, namespace
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.features.base import FeatureMap
from kernelweave.kernels.functions import RBF, Laplacian

__all__ = ["FourierFeatures"]


class FourierFeatures(FeatureMap):
    """``z(x) = sqrt(2/D) [cos(W'x), sin(W'x)]``, so that ``E z(x)'z(y) = k(x, y)``.

    Rahimi and Recht (2007): the columns of W are drawn from the spectrum of the kernel,
    a Gaussian of variance ``2 gamma`` for ``exp(-gamma |x - y|^2)`` and, in each
    coordinate, a Cauchy distribution of scale gamma for ``exp(-gamma |x - y|_1)``.
    Gaussian frequencies are made orthogonal in blocks of d, which lowers the error (Yu
    et al. 2016). Cosine and sine at the same frequency make ``z(x)'z(x) = 1`` exactly.

    Parameters
    ----------
    kernel : RBF or Laplacian
        The kernel, resolved.
    n_columns : int
        Number d of columns.
    n_features : int
        Number D of features; an odd number is rounded up.
    rng : numpy.random.Generator
        Draws the frequencies.
    origin : ndarray of shape (d,), optional
        Subtracted from all rows, so that the phases of columns far from zero keep their
        digits; the kernel does not depend on it.
    """

    how = "random Fourier"
    arrays = ("frequencies", "origin")

    def __init__(
        self,
        kernel: Kernel,
        n_columns: int,
        n_features: int,
        rng: np.random.Generator,
        origin: np.ndarray | None = None,
    ) -> None:
        half = -(-n_features // 2)
        super().__init__(kernel, 2 * half)
        gamma = float(kernel.get_params()["gamma"])
        if isinstance(kernel, RBF):
            draws = _orthogonal_gaussians(n_columns, half, rng) * np.sqrt(2 * gamma)
        elif isinstance(kernel, Laplacian):
            draws = rng.standard_cauchy((n_columns, half)) * gamma
        else:
            raise ValueError(f"{kernel.label} has no random Fourier features")
        self.frequencies = draws  # (d, D / 2)
        self.origin = np.zeros(n_columns) if origin is None else origin

    @staticmethod
    def supports(kernel: Kernel) -> bool:
        """Whether the kernel has random Fourier features."""
        return isinstance(kernel, RBF | Laplacian)

    def transform(self, X: Array) -> Array:
        """Cosines and sines (m, D) of the rows X (m, d)."""
        xp = namespace(X)
        phase = (X - self.origin) @ self.frequencies
        return xp.concat([xp.cos(phase), xp.sin(phase)], axis=1) * self.size

    def write(self, X: Array, out: Array) -> None:
        """Write the features to ``out`` (m, D), without temporaries of that size."""
        if not is_numpy(X):
            return super().write(X, out)
        phase, half = (X - self.origin) @ self.frequencies, self.n_features // 2
        np.cos(phase, out=out[:, :half])
        np.sin(phase, out=out[:, half:])
        out *= self.size

    @property
    def size(self) -> float:
        """The factor that makes ``z(x)'z(x) = 1``."""
        return float(np.sqrt(2.0 / self.n_features))


def _orthogonal_gaussians(d: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """(d, m) standard normal columns, orthogonal within blocks of d columns."""
    blocks = []
    for _ in range(-(-m // d)):
        directions, _ = np.linalg.qr(rng.standard_normal((d, d)))
        lengths = np.sqrt(rng.chisquare(d, size=d))
        blocks.append(directions * lengths[None, :])
    return np.concatenate(blocks, axis=1)[:, :m]

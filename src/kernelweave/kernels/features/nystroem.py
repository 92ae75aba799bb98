"""Nystroem features of any kernel."""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.features.base import FeatureMap
from kernelweave.kernels.features.landmarks import LANDMARKS

__all__ = ["NystroemFeatures"]


class NystroemFeatures(FeatureMap):
    """``z(x) = L^(-1/2) V' k(X_m, x)`` with ``k(X_m, X_m) = V L V'``.

    Williams and Seeger (2001): the projection of the kernel's feature vectors onto the
    span of those of m landmarks ``X_m``. It is exact for the landmarks, never
    overestimates ``k(x, x)``, and adapts to the data, whereas random features depend on
    the kernel alone.

    Parameters
    ----------
    kernel : Kernel
        Any kernel, resolved.
    sample : ndarray of shape (s, d)
        Rows from which landmarks are chosen.
    n_features : int
        Number m of landmarks, at most s. Directions that are rounding error are
        dropped.
    rng : numpy.random.Generator
        Draws the landmarks.
    landmarks : {"uniform", "kmeans++", "leverage", "pivoted"}, default="pivoted"
        How they are drawn.
    precision : float, default=2.2e-16
        Machine precision of the rows to be mapped.
    """

    how = "Nystroem"
    arrays = ("landmarks", "projection")

    def __init__(
        self,
        kernel: Kernel,
        sample: np.ndarray,
        n_features: int,
        rng: np.random.Generator,
        landmarks: str = "pivoted",
        precision: float = float(np.finfo(np.float64).eps),
    ) -> None:
        if landmarks not in LANDMARKS:
            raise ValueError(
                f"landmarks must be one of {sorted(LANDMARKS)}, got {landmarks!r}"
            )
        rows = np.unique(np.asarray(sample, dtype=np.float64), axis=0)
        m = min(int(n_features), len(rows))
        chosen = LANDMARKS[landmarks](kernel, rows, m, rng)
        self.landmarks = rows[chosen]  # (m, d)
        if len(chosen) == 0:  # a kernel that is zero everywhere
            self.landmarks = rows[:1]
        values, vectors = np.linalg.eigh(kernel.gram(self.landmarks))
        kept = values > 10.0 * len(values) * precision * values[-1]
        self.projection = vectors[:, kept] / np.sqrt(values[kept])  # (m, D)
        super().__init__(kernel, max(int(np.sum(kept)), 1))
        if not np.any(kept):
            self.projection = np.zeros((len(values), 1))

    def transform(self, X: Array) -> Array:
        """Features (m, D) of the rows X (m, d)."""
        return self.kernel.gram(X, self.landmarks) @ self.projection

    def is_reference(self, X: np.ndarray) -> np.ndarray:
        """Which rows are landmarks."""
        known = {row.tobytes() for row in np.ascontiguousarray(self.landmarks)}
        rows = np.ascontiguousarray(X, dtype=np.float64)
        return np.array([row.tobytes() in known for row in rows], dtype=bool)

"""The choice of a feature map for each kernel."""

from __future__ import annotations

import numpy as np

from kernelweave._units import column_means
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.features.base import FeatureMap
from kernelweave.kernels.features.exact import exact_map, exact_width
from kernelweave.kernels.features.fourier import FourierFeatures
from kernelweave.kernels.features.nystroem import NystroemFeatures

__all__ = ["choose_map"]

#: Exact features are used if they are at most this many times ``n_features``.
EXACT_FACTOR = 4


def choose_map(
    kernel: Kernel,
    sample: np.ndarray,
    method: str,
    n_features: int,
    rng: np.random.Generator,
    precision: float,
) -> FeatureMap:
    """A feature map of a resolved kernel (without the steps of a pipe).

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    sample : ndarray of shape (s, d)
        Rows after the steps of the pipe.
    method : {"exact", "nystroem", "random"}
        Linear, cosine and polynomial kernels are mapped exactly whatever the method,
        unless that takes more than four times ``n_features`` features. "random" falls
        back on Nystroem features for kernels that have no random ones.
    n_features : int
        Length of an approximate map.
    rng : numpy.random.Generator
        Draws landmarks or frequencies.
    precision : float
        Machine precision of the rows to be mapped.
    """
    width = exact_width(kernel, sample.shape[1])
    if method == "exact":
        if width is None:
            raise ValueError(
                f"{kernel.label} has no finite exact features; use features='nystroem' "
                "or 'random', or a linear, cosine or polynomial kernel"
            )
        return exact_map(kernel, sample)
    if width is not None and width <= EXACT_FACTOR * n_features:
        return exact_map(kernel, sample)
    if method == "random" and FourierFeatures.supports(kernel):
        origin = column_means(sample)
        return FourierFeatures(kernel, sample.shape[1], n_features, rng, origin)
    return NystroemFeatures(kernel, sample, n_features, rng, precision=precision)

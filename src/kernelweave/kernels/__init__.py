"""Kernel functions, and banks of centred kernels."""

from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.banks.features import FeatureBank
from kernelweave.kernels.banks.spectral import SpectralBank, spectral_bank
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.centering import center_and_scale
from kernelweave.kernels.functions import (
    RBF,
    CallableKernel,
    Chi2,
    Cosine,
    Laplacian,
    Linear,
    Pipe,
    Polynomial,
    Standardizer,
)
from kernelweave.kernels.maps.kernel_map import KernelMap
from kernelweave.kernels.similarity import Similarity

__all__ = [
    "RBF",
    "CallableKernel",
    "Chi2",
    "Cosine",
    "DenseBank",
    "FeatureBank",
    "Kernel",
    "KernelMap",
    "Laplacian",
    "Linear",
    "Pipe",
    "Polynomial",
    "Similarity",
    "SpectralBank",
    "Standardizer",
    "center_and_scale",
    "spectral_bank",
]

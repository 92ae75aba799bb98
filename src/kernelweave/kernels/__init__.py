"""Kernel functions, and banks of centred kernels."""

from kernelweave.kernels.bank import DenseBank
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.centering import Centering, center_and_scale
from kernelweave.kernels.completion import CompletedKernelMap
from kernelweave.kernels.feature_bank import FeatureBank
from kernelweave.kernels.functions import (
    RBF,
    CallableKernel,
    Chi2,
    Cosine,
    Laplacian,
    Linear,
    Polynomial,
)
from kernelweave.kernels.mapping import KernelMap
from kernelweave.kernels.pipe import Pipe, Standardizer
from kernelweave.kernels.resolve import AUTO_WIDTHS, resolve_kernels
from kernelweave.kernels.spectral import SpectralBank, spectral_bank

__all__ = [
    "AUTO_WIDTHS",
    "RBF",
    "CallableKernel",
    "Centering",
    "Chi2",
    "CompletedKernelMap",
    "Cosine",
    "DenseBank",
    "FeatureBank",
    "Kernel",
    "KernelMap",
    "Laplacian",
    "Linear",
    "Pipe",
    "Polynomial",
    "SpectralBank",
    "Standardizer",
    "center_and_scale",
    "resolve_kernels",
    "spectral_bank",
]

"""Learn which of many kernels matter, and weave them into one classifier."""

from kernelweave.criteria import Alignment, BlockFisher, Fisher, Margin, WithinFisher
from kernelweave.models import (
    Certificate,
    KernelAlignment,
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    ProbabilisticKDA,
    SubspaceKernel,
    SubspaceKernelSVC,
    TransductiveKernelSVC,
)
from kernelweave.solvers import Solution, certify, solve
from kernelweave.weights import CappedSimplex, LpBall, SignedSum, Simplex, Uniform

__version__ = "0.1.0.dev0"

__all__ = [
    "Alignment",
    "BlockFisher",
    "CappedSimplex",
    "Certificate",
    "Fisher",
    "KernelAlignment",
    "KernelFDA",
    "LpBall",
    "Margin",
    "MixtureKDA",
    "MultipleKernelFDA",
    "MultipleKernelRidge",
    "MultipleKernelSVC",
    "ProbabilisticKDA",
    "SignedSum",
    "Simplex",
    "Solution",
    "SubspaceKernel",
    "SubspaceKernelSVC",
    "TransductiveKernelSVC",
    "Uniform",
    "WithinFisher",
    "__version__",
    "certify",
    "solve",
]

"""Learn which of many kernels matter, and weave them into one classifier."""

from kernelweave.criteria import BlockFisher, Fisher, WithinFisher
from kernelweave.models import (
    Certificate,
    KernelFDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
)
from kernelweave.solvers import Solution, certify, solve
from kernelweave.weights import LpBall, Simplex, Uniform

__version__ = "0.1.0.dev0"

__all__ = [
    "BlockFisher",
    "Certificate",
    "Fisher",
    "KernelFDA",
    "LpBall",
    "MultipleKernelFDA",
    "MultipleKernelRidge",
    "Simplex",
    "Solution",
    "Uniform",
    "WithinFisher",
    "__version__",
    "certify",
    "solve",
]

"""Methods that find the weights, and the certificate that checks all of them."""

from kernelweave.solvers.mixture import truncated_em
from kernelweave.solvers.reference import FreeKernel, free_alignment, free_margin
from kernelweave.solvers.solve import Solution, certify, solve

__all__ = [
    "FreeKernel",
    "Solution",
    "certify",
    "free_alignment",
    "free_margin",
    "solve",
    "truncated_em",
]

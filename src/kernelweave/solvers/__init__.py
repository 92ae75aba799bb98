"""Methods that find the weights, and the certificate that checks all of them."""

from kernelweave.solvers.mixture import truncated_em
from kernelweave.solvers.solve import Solution, certify, solve

__all__ = [
    "Solution",
    "certify",
    "solve",
    "truncated_em",
]

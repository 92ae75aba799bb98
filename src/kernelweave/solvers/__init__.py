"""How the weights are found, and the certificate that judges every way."""

from kernelweave.solvers.certify import certify
from kernelweave.solvers.solution import Solution, TraceRow
from kernelweave.solvers.solve import solve

__all__ = ["Solution", "TraceRow", "certify", "solve"]

"""Inspect a fitted model: plots of weights, classes and convergence, and a table."""

from kernelweave.inspection.convergence import ConvergenceDisplay
from kernelweave.inspection.projection import ProjectionDisplay
from kernelweave.inspection.weights import KernelWeightsDisplay, to_csv, weights_table

__all__ = [
    "ConvergenceDisplay",
    "KernelWeightsDisplay",
    "ProjectionDisplay",
    "to_csv",
    "weights_table",
]

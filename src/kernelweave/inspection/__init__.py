"""Inspect a fitted model: what the weights mean, plots of them, and tables."""

from kernelweave.inspection.ablation import view_ablation
from kernelweave.inspection.ablation_display import AblationDisplay
from kernelweave.inspection.convergence import ConvergenceDisplay
from kernelweave.inspection.kernel_weights import KernelWeightsDisplay
from kernelweave.inspection.projection import ProjectionDisplay
from kernelweave.inspection.pvalues import view_pvalues
from kernelweave.inspection.ranges import ShareRange, criterion_ranges, weight_ranges
from kernelweave.inspection.view_shares import view_shares, weight_intervals
from kernelweave.inspection.view_shares_display import ViewSharesDisplay
from kernelweave.inspection.weights_table import to_csv, weights_table

__all__ = [
    "AblationDisplay",
    "ConvergenceDisplay",
    "KernelWeightsDisplay",
    "ProjectionDisplay",
    "ShareRange",
    "ViewSharesDisplay",
    "criterion_ranges",
    "to_csv",
    "view_ablation",
    "view_pvalues",
    "view_shares",
    "weight_intervals",
    "weight_ranges",
    "weights_table",
]

"""Inspect a fitted model: what its weights mean, and why it decides as it does."""

from kernelweave.inspection.ablation import view_ablation
from kernelweave.inspection.ablation_display import AblationDisplay
from kernelweave.inspection.contributions import contributions
from kernelweave.inspection.contributions_display import ContributionsDisplay
from kernelweave.inspection.convergence import ConvergenceDisplay
from kernelweave.inspection.feature_display import FeatureImportanceDisplay
from kernelweave.inspection.feature_importance import feature_importance
from kernelweave.inspection.projection import ProjectionDisplay
from kernelweave.inspection.pvalues import view_pvalues
from kernelweave.inspection.ranges import ShareRange, criterion_ranges, weight_ranges
from kernelweave.inspection.view_permutation import view_permutation_importance
from kernelweave.inspection.view_shares import weight_intervals
from kernelweave.inspection.view_shares_display import ViewSharesDisplay
from kernelweave.inspection.weights import KernelWeightsDisplay, to_csv, weights_table

__all__ = [
    "AblationDisplay",
    "ContributionsDisplay",
    "ConvergenceDisplay",
    "FeatureImportanceDisplay",
    "KernelWeightsDisplay",
    "ProjectionDisplay",
    "ShareRange",
    "ViewSharesDisplay",
    "contributions",
    "criterion_ranges",
    "feature_importance",
    "to_csv",
    "view_ablation",
    "view_permutation_importance",
    "view_pvalues",
    "weight_intervals",
    "weight_ranges",
    "weights_table",
]

"""Inspect a fitted model: what its weights mean, and why it decides as it does."""

from kernelweave.inspection.ablation import AblationDisplay, view_ablation
from kernelweave.inspection.contributions import ContributionsDisplay, contributions
from kernelweave.inspection.convergence import ConvergenceDisplay
from kernelweave.inspection.feature_importance import (
    FeatureImportanceDisplay,
    feature_importance,
)
from kernelweave.inspection.projection import ProjectionDisplay
from kernelweave.inspection.pvalues import view_pvalues
from kernelweave.inspection.ranges import weight_ranges
from kernelweave.inspection.view_permutation import view_permutation_importance
from kernelweave.inspection.view_shares import ViewSharesDisplay, weight_intervals
from kernelweave.inspection.weights import KernelWeightsDisplay, weights_table

__all__ = [
    "AblationDisplay",
    "ContributionsDisplay",
    "ConvergenceDisplay",
    "FeatureImportanceDisplay",
    "KernelWeightsDisplay",
    "ProjectionDisplay",
    "ViewSharesDisplay",
    "contributions",
    "feature_importance",
    "view_ablation",
    "view_permutation_importance",
    "view_pvalues",
    "weight_intervals",
    "weight_ranges",
    "weights_table",
]

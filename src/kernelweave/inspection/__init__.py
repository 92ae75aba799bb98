"""Inspect a fitted model: weights, classes, convergence, and why it decides so."""

from kernelweave.inspection.contributions import contributions
from kernelweave.inspection.contributions_display import ContributionsDisplay
from kernelweave.inspection.convergence import ConvergenceDisplay
from kernelweave.inspection.feature_display import FeatureImportanceDisplay
from kernelweave.inspection.feature_importance import feature_importance
from kernelweave.inspection.kernel_weights import KernelWeightsDisplay
from kernelweave.inspection.projection import ProjectionDisplay
from kernelweave.inspection.view_permutation import view_permutation_importance
from kernelweave.inspection.weights_table import to_csv, weights_table

__all__ = [
    "ContributionsDisplay",
    "ConvergenceDisplay",
    "FeatureImportanceDisplay",
    "KernelWeightsDisplay",
    "ProjectionDisplay",
    "contributions",
    "feature_importance",
    "to_csv",
    "view_permutation_importance",
    "weights_table",
]

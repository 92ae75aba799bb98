"""Inputs and results of a fit of the Fisher or ridge problem."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelweave._array import Array
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.kernels.features.report import FeatureReport
from kernelweave.models.shared.learner import Learned
from kernelweave.views.spec import View

__all__ = ["Columns", "Fitted", "Trained"]


@dataclass(frozen=True)
class Fitted:
    """Weights and coefficients, from kernels between rows or from moments."""

    learned: Learned
    loo_error: float  # mean squared error on rows left out
    dual_coef: Array | None = None  # (n, k), of the rows, if they were kept
    feature_coef: Array | None = None  # (D, k), of the features of kernels with weight
    classes: np.ndarray | None = None  # (k,), for a discriminant, like the Gaussians
    gaussians: ClassGaussians | None = None
    intercept: Array | None = None  # (n_outputs,), for a regression


@dataclass(frozen=True)
class Columns:
    """The views, the columns of each, and what scikit-learn records about all columns.

    ``noted`` holds ``n_features_in_`` and ``feature_names_in_`` if the validation of X
    has not set them already.
    """

    views: list[View]
    positions: list[list[int]]
    noted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """A fit, and what prediction needs to know about rows."""

    fitted: Fitted
    kernel_map: Any  # KernelMap or FeatureKernelMap
    like: Array  # no rows, in the namespace, device and dtype of the training rows
    columns: Columns
    report: FeatureReport | None = None  # if the representation was chosen

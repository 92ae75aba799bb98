"""What a fit of the Fisher or ridge problem takes and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kernelweave._array import Array
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.kernels.features.report import FeatureReport
from kernelweave.kernels.moments.sums import ChunkRecipe, Moments
from kernelweave.models.shared.learner import Callback, Learned
from kernelweave.views.spec import View

__all__ = ["Columns", "Fitted", "Task", "Trained"]


@dataclass(frozen=True)
class Fitted:
    """Weights and coefficients, from kernels between rows or from moments.

    Attributes
    ----------
    learned : Learned
        The choice of weights and alpha, and its rivals.
    loo_error : float
        Mean squared error on rows left out.
    dual_coef : array of shape (n, k) or None
        Coefficients of the rows, if these were kept.
    feature_coef : array of shape (D, k) or None
        Coefficients of the explicit features of the kernels with weight.
    classes, gaussians : ndarray of shape (k,) and ClassGaussians
        Of a discriminant.
    intercept : array of shape (n_outputs,)
        Of a regression.
    """

    learned: Learned
    loo_error: float
    dual_coef: Array | None = None
    feature_coef: Array | None = None
    classes: np.ndarray | None = None
    gaussians: ClassGaussians | None = None
    intercept: Array | None = None


@dataclass(frozen=True)
class Columns:
    """The views, the columns of each, and what scikit-learn notes of all columns.

    ``noted`` holds ``n_features_in_`` and ``feature_names_in_`` where these have not
    been set by the validation of X.
    """

    views: list[View]
    positions: list[list[int]]
    noted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """A fit, and what its predictions need to know about rows.

    Attributes
    ----------
    fitted : Fitted
        The answer.
    kernel_map : KernelMap or FeatureKernelMap
        From new rows to projections.
    like : array
        No rows, in the namespace, device and dtype of the training rows.
    columns : Columns
        Which columns are used.
    report : FeatureReport or None
        How kernels were represented, where there was a choice.
    """

    fitted: Fitted
    kernel_map: Any
    like: Array
    columns: Columns
    report: FeatureReport | None = None


class Task(Protocol):
    """Classes or outputs: what y is, and what is fitted to it."""

    @property
    def classify(self) -> bool:
        """Whether y are classes."""
        ...

    def targets(self, X: Any, y: Any) -> np.ndarray:
        """Checked labels (n,) or outputs (n, t) of the rows of X."""
        ...

    def require_enough(self, targets: np.ndarray) -> None:
        """Refuse targets of a single class or a single row."""
        ...

    def from_kernels(
        self, bank: Any, targets: np.ndarray, callback: Callback
    ) -> Fitted:
        """Fit kernels between all rows."""
        ...

    def from_moments(
        self,
        recipe: ChunkRecipe,
        moments: Moments,
        like: Array,
        callback: Callback,
    ) -> tuple[Any, Fitted]:
        """Fit second moments; also the map of features that belongs to them."""
        ...

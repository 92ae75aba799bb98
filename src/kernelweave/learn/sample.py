"""Rows as a value: kernels between them, targets, and what reads new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from kernelweave._array import Array, from_numpy
from kernelweave.fits.design import RowDesign
from kernelweave.kernels.spec import sees_targets, warn_twins
from kernelweave.protocols import FeatureProducts, RowBank
from kernelweave.views.columns import View


@dataclass(frozen=True)
class RowMap:
    """How rows are read and mapped to the kernels of a fit."""

    kernel_map: Any  # KernelMap, FeatureKernelMap or ViewMaps
    like: Array  # no rows, in the namespace, device and dtype of the training rows
    views: list[View]  # empty for precomputed kernels
    positions: list[list[int]]  # the columns of each view
    #: ``n_features_in_`` and ``feature_names_in_``, if the validation of X has not set
    #: them already.
    noted: dict[str, Any] = field(default_factory=dict)

    @property
    def see_targets(self) -> bool:
        """Whether kernels have parameters that depend on the targets of the rows."""
        return any(sees_targets(view.kernel) for view in self.views)

    def kernels(self, progress: Callable[[int], object]) -> RowBank:
        """The bank of all kernels between the training rows."""
        bank = self.kernel_map.fit(progress)
        warn_twins(self.views, self.positions)
        return bank

    def levelled(self, design: RowDesign) -> RowDesign:
        """The design of the rows, with the mean eigenvalue of their kernels."""
        levels = self.kernel_map.levels[self.kernel_map.active]
        return replace(design, level=float(np.mean(levels)))


@dataclass(frozen=True)
class Sample:
    """Rows as learning sees them: kernels between them, and their targets.

    The kernels are n x n matrices, or products of explicit features. From features a
    model learns as it does from matrices, including leave-one-out errors.

    Attributes
    ----------
    bank : RowBank
        Centred kernels of all n rows, multiplied by the roots of the row weights.
    targets : ndarray of shape (n,) or (n, t)
        Codes of classes, or outputs.
    design : RowDesign
        Weights and groups of the rows.
    weights : ndarray of shape (p,) or None
        Weights of the kernels, if they are given and not learned.
    scales : ndarray of shape (p,) or None
        By which explicit features were multiplied; None for matrices.
    """

    bank: RowBank
    targets: np.ndarray
    design: RowDesign
    weights: np.ndarray | None = None
    scales: np.ndarray | None = None

    def fold(
        self, train: np.ndarray, test: np.ndarray, space: Any
    ) -> tuple[Sample, Callable[[np.ndarray], Array]] | None:
        """The rows ``train``, and the weighted kernel of the rows ``test`` with them.

        The kernels are known already: with ``G = P K P`` of all rows, the kernel of the
        rows s is ``P_s K_ss P_s = P_s G_ss P_s``, and that of other rows follows
        likewise. None if no kernel varies over the rows, or none that does has a
        weight. The ``space`` is memory for it, from the bank.
        """
        kernels = self.bank.fold(train, test, self.design.weights, space)
        weights = None if self.weights is None else self.weights[kernels.active]
        if not kernels.active or (weights is not None and not np.any(weights)):
            return None
        design = self.design.restrict(train)
        part = Sample(kernels.bank, self.targets[train], design, weights)
        return part, kernels.cross

    def feature_coef(self, dual_coef: Array, weights: np.ndarray, like: Array) -> Array:
        """Coefficients of explicit features, from those of the rows, (n, k).

        Predictions then need none of the rows.
        """
        assert self.scales is not None
        dual = self.design.unscale(dual_coef)  # the bank has the roots
        bank = cast(FeatureProducts, self.bank)
        return from_numpy(bank.feature_coef(dual, weights, self.scales), like)

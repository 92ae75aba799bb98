"""Training rows: checked, split into views, turned into kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelweave._array import Array, detached
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.maps.kernel_map import KernelMap
from kernelweave.kernels.maps.missing import CompletedKernelMap, imputes
from kernelweave.kernels.maps.sources import FeatureSource, PrecomputedSource, Source
from kernelweave.kernels.twins import warn_twins
from kernelweave.views.columns import resolve_columns
from kernelweave.views.missing import (
    ObservedViews,
    check_every_view,
    check_some_view,
    precomputed_with_missing,
    split_with_missing,
)
from kernelweave.views.precomputed import validate_precomputed
from kernelweave.views.spec import View, is_precomputed, parse_views
from kernelweave.views.validate import split_views, validate_features

__all__ = ["TrainingRows", "read_rows", "split_observed"]


@dataclass(frozen=True)
class TrainingRows:
    """The rows of a fit; none of their kernels has been computed yet."""

    source: Source  # of raw kernels
    views: list[View]  # empty for precomputed kernels
    positions: list[list[int]]  # the columns of each view
    like: Array  # no rows, with their namespace, device and dtype

    @classmethod
    def of(
        cls, source: Source, views: list[View], positions: list[list[int]]
    ) -> TrainingRows:
        """The rows of a source, before the source releases them."""
        # A view of an array would keep all of it in memory.
        return cls(source, views, positions, detached(source.like[:0, ...]))

    def kernels(
        self, model: Any, progress: Callable[[int], object]
    ) -> tuple[KernelMap, DenseBank]:
        """Compute all kernels; returns the map with their scales, and the bank."""
        if model.missing == "error":
            kernel_map = KernelMap(self.source, model.psd)
        else:
            signed = bool(getattr(model, "signed", False))
            kernel_map = CompletedKernelMap(
                self.source, model.psd, model.missing, equal_trace=signed
            )
        bank = kernel_map.fit(progress)
        warn_twins(self.views, self.positions)
        return kernel_map, bank


def read_rows(model: Any, X: Any) -> TrainingRows:
    """Validate X on behalf of ``model`` and fix the kernel parameters."""
    gaps = model.missing != "error"
    if is_precomputed(model.views):
        return TrainingRows.of(_precomputed(model, X, gaps), [], [])
    views = parse_views(model.views, reserved=model._get_param_names())
    X = validate_features(model, X, reset=True)
    positions = resolve_columns(X, views)
    if not gaps:
        source = FeatureSource(views, split_views(X, views, positions))
        return TrainingRows.of(source, views, positions)
    data = split_observed(X, views, positions)
    _check_observed(data, [view.name for view in views])
    source = FeatureSource(views, data.blocks, data.observed)
    return TrainingRows.of(source, views, positions)


def _precomputed(model: Any, X: Any, gaps: bool) -> PrecomputedSource:
    if not gaps:
        return PrecomputedSource(*validate_precomputed(model, X, reset=True))
    data, names = precomputed_with_missing(model, X, reset=True)
    _check_observed(data, names)
    return PrecomputedSource(data.blocks, names, data.observed)


def split_observed(
    X: Any, views: list[View], positions: list[list[int]], dtype: Any = None
) -> ObservedViews:
    """One block per view; isolated NaN are allowed where the kernel imputes."""
    partial = [imputes(view.kernel) for view in views]
    return split_with_missing(X, views, positions, partial=partial, dtype=dtype)


def _check_observed(data: ObservedViews, names: list[str]) -> None:
    check_every_view(data.observed, names)
    check_some_view(data.observed, "training")

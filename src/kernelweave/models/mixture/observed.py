"""Rows that may lack views, as estimators with a ``missing`` parameter read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelweave._array import is_array
from kernelweave.kernels.twins import warn_twins
from kernelweave.models.shared.base import KernelModel
from kernelweave.views.columns import resolve_columns
from kernelweave.views.missing import (
    ObservedViews,
    check_some_view,
    precomputed_with_missing,
)
from kernelweave.views.precomputed import validate_precomputed
from kernelweave.views.spec import is_precomputed, parse_views
from kernelweave.views.validate import split_views, validate_features, validate_new

__all__ = ["ObservedRowsMixin"]


class ObservedRowsMixin(KernelModel):
    """Read X as views of which rows may lack some, and keep each view by itself.

    With ``missing="error"`` every view must be there. Otherwise a row whose entries of
    a view are all NaN, or whose row and column of a precomputed kernel are, lacks it.
    """

    kernel_map_: Any

    def _open_views(self, X: Any) -> tuple[ObservedViews, list[str]]:
        """Training rows, and the names of views or precomputed kernels."""
        if is_precomputed(self.views):
            self._views, self._positions = [], []
            return self._stack(X, reset=True)
        self._views = parse_views(self.views, reserved=self._get_param_names())
        X = validate_features(self, X, reset=True)
        self._positions = resolve_columns(X, self._views)
        data = self._blocks(X, self._positions)
        warn_twins(self._views, self._positions)
        return data, [view.name for view in self._views]

    def _observed_rows(self, X: Any, method: str) -> ObservedViews:
        """Rows at prediction."""
        check_is_fitted(self)
        if is_array(X):
            self._check_home(X, method)
        if is_precomputed(self.views):
            data, _ = self._stack(X, reset=False)
        else:
            X, positions = validate_new(self, X, self._views, self._positions)
            data = self._blocks(X, positions, dtype=self._like.dtype)
        if self.missing == "available":
            check_some_view(data.observed, "new")
        return data

    def _stack(self, X: Any, reset: bool) -> tuple[ObservedViews, list[str]]:
        expected = None if reset else len(self.kernel_names_)
        if self.missing != "error":
            trained = None if reset else self.kernel_map_.observed
            return precomputed_with_missing(
                self, X, reset=reset, n_kernels=expected, trained=trained
            )
        K, names = validate_precomputed(self, X, reset=reset, n_kernels=expected)
        seen = np.ones((K.shape[0], K.shape[2]), dtype=bool)
        return ObservedViews(K, seen), names

    def _blocks(
        self, X: Any, positions: list[list[int]], dtype: Any = None
    ) -> ObservedViews:
        if self.missing != "error":
            return self._split_with_missing(X, positions, dtype=dtype)
        blocks = split_views(X, self._views, positions, dtype=dtype)
        seen = np.ones((blocks[0].shape[0], len(blocks)), dtype=bool)
        return ObservedViews(blocks, seen)

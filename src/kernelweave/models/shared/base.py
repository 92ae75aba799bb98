"""What every estimator shares: views in, a kernel map, tags, progress."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.callback import CallbackSupportMixin
from sklearn.utils.validation import check_is_fitted

from kernelweave._array import (
    Array,
    detached,
    device,
    from_numpy,
    is_array,
    namespace,
    same_home,
    to_numpy,
)
from kernelweave.exceptions import KernelWeaveConvergenceWarning
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.maps.kernel_map import KernelMap
from kernelweave.kernels.maps.missing import CompletedKernelMap, imputes
from kernelweave.kernels.maps.sources import FeatureSource, PrecomputedSource, Source
from kernelweave.kernels.twins import warn_twins
from kernelweave.models.shared.certificate import Certificate
from kernelweave.models.shared.parameters import (
    COMMON,
    check_choice,
    check_number,
    check_parameters,
    is_int,
)
from kernelweave.models.shared.progress import Progress
from kernelweave.models.shared.transaction import all_or_nothing
from kernelweave.views.columns import resolve_columns
from kernelweave.views.composition import ViewsParamsMixin
from kernelweave.views.missing import (
    ObservedViews,
    check_every_view,
    check_some_view,
    precomputed_with_missing,
    split_with_missing,
)
from kernelweave.views.precomputed import validate_precomputed
from kernelweave.views.spec import is_precomputed, parse_views
from kernelweave.views.validate import split_views, validate_features, validate_new

__all__ = ["KernelModel", "check_choice", "check_number", "is_int"]


class KernelModel(CallbackSupportMixin, ViewsParamsMixin):
    """Base of all estimators; subclasses add a task and a ``fit``."""

    views: Any
    psd: str
    missing: str = "error"
    verbose: int
    dual_coef_: Array

    set_params = all_or_nothing(ViewsParamsMixin.set_params)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        precomputed = is_precomputed(self.views)
        tags.input_tags.pairwise = precomputed
        tags.input_tags.three_d_array = precomputed
        tags.input_tags.allow_nan = self.missing != "error"
        tags.array_api_support = True
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _open(self, X: Any) -> Source:
        """Validate X and fix the parameters of its kernels; computes none yet."""
        check_parameters(self, COMMON)
        if is_precomputed(self.views):
            if self.missing == "error":
                return PrecomputedSource(*validate_precomputed(self, X, reset=True))
            data, names = precomputed_with_missing(self, X, reset=True)
            check_every_view(data.observed, names)
            check_some_view(data.observed, "training")
            return PrecomputedSource(data.blocks, names, data.observed)
        views = parse_views(self.views, reserved=self._get_param_names())
        X = validate_features(self, X, reset=True)
        positions = resolve_columns(X, views)
        self._views, self._positions = views, positions
        if self.missing == "error":
            return FeatureSource(views, split_views(X, views, positions))
        data = self._split_with_missing(X, positions)
        check_every_view(data.observed, [view.name for view in views])
        check_some_view(data.observed, "training")
        return FeatureSource(views, data.blocks, data.observed)

    def _fit_bank(self, source: Source, progress: Progress) -> DenseBank:
        """Compute all kernels; sets ``kernel_map_`` and the names."""
        if self.missing == "error":
            self.kernel_map_ = KernelMap(source, self.psd)  # type: ignore[arg-type]
        else:
            self.kernel_map_ = CompletedKernelMap(
                source,
                self.psd,  # type: ignore[arg-type]
                self.missing,  # type: ignore[arg-type]
                equal_trace=bool(getattr(self, "signed", False)),
            )
        self.kernel_names_ = list(source.names)
        # Remembers namespace, device and dtype; a view would keep all of X in memory.
        self._like = detached(source.like[:0, ...])
        bank = self.kernel_map_.fit(progress.kernel)
        if not is_precomputed(self.views):
            warn_twins(self._views, self._positions)
        return bank

    def _rows(self, X: Any, method: str) -> Any:
        """Validate rows at prediction, in the form ``KernelMap.project`` takes."""
        check_is_fitted(self)
        if is_array(X):
            self._check_home(X, method)
        if is_precomputed(self.views):
            p = len(self.kernel_names_)
            if self.missing == "error":
                return validate_precomputed(self, X, reset=False, n_kernels=p)[0]
            trained = self.kernel_map_.observed  # type: ignore[attr-defined]
            return precomputed_with_missing(
                self, X, reset=False, n_kernels=p, trained=trained
            )[0]
        X, positions = validate_new(self, X, self._views, self._positions)
        if self.missing == "error":
            return split_views(X, self._views, positions, dtype=self._like.dtype)
        return self._split_with_missing(X, positions, dtype=self._like.dtype)

    def _split_with_missing(
        self, X: Any, positions: list[list[int]], dtype: Any = None
    ) -> ObservedViews:
        """One block a view; single NaN are for views whose kernels impute."""
        partial = [imputes(view.kernel) for view in self._views]
        return split_with_missing(
            X, self._views, positions, partial=partial, dtype=dtype
        )

    def _check_home(self, X: Array, method: str) -> None:
        if not same_home(X, self._like):
            raise ValueError(
                f"Inputs passed to {type(self).__name__}.{method}() must use the same "
                "namespace and the same device as those passed to fit(): it was fitted "
                "on "
                f"{_home(self._like)}, but X is {_home(X)}; move X there, or fit again "
                "where X is"
            )

    def _predict_target(self, X: Any, method: str) -> Array:
        """``sum_i w_i G_i(X) dual_coef``, (m, k); ``method`` is for messages."""
        rows = self._rows(X, method)
        weights = to_numpy(self.kernel_weights_)
        return self.kernel_map_.project(rows, weights, self.dual_coef_)

    def _set_weights(self, weights: np.ndarray) -> None:
        """Set ``kernel_weights_`` (p,) and ``view_weights_`` from those of the bank."""
        weights = self.kernel_map_.spread(weights)
        self.kernel_weights_ = from_numpy(weights, self._like)
        self.view_weights_: dict[str, float] = {}
        for view, weight in zip(self.kernel_map_.view_names, weights, strict=True):
            self.view_weights_[view] = self.view_weights_.get(view, 0.0) + float(weight)

    def _set_certificate(self, certificate: Certificate) -> None:
        self.certificate_ = certificate.with_remarks(self.kernel_map_.remarks)
        if not certificate.converged:
            warnings.warn(
                f"{type(self).__name__}: {certificate.status}",
                KernelWeaveConvergenceWarning,
                stacklevel=4,
            )


def _home(x: Array) -> str:
    library = namespace(x).__name__.removeprefix("array_api_compat.")
    return f"an array of {library} on {device(x)}"

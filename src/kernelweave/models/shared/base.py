"""What all estimators share: reading views, a kernel map, tags, progress."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.callback import CallbackSupportMixin
from sklearn.utils.validation import check_is_fitted

from kernelweave._array import (
    Array,
    device,
    from_numpy,
    is_array,
    namespace,
    same_home,
    to_numpy,
)
from kernelweave.exceptions import KernelWeaveConvergenceWarning
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.maps.sources import Source
from kernelweave.models.shared.certificate import Certificate
from kernelweave.models.shared.fitted import Columns, Trained
from kernelweave.models.shared.parameters import COMMON, check_parameters
from kernelweave.models.shared.progress import Progress
from kernelweave.models.shared.rows import TrainingRows, read_rows, split_observed
from kernelweave.models.shared.transaction import all_or_nothing
from kernelweave.views.composition import ViewsParamsMixin
from kernelweave.views.missing import precomputed_with_missing
from kernelweave.views.precomputed import validate_precomputed
from kernelweave.views.spec import is_precomputed
from kernelweave.views.streams import split_rows, validate_new_rows
from kernelweave.views.validate import split_views, validate_new

__all__ = ["KernelModel"]


class KernelModel(CallbackSupportMixin, ViewsParamsMixin):
    """Base class of all estimators; subclasses add a task and a ``fit``."""

    views: Any
    psd: str
    missing: str = "error"
    features: str = "auto"
    verbose: int
    kernel_map_: Any
    dual_coef_: Array
    feature_coef_: Array

    set_params = all_or_nothing(ViewsParamsMixin.set_params)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        precomputed = is_precomputed(self.views)
        tags.input_tags.pairwise = precomputed
        tags.input_tags.three_d_array = precomputed
        tags.input_tags.allow_nan = self.missing != "error"
        tags.input_tags.sparse = self.features != "auto" and not precomputed
        tags.array_api_support = True
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "kernel_weights_")

    def _open(self, X: Any) -> Source:
        """Validate X and fix the kernel parameters, without computing any kernel."""
        check_parameters(self, COMMON)
        rows = read_rows(self, X)
        self._views, self._positions = rows.views, rows.positions
        return rows.source

    def _fit_bank(self, source: Source, progress: Progress) -> DenseBank:
        """Compute all kernels; sets ``kernel_map_`` and the names."""
        rows = TrainingRows.of(source, self._views, self._positions)
        self.kernel_map_, bank = rows.kernels(self, progress.kernel)
        self.kernel_names_ = list(source.names)
        self._like = rows.like
        return bank

    def _forget(self) -> None:
        """Drop the results of an earlier fit, but keep what is known of the columns."""
        columns = ("n_features_in_", "feature_names_in_")
        results = [n for n in vars(self) if n.endswith("_") and n not in columns]
        for name in (*results, "_portions"):
            self.__dict__.pop(name, None)

    def _rows(self, X: Any, method: str) -> Any:
        """Validate rows at prediction, in the form that ``kernel_map_`` projects."""
        check_is_fitted(self)
        if is_array(X):
            self._check_home(X, method)
        if is_precomputed(self.views):
            p = len(self.kernel_names_)
            if self.missing == "error":
                return validate_precomputed(self, X, reset=False, n_kernels=p)[0]
            trained = self.kernel_map_.observed
            return precomputed_with_missing(
                self, X, reset=False, n_kernels=p, trained=trained
            )[0]
        dtype = self._like.dtype
        if hasattr(self, "feature_coef_"):  # explicit features: sparse rows are fine
            X, positions = validate_new_rows(self, X, self._views, self._positions)
            return split_rows(X, self._views, positions, dtype)
        X, positions = validate_new(self, X, self._views, self._positions)
        if self.missing == "error":
            return split_views(X, self._views, positions, dtype=dtype)
        return split_observed(X, self._views, positions, dtype)

    def _check_home(self, X: Array, method: str) -> None:
        if not same_home(X, self._like):
            raise ValueError(
                f"Inputs passed to {type(self).__name__}.{method}() must use the same "
                "namespace and the same device as those passed to fit(): it was fitted "
                f"on {_home(self._like)}, but X is {_home(X)}; move X there, or fit "
                "again where X is"
            )

    def _predict_target(self, X: Any, method: str) -> Array:
        """``sum_i w_i G_i(X) dual_coef``, (m, k); ``method`` is for messages."""
        rows = self._rows(X, method)
        weights = to_numpy(self.kernel_weights_)
        return self.kernel_map_.project(rows, weights, self._coef)

    @property
    def _coef(self) -> Array:
        """Coefficients of explicit features, if there are any, or of training rows."""
        coef = getattr(self, "feature_coef_", None)
        return self.dual_coef_ if coef is None else coef

    def _set_weights(self, weights: np.ndarray) -> None:
        """Set ``kernel_weights_`` (p,) and ``view_weights_`` from the bank's."""
        weights = self.kernel_map_.spread(weights)
        self.kernel_weights_ = from_numpy(weights, self._like)
        self.view_weights_: dict[str, float] = {}
        for view, weight in zip(self.kernel_map_.view_names, weights, strict=True):
            self.view_weights_[view] = self.view_weights_.get(view, 0.0) + float(weight)

    def _set_trained(self, trained: Trained) -> None:
        """Set the results of a fit, in place of an earlier one."""
        self._forget()
        fitted, choice = trained.fitted, trained.fitted.learned.choice
        self._set_columns(trained.columns)
        self._like = trained.like
        self.kernel_map_ = trained.kernel_map
        self.kernel_names_ = list(trained.kernel_map.names)
        self._set_weights(choice.weights)
        self.alpha_, self.n_iter_ = float(choice.alpha), int(choice.n_iter)
        self.loo_error_ = fitted.loo_error
        if fitted.dual_coef is not None:
            self.dual_coef_ = fitted.dual_coef
        if fitted.feature_coef is not None:
            self.feature_coef_ = fitted.feature_coef
        if trained.report is not None:
            self.features_ = trained.report

    def _set_columns(self, columns: Columns) -> None:
        self._views, self._positions = columns.views, columns.positions
        if columns.noted:
            self.__dict__.pop("feature_names_in_", None)
            self.__dict__.update(columns.noted)

    def _set_portions(self, portions: Any) -> None:
        """Keep the sums over the rows of ``partial_fit`` so far."""
        self._set_columns(portions.intake.columns())
        self._portions = portions

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

"""What all estimators share: views, a kernel map, tags, progress, fits undone."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
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
from kernelweave.kernels.maps.kernel_map import Source
from kernelweave.models.shared.inputs import (
    COMMON,
    TrainingRows,
    check_parameters,
    read_rows,
    split_observed,
)
from kernelweave.models.shared.learner import Columns, Trained
from kernelweave.solvers.certify import Certificate, TraceRow
from kernelweave.views.columns import is_precomputed
from kernelweave.views.composition import ViewsParamsMixin
from kernelweave.views.missing import precomputed_with_missing
from kernelweave.views.precomputed import validate_precomputed
from kernelweave.views.validate import split_views, validate_new

__all__ = [
    "KernelModel",
    "KernelTransformer",
    "Progress",
    "all_or_nothing",
    "fit_method",
]


def all_or_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that changes an estimator completely or, if it fails, not at all.

    A fit sets its attributes one by one; an error, a keyboard interrupt or a warning
    turned into an error would leave a mixture of new and old ones. In that case all of
    them are restored, and so is the state of a ``RandomState`` that was drawn from.
    Saving references is enough: a fit creates new objects and never modifies those of
    an earlier fit.
    """

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        rng = before.get("random_state")
        draws = rng.get_state() if isinstance(rng, np.random.RandomState) else None
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            # A single step without a call, so no second interrupt can come between.
            self.__dict__ = before
            if draws is not None:
                rng.set_state(draws)  # type: ignore[union-attr]
            raise

    return whole


def fit_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """A ``fit`` with scikit-learn's callbacks that leaves no trace if it fails."""
    return all_or_nothing(with_callbacks(method))


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Transformer whose ``fit_transform`` succeeds or fails as a single call."""

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)


class Progress:
    """Report the progress of a fit to callbacks and, if asked, to standard output.

    Parameters
    ----------
    estimator : KernelModel
        The estimator being fitted.
    X, y : array-like
        Passed to the callbacks.
    """

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        self.estimator = estimator
        self.context = estimator._init_callback_context(max_subtasks=None)
        self.context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        self.started = time.perf_counter()

    def kernel(self, index: int) -> None:
        """One more kernel is ready."""
        self._task("kernel", {"kernel": index})
        self.say(2, f"kernel {index} ready")

    def iteration(self, row: TraceRow) -> bool:
        """One more iteration of a solver; True if a callback wants to stop."""
        line = f"iteration {row.iteration}: value {row.value:.8g}"
        if not math.isnan(row.gap):  # a problem that is not convex has no bound
            line += f", lower bound {row.lower_bound:.8g}, gap {row.gap:.1e}"
        self.say(1, line)
        return self._task(
            "iteration",
            {"value": row.value, "lower_bound": row.lower_bound, "gap": row.gap},
        )

    def end(self) -> None:
        """The fit is complete."""
        self.context.call_on_fit_task_end(estimator=self.estimator)

    def say(self, level: int, text: str) -> None:
        """Print a line if ``verbose`` is at least ``level``."""
        if int(self.estimator.verbose) >= level:
            seconds = time.perf_counter() - self.started
            print(f"[{type(self.estimator).__name__} {seconds:7.2f} s] {text}")

    def _task(self, name: str, metadata: dict[str, Any]) -> bool:
        task = self.context.subcontext(task_name=name)
        task.call_on_fit_task_begin(estimator=self.estimator)
        return bool(
            task.call_on_fit_task_end(estimator=self.estimator, metadata=metadata)
        )


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
        explicit = hasattr(self, "feature_coef_")  # explicit features of sparse rows
        X, positions = validate_new(
            self, X, self._views, self._positions, sparse=explicit
        )
        if explicit or self.missing == "error":
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

    def _project_each(self, X: Any, method: str) -> Array:
        """``w_i G_i(X) dual_coef`` of each kernel, (m, p, k), for inspection."""
        rows = self._rows(X, method)
        weights = getattr(self, "class_kernel_weights_", self.kernel_weights_)
        return self.kernel_map_.project_each(rows, to_numpy(weights).T, self._coef)

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

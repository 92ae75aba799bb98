"""What a model has to beat: one view, equal weights, a stack of views, no view."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if

from kernelweave._array import to_numpy
from kernelweave.evaluation.held_out import assign_folds, out_of_fold
from kernelweave.fits.targets import StandardOutputs
from kernelweave.inspection._rows import (
    probabilities,
    rows_by_class,
    without_views,
)
from kernelweave.kernels.maps.kernel_map import NothingVariesError
from kernelweave.models import KernelFDA, MultipleKernelRidge
from kernelweave.views.columns import is_precomputed

#: The name of the model that predicts without any view.
NO_VIEW = "no view"
#: Parameters that the baselines share with the model, if it has them.
SHARED = ("missing", "psd", "class_weight", "priors")
#: Folds inside the training rows from which the stack learns.
STACK_FOLDS = 5
#: Probabilities below this count as this: the logarithm of zero is infinite, and one
#: confident error should not decide the regression.
LEAST_PROBABILITY = 1e-6


def baselines_of(model: Any, names: list[str]) -> dict[str, BaseEstimator]:
    """Unfitted baselines for a classifier or regressor of this package, by name.

    Parameters
    ----------
    model : estimator
        The model.
    names : list of str
        Its views.
    """
    parameters = model.get_params(deep=False)
    shared = {name: parameters[name] for name in SHARED if name in parameters}
    classify = bool(is_classifier(model))
    equal: Any = MultipleKernelRidge(model.views, norm=np.inf, cv=None)
    if classify:
        equal = KernelFDA(model.views, cv=None)
    equal.set_params(**shared)
    none = without_views(classify)
    alone: list[Any] = []
    if is_precomputed(model.views):
        alone = list(range(len(names)))
    elif model.views is not None:
        alone = [view[:3] for view in model.views]
    if len(alone) < 2:
        return {"equal weights": equal, NO_VIEW: none}
    return {
        "best single view": BestView(alone, equal),
        "equal weights": equal,
        "stacking of views": StackedViews(alone, equal),
        NO_VIEW: none,
    }


class _OfViews(BaseEstimator):
    """Models of single views that make one prediction together.

    Parameters
    ----------
    views : list of (name, kernel, columns), or list of int
        The views; numbers are those of precomputed kernels.
    base : estimator
        The estimator that is fitted to each of them.
    """

    def __init__(self, views: Any, base: Any) -> None:
        self.views = views
        self.base = base

    def __sklearn_tags__(self) -> Any:
        return get_tags(self.base)

    @property
    def classify(self) -> bool:
        """Whether the models are classifiers."""
        return bool(is_classifier(self.base))

    @property
    def pairwise(self) -> bool:
        """Whether X holds kernels (m, n, p)."""
        return isinstance(self.views[0], int)

    @property
    def classes_(self) -> np.ndarray:
        """The classes of the model ``last_``, which makes the prediction."""
        return self.last_.classes_

    def _inputs(self, X: Any) -> Any:
        """The input of the model ``last_``."""
        return X

    def predict(self, X: Any) -> Any:
        """Predicted classes or numbers."""
        return self.last_.predict(self._inputs(X))

    @available_if(lambda self: self.classify)
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes."""
        return self.last_.predict_proba(self._inputs(X))

    def _each(self) -> list[OneView]:
        return [
            OneView([view], self.base, place) for place, view in enumerate(self.views)
        ]


class OneView(_OfViews):
    """The model of a single view, fitted to the rows that have it.

    For rows without the view, and for all rows if the view is constant, the prediction
    is the class proportions, or the mean.
    """

    def __init__(self, views: Any, base: Any, place: int) -> None:
        super().__init__(views, base)
        self.place = place

    def fit(self, X: Any, y: Any, has: Any = None, **of_rows: Any) -> Any:
        """Fit to the rows for which ``has`` (n, v) is true in the column ``place``."""
        rows = np.arange(len(y)) if has is None else np.flatnonzero(has[:, self.place])
        self.rows_ = rows
        own = {k: v[rows] for k, v in of_rows.items() if v is not None}
        views = "precomputed" if self.pairwise else self.views
        self.last_ = clone(self.base).set_params(views=views)
        X = X[rows] if self.pairwise else _safe_indexing(X, rows)
        try:
            self.loo_error_ = self.last_.fit(self._inputs(X), y[rows], **own).loo_error_
        except NothingVariesError:
            own.pop("groups", None)
            self.last_ = without_views(self.classify).fit(X, y[rows], **own)
            self.loo_error_ = np.inf
        return self

    def _inputs(self, X: Any) -> Any:
        return X[:, self.rows_, self.views[0]] if self.pairwise else X


class BestView(_OfViews):
    """The view with the smallest leave-one-out error on the training rows."""

    def fit(self, X: Any, y: Any, **of_rows: Any) -> Any:
        """Fit one model per view, and keep the best."""
        models = [model.fit(X, y, **of_rows) for model in self._each()]
        self.last_ = min(models, key=lambda model: model.loo_error_)
        return self


class StackedViews(_OfViews):
    """Logistic or ridge regression on held-out outputs of one model per view.

    The outputs are logarithms of probabilities, or predictions in units of the standard
    deviation of the targets, so that the penalty does not depend on the unit of y.
    Inner folds keep groups together, as the outer ones do. Class weights and priors of
    the models also hold for the logistic regression, which would undo them.
    """

    def fit(self, X: Any, y: Any, **of_rows: Any) -> Any:
        """Fit one model per view, and the regression on held-out outputs."""
        groups = of_rows.get("groups")
        fold, _ = assign_folds(y, STACK_FOLDS, groups, self.classify)
        how: dict[str, Any] = {"pairwise": self.pairwise, "units": groups}
        held = [
            out_of_fold(model, X, y, fold, **how, **of_rows) for model in self._each()
        ]
        shown, weight = fold > 0, of_rows.get("sample_weight")
        last, name, targets = RidgeCV(np.logspace(-3, 3, 13)), "sample_weight", y
        if self.classify:
            last, name = _logistic(), f"logisticregressioncv__{name}"
            weight = rows_by_class(self.base, y, weight)
            inputs = [_logs(one.probability) for one in held]
        else:
            outputs = y.reshape(len(y), -1).astype(float)
            self.outputs_ = StandardOutputs.of(outputs, weight)
            targets = self.outputs_.target.reshape(y.shape)
            inputs = [self._standard(one.predicted) for one in held]
        given = {} if weight is None else {name: weight[shown]}
        self.last_ = last.fit(np.column_stack(inputs)[shown], targets[shown], **given)
        self.models_ = [model.fit(X, y, **of_rows) for model in self._each()]
        self.all_ = np.unique(y)
        return self

    def _inputs(self, X: Any) -> np.ndarray:
        """Outputs of the models of all views, side by side."""
        if not self.classify:
            outputs = [to_numpy(model.predict(X)) for model in self.models_]
            return np.column_stack([self._standard(one) for one in outputs])
        return np.column_stack(
            [_logs(probabilities(model, X, self.all_)) for model in self.models_]
        )

    def _standard(self, predicted: np.ndarray) -> np.ndarray:
        """Predictions (m,) or (m, t) in the units of the regression, (m, t)."""
        rows = predicted.reshape(len(predicted), -1)
        return np.asarray((rows - self.outputs_.mean) / self.outputs_.unit)

    def predict(self, X: Any) -> Any:
        """Predicted classes or numbers."""
        predicted = super().predict(X)
        if self.classify:
            return predicted
        rows = predicted.reshape(len(predicted), -1)
        found = rows * self.outputs_.unit + self.outputs_.mean
        return found.reshape(predicted.shape)


def _logs(proba: Any) -> np.ndarray:
    """Logarithms of probabilities (m, k); for two classes, that of the odds, (m, 1)."""
    logs = np.log(np.clip(proba, LEAST_PROBABILITY, None))
    return logs if logs.shape[1] != 2 else logs[:, 1:] - logs[:, :1]


def _logistic() -> BaseEstimator:
    return make_pipeline(
        StandardScaler(),
        LogisticRegressionCV(
            Cs=np.logspace(-3, 1, 5),
            cv=3,
            scoring="neg_log_loss",
            l1_ratios=(0.0,),
            use_legacy_attributes=False,
            max_iter=2000,
        ),
    )

"""What a model has to beat: one view, equal weights, a stack of views, no view."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave.models import KernelFDA, MultipleKernelRidge
from kernelweave.views.columns import is_precomputed

#: Parameters of the model that its baselines share.
SHARED = ("missing", "psd", "class_weight", "priors")


def baselines_of(model: Any, views: list[Any]) -> dict[str, BaseEstimator]:
    """Unfitted baselines for a classifier or regressor of this package, by name.

    Parameters
    ----------
    model : estimator
        The model, fitted.
    views : list of (name, kernel, columns)
        Its views; empty for precomputed kernels, of which no view can be taken alone.
    """
    classify = is_classifier(model)
    parameters = model.get_params(deep=False)
    shared = {name: parameters[name] for name in SHARED if name in parameters}
    found: dict[str, BaseEstimator] = {}
    if len(views) > 1:
        found["best single view"] = (
            BestViewClassifier(views, shared)
            if classify
            else BestViewRegressor(views, shared)
        )
    everything = model.views if is_precomputed(model.views) or not views else views
    found["equal weights"] = _equal(classify, everything, shared)
    if len(views) > 1:
        each = [(view[0], _equal(classify, [view], shared)) for view in views]
        found["stacking of views"] = (
            StackingClassifier(each, _logistic(), stack_method="decision_function")
            if classify
            else StackingRegressor(each, RidgeCV(np.logspace(-3, 3, 13)))
        )
    found["no view"] = DummyClassifier() if classify else DummyRegressor()
    return found


def _equal(classify: bool, views: Any, shared: dict[str, Any]) -> BaseEstimator:
    """The discriminant or ridge regression on the mean of all kernels."""
    if classify:
        return KernelFDA(views, cv=None, **shared)
    own = {k: v for k, v in shared.items() if k not in ("class_weight", "priors")}
    return MultipleKernelRidge(views, norm=float("inf"), cv=None, **own)


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


class _BestView(BaseEstimator):
    """Our model on the view with the smallest leave-one-out error."""

    def __init__(self, views: Any, shared: dict[str, Any]) -> None:
        self.views = views
        self.shared = shared

    def fit(self, X: Any, y: Any, **of_rows: Any) -> Any:
        models = [
            _equal(is_classifier(self), [view], self.shared).fit(X, y, **of_rows)
            for view in self.views
        ]
        best = min(range(len(models)), key=lambda i: models[i].loo_error_)
        self.best_view_, self.best_ = self.views[best][0], models[best]
        if is_classifier(self):
            self.classes_ = self.best_.classes_
        return self

    def predict(self, X: Any) -> Any:
        return self.best_.predict(X)


class BestViewClassifier(ClassifierMixin, _BestView):
    """See :func:`baselines_of`."""

    def predict_proba(self, X: Any) -> Any:
        return self.best_.predict_proba(X)


class BestViewRegressor(RegressorMixin, _BestView):
    """See :func:`baselines_of`."""

"""A new estimator: ridge regression in which no kernel exceeds its share.

An estimator validates its input, calls the components that do the work, and assigns its
attributes last, so that a failed fit leaves it unchanged. Data pass from views (which
validate and select columns) to a source of kernels, and then through ``KernelMap`` to a
bank of centred kernels of trace n; at prediction, to the same kernels between new rows
and training rows.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.datasets import load_diabetes
from sklearn.utils.validation import check_is_fitted

from kernelweave import CappedSimplex, Fisher, solve
from kernelweave.kernels import KernelMap
from kernelweave.kernels.maps.kernel_map import FeatureSource
from kernelweave.views.columns import (
    parse_views,
    resolve_columns,
    split_views,
    validate_features,
)


class CappedKernelRidge(RegressorMixin, BaseEstimator):
    """``min_w y'(alpha I + sum_i w_i G_i)^-1 y`` over ``sum_i w_i = 1, w_i <= cap``."""

    def __init__(self, views=None, alpha=1.0, cap=0.5):
        self.views = views
        self.alpha = alpha
        self.cap = cap

    def fit(self, X, y):
        """Learn the weights and the coefficients."""
        views = parse_views(self.views)
        X = validate_features(self, X, reset=True)
        positions = resolve_columns(X, views)
        blocks, _ = split_views(X, views, positions)
        source = FeatureSource(views, blocks)
        y = np.asarray(y, dtype=np.float64)
        mean = float(np.mean(y))

        kernel_map = KernelMap(source)
        criterion = Fisher(kernel_map.fit(), (y - mean)[:, None], self.alpha)
        solution = solve(criterion, CappedSimplex(self.cap))

        self._views, self._positions = views, positions
        self.kernel_map_, self.intercept_ = kernel_map, mean
        self.kernel_names_ = kernel_map.names
        self.kernel_weights_ = kernel_map.spread(solution.weights)
        self.dual_coef_ = criterion.evaluate(solution.weights).coef
        self.solution_ = solution
        return self

    def predict(self, X):
        """Predicted targets of new rows, (m,)."""
        check_is_fitted(self)
        X = validate_features(self, X, reset=False)
        rows, _ = split_views(X, self._views, self._positions)
        values = self.kernel_map_.project(rows, self.kernel_weights_, self.dual_coef_)
        return values[:, 0] + self.intercept_


if __name__ == "__main__":
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:200], y[:200]
    views = [("body", "auto", [0, 1, 2, 3]), ("serum", "auto", [4, 5, 6, 7, 8, 9])]
    model = CappedKernelRidge(views, alpha=20.0, cap=0.2).fit(X[:150], y[:150])
    assert model.solution_.converged
    assert np.max(model.kernel_weights_) <= 0.2 + 1e-9
    assert model.score(X[150:], y[150:]) > 0.2
    again = clone(model).set_params(cap=1.0).fit(X[:150], y[:150])
    assert again.solution_.value <= model.solution_.value
    for name, weight in zip(model.kernel_names_, model.kernel_weights_, strict=True):
        print(f"{weight:.3f}  {name}")

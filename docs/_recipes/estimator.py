"""A new estimator: ridge regression in which no kernel exceeds its share.

An estimator reads its rows, calls the components that do the work, and assigns its
attributes last; ``fit_method`` restores the earlier ones if a fit fails. Data pass from
views (which validate and select columns) to a source of kernels, and then through
``KernelMap`` to a bank of centred kernels of trace n; at prediction, to the same
kernels between new rows and training rows. ``KernelModel`` does this for every
estimator, and ``kernelweave.inspection`` reads what it sets.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.datasets import load_diabetes

from kernelweave import CappedSimplex, Certificate, Fisher, solve
from kernelweave.inspection import weights_table
from kernelweave.models.shared.base import KernelModel, Progress, fit_method
from kernelweave.models.shared.inputs import (
    check_parameters,
    positive,
    read_weighted_rows,
)


@dataclass(repr=False, eq=False)
class CappedKernelRidge(RegressorMixin, KernelModel):
    """``min_w y'(alpha I + sum_i w_i G_i)^-1 y`` over ``sum_i w_i = 1, w_i <= cap``."""

    views: Any = None
    _: KW_ONLY
    alpha: float = 1.0
    cap: float = 0.5
    psd: str = "error"
    verbose: int = 0

    @fit_method
    def fit(self, X, y):
        """Learn the weights and the coefficients."""
        check_parameters(self, alpha=positive(), cap=positive())
        rows, outputs, design = read_weighted_rows(self, X, y, None)  # outputs (n, 1)
        progress = Progress(self, X, y, None)
        bank, mean = rows.kernels(progress.kernel), np.mean(outputs, axis=0)

        criterion = self._weight_criterion(bank, outputs, design)
        solution = solve(criterion, self._weight_set, callback=progress.iteration)
        coef = criterion.evaluate(solution.weights).coef  # (n, 1)
        problem = f"ridge regression, weights of at most {self.cap:g}"

        self._set_weights(rows, solution.weights)
        self.n_iter_, self.dual_coef_, self.intercept_ = solution.n_iter, coef, mean
        self._set_certificate(Certificate.of(solution, problem))
        progress.end()
        return self

    @property
    def _weight_set(self):
        return CappedSimplex(self.cap)

    def _weight_criterion(self, bank, outputs, design):
        """The convex problem, which inspection solves again on some of the rows."""
        return Fisher(bank, outputs - np.mean(outputs, axis=0), self.alpha)

    def predict(self, X):
        """Predicted targets of new rows, (m,)."""
        return (self._predict_target(X, "predict") + self.intercept_)[:, 0]


if __name__ == "__main__":
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:200], y[:200]
    views = [("body", "auto", [0, 1, 2, 3]), ("serum", "auto", [4, 5, 6, 7, 8, 9])]
    model = CappedKernelRidge(views, alpha=20.0, cap=0.2).fit(X[:150], y[:150])
    assert model.certificate_.converged
    assert np.max(model.kernel_weights_) <= 0.2 + 1e-9
    assert model.score(X[150:], y[150:]) > 0.2
    again = clone(model).set_params(cap=1.0).fit(X[:150], y[:150])
    assert again.certificate_.value <= model.certificate_.value
    for row in weights_table(model):
        print(f"{row['weight']:.3f}  {row['view']}: {row['kernel']}")

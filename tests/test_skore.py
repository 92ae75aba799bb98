"""The reports of skore work on our estimators."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import MultipleKernelFDA, MultipleKernelRidge

skore = pytest.importorskip("skore", reason="needs skore, of the group 'test'")


@pytest.mark.filterwarnings("ignore")  # of skore, about data and metrics
@pytest.mark.parametrize(
    ("model", "metric"),
    [
        (MultipleKernelFDA(norm=1, alpha=0.1), "accuracy"),
        (MultipleKernelRidge(norm=1, alpha=0.1, cv=None), "r2"),
    ],
    ids=["classification", "regression"],
)
def test_reports(model, metric):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    if metric == "accuracy":
        y = np.where(y > 0, "ill", "well")
    model.set_params(views=[("a", "linear", [0, 1]), ("b", "linear", [2, 3])])
    report = skore.EstimatorReport(
        model, X_train=X[:40], y_train=y[:40], X_test=X[40:], y_test=y[40:]
    )
    wanted = model.fit(X[:40], y[:40]).score(X[40:], y[40:])
    assert getattr(report.metrics, metric)() == pytest.approx(wanted)
    folds = skore.CrossValidationReport(model, X, y, splitter=3)
    assert metric in str(folds.metrics.summarize().frame().index)

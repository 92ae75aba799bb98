"""The table of weights agrees with the model and survives a round trip through CSV."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelweave import (
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    TransductiveKernelSVC,
)
from kernelweave._files import to_csv
from kernelweave.inspection import (
    KernelWeightsDisplay,
    weights_table,
)


def test_rows_are_the_kernels(cancer_model):
    rows = weights_table(cancer_model)
    assert len(rows) == len(cancer_model.kernel_names_) == 18
    for row, name in zip(rows, cancer_model.kernel_names_, strict=True):
        assert f"{row['view']}: {row['kernel']}" == name
    weights = [row["weight"] for row in rows]
    np.testing.assert_array_equal(weights, cancer_model.kernel_weights_)


@pytest.mark.parametrize("norm", [1, 2, float("inf")])
def test_sums(cancer, norm):
    X, y, views = cancer
    rows = weights_table(
        MultipleKernelFDA(views, norm=norm, alpha=0.1, cv=None).fit(X, y)
    )
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    for view, _, _ in views:
        members = [row for row in rows if row["view"] == view]
        total = sum(row["weight"] for row in members)
        assert [row["view_weight"] for row in members] == pytest.approx(
            [total] * len(members)
        )
        share = sum(row["share"] for row in members)
        assert [row["view_share"] for row in members] == pytest.approx(
            [share] * len(members)
        )


@pytest.mark.parametrize(
    "model",
    [
        TransductiveKernelSVC(signed=True),
        MultipleKernelFDA(norm=2, alpha=0.1, scale=None, cv=None),
    ],
    ids=["signed", "unscaled"],
)
def test_shares_add_up_to_those_of_the_views(cancer, model):
    """Also those of negative weights, and of kernels that are not scaled."""
    X, y = cancer[0][:40], np.unique(cancer[1][:40], return_inverse=True)[1]
    kernels = ["linear", "rbf"]
    views = [("a", kernels, [0, 1]), ("b", kernels, [0, 2]), ("c", "linear", [2])]
    model = clone(model).set_params(views=views).fit(X, y)
    assert (np.min(model.kernel_weights_) < 0) == model.signed
    rows = weights_table(model)
    for view, share in model.view_shares_.items():
        own = sum(row["share"] for row in rows if row["view"] == view)
        assert own == pytest.approx(share)


def test_precomputed_kernels_are_their_own_views(wine):
    X, y = wine
    stack = np.stack([np.outer(x, x) for x in X.T[:4]], axis=2)
    model = KernelFDA("precomputed", cv=None).fit(stack, y)
    rows = weights_table(model)
    assert [row["kernel"] for row in rows] == model.kernel_names_
    assert [row["view"] for row in rows] == model.kernel_names_


def test_regression(wine):
    X, _ = wine
    rows = weights_table(
        MultipleKernelRidge(alpha=0.1, norm=2, cv=None).fit(X[:, 1:], X[:, 0])
    )
    assert {row["view"] for row in rows} == {"all"}


def test_looks_into_pipelines_and_searches(wine):
    X, y = wine
    pipe = make_pipeline(
        StandardScaler(), MultipleKernelFDA(alpha=0.1, norm=1, cv=None)
    )
    search = GridSearchCV(pipe, {"multiplekernelfda__alpha": [0.1]}, cv=2).fit(X, y)
    rows = weights_table(search)
    inner = search.best_estimator_[-1]
    assert [row["weight"] for row in rows] == list(inner.kernel_weights_)


def test_csv(cancer_model, tmp_path):
    rows = weights_table(cancer_model)
    to_csv(rows, tmp_path / "weights.csv")
    with open(tmp_path / "weights.csv", newline="", encoding="utf-8") as file:
        back = list(csv.DictReader(file))
    columns = ["view", "kernel", "weight", "share", "view_weight", "view_share"]
    assert list(back[0]) == columns
    assert [float(row["weight"]) for row in back] == [row["weight"] for row in rows]
    assert [row["kernel"] for row in back] == [row["kernel"] for row in rows]


def test_refusals(wine, tmp_path):
    X, y = wine
    with pytest.raises(NotFittedError):
        weights_table(MultipleKernelFDA(cv=None))
    with pytest.raises(TypeError, match=r"got SVC, which has no kernel weights"):
        weights_table(SVC().fit(X, y))
    with pytest.raises(ValueError, match="no rows to write"):
        to_csv([], tmp_path / "weights.csv")


def test_few_rows_and_many_views_are_not_to_be_interpreted(rng):
    """Said once, in the certificate, and so by the command line, and by the plots."""
    X, y = rng.normal(size=(30, 50)), np.arange(30) % 2
    views = [(f"v{j}", "linear", [j]) for j in range(50)]
    model = MultipleKernelFDA(views, norm=1, alpha=0.1, cv=None).fit(X, y)
    assert "50 views and only 30 rows: the weights should not be interpreted" in str(
        model.certificate_
    )
    display = KernelWeightsDisplay.from_estimator(model)
    assert "do not interpret the weights" in display.ax_.get_title(loc="left")
    few = MultipleKernelFDA(views[:6], norm=1, alpha=0.1, cv=None).fit(X, y)
    assert "interpreted" not in str(few.certificate_)
    even = MultipleKernelFDA(views, norm=float("inf"), alpha=0.1, cv=None).fit(X, y)
    assert "interpreted" not in str(even.certificate_)
    mixture = MixtureKDA(views[:8], noise=0.1).fit(X, y)
    assert "8 views and only 30 rows" in str(mixture.certificate_)

"""The recipes that CONTRIBUTING.md points to run as they stand."""

from __future__ import annotations

import ast
import pathlib
import runpy
import sys

import numpy as np
import pytest
from sklearn.base import RegressorMixin
from sklearn.utils import estimator_checks

from kernelweave import inspection
from kernelweave._sklearn import BaseEstimator
from kernelweave.evaluation import evaluate
from kernelweave.report import write_report

ROOT = pathlib.Path(__file__).parents[1]
RECIPES = sorted((ROOT / "docs" / "_recipes").glob("*.py"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe(recipe, monkeypatch):
    """Each recipe checks its own claims with assertions, without optional packages."""
    for extra in ("clarabel", "cvxpy"):
        monkeypatch.setitem(sys.modules, extra, None)
    runpy.run_path(str(recipe), run_name="__main__")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipes_use_public_names_only(recipe):
    for node in ast.walk(ast.parse(recipe.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and "kernelweave" in str(node.module):
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
            assert not [name for name in names if name.startswith("_")]


def test_contributing_names_every_recipe():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert {path.stem for path in RECIPES} == {
        "criterion",
        "estimator",
        "kernel",
        "paper",
        "solver",
        "weight_set",
    }
    for path in RECIPES:
        assert f"docs/_recipes/{path.name}" in text


@pytest.fixture
def capped():
    """The estimator of the recipe, with rows (40, 5) and targets (40,)."""
    recipe = runpy.run_path(str(ROOT / "docs" / "_recipes" / "estimator.py"))
    X = np.random.default_rng(0).normal(size=(40, 5))
    views = [("a", "linear", [0, 1]), ("b", "linear", [2, 3])]
    return recipe["CappedKernelRidge"](views, cap=0.8), X, X[:, 0] + X[:, 2] / 2


def test_a_failed_fit_leaves_the_estimator_of_the_recipe_unchanged(capped):
    model, X, y = capped
    before = model.fit(X, y).predict(X)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        model.fit(X[:, :4], np.full(40, np.nan))
    assert model.n_features_in_ == 5
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    "check",
    ["estimator_sparse_tag", "supervised_y_2d", "fit2d_1sample", "requires_y_none"],
)
def test_the_estimator_of_the_recipe_reads_rows_like_our_own(capped, check):
    """Checks of scikit-learn that an estimator with a reader of its own would fail."""
    model = capped[0].set_params(views=None, cap=1.0)
    getattr(estimator_checks, f"check_{check}")("CappedKernelRidge", model)


def test_the_estimator_of_the_recipe_can_be_inspected_and_judged(capped):
    model, X, y = capped
    model.fit(X, y)
    shares = model.view_shares_
    assert [row["view_share"] for row in inspection.weights_table(model)] == [
        pytest.approx(shares[view]) for view in "ab"
    ]
    found = inspection.contributions(model, X)
    total = found.parts.sum(axis=1) + found.intercept
    np.testing.assert_allclose(total, model.predict(X))
    inspection.view_permutation_importance(model, X, y)
    score = evaluate(model.set_params(cap=1.0), X, y, cv=2).table[0]["score"]
    assert score > 0.3  # measured: 0.94
    for row in inspection.weight_ranges(model.set_params(cap=0.9).fit(X, y), X, y):
        assert row["low"] <= row["weight"] <= row["high"] <= 0.9 + 1e-6
    assert inspection.view_pvalues(model, X, y, n_decoys=4).keys() == {"a", "b"}


class WithWeights(RegressorMixin, BaseEstimator):
    """Has kernel weights, but none of what the estimators of the package share."""

    views = None

    def fit(self, X, y):
        self.kernel_weights_ = np.ones(1)
        return self


@pytest.mark.parametrize(
    "use",
    [
        lambda model, X, y, path: inspection.contributions(model, X),
        lambda model, X, y, path: inspection.weights_table(model),
        lambda model, X, y, path: inspection.weight_ranges(model, X, y),
        lambda model, X, y, path: evaluate(model, X, y),
        lambda model, X, y, path: write_report(model, X, y, path / "page.html"),
    ],
    ids=["contributions", "weights_table", "weight_ranges", "evaluate", "report"],
)
def test_a_model_with_kernel_weights_alone_is_refused(use, tmp_path):
    X = np.eye(4)
    match = "got WithWeights.* derive.*base.KernelModel"
    with pytest.raises(TypeError, match=match):
        use(WithWeights().fit(X, X[0]), X, X[0], tmp_path)

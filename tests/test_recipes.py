"""The recipes that CONTRIBUTING.md points to run as they stand."""

from __future__ import annotations

import pathlib
import runpy

import pytest

ROOT = pathlib.Path(__file__).parents[1]
RECIPES = sorted((ROOT / "docs" / "_recipes").glob("*.py"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe(recipe):
    """Each recipe checks its own claims with assertions."""
    runpy.run_path(str(recipe), run_name="__main__")


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

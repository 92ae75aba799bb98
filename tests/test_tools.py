"""The tools of the make targets use the versions that pyproject.toml names."""

from __future__ import annotations

import pathlib
import re
import tomllib

import numpy as np
import pytest
from packaging.requirements import Requirement

import rounding
from lower_bounds import lower_bounds

ROOT = pathlib.Path(__file__).parents[1]
HOOKS = ROOT / ".pre-commit-config.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOOLS = PROJECT["dependency-groups"]["lint"]
#: The repository of a tool, or one that mirrors its releases, and the pinned release.
PINNED = re.compile(r"repo: \S*/(?:mirrors-)?([a-z]+)(?:-pre-commit)?\n +rev: v(\S+)")


@pytest.mark.skipif(not HOOKS.exists(), reason="no hooks in a source distribution")
@pytest.mark.parametrize("tool", TOOLS)
def test_hook_agrees_with_make_lint(tool):
    text = HOOKS.read_text(encoding="utf-8")
    wanted, pinned = Requirement(tool), dict(PINNED.findall(text))
    if wanted.name in pinned:
        assert pinned[wanted.name] in wanted.specifier
    else:
        assert f'additional_dependencies: ["{tool}"]' in text


def test_every_requirement_has_a_lower_bound():
    """These are what "make test-minimum" installs."""
    found = lower_bounds(PROJECT)
    for requirement in map(Requirement, PROJECT["project"]["dependencies"]):
        assert found[requirement.name] in requirement.specifier
    assert {"dask[array,dataframe]", "skops", "pytest"} <= set(found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_rounding_changes_all_entries_by_little_and_repeatably(layout, dtype):
    """This is what "make test-rounding" does to the results of linear algebra."""
    values = np.random.default_rng(0).normal(size=(50, 60)).astype(dtype)

    def moved(seed):
        wide = np.repeat(values, 2, axis=1)
        found = wide[:, ::2] if layout == "strided" else values.copy(order=layout)
        rounding.move(found, seed)
        return found

    change = np.abs(moved(1) / values - 1.0) / np.finfo(dtype).eps
    # small changes are lost in rounding, which also adds to the others
    assert np.mean(change > 0) > 0.5
    assert np.max(change) <= rounding.UNITS + 1.0
    np.testing.assert_array_equal(moved(1), moved(1))
    assert np.any(moved(1) != moved(2))

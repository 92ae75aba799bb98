"""The tools of the make targets use the versions that pyproject.toml names."""

from __future__ import annotations

import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement

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

"""The pre-commit hooks are the tools of ``make lint``, in versions it allows."""

from __future__ import annotations

import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).parents[1]
HOOKS = ROOT / ".pre-commit-config.yaml"
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "dependency-groups"
]["lint"]
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

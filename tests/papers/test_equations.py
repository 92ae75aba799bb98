"""The page of equations lists all of them, and every name on it exists."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re

import pytest

import kernelweave
import reproduce

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "papers" / "equations.md"
#: How many numbered equations each paper has.
LAST = {"2002": 14, "2007": 41, "2008": 40, "2009, l2": 21, "2009, mixture": 28}
ROW = re.compile(r"^\| ([\d, ]+) \| .* \| (.*) \|$", re.MULTILINE)


def sections():
    """The equations and the names of each paper."""
    _, *parts = PAGE.read_text(encoding="utf-8").split("\n## ")
    return dict(zip(LAST, parts, strict=True))


def found(name):
    """The object of a name: of the papers, or else of the package, dotted or not."""
    value = reproduce if name.startswith("reproduce.") else kernelweave
    module = value.__name__
    for part in name.removeprefix(f"{module}.").split("."):
        module = f"{module}.{part}"
        if not hasattr(value, part):
            value = importlib.import_module(module)
        else:
            value = getattr(value, part)
    return value


@pytest.mark.parametrize("paper", LAST)
def test_every_equation_is_listed_once(paper):
    rows = ROW.findall(sections()[paper])
    numbers = [int(number) for cell, _ in rows for number in cell.split(",")]
    assert sorted(numbers) == list(range(1, LAST[paper] + 1))


@pytest.mark.parametrize("paper", LAST)
def test_every_name_exists(paper):
    names = [
        name
        for _, cell in ROW.findall(sections()[paper])
        for name in re.findall(r"`([^`]+)`", cell)
    ]
    assert names
    for name in names:
        path, _, settings = name.partition("(")
        parameters = inspect.signature(found(path)).parameters
        for parameter in re.findall(r"(\w+)=", settings):
            assert parameter in parameters, name

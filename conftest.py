"""For the tests and the examples in docstrings: no figure outlives its test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    if plt := sys.modules.get("matplotlib.pyplot"):
        plt.close("all")

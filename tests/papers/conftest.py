"""Make the fake paper importable, also in other processes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    sys.modules.pop("fake", None)
    return importlib.import_module("fake")

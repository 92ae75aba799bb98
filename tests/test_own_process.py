"""Imports and fits open no socket, and memory that ends leaves models as they were.

Saving and loading open none either: see ``test_files.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from own_process import NAMES


@pytest.fixture(scope="module")
def report():
    """The lines that the process prints, each split into words."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the limit of the address space is one of Linux")
    settings = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",  # arrays are not made of freed memory
    }
    done = subprocess.run(
        [sys.executable, "own_process.py"],
        env={**os.environ, **settings},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_importing_and_fitting_connects_to_nothing(report):
    """The process would have ended with an error."""
    assert report[0][0] == "imported"
    assert int(report[0][1]) > 100


def test_memory_that_ends_leaves_no_trace(report):
    """A limit of the operating system, met by arrays and the workspace of LAPACK."""
    errors = {name: found for name, *found in report[1:]}
    assert tuple(errors) == NAMES
    assert all("MemoryError" in found for found in errors.values())

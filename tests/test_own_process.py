"""Sockets, memory that ends, and scikit-learn's checks of arrays of other libraries.

Saving and loading open no socket either: see ``test_files.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from estimators import ONE_EACH
from own_process import LIBRARIES, LINUX, NAMES


@pytest.fixture(scope="module")
def report():
    """What the process prints: a word, and the lines that begin with it, in words."""
    settings = {
        "SCIPY_ARRAY_API": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",  # arrays are not made of freed memory
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "own_process.py"],
        env={**os.environ, **settings},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = defaultdict(list)
    for line in done.stdout.splitlines():
        first, *others = line.split()
        lines[first].append(others)
    return lines


@pytest.fixture
def libraries():
    for library in LIBRARIES:
        pytest.importorskip(library)


def test_importing_and_fitting_connects_to_nothing(report):
    """The process would have ended with an error."""
    ((number,),) = report["imported"]
    assert int(number) > 100


@pytest.mark.skipif(not LINUX, reason="the limit of the address space is one of Linux")
def test_memory_that_ends_leaves_no_trace(report):
    """A limit of the operating system, met by arrays and the workspace of LAPACK."""
    errors = {name: found for name, *found in report["starved"]}
    assert tuple(errors) == NAMES
    assert all("MemoryError" in found for found in errors.values())


def test_scikit_learn_array_api_checks(libraries, report):
    assert not report["failed"]
    counts = {name: int(count) for name, count in report["checked"]}
    assert tuple(counts) == ONE_EACH
    assert all(counts.values())


def test_array_api_dispatch_switched_on(libraries, report):
    assert report["dispatched"]

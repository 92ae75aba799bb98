"""How much memory is free, and the error raised when it is not enough."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kernelweave import _array
from kernelweave.exceptions import MemoryRefusedError


def test_free_memory_is_plausible(xp_backend):
    for like in (None, xp_backend.asarray(np.ones(2))):
        free = _array.available_bytes(like)
        if free is None:
            pytest.skip("free memory cannot be measured on this system")
        assert isinstance(free, int)
        assert 2**20 < free < 2**50


def test_smallest_limit_counts(monkeypatch):
    for proc, cgroup, own, expected in [
        (100, 50, None, 50),
        (100, None, 30, 30),
        (100, 200, 300, 100),
        (None, None, None, None),
    ]:
        monkeypatch.setattr(_array, "_from_proc", lambda value=proc: value)
        monkeypatch.setattr(_array, "_from_cgroup", lambda value=cgroup: value)
        monkeypatch.setattr(_array, "_from_rlimit", lambda value=own: value)
        assert _array.available_bytes() == expected


def test_limit_of_this_process_counts():
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = _array._from_rlimit()
    assert before is None or before >= 0
    limit = 2**44
    if hard not in (resource.RLIM_INFINITY, -1) and hard < limit:
        pytest.skip("the limit of this process cannot be set that high")
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        found = _array._from_rlimit()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    if Path("/proc/self/statm").exists():
        assert 0 < found < limit
    else:
        assert found is None


def test_memory_of_a_gpu_is_its_own(monkeypatch):
    """Free, or reserved by the library without being in use."""
    torch = pytest.importorskip("torch")
    known = {"mem_get_info": (70, 100), "memory_reserved": 20, "memory_allocated": 5}
    for name, value in known.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(runtime=SimpleNamespace(memGetInfo=lambda: (70, 100))),
        get_default_memory_pool=lambda: SimpleNamespace(free_bytes=lambda: 7),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    there = SimpleNamespace(is_cuda=True, device="cuda:0")
    for library, expected in (("torch", 85), ("cupy", 77)):
        with monkeypatch.context() as patch:
            patch.setattr(_array.compat, f"is_{library}_array", lambda x: x is there)
            assert _array.available_bytes(there) == expected


def test_refusal_names_the_numbers(monkeypatch):
    monkeypatch.setattr(_array, "_host_bytes", lambda: 3 * 2**30)
    with pytest.raises(MemoryRefusedError) as caught:
        _array.require_memory(5 * 2**30, "a bank", "use fewer kernels")
    assert str(caught.value) == (
        "a bank needs 5,368,709,120 bytes (5.0 GiB), but 3,221,225,472 bytes (3.0 GiB) "
        "are free; use fewer kernels"
    )
    assert isinstance(caught.value, MemoryError)


@pytest.mark.parametrize("free", [None, 5, 6])
def test_enough_memory_or_an_unknown_amount_passes(monkeypatch, free):
    monkeypatch.setattr(_array, "_host_bytes", lambda: free)
    assert _array.require_memory(5, "a bank", "use fewer kernels") is None

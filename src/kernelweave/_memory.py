"""Memory: how much there is, and large matrices processed a few rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import array_api_compat as compat

from kernelweave.exceptions import MemoryRefusedError


def available_bytes(like: Any = None) -> int | None:
    """Free memory on the device of ``like``, in bytes; None if it is unknown."""
    if like is not None and compat.is_torch_array(like) and like.is_cuda:
        import torch

        free, _ = torch.cuda.mem_get_info(like.device)
        reserved = torch.cuda.memory_reserved(like.device)
        return int(free + reserved - torch.cuda.memory_allocated(like.device))
    if like is not None and compat.is_cupy_array(like):
        import cupy

        free, _ = cupy.cuda.runtime.memGetInfo()
        return int(free + cupy.get_default_memory_pool().free_bytes())
    return _host_bytes()


def require_memory(n_bytes: int, purpose: str, advice: str, like: Any = None) -> None:
    """Refuse a request that would not fit, stating the sizes; allocate nothing."""
    available = available_bytes(like)
    if available is not None and n_bytes > available:
        raise MemoryRefusedError(
            f"{purpose} needs {n_bytes:,} bytes ({n_bytes / 2**30:.1f} GiB), but "
            f"{available:,} bytes ({available / 2**30:.1f} GiB) are free; {advice}"
        )


def _host_bytes() -> int | None:
    """Free host memory: the machine's, or this process's own limit if smaller."""
    limits = [_from_proc(), _from_cgroup(), _from_rlimit()]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _from_proc() -> int | None:
    with suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _from_cgroup() -> int | None:
    with suppress(OSError, ValueError):
        limit, used = (
            int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii"))
            for name in ("memory.max", "memory.current")
        )
        return max(limit - used, 0)
    return None


def _from_rlimit() -> int | None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
            return max(soft - int(pages) * resource.getpagesize(), 0)
    return None


#: A block of a few megabytes: large enough for BLAS, small next to a kernel matrix.
CHUNK_ENTRIES = 2**20
#: A block that stays in cache while several operations are applied to it.
CACHE_ENTRIES = 2**16
#: A block for a GPU, where every operation has a fixed price.
GPU_ENTRIES = 2**26


def is_on_gpu(x: Any) -> bool:
    """Whether the array ``x`` is in the memory of a graphics card."""
    return bool(compat.is_cupy_array(x) or (compat.is_torch_array(x) and x.is_cuda))


def block_entries(like: Any, host: int = CHUNK_ENTRIES) -> int:
    """Entries of a block of an array like this: ``host``, or many more on a GPU."""
    return GPU_ENTRIES if is_on_gpu(like) else host


def row_chunks(
    n_rows: int, row_size: int, entries: int | None = None
) -> Iterator[slice]:
    """Slices of ``range(n_rows)`` with about ``entries`` entries each.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    row_size : int
        Number of entries in one row.
    entries : int, optional
        Target number of entries per slice; ``CHUNK_ENTRIES`` by default.

    Yields
    ------
    rows : slice
        Consecutive ranges that together cover every row once.
    """
    step = max(1, (entries or CHUNK_ENTRIES) // max(1, row_size))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Begin the message of any TypeError or ValueError with ``prefix``."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not prefix:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{prefix}{error}") from error


def numbered(start: int) -> AbstractContextManager[None]:
    """Prefix error messages with the first row of the portion, unless it is row 0."""
    text = f"In the portion that starts at row {start:,} (row numbers below count from "
    return prefixed(f"{text}there): " if start else "")

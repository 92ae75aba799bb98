"""What the benchmarks on a GPU need from torch and CuPy, and how they run."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Section, environment, save


@dataclass(frozen=True)
class Backend:
    """One array library on one device."""

    name: str
    machine: str
    versions: dict[str, str]
    #: ``asarray(numpy array, dtype name)``.
    asarray: Callable[[np.ndarray, str], Any]
    #: ``empty(shape, dtype name)``.
    empty: Callable[[tuple[int, ...], str], Any]
    #: ``product(X, out)`` sets ``out`` to ``X X'`` without a temporary.
    product: Callable[[Any, Any], Any]
    to_numpy: Callable[[Any], np.ndarray]
    synchronize: Callable[[], Any]
    reset_peak: Callable[[], Any]
    #: Bytes at the peak since the last ``reset_peak``.
    peak: Callable[[], float]
    #: Give unused memory back to the device.
    free: Callable[[], Any]

    def clocked(self, task: Callable[[], Any], repeats: int) -> tuple[list[float], Any]:
        """Elapsed seconds of each repeat, after the device has finished, and a result.

        :attr:`peak` is then that of the last repeat.
        """
        seconds, result = [], None
        for _ in range(repeats):
            result = None  # free its memory before the next one
            self.free()
            self.reset_peak()
            self.synchronize()
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = task()
            self.synchronize()
            seconds.append(time.perf_counter() - started)
        return seconds, result


#: A library, a function of a section and the library, and its further arguments.
Case = tuple[Backend, Callable[..., None], tuple[Any, ...]]


def device_record(backends: Iterable[Backend]) -> dict[str, Any]:
    """The record of the machine, with the device and its libraries."""
    place = environment()
    for backend in backends:
        place["machine"] = backend.machine
        place["versions"] |= backend.versions
    return {"environment": place}


def run_cases(section: Section, cases: Iterable[Case], out: Path) -> None:
    """Run all cases, and write the results after each of them."""
    used = []
    for backend, case, arguments in cases:
        name = f"{backend.name} {case.__name__} {arguments}"
        started = time.perf_counter()
        try:
            case(section, backend, *arguments)
        except Exception as error:  # one failed case must not cost the others
            section.remarks.append(f"{name}: {type(error).__name__}: {error}")
        backend.free()
        print(f"{name}: {time.perf_counter() - started:.1f} s", flush=True)
        used.append(backend)
        save(out, dataclasses.asdict(section) | device_record(used))
    for row in section.rows:
        print(*row, sep=" | ")
    for line in (*section.checks, *section.remarks):
        print(line)


def torch_backend(device: str) -> Backend | None:
    """torch on ``device``, or None if that is a GPU and there is none."""
    import torch

    on_gpu = device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        return None
    nothing: Callable[[], Any] = lambda: None  # noqa: E731
    return Backend(
        name="torch",
        machine=torch.cuda.get_device_name() if on_gpu else "CPU (a trial run)",
        versions={"torch": torch.__version__},
        asarray=lambda x, dtype: torch.asarray(
            x, dtype=getattr(torch, dtype), device=device
        ),
        empty=lambda shape, dtype: torch.empty(
            shape, dtype=getattr(torch, dtype), device=device
        ),
        product=lambda x, out: torch.matmul(x, x.T, out=out),
        to_numpy=lambda x: x.detach().cpu().numpy(),
        synchronize=torch.cuda.synchronize if on_gpu else nothing,
        reset_peak=torch.cuda.reset_peak_memory_stats if on_gpu else nothing,
        peak=torch.cuda.max_memory_allocated if on_gpu else lambda: float("nan"),
        free=torch.cuda.empty_cache if on_gpu else nothing,
    )


def cupy_backend() -> Backend | None:
    """CuPy on the current GPU, or None if it is unavailable."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # not installed, or no driver: each has its own error
        print(f"gpu: CuPy is left out ({type(error).__name__}: {error})")
        return None
    pool = cupy.get_default_memory_pool()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return Backend(
        name="cupy",
        machine=name,
        versions={"cupy": cupy.__version__},
        asarray=lambda x, dtype: cupy.asarray(x, dtype=dtype),
        empty=lambda shape, dtype: cupy.empty(shape, dtype=dtype),
        product=lambda x, out: cupy.matmul(x, x.T, out=out),
        to_numpy=cupy.asnumpy,
        synchronize=cupy.cuda.Device().synchronize,
        reset_peak=pool.free_all_blocks,
        peak=lambda: float(pool.total_bytes()),
        free=pool.free_all_blocks,
    )

"""Peak memory of a fit, in n x n arrays beyond the kernel bank."""

from __future__ import annotations

import resource
import sys
import tracemalloc
from typing import Any

import numpy as np
from harness import Section, answer, in_own_process

P, REQUIRED = 10, 4.0
SETTINGS: dict[str, dict[str, Any]] = {
    'norm=1, alpha="learn", cv=None': {"norm": 1, "alpha": "learn", "cv": None},
    "default, cv=None": {"cv": None},
    "default": {},
}


def run(quick: bool = False) -> Section:
    """Every setting in its own process."""
    n = 1000 if quick else 2000
    # Freed arrays go back to the system at once; otherwise reuse is a matter of luck.
    allocator = {"MALLOC_MMAP_THRESHOLD_": 2**20}
    section = Section(
        "Peak memory of a fit",
        f"n = {n}, p = {P} Gaussian kernels, ten classes, each fit in its own "
        "process. The table shows the peak memory, minus what the process held "
        "before the fit (including, for precomputed kernels, the user's stack), "
        f"minus the bank of {P} n x n matrices, in units of one n x n matrix of "
        "doubles (8 n^2 bytes). Arrays: the peak seen by tracemalloc, which covers "
        "all NumPy arrays. Process: the growth of the resident set, which includes "
        "LAPACK's and BLAS's own buffers (with MALLOC_MMAP_THRESHOLD_ at 1 MiB; by "
        "default glibc keeps freed arrays for reuse, which can add about one n x n "
        "matrix). The folds behind `cv_score_` copy the kernels between four fifths of "
        f"the rows, which is {0.64 * P:.1f} such matrices; `cv=None` leaves them out.",
        ["kernels", "setting", "arrays", "process", "allowed"],
    )
    for kernels in ("features", "precomputed"):
        for setting in SETTINGS:
            peaks = [
                in_own_process(__file__, kernels, setting, n, how, **allocator)
                for how in ("arrays", "process")
            ]
            beyond = [(peak / (8 * n * n)) - P for peak in peaks]
            section.rows.append(
                [kernels, setting, f"{beyond[0]:.2f}", f"{beyond[1]:.2f}", REQUIRED]
            )
            section.check(
                f"peak memory, {kernels}, {setting}",
                f"bank + {beyond[0]:.1f} (arrays), + {beyond[1]:.1f} (process)",
                f"bank + {REQUIRED:.0f}",
                max(beyond) <= REQUIRED + 0.1,
            )
    return section


def _child(kernels: str, setting: str, n: int, how: str) -> float:
    """Peak bytes of one fit beyond those held before it."""
    from problems import gaussians, ten_classes, widths_around_median

    from kernelweave import MultipleKernelFDA
    from kernelweave.kernels import RBF

    X, y = ten_classes(n)
    widths = widths_around_median(X, P)
    # A first fit on few rows loads modules and allocates BLAS's buffers.
    few = slice(0, 200)
    if kernels == "features":
        views: Any = [
            ("all", [RBF(gamma=float(1 / s**2)) for s in widths], slice(0, 20))
        ]
        data, small = X, X[few]
    else:
        views = "precomputed"
        data = np.empty((n, n, P))
        for i, sigma in enumerate(widths):
            data[:, :, i] = gaussians(X, X, [np.arange(20)], np.array([sigma]))[0]
        small = np.ascontiguousarray(data[few, few, :])
    model = MultipleKernelFDA(views, **SETTINGS[setting])
    model.fit(small, y[few])
    if how == "arrays":
        tracemalloc.start()
        model.fit(data, y)
        return float(tracemalloc.get_traced_memory()[1])
    before = _resident()
    _reset_peak()
    model.fit(data, y)
    return _peak() - before


def _resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return float(file.read().split()[1]) * resource.getpagesize()


def _reset_peak() -> None:
    """Reset the recorded peak of the process (Linux)."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


if __name__ == "__main__":
    kernels, setting, n, how = sys.argv[2:]
    answer(_child(kernels, setting, int(n), how))

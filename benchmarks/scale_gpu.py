"""One pass over a million rows on a GPU, streamed from host memory, solve included.

``benchmarks/scale_gpu.py [--out FILE] [--rows N] [--device cuda]``: a whole
``MultipleKernelFDA.fit`` from rows in host memory with ``device=``, in float64 and
float32, with torch and, if it is installed, CuPy. A small problem is first compared
with NumPy.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from gpu_backends import Backend, cupy_backend, torch_backend
from harness import RESULTS, Section, environment

from kernelweave import MultipleKernelFDA
from kernelweave.kernels import RBF

COLUMNS, VIEWS, CLASSES, FEATURES = 20, 10, 10, 5000
#: Seconds allowed for 1e6 rows at D = 5,000 in float64.
ALLOWED = 3.0
#: Largest relative difference from NumPy.
AGREEMENT = {"float64": 1e-6, "float32": 1e-2}


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping classes in twenty columns, X (n, 20) and codes (n,)."""
    rng = np.random.default_rng(0)
    codes = np.arange(n) % CLASSES
    centres = rng.normal(size=(CLASSES, COLUMNS))
    return rng.normal(size=(n, COLUMNS)) + centres[codes], codes


def make_model(features: str, width: int, device: str | None) -> MultipleKernelFDA:
    """Ten Gaussian views of two columns."""
    views = [(f"v{i}", RBF(), [2 * i, 2 * i + 1]) for i in range(VIEWS)]
    return MultipleKernelFDA(
        views, norm=1, alpha="learn", features=features, n_features=width, device=device
    )


def agreement(section: Section, backend: Backend, device: str, n: int) -> None:
    """Compare the same fit by NumPy and on the device."""
    X, codes = rows(n)
    for features in ("random", "nystroem"):
        here = make_model(features, 40, None).fit(X, codes)
        for dtype, allowed in AGREEMENT.items():
            there = make_model(features, 40, device).fit(X.astype(dtype), codes)
            off = abs(there.certificate_.value / here.certificate_.value - 1)
            same = np.mean(there.predict(X.astype(dtype)) == here.predict(X))
            section.check(
                f"{backend.name} agrees with NumPy, {features}, {dtype}, n = {n:,}: "
                "value; same labels",
                f"{off:.0e}; {100 * same:.2f} %",
                f"{allowed:.0e}",
                off <= allowed,
            )


def whole_fit(
    section: Section,
    backend: Backend,
    case: tuple[str, str],
    data: tuple[np.ndarray, np.ndarray],
    settings: tuple[str, int],
    repeats: int,
) -> None:
    """Seconds of fits from rows in host memory, after a warm-up fit."""
    features, dtype = case
    device, total = settings
    X, codes = data
    X = X.astype(dtype)
    width = total // VIEWS
    make_model(features, width, device).fit(X[:40_000], codes[:40_000])
    backend.reset_peak()
    seconds, model = [], None
    for _ in range(repeats):
        backend.synchronize()
        started = time.perf_counter()
        model = make_model(features, width, device).fit(X, codes)
        backend.synchronize()
        seconds.append(time.perf_counter() - started)
    assert model is not None
    middle = float(np.median(seconds))
    accuracy = 100 * float(np.mean(model.predict(X[:20_000]) == codes[:20_000]))
    section.rows.append(
        [
            backend.name,
            features,
            len(X),
            model.features_.n_features,
            dtype,
            middle,
            model.n_iter_,
            f"{model.certificate_.gap:.0e}",
            f"{backend.peak() / 1e9:.1f}",
            f"{accuracy:.1f}",
        ]
    )
    section.remarks.append(
        f"{backend.name}, {features}, {dtype}: repeats "
        + ", ".join(f"{value:.2f}" for value in seconds)
        + f" s; certified value {model.certificate_.value:.8g}; jitter and kernel "
        f"error: {'; '.join(model.certificate_.remarks)[:300]}"
    )
    if backend.name == "torch" and (features, dtype) == ("random", "float64"):
        section.check(
            f"{len(X):,} rows at D = {total:,}, streamed from host memory, solve and "
            "certificate included",
            f"{middle:.2f} s",
            f"{ALLOWED} s",
            middle <= ALLOWED and model.certificate_.converged,
        )


def main() -> int:
    """Run all cases and write the results after each of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS / "scale_gpu.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch = torch_backend(options.device)
    if torch is None:
        print("scale_gpu: skipped, no CUDA device (try --device cpu --rows 20000)")
        return 0
    section = Section(
        "A million rows through a GPU",
        f"{COLUMNS} columns, {VIEWS} Gaussian views of two columns, {CLASSES} "
        "classes, rows in host memory, sent in chunks; a whole fit with norm=1, "
        "alpha='learn'. Times are elapsed seconds, median of the repeats.",
        [
            "library",
            "features",
            "rows",
            "D",
            "dtype",
            "seconds",
            "factorisations",
            "gap",
            "peak GB",
            "accuracy %",
        ],
    )
    backends = [torch]
    if options.device != "cpu" and (other := cupy_backend()) is not None:
        backends.append(other)
    data = rows(options.rows)
    plan: list[tuple[str, Backend, Any]] = []
    for backend in backends:
        plan.append((f"{backend.name} agreement", backend, None))
        for case in (
            ("random", "float64"),
            ("random", "float32"),
            ("nystroem", "float64"),
        ):
            plan.append((f"{backend.name} {case}", backend, case))
    for name, backend, case in plan:
        started = time.perf_counter()
        try:
            device = "cupy" if backend.name == "cupy" else options.device
            if case is None:
                agreement(section, backend, device, min(20_000, options.rows))
            else:
                settings = (device, options.features)
                whole_fit(section, backend, case, data, settings, options.repeats)
        except Exception as error:  # one failed case must not cost the others
            section.remarks.append(f"{name}: {type(error).__name__}: {error}")
        backend.free()
        print(f"{name}: {time.perf_counter() - started:.1f} s", flush=True)
        result = dataclasses.asdict(section) | {"environment": environment()}
        result["environment"]["machine"] = backend.machine
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for row in section.rows:
        print(*row, sep=" | ")
    for line in (*section.checks, *section.remarks):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

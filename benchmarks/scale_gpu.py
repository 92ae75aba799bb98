"""One pass over a million rows on a GPU, streamed from host memory, solve included.

``benchmarks/scale_gpu.py [--out FILE] [--rows N] [--device cuda]``: a whole
``MultipleKernelFDA.fit`` from rows in host memory with ``device=``, in float64 and
float32, with torch and, if it is installed, CuPy. A small problem is first compared
with NumPy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from gpu_backends import Backend, cupy_backend, run_cases, torch_backend
from harness import RESULTS, Section
from problems import overlapping

from kernelweave import MultipleKernelFDA
from kernelweave.kernels import RBF

COLUMNS, VIEWS, CLASSES, FEATURES = 20, 10, 10, 5000
#: Features and dtype of each fit.
CASES = (("random", "float64"), ("random", "float32"), ("nystroem", "float64"))
#: Seconds allowed for 1e6 rows at D = 5,000 in float64.
ALLOWED = 3.0
#: Largest relative difference from NumPy.
AGREEMENT = {"float64": 1e-6, "float32": 1e-2}


def make_model(features: str, width: int, device: str | None) -> MultipleKernelFDA:
    """Ten Gaussian views of two columns."""
    views = [(f"v{i}", RBF(), [2 * i, 2 * i + 1]) for i in range(VIEWS)]
    return MultipleKernelFDA(
        views, norm=1, alpha="learn", features=features, n_features=width, device=device
    )


def agreement(section: Section, backend: Backend, device: str, n: int) -> None:
    """Compare the same fit by NumPy and on the device."""
    X, codes = overlapping(n, CLASSES, COLUMNS)
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
    device: str,
    features: str,
    dtype: str,
    sizes: tuple[int, int, int],
) -> None:
    """Seconds of fits from rows in host memory, after a warm-up fit.

    The sizes are the numbers of rows, of features and of repeats.
    """
    n, total, repeats = sizes
    X, codes = overlapping(n, CLASSES, COLUMNS)
    X = X.astype(dtype)

    def fit(count: int) -> MultipleKernelFDA:
        model = make_model(features, total // VIEWS, device)
        return model.fit(X[:count], codes[:count])

    fit(40_000)
    seconds, model = backend.clocked(lambda: fit(n), repeats)
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
    sizes = options.rows, options.features, options.repeats
    plan = []
    for backend in backends:
        device = "cupy" if backend.name == "cupy" else options.device
        plan.append((backend, agreement, (device, min(20_000, options.rows))))
        for case in CASES:
            plan.append((backend, whole_fit, (device, *case, sizes)))
    run_cases(section, plan, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

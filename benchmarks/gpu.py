"""On one GPU: ``benchmarks/gpu.py [GOAL] [--out FILE] [--device cuda|cpu] [--scale S]``

With the name of a goal of :mod:`gpu_goals`, only that one, as JSON. Needs numpy, scipy,
scikit-learn, array-api-compat and torch; CuPy is measured if it is installed.
``--device cpu --scale 0.05`` tries out the program without a GPU.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gpu_backends import Backend, Case, cupy_backend, run_cases, torch_backend
from gpu_goals import GOALS, run_goal
from harness import RESULTS, Section
from problems import overlapping, ten_gaussians

from kernelweave import Fisher, MultipleKernelFDA, Simplex, solve
from kernelweave.fits.targets import reduced_class_target
from kernelweave.kernels import DenseBank
from kernelweave.kernels.base import exp_
from kernelweave.kernels.centering import center_in_place

P, K, D = 10, 10, 20
ALPHAS: tuple[Any, ...] = (0.1, "learn")
#: Seconds allowed for a solve: (library, n, dtype) -> seconds.
REQUIRED = {("torch", 20_000, "float64"): 1.5, ("torch", 40_000, "float32"): 7.5}
TOL = {"float64": 1e-6, "float32": 1e-4}
#: Largest relative difference from NumPy in float64.
AGREEMENT = 1e-9


def build_bank(backend: Backend, X: np.ndarray, dtype: str) -> DenseBank:
    """Centred Gaussian kernels, each made in its slot of the bank: (p, n, n)."""
    n = len(X)
    data = backend.asarray(X - X.mean(axis=0), dtype)
    norms = (data * data).sum(1)
    stack = backend.empty((P, n, n), dtype)
    for i, kernel in enumerate(ten_gaussians(X)):
        slot = stack[i, :, :]
        backend.product(data, slot)
        slot *= 2.0 * kernel.gamma
        slot -= kernel.gamma * norms[:, None]
        slot -= kernel.gamma * norms[None, :]
        exp_(slot)
        center_in_place(slot)
    return DenseBank(stack)


def main() -> int:
    """Run all cases and write the results after each of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("goal", nargs="?", choices=list(GOALS))
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for a goal")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every n")
    options = parser.parse_args()
    backend = torch_backend(options.device)
    if backend is None:
        print("gpu: skipped, no CUDA device (try --device cpu --scale 0.05)")
        return 0
    if options.goal is not None:
        out = options.out or RESULTS / f"gpu-{options.goal}.json"
        given = options.device, options.scale, options.limit, out
        return run_goal(options.goal, backend, *given)
    out = options.out or RESULTS / "gpu.json"
    section = Section(
        "On a GPU",
        f"p = {P} Gaussian kernels, k = {K} classes, synthetic data in {D} columns. "
        "Solve: `solve(Fisher(bank, target, alpha), Simplex())` with the bank on the "
        "GPU. Fit: the whole of `MultipleKernelFDA.fit` from features on the GPU, with "
        "the five folds behind `cv_score_`. "
        "Times are elapsed seconds (median of the repeats); peak GPU memory includes "
        "the bank.",
        [
            "library",
            "what",
            "n",
            "dtype",
            "seconds",
            "allowed",
            "factorisations",
            "gap",
            "peak GB",
        ],
    )
    run_cases(section, _cases(backend, options.device, options.scale), out)
    return 0


def _cases(backend: Backend, device: str, scale: float) -> list[Case]:
    """Everything that is measured."""

    def size(n: int) -> int:
        return max(200, int(n * scale))

    learned = {"norm": 1, "alpha": "learn"}
    plan: list[Case] = [
        (backend, agreement, (size(2_000),)),
        (backend, solves, (size(20_000), "float64", 3)),
        (backend, fits, (size(20_000), "float64", learned)),
        (backend, fits, (size(5_000), "float64", {})),
        (backend, solves, (size(40_000), "float32", 2)),
        (backend, fits, (size(40_000), "float32", learned)),
    ]
    other = cupy_backend() if device != "cpu" else None
    if other is not None:
        plan += [
            (other, agreement, (size(2_000),)),
            (other, solves, (size(10_000), "float64", 3)),
            (other, fits, (size(10_000), "float64", learned)),
        ]
    return plan


def solves(
    section: Section, backend: Backend, n: int, dtype: str, repeats: int
) -> None:
    """Time ``solve`` on an existing bank, with alpha fixed and learned."""
    X, codes = overlapping(n)

    def prepared(count: int) -> Callable[[Any], Any]:
        bank = build_bank(backend, X[:count], dtype)
        target = backend.asarray(reduced_class_target(codes[:count], K)[0], dtype)
        return lambda alpha: solve(
            Fisher(bank, target, alpha), Simplex(), tol=TOL[dtype]
        )

    prepared(500)(0.1)  # load libraries before the clock starts
    ready = prepared(n)
    for alpha in ALPHAS:
        task = functools.partial(ready, alpha)
        seconds, solution = backend.clocked(task, repeats)
        _add(
            section,
            backend,
            (f"solve, alpha={alpha!r}", n, dtype),
            seconds,
            (solution.n_factorizations, solution.gap, solution.converged),
        )


def fits(
    section: Section, backend: Backend, n: int, dtype: str, settings: dict[str, Any]
) -> None:
    """Time a whole fit from features; without settings, that of the default model."""
    X, codes = overlapping(n)
    views = [("all", ten_gaussians(X), slice(0, D))]
    data = backend.asarray(X, dtype)
    words = [f"{key}={value!r}" for key, value in settings.items()] or ["default"]
    name = ", ".join(["fit with folds", *words])
    seconds, model = backend.clocked(
        lambda: MultipleKernelFDA(views, **settings).fit(data, codes), 2
    )
    outcome = (model.n_iter_, model.certificate_.gap, True)
    _add(section, backend, (name, n, dtype), seconds, outcome)


def agreement(section: Section, backend: Backend, n: int) -> None:
    """Compare a model fitted on the GPU with the same one fitted by NumPy."""
    X, codes = overlapping(n + 500)
    views = [("all", ten_gaussians(X), slice(0, D))]
    for name, kwargs in (
        ("norm=1, alpha=0.1", {"norm": 1, "alpha": 0.1}),
        ("norm=1, alpha='learn'", {"norm": 1, "alpha": "learn"}),
        ("default", {}),
    ):
        model = MultipleKernelFDA(views, **kwargs)
        train, new = (backend.asarray(part, "float64") for part in (X[:n], X[n:]))
        there = model.fit(train, codes[:n])
        found = (
            backend.to_numpy(there.kernel_weights_),
            np.array([there.alpha_]),
            np.array([there.certificate_.value]),
            backend.to_numpy(there.decision_function(new)),
        )
        here = model.fit(X[:n], codes[:n])
        expected = (
            here.kernel_weights_,
            np.array([here.alpha_]),
            np.array([here.certificate_.value]),
            here.decision_function(X[n:]),
        )
        off = [_difference(a, b) for a, b in zip(found, expected, strict=True)]
        section.check(
            f"{backend.name} agrees with NumPy in float64, n = {n}, {name}: weights, "
            "alpha, value, decisions",
            ", ".join(f"{value:.0e}" for value in off),
            f"{AGREEMENT:.0e}",
            max(off) <= AGREEMENT,
        )


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))


def _add(
    section: Section,
    backend: Backend,
    case: tuple[str, int, str],
    seconds: list[float],
    outcome: tuple[int, float, bool],
) -> None:
    what, n, dtype = case
    factorizations, gap, converged = outcome
    middle = float(np.median(seconds))
    allowed = None
    if what.startswith("solve"):
        allowed = REQUIRED.get((backend.name, n, dtype))
    section.rows.append(
        [
            backend.name,
            what,
            n,
            dtype,
            middle,
            "" if allowed is None else allowed,
            factorizations,
            f"{gap:.0e}",
            f"{backend.peak() / 1e9:.1f}",
        ]
    )
    section.remarks.append(
        f"{backend.name}, {what}, n = {n}, {dtype}: repeats "
        + ", ".join(f"{value:.3f}" for value in seconds)
        + " s."
    )
    if allowed is not None:
        section.check(
            f"{what}, n = {n:,}, {dtype}, to gap {TOL[dtype]:.0e}",
            f"{middle:.2f} s" + ("" if converged else ", gap not reached"),
            f"{allowed} s",
            converged and middle <= allowed,
        )


if __name__ == "__main__":
    raise SystemExit(main())

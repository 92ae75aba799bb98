"""The cost of a whole multiple-kernel fit, in single-kernel fits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import Section, alternate
from problems import gaussians, ten_classes, widths_around_median

from kernelweave import Fisher, KernelFDA, MultipleKernelFDA, Simplex, solve
from kernelweave.fits.ridge import fit_kernel
from kernelweave.fits.targets import reduced_class_target
from kernelweave.kernels import RBF, DenseBank, center_and_scale

P = 10
REQUIRED = 8.0
#: Our settings, each with those of the single-kernel fit it is compared with.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "norm=1, alpha=0.1": ({"norm": 1, "alpha": 0.1}, {"alpha": 0.1}),
    'norm=1, alpha="learn"': ({"norm": 1, "alpha": "learn"}, {"alpha": 0.1}),
    'norm=1 (alpha="loo")': ({"norm": 1}, {}),
    'default (norm="loo", alpha="loo")': ({}, {}),
}


def run(quick: bool = False) -> Section:
    """Ratios of fit times for precomputed kernels, features, and a bare bank."""
    n = 500 if quick else 2000
    section = Section(
        "The cost of a fit, in single-kernel fits",
        f"`MultipleKernelFDA` with p = {P} Gaussian kernels compared with `KernelFDA` "
        f"with one of them; n = {n}, k = 10 classes (synthetic, 20 columns). "
        f"Precomputed: X is a stack (n, n, {P}), which both estimators check for "
        "symmetry and, by one Cholesky factorisation per kernel, for positive "
        "semidefiniteness. Features: kernels are computed inside the fit. Bank: "
        "`DenseBank`, `solve` and `fit_kernel` called directly on centred kernels, "
        "without any checks. The single fit has a fixed alpha where ours is fixed or "
        "learned, and chooses alpha by leave-one-out where ours does.",
        [
            "kernels",
            "setting",
            "CPU s",
            "wall s",
            "single fit CPU s",
            "ratio",
            "required",
        ],
    )
    X, y = ten_classes(n)
    widths = widths_around_median(X, P)
    stack = gaussians(X, X, [np.arange(X.shape[1])], widths)
    last = np.ascontiguousarray(np.moveaxis(stack, 0, -1))
    one = np.ascontiguousarray(stack[P // 2])
    kernels = [RBF(gamma=float(1 / sigma**2)) for sigma in widths]
    columns = slice(0, X.shape[1])
    inputs = {
        "precomputed": ("precomputed", last, "precomputed", one),
        "features": (
            [("all", kernels, columns)],
            X,
            [("all", kernels[P // 2], columns)],
            X,
        ),
    }
    for name, (views, data, single_views, single_data) in inputs.items():
        tasks: dict[str, Callable[[], Any]] = {}
        for setting, (ours, single) in SETTINGS.items():
            tasks[setting] = partial(MultipleKernelFDA(views, **ours).fit, data, y)
            alone = KernelFDA(single_views, **single)
            tasks[str(single)] = partial(alone.fit, single_data, y)
        timings = alternate(tasks, repeats=5, budget_s=5.0)
        for setting, (_, single) in SETTINGS.items():
            _add(section, name, setting, timings[setting], timings[str(single)])
    _bank_rows(section, stack, y)
    return section


def _bank_rows(section: Section, stack: np.ndarray, y: np.ndarray) -> None:
    """Without an estimator: the cost of the mathematics alone."""
    bank = DenseBank.from_kernels(stack)
    target = reduced_class_target(y, 10)[0]

    def ours(alpha: Any) -> Callable[[], Any]:
        def task() -> Any:
            solution = solve(Fisher(bank, target, alpha), Simplex(), tol=1e-6)
            weights = solution.weights[-bank.n_kernels :]
            ridge = float(solution.weights[0]) if alpha == "learn" else alpha
            return fit_kernel(bank.combine(weights), target, max(ridge, 1e-8))

        return task

    one = stack[P // 2]
    uncentred = {"single": lambda: fit_kernel(_centred(one), target, 0.1)}
    timings = alternate({"fixed": ours(0.1), "learn": ours("learn"), **uncentred})
    _add(section, "bank", "norm=1, alpha=0.1", timings["fixed"], timings["single"])
    _add(section, "bank", 'norm=1, alpha="learn"', timings["learn"], timings["single"])


def _centred(gram: np.ndarray) -> np.ndarray:
    return center_and_scale(gram[None])[0]


def _add(section: Section, kernels: str, setting: str, ours: Any, single: Any) -> None:
    ratio = ours.cpu_s / single.cpu_s
    times = [ours.cpu_s, ours.wall_s, single.cpu_s]
    section.rows.append([kernels, setting, *times, ratio, f"{REQUIRED:.0f}"])
    section.check(
        f"whole fit, {kernels}, {setting}",
        f"{ratio:.1f} single fits",
        f"at most {REQUIRED:.0f}",
        ratio <= REQUIRED,
    )

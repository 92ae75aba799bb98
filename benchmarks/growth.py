"""How time and memory of a fit grow in n, p and k, beside the machine's limits."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Section, clocked
from problems import gaussians, ten_classes, widths_around_median

from kernelweave import MultipleKernelFDA, MultipleKernelSVC

FIGURE = Path(__file__).parent.parent / "docs" / "_static" / "growth.svg"
#: Rows, kernels and classes where the others vary.
CENTRE = {"n": 700, "p": 10, "k": 10}
SIZES = {
    "n": (250, 500, 1000, 2000),
    "p": (5, 10, 20, 40),
    "k": (2, 5, 10, 20, 40),
}
#: Exponents that a fit should not exceed: factorisations are cubic in n.
ALLOWED = {"n": (3.0, 2.1), "p": (1.1, 1.1), "k": (1.0, 1.0)}
REPEATS = 3
#: Rows and kernels of the comparison of few and many classes; the most that the latter
#: may take.
CLASSES, MOST_CLASSES = {"n": 1000, "p": 10}, 5.0
#: Passes over the kernels before the first step: read, copy, centre, check.
FIRST_PASSES = 6


def run(quick: bool = False) -> Section:
    """One fit per size; exponents by least squares in logarithms."""
    section = Section(
        "Growth of time and memory",
        '`MultipleKernelFDA(norm=1, alpha="learn", cv=None)` on precomputed Gaussian '
        f"kernels, one thread. One of n, p and k varies around {CENTRE['n']} rows, "
        f"{CENTRE['p']} kernels and {CENTRE['k']} classes. Memory is the peak of all "
        "arrays during the fit, without the stack that is passed in. The limit is "
        "the larger of two times: the flops of all factorisations, triangular solves "
        "and products at the rate of a matrix product on this machine, and the bytes "
        "of all passes over the kernels at the rate of a sum. Exponents are fitted to "
        "all sizes.",
        ["varies", "size", "CPU s", "limit s", "ratio", "MB", "factorisations"],
    )
    rates = flop_rate(), byte_rate()
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for axis, sizes in SIZES.items():
        for size in sizes[:2] if quick else sizes:
            at = CENTRE | {axis: size}
            seconds, megabytes, steps = measure(at["n"], at["p"], at["k"])
            limit = least_time(at["n"], at["p"], at["k"], steps, *rates)
            found.setdefault(axis, []).append((size, seconds, limit, megabytes))
            ratio = f"{seconds / limit:.1f}"
            section.rows.append(
                [axis, size, f"{seconds:.3g}", limit, ratio, megabytes, steps]
            )
    fitted = []
    for axis, rows in found.items():
        of_time, of_memory = exponent(rows, 1), exponent(rows, 3)
        most = ALLOWED[axis]
        growth = f"time {axis}^{of_time:.2f}, memory {axis}^{of_memory:.2f}"
        fitted.append(growth)
        section.check(
            f"growth in {axis}",
            growth,
            f"at most {most[0]} and {most[1]}",
            quick or (of_time <= most[0] and of_memory <= most[1]),
        )
    if not quick:
        _many_classes(section)
    section.remarks.append(f"Fitted growth: {'; '.join(fitted)}.")
    if not quick:
        draw(found)
        section.remarks.append(
            "![CPU seconds and megabytes against n, p and k](_static/growth.svg)"
        )
    section.remarks.append(
        f"Rates of this machine: {rates[0] / 1e9:.0f} Gflop/s in a product of 1,000 x "
        f"1,000 matrices, {rates[1] / 1e9:.1f} GB/s in a sum over 200 MB."
    )
    return section


def fisher() -> MultipleKernelFDA:
    """The estimator of the table."""
    return MultipleKernelFDA("precomputed", norm=1, alpha="learn", cv=None)


def _many_classes(section: Section) -> None:
    """A hundred classes against ten, for discriminants and for margins."""
    for make in (fisher, lambda: MultipleKernelSVC("precomputed")):
        few, many = (measure(**CLASSES, k=k, make=make)[0] for k in (10, 100))
        name = type(make()).__name__
        section.check(
            f"{name}, 100 classes against 10, n = {CLASSES['n']}",
            f"{many / few:.1f}x the time ({many:.2f} and {few:.2f} s)",
            f"at most {MOST_CLASSES:g}x",
            many <= MOST_CLASSES * few,
        )


def measure(
    n: int, p: int, k: int, make: Callable[[], Any] = fisher
) -> tuple[float, float, int]:
    """CPU seconds (least of several), megabytes and factorisations of one fit."""
    X, y = ten_classes(n)
    y = np.arange(n) % k if k != 10 else y
    if k != 10:
        X = X + np.random.default_rng(k).normal(size=(k, X.shape[1]))[y]
    kernels = gaussians(X, X, [np.arange(X.shape[1])], widths_around_median(X, p))
    stack = np.moveaxis(kernels, 0, -1).copy()

    def fit() -> Any:
        return make().fit(stack, y)

    model = fit()
    seconds = least_cpu(fit, REPEATS)
    tracemalloc.start()
    fit()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak / 1e6, int(model.n_iter_)


def least_cpu(task: Callable[[], object], repeats: int = 5) -> float:
    """The least CPU seconds of several calls."""
    return min(clocked(task)[1] for _ in range(repeats))


def least_time(
    n: int, p: int, k: int, steps: int, flops: float, bytes_per_s: float
) -> float:
    """Seconds for the arithmetic, or for the memory traffic if that takes longer."""
    work = (steps + p + 1) * n**3 / 3.0  # p checks of definiteness, one final fit
    work += steps * (k - 1) * n**2 * (2.0 * p + (p + 1) + 2.0)  # products and solves
    traffic = 8.0 * p * n**2 * (FIRST_PASSES + 2 * steps)  # sum and products
    return max(work / flops, traffic / bytes_per_s)


def flop_rate(n: int = 1000) -> float:
    """Flops per second of a matrix product, the best of five."""
    a = np.random.default_rng(0).normal(size=(n, n))
    return 2.0 * n**3 / least_cpu(lambda: a @ a)


def byte_rate(size: int = 25_000_000) -> float:
    """Bytes read per second by a sum, the best of five."""
    a = np.ones(size)
    return 8.0 * size / least_cpu(lambda: np.sum(a))


def exponent(rows: list[tuple[float, float, float, float]], column: int) -> float:
    """The slope of a column against the size, both in logarithms."""
    table = np.log(np.array(rows))
    return float(np.polyfit(table[:, 0], table[:, column], 1)[0])


def draw(found: dict[str, list[tuple[float, float, float, float]]]) -> None:
    """Time above memory, one column of panels for each of n, p and k."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, len(found), figsize=(9, 5), sharey="row", layout="constrained"
    )
    for column, (name, rows) in enumerate(found.items()):
        sizes, seconds, limits, megabytes = np.array(rows).T
        for panel, values, label, which in (
            (axes[0, column], seconds, "CPU seconds", 1),
            (axes[1, column], megabytes, "MB", 3),
        ):
            slope = f"${name}^{{{exponent(rows, which):.2f}}}$"
            panel.loglog(sizes, values, "o-", label=slope)
            if which == 1:
                panel.loglog(sizes, limits, "k--", label="limit of the machine")
            panel.set_xticks(sizes, [f"{int(size):,}" for size in sizes])
            panel.minorticks_off()
            panel.legend(frameon=False)
            panel.set_ylabel(label if column == 0 else "")
        axes[1, column].set_xlabel(name)
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)

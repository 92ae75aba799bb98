"""A laptop's case: 20,000 rows and 20 kernels, exactly, on two cores.

``benchmarks/laptop.py [--rows N]`` fits once, in its own process, writes
``results/laptop.json`` at full size and rewrites the benchmarks page.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from functools import partial
from typing import Any

import numpy as np
from harness import (
    RESULTS,
    Section,
    answer,
    clocked,
    in_own_process,
    measured,
    save,
    threads,
)

from report import as_text, write_docs

ROWS, COLUMNS, KERNELS, CLASSES, THREADS = 20_000, 20, 20, 3, 2
GIGABYTES, RATIO = 16.0, 3.0


def draw(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose class depends on waves in the first columns."""
    directions = np.random.default_rng(7).normal(size=(6, CLASSES))
    rng = np.random.default_rng([7, seed])
    X = rng.normal(size=(n, COLUMNS))
    scores = np.sin(1.5 * X[:, :6] @ directions) + 0.3 * rng.gumbel(size=(n, CLASSES))
    return X, np.argmax(scores, axis=1)


def child(n: int) -> dict[str, Any]:
    """Fit, count factorisations, and time as many bare ones."""
    import kernelweave
    from kernelweave import MultipleKernelFDA, _array
    from kernelweave.kernels import RBF

    factored, bare = count_factorisations(kernelweave.__name__, _array, n)
    X, y = draw(n)
    widths = [RBF(factor=1 / width) for width in np.geomspace(0.1, 20.0, KERNELS)]
    views = [("all", widths, slice(0, COLUMNS))]
    model = MultipleKernelFDA(
        views, norm=1, alpha="learn", features="on_the_fly", cv=None
    )
    _, cpu, wall = clocked(lambda: model.fit(X, y))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    matrix = np.full((n, n), 0.1)
    _array.add_to_diagonal(matrix, float(n))
    single_cpu, single_wall = clocked(partial(bare, matrix, overwrite=True))[1:]
    del matrix
    more, labels = draw(2000, seed=1)
    return {
        "wall": wall,
        "cpu": cpu,
        "peak_gb": peak,
        "factorisations": len(factored),
        "inside_wall": sum(factored),
        "single_wall": single_wall,
        "single_cpu": single_cpu,
        "gap": model.certificate_.gap,
        "kernels": int(np.count_nonzero(model.kernel_weights_)),
        "accuracy": 100.0 * float(np.mean(model.predict(more) == labels)),
    }


def count_factorisations(package: str, arrays: Any, n: int) -> tuple[list[float], Any]:
    """Let every module of a package factor through a function that takes notes.

    It notes the seconds of each factorisation of n rows, not those of its blocks.
    """
    noted: list[float] = []
    plain = arrays.cholesky

    def counted(a: Any, **options: Any) -> Any:
        start = time.perf_counter()
        found = plain(a, **options)
        if a.shape[0] == n:
            noted.append(time.perf_counter() - start)
        return found

    for name, module in list(sys.modules.items()):
        if name.startswith(package) and getattr(module, "cholesky", None) is plain:
            module.cholesky = counted  # type: ignore[attr-defined]
    return noted, plain


def run(n: int) -> Section:
    """One row of the table, and its requirements."""
    section = Section(
        "A laptop's case",
        f"`MultipleKernelFDA` with norm=1, alpha='learn', cv=None and "
        f"features='on_the_fly': {KERNELS} Gaussian kernels of {COLUMNS} columns, "
        f"{CLASSES} classes, {THREADS} threads. The whole fit, in its own process, "
        "compared with as many bare factorisations of one n x n matrix; every kernel "
        "is recomputed in every pass. Peak: resident memory of the whole process.",
        [
            "rows",
            "CPU s",
            "wall s",
            "peak GB",
            "factorisations",
            "one factorisation, CPU s",
            "ratio",
            "gap",
            "kernels with weight",
            "accuracy %",
        ],
    )
    # Idle threads that spin take a busy machine's cores from those that compute.
    settings = threads(THREADS) | {"OPENBLAS_THREAD_TIMEOUT": 4}
    found = in_own_process(__file__, n, **settings)
    ratio = found["cpu"] / (found["factorisations"] * found["single_cpu"])
    section.rows.append(
        [
            n,
            found["cpu"],
            found["wall"],
            found["peak_gb"],
            found["factorisations"],
            found["single_cpu"],
            ratio,
            f"{found['gap']:.0e}",
            found["kernels"],
            f"{found['accuracy']:.1f}",
        ]
    )
    what = f"exact fit, n = {n:,}, p = {KERNELS}"
    section.check(
        f"{what}: peak memory",
        f"{found['peak_gb']:.1f} GB",
        f"{GIGABYTES:.0f} GB",
        found["peak_gb"] <= GIGABYTES,
    )
    section.check(
        f"{what}: CPU time against as many bare factorisations",
        f"{ratio:.2f}x",
        f"at most {RATIO:.0f}x",
        ratio <= RATIO,
    )
    return section


def main() -> int:
    """Measure, print, and save what was measured at full size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--child", type=int, metavar="N")
    options = parser.parse_args()
    if options.child:
        answer(child(options.child))
        return 0
    result = measured(partial(run, options.rows))
    print(as_text(result))
    if options.rows == ROWS:
        save(RESULTS / "laptop.json", result)
        write_docs()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

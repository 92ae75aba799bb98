"""Results as text on the terminal and as docs/benchmarks.md."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from harness import RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
ORDER = (
    "fit_times",
    "sdp",
    "cutting_plane",
    "fit_vs_single",
    "peers",
    "margins",
    "memory",
    "growth",
    "mixture",
    "missing",
    "subspace",
    "scale",
    "laptop",
    "gpu",
    "scale_gpu",
)

OPENING = """\
# Benchmarks

How long will my fit take, how much memory does it need, and is it faster than what I
use today? The answers come first, then how each was measured, and last what was
required of each measurement and where a requirement was missed.
"""

MEMORY = """\
## How much memory does it need?

The kernels take `8 n^2 p` bytes for n rows and p kernels, the folds behind `cv_score_`
another 64 % of that, and the fit three more matrices of n rows and columns
([measured](#peak-memory-of-a-fit)); `cv=None` leaves out the folds:

{table}

Above 10,000 rows, or where this does not fit, kernels are made on the fly (the memory
of one matrix) or replaced by explicit features, whose memory does not depend on the
number of rows: [](user_guide/scale.md). A fit to a million rows took
{million}.
"""

FASTER = """\
## Is it faster than what I use today?

Training on the same ten ready-made kernels, in CPU seconds on one core
([details](#against-what-people-use-today)):

{table}

In short: one convex problem, `norm=1, alpha="learn"`, takes a fraction of the time of
himalaya's searches and MKLpy's gradient methods, and a little less than a support
vector machine on the mean kernel tuned by a grid. The default, here without the folds
behind `cv_score_`, solves four such problems and takes about twice as long.
EasyMKL with a support vector machine, which takes one step and tunes nothing, is faster
with two classes and slower with ten. On a GPU, a fit to 20,000 rows takes 1.4 s, and
one to 100,000 rows 66 s ([details](user_guide/scale.md#gpus)).
"""

HOW = """\
## How it was measured

Everything on this page comes from these programs:

```console
$ make bench                                 # on one core, about half an hour
$ make bench-scale                           # on two cores, about eight minutes
$ python benchmarks/laptop.py                # on two cores, about ten minutes
$ python benchmarks/gpu.py --out benchmarks/results/gpu.json   # on a machine with a GPU
$ python benchmarks/run.py --write-docs      # build this page from the results
```

Ratios compare median CPU times, measured in one process with one BLAS thread and with
the tasks taking turns. Kernels are computed before the clock starts unless a table says
otherwise.
"""

SEVERAL_GPUS = """\
## Exact kernels on several GPUs: predicted, not built

One GPU holds one matrix of 100,000 to 150,000 rows; exact kernels use one device. The
times below are predictions for a Cholesky factorisation in blocks dealt out to G
devices of one machine, from what one H200 was measured to do in float64:
47 TFLOP/s in the factorisation of 60,000 rows and 4 TB/s for passes over memory. A fit
is taken to be ten kernels, seven factorisations at 75 % of the rate of one device, and
sixteen passes over the kernels, with 0.4 TB/s between devices. For one device and
100,000 rows this predicts 61 s, where 66 s were [measured](user_guide/scale.md#gpus).

| rows      | GPUs | memory of each | factorisations | kernels | exchange | whole fit |
|-----------|------|----------------|----------------|---------|----------|-----------|
| 100,000   | 1    | 80 GB          | 50 s           | 11 s    | -        | 61 s      |
| 100,000   | 4    | 20 GB          | 17 s           | 3 s     | 1 s      | 20 s      |
| 200,000   | 8    | 40 GB          | 66 s           | 6 s     | 2 s      | 74 s      |
| 400,000   | 32   | 40 GB          | 132 s          | 6 s     | 4 s      | 142 s     |
| 1,000,000 | 512  | 16 GB          | 129 s          | 2 s     | 6 s      | 138 s     |

Explicit features of a million rows take two seconds on one GPU.
"""


def write_docs(folder: Path = RESULTS, page: Path = PAGE) -> Path:
    """Write the page from all results in ``folder``."""
    results = [
        json.loads(path.read_text(encoding="utf-8"))
        for name in ORDER
        if (path := folder / f"{name}.json").exists()
    ]
    parts = [OPENING]
    for result in results:
        parts += [f"## {result['title']}\n", _wrap(result["setting"])]
        parts += [markdown_table(result["columns"], result["rows"])]
        parts += [_wrap(remark) for remark in result["remarks"]]
        parts += [_place(result)]
        if result is results[0]:  # the times; the other two answers follow
            parts += [*_answers(folder), HOW]
    parts += [SEVERAL_GPUS, _summary(results)]
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def as_text(result: dict[str, Any]) -> str:
    """One section for the terminal."""
    lines = [f"\n== {result['title']} ({result['seconds']} s)"]
    lines += [markdown_table(result["columns"], result["rows"])]
    lines += [f"note: {remark}" for remark in result["remarks"]]
    for check in result["checks"]:
        verdict = "pass" if check["passed"] else "MISS"
        lines.append(
            f"{verdict}  {check['what']}: {check['measured']} "
            f"(required: {check['required']})"
        )
    return "\n".join(lines)


def markdown_table(columns: list[str], rows: list[list[Any]]) -> str:
    """A table whose columns are aligned in the source as well."""
    cells = [columns, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        "| "
        + " | ".join(text.ljust(w) for text, w in zip(row, widths, strict=True))
        + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value).replace("|", "/")


def _answers(folder: Path) -> list[str]:
    """Memory and other software, in the numbers of the sections below."""
    rows = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["rows"]
        for name in ("peers", "scale")
    }
    sizes, kernels = (1000, 2000, 5000, 10000), (6, 30, 60)
    memory = [
        [f"{n:,}", *(f"{8e-9 * n * n * (1.64 * p + 3):.2g} GB" for p in kernels)]
        for n in sizes
    ]
    million = next(row for row in rows["scale"] if row[0].startswith("The whole fit"))
    tasks = (("cancer", 400), ("digits", 1000), ("ten digits", 1000))
    methods = list(dict.fromkeys(row[3] for row in rows["peers"] if row[2] == 10))
    times = {tuple(row[:4]): row[4] for row in rows["peers"]}
    peers = [
        [method, *(times.get((data, n, 10, method), "") for data, n in tasks)]
        for method in methods
        if "bare" not in method
    ]
    names = ["two classes, 400 rows", "two classes, 1,000 rows", "ten, 1,000 rows"]
    return [
        MEMORY.format(
            table=markdown_table(
                ["rows", *(f"{p} kernels" for p in kernels)], memory
            ).rstrip(),
            million=f"{million[3]:.0f} s on two cores and {million[4]} MB",
        ),
        FASTER.format(
            table=markdown_table(["method", *names], peers).rstrip(),
        ),
    ]


def _summary(results: list[dict[str, Any]]) -> str:
    rows = [
        [
            check["what"],
            check["measured"],
            check["required"],
            "met" if check["passed"] else "**missed**",
        ]
        for result in results
        for check in result["checks"]
    ]
    table = markdown_table(["requirement", "measured", "required", ""], rows)
    missed = sum(not check["passed"] for r in results for check in r["checks"])
    verdict = f"{len(rows) - missed} of {len(rows)} requirements are met."
    return f"## What was required\n\n{verdict}\n\n{table}"


def _place(result: dict[str, Any]) -> str:
    place = result["environment"]
    versions = ", ".join(f"{name} {v}" for name, v in place["versions"].items())
    text = (
        f"Measured {place['date']} at commit {place['commit']} on {place['machine']}, "
        f"load average {place['load_average'][0]}. "
        f"Python {place['python']}, {versions}."
    )
    return _wrap(f"*{text}*")


def _wrap(text: str) -> str:
    return (
        textwrap.fill(text, 88, break_long_words=False, break_on_hyphens=False) + "\n"
    )

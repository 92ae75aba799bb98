"""Results as text on the terminal and as docs/benchmarks.md."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from harness import RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
ORDER = (
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
    "gpu",
    "scale_gpu",
)

OPENING = """\
# Benchmarks

This page lists what was measured, what was required, and where a requirement was
missed. Everything on it comes from these programs:

```console
$ make bench                                 # on one core, about half an hour
$ make bench-scale                           # on two cores, about eight minutes
$ python benchmarks/gpu.py --out benchmarks/results/gpu.json   # on a machine with a GPU
$ python benchmarks/run.py --write-docs      # build this page from the results
```

Ratios compare median CPU times, measured in one process with one BLAS thread and with
the tasks taking turns. Kernels are computed before the clock starts unless a table says
otherwise.
"""


def write_docs(folder: Path = RESULTS, page: Path = PAGE) -> Path:
    """Write the page from all results in ``folder``."""
    results = [
        json.loads(path.read_text(encoding="utf-8"))
        for name in ORDER
        if (path := folder / f"{name}.json").exists()
    ]
    parts = [OPENING, _summary(results)]
    for result in results:
        parts += [f"## {result['title']}\n", _wrap(result["setting"])]
        parts += [markdown_table(result["columns"], result["rows"])]
        parts += [_wrap(remark) for remark in result["remarks"]]
        parts += [_place(result)]
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
    return f"## Summary\n\n{verdict}\n\n{table}"


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

"""Results as text, Markdown, CSV and pictures."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kernelweave
from kernelweave.inspection import to_csv
from kernelweave.papers.results import BETTER, NOT_REPRODUCED, REPRODUCED, Cell, Results

__all__ = [
    "MARK",
    "cell_rows",
    "commit",
    "insert_markdown",
    "markdown",
    "summary",
    "write_csv",
    "write_picture",
]

#: What comes after this line of a Markdown page is written by the programme.
MARK = "<!-- results -->\n"


@dataclass(frozen=True)
class Shown:
    """A cell as texts: the paper's number, ours with its standard error, verdict."""

    paper: str
    ours: str
    verdict: str

    @classmethod
    def of(cls, cell: Cell) -> Shown:
        """Round to the digits of the measure."""
        digits = cell.measure.digits
        paper = "-"
        if cell.published is not None:
            paper = f"{cell.published.value:.{digits}f}"
        ours = f"{cell.mean:.{digits}f}"
        if np.isfinite(cell.error):
            ours += f" ± {cell.error:.{digits}f}"
        return cls(paper, ours, cell.verdict or "-")


def cell_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a table with a line a cell, for a terminal."""
    many = len(results.experiment.measures) > 1
    header = [results.experiment.row_title, "method"]
    header += ["measure"] if many else []
    lines = []
    for cell in results.cells():
        shown = Shown.of(cell)
        line = [cell.row, cell.column, *([cell.measure.name] if many else [])]
        lines.append([*line, shown.paper, shown.ours, shown.verdict])
    return [*header, "paper", "ours", "verdict"], lines


def summary(all_results: Sequence[Results]) -> str:
    """How many cells and claims came out which way, in one line."""
    cells = [cell.verdict for r in all_results for cell in r.cells() if cell.verdict]
    claims = [verdict for r in all_results for _, verdict, _ in r.claims()]
    parts = []
    for what, verdicts in (("cells", cells), ("claims", claims)):
        counts = [
            f"{verdicts.count(v)} {v}"
            for v in (REPRODUCED, BETTER, NOT_REPRODUCED)
            if v in verdicts
        ]
        if counts:
            total = len(verdicts)
            parts.append(f"of {total} {what} {', '.join(counts)}")
    left_out = sum(len(r.missing) for r in all_results)
    if left_out:
        parts.append(f"{left_out} rows left out")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] if text else "Nothing was compared"


def markdown(all_results: Sequence[Results], command: str) -> str:
    """Tables of all experiments, three lines a row: paper, ours, verdict."""
    blocks = [f"Made by `{command}` at {commit()}. {summary(all_results)}."]
    for results in all_results:
        blocks += _experiment_blocks(results)
    return "\n\n".join(blocks) + "\n"


def _experiment_blocks(results: Results) -> list[str]:
    experiment = results.experiment
    blocks = [f"## {experiment.title}"]
    counts = {len(splits) for splits in results.splits.values() if splits}
    if counts:
        numbers = " to ".join(str(n) for n in sorted({min(counts), max(counts)}))
        paper = f"has {experiment.splits}"
        if not experiment.stated:
            paper = "does not say how many it has"
        text = f"Mean over {numbers} splits and its standard error; the paper {paper}."
        if len(counts) > 1:
            each = [f"{row} {len(splits)}" for row, splits in results.splits.items()]
            text += f" Splits of each row: {', '.join(each)}."
        blocks.append(text)
    for measure in experiment.measures:
        cells = [c for c in results.cells() if c.measure == measure]
        if cells:
            title = (
                f"Measure: {measure.name}\n\n" if len(experiment.measures) > 1 else ""
            )
            blocks.append(title + _wide_table(results, cells))
    claims = results.claims()
    if claims:
        lines = ["| the paper says | verdict | what was found |", "|---|---|---|"]
        lines += [
            f"| {text} | {verdict} | {found} |" for text, verdict, found in claims
        ]
        blocks.append("\n".join(lines))
    notes = [f"- Left out: {row}: {why}" for row, why in results.missing.items()]
    for column, told in results.warnings.items():
        notes += [
            f"- Warning of {column} in {count} split(s): {text}"
            for text, count in told.items()
        ]
    if notes:
        blocks.append("\n".join(notes))
    return blocks


def _wide_table(results: Results, cells: list[Cell]) -> str:
    columns = [
        c for c in results.experiment.columns if any(x.column == c for x in cells)
    ]
    header = [results.experiment.row_title, "", *columns]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    compared = any(cell.published is not None for cell in cells)
    for row in results.rows:
        shown = {c.column: Shown.of(c) for c in cells if c.row == row}
        empty = Shown("-", "-", "-")
        texts = [shown.get(column, empty) for column in columns]
        if compared:
            lines.append(
                f"| {row} | paper | " + " | ".join(t.paper for t in texts) + " |"
            )
        first = "" if compared else row
        lines.append(f"| {first} | ours | " + " | ".join(t.ours for t in texts) + " |")
        if compared:
            lines.append("| | verdict | " + " | ".join(t.verdict for t in texts) + " |")
    return "\n".join(lines)


def insert_markdown(page: Path, text: str) -> None:
    """Replace what follows :data:`MARK` on a page."""
    before, mark, _ = page.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise ValueError(f"{page} has no line {MARK.strip()!r} to write after")
    page.write_text(before + mark + "\n" + text, encoding="utf-8")


def write_csv(folder: Path, results: Results) -> list[Path]:
    """Write the cells, and every split behind them; return the files."""
    key = results.experiment.key
    cells = [
        {
            "row": cell.row,
            "column": cell.column,
            "measure": cell.measure.name,
            "paper": "" if cell.published is None else cell.published.value,
            "mean": cell.mean,
            "standard_error": cell.error,
            "splits": cell.splits,
            "verdict": cell.verdict,
        }
        for cell in results.cells()
    ]
    splits = [
        {
            "row": row,
            "split": number,
            "column": column,
            "measure": measure,
            "value": " ".join(map(repr, np.atleast_1d(value).tolist())),
        }
        for row, numbers in results.splits.items()
        for number, columns in numbers.items()
        for column, measures in columns.items()
        for measure, value in measures.items()
    ]
    written = []
    for name, rows in ((f"{key}.csv", cells), (f"{key}_splits.csv", splits)):
        if rows:
            to_csv(rows, folder / name)
            written.append(folder / name)
    return written


def write_picture(folder: Path, results: Results) -> Path | None:
    """Draw a figure; None if there is none, or no matplotlib to draw it with."""
    if results.experiment.draw is None or not results.rows:
        return None
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")  # no screen is needed to write files
    from matplotlib import pyplot

    figure: Any = results.experiment.draw(results)
    path = folder / f"{results.experiment.key}.png"
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def commit() -> str:
    """The commit of a checkout, or the version of an installation."""
    version = f"version {kernelweave.__version__}"
    folder = Path(kernelweave.__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=, with changes"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        tracked = subprocess.run(
            ["git", "ls-files", "--error-unmatch", "__init__.py"],
            cwd=folder,
            capture_output=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return version
    # An environment inside somebody else's repository is not a checkout of ours.
    return f"commit {found.stdout.strip()}" if tracked.returncode == 0 else version

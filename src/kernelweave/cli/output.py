"""What the commands print and write."""

from __future__ import annotations

import dataclasses
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelweave.cli.folder import MARK_FILE, Draft, write_mark
from kernelweave.cli.held_out import HeldOut
from kernelweave.inspection import (
    KernelWeightsDisplay,
    ProjectionDisplay,
    to_csv,
    weights_table,
)


def timed_fit(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, set[str]]:
    """Fit a model; return the seconds it took, and its warnings, which are printed."""
    printed: set[str] = set()
    started = time.perf_counter()
    with shown_warnings(printed):
        model.fit(X, y)
    return time.perf_counter() - started, printed


@contextmanager
def shown_warnings(printed: set[str], prefix: str = "") -> Iterator[None]:
    """Print each warning once, as one line on standard error.

    Parameters
    ----------
    printed : set of str
        Warnings that have already been printed and are not repeated; new ones are
        added.
    prefix : str, default=""
        Prefix that says where they come from.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(" ".join(str(w.message).split()) for w in caught):
        if message not in printed:
            print(f"warning: {prefix}{message}", file=sys.stderr)
            printed.add(message)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column left-aligned and the others right-aligned."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        for row in [headers, ["-" * width for width in widths], *rows]:
            cells = [cell.rjust(w) for cell, w in zip(row, widths, strict=True)]
            cells[0] = row[0].ljust(widths[0])
            print("  " + "  ".join(cells))
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=True, show_edge=False)
    for j, header in enumerate(headers):
        table.add_column(header, justify="right" if j else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))  # a Text, since names may look like markup
    width = None if sys.stdout.isatty() else 160
    Console(file=sys.stdout, width=width, highlight=False).print(table)


def print_fit(model: Any, seconds: float) -> None:
    """Print the weight of each view, the heaviest first, and the certificate."""
    print(f"View weights, learned in {seconds:.2f} s:\n")
    table = weights_table(model)
    lines = []
    for view, weight in sorted(model.view_weights_.items(), key=lambda item: -item[1]):
        kernels = [row for row in table if row["view"] == view]
        used = [row for row in kernels if row["weight"] > 0]
        heaviest = max(kernels, key=lambda row: row["weight"])["kernel"]
        heaviest = heaviest.rpartition(" > ")[2]  # without its transformers
        share = f"{100 * model.view_shares_[view]:.1f} %"
        count = f"{len(used)} of {len(kernels)}"
        lines.append((view, f"{weight:.4f}", share, count, heaviest if used else "-"))
    print_table(("view", "weight", "share", "kernels used", "heaviest kernel"), lines)
    certificate = model.certificate_
    print("\nCertificate:\n")
    print(f"  status       {certificate.status}")
    print(f"  value        {certificate.value:.10g}")
    print(f"  lower bound  {certificate.lower_bound:.10g}")
    print(f"  gap          {certificate.gap:.1e} relative")
    for remark in certificate.remarks:
        print(f"  note         {remark}")
    print(f"  problem      {certificate.problem}")
    print(f"  chosen       norm {model.norm_:.4g}, alpha {model.alpha_:.4g}")


def write_results(
    draft: Draft, model: Any, rows: HeldOut, identity: dict[str, Sequence[Any]]
) -> None:
    """Write tables and plots.

    Parameters
    ----------
    draft : Draft
        From :func:`kernelweave.cli.folder.new_results`.
    model : estimator
        Fitted classifier.
    rows : HeldOut
        Rows that it has not seen, predicted and projected.
    identity : dict
        First columns of the table of predictions.
    """
    with draft.file("weights.csv", "weight of every kernel") as path:
        to_csv(weights_table(model), path)
    which = "" if rows.fold is None else ", out of fold"
    content = f"predicted classes with probabilities{which}"
    with draft.file("predictions.csv", content) as path:
        to_csv(_predictions(rows, identity), path)
    if not _write_pictures(draft, model, rows):
        draft.remarks.append(
            "no plots: matplotlib is not installed (pip install 'kernelweave[plot]')"
        )
    with draft.file(MARK_FILE, "value, lower bound and gap of the weights") as path:
        certificate = {
            **dataclasses.asdict(model.certificate_),
            "norm": model.norm_,
            "alpha": model.alpha_,
            "view_weights": model.view_weights_,
            "view_shares": model.view_shares_,
        }
        write_mark(path, certificate, [*draft.written, MARK_FILE])


def _predictions(
    rows: HeldOut, identity: dict[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """The table of predictions, with empty cells for rows without one."""

    def cells(values: Any) -> list[Any]:
        return [v if shown else "" for v, shown in zip(values, rows.shown, strict=True)]

    columns = dict(identity)
    if rows.fold is not None:
        columns["fold"] = cells(rows.fold)
    columns["predicted"] = cells(rows.predicted)
    for label, column in zip(rows.classes, rows.probability.T, strict=True):
        columns[f"probability_{label}"] = cells([f"{value:.6f}" for value in column])
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


def _write_pictures(draft: Draft, model: Any, rows: HeldOut) -> bool:
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")  # needs no display
    from matplotlib import pyplot

    for name, content, figure in (
        ("weights", "weights", KernelWeightsDisplay.from_estimator(model).figure_),
        ("projection", "classes", _projection(rows).figure_),
    ):
        with draft.file(f"{name}.png", f"plot of the {content}") as path:
            figure.savefig(path, dpi=150)
        pyplot.close(figure)
    return True


def _projection(rows: HeldOut) -> ProjectionDisplay:
    drawn = np.isfinite(rows.means).all(axis=1)  # (k,)
    display = ProjectionDisplay(
        coordinates=rows.coordinates[rows.shown],
        labels=rows.labels[rows.shown],
        classes=rows.classes[drawn],
        means=rows.means[drawn],
        legend_title="class" if rows.known else "predicted class",
    ).plot()
    display.figure_.suptitle(rows.how, fontsize=9)
    return display

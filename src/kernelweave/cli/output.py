"""What the commands print and write."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelweave._files import to_csv
from kernelweave._text import counted, in_line, some
from kernelweave.cli.folder import MARK_FILE, Draft, write_mark
from kernelweave.cli.read import as_written
from kernelweave.cli.samples import Samples
from kernelweave.evaluation.held_out import HeldOut
from kernelweave.inspection import (
    KernelWeightsDisplay,
    ProjectionDisplay,
    weights_table,
)
from kernelweave.inspection._figure import axes, can_draw, save_figure
from kernelweave.inspection._rows import chosen_by, chosen_in_words
from kernelweave.views.ids import is_gap

#: A column of a table, with its name.
NamedCells = tuple[str, Sequence[Any]]


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print each warning once, as one line on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(" ".join(str(w.message).split()) for w in caught):
        print(f"warning: {message}", file=sys.stderr)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column left-aligned and the others right-aligned."""
    headers = [in_line(cell) for cell in headers]
    rows = [[in_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for row in [headers, ["-" * width for width in widths], *rows]:
        cells = [cell.rjust(w) for cell, w in zip(row, widths, strict=True)]
        cells[0] = row[0].ljust(widths[0])
        print("  " + "  ".join(cells))


def print_weights(model: Any) -> None:
    """Print the weight of each view, the heaviest first."""
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


def print_certificate(model: Any) -> None:
    """Print the proof of how close the weights are to the optimum."""
    certificate, chosen = model.certificate_, chosen_in_words(model)
    rows = [("status", certificate.status), *certificate.numbers.items()]
    rows += [("note", remark) for remark in certificate.remarks]
    rows += [("problem", certificate.problem)]
    rows += [("chosen", ", ".join(chosen))] if chosen else []
    print("\nCertificate:\n")
    for name, text in rows:
        print(f"  {name:<12} {in_line(str(text))}")


def print_columns(summary: Sequence[Mapping[str, Any]] | None) -> None:
    """Print how the columns of each view are used, and which are left out."""
    views: dict[str, list[Mapping[str, Any]]] = {}
    for record in summary or ():
        views.setdefault(record["view"], []).append(record)
    for view, records in views.items():
        used = [r for r in records if r["use"] != "left out"]
        kinds = Counter(
            r["kind"] + " (one-hot)" * (r["use"] == "one-hot") for r in used
        )
        line = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        gaps = [r["missing"] for r in used if r["missing"]]
        if gaps:
            filled = counted(sum(gaps), "gap")
            line += f"; {filled} filled in {counted(len(gaps), 'column')}"
        columns = counted(len(records), "column")
        print(in_line(f"  {view}: {columns}: {line or 'none used'}"))
        out = [r for r in records if r["use"] == "left out"]
        if out:
            remarks = [f"{r['column']!r} ({r['remark']})" for r in out]
            print(in_line(f"    left out: {some(remarks, 6)}"))


def certificate_of(model: Any) -> dict[str, Any]:
    """Certificate and weights, for JSON."""
    chosen = chosen_by(model)
    return {
        **dataclasses.asdict(model.certificate_),
        **{k: v.item() if v.size == 1 else v.tolist() for k, v in chosen.items()},
        "view_weights": model.view_weights_,
        "view_shares": model.view_shares_,
    }


def write_results(
    draft: Draft,
    model: Any,
    rows: HeldOut,
    identity: list[NamedCells],
    methods: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write tables and plots.

    Parameters
    ----------
    draft : Draft
        From :func:`kernelweave.cli.folder.new_results`.
    model : estimator
        Fitted classifier or regressor.
    rows : HeldOut
        Rows that it has not seen, predicted and projected.
    identity : list of (name, cells)
        First columns of the table of predictions.
    methods : sequence of dict
        The table of :func:`kernelweave.evaluation.evaluate`, if there is one.
    """
    which = "" if rows.fold is None else ", out of fold"
    what = "numbers" if rows.classes is None else "classes with probabilities"
    tables = {
        "evaluation.csv": ("score of each method on held-out rows", methods),
        "weights.csv": ("weight of every kernel", weights_table(model)),
        "columns.csv": ("what was done to each column", model.column_summary_),
        "predictions.csv": (f"predicted {what}{which}", predictions(rows, identity)),
    }
    for name, (content, table) in tables.items():
        if table:
            with draft.file(name, content) as path:
                to_csv(table, path)
    if not _write_pictures(draft, model, rows):
        draft.remarks.append(
            "no plots: matplotlib is not installed (pip install 'kernelweave[plot]')"
        )
    with draft.file(MARK_FILE, "value, lower bound and gap of the weights") as path:
        write_mark(path, certificate_of(model), [*draft.written, MARK_FILE])


def identity_of(samples: Samples, label: str | None) -> list[NamedCells]:
    """First columns of the table of predictions: ids, labels, missing views."""
    identity: list[NamedCells] = [(samples.id_name, samples.data.index.tolist())]
    if samples.target is not None and label is not None:
        values = samples.target.tolist()
        identity.append((label, ["" if is_gap(v) else as_written(v) for v in values]))
    return [*identity, ("missing_views", samples.lacking())]


def predictions(rows: HeldOut, identity: list[NamedCells]) -> list[dict[str, Any]]:
    """The table of predictions, with empty cells for rows without one.

    A column of ``identity`` whose name is taken is called given_NAME.
    """

    def cells(values: Any) -> list[Any]:
        return [v if shown else "" for v, shown in zip(values, rows.shown, strict=True)]

    own: dict[str, Sequence[Any]] = {}
    if rows.fold is not None:
        own["fold"] = cells(rows.fold)
    own["prediction"] = cells(rows.predicted)
    if rows.classes is not None and rows.probability is not None:
        chances = np.round(rows.probability.astype(float), 6).T
        for label, column in zip(rows.classes, chances, strict=True):
            own[f"probability_{label}"] = cells(column)
    columns: dict[str, Sequence[Any]] = {}
    for name, values in identity:
        while name in own or name in columns:
            name = f"given_{name}"
        columns[name] = values
    columns |= own
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


def _write_pictures(draft: Draft, model: Any, rows: HeldOut) -> bool:
    if not can_draw():
        return False
    drawn = KernelWeightsDisplay.from_estimator(model).figure_
    figures = [("weights", "weights", drawn)]
    if rows.coordinates is not None:
        figures.append(("projection", "classes", _projection(rows).figure_))
    if rows.classes is None and rows.targets is not None:
        figures.append(("predicted", "predicted and true values", _scatter(rows)))
    for name, content, figure in figures:
        with draft.file(f"{name}.png", f"plot of the {content}") as path:
            save_figure(figure, path)
    return True


def _projection(rows: HeldOut) -> ProjectionDisplay:
    assert rows.coordinates is not None
    points, labels = rows.coordinates[rows.shown], rows.labels[rows.shown]
    classes = np.unique(labels)  # those of a single row are not shown
    display = ProjectionDisplay(
        coordinates=points,
        labels=labels,
        classes=classes,
        means=np.stack([points[labels == c].mean(axis=0) for c in classes]),
        legend_title="predicted class" if rows.targets is None else "class",
    ).plot()
    display.figure_.suptitle(rows.how, fontsize=9)
    return display


def _scatter(rows: HeldOut) -> Any:
    """True against predicted numbers, and the line on which they are equal."""
    assert rows.targets is not None
    true, found = rows.targets[rows.shown], rows.predicted[rows.shown]
    ax = axes("a plot of predictions", None, 5, 5)
    ends = [min(true.min(), found.min()), max(true.max(), found.max())]
    ax.plot(ends, ends, color="0.7", linewidth=1)
    ax.plot(found, true, ".", alpha=0.7)
    ax.set(xlabel="predicted", ylabel="true")
    ax.figure.suptitle(rows.how, fontsize=9)
    return ax.figure

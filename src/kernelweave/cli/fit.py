"""``kernelweave fit``: learn the view weights of a CSV file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.cli.folder import new_results
from kernelweave.cli.held_out import (
    HeldOut,
    accuracy,
    assign_folds,
    new_rows,
    out_of_fold,
)
from kernelweave.cli.output import (
    print_certificate,
    print_weights,
    shown_warnings,
    write_results,
)
from kernelweave.cli.read import (
    Table,
    check_classes,
    choose_columns,
    given_classes,
    read_table,
    views_by_prefix,
    views_from_text,
)
from kernelweave.models import MultipleKernelFDA

__all__ = ["FitOptions", "run_fit"]


@dataclass(frozen=True)
class FitOptions:
    """The command-line options; see ``kernelweave fit --help``."""

    data: str
    label: str
    task: str | None = None
    views: Sequence[str] = ()
    by_prefix: bool = False
    drop: Sequence[str] = ()
    kernel: str = "auto"
    norm: float | str = "loo"
    alpha: float | str = "loo"
    predict: str | None = None
    folds: int = 5
    out: str = "kernelweave-fit"


def run_fit(options: FitOptions) -> None:
    """Fit a table, print the weights, and write tables and plots.

    Parameters
    ----------
    options : FitOptions
        The command-line options.
    """
    table = read_table(options.data)
    views = _views(options, choose_columns(table, options.label, options.drop))
    columns = [name for members in views.values() for name in members]
    y = table.labels(options.label)
    if options.task is None:
        check_classes(y, options.label, table.path)
    X = table.numbers(columns)
    new = None if options.predict is None else _read_new(options.predict, columns)
    model = MultipleKernelFDA(
        _positions(views, options.kernel), norm=options.norm, alpha=options.alpha
    )
    with new_results(options.out) as draft:
        _print_data(table, options.label, y, views)
        if new is None:
            fold, remarks = assign_folds(y, options.folds)
            printed = _fit_and_print(model, X, y)
            with shown_warnings(printed, "out of fold: "):
                rows = out_of_fold(model, X, y, fold)
            _print_out_of_fold(rows, fold.max(), remarks)
            write_results(draft, model, rows, _identity(table, options.label))
        else:
            _fit_and_print(model, X, y)
            rows = _predict_new(model, X, new, options.label)
            write_results(draft, model, rows, _identity(new[0], options.label))


def _fit_and_print(model: Any, X: np.ndarray, y: np.ndarray) -> set[str]:
    """Fit, print weights and certificate, and return the warnings issued."""
    started = time.perf_counter()
    printed: set[str] = set()
    with shown_warnings(printed):
        model.fit(X, y)
    print(f"View weights, learned in {time.perf_counter() - started:.2f} s:\n")
    print_weights(model)
    print("\nCertificate:\n")
    print_certificate(model)
    return printed


def _print_out_of_fold(rows: HeldOut, n_folds: int, remarks: list[str]) -> None:
    labels = rows.labels[rows.shown]
    share, error = accuracy(rows.predicted[rows.shown] == labels)
    classes, counts = np.unique(labels, return_counts=True)
    print(
        f"\nAccuracy out of fold ({n_folds} folds): {100 * share:.1f} % ± "
        f"{100 * error:.1f}\n"
        "  Each row was predicted by a model that had not seen it; ± is the standard "
        "error.\n"
        f"  The largest class, {str(classes[counts.argmax()])!r}, has "
        f"{100 * counts.max() / len(labels):.1f} % of the rows."
    )
    for remark in remarks:
        print(f"  {remark}")


def _predict_new(
    model: Any, X: np.ndarray, new: tuple[Table, np.ndarray], label: str
) -> HeldOut:
    """Predict the rows of another file, and print the accuracy if it has classes."""
    table, new_X = new
    learned = {row.tobytes() for row in X}
    n_seen = sum(row.tobytes() in learned for row in new_X)
    which = f"rows of {table.path.name}"
    if n_seen:
        which += f", {n_seen} of them equal to training rows"
    else:
        which += ", which the model has not seen"
    given = given_classes(table, label, model.classes_)
    known = given is not None and set(given) <= set(model.classes_)
    labels = np.asarray(given).astype(model.classes_.dtype) if known else None
    rows = new_rows(model, new_X, labels, which)
    print(f"\nPredicted: {len(new_X)} {which}.")
    if given is None:
        print(
            f"  The file has no classes (column {label!r}), hence no accuracy; without "
            "--predict,\n  the accuracy is estimated out of fold."
        )
    elif n_seen == len(new_X):
        print("  Their accuracy would say nothing about new rows, so none is given.")
    else:
        _print_score(rows, given)
    return rows


def _print_score(rows: HeldOut, given: list[Any]) -> None:
    pairs = [
        (mine, true)
        for mine, true in zip(rows.predicted, given, strict=True)
        if true is not None
    ]
    share, error = accuracy([mine == true for mine, true in pairs])
    print(
        f"  Accuracy on {len(pairs)} rows with a class: {100 * share:.1f} % ± "
        f"{100 * error:.1f} (standard error)."
    )
    unknown = [true for _, true in pairs if true not in set(rows.classes)]
    if unknown:
        print(
            f"  {len(unknown)} of them belong to classes unknown to the model, "
            f"such as {str(unknown[0])!r}; they count as wrong."
        )


def _views(options: FitOptions, columns: list[str]) -> dict[str, list[str]]:
    if options.by_prefix:
        return views_by_prefix(columns)
    if options.views:
        return views_from_text(options.views, columns)
    return {"all": columns}


def _positions(
    views: dict[str, list[str]], kernel: str
) -> list[tuple[str, str, slice]]:
    """The ``views`` parameter, for columns sorted by view."""
    parameter, start = [], 0
    for name, members in views.items():
        parameter.append((name, kernel, slice(start, start + len(members))))
        start += len(members)
    return parameter


def _read_new(path: str, columns: list[str]) -> tuple[Table, np.ndarray]:
    table = read_table(path)
    for name in columns:
        table.require(name, "the column")
    return table, table.numbers(columns)


def _identity(table: Table, label: str) -> dict[str, Sequence[Any]]:
    """First columns of the table of predictions: line number and class of each row."""
    identity: dict[str, Sequence[Any]] = {"line": table.lines}
    if label in table.header:
        name = f"given_{label}" if label in ("line", "fold", "predicted") else label
        identity[name] = table.text(label)
    return identity


def _print_data(
    table: Table, label: str, y: np.ndarray, views: dict[str, list[str]]
) -> None:
    classes, counts = np.unique(y, return_counts=True)
    shown = [f"{c} ({count})" for c, count in zip(classes, counts, strict=True)]
    print(f"Data: {table.path}, {len(y)} rows")
    print(f"Classes of {label!r}: {_some(shown)}")
    sizes = [f"{name} ({len(members)} columns)" for name, members in views.items()]
    print(f"Views: {_some(sizes)}")
    used = {name for members in views.values() for name in members}
    unused = [name for name in table.header if name not in used and name != label]
    if unused:
        print(f"Columns not used: {_some(unused)}")
    print()


def _some(items: list[str], most: int = 10) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more

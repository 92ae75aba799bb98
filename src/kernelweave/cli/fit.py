"""``kernelweave fit``: learn the view weights of a CSV file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelweave.cli import held_out
from kernelweave.cli.folder import new_results
from kernelweave.cli.output import print_fit, shown_warnings, timed_fit, write_results
from kernelweave.cli.read import Table, choose_views, read_table, some
from kernelweave.models import MultipleKernelFDA


def run_fit(options: argparse.Namespace) -> None:
    """Fit a table, print the weights, and write tables and plots.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave fit --help``.
    """
    table = read_table(options.data)
    views = choose_views(
        table, options.label, options.drop, options.view, options.view_prefix
    )
    columns = [name for members in views.values() for name in members]
    y = table.labels(options.label, check=options.task is None)
    X = table.numbers(columns)
    shown, shown_X = table, X  # the rows to predict
    if options.predict is not None:
        shown = read_table(options.predict)
        shown_X = shown.numbers(columns)
    model = MultipleKernelFDA(
        _positions(views, options.kernel), norm=options.norm, alpha=options.alpha
    )
    with new_results(options.out) as draft:
        _print_data(table, options.label, y, views)
        if shown is table:
            fold, remarks = held_out.assign_folds(y, options.folds)
        seconds, printed = timed_fit(model, X, y)
        print_fit(model, seconds)
        if shown is table:
            with shown_warnings(printed, "out of fold: "):
                rows = held_out.out_of_fold(model, X, y, fold)
            _print_out_of_fold(rows, fold.max(), remarks)
        else:
            rows = _predict_new(model, X, shown, shown_X, options.label)
        write_results(draft, model, rows, _identity(shown, options.label))


def _print_out_of_fold(
    rows: held_out.HeldOut, n_folds: int, remarks: list[str]
) -> None:
    labels = rows.labels[rows.shown]
    share, error = held_out.accuracy(rows.predicted[rows.shown] == labels)
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
    model: Any, X: np.ndarray, table: Table, new_X: np.ndarray, label: str
) -> held_out.HeldOut:
    """Predict the rows of another file, and print the accuracy if it has classes."""
    learned = {row.tobytes() for row in X}
    n_seen = sum(row.tobytes() in learned for row in new_X)
    seen = f"{n_seen} of them equal to training rows"
    which = f"rows of {table.path.name}, "
    which += seen if n_seen else "which the model has not seen"
    given = table.given_classes(label, model.classes_)
    known = given is not None and set(given) <= set(model.classes_)
    labels = np.asarray(given).astype(model.classes_.dtype) if known else None
    rows = held_out.new_rows(model, new_X, labels, which)
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


def _print_score(rows: held_out.HeldOut, given: list[Any]) -> None:
    both = zip(rows.predicted, given, strict=True)
    pairs = [(mine, true) for mine, true in both if true is not None]
    share, error = held_out.accuracy([mine == true for mine, true in pairs])
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


def _positions(
    views: dict[str, list[str]], kernel: str
) -> list[tuple[str, str, slice]]:
    """The ``views`` parameter, for columns sorted by view."""
    parameter, start = [], 0
    for name, members in views.items():
        parameter.append((name, kernel, slice(start, start + len(members))))
        start += len(members)
    return parameter


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
    print(f"Classes of {label!r}: {some(shown)}")
    sizes = [f"{name} ({len(members)} columns)" for name, members in views.items()]
    print(f"Views: {some(sizes)}")
    used = {label}.union(*views.values())
    unused = [name for name in table.header if name not in used]
    if unused:
        print(f"Columns not used: {some(unused)}")
    print()

"""``kernelweave fit``: learn the view weights of a CSV file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.cli.output import (
    prepare_folder,
    print_certificate,
    print_weights,
    shown_warnings,
    write_results,
)
from kernelweave.cli.read import (
    Table,
    choose_columns,
    read_table,
    views_by_prefix,
    views_from_text,
)
from kernelweave.models import MultipleKernelFDA

__all__ = ["FitOptions", "run_fit"]


@dataclass(frozen=True)
class FitOptions:
    """What the command line says; see ``kernelweave fit --help``."""

    data: str
    label: str
    views: Sequence[str] = ()
    by_prefix: bool = False
    drop: Sequence[str] = ()
    kernel: str = "auto"
    norm: float | str = "loo"
    alpha: float | str = "loo"
    predict: str | None = None
    out: str = "kernelweave-fit"


def run_fit(options: FitOptions) -> None:
    """Fit a table, print the weights, write tables and pictures.

    Parameters
    ----------
    options : FitOptions
        What the command line says.
    """
    table = read_table(options.data)
    views = _views(options, choose_columns(table, options.label, options.drop))
    columns = [name for members in views.values() for name in members]
    y, X = table.labels(options.label), table.numbers(columns)
    new = None if options.predict is None else _read_new(options.predict, columns)
    folder = prepare_folder(options.out)
    model = MultipleKernelFDA(
        _positions(views, options.kernel), norm=options.norm, alpha=options.alpha
    )
    _print_data(table, options.label, y, views)
    started = time.perf_counter()
    with shown_warnings():
        model.fit(X, y)
    print(f"View weights, learned in {time.perf_counter() - started:.2f} s:\n")
    print_weights(model)
    print("\nCertificate:\n")
    print_certificate(model)
    print(f"\nLeave-one-out accuracy: {100 * model.loo_score_:.1f} %")
    if new is None:
        write_results(folder, model, X, y, _identity(table, options.label))
    else:
        new_table, new_X = new
        write_results(folder, model, new_X, None, _identity(new_table, options.label))


def _views(options: FitOptions, columns: list[str]) -> dict[str, list[str]]:
    if options.by_prefix:
        return views_by_prefix(columns)
    if options.views:
        return views_from_text(options.views, columns)
    return {"all": columns}


def _positions(
    views: dict[str, list[str]], kernel: str
) -> list[tuple[str, str, slice]]:
    """The ``views`` parameter for columns in the order of the views."""
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
    """First columns of the table of predictions: where a row was, and its class."""
    identity: dict[str, Sequence[Any]] = {"line": table.lines}
    if label in table.header:
        identity[label] = table.text(label)
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

"""``kernelweave predict``: predictions of a saved model for new rows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from kernelweave._files import csv_text
from kernelweave._text import counted, in_line
from kernelweave._writing import written_whole
from kernelweave.cli.folder import check_place
from kernelweave.cli.output import identity_of, predictions, shown_warnings
from kernelweave.cli.samples import check_unnamed, new_samples, read_tables
from kernelweave.cli.score import print_score
from kernelweave.cli.seen import own_notes, training_digests, were_seen
from kernelweave.cli.terminal import print_data
from kernelweave.evaluation.held_out import new_rows
from kernelweave.persistence import load, read_header, used_from


def run_predict(options: argparse.Namespace) -> dict[str, Any]:
    """Load a model, predict the rows of tables, and write one line for each.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave predict --help``.
    """
    check_place(options.out, [options.model, *options.data])
    if options.quiet and options.out is None:
        raise ValueError("with --quiet the predictions need a file: add --out FILE.csv")
    model, notes = load_predictor(options.model)
    id_column = options.id or notes.get("id")
    label = options.label or notes.get("label")
    columns = [str(name) for name in model.feature_names_in_]
    check_unnamed(options.data, columns, notes.get("files", ()))
    tables = read_tables(options.data, id_column)
    with used_from(options.model), shown_warnings():
        samples = new_samples(tables, model, label)
        rows = new_rows(model, samples.data, None, "new rows")
        table = predictions(rows, identity_of(samples, label))
    text = csv_text(table)
    if options.out is None:
        print_data(text.replace("\r\n", "\n"))
    else:
        for line in samples.remarks:
            print(in_line(line))
        n_lacking = sum(map(bool, samples.lacking()))
        gaps = f", {n_lacking} of them with a view missing" if n_lacking else ""
        print(f"Predicted: {counted(len(table), 'row')}{gaps}.")
    results: dict[str, Any] = {"rows": len(table), "out": options.out}
    if options.out is None:
        results["predictions"] = table
    if options.out is not None or options.json:
        training, given = training_digests(notes, samples)
        seen = were_seen(given, training)
        results |= print_score(model, samples, rows.predicted, label, seen)
    if options.out is not None:  # last: after an interrupt, nothing is written
        with written_whole(Path(options.out)) as file:
            file.write(text.encode())
        print(f"\nWritten: {options.out}")
    return results


def load_predictor(path: str) -> tuple[Any, dict[str, Any]]:
    """A saved classifier or regressor of this package, and the notes in its file."""
    notes = own_notes(read_header(path)["notes"])
    with shown_warnings():  # scikit-learn warns about files of its other versions
        model = load(path)
    if not (hasattr(model, "views") and hasattr(model, "predict")):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, which is not a classifier or "
            "regressor of kernelweave; name a file that holds one"
        )
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise ValueError(
            f"{path} holds a {type(model).__name__} that is not fitted; fit it before "
            "it is saved"
        ) from None
    if not hasattr(model, "feature_names_in_"):
        raise ValueError(
            f"{path} holds a model that was fitted to arrays, whose columns have no "
            "names; fit it to a DataFrame, or use 'kernelweave fit'"
        )
    return model, notes

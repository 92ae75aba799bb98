"""``kernelweave predict``: predictions of a saved model for new rows."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from kernelweave._files import csv_text
from kernelweave.cli.folder import check_place
from kernelweave.cli.output import predictions, shown_warnings
from kernelweave.cli.samples import Samples, new_samples, read_tables, read_target
from kernelweave.cli.score import score_classes, score_numbers
from kernelweave.cli.seen import digests, own_notes, training_digests, were_seen
from kernelweave.evaluation.held_out import new_rows
from kernelweave.persistence import load, read_header, used_from, written_whole
from kernelweave.views.columns import counted


def run_predict(options: argparse.Namespace) -> dict[str, Any]:
    """Load a model, predict the rows of tables, and write one line for each.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave predict --help``.
    """
    from kernelweave.cli.fit import identity_of

    check_place(options.out)
    if options.quiet and options.out is None:
        raise ValueError("with --quiet the predictions need a file: add --out FILE.csv")
    model, notes = load_predictor(options.model)
    id_column = options.id or notes.get("id")
    label = options.label or notes.get("label")
    tables = read_tables(options.data, id_column)
    with used_from(options.model), shown_warnings():
        samples = new_samples(tables, model, label)
        rows = new_rows(model, samples.data, None, "new rows")
        table = predictions(rows, identity_of(samples, label))
    text = csv_text(table)
    if options.out is None:
        sys.stdout.write(text.replace("\r\n", "\n"))
    else:
        for line in samples.remarks:
            print(line)
        n_lacking = sum(map(bool, samples.lacking()))
        gaps = f", {n_lacking} of them with a view missing" if n_lacking else ""
        print(f"Predicted: {counted(len(table), 'row')}{gaps}.")
    results: dict[str, Any] = {"rows": len(table), "out": options.out}
    if options.out is None:
        results["predictions"] = table
    if options.out is not None or options.json:
        training = training_digests(notes, len(samples.views))
        seen = were_seen(digests(samples), training)
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


def print_score(
    model: Any,
    samples: Samples,
    predicted: np.ndarray,
    label: str | None,
    seen: np.ndarray,
) -> dict[str, Any]:
    """Print the score of the predictions, if the labels are given, and return it.

    Rows that the model was trained on are pointed out; if there are no others, a score
    would say nothing about new rows, so none is given.
    """
    results: dict[str, Any] = {"training_rows": int(seen.sum())}
    if seen.any():
        verb = "was" if seen.sum() == 1 else "were"
        which = f"{seen.sum()} of these rows {verb}"
        which = "All of these rows were" if seen.all() else which
        print(
            f"  {which} used for training, where scores are too optimistic; "
            "'kernelweave evaluate' gives honest ones."
        )
    if label is None:
        print("  No score: name the column of the true labels with --label.")
        return results
    if samples.target is None or not samples.target.notna().any():
        print(f"  No score: there is no label column {label!r}, or it is empty.")
        return results
    if seen.all():
        print("  Their score would say nothing about new rows, so none is given.")
        return results
    if is_classifier(model):
        score, words = score_classes(predicted, samples.target, model.classes_)
    else:
        try:
            truth, _, _ = read_target(samples, "regression")
        except ValueError as error:  # predictions do not need the truth
            print(f"  No score: {error}.")
            return results
        known = samples.target.notna().to_numpy()
        score, words = score_numbers(predicted[known], truth)
    print(f"  {words}")
    return results | score

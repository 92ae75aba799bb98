"""``kernelweave predict``: what a saved model says about new rows."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from sklearn.base import is_classifier

from kernelweave.cli.folder import HIDDEN, check_place
from kernelweave.cli.output import predictions, shown_warnings
from kernelweave.cli.samples import Samples, new_samples, read_tables
from kernelweave.cli.score import score_classes, score_numbers
from kernelweave.cli.seen import digests, were_seen
from kernelweave.evaluation.held_out import new_rows
from kernelweave.inspection import to_csv
from kernelweave.persistence import load, read_header, used_from


def run_predict(options: argparse.Namespace) -> dict[str, Any]:
    """Load a model, predict the rows of tables, and write one line for each.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave predict --help``.
    """
    from kernelweave.cli.fit import identity_of

    check_place(options.out)
    notes = read_header(options.model).get("notes") or {}
    model = load(options.model)
    id_column = options.id or notes.get("id")
    label = options.label or notes.get("label")
    tables = read_tables(options.data, id_column)
    with used_from(options.model), shown_warnings():
        samples = new_samples(tables, model, label)
        lacking = samples.lacking(samples.views)
        rows = new_rows(model, samples.data, None, "new rows")
    table = predictions(rows, identity_of(samples, label, lacking))
    if options.out is None:
        _write(table, None)
    else:
        _write(table, Path(options.out))
        for line in samples.told:
            print(line)
        n_lacking = sum(map(bool, lacking))
        gaps = f"; {n_lacking} of them lack a view" if n_lacking else ""
        print(f"Predicted: {len(table)} rows{gaps}.")
    told: dict[str, Any] = {"rows": len(table), "out": options.out}
    seen = np.zeros(len(table), dtype=bool)
    if notes.get("digests"):
        seen = were_seen(digests(samples, samples.views), notes["digests"])
    if options.out is not None or options.json:
        told |= print_score(model, samples, rows.predicted, label, seen)
    if options.out is not None:
        print(f"\nWritten: {options.out}")
    return told


def print_score(
    model: Any,
    samples: Samples,
    predicted: np.ndarray,
    label: str | None,
    seen: np.ndarray,
) -> dict[str, Any]:
    """Print how many predictions are right, if the labels are given; return it, too.

    Rows that the model has learned from are remarked on; if there are no others, a
    score would say nothing about new rows, so none is given.
    """
    told: dict[str, Any] = {"training_rows": int(seen.sum())}
    if seen.any():
        which = "All of these rows" if seen.all() else f"{seen.sum()} of these rows"
        print(
            f"  {which} were used for training; scores on them are not honest, those "
            "of 'kernelweave evaluate' are."
        )
    if samples.target is None or not samples.target.notna().any():
        print(f"  There is no label column {label!r}, hence no score.")
        return told
    if seen.all():
        print("  Their score would say nothing about new rows, so none is given.")
        return told
    if not is_classifier(model):
        score, words = score_numbers(predicted, samples.target)
    else:
        score, words = score_classes(predicted, samples.target)
    print(f"  {words}")
    if is_classifier(model):
        known = {str(value) for value in model.classes_}
        given = samples.target.dropna()
        texts = [str(v).removesuffix(".0") for v in given.tolist()]
        unknown = [text for text in texts if text not in known]
        if unknown:
            print(
                f"  {len(unknown)} of them belong to classes unknown to the model, "
                f"such as {unknown[0]!r}; they count as wrong."
            )
    return told | score


def _write(table: list[dict[str, Any]], path: Path | None) -> None:
    """Write the table, whole or not at all; None is standard output."""
    if path is None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / "predictions.csv"
            to_csv(table, draft)
            sys.stdout.write(draft.read_text(encoding="utf-8"))
        return
    draft = path.with_name(f"{HIDDEN}{uuid4().hex[:12]}.csv")
    try:
        to_csv(table, draft)
        draft.replace(path)
    except OSError as error:
        raise OSError(
            f"cannot write {str(path)!r}: {error.strerror or error}; nothing was "
            "written"
        ) from error
    finally:
        draft.unlink(missing_ok=True)

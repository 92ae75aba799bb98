"""``kernelweave inspect``: describe a saved model in words."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sklearn.base import is_classifier

from kernelweave._text import counted, in_line, some
from kernelweave.cli.output import (
    certificate_of,
    print_certificate,
    print_columns,
    print_weights,
    shown_warnings,
)
from kernelweave.cli.seen import own_notes
from kernelweave.inspection._rows import (
    rows_kept_by,
    rows_kept_in_words,
    weight_in_words,
)
from kernelweave.persistence import load, read_header, used_from


def run_inspect(options: argparse.Namespace) -> dict[str, Any]:
    """Print what a model file holds.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave inspect --help``.
    """
    with used_from(options.model), shown_warnings():
        header = read_header(options.model)
        model, notes = load(options.model), own_notes(header["notes"])
        if not hasattr(model, "view_shares_"):
            raise ValueError(
                f"{options.model} holds a {type(model).__name__}, which is not a "
                "fitted model with view weights"
            )
        made = header["versions"].get("kernelweave", "?")
        kind, written = type(model).__name__, header["written"]
        title = f"{options.model}: {kind} of kernelweave {made}, written {written}"
        print(in_line(title))
        summary = f"{_in_words(model, notes)}\n{rows_kept_in_words(model)}"
        print(summary)
        print("\nViews:\n")
        print_weights(model)
        print("\nColumns:\n")
        print_columns(header.get("columns"))
        if hasattr(model, "certificate_"):
            print_certificate(model)
        given = {k: v for k, v in header["notes"].items() if v is not None}
        others = [k for k in given if k not in notes]
        if others:
            print("\nNotes:\n")
        for name in others:
            content = json.dumps(given[name], ensure_ascii=False)
            print(f"  {in_line(name)}: {in_line(content)}")
        versions = [f"{name} {v}" for name, v in header["versions"].items()]
        print(f"\nMade with {in_line(', '.join(versions))}.")
        found = {"class": type(model).__name__, "words": summary, **header}
        found["rows_kept"] = rows_kept_by(model)
        return found | (certificate_of(model) if hasattr(model, "certificate_") else {})


def _in_words(model: Any, notes: dict[str, Any]) -> str:
    label = f" {notes['label']!r}" if notes.get("label") else ""
    if is_classifier(model):
        classes = in_line(some(map(str, model.classes_), 10))
        aim = f"It predicts the class{label}, one of {len(model.classes_)}: {classes}."
    else:
        aim = f"It predicts the number{label}."
    rows = ""
    if notes.get("rows"):
        rows = f" It learned from {counted(notes['rows'], 'row')}"
    if rows and notes.get("files"):
        rows += f" of {in_line(some(map(str, notes['files'])))}"
    return f"{aim}{rows}{'.' * bool(rows)}\n{in_line(weight_in_words(model))}"

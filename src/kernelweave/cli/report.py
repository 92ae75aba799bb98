"""``kernelweave report``: what a model has learned, as one HTML page."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from sklearn.base import is_classifier

from kernelweave._text import counted, some
from kernelweave.cli.fit import check_file, fitted, read_problem, write_page
from kernelweave.cli.predict import load_predictor
from kernelweave.cli.progress import progress
from kernelweave.cli.seen import training_digests
from kernelweave.cli.settings import MODEL_OPTIONS


def run_report(options: argparse.Namespace) -> dict[str, Any]:
    """Fit, or load a model with the rows it was fitted to, and write the page.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave report --help``.
    """
    check_file("report", options.out, [*options.data, options.views])
    model: Any = None
    notes: dict[str, Any] = {}
    if options.data[0].endswith(".kw"):
        name, *options.data = options.data
        if not options.data:
            raise ValueError(f"also name the tables that {name} was fitted to")
        fitting = ("kernel", "view", "view_prefix", *MODEL_OPTIONS)
        given = [key for key in fitting if getattr(options, key)]
        if given:
            option = "--" + given[0].replace("_", "-")
            raise ValueError(
                f"{option} is for a model that is yet to be fitted, but {name} is "
                f"fitted already. Leave out the option, or {name}"
            )
        model, notes = load_predictor(name)
        for key in ("id", "label", "groups"):
            setattr(options, key, getattr(options, key) or notes.get(key))
        task = "classification" if is_classifier(model) else "regression"
        if options.task not in (None, task):
            raise ValueError(f"{name} is for {task}; leave out --task {options.task}")
        options.task = task
    problem = read_problem(options, model)
    training, given = training_digests(notes, problem.samples, problem.y)
    if len(training):
        lost = Counter(map(bytes, training)) - Counter(map(bytes, given))
        if lost or len(given) != notes.get("rows"):
            raise ValueError(
                f"{', '.join(options.data)}: these are not the rows that {name} was "
                f"fitted to, which were {counted(notes.get('rows', 0), 'row')} of "
                f"{some(map(str, notes.get('files', ())))} with the label "
                f"{notes.get('label')!r}; name those files"
            )
    with progress(options) as say:
        if model is None:
            model = fitted(problem, say)
        write_page(problem, model, options.out, say)
    print(f"Written: {Path(options.out).resolve()}")
    return {"out": options.out, "rows": len(problem.y), "task": problem.task}

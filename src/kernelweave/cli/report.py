"""``kernelweave report``: what a model has learned, as one HTML page."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelweave.cli.fit import Problem, fitted, read_problem, write_page
from kernelweave.cli.folder import check_place
from kernelweave.cli.progress import progress
from kernelweave.persistence import load, read_header


def run_report(options: argparse.Namespace) -> dict[str, Any]:
    """Fit, or load a model with the rows it was fitted to, and write the page.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave report --help``.
    """
    check_place(options.out)
    model = None
    if options.data[0].endswith(".kw"):
        name, *options.data = options.data
        if not options.data:
            raise ValueError(f"name the tables that {name} was fitted to, as well")
        notes = read_header(name).get("notes") or {}
        model = load(name)
        for key in ("id", "label", "groups", "task"):
            setattr(options, key, getattr(options, key) or notes.get(key))
    problem = read_problem(options)
    if model is not None:
        problem = _of_model(problem, model)
    with progress(options) as say:
        if model is None:
            model = fitted(problem, say)
        write_page(problem, model, options.out, say)
    print(f"Written: {Path(options.out).resolve()}")
    return {"out": options.out, "rows": len(problem.y), "task": problem.task}


def _of_model(problem: Problem, model: Any) -> Problem:
    """The problem with the columns of a saved model, in its order."""
    wanted = [str(name) for name in getattr(model, "feature_names_in_", [])]
    lost = [name for name in wanted if name not in problem.samples.data]
    if lost or not wanted:
        raise ValueError(
            f"{', '.join(problem.options.data)}: not the rows that the model was "
            f"fitted to: the column {(lost or ['?'])[0]!r} is missing"
        )
    samples = replace(problem.samples, data=problem.samples.data[wanted])
    return replace(problem, samples=samples, model=model)

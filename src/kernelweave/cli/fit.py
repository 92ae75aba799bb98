"""``kernelweave fit``: learn the view weights of one table, or of several."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave._text import counted, in_line, some, with_names
from kernelweave.cli.folder import FILES, check_place, new_results
from kernelweave.cli.output import (
    certificate_of,
    identity_of,
    print_certificate,
    print_columns,
    print_weights,
    shown_warnings,
    write_results,
)
from kernelweave.cli.progress import Narrator, progress
from kernelweave.cli.read import pandas_or_why
from kernelweave.cli.samples import (
    Samples,
    check_unnamed,
    new_samples,
    read_tables,
    read_target,
    training_samples,
    views_of_model,
    with_columns_of,
    with_labels,
)
from kernelweave.cli.score import print_score
from kernelweave.cli.seen import TRAINING, digests, digests_as_text, were_seen
from kernelweave.cli.settings import read_settings
from kernelweave.evaluation.evaluate import evaluate
from kernelweave.evaluation.held_out import HeldOut, new_rows
from kernelweave.models import MultipleKernelFDA, MultipleKernelRidge
from kernelweave.persistence import save

#: What each value of ``missing`` does with a row that lacks a view.
MISSING_IN_WORDS = {
    "zero": "lets the views that a row lacks add nothing",
    "available": "fills them in from the views that the row has",
    "error": "refuses such rows",
}


@dataclass(frozen=True)
class Problem:
    """The problem to be learned.

    Attributes
    ----------
    samples : Samples
        The rows.
    y : ndarray of shape (n,)
        Classes or numbers.
    task : {"classification", "regression"}
        Which of the two.
    model : estimator
        The model, fitted or not.
    options : argparse.Namespace
        The options of the command, completed from the settings file.
    """

    samples: Samples
    y: np.ndarray
    task: str
    model: Any
    options: argparse.Namespace


def read_problem(options: argparse.Namespace, model: Any = None) -> Problem:
    """Read tables and settings, and print what was found.

    Parameters
    ----------
    options : argparse.Namespace
        The options of ``fit``, to be completed from the settings file.
    model : estimator, default=None
        A model that was fitted to these tables; None makes a new one.
    """
    parameters = {
        task: set(kind().get_params(deep=False)) - {"views", "cv"}
        for task, kind in MODELS.items()
    }
    read_settings(options, sorted(set.union(*parameters.values())))
    tables = read_tables(options.data, options.id)
    samples = with_labels(training_samples(tables, options), tables, model)
    if model is not None:
        _check_views(model, options, samples)
        samples = with_columns_of(model, samples, tables)
    y, task, why = read_target(samples, options.task)
    why = f"since {why}"
    if options.task:
        why = "as you asked" if model is None else "as in the fit of the model"
    if task == "regression" and np.ptp(y) == 0:
        raise ValueError(
            f"the label column {options.label!r} holds {y[0]:g} in every row, so there "
            "is nothing to predict; choose another column with --label"
        )
    chosen = {"norm": "loo", "alpha": "loo", **options.parameters}
    if "class_weight" in chosen:
        chosen["class_weight"] = _by_class(chosen["class_weight"], y)
    for name in chosen:
        if name not in parameters[task]:
            raise ValueError(f"{name} is not a parameter for {task}; leave it out")
    if task == "regression":
        chosen["cv"] = None  # only probabilities need folds inside the fit
    if model is None:
        model = MODELS[task](samples.views, **chosen)
    else:
        _check_equal(model, options, chosen)
    problem = Problem(samples, y, task, model, options)
    _print_problem(problem, why)
    for text in _mistakes(problem):
        print(f"warning: {text}", file=sys.stderr)
    return problem


def _check_equal(model: Any, options: argparse.Namespace, chosen: Any) -> None:
    """Refuse parameters in the settings file that are not those of a fitted model."""
    fitted_with = model.get_params(deep=False)
    for name in options.parameters:
        own, given = fitted_with.get(name, chosen[name]), chosen[name]
        if not np.array_equal(own, given):
            raise ValueError(
                f"{options.views}: {name} is {given!r}, but the model was fitted with "
                f"{own!r}; leave it out"
            )


def _check_views(model: Any, options: argparse.Namespace, samples: Samples) -> None:
    """Refuse views in the settings file that are not those of a fitted model.

    Kernels, which have no equality, are compared as they are written.
    """
    known = {name: (own, columns) for name, own, columns in views_of_model(model)}
    found = {name: columns for name, _, columns in samples.views}
    for name in options.view_settings:
        _, columns = known.get(name, (None, []))
        if odd := set(columns).symmetric_difference(found.get(name, [])):
            raise ValueError(
                f"{options.views}: the view {name!r} and that of the model differ in "
                f"{with_names('the column', map(repr, sorted(odd)))}; leave it out"
            )
    for name, (own, _) in known.items():
        given = options.view_settings.get(name, {}).get("kernel") or options.kernel
        if given and repr(given) != repr(own):
            raise ValueError(
                f"{options.views}: the kernel of the view {name!r} is {given!r}, but "
                f"the model was fitted with {own!r}; leave it out"
            )


#: The model of each task.
MODELS: dict[str, Any] = {
    "classification": MultipleKernelFDA,
    "regression": MultipleKernelRidge,
}


def run_fit(options: argparse.Namespace) -> dict[str, Any]:
    """Fit, print the weights, and write tables and plots.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave fit --help``.
    """
    read = [*options.data, *(options.predict or ()), options.views]
    others = [*read, *(str(Path(options.out) / name) for name in FILES)]
    check_file("save", options.save, others)
    check_file("report", options.report, [*others, options.save])
    problem = read_problem(options)
    shown = problem.samples
    if options.predict:
        columns = [str(name) for name in problem.samples.data.columns]
        check_unnamed(options.predict, columns, options.data)
        new_tables = read_tables(options.predict, options.id)
    with new_results(options.out, read) as draft, progress(options) as say:
        if options.predict:
            model = fitted(problem, say)
            print_fit(model)
            with shown_warnings():
                shown = new_samples(new_tables, model, options.label)
                results, rows = _predict_new(model, problem, shown)
        else:
            result = held_out(problem, say, baselines=False)
            model, rows = result.model, result.held_out
            print_fit(model)
            results = print_out_of_fold(problem, result)
        say("writing")
        write_results(draft, model, rows, identity_of(shown, options.label))
        if options.report is not None:
            with draft.elsewhere(options.report) as path:
                write_page(problem, model, path, say)
        if options.save is not None:
            with draft.elsewhere(options.save) as path:
                save(model, path, notes=notes_of(problem))
    return {
        "task": problem.task,
        "rows": len(problem.y),
        **results,
        **certificate_of(model),
        "out": str(draft.folder),
        "files": [*map(str, draft.written), *map(str, draft.beside)],
    }


def check_file(extra: str, path: str | None, others: list[str | None]) -> None:
    """Refuse a model or page that cannot be written, before the work begins."""
    check_place(path, others)
    package = {"save": "skops", "report": "jinja2"}[extra]
    if path is not None and find_spec(package) is None:
        raise ImportError(f"{path} needs {package}: pip install 'kernelweave[{extra}]'")


def fitted(problem: Problem, say: Narrator) -> Any:
    """The model, fitted to all rows; its warnings are printed."""
    samples = problem.samples
    with _narrated(problem.model, say) as model:
        return model.fit(samples.data, problem.y, groups=samples.groups)


@contextmanager
def _narrated(model: Any, narrator: Narrator) -> Iterator[Any]:
    """The model, which reports its progress; its warnings are printed."""
    try:
        with shown_warnings():
            yield model.set_callbacks(narrator)
    finally:
        model.set_callbacks()  # they must not be saved with it


def held_out(problem: Problem, say: Narrator, baselines: bool) -> Any:
    """Fit to all rows and to all but each fold; see ``evaluate``."""
    with _narrated(problem.model, say) as model:
        result = evaluate(
            model,
            problem.samples.data,
            problem.y,
            cv=problem.options.folds,
            groups=problem.samples.groups,
            baselines=baselines,
            report=say,
        )
    result.model.set_callbacks()
    return result


def write_page(problem: Problem, model: Any, path: Any, say: Narrator) -> None:
    """Write the report of a fitted model to one HTML file."""
    from kernelweave.report import write_report

    write_report(
        model,
        problem.samples.data,
        problem.y,
        path,
        title=f"What predicts {problem.options.label}",
        groups=problem.samples.groups,
        cv=problem.options.folds,
        report=say,
    )


def notes_of(problem: Problem) -> dict[str, Any]:
    """The notes that ``predict`` and ``inspect`` need besides the model."""
    columns = {key: getattr(problem.options, key) for key in ("label", "id", "groups")}
    return {
        **columns,
        "task": problem.task,
        "rows": len(problem.y),
        "files": list(problem.options.data),
        TRAINING: digests_as_text(digests(problem.samples, problem.y)),
    }


def print_fit(model: Any) -> None:
    """Print columns, weights and certificate."""
    print("Columns:\n")
    print_columns(model.column_summary_)
    print("\nView weights:\n")
    print_weights(model)
    print_certificate(model)


def print_out_of_fold(problem: Problem, result: Any) -> dict[str, Any]:
    """Print the score on the held-out rows, and return it."""
    record, rows = result.table[0], result.held_out
    n_folds = int(rows.fold.max())
    score, error = record["score"], record["score_se"]
    by = " by groups" if problem.samples.groups is not None else ""
    if problem.task == "classification":
        classes, counts = np.unique(problem.y[rows.shown], return_counts=True)
        text = f"Accuracy out of fold ({n_folds} folds{by}): {100 * score:.1f} % ± "
        text += f"{100 * error:.1f}"
        chance = (
            f"The largest class, {str(classes[counts.argmax()])!r}, has "
            f"{100 * counts.max() / counts.sum():.1f} % of the rows."
        )
    else:
        text = f"R2 out of fold ({n_folds} folds{by}): {score:.3f} ± {error:.3f}"
        chance = "Always predicting the mean would give an R2 of 0."
    print(
        f"\n{text}\n  Each row was predicted by a model that had not seen it; ± is the "
        f"standard error.\n  {chance}"
    )
    for remark in result.remarks:
        print(f"  {in_line(remark)}")
    name = "accuracy" if problem.task == "classification" else "r2"
    return {name: score, "standard_error": error, "how": "out of fold"}


def _predict_new(
    model: Any, problem: Problem, new: Samples
) -> tuple[dict[str, Any], HeldOut]:
    """Predict the rows of other files, and print the score if they have labels."""
    seen = were_seen(digests(new), digests(problem.samples))
    files = some(text.partition("=")[2] or text for text in problem.options.predict)
    which = f"{counted(len(new.data), 'row')} of {files}, "
    which += (
        f"{seen.sum()} of them equal to training rows"
        if seen.any()
        else "which the model has not seen"
    )
    rows = new_rows(model, new.data, None, which)
    print(f"\nPredicted: {in_line(which)}.")
    results: dict[str, Any] = {"how": which}
    results |= print_score(model, new, rows.predicted, problem.options.label, seen)
    return results, rows


def _by_class(weights: Any, y: np.ndarray) -> Any:
    """Weights of the classes, whose names are text in a settings file."""
    if isinstance(weights, str):
        return weights
    if not isinstance(weights, dict):
        raise ValueError(f"class_weight must be 'balanced' or a table; got {weights!r}")
    classes = {str(label): label for label in np.unique(y).tolist()}
    unknown = [name for name in weights if name not in classes]
    if unknown:
        raise ValueError(
            f"class_weight: {unknown[0]!r} is not a class; the classes are "
            f"{some(classes)}"
        )
    return {classes[name]: weight for name, weight in weights.items()}


def _mistakes(problem: Problem) -> Iterator[str]:
    """Warn about classes that may be misspelled, and columns that reveal the label."""
    if problem.task == "regression":
        return
    label, data = problem.options.label, problem.samples.data
    classes, codes = np.unique(problem.y, return_inverse=True)
    spelled: dict[str, list[str]] = {}
    for name in map(str, classes):
        spelled.setdefault(name.casefold(), []).append(name)
    for names in spelled.values():
        if len(names) > 1:
            yield (
                f"the classes {some(map(repr, names))} of {label!r} differ only in "
                "case; spell them the same way if they are one class"
            )
    k = len(classes)
    for name, column in data.select_dtypes(exclude="floating").items():
        own = pandas_or_why().factorize(column)[0]
        if own.max() == k - 1 and len(np.unique(k * own + codes)) == k > 1:
            yield (
                f"the column {name!r} determines the label {label!r} in every row; "
                "leave it out with --drop if it is a copy, or becomes known only later"
            )


def _print_problem(problem: Problem, why: str) -> None:
    samples, options = problem.samples, problem.options
    for line in samples.remarks:
        print(in_line(line))
    print(f"Task: {problem.task} of {options.label!r}, {why}")
    if problem.task == "classification":
        classes, counts = np.unique(problem.y, return_counts=True)
        shown = [f"{c} ({count})" for c, count in zip(classes, counts, strict=True)]
        print(in_line(f"Classes: {some(shown, 10)}"))
    else:
        print(f"Values: from {problem.y.min():g} to {problem.y.max():g}")
    sizes = [
        f"{name} ({counted(len(own), 'column')})" for name, _, own in samples.views
    ]
    print(in_line(f"Views: {some(sizes, 10)}"))
    n_lacking = sum(map(bool, samples.lacking()))
    missing = problem.model.missing
    if n_lacking:
        print(
            f"Missing views: in {n_lacking} of {counted(len(problem.y), 'row')}; "
            f"missing={missing!r} (--missing) {MISSING_IN_WORDS[missing]}"
        )
    if samples.groups is not None:
        n_groups = len(np.unique(samples.groups.astype(str)))
        print(
            f"Groups: {counted(n_groups, 'value')} of {options.groups!r}, each held "
            "out as a whole"
        )
    print()

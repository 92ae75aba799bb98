"""``kernelweave evaluate``: is the model better than simpler ones, on held-out rows?"""

from __future__ import annotations

import argparse
from typing import Any

from kernelweave.cli.fit import held_out, identity_of, read_problem
from kernelweave.cli.folder import new_results
from kernelweave.cli.output import print_table, write_results
from kernelweave.cli.progress import progress


def run_evaluate(options: argparse.Namespace) -> dict[str, Any]:
    """Cross-validate a model beside its baselines; print and write the comparison.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave evaluate --help``.
    """
    problem = read_problem(options)
    with new_results(options.out) as draft, progress(options) as say:
        result = held_out(problem, options, say, baselines=True)
        print_methods(result)
        for remark in result.remarks:
            print(remark)
        identity = identity_of(problem.samples, options.label)
        write_results(draft, result.model, result.held_out, identity, result.table)
    return {
        "task": problem.task,
        "rows": len(problem.y),
        "score_name": result.score_name,
        "methods": result.table,
        "summary": result.summary,
        "view_shares": result.model.view_shares_,
        "out": str(draft.folder),
        "files": list(draft.written),
    }


def print_methods(result: Any) -> None:
    """Print one line per method: scores, standard errors, and the model's lead."""
    classify = result.score_name == "accuracy"
    unit, digits = (100, 1) if classify else (1, 3)

    def number(value: Any, scale: float = 1, places: int = 3, form: str = "") -> str:
        return "-" if value is None else f"{scale * value:{form}.{places}f}"

    def percent(value: Any) -> str:
        return "-" if value is None else f"{100 * value:.1f} %"

    n_folds = int(result.held_out.fold.max())
    name = "accuracy" if classify else "R2"
    print(f"Out of fold ({n_folds} folds), every row by models that had not seen it:\n")
    headers = ["method", name, "±"]
    headers += ["balanced", "log loss", "±"] if classify else []
    headers += ["lead of the model", "±"]
    lines = []
    for row in result.table:
        score = row["score"]
        line = [row["method"], percent(score) if classify else number(score)]
        line.append(number(row["score_se"], unit, digits))
        if classify:
            line.append(percent(row["balanced_accuracy"]))
            line += [number(row["log_loss"]), number(row["log_loss_se"])]
        line.append(number(row["lead"], unit, digits, "+"))
        line.append(number(row["lead_se"], unit, digits))
        lines.append(line)
    print_table(headers, lines)
    for row in result.table:
        if row["remark"]:
            print(f"  {row['method']}: {row['remark']}")
    print(f"\n{result.summary}\n± is one standard error.")

"""``kernelweave evaluate``: is the model better than simpler ones, on held-out rows?"""

from __future__ import annotations

import argparse
from typing import Any

from kernelweave._text import in_line
from kernelweave.cli.fit import held_out, read_problem
from kernelweave.cli.folder import new_results
from kernelweave.cli.output import identity_of, print_table, write_results
from kernelweave.cli.progress import progress


def run_evaluate(options: argparse.Namespace) -> dict[str, Any]:
    """Cross-validate a model and its baselines; print and write the comparison.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave evaluate --help``.
    """
    problem = read_problem(options)
    read = [*options.data, options.views]
    with new_results(options.out, read) as draft, progress(options) as say:
        result = held_out(problem, say, baselines=True)
        print_methods(result)
        for remark in result.remarks:
            print(in_line(remark))
        identity = identity_of(problem.samples, options.label)
        write_results(draft, result.model, result.held_out, identity, result.table)
    return {
        "task": problem.task,
        "rows": len(problem.y),
        "score_name": result.score_name,
        "lead_name": result.lead_name,
        "methods": result.table,
        "summary": result.summary,
        "view_shares": result.model.view_shares_,
        "out": str(draft.folder),
        "files": list(draft.written),
    }


def print_methods(result: Any) -> None:
    """Print one line per method: scores, standard errors, and the model's lead."""
    classify = result.score_name == "accuracy"

    # shares of rows are shown in percent
    usual, scale, end = (".1f", 100, " %") if classify else (".3f", 1, "")

    def shown(value: Any, form: str = usual, unit: int = scale, end: str = "") -> str:
        return "-" if value is None else f"{unit * value:{form}}{end}"

    n_folds = int(result.held_out.fold.max())
    name = "accuracy" if classify else "R2"
    print(f"Out of fold ({n_folds} folds): no model had seen the rows it predicts.\n")
    headers = ["method", name, "±"]
    headers += ["balanced", "log loss", "±"] if classify else []
    headers += ["lead of the model", "±"]
    lines = []
    for row in result.table:
        line = [row["method"], shown(row["score"], end=end), shown(row["score_se"])]
        if classify:
            line.append(shown(row["balanced_accuracy"], end=end))
            line += [shown(row[loss], ".3f", 1) for loss in ("log_loss", "log_loss_se")]
        lines.append([*line, shown(row["lead"], f"+{usual}"), shown(row["lead_se"])])
    print_table(headers, lines)
    for row in result.table:
        if row["remark"]:
            print(in_line(f"  {row['method']}: {row['remark']}"))
    print(f"\n{in_line(result.summary)}\n± is one standard error.")

"""The command-line parser of ``kernelweave``; each command has its own module."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import Any

import kernelweave
from kernelweave.cli.demo import run_demo
from kernelweave.cli.fit import run_fit
from kernelweave.cli.reproduce import run_reproduce
from kernelweave.papers import PAPERS

#: Errors in the input rather than in the program: reported in one line.
EXPECTED = (ValueError, OSError, MemoryError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, default=None
        The arguments; None uses those of the process.

    Returns
    -------
    status : int
        0 on success, 2 for errors in the input, 3 if a table of a paper stayed empty
        for want of data, 130 after Ctrl-C.
    """
    return run(build_parser().parse_args(argv))


def run(arguments: argparse.Namespace) -> int:
    """Run the command of the parsed arguments; see :func:`main`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals without Unicode
    try:
        status = arguments.run(arguments)
    except (*EXPECTED, KeyboardInterrupt) as error:
        if arguments.debug:
            raise
        if isinstance(error, KeyboardInterrupt):
            print(f"kernelweave: interrupted; {arguments.interrupted}", file=sys.stderr)
            return 130
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"kernelweave: error: {message}", file=sys.stderr)
        return 2
    return int(status or 0)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="kernelweave",
        description="Learn which of many kernels matter, with a proof that the "
        "weights are optimal.",
    )
    version = f"kernelweave {kernelweave.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--debug", action="store_true", help="show the whole traceback of an error"
    )
    common.set_defaults(interrupted="nothing was written")
    for add in (_add_demo, _add_fit, _add_reproduce):
        add(partial(commands.add_parser, parents=[common]))
    return parser


def _add_demo(command: Callable[..., argparse.ArgumentParser]) -> None:
    demo = command(
        "demo",
        help="learn view weights on bundled data",
        description="Learn which views of bundled data matter (one of them is pure "
        "noise), compare with two baselines, and write tables and plots.",
    )
    demo.set_defaults(run=run_demo)
    _add(demo, "--out", "DIR", "folder for the results", "kernelweave-demo")


def _add_fit(command: Callable[..., argparse.ArgumentParser]) -> None:
    fit = command(
        "fit",
        help="learn view weights from a CSV file",
        description="Learn which views of a table matter, and write weights, "
        "certificate, predictions and plots. Every row is predicted by a model "
        "that has not seen it: out of fold, or in another file (--predict).",
    )
    option = partial(_add, fit)
    option("data", "FILE.csv", "table with a header, one row per sample")
    option("--label", "COLUMN", "column of the classes", required=True)
    fit.add_argument(
        "--task",
        choices=["classification"],
        help="treat the values of the label column as classes even if they look like "
        "measurements or row names",
    )
    grouping = fit.add_mutually_exclusive_group()
    views = (
        "a view and its columns: names, prefixes or patterns such as 'rna_*', "
        "separated by commas; may be given several times (default: one view of all "
        "columns)"
    )
    _add(grouping, "--view", "NAME=COLUMNS", views, action="append")
    grouping.add_argument(
        "--view-prefix",
        action="store_true",
        help="group columns into views by their prefix up to the first underscore",
    )
    drop = "column to leave out; may be given several times"
    option("--drop", "COLUMN", drop, action="append")
    option("--kernel", "NAME", "kernel of every view: auto, linear, rbf, ...", "auto")
    norms = "norm of the weights: a number >= 1 such as 1, 4/3 or inf, or loo"
    option("--norm", None, norms, "loo", type=_number_or("loo"))
    alphas = "regularisation: a number > 0, learn or loo"
    option("--alpha", None, alphas, "loo", type=_number_or("loo", "learn"))
    option(
        "--predict",
        "NEW.csv",
        "table of new rows to predict, instead of the training rows out of fold; "
        "if it has the label column, the accuracy is printed",
    )
    folds = (
        "number of folds, each predicted by a model fitted on the others; fewer "
        "if a class has fewer rows"
    )
    option("--folds", "N", folds, 5, type=_at_least(2))
    folder = "folder for the results, which appear there once all are complete"
    option("--out", "DIR", folder, "kernelweave-fit")
    fit.set_defaults(run=run_fit, view=[], drop=[])


def _add_reproduce(command: Callable[..., argparse.ArgumentParser]) -> None:
    reproduce = command(
        "reproduce",
        help="run the experiments of a paper and compare",
        description="Rerun the experiments of a paper, compare every cell of its "
        "tables with ours, and write tables, CSV files and plots. Every finished split "
        "is kept, so that an interrupted run resumes where it stopped.",
    )
    resumes = "the same command resumes from here"
    reproduce.set_defaults(run=run_reproduce, interrupted=resumes)
    option = partial(_add, reproduce)
    option("paper", "PAPER", f"one of {', '.join(PAPERS)}")
    which = reproduce.add_mutually_exclusive_group()
    _add(which, "--table", "N", "this table only", type=int)
    _add(which, "--figure", "N", "this figure only", type=int)
    _add(which, "--part", "KEY", "this experiment only, by its key")
    splits = "number of random splits per row (default: as many as in the paper)"
    option("--splits", "N", splits, type=_at_least(1))
    flag = partial(reproduce.add_argument, action="store_true")
    flag("--quick", help="few splits: minutes instead of hours")
    cached = "run nothing, and report on the splits that earlier runs finished"
    flag("--cached", help=cached)
    option("--jobs", "N", "number of processes; -1: one per processor", 1, type=int)
    option("--dask", "ADDRESS", "run splits on the workers of this scheduler")
    page = "also write the tables into this page, after its mark"
    option("--markdown", "PAGE.md", page)
    option("--out", "DIR", "folder for the results", "kernelweave-reproduce")


def _add(
    parser: argparse._ActionsContainer,
    name: str,
    metavar: str | None,
    text: str,
    default: Any = None,
    **settings: Any,
) -> None:
    """Add an argument with a value; its help mentions the default, if there is one."""
    text += "" if default is None else " (default: %(default)s)"
    parser.add_argument(name, metavar=metavar, help=text, default=default, **settings)


def _at_least(least: int) -> Callable[[str], int]:
    """A parser of integers with a lower bound."""

    def parse(text: str) -> int:
        with suppress(ValueError):
            if (number := int(text)) >= least:
                return number
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an integer of at least {least}"
        )

    return parse


def _number_or(*words: str) -> Callable[[str], float | str]:
    """A parser of numbers, fractions and the given words."""

    def parse(text: str) -> float | str:
        if text in words:
            return text
        try:
            return float(Fraction(text)) if "/" in text else float(text)
        except (ValueError, ZeroDivisionError):
            raise argparse.ArgumentTypeError(
                f"{text!r} is neither a number nor {' or '.join(map(repr, words))}"
            ) from None

    return parse

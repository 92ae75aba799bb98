"""The command-line parser of ``kernelweave``; each command has its own module."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction

import kernelweave
from kernelweave.cli.demo import run_demo
from kernelweave.cli.fit import FitOptions, run_fit
from kernelweave.cli.reproduce import ReproduceOptions, run_reproduce
from kernelweave.papers import PAPERS

__all__ = ["build_parser", "main", "run"]

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
        0 on success, 2 for errors in the input, 130 after Ctrl-C.
    """
    return run(build_parser().parse_args(argv))


def run(arguments: argparse.Namespace) -> int:
    """Run the command of the parsed arguments; see :func:`main`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals without Unicode
    try:
        if arguments.command == "demo":
            run_demo(arguments.out)
        elif arguments.command == "reproduce":
            run_reproduce(_reproduce_options(arguments))
        else:
            run_fit(_fit_options(arguments))
    except EXPECTED as error:
        if arguments.debug:
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"kernelweave: error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if arguments.debug:
            raise
        kept = arguments.command == "reproduce"  # finished splits are kept
        then = "the same command resumes from here" if kept else "nothing was written"
        print(f"kernelweave: interrupted; {then}", file=sys.stderr)
        return 130
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="kernelweave",
        description="Learn which of many kernels matter, with a proof that the "
        "weights are optimal.",
    )
    parser.add_argument(
        "--version", action="version", version=f"kernelweave {kernelweave.__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--debug", action="store_true", help="show the whole traceback of an error"
    )
    _add_demo(commands, common)
    _add_fit(commands, common)
    _add_reproduce(commands, common)
    return parser


def _add_demo(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    common: argparse.ArgumentParser,
) -> None:
    demo = commands.add_parser(
        "demo",
        parents=[common],
        help="learn view weights on bundled data",
        description="Learn which views of bundled data matter (one of them is pure "
        "noise), compare with two baselines, and write tables and plots.",
    )
    demo.add_argument(
        "--out",
        default="kernelweave-demo",
        metavar="DIR",
        help="folder for the results (default: %(default)s)",
    )


def _add_fit(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    common: argparse.ArgumentParser,
) -> None:
    fit = commands.add_parser(
        "fit",
        parents=[common],
        help="learn view weights from a CSV file",
        description="Learn which views of a table matter, and write weights, "
        "certificate, predictions and plots. Every row is predicted by a model "
        "that has not seen it: out of fold, or in another file (--predict).",
    )
    fit.add_argument(
        "data", metavar="FILE.csv", help="table with a header, one row per sample"
    )
    fit.add_argument(
        "--label", required=True, metavar="COLUMN", help="column of the classes"
    )
    fit.add_argument(
        "--task",
        choices=["classification"],
        help="treat the values of the label column as classes even if they look like "
        "measurements or row names",
    )
    _add_view_options(fit)
    _add_model_options(fit)
    fit.add_argument(
        "--predict",
        metavar="NEW.csv",
        help="table of new rows to predict, instead of the training rows out of fold; "
        "if it has the label column, the accuracy is printed",
    )
    fit.add_argument(
        "--folds",
        type=_at_least(2),
        default=5,
        metavar="N",
        help="number of folds, each predicted by a model fitted on the others; fewer "
        "if a class has fewer rows (default: %(default)s)",
    )
    fit.add_argument(
        "--out",
        default="kernelweave-fit",
        metavar="DIR",
        help="folder for the results, which appear there once all are complete "
        "(default: %(default)s)",
    )


def _add_view_options(fit: argparse.ArgumentParser) -> None:
    grouping = fit.add_mutually_exclusive_group()
    grouping.add_argument(
        "--view",
        action="append",
        default=[],
        metavar="NAME=COLUMNS",
        help="a view and its columns: names, prefixes or patterns such as 'rna_*', "
        "separated by commas; may be given several times (default: one view of all "
        "columns)",
    )
    grouping.add_argument(
        "--view-prefix",
        action="store_true",
        help="group columns into views by their prefix up to the first underscore",
    )
    fit.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column to leave out; may be given several times",
    )


def _add_model_options(fit: argparse.ArgumentParser) -> None:
    fit.add_argument(
        "--kernel",
        default="auto",
        metavar="NAME",
        help="kernel of every view: auto, linear, rbf, ... (default: %(default)s)",
    )
    fit.add_argument(
        "--norm",
        type=_number_or("loo"),
        default="loo",
        help="norm of the weights: a number >= 1 such as 1, 4/3 or inf, or loo "
        "(default: %(default)s)",
    )
    fit.add_argument(
        "--alpha",
        type=_number_or("loo", "learn"),
        default="loo",
        help="regularisation: a number > 0, learn or loo (default: %(default)s)",
    )


def _add_reproduce(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    common: argparse.ArgumentParser,
) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        parents=[common],
        help="run the experiments of a paper and compare",
        description="Rerun the experiments of a paper, compare every cell of its "
        "tables with ours, and write tables, CSV files and plots. Every finished split "
        "is kept, so that an interrupted run resumes where it stopped.",
    )
    reproduce.add_argument("paper", metavar="PAPER", help=f"one of {', '.join(PAPERS)}")
    which = reproduce.add_mutually_exclusive_group()
    which.add_argument("--table", type=int, metavar="N", help="this table only")
    which.add_argument("--figure", type=int, metavar="N", help="this figure only")
    which.add_argument(
        "--part", default="", metavar="KEY", help="this experiment only, by its key"
    )
    reproduce.add_argument(
        "--splits",
        type=_at_least(1),
        metavar="N",
        help="number of random splits per row (default: as many as in the paper)",
    )
    reproduce.add_argument(
        "--quick", action="store_true", help="few splits: minutes instead of hours"
    )
    reproduce.add_argument(
        "--cached",
        action="store_true",
        help="run nothing, and report on the splits that earlier runs finished",
    )
    _add_run_options(reproduce)


def _add_run_options(reproduce: argparse.ArgumentParser) -> None:
    reproduce.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="number of processes; -1: one per processor (default: %(default)s)",
    )
    reproduce.add_argument(
        "--dask", metavar="ADDRESS", help="run splits on the workers of this scheduler"
    )
    reproduce.add_argument(
        "--markdown",
        metavar="PAGE.md",
        help="also write the tables into this page, after its mark",
    )
    reproduce.add_argument(
        "--out",
        default="kernelweave-reproduce",
        metavar="DIR",
        help="folder for the results (default: %(default)s)",
    )


def _reproduce_options(arguments: argparse.Namespace) -> ReproduceOptions:
    return ReproduceOptions(
        paper=arguments.paper,
        table=arguments.table,
        figure=arguments.figure,
        part=arguments.part,
        splits=arguments.splits,
        quick=arguments.quick,
        cached=arguments.cached,
        jobs=arguments.jobs,
        dask=arguments.dask,
        markdown=arguments.markdown,
        out=arguments.out,
    )


def _fit_options(arguments: argparse.Namespace) -> FitOptions:
    return FitOptions(
        data=arguments.data,
        label=arguments.label,
        task=arguments.task,
        views=arguments.view,
        by_prefix=arguments.view_prefix,
        drop=arguments.drop,
        kernel=arguments.kernel,
        norm=arguments.norm,
        alpha=arguments.alpha,
        predict=arguments.predict,
        folds=arguments.folds,
        out=arguments.out,
    )


def _at_least(least: int) -> Callable[[str], int]:
    """A parser of integers with a lower bound."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not an integer of at least {least}"
            )
        return number

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

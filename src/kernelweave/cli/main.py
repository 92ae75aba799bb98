"""The command-line parser of ``kernelweave``; each command has its own module."""

from __future__ import annotations

import argparse
import importlib
import io
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from fractions import Fraction
from functools import partial
from typing import Any

import kernelweave
from kernelweave.cli.terminal import Output, print_traceback

#: Errors in the input rather than in the program: reported in one line.
INPUT_ERRORS = (ValueError, TypeError, OSError, MemoryError, ImportError)
#: Exit status if something printed was lost, since standard output is full or closed.
OUTPUT_LOST = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, default=None
        The arguments; None uses those of the process.

    Returns
    -------
    status : int
        0 on success, 1 if standard output could not be written, 2 for errors in the
        input, 130 after Ctrl-C, or 128 plus the number of another signal.
    """
    return run(build_parser().parse_args(argv))


def run(arguments: argparse.Namespace) -> int:
    """Run the command of the parsed arguments; see :func:`main`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without Unicode may show question marks; a file must not.
        encoding = None if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="replace")
    output = Output(sys.stdout)
    with redirect_stdout(output), redirect_stderr(Output(sys.stderr)):
        try:
            status = _status(arguments)
        except BaseException:
            sys.excepthook = print_traceback
            raise
        if output.failure is not None:
            sys.stderr.write(_words(output.failure))
            return status or OUTPUT_LOST
    return status


def _words(failure: OSError) -> str:
    return f"kernelweave: error: cannot write to standard output: {failure.strerror}\n"


def _status(arguments: argparse.Namespace) -> int:
    """Run the command; report errors in the input in one line."""
    try:
        _run(arguments)
        return 0
    except (*INPUT_ERRORS, KeyboardInterrupt) as error:
        if arguments.debug:
            raise
        if isinstance(error, KeyboardInterrupt):
            print("kernelweave: interrupted; nothing was written", file=sys.stderr)
            return 128 + (error.args[0] if error.args else signal.SIGINT)
        print(f"kernelweave: error: {in_one_line(error)}", file=sys.stderr)
        return 2


def in_one_line(error: BaseException) -> str:
    """What went wrong, on one line; a message that quotes a whole file is cut."""
    # Our own errors name the file in their text, those of the system next to it.
    plain = isinstance(error, OSError) and error.filename is None
    text = (plain and getattr(error, "strerror", None)) or str(error)
    message = " ".join(text.split()) or type(error).__name__
    return message if len(message) <= 1000 else f"{message[:1000]} ..."


def _run(arguments: argparse.Namespace) -> None:
    """Run a command; print words, JSON or nothing, as the user wishes."""
    command = importlib.import_module(f"kernelweave.cli.{arguments.command}")
    function = getattr(command, f"run_{arguments.command}")
    output: Any = sys.stdout
    with redirect_stdout(
        io.StringIO() if arguments.json or arguments.quiet else output
    ):
        result = function(arguments)
    if arguments.json:
        from kernelweave.cli.folder import as_json  # loads scikit-learn, as commands do

        print(as_json(result), file=output)


class _Parser(argparse.ArgumentParser):
    """A parser whose tables may also follow options, as in ``fit t.csv --id i u.csv``.

    Its messages quote no controls, which names of files may hold, and help that cannot
    be printed is an error.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse, and give texts that no option took to the tables."""
        found, rest = super().parse_known_args(args, namespace)
        if hasattr(found, "data"):
            found.data += [text for text in rest if not text.startswith("-")]
            rest = [text for text in rest if text.startswith("-")]
        return found, rest

    def _print_message(self, message: str, file: Any = None) -> None:
        output = Output(file)
        output.write(message)
        if file is not sys.stderr and output.failure is not None:
            self.exit(OUTPUT_LOST, _words(output.failure))


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser: argparse.ArgumentParser = _Parser(
        prog="kernelweave",
        description="Learn which of many kernels matter, with a proof of how close "
        "the weights are to the best possible ones.",
    )
    version = f"kernelweave {kernelweave.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    common = argparse.ArgumentParser(add_help=False)
    traceback = "show the full traceback of an error"
    flag = partial(common.add_argument, action="store_true")
    flag("--debug", help=traceback)
    flag("--json", help="print one JSON object instead of text")
    flag("--quiet", help="print nothing but warnings and errors")
    report = "report progress even if standard error is not a terminal"
    flag("--progress", help=report)
    learn = argparse.ArgumentParser(add_help=False)
    _add_learning(learn)
    for add in (_add_fit, _add_evaluate, _add_report):
        add(partial(commands.add_parser, parents=[common, learn]))
    for add in (_add_demo, _add_predict, _add_inspect):
        add(partial(commands.add_parser, parents=[common]))
    return parser


Command = Callable[..., argparse.ArgumentParser]
TABLES_HELP = (
    "a table with a header and one row per sample (CSV, TSV, Parquet or Excel; .gz "
    "for text), or several as NAME=FILE, joined by --id, each of them a view; or one "
    "MuData file"
)


def _add_learning(learn: argparse.ArgumentParser) -> None:
    """The options of all commands that fit a model to tables."""
    option = partial(_add, learn)
    option("data", "[NAME=]FILE", TABLES_HELP, nargs="+")
    option("--id", "COLUMN", "column that identifies a sample in every table")
    option("--label", "COLUMN", "column to predict, in any table; never a feature")
    tasks = ["classification", "regression"]
    task = "what to predict: a class or a number (default: inferred from the label)"
    option("--task", None, task, choices=tasks)
    groups = "column, such as the patient; rows with equal values are held out together"
    option("--groups", "COLUMN", groups)
    grouping = learn.add_mutually_exclusive_group()
    views = (
        "a view and its columns: names, prefixes or patterns such as 'rna_*', "
        "separated by commas; may be given several times (default: one view of all "
        "columns of a table)"
    )
    _add(grouping, "--view", "NAME=COLUMNS", views, action="append")
    grouping.add_argument(
        "--view-prefix",
        action="store_true",
        help="group columns into views by their prefix, up to the first underscore",
    )
    settings = "file with settings for views, kernels and model; see the user guide"
    option("--views", "VIEWS.toml", settings)
    drop = "column to leave out; may be given several times"
    option("--drop", "COLUMN", drop, action="append")
    option("--kernel", "NAME", "kernel of every view: auto (default), linear, rbf, ...")
    norms = "norm of the weights: a number >= 1 such as 1, 4/3 or inf, or loo (default)"
    option("--norm", None, norms, type=_number_or("loo"))
    alphas = "regularisation: a number > 0, learn or loo (default)"
    option("--alpha", None, alphas, type=_number_or("loo", "learn"))
    balanced = "give every class the same total weight, however many rows it has"
    option("--class-weight", None, balanced, choices=["balanced"])
    missing = (
        "what to do about rows that lack a view: let the view add nothing (zero, the "
        "default), fill it in from the other views (available), or refuse such rows "
        "(error)"
    )
    option("--missing", None, missing, choices=["zero", "available", "error"])
    folds = (
        "number of folds, each predicted by a model fitted on the others; fewer "
        "if a class has fewer rows"
    )
    option("--folds", "N", folds, 5, type=_at_least(2))
    learn.set_defaults(view=[], drop=[])


def _add_demo(command: Command) -> None:
    demo = command(
        "demo",
        help="see what learned weights achieve on bundled data",
        description="Learn which of 13 views of handwritten digits matter (ten of them "
        "are noise), compare with equal weights and one big SVM on the same held-out "
        "rows, predict rows that lack a view, and write tables, plots and a report.",
    )
    _add(demo, "--out", "DIR", "folder for the results", "kernelweave-demo")


def _add_fit(command: Command) -> None:
    fit = command(
        "fit",
        help="learn view weights from tables",
        description="Learn which views of a table, or which of several tables, matter, "
        "and write weights, certificate, predictions and plots. Every row is predicted "
        "by a model that has not seen it: out of fold, or in other files (--predict).",
    )
    option = partial(_add, fit)
    option(
        "--predict",
        "[NAME=]FILE",
        "tables of new rows to predict, instead of the training rows out of fold; "
        "if they have the label column, the score is printed",
        nargs="+",
    )
    option("--save", "MODEL.kw", "file for the model, for 'kernelweave predict'")
    option("--report", "PAGE.html", "file for a report on the model")
    folder = "folder for the results, which appear there once all are complete"
    option("--out", "DIR", folder, "kernelweave-fit")


def _add_predict(command: Command) -> None:
    predict = command(
        "predict",
        help="predict new rows with a saved model",
        description="Predict the rows of tables with a model that 'kernelweave fit "
        "--save' has written. A table may be left out; its view is then missing.",
    )
    option = partial(_add, predict)
    option("model", "MODEL.kw", "the model")
    option("data", "[NAME=]FILE", "tables, named as in the fit", nargs="+")
    option("--id", "COLUMN", "column of the ids (default: that of the fit)")
    label = "column of the true labels, for a score (default: that of the fit)"
    option("--label", "COLUMN", label)
    option("--out", "FILE.csv", "file for the predictions (default: standard output)")


def _add_evaluate(command: Command) -> None:
    evaluate = command(
        "evaluate",
        help="compare the model with simpler ones on held-out rows",
        description="Cross-validate the model together with the best single view, "
        "equal weights, a stack of views and no view, with standard errors.",
    )
    _add(evaluate, "--out", "DIR", "folder for the results", "kernelweave-evaluate")


def _add_inspect(command: Command) -> None:
    inspect = command(
        "inspect",
        help="describe a saved model",
        description="Describe in words what a model file holds: views, shares, "
        "columns, certificate and versions.",
    )
    _add(inspect, "model", "MODEL.kw", "the model")


def _add_report(command: Command) -> None:
    report = command(
        "report",
        help="write one HTML page about what a model has learned",
        description="Write one HTML page. The first argument may be a saved model, "
        "followed by the tables it was fitted to; otherwise a model is fitted first.",
    )
    _add(report, "--out", "PAGE.html", "the page", "kernelweave-report.html")


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
    """A parser of integers: ``least`` or more."""

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

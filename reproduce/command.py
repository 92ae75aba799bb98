"""``python -m reproduce PAPER``: rerun the experiments of a paper, and compare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from kernelweave._text import counted
from kernelweave._writing import written_whole
from kernelweave.cli.main import INPUT_ERRORS, in_one_line
from kernelweave.cli.output import print_table, shown_warnings
from reproduce import PAPERS, load_paper, report
from reproduce.experiment import Experiment
from reproduce.progress import progress_bar
from reproduce.results import Results
from reproduce.run import missing_rows, run_experiment

#: Exit status if a table or figure that was to be run has no data at all.
EMPTY = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : sequence of str, default=None
        The arguments; None uses those of the process.

    Returns
    -------
    status : int
        0 on success, 2 for errors in the input, 3 if a table or figure stayed empty
        because data are missing, 130 after Ctrl-C.
    """
    options = build_parser().parse_args(argv)
    try:
        return run_paper(options)
    except KeyboardInterrupt:
        print(
            "reproduce: interrupted; the same command resumes from here; finished "
            f"splits are in {_folder(options) / 'cache'}",
            file=sys.stderr,
        )
        return 130
    except INPUT_ERRORS as error:
        if options.debug:
            raise
        print(f"reproduce: error: {in_one_line(error)}", file=sys.stderr)
        return 2


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduce",
        description="Rerun the experiments of a paper, compare every cell of its "
        "tables with ours, and write tables, CSV files and plots. Every finished split "
        "is kept, so an interrupted run resumes where it stopped.",
    )
    option = parser.add_argument
    option("paper", metavar="PAPER", help=f"one of {', '.join(PAPERS)}")
    which = parser.add_mutually_exclusive_group()
    for kind in ("table", "figure"):
        text, key = f"only this {kind}", f"{kind}{{}}".format
        which.add_argument(f"--{kind}", metavar="N", dest="part", type=key, help=text)
    text = "only the experiment with this key"
    which.add_argument("--part", metavar="KEY", help=text)
    text = "number of random splits per row (default: as many as in the paper)"
    option("--splits", metavar="N", type=_at_least(1), help=text)
    text = "few splits: minutes instead of hours"
    option("--quick", action="store_true", help=text)
    text = "run nothing, and report on the splits that earlier runs finished"
    option("--cached", action="store_true", help=text)
    where = parser.add_mutually_exclusive_group()
    text = "number of processes; -1: one per processor (default: 1)"
    jobs = _at_least(1, -1)
    where.add_argument("--jobs", metavar="N", default=1, type=jobs, help=text)
    text = "run splits on the workers of this scheduler"
    where.add_argument("--dask", metavar="ADDRESS", help=text)
    text = "also write the tables to this page, replacing everything after its mark"
    option("--markdown", metavar="PAGE.md", help=text)
    text = "folder for the results (default: %(default)s)"
    option("--out", metavar="DIR", default="kernelweave-reproduce", help=text)
    option("--debug", action="store_true", help="show the full traceback of an error")
    return parser


def _at_least(least: int, *others: int) -> Callable[[str], int]:
    """A parser of integers: ``least`` or more, or one of the others."""

    def parse(text: str) -> int:
        with suppress(ValueError):
            if (number := int(text)) >= least or number in others:
                return number
        also = "".join(f", or {other}" for other in others)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an integer of at least {least}{also}"
        )

    return parse


def _folder(options: argparse.Namespace) -> Path:
    """The folder of the results of this paper."""
    return Path(options.out) / options.paper


def run_paper(options: argparse.Namespace) -> int:
    """Run experiments, print the verdicts, and write tables and plots.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``python -m reproduce --help``.

    Returns
    -------
    status : int
        0, or 3 if a table or figure stayed empty because data are missing.
    """
    paper = load_paper(options.paper)
    experiments = paper.select(options.part)
    if options.markdown is not None:  # refused now, not after hours
        report.kept_text(Path(options.markdown))
    folder = _folder(options)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{paper.reference}\n")
    if not options.cached:
        _print_plan(experiments)
    all_results = []
    for experiment in experiments:
        results = _run(experiment, folder, options)
        _print_results(results)
        all_results.append(results)
    print(f"{report.summary(all_results)}.")
    written = _write(folder, options, all_results)
    print("\nWritten:")
    for path in written:
        print(f"  {path}")
    empty = [r.experiment.key for r in all_results if not r.rows]
    if empty and not options.cached:
        print(
            f"reproduce: no data for {', '.join(empty)}; see above for where to get "
            "them",
            file=sys.stderr,
        )
        return EMPTY
    return 0


def _print_plan(experiments: Sequence[Experiment]) -> None:
    """Print what can be run, what cannot, and where to get the missing data."""
    reasons: dict[str, dict[str, None]] = {}
    lines = []
    for experiment in experiments:
        missing = missing_rows(experiment)
        for row, why in missing.items():
            reasons.setdefault(why, {})[row] = None
        total = len(experiment.rows)
        lines.append(f"  {experiment.key}: {total - len(missing)} of {total} rows")
    if not reasons:
        return
    print("With the data that were found, these can be run:")
    print("\n".join(lines))
    print("\nThese cannot, because data are missing:")
    for why, rows in reasons.items():
        print(f"  {'; '.join(rows)}: {why}")
    print()


def _command(options: argparse.Namespace) -> str:
    """The command that reproduces these results."""
    words = ["python -m reproduce", options.paper]
    for name in ("part", "splits"):
        value = getattr(options, name)
        words += [f"--{name} {value}"] if value is not None else []
    words += [f"--{name}" for name in ("quick", "cached") if getattr(options, name)]
    return " ".join(words)


def _run(experiment: Experiment, folder: Path, options: argparse.Namespace) -> Results:
    if options.quick and experiment.quick_form is not None:
        experiment = experiment.quick_form
    usual = experiment.quick if options.quick else experiment.splits
    with shown_warnings(), progress_bar(experiment.key) as advance:
        return run_experiment(
            experiment,
            options.splits or usual,
            folder / "cache",
            jobs=options.jobs,
            dask=options.dask,
            advance=advance,
            cached=options.cached,
        )


def _print_results(results: Results) -> None:
    experiment = results.experiment
    print(f"{experiment.title}\n")
    header, lines = report.cell_rows(results)
    if lines:
        print_table(header, lines)
    for text, verdict, finding in results.claims():
        print(f"\n  The paper: {text}\n  {verdict}: {finding}")
    for why in dict.fromkeys(results.missing.values()):
        rows = [row for row, reason in results.missing.items() if reason == why]
        verb = "is" if len(rows) == 1 else "are"
        print(f"\n  {'; '.join(rows)} {verb} left out: {why}")
    for column, messages in results.warnings.items():
        for text, count in messages.items():
            print(f"  warning from {column} in {counted(count, 'split')}: {text}")
    print()


def _write(
    folder: Path, options: argparse.Namespace, all_results: Sequence[Results]
) -> list[Path]:
    """Write report, tables, plots and the given page; return the files."""
    text = report.markdown(all_results, _command(options))
    written = [folder / "report.md"]
    with written_whole(written[0]) as file:
        file.write(text.encode())
    for results in all_results:
        written += report.write_csv(folder, results)
        picture = report.write_picture(folder, results)
        written += [picture] if picture is not None else []
    if options.markdown is not None:
        report.insert_markdown(Path(options.markdown), text)
        written.append(Path(options.markdown))
    return written

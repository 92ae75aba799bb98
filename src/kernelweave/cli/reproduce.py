"""``kernelweave reproduce``: rerun the experiments of a paper, and compare."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelweave._writing import take_permissions
from kernelweave.cli.folder import (
    prepare_folder,
    staging_folder,
    undisturbed,
    write_mark,
)
from kernelweave.cli.output import print_table, shown_warnings
from kernelweave.cli.progress import progress_bar
from kernelweave.views.columns import counted
from reproduce import load_paper, report
from reproduce.experiment import Experiment
from reproduce.results import Results
from reproduce.run import missing_rows, run_experiment

#: The file that marks a folder as ours.
REPRODUCE_MARK = "reproduce.json"
#: Exit status if a table or figure that was to be run has no data at all.
EMPTY = 3


def run_reproduce(options: argparse.Namespace) -> int:
    """Run experiments, print the verdicts, and write tables and plots.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave reproduce --help``.

    Returns
    -------
    status : int
        0, or 3 if a table or figure stayed empty because data are missing.
    """
    paper = load_paper(options.paper)
    experiments = paper.select(options.part)
    if options.markdown is not None:  # refused now, not after hours
        report.kept_text(Path(options.markdown))
    folder = prepare_folder(str(Path(options.out) / paper.key), mark=REPRODUCE_MARK)
    # Now, so that the folder of an interrupted run is recognised.
    write_mark(folder / REPRODUCE_MARK, {"command": _command(options)}, [])
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
            f"kernelweave: no data for {', '.join(empty)}; see above for where to get "
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
    words = ["kernelweave reproduce", options.paper]
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
    with staging_folder(folder, folder) as draft:
        drafts = [draft / "report.md"]
        drafts[0].write_text(text, encoding="utf-8")
        for results in all_results:
            drafts += report.write_csv(draft, results)
            picture = report.write_picture(draft, results)
            drafts += [picture] if picture is not None else []
        with undisturbed(folder):
            for path in drafts:
                take_permissions(path, folder / path.name)
                os.replace(path, folder / path.name)
            names = [path.name for path in drafts]
            write_mark(folder / REPRODUCE_MARK, {"command": _command(options)}, names)
    written = [folder / name for name in names]
    if options.markdown is not None:
        report.insert_markdown(Path(options.markdown), text)
        written.append(Path(options.markdown))
    return written

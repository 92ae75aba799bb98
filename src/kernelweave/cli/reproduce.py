"""``kernelweave reproduce``: rerun the experiments of a paper, and compare."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kernelweave
from kernelweave.cli.folder import MARK_KEY, prepare_folder
from kernelweave.cli.output import print_table
from kernelweave.papers import load_paper
from kernelweave.papers.experiment import Experiment
from kernelweave.papers.progress import progress_bar
from kernelweave.papers.report import (
    cell_rows,
    insert_markdown,
    markdown,
    summary,
    write_csv,
    write_picture,
)
from kernelweave.papers.results import Results
from kernelweave.papers.run import run_experiment

__all__ = ["ReproduceOptions", "run_reproduce"]

#: The file that marks a folder as ours.
MARK_FILE = "reproduce.json"


@dataclass(frozen=True)
class ReproduceOptions:
    """The command-line options; see ``kernelweave reproduce --help``."""

    paper: str
    table: int | None = None
    figure: int | None = None
    part: str = ""
    splits: int | None = None
    quick: bool = False
    cached: bool = False
    jobs: int = 1
    dask: str | None = None
    markdown: str | None = None
    out: str = "kernelweave-reproduce"

    def command(self) -> str:
        """The command that reproduces these results."""
        words = ["kernelweave reproduce", self.paper]
        for name in ("table", "figure", "part", "splits"):
            value = getattr(self, name)
            words += [f"--{name} {value}"] if value not in (None, "") else []
        words += ["--quick"] if self.quick else []
        return " ".join([*words, "--cached"] if self.cached else words)


def run_reproduce(options: ReproduceOptions) -> None:
    """Run experiments, print the verdicts, and write tables and plots.

    Parameters
    ----------
    options : ReproduceOptions
        The command-line options.
    """
    paper = load_paper(options.paper)
    experiments = paper.select(options.table, options.figure, options.part)
    folder = prepare_folder(str(Path(options.out) / paper.key), mark=MARK_FILE)
    # Now, so that an interrupted run can recognise its folder.
    _write_mark(folder, options, [])
    print(f"{paper.reference}\n")
    all_results = []
    try:
        for experiment in experiments:
            results = _run(experiment, folder, options)
            _print_results(results)
            all_results.append(results)
    except KeyboardInterrupt:
        print(
            "\nInterrupted; the same command resumes from here. Finished splits are in "
            f"{folder / 'cache'}.",
            file=sys.stderr,
        )
        raise SystemExit(130) from None
    print(f"{summary(all_results)}.")
    _write(folder, options, all_results)


def _run(experiment: Experiment, folder: Path, options: ReproduceOptions) -> Results:
    if options.quick and experiment.quick_form is not None:
        experiment = experiment.quick_form
    n_splits = options.splits
    if n_splits is None:
        n_splits = experiment.quick if options.quick else experiment.splits
    with progress_bar(experiment.key) as advance:
        return run_experiment(
            experiment,
            n_splits,
            folder / "cache",
            jobs=options.jobs,
            dask=options.dask,
            advance=advance,
            cached=options.cached,
        )


def _print_results(results: Results) -> None:
    experiment = results.experiment
    print(f"{experiment.title}\n")
    header, lines = cell_rows(results)
    if lines:
        print_table(header, lines)
    for text, verdict, finding in results.claims():
        print(f"\n  The paper: {text}\n  {verdict}: {finding}")
    for row, why in results.missing.items():
        print(f"\n  {row} is left out: {why}")
    for column, messages in results.warnings.items():
        for text, count in messages.items():
            print(f"  warning of {column} in {count} split(s): {text}")
    print()


def _write(
    folder: Path, options: ReproduceOptions, all_results: Sequence[Results]
) -> None:
    text = markdown(all_results, options.command())
    written = [folder / "report.md"]
    written[0].write_text(text, encoding="utf-8")
    for results in all_results:
        written += write_csv(folder, results)
        picture = write_picture(folder, results)
        written += [picture] if picture is not None else []
    if options.markdown is not None:
        insert_markdown(Path(options.markdown), text)
        written.append(Path(options.markdown))
    _write_mark(folder, options, [path.name for path in written])
    print("\nWritten:")
    for path in written:
        print(f"  {path}")


def _write_mark(folder: Path, options: ReproduceOptions, files: list[str]) -> None:
    content = {
        MARK_KEY: kernelweave.__version__,
        "command": options.command(),
        "files": files,
    }
    text = json.dumps(content, indent=2)
    (folder / MARK_FILE).write_text(text + "\n", encoding="utf-8")

"""Run the splits of an experiment, each of them once.

Every split has its own file, so that an interrupted run resumes where it stopped, and a
run with more splits or more methods adds to one with fewer. Its random numbers depend
only on the experiment and on the number of the split.
"""

from __future__ import annotations

import contextlib
import json
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from kernelweave._writing import written_whole
from kernelweave.exceptions import MissingDataError
from kernelweave.models.streaming.dask import scheduler_lost
from reproduce.experiment import Experiment
from reproduce.results import Results

WARNINGS = "warnings"
#: Said of a run that did not finish.
RESUMES = "splits that are finished are kept, and the same command resumes from there"
#: Keys of a file: the values of a split, and their checksum.
CHECKSUM, VALUES = "crc32", "values"


@dataclass(frozen=True)
class Job:
    """One split of one row.

    Attributes
    ----------
    row : str
        The row of the experiment.
    number : int
        The number of the split, from 0.
    path : Path
        The file of its results.
    """

    row: str
    number: int
    path: Path

    def done(self) -> dict[str, Any]:
        """The results so far: column -> measures; empty if there are none."""
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
            if CHECKSUM in known or VALUES in known:
                if known.get(CHECKSUM) != _checksum(known.get(VALUES)):
                    raise ValueError("the checksum is wrong")
                known = known.get(VALUES)
            return _checked(known)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            # also of earlier versions, whose files have no checksum
            warnings.warn(
                f"{self.path} is damaged; its split counts as not run",
                UserWarning,
                stacklevel=1,
            )
            return {}


def run_experiment(
    experiment: Experiment,
    n_splits: int,
    cache: Path,
    jobs: int = 1,
    dask: str | None = None,
    advance: Callable[[int, int], object] | None = None,
    cached: bool = False,
) -> Results:
    """Run the splits that are not in the cache yet.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    n_splits : int
        Number of splits per row.
    cache : Path
        Folder for the results of splits.
    jobs : int, default=1
        Number of processes; 1: only this one, -1: one per processor.
    dask : str, optional
        Address of a Dask scheduler, whose workers then run the splits.
    advance : callable, optional
        Called with the number of finished splits and the total number.
    cached : bool, default=False
        Run nothing, and return only what earlier runs finished.

    Returns
    -------
    results : Results
        All splits, cached or new.
    """
    results = Results(experiment)
    all_jobs = list_jobs(experiment, n_splits, cache)
    left = [
        job
        for row_jobs in all_jobs.values()
        for job in row_jobs
        if not _complete(experiment, job)
    ]
    if not cached:
        rows = dict.fromkeys(job.row for job in left)
        results.missing = missing_rows(experiment, rows)
        left = [job for job in left if job.row not in results.missing]
        total = n_splits * (len(all_jobs) - len(results.missing))
        advance = advance or (lambda finished, total: None)
        advance(total - len(left), total)
        with _workers(jobs, dask):
            work = (delayed(run_split)(experiment, job) for job in left)
            with _running(work) as done:
                for finished, _ in enumerate(done, start=total - len(left) + 1):
                    advance(finished, total)
        left = []
    for row, row_jobs in all_jobs.items():
        whole = [job for job in row_jobs if job not in left]
        if not whole:
            results.missing[row] = "no split has been run yet"
        elif row not in results.missing:
            _collect(results, row, whole)
    return results


def missing_rows(
    experiment: Experiment, rows: Iterable[str] | None = None
) -> dict[str, str]:
    """Which of the rows lack data, each with a text that says where to get it."""
    missing = {}
    for row in experiment.rows if rows is None else rows:
        try:
            experiment.rows[row]()
        except MissingDataError as error:
            missing[row] = str(error)
    return missing


def list_jobs(
    experiment: Experiment, n_splits: int, cache: Path
) -> dict[str, list[Job]]:
    """The splits of each row."""
    name = f"{experiment.key}-v{experiment.version}{experiment.variant}"
    folder = cache / name
    return {
        row: [
            Job(row, number, folder / _slug(row) / f"{number:04d}.json")
            for number in range(n_splits)
        ]
        for row in experiment.rows
    }


def split_generator(key: str, number: int) -> np.random.Generator:
    """The random number generator of a split.

    It is the same for all rows of an experiment, so that figures whose rows share data
    compare like with like.
    """
    return np.random.default_rng([zlib.crc32(key.encode()), number])


def run_split(experiment: Experiment, job: Job) -> None:
    """Run the columns of a split that have no results yet, and save them."""
    known = job.done()
    missing = [name for name in experiment.columns if name not in known]
    if not missing:
        return
    data = experiment.rows[job.row]()
    split = experiment.split(data, split_generator(experiment.key, job.number))
    job.path.parent.mkdir(parents=True, exist_ok=True)
    for name in missing:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            measured = dict(experiment.columns[name](split))
        known[name] = {
            key: np.asarray(value, dtype=float).tolist()
            for key, value in measured.items()
        }
        messages = sorted({" ".join(str(w.message).split()) for w in caught})
        if messages:
            known.setdefault(WARNINGS, {})[name] = messages
        _write(job.path, known)


def _complete(experiment: Experiment, job: Job) -> bool:
    known = job.done()
    return all(name in known for name in experiment.columns)


def _collect(results: Results, row: str, jobs: list[Job]) -> None:
    results.splits[row] = {}
    for job in jobs:
        known = job.done()
        for column, messages in known.pop(WARNINGS, {}).items():
            # numbers in a warning differ from split to split
            texts = {re.sub(r"(?<!\w)-?\d[\d.e+-]*", "#", text) for text in messages}
            results.warnings.setdefault(column, Counter()).update(sorted(texts))
        results.splits[row][job.number] = known


@contextlib.contextmanager
def _running(work: Iterable[Any]) -> Iterator[Iterator[Any]]:
    """Results, as each piece of work ends; on leaving, workers are released at once."""
    done = Parallel(return_as="generator_unordered")(work)
    try:
        yield done
    finally:
        with warnings.catch_warnings():  # joblib counts what it has cancelled
            warnings.simplefilter("ignore", UserWarning)
            done.close()


@contextlib.contextmanager
def _workers(jobs: int, dask: str | None) -> Iterator[None]:
    """Configure where splits run; each process uses one thread for linear algebra."""
    if dask is not None:
        try:
            from distributed import Client
        except ImportError:
            raise ValueError(
                "a Dask scheduler needs the package 'distributed': pip install "
                "'kernelweave[dask]'"
            ) from None
        try:
            with Client(dask), parallel_config(backend="dask"):
                yield
        except Exception as error:
            if not scheduler_lost(error):
                raise
            raise ConnectionError(
                f"the Dask scheduler at {dask} went away; the {RESUMES}"
            ) from error
    elif jobs == 1:
        # on matrices of a few hundred rows, threads mostly wait for each other
        with parallel_config(backend="sequential"), threadpool_limits(limits=1):
            yield
    else:
        try:
            with parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1):
                yield
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process was killed, as happens when memory runs out; the "
                f"{RESUMES}, perhaps with fewer jobs"
            ) from error


def _write(path: Path, content: dict[str, Any]) -> None:
    """Replace the file atomically: an interrupt leaves the old or the new one."""
    whole = {CHECKSUM: _checksum(content), VALUES: content}
    with written_whole(path) as file:
        file.write(json.dumps(whole).encode())


def _checksum(content: Any) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _checked(known: Any) -> dict[str, Any]:
    """The contents of a file: numbers, or lists of them, by column and measure."""
    for key, entries in known.items():
        kinds = (str,) if key == WARNINGS else (int, float)
        for value in entries.values():
            for item in np.asarray(value, dtype=object).ravel():
                if type(item) not in kinds:
                    raise ValueError(f"{key} holds {item!r}")
    return dict(known)


def _slug(text: str) -> str:
    """A folder name; the number distinguishes texts with the same letters."""
    letters = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f"{letters}-{zlib.crc32(text.encode()) & 0xFFFF:04x}"

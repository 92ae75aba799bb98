"""Progress on standard error: a line that changes, or one line per step."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from kernelweave._text import in_line
from kernelweave.cli.terminal import above, bare_stream
from kernelweave.learn.search import NORM_GRID

#: Shortest time between two lines about the same run, in seconds.
PAUSE = 10.0
#: rich would otherwise print what goes to standard output where it shows progress.
BESIDE: Any = {"redirect_stdout": False, "redirect_stderr": False}


@contextmanager
def progress(options: argparse.Namespace) -> Iterator[Narrator]:
    """Report progress; silent on request, or if standard error is not a terminal.

    Parameters
    ----------
    options : argparse.Namespace
        With ``quiet`` and ``progress``.

    Yields
    ------
    say : Narrator
        To be called with a few words at each new stage; also a callback for fits.
    """
    watched = sys.stderr.isatty()
    if options.quiet or not (watched or options.progress):
        yield Narrator(lambda text: None)
        return
    if not (watched and find_spec("rich")):
        yield Narrator(partial(print, "...", file=sys.stderr, flush=True))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    console = Console(file=bare_stream(sys.stderr))
    spinner = Spinner("dots", "starting", style="status.spinner")
    shown = Live(
        spinner, console=console, refresh_per_second=12.5, transient=True, **BESIDE
    )
    with shown, above(console):
        yield Narrator(lambda text: spinner.update(text=Text(in_line(text))))


class Narrator:
    """A callback that names the steps of a fit: kernels, norms, folds.

    Calling it with a text sets the stage, which prefixes all later messages.

    Parameters
    ----------
    say : callable
        Called with each message, a short text.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.stage, self.norm, self.kernels = say, "fit", 0, 0

    def __call__(self, stage: str) -> None:
        """A new stage begins."""
        self.stage = stage
        self.say(stage)

    def __deepcopy__(self, memo: dict[int, Any]) -> Narrator:
        return self  # clones of a model report to the same place

    def setup(self, estimator: Any, context: Any) -> None:
        """Start counting again: a fit begins."""
        self.norm = self.kernels = 0

    def on_fit_task_begin(self, estimator: Any, context: Any, **details: Any) -> None:
        """Nothing to say yet."""

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, metadata: Any = None, **details: Any
    ) -> bool:
        """Name the step that has ended; never stop the fit."""
        metadata = metadata or {}
        if "kernel" in metadata:
            self.kernels += 1
            if self.kernels == 1:
                self.say(f"{self.stage}: kernels")
        elif metadata.get("iteration") == 1 and estimator.norm == "loo":
            total = len(NORM_GRID)
            self.norm = min(self.norm + 1, total)
            self.say(f"{self.stage}: norm {self.norm} of {total}")
        return False

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to clean up."""


@contextmanager
def progress_bar(
    label: str, pause: float = PAUSE
) -> Iterator[Callable[[int, int], None]]:
    """Show how many splits of an experiment are finished.

    Parameters
    ----------
    label : str
        What is running.
    pause : float
        Seconds between two lines, where there is no terminal.

    Yields
    ------
    advance : callable
        To be called with the number of finished splits and the total number.
    """
    if not (sys.stderr.isatty() and find_spec("rich")):
        yield _Lines(label, pause)
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    console = Console(file=bare_stream(sys.stderr))
    with Progress(*columns, console=console, **BESIDE) as bar, above(console):
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """A line for the first call, for the last, and now and then in between."""

    def __init__(self, label: str, pause: float) -> None:
        self.label, self.pause = label, pause
        self.started = self.shown = time.monotonic()
        self.found: int | None = None  # parts finished before this run

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        first = self.found is None
        if first:
            self.found = done
        if not (first or done == total or now - self.shown >= self.pause):
            return
        self.shown = now
        text = f"{self.label}: {done} of {total} splits"
        new = done - (self.found or 0)
        if first and done:
            text += " already finished"
        elif new and done < total:
            left = (now - self.started) / new * (total - done)
            text += f", about {_duration(left)} left"
        print(text, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

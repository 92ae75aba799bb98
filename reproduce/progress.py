"""Progress on standard error: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from kernelweave.cli.progress import BESIDE
from kernelweave.cli.terminal import above, bare_stream

#: Shortest time between two lines about the same run, in seconds.
PAUSE = 10.0


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

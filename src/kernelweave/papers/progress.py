"""Progress of long runs: rich's bar on a terminal if installed, else lines of text."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

#: Shortest time between two lines of text, in seconds.
PAUSE = 10.0

Advance = Callable[[int, int], None]


@contextlib.contextmanager
def progress_bar(
    label: str, stream: TextIO | None = None, pause: float = PAUSE
) -> Iterator[Advance]:
    """Show the progress of a run.

    Parameters
    ----------
    label : str
        What is running.
    stream : file, default=None
        Where to show it; None: standard error.
    pause : float, default=10
        Lines of text come no more often than this, in seconds.

    Yields
    ------
    advance : callable
        To be called with the number of finished parts and the total number.
    """
    stream = sys.stderr if stream is None else stream
    bar = _rich_bar(stream) if stream.isatty() else None
    if bar is None:
        yield _Lines(label, stream, pause)
        return
    with bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _rich_bar(stream: TextIO) -> Any:
    """A bar of rich; None if it is not installed."""
    try:
        import rich.progress as progress
        from rich.console import Console
    except ImportError:
        return None
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=Console(file=stream),
    )


class _Lines:
    """A line for the first call, for the last, and now and then in between."""

    def __init__(self, label: str, stream: TextIO, pause: float) -> None:
        self.label, self.stream, self.pause = label, stream, pause
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
            text += " were there already"
        elif new and done < total:
            left = (now - self.started) / new * (total - done)
            text += f", about {_duration(left)} left"
        print(text, file=self.stream, flush=True)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

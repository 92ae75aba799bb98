"""Progress on standard error: a line that changes, or one line per step."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from kernelweave._text import in_line
from kernelweave.cli.terminal import above, bare_stream
from kernelweave.learn.search import NORM_GRID

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

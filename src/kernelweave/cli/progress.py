"""What is going on, on standard error: a line that changes, or one line per step."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from kernelweave.models.shared.learner import NORM_GRID


@contextmanager
def progress(options: argparse.Namespace) -> Iterator[Narrator]:
    """Tell what is being done; silent if asked, or if nobody is watching.

    Parameters
    ----------
    options : argparse.Namespace
        With ``quiet`` and ``progress``.

    Yields
    ------
    say : Narrator
        To be called with a few words whenever something new begins; a callback of fits.
    """
    watched = sys.stderr.isatty()
    if options.quiet or not (watched or options.progress):
        yield Narrator(lambda text: None)
        return
    if not (watched and find_spec("rich")):
        yield Narrator(partial(print, "...", file=sys.stderr, flush=True))
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield Narrator(status.update)


class Narrator:
    """A callback that names the steps of a fit: kernels, norms, folds.

    Called with a text, it remembers the stage of the work, which opens what it says.

    Parameters
    ----------
    say : callable
        Told a few words.
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
        """Begin anew."""
        self.norm = self.kernels = 0

    def on_fit_task_begin(self, estimator: Any, context: Any, **told: Any) -> None:
        """Nothing to say yet."""

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, metadata: Any = None, **told: Any
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

"""Where the command ``kernelweave`` starts: no traceback on Ctrl-C, even in imports."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from typing import Any

#: Signals that end a command: Ctrl-C, a scheduler, a terminal that closes.
ENDINGS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)  # Windows lacks the last
)


def main() -> int:
    """Import a command, which takes a second, and run it; help takes no import."""
    # "nohup", or a shell that runs a command in the background, makes it ignore some
    heard = [n for n in ENDINGS if signal.getsignal(n) is not signal.SIG_IGN]
    _react(heard, _exit_at_once)
    from importlib import import_module

    from kernelweave.cli.main import build_parser, run

    arguments = build_parser().parse_args()
    import_module(f"kernelweave.cli.{arguments.command}")
    sys.unraisablehook = _interrupt_again
    try:
        _react(heard, _interrupt)
        return run(arguments)
    finally:
        _react(heard, signal.SIG_DFL)  # the interpreter would show a traceback


def _react(numbers: list[int], handler: signal._HANDLER) -> None:
    for number in numbers:
        signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    """Drafts are removed on the way out; the number becomes the exit status."""
    raise KeyboardInterrupt(number)


def _interrupt_again(unraisable: Any) -> None:
    """Repeat an interrupt that fell into a finaliser, where Python ignores it."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        threading.Timer(0.01, _thread.interrupt_main, unraisable.exc_value.args).start()
    else:
        sys.__unraisablehook__(unraisable)


def _exit_at_once(number: int, frame: object) -> None:
    """End the process at once: some libraries ignore interrupts while they load."""
    sys.stderr.write("kernelweave: interrupted; nothing was written\n")
    sys.stderr.flush()
    os._exit(128 + number)

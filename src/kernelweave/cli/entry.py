"""Where the command ``kernelweave`` starts: Ctrl-C is one line, even during imports."""

from __future__ import annotations

import os
import signal
import sys


def main() -> int:
    """Import the commands, which takes a second, and run one of them."""
    handler = signal.signal(signal.SIGINT, _leave)
    from importlib import import_module

    from kernelweave.cli.main import build_parser, run

    arguments = build_parser().parse_args()
    import_module(f"kernelweave.cli.{arguments.command}")
    signal.signal(signal.SIGINT, handler)
    return run(arguments)


def _leave(number: int, frame: object) -> None:
    """End the process at once: some libraries ignore interrupts while they load."""
    sys.stderr.write("kernelweave: interrupted; nothing was written\n")
    sys.stderr.flush()
    os._exit(130)

"""Standard output and standard error, through which everything printed passes."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from kernelweave._text import escaped


class Output:
    """Standard output or standard error of a command.

    Controls in the texts of users are shown escaped, so that no label or name can
    change what a terminal shows. What cannot be written is lost, but the command goes
    on and writes its files.

    Parameters
    ----------
    stream : text stream or None
        Where to write; None: it was closed before the command began, as some
        schedulers do.

    Attributes
    ----------
    failure : OSError or None
        Why a text was lost, unless the reader had enough, as ``head`` has.
    proxy : FileProxy or None
        What prints above the line in which rich shows progress, while it does.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = io.StringIO() if stream is None else stream
        self.failure: OSError | None = None
        self.proxy: Any = None
        self._is_closed = stream is None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write words for a person, or lose them."""
        self._write(escaped(text))
        return len(text)

    def write_data(self, text: str) -> None:
        """Write a table for a program, as it is unless a terminal would show it."""
        self._write(escaped(text) if self.stream.isatty() else text)

    def _write(self, text: str) -> None:
        if self._is_closed and text:
            self.failure = OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            if self.proxy is not None:  # which prints whole lines
                self.proxy.write(text)
            else:
                self.stream.write(text)
                self.stream.flush()  # at once: a later flush would fail elsewhere
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.failure = self.failure or error
            with suppress(OSError):  # the interpreter flushes once more when it ends
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.stream.fileno())
                os.close(nowhere)


def print_data(text: str) -> None:
    """Print a table for a program; see :meth:`Output.write_data`."""
    if isinstance(sys.stdout, Output):
        sys.stdout.write_data(text)
    else:
        sys.stdout.write(text)


@contextmanager
def above(console: Any) -> Iterator[None]:
    """Print above the line that a console of rich keeps changing.

    Only what goes to a terminal: a file that receives standard output gets all of it.
    """
    from rich.file_proxy import FileProxy

    shown = [
        output
        for output in (sys.stdout, sys.stderr)
        if isinstance(output, Output) and output.isatty()
    ]
    for output in shown:
        output.proxy = FileProxy(console, output.stream)
    try:
        yield
    finally:
        for output in shown:
            output.proxy.flush()
            output.proxy = None


def bare_stream(stream: Any) -> Any:
    """The stream below, for a library that itself controls the terminal."""
    return stream.stream if isinstance(stream, Output) else stream


def print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback of an error, which quotes texts of users."""
    text = "".join(traceback.format_exception(kind, error, trace))
    Output(sys.stderr).write(text)

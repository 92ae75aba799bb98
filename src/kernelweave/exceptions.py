"""Warnings and errors of kernelweave, as classes that users can filter.

Also helpers that check counts and import optional libraries, with errors that say what
to do.
"""

from __future__ import annotations

import importlib
from numbers import Integral
from typing import Any


class KernelWarning(UserWarning):
    """A kernel was accepted, but something about it deserves attention."""


class MissedClassWarning(KernelWarning):
    """A model was learned, but it recognises no row of some class."""


class LongFitWarning(KernelWarning):
    """A fit that has begun will take longer than a minute."""


class MemoryRefusedError(MemoryError):
    """An array would not fit in memory; nothing was allocated."""


class MissingDataError(FileNotFoundError):
    """A data set was not found in any of the places searched."""


class ModelFileError(ValueError):
    """A file is not a saved model, is damaged, or uses code that is not trusted."""


def require_count(least: int, **counts: Any) -> None:
    """Refuse counts that are not integers of at least ``least``."""
    for name, value in counts.items():
        if not (isinstance(value, Integral) and int(value) >= least):
            raise ValueError(f"{name} must be an int >= {least}; got {value!r}")


def library(name: str, otherwise: str) -> Any:
    """Import a library that only some installations have, or say how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(otherwise) from error

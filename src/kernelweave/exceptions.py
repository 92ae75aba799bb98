"""Warnings and errors of kernelweave, as classes that users can filter."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning


class KernelWarning(UserWarning):
    """A kernel was accepted, but something about it deserves attention."""


class KernelWeaveConvergenceWarning(ConvergenceWarning):
    """A fit stopped before its certificate reached the tolerance."""


class MemoryRefusedError(MemoryError):
    """An array would not fit in memory; nothing was allocated."""


class ModelFileError(ValueError):
    """A file is not a saved model, is damaged, or uses code that is not trusted."""

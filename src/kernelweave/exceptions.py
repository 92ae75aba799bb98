"""Warnings and errors of kernelweave, so that users can filter them by class."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning

__all__ = ["KernelWarning", "KernelWeaveConvergenceWarning", "MemoryRefusedError"]


class KernelWarning(UserWarning):
    """A kernel was accepted, but something about it deserves a look."""


class KernelWeaveConvergenceWarning(ConvergenceWarning):
    """A fit stopped before its certificate reached the tolerance."""


class MemoryRefusedError(MemoryError):
    """An array would not fit into memory; nothing was allocated."""

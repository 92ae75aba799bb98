"""Where data enters: column groups, precomputed kernels, and their checks."""

from kernelweave.views.tables import join_tables

__all__ = ["join_tables"]

"""The margin of support vector machines, on kernels and on subspaces."""

from kernelweave.criteria.margin.margin import Margin
from kernelweave.criteria.margin.subspace import PlainSubspaceMargin, SubspaceMargin

__all__ = ["Margin", "PlainSubspaceMargin", "SubspaceMargin"]

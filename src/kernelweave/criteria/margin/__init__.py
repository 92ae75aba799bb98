"""The margin of support vector machines, on kernels and on subspaces."""

from kernelweave.criteria.margin.margin import Margin
from kernelweave.criteria.margin.plain_subspace import PlainSubspaceMargin
from kernelweave.criteria.margin.subspace import SubspaceMargin

__all__ = ["Margin", "PlainSubspaceMargin", "SubspaceMargin"]

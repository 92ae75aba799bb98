"""What makes a weighted sum of kernels good."""

from kernelweave.criteria.alignment import Alignment
from kernelweave.criteria.fisher import BlockFisher, Fisher, PrimalFisher, WithinFisher
from kernelweave.criteria.margin import Margin, SubspaceMargin
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.fits.ridge import binary_target, class_target

__all__ = [
    "Alignment",
    "BlockFisher",
    "Fisher",
    "Margin",
    "MixtureLikelihood",
    "PrimalFisher",
    "SubspaceMargin",
    "WithinFisher",
    "binary_target",
    "class_target",
]

"""What makes a weighted sum of kernels good."""

from kernelweave.criteria.base import CertificateTerms, Criterion, Evaluation
from kernelweave.criteria.block import BlockDual, BlockFisher
from kernelweave.criteria.fisher import Fisher
from kernelweave.criteria.loo import LeaveOneOut, LooResult
from kernelweave.criteria.loo_path import LooPath
from kernelweave.criteria.targets import (
    binary_target,
    class_target,
    reduced_class_target,
)
from kernelweave.criteria.within import WithinFisher

__all__ = [
    "BlockDual",
    "BlockFisher",
    "CertificateTerms",
    "Criterion",
    "Evaluation",
    "Fisher",
    "LeaveOneOut",
    "LooPath",
    "LooResult",
    "WithinFisher",
    "binary_target",
    "class_target",
    "reduced_class_target",
]

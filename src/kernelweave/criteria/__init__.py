"""What makes a weighted sum of kernels good."""

from kernelweave.criteria.alignment import Alignment
from kernelweave.criteria.fisher import (
    BlockDual,
    BlockFisher,
    Fisher,
    PrimalFisher,
    WithinFisher,
)
from kernelweave.criteria.margin import Margin, SubspaceMargin
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.protocols import (
    CertificateTerms,
    Criterion,
    Evaluation,
    InfeasibleError,
)

__all__ = [
    "Alignment",
    "BlockDual",
    "BlockFisher",
    "CertificateTerms",
    "Criterion",
    "Evaluation",
    "Fisher",
    "InfeasibleError",
    "Margin",
    "MixtureLikelihood",
    "PrimalFisher",
    "SubspaceMargin",
    "WithinFisher",
]

"""What makes a weighted sum of kernels good."""

from kernelweave.criteria.alignment import Alignment
from kernelweave.criteria.base import (
    CertificateTerms,
    Criterion,
    Evaluation,
    InfeasibleError,
)
from kernelweave.criteria.block import BlockDual, BlockFisher
from kernelweave.criteria.dependence import DependenceTest, hsic, hsic_test
from kernelweave.criteria.easy_mkl import easy_mkl_weights
from kernelweave.criteria.feature_dependence import hsic_of_features
from kernelweave.criteria.fisher import Fisher
from kernelweave.criteria.gcv_path import CvPath, GcvPath
from kernelweave.criteria.label_kernels import label_factor, target_factor
from kernelweave.criteria.likelihood import PredictivePath
from kernelweave.criteria.loo import LeaveOneOut, LooResult
from kernelweave.criteria.loo_path import LooPath
from kernelweave.criteria.margin import Margin
from kernelweave.criteria.mixture_likelihood import MixtureLikelihood
from kernelweave.criteria.moment_problem import MomentProblem
from kernelweave.criteria.primal_fisher import PrimalFisher
from kernelweave.criteria.subspace import RegularizedKernel, Subspace
from kernelweave.criteria.subspace_margin import SubspaceMargin
from kernelweave.criteria.targets import (
    binary_target,
    class_target,
    reduced_class_target,
)
from kernelweave.criteria.transduction_bound import (
    TransductionBound,
    transduction_bound,
)
from kernelweave.criteria.within import WithinFisher

__all__ = [
    "Alignment",
    "BlockDual",
    "BlockFisher",
    "CertificateTerms",
    "Criterion",
    "CvPath",
    "DependenceTest",
    "Evaluation",
    "Fisher",
    "GcvPath",
    "InfeasibleError",
    "LeaveOneOut",
    "LooPath",
    "LooResult",
    "Margin",
    "MixtureLikelihood",
    "MomentProblem",
    "PredictivePath",
    "PrimalFisher",
    "RegularizedKernel",
    "Subspace",
    "SubspaceMargin",
    "TransductionBound",
    "WithinFisher",
    "binary_target",
    "class_target",
    "easy_mkl_weights",
    "hsic",
    "hsic_of_features",
    "hsic_test",
    "label_factor",
    "reduced_class_target",
    "target_factor",
    "transduction_bound",
]

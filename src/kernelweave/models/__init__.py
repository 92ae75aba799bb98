"""The estimators."""

from kernelweave.models.kernel_alignment import KernelAlignment
from kernelweave.models.kernel_fda import KernelFDA
from kernelweave.models.mixture_kda import MixtureKDA
from kernelweave.models.multiple_kernel_fda import MultipleKernelFDA
from kernelweave.models.multiple_kernel_ridge import MultipleKernelRidge
from kernelweave.models.multiple_kernel_svc import MultipleKernelSVC
from kernelweave.models.probabilistic_kda import ProbabilisticKDA
from kernelweave.models.subspace_kernel import SubspaceKernel
from kernelweave.models.subspace_kernel_svc import SubspaceKernelSVC
from kernelweave.models.transductive_kernel_svc import TransductiveKernelSVC
from kernelweave.solvers.solve import Certificate

__all__ = [
    "Certificate",
    "KernelAlignment",
    "KernelFDA",
    "MixtureKDA",
    "MultipleKernelFDA",
    "MultipleKernelRidge",
    "MultipleKernelSVC",
    "ProbabilisticKDA",
    "SubspaceKernel",
    "SubspaceKernelSVC",
    "TransductiveKernelSVC",
]

"""The estimators."""

from kernelweave.models._certificate import Certificate
from kernelweave.models.kernel_fda import KernelFDA
from kernelweave.models.multiple_kernel_fda import MultipleKernelFDA
from kernelweave.models.multiple_kernel_ridge import MultipleKernelRidge

__all__ = ["Certificate", "KernelFDA", "MultipleKernelFDA", "MultipleKernelRidge"]

"""Dependence between kernels and labels."""

from kernelweave.dependence import hsic_of_features
from kernelweave.dependence import DependenceTest, hsic, hsic_test

__all__ = ["DependenceTest", "hsic", "hsic_of_features", "hsic_test"]

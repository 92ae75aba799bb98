"""Dependence between kernels and labels."""

from kernelweave.dependence.features import hsic_of_features
from kernelweave.dependence.hsic import DependenceTest, hsic, hsic_test

__all__ = ["DependenceTest", "hsic", "hsic_of_features", "hsic_test"]

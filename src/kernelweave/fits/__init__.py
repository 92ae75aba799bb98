"""Fits at given weights: targets, coefficients, errors, class Gaussians."""

from kernelweave.fits.subspace import label_factor

__all__ = ["label_factor"]

"""Fits at given weights: targets, coefficients, errors, class Gaussians."""

from kernelweave.fits.cv_path import CvPath, GcvPath
from kernelweave.fits.label_kernels import label_factor, target_factor
from kernelweave.fits.moment_problem import MomentProblem
from kernelweave.fits.predictive import PredictivePath
from kernelweave.fits.ridge import LooPath
from kernelweave.fits.subspace import RegularizedKernel, Subspace
from kernelweave.fits.targets import binary_target, class_target, reduced_class_target

__all__ = [
    "CvPath",
    "GcvPath",
    "LooPath",
    "MomentProblem",
    "PredictivePath",
    "RegularizedKernel",
    "Subspace",
    "binary_target",
    "class_target",
    "label_factor",
    "reduced_class_target",
    "target_factor",
]

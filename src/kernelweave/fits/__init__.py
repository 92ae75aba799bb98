"""Fits at given weights: targets, coefficients, errors, class Gaussians."""

from kernelweave.fits.moment_problem import CvPath, GcvPath, MomentProblem
from kernelweave.fits.predictive import PredictivePath
from kernelweave.fits.ridge import (
    LooPath,
    binary_target,
    class_target,
    reduced_class_target,
)
from kernelweave.fits.subspace import (
    RegularizedKernel,
    Subspace,
    label_factor,
    target_factor,
)

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

"""Explicit feature maps: kernels as inner products of finitely many features."""

from kernelweave.kernels.features.base import FeatureMap
from kernelweave.kernels.features.exact import (
    CosineFeatures,
    LinearFeatures,
    PolynomialFeatures,
)
from kernelweave.kernels.features.fourier import FourierFeatures
from kernelweave.kernels.features.nystroem import NystroemFeatures
from kernelweave.kernels.features.recipe import (
    FeatureRecipe,
    FeatureReport,
    MapReport,
    choose_map,
)

__all__ = [
    "CosineFeatures",
    "FeatureMap",
    "FeatureRecipe",
    "FeatureReport",
    "FourierFeatures",
    "LinearFeatures",
    "MapReport",
    "NystroemFeatures",
    "PolynomialFeatures",
    "choose_map",
]

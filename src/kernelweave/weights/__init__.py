"""Which weights are allowed."""

from kernelweave.protocols import WeightSet
from kernelweave.weights.polyhedral import CappedSimplex, PolyhedralSet
from kernelweave.weights.sets import GroupBall, LpBall, Simplex, Uniform
from kernelweave.weights.signed_sum import SignedSum

__all__ = [
    "CappedSimplex",
    "GroupBall",
    "LpBall",
    "PolyhedralSet",
    "SignedSum",
    "Simplex",
    "Uniform",
    "WeightSet",
]

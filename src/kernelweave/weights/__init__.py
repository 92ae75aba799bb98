"""Which weights are allowed."""

from kernelweave.protocols import WeightSet
from kernelweave.weights.capped_simplex import CappedSimplex
from kernelweave.weights.lp_ball import LpBall
from kernelweave.weights.polyhedral import PolyhedralSet
from kernelweave.weights.signed_sum import SignedSum
from kernelweave.weights.simplex import Simplex
from kernelweave.weights.uniform import Uniform

__all__ = [
    "CappedSimplex",
    "LpBall",
    "PolyhedralSet",
    "SignedSum",
    "Simplex",
    "Uniform",
    "WeightSet",
]

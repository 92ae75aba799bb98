"""Which weights are allowed."""

from kernelweave.weights.base import WeightSet
from kernelweave.weights.lp_ball import LpBall
from kernelweave.weights.signed_sum import SignedSum
from kernelweave.weights.simplex import Simplex
from kernelweave.weights.uniform import Uniform

__all__ = ["LpBall", "SignedSum", "Simplex", "Uniform", "WeightSet"]

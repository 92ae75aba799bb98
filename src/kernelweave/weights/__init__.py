"""Which weights are allowed."""

from kernelweave.weights.base import WeightSet
from kernelweave.weights.lp_ball import LpBall
from kernelweave.weights.simplex import Simplex
from kernelweave.weights.uniform import Uniform

__all__ = ["LpBall", "Simplex", "Uniform", "WeightSet"]

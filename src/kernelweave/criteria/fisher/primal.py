"""The Fisher criterion over explicit features, from one-pass statistics."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kernelweave._array import Array, add_to_diagonal
from kernelweave.criteria.fisher.total import Fisher
from kernelweave.fits.moment_problem import MomentProblem
from kernelweave.fits.regularized import factor_regularized

__all__ = ["PrimalFisher"]


class PrimalFisher(Fisher):
    """``J(w) = s tr(H' M(w)^-1 H)`` over n rows, from the second moments of features.

    The same function as :class:`Fisher` for kernels ``G_i = P Z_i Z_i' P`` of trace n,
    with ``H'M^-1 H = H^'(alpha I + sum_i w_i Z^_i Z^_i')^-1 H^`` for the D + k rows
    ``Z^`` and ``H^`` of a :class:`MomentProblem`. An evaluation costs one
    factorisation of size D + k, whatever n is. Value, gradient, Hessian and certificate
    are sums of squares over these rows, so no digits are lost to differences of
    moments; all are computed in float64.

    Parameters
    ----------
    problem : MomentProblem
        Kernels and targets.
    alpha : float or "learn"
        Regularisation, relative to the mean eigenvalue of a kernel.
    factor : float, default=1.0
        Multiplies the target, and hence the value by its square.
    """

    def __init__(
        self,
        problem: MomentProblem,
        alpha: float | Literal["learn"],
        factor: float = 1.0,
    ) -> None:
        super().__init__(problem.bank, problem.target * factor, alpha)

    def factor(self, weights: np.ndarray) -> Array:
        """Cholesky factor of M(w) over the D + k rows; the next call overwrites it.

        These rows are not themselves centred, so there is no null direction to fill.
        """
        alpha, kernel_weights = self.split(np.asarray(weights, dtype=np.float64))
        matrix = self._work = self.bank.combine(
            kernel_weights, out=self._work, lower=True
        )
        add_to_diagonal(matrix, alpha)
        return factor_regularized(matrix, alpha)

"""What all primal-dual interior points share: step lengths and Mehrotra's centring."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from scipy import linalg

from kernelweave._array import FactorizationError

__all__ = ["LinearizedConditions", "SimplexSystem", "largest_step", "predict"]

Step = TypeVar("Step")


class LinearizedConditions(Protocol[Step]):
    """Optimality conditions linearised at one point, factored once, solved twice."""

    def solve(self, mu: float, before: Step | None = None) -> Step:
        """The step to where all complementary products equal ``mu``.

        The products of the step ``before`` correct the linearisation.
        """
        ...

    def mu(self, step: Step | None = None) -> float:
        """The mean complementary product: here, or after a step to the boundary."""
        ...


def predict(
    system: LinearizedConditions[Step], goal: float = 0.0
) -> tuple[Step, float]:
    """Mehrotra's predictor (1992), and the mu to which its corrector should centre.

    The predictor heads straight for the ``goal``. If it can reduce mu to a share r
    before it hits the boundary, the corrector aims for ``r^3 mu``:
    ``system.solve(mu, predictor)``.
    """
    predictor = system.solve(goal)
    now = system.mu()
    share = min(max(system.mu(predictor) / now, 0.0), 1.0) if now > 0 else 0.0
    return predictor, max(share**3 * now, goal)


def largest_step(x: np.ndarray, step: np.ndarray) -> float:
    """The largest t with ``x + t step >= 0``."""
    falling = step < 0
    if not np.any(falling):
        return np.inf
    with np.errstate(over="ignore"):  # a vanishing step may go on for ever
        return float(np.min(-x[falling] / step[falling]))


class SimplexSystem:
    """The step of a Newton-like method on ``{ v >= 0 : sum_i v_i = 1 }``.

    Eliminating dz from ``H dv + dnu e - dz = -residual``, ``e'dv = 0`` and
    ``z dv + v dz = change`` leaves m + 1 unknowns. They are scaled by v, which makes
    the diagonal of order one however small a weight is.

    Parameters
    ----------
    hessian : ndarray of shape (m, m)
        H.
    v, z : ndarray of shape (m,)
        The point and its multipliers, all positive.

    Raises
    ------
    FactorizationError
        If the system is singular.
    """

    def __init__(self, hessian: np.ndarray, v: np.ndarray, z: np.ndarray) -> None:
        m = len(v)
        self.v, self.z = v, z
        self._scaling = np.append(v, 1.0)
        matrix = np.ones((m + 1, m + 1))
        matrix[:m, :m] = hessian
        matrix[m, m] = 0.0
        matrix *= self._scaling[:, None] * self._scaling[None, :]
        matrix[np.arange(m), np.arange(m)] += z * v
        getrf, self._getrs = linalg.get_lapack_funcs(("getrf", "getrs"), (matrix,))
        *self._factors, singular = getrf(matrix)
        if singular:
            raise FactorizationError("the system for a step is singular")

    def solve(
        self, change: np.ndarray, residual: np.ndarray
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """Steps (dv, dnu, dz) for a change of the products and a residual, (m,)."""
        right = np.append(change / self.v - residual, 0.0) * self._scaling
        steps, _ = self._getrs(*self._factors, right)
        steps *= self._scaling
        dv = steps[:-1]
        return dv, float(steps[-1]), (change - self.z * dv) / self.v

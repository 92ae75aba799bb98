"""Steps in the weights: Mehrotra's centring, step lengths, a quadratic program."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from kernelweave._array import FactorizationError
from kernelweave._tolerances import RIDGE

#: Fraction of the way to the boundary of the positive orthant that a step goes.
TO_BOUNDARY = 0.995


def predict(system: Any, goal: float = 0.0) -> tuple[Any, float]:
    """Mehrotra's predictor (1992), and the mu to which its corrector should centre.

    The predictor heads straight for the ``goal``. If it can reduce mu to a share r
    before it hits the boundary, the corrector aims for ``r^3 mu``:
    ``system.solve(mu, predictor)``.

    Parameters
    ----------
    system : object
        Optimality conditions linearised at one point, factored once, solved twice:
        ``solve(mu, before=None)`` is the step to the point where all complementary
        products equal mu, corrected by the products of the step ``before`` if given;
        ``mu(step=None)`` the mean product, here or after a step to the boundary.
    goal : float, default=0
        The smallest mu to head for.
    """
    predictor = system.solve(goal)
    now = system.mu()
    share = min(max(system.mu(predictor) / now, 0.0), 1.0) if now > 0 else 0.0
    return predictor, max(share**3 * now, goal)


def largest_step(x: np.ndarray, step: np.ndarray) -> float:
    """The largest t with ``x + t step >= 0``."""
    falling = step < 0
    if not falling.any():
        return np.inf
    with np.errstate(over="ignore"):  # a tiny step may have no finite limit
        return float((-x[falling] / step[falling]).min())


class BorderedSystem:
    """``(H + diag(z / v)) dv + A'dnu = force``, ``A dv = missing``, factored once.

    The system for a step on ``{ v >= 0 : A v = b }`` once the multipliers z of
    ``v >= 0`` have been eliminated. The unknowns are scaled by v, which keeps the
    diagonal of order mu however small a weight is.

    Parameters
    ----------
    hessian : ndarray of shape (m, m)
        H.
    v, z : ndarray of shape (m,)
        The point and its multipliers, all positive.
    equal : ndarray of shape (e, m)
        A.

    Raises
    ------
    FactorizationError
        If the system is singular.
    """

    def __init__(
        self, hessian: np.ndarray, v: np.ndarray, z: np.ndarray, equal: np.ndarray
    ) -> None:
        m, e = len(v), len(equal)
        self._scaling = np.append(v, np.ones(e))
        matrix = np.zeros((m + e, m + e))
        matrix[:m, :m] = hessian
        matrix[m:, :m], matrix[:m, m:] = equal, equal.T
        matrix *= self._scaling[:, None] * self._scaling[None, :]
        matrix[np.arange(m), np.arange(m)] += z * v
        getrf, self._getrs = linalg.get_lapack_funcs(("getrf", "getrs"), (matrix,))
        *self._factors, singular = getrf(matrix)
        if singular:  # kernels that are the same: any way to share the step will do
            inner = np.arange(m)
            matrix[inner, inner] += RIDGE * float(np.sum(np.abs(matrix[inner, inner])))
            *self._factors, singular = getrf(matrix)
        if singular:
            raise FactorizationError("the system for a step is singular")

    def solve(
        self, force: np.ndarray, missing: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Steps dv (m,) and dnu (e,)."""
        right = np.append(force, missing) * self._scaling
        steps, _ = self._getrs(*self._factors, right)
        steps *= self._scaling
        return steps[: len(force)], steps[len(force) :]


def minimize_on_simplex(
    hessian: np.ndarray, slope: np.ndarray, total: float = 1.0, tol: float = 0.0
) -> np.ndarray:
    """``min u'H u / 2 + c'u`` over ``{ u >= 0 : sum_i u_i = total }``, with few u > 0.

    The method of Lawson and Hanson (1974, Chapter 23) for a sum in place of an
    unrestricted scale. It begins at the best vertex. The coordinate with the smallest
    reduced slope ``(H u + c)_j + nu`` joins those inside, among which the program
    without signs is solved; one that would turn negative leaves. Where many points are
    as good, the result has few positive entries, unlike that of an interior method.

    Parameters
    ----------
    hessian : ndarray of shape (m, m)
        H, positive semidefinite.
    slope : ndarray of shape (m,)
        c.
    total : float, default=1.0
        The sum.
    tol : float, default=0.0
        A coordinate joins only if its reduced slope is below ``-tol``. The value is
        then within ``tol * total`` of the minimum.

    Returns
    -------
    ndarray of shape (m,)
        u.
    """
    m = len(slope)
    ridge = RIDGE * float(np.trace(hessian))
    tol = max(tol, ridge * total)
    gesv = linalg.get_lapack_funcs("gesv", (hessian,))
    vertices = slope + (0.5 * total) * np.diagonal(hessian)
    inside = [int(np.argmin(vertices))]
    u = np.zeros(m)
    u[inside] = total
    for _ in range(10 * m + 10):
        s = len(inside)
        system = np.ones((s + 1, s + 1))
        system[:s, :s] = hessian[np.ix_(inside, inside)]
        system.flat[:: s + 2] += ridge
        system[s, s] = 0.0
        *_, found, singular = gesv(system, np.append(-slope[inside], total))
        if singular:
            raise FactorizationError("the system for a step is singular")
        best = found[:s]
        if s > 1 and best.min() <= 0.0:  # go as far as signs allow
            now = u[inside]
            falling = np.flatnonzero(best <= 0.0)
            shares = now[falling] / (now[falling] - best[falling])
            k = int(falling[np.argmin(shares)])
            u[inside] = np.maximum(now + float(np.min(shares)) * (best - now), 0.0)
            u[inside[k]] = 0.0
            inside.pop(k)
            continue
        u[:] = 0.0
        u[inside] = best
        reduced = hessian @ u + slope
        reduced -= float(reduced @ u) / total  # nu, which the ridge does not move
        reduced[inside] = 0.0
        j = int(np.argmin(reduced))
        if reduced[j] >= -tol:
            break
        inside.append(j)
    return u

"""Non-negative least squares, and the least distances that it solves."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from kernelweave._array import FactorizationError

#: A residual this small means that the constraints contradict one another.
CONTRADICTION = 1e-14


def cone_multipliers(rows: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """``min_z norm(z'rows - goal)`` over ``z >= 0``: the point of a cone nearest to it.

    The active-set method of Lawson and Hanson (1974, Chapter 23), which ends after
    finitely many steps.

    Parameters
    ----------
    rows : ndarray of shape (r, m)
        The directions that span the cone.
    goal : ndarray of shape (m,)
        The point to approximate.

    Returns
    -------
    ndarray of shape (r,)
        z.

    Raises
    ------
    FactorizationError
        If rounding keeps the method from ending.
    """
    try:
        return np.asarray(nnls(rows.T, goal, maxiter=100 * len(rows))[0])
    except RuntimeError as error:
        message = "rounding keeps non-negative least squares from ending"
        raise FactorizationError(message) from error


def least_distance(
    rows: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """``min norm(x)`` subject to ``rows x >= right``.

    Least-distance programming (Lawson and Hanson, 1974, Chapter 23): if z solves the
    non-negative least-squares problem for ``[rows, right]`` and the last unit vector,
    its residual ``(r, -s)`` gives ``x = r / s``.

    Parameters
    ----------
    rows, right : ndarray of shape (r, m) and (r,)
        The constraints.

    Returns
    -------
    multipliers : ndarray of shape (r,)
        z, proportional to the multipliers of the constraints.
    point : ndarray of shape (m,) or None
        x; None if no point satisfies the constraints up to rounding.
    """
    stacked = np.column_stack([rows, right])
    goal = np.append(np.zeros(rows.shape[1]), 1.0)
    multipliers = cone_multipliers(stacked, goal)
    residual = stacked.T @ multipliers - goal
    if not residual[-1] < -CONTRADICTION:
        return multipliers, None
    return multipliers, -residual[:-1] / residual[-1]

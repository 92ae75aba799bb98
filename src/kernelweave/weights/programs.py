"""Linear programs over the weights: the master of every cutting-plane method."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from kernelweave.protocols import Polyhedron

__all__ = ["box_maximizer", "linear_program", "master_program"]

#: The tightest feasibility and optimality tolerance that HiGHS accepts.
LP_TOLERANCE = 1e-10


def linear_program(
    cost: np.ndarray, allowed: Polyhedron
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """``min <cost, x>`` over a polyhedron, with HiGHS.

    Returns
    -------
    x : ndarray of shape (m,)
        The minimiser, within the tolerance of the solver.
    prices : ndarray of shape (r,)
        Multipliers >= 0 of the inequalities.
    equal_prices : ndarray of shape (e,)
        Multipliers of the equations: ``cost + below'prices + equal'equal_prices`` is
        balanced by the multipliers of the limits.

    None if HiGHS finds no optimum.
    """
    options = {
        "primal_feasibility_tolerance": LP_TOLERANCE,
        "dual_feasibility_tolerance": LP_TOLERANCE,
    }
    for method in ("highs-ds", "highs-ipm"):
        result = linprog(
            cost,
            A_ub=allowed.below,
            b_ub=allowed.below_to,
            A_eq=allowed.equal,
            b_eq=allowed.equal_to,
            bounds=allowed.limits,
            method=method,
            options=options,
        )
        if result.status == 0:
            prices = np.maximum(-result.ineqlin.marginals, 0.0)
            return result.x, prices, -result.eqlin.marginals
    return None


def master_program(
    linear: np.ndarray, scores: np.ndarray, allowed: Polyhedron
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """``min t`` subject to ``t >= linear_r - <scores_r, w>`` and w in a polyhedron.

    Parameters
    ----------
    linear, scores : ndarray of shape (r,) and (r, m)
        The cuts.
    allowed : Polyhedron
        The set of allowed w.

    Returns
    -------
    weights : ndarray of shape (m,)
        The minimiser.
    multipliers : ndarray of shape (r,)
        Multipliers of the cuts, non-negative.
    prices : ndarray
        Multipliers of the inequalities of the polyhedron.
    """
    r, m = scores.shape
    cuts = -np.column_stack([scores, np.ones(r)])
    with_t = Polyhedron(
        _widened(allowed.equal),
        allowed.equal_to,
        np.concatenate([cuts, _widened(allowed.below)]),
        np.concatenate([-linear, allowed.below_to]),
        np.concatenate([allowed.limits, [[-np.inf, np.inf]]]),
    )
    answer = linear_program(np.append(np.zeros(m), 1.0), with_t)
    if answer is None:
        return None
    x, prices, _ = answer
    return x[:m], prices[:r], prices[r:]


def _widened(rows: np.ndarray) -> np.ndarray:
    """Rows (r, m) with a zero appended for t, (r, m + 1)."""
    return np.column_stack([rows, np.zeros(len(rows))])


def box_maximizer(scores: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """``argmax <scores, w>`` over ``sum_i w_i = 1`` and limits (m, 2), (m,).

    Weights are raised to their upper limits in the order of their scores.
    """
    order = np.argsort(-scores)
    low, room = limits[order, 0], limits[order, 1] - limits[order, 0]
    before = np.cumsum(room) - room
    best = np.empty(len(scores))
    best[order] = low + np.clip(1.0 - np.sum(low) - before, 0.0, room)
    return best

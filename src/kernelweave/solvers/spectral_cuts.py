"""Cutting planes over weights of any sign: cuts of the criterion and of the set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from kernelweave.protocols import Criterion, Evaluation, Iterate
from kernelweave.solvers.cutting_plane import (
    FLOOR,
    Cuts,
    as_multipliers,
    evaluate_nearby,
)
from kernelweave.weights.polyhedral import box_maximizer, master_program
from kernelweave.weights.signed_sum import SignedSum

__all__ = ["nearest_point", "spectral_cuts"]

#: The level of the next point, as a fraction of the way from lower bound to best value.
LEVEL = 0.5
#: Relative difference between bound and smallest value that counts as rounding.
EXACT = 1e-12


def spectral_cuts(criterion: Criterion, weight_set: SignedSum) -> Iterator[Iterate]:
    """Minimise a convex criterion over ``sum_i w_i G_i`` PSD, ``sum_i w_i = 1``.

    Lanckriet et al. (2002), Eq. 12, without a semidefinite program. Two kinds of cuts
    are collected: ``J(u) >= linear_r - <scores_r, u>`` from each evaluation, and
    ``v'K(u) v >= 0`` from eigenvectors of sums that are not positive semidefinite.

    1. The linear program ``min t`` over all cuts gives a lower bound.
    2. The next point is the one nearest to the best point at which all cuts lie below
       the level halfway between the bound and the best value (a level method: it needs
       no step length and does not jump between vertices).
    3. Eigenvectors of its negative eigenvalues become cuts, and the point is pulled
       back into the set.
    4. The criterion is evaluated there.

    Yields
    ------
    Iterate
        After each evaluation, the best weights and the best lower bound so far.
    """
    weights = weight_set.start(criterion.n_weights)
    cuts, bound, dual, reached = Cuts(), -np.inf, None, np.inf
    best: Iterate | None = None
    while True:
        weights, state, value = _judged(criterion, weights, best)
        cuts.add(weights, state)
        reached = min(reached, state.value)
        if best is None or value < best.value:
            best = replace(Iterate.at(weights, state), value=value)
        best = replace(best, n_factorizations=state.n_factorizations)
        if weight_set.is_point(len(weights)):
            yield best
            return
        unit = abs(best.value) or 1.0
        answer = _master(cuts.linear / unit, cuts.scores / unit, weight_set)
        if answer is None:
            return
        point, multipliers, candidate = answer
        if unit * candidate > bound:
            bound, dual = unit * candidate, cuts.dual_point(multipliers)
        yield replace(best, dual=dual, lower_bound=bound)
        if reached - bound <= EXACT * abs(reached):
            return  # the inner solver cannot resolve the remaining gap
        level = bound + LEVEL * (best.value - bound)
        goal = _level_point(cuts, weight_set, best.weights, level, point)
        weights = weight_set.separate(goal)
        if np.array_equal(weights, best.weights):
            return  # the cuts are too inaccurate to yield a new point


def _judged(
    criterion: Criterion, weights: np.ndarray, best: Iterate | None
) -> tuple[np.ndarray, Evaluation, float]:
    """Evaluate, and certify the value: the inner solver may have stopped early.

    The certificate of some criteria divides by the weight of another term, which must
    then be nonzero. If the certified value is still infinite, as for a function that
    fails to separate a few rows, the value of the inner solver is used.
    """
    weights, state = evaluate_nearby(criterion, weights, best)
    upper = criterion.certificate_terms(weights, state.coef, state.coef).upper
    others = weights[: criterion.n_weights - criterion.n_kernels]
    if not np.isfinite(upper) and np.min(others, initial=1.0) < FLOOR:
        raised = np.append(np.maximum(others, FLOOR), weights[len(others) :])
        raised = raised / np.sum(raised)
        spent = state.n_factorizations
        weights, state = evaluate_nearby(criterion, raised, best)
        state = replace(state, n_factorizations=spent + state.n_factorizations)
        upper = criterion.certificate_terms(weights, state.coef, state.coef).upper
    return weights, state, upper if np.isfinite(upper) else state.value


def _master(
    linear: np.ndarray, scores: np.ndarray, weight_set: SignedSum
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """``min t`` over all cuts: weights (m,), multipliers (r,) and a lower bound.

    The bound is computed from the multipliers, so it holds however accurately the
    program was solved.
    """
    allowed = weight_set.polyhedron(scores.shape[1])
    answer = master_program(linear, scores, allowed)
    if answer is None:
        return None
    point, multipliers, prices = answer
    multipliers = as_multipliers(multipliers)
    slope = multipliers @ scores - prices @ allowed.below
    highest = float(slope @ box_maximizer(slope, allowed.limits))
    return point, multipliers, float(multipliers @ linear) - highest


def _level_point(
    cuts: Any,
    weight_set: SignedSum,
    centre: np.ndarray,
    level: float,
    fallback: np.ndarray,
) -> np.ndarray:
    """The point nearest to ``centre`` (m,) where all cuts lie below ``level``."""
    allowed, one = weight_set.polyhedron(len(centre)), np.eye(len(centre))
    low, high = allowed.limits.T
    rows = np.concatenate([cuts.scores, -allowed.below, one, -one])
    right = np.concatenate([cuts.linear - level, -allowed.below_to, low, -high])
    point = nearest_point(rows, right, centre)
    return fallback if point is None else point


def nearest_point(
    rows: np.ndarray, right: np.ndarray, centre: np.ndarray
) -> np.ndarray | None:
    """``min norm(w - centre)`` with ``rows w >= right`` and the same sum as centre.

    Least-distance programming by non-negative least squares (Lawson and Hanson, 1974,
    Chapter 23) in coordinates of the plane; None if rounding leaves no feasible point.
    """
    m = len(centre)
    basis = np.linalg.svd(np.ones((1, m)))[2][1:].T  # (m, m - 1), orthogonal to ones
    slopes, short = rows @ basis, right - rows @ centre
    size = np.linalg.norm(slopes, axis=1)
    use = size > 0.0
    slopes, short = slopes[use] / size[use, None], short[use] / size[use]
    if not np.any(short > 0.0):
        return centre
    unit = float(np.max(np.abs(short)))
    stacked = np.vstack([slopes.T, short / unit])
    goal = np.append(np.zeros(m - 1), 1.0)
    try:
        mixture, _ = nnls(stacked, goal, maxiter=100 * stacked.shape[1])
    except RuntimeError:
        return None
    residual = stacked @ mixture - goal
    if not residual[-1] < -1e-14:
        return None
    step = -unit * residual[:-1] / residual[-1]
    return centre + basis @ step

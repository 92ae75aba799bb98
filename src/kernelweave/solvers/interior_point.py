"""Margins and weights jointly, by a primal-dual interior point."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernelweave.criteria.margin import Margin
from kernelweave.inner.saddle import SEPARABLE, SaddlePath
from kernelweave.protocols import InfeasibleError, Iterate, NormSet

__all__ = ["interior_point"]


def interior_point(margin: Margin, weight_set: NormSet) -> Iterator[Iterate]:
    """Minimise a margin criterion over ``{ w >= 0 : sum_i w_i^q = 1 }``.

    For the simplex this is the quadratically constrained program behind Lanckriet et
    al. (2002), Eq. 12, ``max 2 e'a - tau a'a - t`` with ``a'G_i a <= t``, whose p
    multipliers are the weights; the other norms replace ``max_i`` by the dual norm of
    the scores. The weights and all support vector machines advance together: a step
    costs one pass to sum the kernels, one factorisation per column, and one product of
    each kernel with the step. For a one-point set the problem is an ordinary support
    vector machine.

    Yields
    ------
    Iterate
        One per point of the path, with its own upper and lower bounds.
    """
    start = weight_set.start(margin.n_weights)
    fixed = weight_set.is_point(len(start))
    path = _path(margin, weight_set, start, fixed)
    separable, counted = False, 0
    while True:
        beta = path.coef()
        if fixed:
            weights, gradient = start, -margin.problem.scores(beta)
            upper, lower = path.bounds(path.fixed, lambda scores: float(scores[0]))
        else:
            weights = weight_set.scale(path.weights)
            gradient = -path.size * path.scores
            upper, lower = path.bounds(weights, weight_set.support)
        coef = margin.over_all_rows(beta)
        spent, counted = path.n_factorizations - counted, path.n_factorizations
        yield Iterate(weights, upper, gradient, coef, None, lower, spent)
        if not separable:
            separable = _is_separable(margin, path, start, upper, lower)
        path.step()


def _is_separable(
    margin: Margin,
    path: SaddlePath,
    start: np.ndarray,
    upper: float,
    lower: float,
) -> bool:
    """Whether a hard margin has been found to exist for a path that looks infeasible.

    The range of every sum of kernels lies in that of the sum with equal weights: if the
    latter does not separate the rows, no sum does, so one check suffices.

    Raises
    ------
    InfeasibleError
        If no sum separates the rows.
    """
    try:
        path.require_separable(upper, lower)
    except InfeasibleError as error:
        state = margin.evaluate(start, hessian=False)
        if state.value > SEPARABLE * path.size:  # separated by rounding alone
            error.coef = state.coef
            raise
        return True
    return False


def _path(
    margin: Margin, weight_set: NormSet, start: np.ndarray, fixed: bool
) -> SaddlePath:
    """The path in weights and a, or in a alone if the weights are fixed."""
    if fixed:
        return SaddlePath(margin.problem.at(start))
    return SaddlePath(margin.problem, weight_set.norm, start)

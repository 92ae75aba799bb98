"""Margins and weights by one primal-dual interior point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelweave.inner.saddle_path import SEPARABLE, SaddlePath
from kernelweave.protocols import Criterion, InfeasibleError
from kernelweave.solvers.solution import Iterate
from kernelweave.weights.base import WeightSet

__all__ = ["interior_point"]


def interior_point(criterion: Criterion, weight_set: WeightSet) -> Iterator[Iterate]:
    """Minimise a margin criterion over ``{ w >= 0 : sum_i w_i^q = 1 }``.

    For the simplex this is the quadratically constrained program behind Lanckriet et
    al. (2002), Eq. 12, ``max 2 e'a - tau a'a - t`` with ``a'G_i a <= t``, whose p
    multipliers are the weights; the other norms replace ``max_i`` by the dual norm of
    the scores. Weights and all support vector machines advance together: a step costs
    one pass to add up the kernels, one factorisation a column, and one product of each
    kernel with the step. A set with one point leaves a plain support vector machine.

    Yields
    ------
    Iterate
        One for each point of the path, with its own upper and lower bound.
    """
    margin: Any = getattr(criterion, "_criterion", criterion)  # without its counter
    start = weight_set.start(criterion.n_weights)
    fixed = np.isinf(weight_set.norm) or len(start) == 1
    path = _path(margin, weight_set, start, fixed)
    separable = False
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
        yield Iterate(weights, upper, gradient, coef, lower_bound=lower)
        if not separable:
            separable = _is_separable(criterion, path, start, upper, lower)
        counted = path.n_factorizations
        path.step()
        if criterion is not margin:
            criterion.n_factorizations += path.n_factorizations - counted  # type: ignore[attr-defined]


def _is_separable(
    criterion: Criterion,
    path: SaddlePath,
    start: np.ndarray,
    upper: float,
    lower: float,
) -> bool:
    """Whether a path that looks hopeless has been seen to have a hard margin.

    The range of every sum of kernels lies in that of the sum with equal weights: if
    this one does not separate the rows, none does, and one check decides.

    Raises
    ------
    InfeasibleError
        If it does not.
    """
    try:
        path.require_separable(upper, lower)
    except InfeasibleError as error:
        state = criterion.evaluate(start, hessian=False)
        if state.value > SEPARABLE * path.size:  # separated by rounding alone
            error.coef = state.coef
            raise
        return True
    return False


def _path(
    margin: Any, weight_set: WeightSet, start: np.ndarray, fixed: bool
) -> SaddlePath:
    """The path in weights and a, or in a alone where the weights cannot move."""
    if fixed:
        return SaddlePath(margin.problem.at(start))
    return SaddlePath(margin.problem, weight_set.norm, start)

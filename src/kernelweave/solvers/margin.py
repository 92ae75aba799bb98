"""Solvers for margins: an interior point, and Newton's method around LIBSVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from kernelweave._array import FactorizationError
from kernelweave._tolerances import SMALL_GAP
from kernelweave.criteria.margin import NotSuitable
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.inner.saddle import SEPARABLE, SaddlePath
from kernelweave.protocols import (
    BallSet,
    InfeasibleError,
    Iterate,
    LinearSet,
    SaddleCriterion,
)
from kernelweave.solvers.cutting_plane import cutting_plane
from kernelweave.solvers.newton import newton

#: Steps of the path within which its bounds must come twice as close, if far apart.
STALLED = 40
#: Bounds this far apart, after they have been close, mean that the path is lost.
LOST = 0.1


def interior_point(margin: SaddleCriterion, weight_set: BallSet) -> Iterator[Iterate]:
    """Minimise a margin criterion over ``{ w >= 0 : sum_i w_i^q = 1 }``.

    For the simplex this is the quadratically constrained program behind Lanckriet et
    al. (2002), Eq. 12, ``max 2 e'a - tau a'a - t`` with ``a'G_i a <= t``, whose p
    multipliers are the weights; the other norms replace ``max_i`` by the dual norm of
    the scores. The weights and all support vector machines advance together: a step
    costs one pass to sum the kernels, one factorisation per column, and one product of
    each kernel with the step.

    Yields
    ------
    Iterate
        One per point of the path, with its own upper and lower bounds.

    Raises
    ------
    InfeasibleError
        If the margin is hard, and no sum of the kernels separates the rows.
    """
    start = weight_set.start(margin.n_weights)
    path = SaddlePath(margin.problem, weight_set.norm, start)
    separable, counted = False, 0
    best, apart, idle, steps = np.inf, np.inf, 0, 0
    while idle < STALLED and not (best <= SMALL_GAP and apart > LOST):
        weights = weight_set.scale(path.point.w)
        gradient = -path.size * path.scores
        upper, lower = path.bounds(weights)
        coef = margin.over_all_rows(path.coef())
        spent, counted = path.n_factorizations - counted, path.n_factorizations
        yield Iterate(weights, upper, gradient, coef, None, lower, spent)
        apart = upper / lower - 1.0 if lower > 0.0 else np.inf
        slow = apart > 0.5 * best if np.isfinite(best) else separable
        idle = idle + 1 if slow and best > SMALL_GAP else 0
        best, steps = min(best, apart), steps + 1
        late = steps >= STALLED or lower > SEPARABLE * path.size
        if np.isinf(upper) and late and not separable:
            # The range of every sum of kernels lies in that of the sum with equal
            # weights: if that does not separate the rows, none does.
            margin.evaluate(start, hessian=False)
            separable = True
        try:
            path.step()
        except FactorizationError:
            if best <= SMALL_GAP:
                raise
            break
    # Rounding, where C is huge, bends the path.
    yield from newton(margin, weight_set)


def svc_newton(
    margin: SaddleCriterion, weight_set: LinearSet, hand_over: bool = True
) -> Iterator[Iterate]:
    """Minimise a margin criterion by training only a few support vector machines.

    The machines at given weights come from LIBSVM, or from the active sets at the
    previous weights, and are polished: the linear systems on the rows strictly inside
    the box are solved and the active sets corrected until all optimality conditions
    hold. Value, gradient and Hessian are then exact, and Newton's method in the weights
    takes a few steps. The matrices factored are only as large as the number of free
    support vectors: few for a class against the rest, or a moderate C. If most rows are
    free, or LIBSVM and the polish fail, the interior point takes over where it can. If
    Newton's method finds no step, cutting planes do.

    Yields
    ------
    Iterate
        One per evaluation.
    """
    machines = margin.by_libsvm(hand_over and "norm" in weight_set.offers)
    try:
        yield from newton(machines, weight_set)
    except InfeasibleError:
        raise
    except FactorizationError:
        machines.may_give_up = False
        yield from cutting_plane(machines, weight_set)
    except NotSuitable:
        try:
            yield from interior_point(margin, cast(BallSet, weight_set))
        except MemoryRefusedError:
            yield from svc_newton(margin, weight_set, hand_over=False)

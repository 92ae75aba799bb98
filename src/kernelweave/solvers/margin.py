"""Solvers for margins: an interior point, and Newton's method around libsvm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from kernelweave._array import Array, FactorizationError, inner_products, to_numpy
from kernelweave._tolerances import SMALL_GAP
from kernelweave.criteria.margin import Margin, total_curvature
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.inner.saddle import SEPARABLE, SaddlePath
from kernelweave.inner.svm import (
    VIOLATIONS,
    Machine,
    coefficients,
    free_rows,
    libsvm,
    train_machines,
)
from kernelweave.kernels.banks.dense import combine_in_double
from kernelweave.protocols import (
    Evaluation,
    InfeasibleError,
    Iterate,
    LinearSet,
    NormSet,
)
from kernelweave.solvers.cutting_plane import cutting_plane
from kernelweave.solvers.newton import newton

#: Relative gap to which a single machine is solved, and the one that is good enough:
#: the interior point, which takes over otherwise, may fare no better.
INNER_GAP = 1e-9
GOOD_GAP = 1e-8
#: Share of free rows at the first weights above which the interior point, which factors
#: all rows, but once per step, takes less time.
MOSTLY_FREE = 0.65
#: Most steps of libsvm per row: it needs one to four unless kernels have a low rank.
STEPS_PER_ROW = 20
#: Steps of the path within which its bounds must come twice as close, if far apart.
STALLED = 40


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

    Raises
    ------
    InfeasibleError
        If the margin is hard, and no sum of the kernels separates the rows.
    """
    weights = start = weight_set.start(margin.n_weights)
    fixed = weight_set.is_point(len(start))
    if fixed:
        path = SaddlePath(margin.problem.at(start))
    else:
        path = SaddlePath(margin.problem, weight_set.norm, start)
    separable, counted = False, 0
    best, idle, steps = np.inf, 0, 0
    while idle < STALLED or fixed:
        beta = path.coef()
        if fixed:
            gradient = -margin.problem.scores(beta)
            upper, lower = path.bounds(path.fixed, lambda scores: float(scores[0]))
        else:
            weights = weight_set.scale(path.weights)
            gradient = -path.size * path.scores
            upper, lower = path.bounds(weights, weight_set.support)
        coef = margin.over_all_rows(beta)
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
            state = margin.evaluate(start, hessian=False)
            separable = True
            if fixed:
                yield Iterate.at(start, state)
                return
        path.step()
    # Rounding, where C is huge, bends the path; norm sets are linear in powers of w.
    linear: Any = weight_set
    yield from newton(margin, linear)


def svc_newton(
    margin: Margin,
    weight_set: LinearSet,
    train: Callable[..., list[Machine]] = train_machines,
    hand_over: bool = True,
) -> Iterator[Iterate]:
    """Minimise a margin criterion by training only a few support vector machines.

    The machines at given weights come from libsvm, or from the active sets at the
    previous weights, and are polished: the linear systems on the rows strictly inside
    the box are solved and the active sets corrected until all optimality conditions
    hold. Value, gradient and Hessian are then exact, and Newton's method in the weights
    takes a few steps. The matrices factored are only as large as the number of free
    support vectors: few for a class against the rest, or a moderate C. If most rows are
    free, or libsvm and the polish fail, the interior point takes over where it can. If
    Newton's method finds no step, cutting planes do.

    Machines are trained in host memory: sums of kernels of other array libraries are
    copied there.

    Yields
    ------
    Iterate
        One per evaluation.
    """
    machines = _Machines(margin, train)
    machines.may_give_up = hand_over and "norm" in weight_set.offers
    try:
        yield from newton(machines, weight_set)
    except InfeasibleError:
        raise
    except FactorizationError:
        machines.may_give_up = False
        yield from cutting_plane(machines, weight_set)
    except _NotSuitable:
        try:
            yield from interior_point(margin, cast(NormSet, weight_set))
        except MemoryRefusedError:
            yield from svc_newton(margin, weight_set, train, hand_over=False)


class _NotSuitable(Exception):
    """The polish has failed, or most rows are free."""


class _Machines(Margin):
    """A margin criterion whose machines are trained by libsvm and polished.

    Attributes
    ----------
    may_give_up : bool
        Whether to raise an error where another method takes less time.
    """

    def __init__(
        self,
        margin: Margin,
        train: Callable[..., list[Machine]] = train_machines,
    ) -> None:
        vars(self).update(vars(margin))  # the same problem: no kernel is copied
        self._train = train
        self._last: np.ndarray | None = None
        self._work: Array | None = None
        self.may_give_up = False

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and coefficients at weights (m,)."""
        problem = self.problem
        tau, kernel_weights = problem.split(weights)
        self._work = combine_in_double(problem.bank, kernel_weights, self._work)
        kernel = np.require(to_numpy(self._work), np.float64, "W")
        kernel[np.diag_indices(len(kernel))] += tau * problem.diagonal
        bounds, steps = problem.bounds, STEPS_PER_ROW * len(kernel)
        start = self._last
        then: tuple[float, ...] = VIOLATIONS
        if start is None:
            start = libsvm(kernel, problem.signs, bounds, steps)
            then = () if self.may_give_up else VIOLATIONS[1:]
            free, _ = free_rows(start * problem.signs, bounds[:, None])
            if self.may_give_up and np.mean(free) > MOSTLY_FREE:
                raise _NotSuitable
        machines = self._train(
            kernel, problem.signs, bounds, INNER_GAP, start, then, steps
        )
        if max(machine.gap for machine in machines) > GOOD_GAP:
            if self.may_give_up:
                raise _NotSuitable
            return super().evaluate(weights, hessian=hessian)
        coef = self._last = coefficients(machines)
        products = to_numpy(problem.products(coef))
        scores = inner_products(products, coef)
        value = 2.0 * float(np.sum(coef * problem.signs)) - float(scores @ weights)
        value -= problem.tau * float(np.sum(problem.diagonal @ coef**2))
        curvature = total_curvature(machines, products) if hessian else None
        count = sum(machine.n_factorizations for machine in machines)
        full = self.over_all_rows(coef)
        return Evaluation(value, -scores, curvature, full, count)

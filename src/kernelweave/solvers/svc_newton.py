"""Newton's method in the weights, with scikit-learn's SVC inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernelweave._array import Array, FactorizationError, inner_products, is_numpy
from kernelweave.criteria.margin import Margin
from kernelweave.inner.svm import MAX_ROUNDS, Machine, solve_machine
from kernelweave.kernels.banks.dense import DenseBank, host_stack
from kernelweave.protocols import (
    CertificateTerms,
    Criterion,
    Evaluation,
    InfeasibleError,
    Iterate,
    LinearSet,
)
from kernelweave.solvers.cutting_plane import cutting_plane
from kernelweave.solvers.newton import newton

__all__ = ["svc_newton"]

#: Relative gap below which a single machine counts as solved.
INNER_GAP = 1e-9


def svc_newton(
    criterion: Margin, weight_set: LinearSet, max_rounds: int = MAX_ROUNDS
) -> Iterator[Iterate]:
    """Minimise a margin criterion by training only a few support vector machines.

    The machines at given weights come from libsvm, or from the active set at the
    previous weights, and are polished: the linear system on the rows strictly inside
    the box is solved and the active set corrected until all optimality conditions hold.
    Value, gradient and Hessian are then exact, and Newton's method in the weights takes
    a few steps. The matrices factored are only as large as the number of free support
    vectors, so this method suits many rows and a moderate C. If libsvm and the polish
    fail, the interior point solves all machines at those weights; if Newton's method
    finds no step, cutting planes take over.

    Everything runs in host memory: kernels of other array libraries are copied there.

    ``max_rounds`` limits the corrections of the active set, for each machine.

    Yields
    ------
    Iterate
        One per evaluation.
    """
    machines = _Machines(criterion, max_rounds)
    try:
        yield from newton(machines, weight_set)
    except InfeasibleError:
        raise
    except FactorizationError:
        yield from cutting_plane(machines, weight_set)


class _Machines(Criterion):
    """A margin criterion evaluated through libsvm."""

    offers = Margin.offers

    def __init__(self, margin: Margin, max_rounds: int = MAX_ROUNDS) -> None:
        self._margin, self._problem = margin, margin.problem
        self._max_rounds = max_rounds
        bank = self._problem.bank
        home = is_numpy(bank.like) and bank.like.dtype == np.float64
        self._bank = bank if home else DenseBank(host_stack(bank))
        self._last: list[np.ndarray | None] = [None] * self._problem.signs.shape[1]
        self._work: np.ndarray | None = None

    @property
    def n_kernels(self) -> int:
        """The number p of kernels."""
        return self._margin.n_kernels

    @property
    def n_weights(self) -> int:
        """The number m of weights."""
        return self._margin.n_weights

    def certificate_terms(
        self, weights: np.ndarray, coef: Array, dual: Array
    ) -> CertificateTerms:
        """The terms of the margin criterion."""
        return self._margin.certificate_terms(weights, coef, dual)

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and coefficients at weights (m,)."""
        problem = self._problem
        tau, kernel_weights = problem.split(weights)
        kernel = self._work = self._bank.combine(kernel_weights, out=self._work)
        kernel[np.diag_indices(len(kernel))] += tau
        states, coef = [], np.zeros_like(problem.signs)
        for c in range(problem.signs.shape[1]):
            rows, y = problem.column(c)
            part = kernel if isinstance(rows, slice) else kernel[np.ix_(rows, rows)]
            state = solve_machine(
                part, y, problem.bound, INNER_GAP, self._last[c], self._max_rounds
            )
            if state.gap > INNER_GAP:
                return self._margin.evaluate(weights, hessian=hessian)
            self._last[c] = state.coef
            states.append(state)
            coef[rows, c] = state.coef
        found = self._evaluation(weights, coef, states, hessian)
        count = sum(state.n_factorizations for state in states)
        return replace(found, n_factorizations=count)

    def _evaluation(
        self,
        weights: np.ndarray,
        coef: np.ndarray,
        states: list[Machine],
        hessian: bool,
    ) -> Evaluation:
        problem = self._problem
        products = self._bank.apply(coef)
        if problem.identity:
            products = np.concatenate([coef[None], products])
        scores = inner_products(products, coef)
        value = 2.0 * float(np.sum(coef * problem.signs)) - float(scores @ weights)
        value -= problem.tau * float(np.sum(coef**2))
        curvature = None
        if hessian:
            curvature = np.zeros((len(weights), len(weights)))
            for c, state in enumerate(states):
                rows, _ = problem.column(c)
                curvature += state.curvature(products[:, rows, c])
        return Evaluation(value, -scores, curvature, self._margin.over_all_rows(coef))

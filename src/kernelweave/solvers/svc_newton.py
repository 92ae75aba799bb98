"""Newton's method on the weights around scikit-learn's SVC."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from kernelweave._array import Array, FactorizationError, inner_products, is_numpy
from kernelweave.criteria.margin.margin import Margin
from kernelweave.inner.margin_bounds import balanced, primal_value
from kernelweave.kernels.banks.base import host_stack
from kernelweave.kernels.banks.dense import DenseBank
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

#: Relative gap of one machine below which it counts as solved.
INNER_GAP = 1e-9
#: Corrections of the active set, and iterations of libsvm, that a machine may take.
MAX_ROUNDS = 30
MAX_SVC_ITERATIONS = 50_000
SVC_TOLERANCE = 1e-3
#: The box of libsvm where there is none, for a kernel of mean diagonal one.
NO_BOX = 1e4
#: Added to the kernel of the free rows, relative to its mean diagonal.
JITTER = 1e-13


def svc_newton(criterion: Margin, weight_set: LinearSet) -> Iterator[Iterate]:
    """Minimise a margin criterion with few support vector machines of libsvm.

    The machines at given weights come from libsvm, or from the active set of the last
    weights, and are polished: the linear system on the rows strictly inside the box is
    solved and the active set corrected until all optimality conditions hold. Value,
    gradient and Hessian are then exact and Newton's method on the weights takes a few
    steps. Factorisations have the size of the free support vectors, so this is the
    method for many rows and a moderate C. Where libsvm and the polish fail, the
    interior point solves that machine; where Newton's method finds no step, cutting
    planes go on.

    Everything runs in host memory: kernels of other array libraries are copied there.

    Yields
    ------
    Iterate
        One for each evaluation.
    """
    machines = _Machines(criterion)
    try:
        yield from newton(machines, weight_set)
    except InfeasibleError:
        raise
    except FactorizationError:
        yield from cutting_plane(machines, weight_set)


class _Machines(Criterion):
    """A margin criterion evaluated through libsvm."""

    offers = Margin.offers

    def __init__(self, margin: Margin) -> None:
        self._margin, self._problem = margin, margin.problem
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
        """Those of the margin."""
        return self._margin.certificate_terms(weights, coef, dual)

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and coefficients at weights (m,)."""
        problem = self._problem
        tau, kernel_weights = self._margin.split(weights)
        kernel = self._work = self._bank.combine(kernel_weights, out=self._work)
        kernel[np.diag_indices(len(kernel))] += tau
        states, coef = [], np.zeros_like(problem.signs)
        for c in range(problem.signs.shape[1]):
            rows, y = problem.column(c)
            part = kernel if isinstance(rows, slice) else kernel[np.ix_(rows, rows)]
            state = _machine(part, y, problem.bound, self._last[c])
            if state is None:  # nor did the polish of libsvm's answer help
                return self._margin.evaluate(weights, hessian=hessian)
            self._last[c] = state.coef
            states.append(state)
            coef[rows, c] = state.coef
        found = self._evaluation(weights, coef, states, hessian)
        count = sum(state.n_factorizations for state in states)
        return replace(found, n_factorizations=count)

    def _evaluation(
        self, weights: np.ndarray, coef: np.ndarray, states: list[Any], hessian: bool
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


@dataclass
class _Polished:
    """A machine with its free rows and their factor."""

    coef: np.ndarray
    free: np.ndarray
    factor: np.ndarray | None
    gap: float
    n_factorizations: int

    def curvature(self, products: np.ndarray) -> np.ndarray:
        """``2 b'G_i R G_j b`` on the free rows, (m, m), from products (m, n)."""
        m = len(products)
        if self.factor is None:
            return np.zeros((m, m))
        block = np.column_stack([products[:, self.free].T, np.ones(len(self.free))])
        half = linalg.solve_triangular(self.factor, block, lower=True)
        gram = half.T @ half
        return 2.0 * (gram[:m, :m] - np.outer(gram[:m, m], gram[m, :m]) / gram[m, m])


def _machine(
    kernel: np.ndarray, y: np.ndarray, bound: float, last: np.ndarray | None
) -> _Polished | None:
    """The machine of one column, from the last active set or from libsvm."""
    if last is not None:
        state = _polish(kernel, y, bound, last)
        if state.gap <= INNER_GAP:
            return state
    scale = float(np.mean(np.diagonal(kernel)))
    box = bound if np.isfinite(bound) else NO_BOX / (scale or 1.0)
    svc = SVC(C=box, kernel="precomputed", tol=SVC_TOLERANCE)
    svc.set_params(max_iter=MAX_SVC_ITERATIONS)
    coef = np.zeros(len(y))
    with warnings.catch_warnings():  # how good the answer is will be measured
        warnings.simplefilter("ignore", ConvergenceWarning)
        svc.fit(kernel, y)
    coef[svc.support_] = svc.dual_coef_[0]
    state = _polish(kernel, y, bound, coef)
    return state if state.gap <= INNER_GAP else None


def _polish(
    kernel: np.ndarray, y: np.ndarray, bound: float, coef: np.ndarray
) -> _Polished:
    """Solve on the free rows and correct the active set until nothing is violated."""
    a = np.clip(coef * y, 0.0, bound)
    room = 1e-9 * (bound if np.isfinite(bound) else float(np.max(a)))
    best = _Polished(coef, np.arange(0), None, np.inf, 0)
    free = (a > room) & (a < bound - room)
    upper = a >= bound - room
    for rounds in range(1, MAX_ROUNDS + 1):
        inside = np.flatnonzero(free)
        fixed = np.flatnonzero(upper & ~free)
        beta = np.zeros(len(y))
        beta[fixed] = bound * y[fixed]
        answer = _solve_free(kernel, y, beta, inside, fixed)
        if answer is None:
            break
        beta[inside], b, factor = answer
        a = beta * y
        low, high = inside[a[inside] < 0.0], inside[a[inside] > bound]
        if len(low) or len(high):
            free[low] = free[high] = False
            upper[low], upper[high] = False, True
            continue
        used = np.append(inside, fixed)
        f = kernel[:, used] @ beta[used]
        feasible = balanced(beta[:, None], y[:, None], bound)[:, 0]
        top = primal_value(f, beta, y, bound, 0.0)
        gap = (top - 2.0 * float(np.sum(a)) + float(beta @ f)) / abs(top)
        if gap < best.gap:
            best = _Polished(feasible, inside, factor, gap, rounds)
        slack = y * (f + b) - 1.0
        wrong = ~free & np.where(upper, slack > 1e-10, slack < -1e-10)
        if gap <= INNER_GAP or not np.any(wrong):
            break
        free |= wrong
    return best


def _solve_free(
    kernel: np.ndarray,
    y: np.ndarray,
    beta: np.ndarray,
    inside: np.ndarray,
    fixed: np.ndarray,
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Coefficients of the free rows and the intercept, with the factor behind them."""
    if not len(inside):
        return None
    matrix = kernel[np.ix_(inside, inside)]
    size = float(np.mean(np.diagonal(matrix))) or 1.0
    matrix[np.diag_indices(len(inside))] += JITTER * size * len(inside)
    try:
        factor = linalg.cholesky(matrix, lower=True, overwrite_a=True)
    except linalg.LinAlgError:
        return None
    right = y[inside] - kernel[np.ix_(inside, fixed)] @ beta[fixed]
    both = linalg.cho_solve(
        (factor, True), np.column_stack([right, np.ones(len(inside))])
    )
    total = -float(np.sum(beta[fixed]))
    b = (float(np.sum(both[:, 0])) - total) / float(np.sum(both[:, 1]))
    return both[:, 0] - b * both[:, 1], b, factor

"""Support vector machines with one kernel: the inner problem of the joint criteria."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from kernelweave._array import (
    FactorizationError,
    robust_cholesky,
    solve_factored,
    solve_triangular,
)
from kernelweave._tolerances import NULL_EIGENVALUE
from kernelweave.inner.low_rank_svm import solve_low_rank_svm
from kernelweave.inner.margin_bounds import balanced, best_intercept, primal_value

__all__ = ["Machine", "hinge", "solve_machine", "solve_svm"]

#: Tolerances requested from LIBSVM, in units of the margin, in this order.
VIOLATIONS = (1e-3, 1e-5)
#: Maximum number of LIBSVM steps, each of which changes two variables, and of
#: corrections of its active set, per machine.
MAX_STEPS, MAX_ROUNDS = 100_000, 30
#: C passed to LIBSVM if there is no box, for a kernel of mean diagonal one.
NO_BOX = 1e4
#: A variable is at its bound within this share of the box, or of the largest variable.
AT_BOUND = 1e-9
#: Violation allowed in the condition of a variable at its bound, in margins.
VIOLATED = 1e-10
#: Ridge per row on the kernel between free rows, relative to its mean diagonal, and the
#: number of solves that undo it.
RIDGE, REFINEMENTS = 1e-13, 3


def solve_svm(
    kernel: np.ndarray, signs: np.ndarray, bound: float, tol: float
) -> np.ndarray:
    """``max sum(a) - a' (K o yy') a / 2`` over ``0 <= a <= C``, ``y'a = 0``: ``a y``.

    :func:`solve_machine` on each column of signs, followed by an interior point method
    where the gap is too large. The result is not guaranteed: it has to be certified.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        K.
    signs : ndarray of shape (n, m)
        The y of each problem.
    bound : float
        C.
    tol : float
        Relative gap to reach.

    Returns
    -------
    coef : ndarray of shape (n, m)
        Feasible to the last digit.
    """
    machines = [solve_machine(kernel, y, bound, tol) for y in signs.T]
    coef = np.column_stack([machine.coef for machine in machines])
    late = np.flatnonzero([machine.gap > tol for machine in machines])
    if len(late):  # low rank and large C: easy for the interior point method
        others = solve_low_rank_svm(_factor(kernel), signs[:, late], bound, tol)
        for j, other in zip(late, others.T, strict=True):
            if (
                _relative_gap(kernel @ other, other, signs[:, j], bound)
                < machines[j].gap
            ):
                coef[:, j] = other
    return coef


def _factor(kernel: np.ndarray) -> np.ndarray:
    """F (n, r) with ``F F' = K`` up to rounding."""
    values, vectors = linalg.eigh(kernel)
    keep = values > NULL_EIGENVALUE * values[-1]
    return vectors[:, keep] * np.sqrt(values[keep])


@dataclass(frozen=True)
class Machine:
    """A solved machine, with the factor that its derivatives need.

    Attributes
    ----------
    coef : ndarray of shape (n,)
        ``a y``, feasible to the last digit.
    gap : float
        Primal minus dual value, relative to the primal.
    free : ndarray of int
        Rows strictly inside the box.
    factor : ndarray or None
        Cholesky factor of the kernel between those rows.
    n_factorizations : int
        Number of factorisations.
    """

    coef: np.ndarray
    gap: float
    free: np.ndarray
    factor: np.ndarray | None
    n_factorizations: int

    def curvature(self, products: np.ndarray) -> np.ndarray:
        """``2 b'G_i R G_j b`` on the free rows, (m, m), from products (m, n)."""
        m = len(products)
        if self.factor is None:
            return np.zeros((m, m))
        block = np.column_stack([products[:, self.free].T, np.ones(len(self.free))])
        half = solve_triangular(self.factor, block)
        gram = half.T @ half
        return 2.0 * (gram[:m, :m] - np.outer(gram[:m, m], gram[m, :m]) / gram[m, m])


def solve_machine(
    kernel: np.ndarray,
    y: np.ndarray,
    bound: float,
    tol: float,
    start: np.ndarray | None = None,
) -> Machine:
    """One machine, with or without a box, polished until its gap is small enough.

    LIBSVM identifies the variables at a bound long before the others are accurate; the
    latter then follow from a linear system. If that is not enough, LIBSVM is run again
    with a smaller tolerance.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        K.
    y : ndarray of shape (n,)
        +1 and -1.
    bound : float
        C, or infinity.
    tol : float
        Relative gap to reach.
    start : ndarray of shape (n,), optional
        ``a y`` from a similar machine, whose active set is tried first.

    Returns
    -------
    Machine
        The best one found; its gap says how good that is.
    """
    best = None if start is None else _polish(kernel, y, bound, start, tol)
    scale = float(np.mean(np.diagonal(kernel))) or 1.0
    box = bound if np.isfinite(bound) else NO_BOX / scale
    for violation in VIOLATIONS:
        if best is not None and best.gap <= tol:
            break
        svc = SVC(C=box, kernel="precomputed", tol=violation, max_iter=MAX_STEPS)
        with warnings.catch_warnings():  # the accuracy is measured below
            warnings.simplefilter("ignore", ConvergenceWarning)
            svc.fit(kernel, y)
        coef = np.zeros(len(y))
        coef[svc.support_] = svc.dual_coef_[0]
        machine = _polish(kernel, y, bound, coef, tol)
        if best is None or machine.gap < best.gap:
            best = machine
    assert best is not None
    return best


def _polish(
    kernel: np.ndarray, y: np.ndarray, bound: float, coef: np.ndarray, tol: float
) -> Machine:
    """Solve on the free rows and correct the active set until nothing is violated."""
    coef = balanced(coef[:, None], y[:, None], bound)[:, 0]
    gap = _relative_gap(kernel @ coef, coef, y, bound)
    best = Machine(coef, gap, np.arange(0), None, 0)
    a = coef * y
    room = AT_BOUND * (bound if np.isfinite(bound) else float(np.max(a)))
    free = (a > room) & (a < bound - room)
    upper = a >= bound - room
    for rounds in range(1, MAX_ROUNDS + 1):
        inside, fixed = np.flatnonzero(free), np.flatnonzero(upper & ~free)
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
        gap = _relative_gap(f, beta, y, bound)
        if gap < best.gap or gap <= tol:
            feasible = balanced(beta[:, None], y[:, None], bound)[:, 0]
            best = Machine(feasible, gap, inside, factor, rounds)
        slack = y * (f + b) - 1.0
        wrong = ~free & np.where(upper, slack > VIOLATED, slack < -VIOLATED)
        if gap <= tol or not np.any(wrong):
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
    """Coefficients of the free rows and the intercept, with the factor behind them.

    ``K_ff b_f + b = y_f - K_fb b_b`` and ``1'b = 0``.
    """
    if not len(inside):
        return None
    matrix = kernel[np.ix_(inside, inside)]
    size = float(np.mean(np.diagonal(matrix))) or 1.0
    try:
        factor, _ = robust_cholesky(matrix, [RIDGE], size * len(inside))
    except FactorizationError:
        return None
    right = y[inside] - kernel[np.ix_(inside, fixed)] @ beta[fixed]
    ones = solve_factored(factor, np.ones((len(inside), 1)))[:, 0]
    total, free = -float(np.sum(beta[fixed])), np.zeros(len(inside))
    for _ in range(REFINEMENTS):  # iterative refinement removes the ridge
        step = solve_factored(factor, (right - matrix @ free)[:, None])[:, 0]
        b = float(np.sum(step) + np.sum(free) - total) / float(np.sum(ones))
        free += step - b * ones
    return free, b, factor


def _relative_gap(
    f: np.ndarray, coef: np.ndarray, y: np.ndarray, bound: float
) -> float:
    """Primal minus dual value of ``f = K coef``, relative to the primal; all (n,)."""
    primal = primal_value(f, coef, y, bound, 0.0)
    if np.isinf(primal):
        return np.inf
    return (primal - 2.0 * float(coef @ y) + float(coef @ f)) / abs(primal)


def hinge(values: np.ndarray, signs: np.ndarray) -> tuple[float, np.ndarray]:
    """The sum of ``max(0, 1 - y (f + b))`` with the best intercepts b, and b (m,).

    Parameters
    ----------
    values, signs : ndarray of shape (n, m)
        f without intercept, and y.
    """
    intercepts = np.array(
        [best_intercept(f, y, "l1") for f, y in zip(values.T, signs.T, strict=True)]
    )
    slack = 1.0 - signs * (values + intercepts)
    return float(np.sum(np.maximum(slack, 0.0))), intercepts

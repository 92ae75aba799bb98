"""Free kernels of Lanckriet et al. (2002): the best of all kernel matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kernelweave._array import Array, FactorizationError, psd_factor
from kernelweave.fits.targets import checked_signs, require_both_signs
from kernelweave.protocols import require_positive
from kernelweave.solvers.reference import import_cvxpy, margin_lmi, run_solver

#: Rows beyond which a program with the n^2 entries of a kernel is not attempted.
MOST_ROWS = 100


@dataclass(frozen=True)
class FreeKernel:
    """The best of all kernel matrices, and its value.

    Attributes
    ----------
    kernel : ndarray of shape (n, n)
        Positive semidefinite.
    value : float
        The alignment, or the squared inverse margin.
    optimum : float
        The optimal value in closed form, which the cone solver should have found.
    status : str
        The status of the cone solver.
    """

    kernel: np.ndarray
    value: float
    optimum: float
    status: str


def free_alignment(labels: Array) -> FreeKernel:
    """``max <K, yy'> / n`` over K PSD with ``<K, K> <= 1``.

    Lanckriet et al. (2002), Eq. 5, with the norm as a matrix inequality: A is a
    variable, ``[[A, K'], [K, I]]`` is PSD and ``trace(A) <= 1``. The answer is
    ``yy'/n``, with alignment one: a free kernel says nothing about unlabelled rows,
    which is why the papers restrict it to sums of given kernels.

    Parameters
    ----------
    labels : array of shape (n,)
        +1 and -1.

    Returns
    -------
    FreeKernel
    """
    y = _checked(labels)
    n = len(y)
    cp = import_cvxpy("free_alignment")
    kernel, square = cp.Variable((n, n), PSD=True), cp.Variable((n, n), symmetric=True)
    constraints = [
        cp.trace(square) <= 1,
        cp.bmat([[square, kernel.T], [kernel, np.eye(n)]]) >> 0,
    ]
    objective = cp.Maximize(cp.sum(cp.multiply(np.outer(y, y) / n, kernel)))
    problem = cp.Problem(objective, constraints)
    found = _solved(problem, kernel)
    size = float(np.linalg.norm(found))
    value = float(y @ found @ y) / (n * size) if size > 0 else 0.0
    return FreeKernel(found, value, 1.0, problem.status)


def free_margin(
    labels: Array,
    trace: float | None = None,
    margin: Literal["hard", "l1", "l2"] = "hard",
    C: float = 1.0,
) -> FreeKernel:
    """``min t`` over K PSD with ``trace(K) = c``, t the squared inverse margin.

    Lanckriet et al. (2002), Eq. 8, and its soft-margin forms. At the optimum all rows
    of a class coincide, and the two points lie on a line through the origin, at a
    distance d with ``d^2 = n c / (n+ n-)``. No kernel of trace c moves the class means
    further apart, so with a equal to s over the size of each class the value is::

        max_s  4 s - s^2 (d^2 + tau n / (n+ n-)),     0 <= s <= C min(n+, n-)

    and ``4 n+ n- / (n c)`` for the hard margin.

    Parameters
    ----------
    labels : array of shape (n,)
        +1 and -1, both of them.
    trace : float, optional
        c; by default n.
    margin : {"hard", "l1", "l2"}, default="hard"
        Whether slacks are allowed, and how they are penalised; see
        :class:`~kernelweave.criteria.Margin`.
    C : float, default=1.0
        The penalty on slacks.

    Returns
    -------
    FreeKernel
    """
    y = _checked(labels)
    require_both_signs(y, "labels")
    if margin not in ("hard", "l1", "l2"):
        raise ValueError(f"margin must be 'hard', 'l1' or 'l2', got {margin!r}")
    n = len(y)
    total = float(n) if trace is None else trace
    require_positive(trace=total, C=C)
    cp = import_cvxpy("free_margin")
    kernel = cp.Variable((n, n), PSD=True)
    bound = float(C) if margin == "l1" else np.inf
    tau = 1.0 / C if margin == "l2" else 0.0
    t, cones = margin_lmi(cp, kernel, y, bound, tau, np.ones(n))
    problem = cp.Problem(cp.Minimize(t), [cp.trace(kernel) == total, *cones])
    found = _solved(problem, kernel)
    plus, minus = int(np.sum(y > 0)), int(np.sum(y < 0))
    square = (total + tau) * n / (plus * minus)
    s = min(2.0 / square, bound * min(plus, minus))
    exact = 4.0 * s - s**2 * square
    return FreeKernel(found, float(t.value), exact, problem.status)


def _checked(labels: Array) -> np.ndarray:
    """Labels (n,) as float64."""
    y = checked_signs(labels, len(labels), "labels", ndim=1)
    if len(y) > MOST_ROWS:
        raise ValueError(
            f"a free kernel over {len(y)} rows has {len(y) * (len(y) + 1) // 2} "
            f"unknowns in a semidefinite program; at most {MOST_ROWS} rows are allowed"
        )
    return y


def _solved(problem: Any, kernel: Any) -> np.ndarray:
    """The kernel found by the cone solver, with negative eigenvalues removed."""
    run_solver(problem)
    if kernel.value is None:
        raise FactorizationError(f"the cone solver found no kernel: {problem.status}")
    factor = psd_factor(0.5 * (kernel.value + kernel.value.T))
    return factor @ factor.T

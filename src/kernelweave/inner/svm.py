"""Support vector machines of one kernel: the inner problem of the joint criteria."""

from __future__ import annotations

import warnings

import numpy as np
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from kernelweave.inner.low_rank_svm import solve_low_rank_svm
from kernelweave.inner.margin_bounds import balanced, best_intercept

__all__ = ["hinge", "solve_svm"]

#: What LIBSVM is asked for, in units of the margin, one after the other.
VIOLATIONS = (1e-3, 1e-5)
#: Steps of LIBSVM: one changes two variables, so that many are normal.
MAX_STEPS = 1_000_000
#: Eigenvalue of a kernel, relative to the largest, that is rounding.
RANK = 1e-13
#: Ridge on the kernel between free support vectors, relative, and steps that undo it.
POLISH = 1e-12
REFINEMENTS = 3


def solve_svm(
    kernel: np.ndarray, signs: np.ndarray, bound: float, tol: float
) -> np.ndarray:
    """``max sum(a) - a' (K o yy') a / 2`` over ``0 <= a <= C``, ``y'a = 0``: ``a y``.

    LIBSVM on each column of signs, its free variables solved for exactly; where that
    leaves too large a gap, an interior point. How good the result is, is for a
    certificate to say.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        K.
    signs : ndarray of shape (n, m)
        y of each problem.
    bound : float
        C.
    tol : float
        Relative gap to reach.

    Returns
    -------
    coef : ndarray of shape (n, m)
        Feasible to the last digit.
    """
    coef = np.column_stack([_libsvm(kernel, y, bound, tol) for y in signs.T])
    late = np.array(
        [
            _relative_gap(kernel, a, y, bound) > tol
            for a, y in zip(coef.T, signs.T, strict=True)
        ]
    )
    if np.any(late):  # kernels of low rank, large C: the interior point has no trouble
        features = _factor(kernel)
        others = solve_low_rank_svm(features, signs[:, late], bound, tol)
        for j, other in zip(np.flatnonzero(late), others.T, strict=True):
            pair = (coef[:, j], other)
            gaps = [_relative_gap(kernel, a, signs[:, j], bound) for a in pair]
            coef[:, j] = pair[int(np.argmin(gaps))]
    return coef


def _factor(kernel: np.ndarray) -> np.ndarray:
    """F (n, r) with ``F F' = K`` but for what rounding makes of it."""
    values, vectors = linalg.eigh(kernel)
    keep = values > RANK * values[-1]
    return vectors[:, keep] * np.sqrt(values[keep])


def _libsvm(kernel: np.ndarray, y: np.ndarray, bound: float, tol: float) -> np.ndarray:
    """One machine, asked for more until its gap is small enough, or enough is tried."""
    best, smallest = np.zeros(len(y)), np.inf
    for violation in VIOLATIONS:
        machine = SVC(C=bound, kernel="precomputed", tol=violation, max_iter=MAX_STEPS)
        with warnings.catch_warnings():
            # A machine that stops early has a gap, and that is measured.
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(kernel, y)
        coef = np.zeros(len(y))
        coef[machine.support_] = machine.dual_coef_[0]
        for some in (coef, _polished(kernel, coef, y, bound)):
            some = balanced(some[:, None], y[:, None], bound)[:, 0]
            gap = _relative_gap(kernel, some, y, bound)
            if gap < smallest:
                best, smallest = some, gap
        if smallest <= tol:
            break
    return best


def _polished(
    kernel: np.ndarray, coef: np.ndarray, y: np.ndarray, bound: float
) -> np.ndarray:
    """Solve for the free variables exactly, given which of them are at a bound.

    ``K_ff a_f + b = y_f - K_fb a_b`` and ``1'a = 0``. LIBSVM knows the bounds long
    before it knows the digits.
    """
    size = np.abs(coef)
    free = np.flatnonzero((size > 0.0) & (size < bound))
    if len(free) < 2:
        return coef
    part = kernel[np.ix_(free, free)]
    ridge = POLISH * float(np.max(np.diagonal(part)))
    root = part.copy()
    root[np.diag_indices(len(free))] += ridge
    try:
        factor = linalg.cho_factor(root, lower=True, check_finite=False)
    except linalg.LinAlgError:
        return coef
    ones = linalg.cho_solve(factor, np.ones(len(free)))
    polished = coef.copy()
    for _ in range(REFINEMENTS):  # the ridge is taken back step by step
        residual = y[free] - kernel[free] @ polished
        step = linalg.cho_solve(factor, residual)
        b = (np.sum(step) + np.sum(polished)) / np.sum(ones)
        polished[free] += step - b * ones
    return polished


def _relative_gap(
    kernel: np.ndarray, coef: np.ndarray, y: np.ndarray, bound: float
) -> float:
    """Primal minus dual value of one machine, relative to the primal."""
    f = kernel @ coef
    square = float(coef @ f)
    primal = 0.5 * square + bound * hinge(f[:, None], y[:, None])[0]
    return (primal - float(coef @ y) + 0.5 * square) / primal


def hinge(values: np.ndarray, signs: np.ndarray) -> tuple[float, np.ndarray]:
    """The sum of ``max(0, 1 - y (f + b))`` with the best intercepts, and those (m,).

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

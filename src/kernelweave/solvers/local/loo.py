"""Weights and alpha learned from the closed-form leave-one-out error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from kernelweave._array import (
    DOUBLE_EPS,
    Array,
    add_to_diagonal,
    as_float,
    cholesky,
    eps,
    inner_products,
    lower_inverse,
    namespace,
    squared_norm,
)
from kernelweave._tolerances import LOCAL_MINIMUM
from kernelweave.fits.ridge import LooPath
from kernelweave.protocols import Bank
from kernelweave.solvers.loop import Callback, Trace
from kernelweave.solvers.solve import LocalSolution

#: Alphas tried at the start of :func:`learn`, in units of the mean eigenvalue.
COARSE_GRID = np.logspace(-4, 2, 13)
#: Bounds of log theta: a weight is zero at the lower, alpha < 1e-6 at the upper one.
LOG_LOWEST, LOG_HIGHEST = -25.0, 14.0
#: The largest theta, in units of machine precision times n p: rounding of the kernels
#: must stay far below the identity.
ROUNDED_IDENTITY = 0.01
#: The search goes on to this share of the gradient that a local minimum may leave, and
#: in float32 it may leave this many times more.
SEARCHED, LEFT_IN_SINGLE = 0.01, 10
#: An error below this share of the target's mean square is practically zero.
ZERO_ERROR = 1e-2
#: Relative decrease of the error in float32 that is not worth a step: a sum of many
#: squares is more accurate than each of them.
FLAT = 1e-10


class LeaveOneOut:
    """``LOO(theta) = mean_i norm(e_i)^2 / k`` with ``e_i = B_i / q_i``.

    ``M = I + sum_j theta_j G_j``, ``B = M^-1 H`` and ``q_i = (M^-1)_ii - 1/n``, where
    the last term accounts for recentring without sample i. The weights theta > 0 carry
    the scale, so the regularisation ``alpha = 1 / sum theta`` is learned with them.
    With ``E = 2 e / (q n k)`` and ``d_i = 2 norm(e_i)^2 / (q_i n k)``::

        dLOO/dtheta_j = < G_j, M^-1 diag(d) M^-1 - sym(M^-1 E B') >

    which takes two n^3 products besides the inverse, and one pass over the kernels. The
    problem is smooth but not convex: a local minimum need not be global.

    Memory in addition to the bank: at most three n x n arrays at a time (the factor of
    M, its inverse and a copy of that; later M^-1 and one product).

    Parameters
    ----------
    bank : Bank
        Centred kernels of trace n.
    target : array of shape (n, k)
        Columns that sum to zero.
    """

    def __init__(self, bank: Bank, target: Array) -> None:
        self.bank = bank
        self.target = as_float(target, bank.like.dtype)

    def value_and_gradient(self, log_theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The error and its gradient (p,) in ``log theta`` (p,)."""
        theta = np.exp(np.asarray(log_theta, dtype=np.float64))
        n, shift = self.bank.n_samples, float(np.sum(theta))
        inverse = self._inverse(theta, shift)
        xp = namespace(inverse)
        precision = xp.linalg.diagonal(inverse) - 1.0 / (n * (1.0 + shift))
        coef = inverse @ self.target
        residual = coef / precision[:, None]
        entries = n * coef.shape[1]
        squares = xp.sum(residual * residual, axis=1)
        pull = inverse @ (residual * (2.0 / entries / precision)[:, None])
        # M^-1 is no longer needed: overwrite it with M^-1 diag(d)^(1/2).
        inverse *= xp.sqrt(2.0 / entries * squares / precision)[None, :]
        slope = inverse @ inverse.T
        del inverse
        gradient = -inner_products(self.bank.apply(coef), pull)
        for rows, block in self.bank.row_blocks():
            gradient += inner_products(block, slope[rows, :])
        return float(xp.sum(squares)) / entries, gradient * theta

    def _inverse(self, theta: np.ndarray, shift: float) -> Array:
        """``(M + shift 11'/n)^-1``, (n, n).

        The shift changes only the eigenvalue of the vector of ones. Without it, ``1/n``
        would cancel most digits of ``q_i`` when theta is large.
        """
        matrix = self.bank.combine(theta)
        matrix += shift / self.bank.n_samples
        add_to_diagonal(matrix, 1.0)
        factor = cholesky(matrix, overwrite=True)
        del matrix
        half = lower_inverse(factor)
        del factor
        return half.T @ half


@dataclass(frozen=True, kw_only=True)
class LooSolution(LocalSolution):
    """The weights ``theta / sum theta`` with ``alpha = 1 / sum theta``."""

    alpha: float


def learn(
    bank: Bank,
    target: Array,
    max_iter: int = 100,
    callback: Callback | None = None,
) -> LooSolution:
    """Minimise the leave-one-out error over weights and regularisation jointly.

    L-BFGS-B in ``log theta`` of :class:`LeaveOneOut`, from uniform weights with their
    best alpha. The problem is not convex: the result is a stationary point near the
    start, with no bound on the global optimum.

    Parameters
    ----------
    bank : Bank
        Centred kernels of trace n.
    target : array of shape (n, k)
        Columns that sum to zero.
    max_iter : int, default=100
        Maximum number of steps.
    callback : callable, optional
        Called with a :class:`TraceRow` after each step; a true result stops the search.

    Returns
    -------
    LooSolution
        The value is the mean squared leave-one-out error; the stationarity is the
        largest entry of the projected gradient in ``log theta``, relative to the value
        (or to a hundredth of the target's mean square, if that is larger).
    """
    objective, trace = LeaveOneOut(bank, target), Trace(callback)
    precision = eps(bank.like)
    highest = np.log(ROUNDED_IDENTITY / (precision * bank.n_samples * bank.n_kernels))
    bounds = (LOG_LOWEST, float(np.clip(highest, 0.0, LOG_HIGHEST)))
    single = precision > DOUBLE_EPS
    tol = LEFT_IN_SINGLE * LOCAL_MINIMUM if single else LOCAL_MINIMUM
    flat = FLAT if single else precision
    first = np.clip(np.log(_uniform_start(bank, target)), *bounds)
    unit = objective.value_and_gradient(first)[0] or 1.0

    def relative(log_theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective.value_and_gradient(log_theta)
        return value / unit, gradient / unit

    found = minimize(
        relative,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[bounds] * bank.n_kernels,
        callback=trace.follow(unit),
        options={"maxiter": max_iter, "gtol": SEARCHED * LOCAL_MINIMUM, "ftol": flat},
    )
    mean_square = squared_norm(objective.target) / math.prod(target.shape)
    size = max(unit * found.fun, ZERO_ERROR * mean_square)
    steepest = unit * _projected_gradient(found.x, found.jac, bounds)
    stationarity = steepest / size if size > 0 else 0.0
    converged = stationarity <= tol
    status = _reason(trace.stopped, converged, found.nit >= max_iter, max_iter)
    if single and np.any(found.x >= bounds[1]):
        status += "; float32 allows no smaller alpha, so float64 may lead elsewhere"
    elif single and stationarity > SEARCHED * LOCAL_MINIMUM:
        status += "; rounding in float32 ends the search here"
    theta = np.where(found.x <= LOG_LOWEST, 0.0, np.exp(found.x))
    return LooSolution(
        weights=theta / np.sum(theta),
        alpha=float(1.0 / np.sum(theta)),
        value=unit * found.fun,
        stationarity=stationarity,
        converged=converged,
        status=status.format(
            f"the projected gradient is {stationarity:.1e} of the value"
        ),
        n_iter=int(found.nit),
        n_factorizations=int(found.nfev),
        trace=tuple(trace.rows),
    )


def _reason(stopped: bool, converged: bool, at_limit: bool, max_iter: int) -> str:
    """Why the search ended, with a place for the size of the gradient."""
    if stopped:
        return "stopped by the callback: {}"
    if converged:
        return (
            "stationary: {}; the problem is not convex, so another start may lead "
            "elsewhere"
        )
    if at_limit:
        return f"stopped at max_iter={max_iter}: {{}}"
    return "stopped: no step decreases the error further; {}"


def _projected_gradient(
    x: np.ndarray, gradient: np.ndarray, bounds: tuple[float, float]
) -> float:
    """The largest entry (p,) that does not point out of the box."""
    low, high = bounds
    blocked = ((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0))
    return float(np.max(np.where(blocked, 0.0, np.abs(gradient))))


def _uniform_start(bank: Bank, target: Array) -> np.ndarray:
    uniform = np.full(bank.n_kernels, 1.0 / bank.n_kernels)
    path = LooPath(bank.combine(uniform), target)
    grid = np.maximum(path.mean_eigenvalue * COARSE_GRID, path.smallest_alpha)
    return uniform / path.best_of(grid)

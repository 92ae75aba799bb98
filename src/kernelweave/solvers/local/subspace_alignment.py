"""Subspaces by kernel-target alignment: the baseline SKFE, by local search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from kernelweave._array import (
    Array,
    dot,
    from_numpy,
    solve_triangular,
    squared_norm,
    to_numpy,
)
from kernelweave.fits.subspace import RegularizedKernel, Subspace, normalized
from kernelweave.solvers.solution import Callback, Trace

__all__ = ["AlignmentResult", "align_subspace"]


@dataclass(frozen=True)
class AlignmentResult:
    """A stationary point of the alignment, found from the HSIC subspace.

    Attributes
    ----------
    subspace : Subspace
        The directions.
    value : float
        The alignment reached, between 0 and 1.
    start : float
        The alignment of the HSIC subspace.
    stationarity : float
        Norm of the gradient relative to value and variables, both of size one.
    converged : bool
        Whether that reached the tolerance.
    n_iter : int
        Iterations taken.
    """

    subspace: Subspace
    value: float
    start: float
    stationarity: float
    converged: bool
    n_iter: int


class _Alignment:
    """``J(U) = <K, L L'> / (norm(K) norm(L L'))``, ``K = F (U'U)^-1 F'``.

    ``F = G W`` with ``W = R^-T U`` and ``R R' = G + alpha I``, so that the subspace
    kernel is that of Eq. 6. In these variables the Hessian is much better conditioned
    than in W. With ``N = U'U`` and ``X = (L L'F / <K, LL'> - F N^-1 F'F / norm(K)^2)
    N^-1`` the gradient is ``2 J (R^-1 G X - U N^-1 F' X)``.
    """

    def __init__(self, kernel: RegularizedKernel, target: Array) -> None:
        self.kernel, self.target = kernel, target
        self.size = np.sqrt(squared_norm(target.T @ target))

    def evaluate(self, u: Array) -> tuple[float, Array]:
        """J and its gradient (n, l); O(n^2 l)."""
        factor, gram = self.kernel.factor, self.kernel.gram
        features = gram @ solve_triangular(factor, u, transpose=True)
        overlap = self.target.T @ features  # (k, l)
        inverse = from_numpy(np.linalg.inv(to_numpy(u.T @ u)), u)
        moments = inverse @ (features.T @ features)  # N^-1 F'F
        inner = dot(overlap @ inverse, overlap)
        norm2 = dot(moments, moments.T)
        value = inner / (np.sqrt(norm2) * self.size)
        x = self.target @ (overlap / inner) - features @ (moments / norm2)
        x = x @ inverse
        slope = solve_triangular(factor, gram @ x) - u @ (inverse @ (features.T @ x))
        return float(value), 2.0 * value * slope


def align_subspace(
    kernel: RegularizedKernel,
    target: Array,
    n_components: int | None = None,
    max_iter: int = 200,
    tol: float = 1e-5,
    callback: Callback | None = None,
) -> AlignmentResult:
    """Maximise the alignment of the subspace kernel of Eq. 6 with the label kernel.

    The subspace of Wu and Farquhar (2007), with which Chen et al. (2008) compare, from
    the HSIC subspace of the same dimension, by L-BFGS. The problem is not convex: what
    is found is a stationary point, and nothing bounds how far the optimum is.

    Parameters
    ----------
    kernel : RegularizedKernel
        The kernel.
    target : array of shape (n, k)
        Centred factor of the label kernel.
    n_components : int, optional
        Dimension at most; by default, and at most, that of the HSIC subspace.
    max_iter : int, default=200
        Iterations allowed.
    tol : float, default=1e-5
        Stationarity to reach.
    callback : callable, optional
        Called with a :class:`TraceRow` after each iteration; a true result stops.

    Returns
    -------
    AlignmentResult
        The subspace, with how stationary it is.
    """
    problem = _Alignment(kernel, target)
    start = kernel.subspace(target, n_components).coef
    # U = R'W, which is R^-1 (G + alpha I) W: no use of the upper triangle of R.
    u = solve_triangular(kernel.factor, kernel.gram @ start + kernel.alpha * start)
    first, _ = problem.evaluate(u)
    size, n_iter, trace = np.inf, 0, Trace(callback)
    while size > tol and n_iter < max_iter:
        found = _ascend(problem, u, max_iter - n_iter, tol, trace)
        n_iter += max(int(found.nit), 1)
        u = _orthonormal(from_numpy(found.x.reshape(u.shape), u))
        value, slope = problem.evaluate(u)
        size = np.sqrt(squared_norm(slope) * squared_norm(u)) / value
        if trace.stopped or found.nit == 0:
            break
    coef = solve_triangular(kernel.factor, u, transpose=True)
    subspace = normalized(kernel, coef, target)
    return AlignmentResult(
        subspace, float(value), float(first), float(size), bool(size <= tol), n_iter
    )


def _ascend(
    problem: _Alignment, u: Array, max_iter: int, tol: float, trace: Trace
) -> OptimizeResult:
    """L-BFGS from U (n, l) with orthonormal columns, where one tolerance fits all.

    Steps are normal to U, so that its norm grows and the gradient shrinks with it.
    """

    def negative(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = problem.evaluate(from_numpy(flat.reshape(u.shape), u))
        return -value, -to_numpy(slope).astype(np.float64).ravel()

    def report(intermediate_result: OptimizeResult) -> None:
        trace.add(-float(intermediate_result.fun))
        if trace.stopped:
            raise StopIteration

    value, _ = problem.evaluate(u)
    return minimize(
        negative,
        to_numpy(u).astype(np.float64).ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=report,
        options={
            "maxiter": max_iter,
            "gtol": 1e-2 * tol * value / (u.shape[1] * np.sqrt(u.shape[0])),
            "ftol": 1e-15,
            "maxcor": 20,
        },
    )


def _orthonormal(u: Array) -> Array:
    """The same columns' span with ``U'U = I``."""
    values, vectors = np.linalg.eigh(to_numpy(u.T @ u).astype(np.float64))
    return u @ from_numpy(vectors / np.sqrt(values), u)

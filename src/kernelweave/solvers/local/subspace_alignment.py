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
from kernelweave.solvers.certify import Callback, Trace

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
        Norm of the gradient times that of the variables, relative to the value.
    converged : bool
        Whether the stationarity reached the tolerance.
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

    The subspace of Wu and Farquhar (2007), the baseline of Chen et al. (2008), found by
    L-BFGS from the HSIC subspace of the same dimension. The problem is not convex: the
    result is a stationary point, with no bound on its distance from the optimum.

    Parameters
    ----------
    kernel : RegularizedKernel
        The kernel.
    target : array of shape (n, k)
        Centred factor of the label kernel.
    n_components : int, optional
        Maximum dimension; by default, and at most, that of the HSIC subspace.
    max_iter : int, default=200
        Maximum number of iterations.
    tol : float, default=1e-5
        Stationarity to reach.
    callback : callable, optional
        Called with a :class:`TraceRow` after each iteration; a true result stops the
        search.

    Returns
    -------
    AlignmentResult
        The subspace and its stationarity.
    """
    problem = _Alignment(kernel, target)
    start = kernel.subspace(target, n_components).coef
    # U = R'W = R^-1 (G + alpha I) W does not read the upper triangle of R.
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
    """L-BFGS from U (n, l) with orthonormal columns, which fixes the scale of ``tol``.

    Steps are normal to U, so its norm grows and the gradient shrinks accordingly.
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
    """A basis of the same column span with ``U'U = I``."""
    values, vectors = np.linalg.eigh(to_numpy(u.T @ u).astype(np.float64))
    return u @ from_numpy(vectors / np.sqrt(values), u)

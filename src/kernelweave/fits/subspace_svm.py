"""The joint problem for one kernel: a subspace kernel and the SVMs that use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelweave._array import Array, from_numpy, to_numpy
from kernelweave.fits.subspace import RegularizedKernel, Subspace
from kernelweave.inner.low_rank_svm import solve_low_rank_svm
from kernelweave.inner.svm import hinge, solve_svm

__all__ = ["JointPoint", "SubspaceSVM"]


@dataclass(frozen=True)
class JointPoint:
    """A subspace, the SVMs trained on its kernel, and their value.

    Attributes
    ----------
    subspace : Subspace
        W or Q, normalised.
    duals : ndarray of shape (n, m)
        A = Y a, one column per SVM.
    intercepts : ndarray of shape (m,)
        Intercept of each SVM.
    upper : float
        A primal value of the SVMs, and so an upper bound on the joint problem.
    """

    subspace: Subspace
    duals: np.ndarray
    intercepts: np.ndarray
    upper: float

    def coef(self) -> Array:
        """Coefficients (n, m): the SVMs' outputs are ``G(x) coef + intercepts``."""
        features = self.subspace.features
        return self.subspace.coef @ (features.T @ from_numpy(self.duals, features))


class SubspaceSVM:
    """``min_S max_A sum(a) - tr(A' K_S A) / 2`` over subspaces S of l dimensions.

    Chen et al. (2008), Eqs. 9 and 20: K_S is the subspace kernel of Eq. 6 or of
    Eq. 18, and A holds the dual variables of one SVM per class. For fixed A the best
    subspace is that of Theorem 3.1 or 4.1 with A in place of the label factor. If l is
    at least rank(A), it turns K_S into ::

        K = G (G + alpha I)^-1 G   (Eq. 6),      K = G (G + alpha I)^-1   (Eq. 18)

    and the SVMs on K are a saddle point: no iteration is needed. For fewer dimensions
    the value lies between::

        sum(a) - (sum of the l largest eigenvalues of A' K A) / 2        any feasible A
        the value of the SVMs on K_S                                     any S

    which need not meet, because the problem is not convex in S.

    Parameters
    ----------
    kernel : RegularizedKernel
        G and alpha.
    signs : ndarray of shape (n, m)
        +1 and -1, one column per SVM.
    C : float
        The bound on the dual variables.
    uncorrelated : bool
        Eq. 20 in place of Eq. 9.
    tol : float, default=1e-9
        Relative gap of the SVMs.
    """

    def __init__(
        self,
        kernel: RegularizedKernel,
        signs: np.ndarray,
        C: float,
        uncorrelated: bool,
        tol: float = 1e-9,
    ) -> None:
        self.kernel, self.signs, self.C = kernel, signs, float(C)
        self.uncorrelated, self.tol = uncorrelated, tol

    def closed_form_duals(self) -> np.ndarray:
        """A at the saddle point for as many dimensions as there are SVMs."""
        gram = self.kernel.gram
        matrix = self.kernel.solve(gram)
        if not self.uncorrelated:
            matrix = gram @ matrix
        host = to_numpy(matrix).astype(np.float64)
        return solve_svm((host + host.T) / 2, self.signs, self.C, self.tol)

    def subspace(self, duals: np.ndarray, n_components: int | None = None) -> Subspace:
        """The best subspace for fixed A (n, m)."""
        target = from_numpy(duals, self.kernel.gram)
        return self.kernel.subspace(target, n_components, self.uncorrelated)

    def lower_bound(self, duals: np.ndarray, n_components: int | None) -> float:
        """The bound of the class docstring for feasible A (n, m)."""
        bounds = self.bounds_along(duals, np.zeros_like(duals), [0.0], n_components)
        return float(bounds[0])

    def bounds_along(
        self,
        duals: np.ndarray,
        step: np.ndarray,
        lengths: Sequence[float] | np.ndarray,
        n_components: int | None,
    ) -> np.ndarray:
        """The lower bound at ``A + t step`` for each t, from one pass over the kernel.

        ``A' K A`` is quadratic in t, so each t costs only an m x m eigenproblem.
        """
        m = duals.shape[1]
        both = np.column_stack([duals, step])
        columns = from_numpy(both, self.kernel.gram)
        products = self.kernel.gram @ columns
        left = columns if self.uncorrelated else products
        inner = to_numpy(left.T @ self.kernel.solve(products)).astype(np.float64)
        inner = (inner + inner.T) / 2
        total, change = (float(np.sum(x * self.signs)) for x in (duals, step))
        bounds = []
        for t in lengths:
            mix = np.vstack([np.eye(m), t * np.eye(m)])
            values = np.linalg.eigvalsh(mix.T @ inner @ mix)[::-1]
            explained = float(np.sum(np.maximum(values[:n_components], 0.0)))
            bounds.append(total + t * change - 0.5 * explained)
        return np.array(bounds)

    def point(self, subspace: Subspace, duals: np.ndarray | None = None) -> JointPoint:
        """The SVMs on a subspace, trained unless their duals are given."""
        features = to_numpy(subspace.features).astype(np.float64)
        if duals is None:
            duals = solve_low_rank_svm(features, self.signs, self.C, self.tol)
        moments = features.T @ duals
        loss, intercepts = hinge(features @ moments, self.signs)
        upper = 0.5 * float(np.sum(moments**2)) + self.C * loss
        return JointPoint(subspace, duals, intercepts, upper)

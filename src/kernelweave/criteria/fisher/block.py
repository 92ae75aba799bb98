"""The block form of the multi-class Fisher criterion, via its k x k inner problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave._array import (
    Array,
    as_float,
    from_numpy,
    gram_of_stack,
    namespace,
    solve_factored,
    solve_stack,
    tensor_sum,
    to_numpy,
)
from kernelweave.criteria.fisher.total import Fisher
from kernelweave.inner.correlation import maximize_correlation, nearest_correlation
from kernelweave.protocols import CertificateTerms, Evaluation

__all__ = ["BlockDual", "BlockExpansion", "BlockFisher"]


@dataclass(frozen=True)
class BlockDual:
    """A dual point of :class:`BlockFisher`: columns B and their correlations X.

    Points can be averaged with ``+`` and ``*``: the bound is concave in ``(B X, X)``,
    so an average is at least as good as the average of the bounds of its parts.

    Attributes
    ----------
    coef : array of shape (n, k)
        B.
    correlation : ndarray of shape (k, k)
        X, positive semidefinite.
    """

    coef: Array
    correlation: np.ndarray

    def __mul__(self, factor: float) -> BlockDual:
        return BlockDual(self.coef, factor * self.correlation)

    __rmul__ = __mul__

    def __add__(self, other: BlockDual | int) -> BlockDual:
        if isinstance(other, int) and other == 0:  # sum() starts from 0
            return self
        if not isinstance(other, BlockDual):
            return NotImplemented
        total = self.correlation + other.correlation
        inverse = np.linalg.pinv(total, rcond=1e-10, hermitian=True)
        coef = 0.0
        for part in (self, other):
            share = from_numpy(part.correlation @ inverse, part.coef)
            coef = coef + part.coef @ share
        return BlockDual(coef, total)

    __radd__ = __add__


@dataclass(frozen=True)
class BlockExpansion:
    """``A(w) = H' M(w)^-1 H`` and its first two derivatives at given weights.

    Attributes
    ----------
    matrix : ndarray of shape (k, k)
        A.
    slopes : ndarray of shape (m, k, k)
        ``dA/dw_i = -B' G_i B``.
    coef : array of shape (n, k)
        ``B = M^-1 H``.
    halves : array of shape (n, m, k) or None
        ``T_i = L^-1 G_i B`` for ``M = L L'``, with
        ``d2A/dw_i dw_j = T_i' T_j + T_j' T_i``.
    """

    matrix: np.ndarray
    slopes: np.ndarray
    coef: Array
    halves: Array | None

    def bend(self, correlation: np.ndarray) -> np.ndarray:
        """``tr(X d2A/dw_i dw_j)``, (m, m)."""
        assert self.halves is not None
        xp = namespace(self.halves)
        values, vectors = np.linalg.eigh(correlation)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return 2.0 * gram_of_stack(
            xp.matmul(self.halves, from_numpy(root, self.halves)[None, :, :])
        )


class BlockFisher(Fisher):
    """``J(w) = s min { sum t : diag(t) - A(w) PSD }``, ``A(w) = H' M(w)^-1 H``.

    Ye et al. (2007), Eq. 37, with ``M(w) = alpha I + sum_i w_i G_i`` and the s of
    :class:`Fisher`; the regularisation may be learned here too. By duality::

        J(w) = s max { tr(X A(w)) : X PSD, diag X = 1 }

    where ``X = I`` would give Eq. 34: J is a larger criterion with its own optimum, not
    an approximation of it. The maximum is over correlations of the k target columns, so
    use all k columns of Eq. 25: unlike Eq. 34, J changes when columns are rotated.
    With the maximising X, ``V V' = X`` and ``B = M^-1 H``::

        dJ/dw_i       = -s tr(X B' G_i B)
        d2J/dw_i dw_j = 2 s tr(X B' G_i M^-1 G_j B) + s tr(dX_j dA_i)
        J(u)         >= the bound of Fisher for target H V, dual B V     any B, X
        J(w)         <= s min { sum t : diag(t) - C PSD },
                        C = (H - G B)'(H - G B) / alpha + B' G B         any B

    J has kinks where X is not unique, and the minimum may lie at one: with many kernels
    that serve different classes, or for large alpha. Newton's method on the weights
    alone then stalls, as the certificate shows; a method that moves X along with the
    weights, using :meth:`expand`, does not.

    Parameters
    ----------
    bank : Bank
        Centred kernels of trace n.
    target : array of shape (n, k)
        The class target, all k columns.
    alpha : float or "learn"
        Regularisation, relative to the mean eigenvalue of a kernel.
    """

    offers = Fisher.offers - {"kernel scores"} | {"expansion"}

    def expand(self, weights: np.ndarray, second: bool = True) -> BlockExpansion:
        """A(w) and its derivatives from one Cholesky factorisation."""
        factor = self.factor(weights)
        coef = solve_factored(factor, self.target)
        products = self._apply(coef)
        halves = solve_stack(factor, products) if second else None
        matrix = to_numpy(self.target.T @ coef).astype(np.float64)
        slopes = -_forms(coef, products)
        return BlockExpansion(0.5 * (matrix + matrix.T), slopes, coef, halves)

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and dual point from one Cholesky factorisation."""
        at = self.expand(weights, second=hessian)
        inner = maximize_correlation(at.matrix)
        x, s = inner.correlation, self.scale
        gradient = s * np.einsum("kl,ikl->i", x, at.slopes)
        curvature = None
        if hessian:
            curvature = s * (at.bend(x) + inner.curvature(at.slopes))
        return Evaluation(s * inner.value, gradient, curvature, BlockDual(at.coef, x))

    def certificate_terms(
        self, weights: np.ndarray, coef: BlockDual, dual: BlockDual
    ) -> CertificateTerms:
        """The two bounds of the class docstring, in float64.

        The upper bound uses B of ``coef``, the lower bound B and X of ``dual``.
        """
        alpha, _ = self.split(weights)
        b = as_float(coef.coef, self.target64.dtype)
        products = self._apply(b)
        moved = tensor_sum(weights, products) - self._identity_part(alpha, b)
        upper = self._upper_bound(alpha, b, moved)
        if dual.coef is not coef.coef:
            b = as_float(dual.coef, self.target64.dtype)
            products = self._apply(b)
        x = nearest_correlation(dual.correlation)
        scores = np.einsum("kl,ikl->i", x, _forms(b, products))
        reward = 2.0 * np.sum(x * to_numpy(b.T @ self.target64))
        fixed = 0.0 if self.learns_alpha else alpha * np.sum(x * to_numpy(b.T @ b))
        s = self.scale
        return CertificateTerms(s * upper, s * float(reward - fixed), s * scores)

    def _upper_bound(self, alpha: float, b: Array, moved: Array) -> float:
        """``min { sum t : diag(t) - C PSD }`` for B and ``moved = G B``."""
        residual = self.target64 - moved
        above = to_numpy(residual.T @ residual) / alpha + to_numpy(b.T @ moved)
        above = 0.5 * (above + above.T)
        t = maximize_correlation(above).diagonal
        excess = float(np.linalg.eigvalsh(above - np.diag(t))[-1])
        return float(np.sum(t)) + len(t) * max(excess, 0.0)


def _forms(b: Array, products: Array) -> np.ndarray:
    """The symmetric part of ``B' P_i`` for a stack (m, n, k): (m, k, k), float64."""
    xp = namespace(products)
    forms = xp.matmul(xp.permute_dims(b, (1, 0))[None, :, :], products)
    forms = to_numpy(forms).astype(np.float64)
    return 0.5 * (forms + forms.transpose(0, 2, 1))

"""Fisher discriminant criterion with within-class scatter (Kim et al. 2006)."""

from __future__ import annotations

import copy

import numpy as np

from kernelweave._array import (
    Array,
    add_to_diagonal,
    as_float,
    dot,
    from_numpy,
    gram_of_stack,
    inner_products,
    namespace,
    solve_factored,
    solve_stack,
    squared_norm,
    tensor_sum,
    to_numpy,
)
from kernelweave._memory import row_chunks
from kernelweave.criteria.fisher.total import Fisher
from kernelweave.criteria.identifiability import weight_remarks
from kernelweave.fits.ridge import factor_regularized
from kernelweave.protocols import Bank, CertificateTerms, Criterion, Evaluation

__all__ = ["WithinFisher"]


class WithinFisher(Criterion):
    """``J(w) = -F_1(w)``, the within-class Fisher ratio of Ye et al. (2007), Eq. 9.

    With ``G = sum_i w_i G_i``, ``N(w) = alpha I + J G J`` and the matrix J (below
    Eq. 8) that subtracts the mean of each class and divides by ``sqrt(n_c)``::

        F_1(w)  = (1/alpha) tr H'(G - G J N^-1 J G) H
                = (1/alpha) min_V { tr U'G U + alpha norm(V)^2 },   U = H - J V.

    F_1 is concave in w, so J is convex, and decreasing. At the minimiser
    ``V = N^-1 J G H``, with ``N = L L'`` and s = 1/alpha::

        dJ/dw_i       = -s tr(U' G_i U)
        d2J/dw_i dw_j = 2 s <L^-1 J G_i U, L^-1 J G_j U>
        J(u)         >= -s [ alpha norm(V)^2 + sum_i u_i tr(U' G_i U) ]      any V
        J(w)         <= -s [ tr U'G U + alpha norm(V)^2 - norm(R)^2 / alpha ],
                        R = alpha V - J G U                                   any V

    J is negative: it is minus the printed value for kernels divided by n (of unit
    trace) and ``lambda = alpha / n``. Because of the factor ``1/sqrt(n_c)``, alpha is
    measured against class covariances here, but against sums over samples in
    :class:`Fisher`: an alpha chosen there has about the same effect here once divided
    by the mean class size.

    Parameters
    ----------
    bank : Bank
        Centred kernels of trace n.
    target : array of shape (n, k)
        Columns that sum to zero; the binary target of Eq. 8 gives the printed form.
    alpha : float
        Regularisation; it cannot be learned, since F_1 has no form in which it is just
        another weight.
    codes : ndarray of shape (n,)
        The class of each sample as an integer, 0 .. k - 1.
    """

    learns_alpha = False

    offers = Fisher.offers - {"printed program"}

    def __init__(
        self, bank: Bank, target: Array, alpha: float, codes: np.ndarray
    ) -> None:
        if isinstance(alpha, str):  # type: ignore[unreachable]
            raise ValueError(
                f"WithinFisher cannot take alpha={alpha!r}: the within-class criterion "
                "has no learned regularisation; give a float > 0 or use Fisher"
            )
        if not (np.isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha must be a float > 0, got {alpha!r}")
        if not namespace(target).all(namespace(target).isfinite(target)):
            raise ValueError("the target contains NaN or infinite values")
        like = bank.like
        self.bank, self.alpha, self.scale = bank, float(alpha), 1.0 / float(alpha)
        self.target = as_float(target, like.dtype)
        self.target64 = as_float(target, namespace(like).float64)
        self.centring = ClassCentring(codes, self.target)
        self.centring64 = ClassCentring(codes, self.target64)
        self._work: Array | None = None  # (n, n), reused by every factorisation

    @property
    def n_kernels(self) -> int:
        """The number p of kernels."""
        return self.bank.n_kernels

    def factor(self, weights: np.ndarray) -> tuple[Array, Array]:
        """The Cholesky factor of N(w), (n, n), and ``J G H``, (n, k).

        The next call overwrites the factor.
        """
        matrix = self._work = self.bank.combine(weights, out=self._work)
        moved = self.centring.apply(matrix @ self.target)
        self.centring.apply_both_sides(matrix)
        add_to_diagonal(matrix, self.alpha)
        unit = self.centring.n_classes / self.bank.n_samples
        return factor_regularized(matrix, self.alpha, unit), moved

    def scores(self, coef: Array) -> np.ndarray:
        """``tr(U' G_i U)`` with ``U = H - J V`` for any V (n, k), (p,)."""
        direction = self.target - self.centring.apply(coef)
        return to_numpy(self.bank.quad(direction)).astype(np.float64)

    def restricted(self, kernels: np.ndarray) -> WithinFisher:
        """The same problem with only the kernels of these indices."""
        problem = copy.copy(self)
        problem.bank = self.bank.subset(kernels)
        problem._work = None
        return problem

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and V from one Cholesky factorisation."""
        weights = np.asarray(weights, dtype=np.float64)
        factor, moved = self.factor(weights)
        coef = solve_factored(factor, moved)
        direction = self.target - self.centring.apply(coef)
        products = self.bank.apply(direction)
        scores = to_numpy(inner_products(products, direction)).astype(np.float64)
        value = float(scores @ weights) + self.alpha * squared_norm(coef)
        curvature = None
        if hessian:
            half = solve_stack(factor, self.centring.apply(products))
            curvature = 2.0 * self.scale * gram_of_stack(half)
        return Evaluation(-self.scale * value, -self.scale * scores, curvature, coef)

    def certificate_terms(
        self, weights: np.ndarray, coef: Array, dual: Array
    ) -> CertificateTerms:
        """The two bounds of the class docstring, in float64.

        The upper bound uses ``coef``, the lower bound ``dual``; they may be the same.
        """
        s, alpha = self.scale, self.alpha
        v = as_float(coef, self.target64.dtype)
        direction = self.target64 - self.centring64.apply(v)
        products = self.bank.apply(direction)
        moved = tensor_sum(weights, products)
        residual = alpha * v - self.centring64.apply(moved)
        ratio = dot(direction, moved) + alpha * squared_norm(v)
        upper = squared_norm(residual) / alpha - ratio
        if dual is not coef:
            v = as_float(dual, self.target64.dtype)
            direction = self.target64 - self.centring64.apply(v)
            products = self.bank.apply(direction)
        scores = to_numpy(inner_products(products, direction))
        return CertificateTerms(s * upper, -s * alpha * squared_norm(v), s * scores)

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Whether the weights are identifiable."""
        return weight_remarks(self.bank, weights, learns_alpha=False)


class ClassCentring:
    """The matrix J: subtracts the class mean, then divides by ``sqrt(n_c)``.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        The class of each sample.
    like : array of shape (n, k)
        Fixes namespace, device and dtype.
    """

    def __init__(self, codes: np.ndarray, like: Array) -> None:
        codes, n = np.asarray(codes), like.shape[0]
        if codes.shape != (n,) or not np.issubdtype(codes.dtype, np.integer):
            raise ValueError(
                f"codes must be {n} integers, one class per sample; "
                f"got dtype {codes.dtype} and shape {codes.shape}"
            )
        _, index, counts = np.unique(codes, return_inverse=True, return_counts=True)
        indicator = np.zeros((len(codes), len(counts)))
        indicator[np.arange(len(codes)), index] = 1.0
        self.indicator = from_numpy(indicator, like)
        self.means_of = from_numpy((indicator / counts).T, like)
        self.n_classes = len(counts)
        self.scaling = from_numpy(1.0 / np.sqrt(counts[index]), like)[:, None]

    def apply(self, b: Array) -> Array:
        """``J B`` for B (n, k) or each matrix of a stack (m, n, k)."""
        xp = namespace(b)
        means = xp.matmul(self.means_of, b)
        return self.scaling * (b - xp.matmul(self.indicator, means))

    def apply_both_sides(self, matrix: Array) -> None:
        """``J M J`` in place for M (n, n), without a second n x n array."""
        row_means = self.means_of @ matrix
        weights = self.scaling[:, 0][None, :]
        for rows in row_chunks(*matrix.shape):
            block = matrix[rows, :] - self.indicator[rows, :] @ row_means
            block -= (block @ self.means_of.T) @ self.indicator.T
            block *= self.scaling[rows, :]
            matrix[rows, :] = block * weights

"""The Fisher criterion with total scatter, on kernels and on moments."""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np

from kernelweave._array import (
    Array,
    add_to_diagonal,
    as_float,
    dot,
    gram_of_stack,
    inner_products,
    namespace,
    solve_factored,
    solve_stack,
    squared_norm,
    tensor_sum,
    to_numpy,
)
from kernelweave.criteria.identifiability import weight_remarks
from kernelweave.fits.moment_problem import MomentProblem
from kernelweave.fits.ridge import factor_regularized
from kernelweave.protocols import Bank, CertificateTerms, Criterion, Evaluation

__all__ = ["Fisher", "PrimalFisher"]

#: Number of kernels from which a working set is used.
MANY_KERNELS = 100


class Fisher(Criterion):
    """``J(w) = s tr(H' M(w)^-1 H)``, ``M(w) = alpha I + sum_i w_i G_i``.

    Ye et al. (2007): Eqs. 16 and 23 with the binary target of Eq. 8, Eq. 34 with the
    multi-class target of Eq. 25; Yan et al. (2009): Eq. 9. With ``alpha="learn"`` the
    identity joins the kernels as number 0, and its weight is the regularisation
    (Eqs. 40 and 41). J is convex and decreasing in w. With ``B = M^-1 H``::

        dJ/dw_i       = -s tr(B' G_i B)
        d2J/dw_i dw_j = 2 s tr(B' G_i M^-1 G_j B)
        J(w)         >= s [ 2 tr(B'H) - alpha tr(B'B) - sum_i w_i tr(B' G_i B) ]  any B
        J(w)         <= s [ norm(H - G B)^2 / alpha + tr(B' G B) ]                any B

    Kernels have trace n, so ``alpha = n lambda`` of the papers' unit-trace convention.
    The factor s (alpha, or n if alpha is learned) makes J equal to the printed values.

    Parameters
    ----------
    bank : Bank
        Centred kernels of trace n.
    target : array of shape (n, k)
        Columns that sum to zero: class targets, or a centred regression target.
    alpha : float or "learn"
        Regularisation, relative to the mean eigenvalue of a kernel.
    """

    offers = frozenset(
        {
            "hessian",
            "concave reciprocal",
            "averages",
            "parts",
            "kernel scores",
            "printed program",
        }
    )

    def __init__(
        self, bank: Bank, target: Array, alpha: float | Literal["learn"]
    ) -> None:
        self.bank = bank
        self.learns_alpha = isinstance(alpha, str)
        if isinstance(alpha, str):
            if alpha != "learn":
                raise ValueError(f"alpha must be a float > 0 or 'learn', got {alpha!r}")
        elif not (np.isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha must be a float > 0 or 'learn', got {alpha!r}")
        self.alpha = alpha
        if target.ndim != 2 or target.shape[0] != bank.n_samples:
            raise ValueError(
                f"the target must have the shape ({bank.n_samples}, k) with one row "
                f"per sample; got {tuple(target.shape)}"
            )
        if not namespace(target).all(namespace(target).isfinite(target)):
            raise ValueError("the target contains NaN or infinite values")
        like = bank.like
        self.target = as_float(target, like.dtype)
        self.target64 = as_float(target, namespace(like).float64)
        self.scale = float(bank.n_rows if isinstance(alpha, str) else alpha)
        self._work: Array | None = None  # (n, n), reused by every factorisation
        self._judged: tuple[Array, Array] | None = None  # a coef and its products

    @property
    def n_weights(self) -> int:
        """p, or p + 1 with the identity first if alpha is learned."""
        return self.bank.n_kernels + int(self.learns_alpha)

    @property
    def n_kernels(self) -> int:
        """The number p of kernels."""
        return self.bank.n_kernels

    @property
    def preferred_method(self) -> str:
        """A working set for many kernels given by features, most of them unused."""
        many = self.bank.n_kernels >= MANY_KERNELS
        return "working_set" if many and self.bank.is_cheap_to_cut else "newton"

    def split(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The regularisation and the kernel weights (p,) inside ``weights`` (m,)."""
        if isinstance(self.alpha, str):
            return float(weights[0]), weights[1:]
        return float(self.alpha), weights

    def factor(self, weights: np.ndarray) -> Array:
        """Cholesky factor of ``M(w) + t 11'/n``, (n, n).

        Every ``G_i`` and ``H'`` annihilate the vector of ones, so t changes no value;
        it keeps M well conditioned when the regularisation is tiny or zero. The next
        call overwrites the factor.
        """
        alpha, kernel_weights = self.split(np.asarray(weights, dtype=np.float64))
        matrix = self._work = self.bank.combine(
            kernel_weights, out=self._work, lower=True
        )
        n = self.bank.n_samples
        matrix += (alpha + float(np.sum(kernel_weights))) / n
        add_to_diagonal(matrix, alpha)
        return factor_regularized(matrix, alpha)

    def scores(self, coef: Array) -> np.ndarray:
        """``tr(B' G_i B)`` of all terms (m,), the identity first if it is learned."""
        scores = to_numpy(self.bank.quad(coef)).astype(np.float64)
        if self.learns_alpha:
            scores = np.append(squared_norm(coef), scores)
        return scores

    def restricted(self, kernels: np.ndarray) -> Fisher:
        """The same problem with only the kernels of these indices."""
        problem = copy.copy(self)
        problem.bank = self.bank.subset(kernels)
        problem._work = problem._judged = None
        return problem

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and B from one Cholesky factorisation."""
        factor = self.factor(weights)
        coef = solve_factored(factor, self.target)
        products = self._apply(coef)
        scores = to_numpy(inner_products(products, coef)).astype(np.float64)
        value = float(inner_products(self.target[None, ...], coef)[0])
        curvature = None
        if hessian:
            half = solve_stack(factor, products)
            curvature = 2.0 * self.scale * gram_of_stack(half)
        return Evaluation(self.scale * value, -self.scale * scores, curvature, coef)

    def certificate_terms(
        self, weights: np.ndarray, coef: Array, dual: Array
    ) -> CertificateTerms:
        """The two bounds of the class docstring, in float64.

        The upper bound uses ``coef``, the lower bound ``dual``; they may be the same.
        """
        alpha, _ = self.split(weights)
        same = dual is coef
        coef, products = self._products(coef)
        moved = tensor_sum(weights, products) - self._identity_part(alpha, coef)
        residual = self.target64 - moved
        upper = float("inf")  # without regularisation nothing bounds the residual
        if alpha > 0:
            upper = squared_norm(residual) / alpha + dot(coef, moved)
        if same:
            dual = coef
        else:
            dual = as_float(dual, self.target64.dtype)
            products = self._apply(dual)
        scores = to_numpy(inner_products(products, dual))
        fixed = 0.0 if self.learns_alpha else alpha * squared_norm(dual)
        linear = 2.0 * dot(dual, self.target64) - fixed
        s = self.scale
        return CertificateTerms(s * upper, s * linear, s * scores)

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Whether the weights, and a learned alpha, are identifiable."""
        return weight_remarks(self.bank, weights[-self.n_kernels :], self.learns_alpha)

    def _identity_part(self, alpha: float, coef: Array) -> Array | float:
        return alpha * coef if self.learns_alpha else 0.0

    def _products(self, coef: Array) -> tuple[Array, Array]:
        """``coef`` and ``G_i coef`` in float64; the latest products are cached.

        One dual point is often certified at several weights, and needs only one pass
        over the kernels.
        """
        if self._judged is None or self._judged[0] is not coef:
            self._judged = coef, self._apply(as_float(coef, self.target64.dtype))
        return as_float(coef, self.target64.dtype), self._judged[1]

    def _apply(self, coef: Array) -> Array:
        """``G_i B`` (m, n, k), the identity first if alpha is learned."""
        products = self.bank.apply(coef)
        if self.learns_alpha:
            products = namespace(coef).concat([coef[None, ...], products])
        return products


class PrimalFisher(Fisher):
    """``J(w) = s tr(H' M(w)^-1 H)`` over n rows, from the second moments of features.

    The same function as :class:`Fisher` for kernels ``G_i = P Z_i Z_i' P`` of trace n,
    with ``H'M^-1 H = H^'(alpha I + sum_i w_i Z^_i Z^_i')^-1 H^`` for the D + k rows
    ``Z^`` and ``H^`` of a :class:`MomentProblem`. An evaluation costs one
    factorisation of size D + k, whatever n is. Value, gradient, Hessian and certificate
    are sums of squares over these rows, so no digits are lost to differences of
    moments; all are computed in float64.

    Parameters
    ----------
    problem : MomentProblem
        Kernels and targets.
    alpha : float or "learn"
        Regularisation, relative to the mean eigenvalue of a kernel.
    factor : float, default=1.0
        Multiplies the target, and hence the value by its square.
    """

    def __init__(
        self,
        problem: MomentProblem,
        alpha: float | Literal["learn"],
        factor: float = 1.0,
    ) -> None:
        super().__init__(problem.bank, problem.target * factor, alpha)

    def factor(self, weights: np.ndarray) -> Array:
        """Cholesky factor of M(w) over the D + k rows; the next call overwrites it.

        These rows are not themselves centred, so there is no null direction to fill.
        """
        alpha, kernel_weights = self.split(np.asarray(weights, dtype=np.float64))
        matrix = self._work = self.bank.combine(
            kernel_weights, out=self._work, lower=True
        )
        add_to_diagonal(matrix, alpha)
        return factor_regularized(matrix, alpha)

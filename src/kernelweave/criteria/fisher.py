"""Fisher's criterion: total scatter, from moments, within-class scatter, block form."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from kernelweave._array import (
    Array,
    as_float,
    dot,
    from_numpy,
    gram_of_stack,
    in_double,
    inner_products,
    namespace,
    psd_factor,
    row_chunks,
    solve_factored,
    solve_stack,
    squared_norm,
    tensor_sum,
    to_numpy,
)
from kernelweave._tolerances import INVERTIBLE_SQUARE, ROUNDING_UNITS
from kernelweave.fits.design import RowDesign
from kernelweave.fits.moment_problem import MomentProblem
from kernelweave.fits.ridge import KernelFit, factor_regularized, fit_factored
from kernelweave.fits.targets import checked_codes, checked_target
from kernelweave.inner.correlation import maximize_correlation, nearest_correlation
from kernelweave.kernels.banks.dense import REACHED
from kernelweave.protocols import (
    Bank,
    CertificateTerms,
    Evaluation,
    KernelCriterion,
    is_positive,
    require_bank,
    require_positive,
)

#: Weights that an interior method keeps positive, where they should be zero.
KEPT_POSITIVE = 1e-100
#: Largest share of a target's norm due to its mean that rounding can explain.
UNCENTRED = 1e-4
#: With at least this many kernels, a working set is used.
MANY_KERNELS = 100


class Fisher(KernelCriterion):
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
    design : RowDesign, optional
        Weights of the rows, by whose roots kernels and target have been multiplied;
        the vector of roots takes the place of the ones.

    See Also
    --------
    kernelweave.criteria.WithinFisher : With the scatter within classes (Eq. 9).
    kernelweave.criteria.BlockFisher : The block form of several classes (Eq. 37).
    """

    offers = frozenset({"hessian", "concave reciprocal", "averages", "parts"})
    offers |= {"kernel scores", "printed program", "printed dual"}
    is_centred: ClassVar[bool] = True

    def __init__(
        self,
        bank: Bank,
        target: Array,
        alpha: float | Literal["learn"],
        design: RowDesign | None = None,
    ) -> None:
        require_bank(bank, type(self).__name__)
        self.design = design or RowDesign(bank.n_samples)
        self.learns_identity = isinstance(alpha, str) and alpha == "learn"
        if not (self.learns_identity or is_positive(alpha)):
            raise ValueError(f"alpha must be a float > 0 or 'learn', got {alpha!r:.60}")
        self.bank, self.alpha = bank, alpha
        target = checked_target(target, bank.n_samples)
        # A copy: the caller may change theirs.
        self.target64 = in_double(np.array(to_numpy(target)), bank.like)
        self._check_target()
        self.target = as_float(self.target64, bank.like.dtype)
        n = float(bank.n_rows) if self.design.is_plain else self.design.total
        self.scale = n if isinstance(alpha, str) else float(alpha)
        self._work: Array | None = None  # (n, n), reused by every factorisation
        # A point and its products: one point is often certified at several weights.
        self._judged: tuple[Array, Array] | None = None
        # Weights, their factor, and its eigenvalue at the null vector.
        self._factored: tuple[np.ndarray, Array, float] | None = None

    def _check_target(self) -> None:
        """Refuse targets out of range of the kernels' dtype or the certificate."""
        target = to_numpy(self.target64)
        size = float(np.max(np.abs(target), initial=0.0))
        limits = namespace(self.bank.like).finfo(self.bank.like.dtype)
        if size and not float(limits.smallest_normal) < size < float(limits.max):
            raise ValueError(
                f"the largest entry of the target is {size:.3g}, beyond the range of "
                f"kernels in float{limits.bits}; rescale the target"
            )
        alpha = 1.0 if isinstance(self.alpha, str) else float(self.alpha)
        if size and size / alpha < INVERTIBLE_SQUARE:
            raise ValueError(
                f"alpha={alpha:.3g} is too large for a target whose largest entry is "
                f"{size:.3g}: the square of their ratio leaves the range of float64"
            )
        if not self.is_centred:
            return
        root = np.sqrt(self.design.each)
        sums = np.abs(root @ target) / np.linalg.norm(root)
        allowed = UNCENTRED * np.linalg.norm(target, axis=0)
        if np.any(sums > allowed):
            c = int(np.argmax(sums > allowed))
            share = sums[c] / np.linalg.norm(target[:, c])
            raise ValueError(
                f"column {c} of the target must sum to zero, as the kernels do; its "
                f"mean accounts for {share:.1%} of its length. Subtract the mean"
            )

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

        Where every ``G_i`` and ``H'`` annihilate the vector of ones, t changes no
        value; it keeps M well conditioned when the regularisation is tiny or zero. The
        next call overwrites the factor.
        """
        alpha, kernel_weights = self.split(np.asarray(weights, dtype=np.float64))
        matrix = self.bank.combine(kernel_weights, out=self._work, lower=True)
        self._work = matrix
        if self.is_centred:
            size = alpha + self.design.shift * float(np.sum(kernel_weights))
            self.design.add_null(matrix, size)
        self._factored = None
        factor = factor_regularized(matrix, alpha)
        if self.is_centred:
            self._factored = np.array(weights, dtype=np.float64), factor, alpha + size
        return factor

    def last_fit(
        self, weights: np.ndarray, target: Array, unit: float
    ) -> KernelFit | None:
        """The fit of a target (n, k) at the weights that were factored last.

        None for any other weights. M and its regularisation are multiplied by ``unit``.
        """
        if self._factored is None:
            return None
        if np.max(np.abs(self._factored[0] - weights)) > KEPT_POSITIVE:
            return None
        _, factor, level = self._factored
        # A learned alpha that outweighs every kernel may leave the range of float32.
        unit = min(unit, float(namespace(factor).finfo(factor.dtype).max))
        return fit_factored(factor, target, level, self.design, unit)

    def _products(self, coef: Array) -> Array:
        """``G_i B``, remembered: one B is often certified at several weights.

        It is compared by value: whoever holds it may have changed it in place.
        """
        if coef.shape != self.target64.shape:
            raise ValueError(
                f"a dual point must have the shape {tuple(self.target64.shape)} of the "
                f"target; got {tuple(coef.shape)}"
            )
        xp, known = namespace(coef), self._judged
        if known is None or not bool(xp.all(known[0] == coef)):
            known = xp.asarray(coef, copy=True), self._apply(coef)
            self._judged = known
        return known[1]

    def scores(self, coef: Array) -> np.ndarray:
        """``tr(B' G_i B)`` of all terms (m,), the identity first if it is learned."""
        scores = self.bank.quad(coef)
        if self.learns_identity:
            scores = np.append(squared_norm(coef), scores)
        return scores

    def restricted(self, kernels: np.ndarray) -> Self:
        """The same problem with only the kernels of these indices."""
        problem = copy.copy(self)
        problem.bank = self.bank.subset(kernels)
        problem._work = problem._judged = problem._factored = None
        return problem

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and B from one Cholesky factorisation."""
        factor = self.factor(weights)
        coef = solve_factored(factor, self.target)
        products = self._apply(coef)
        if coef.dtype == self.target64.dtype:
            # A certificate would compute them again.
            self._judged = namespace(coef).asarray(coef, copy=True), products
        scores = inner_products(products, coef)
        value = dot(self.target, coef)
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
        dtype, same = self.target64.dtype, dual is coef
        coef = as_float(coef, dtype)
        products = self._products(coef)
        moved = self.combined(weights, products)
        residual = self.target64 - moved
        upper = float("inf")  # without regularisation nothing bounds the residual
        excess = 0.0
        if alpha > 0:
            upper = squared_norm(residual) / alpha + dot(coef, moved)
            # Rounding leaves a residual R of M B = H, and both bounds miss the value by
            # up to norm(R)^2 / alpha.
            left = self.rounding(weights, squared_norm(coef) ** 0.5)
            left *= ROUNDING_UNITS * self.bank.n_samples**0.5
            excess = left * left / alpha  # infinite, if it overflows
        dual = coef if same else as_float(dual, dtype)
        products = products if same else self._apply(dual)
        scores = inner_products(products, dual)
        fixed = 0.0 if self.learns_identity else alpha * squared_norm(dual)
        linear = 2.0 * dot(dual, self.target64) - fixed
        s, square = self.scale, max(squared_norm(coef), squared_norm(dual))
        return CertificateTerms(
            s * upper,
            s * linear,
            s * scores,
            rounding=s * self.rounding(weights, square),
            excess=s * excess,
        )

    def _apply(self, coef: Array) -> Array:
        """``G_i B`` (m, n, k), the identity first if alpha is learned."""
        products = self.bank.apply(coef)
        if self.learns_identity:
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

    #: The D + k rows are not themselves centred: there is no null direction to fill.
    is_centred = False

    def __init__(
        self,
        problem: MomentProblem,
        alpha: float | Literal["learn"],
        factor: float = 1.0,
    ) -> None:
        super().__init__(problem.bank, problem.target * factor, alpha)
        if self.learns_identity:
            self.scale = problem.total


class WithinFisher(Fisher):
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

    def __init__(
        self, bank: Bank, target: Array, alpha: float, codes: np.ndarray
    ) -> None:
        if isinstance(alpha, str):  # type: ignore[unreachable]
            raise ValueError(
                f"WithinFisher cannot take alpha={alpha!r}: the within-class criterion "
                "has no learned regularisation; give a float > 0 or use Fisher"
            )
        require_positive(alpha=alpha)
        super().__init__(bank, target, alpha)
        self.scale = 1.0 / float(alpha)
        self.codes = np.asarray(codes)
        self.centring = ClassCentring(codes, self.target)
        self.centring64 = ClassCentring(codes, self.target64)

    @property
    def preferred_method(self) -> str:
        """Newton's method, whatever the number of kernels."""
        return "newton"

    def _factor(self, weights: np.ndarray) -> tuple[Array, Array]:
        """The Cholesky factor of N(w), (n, n), and ``J G H``, (n, k).

        The next call overwrites the factor.
        """
        matrix = self._work = self.bank.combine(weights, out=self._work)
        moved = self.centring.apply(matrix @ self.target)
        self.centring.apply_both_sides(matrix)
        alpha, _ = self.split(weights)
        unit = self.centring.n_classes / self.bank.n_samples
        return factor_regularized(matrix, alpha, unit), moved

    def scores(self, coef: Array) -> np.ndarray:
        """``tr(U' G_i U)`` with ``U = H - J V`` for any V (n, k), (p,)."""
        return super().scores(self.target - self.centring.apply(coef))

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and V from one Cholesky factorisation."""
        weights = np.asarray(weights, dtype=np.float64)
        factor, moved = self._factor(weights)
        coef = solve_factored(factor, moved)
        direction = self.target - self.centring.apply(coef)
        products = self.bank.apply(direction)
        scores = inner_products(products, direction)
        value = float(scores @ weights) + self.split(weights)[0] * squared_norm(coef)
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
        s, (alpha, _) = self.scale, self.split(weights)
        v = as_float(coef, self.target64.dtype)
        direction = self.target64 - self.centring64.apply(v)
        size = squared_norm(direction) ** 0.5 + squared_norm(v) ** 0.5
        products = self.bank.apply(direction)
        moved = tensor_sum(weights, products)
        residual = alpha * v - self.centring64.apply(moved)
        ratio = dot(direction, moved) + alpha * squared_norm(v)
        upper = squared_norm(residual) / alpha - ratio
        if dual is not coef:
            v = as_float(dual, self.target64.dtype)
            direction = self.target64 - self.centring64.apply(v)
            size += squared_norm(direction) ** 0.5 + squared_norm(v) ** 0.5
            products = self.bank.apply(direction)
        scores = inner_products(products, direction)
        linear = -s * alpha * squared_norm(v)
        rounding = s * self.rounding(weights, size**2) / REACHED  # U is rounded too
        return CertificateTerms(s * upper, linear, s * scores, rounding=rounding)


class ClassCentring:
    """The matrix J: subtracts the class mean, then divides by ``sqrt(n_c)``.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Classes 0 .. k - 1, each of which must occur.
    like : array of shape (n, k)
        Fixes namespace, device and dtype.
    """

    def __init__(self, codes: np.ndarray, like: Array) -> None:
        codes = checked_codes(codes, n=like.shape[0])
        counts = np.bincount(codes)
        indicator = np.eye(len(counts))[codes]
        self.indicator = from_numpy(indicator, like)
        self.means_of = from_numpy((indicator / counts).T, like)
        self.n_classes = len(counts)
        self.scaling = from_numpy(1.0 / np.sqrt(counts[codes]), like)[:, None]

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


#: Eigenvalues of correlations below this, relative to the largest, are left out: the
#: columns of averaged dual points along them do not matter.
NULL_CORRELATION = 1e-10


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
        inverse = np.linalg.pinv(total, rcond=NULL_CORRELATION, hermitian=True)
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
        root = from_numpy(psd_factor(correlation), self.halves)
        moved = namespace(self.halves).matmul(self.halves, root[None, :, :])
        return 2.0 * gram_of_stack(moved)


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

    offers = Fisher.offers - {"kernel scores", "printed dual"} | {"expansion"}

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
        moved = self.combined(weights, products)
        upper, square = self._upper_bound(alpha, b, moved), squared_norm(b)
        if dual.coef is not coef.coef:
            b = as_float(dual.coef, self.target64.dtype)
            products = self._apply(b)
        x = nearest_correlation(dual.correlation)
        scores = np.einsum("kl,ikl->i", x, _forms(b, products))
        reward = 2.0 * np.sum(x * to_numpy(b.T @ self.target64))
        fixed = 0.0 if self.learns_identity else alpha * np.sum(x * to_numpy(b.T @ b))
        s, linear = self.scale, float(reward - fixed)
        rounding = s * self.rounding(weights, max(square, squared_norm(b)))
        return CertificateTerms(s * upper, s * linear, s * scores, rounding=rounding)

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

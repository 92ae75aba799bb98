"""Label kernels, and closed forms for the subspaces that depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelweave._array import (
    Array,
    eps,
    from_numpy,
    namespace,
    solve_factored,
    squared_norm,
    to_numpy,
)
from kernelweave._tolerances import NULL_EIGENVALUE
from kernelweave.fits.design import RowDesign
from kernelweave.fits.ridge import column_signs, factor_regularized, steepness_of
from kernelweave.fits.targets import (
    StandardOutputs,
    checked_codes,
    checked_target,
    class_coding,
    normal_basis,
)
from kernelweave.inner.svm import (
    Machines,
    hinge,
    solve_low_rank_svm,
    solve_machines,
)
from kernelweave.kernels.checks import checked_matrix
from kernelweave.protocols import require_positive

#: Relative rounding error of the square root of a matrix: half the digits are lost.
HALF_OF_THE_DIGITS = 1e-8


def label_factor(
    codes: np.ndarray,
    n_classes: int,
    kernel: str | Array = "normalized",
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """A centred factor L (n, r) of the label kernel: ``P H(y) P = L L'``.

    With the class indicators Y (n, k), Chen et al. (2008), Definition 1::

        "indicator"    H = Y Y'                (pairs within a class count equally)
        "normalized"   H = Y (Y'Y)^-1 Y'       (classes count equally)
        S (k, k)       H = Y S Y'              (S_cd is the similarity of two classes)

    ``G P = G`` for every centred kernel G, so centring H changes no subspace; in
    Eq. 27 it removes the constant that an uncentred "normalized" kernel adds. Since
    the indicators sum to the vector of ones, the first two have rank k - 1 once
    centred, and the null direction is removed exactly.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Classes 0 .. k - 1, each of which must occur.
    n_classes : int
        k.
    kernel : {"normalized", "indicator"} or array of shape (k, k)
        The label kernel; a matrix must be symmetric positive semidefinite.
    weights : ndarray of shape (n,), optional
        How often each row counts, in the centring and in Y'Y.

    Returns
    -------
    factor : ndarray of shape (n, k - 1) or (n, rank(S))
        L, with columns of (weighted) sum zero.
    """
    codes = checked_codes(codes, n_classes)
    counts = np.bincount(codes, weights)
    if not isinstance(kernel, str):
        root = _root(checked_matrix(kernel, "label_kernel", n_classes, "classes"))
    elif kernel == "normalized":
        root = class_coding(counts)[0] / np.sqrt(np.sum(counts))
    elif kernel == "indicator":
        root = normal_basis(np.full(n_classes, 1.0 / np.sqrt(n_classes)))
    else:
        raise ValueError(
            "a label kernel is 'normalized', 'indicator' or a matrix over the "
            f"classes; got {kernel!r}"
        )
    centred = root - counts / np.sum(counts) @ root
    if np.max(np.abs(centred)) <= HALF_OF_THE_DIGITS * np.max(np.abs(root)):
        raise ValueError(
            "the label kernel treats all classes alike, so there is nothing to "
            "depend on"
        )
    return centred[codes]


def target_factor(y: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Centred outputs L (n, m), for the linear label kernel ``H = y y'``.

    Columns are scaled to unit norm, so the units of measurement do not matter.

    Parameters
    ----------
    y : ndarray of shape (n,) or (n, m)
        Regression outputs.
    weights : ndarray of shape (n,), optional
        How often each row counts, in the mean and in the norm.
    """
    outputs = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    checked_target(outputs, len(y))
    target = StandardOutputs.of(outputs, weights).target
    varies = np.any(target != 0, axis=0)
    if not np.any(varies):
        raise ValueError("every output is constant, so there is nothing to depend on")
    total = len(y) if weights is None else float(np.sum(weights))
    return target[:, varies] / total**0.5


def _root(matrix: np.ndarray) -> np.ndarray:
    """R (k, r) with ``R R' = S``: the symmetric root, or r < k columns if rank(S) = r.

    The symmetric root has no arbitrary signs.
    """
    values, vectors = np.linalg.eigh(matrix)
    if values[0] < -HALF_OF_THE_DIGITS * max(abs(values[-1]), abs(values[0])):
        raise ValueError(
            "the label kernel is not positive semidefinite: its smallest eigenvalue is "
            f"{values[0]:.3g}, its largest {values[-1]:.3g}"
        )
    kept = values > NULL_EIGENVALUE * len(matrix) * max(values[-1], 0.0)
    root = vectors[:, kept] * np.sqrt(values[kept])
    if np.all(kept):
        return root @ vectors.T
    if not np.any(kept):
        return np.zeros((len(matrix), 1))
    return (root * column_signs(root))[:, ::-1]


#: Error of the dependence, two products and a solve, in units of machine precision
#: times the root of the number of rows.
ROUNDED_PRODUCTS = 8.0
#: Directions with more than this share of the largest eigenvalue are always kept.
ALWAYS_KEPT = 1e-2
#: Share of its squared norm that a difference must keep to count as accurate.
KEPT_SQUARE = 0.1
#: Dependences that differ by less, relative to the largest, are equal in float32.
SAME_DEPENDENCE = 1e-5


@dataclass(frozen=True)
class Subspace:
    """Directions in feature space, given by their coefficients on the training rows.

    Attributes
    ----------
    coef : array of shape (n, l)
        W or Q: new rows have the features ``G(x) coef``.
    features : array of shape (n, l)
        ``F = G coef``, the features of the training rows; F F' is the subspace kernel.
    dependence : ndarray of shape (l,)
        ``norm(L' f_j)^2``, what each feature adds to ``tr(F F' L L')``.
    axes : ndarray of shape (k, l) or None
        For a subspace from one of the theorems: ``L axes`` (n, l) gives the same
        subspace as L.
    n_doubtful : int
        Directions left out that may be more than rounding errors.
    turned : float
        The angle by which rounding may turn features among themselves.
    """

    coef: Array
    features: Array
    dependence: np.ndarray
    axes: np.ndarray | None = None
    n_doubtful: int = 0
    turned: float = 0.0

    @property
    def steepness(self) -> float:
        """How much features change with kernel values, see :func:`steepness_of`."""
        return steepness_of(self.coef, self.features)


class RegularizedKernel:
    """A centred kernel G with one Cholesky factorisation of ``G + alpha I``.

    The optimal subspaces of Chen et al. (2008) for any factor L (n, k) of the label
    kernel, or with the dual variables of SVMs in its place (Eqs. 12 and 22)::

        max_W  tr( (W' (G + alpha I) W)^-1 W' G L L' G W )            Theorem 3.1
        max_Q  tr( Q' G L L' G Q )   s.t.  Q' (G G + alpha G) Q = I   Theorem 4.1

    Both need only ``T L`` with ``T = G (G + alpha I)^-1``, and a k x k eigenproblem:
    with ``L' G T L = V S V'`` the first is ``W = T L V S^-1/2``, and with
    ``L' T L = V D V'`` the second is ``Q = (G + alpha I)^-1 L V D^-1/2``.

    There are only ``rank(G L)`` directions: those whose eigenvalues are rounding
    errors, relative to the largest, are dropped however many were requested. Directions
    are sorted by eigenvalue, largest first, with signs that make the largest entry of
    each eigenvector (k,) positive.

    Parameters
    ----------
    gram : array of shape (n, n)
        G.
    alpha : float
        lambda of Theorem 3.1, xi of Theorem 4.1.
    design : RowDesign, optional
        Weights of the rows. Kernel, label factor, coefficients and features are then
        all multiplied by their roots, as in
        :class:`~kernelweave.fits.design.RowDesign`.
    """

    def __init__(
        self, gram: Array, alpha: float, design: RowDesign | None = None
    ) -> None:
        require_positive(alpha=alpha)
        self.gram, self.alpha = gram, float(alpha)
        self.design = design or RowDesign(int(gram.shape[0]))
        # G annihilates the vector of ones; adding 11'/n changes no product with a
        # centred matrix and keeps the factorisation well conditioned.
        shifted = namespace(gram).asarray(gram, copy=True)
        self.design.add_null(shifted, self.design.shift)
        self.factor = factor_regularized(shifted, self.alpha)

    @property
    def rounding(self) -> float:
        """The relative error of eigenvalues of ``L' G (G + alpha I)^-1 L``.

        In the null space of G, the errors of its entries, which are of either sign, are
        divided by alpha: eigenvalues there were a twentieth of this.
        """
        xp, n = namespace(self.gram), self.gram.shape[0]
        largest = float(xp.max(xp.linalg.diagonal(self.gram)))
        unit = ROUNDED_PRODUCTS * float(np.sqrt(n)) * eps(self.gram)
        return unit * (1.0 + largest / self.alpha)

    def solve(self, b: Array) -> Array:
        """``(G + alpha I)^-1 b`` for centred columns b (n, k)."""
        return solve_factored(self.factor, b)

    def subspace_kernel(self, uncorrelated: bool = False) -> Array:
        """The kernel (n, n) of a subspace of any dimension, see :class:`SubspaceSVM`.

        With row weights, it is ``D^-1 K D^-1``.
        """
        matrix = self.solve(self.gram)
        if not uncorrelated:
            matrix = self.gram @ matrix
        matrix = self.design.unscale(matrix)
        matrix = self.design.unscale(matrix.T)
        return (matrix + matrix.T) / 2

    def subspace(
        self, target: Array, n_components: int | None = None, uncorrelated: bool = False
    ) -> Subspace:
        """The best subspace for a factor of the label kernel.

        Parameters
        ----------
        target : array of shape (n, k)
            L, with columns that sum to zero.
        n_components : int, optional
            Maximum number of directions; by default all are kept.
        uncorrelated : bool, default=False
            Theorem 4.1 in place of 3.1.

        Returns
        -------
        Subspace
            ``W' (G + alpha I) W = I``, or ``Q' (G G + alpha G) Q = I``.
        """
        if uncorrelated:
            solved = self.solve(target)  # (G + alpha I)^-1 L
            products = self.gram @ solved  # T L, the features
            explained = target.T @ products
        else:
            products = self.gram @ target  # G L
            solved = self.solve(products)  # T L, the coefficients
            explained = products.T @ solved
        rounding = ROUNDED_PRODUCTS * float(np.sqrt(solved.shape[0])) * eps(solved)
        values, vectors = leading_axes(to_numpy(explained), rounding)
        n_found = rank = len(values)
        if uncorrelated:
            rank = int(np.sum(values > min(self.rounding, ALWAYS_KEPT) * values[0]))
        wanted = n_found if n_components is None else n_components
        n_doubtful = n_found - rank if rank < wanted else 0
        values, vectors = values[:rank][:wanted], vectors[:, :rank][:, :wanted]
        scaled = vectors / np.sqrt(values)
        axes = from_numpy(scaled, solved)
        coef = solved @ axes
        features = products @ axes
        if not uncorrelated:  # G T L V = G L V - alpha T L V: no pass over G
            products, features = features, features - self.alpha * coef
            if squared_norm(features) < KEPT_SQUARE * squared_norm(products):
                features = self.gram @ coef  # most digits would cancel
        return Subspace(coef, features, values, scaled, n_doubtful)


def leading_axes(matrix: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (r,) above rounding, largest first, and their eigenvectors (k, r).

    The largest entry of each vector, or the first in a tie, is made positive.
    """
    matrix = matrix.astype(np.float64)
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    rank = int(np.sum(values > rounding * max(values[-1], 0.0)))
    if rank == 0:
        raise ValueError(
            "the kernel does not depend on the labels at all: G L is zero; check that "
            "the rows differ and that kernel and labels belong together, or use "
            "another kernel in views, such as 'rbf'"
        )
    leading = np.argsort(-values)[:rank]
    return values[leading], vectors[:, leading] * column_signs(vectors[:, leading])


def decorrelated(subspace: Subspace, target: Array, alpha: float) -> Subspace:
    """The same subspace kernel F F' from exactly uncorrelated features.

    With ``alpha > 0`` the constraint of Eq. 19 leaves ``F'F = I - alpha Q'GQ``, which
    is not diagonal. An orthogonal rotation makes it diagonal and preserves both the
    constraint and F F'. For small alpha, F'F is nearly the identity, and rounding would
    choose its eigenvectors; those of ``Q'GQ = Q'F`` are taken then, unless Q is large
    outside the range of G, where rounding spoils Q'F. Features are sorted by their
    dependence on the labels, and by their variance where that is the same.

    Q'F would be symmetric, and ``F'F + alpha Q'F`` the identity, but for rounding: how
    far they are from that, relative to the gaps between eigenvalues, bounds how far
    features may rotate.
    """
    coef, features = subspace.coef, subspace.features
    inner = to_numpy(coef.T @ features).astype(np.float64)
    skew, inner = (inner - inner.T) / 2, (inner + inner.T) / 2
    if alpha**2 * squared_norm(coef) < ALWAYS_KEPT * squared_norm(features):
        values, rotation = np.linalg.eigh(inner)
        error = skew
    else:
        covariance = to_numpy(features.T @ features).astype(np.float64)
        values, rotation = np.linalg.eigh(covariance)
        rotation = rotation[:, ::-1]
        error = covariance + alpha * inner - np.eye(len(inner))
    turned = turn_of_axes(float(np.max(np.abs(error))), values)
    found = _rotated(coef, features, target, rotation)
    return replace(found, n_doubtful=subspace.n_doubtful, turned=turned)


def turn_of_axes(error: float, values: np.ndarray) -> float:
    """The angle by which errors may turn eigenvectors of these eigenvalues."""
    apart = float(np.min(np.diff(np.sort(values)), initial=np.inf))
    return min(error / apart, np.pi) if apart > 0 else np.pi


def normalized(kernel: RegularizedKernel, coef: Array, target: Array) -> Subspace:
    """The subspace spanned by any ``coef`` (n, l), with ``W' (G + alpha I) W = I``.

    The kernel of Eq. 6 depends only on the span. Its features are chosen so that their
    dependences on the labels are as unequal as possible, as in Theorem 3.1.
    """
    features = kernel.gram @ coef
    inner = to_numpy(coef.T @ (features + kernel.alpha * coef)).astype(np.float64)
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    root = vectors / np.sqrt(values)
    overlap = to_numpy(target.T @ features).astype(np.float64) @ root
    return _rotated(coef, features, target, root @ np.linalg.svd(overlap)[2].T)


def _rotated(
    coef: Array, features: Array, target: Array, rotation: np.ndarray
) -> Subspace:
    """Features times ``rotation`` (l, l), ordered by dependence, with fixed signs.

    Those that depend equally on the labels keep their order.
    """
    overlap = to_numpy(target.T @ features).astype(np.float64) @ rotation  # (k, l)
    dependence = np.sum(overlap**2, axis=0)
    steps = np.round(dependence / (SAME_DEPENDENCE * np.max(dependence)))
    order = np.argsort(-steps, kind="stable")
    axes = from_numpy((rotation * column_signs(overlap))[:, order], coef)
    return Subspace(coef @ axes, features @ axes, dependence[order])


@dataclass(frozen=True)
class JointPoint:
    """A subspace, the SVMs trained on its kernel, and their value.

    Attributes
    ----------
    subspace : Subspace
        W or Q, normalised; with row weights, coefficients on ``D G D``.
    duals : ndarray of shape (n, m)
        A = Y a, one column per SVM.
    intercepts : ndarray of shape (m,)
        Intercept of each SVM.
    upper : float
        A primal value of the SVMs, and so an upper bound on the joint problem.
    coef : array of shape (n, m)
        The SVMs' outputs are ``G(x) coef + intercepts``.
    """

    subspace: Subspace
    duals: np.ndarray
    intercepts: np.ndarray
    upper: float
    coef: Array


@dataclass
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

    With row weights r in the design of the kernel and ``D = diag(sqrt(r))``, G is
    ``D G D`` and A enters as ``D^-1 A``, whose SVMs have the kernel ``D^-1 K_S D^-1``
    and the bounds ``C r``.

    Parameters
    ----------
    kernel : RegularizedKernel
        G, alpha and the row weights.
    signs : ndarray of shape (n, m)
        +1 and -1, one column per SVM.
    C : float
        The bound on the dual variables.
    uncorrelated : bool
        Eq. 20 in place of Eq. 9.
    tol : float, default=1e-9
        Relative gap of the SVMs.
    """

    kernel: RegularizedKernel
    signs: np.ndarray
    C: float
    uncorrelated: bool
    tol: float = 1e-9

    def __post_init__(self) -> None:
        self.design = self.kernel.design
        self.bounds = float(self.C) * self.design.each

    def closed_form(self) -> Machines:
        """The SVMs at the saddle point for as many dimensions as there are of them."""
        kernel = to_numpy(self.kernel.subspace_kernel(self.uncorrelated))
        kernel = kernel.astype(np.float64)
        return solve_machines(kernel, self.signs, self.bounds, self.tol)

    def subspace(self, duals: np.ndarray, n_components: int | None = None) -> Subspace:
        """The best subspace for fixed A (n, m)."""
        target = from_numpy(self.design.unscale(duals), self.kernel.gram)
        return self.kernel.subspace(target, n_components, self.uncorrelated)

    def constant_machines(self, duals: np.ndarray) -> bool:
        """Whether ``tr(A' K A)`` is zero up to rounding for the optimal A (n, m).

        No function of the kernel lowers the slacks, as on noise in few dimensions. The
        machines are then their intercepts, and every subspace has the same value.
        """
        total = float(np.sum(duals * self.signs))
        explained = 2.0 * (total - self.lower_bound(duals, None))
        return explained <= self.kernel.rounding * total

    def label_subspace(self, n_components: int | None = None) -> Subspace:
        """The subspace that depends most on the classes themselves."""
        each = self.design.each[:, None]
        mean = np.sum(each * self.signs, axis=0) / np.sum(each)
        return self.subspace(each * (self.signs - mean), n_components)

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
        columns = from_numpy(self.design.unscale(both), self.kernel.gram)
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
        features = self.design.unscale(features)
        if duals is None:
            duals = solve_low_rank_svm(features, self.signs, self.bounds, self.tol)
        moments = features.T @ duals
        outputs = features @ moments
        loss, intercepts = hinge(outputs, self.signs, self.design.each)
        upper = 0.5 * float(np.sum(moments**2)) + self.C * loss
        coef = subspace.coef @ from_numpy(moments, subspace.coef)
        return JointPoint(subspace, duals, intercepts, upper, self.design.scale(coef))

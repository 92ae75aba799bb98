"""Subspaces of a kernel's feature space that depend on labels: the closed forms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave._array import (
    Array,
    add_to_diagonal,
    eps,
    from_numpy,
    namespace,
    solve_factored,
    squared_norm,
    to_numpy,
)
from kernelweave.fits.label_kernels import column_signs
from kernelweave.fits.regularized import factor_regularized

__all__ = ["RegularizedKernel", "Subspace"]

#: Directions with this share of the largest eigenvalue are kept whatever the rounding.
NOISE = 1e-2
#: Share of a squared norm that a difference must keep to be as good as a product.
KEPT = 0.1


@dataclass(frozen=True)
class Subspace:
    """Directions of a feature space, by their coefficients on the training rows.

    Attributes
    ----------
    coef : array of shape (n, l)
        W or Q: new rows have the features ``G(x) coef``.
    features : array of shape (n, l)
        ``F = G coef``, the features of the training rows; F F' is the subspace kernel.
    dependence : ndarray of shape (l,)
        ``norm(L' f_j)^2``, what each feature adds to ``tr(F F' L L')``.
    axes : ndarray of shape (k, l) or None
        The l columns ``L axes`` span the same subspace as L, if it is one of a theorem.
    """

    coef: Array
    features: Array
    dependence: np.ndarray
    axes: np.ndarray | None = None


class RegularizedKernel:
    """A centred kernel G with one Cholesky factorisation of ``G + alpha I``.

    The optimal subspaces of Chen et al. (2008) for any factor L (n, k) of the label
    kernel, or of the dual variables of an SVM in its place (Eqs. 12 and 22)::

        max_W  tr( (W' (G + alpha I) W)^-1 W' G L L' G W )            Theorem 3.1
        max_Q  tr( Q' G L L' G Q )   s.t.  Q' (G G + alpha G) Q = I   Theorem 4.1

    Both need ``T L`` with ``T = G (G + alpha I)^-1`` only, and a k x k eigenproblem:
    with ``L' G T L = V S V'`` the first is ``W = T L V S^-1/2``, and with
    ``L' T L = V D V'`` the second is ``Q = (G + alpha I)^-1 L V D^-1/2``.

    No more directions exist than ``rank(G L)``: those whose eigenvalue is rounding,
    relative to the largest, are left out, however many were asked for. Directions come
    in the order of their eigenvalues, the largest first, and their signs make the
    largest entry of each eigenvector (k,) positive.

    Parameters
    ----------
    gram : array of shape (n, n)
        G.
    alpha : float
        lambda of Theorem 3.1, xi of Theorem 4.1.
    """

    def __init__(self, gram: Array, alpha: float) -> None:
        if not (np.isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha must be a finite number > 0, got {alpha!r}")
        n = gram.shape[0]
        self.gram, self.alpha = gram, float(alpha)
        # G vanishes on the vector of ones; what is added there changes no product with
        # a centred matrix and keeps the factorisation well conditioned.
        matrix = gram + 1.0 / n
        add_to_diagonal(matrix, self.alpha)
        self.factor = factor_regularized(matrix, self.alpha)

    def solve(self, b: Array) -> Array:
        """``(G + alpha I)^-1 b`` for centred columns b (n, k)."""
        return solve_factored(self.factor, b)

    def subspace(
        self, target: Array, n_components: int | None = None, uncorrelated: bool = False
    ) -> Subspace:
        """The best subspace for a factor of the label kernel.

        Parameters
        ----------
        target : array of shape (n, k)
            L, with columns that sum to zero.
        n_components : int, optional
            Directions to keep at most; by default all there are.
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
        rounding = self._rounding(solved, uncorrelated)
        values, vectors = leading_axes(to_numpy(explained), rounding)
        values, vectors = values[:n_components], vectors[:, :n_components]
        scaled = vectors / np.sqrt(values)
        axes = from_numpy(scaled, solved)
        coef = solved @ axes
        features = products @ axes
        if not uncorrelated:  # G T L V = G L V - alpha T L V: no pass over G
            products, features = features, features - self.alpha * coef
            if squared_norm(features) < KEPT * squared_norm(products):
                features = self.gram @ coef  # most digits would cancel
        return Subspace(coef, features, values, scaled)

    def _rounding(self, solved: Array, uncorrelated: bool) -> float:
        """Size of an eigenvalue, relative to the largest, that says nothing."""
        rounding = 8.0 * float(np.sqrt(solved.shape[0])) * eps(solved)
        if not uncorrelated:
            return rounding
        # Where G has nothing, its own rounding is divided by alpha.
        flat = namespace(self.gram).reshape(self.gram, (-1,))
        return min(rounding * (1.0 + float(flat @ flat) ** 0.5 / self.alpha), NOISE)


def leading_axes(matrix: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (r,) above rounding, the largest first, and eigenvectors (k, r).

    The sign of a vector makes its largest entry positive, the first if some tie.
    """
    matrix = matrix.astype(np.float64)
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    values, vectors = np.flip(values).copy(), np.flip(vectors, axis=1).copy()
    rank = int(np.sum(values > rounding * max(values[0], 0.0)))
    if rank == 0:
        raise ValueError(
            "the kernel does not depend on the labels at all: G L is zero; check that "
            "the rows differ and that kernel and labels belong together"
        )
    values, vectors = values[:rank], vectors[:, :rank]
    return values, vectors * column_signs(vectors)


def decorrelated(subspace: Subspace, target: Array) -> Subspace:
    """The same subspace kernel F F' from features that are uncorrelated exactly.

    With ``alpha > 0`` the constraint of Eq. 19 leaves ``F'F = I - alpha Q'GQ``, which
    is not diagonal. An orthogonal rotation makes it so and keeps both the constraint
    and F F'. Features come in the order of their dependence on the labels.
    """
    features = subspace.features
    covariance = to_numpy(features.T @ features).astype(np.float64)
    rotation = np.linalg.eigh(covariance)[1]
    return _rotated(subspace.coef, features, target, rotation)


def normalized(kernel: RegularizedKernel, coef: Array, target: Array) -> Subspace:
    """The subspace that any ``coef`` (n, l) spans, with ``W' (G + alpha I) W = I``.

    The kernel of Eq. 6 depends on the span only. Its features are those whose
    dependences on the labels are as unequal as can be, as in Theorem 3.1.
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
    """Features times ``rotation`` (l, l), ordered by dependence, with fixed signs."""
    overlap = to_numpy(target.T @ features).astype(np.float64) @ rotation  # (k, l)
    dependence = np.sum(overlap**2, axis=0)
    order = np.argsort(-dependence, kind="stable")
    axes = from_numpy((rotation * column_signs(overlap))[:, order], coef)
    return Subspace(coef @ axes, features @ axes, dependence[order])

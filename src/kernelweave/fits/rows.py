"""How much each row counts, and which rows are left out together.

With row weights w of sum N, ``P = I - 1 w'/N`` and ``D = diag(sqrt(w))``, the weighted
problem (whole-number weights are repeated rows)::

    G = P K P',   H = P Y,   M = G + alpha diag(1/w),   J = tr(H' M^-1 H)

is the problem of unweighted rows for ``G~ = D G D`` and ``H~ = D H``, since
``M~ = G~ + alpha I = D M D``. The coefficients are ``B = M^-1 H = D B~``, and the null
vector of ``G~`` is ``sqrt(w)`` instead of the ones.

The model fitted, and re-centred, without a set S of rows misses their targets by::

    e_S = (A_SS)^-1 B_S,    A = M^-1 - w w'/(N alpha) = D A~ D

so that ``D e_S = (A~_SS)^-1 B~_S``. A row is always left out with all of its weight: a
weight of ten does not mean ten independent observations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelweave._array import Array, as_float, from_numpy, namespace, to_numpy
from kernelweave._memory import row_chunks

__all__ = ["RowDesign"]


@dataclass(frozen=True)
class RowDesign:
    """Weights and groups of n rows.

    Attributes
    ----------
    n_rows : int
        n.
    weights : ndarray of shape (n,) or None
        w > 0; None if every row counts once.
    groups : ndarray of int of shape (n,) or None
        Codes 0 .. g - 1 of sets of rows that are left out together; None if rows are
        left out one at a time.
    """

    n_rows: int
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None

    @property
    def is_plain(self) -> bool:
        """Whether every row counts once and is left out by itself."""
        return self.weights is None and self.groups is None

    @cached_property
    def total(self) -> float:
        """N."""
        return float(self.n_rows if self.weights is None else np.sum(self.weights))

    @cached_property
    def each(self) -> np.ndarray:
        """w, (n,), ones if every row counts once."""
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The rows of each group, as arrays of indices."""
        if self.groups is None:
            return [np.array([i]) for i in range(self.n_rows)]
        order = np.argsort(self.groups, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.groups))[:-1])

    def restrict(self, rows: np.ndarray) -> RowDesign:
        """Weights and groups of some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        groups = None
        if self.groups is not None:
            groups = np.unique(self.groups[rows], return_inverse=True)[1]
        return RowDesign(len(rows), weights, groups)

    def root(self, like: Array) -> Array:
        """``sqrt(w)``, (n, 1), in the library of ``like``."""
        return from_numpy(np.sqrt(self.each)[:, None], like)

    def scale(self, rows: Array) -> Array:
        """``D rows``, for one row per sample."""
        return rows if self.weights is None else rows * self.root(rows)

    def unscale(self, rows: Array) -> Array:
        """``D^-1 rows``."""
        return rows if self.weights is None else rows / self.root(rows)

    def add_null(self, gram: Array, size: float) -> None:
        """Add ``size`` times the projector onto the null vector of ``G~``, in place."""
        if self.weights is None:
            gram += size / self.n_rows
        else:
            root = self.root(gram)
            gram += (size / self.total) * root @ root.T

    def mean_squares(self, residual: Array) -> np.ndarray:
        """``sum_i w_i e_ij^2 / N`` of each column of residuals e (n, k), (k,)."""
        scaled, xp = self.scale(residual), namespace(residual)
        return to_numpy(xp.sum(scaled * scaled, axis=0)).astype(float) / self.total

    def mean_square(self, residual: Array) -> float:
        """``sum_ij w_i e_ij^2 / (N k)`` of residuals e (n, k)."""
        return float(np.mean(self.mean_squares(residual)))

    def solve_left_out(
        self, coef: Array, factor: Array, shrink: Array | None = None, null: float = 0.0
    ) -> Array:
        """``(A~_SS)^-1 B~_S`` for every group S, (n, k).

        Parameters
        ----------
        coef : array of shape (n, k)
            B~.
        factor : array of shape (n, r)
            F in ``A~ = F diag(shrink) F' - null sqrt(w) sqrt(w)'``.
        shrink : array of shape (r,), optional
            Ones by default.
        null : float, default=0.0
            Part of the null vector in F.
        """
        xp, k = namespace(coef), coef.shape[1]
        solved, order = [], []
        sizes = np.array([len(rows) for rows in self.members])
        for s in (int(size) for size in np.unique(sizes)):
            alike = np.stack([rows for rows in self.members if len(rows) == s])
            for part in row_chunks(len(alike), s * self.n_rows):
                rows = alike[part].reshape(-1)
                index = from_numpy(rows, coef, xp.int64)
                left = xp.reshape(
                    xp.take(factor, index, axis=0), (-1, s, factor.shape[1])
                )
                scaled = left if shrink is None else left * shrink
                root = from_numpy(np.sqrt(self.each[alike[part]])[:, :, None], coef)
                block = scaled @ xp.matrix_transpose(left)
                block = block - null * root @ xp.matrix_transpose(root)
                right = xp.reshape(xp.take(coef, index, axis=0), (-1, s, k))
                solved.append(xp.reshape(xp.linalg.solve(block, right), (-1, k)))
                order.append(rows)
        back = from_numpy(np.argsort(np.concatenate(order)), coef, xp.int64)
        return xp.take(xp.concat(solved), back, axis=0)

    def held_out(self, target: Array, residual: Array) -> Array:
        """Projections (n, k) by the models fitted without each row or its group.

        The intercept of such a model is the mean of the other rows' targets, which for
        targets of mean zero is ``-sum_S w t / (N - w_S)``: left in, it would reveal the
        labels of the rows left out, with the wrong sign.
        """
        weights = self.each[:, None]
        if self.groups is None:
            sums, left = target * from_numpy(weights, target), weights
        else:
            codes = from_numpy(np.eye(len(self.members))[self.groups], target)
            share = codes.T @ (target * from_numpy(weights, target))
            sums = codes @ share
            left = np.bincount(self.groups, weights[:, 0])[self.groups][:, None]
        others = from_numpy(self.total - left, target)
        return target + sums / as_float(others, target.dtype) - residual

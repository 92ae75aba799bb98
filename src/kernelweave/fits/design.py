"""How much each row counts, and which rows are left out together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernelweave._array import (
    Array,
    from_numpy,
    namespace,
    row_chunks,
    take,
    to_numpy,
)


@dataclass(frozen=True)
class RowDesign:
    """How much each of n rows counts, and which rows are left out together.

    With row weights w of sum N, ``P = I - 1 w'/N`` and ``D = diag(sqrt(w))``, the
    weighted problem (whole-number weights are repeated rows)::

        G = P K P',   H = P Y,   M = G + alpha diag(1/w),   J = tr(H' M^-1 H)

    is the problem of unweighted rows for ``G~ = D G D`` and ``H~ = D H``, since
    ``M~ = G~ + alpha I = D M D``. The coefficients are ``B = M^-1 H = D B~``, and the
    null vector of ``G~`` is ``sqrt(w)`` instead of the ones.

    The model fitted, and re-centred, without a set S of rows misses their targets by::

        e_S = (A_SS)^-1 B_S,    A = M^-1 - w w'/(N alpha) = D A~ D

    so that ``D e_S = (A~_SS)^-1 B~_S``. A row is always left out with all of its
    weight: a weight of ten does not mean ten independent observations.

    Attributes
    ----------
    n_rows : int
        n.
    weights : ndarray of shape (n,) or None
        w > 0; None if every row counts once.
    groups : ndarray of int of shape (n,) or None
        Codes 0 .. g - 1 of sets of rows that are left out together; None if rows are
        left out one at a time.
    level : float
        The mean eigenvalue of the kernels between unweighted rows, 1 if they have trace
        n.
    ranks : ndarray of int of shape (n,) or None
        Ranks of the rows by their contents, which are the same in any order of the
        rows; None for the order in which they are.
    kept : ndarray of bool of shape (N,) or None
        Which of N rows passed to a fit are the n rows; None for all.
    """

    n_rows: int
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None
    level: float = 1.0
    ranks: np.ndarray | None = None
    kept: np.ndarray | None = None

    @property
    def is_plain(self) -> bool:
        """Whether every row counts once and is left out on its own."""
        return self.weights is None and self.groups is None

    @cached_property
    def total(self) -> float:
        """N."""
        return float(self.n_rows if self.weights is None else np.sum(self.weights))

    @property
    def shift(self) -> float:
        """The shift of the zero eigenvalue of ``G~``: the mean of all others."""
        return self.level * self.total / self.n_rows

    @cached_property
    def each(self) -> np.ndarray:
        """w, (n,), ones if every row counts once."""
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @cached_property
    def units(self) -> np.ndarray:
        """The group of each row, (n,); by default every row is a group of its own."""
        return np.arange(self.n_rows) if self.groups is None else self.groups

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The rows of each group, as arrays of indices."""
        order = np.argsort(self.units, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.units))[:-1])

    @cached_property
    def large_groups(self) -> np.ndarray:
        """Whether each group has more than a third of the rows, (g,): at most two do.

        What they miss takes less time from the model of the other rows, C, than from
        A_SS. With ``u = sqrt(w)``, and M~ with any multiple of ``u u'``::

            M~_CC b + u_C c = H~_C,  u_C'b = 0,   D e_S = H~_S - M~_SC b - u_S c
        """
        sizes = np.array([len(rows) for rows in self.members])
        return (3 * sizes > self.n_rows) & (sizes > 1)

    def others(self, rows: np.ndarray) -> np.ndarray:
        """All rows but these."""
        return np.setdiff1d(np.arange(self.n_rows), rows)

    @cached_property
    def places(self) -> np.ndarray:
        """The place of each row among all rows in the order of their contents, (n,)."""
        if self.ranks is None:
            return np.arange(self.n_rows)
        return np.argsort(np.argsort(self.ranks, kind="stable"))

    @cached_property
    def places_of_units(self) -> np.ndarray:
        """The place of each row's group among all groups, by contents, (n,)."""
        if self.ranks is None or self.groups is None:
            return self.units if self.ranks is None else self.places
        contents = [sorted(self.ranks[rows].tolist()) for rows in self.members]
        order = sorted(range(len(contents)), key=contents.__getitem__)
        return np.argsort(order)[self.units]

    def restrict(self, rows: np.ndarray) -> RowDesign:
        """Weights, groups and ranks of some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        groups = None
        if self.groups is not None:
            groups = np.unique(self.groups[rows], return_inverse=True)[1]
        ranks = None if self.ranks is None else self.ranks[rows]
        return RowDesign(len(rows), weights, groups, self.level, ranks)

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
        self,
        groups: list[np.ndarray],
        coef: Array,
        factor: Array,
        shrink: Array | None = None,
        null: float = 0.0,
    ) -> tuple[LeftOut, np.ndarray]:
        """``(A~_SS)^-1 B~_S`` for some groups S, and the sums of A_SS, (g,).

        Parameters
        ----------
        groups : list of ndarray of int
            The rows of each of these groups.
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
        solved, sizes = LeftOut([], []), np.array([len(rows) for rows in groups], int)
        sums = np.empty(len(groups))
        for s in np.unique(sizes):
            places = np.flatnonzero(sizes == s)
            same_size = np.stack([groups[i] for i in places])
            for part in row_chunks(len(same_size), int(s) * self.n_rows):
                rows = same_size[part].reshape(-1)
                index = from_numpy(rows, coef, xp.int64)
                left = xp.reshape(
                    xp.take(factor, index, axis=0), (-1, int(s), factor.shape[1])
                )
                scaled = left if shrink is None else left * shrink
                root = from_numpy(np.sqrt(self.each[same_size[part]])[:, :, None], coef)
                block = scaled @ xp.matrix_transpose(left)
                block = block - null * root @ xp.matrix_transpose(root)
                total = xp.matrix_transpose(root) @ block @ root
                sums[places[part]] = to_numpy(total)[:, 0, 0]
                right = xp.reshape(xp.take(coef, index, axis=0), (-1, int(s), k))
                solution = xp.reshape(xp.linalg.solve(block, right), (-1, k))
                solved.add(rows, solution)
        return solved, sums

    def sums_of_units(self, rows: np.ndarray) -> np.ndarray:
        """Sums (g, k) over the rows (n, k) of each group."""
        sums = np.zeros((int(np.max(self.units)) + 1, rows.shape[1]))
        np.add.at(sums, self.units, rows)
        return sums


class LeftOut(NamedTuple):
    """``D e`` of some rows after others, (m, ...) each."""

    rows: list[np.ndarray]
    values: list[Array]

    def add(self, rows: np.ndarray, values: Array) -> None:
        """Values of further rows."""
        self.rows.append(rows)
        self.values.append(values)

    def in_order(self) -> Array:
        """The values of all rows, (n, ...), in the order of the rows."""
        back = np.argsort(np.concatenate(self.rows))
        return take(namespace(*self.values).concat(self.values), back)

"""Targets, weights of rows, discriminants on one kernel, leave-one-out errors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kernelweave._array import (
    Array,
    FactorizationError,
    add_to_diagonal,
    as_float,
    as_floats,
    block_entries,
    cholesky,
    column_means,
    eigh,
    eps,
    from_numpy,
    inverse_diagonal,
    inverse_squares,
    lower_inverse,
    namespace,
    row_chunks,
    solve_factored,
    squared_norm,
    take,
    to_numpy,
    units_of,
)
from kernelweave._tolerances import NEXT_TO_ZERO, ROUNDING_UNITS, SAME_SCORE


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
    def is_large(self) -> np.ndarray:
        """Which groups hold more than a third of the rows, (g,): at most two.

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
            alike = np.stack([groups[i] for i in places])
            for part in row_chunks(len(alike), int(s) * self.n_rows):
                rows = alike[part].reshape(-1)
                index = from_numpy(rows, coef, xp.int64)
                left = xp.reshape(
                    xp.take(factor, index, axis=0), (-1, int(s), factor.shape[1])
                )
                scaled = left if shrink is None else left * shrink
                root = from_numpy(np.sqrt(self.each[alike[part]])[:, :, None], coef)
                block = scaled @ xp.matrix_transpose(left)
                block = block - null * root @ xp.matrix_transpose(root)
                total = xp.matrix_transpose(root) @ block @ root
                sums[places[part]] = to_numpy(total)[:, 0, 0]
                right = xp.reshape(xp.take(coef, index, axis=0), (-1, int(s), k))
                solution = xp.reshape(xp.linalg.solve(block, right), (-1, k))
                solved.add(rows, solution)
        return solved, sums

    def held_out(self, target: Array, fit: KernelFit) -> Array:
        """Projections (n, k) by the models fitted without each row or its group.

        The intercept of such a model is the mean of the other rows' targets, which for
        targets of mean zero is ``-sum_S w t / (N - w_S)``: left in, it would reveal the
        labels of the rows left out, with the wrong sign.

        Without S, the held-out projections of all other rows move too. They are what S
        is compared with, so this reveals its labels as well, where rows count
        differently from their weights. With ``a_T = 1'A_TT 1``, and to first order,
        predictions for the groups T move by ``-1'B_S / sum_T a_T`` on average, and
        intercepts by the same with the A of a kernel that is zero, ``w_T (1 - w_T/N)``
        in place of a_T and ``w t`` in place of B: the difference is subtracted. If no
        two rows have anything in common, all projections are then equal.

        Where all g groups count equally, this would multiply every projection by
        ``(g - 2) / (g - 1)``. The projections of new rows, which leave nothing out, are
        compared with these, so that factor is undone.
        """
        counts = np.bincount(self.units, self.each)[:, None]
        others = _sums_of_others(counts)
        blank = _sums_of_others(counts * others / self.total)
        sums = self._per_unit(self.each[:, None] * to_numpy(target))
        level = sums / others - sums / blank
        level += self._per_unit(to_numpy(fit.coef)) / _sums_of_others(fit.precision)
        found = target + from_numpy(level[self.units], target) - fit.loo_residual
        return found * undone_shrinkage(len(counts))

    def _per_unit(self, rows: np.ndarray) -> np.ndarray:
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


def undone_shrinkage(n_units: int) -> float:
    """``(g - 1) / (g - 2)`` for g groups, see :meth:`RowDesign.held_out`."""
    return (n_units - 1.0) / max(n_units - 2.0, 1.0)


def _sums_of_others(sizes: np.ndarray) -> np.ndarray:
    """``sum_T a_T`` over all T but S, for each S, of positive numbers a (g, m).

    A difference would be zero next to one that exceeds all others.
    """
    before = np.cumsum(sizes, axis=0)[:-1]
    after = np.cumsum(sizes[::-1], axis=0)[-2::-1]
    return np.pad(before, ((1, 0), (0, 0))) + np.pad(after, ((0, 1), (0, 0)))


#: Largest output allowed, relative to the largest float: predictions are sums of them.
OUTPUT_ROOM = 1e-6


def binary_target(codes: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """``a_i = 1/m+`` in the positive class and ``-1/m-`` in the other, (n, 1).

    Ye et al. (2007), Eq. 8. Class 1, the second in sorted order, is the positive one,
    as in scikit-learn, so the sign of a projection is that of a decision function.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        0 or 1 for each sample.
    weights : ndarray of shape (n,), optional
        Row weights; m+ and m- are then sums of weights.
    """
    codes = checked_codes(codes, 2)
    counts = np.bincount(codes, weights, minlength=2)
    return np.where(codes == 1, 1.0 / counts[1], -1.0 / counts[0])[:, None]


def class_target(
    codes: np.ndarray, n_classes: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """``H = E diag(q)^-1 - 1 q'`` with ``q_c = sqrt(n_c / n)``, (n, k).

    Ye et al. (2007), Eq. 25, with the class size of the column in every entry (the
    printed index is the sample's). E is the class indicator matrix. H satisfies
    ``1'H = 0``, ``H q = 0`` and ``H'H = n (I - q q')``. With row weights w of sum N,
    ``q_c^2`` is a share of the weight, ``w'H = 0`` and ``H' diag(w) H = N (I - q q')``.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Classes 0 .. k - 1, each of which must occur.
    n_classes : int
        k.
    weights : ndarray of shape (n,), optional
        Row weights.
    """
    codes = checked_codes(codes, n_classes)
    q = _root_shares(np.bincount(codes, weights))
    return (np.diag(1.0 / q) - q)[codes]


def reduced_class_target(
    codes: np.ndarray, n_classes: int, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """``H V`` (n, k - 1) and V (k, k - 1), an orthonormal basis of the complement of q.

    Since ``H q = 0``, nothing is lost: ``tr(V'H' M^-1 H V) = tr(H' M^-1 H)`` for every
    M, and ``H = (H V) V'``. Every product has one column fewer.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Classes 0 .. k - 1, each of which must occur.
    n_classes : int
        k.
    weights : ndarray of shape (n,), optional
        Row weights.
    """
    codes = checked_codes(codes, n_classes)
    coding, rotation = class_coding(np.bincount(codes, weights))
    return coding[codes], rotation


def class_coding(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row of ``H V`` of each class (k, k - 1), and V; ``counts`` (k,) make q.

    Since ``q'V = 0`` it is ``diag(q)^-1 V``.
    """
    q = _root_shares(counts)
    rotation = normal_basis(q)
    return rotation / q[:, None], rotation


def _root_shares(counts: np.ndarray) -> np.ndarray:
    """``q_c``, the root of the share of class c, (k,)."""
    return np.sqrt(counts / np.sum(counts))


def normal_basis(q: np.ndarray) -> np.ndarray:
    """An orthonormal basis (k, k - 1) of the complement of a unit vector q >= 0 (k,).

    The reflection ``I - u u'/u_1`` with ``u = e_1 + q`` maps e_1 to -q, so its other
    columns are orthogonal to q. Unlike an eigendecomposition, it fixes the signs.
    """
    u = q.copy()
    u[0] += 1.0
    return (np.eye(len(q)) - np.outer(u, u) / u[0])[:, 1:]


def checked_target(target: Array, n: int) -> Array:
    """``target`` (n, k), or an error if it has another shape, or is not finite."""
    target = as_floats(target, "the target")
    if target.ndim != 2 or target.shape[0] != n:
        raise ValueError(
            f"the target must have the shape ({n}, k) with one row per sample; got "
            f"{tuple(target.shape)}"
        )
    finite = namespace(target).isfinite(target)
    if not namespace(target).all(finite):
        i, j = np.argwhere(~to_numpy(finite))[0]
        raise ValueError(
            "the target contains NaN or infinite values; the first is "
            f"{float(target[int(i), int(j)])} in row {i}, column {j}"
        )
    return target


def checked_codes(
    codes: np.ndarray, n_classes: int | None = None, n: int | None = None
) -> np.ndarray:
    """``codes`` (n,), or an error if they are not all of 0 .. k - 1, and only these.

    Without ``n_classes``, k is the number of different ones.
    """
    codes = np.asarray(codes)
    if n is not None and codes.shape != (n,):
        raise ValueError(
            f"class codes must be a vector of {n} integers, one per sample; got the "
            f"shape {codes.shape}"
        )
    k = len(np.unique(codes)) if n_classes is None else n_classes
    if k < 2:
        raise ValueError(f"a target needs at least 2 classes, got {k}")
    integers = codes.ndim == 1 and np.issubdtype(codes.dtype, np.integer)
    if not (integers and np.array_equal(np.unique(codes), np.arange(k))):
        raise ValueError(
            f"class codes must be a vector of all integers from 0 to {k - 1}, "
            f"got {np.unique(codes)!r:.60} in the shape {codes.shape}; "
            "numpy.unique(y, return_inverse=True) makes such codes"
        )
    return codes


def checked_signs(
    signs: Array, n: int, name: str = "signs", ndim: int = 2, zeros: bool = False
) -> np.ndarray:
    """The signs +1 and -1 as float64, (n,) or (n, k), or an error with their ``name``.

    With ``zeros``, rows without a label may have 0.
    """
    values = to_numpy(as_floats(signs, f"the {name}")).astype(np.float64)
    shape = values.shape
    if len(shape) != ndim or shape[0] != n or 0 in shape:
        needed = f"({n},) with one entry" if ndim == 1 else f"({n}, k) with one row"
        raise ValueError(f"{name} must have the shape {needed} per sample; got {shape}")
    wrong = ~np.isin(values, (-1.0, 0.0, 1.0) if zeros else (-1.0, 1.0))
    if np.any(wrong):
        i, *column = np.argwhere(wrong)[0]
        place = f"row {i}" + "".join(f", column {c}" for c in column)
        allowed = "+1, -1 or 0 (no label)" if zeros else "+1 or -1"
        raise ValueError(
            f"{name} must be {allowed}; {place} has {float(values[(i, *column)])}"
        )
    return values


def require_both_signs(signs: np.ndarray, name: str = "signs") -> None:
    """Refuse a column of ``signs`` (n,) or (n, k) without both +1 and -1."""
    for c, column in enumerate(signs.reshape(len(signs), -1).T):
        plus, minus = int(np.sum(column > 0)), int(np.sum(column < 0))
        if plus == 0 or minus == 0:
            place = f"column {c} of the {name}" if signs.ndim > 1 else f"the {name}"
            raise ValueError(
                f"{place} must have rows of both classes; got {plus} of +1 and "
                f"{minus} of -1"
            )


def signs_of_codes(codes: np.ndarray, k: int) -> np.ndarray:
    """+1 and -1: (n, 1) for two classes, else each class against the rest, (n, k).

    Negative codes mark unlabelled rows, whose signs are 0.
    """
    classes = np.arange(k)[None, :] if k > 2 else np.array([[1]])
    signs = np.where(codes[:, None] == classes, 1.0, -1.0)
    return np.where(codes[:, None] < 0, 0.0, signs)


def output_frame(outputs: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and unit (t,) of each output: in these units, squares do not overflow.

    The unit is 1 for deviations of ordinary size, otherwise the next larger power of 2.

    Parameters
    ----------
    outputs : ndarray of shape (n, t)
        Regression outputs in float64.
    dtype : numpy.dtype
        Floating dtype of the predictions, which must be able to hold them.
    """
    limits = np.finfo(dtype)
    limit = float(limits.max) * OUTPUT_ROOM
    if np.max(np.abs(outputs), initial=0.0) > limit:
        i, j = (int(index) for index in np.argwhere(np.abs(outputs) > limit)[0])
        column = f", column {j}" if outputs.shape[1] > 1 else ""
        advice = ", or pass X in float64" if limits.bits == 32 else ""
        raise ValueError(
            f"y holds {outputs[i, j]:.3g} in row {i}{column}, but predictions in "
            f"{np.dtype(dtype)} must stay below {limit:.1g}. Divide y by a constant"
            f"{advice}."
        )
    mean = column_means(outputs)
    return mean, units_of(np.max(np.abs(outputs - mean), axis=0), limits.bits)


#: An output whose deviation is below this, relative to its largest entry, is constant.
CONSTANT_DEVIATION = 1e-14


class StandardOutputs(NamedTuple):
    """Outputs of mean zero and variance one, and how to undo that."""

    target: np.ndarray  # (n, t), zero where an output is constant
    mean: np.ndarray  # (t,)
    unit: np.ndarray  # (t,)

    @classmethod
    def of(
        cls,
        outputs: np.ndarray,
        weights: np.ndarray | None = None,
        dtype: Any = np.float64,
    ) -> StandardOutputs:
        """Outputs (n, t) of any size in this form, for rows of these weights (n,)."""
        mean, unit = output_frame(outputs, dtype)
        centred = (outputs - mean) / unit
        shift = np.average(centred, axis=0, weights=weights)
        centred, mean = centred - shift, mean + shift * unit
        spread = np.sqrt(np.average(centred**2, axis=0, weights=weights))
        varies = spread > CONSTANT_DEVIATION * np.max(np.abs(outputs / unit), axis=0)
        spread = np.where(varies, spread, 1.0)
        return cls(np.where(varies, centred, 0.0) / spread, mean, spread * unit)

    @property
    def varies(self) -> np.ndarray:
        """Which outputs vary by more than rounding, (t,)."""
        return np.any(self.target != 0, axis=0)


#: The alpha to recommend, in units of eps times the trace. Most kernels need less than
#: one; Gaussians so wide that centring cancels most digits needed up to 16.
ENOUGH = 20.0


def factor_regularized(matrix: Array, alpha: float, unit: float = 1.0) -> Array:
    """Cholesky factor of ``G + alpha I`` for G (n, n), which is overwritten.

    If the smallest eigenvalues of G are rounding errors, the sum is positive definite
    only if alpha exceeds them.

    Parameters
    ----------
    matrix : array of shape (n, n)
        G; its memory is reused.
    alpha : float
        The value added to the diagonal.
    unit : float, default=1.0
        The factor by which the user's alpha was multiplied.

    Raises
    ------
    FactorizationError
        If alpha is too small; the message names one that should be large enough.
    """
    xp = namespace(matrix)
    precision = xp.finfo(matrix.dtype)
    add_to_diagonal(matrix, alpha)
    trace = float(xp.sum(xp.linalg.diagonal(matrix)))
    if not math.isfinite(trace):
        raise FactorizationError(
            "the weighted sum of kernels contains NaN or infinite values; check the "
            "kernels, and rescale data whose squares overflow"
        )
    try:
        factor = cholesky(matrix, overwrite=True)
        pivot = float(xp.min(xp.linalg.diagonal(factor)))
        if pivot**2 < trace * math.sqrt(float(precision.smallest_normal)):
            raise FactorizationError("squares of the inverse overflow")
    except FactorizationError as error:
        usual = ENOUGH * float(precision.eps) * trace
        enough, cause = max(usual, 10.0 * alpha) / unit, "rounding leaves"
        if alpha > abs(usual):
            cause = "kernels with negative eigenvalues, or with lost digits, leave"
        advice = ", or float64 input" if precision.bits == 32 else ""
        raise FactorizationError(
            f"alpha={alpha / unit:.3g} is too small for kernels in float"
            f"{precision.bits}: {cause} G + alpha I not positive definite; "
            f"use alpha >= {enough:.1g}{advice}"
        ) from error
    return factor


@dataclass(frozen=True)
class KernelFit:
    """``B = M^-1 H``, and the residual of each row in the model fitted without it.

    Attributes
    ----------
    coef : array of shape (n, k)
        B; new rows project to ``G(x) B``.
    loo_residual : array of shape (n, k)
        Target minus the prediction of the model fitted, and re-centred, without row i
        or its group.
    precision : ndarray of shape (g, 1) or (g, k)
        ``1'A_SS 1`` of each group S, see :class:`RowDesign`; one column per column of
        the target if each has its own alpha.
    """

    coef: Array
    loo_residual: Array
    precision: np.ndarray

    def steepness(self, target: Array) -> float:
        """How much predictions of a target (n, k) change with kernel values."""
        return steepness_of(self.coef, target - self.loo_residual)


def steepness_of(coef: Array, values: Array) -> float:
    """``max_c |b_c|`` for coefficients (n, k), relative to the largest of ``values``.

    If kernel values are wrong by e, functions are wrong by ``e |b|`` or so, as errors
    are of either sign.
    """
    xp = namespace(coef)
    largest = float(xp.max(xp.abs(values)))
    norm = float(xp.max(xp.sum(coef * coef, axis=0))) ** 0.5
    return norm / largest if largest > 0 else 0.0


def fit_kernel(
    gram: Array, target: Array, alpha: float, design: RowDesign | None = None
) -> KernelFit:
    """Fit the centred kernel ``gram`` (n, n) of trace N; its memory is reused.

    ``q_i = (M^-1)_ii - 1/(n (alpha + t))`` with ``M = G + alpha I + t 11'/n`` is the
    inverse variance of row i given the others when kernel and target are re-centred
    without it; omitting the last term would leak the label. The residual is
    ``B_i / q_i``; :class:`RowDesign` has the formulas for weights and groups.
    """
    design = design or RowDesign(int(gram.shape[0]))
    shift = design.shift
    design.add_null(gram, shift)
    return fit_factored(factor_regularized(gram, alpha), target, alpha + shift, design)


def fit_factored(
    factor: Array, target: Array, level: float, design: RowDesign, unit: float = 1.0
) -> KernelFit:
    """:func:`fit_kernel` from the Cholesky factor of ``M / unit``, where it is known.

    ``level`` is the eigenvalue of ``M / unit`` that belongs to the null vector.
    """
    coef = solve_factored(factor, design.scale(target))
    null = 1.0 / (design.total * level)
    if design.groups is None:
        weights = design.root(coef) ** 2
        precision = inverse_diagonal(factor)[:, None] - null * weights
        residual, sums = coef / precision, to_numpy(precision * weights)
    else:
        residual, sums = _left_out_groups(coef, factor, target, null, design)
    coef, residual = design.scale(coef) / unit, design.unscale(residual)
    return KernelFit(coef, residual, sums.astype(np.float64) / unit)


def _left_out_groups(
    coef: Array, factor: Array, target: Array, null: float, design: RowDesign
) -> tuple[Array, np.ndarray]:
    """``D e`` (n, k) of every group and the sums of A_SS (g, 1), from a factor of M~.

    ``null`` is the part of the null vector in the inverse of M~.
    """
    inverse, sums = lower_inverse(factor).T, np.empty((len(design.members), 1))
    small = [design.members[g] for g in np.flatnonzero(~design.is_large)]
    residual, sums[~design.is_large, 0] = design.solve_left_out(
        small, coef, inverse, null=null
    )
    for g in np.flatnonzero(design.is_large):
        rows = design.members[g]
        root = take(design.root(coef), rows)
        half = take(inverse, rows).T @ root
        sums[g] = squared_norm(half) - null * squared_norm(root) ** 2
        residual.add(rows, _missed_by_others(factor, target, rows, design))
    return residual.in_order(), sums


def _missed_by_others(
    factor: Array, target: Array, rows: np.ndarray, design: RowDesign
) -> Array:
    """``D e_S`` (s, k) of a large group, see :attr:`RowDesign.is_large`."""
    xp, others = namespace(factor), design.others(rows)
    # Above its diagonal the factor is undefined; float32 would lose digits twice.
    lower = as_float(xp.triu(factor.T).T, xp.float64)
    scaled = as_float(design.scale(target), xp.float64)
    root, rest = design.root(lower), take(lower, others)
    right = xp.concat([take(scaled, others), take(root, others)], axis=1)
    solved = xp.linalg.solve(rest @ rest.T, right)
    along = xp.sum(solved * take(root, others), axis=0)  # u'x of each column
    level = along[:-1] / along[-1]
    coef = solved[:, :-1] - solved[:, -1:] * level
    fitted = take(lower, rows) @ (rest.T @ coef) + take(root, rows) * level
    return as_float(take(scaled, rows) - fitted, factor.dtype)


def principal_axes(coef: Array, target: Array) -> Array:
    """The rotation of the target columns that orders projections by discrimination.

    The k x k matrix ``H' G M^-1 H = H' (H - alpha B)`` is the between-class scatter in
    units of the regularised total scatter (Ye et al. 2007, Eq. 29); its eigenvectors,
    largest eigenvalue first, are the rotation. The largest entry of each axis, or the
    first in a tie, is made positive.
    """
    explained = to_numpy(target.T @ coef).astype(np.float64)
    # ascending: a small H' M^-1 H means that the kernel explains the direction well
    vectors = np.linalg.eigh((explained + explained.T) / 2)[1]
    return from_numpy(vectors * column_signs(vectors), coef)


#: Relative difference below which two entries count as equally large.
EQUALLY_LARGE = 1e-6


def column_signs(columns: np.ndarray) -> np.ndarray:
    """The sign of the largest entry of each column; the first decides a tie."""
    size = np.abs(columns)
    first = np.argmax(size >= (1.0 - EQUALLY_LARGE) * np.max(size, axis=0), axis=0)
    return np.where(columns[first, np.arange(columns.shape[1])] < 0, -1.0, 1.0)


#: Alphas tried first, relative to the mean eigenvalue.
GRID = np.logspace(-6, 3, 46)
#: A chosen alpha up to this multiple of the smallest one tried counts as the smallest.
AT_FLOOR = 1.01


#: How often the grid is refined, and the points of each finer grid.
FINER_GRIDS, FINER_POINTS = 3, 9


def spectrum_bounds(gram: Array, n_rows: int) -> tuple[float, float]:
    """The mean of ``n_rows`` eigenvalues, and a number that none exceeds."""
    xp, n = namespace(gram), int(gram.shape[0])
    trace = float(xp.sum(xp.linalg.diagonal(gram)))
    parts = (gram[rows, :] for rows in row_chunks(n, n, block_entries(gram)))
    largest = sum(squared_norm(part) for part in parts) ** 0.5
    return trace / n_rows if trace > 0 else 1.0, largest or 1.0


class AlphaPath(ABC):
    """The error on held-out rows, as a function of alpha.

    Attributes
    ----------
    mean_eigenvalue : float
        Mean eigenvalue of the kernel, the unit of alpha.
    smallest_alpha : float
        Below this, rounding dominates the error.
    """

    mean_eigenvalue: float
    smallest_alpha: float

    @abstractmethod
    def errors(self, alphas: np.ndarray) -> np.ndarray:
        """Mean squared error of each target column, (a, k).

        ``alphas`` are (a, 1), shared by the columns, or (a, k), one for each of them.
        """

    def press(self, alphas: np.ndarray) -> np.ndarray:
        """Mean squared error for each of ``alphas`` (a,), (a,)."""
        alphas = np.asarray(alphas, dtype=np.float64)
        if alphas.ndim != 1 or not np.all(np.isfinite(alphas) & (alphas > 0)):
            raise ValueError(f"alphas must be a vector of numbers > 0, got {alphas!r}")
        return np.mean(self.errors(alphas[:, None]), axis=1)

    def best_of(self, alphas: np.ndarray) -> float:
        """Of ascending ``alphas`` (a,), the one with the smallest error."""
        return float(alphas[_last_best(self.press(alphas)[:, None])[0]])

    def best_alpha(self, per_target: bool = False) -> Any:
        """The alpha with the smallest error, or that of each of several columns, (k,).

        The minimum on a grid from 1e-6 to 1e3 times the mean eigenvalue (without values
        that the precision of the kernel cannot resolve) is refined between the
        neighbours of the best point.
        """

        def measure(alphas: np.ndarray) -> np.ndarray:
            errors = self.errors(alphas)
            return errors if per_target else np.mean(errors, axis=1, keepdims=True)

        grid = self.grid()
        found = _refined(grid, measure(grid[:, None]), measure)
        return found if len(found) > 1 else float(found[0])

    def grid(self) -> np.ndarray:
        """Alphas to try first, without those that rounding dominates."""
        grid = self.mean_eigenvalue * GRID
        return grid[grid > min(self.smallest_alpha, 0.5 * grid[-1])]

    def missed(self, alpha: float | np.ndarray) -> float:
        """Change of functions at smaller alphas that only rounding has excluded.

        It is relative to the target, by :func:`_change`.
        """
        grid = self.grid()
        if len(grid) == len(GRID) or np.min(alpha) >= AT_FLOOR * grid[0]:
            return 0.0
        errors = self.errors(grid[[0, 1, -1]][:, None])  # the last one is the target's
        fall = (errors[1] - errors[0]) / math.log(grid[1] / grid[0])
        at_floor = np.broadcast_to(alpha, fall.shape) < AT_FLOOR * grid[0]
        change = _change(fall[at_floor], errors[0][at_floor], np.mean(errors[2]))
        return float(np.max(change))


def _change(fall: Any, error: Any, size: float) -> Any:
    """Change of functions, where a mean squared error falls with log alpha.

    As it levels off, residuals r change by about ``c = dr / dlog(alpha)``, and
    ``fall = 2 r'c`` makes that at least ``fall / (2 |r|)``. This is twice as much,
    relative to a target of mean square ``size``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.maximum(fall / error, 0.0) * np.sqrt(error / size))


def _last_best(errors: np.ndarray) -> np.ndarray:
    """Where each column of ``errors`` (a, m), at ascending alphas, is smallest, (m,).

    Ties go to the strongest regularisation: for a constant kernel all are equal.
    """
    tied = errors <= (1 + SAME_SCORE) * np.min(errors, axis=0)
    return len(errors) - 1 - np.argmax(tied[::-1], axis=0)


def _refined(
    grid: np.ndarray,
    errors: np.ndarray,
    measure: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """The best alphas (m,) between grid points, by finer grids and a parabola.

    ``errors`` (a, m) are those at the points of ``grid`` (a,), and ``measure`` maps
    alphas (b, m), one per column, to their errors (b, m): several alphas take little
    more time than one. Every finer grid lies between the neighbours of the best point.
    In the end, the errors of three points leave an error of 1e-5 or so in log alpha.
    """
    columns, best = np.arange(errors.shape[1]), _last_best(errors)
    points, found = np.tile(np.log(grid)[:, None], len(columns)), errors
    start, lowest = grid[best], errors[best, columns]
    for _ in range(FINER_GRIDS):
        low = points[np.maximum(best - 1, 0), columns]
        high = points[np.minimum(best + 1, len(points) - 1), columns]
        points = np.linspace(low, high, FINER_POINTS)
        found = measure(np.exp(points))
        best = np.argmin(found, axis=0)
    better = found[best, columns] < (1 - SAME_SCORE) * lowest
    middle = np.clip(best, 1, len(points) - 2)
    left, centre, right = (found[middle + i, columns] for i in (-1, 0, 1))
    bend = left - 2.0 * centre + right
    inside = (middle == best) & (bend > 0.0)
    shift = np.where(inside, 0.5 * (left - right) / np.where(inside, bend, 1.0), 0.0)
    steps = shift * (points[1] - points[0])
    return np.where(better, np.exp(points[best, columns] + steps), start)


class LooPath(AlphaPath):
    """``LOO(alpha)`` for every alpha from one eigendecomposition of a kernel.

    For the centred kernel ``G = U diag(s) U'`` with ``U'1 = 0``, targets H and any
    alpha, with ``d = 1/(s + alpha)`` and ``z = U'H``::

        B = (G + alpha I)^-1 H = U (d * z),    q = (U * U) d,    e = B / q

    Row i of e is the error on sample i of the model fitted without it, with kernel and
    target re-centred on the others. The formula with ``q_i = ((G + alpha I)^-1)_ii``
    instead keeps the centring over all samples and so leaks the held-out label.

    Weights and groups of rows enter as in :class:`RowDesign`.

    Kernels in float32 are decomposed in float64: for a row of large leverage, both B
    and q are small differences, and eigenvectors in float32 have left residuals wrong
    by 0.1.

    Memory: the n x n kernel, which is overwritten, and the eigenvectors, plus two n x n
    arrays of workspace while they are computed.

    Parameters
    ----------
    gram : array of shape (n, n)
        Centred kernel; its memory is reused.
    target : array of shape (n, k)
        Columns of (weighted) mean zero.
    design : RowDesign, optional
        Weights and groups of the rows.
    """

    def __init__(
        self, gram: Array, target: Array, design: RowDesign | None = None
    ) -> None:
        xp, n = namespace(gram), int(gram.shape[0])
        if n < 2:
            raise ValueError(f"leave-one-out needs at least 2 samples, got {n}")
        self.n_samples, self.design = n, design or RowDesign(n)
        self.dtype, rounding = gram.dtype, eps(gram)
        gram = as_float(gram, xp.float64)
        self.mean_eigenvalue, largest = spectrum_bounds(gram, n)
        self.eigenvalues, self.vectors = _spectrum(gram, largest, self.design)
        target = self.design.scale(as_float(target, self.vectors.dtype))
        self.rotated = self.vectors.T @ target
        self.smallest_alpha = ROUNDING_UNITS * rounding * largest

    def coef(self, alpha: float | np.ndarray) -> Array:
        """``B = (G + alpha diag(1/w))^-1 H``, (n, k); one alpha, or one per column."""
        coef = self.vectors @ (self.rotated * self._shrink(alpha))
        return as_float(self.design.scale(coef), self.dtype)

    def fit(self, alpha: float | np.ndarray) -> KernelFit:
        """Coefficients and residuals; one alpha, or one per column."""
        left_out, sums = self._left_out(np.atleast_2d(alpha))
        residual = as_float(self.design.unscale(left_out[:, 0, :]), self.dtype)
        return KernelFit(self.coef(alpha), residual, sums[:, 0, :])

    def errors(self, alphas: np.ndarray) -> np.ndarray:
        """Mean squared leave-one-out error of each column, (a, k)."""
        found, size = [], self.n_samples * int(self.rotated.shape[1])
        # Several alphas share one product with the eigenvectors.
        for part in row_chunks(len(alphas), size):
            residual, _ = self._left_out(alphas[part])
            squares = namespace(residual).sum(residual * residual, axis=0)
            found.append(to_numpy(squares))
        return np.concatenate(found).astype(np.float64) / self.design.total

    def _shrink(self, alpha: float | np.ndarray) -> Array:
        """``d = 1/(s + alpha)``, (n - 1, ...), for alphas of any shape (...)."""
        return _shrinkage(self.eigenvalues, alpha)

    def _left_out(self, alphas: np.ndarray) -> tuple[Array, np.ndarray]:
        """``sqrt(w) e``, (n, a, k), for alphas (a, m), and the sums of A_SS, (g, a, m).

        m is 1, or k where every column has its own alpha.
        """
        design, shrink = self.design, self._shrink(alphas)
        coef = _combined(self.vectors, self.rotated, shrink)  # (n, a, k)
        if design.groups is None:
            precision = self._precision(shrink)
            return coef / precision, design.each[:, None, None] * to_numpy(precision)
        sums = np.empty((len(design.members), *alphas.shape))
        left_out = LeftOut([], [])
        sizes = np.array([len(rows) for rows in design.members])
        if np.any(sizes == 1):
            alone = np.concatenate([rows for rows in design.members if len(rows) == 1])
            precision = self._precision(shrink, alone)
            left_out.add(alone, take(coef, alone) / precision)
            weights = design.each[alone, None, None]
            sums[sizes == 1] = weights * to_numpy(precision)
        for g in np.flatnonzero(design.is_large):
            rows, xp = design.members[g], namespace(coef)
            left_out.add(rows, self._others[int(g)].missed(alphas))
            along = take(self.vectors, rows).T @ take(design.root(coef), rows)
            sums[g] = to_numpy(xp.sum(along[:, :, None] ** 2 * shrink, axis=0))
        several = np.flatnonzero((sizes > 1) & ~design.is_large)
        if len(several):
            found, sums[several] = self._blocks(several, coef, shrink)
            left_out.add(*found)
        return left_out.in_order(), sums

    def _blocks(
        self, groups: np.ndarray, coef: Array, shrink: Array
    ) -> tuple[tuple[np.ndarray, Array], np.ndarray]:
        """:meth:`_left_out` of the rows of some groups, from A_SS of each alpha."""
        members, xp = [self.design.members[g] for g in groups], namespace(coef)
        a, m = (int(size) for size in shrink.shape[1:])
        sums, by_alpha = np.empty((len(groups), a, m)), []
        for i in range(a):
            columns = []
            for j in range(m):
                part = coef[:, i, j : j + 1] if m > 1 else coef[:, i, :]
                solved, sums[:, i, j] = self.design.solve_left_out(
                    members, part, self.vectors, shrink[:, i, j]
                )
                columns.append(xp.concat(solved.values))
            by_alpha.append(xp.concat(columns, axis=1))
        return (np.concatenate(solved.rows), xp.stack(by_alpha, axis=1)), sums

    @cached_property
    def _others(self) -> dict[int, _OthersPath]:
        """What predicts each large group."""
        return {
            int(g): _OthersPath(self, self.design.members[g])
            for g in np.flatnonzero(self.design.is_large)
        }

    def _precision(self, shrink: Array, rows: np.ndarray | None = None) -> Array:
        """``(U * U) d`` of some rows for d (n - 1, ...), squaring a block at a time."""
        xp = namespace(shrink)
        vectors = self.vectors if rows is None else take(self.vectors, rows)
        n = vectors.shape[0]
        flat = xp.reshape(shrink, (shrink.shape[0], -1))
        blocks = row_chunks(n, self.n_samples)
        parts = [vectors[block, :] ** 2 @ flat for block in blocks]
        return xp.reshape(xp.concat(parts), (n, *shrink.shape[1:]))


def _spectrum(gram: Array, largest: float, design: RowDesign) -> tuple[Array, Array]:
    """Eigenvalues >= 0 (n - 1,) and eigenvectors (n, n - 1) of G~, but the null vector.

    No eigenvalue exceeds ``largest``; the memory of ``gram`` is reused.
    """
    # This shift makes the null vector the last eigenvector, which is dropped.
    design.add_null(gram, 2.0 * largest)
    values, vectors = eigh(gram)
    values, xp = values[:-1], namespace(gram)
    return xp.maximum(values, xp.zeros_like(values)), vectors[:, :-1]


def _shrinkage(values: Array, alpha: float | np.ndarray) -> Array:
    """``1/(s + alpha)``, (r, ...), for values s (r,) and alphas of any shape (...)."""
    levels = from_numpy(np.atleast_1d(np.asarray(alpha, float)), values)
    shape = (-1, *(1 for _ in levels.shape))
    return 1.0 / (namespace(values).reshape(values, shape) + levels[None, ...])


def _combined(vectors: Array, rotated: Array, shrink: Array) -> Array:
    """``U (d * z)``, (n, a, k), for U (n, r), z (r, k) and d (r, a, m)."""
    scaled = rotated[:, None, :] * shrink  # (r, a, k)
    shape = (vectors.shape[0], *scaled.shape[1:])
    xp = namespace(scaled)
    flat = xp.reshape(scaled, (scaled.shape[0], shape[1] * shape[2]))
    return xp.reshape(vectors @ flat, shape)


class _OthersPath:
    """What a large group S misses by, for every alpha, without ``(A_SS)^-1``.

    The kernel between the other rows C, centred on them, is ``V diag(t) V'``. With
    ``u = sqrt(w)`` and ``m = u_C'H~_C / u_C'u_C`` (see :attr:`RowDesign.is_large`)::

        D e_S = H~_S - u_S m - W diag(1/(t + alpha)) V'(H~_C - u_C m)
        W = (G~_SC - u_S u_C'G~_CC / u_C'u_C) V

    Parameters
    ----------
    path : LooPath
        The path of all rows.
    rows : ndarray of int
        The rows of S.
    """

    def __init__(self, path: LooPath, rows: np.ndarray) -> None:
        others = path.design.others(rows)
        design = path.design.restrict(others)
        vectors, target = path.vectors, path.vectors @ path.rotated
        scaled = take(vectors, others) * path.eigenvalues
        gram = scaled @ take(vectors, others).T
        root, own = design.root(gram), take(path.design.root(gram), rows)
        mean = root.T @ take(target, others) / design.total
        between = root.T @ gram / design.total
        cross = take(vectors, rows) @ scaled.T - own @ between
        gram -= root @ between
        gram -= (gram @ root) @ root.T / design.total
        largest = spectrum_bounds(gram, len(others))[1]
        self.eigenvalues, basis = _spectrum(gram, largest, design)
        self.rotated = basis.T @ (take(target, others) - root @ mean)
        self.response = cross @ basis
        self.target = take(target, rows) - own @ mean

    def missed(self, alphas: np.ndarray) -> Array:
        """``D e_S``, (s, a, k), for alphas (a, m)."""
        shrink = _shrinkage(self.eigenvalues, alphas)
        return self.target[:, None, :] - _combined(self.response, self.rotated, shrink)


#: Predicted relative decrease of the error that is not worth another inverse: anywhere,
#: and for rows similar to others whose minimum is known.
WORTHLESS, WORTHLESS_NEAR = 1e-4, 1e-3
#: Slope at which no minimum can be so flat that nothing is left to gain.
STEEP = 2e-3
#: First step in log alpha, the longest one, and how much longer the next may be.
FIRST_STEP, LONGEST_STEP, GROWTH = 2.0, 5.0, 2.5
#: Slopes that fall by a factor below exp(this times the step) belong to an error that
#: levels off, where they are proportional to alpha or its inverse, not to a minimum.
FADING = 1.3
#: A search ends once even this many times the predicted decrease would not beat its
#: rival.
HOPE = 4.0
#: exp(-x) of a larger x is no longer a normal number.
LARGEST_EXPONENT = 700.0
#: The next point keeps this share of the bracket away from both of its ends: where the
#: cubic is wrong, the bracket still shrinks.
INNER_SHARE = 0.1
MOST_INVERSES = 16
#: With this many rows or more, a sample of them is searched first.
SAMPLED_FROM = 1500
#: With this many rows or more, slopes are estimated, from this many random vectors,
#: which saves a fifth of the time for each inverse.
PROBED_FROM, N_PROBES = 3000, 128
#: Curvature of the log error of four times as many rows, relative to that of a sample.
FLATTER = 0.5
#: Rise of a sample's log error that does not keep more rows from a larger alpha, and
#: the curvature per slope below which it levels off towards smaller ones.
PLATEAU, LEVELS_OFF = 5e-3, 1.5


@dataclass(frozen=True)
class LooPoint:
    """The leave-one-out error at one alpha.

    Attributes
    ----------
    alpha : float
        The regularisation.
    error : float
        Mean squared error over rows and columns.
    slope : float
        Its relative derivative in log alpha, ``d log(error) / d log(alpha)``.
    fit : KernelFit
        Coefficients and residuals.
    """

    alpha: float
    error: float
    slope: float
    fit: KernelFit


class LooDescent:
    """The minimum of ``LOO(alpha)`` near a start, without an eigendecomposition.

    With ``M = G + alpha I``, ``B = M^-1 H``, ``A = M^-1 - 11'/(n alpha)`` and
    ``q = diag(A)``, residuals and their derivatives in alpha come from one inverse::

        e = B / q,    dB = -M^-1 B,    dq_i = -(A^2)_ii,    de = dB / q - B dq / q^2

    Errors are exact. With many rows, slopes take ``(A^2)_ii`` for the mean of
    ``(A z)_i^2`` over vectors z of random signs, which saves a third of the work: the
    sum over the rows has a relative error of about ``sqrt(2 / (n N_PROBES))``.

    An inverse takes about a fifth of the time of an eigendecomposition on a CPU, far
    less on a GPU, and a handful of them finds the minimum: steps in log alpha go to the
    minimum of the cubic through values and slopes at both ends of a bracket, and before
    there is one along the secant of the slopes. The minimum is the local one that lies
    downhill from the start; if that leads to no regularisation at all, the one downhill
    from the mean eigenvalue is compared with it. Of many rows a quarter is searched
    first, at a 64th of the time for each inverse; its minimum is a better start unless
    the gain is within its sampling error.

    Rows may have weights (:class:`RowDesign`), but not groups.

    Parameters
    ----------
    gram : array of shape (n, n)
        Centred kernel; its memory is reused.
    target : array of shape (n, k)
        Columns of (weighted) mean zero.
    design : RowDesign, optional
        Weights of the rows.
    n_probes : int, optional
        Random vectors for slopes; by default ``N_PROBES`` with many rows, and for fewer
        none, so slopes are exact.
    """

    def __init__(
        self,
        gram: Array,
        target: Array,
        design: RowDesign | None = None,
        n_probes: int | None = None,
    ) -> None:
        n = int(gram.shape[0])
        self.design = design or RowDesign(n)
        self.shift = self.design.shift  # of the null vector, as in :func:`fit_kernel`
        assert self.design.groups is None
        unit, largest = spectrum_bounds(gram, n)
        self.mean_eigenvalue = unit
        lowest = max(GRID[0] * unit, ROUNDING_UNITS * eps(gram) * largest)
        self.bounds = math.log(lowest), math.log(max(GRID[-1] * unit, lowest))
        self.design.add_null(gram, self.shift)
        self.gram = gram
        self.target = self.design.scale(as_float(target, gram.dtype))
        self.n_inverses = 0
        self.probes: Array | None = None
        if n_probes is None:
            n_probes = N_PROBES if n >= PROBED_FROM else 0
        if n_probes:
            bits = np.random.default_rng(0).integers(0, 2, (n, n_probes), np.int8)
            signs, u = from_numpy(2 * bits - 1, gram), self.design.root(gram)
            self.probes = signs - u @ (u.T @ signs) / self.design.total

    def missed(self, found: LooPoint) -> float:
        """As :meth:`AlphaPath.missed`, at the point found."""
        lowest = math.exp(self.bounds[0])
        raised = lowest > AT_FLOOR * GRID[0] * self.mean_eigenvalue
        if not raised or found.alpha >= AT_FLOOR * lowest:
            return 0.0
        size = squared_norm(self.target) / self.design.total / self.target.shape[1]
        return float(_change(np.float64(found.slope * found.error), found.error, size))

    def at(self, alpha: float) -> LooPoint:
        """Error, slope and fit at one alpha."""
        xp, design = namespace(self.gram), self.design
        self.n_inverses += 1
        factor = factor_regularized(xp.asarray(self.gram, copy=True), alpha)
        coef = solve_factored(factor, self.target)
        weights = design.root(coef)[:, 0] ** 2
        null = weights / design.total
        if self.probes is None:
            moved = solve_factored(factor, coef)  # -dB / dalpha
            diagonal, squares = inverse_squares(factor)
            steep = squares - null / (alpha + self.shift) ** 2  # -dq / dalpha
        else:
            both = solve_factored(factor, xp.concat([coef, self.probes], axis=1))
            moved, probed = both[:, : coef.shape[1]], both[:, coef.shape[1] :]
            diagonal, steep = inverse_diagonal(factor), xp.mean(probed**2, axis=1)
        q = (diagonal - null / (alpha + self.shift))[:, None]
        residual = coef / q
        change = (residual * steep[:, None] - moved) / q
        size = float(xp.sum(residual * residual))
        slope = 2.0 * alpha * float(xp.sum(residual * change)) / (size or 1.0)
        precision = to_numpy(q * weights[:, None]).astype(np.float64)
        fit = KernelFit(design.scale(coef), design.unscale(residual), precision)
        return LooPoint(alpha, size / (design.total * coef.shape[1]), slope, fit)

    def minimum(
        self,
        start: float,
        curvature: float = 0.0,
        rival: float = math.inf,
        local: bool = False,
    ) -> tuple[LooPoint, float]:
        """The lowest point found, and the second derivative of log error there.

        Parameters
        ----------
        start : float
            Alpha to begin with.
        curvature : float, default=0.0
            A guess at the second derivative; 0 if there is none.
        rival : float, default=inf
            The search ends early where no error below this is in sight.
        local : bool, default=False
            Whether the minimum downhill from the start is enough, wherever it is.
        """
        worthless = WORTHLESS_NEAR if local else WORTHLESS
        known: LooPoint | None = None
        if self.design.n_rows >= SAMPLED_FROM and not local and math.isinf(rival):
            sample, local = self._sample(), True
            found, flat = sample.minimum(start, curvature)
            noise = 2.0 / sample.design.n_rows**0.5
            if found.error * (1.0 + noise) < sample.at(start).error:
                edge, start, curvature = start, found.alpha, FLATTER * flat
                if 0 < flat <= LEVELS_OFF * found.slope <= LEVELS_OFF * PLATEAU:
                    known = self._within(start)
                if known is not None and known.slope < 0:
                    # In the sample the slope is proportional to alpha: all alphas up
                    # to this one are about as good, the largest more so for all rows.
                    start = min(edge, start * PLATEAU / found.slope)
                    curvature, known = FLATTER * PLATEAU, None
        first, middle = known or self._within(start), self.mean_eigenvalue
        best, curvature = self._descend(first, curvature, rival, worthless)
        # Without regularisation errors level off, maybe above a minimum elsewhere.
        levels_off = math.isinf(rival) and best.alpha <= start < middle
        if levels_off and not local and best.error > 0:
            there = self.at(middle)
            wall = first if there.slope > 0 else None
            other = self._descend(there, 0.0, best.error, wall=wall)
            if other[0].error < best.error:
                return other
        return best, curvature

    def _within(self, alpha: float) -> LooPoint:
        """The point at the nearest alpha that is allowed."""
        low, high = self.bounds
        log_alpha = math.log(max(alpha, NEXT_TO_ZERO))
        return self.at(math.exp(min(max(log_alpha, low), high)))

    def _sample(self) -> LooDescent:
        """The same search on a quarter of the rows, drawn with a fixed seed.

        With u, the unit vector along the roots of the weights of these rows, centring
        on them is ``(I - uu') G~_ss (I - uu')`` and ``(I - uu') H~_s``.
        """
        n = self.design.n_rows
        rows = np.sort(np.random.default_rng(0).permutation(n)[: n // 4])
        part = self.design.restrict(rows)
        u = part.root(self.gram) / part.total**0.5
        gram = take(take(self.gram, rows), rows, axis=1)
        gram -= u @ (u.T @ gram)
        gram -= (gram @ u) @ u.T
        target = take(self.target, rows)
        target = target - u @ (u.T @ target)
        return LooDescent(gram, part.unscale(target), part)

    def _descend(
        self,
        first: LooPoint,
        curvature: float,
        rival: float,
        worthless: float = WORTHLESS,
        wall: LooPoint | None = None,
    ) -> tuple[LooPoint, float]:
        """A minimum downhill from the first point.

        Beyond the best point so far, downhill from it, there may be a ``wall``: a point
        of larger error, or whose slope points back. Then a minimum lies between.
        """
        low, high = self.bounds
        limit = self.n_inverses + MOST_INVERSES
        best = last = first
        step, fading = FIRST_STEP, False
        while self.n_inverses < limit and best.error > 0:
            here = math.log(best.alpha)
            if wall is not None:
                aim, gain = _hermite(best, wall)
                if abs(best.slope) > STEEP:  # a wide bracket may deceive the cubic
                    gain = max(gain, worthless)
            elif curvature > 0:
                aim = here - min(max(best.slope / curvature, -step), step)
                gain = best.slope**2 / (2.0 * curvature)
            else:
                aim = here - math.copysign(step, best.slope)
                gain = abs(best.slope) if fading else math.inf
            aim = min(max(aim, low), high)
            hoped = math.exp(-min(HOPE * gain, LARGEST_EXPONENT))
            hopeless = best.error * hoped > rival
            if gain < worthless or hopeless or aim == here:
                break
            before, last = last, self.at(math.exp(aim))
            moved = math.log(last.alpha / before.alpha)
            step = min(GROWTH * abs(moved), LONGEST_STEP)
            ratio = before.slope / (last.slope or math.inf)
            fading = 1.0 < ratio < math.exp(FADING * abs(moved))
            curvature = 0.0 if fading else (last.slope - before.slope) / moved
            if last.error >= best.error:
                wall = last
            else:
                if last.slope * (last.alpha - best.alpha) > 0:  # the slope points back
                    wall = best
                best = last
        # Slopes proportional to alpha are their own derivative: this saves a tenth of
        # the inverses of searches that start from here.
        if fading:
            curvature = abs(last.slope)
        return best, max(curvature, 0.0)


def _hermite(best: LooPoint, wall: LooPoint) -> tuple[float, float]:
    """Where the cubic through both ends of a bracket is smallest, and its gain there.

    The log error falls from ``best`` towards ``wall``, and rises before or at it.
    """
    left, right = (best, wall) if best.alpha < wall.alpha else (wall, best)
    a, b = math.log(left.alpha), math.log(right.alpha)
    width = b - a
    fa, fb = math.log(left.error), math.log(right.error)
    ga, gb = left.slope, right.slope
    d = ga + gb - 3.0 * (fb - fa) / width
    root = math.sqrt(max(d * d - ga * gb, 0.0))
    share = 1.0 - (gb + root - d) / ((gb - ga + 2.0 * root) or 1.0)
    share = min(max(share, INNER_SHARE), 1.0 - INNER_SHARE)
    s, c = share, 1.0 - share
    value = (1 + 2 * s) * c * c * fa + s * s * (3 - 2 * s) * fb
    value += width * s * c * (c * ga - s * gb)
    return a + share * width, math.log(best.error) - value

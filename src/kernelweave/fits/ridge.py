"""Kernel ridge regression at a given alpha, and what it misses on rows left out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernelweave._array import (
    Array,
    FactorizationError,
    add_to_diagonal,
    as_float,
    cholesky,
    from_numpy,
    inverse_diagonal,
    lower_inverse,
    namespace,
    solve_factored,
    squared_norm,
    take,
    to_numpy,
)
from kernelweave.fits.design import RowDesign

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

    def held_out(self, target: Array, design: RowDesign) -> Array:
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
        counts = np.bincount(design.units, design.each)[:, None]
        others = _sums_of_others(counts)
        blank = _sums_of_others(counts * others / design.total)
        sums = design.sums_of_units(design.each[:, None] * to_numpy(target))
        level = sums / others - sums / blank
        sums = design.sums_of_units(to_numpy(self.coef))
        level += sums / _sums_of_others(self.precision)
        projected = target + from_numpy(level[design.units], target) - self.loo_residual
        return projected * undone_shrinkage(len(counts))


def undone_shrinkage(n_units: int) -> float:
    """``(g - 1) / (g - 2)`` for g groups, see :meth:`KernelFit.held_out`."""
    return (n_units - 1.0) / max(n_units - 2.0, 1.0)


def _sums_of_others(sizes: np.ndarray) -> np.ndarray:
    """``sum_T a_T`` over all T but S, for each S, of positive numbers a (g, m).

    A difference would be zero next to one that exceeds all others.
    """
    before = np.cumsum(sizes, axis=0)[:-1]
    after = np.cumsum(sizes[::-1], axis=0)[-2::-1]
    return np.pad(before, ((1, 0), (0, 0))) + np.pad(after, ((0, 1), (0, 0)))


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
    small = [design.members[g] for g in np.flatnonzero(~design.large_groups)]
    residual, sums[~design.large_groups, 0] = design.solve_left_out(
        small, coef, inverse, null=null
    )
    for g in np.flatnonzero(design.large_groups):
        rows = design.members[g]
        root = take(design.root(coef), rows)
        half = take(inverse, rows).T @ root
        sums[g] = squared_norm(half) - null * squared_norm(root) ** 2
        residual.add(rows, _missed_by_others(factor, target, rows, design))
    return residual.in_order(), sums


def _missed_by_others(
    factor: Array, target: Array, rows: np.ndarray, design: RowDesign
) -> Array:
    """``D e_S`` (s, k) of a large group, see :attr:`RowDesign.large_groups`."""
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

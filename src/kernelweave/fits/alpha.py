"""The leave-one-out error as a function of alpha, and where it is smallest."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import brentq

from kernelweave._array import (
    Array,
    as_float,
    block_entries,
    eigh,
    eps,
    from_numpy,
    inverse_factored,
    inverse_squares,
    namespace,
    row_chunks,
    solve_factored,
    squared_norm,
    take,
    to_numpy,
)
from kernelweave._tolerances import NEXT_TO_ZERO, ROUNDING_UNITS, SAME_SCORE
from kernelweave.fits.design import LeftOut, RowDesign
from kernelweave.fits.ridge import KernelFit, factor_regularized

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
        best = _refined(grid, measure(grid[:, None]), measure)
        return best if len(best) > 1 else float(best[0])

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
    points = np.tile(np.log(grid)[:, None], len(columns))
    start, lowest = grid[best], errors[best, columns]
    for _ in range(FINER_GRIDS):
        low = points[np.maximum(best - 1, 0), columns]
        high = points[np.minimum(best + 1, len(points) - 1), columns]
        points = np.linspace(low, high, FINER_POINTS)
        errors = measure(np.exp(points))
        best = np.argmin(errors, axis=0)
    better = errors[best, columns] < (1 - SAME_SCORE) * lowest
    middle = np.clip(best, 1, len(points) - 2)
    left, centre, right = (errors[middle + i, columns] for i in (-1, 0, 1))
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
        sums, size = [], self.n_samples * int(self.rotated.shape[1])
        # Several alphas share one product with the eigenvectors.
        for part in row_chunks(len(alphas), size):
            residual, _ = self._left_out(alphas[part])
            squares = namespace(residual).sum(residual * residual, axis=0)
            sums.append(to_numpy(squares))
        return np.concatenate(sums).astype(np.float64) / self.design.total

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
        for g in np.flatnonzero(design.large_groups):
            rows, xp = design.members[g], namespace(coef)
            left_out.add(rows, self._large_paths[int(g)].missed(alphas))
            along = take(self.vectors, rows).T @ take(design.root(coef), rows)
            sums[g] = to_numpy(xp.sum(along[:, :, None] ** 2 * shrink, axis=0))
        several = np.flatnonzero((sizes > 1) & ~design.large_groups)
        if len(several):
            rows, missed, sums[several] = self._blocks(several, coef, shrink)
            left_out.add(rows, missed)
        return left_out.in_order(), sums

    def _blocks(
        self, groups: np.ndarray, coef: Array, shrink: Array
    ) -> tuple[np.ndarray, Array, np.ndarray]:
        """Rows of some groups, and their :meth:`_left_out` from A_SS of each alpha."""
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
        return np.concatenate(solved.rows), xp.stack(by_alpha, axis=1), sums

    @cached_property
    def _large_paths(self) -> dict[int, _OthersPath]:
        """What predicts each large group."""
        return {
            int(g): _OthersPath(self, self.design.members[g])
            for g in np.flatnonzero(self.design.large_groups)
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
    ``u = sqrt(w)`` and ``m = u_C'H~_C / u_C'u_C``, as :attr:`RowDesign.large_groups`
    says::

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
        root, root_left = design.root(gram), take(path.design.root(gram), rows)
        mean = root.T @ take(target, others) / design.total
        between = root.T @ gram / design.total
        cross = take(vectors, rows) @ scaled.T - root_left @ between
        gram -= root @ between
        gram -= (gram @ root) @ root.T / design.total
        largest = spectrum_bounds(gram, len(others))[1]
        self.eigenvalues, basis = _spectrum(gram, largest, design)
        self.rotated = basis.T @ (take(target, others) - root @ mean)
        self.response = cross @ basis
        self.target = take(target, rows) - root_left @ mean

    def missed(self, alphas: np.ndarray) -> Array:
        """``D e_S``, (s, a, k), for alphas (a, m)."""
        shrink = _shrinkage(self.eigenvalues, alphas)
        return self.target[:, None, :] - _combined(self.response, self.rotated, shrink)


#: Relative decrease of the error for which a search does not go on. The error of 1,000
#: rows is itself uncertain by some hundredths; with 1e-6 in place of this, a fit of so
#: many took up to a quarter longer.
LOO_TOLERANCE = 1e-4
#: The longest first step in log alpha, and how many times as long as the last one the
#: next may be, until the minimum lies between two points.
BRACKET_STEP = 2.0
#: Difference in log alpha of two values that count as one.
CLOSE_ALPHAS = 1e-3
#: A search ends with this many inverses: rounding may hide the minimum.
MOST_INVERSES = 16


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


class AlphaSearch:
    """The minimum of ``LOO(alpha)`` near a start, without an eigendecomposition.

    With ``M = G + alpha I``, ``B = M^-1 H`` and ``A = M^-1 - 11'/(n alpha)``, the
    residuals of a row or group S left out, and their derivatives in alpha, come from
    one inverse::

        e_S = A_SS^-1 B_S,    dB = -A B,    de_S = A_SS^-1 (dB_S + (A^2)_SS e_S)

    For a group ``(A^2)_SS e_S`` is ``A_S. (A_.S e_S)``, two products with few columns,
    and for a single row ``(A^2)_ii`` is the square of a row of A. Weights of rows enter
    as in :class:`RowDesign`.

    An inverse takes about a fifth of the time of an eigendecomposition on a CPU, far
    less on a GPU, and a handful of them finds the minimum.

    Parameters
    ----------
    gram : array of shape (n, n)
        Centred kernel; its memory is reused.
    target : array of shape (n, k)
        Columns of (weighted) mean zero.
    design : RowDesign, optional
        Weights and groups of the rows.

    Attributes
    ----------
    mean_eigenvalue : float
        Mean eigenvalue of the kernel, the unit of alpha.
    bounds : tuple of float
        The smallest and the largest log alpha.
    n_inverses : int
        How many errors were computed.
    """

    def __init__(
        self, gram: Array, target: Array, design: RowDesign | None = None
    ) -> None:
        n = int(gram.shape[0])
        self.design = design or RowDesign(n)
        self.shift = self.design.shift  # of the null vector, as in :func:`fit_kernel`
        self.mean_eigenvalue, largest = spectrum_bounds(gram, n)
        unit = self.mean_eigenvalue
        lowest = max(GRID[0] * unit, ROUNDING_UNITS * eps(gram) * largest)
        self.bounds = math.log(lowest), math.log(max(GRID[-1] * unit, lowest))
        self.design.add_null(gram, self.shift)
        self.gram = gram
        self.target = self.design.scale(as_float(target, gram.dtype))
        self.n_inverses = 0

    def missed(self, lowest: LooPoint) -> float:
        """As :meth:`AlphaPath.missed`, at the lowest point of a search."""
        floor = math.exp(self.bounds[0])
        raised = floor > AT_FLOOR * GRID[0] * self.mean_eigenvalue
        if not raised or lowest.alpha >= AT_FLOOR * floor:
            return 0.0
        size = squared_norm(self.target) / self.design.total / self.target.shape[1]
        fall = np.float64(lowest.slope * lowest.error)
        return float(_change(fall, lowest.error, size))

    def at(self, alpha: float) -> LooPoint:
        """Error, slope and fit at one alpha."""
        xp, design = namespace(self.gram), self.design
        self.n_inverses += 1
        factor = factor_regularized(xp.asarray(self.gram, copy=True), alpha)
        coef = solve_factored(factor, self.target)
        moved = solve_factored(factor, coef)  # -dB / dalpha
        level = alpha + self.shift  # of the null vector, which A does not have
        if design.groups is None:
            weights = design.root(coef) ** 2
            null = weights / design.total
            diagonal, squares = inverse_squares(factor)
            precision = diagonal[:, None] - null / level  # A_ii
            steep = squares[:, None] - null / level**2  # (A^2)_ii
            residual = coef / precision
            change = (residual * steep - moved) / precision
            sums = precision * weights
        else:
            inverse = inverse_factored(factor)
            design.add_null(inverse, -1.0 / level)
            residual, change, sums = _missed_by_groups(inverse, coef, moved, design)
        size = squared_norm(residual)
        slope = 2.0 * alpha * float(xp.sum(residual * change)) / (size or 1.0)
        fit = KernelFit(
            design.scale(coef),
            design.unscale(residual),
            to_numpy(sums).astype(np.float64),
        )
        return LooPoint(alpha, size / (design.total * coef.shape[1]), slope, fit)

    def minimum(
        self, start: float, curvature: float = 0.0, tolerance: float = LOO_TOLERANCE
    ) -> tuple[LooPoint, float]:
        """The minimum downhill from a start, and the curvature of the log error there.

        Parameters
        ----------
        start : float
            Alpha to begin with.
        curvature : float, default=0.0
            The second derivative of the log error in log alpha at the minimum of a
            similar problem, if the start is that minimum; 0 if the start is a guess.
        tolerance : float, default=1e-4
            Relative decrease of the error for which the search does not go on.
        """
        points = self._downhill(start, curvature, tolerance)
        lowest = min(points, key=lambda point: point.error)
        falls = lowest.alpha <= points[0].alpha < self.mean_eigenvalue
        if curvature == 0.0 and falls and lowest.error > 0:
            # Without regularisation errors level off, maybe above a minimum elsewhere.
            mean, first = self.mean_eigenvalue, points[0]
            points += self._downhill(mean, 0.0, tolerance, above=first)
            lowest = min(points, key=lambda point: point.error)
        return lowest, _bend(points, lowest, curvature)

    def _downhill(
        self,
        start: float,
        curvature: float,
        tolerance: float,
        above: LooPoint | None = None,
    ) -> list[LooPoint]:
        """The points of a search for the minimum downhill from the start.

        Steps in log alpha go downhill to where the slope would be zero if it were
        linear, until it changes its sign; Brent's method finds the zero in between.
        The search may be restricted to alphas ``above`` that of a point.
        """
        low, high = self.bounds
        points: dict[float, LooPoint] = {}  # by log alpha
        if above is not None:
            low = math.log(above.alpha)
            points[low] = above
        last_inverse = self.n_inverses + MOST_INVERSES

        def slope(log_alpha: float) -> float:
            """The slope, or 0 if little is left to gain, or too many were computed."""
            if log_alpha not in points:
                if self.n_inverses == last_inverse:
                    return 0.0
                points[log_alpha] = self.at(math.exp(log_alpha))
            # Left to gain are slope^2 / (2 bend) down to the minimum of a parabola, or
            # about the slope down to where the error levels off.
            point = points[log_alpha]
            bend = _bend(list(points.values()), point, curvature)
            flat = point.slope**2 <= 2.0 * bend * tolerance
            flat = flat or abs(point.slope) <= tolerance or point.error == 0.0
            return 0.0 if flat else point.slope

        here = min(max(math.log(max(start, NEXT_TO_ZERO)), low), high)
        longest = BRACKET_STEP
        while (falling := slope(here)) != 0.0:
            bend = _bend(list(points.values()), points[here], curvature)
            step = min(abs(falling) / bend, longest) if bend > 0 else longest
            there = min(max(here - math.copysign(step, falling), low), high)
            if there == here:  # as far as alpha may go
                break
            # A step over a hill, with no sign of the minimum before it, is halved.
            while (
                falling * slope(there) >= 0.0
                and there in points
                and points[there].error > points[here].error
            ):
                there = 0.5 * (here + there)
            if falling * slope(there) < 0.0:
                brentq(slope, here, there, xtol=CLOSE_ALPHAS)
                break
            if there not in points:
                break
            here, longest = there, BRACKET_STEP * abs(there - here)
        return list(points.values())


def _bend(points: list[LooPoint], point: LooPoint, guess: float) -> float:
    """The curvature at a point, by the slope at the next one, or a guess; >= 0."""
    others = [other for other in points if other.alpha != point.alpha]
    if not others:
        return guess
    apart = [math.log(other.alpha / point.alpha) for other in others]
    nearest = int(np.argmin(np.abs(apart)))
    return max((others[nearest].slope - point.slope) / apart[nearest], 0.0)


def _missed_by_groups(
    inverse: Array, coef: Array, moved: Array, design: RowDesign
) -> tuple[Array, Array, np.ndarray]:
    """``D e`` and its derivative (n, k), and the sums (g, 1) of A_SS, for groups S.

    Parameters
    ----------
    inverse : array of shape (n, n)
        A~.
    coef : array of shape (n, k)
        B~.
    moved : array of shape (n, k)
        ``A~ B~``, by which B~ falls as alpha grows.
    design : RowDesign
        Weights and groups of the rows.
    """
    xp, n, k = namespace(coef), coef.shape[0], coef.shape[1]
    entries, root = xp.reshape(inverse, (-1,)), design.root(coef)
    missed, sums = LeftOut([], []), np.empty((len(design.members), 1))
    sizes = np.array([len(rows) for rows in design.members])
    for size in np.unique(sizes):
        groups = np.flatnonzero(sizes == size)
        members = np.stack([design.members[g] for g in groups])  # (m, s)
        for part in row_chunks(len(members), n * (int(size) + k)):
            rows = members[part]
            stack = (len(rows), int(size), -1)
            block = take(entries, (rows[:, :, None] * n + rows[:, None, :]).reshape(-1))
            block = xp.reshape(block, stack)
            along = xp.reshape(take(inverse, rows.reshape(-1)), stack)  # A_S.
            ends = xp.reshape(take(root, rows.reshape(-1)), stack)
            total = xp.matrix_transpose(ends) @ block @ ends
            sums[groups[part]] = to_numpy(total)[:, :, 0]
            right = xp.reshape(take(coef, rows.reshape(-1)), stack)
            residual = xp.linalg.solve(block, right)
            squares = along @ (xp.matrix_transpose(along) @ residual)
            squares = squares - xp.reshape(take(moved, rows.reshape(-1)), stack)
            change = xp.linalg.solve(block, squares)
            both = xp.concat([residual, change], axis=2)
            missed.add(rows.reshape(-1), xp.reshape(both, (-1, 2 * k)))
    both = missed.in_order()
    return both[:, :k], both[:, k:], sums

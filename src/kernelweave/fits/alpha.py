"""The leave-one-out error as a function of alpha, and where it is smallest."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernelweave._array import (
    Array,
    as_float,
    block_entries,
    eigh,
    eps,
    from_numpy,
    inverse_diagonal,
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
        for g in np.flatnonzero(design.large_groups):
            rows, xp = design.members[g], namespace(coef)
            left_out.add(rows, self._others[int(g)].missed(alphas))
            along = take(self.vectors, rows).T @ take(design.root(coef), rows)
            sums[g] = to_numpy(xp.sum(along[:, :, None] ** 2 * shrink, axis=0))
        several = np.flatnonzero((sizes > 1) & ~design.large_groups)
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

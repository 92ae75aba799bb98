"""Predictive mean and variance of class coordinates for each row, from one kernel."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from kernelweave._array import (
    Array,
    as_float,
    from_numpy,
    namespace,
    row_chunks,
    to_numpy,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.alpha import LooPath
from kernelweave.fits.design import RowDesign
from kernelweave.fits.ridge import KernelFit

#: Nats per row by which noise levels must differ to be told apart. Rounding in float32
#: changes scores by less, so both precisions make the same choice.
SAME_EVIDENCE = 1.2e-4
#: Noise levels tried, relative to the mean eigenvalue of the kernel.
NOISE_GRID = np.logspace(-3, 2, 21)
#: The error of rows left out, relative to the smallest, at which a remark is due: 1.3
#: to 1.8 on the breast cancer table of Wisconsin, where it costs much of the log loss,
#: and up to 1.16 on nine others, where it does not.
NOTABLE_EXCESS = 1.25
#: Rows whose squared distance is below this, relative to the mean eigenvalue, are
#: copies: no noise level of the grid tells them apart.
SAME_ROW = 1e-6


class PredictivePath(LooPath):
    """``p(t | x)`` of one kernel at every noise level, from one eigendecomposition.

    For each class coordinate c the model of Zhao et al. (2009), Eqs. 5-11, with a free
    intercept and an amplitude a, is ``y_c = f + b + noise`` with ``f ~ N(0, a G)`` and
    noise of variance ``a lambda``. With ``G = U diag(s) U'``, ``U'1 = 0``, ``z = U'y``
    and ``d = 1 / (s + lambda)``, row i, left out with the rest re-centred, has::

        mean  y_i - alpha_i / q_i,    variance  a / q_i,
        alpha = U (d * z),            q = (U * U) d

    and the log marginal likelihood of the component orthogonal to the intercept is
    ``-1/2 [ sum z^2 d / a + sum log(s + lambda) + (n - 1) log(2 pi a) ]``.

    With row weights w of sum N the noise of row i has variance ``a lambda / w_i``, the
    eigenvectors are those of ``D G D`` with ``D = diag(sqrt(w))``, and a row is left
    out with all of its weight (:class:`~kernelweave.fits.design.RowDesign`). Its target
    then has the variance ``a / (w_i q_i)``, to which ``a lambda (1 - 1 / w_i)`` is
    added: the noise of a new row is that of weight one.

    The marginal likelihood is that of m rows (:func:`count_rows`), with ``(m - n) log
    lambda``. Copies of a row with its target would add ``-1/2 log(a lambda)`` each,
    which has no bound, and outweigh rows that are badly predicted without noise; as one
    row with the sum of their weights they do not.

    Parameters
    ----------
    gram : array of shape (n, n)
        Centred kernel; its memory is reused.
    target : array of shape (n, k)
        One column per class coordinate; their means are the intercepts.
    unknown : ndarray of shape (n,) or float, default=0
        Prior variance, divided by the amplitude, of the part of each row that the
        kernel leaves out, added when that row is predicted.
    design : RowDesign, optional
        Weights of the rows; the kernel is then ``D G D``. Groups are not supported.
    error : float, default=0
        Bound on the errors of the eigenvalues of the kernel, see :class:`LooErrors`.
    """

    def __init__(
        self,
        gram: Array,
        target: Array,
        unknown: np.ndarray | float = 0.0,
        design: RowDesign | None = None,
        error: float = 0.0,
    ) -> None:
        design = design or RowDesign(int(gram.shape[0]))
        self.n_counted = count_rows(gram, target, design)
        super().__init__(gram, target, design)
        # Weights repeat rows: the mean is over N eigenvalues, most of which may be 0.
        self.mean_eigenvalue *= self.n_samples / self.design.total
        self.unknown, self.error = unknown, error
        self.target = to_numpy(target).astype(np.float64)
        self.intercept = np.average(self.target, axis=0, weights=self.design.each)

    def grid(self) -> np.ndarray:
        """``NOISE_GRID`` in units of this kernel, with levels clear of rounding."""
        return np.maximum(self._levels, 10 * self.smallest_alpha)

    @property
    def _levels(self) -> np.ndarray:
        """``NOISE_GRID`` in units of this kernel and of the mean weight of the rows."""
        unit = self.mean_eigenvalue * self.design.total / self.n_counted
        return unit * NOISE_GRID

    def warn_at_floor(self, levels: np.ndarray, chosen: np.ndarray) -> None:
        """Warn if a chosen level (k,) is one that rounding has raised."""
        raised = levels > self._levels
        n_raised = int(np.sum(raised[chosen]))
        if n_raised:
            bits = namespace(self.vectors).finfo(self.dtype).bits
            floor = levels[0] / self.mean_eigenvalue
            warnings.warn(
                f"float{bits} cannot tell a noise level below {floor:.1g} from "
                f"rounding, and {n_raised} of {len(chosen)} class coordinates might "
                "take a smaller one: pass the rows in float64, or give noise",
                KernelWarning,
                stacklevel=5,
            )

    def require_representable(self, noise: float) -> None:
        """Refuse a relative noise level whose inverse square overflows."""
        precision = namespace(self.vectors).finfo(self.dtype)
        level = noise * self.mean_eigenvalue
        if level**2 < float(precision.smallest_normal):
            enough = self.smallest_alpha / self.mean_eigenvalue
            raise ValueError(
                f"noise={noise:.3g} is too small for kernels in float{precision.bits}: "
                f"the square of its inverse overflows; use noise >= {enough:.1g}"
            )

    def loo(self, noises: np.ndarray) -> LooTable:
        """Each row left out in turn, at each of ``noises`` (g,), from two products."""
        noises = np.asarray(noises, dtype=np.float64)
        weights = self.design.each
        left_out, precision = self._left_out(noises[:, None])  # (n, g, k), (n, g, 1)
        residual = to_numpy(left_out).transpose(1, 0, 2) / np.sqrt(weights)[:, None]
        unknown = self.unknown + noises[:, None] * (1.0 - 1.0 / weights)
        # Levels are multiples of the mean eigenvalue, which errs by as much.
        blur = self.error * (1.0 / noises + 1.0 / self.mean_eigenvalue)
        return LooTable(
            noises, self.target, residual, precision[:, :, 0].T, unknown, weights, blur
        )

    def log_marginal(
        self, noises: np.ndarray, amplitude: np.ndarray | float
    ) -> np.ndarray:
        """Log marginal likelihood (g, k) at amplitudes (g, k)."""
        fit, log_det = self._marginal_terms(noises)
        scale, rank = _positive(amplitude), max(self.n_counted - 1, 1)
        known = fit / scale + rank * np.log(2 * np.pi * scale)
        return -0.5 * (known + log_det[:, None])

    def marginal_amplitude(self, noises: np.ndarray) -> np.ndarray:
        """The amplitudes (g, k) that maximise the marginal likelihood."""
        return self._marginal_terms(noises)[0] / max(self.n_counted - 1, 1)

    def variance_factor(self, rows: Array, norms: Array, noise: np.ndarray) -> Array:
        """Variance (m, k) of ``y(x)`` at new rows, divided by the amplitude.

        ``lambda (1 + 1/N) + g(x, x) - g(x)' (G + lambda diag(1/w))^-1 g(x)``: the
        variance of the Gaussian process, including that of the intercept. Eq. 14::

            lambda + g(x)' (G + G^2 / lambda)^-1 g(x)
                = lambda + g(x)' G^+ g(x) - g(x)' (G + lambda I)^-1 g(x)

        has no intercept, and the squared length of the projection of x onto the
        training rows in place of ``g(x, x)``: away from them it is too small, by the
        part of x outside their span.

        Parameters
        ----------
        rows : array of shape (m, n)
            Centred kernel ``g(x)`` between new and training rows.
        norms : array of shape (m,)
            ``g(x, x)``; raised to the squared length of the projection if below it.
            Minus infinity: unknown, and taken to be that length plus what a training
            row has outside the span of the others.
        noise : ndarray of shape (k,)
            Noise levels.
        """
        xp, values = namespace(rows), self.eigenvalues
        levels, smooth = from_numpy(noise, values), self._shrink(noise)  # (n - 1, k)
        tiny = values <= self.smallest_alpha
        safe = xp.where(tiny, xp.ones_like(values), values)
        inverse = xp.where(tiny, xp.zeros_like(values), 1.0 / safe)
        parts, outside = [], 0.0
        if bool(xp.any(norms == -np.inf)):
            outside = self._outside()
        for part in row_chunks(rows.shape[0], self.n_samples):
            scaled = self.design.scale(rows[part, :].T).T
            scaled = as_float(scaled, self.vectors.dtype)
            squares = (scaled @ self.vectors) ** 2  # (m, n - 1)
            longest = squares @ inverse
            known = as_float(norms[part], longest.dtype)
            least = xp.maximum(known, longest)
            longest = xp.where(known == -np.inf, longest + outside, least)
            free = longest[:, None] - squares @ smooth
            parts.append(xp.maximum(free, xp.zeros_like(free)))
        free_noise = levels * (1.0 + 1.0 / self.design.total)
        return as_float(xp.concat(parts) + free_noise[None, :], rows.dtype)

    def _outside(self) -> float:
        """Squared length of a row outside the span of all others, their median."""
        floor, each = self.smallest_alpha, self.design.each
        precision = to_numpy(self._precision(self._shrink(floor)))[:, 0]
        lengths = (1.0 / precision.astype(np.float64) - floor) / each
        return float(np.quantile(lengths, 0.5, weights=each, method="inverted_cdf"))

    def _marginal_terms(self, noises: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``sum z^2 d`` (g, k), ``sum log(s + lambda) + (m - n) log lambda`` (g,)."""
        values = to_numpy(self.eigenvalues).astype(np.float64)
        noises = np.asarray(noises, dtype=np.float64)
        shifted = values[None, :] + noises[:, None]
        squares = to_numpy(self.rotated).astype(np.float64) ** 2
        repeated = (self.n_counted - self.n_samples) * np.log(noises)
        return (1.0 / shifted) @ squares, np.sum(np.log(shifted), axis=1) + repeated


def count_rows(gram: Array, target: Array, design: RowDesign) -> float:
    """How many rows the marginal likelihood counts.

    Copies with the same target count once. Those with different targets determine the
    noise, and count as often as their weights say, but each at least once.

    Parameters
    ----------
    gram : array of shape (n, n)
        Centred kernel, scaled by the roots of the weights on both sides.
    target : array of shape (n, k)
        The predicted variables.
    design : RowDesign
        Weights of the rows.
    """
    xp, n = namespace(gram), design.n_rows
    norms = design.unscale(design.unscale(xp.linalg.diagonal(gram)[:, None]))[:, 0]
    same, first = SAME_ROW * float(xp.mean(norms)), []
    for part in row_chunks(n, n):
        # |x|^2 + |z|^2 - 2 <x, z>, halved; the kernel is symmetric
        apart = design.unscale(gram[:, part]) * -1.0
        if design.weights is not None:
            apart /= design.root(gram)[part, :].T
        apart += 0.5 * norms[:, None]
        near = apart <= 0.5 * (same - norms[part])[None, :]
        first.append(to_numpy(xp.argmax(xp.astype(near, xp.int8), axis=0)))
    rows, values = np.concatenate(first), to_numpy(target)  # the first copy of each
    mixed = np.isin(rows, rows[np.any(values != values[rows], axis=1)])
    counts = np.where(mixed, np.maximum(design.each, 1.0), rows == np.arange(n))
    return float(np.sum(counts))


@dataclass(frozen=True)
class LooTable:
    """Leave-one-out residuals and precisions of one kernel at g noise levels.

    Attributes
    ----------
    noises : ndarray of shape (g,)
        Noise levels lambda.
    target : ndarray of shape (n, k)
        The predicted variables.
    residual : ndarray of shape (g, n, k)
        Target minus its leave-one-out mean.
    precision : ndarray of shape (g, n)
        q; a leave-one-out variance is the amplitude divided by it.
    unknown : ndarray of shape (g, n)
        Further variance, divided by the amplitude.
    weights : ndarray of shape (n,)
        How much each row counts.
    blur : ndarray of shape (g,)
        Bound delta on the relative error of ``G + lambda I``; 0 unless its kernel has
        lost digits.
    """

    noises: np.ndarray
    target: np.ndarray
    residual: np.ndarray
    precision: np.ndarray
    unknown: np.ndarray
    weights: np.ndarray
    blur: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """Leave-one-out variances divided by the amplitude, (g, n).

        They are at least those of the noise, which rounding could hide: rows of tiny
        weight have inverse precisions next to which it is lost.
        """
        return np.maximum(1.0 / self.precision + self.unknown, self.noises[:, None])

    def amplitude(self) -> np.ndarray:
        """The amplitudes (g, k) that maximise the Gaussian leave-one-out density."""
        squares = self.residual**2 / self.spread[:, :, None]
        return np.average(squares, axis=1, weights=self.weights)

    def score(self) -> np.ndarray:
        """Log density (g, k) of the rows at their common variance, up to a constant.

        It falls with the squared error alone. The density at the variance of each row
        has no bound: without noise, a row with an identical copy is predicted without
        error, and a few such pairs would outweigh all rows that are predicted badly.
        """
        squares = np.average(self.residual**2, axis=1, weights=self.weights)
        return -0.5 * np.sum(self.weights) * np.log(_positive(squares))

    def log_density(self, amplitude: np.ndarray) -> np.ndarray:
        """Log density (g, n, k) of each row's target given all other rows.

        Parameters
        ----------
        amplitude : ndarray of shape (g, k)
            Amplitudes.
        """
        return _log_density(self.residual, self._variance(amplitude))

    def _variance(self, amplitude: np.ndarray) -> np.ndarray:
        """Leave-one-out variances (g, n, k) at amplitudes (g, k)."""
        return _positive(amplitude)[:, None, :] * self.spread[:, :, None]

    @property
    def fit(self) -> np.ndarray:
        """``T^2 = y' (G + lambda I)^-1 y`` of the centred target, (g, k)."""
        coef = self.residual * self.precision[:, :, None]
        return np.sum(self.target[None] * coef, axis=1)

    def residual_error(self) -> np.ndarray:
        """Bound (g, n, k) on the errors of the residuals, from those of the kernel.

        If the eigenvalues of G, which are not negative, err by up to e, then ``G +
        lambda I``, its inverse A and their diagonals err by factors of at most
        ``1 + delta``, with ``delta = e / lambda``. Hence ``|(dA y)_i|`` is at most
        ``delta sqrt(A_ii y'Ay) = delta sqrt(q_i) T``, and a residual
        ``(A y)_i / q_i`` changes by at most ``delta |r_i| + (1 + delta) delta T /
        sqrt(q_i)``. Nothing is neglected, however large delta is.
        """
        blur = self.blur[:, None, None]
        length = np.sqrt(_positive(self.fit))[:, None, :]
        moved = (1.0 + blur) * length / np.sqrt(self.precision)[:, :, None]
        return blur * (np.abs(self.residual) + moved)

    def log_density_error(self, amplitude: np.ndarray) -> np.ndarray:
        """Bound (g, n, k) on the errors of :meth:`log_density`, at these noise levels.

        Each density is ``-log(s) / 2 - r^2 / (2 s)`` up to a constant, so intervals of
        the residual r and the variance s give an interval of the density. The variance
        changes by the factors of the spread v and of the amplitude. The amplitude
        with the largest leave-one-out density is the mean of ``r_i^2 / v_i``, which is
        at least ``T^4 / (N sum_i y_i^2 q_i^2 v_i / w_i)`` (Cauchy and Schwarz): it does
        not vanish.
        """
        factor = 1.0 + self.blur[:, None]
        error, spread = self.residual_error(), self.spread[:, :, None]
        low = np.maximum(np.abs(self.residual) - error, 0.0)
        high = np.abs(self.residual) + error
        # amplitudes in units of the present ones
        most, least = (
            np.average(r**2 / spread, axis=1, weights=self.weights) for r in (high, low)
        )
        total, each = np.sum(self.weights), self.weights[:, None]
        centred = self.target - np.average(self.target, axis=0, weights=self.weights)
        room = (centred * self.precision[:, :, None]) ** 2 * spread / each
        floor = self.fit**2 / _positive(total * np.sum(room, axis=1)) / factor**4
        now = _positive(self.amplitude())
        up = factor * np.maximum(factor * most / now, factor)
        down = np.minimum(np.maximum(least, floor) / factor / now, 1.0 / factor)
        up, down = up[:, None, :], _positive(down / factor)[:, None, :]
        variance = self._variance(amplitude)
        density = _log_density(self.residual, variance)
        ratio = 0.5 * np.log(up / down)
        least_density = _log_density(high, variance * down) - ratio
        most_density = _log_density(low, variance * up) + ratio
        return np.maximum(density - least_density, most_density - density)


class Expert:
    """One kernel at its noise levels, and its leave-one-out predictions.

    Parameters
    ----------
    grid : LooTable
        Leave-one-out results at all noise levels tried.
    amplitudes, tables : ndarray of shape (g, k) and (g, n, k)
        Amplitudes and log densities at all of these.
    chosen : ndarray of int of shape (k,)
        The noise level of each coordinate, as an index of the grid.
    bounds : ndarray of shape (2, g, n, k), optional
        Bounds on the errors of residuals and ``tables``, if the kernel lost digits.

    Attributes
    ----------
    noise, amplitude : ndarray of shape (k,)
        Noise level (relative to the amplitude) and amplitude of each coordinate.
    mean, variance, log_density : ndarray of shape (n, k)
        Leave-one-out mean and variance, and log density of the target.
    coef : ndarray of shape (n, k)
        ``(G + lambda_c I)^-1 y_c``; new rows have mean ``intercept + g(x)' coef``.
    held_out : ndarray of shape (n, k)
        The leave-one-out mean about the intercept of all rows. Without row i the
        intercept moves away from its target, so even an uninformative kernel has means
        that reveal the label with the wrong sign; new rows all share one intercept.
    errors : ndarray of shape (2, n, k) or None
        Bounds on the errors of ``mean`` and ``log_density``, if the kernel lost digits.
    """

    def __init__(
        self,
        grid: LooTable,
        amplitudes: np.ndarray,
        tables: np.ndarray,
        chosen: np.ndarray,
        bounds: np.ndarray | None = None,
    ) -> None:
        self.grid, self.amplitudes, self.tables = grid, amplitudes, tables
        self.bounds = bounds
        columns = np.arange(len(chosen))
        target, design = grid.target, RowDesign(len(grid.target), grid.weights)
        residual = grid.residual[chosen, :, columns].T  # (n, k)
        self.noise, self.amplitude = grid.noises[chosen], amplitudes[chosen, columns]
        self.mean = target - residual
        self.variance = self.amplitude * grid.spread[chosen, :].T
        self.log_density = tables[chosen, :, columns].T
        precision = grid.precision[chosen, :].T
        self.coef = residual * precision
        intercept = np.average(target, axis=0, weights=grid.weights)
        fit = KernelFit(self.coef, residual, precision)
        self.held_out = intercept + fit.held_out(target - intercept, design)
        self.errors = None
        if bounds is not None:
            self.errors = bounds[:, chosen, :, columns].transpose(1, 2, 0)

    @property
    def excess(self) -> np.ndarray:
        """Leave-one-out squared error, relative to the smallest at more noise, (k,).

        At less noise it may only be smaller because rows have copies.
        """
        score, level = self.grid.score(), np.searchsorted(self.grid.noises, self.noise)
        more = np.arange(len(score))[:, None] >= level
        lost = np.max(score, axis=0, where=more, initial=-np.inf)
        lost -= score[level, np.arange(len(level))]
        return np.exp(2.0 * lost / np.sum(self.grid.weights))

    def moved(self, chosen: np.ndarray) -> Expert:
        """The same kernel at other noise levels ``chosen`` (k,) of its grid."""
        return Expert(self.grid, self.amplitudes, self.tables, chosen, self.bounds)


def choose_noise(
    path: PredictivePath,
    noise: float | str | np.ndarray = "loo",
    amplitude: str = "profile",
) -> Expert:
    """Choose the noise level of each coordinate and make the expert that uses it.

    Parameters
    ----------
    path : PredictivePath
        The kernel.
    noise : float, ndarray of shape (k,), "loo" or "ml"
        A level relative to the mean eigenvalue, shared or one per coordinate; or, for
        each coordinate, the grid level with the smallest leave-one-out squared error
        ("loo") or the largest marginal likelihood ("ml").
    amplitude : {"profile", "unit"}
        The best amplitude for each noise level, or 1 as in Eq. 5.
    """
    k, marginal = path.target.shape[1], isinstance(noise, str) and noise == "ml"
    chosen = None
    if isinstance(noise, str):
        levels = path.grid()
    else:
        levels, chosen = np.unique(
            np.broadcast_to(np.asarray(noise, dtype=np.float64), k), return_inverse=True
        )
        path.require_representable(levels[0])
        levels = levels * path.mean_eigenvalue
    grid = path.loo(levels)
    scale = path.marginal_amplitude(levels) if marginal else grid.amplitude()
    if amplitude == "unit":
        scale = np.ones_like(scale)
    tables = grid.log_density(scale)
    if chosen is None:
        score = path.log_marginal(levels, scale) if marginal else grid.score()
        # Where noise and amplitude trade off, the score is flat: take the most noise.
        same = (path.n_counted if marginal else path.design.total) * SAME_EVIDENCE
        good = score >= np.max(score, axis=0) - same
        chosen = len(levels) - 1 - np.argmax(good[::-1], axis=0)
        path.warn_at_floor(levels, chosen)
    bounds = None
    if path.error > 0:
        blurred = grid.log_density_error(scale)
        bounds = np.stack([grid.residual_error(), blurred])
    return Expert(grid, scale, tables, chosen, bounds)


def excess_remark(noise: float | str, excess: float) -> str | None:
    """A remark if the error of rows left out, ``excess`` times the smallest, is large.

    Levels that were given, or that the printed algorithm starts from, need no remark.
    """
    if not isinstance(noise, str) or not excess > NOTABLE_EXCESS:
        return None
    return (
        f"noise={noise!r} chose levels at which the squared error of rows left out is "
        f"{excess:.1f} times as large as with more noise: very similar rows are so "
        "likely without noise that they outweigh the others; noise='loo' chooses by "
        "that error"
    )


def _log_density(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Log density of a Gaussian."""
    return np.asarray(norm.logpdf(residual, scale=np.sqrt(variance)))


def _positive(x: np.ndarray | float) -> np.ndarray:
    """Keep the density finite for a constant coordinate, whose amplitude is 0."""
    return np.maximum(x, np.finfo(np.float64).tiny)

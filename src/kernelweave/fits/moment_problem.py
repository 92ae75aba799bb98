"""The problem over n rows, and its held-out errors, from second moments."""

from __future__ import annotations

import numpy as np

from kernelweave._array import (
    Array,
    FactorizationError,
    eigh,
    eps,
    from_numpy,
    namespace,
    robust_cholesky,
    to_numpy,
)
from kernelweave._tolerances import (
    CONSTANT_VARIANCE,
    ROUNDED_WEIGHT,
    ROUNDING_UNITS,
)
from kernelweave.fits.alpha import AlphaPath, spectrum_bounds
from kernelweave.kernels.banks.features import FeatureBank, block_sums
from kernelweave.kernels.maps.kernel_map import NothingVariesError

#: Before the factorisation each variance is raised by machine precision times the
#: number of columns, then by ten times more on each failure, up to this share of it.
LARGEST_JITTER = 1e-3
#: Each variance counts as at least this share of their mean: zero has to be raised too.
MEAN_SHARE = 1e-3
#: A kernel whose trace per row, after scaling by all rows to one, is below this on the
#: training rows of a fold is constant there.
CONSTANT_IN_FOLD = 1e-12


class MomentProblem:
    """Centred kernels of trace n and targets, from ``A'A`` with ``A = [1, T, Z]``.

    Rows of A multiplied by the roots of row weights, the column of ones included, give
    the weighted problem of :class:`~kernelweave.fits.design.RowDesign`.

    With ``S = Z'PZ`` and ``C = Z'H``, features scaled so that the trace of each block
    of S is n, and ``H = P T Theta``, one Cholesky factorisation::

        [ S   C   ]   [ L    0  ] [ L'  H_1 ]
        [ C'  H'H ] = [ H_1' F' ] [ 0   F   ]

    gives D + k rows: features ``[L'; 0]`` and targets ``[H_1; F]``. They differ from
    ``PZ`` and H only by a rotation of the n rows, which no kernel method can see: all
    of ``H'M^-1 H``, ``H'M^-1 G_i M^-1 H`` and so on are unchanged. So an unmodified
    solver finds the optimum over n rows from D + k rows.

    Parameters
    ----------
    gram : array of shape (1 + t + D, 1 + t + D)
        ``A'A`` in float64.
    coding : ndarray of shape (t, k)
        Theta, which turns the columns of T into targets.
    widths : list of int
        Number of features of each of the p kernels; their sum is D.
    names : list of str
        Names of the kernels.
    precision : float
        Machine precision of the products behind ``gram``.
    origins : ndarray of shape (p,), default=0
        Squared length of the vector subtracted from the features of each kernel.
    noise : ndarray of shape (p,), default=0
        Variance of the features of each kernel that stems from rounding of its columns.
    n_rows : int, optional
        The number of rows, needed if they have weights: ``A'A`` is then a weighted sum.

    Attributes
    ----------
    n_rows : int
        The number of rows.
    total : float
        The sum N of their weights; n if every row counts once. Kernels have trace N.
    active, active_widths : list of int
        Kernels that vary over the rows, the only ones of the bank, and their widths.
    scales : ndarray of shape (p,)
        ``n / tr(P K_i P)``, 0 for kernels that do not vary.
    mean : array of shape (D,)
        Mean of the features.
    bank : FeatureBank
        The active kernels over D + k rows.
    target : array of shape (D + k, k)
        The targets over these rows.
    jitter : float
        Relative amount added to every variance to make the factorisation succeed.
    """

    def __init__(
        self,
        gram: Array,
        coding: np.ndarray,
        widths: list[int],
        names: list[str],
        precision: float,
        origins: np.ndarray | float = 0.0,
        noise: np.ndarray | float = 0.0,
        n_rows: int | None = None,
    ) -> None:
        head = 1 + coding.shape[0]
        self.widths, self.coding = list(widths), coding
        self.precision = precision
        self.total = float(gram[0, 0])
        self.n_rows = round(self.total) if n_rows is None else n_rows
        means = gram[0, :] / self.total
        centred = gram - self.total * means[:, None] * means[None, :]
        self.mean = means[head:]
        traces, second = (_traces(a[head:, head:], widths) for a in (centred, gram))
        rounding = precision * (second + self.total * origins)
        self.scales = trace_scales(self.total, traces, rounding, noise)
        self.active = [int(i) for i in np.flatnonzero(self.scales)]
        self.active_widths = [self.widths[i] for i in self.active]
        spread = np.repeat(self.scales, widths)
        #: Which of all D features belong to active kernels, and their factors.
        self.used = np.flatnonzero(spread)
        self.feature_scales = np.sqrt(spread[self.used])
        d = len(self.used)
        factor, self.jitter = self._factor(*self.blocks(centred))
        self.bank = FeatureBank(
            factor[:, :d],
            self.active_widths,
            [names[i] for i in self.active],
            self.n_rows,
            triangular=True,
        )
        self.target = factor[:, d:]

    def blocks(self, centred: Array) -> tuple[Array, Array, Array]:
        """``Z'Z`` (D, D), ``Z'H`` (D, k), ``H'H`` (k, k) of scaled columns from A'A."""
        xp, head = namespace(centred), 1 + self.coding.shape[0]
        scale = from_numpy(self.feature_scales, centred)
        coding = from_numpy(self.coding, centred)
        targets = coding.T @ centred[1:head, :]  # (k, 1 + t + D)
        used = from_numpy(head + self.used, centred, xp.int64)
        features = xp.take(xp.take(centred, used, axis=0), used, axis=1)
        features = features * scale[:, None] * scale[None, :]
        cross = xp.take(targets, used, axis=1) * scale[None, :]
        return features, cross.T, targets[:, 1:head] @ coding

    def _factor(
        self, features: Array, cross: Array, corner: Array
    ) -> tuple[Array, float]:
        """``R`` (D + k, D + k), upper triangular, with ``R'R = [Z H]'[Z H]``."""
        xp = namespace(features)
        top = xp.concat([features, cross], axis=1)
        joint = xp.concat([top, xp.concat([cross.T, corner], axis=1)], axis=0)
        size = int(joint.shape[0])
        diagonal = xp.linalg.diagonal(joint)
        unit = diagonal + MEAN_SHARE * float(xp.sum(diagonal)) / size
        first = self.precision * size
        tries = 1 + max(0, int(np.ceil(np.log10(LARGEST_JITTER / first))))
        shares = first * 10.0 ** np.arange(tries)
        try:
            factor, share = robust_cholesky(joint, map(float, shares), unit)
        except FactorizationError as error:
            raise FactorizationError(
                "the second moments of the features are not positive semidefinite, "
                f"even with {shares[-1]:.0e} of every variance added: sums in this "
                "precision have lost too many digits; use float64"
            ) from error
        return xp.triu(factor.T), share


class GcvPath(AlphaPath):
    """Generalised cross-validation for every alpha, from one eigendecomposition.

    Golub, Heath and Wahba (1979): where leave-one-out divides the residual of each row
    by its own ``q_i = (M^-1)_ii``, GCV divides all of them by the mean q_i, which is a
    trace over n. With eigenvalues s of the combined kernel over n rows and
    ``q = (sum_j 1/(s_j + alpha) + (n - 1 - r)/alpha) / n``::

        GCV(alpha) = norm(B)^2 / (n k q^2),      B = M^-1 H

    It needs only second moments, and comes close to leave-one-out when no single row
    has much influence, as with many more rows than features. With row weights of sum N,
    n stays the number of rows, each of which is left out with all of its weight, and
    ``GCV(alpha) = norm(B~)^2 / (N k q^2)``: only ratios of weights matter.

    Parameters
    ----------
    problem : MomentProblem
        Kernels and targets over r = D + k rows that represent n.
    weights : ndarray of shape (p,)
        Weights of the active kernels.
    """

    def __init__(self, problem: MomentProblem, weights: np.ndarray) -> None:
        gram = problem.bank.combine(weights)
        self.n_samples, self.total = problem.n_rows, problem.total
        self.mean_eigenvalue, largest = spectrum_bounds(gram, self.n_samples)
        values, vectors = eigh(gram)
        self.eigenvalues = np.maximum(to_numpy(values), 0.0)  # (r,)
        self.squares = to_numpy((vectors.T @ problem.target) ** 2)  # (r, k)
        rounding = ROUNDING_UNITS * max(eps(values), problem.precision)
        self.smallest_alpha = rounding * largest

    def errors(self, alphas: np.ndarray) -> np.ndarray:
        """``GCV(alpha)`` of each column, (a, k)."""
        found = []
        for row in alphas:  # (1,) or (k,)
            shifted = self.eigenvalues[:, None] + row
            shrunk = np.sum(self.squares / shifted**2, axis=0)
            found.append(shrunk / (self.total * self.precision(row) ** 2))
        return np.stack(found)

    def precision(self, alphas: np.ndarray) -> np.ndarray:
        """The q of each alpha (k,), from n - 1 eigenvalues: others are rounding."""
        n = self.n_samples
        values = self.eigenvalues[-(n - 1) :]  # in ascending order
        rest = (n - 1 - len(values)) / alphas
        return (np.sum(1.0 / (values[:, None] + alphas), axis=0) + rest) / n


class CvPath(AlphaPath):
    """Mean squared error of exact k-fold cross-validation along a path of alphas.

    The training moments are the total minus those of the fold: no row is visited
    again. For each fold, kernels and targets are re-centred, and kernels rescaled to
    the right trace, on the rows that remain. With the eigenvalues s and eigenvectors V
    of the second moments of their weighted features Z, the coefficients are
    ``V (s + alpha)^-1 V'Z'H`` for every alpha, and their squared error on the fold is a
    quadratic form in the moments of the fold.

    Parameters
    ----------
    problem : MomentProblem
        Kernels and targets of all rows.
    folds : array of shape (f, 1 + t + D, 1 + t + D)
        ``A'A`` of each fold.
    weights : ndarray of shape (p,)
        Weights of the active kernels.
    """

    def __init__(
        self, problem: MomentProblem, folds: Array, weights: np.ndarray
    ) -> None:
        self.total = problem.total
        trace = problem.total * float(np.sum(weights))
        self.mean_eigenvalue = trace / problem.n_rows
        self.smallest_alpha = ROUNDING_UNITS * problem.precision * trace
        total = namespace(folds).sum(folds, axis=0)
        parts = (folds[f, :, :] for f in range(folds.shape[0]))
        self.parts = [
            _Fold(problem, total - part, part, weights)
            for part in parts
            if float(part[0, 0]) > 0
        ]

    def errors(self, alphas: np.ndarray) -> np.ndarray:
        """Mean squared error of each column, (a, k)."""
        sums = [sum(part.errors(row) for part in self.parts) for row in alphas]
        return np.stack(sums) / self.total


class _Fold:
    """Training moments in their eigenbasis, and the moments of the held-out rows."""

    def __init__(
        self, problem: MomentProblem, train: Array, held_out: Array, weights: np.ndarray
    ) -> None:
        n = float(train[0, 0])  # the sum of the weights, as m below
        if not n > ROUNDED_WEIGHT * problem.total:
            raise ValueError("cross-validation needs rows outside each fold")
        means = train[0, :] / n
        centred = train - n * means[:, None] * means[None, :]
        features, target, _ = problem.blocks(centred)
        # a kernel that is constant on the training rows predicts nothing here
        widths = problem.active_widths
        traces = _traces(features, widths)
        factors = weights * n / np.where(traces > CONSTANT_IN_FOLD * n, traces, np.inf)
        scale = from_numpy(np.sqrt(np.repeat(factors, widths)), features)
        features = features * scale[:, None] * scale[None, :]
        self.values, vectors = eigh(features)
        self.cross = vectors.T @ (target * scale[:, None])  # (D, k)
        # moments of the held-out rows about the means of the training rows
        m = float(held_out[0, 0])
        product = means[:, None] * held_out[0, :][None, :]
        shifted = held_out - product - product.T + m * means[:, None] * means[None, :]
        zz, zh, hh = problem.blocks(shifted)
        self.hh = namespace(hh).linalg.diagonal(hh)
        rotate = scale[:, None] * vectors
        self.zz, self.zh = rotate.T @ zz @ rotate, rotate.T @ zh

    def errors(self, alphas: np.ndarray) -> np.ndarray:
        """Sum of squared errors on the held-out rows, (k,), at alphas (1,) or (k,)."""
        xp = namespace(self.cross)
        coef = self.cross / (self.values[:, None] + from_numpy(alphas, self.cross))
        explained = xp.sum(coef * (2.0 * self.zh - self.zz @ coef), axis=0)
        return to_numpy(self.hh - explained)


def trace_scales(
    total: float, traces: np.ndarray, rounding: np.ndarray, noise: np.ndarray | float
) -> np.ndarray:
    """Factors (p,) that make the traces of centred kernels ``total``.

    Those of constant kernels are 0: their traces are within ``rounding`` (p,), second
    moments times machine precision, or the ``noise`` (p,) of each row.
    """
    varies = traces > np.maximum(CONSTANT_VARIANCE * rounding, total * noise)
    if not np.any(varies):
        raise NothingVariesError
    return np.where(varies, total / np.where(varies, traces, 1.0), 0.0)


def _traces(gram: Array, widths: list[int]) -> np.ndarray:
    """The trace of each diagonal block of ``gram`` (D, D), (p,)."""
    return block_sums(to_numpy(namespace(gram).linalg.diagonal(gram)), widths)

"""A million rows reduced to a few: the problem over n rows from second moments."""

from __future__ import annotations

import numpy as np

from kernelweave._array import (
    Array,
    FactorizationError,
    from_numpy,
    namespace,
    robust_cholesky,
    to_numpy,
)
from kernelweave._tolerances import CONSTANT_VARIANCE
from kernelweave.kernels.banks.features import FeatureBank

__all__ = ["MomentProblem"]

#: Before the factorisation each variance is raised by machine precision times the
#: number of columns, then by ten times more on each failure, up to this share of it.
LARGEST_JITTER = 1e-3


class MomentProblem:
    """Centred kernels of trace n and targets, from ``A'A`` with ``A = [1, T, Z]``.

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
    origins : ndarray of shape (p,), optional
        Squared length of the vector subtracted from the features of each kernel.
    noise : ndarray of shape (p,), optional
        Variance of the features of each kernel that stems from rounding of its columns.

    Attributes
    ----------
    n_rows : int
        n.
    active : list of int
        Kernels that vary over the rows; the bank holds only these.
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
        origins: np.ndarray | None = None,
        noise: np.ndarray | None = None,
    ) -> None:
        xp, head = namespace(gram), 1 + coding.shape[0]
        self.widths, self.coding = list(widths), coding
        self.precision = precision
        self.n_rows = round(float(gram[0, 0]))
        means = gram[0, :] / self.n_rows
        second = to_numpy(xp.linalg.diagonal(gram))[head:]
        centred = gram - self.n_rows * means[:, None] * means[None, :]
        self.mean = means[head:]
        origins = np.zeros(len(widths)) if origins is None else origins
        noise = np.zeros(len(widths)) if noise is None else noise
        self.scales = self._scales(
            to_numpy(xp.linalg.diagonal(centred))[head:], second, origins, noise
        )
        self.active = [int(i) for i in np.flatnonzero(self.scales)]
        if not self.active:
            raise ValueError(
                f"every one of the {len(names)} kernel(s) is constant on the training "
                "rows, so there is nothing to learn from; check the features"
            )
        #: Gram matrix of centred and scaled features and targets, features first.
        self.joint = self.scaled(centred)
        factor, self.jitter = self._factor(self.joint)
        d = self.n_features
        self.bank = FeatureBank(
            factor[:, :d],
            [self.widths[i] for i in self.active],
            [names[i] for i in self.active],
            self.n_rows,
            triangular=True,
        )
        self.target = factor[:, d:]

    @property
    def n_features(self) -> int:
        """The number of features of the active kernels."""
        return sum(self.widths[i] for i in self.active)

    @property
    def used(self) -> np.ndarray:
        """Which of all D features belong to active kernels, as indices."""
        ends = np.cumsum([0, *self.widths])
        return np.concatenate([np.arange(ends[i], ends[i + 1]) for i in self.active])

    @property
    def feature_scales(self) -> np.ndarray:
        """The factors by which the features of active kernels were multiplied."""
        return np.repeat(
            np.sqrt(self.scales[self.active]), [self.widths[i] for i in self.active]
        )

    def _scales(
        self,
        variances: np.ndarray,
        second: np.ndarray,
        origins: np.ndarray,
        noise: np.ndarray,
    ) -> np.ndarray:
        ends = np.cumsum([0, *self.widths])[:-1]
        traces = np.add.reduceat(variances, ends)
        sizes = np.add.reduceat(second, ends) + self.n_rows * origins
        rounding = CONSTANT_VARIANCE * self.precision * sizes
        varies = traces > np.maximum(rounding, self.n_rows * noise)
        return np.where(varies, self.n_rows / np.where(varies, traces, 1.0), 0.0)

    def scaled(self, centred: Array) -> Array:
        """``[Z H]'[Z H]`` of active, scaled columns from ``A'A``, (D + k, D + k)."""
        xp, head = namespace(centred), 1 + self.coding.shape[0]
        scale = from_numpy(self.feature_scales, centred)
        coding = from_numpy(self.coding, centred)
        targets = coding.T @ centred[1:head, :]  # (k, 1 + t + D)
        features = centred[head:, head:]
        cross = targets[:, head:]
        if len(self.active) < len(self.widths):
            used = xp.asarray(self.used, device=centred.device)
            features = xp.take(xp.take(features, used, axis=0), used, axis=1)
            cross = xp.take(cross, used, axis=1)
        features = features * scale[:, None] * scale[None, :]
        cross = cross * scale[None, :]
        corner = targets[:, 1:head] @ coding
        top = xp.concat([features, cross.T], axis=1)
        return xp.concat([top, xp.concat([cross, corner], axis=1)], axis=0)

    def _factor(self, joint: Array) -> tuple[Array, float]:
        """``R`` (D + k, D + k), upper triangular, with ``R'R`` the joint matrix."""
        xp, size = namespace(joint), int(joint.shape[0])
        diagonal = xp.linalg.diagonal(joint)
        unit = diagonal + 1e-3 * float(xp.sum(diagonal)) / size
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

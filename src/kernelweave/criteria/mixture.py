"""The likelihood of mixture weights: a convex criterion with a certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave._array import (
    DOUBLE_EPS,
    Array,
    as_float,
    from_numpy,
    namespace,
    to_numpy,
)
from kernelweave._tolerances import INVERTIBLE_SQUARE, ROUNDING_UNITS
from kernelweave.protocols import CertificateTerms, Criterion, Evaluation


class MixtureLikelihood(Criterion):
    """``-(1/N) [ sum_i r_i log sum_l w_l p_il + kappa sum_l log w_l ]`` of weights w.

    The mixture likelihood of Zhao et al. (2009), Eq. 17, as a function of the weights
    alone, with densities p that do not depend on them, and a Dirichlet prior. Row i
    counts ``r_i`` times, once by default, and N is the sum of these. The criterion is
    convex and, as ``-log s = max_a [ 1 + log a - a s ]``, of the form the certificate
    needs: every a > 0 in R^n and b > 0 in R^p bound it from below by ::

        (1/N) [ sum_i r_i (1 + log a_i) + kappa sum_l (1 + log b_l)
                - <w, p'(r a) + kappa b> ].

    Values are in nats per row, shifted so that uniform weights have the value -1 and
    relative gaps are about the same as gaps in nats per row; add ``offset`` for the
    formula above. Sums over rows are computed on the device of the densities, in
    float64; arrays of p entries are NumPy arrays.

    Parameters
    ----------
    log_density : array of shape (n, p)
        ``log p_il``; minus infinity is allowed, but not for a whole row.
    prior : float, default=0
        kappa >= 0, the parameter of the Dirichlet prior minus 1.
    row_weights : ndarray of shape (n,), optional
        r > 0.

    Attributes
    ----------
    offset : float
        Added to a value, gives that of the formula above.
    """

    offers = frozenset({"hessian", "concave reciprocal", "likelihood"})

    def __init__(
        self,
        log_density: Array,
        prior: float = 0.0,
        row_weights: np.ndarray | None = None,
    ) -> None:
        xp = namespace(log_density)
        log_density = as_float(log_density, xp.float64)
        largest = xp.max(log_density, axis=1, keepdims=True)
        ratio = xp.exp(log_density - largest)  # in [0, 1]: rows cannot underflow
        mean = xp.mean(ratio, axis=1, keepdims=True)
        self.ratio = ratio / mean  # (n, p), rows of mean 1
        self.prior = float(prior)
        n, p = ratio.shape
        counts = np.ones(n) if row_weights is None else np.asarray(row_weights, float)
        self.total = float(np.sum(counts))  # N
        self.share = from_numpy(counts / self.total, ratio)  # r / N
        unit = float(self.share @ (largest + xp.log(mean))[:, 0])
        self.offset = 1.0 - unit + self.prior * p * np.log(p) / self.total

    @property
    def n_kernels(self) -> int:
        """The number p of experts."""
        return int(self.ratio.shape[1])

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient and Hessian at ``weights`` (p,), from one pass over the rows.

        ``coef`` holds the dual points a (n,) and b (p,) of the class docstring.
        """
        mixed = self._mixed(weights)
        # zeros become numbers whose inverse can still be squared
        rows = 1.0 / namespace(mixed).clip(mixed, min=INVERTIBLE_SQUARE)
        columns = 1.0 / np.maximum(weights, INVERTIBLE_SQUARE)
        gradient = -self._scores(rows, columns)
        second = None
        if hessian:
            scaled = self.ratio * rows[:, None]
            second = to_numpy(scaled.T @ (scaled * self.share[:, None]))
            diagonal = np.diag_indices(len(weights))
            second[diagonal] += self.prior * columns**2 / self.total
        value = self._value(weights, mixed)
        return Evaluation(value, gradient, second, (rows, columns))

    def certificate_terms(
        self,
        weights: np.ndarray,
        coef: tuple[Array, np.ndarray],
        dual: tuple[Array, np.ndarray],
    ) -> CertificateTerms:
        """The value at ``weights``, and the bound from the dual point ``dual``."""
        xp, p = namespace(self.ratio), self.n_kernels
        rows, columns = dual
        scores = self._scores(rows, columns)
        mass = 1.0 + self.prior * p / self.total
        linear = float(self.share @ xp.log(rows)) + mass - 1.0
        if self.prior > 0:
            linear += self.prior * float(np.sum(np.log(columns / p))) / self.total
        upper = self._value(weights, self._mixed(weights))
        # sums of logarithms of about 1; a strong prior adds very many
        rounding = ROUNDING_UNITS * DOUBLE_EPS * mass
        return MixtureTerms(upper, linear, scores, mass, rounding=rounding)

    def _scores(self, rows: Array, columns: np.ndarray) -> np.ndarray:
        """``(p'(r a) + kappa b) / N`` (p,) of a dual point."""
        seen = to_numpy((self.share * rows) @ self.ratio)
        return seen + self.prior * columns / self.total

    def _mixed(self, weights: np.ndarray) -> Array:
        """Mixed densities (n,), relative to those of uniform weights."""
        return self.ratio @ from_numpy(weights, self.ratio)

    def _value(self, weights: np.ndarray, mixed: Array) -> float:
        xp = namespace(mixed)
        p = self.n_kernels
        with np.errstate(divide="ignore"):
            value = -1.0 - float(self.share @ xp.log(mixed))
            if self.prior > 0:
                value -= self.prior * float(np.sum(np.log(p * weights))) / self.total
        return value


@dataclass(frozen=True)
class MixtureTerms(CertificateTerms):
    """The bound of a dual point, scaled by the factor that is best for a set.

    Attributes
    ----------
    mass : float
        The number of logarithms in ``linear``, per row.
    """

    mass: float

    def lower_bound(self, support: float) -> float:
        """``max_s linear + mass log(s) - s support``."""
        return self.linear + self.mass * (np.log(self.mass / support) - 1.0)

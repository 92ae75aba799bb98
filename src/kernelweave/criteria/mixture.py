"""The likelihood of mixture weights: a convex criterion with a certificate."""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array, as_float, from_numpy, namespace, to_numpy
from kernelweave._tolerances import INVERTIBLE_SQUARE
from kernelweave.protocols import CertificateTerms, Criterion, Evaluation


class MixtureLikelihood(Criterion):
    """``-(1/n) [ sum_i log sum_l w_l p_il + kappa sum_l log w_l ]`` of weights w.

    The mixture likelihood of Zhao et al. (2009), Eq. 17, as a function of the weights
    alone, with densities p that do not depend on them, and a Dirichlet prior. It is
    convex and, as ``-log s = max_a [ 1 + log a - a s ]``, of the form the certificate
    needs: every a > 0 in R^n and b > 0 in R^p bound it from below by ::

        (1/n) [ sum_i (1 + log a_i) + kappa sum_l (1 + log b_l) - <w, p'a + kappa b> ].

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

    Attributes
    ----------
    offset : float
        Added to a value, gives that of the formula above.
    """

    offers = frozenset({"hessian", "concave reciprocal", "likelihood"})

    def __init__(self, log_density: Array, prior: float = 0.0) -> None:
        xp = namespace(log_density)
        log_density = as_float(log_density, xp.float64)
        largest = xp.max(log_density, axis=1, keepdims=True)
        ratio = xp.exp(log_density - largest)  # in [0, 1]: rows cannot underflow
        mean = xp.mean(ratio, axis=1, keepdims=True)
        self.ratio = ratio / mean  # (n, p), rows of mean 1
        self.prior = float(prior)
        n, p = ratio.shape
        unit = float(xp.mean(largest + xp.log(mean)))
        self.offset = 1.0 - unit + self.prior * p * np.log(p) / n

    @property
    def n_kernels(self) -> int:
        """The number p of experts."""
        return int(self.ratio.shape[1])

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient and Hessian at ``weights`` (p,), from one pass over the rows.

        ``coef`` holds the dual points a (n,) and b (p,) of the class docstring.
        """
        n = self.ratio.shape[0]
        mixed = self._mixed(weights)
        # zeros become numbers whose inverse can still be squared
        rows = 1.0 / namespace(mixed).clip(mixed, min=INVERTIBLE_SQUARE)
        columns = 1.0 / np.maximum(weights, INVERTIBLE_SQUARE)
        gradient = -(to_numpy(rows @ self.ratio) + self.prior * columns) / n
        second = None
        if hessian:
            scaled = self.ratio * rows[:, None]
            second = to_numpy(scaled.T @ scaled) / n
            second[np.diag_indices(len(weights))] += self.prior * columns**2 / n
        value = self._value(weights, mixed)
        return Evaluation(value, gradient, second, (rows, columns))

    def certificate_terms(
        self,
        weights: np.ndarray,
        coef: tuple[Array, np.ndarray],
        dual: tuple[Array, np.ndarray],
    ) -> CertificateTerms:
        """The value at ``weights``, and the bound from the dual point ``dual``.

        The dual point is first scaled by the factor that maximises its bound.
        """
        xp, (n, p) = namespace(self.ratio), self.ratio.shape
        rows, columns = dual
        scores = (to_numpy(rows @ self.ratio) + self.prior * columns) / n
        mass = 1.0 + self.prior * p / n
        factor = mass / float(np.max(scores))
        linear = float(xp.mean(xp.log(rows)))
        if self.prior > 0:
            linear += self.prior * float(np.sum(np.log(columns / p))) / n
        linear += mass * (1.0 + np.log(factor)) - 1.0
        upper = self._value(weights, self._mixed(weights))
        return CertificateTerms(upper, linear, factor * scores)

    def _mixed(self, weights: np.ndarray) -> Array:
        """Mixed densities (n,), relative to those of uniform weights."""
        return self.ratio @ from_numpy(weights, self.ratio)

    def _value(self, weights: np.ndarray, mixed: Array) -> float:
        xp = namespace(mixed)
        n, p = self.ratio.shape
        with np.errstate(divide="ignore"):
            value = -1.0 - float(xp.mean(xp.log(mixed)))
            if self.prior > 0:
                value -= self.prior * float(np.sum(np.log(p * weights))) / n
        return value

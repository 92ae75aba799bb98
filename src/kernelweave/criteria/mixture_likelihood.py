"""The likelihood of mixture weights, a convex criterion with a certificate."""

from __future__ import annotations

import numpy as np

from kernelweave.criteria.base import CertificateTerms, Evaluation

__all__ = ["MixtureLikelihood"]


class MixtureLikelihood:
    """``-(1/n) [ sum_i log sum_l w_l p_il + kappa sum_l log w_l ]`` of weights w.

    The mixture likelihood of Zhao et al. (2009), Eq. 16, over the weights alone, with
    densities p that do not depend on them, and a Dirichlet prior. It is convex and, as
    ``-log s = max_a [ 1 + log a - a s ]``, of the form that the certificate needs:
    every a > 0 in R^n and b > 0 in R^p bounds it from below by ::

        (1/n) [ sum_i (1 + log a_i) + kappa sum_l (1 + log b_l) - <w, p'a + kappa b> ].

    Values are counted in nats a row from those of uniform weights, which are set to -1,
    so that a gap relative to the value is one in nats a row; add ``offset`` for the
    formula above.

    Parameters
    ----------
    log_density : ndarray of shape (n, p)
        ``log p_il``; minus infinity is allowed, but not for a whole row.
    prior : float, default=0
        kappa >= 0, the exponent of the Dirichlet prior less 1.

    Attributes
    ----------
    offset : float
        What to add to a value.
    """

    family = "mixture"

    def __init__(self, log_density: np.ndarray, prior: float = 0.0) -> None:
        log_density = np.asarray(log_density, dtype=np.float64)
        largest = np.max(log_density, axis=1, keepdims=True)
        ratio = np.exp(log_density - largest)  # in [0, 1]: rows cannot underflow
        mean = np.mean(ratio, axis=1, keepdims=True)
        self.ratio = ratio / mean  # (n, p), rows of mean 1
        self.prior = float(prior)
        n, p = ratio.shape
        unit = float(np.mean(largest + np.log(mean)))
        self.offset = 1.0 - unit + self.prior * p * np.log(p) / n

    @property
    def n_weights(self) -> int:
        """The number p of weights."""
        return int(self.ratio.shape[1])

    @property
    def n_kernels(self) -> int:
        """The number p of kernels."""
        return self.n_weights

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient and Hessian at ``weights`` (p,), from one pass over rows."""
        n = len(self.ratio)
        mixed = self.ratio @ weights  # (n,)
        dual = np.concatenate([_inverse(mixed), _inverse(weights)])
        scaled = self.ratio * dual[:n, None]
        gradient = -(np.sum(scaled, axis=0) + self.prior * dual[n:]) / n
        second = None
        if hessian:
            second = scaled.T @ scaled / n
            second[np.diag_indices(len(weights))] += self.prior * dual[n:] ** 2 / n
        return Evaluation(self._value(weights, mixed), gradient, second, dual)

    def certificate_terms(
        self, weights: np.ndarray, coef: np.ndarray, dual: np.ndarray
    ) -> CertificateTerms:
        """The value at ``weights``, and the bound of the dual point ``dual`` (n + p,).

        The dual point is scaled by the factor that makes its bound the largest.
        """
        n, p = self.ratio.shape
        rows, columns = dual[:n], dual[n:]
        scores = (self.ratio.T @ rows + self.prior * columns) / n
        mass = 1.0 + self.prior * p / n
        factor = mass / float(np.max(scores))
        with np.errstate(divide="ignore"):
            linear = float(np.mean(np.log(rows)))
            if self.prior > 0:
                linear += self.prior * float(np.sum(np.log(columns / p))) / n
        linear += mass * (1.0 + np.log(factor)) - 1.0
        upper = self._value(weights, self.ratio @ weights)
        return CertificateTerms(upper, linear, factor * scores)

    def responsibilities(self, weights: np.ndarray) -> np.ndarray:
        """``w_l p_il / sum_m w_m p_im``, (n, p): Eq. 19."""
        joint = self.ratio * weights[None, :]
        return joint / np.sum(joint, axis=1, keepdims=True)

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Experts that say the same share a weight that belongs to all of them."""
        return ()

    def _value(self, weights: np.ndarray, mixed: np.ndarray) -> float:
        with np.errstate(divide="ignore"):
            value = -1.0 - float(np.mean(np.log(mixed)))
            if self.prior > 0:
                p, n = len(weights), len(mixed)
                value -= self.prior * float(np.sum(np.log(p * weights))) / n
        return value


def _inverse(x: np.ndarray) -> np.ndarray:
    """``1 / x``, with the largest number that can still be squared for 0."""
    return 1.0 / np.maximum(x, 1e-150)

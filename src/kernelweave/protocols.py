"""What a criterion must be able to say about a weighted sum of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kernelweave._array import Array, FactorizationError

__all__ = ["CertificateTerms", "Criterion", "Evaluation", "InfeasibleError"]


class InfeasibleError(FactorizationError):
    """A criterion is infinite at the weights asked for; the message says why.

    Attributes
    ----------
    coef : array or None
        A dual point whose bound is as good as infinite.
    """

    coef: Array | None = None


@dataclass(frozen=True)
class Evaluation:
    """Value, gradient, Hessian and dual point of a criterion at some weights.

    Attributes
    ----------
    value : float
        J(w).
    gradient : ndarray of shape (m,)
        dJ/dw.
    hessian : ndarray of shape (m, m) or None
        The exact second derivative, if it was asked for.
    coef : array
        The dual point that attains the value.
    n_factorizations : int
        How many factorisations it took.
    """

    value: float
    gradient: np.ndarray
    hessian: np.ndarray | None
    coef: Array
    n_factorizations: int = 1


@dataclass(frozen=True)
class CertificateTerms:
    """What the certificate needs, from dual points of any quality.

    ``upper >= J(w)`` and, for every allowed ``u``, ``J(u) >= linear - <scores, u>``.
    """

    upper: float
    linear: float
    scores: np.ndarray

    def lower_bound(self, support: float) -> float:
        """A bound on the optimum, if no allowed ``u`` has ``<scores, u> > support``."""
        return self.linear - support

    def bound(self, weight_set: Any) -> float:
        """A bound on the optimum over a set of weights."""
        return self.lower_bound(weight_set.support(self.scores))


class Criterion(Protocol):
    """A convex function ``J(w) = max_a [ linear(a) - sum_i w_i scores_i(a) ]``.

    Attributes
    ----------
    n_weights : int
        m, the number of weights.
    n_kernels : int
        p, the number of kernels; weights before the last p belong to other terms,
        such as the identity whose weight is a learned regularisation.
    family : str
        Which solvers can minimise it: a key of ``kernelweave.solvers.methods.METHODS``.
    """

    family: str

    @property
    def n_weights(self) -> int:
        """The number m of weights."""
        ...

    @property
    def n_kernels(self) -> int:
        """The number p of kernels."""
        ...

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Everything a solver needs at ``weights`` (m,), from one factorisation."""
        ...

    def certificate_terms(
        self, weights: np.ndarray, coef: Array, dual: Array
    ) -> CertificateTerms:
        """Bounds that hold whatever solver found the three arguments, and how well."""
        ...

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Sentences a user should read beside these weights (m,)."""
        ...

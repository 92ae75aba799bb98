"""The seams: what a bank, a criterion and a weight set are, and what a method needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from kernelweave._array import Array, FactorizationError

__all__ = ["Bank", "CertificateTerms", "Criterion", "Evaluation", "InfeasibleError"]


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


@runtime_checkable
class Bank(Protocol):
    """Kernels ``G_1, ..., G_p`` over n rows, known by their products.

    Criteria, weight sets and solvers reach the kernels through these methods only, so
    that a bank may hold matrices or features, or make its kernels anew whenever they
    are used. :class:`~kernelweave.kernels.banks.base.KernelBank` derives all of them
    from ``kernel(i)``.

    Attributes
    ----------
    n_kernels, n_samples : int
        p and n.
    n_rows : int
        The number of data rows behind the n rows of the kernels.
    names : list of str
        One name per kernel.
    like : array
        Has the namespace, device and dtype of the kernels.
    is_cheap_to_cut : bool
        Whether a subset of the kernels takes no copy of n x n matrices.
    """

    n_kernels: int
    n_samples: int
    n_rows: int
    names: list[str]
    like: Array
    is_cheap_to_cut: bool

    def kernel(self, i: int) -> Array:
        """``G_i``, (n, n), perhaps in the bank's own memory: not to be changed."""
        ...

    def row_blocks(self) -> Iterator[tuple[slice, Array]]:
        """All kernels, a few rows at a time: which rows, and (p, r, n)."""
        ...

    def combine(
        self, weights: np.ndarray, out: Array | None = None, lower: bool = False
    ) -> Array:
        """``sum_i w_i G_i``, (n, n), in memory of its own, perhaps that of ``out``.

        With ``lower``, entries above the diagonal may be anything.
        """
        ...

    def apply(self, b: Array) -> Array:
        """``G_i B`` for every kernel, (p, n, k), in the precision of ``b`` (n, k)."""
        ...

    def quad(self, b: Array) -> Array:
        """``tr(B' G_i B)`` for every kernel, (p,)."""
        ...

    def diagonals(self) -> np.ndarray:
        """The diagonal of every kernel in float64, (p, n)."""
        ...

    def sizes(self, kernels: np.ndarray) -> np.ndarray:
        """Frobenius norms of the kernels with these numbers."""
        ...

    def restrict(self, rows: np.ndarray) -> Bank:
        """The same kernels between the rows with these numbers."""
        ...

    def subset(self, kernels: np.ndarray) -> Bank:
        """The kernels with these numbers."""
        ...


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

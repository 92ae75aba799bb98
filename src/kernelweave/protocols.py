"""The seams: what a bank, a criterion and a weight set are, and what a method needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from kernelweave._array import Array, FactorizationError

__all__ = [
    "Bank",
    "CertificateTerms",
    "Criterion",
    "Evaluation",
    "InfeasibleError",
    "Iterate",
    "LinearSet",
    "Method",
    "NormSet",
    "Polyhedron",
    "WeightSet",
]


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

    def bound(self, weight_set: WeightSet) -> float:
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


@dataclass(frozen=True)
class Iterate:
    """One evaluated point of a method.

    Attributes
    ----------
    weights : ndarray of shape (m,)
        The point.
    value : float
        The criterion there.
    gradient : ndarray of shape (m,)
        Its gradient there.
    coef : array
        The dual point of the criterion there.
    dual : array or None
        A better dual point for the lower bound, where the method has one.
    lower_bound : float or None
        A lower bound that belongs to ``dual``.
    n_factorizations : int
        Factorisations since the last iterate, those of rejected points included.
    """

    weights: np.ndarray
    value: float
    gradient: np.ndarray
    coef: Array
    dual: Array | None = None
    lower_bound: float | None = None
    n_factorizations: int = 1

    @classmethod
    def at(cls, weights: np.ndarray, state: Evaluation) -> Iterate:
        """The iterate of one evaluation."""
        return cls(
            weights,
            state.value,
            state.gradient,
            state.coef,
            n_factorizations=state.n_factorizations,
        )


@dataclass(frozen=True)
class Polyhedron:
    """``{ x : equal x = equal_to, below x <= below_to, low <= x <= high }``.

    Attributes
    ----------
    equal, equal_to : ndarray of shape (e, m) and (e,)
        Equations.
    below, below_to : ndarray of shape (r, m) and (r,)
        Inequalities.
    limits : ndarray of shape (m, 2)
        Lower and upper limit of each variable; infinite where there is none.
    """

    equal: np.ndarray
    equal_to: np.ndarray
    below: np.ndarray
    below_to: np.ndarray
    limits: np.ndarray

    @classmethod
    def sum_to_one(
        cls,
        m: int,
        low: float | np.ndarray = 0.0,
        high: float | np.ndarray = 1.0,
        below: np.ndarray | None = None,
        below_to: np.ndarray | None = None,
    ) -> Polyhedron:
        """``sum_i x_i = 1`` within limits, and under further inequalities if given."""
        limits = np.empty((m, 2))
        limits[:, 0], limits[:, 1] = low, high
        below = np.zeros((0, m)) if below is None else below
        below_to = np.zeros(len(below)) if below_to is None else below_to
        return cls(np.ones((1, m)), np.ones(1), below, below_to, limits)


@runtime_checkable
class WeightSet(Protocol):
    """A compact convex set of m weights, known by its support function.

    A class that inherits from the protocol gets the methods with a body.

    Attributes
    ----------
    offers : frozenset of str
        What methods may rely on:

        ============ ===================================================================
        "norm"       it is ``{ w >= 0 : sum_i w_i^q <= 1 }``, with ``norm`` = q; or one
                     point
        "polyhedron" it is ``{ w >= 0 : w^q in polyhedron(m) }`` with ``power`` = q,
                     which is 1 unless the set is a ball of that norm; ``start``
                     satisfies all inequalities strictly
        "sparse"     a criterion is often smallest where weights are zero
        "cuts"       weights of any sign; ``polyhedron(m)`` contains the set, and
                     ``separate(w)`` makes it smaller
        ============ ===================================================================
    """

    offers: ClassVar[frozenset[str]]

    def start(self, m: int) -> np.ndarray:
        """A point in the relative interior, (m,)."""
        ...

    def support(self, scores: np.ndarray) -> float:
        """``max <scores, w>`` over the set: what turns a dual point into a bound."""
        ...

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """A point of the set where :meth:`support` is attained, (m,)."""
        ...

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """Weights moved onto the set, along a ray from zero where that is possible."""
        ...

    def violation(self, weights: np.ndarray) -> float:
        """How far outside the set ``weights`` lie; 0 inside."""
        ...

    def is_point(self, m: int) -> bool:
        """Whether ``start(m)`` is all there is."""
        return m == 1

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Sentences a user should read beside these weights (m,)."""
        return ()


class NormSet(WeightSet, Protocol):
    """A weight set that offers "norm"."""

    norm: float


class LinearSet(WeightSet, Protocol):
    """A weight set that offers "polyhedron"."""

    power: float

    def polyhedron(self, m: int) -> Polyhedron:
        """The constraints on ``w^power`` for m weights."""
        ...


class Criterion(Protocol):
    """A convex function ``J(w) = max_a [ linear(a) - sum_i w_i scores_i(a) ]``.

    A class that inherits from the protocol gets the methods with a body.

    Attributes
    ----------
    offers : frozenset of str
        What methods may rely on:

        ==================== ===========================================================
        "hessian"            ``evaluate`` gives the exact Hessian
        "concave reciprocal" ``1 / J`` is concave in w where J > 0
        "averages"           dual points may be averaged with ``+`` and ``*``, and the
                             bound of an average is at least the average of the bounds
        "parts"              ``J = min_f sum_i norm(f_i)^2 / w_i + loss(sum_i f_i)``
        "kernel scores"      ``scores(dual)`` for all kernels, ``restricted(kernels)``
                             to some, from the dual point ``target`` on
        "expansion"          ``expand(w)`` of :class:`~kernelweave.BlockFisher`
        "saddle"             ``problem``, a saddle point of weights and margins
        "cosines"            ``cosines`` and ``correlations`` of the kernels
        "likelihood"         weights times scores are the weights of the next EM step
        "printed program"    ``kernelweave.solvers.reference.fisher`` has its SDP
        ==================== ===========================================================
    preferred_method : str
        What ``method="auto"`` means where it fits; "" for the first method that fits.
    """

    offers: ClassVar[frozenset[str]]

    @property
    def preferred_method(self) -> str:
        """The method that suits this problem best, or "" for no preference."""
        return ""

    @property
    def n_kernels(self) -> int:
        """The number p of kernels."""
        ...

    @property
    def n_weights(self) -> int:
        """The number m of weights: those before the last p belong to other terms."""
        return self.n_kernels

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
        return ()


@dataclass(frozen=True)
class Method:
    """A way to minimise a criterion over a weight set.

    Attributes
    ----------
    name : str
        What ``solve(..., method=name)`` calls it; methods for different problems may
        share a name.
    run : callable
        ``run(criterion, weight_set)`` yields an :class:`Iterate` for each point it
        evaluates, until it has no further step.
    max_iter : int
        Iterations allowed by default.
    needs, set_needs : frozenset of str
        What the criterion and the weight set must offer.
    """

    name: str
    run: Callable[[Any, Any], Iterator[Iterate]]
    max_iter: int
    needs: frozenset[str] = frozenset()
    set_needs: frozenset[str] = frozenset()

    def lacks(self, criterion: Any, weight_set: Any) -> list[str]:
        """What a criterion and a set, or their classes, do not offer."""
        return [
            f"{need!r} of the {whose}"
            for whose, needs, offers in (
                ("criterion", self.needs, criterion.offers),
                ("weight set", self.set_needs, weight_set.offers),
            )
            for need in sorted(needs - offers)
        ]

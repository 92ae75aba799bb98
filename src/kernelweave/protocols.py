"""The seams: what a bank, a criterion and a weight set are, and what a method needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar, Protocol, Self, TypeGuard, runtime_checkable

import numpy as np

from kernelweave._array import (
    DOUBLE_EPS,
    Array,
    FactorizationError,
    is_array,
    is_real,
    tensor_sum,
)
from kernelweave._tolerances import (
    FEW_ROWS,
    LIKE_IDENTITY,
    NEGLIGIBLE_WEIGHT,
    NO_KERNEL,
)


def is_positive(value: Any) -> bool:
    """Whether a value is a finite number above zero, as alpha, C and norms must be.

    It may be an array without axes, such as the mean of another.
    """
    scalar = is_array(value) and value.ndim == 0 and is_real(value)
    if not (scalar or isinstance(value, Real)):
        return False
    try:
        return 0.0 < float(value) < math.inf
    except OverflowError:  # an integer beyond float64
        return False


def require_positive(**numbers: Any) -> None:
    """Refuse everything but finite numbers above zero."""
    for name, value in numbers.items():
        if not is_positive(value):
            raise ValueError(f"{name} must be a finite number > 0, got {value!r}")


class InfeasibleError(FactorizationError):
    """The criterion is infinite at the given weights; the message says why.

    Attributes
    ----------
    coef : array or None
        A dual point whose bound is infinite for all practical purposes.
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
        The exact second derivative, if requested.
    coef : array
        The dual point that attains the value.
    n_factorizations : int
        Number of factorisations used.
    """

    value: float
    gradient: np.ndarray
    hessian: np.ndarray | None
    coef: Array
    n_factorizations: int = 1


@dataclass(frozen=True)
class CertificateTerms:
    """The terms of the certificate, valid for dual points of any quality.

    ``upper >= J(w)`` and, for every allowed ``u``, ``J(u) >= linear - <scores, u>``,
    up to ``rounding``: what the arithmetic in float64 may add to a bound where terms
    much larger than the value cancel. ``excess`` is what earlier rounding, of kernels
    or of dual points, may have cost: it explains a gap, and bounds that cross.
    """

    upper: float
    linear: float
    scores: np.ndarray
    rounding: float = field(default=0.0, kw_only=True)
    excess: float = field(default=0.0, kw_only=True)

    def lower_bound(self, support: float) -> float:
        """A bound on the optimum if ``<scores, u> <= support`` for all allowed u."""
        return self.linear - support

    def bound(self, weight_set: WeightSet) -> float:
        """A bound on the optimum over a set of weights."""
        return self.lower_bound(weight_set.support(self.scores))


def relative_gap(value: float, lower_bound: float) -> float:
    """``(value - lower_bound) / abs(value)``, 0 / 0 = 0; infinite if the value is."""
    if np.isinf(value):
        return np.inf
    difference = value - lower_bound
    if value == 0:
        return 0.0 if difference == 0 else np.inf
    return difference / abs(value)


@runtime_checkable
class Bank(Protocol):
    """Kernels ``G_1, ..., G_p`` over n rows, accessed through their products.

    Criteria, weight sets and solvers use the kernels through these methods only, so a
    bank may store matrices or features, or recompute its kernels on every use. Four
    products are essential: ``combine``, ``apply``, ``quad`` and ``restrict``. All the
    others say what the kernels are like, and
    :class:`~kernelweave.kernels.banks.dense.KernelBank` derives every method from
    ``kernel(i)``. Estimators need a :class:`RowBank` or, for features, a
    :class:`FeatureProducts`.

    Attributes
    ----------
    n_kernels, n_samples : int
        p and n.
    n_rows : int
        The number of data rows behind the n rows of the kernels.
    names : list of str
        One name per kernel.
    like : array
        An array with the namespace, device and dtype of the kernels.
    is_cheap_to_cut : bool
        Whether a subset of the kernels can be taken without copying n x n matrices,
        and pays off where most of very many kernels get no weight.
    errors : ndarray of shape (p,) or None
        Bounds on the errors of the kernels' eigenvalues, if these matter.
    standard : object
        How the kernels were centred and scaled; None: centred, to trace n.
    views : list of str or None
        The view of each kernel; None: every kernel is a view of its own.
    """

    n_kernels: int
    n_samples: int
    n_rows: int
    names: list[str]
    like: Array
    is_cheap_to_cut: bool
    errors: np.ndarray | None
    standard: Any
    views: list[str] | None

    def kernel(self, i: int) -> Array:
        """``G_i``, (n, n), possibly a view of the bank's memory: do not modify it."""

    def row_blocks(self) -> Iterator[tuple[slice, Array]]:
        """All kernels, a few rows at a time: the slice of rows, and (p, r, n)."""

    def combine(
        self, weights: np.ndarray, out: Array | None = None, lower: bool = False
    ) -> Array:
        """``sum_i w_i G_i``, (n, n), in new memory or, possibly, that of ``out``.

        With ``lower``, the entries that a factorisation does not read are unspecified.
        """

    def apply(self, b: Array) -> Array:
        """``G_i B`` for every kernel, (p, n, k), in the precision of ``b`` (n, k)."""

    def quad(self, b: Array) -> np.ndarray:
        """``tr(B' G_i B)`` for every kernel, (p,)."""

    def rounded_traces(self) -> np.ndarray:
        """The traces (p,) that rounding errors of sums over kernels are measured by."""

    def diagonals(self) -> np.ndarray:
        """The diagonal of every kernel in float64, (p, n)."""

    def sizes(self, kernels: np.ndarray) -> np.ndarray:
        """Frobenius norms of the kernels with these indices."""

    def entry_errors(self) -> np.ndarray:
        """Relative rounding errors of the kernels' entries, (p,)."""

    def same_kernels(self) -> list[np.ndarray]:
        """Groups of indices of kernels that are the same up to scale."""

    def identity_likeness(self, kernels: np.ndarray) -> np.ndarray:
        """Cosine between the centred identity and each of ``kernels``, indices (c,)."""

    def restrict(self, rows: np.ndarray) -> Bank:
        """The same kernels, restricted to the rows with these indices."""

    def subset(self, kernels: np.ndarray) -> Bank:
        """The kernels with these indices."""


def require_bank(bank: object, owner: str) -> None:
    """Refuse anything that lacks a part of a bank; ``owner`` is what needs it."""
    parts = [*Bank.__annotations__, *(name for name in vars(Bank) if name[0] != "_")]
    lost = [name for name in parts if not hasattr(bank, name)]
    if not lost:
        return
    others = f" and {len(lost) - 3} others" if len(lost) > 3 else ""
    raise TypeError(
        f"{owner} needs a bank of kernels such as DenseBank(stack); "
        f"{type(bank).__name__} lacks {', '.join(map(repr, lost[:3]))}{others}. A "
        "class derived from kernelweave.kernels.banks.dense.KernelBank has all of these"
    )


class RowBank(Bank, Protocol):
    """A bank to which, or to some of whose rows, an estimator can be fitted.

    Attributes
    ----------
    held_as : str
        What the bank keeps in memory: "kernels", "features" or, if "on the fly", rows.
    """

    held_as: str

    def subset(self, kernels: np.ndarray) -> RowBank:
        """The kernels with these indices."""

    def space_of_fold(self, n: int) -> Array | None:
        """Memory for the kernels of n rows in :meth:`fold`, if they take any."""

    def fold(
        self,
        train: np.ndarray,
        test: np.ndarray,
        row_weights: np.ndarray | None,
        space: Array | None,
    ) -> FoldKernels:
        """Kernels of the rows ``train``, as if there were no others, and of ``test``.

        Parameters
        ----------
        train, test : ndarray of int
            Numbers of rows.
        row_weights : ndarray of shape (n,) or None
            Rows and columns of the kernels were multiplied by their roots.
        space : array or None
            From :meth:`space_of_fold`.
        """


class FoldKernels(Protocol):
    """Kernels of some rows, centred and scaled without the others.

    Attributes
    ----------
    active : list of int
        Kernels that vary over these rows.
    """

    active: list[int]

    @property
    def bank(self) -> RowBank:
        """These kernels; there must be at least one."""

    def cross(self, weights: np.ndarray) -> Array:
        """``sum_i w_i G_i`` between held-out rows and those of the fold, (m, n)."""


class FeatureProducts(Bank, Protocol):
    """A bank of kernels ``G_i = Z_i Z_i'`` whose features can be combined."""

    def per_feature(self, values: np.ndarray) -> np.ndarray:
        """The value of its kernel for each feature, (D,), from ``values`` (p,)."""

    def feature_coef(
        self, coef: Array, weights: np.ndarray, scales: np.ndarray
    ) -> np.ndarray:
        """``s_i w_i Z_i'B`` of the kernels with weight, for features before scaling."""

    def feature_gram(self, weights: np.ndarray) -> np.ndarray:
        """``sqrt(w_i w_j) Z_i'Z_j`` of kernels with weight, (D_used, D_used)."""


@dataclass(frozen=True)
class Iterate:
    """A point at which a method has evaluated the criterion.

    Attributes
    ----------
    weights : ndarray of shape (m,)
        The point.
    value : float
        The value of the criterion at that point.
    gradient : ndarray of shape (m,)
        The gradient at that point.
    coef : array
        The dual point that attains the value.
    dual : array or None
        A better dual point for the lower bound, if the method has one.
    lower_bound : float or None
        The lower bound from ``dual``; by default that of the linearisation at the
        point.
    n_factorizations : int
        Factorisations since the last iterate, including those of rejected points.
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
        """The iterate for one evaluation."""
        known = state.value, state.gradient, state.coef
        return cls(weights, *known, n_factorizations=state.n_factorizations)

    def bound(self, weight_set: WeightSet) -> float:
        """The lower bound on the optimum over a set of weights."""
        if self.lower_bound is not None:
            return self.lower_bound
        # The linearisation of a convex function lies below it.
        slope = -self.gradient
        lower = self.value + slope @ self.weights - weight_set.support(slope)
        return float(lower)


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
        Lower and upper limits of each variable; infinite if there is none.
    """

    equal: np.ndarray
    equal_to: np.ndarray
    below: np.ndarray
    below_to: np.ndarray
    limits: np.ndarray

    def __post_init__(self) -> None:
        wrong = {  # infinite limits on the far side are none at all
            name: ~np.isfinite(getattr(self, name))
            for name in ("equal", "equal_to", "below", "below_to")
        }
        wrong["limits"] = np.isnan(self.limits) | (self.limits == [np.inf, -np.inf])
        for name, places in wrong.items():
            if np.any(places):
                place = tuple(np.argwhere(places)[0].tolist())
                what = "weight" if name == "limits" else "row"
                raise ValueError(
                    f"Polyhedron: {name} of {what} {place[0]} is "
                    f"{getattr(self, name)[place]}. State a finite number, or leave "
                    "the constraint out"
                )

    @classmethod
    def sum_to_one(
        cls,
        m: int,
        low: float | np.ndarray = 0.0,
        high: float | np.ndarray = 1.0,
        below: np.ndarray | None = None,
        below_to: np.ndarray | None = None,
    ) -> Polyhedron:
        """``sum_i x_i = 1`` within limits, with further inequalities if given."""
        limits = np.empty((m, 2))
        limits[:, 0], limits[:, 1] = low, high
        below = np.zeros((0, m)) if below is None else below
        below_to = np.zeros(len(below)) if below_to is None else below_to
        return cls(np.ones((1, m)), np.ones(1), below, below_to, limits)

    def inequalities(self) -> tuple[np.ndarray, np.ndarray]:
        """All inequalities, finite limits included, as ``rows x <= room``."""
        one = np.eye(len(self.limits))
        rows = np.concatenate([self.below, one, -one])
        low, high = self.limits.T
        room = np.concatenate([self.below_to, high, -low])
        limited = ~np.isposinf(room)
        return rows[limited], room[limited]


@runtime_checkable
class WeightSet(Protocol):
    """A compact convex set of m weights, described by its support function.

    Classes that inherit from the protocol inherit the methods that have a body. With
    :meth:`start`, :meth:`maximizer` and :meth:`violation` a set offers enough to be
    solved with a certificate, by "frank_wolfe"; :meth:`scale` is needed by sets that
    offer "norm", "polyhedron" or "sparse". All weights are >= 0 unless it offers
    "cuts".

    Attributes
    ----------
    offers : frozenset of str
        Properties that methods may rely on; none by default:

        ============ ===================================================================
        "norm"       the set is ``{ w >= 0 : sum_i w_i^q <= 1 }``, with ``norm`` = q, or
                     a single point: :class:`NormSet`
        "polyhedron" the set is ``{ w >= 0 : w^q in polyhedron(m) }`` with ``power`` =
                     q, which is 1 unless the set is a ball of that norm; ``start``
                     satisfies strictly all inequalities that leave room:
                     :class:`LinearSet`
        "sparse"     the minimiser of a criterion often has zero weights
        "cuts"       weights of any sign, for which a sum of kernels is positive
                     semidefinite: :class:`CutSet`
        ============ ===================================================================
    """

    offers: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        return type(self).__name__  # for messages, which name the set

    def start(self, m: int) -> np.ndarray:
        """A point in the relative interior, (m,)."""

    def support(self, scores: np.ndarray) -> float:
        """``max <scores, w>`` over the set, which turns a dual point into a bound."""
        return float(scores @ self.maximizer(scores))

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """A point of the set where :meth:`support` is attained, (m,)."""

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """Weights moved onto the set, along the ray from the origin if possible."""

    def violation(self, weights: np.ndarray) -> float:
        """How far ``weights`` lie outside the set; 0 inside."""

    def is_point(self, m: int) -> bool:
        """Whether ``start(m)`` is the only point."""
        return m == 1

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Sentences a user should read along with these weights (m,)."""
        return ()


class NormSet(WeightSet, Protocol):
    """A weight set that offers "norm"."""

    norm: float


class LinearSet(WeightSet, Protocol):
    """A weight set that offers "polyhedron"."""

    power: float

    def polyhedron(self, m: int) -> Polyhedron:
        """The constraints on ``w^power`` for m weights."""


class BallSet(NormSet, LinearSet, Protocol):
    """A weight set that offers both "norm" and "polyhedron"."""


class CutSet(LinearSet, Protocol):
    """A weight set that offers "cuts": its polyhedron contains it."""

    bank: Bank  # the kernels whose sum is positive semidefinite

    def separate(self, weights: np.ndarray) -> np.ndarray:
        """Weights (m,) pulled into the set, which adds cuts to the polyhedron."""


def has_cuts(weight_set: WeightSet) -> TypeGuard[CutSet]:
    """Whether a weight set offers "cuts"."""
    return "cuts" in weight_set.offers


class Criterion(Protocol):
    """A convex function ``J(w) = max_a [ linear(a) - sum_i w_i scores_i(a) ]``.

    Classes that inherit from the protocol inherit the methods that have a body.

    Attributes
    ----------
    offers : frozenset of str
        Properties that methods may rely on:

        ==================== ===========================================================
        "hessian"            ``evaluate`` returns the exact Hessian
        "concave reciprocal" ``1 / J`` is concave in w where J > 0
        "averages"           dual points may be averaged with ``+`` and ``*``, and the
                             bound of an average is at least the average of the bounds
        "parts"              ``J = min_f sum_i norm(f_i)^2 / w_i + loss(sum_i f_i)``
        "kernel scores"      it is a :class:`ScoredCriterion`
        "expansion"          it is an :class:`ExpansionCriterion`
        "saddle"             it is a :class:`SaddleCriterion`
        "cosines"            it is a :class:`CosineCriterion`
        "likelihood"         weights times scores are the weights of the next EM step
        "printed program"    its semidefinite program is registered with
                             ``kernelweave.solvers.reference.printed_program``
        "printed dual"       its quadratic program is registered with
                             ``kernelweave.solvers.reference.printed_dual``
        ==================== ===========================================================
    preferred_method : str
        The choice of ``method="auto"`` if it fits; "" for the first method that fits.
    bank : Bank or None
        The kernels, if the criterion is one of kernels.
    """

    offers: ClassVar[frozenset[str]]
    bank: Any = None

    @property
    def preferred_method(self) -> str:
        """The method that suits this problem best, or "" for no preference."""
        return ""

    @property
    def n_kernels(self) -> int:
        """The number p of kernels, by default those of the bank."""
        return int(self.bank.n_kernels)

    @property
    def n_weights(self) -> int:
        """The number m of weights; all but the last p belong to other terms."""
        return self.n_kernels

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """All that a solver needs at ``weights`` (m,), from one factorisation."""

    def certificate_terms(
        self, weights: np.ndarray, coef: Array, dual: Array
    ) -> CertificateTerms:
        """Bounds that hold however the arguments were found, and however accurately."""

    def copies(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Indices of weights whose kernels are the same, and of those that share them.

        Views share equally; within a view the first kernel stands for its copies.
        """
        return []

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Sentences a user should read along with these weights (m,)."""
        return ()


class ScoredCriterion(Criterion, Protocol):
    """A criterion that offers "kernel scores"."""

    target: Array  # a first dual point
    scale: float  # the gradient is minus this times the scores

    def scores(self, coef: Array) -> np.ndarray:
        """The scores of all weights at a dual point, (m,)."""

    def restricted(self, kernels: np.ndarray) -> Self:
        """The criterion of the kernels with these indices."""


class ExpansionCriterion(Criterion, Protocol):
    """A criterion that offers "expansion": ``J(w) = scale max_X tr(X A(w))``.

    X ranges over the correlation matrices, and dual points are of the class
    :class:`~kernelweave.criteria.fisher.BlockDual`.
    """

    scale: float

    def expand(self, weights: np.ndarray) -> Any:
        """A(w) with its derivatives: ``kernelweave.criteria.fisher.BlockExpansion``."""


class SaddleCriterion(Criterion, Protocol):
    """A criterion that offers "saddle": a saddle point in weights and margins.

    Attributes
    ----------
    problem : SaddleProblem
        The saddle point over the labelled rows; see ``kernelweave.inner.saddle``.
    may_give_up : bool
        Whether ``evaluate`` may raise ``kernelweave.criteria.margin.NotSuitable``
        where an interior point takes less time.
    """

    problem: Any
    may_give_up: bool

    def over_all_rows(self, coef: np.ndarray) -> Array:
        """A dual point, from the coefficients of the labelled rows (n, k)."""

    def by_libsvm(self, may_give_up: bool) -> Self:
        """The same criterion, evaluated by training support vector machines."""


class CosineCriterion(Criterion, Protocol):
    """A criterion that offers "cosines": minus the cosine of a sum to a target.

    Attributes
    ----------
    cosines : ndarray of shape (p,)
        Between each kernel and the target.
    correlations : ndarray of shape (p, p)
        Cosines between the kernels.
    norms : ndarray of shape (p,)
        Of the kernels.
    """

    cosines: np.ndarray
    correlations: np.ndarray
    norms: np.ndarray

    def unscaled(self, scaled: np.ndarray) -> np.ndarray:
        """Weights (p,) of kernels at norm one, divided by the norms; 0 / 0 = 0."""


class KernelCriterion(Criterion):
    """A criterion of the weights of p kernels and, if it is learned, of the identity.

    Attributes
    ----------
    bank : Bank
        The kernels.
    learns_identity : bool
        Whether the identity is a kernel too, the first one.
    identity_name : str
        What users call its weight.
    """

    bank: Bank
    learns_identity: bool = False
    identity_name: ClassVar[str] = "alpha"

    @property
    def n_weights(self) -> int:
        """p, or p + 1 with the identity first."""
        return self.n_kernels + int(self.learns_identity)

    def combined(self, weights: np.ndarray, products: Array) -> Array:
        """``sum_i w_i G_i B`` (n, k) without the identity, from products (m, n, k)."""
        p = self.n_kernels
        return tensor_sum(weights[-p:], products[-p:, ...])

    def copies(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Indices of weights whose kernels are the same, and of those to share them."""
        first = self.n_weights - self.n_kernels
        views: list[Any] = self.bank.views or list(range(self.n_kernels))
        found = []
        for group in self.bank.same_kernels():
            _, places = np.unique([views[i] for i in group], return_index=True)
            found.append((first + group, first + group[places]))
        return found

    def rounding(self, weights: np.ndarray, square: float) -> float:
        """Rounding errors of ``sum_i w_i tr(B' G_i B)`` in float64, ``|B|^2`` = square.

        They matter where B is nearly orthogonal to all eigenvectors that count: the
        products cancel, and the sum is far below ``|B|^2 tr(G)``.
        """
        traces = self.bank.rounded_traces()
        size = float(np.abs(weights[-self.n_kernels :]) @ traces)
        size *= max(1.0, FEW_ROWS / self.bank.n_samples)
        return DOUBLE_EPS * size * square

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Whether the weights are identifiable."""
        kernel_weights, name = weights[-self.n_kernels :], self.identity_name
        return weight_remarks(self.bank, kernel_weights, self.learns_identity, name)


def weight_remarks(
    bank: Bank, weights: np.ndarray, learns_alpha: bool, alpha: str = "alpha"
) -> tuple[str, ...]:
    """Sentences on what the data cannot determine about the weights (p,).

    ``alpha`` is the name of the weight of the identity, if it is learned.
    """
    remarks = []
    counts = weights > NEGLIGIBLE_WEIGHT * np.max(weights)
    for group in bank.same_kernels():
        if np.any(counts[group]):
            names = " and ".join(repr(bank.names[i]) for i in group)
            remarks.append(
                f"kernels {names} are the same up to scale: the data do not determine "
                "how they share their weight"
            )
    if learns_alpha and np.sum(weights) < NO_KERNEL:
        remarks.append(
            f"the learned {alpha} outweighs every kernel: the target looks unrelated "
            "to all of them"
        )
    if learns_alpha:
        candidates = np.flatnonzero(counts)
        alike = candidates[bank.identity_likeness(candidates) > LIKE_IDENTITY]
        if len(alike):
            names = ", ".join(repr(bank.names[i]) for i in alike)
            remarks.append(
                f"the learned {alpha} is not identifiable: on the training rows the "
                f"identity is nearly the same as {names}, whose weight is therefore "
                "regularisation rather than information"
            )
    return tuple(remarks)


@dataclass(frozen=True)
class Method:
    """A way to minimise a criterion over a weight set.

    Attributes
    ----------
    name : str
        Its name in ``solve(..., method=name)``; methods for different problems may
        share a name.
    run : callable
        ``run(criterion, weight_set)`` yields an :class:`Iterate` for each point it
        evaluates, until no further step is possible.
    max_iter : int
        Default limit on the number of iterations.
    needs, set_needs : set of str
        What the criterion and the weight set must offer. A method that does not need
        "cuts" is not used for sets that offer them, whose weights may be negative.
    takes_start : bool
        Whether ``run(criterion, weight_set, start)`` begins at given weights.
    same_point : bool
        Whether it leads to about the same point in float32 and float64, as Newton's
        steps do, rather than to any point within the gap.
    """

    name: str
    run: Callable[..., Iterator[Iterate]]
    max_iter: int
    needs: AbstractSet[str] = frozenset()
    set_needs: AbstractSet[str] = frozenset()
    takes_start: bool = False
    same_point: bool = False

    def lacks(self, criterion: Any, weight_set: Any) -> list[str]:
        """The needs that a criterion and a set, or their classes, do not meet."""
        needs = sorted(self.needs - criterion.offers)
        set_needs = sorted(self.set_needs - weight_set.offers)
        lacking = [f"{need!r} of the criterion" for need in needs]
        if "cuts" in weight_set.offers - self.set_needs:
            lacking.append("a weight set whose weights are >= 0, unlike one of 'cuts'")
        return lacking + [f"{need!r} of the weight set" for need in set_needs]

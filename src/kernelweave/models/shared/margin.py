"""What the margin classifiers share: weights and decision functions from signs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kernelweave._array import Array, from_numpy, is_numpy, namespace, to_numpy
from kernelweave.criteria.margin import (
    Margin,
    functions_of,
    margins_of,
    support_vectors,
)
from kernelweave.fits.design import RowDesign
from kernelweave.inner.svm import best_intercepts, train_machines
from kernelweave.learn.folds import choose_splits
from kernelweave.learn.sample import RowMap
from kernelweave.learn.search import split_learned, weight_set_of_norm
from kernelweave.models.shared.base import KernelClassifier, of_rows
from kernelweave.models.shared.inputs import (
    IDENTITY,
    Rule,
    boolean,
    check_parameters,
    one_of,
    positive,
    refuse_unscaled,
)
from kernelweave.protocols import Bank
from kernelweave.solvers.loop import Callback
from kernelweave.solvers.solve import (
    Certificate,
    Solution,
    error_of_value,
    find_weights,
    fitting_methods,
    reachable,
    with_certificate,
)
from kernelweave.weights import SignedSum, Simplex, WeightSet

if TYPE_CHECKING:  # estimators are built from what is here
    from kernelweave.models.multiple_kernel_svc import MultipleKernelSVC
    from kernelweave.models.transductive_kernel_svc import TransductiveKernelSVC

#: The solvers of margin problems.
MarginSolver = Literal[
    "auto",
    "interior_point",
    "newton",
    "cutting_plane",
    "closed_form",
    "spectral_cuts",
    "qcqp",
    "sdp",
]
#: Penalties tried by ``C="cv"``, for kernels of mean diagonal one.
C_GRID = np.logspace(-2, 2, 9)
#: Norms tried by ``norm="cv"``, the most even weights first.
CV_NORMS = (float("inf"), 2.0, 1.0)
#: Number of folds of both, and relative gap of their machines.
CV_FOLDS, CV_TOL = 5, 1e-3


class NoMarginError(ValueError):
    """No weights were found for which all rows are on their side of the margin."""


@dataclass(frozen=True)
class MarginOptions:
    """Which margin to maximise: parameters of the estimator of the same names."""

    owner: str  # for messages
    margin: Literal["l1", "l2", "hard"]
    C: Any  # a number, "learn" or "cv"
    norm: float | str
    signed: bool
    solver: str
    tol: float
    max_iter: int | None
    weight_bound: float
    scale: str | None

    @classmethod
    def of(cls, model: MultipleKernelSVC | TransductiveKernelSVC) -> MarginOptions:
        """The parameters of a model, with 1 or "cv" in place of "auto".

        "auto" is "cv" if classes have weights (and C is "auto" too, the margin is soft,
        and kernel weights are >= 0): at C = 1, a class with few rows whose weights are
        large is memorised.
        """
        names = [one.name for one in fields(cls) if one.name != "owner"]
        values = {name: getattr(model, name) for name in names}
        plain = model.margin != "hard" and not model.signed
        plain = plain and model.C == "auto" and model.class_weight is not None
        for name in ("C", "norm"):
            if values[name] == "auto":
                values[name] = "cv" if plain else 1.0
        return cls(type(model).__name__, **values)

    @property
    def problem(self) -> str:
        """The problem in words, for the certificate."""
        price = "learned C" if self.C == "learn" else f"C={float(self.C):.3g}"
        what = f"{self.margin} margin, {price}"
        if self.margin == "hard":
            what = "hard margin"
        sign = "signed" if self.signed else f"l{float(self.norm):.3g}"
        return f"Margin, {what}, {sign} weights"

    def with_norm(self, norm: float, price: float | None, p: int) -> MarginOptions:
        """With this norm, and C from a ``price`` for a sum of p kernels of trace n."""
        if price is None:
            return replace(self, norm=norm)
        trace = p ** (1.0 - 1.0 / norm) if np.isfinite(norm) else 1.0
        return replace(self, norm=norm, C=price / trace)


@dataclass(frozen=True)
class MarginFit:
    """Learned weights with the decision functions that go with them.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        Weights of the bank's kernels; they lie on the boundary of their set.
    coef : ndarray of shape (n, c)
        Signed dual coefficients of the c two-class problems.
    intercept, margin : ndarray of shape (c,)
        The intercepts, and the margins ``1 / norm(w)``.
    support : ndarray of bool of shape (n,)
        Which rows are support vectors.
    C : float
        The penalty on errors, learned or given; infinite for a hard margin.
    certificate : Certificate or None
        The proof, if it was asked for.
    n_iter : int
        Number of factorisations.
    """

    weights: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    margin: np.ndarray
    support: np.ndarray
    C: float
    certificate: Certificate | None
    n_iter: int


def learn_margin(
    options: MarginOptions,
    bank: Bank,
    signs: np.ndarray,
    row_weights: np.ndarray | None,
    callback: Callback | None = None,
    certified: bool = True,
) -> MarginFit:
    """Weights shared by all columns of ``signs`` (n, c), and their functions.

    The norm of the ``options`` is a number, and so is their C, or it is "learn". Fits
    that only judge others need not be ``certified``.
    """
    home = from_numpy(signs, bank.like)
    criterion = Margin(bank, home, options.margin, options.C, row_weights)
    weight_set: WeightSet
    if options.signed:
        weight_set = SignedSum(bank, float(options.weight_bound), row_weights)
    else:
        weight_set = weight_set_of_norm(float(options.norm), fixed=options.C != "learn")
    minimum = find_weights(
        criterion,
        weight_set,
        method=options.solver,
        **reachable(options.tol, bank.like),
        max_iter=options.max_iter,
        callback=callback,
    )
    if minimum.is_infeasible:
        raise NoMarginError(f"{options.owner}: {minimum.status}")
    certificate = None
    if certified:
        solution = with_certificate(minimum, criterion, weight_set)
        if not np.isfinite(solution.value):
            raise NoMarginError(f"{options.owner}: {solution.status}")
        certificate = _certificate(options, solution, bank, row_weights)
    coef = to_numpy(minimum.iterate.coef).astype(np.float64)
    weights = minimum.weights
    price = float("inf") if options.margin == "hard" else options.C
    if criterion.learns_identity:
        # K / s with coefficients s a is the same function, with s C in place of C.
        weights, tau, unit = split_learned(weights, weight_set)
        coef /= unit
        price = 1.0 / tau if tau > 0 else float("inf")
    functions = functions_of(bank, weights, coef)
    intercept = criterion.intercept(minimum.weights, minimum.iterate.coef)
    return MarginFit(
        weights=weights,
        coef=coef,
        intercept=intercept,
        margin=margins_of(functions, coef),
        support=support_vectors(functions + intercept, signs, coef),
        C=float(price),
        certificate=certificate,
        n_iter=minimum.n_factorizations,
    )


def _certificate(
    options: MarginOptions,
    solution: Solution,
    bank: Bank,
    row_weights: np.ndarray | None,
) -> Certificate:
    """The certificate of kernel weights, widened by what the kernels have lost."""
    weighted = "" if row_weights is None else ", weighted rows"
    kernel_weights = solution.weights[-bank.n_kernels :]  # not that of the identity
    slope = float(np.sum(to_numpy(solution.coef) ** 2)) / abs(solution.value)
    error = error_of_value(bank, kernel_weights, slope)
    certificate = Certificate.of(solution, options.problem + weighted, error)
    if solution.method == "newton" and not is_numpy(bank.like):
        moved = "solver='newton' trained its support vector machines on the CPU"
        certificate = certificate.with_remarks([moved])
    return certificate


def settled_by_folds(
    options: MarginOptions,
    bank: Bank,
    codes: np.ndarray,
    signs: np.ndarray,
    design: RowDesign,
) -> MarginOptions:
    """The options with numbers for ``C="cv"`` and ``norm="cv"``.

    Both maximise the accuracy on five folds, in which a row counts as often as its
    weight says: the balanced accuracy, if classes are balanced.

    1. C, by the machines on the mean of all kernels: with few rows of a class, whose
       weights are large, the best C is small, and at a larger one the kernel weights
       fit these few rows.
    2. The norm, with the weights learned again in each fold at this C, divided by the
       trace of equal weights of that norm, ``p^(1 - 1/q)``. Sparse weights need
       evidence: the most even norm is taken that is worse than the best by no more
       than the standard error of the difference.

    Parameters
    ----------
    options : MarginOptions
        Parameters of the estimator.
    bank : Bank
        Centred kernels of trace n.
    codes : ndarray of int of shape (n,)
        Classes 0 .. k - 1.
    signs : ndarray of shape (n, c)
        +1 and -1, one column per two-class problem.
    design : RowDesign
        How often each row counts.
    """
    if options.C != "cv" and options.norm != "cv":
        return options
    p, price = bank.n_kernels, None
    splits = choose_splits(CV_FOLDS, codes, design, classify=True)
    if not splits:
        raise ValueError(
            f"{options.owner}: 'cv' needs a class with at least 2 rows, to "
            "learn from one and be tested on the other; give numbers for C and norm"
        )
    prices = C_GRID
    if options.scale is None:  # the grid is for kernels of mean diagonal one
        prices = C_GRID / float(np.mean(bank.diagonals()))
    folds = _Folds(bank, codes, signs, design, splits, prices)
    if options.C == "cv":
        right = folds.over_prices(options.margin)
        price = float(prices[int(np.argmax(right @ design.each))])
    if options.norm != "cv":
        return options.with_norm(float(options.norm), price, p)
    norms = [1.0] if p == 1 else CV_NORMS
    candidates = [options.with_norm(norm, price, p) for norm in norms]
    right = np.stack([folds.learned(one) for one in candidates])
    scores = right @ design.each
    apart = right[int(np.argmax(scores))] - right
    errors = np.sqrt(np.sum((design.each * apart) ** 2, axis=1))
    return candidates[int(np.argmax(scores + errors >= np.max(scores)))]


@dataclass(frozen=True)
class _Folds:
    """Which rows (n,) are predicted correctly by machines that have not seen them."""

    bank: Bank
    codes: np.ndarray  # (n,)
    signs: np.ndarray  # (n, c)
    design: RowDesign
    splits: list[tuple[np.ndarray, np.ndarray]]
    prices: np.ndarray  # (g,)

    def over_prices(self, margin: str) -> np.ndarray:
        """With the mean of all kernels at each C of the grid, (g, n)."""
        p, squared = self.bank.n_kernels, margin == "l2"
        kernel = to_numpy(self.bank.combine(np.full(p, 1.0 / p))).astype(np.float64)
        values = np.full((len(self.prices), *self.signs.shape), -np.inf)
        for train, test, columns in self._parts():
            own, r = kernel[np.ix_(train, train)], self.design.each[train]
            across = kernel[np.ix_(test, train)]
            y, coef = self.signs[np.ix_(train, columns)], None
            for g, price in enumerate(self.prices):
                matrix = own + np.diag(1.0 / (price * r)) if squared else own
                bound = np.inf if squared else price * r
                coef = train_machines(matrix, y, bound, CV_TOL, coef).coef()
                b = best_intercepts(own @ coef, y, margin, r)
                values[g][np.ix_(test, columns)] = across @ coef + b
        return np.stack([self._right(one) for one in values])

    def learned(self, options: MarginOptions) -> np.ndarray:
        """With weights learned by these options, C and norm being numbers, (n,)."""
        quick = replace(options, tol=max(float(options.tol), CV_TOL))
        values, weights = np.full(self.signs.shape, -np.inf), self.design.weights
        for train, test, columns in self._parts():
            r = None if weights is None else weights[train]
            part = self.bank.restrict(train)
            signs = self.signs[np.ix_(train, columns)]
            fit = learn_margin(quick, part, signs, r, certified=False)
            kernel = to_numpy(self.bank.combine(fit.weights)).astype(np.float64)
            functions = kernel[np.ix_(test, train)] @ fit.coef + fit.intercept
            values[np.ix_(test, columns)] = functions
        return self._right(values)

    def _parts(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows to learn from, rows held out, and problems with both signs, if any."""
        for train, test in self.splits:
            signs = self.signs[train]
            both = np.any(signs > 0, axis=0) & np.any(signs < 0, axis=0)
            if np.any(both):
                yield train, test, np.flatnonzero(both)

    def _right(self, values: np.ndarray) -> np.ndarray:
        """Whether decision values (n, c) predict the class of each row."""
        if values.shape[1] == 1:
            return ((values[:, 0] > 0) == (self.signs[:, 0] > 0)).astype(float)
        return (np.argmax(values, axis=1) == self.codes).astype(float)


def check_margin_parameters(
    model: MultipleKernelSVC | TransductiveKernelSVC, **own: Rule
) -> None:
    """Refuse invalid parameter values and combinations."""
    # Signed and non-negative weights have different solvers.
    known = boolean.allows(model.signed)
    signed = known and bool(model.signed)
    methods = fitting_methods(Margin, SignedSum if signed else Simplex)
    others = fitting_methods(Margin, Simplex if signed else SignedSum)
    if known and model.solver in others and model.solver not in methods:
        raise ValueError(
            f"solver={model.solver!r} is for signed={not signed}; with "
            f"signed={signed} use one of {['auto', *methods]}"
        )
    rules: dict[str, Rule] = {
        "margin": one_of("l1", "l2", "hard"),
        "C": positive("learn"),
        "solver": one_of("auto", *methods),
        **own,
    }
    check_parameters(model, **rules)
    if model.C == "learn" and model.margin != "l2":
        raise ValueError(
            f"C='learn' needs margin='l2', where 1/C is the weight of the identity "
            f"kernel; got margin={model.margin!r}"
        )
    refuse_unscaled(model, "C", "learn", IDENTITY)
    if model.C == "cv" and model.margin == "hard":
        raise ValueError("C='cv' needs slacks: use margin='l1' or 'l2', or give C")
    if model.signed and model.norm not in (1, "auto"):
        raise ValueError(
            "signed=True replaces w >= 0 by a positive semidefinite sum of fixed "
            f"trace, so it needs norm=1; got norm={model.norm!r}"
        )


class MarginClassifier(KernelClassifier):
    """Classifier by support vector machines on learned kernels."""

    def _publish(self, rows: RowMap, classes: np.ndarray, fit: MarginFit) -> None:
        """Set the fitted attributes."""
        like = rows.like
        self._set_weights(rows, fit.weights, classes)
        support = np.flatnonzero(fit.support)
        self.support_ = from_numpy(support, like, namespace(like).int64)
        self.dual_coef_ = from_numpy(fit.coef, like)
        self.intercept_ = from_numpy(fit.intercept, like)
        self.margin_ = from_numpy(fit.margin, like)
        self.C_, self.n_iter_ = fit.C, fit.n_iter
        self._set_certificate(fit.certificate)

    def _functions(self, X: Any, method: str) -> Array:
        """Decision functions of the two-class problems at new rows, (m, c)."""
        return self._predict_target(X, method) + self.intercept_[None, :]

    @of_rows
    def decision_function(self, X: Any) -> np.ndarray:
        """Signed distance from the separating surface, in units of the margin.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        scores : array of shape (m,) or (m, k)
            For two classes, positive where ``classes_[1]`` is predicted; otherwise one
            column per class, each against the rest.
        """
        scores = self._functions(X, "decision_function")
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _class_scores(self, X: Any) -> Array:
        return scores_of_classes(self._functions(X, "predict"))


def scores_of_classes(scores: Array) -> Array:
    """One column per class, (m, k), from (m, 1) for two classes, or (m, k)."""
    if scores.shape[1] > 1:
        return scores
    return namespace(scores).concat([-scores, scores], axis=1)

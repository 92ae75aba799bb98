"""What the margin classifiers share: weights and decision functions from signs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from kernelweave._array import (
    Array,
    as_float,
    from_numpy,
    is_numpy,
    namespace,
    to_numpy,
)
from kernelweave.criteria.margin import Margin, margins_of
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.models.shared.base import KernelClassifier, of_rows
from kernelweave.models.shared.inputs import (
    RowMap,
    Rule,
    check_parameters,
    one_of,
    positive,
)
from kernelweave.models.shared.learner import split_learned, weight_set_of_norm
from kernelweave.solvers.certify import (
    Callback,
    Certificate,
    error_of_value,
    reachable_tolerance,
    relative_gap,
)
from kernelweave.solvers.solve import fitting_methods, solve
from kernelweave.weights import SignedSum, Simplex, WeightSet

#: The solvers of margin problems.
MarginSolver = Literal[
    "auto",
    "interior_point",
    "newton",
    "cutting_plane",
    "closed_form",
    "qcqp",
    "sdp",
]


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
    C : float
        The penalty on errors, learned or given; infinite for a hard margin.
    certificate : Certificate
        The proof.
    n_iter : int
        Number of factorisations.
    """

    weights: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    margin: np.ndarray
    C: float
    certificate: Certificate
    n_iter: int


def learn_margin(
    model: Any,
    bank: DenseBank,
    signs: np.ndarray,
    row_weights: np.ndarray | None,
    callback: Callback,
) -> MarginFit:
    """Weights shared by all columns of ``signs`` (n, c), and their functions."""
    home = from_numpy(signs, bank.like)
    criterion = Margin(bank, home, model.margin, model.C, row_weights)
    weight_set: WeightSet
    if model.signed:
        weight_set = SignedSum(bank, float(model.weight_bound), row_weights)
    else:
        weight_set = weight_set_of_norm(float(model.norm), fixed=model.C != "learn")
    solution = solve(
        criterion,
        weight_set,
        method=model.solver,
        tol=reachable_tolerance(model.tol, bank.like),
        max_iter=model.max_iter,
        callback=callback,
    )
    if not np.isfinite(solution.value):
        raise ValueError(f"{type(model).__name__}: {solution.status}")
    weighted = "" if row_weights is None else ", weighted rows"
    own = solution.weights[-bank.n_kernels :]  # without that of the identity
    slope = float(np.sum(to_numpy(solution.coef) ** 2)) / abs(solution.value)
    error = error_of_value(bank, own, slope)
    certificate = Certificate.of(solution, _problem(model) + weighted, error)
    if solution.method == "newton" and not is_numpy(bank.like):
        moved = "solver='newton' trained its support vector machines on the CPU"
        certificate = certificate.with_remarks([moved])
    coef = to_numpy(solution.coef).astype(np.float64)
    weights = solution.weights
    price = float("inf") if model.margin == "hard" else model.C
    if criterion.learns_identity:
        # K / s with coefficients s a is the same function, with s C in place of C.
        before = float(np.max(weights[1:]))
        weights, tau = split_learned(weights, weight_set)
        coef *= before / float(np.max(weights))
        price = 1.0 / tau if tau > 0 else float("inf")
    return MarginFit(
        weights=weights,
        coef=coef,
        intercept=criterion.intercept(solution.weights, solution.coef),
        margin=margins_of(bank, weights, coef),
        C=float(price),
        certificate=certificate,
        n_iter=solution.n_factorizations,
    )


def _problem(model: Any) -> str:
    """What is minimised, for the certificate."""
    price = "learned C" if model.C == "learn" else f"C={float(model.C):.3g}"
    what = (
        "hard margin" if model.margin == "hard" else f"{model.margin} margin, {price}"
    )
    sign = "signed" if model.signed else f"l{float(model.norm):.3g}"
    return f"Margin, {what}, {sign} weights"


def check_margin_parameters(model: Any, **own: Rule) -> None:
    """Refuse invalid parameter values and combinations."""
    rules = {"margin": one_of("l1", "l2", "hard"), "C": positive("learn"), **own}
    check_parameters(model, **rules)
    if model.C == "learn" and model.margin != "l2":
        raise ValueError(
            f"C='learn' needs margin='l2', where 1/C is the weight of the identity "
            f"kernel; got margin={model.margin!r}"
        )
    if model.signed and model.norm != 1:
        raise ValueError(
            "signed=True replaces w >= 0 by a positive semidefinite sum of fixed "
            f"trace, so it needs norm=1; got norm={model.norm!r}"
        )
    # Signed and non-negative weights have different solvers.
    methods = fitting_methods(Margin, SignedSum if model.signed else Simplex)
    others = fitting_methods(Margin, Simplex if model.signed else SignedSum)
    if model.solver in others and model.solver not in methods:
        raise ValueError(
            f"solver={model.solver!r} is for signed={not model.signed}; with "
            f"signed={bool(model.signed)} use one of {['auto', *methods]}"
        )
    check_parameters(model, solver=one_of("auto", *methods))


class MarginClassifier(KernelClassifier):
    """Classifier by support vector machines on learned kernels."""

    def _publish(
        self, rows: RowMap, classes: np.ndarray, fits: list[MarginFit]
    ) -> None:
        """Set the fitted attributes from one fit, or from one per class."""
        like = rows.like
        mean = np.mean([fit.weights for fit in fits], axis=0)
        self._set_weights(rows, mean, classes)
        if len(fits) > 1:
            each = np.stack([rows.kernel_map.spread(fit.weights) for fit in fits])
            self.class_kernel_weights_ = from_numpy(each, like)
        coef = np.concatenate([fit.coef for fit in fits], axis=1)
        support = np.flatnonzero(np.any(coef != 0.0, axis=1))
        self.support_ = from_numpy(support, like, namespace(like).int64)
        self.dual_coef_ = as_float(from_numpy(coef, like), like.dtype)
        intercept = np.concatenate([fit.intercept for fit in fits])
        self.intercept_ = as_float(from_numpy(intercept, like), like.dtype)
        margin = np.concatenate([fit.margin for fit in fits])
        self.margin_ = from_numpy(margin, like)
        prices = np.array([fit.C for fit in fits])
        self.C_ = float(prices[0]) if len(fits) == 1 else from_numpy(prices, like)
        self.n_iter_ = sum(fit.n_iter for fit in fits)
        self._set_certificate(_joint_certificate([fit.certificate for fit in fits]))

    def _functions(self, X: Any, method: str) -> Array:
        """Decision functions of the two-class problems at new rows, (m, c)."""
        rows = self._rows(X, method)
        weights = getattr(self, "class_kernel_weights_", self.kernel_weights_)
        values = self.kernel_map_.project(rows, to_numpy(weights).T, self.dual_coef_)
        return values + self.intercept_[None, :]

    @of_rows
    def decision_function(self, X: Any) -> Array:
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
        return self._of_classes(self._functions(X, "predict"))

    def _of_classes(self, scores: Array) -> Array:
        """One column per class, (m, k), from the decision functions (m, c)."""
        if len(self.classes_) > 2:
            return scores
        return namespace(scores).concat([-scores, scores], axis=1)


def _joint_certificate(parts: list[Certificate]) -> Certificate:
    """The certificate of independent problems: values and bounds add up."""
    if len(parts) == 1:
        return parts[0]
    value = sum(part.value for part in parts)
    lower = sum(part.lower_bound for part in parts)
    gap = relative_gap(value, lower)
    converged = all(part.converged for part in parts)
    worst = max(parts, key=lambda part: part.gap)
    status = f"{len(parts)} problems, the relative gap of their sum is {gap:.1e}; "
    status += f"the worst: {worst.status}"
    remarks = tuple(dict.fromkeys(note for part in parts for note in part.remarks))
    return replace(
        parts[0],
        value=value,
        lower_bound=lower,
        gap=gap,
        converged=converged,
        status=status,
        problem=f"{parts[0].problem}, one set of weights per class",
        remarks=remarks,
    )

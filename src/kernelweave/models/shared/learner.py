"""How norm, alpha and objective together determine the kernel weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from kernelweave._array import Array, namespace
from kernelweave._tolerances import reachable_tolerance
from kernelweave.criteria.fisher import Fisher
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.ridge import KernelFit, LooPath, fit_kernel
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.features.recipe import FeatureReport
from kernelweave.models.shared.inputs import (
    number,
    one_of,
    positive,
    whole,
)
from kernelweave.protocols import Criterion
from kernelweave.solvers.certify import Certificate, TraceRow
from kernelweave.solvers.local.loo import learn
from kernelweave.solvers.solve import fitting_methods, solve
from kernelweave.views.columns import View
from kernelweave.weights import LpBall, Simplex, Uniform, WeightSet

__all__ = [
    "LEARNER",
    "NORM_GRID",
    "Callback",
    "Choice",
    "Columns",
    "Fitted",
    "Judge",
    "Judgement",
    "Learned",
    "LearnerOptions",
    "RowJudge",
    "Trained",
    "check_direct_loo",
    "choose_weights",
    "search_norms",
    "split_learned",
    "weight_set_of_norm",
]

#: Norms that ``norm="loo"`` chooses from; infinity is the uniform mean.
NORM_GRID = (1.0, 4.0 / 3.0, 2.0, float("inf"))
#: Values that the parameters of a learner may take.
LEARNER = {
    "norm": number("a number >= 1", lambda v: v >= 1, "loo"),
    "alpha": positive("learn", "loo"),
    "objective": one_of("fisher", "loo"),
    "solver": one_of("auto", *fitting_methods(Fisher, Simplex)),
    "tol": number("a number > 0", lambda v: v > 0),
    "max_iter": whole(1, optional=True),
}

Callback = Callable[[TraceRow], Any]


@dataclass(frozen=True)
class LearnerOptions:
    """Which weights to learn: parameters of ``MultipleKernelFDA``."""

    norm: float | str
    alpha: float | str
    objective: str = "fisher"
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int | None = None


@dataclass(frozen=True)
class Judgement:
    """An alpha with its mean squared held-out error, and the fit if known."""

    alpha: float
    error: float
    fit: KernelFit | None = None


class Judge(Protocol):
    """Held-out errors at given kernel weights."""

    def best(self, weights: np.ndarray) -> Judgement:
        """The alpha with the smallest error."""
        ...

    def at(self, weights: np.ndarray, alpha: float) -> Judgement:
        """The error of this alpha."""
        ...


@dataclass(frozen=True)
class Choice:
    """Weights of the bank's kernels and alpha, with the grounds for choosing them.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        Kernel weights.
    alpha : float
        Regularisation.
    n_iter : int
        Number of factorisations.
    certificate : Certificate or None
        The proof, if an optimisation problem was solved.
    norm : float or None
        The norm of the weights.
    error : float or None
        Mean squared held-out error, if it was needed.
    fit : KernelFit or None
        Dual coefficients and leave-one-out residuals at these weights, if known.
    """

    weights: np.ndarray
    alpha: float
    n_iter: int
    certificate: Certificate | None = None
    norm: float | None = None
    error: float | None = None
    fit: KernelFit | None = None

    def judged(self, found: Judgement) -> Choice:
        """A copy with the alpha, error and fit of a judgement."""
        return replace(self, alpha=found.alpha, error=found.error, fit=found.fit)

    def fit_on(self, bank: DenseBank, target: Array) -> KernelFit:
        """The fit at these weights, computed now unless choosing them needed it."""
        if self.fit is not None:
            return self.fit
        return fit_kernel(bank.combine(self.weights), target, self.alpha)


@dataclass(frozen=True)
class Learned:
    """The best choice, and all candidates by norm."""

    choice: Choice
    candidates: dict[float, Choice]

    def summary(self) -> dict[float, dict[str, Any]]:
        """Alpha and error of each norm tried, in the form of ``candidates_``."""
        return {
            norm: {"alpha": found.alpha, "loo_error": found.error}
            for norm, found in self.candidates.items()
        }


def check_direct_loo(model: Any) -> None:
    """Refuse a fixed alpha if alpha is learned by the leave-one-out error."""
    if model.objective == "loo" and not isinstance(model.alpha, str):
        raise ValueError(
            "objective='loo' learns alpha together with the weights; got "
            f"alpha={model.alpha!r}; leave it at 'loo', or use objective='fisher'"
        )


@dataclass(frozen=True)
class RowJudge:
    """Leave-one-out errors on a target (n, k), from kernels between all rows."""

    bank: DenseBank
    target: Array

    def best(self, weights: np.ndarray) -> Judgement:
        """The alpha with the smallest error, in closed form."""
        path = LooPath(self.bank.combine(weights), self.target)
        alpha = path.best_alpha()
        return _judgement(alpha, KernelFit(path.coef(alpha), path.residuals(alpha)))

    def at(self, weights: np.ndarray, alpha: float) -> Judgement:
        """The error of this alpha."""
        gram = self.bank.combine(weights)
        return _judgement(alpha, fit_kernel(gram, self.target, alpha))


def _judgement(alpha: float, fit: KernelFit) -> Judgement:
    residual = fit.loo_residual
    return Judgement(alpha, float(namespace(residual).mean(residual * residual)), fit)


def choose_weights(
    options: LearnerOptions,
    bank: DenseBank,
    target: Array,
    criterion: Callable[[Any], Criterion],
    callback: Callback,
    learnable: bool = True,
) -> Learned:
    """Choose weights and alpha for kernels between all rows.

    Leave-one-out residuals are measured on ``target`` (n, k). ``criterion(alpha)`` is
    the convex problem for a float alpha or, if ``learnable``, for "learn".
    """
    if options.objective == "loo":
        return Learned(_direct_loo(options, bank, target, callback), {})
    options = replace(options, tol=reachable_tolerance(options.tol, bank.like))
    judge, first_alpha = RowJudge(bank, target), options.alpha
    if first_alpha == "loo":
        uniform = np.full(bank.n_kernels, 1.0 / bank.n_kernels)
        first_alpha = "learn" if learnable else judge.best(uniform).alpha
    return search_norms(options, first_alpha, judge, criterion, callback)


def search_norms(
    options: LearnerOptions,
    first_alpha: float | str,
    judge: Judge,
    criterion: Callable[[Any], Criterion],
    callback: Callback,
) -> Learned:
    """Solve for the weights at ``first_alpha``, settle alpha, and compare norms."""
    compare = options.norm == "loo"
    candidates = {}
    for norm in NORM_GRID if compare else (float(options.norm),):
        choice = _solved(options, norm, first_alpha, criterion, callback)
        if options.alpha == "loo":
            choice = choice.judged(judge.best(choice.weights))
        elif compare:
            choice = choice.judged(judge.at(choice.weights, choice.alpha))
        candidates[norm] = choice
    if not compare:
        return Learned(choice, candidates)
    return Learned(min(candidates.values(), key=_error), candidates)


def _error(choice: Choice) -> float:
    assert choice.error is not None
    return choice.error


def _solved(
    options: LearnerOptions,
    norm: float,
    alpha: float | str,
    criterion: Callable[[Any], Criterion],
    callback: Callback,
) -> Choice:
    """The weights at one norm; the criterion's workspace is freed on return."""
    weight_set = weight_set_of_norm(norm, not isinstance(alpha, str))
    problem = criterion(alpha)
    solution = solve(
        problem,
        weight_set,
        method=options.solver,
        tol=options.tol,
        max_iter=options.max_iter,
        callback=callback,
    )
    certificate = Certificate.of(solution, _problem(problem, norm, alpha))
    if isinstance(alpha, str):
        weights, alpha = split_learned(solution.weights, weight_set)
    else:
        weights, alpha = solution.weights, float(alpha)
    return Choice(weights, alpha, solution.n_factorizations, certificate, norm)


def _direct_loo(
    options: LearnerOptions, bank: DenseBank, target: Array, callback: Callback
) -> Choice:
    result = learn(bank, target, max_iter=options.max_iter or 200, callback=callback)
    certificate = Certificate(
        value=result.value,
        lower_bound=float("nan"),
        gap=float("nan"),
        status=result.status,
        converged=result.converged,
        problem="leave-one-out error over weights and alpha (not convex)",
        stationarity=result.stationarity,
    )
    return Choice(result.weights, result.alpha, result.n_iter, certificate)


def _problem(criterion: Criterion, norm: float, alpha: float | str) -> str:
    """What was minimised, for the certificate."""
    how = "learned alpha" if alpha == "learn" else f"alpha={float(alpha):.3g}"
    return f"{type(criterion).__name__}, l{norm:.3g} weights, {how}"


def weight_set_of_norm(norm: float, fixed: bool) -> Simplex | LpBall | Uniform:
    """The set of weights for a norm; ``fixed`` if alpha is not among the weights."""
    if norm == 1:
        return Simplex()
    if np.isinf(norm) and fixed:
        return Uniform()
    return LpBall(norm)


def split_learned(
    weights: np.ndarray, weight_set: WeightSet
) -> tuple[np.ndarray, float]:
    """Kernel weights on the boundary of their set, and the identity's to match.

    The identity comes first in ``weights`` (p + 1,).
    """
    identity, kernels = float(weights[0]), weights[1:]
    uniform = weight_set.is_point(len(kernels))  # a mean of kernels, not their sum
    scaled = Uniform().scale(kernels) if uniform else weight_set.scale(kernels)
    largest = int(np.argmax(kernels))
    return scaled, identity * float(scaled[largest] / kernels[largest])


@dataclass(frozen=True)
class Fitted:
    """Weights and coefficients, from kernels between rows or from moments."""

    learned: Learned
    loo_error: float  # mean squared error on rows left out
    dual_coef: Array | None = None  # (n, k), of the rows, if they were kept
    feature_coef: Array | None = None  # (D, k), of the features of kernels with weight
    classes: np.ndarray | None = None  # (k,), for a discriminant, like the Gaussians
    gaussians: ClassGaussians | None = None
    intercept: Array | None = None  # (n_outputs,), for a regression


@dataclass(frozen=True)
class Columns:
    """The views, the columns of each, and what scikit-learn records about all columns.

    ``noted`` holds ``n_features_in_`` and ``feature_names_in_`` if the validation of X
    has not set them already.
    """

    views: list[View]
    positions: list[list[int]]
    noted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """A fit, and what prediction needs to know about rows."""

    fitted: Fitted
    kernel_map: Any  # KernelMap or FeatureKernelMap
    like: Array  # no rows, in the namespace, device and dtype of the training rows
    columns: Columns
    report: FeatureReport | None = None  # if the representation was chosen

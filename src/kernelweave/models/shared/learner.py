"""How norm, alpha and objective together determine the kernel weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from kernelweave._array import Array, from_numpy, to_numpy
from kernelweave._tolerances import reachable_tolerance
from kernelweave.criteria.fisher import Fisher
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.ridge import AlphaPath, KernelFit, LooPath, fit_kernel
from kernelweave.fits.rows import RowDesign
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.features.recipe import FeatureReport
from kernelweave.models.shared.inputs import RowMap, number, one_of, positive
from kernelweave.protocols import Criterion
from kernelweave.solvers.certify import Callback, Certificate
from kernelweave.solvers.local.loo import learn
from kernelweave.solvers.solve import fitting_methods, solve
from kernelweave.weights import LpBall, Simplex, Uniform, WeightSet

#: Norms that ``norm="loo"`` chooses from; infinity is the uniform mean.
NORM_GRID = (1.0, 4.0 / 3.0, 2.0, float("inf"))
#: Values that the parameters of a learner may take.
LEARNER = {
    "norm": number("a number >= 1", lambda v: v >= 1, "loo"),
    "alpha": positive("learn", "loo"),
    "objective": one_of("fisher", "loo"),
    "solver": one_of("auto", *fitting_methods(Fisher, Simplex)),
}


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
class Choice:
    """Weights of the bank's kernels and alpha, with the grounds for choosing them.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        Kernel weights.
    alpha : float or ndarray of shape (k,)
        Regularisation, one number for all targets or one for each.
    n_iter : int
        Number of factorisations.
    certificate : Certificate or None
        The proof, if an optimisation problem was solved.
    norm : float or None
        The norm of the weights.
    error : float or None
        Mean squared held-out error, if it was needed.
    errors : ndarray of shape (k,) or None
        The error of each target, whose mean is ``error``.
    fit : KernelFit or None
        Dual coefficients and leave-one-out residuals at these weights, if known.
    candidates : dict of float to Choice
        All choices that were compared, by norm.
    """

    weights: np.ndarray
    alpha: float | np.ndarray
    n_iter: int
    certificate: Certificate | None = None
    norm: float | None = None
    error: float | None = None
    errors: np.ndarray | None = None
    fit: KernelFit | None = None
    candidates: dict[float, Choice] = field(default_factory=dict)

    def fit_on(self, bank: DenseBank, target: Array, design: RowDesign) -> KernelFit:
        """The fit at these weights, computed now unless choosing them needed it."""
        if self.fit is not None:
            return self.fit
        alpha = float(self.alpha)  # alphas of each target come with their fit
        return fit_kernel(bank.combine(self.weights), target, alpha, design)


#: Alpha, one for all targets or one for each (k,), with the mean squared held-out
#: errors of the targets (k,), and the fit if there is one.
Judgement = tuple[float | np.ndarray, np.ndarray, KernelFit | None]
#: ``judge(weights, alpha)``; None stands for the alpha with the smallest error.
Judge = Callable[[np.ndarray, float | None], Judgement]


def best_alpha(path: AlphaPath, per_target: bool) -> float | np.ndarray:
    """The alpha with the smallest error, or that of each of several targets."""
    if not per_target:
        return path.best_alpha()
    found = path.best_alphas()
    return found if len(found) > 1 else float(found[0])


def judge_rows(
    bank: DenseBank,
    target: Array,
    design: RowDesign,
    weights: np.ndarray,
    alpha: float | None,
    per_target: bool = False,
) -> tuple[float | np.ndarray, np.ndarray, KernelFit]:
    """Leave-one-out errors on a target (n, k), from kernels between all rows.

    The best alpha takes an eigendecomposition, which serves all columns even if each
    has its own (``per_target``); a given one takes only a factorisation.
    """
    gram = bank.combine(weights)
    if alpha is not None:
        fit = fit_kernel(gram, target, alpha, design)
        return alpha, design.mean_squares(fit.loo_residual), fit
    path = LooPath(gram, target, design)
    best = best_alpha(path, per_target)
    fit = KernelFit(path.coef(best), path.residuals(best))
    return best, design.mean_squares(fit.loo_residual), fit


def choose_weights(
    options: LearnerOptions,
    bank: DenseBank,
    target: Array,
    criterion: Callable[[Any], Criterion],
    callback: Callback | None,
    design: RowDesign,
    learnable: bool = True,
    per_target: bool = False,
) -> Choice:
    """Choose weights and alpha for kernels between all rows.

    Leave-one-out residuals are measured on ``target`` (n, k). ``criterion(alpha)`` is
    the convex problem for a float alpha or, if ``learnable``, for "learn". With
    ``per_target``, "loo" chooses one alpha for each column of the target.
    """
    if options.objective == "loo":
        if not design.is_plain:
            raise ValueError(
                "objective='loo' takes neither weights nor groups of rows; use "
                "objective='fisher'"
            )
        return _direct_loo(options, bank, target, callback)
    options = replace(options, tol=reachable_tolerance(options.tol, bank.like))
    first_alpha: Any = options.alpha
    if first_alpha == "loo" and learnable:
        first_alpha = "learn"
    elif first_alpha == "loo":
        uniform = np.full(bank.n_kernels, 1.0 / bank.n_kernels)
        first_alpha = judge_rows(bank, target, design, uniform, None)[0]
    judge = partial(judge_rows, bank, target, design, per_target=per_target)
    return search_norms(options, first_alpha, judge, criterion, callback)


def search_norms(
    options: LearnerOptions,
    first_alpha: float | str,
    judge: Judge,
    criterion: Callable[[Any], Criterion],
    callback: Callback | None,
) -> Choice:
    """Solve for the weights at ``first_alpha``, settle alpha, and compare norms."""
    compare = options.norm == "loo"
    candidates = {}
    for norm in NORM_GRID if compare else (float(options.norm),):
        choice = _solved(options, norm, first_alpha, criterion, callback)
        if compare or options.alpha == "loo":
            given = None if options.alpha == "loo" else float(choice.alpha)
            alpha, errors, fit = judge(choice.weights, given)
            error = float(np.mean(errors))
            choice = replace(choice, alpha=alpha, error=error, errors=errors, fit=fit)
        candidates[norm] = choice
    best = min(candidates.values(), key=lambda choice: choice.error or 0.0)
    return replace(best, candidates=candidates)


def _solved(
    options: LearnerOptions,
    norm: float,
    alpha: float | str,
    criterion: Callable[[Any], Criterion],
    callback: Callback | None,
) -> Choice:
    """The weights at one norm; the criterion's workspace is freed on return."""
    learned = isinstance(alpha, str)
    weight_set = weight_set_of_norm(norm, fixed=not learned)
    problem = criterion(alpha)
    solution = solve(
        problem,
        weight_set,
        method=options.solver,
        tol=options.tol,
        max_iter=options.max_iter,
        callback=callback,
    )
    how = "learned alpha" if learned else f"alpha={float(alpha):.3g}"
    title = f"{type(problem).__name__}, l{norm:.3g} weights, {how}"
    weights = solution.weights
    if learned:
        weights, alpha = split_learned(weights, weight_set)
    certificate = Certificate.of(solution, title)
    return Choice(weights, float(alpha), solution.n_factorizations, certificate, norm)


def _direct_loo(
    options: LearnerOptions, bank: DenseBank, target: Array, callback: Callback | None
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
class FoldScore:
    """What folds in which everything is learned anew say about new rows.

    Attributes
    ----------
    score : float
        Accuracy, or R^2, on held-out rows.
    standard_error : float
        Its standard error.
    temperature : float
        Divides the log odds of class Gaussians: the smallest log loss of held-out rows.
    """

    score: float
    standard_error: float
    temperature: float = 1.0


@dataclass(frozen=True)
class Fitted:
    """Weights and coefficients, from kernels between rows or from moments."""

    choice: Choice
    loo_error: float  # mean squared error on rows left out
    loo_errors: np.ndarray | None = None  # (n_outputs,), for a regression
    dual_coef: Array | None = None  # (n, k), of the rows, if they were kept
    feature_coef: Array | None = None  # (D, k), of the features of kernels with weight
    classes: np.ndarray | None = None  # (k,), for a discriminant, like the Gaussians
    gaussians: ClassGaussians | None = None
    intercept: Array | None = None  # (n_outputs,), for a regression
    folds: FoldScore | str | None = None  # on held-out rows, or why there is none


@dataclass(frozen=True)
class Trained:
    """A fit, and how new rows are mapped to its kernels."""

    fitted: Fitted
    rows: RowMap
    report: FeatureReport | None = None  # if the representation was chosen


@dataclass(frozen=True)
class KernelRows:
    """Kernels between all rows: n x n matrices, or products of explicit features.

    From features the model learns as it does from matrices, including leave-one-out
    errors. Its row coefficients are then turned into feature coefficients, so that
    predictions need none of the rows.
    """

    bank: Any  # DenseBank or FeatureBank
    targets: np.ndarray  # (n,) or (n, n_outputs)
    rows: RowMap
    report: FeatureReport
    design: RowDesign
    scales: np.ndarray | None = None  # (p,), by which features were multiplied

    def trained(self, fitted: Fitted) -> Trained:
        """The result of a fit to these kernels."""
        if self.scales is not None:
            weights = fitted.choice.weights
            dual = self.design.unscale(fitted.dual_coef)  # the bank has the roots
            coef = feature_coef(self.bank, dual, weights, self.scales)
            fitted = replace(fitted, feature_coef=from_numpy(coef, self.rows.like))
        return Trained(fitted, self.rows, self.report)


def feature_coef(
    bank: Any, coef: Array, weights: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    """``s_i w_i Z_i'B`` of the kernels with weight, for features before scaling.

    The bank holds features ``s_i Z_i``, B is ``coef`` (n, k); the result (D_used, k).
    """
    factors = np.repeat(weights * scales, bank.widths)
    inner = to_numpy(bank.features.T @ coef)  # (D, k)
    return (inner * factors[:, None])[np.repeat(weights > 0, bank.widths)]

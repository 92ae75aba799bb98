"""From moments to a fit: weights, alpha, coefficients, class Gaussians."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernelweave._array import (
    Array,
    from_numpy,
    lower_inverse,
    solve_factored,
    squared_norm,
    to_numpy,
)
from kernelweave.criteria.fisher import PrimalFisher
from kernelweave.fits.gaussians import ClassGaussians, HeldOutClasses
from kernelweave.fits.moment_problem import CvPath, GcvPath, MomentProblem
from kernelweave.fits.ridge import normal_basis, principal_axes
from kernelweave.kernels.maps.feature_map import FeatureKernelMap
from kernelweave.kernels.moments import ChunkRecipe, Moments
from kernelweave.models.shared.learner import (
    Callback,
    Fitted,
    Judgement,
    Learned,
    LearnerOptions,
    search_norms,
)

__all__ = ["fit_class_moments", "fit_output_moments"]

#: Jitter on the moments, as a share of the variance, that deserves a remark.
NOTABLE_JITTER = 1e-9
#: An output whose variance is below this, relative to its mean square, is constant.
CONSTANT_OUTPUT = 1e-12


@dataclass(frozen=True)
class MomentJudge:
    """Errors from moments: cross-validation in place of leaving rows out.

    Attributes
    ----------
    problem : MomentProblem
        Kernels and targets.
    folds : array of shape (f, 1 + t + D, 1 + t + D) or None
        Moments of each fold; None for generalised cross-validation.
    """

    problem: MomentProblem
    folds: Array | None

    def best(self, weights: np.ndarray) -> Judgement:
        """The alpha with the smallest error."""
        path = self._path(weights)
        return _judgement(path, path.best_alpha())

    def at(self, weights: np.ndarray, alpha: float) -> Judgement:
        """The error of this alpha."""
        return _judgement(self._path(weights), alpha)

    def _path(self, weights: np.ndarray) -> GcvPath | CvPath:
        if self.folds is None:
            return GcvPath(self.problem, weights)
        return CvPath(self.problem, self.folds, weights)


def _judgement(path: GcvPath | CvPath, alpha: float) -> Judgement:
    return Judgement(alpha, float(path.press(np.array([alpha]))[0]))


def class_coding(counts: np.ndarray) -> tuple[np.ndarray, float]:
    """The target of each class (k, k - 1), and the factor to the paper's values.

    The rows are those of :func:`reduced_class_target`. For two classes the criterion
    of Ye et al. (2007) uses the target of Eq. 8, which is a multiple of this one.
    """
    q = np.sqrt(counts / np.sum(counts))
    coding = (np.diag(1.0 / q) - q[None, :]) @ normal_basis(q)
    factor = 1.0
    if len(counts) == 2:
        factor = float(1.0 / counts[1] / coding[1, 0])
    return coding, factor


def output_coding(gram: Array, n_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """``1 / deviation`` of each output on a diagonal (t, t), and the deviations."""
    head = to_numpy(gram[: 1 + n_targets, : 1 + n_targets])
    n = head[0, 0]
    second = np.diagonal(head)[1:] / n
    variance = second - (head[0, 1:] / n) ** 2
    varies = variance > CONSTANT_OUTPUT * second
    deviation = np.sqrt(np.where(varies, variance, 1.0))
    return np.diag(np.where(varies, 1.0 / deviation, 0.0)), deviation


def _origins(recipe: ChunkRecipe) -> np.ndarray:
    """Squared norm of the offset subtracted from the features of each kernel."""
    blocks = recipe.features.blocks
    if recipe.offset is None:
        return np.zeros(len(blocks))
    return np.array([float(np.sum(recipe.offset[block] ** 2)) for block in blocks])


@dataclass(frozen=True)
class Solved:
    """Weights and coefficients over the D + k rows of a moment problem."""

    problem: MomentProblem
    learned: Learned
    coef: Array  # (D + k, k)
    #: Mean of ``(M^-1)_ii`` over the n rows, after centring again.
    precision: float

    @property
    def error(self) -> float:
        """The error of the choice or, if unknown, of generalised cross-validation."""
        if self.learned.choice.error is not None:
            return self.learned.choice.error
        entries = self.problem.n_rows * int(self.coef.shape[1])
        return squared_norm(self.coef) / self.precision**2 / entries

    def feature_coef(self) -> np.ndarray:
        """Coefficients (D_used, k) of the features of kernels with weight."""
        bank = self.problem.bank
        weights = np.repeat(self.learned.choice.weights, bank.widths)
        inner = to_numpy(bank.features.T @ self.coef)  # (D, k)
        scaled = inner * (weights * self.problem.feature_scales)[:, None]
        return scaled[weights > 0]

    def kernel_map(self, recipe: ChunkRecipe) -> FeatureKernelMap:
        """The map from new rows to projections."""
        mean = to_numpy(self.problem.mean)
        mean = mean if recipe.offset is None else mean + recipe.offset
        found = FeatureKernelMap(
            recipe.features, mean, self.problem.active, recipe.like
        )
        if self.problem.jitter > NOTABLE_JITTER:
            found.remarks.append(
                f"a share of {self.problem.jitter:.0e} was added to every variance, "
                "since sums of products in this precision are no better"
            )
        return found


def solve_moments(
    options: LearnerOptions,
    recipe: ChunkRecipe,
    moments: Moments,
    coding: tuple[np.ndarray, float],
    callback: Callback,
) -> Solved:
    """Learn the weights, settle alpha, and solve for the coefficients.

    ``coding`` is the target of each class or output (t, k), and its factor in the
    criterion.
    """
    features = recipe.features
    problem = MomentProblem(
        moments.total(),
        coding[0],
        features.widths,
        features.names,
        recipe.precision,
        _origins(recipe),
        np.array(features.noise),
    )
    crossed = options.alpha == "cv"
    options = replace(options, alpha="loo") if crossed else options
    learned = search_norms(
        options,
        "learn" if options.alpha == "loo" else options.alpha,
        MomentJudge(problem, moments.gram if crossed else None),
        lambda alpha: PrimalFisher(problem, alpha, coding[1]),
        callback,
    )
    choice = learned.choice
    factor = PrimalFisher(problem, choice.alpha).factor(choice.weights)
    coef = solve_factored(factor, problem.target)
    missing = problem.n_rows - 1 - int(coef.shape[0])  # rows without any kernel
    precision = squared_norm(lower_inverse(factor)) + missing / choice.alpha
    return Solved(problem, learned, coef, precision / problem.n_rows)


def fit_class_moments(
    options: LearnerOptions,
    recipe: ChunkRecipe,
    moments: Moments,
    like: Array,
    callback: Callback,
) -> tuple[FeatureKernelMap, Fitted]:
    """Fit a discriminant to the moments of rows with classes."""
    assert moments.labels is not None
    k = len(moments.labels)
    counts = np.rint(to_numpy(moments.total()[0, 1 : 1 + k]))
    coding, factor = class_coding(counts)
    solved = solve_moments(options, recipe, moments, (coding, factor), callback)
    kernel_map = solved.kernel_map(recipe)
    axes = to_numpy(principal_axes(solved.coef, solved.problem.target))
    coef = from_numpy(solved.feature_coef() @ axes, like)
    fitted = Fitted(
        solved.learned,
        float(solved.error),
        feature_coef=coef,
        classes=moments.labels,
        gaussians=_gaussians(solved, kernel_map, moments, coef, coding @ axes),
    )
    return kernel_map, fitted


def _gaussians(
    solved: Solved,
    kernel_map: FeatureKernelMap,
    moments: Moments,
    feature_coef: Array,
    targets: np.ndarray,
) -> ClassGaussians:
    """Class means and variance of projections as if each row had been left out.

    A left-out row misses its target by about ``1 / (alpha q)`` times as much as when it
    is included (generalised cross-validation), which moves the means and spreads the
    rows around them. The best-calibrated width of the Gaussians is found on the probe.
    """
    problem, choice = solved.problem, solved.learned.choice
    k, n = len(targets), problem.n_rows
    widen = 1.0 / (choice.alpha * max(solved.precision, 1e-300))
    weights = kernel_map.spread(choice.weights)
    used = np.repeat(weights != 0, problem.widths)
    head = to_numpy(moments.total()[1 : 1 + k, :])
    counts = np.rint(head[:, 0])
    coef = to_numpy(feature_coef).astype(np.float64)
    centre = to_numpy(problem.mean)[used]
    inside = (head[:, 1 + k :][:, used] / counts[:, None] - centre) @ coef  # (k, r)
    # All rows share one intercept, as in discriminant.fit_discriminant.
    shifted = targets * (1.0 + 1.0 / (n - 1))
    means = shifted - widen * (targets - inside)
    codes = np.searchsorted(moments.labels, moments.probe.y)  # type: ignore[arg-type]
    projected = to_numpy(
        kernel_map.project(moments.probe.views, weights, feature_coef)
    ).astype(np.float64)
    held_out = shifted[codes] - widen * (targets[codes] - projected)
    classes = HeldOutClasses(counts, counts[:, None] * means, targets)
    return classes.gaussians(held_out, codes)


def fit_output_moments(
    options: LearnerOptions,
    recipe: ChunkRecipe,
    moments: Moments,
    like: Array,
    callback: Callback,
) -> tuple[FeatureKernelMap, Fitted]:
    """Fit a ridge regression to the moments of rows with outputs."""
    gram = moments.total()
    coding, deviation = output_coding(gram, moments.n_targets)
    solved = solve_moments(options, recipe, moments, (coding, 1.0), callback)
    unit = 1.0 if recipe.unit is None else recipe.unit
    coef = solved.feature_coef() * (deviation * unit)[None, :]
    mean = to_numpy(gram[0, 1 : 1 + moments.n_targets]) / solved.problem.n_rows * unit
    mean = mean if recipe.origin is None else mean + recipe.origin
    fitted = Fitted(
        solved.learned,
        float(solved.error),
        feature_coef=from_numpy(coef, like),
        intercept=from_numpy(mean, like),
    )
    return solved.kernel_map(recipe), fitted

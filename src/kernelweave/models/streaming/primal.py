"""From moments to a fitted model: weights, alpha, coefficients, class Gaussians."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernelweave._array import (
    Array,
    from_numpy,
    lower_inverse,
    solve_factored,
    squared_norm,
    to_numpy,
)
from kernelweave.criteria.fisher.primal import PrimalFisher
from kernelweave.fits.cv_path import CvPath, GcvPath
from kernelweave.fits.discriminant import principal_axes
from kernelweave.fits.gaussians import HeldOutClasses
from kernelweave.fits.moment_problem import MomentProblem
from kernelweave.fits.targets import normal_basis
from kernelweave.kernels.maps.feature_map import FeatureKernelMap
from kernelweave.kernels.moments.sums import ChunkRecipe, Moments
from kernelweave.models.shared.learner import Choice, WeightLearner
from kernelweave.models.shared.progress import Progress

__all__ = ["class_coding", "feature_coef", "finish_classes", "finish_outputs"]

#: A share of all variance added to the moments that deserves a remark.
NOTABLE_JITTER = 1e-9
#: Deviation of an output, relative to its size, that makes it a constant.
CONSTANT_OUTPUT = 1e-12


@dataclass(frozen=True)
class PrimalChoice(Choice):
    """A choice whose error comes from moments rather than from residuals of rows."""

    error: float = float("nan")

    def loo_error(self) -> float:
        """Mean squared error of generalised or k-fold cross-validation."""
        return self.error


class PrimalLearner(WeightLearner):
    """Choose weights and alpha from moments: cross-validation in place of rows.

    Parameters
    ----------
    model : estimator
        Has ``norm``, ``alpha``, ``solver``, ``tol``, ``max_iter``.
    problem : MomentProblem
        Kernels and targets.
    folds : array of shape (f, 1 + t + D, 1 + t + D)
        Moments of each fold, of which there is one without cross-validation.
    factor : float
        Multiplies the target in the criterion.
    progress : Progress
        Is told about iterations.
    """

    def __init__(
        self,
        model: Any,
        problem: MomentProblem,
        folds: Array,
        factor: float,
        progress: Progress,
    ) -> None:
        self.crossed = model.alpha == "cv"
        names = ("norm", "solver", "tol", "max_iter")
        settings = {name: getattr(model, name) for name in names}
        alpha = "loo" if self.crossed else model.alpha
        self.model = SimpleNamespace(alpha=alpha, objective="fisher", **settings)
        self.problem, self.folds = problem, folds
        self.bank, self.target = problem.bank, problem.target  # type: ignore[assignment]
        self.criterion = lambda alpha: PrimalFisher(problem, alpha, factor)
        self.progress, self.learnable, self.tol = progress, True, model.tol

    def _path(self, weights: np.ndarray) -> GcvPath | CvPath:
        if self.crossed:
            return CvPath(self.problem, self.folds, weights)
        return GcvPath(self.problem, weights)

    def _loo_alpha(self, choice: Choice) -> Choice:
        path = self._path(choice.weights)
        return self._judged(replace(choice, alpha=path.best_alpha()), path)

    def _with_fit(self, choice: Choice) -> Choice:
        if isinstance(choice, PrimalChoice):
            return choice
        return self._judged(choice, self._path(choice.weights))

    def _judged(self, choice: Choice, path: GcvPath | CvPath) -> Choice:
        error = float(path.press(np.array([choice.alpha]))[0])
        return PrimalChoice(**vars(choice), error=error)


def class_coding(counts: np.ndarray) -> tuple[np.ndarray, float]:
    """The target of each class (k, k - 1), and a factor for the printed values.

    The rows are those of :func:`reduced_class_target`. For two classes the criterion
    of Ye et al. (2007) has the target of Eq. 8, which is a multiple of it.
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
    """Squared length of what was subtracted from the features of each kernel."""
    blocks = recipe.features.blocks
    if recipe.offset is None:
        return np.zeros(len(blocks))
    return np.array([float(np.sum(recipe.offset[block] ** 2)) for block in blocks])


@dataclass(frozen=True)
class Solved:
    """Weights and coefficients over the D + k rows of a moment problem."""

    problem: MomentProblem
    choice: Choice
    candidates: dict[float, Choice]
    coef: Array  # (D + k, k)
    #: Mean of ``(M^-1)_ii`` over the n rows, after centring anew.
    precision: float

    @property
    def gcv(self) -> float:
        """Mean squared error of generalised cross-validation."""
        entries = self.problem.n_rows * int(self.coef.shape[1])
        return squared_norm(self.coef) / self.precision**2 / entries


def solve_moments(
    model: Any,
    recipe: ChunkRecipe,
    moments: Moments,
    coding: tuple[np.ndarray, float],
    progress: Progress,
) -> Solved:
    """Learn the weights, settle alpha, and solve for the coefficients."""
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
    learner = PrimalLearner(model, problem, moments.gram, coding[1], progress)
    choice, candidates = learner.choose()
    factor = PrimalFisher(problem, choice.alpha).factor(choice.weights)
    coef = solve_factored(factor, problem.target)
    missing = problem.n_rows - 1 - int(coef.shape[0])  # rows without any kernel
    precision = squared_norm(lower_inverse(factor)) + missing / choice.alpha
    return Solved(problem, choice, candidates, coef, precision / problem.n_rows)


def set_weights(model: Any, recipe: ChunkRecipe, solved: Solved) -> np.ndarray:
    """Set all that classes and outputs have in common; coefficients (D_used, k)."""
    problem, choice = solved.problem, solved.choice
    mean = to_numpy(problem.mean)
    mean = mean if recipe.offset is None else mean + recipe.offset
    model.kernel_map_ = FeatureKernelMap(
        recipe.features, mean, problem.active, recipe.like
    )
    if problem.jitter > NOTABLE_JITTER:
        model.kernel_map_.remarks.append(
            f"a share of {problem.jitter:.0e} was added to every variance, since sums "
            "of products in this precision are no better"
        )
    model.kernel_map_.remarks += model.features_.remarks
    model.kernel_names_ = list(recipe.features.names)
    model._set_weights(choice.weights)
    if choice.certificate is not None:
        model._set_certificate(choice.certificate)
    model.norm_, model.alpha_ = choice.norm, float(choice.alpha)
    model.n_iter_ = int(choice.n_iter)
    model.loo_error_ = float(
        choice.loo_error() if isinstance(choice, PrimalChoice) else solved.gcv
    )
    bank = problem.bank
    weights = np.repeat(choice.weights, bank.widths)
    inner = to_numpy(bank.features.T @ solved.coef)  # (D, k)
    used = np.repeat(choice.weights > 0, bank.widths)
    return (inner * (weights * problem.feature_scales)[:, None])[used]


def finish_classes(
    model: Any,
    recipe: ChunkRecipe,
    moments: Moments,
    progress: Progress,
) -> None:
    """Fit a discriminant to the moments of rows with classes."""
    assert moments.labels is not None
    k = len(moments.labels)
    gram = moments.total()
    counts = np.rint(to_numpy(gram[0, 1 : 1 + k]))
    coding, factor = class_coding(counts)
    solved = solve_moments(model, recipe, moments, (coding, factor), progress)
    model.classes_ = moments.labels
    coef = set_weights(model, recipe, solved)
    axes = to_numpy(principal_axes(solved.coef, solved.problem.target))
    coef = coef @ axes
    model.feature_coef_ = from_numpy(coef, model._like)
    model.candidates_ = {
        norm: {
            "alpha": found.alpha,
            "loo_error": (
                found.loo_error() if isinstance(found, PrimalChoice) else None
            ),
        }
        for norm, found in solved.candidates.items()
    }
    _set_gaussians(model, moments, gram, coding @ axes, solved)


def _set_gaussians(
    model: Any, moments: Moments, gram: Array, targets: np.ndarray, solved: Solved
) -> None:
    """Class means and variance of projections as if each row had been left out.

    A left-out row misses its target by about ``1 / (alpha q)`` times what it does
    inside (generalised cross-validation), which moves the means and widens the
    distance of rows from them. How wide a Gaussian calibrates best is found on the
    probe.
    """
    problem, alpha = solved.problem, solved.choice.alpha
    k, n = len(targets), problem.n_rows
    widen = 1.0 / (alpha * max(solved.precision, 1e-300))
    head = to_numpy(gram[1 : 1 + k, :])
    counts = np.rint(head[:, 0])
    blocks = np.concatenate(
        [
            np.arange(1 + k, gram.shape[0])[block]
            for block, weight in zip(
                _blocks(problem), to_numpy(model.kernel_weights_), strict=True
            )
            if weight != 0
        ]
    )
    coef = to_numpy(model.feature_coef_).astype(np.float64)
    centre = to_numpy(problem.mean)[blocks - 1 - k]
    inside = (head[:, blocks] / counts[:, None] - centre) @ coef  # (k, r)
    # All rows are given the one intercept, as in KernelDiscriminant._set_discriminant.
    shifted = targets * (1.0 + 1.0 / (n - 1))
    means = shifted - widen * (targets - inside)
    codes = np.searchsorted(moments.labels, moments.probe.y)  # type: ignore[arg-type]
    projected = to_numpy(
        model.kernel_map_.project(
            moments.probe.views, to_numpy(model.kernel_weights_), model.feature_coef_
        )
    ).astype(np.float64)
    held_out = shifted[codes] - widen * (targets[codes] - projected)
    classes = HeldOutClasses(counts, counts[:, None] * means, targets)
    model._set_gaussians(classes.gaussians(held_out, codes))


def _blocks(problem: MomentProblem) -> list[slice]:
    ends = np.cumsum([0, *problem.widths])
    return [slice(int(a), int(b)) for a, b in pairwise(ends)]


def finish_outputs(
    model: Any,
    recipe: ChunkRecipe,
    moments: Moments,
    progress: Progress,
) -> None:
    """Fit a ridge regression to the moments of rows with outputs."""
    gram = moments.total()
    coding, deviation = output_coding(gram, moments.n_targets)
    solved = solve_moments(model, recipe, moments, (coding, 1.0), progress)
    coef = set_weights(model, recipe, solved)
    unit = 1.0 if recipe.unit is None else recipe.unit
    model.feature_coef_ = from_numpy(coef * (deviation * unit)[None, :], model._like)
    mean = to_numpy(gram[0, 1 : 1 + moments.n_targets]) / solved.problem.n_rows * unit
    mean = mean if recipe.origin is None else mean + recipe.origin
    model.intercept_ = from_numpy(mean, model._like)


def feature_coef(bank: Any, weights: np.ndarray, coef: Array) -> np.ndarray:
    """``w_i Z_i'B`` of the kernels with weight, side by side, (D_used, k)."""
    inner = to_numpy(bank.features.T @ coef)
    spread = np.repeat(weights, bank.widths)
    return (inner * spread[:, None])[spread > 0]

"""From moments to a fit: weights, alpha, coefficients, class Gaussians."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kernelweave._array import (
    Array,
    FactorizationError,
    cholesky,
    empty,
    from_numpy,
    lower_inverse,
    namespace,
    solve_factored,
    squared_norm,
    to_numpy,
)
from kernelweave.criteria.fisher import PrimalFisher
from kernelweave.fits.gaussians import ClassGaussians, HeldOutClasses
from kernelweave.fits.moment_problem import (
    CvPath,
    GcvPath,
    MomentProblem,
    trace_scales,
)
from kernelweave.fits.ridge import RowDesign, class_coding, principal_axes
from kernelweave.kernels.banks.features import FeatureBank
from kernelweave.kernels.features.recipe import FeatureRecipe, FeatureReport
from kernelweave.kernels.maps.feature_map import FeatureKernelMap
from kernelweave.kernels.moments import ChunkRecipe, Moments
from kernelweave.models.shared.inputs import RowMap, require_enough
from kernelweave.models.shared.learner import (
    Choice,
    Fitted,
    Judgement,
    KernelRows,
    LearnerOptions,
    Trained,
    best_alpha,
    feature_coef,
    search_norms,
)
from kernelweave.models.streaming.intake import Intake
from kernelweave.solvers.solve import Callback

#: Jitter on the moments, as a share of the variance, that deserves a remark.
NOTABLE_JITTER = 1e-9
#: A row that the model fits exactly would miss its target infinitely without it.
LEAST_ROOM = 1e-8
#: An output whose variance is below this, relative to its mean square, is constant.
CONSTANT_OUTPUT = 1e-12


@dataclass(frozen=True)
class SummedRows:
    """The second moments of the features of all rows."""

    recipe: ChunkRecipe
    moments: Moments
    intake: Intake

    @property
    def classes(self) -> np.ndarray:
        """The classes of a discriminant."""
        assert self.moments.labels is not None
        return self.moments.labels

    def trained(self, kernel_map: FeatureKernelMap, fitted: Fitted) -> Trained:
        """The result of a fit to these moments."""
        probe = self.moments.probe.views
        rows, report = _mapped(self.recipe, self.intake, kernel_map, probe, "moments")
        return Trained(fitted, rows, report)


def _mapped(
    recipe: ChunkRecipe,
    intake: Intake,
    kernel_map: FeatureKernelMap,
    probe: list[Any],
    kind: str,
) -> tuple[RowMap, FeatureReport]:
    """How new rows are mapped to the kernels, and how well, on a probe of rows."""
    features = recipe.features
    maps = features.report([rows[:256] for rows in probe])
    report = FeatureReport(kind, intake.why, features.n_features, maps)
    kernel_map.remarks += report.remarks
    return intake.row_map(kernel_map), report


def judge_moments(
    problem: MomentProblem,
    folds: Array | None,
    weights: np.ndarray,
    alpha: float | None,
    start: Any = None,
    per_target: bool = False,
) -> Judgement:
    """Alpha, by default the best, with the errors of the targets from moments.

    The errors are those of cross-validation with the moments of each fold ``folds``
    (f, 1 + t + D, 1 + t + D), or of generalised cross-validation without.
    """
    crossed = folds is not None
    path = CvPath(problem, folds, weights) if crossed else GcvPath(problem, weights)
    used = best_alpha(path, per_target) if alpha is None else alpha
    missed = path.missed(used) if alpha is None else 0.0
    return Judgement(used, path.errors(np.atleast_2d(used))[0], missed=missed)


def output_coding(gram: Array, n_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """``1 / deviation`` of each output on a diagonal (t, t), and the deviations."""
    head = to_numpy(gram[: 1 + n_targets, : 1 + n_targets])
    n = head[0, 0]
    second = np.diagonal(head)[1:] / n
    variance = second - (head[0, 1:] / n) ** 2
    varies = variance > CONSTANT_OUTPUT * second
    deviation = np.sqrt(np.where(varies, variance, 1.0))
    return np.diag(np.where(varies, 1.0 / deviation, 0.0)), deviation


@dataclass(frozen=True)
class Solved:
    """Weights and coefficients over the D + k rows of a moment problem."""

    problem: MomentProblem
    choice: Choice
    coef: Array  # (D + k, k)
    #: Mean of ``(M^-1)_ii`` over the n rows, after centring again, for each column.
    precision: np.ndarray  # (k,)

    @property
    def errors(self) -> np.ndarray:
        """Errors (k,) of the choice or, if unknown, by generalised cross-validation."""
        if self.choice.errors is not None:
            return self.choice.errors
        squares = to_numpy(namespace(self.coef).sum(self.coef**2, axis=0))
        return squares / self.precision**2 / self.problem.total

    def feature_coef(self) -> np.ndarray:
        """Coefficients (D_used, k) of the features of kernels with weight."""
        problem = self.problem
        scales = np.sqrt(problem.scales[problem.active])
        return feature_coef(problem.bank, self.coef, self.choice.weights, scales)

    def kernel_map(self, recipe: ChunkRecipe) -> FeatureKernelMap:
        """The map from new rows to projections."""
        mean = to_numpy(self.problem.mean)
        mean = mean if recipe.offset is None else mean + recipe.offset
        found = FeatureKernelMap(
            recipe.features, mean, self.problem.active, recipe.like
        )
        if self.problem.jitter > NOTABLE_JITTER:
            bits = namespace(recipe.like).finfo(recipe.like.dtype).bits
            found.remarks.append(
                f"a share of {self.problem.jitter:.0e} was added to every variance, "
                f"since sums of products in float{bits} are no better; functions "
                "change by as much, divided by alpha"
            )
        return found


def solve_moments(
    options: LearnerOptions,
    recipe: ChunkRecipe,
    moments: Moments,
    coding: tuple[np.ndarray, float],
    callback: Callback,
    per_target: bool = False,
) -> Solved:
    """Learn the weights, settle alpha, and solve for the coefficients.

    ``coding`` is the target of each class or output (t, k), and its factor in the
    criterion.
    """
    features = recipe.features
    offset = np.zeros(features.n_features) if recipe.offset is None else recipe.offset
    problem = MomentProblem(
        moments.total(),
        coding[0],
        features.widths,
        features.names,
        recipe.precision,
        _block_sums(offset**2, features),
        np.array(features.noise),
        moments.n_rows,
    )
    crossed = options.alpha == "cv"
    folds = moments.gram if crossed else None
    options = replace(options, alpha="loo") if crossed else options
    choice = search_norms(
        options,
        "learn" if options.alpha == "loo" else options.alpha,
        partial(judge_moments, problem, folds, per_target=per_target),
        lambda alpha: PrimalFisher(problem, alpha, coding[1]),
        callback,
    )
    return Solved(problem, choice, *_solve_columns(problem, choice))


def _block_sums(values: np.ndarray, features: FeatureRecipe) -> np.ndarray:
    """Sums of ``values`` (D,) over the features of each kernel, (p,)."""
    return np.array([np.sum(values[block]) for block in features.blocks])


def _solve_columns(problem: MomentProblem, choice: Choice) -> tuple[Array, np.ndarray]:
    """``B`` (D + k, k) at the alpha of each column, and the mean of ``(M^-1)_ii``."""
    xp, k = namespace(problem.target), int(problem.target.shape[1])
    alphas = np.broadcast_to(choice.alpha, (k,))
    missing = problem.n_rows - 1 - int(problem.target.shape[0])  # without any kernel
    precision, columns = np.empty(k), [xp.zeros_like(problem.target[:, :1])] * k
    for alpha in np.unique(alphas):
        factor = PrimalFisher(problem, float(alpha)).factor(choice.weights)
        coef = solve_factored(factor, problem.target)
        trace = squared_norm(lower_inverse(factor)) + missing / float(alpha)
        for j in np.flatnonzero(alphas == alpha):
            precision[j], columns[j] = trace, coef[:, int(j) : int(j) + 1]
    return xp.concat(columns, axis=1), precision / problem.n_rows


def fit_class_moments(
    options: LearnerOptions,
    rows: SummedRows,
    callback: Callback,
    priors: np.ndarray | None = None,
) -> Trained:
    """Fit a discriminant to the moments of rows with classes."""
    recipe, moments, like = rows.recipe, rows.moments, rows.intake.like
    k = len(rows.classes)
    counts = to_numpy(moments.total()[0, 1 : 1 + k])  # or sums of weights
    coding, factor = class_coding(counts)[0], 1.0
    if k == 2:  # the criterion of Ye et al. (2007) has the target of Eq. 8, a multiple
        factor = float(1.0 / counts[1] / coding[1, 0])
    solved = solve_moments(options, recipe, moments, (coding, factor), callback)
    kernel_map = solved.kernel_map(recipe)
    axes = to_numpy(principal_axes(solved.coef, solved.problem.target))
    coef = from_numpy(solved.feature_coef() @ axes, like)
    fitted = Fitted(
        solved.choice,
        float(np.mean(solved.errors)),
        feature_coef=coef,
        classes=rows.classes,
        gaussians=_gaussians(solved, kernel_map, moments, coef, coding @ axes, priors),
    )
    return rows.trained(kernel_map, fitted)


def _gaussians(
    solved: Solved,
    kernel_map: FeatureKernelMap,
    moments: Moments,
    feature_coef: Array,
    targets: np.ndarray,
    priors: np.ndarray | None,
) -> ClassGaussians:
    """Class means and variance of projections as if each row had been left out.

    A left-out row misses its target by ``1 / (1 - w/N - w h)`` times as much as when it
    is included, where h is its leverage. That of the rows of the probe is computed, and
    the best-calibrated width of the Gaussians is found on them. For the means of all
    rows, h is replaced by its mean (generalised cross-validation), and the difference
    that this makes is corrected by the difference on the probe: if that holds all rows,
    the Gaussians are those of kernels between all rows.
    """
    problem, choice = solved.problem, solved.choice
    k, probe = len(targets), moments.probe
    widen = 1.0 / (float(choice.alpha) * max(float(solved.precision[0]), 1e-300))
    weights = kernel_map.spread(choice.weights)
    used = np.repeat(weights != 0, problem.widths)
    head = to_numpy(moments.total()[1 : 1 + k, :])
    counts = head[:, 0]
    coef = to_numpy(feature_coef).astype(np.float64)
    centre = to_numpy(problem.mean)[used]
    inside = (head[:, 1 + k :][:, used] / counts[:, None] - centre) @ coef  # (k, r)
    # All rows share one intercept, as in RowDesign.held_out.
    means = targets * (1.0 + 1.0 / (problem.n_rows - 1)) - widen * (targets - inside)
    codes = np.searchsorted(moments.labels, probe.y)  # type: ignore[arg-type]
    projected = to_numpy(kernel_map.project(probe.views, weights, feature_coef)).astype(
        np.float64
    )
    own, missed = targets[codes], targets[codes] - projected
    about = own * (1.0 + 1.0 / (problem.n_rows - 1)) - widen * missed
    lost = (probe.weights / (problem.total - probe.weights))[:, None]
    try:
        leverages = _leverages(solved, kernel_map, probe.views)
        room = 1.0 - probe.weights * (1.0 / problem.total + leverages)
    except FactorizationError:  # alpha is within rounding of zero
        room = np.full(len(codes), 1.0 / widen)
    held_out = own * (1.0 + lost) - missed / np.maximum(room, LEAST_ROOM)[:, None]
    share = (codes[:, None] == np.arange(k)) * probe.weights[:, None]  # (q, k)
    seen = np.maximum(np.sum(share, axis=0), 1e-300)[:, None]
    means += share.T @ (held_out - about) / seen
    classes = HeldOutClasses(counts, counts[:, None] * means, targets, moments.sizes)
    design = RowDesign(len(codes), probe.weights)
    return classes.gaussians(held_out, codes, design=design, priors=priors)


def _leverages(
    solved: Solved, kernel_map: FeatureKernelMap, views: list[Any]
) -> np.ndarray:
    """``f'(alpha I + F'F)^-1 f`` of rows with features f among all rows F, (q,).

    Features are centred, scaled, and multiplied by the roots of the kernel weights.
    """
    problem, choice = solved.problem, solved.choice
    bank = problem.bank
    roots = np.sqrt(np.repeat(choice.weights, bank.widths))
    scales = np.sqrt(np.repeat(problem.scales[problem.active], bank.widths))
    used = np.flatnonzero(roots)
    features = to_numpy(bank.features).astype(np.float64)[:, used] * roots[used]
    gram = features.T @ features
    gram[np.diag_indices_from(gram)] += float(choice.alpha)
    inverse = to_numpy(lower_inverse(cholesky(gram, overwrite=True)))
    coef = (roots * scales)[used][:, None] * inverse.T  # (D_used, D_used)
    weights = kernel_map.spread(choice.weights)
    found = kernel_map.project(views, weights, from_numpy(coef, solved.coef))
    return np.sum(to_numpy(found).astype(np.float64) ** 2, axis=1)


def fit_output_moments(
    options: LearnerOptions, rows: SummedRows, callback: Callback
) -> Trained:
    """Fit a ridge regression to the moments of rows with outputs."""
    recipe, moments, like = rows.recipe, rows.moments, rows.intake.like
    gram = moments.total()
    coding, deviation = output_coding(gram, moments.n_targets)
    solved = solve_moments(
        options, recipe, moments, (coding, 1.0), callback, per_target=True
    )
    unit = 1.0 if recipe.unit is None else recipe.unit
    coef = solved.feature_coef() * (deviation * unit)[None, :]
    mean = to_numpy(gram[0, 1 : 1 + moments.n_targets]) / solved.problem.total * unit
    mean = mean if recipe.origin is None else mean + recipe.origin
    fitted = Fitted(
        solved.choice,
        float(np.mean(solved.errors)),
        solved.errors,
        feature_coef=from_numpy(coef, like),
        intercept=from_numpy(mean, like),
    )
    return rows.trained(solved.kernel_map(recipe), fitted)


def keep_rows(
    recipe: ChunkRecipe,
    blocks: list[Any],
    targets: np.ndarray,
    intake: Intake,
    design: RowDesign,
) -> KernelRows:
    """Kernels ``Z_i Z_i'`` between all rows, given as one block per view.

    The rows of each Z_i are multiplied by the roots of their weights.
    """
    require_enough(intake.bearer, targets)
    features, like = recipe.moved, recipe.like
    rows = empty((len(targets), features.n_features), like)
    features.write(blocks, rows)
    means = from_numpy(design.each / design.total, rows) @ rows
    rows -= means[None, :]
    rows *= design.root(rows)
    mean = to_numpy(means).astype(np.float64)
    squares = (namespace(rows).sum(rows[:, part] ** 2) for part in features.blocks)
    traces = np.array([float(square) for square in squares])
    second = traces + design.total * _block_sums(mean**2, features)
    rounding, noise = recipe.precision * second, np.array(features.noise)
    scales = np.sqrt(trace_scales(design.total, traces, rounding, noise))
    rows *= from_numpy(np.repeat(scales, features.widths), rows)[None, :]
    active = [int(i) for i in np.flatnonzero(scales)]
    kernel_map = FeatureKernelMap(recipe.features, mean, active, like)
    row_map, report = _mapped(recipe, intake, kernel_map, blocks, "rows")
    bank = FeatureBank(rows, features.widths, list(features.names))
    bank = bank.subset(np.array(active))
    return KernelRows(bank, targets, row_map, report, design, scales[active])

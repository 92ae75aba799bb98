"""From moments to a fit: weights, alpha, coefficients, class Gaussians."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from kernelweave._tolerances import NEXT_TO_ZERO
from kernelweave.criteria.fisher import PrimalFisher
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import ClassGaussians, HeldOutClasses
from kernelweave.fits.moment_problem import (
    CvPath,
    GcvPath,
    MomentProblem,
    trace_scales,
)
from kernelweave.fits.ridge import principal_axes, undone_shrinkage
from kernelweave.fits.targets import class_coding
from kernelweave.kernels.banks.features import FeatureBank, block_sums
from kernelweave.kernels.features.recipe import FeatureReport
from kernelweave.kernels.maps.feature_map import FeatureKernelMap
from kernelweave.kernels.moments import ChunkRecipe, Moments
from kernelweave.learn.ridge import as_ridge
from kernelweave.learn.sample import RowMap, Sample
from kernelweave.learn.search import (
    AlphaStart,
    Choice,
    Learned,
    Options,
    search_norms,
)
from kernelweave.models.shared.inputs import require_enough
from kernelweave.models.streaming.intake import Intake
from kernelweave.protocols import FeatureProducts
from kernelweave.views.missing import ObservedViews
from kernelweave.views.ordering import ranks_of_rows

#: Jitter on the moments, as a share of the variance, that deserves a remark.
NOTABLE_JITTER = 1e-9
#: Without this, the leave-one-out error of a row fitted exactly would be infinite.
LEAST_ROOM = 1e-8
#: An output whose variance is below this, relative to its mean square, is constant.
CONSTANT_OUTPUT = 1e-12


@dataclass(frozen=True)
class TrainingRows:
    """The rows of a fit: what is learned from, and how new rows are read."""

    sample: Sample
    rows: RowMap
    report: FeatureReport | None  # how kernels are represented, if that was chosen


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


def _mapped(
    recipe: ChunkRecipe,
    intake: Intake,
    mean: np.ndarray,
    active: list[int],
    probe: list[Any],
    kind: str,
) -> tuple[RowMap, FeatureReport]:
    """How new rows are mapped to the ``active`` kernels, and how well.

    Features have the means ``mean`` (D,); errors are measured on a probe of rows.
    """
    features = recipe.features
    kernel_map = FeatureKernelMap(features, mean, active, recipe.like)
    # the array API standard allows no slice beyond the last row
    maps = features.report([rows[: min(256, rows.shape[0]), :] for rows in probe])
    report = FeatureReport(kind, intake.why, features.n_features, maps)
    kernel_map.remarks += report.remarks
    return intake.row_map(kernel_map), report


def output_coding(gram: Array, n_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """``1 / deviation`` of each output on a diagonal (t, t), and the deviations."""
    head = to_numpy(gram[: 1 + n_targets, : 1 + n_targets])
    n = head[0, 0]
    second = np.diagonal(head)[1:] / n
    variance = second - (head[0, 1:] / n) ** 2
    varies = variance > CONSTANT_OUTPUT * second
    deviation = np.sqrt(np.where(varies, variance, 1.0))
    return np.diag(np.where(varies, 1.0 / deviation, 0.0)), deviation


class MomentFit:
    """Weights and coefficients over the D + k rows of a moment problem.

    Parameters
    ----------
    options : Options
        Which weights to learn.
    rows : SummedRows
        The moments.
    coding : ndarray of shape (t, k)
        The target of each class or output.
    factor : float, default=1.0
        Targets are multiplied by it in the criterion.
    per_target : bool, default=False
        Whether each target has its own alpha.

    Attributes
    ----------
    coef : array of shape (D + k, k)
        Coefficients, at the alpha of each column.
    precision : ndarray of shape (k,)
        Mean of ``(M^-1)_ii`` over the n rows, after centring again, for each column.
    weights : ndarray of shape (p,)
        Weights of all kernels.
    """

    def __init__(
        self,
        options: Options,
        rows: SummedRows,
        coding: np.ndarray,
        factor: float = 1.0,
        per_target: bool = False,
    ) -> None:
        recipe, features, moments = rows.recipe, rows.recipe.features, rows.moments
        zeros = np.zeros(features.n_features)
        offset = zeros if recipe.offset is None else recipe.offset
        problem = MomentProblem(
            moments.total(),
            coding,
            features.widths,
            features.names,
            recipe.precision,
            block_sums(offset**2, features.widths),
            np.array(features.noise),
            moments.n_rows,
        )
        self.problem, self.probe = problem, moments.probe
        self.folds, self.per_target = None, per_target
        if options.alpha == "cv":
            self.folds, options = moments.gram, replace(options, alpha="loo")
        self.choice = search_norms(
            options,
            "learn" if options.alpha == "loo" else options.alpha,
            self._judge,
            lambda alpha: PrimalFisher(problem, alpha, factor),
        )
        self._solve()
        mean, views = to_numpy(problem.mean) + offset, self.probe.views
        self.row_map, self.report = _mapped(
            recipe, rows.intake, mean, problem.active, views, "moments"
        )
        self.weights = self.row_map.kernel_map.spread(self.choice.weights)
        if problem.jitter > NOTABLE_JITTER:
            bits = namespace(recipe.like).finfo(recipe.like.dtype).bits
            self.row_map.kernel_map.remarks.append(
                f"a share of {problem.jitter:.0e} was added to every variance, "
                f"since sums of products in float{bits} are no more accurate; "
                "functions change by as much, divided by alpha"
            )

    def _judge(self, choice: Choice, alpha: float | None, start: AlphaStart) -> Choice:
        """Alpha, by default the best, with the errors of the targets from moments.

        The errors are those of cross-validation where there are folds, otherwise those
        of generalised cross-validation.
        """
        problem, folds, weights = self.problem, self.folds, choice.weights
        plain = folds is None
        path = GcvPath(problem, weights) if plain else CvPath(problem, folds, weights)
        used = path.best_alpha(self.per_target) if alpha is None else alpha
        missed = path.missed(used) if alpha is None else 0.0
        errors = path.errors(np.atleast_2d(used))[0]
        return replace(choice, alpha=used, errors=errors, missed=missed)

    def _solve(self) -> None:
        """Coefficients at the alpha of each column, and their precision."""
        problem, choice = self.problem, self.choice
        xp, k = namespace(problem.target), int(problem.target.shape[1])
        alphas = np.broadcast_to(choice.alpha, (k,))
        missing = problem.n_rows - 1 - problem.target.shape[0]  # without any kernel
        path = GcvPath(problem, choice.weights) if missing < 0 else None
        self.precision, columns = np.empty(k), [problem.target[:, :1]] * k
        for alpha in np.unique(alphas):
            factor = PrimalFisher(problem, float(alpha)).factor(choice.weights)
            coef = solve_factored(factor, problem.target)
            if path is None:
                trace = squared_norm(lower_inverse(factor)) + missing / float(alpha)
                precision = trace / problem.n_rows
            else:  # the difference of the two might be rounding
                precision = float(path.precision(np.array([alpha]))[0])
            for j in np.flatnonzero(alphas == alpha):
                self.precision[j] = precision
                columns[j] = coef[:, int(j) : int(j) + 1]
        self.coef = xp.concat(columns, axis=1)

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
        return problem.bank.feature_coef(self.coef, self.choice.weights, scales)

    def project(self, coef: Array) -> np.ndarray:
        """Features of the probe times coefficients (D_used, r), (q, r)."""
        rows = ObservedViews.complete(self.probe.views)
        found = self.row_map.kernel_map.project(rows, self.weights, coef)
        return to_numpy(found).astype(np.float64)


def learn_class_moments(
    rows: SummedRows, options: Options
) -> tuple[Learned, RowMap, FeatureReport]:
    """A discriminant from the moments of rows with classes, and how rows are read."""
    classes, like = rows.classes, rows.intake.like
    counts = to_numpy(rows.moments.total()[0, 1 : 1 + len(classes)])  # or of weights
    coding, factor = class_coding(counts)[0], 1.0
    if len(classes) == 2:  # the criterion of Ye et al. (2007) has the target of Eq. 8
        factor = float(1.0 / counts[1] / coding[1, 0])
    fit = MomentFit(options, rows, coding, factor)
    axes = to_numpy(principal_axes(fit.coef, fit.problem.target))
    coef = from_numpy(fit.feature_coef() @ axes, like)
    gaussians = _gaussians(fit, rows.moments, coef, coding @ axes, options.priors)
    error = float(np.mean(fit.errors))
    learned = Learned(
        fit.choice, error, feature_coef=coef, classes=classes, gaussians=gaussians
    )
    return learned, fit.row_map, fit.report


def _gaussians(
    fit: MomentFit,
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
    problem, k, probe = fit.problem, len(targets), fit.probe
    widen = 1.0 / (float(fit.choice.alpha) * float(fit.precision[0]))
    used = np.repeat(fit.weights != 0, problem.widths)
    head = to_numpy(moments.total()[1 : 1 + k, :])
    counts = head[:, 0]
    coef = to_numpy(feature_coef).astype(np.float64)
    centre = to_numpy(problem.mean)[used]
    inside = (head[:, 1 + k :][:, used] / counts[:, None] - centre) @ coef  # (k, r)
    # All rows share one intercept, as in RowDesign.held_out.
    means = targets * (1.0 + 1.0 / (problem.n_rows - 1)) - widen * (targets - inside)
    codes = np.searchsorted(moments.labels, probe.y)  # type: ignore[arg-type]
    own, missed = targets[codes], targets[codes] - fit.project(feature_coef)
    about = own * (1.0 + 1.0 / (problem.n_rows - 1)) - widen * missed
    lost = (probe.weights / (problem.total - probe.weights))[:, None]
    try:
        room = 1.0 - probe.weights * (1.0 / problem.total + _leverages(fit))
    except FactorizationError:  # alpha is within rounding of zero
        room = np.full(len(codes), 1.0 / widen)
    wider = 1.0 / np.maximum(room, LEAST_ROOM)
    held_out = own * (1.0 + lost) - wider[:, None] * missed
    held_out += _sway(probe.weights, wider, missed, problem.total)
    held_out -= _sway(probe.weights, 1.0 + lost[:, 0], own, problem.total)
    held_out *= undone_shrinkage(problem.n_rows)
    share = (codes[:, None] == np.arange(k)) * probe.weights[:, None]  # (q, k)
    seen = np.maximum(np.sum(share, axis=0), NEXT_TO_ZERO)[:, None]
    means += share.T @ (held_out - about) / seen
    precision = problem.precision * max(widen, float(np.mean(wider)))
    classes = HeldOutClasses(
        counts, counts[:, None] * means, targets, moments.sizes, precision
    )
    design = RowDesign(len(codes), probe.weights)
    return classes.gaussians(held_out, codes, design, priors=priors)


def _sway(
    weights: np.ndarray, wider: np.ndarray, missed: np.ndarray, total: float
) -> np.ndarray:
    """``B_i / sum_j A_jj`` over all rows j but i, (q, r), see RowDesign.held_out.

    ``w missed`` is alpha B, and ``w / wider`` is alpha times the diagonal of A. The
    rows of the probe stand for all rows, whose weights have the sum ``total``.
    """
    sizes = weights / wider
    others = np.sum(sizes) * (total / np.sum(weights)) - sizes
    return (weights / others)[:, None] * missed


def _leverages(fit: MomentFit) -> np.ndarray:
    """``f'(alpha I + F'F)^-1 f`` of rows with features f among all rows F, (q,).

    Features are centred, scaled, and multiplied by the roots of the kernel weights.
    """
    bank: FeatureProducts = fit.problem.bank
    roots = np.sqrt(bank.per_feature(fit.choice.weights))
    used = np.flatnonzero(roots)
    gram = bank.feature_gram(fit.choice.weights)
    gram[np.diag_indices_from(gram)] += float(fit.choice.alpha)
    inverse = to_numpy(lower_inverse(cholesky(gram, overwrite=True)))
    scales = (roots * fit.problem.feature_scales)[used]
    coef = from_numpy(scales[:, None] * inverse.T, fit.coef)  # (D_used, D_used)
    return np.sum(fit.project(coef) ** 2, axis=1)


def learn_output_moments(
    rows: SummedRows, options: Options
) -> tuple[Learned, RowMap, FeatureReport]:
    """A ridge regression from the moments of rows, and how rows are read."""
    recipe, like, n_targets = rows.recipe, rows.intake.like, rows.moments.n_targets
    gram = rows.moments.total()
    coding, deviation = output_coding(gram, n_targets)
    fit = MomentFit(options, rows, coding, per_target=True)
    coef = fit.feature_coef() * (deviation * recipe.unit)[None, :]
    mean = to_numpy(gram[0, 1 : 1 + n_targets]) / fit.problem.total
    mean = mean * recipe.unit + recipe.origin
    learned = Learned(
        as_ridge(fit.choice),
        float(np.mean(fit.errors)),
        fit.errors,
        feature_coef=from_numpy(coef, like),
        intercept=from_numpy(mean, like),
    )
    return learned, fit.row_map, fit.report


def keep_rows(
    recipe: ChunkRecipe,
    blocks: list[Any],
    targets: np.ndarray,
    intake: Intake,
    design: RowDesign,
) -> TrainingRows:
    """Kernels ``Z_i Z_i'`` between all rows, given as one block per view.

    The rows of each Z_i are multiplied by the roots of their weights.
    """
    require_enough(intake.estimator, targets)
    data = ObservedViews.complete(blocks)
    design = replace(design, ranks=ranks_of_rows(data, targets, design.weights))
    features = recipe.moved
    rows = empty((len(targets), features.n_features), recipe.like)
    features.write(blocks, rows)
    means = from_numpy(design.each / design.total, rows) @ rows
    rows -= means[None, :]
    rows *= design.root(rows)
    mean = to_numpy(means).astype(np.float64)
    squares = (namespace(rows).sum(rows[:, part] ** 2) for part in features.blocks)
    traces = np.array([float(square) for square in squares])
    second = traces + design.total * block_sums(mean**2, features.widths)
    rounding, noise = recipe.precision * second, np.array(features.noise)
    scales = np.sqrt(trace_scales(design.total, traces, rounding, noise))
    rows *= from_numpy(np.repeat(scales, features.widths), rows)[None, :]
    active = [int(i) for i in np.flatnonzero(scales)]
    row_map, report = _mapped(recipe, intake, mean, active, blocks, "rows")
    bank = FeatureBank(rows, features.widths, list(features.names))
    bank = bank.subset(np.array(active))
    sample = Sample(bank, targets, design, scales=scales[active])
    return TrainingRows(sample, row_map, report)

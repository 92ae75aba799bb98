"""How norm, alpha and objective determine the weights, and scores of new rows."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from kernelweave._array import (
    DOUBLE_EPS,
    Array,
    FactorizationError,
    deviations,
    from_numpy,
    to_numpy,
    units_of,
)
from kernelweave._tolerances import SAME_SCORE
from kernelweave.criteria.fisher import Fisher
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.fits.alpha import LOO_TOLERANCE, AlphaSearch, LooPath
from kernelweave.fits.calibration import Calibration, calibrate, number_of_groups
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import ClassGaussians, ClassHits, units_per_class
from kernelweave.fits.ridge import KernelFit, fit_kernel
from kernelweave.fits.targets import StandardOutputs
from kernelweave.kernels.features.recipe import FeatureReport
from kernelweave.models.shared.inputs import RowMap, number, one_of, positive
from kernelweave.models.shared.scoring import Measure
from kernelweave.protocols import Bank, FeatureProducts, RowBank
from kernelweave.solvers.local.loo import learn
from kernelweave.solvers.newton import carried_over
from kernelweave.solvers.solve import (
    Callback,
    Certificate,
    Solution,
    error_of_value,
    fitting_methods,
    reachable,
    solve,
)
from kernelweave.views.columns import with_names
from kernelweave.weights import LpBall, Simplex, Uniform, WeightSet

if TYPE_CHECKING:  # estimators are built from what is here
    from kernelweave.models.shared.base import KernelModel

#: Norms that ``norm="loo"`` chooses from; infinity is the uniform mean.
NORM_GRID = (1.0, 4.0 / 3.0, 2.0, float("inf"))
#: Said of a fit that was not completed.
STOPPED = "a callback stopped the fit"
#: Values that the parameters of any learner of Fisher's weights may take.
LEARNER = {
    "norm": number("a number >= 1", lambda v: v >= 1, "loo"),
    "alpha": positive("learn", "loo"),
    "solver": one_of("auto", *fitting_methods(Fisher, Simplex)),
}


@dataclass(frozen=True)
class LearnerOptions:
    """Which weights to learn: parameters of ``MultipleKernelFDA``.

    ``near`` are choices made for each norm on other rows, to start from. ``sampled``
    are those made on a sample of the rows, if one has ruled out ``norms``. The
    ``progress`` is told of every iteration, and knows whether to stop.
    """

    norm: float | str = "loo"
    alpha: float | str = "loo"
    objective: str = "fisher"
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int | None = None
    interactions: bool | str = False
    cv: Any = None
    random_state: Any = 0
    progress: Any = None
    near: dict[float, Choice] | None = None
    norms: tuple[float, ...] = ()
    sampled: dict[float, Choice] | None = None

    @classmethod
    def of(cls, model: KernelModel, progress: Any) -> LearnerOptions:
        """The parameters of a model, or the defaults of those that it does not have."""
        internal = ("random_state", "progress", "near", "norms", "sampled")
        names = [one.name for one in fields(cls) if one.name not in internal]
        found = {name: getattr(model, name) for name in names if hasattr(model, name)}
        given = {name: value for name, value in found.items() if value is not None}
        return cls(**given, random_state=model.random_state, progress=progress)

    @property
    def callback(self) -> Callback | None:
        """Called after every iteration."""
        return None if self.progress is None else self.progress.iteration

    @property
    def stopped(self) -> bool:
        """Whether a callback has asked to stop."""
        return self.progress is not None and self.progress.stopped

    def for_folds(self, on_all: Choice) -> LearnerOptions:
        """The options for some of the rows, after the choice made on all of them.

        The weights of a fold solve a convex problem, wherever the search for them
        starts. That for alpha finds the minimum of the fold's own error downhill from
        the alpha of all rows.
        """
        tol = max(self.tol, FOLD_TOLERANCE)
        return replace(self, tol=tol, near=on_all.candidates, progress=None)


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
    errors : ndarray of shape (k,) or None
        Mean squared held-out error of each target, if it was needed.
    score : float or None
        The score on rows left out by which it was chosen, if not by the error.
    fit : KernelFit or None
        Dual coefficients and leave-one-out residuals at these weights, if known.
    curvature : float
        Second derivative of the log error in log alpha, 0 if unknown.
    missed : float
        Change of functions at smaller alphas that only rounding has excluded.
    solved : ndarray or None
        The solution of the convex problem; a learned alpha comes first.
    candidates : dict of float to Choice
        All choices that were compared, by norm.
    n_rows : int or None
        How many rows it was made on, if a sample of them.
    """

    weights: np.ndarray
    alpha: float | np.ndarray
    n_iter: int
    certificate: Certificate | None = None
    norm: float | None = None
    errors: np.ndarray | None = None
    score: float | None = None
    fit: KernelFit | None = None
    curvature: float = 0.0
    missed: float = 0.0
    solved: np.ndarray | None = None
    candidates: dict[float, Choice] = field(default_factory=dict)
    n_rows: int | None = None

    @property
    def error(self) -> float | None:
        """The mean of the errors of all targets."""
        return None if self.errors is None else float(np.mean(self.errors))

    def fit_on(self, bank: Bank, target: Array, design: RowDesign) -> KernelFit:
        """The fit at these weights, computed now unless choosing them needed it."""
        if self.fit is not None:
            return self.fit
        alpha = float(self.alpha)  # alphas of each target come with their fit
        return fit_kernel(bank.combine(self.weights), target, alpha, design)


class AlphaStart(NamedTuple):
    """Where to start the search for the best alpha, as :meth:`AlphaSearch.minimum`."""

    alpha: float
    curvature: float = 0.0  # that at the minimum of a similar problem, if it is here
    tolerance: float = LOO_TOLERANCE


#: ``judge(choice, alpha, start)`` is the choice at this alpha, with the errors of rows
#: left out; None stands for the best alpha, which may be sought from ``start``.
Judge = Callable[[Choice, float | None, AlphaStart], Choice]
#: The score of a fit on the rows left out, or that of column j alone.
Score = Callable[[KernelFit, int | None], float]


@dataclass(frozen=True)
class Task:
    """The problem for which weights and alpha are chosen.

    Attributes
    ----------
    bank : Bank
        Kernels between all rows.
    target : array of shape (n, k)
        What leave-one-out residuals are measured on.
    design : RowDesign
        Weights and groups of the rows.
    criterion : callable or None
        The convex problem for a float alpha or, if ``learnable``, for "learn"; None if
        weights are given.
    learnable : bool
        Whether the weight of the identity can be learned.
    per_target : bool
        Whether "loo" chooses one alpha for each column of the target.
    score : callable or None
        Replaces the mean square of residuals where alpha and norm are chosen.
    """

    bank: Bank
    target: Array
    design: RowDesign
    criterion: Callable[[Any], Fisher] | None = None
    learnable: bool = True
    per_target: bool = False
    score: Score | None = None


def best_scored_alpha(
    path: LooPath, score: Score, per_target: bool
) -> float | np.ndarray:
    """The alpha with the largest score, or that of each of several targets.

    Many measures move in steps and are the same for many alphas: the one with the
    smallest error among those is taken. Candidates are every third point of the grid of
    :meth:`AlphaPath.best_alpha` and the alpha with the smallest error.
    """
    columns: list[int | None] = [None]
    if per_target and path.rotated.shape[1] > 1:
        columns = list(range(path.rotated.shape[1]))
    smallest = np.atleast_1d(path.best_alpha(per_target))
    # in units of the trace per weight, so that weights count like repeated rows
    grid = path.grid()[::3] * path.n_samples / path.design.total
    found = np.empty(len(columns))
    for i, j in enumerate(columns):
        part = slice(None) if j is None else slice(j, j + 1)
        alphas = np.append(grid, smallest[i])
        errors = np.mean(path.errors(alphas[:, None])[:, part], axis=1)
        scores = [score(path.fit(alpha), j) for alpha in alphas]
        found[i] = alphas[_best_by_score(scores, list(errors))]
    return found if len(columns) > 1 else float(found[0])


def _best_by_score(scores: list[float], errors: list[float]) -> int:
    """Where the score is largest; of equal ones, where the error is smallest."""
    if np.all(np.isnan(scores)):
        raise ValueError(
            "the measure named by scoring is undefined on the rows left out, for "
            "every alpha and norm; use another one"
        )
    tied = np.nan_to_num(scores, nan=-np.inf) >= np.nanmax(scores) - SAME_SCORE
    return int(np.argmin(np.where(tied, errors, np.inf)))


#: With this many rows or more, the search for alpha goes downhill from the learned one.
#: For fewer an eigendecomposition, which sees all alphas, costs next to nothing.
MANY_ROWS = 300


class RowJudge:
    """Leave-one-out errors of the weights of one norm after another.

    The best alpha takes an eigendecomposition, which serves all columns of the target
    even if each has its own; a given one takes only a factorisation. The best is that
    with the smallest error or, if the task has one, the largest score.

    With many rows, one alpha for all columns and the squared error as measure, the best
    alpha is found by :class:`AlphaSearch`.
    """

    def __init__(self, task: Task, many_rows: int = MANY_ROWS) -> None:
        self.task = task
        several = task.per_target and task.target.shape[1] > 1
        many = task.target.shape[0] >= many_rows
        self.searches = many and task.score is None and not several

    def __call__(
        self, choice: Choice, alpha: float | None, start: AlphaStart
    ) -> Choice:
        """The choice with errors at a given alpha or, for None, at the best one."""
        if alpha is None and self.searches:
            with contextlib.suppress(FactorizationError):  # too small for the precision
                return self._search(choice, start)
        task, missed = self.task, 0.0
        gram = task.bank.combine(choice.weights)
        best: float | np.ndarray
        if alpha is not None:
            best, fit = alpha, fit_kernel(gram, task.target, alpha, task.design)
        else:
            path = LooPath(gram, task.target, task.design)
            if task.score is None:
                best = path.best_alpha(task.per_target)
            else:
                best = best_scored_alpha(path, task.score, task.per_target)
            fit = path.fit(best)
            missed = path.missed(best)
        score = None if task.score is None else task.score(fit, None)
        errors = task.design.mean_squares(fit.loo_residual)
        choice = replace(choice, alpha=best, fit=fit, missed=missed)
        return replace(choice, errors=errors, score=score)

    def _search(self, choice: Choice, start: AlphaStart) -> Choice:
        """The choice at the minimum downhill from the start."""
        task = self.task
        search = AlphaSearch(
            task.bank.combine(choice.weights), task.target, task.design
        )
        lowest, curvature = search.minimum(
            start.alpha, start.curvature, start.tolerance
        )
        return replace(
            choice,
            alpha=lowest.alpha,
            fit=lowest.fit,
            errors=task.design.mean_squares(lowest.fit.loo_residual),
            curvature=curvature,
            missed=search.missed(lowest),
        )


def choose_weights(options: LearnerOptions, task: Task) -> Choice:
    """Choose weights and alpha for kernels between all rows."""
    bank, target, design = task.bank, task.target, task.design
    if options.objective == "loo":
        if not design.is_plain:
            raise ValueError(
                "objective='loo' takes neither row weights nor groups; use "
                "objective='fisher'"
            )
        return _direct_loo(options, bank, target)
    first_alpha: Any = options.alpha
    if first_alpha == "loo" and task.learnable:
        first_alpha = "learn"
    elif first_alpha == "loo":
        uniform = np.full(bank.n_kernels, 1.0 / bank.n_kernels)
        first_alpha = LooPath(bank.combine(uniform), target, design).best_alpha()
    assert task.criterion is not None
    return search_norms(options, first_alpha, RowJudge(task), task.criterion, target)


def search_norms(
    options: LearnerOptions,
    first_alpha: float | str,
    judge: Judge,
    criterion: Callable[[Any], Fisher],
    target: Array | None = None,
) -> Choice:
    """Solve for the weights at ``first_alpha``, settle alpha, and compare norms.

    The mean of all kernels comes first. Each smaller norm starts from the one before.
    Where nothing is compared, ``target`` (n, k) is fitted with the last factorisation.
    """
    compare = options.norm == "loo"
    judged_later = compare or options.alpha == "loo"
    target = None if judged_later else target
    norms = (options.norms or NORM_GRID) if compare else (float(options.norm),)
    found: dict[float, Choice] = {}
    last: Solution | None = None
    for norm in reversed(norms):
        choice, last = _solved(options, norm, first_alpha, criterion, last, target)
        if judged_later:
            wanted = None if options.alpha == "loo" else float(choice.alpha)
            choice = judge(choice, wanted, alpha_start(options, choice, found))
        found[norm] = choice
        if options.stopped:
            break
    tried = [found[norm] for norm in norms if norm in found]
    best = tried[0]
    if compare:
        scores = [0.0 if one.score is None else one.score for one in tried]
        best = tried[_best_by_score(scores, [one.error for one in tried])]  # type: ignore[misc]
    candidates = (options.sampled or {}) | found
    if compare and (len(found) < len(norms) or len(candidates) < len(NORM_GRID)):
        remark = f"{STOPPED}; norms tried: {', '.join(f'{norm:.3g}' for norm in found)}"
        assert best.certificate is not None
        best = replace(best, certificate=best.certificate.with_remarks([remark]))
    return replace(best, candidates=dict(sorted(candidates.items())))


def alpha_start(
    options: LearnerOptions, choice: Choice, tried: dict[float, Choice]
) -> AlphaStart:
    """Where to search for alpha at the weights of a norm.

    That is the minimum for the same norm on other rows, which folds stay next to, or
    for the best of the norms before it, per unit of trace; otherwise the learned alpha.
    """
    assert choice.norm is not None
    for others, tolerance in (
        (options.near, FOLD_ALPHA_TOLERANCE),
        (options.sampled, LOO_TOLERANCE),
    ):
        similar = (others or {}).get(choice.norm)
        if similar is not None and np.ndim(similar.alpha) == 0:
            return AlphaStart(float(similar.alpha), similar.curvature, tolerance)
    before = [one for one in tried.values() if np.ndim(one.alpha) == 0]
    if before:
        best = min(before, key=lambda one: cast(float, one.error))
        level = float(best.alpha) / float(np.sum(best.weights))
        return AlphaStart(level * float(np.sum(choice.weights)), best.curvature)
    return AlphaStart(float(choice.alpha))


#: With this many rows or more, a sample of them rules out norms: a share of the rows,
#: but at least this many. On fewer, the best norm is often not that of all rows.
RACED_FROM, RACED_SHARE, RACED_AT_LEAST = 1500, 0.125, 1000
#: Standard errors between an error and a bound on it.
CLEARLY = 3.0
#: Relative decrease of the squared error for which another norm is not worth trying.
NEGLIGIBLE = 5e-3
PosedTask = TypeVar("PosedTask", bound=Task)
#: ``pose(bank, targets, design)`` is the task of all rows, or that of some of them.
Pose = Callable[[Any, np.ndarray, RowDesign], PosedTask]


def pose_and_choose(
    options: LearnerOptions,
    pose: Pose[PosedTask],
    bank: RowBank,
    targets: np.ndarray,
    design: RowDesign,
) -> tuple[PosedTask, Choice]:
    """The task of all rows, with weights and alpha chosen for it.

    By the squared error, a sample of many rows rules out norms first.
    """
    task = pose(bank, targets, design)
    if task.score is None:
        options = race_norms(options, bank, targets, design, pose)
    return task, choose_weights(options, task)


def race_norms(
    options: LearnerOptions,
    bank: RowBank,
    targets: np.ndarray,
    design: RowDesign,
    pose: Pose[Any],
    raced_from: int = RACED_FROM,
    at_least: int = RACED_AT_LEAST,
) -> LearnerOptions:
    """Options with the norms that a sample of many rows does not rule out.

    All norms are tried on an eighth of the rows, where a factorisation takes a 512th of
    the time. The errors of two norms are those of the same rows, so their difference
    is known far better than either. A norm is ruled out if, within three standard
    errors of that difference, its error is not lower than the smallest one by more
    than 0.5 %. The others start from what was found on the sample.
    """
    n, chooses = len(targets), options.norm == "loo" and options.objective == "fisher"
    if not chooses or n < raced_from or bank.held_as == "features":
        return options
    rows = _sample_rows(design, max(int(RACED_SHARE * n), at_least))
    part, none = design.restrict(rows), np.array([], dtype=int)
    if np.all(targets[rows] == targets[rows[0]]) or np.max(part.units) == 0:
        return options
    try:
        kernels = bank.fold(rows, none, design.weights, bank.space_of_fold(len(rows)))
        if not kernels.active:
            return options
        loose = replace(options, tol=max(options.tol, FOLD_TOLERANCE))
        found = choose_weights(loose, pose(kernels.bank, targets[rows], part))
    except MemoryRefusedError:
        return options
    sampled = {
        norm: replace(one, n_rows=len(rows)) for norm, one in found.candidates.items()
    }
    norms = _promising(found.candidates, part)
    return replace(options, norms=norms, sampled=sampled)


def _sample_rows(design: RowDesign, size: int) -> np.ndarray:
    """About ``size`` rows, drawn with a fixed seed; groups stay together."""
    units = design.places_of_units
    rank = np.random.default_rng(0).permutation(int(np.max(units)) + 1)[units]  # (n,)
    return np.flatnonzero(rank <= np.sort(rank)[size - 1])


def _promising(found: dict[float, Choice], design: RowDesign) -> tuple[float, ...]:
    """The norm with the smallest error, and those that may be better by enough."""
    squares = {}
    for norm, choice in found.items():
        assert choice.fit is not None
        residual = to_numpy(choice.fit.loo_residual).astype(np.float64)
        squares[norm] = np.mean(residual**2, axis=1)  # (m,)
    means = {n: float(np.average(e, weights=design.each)) for n, e in squares.items()}
    best = min(means, key=lambda norm: means[norm])
    kept = []
    for norm in means:
        apart = (squares[norm] - squares[best])[:, None]
        ones = np.ones_like(apart)
        worse, error = ratio_of_means(apart, ones, design.each, design.units)
        if norm == best or worse - CLEARLY * error < -NEGLIGIBLE * means[best]:
            kept.append(norm)
    return tuple(kept)


def _solved(
    options: LearnerOptions,
    norm: float,
    alpha: float | str,
    criterion: Callable[[Any], Fisher],
    last: Solution | None,
    target: Array | None,
) -> tuple[Choice, Solution]:
    """The weights at one norm; the criterion's workspace is freed on return."""
    learned = isinstance(alpha, str)
    weight_set = weight_set_of_norm(norm, fixed=not learned)
    problem = criterion(alpha)
    start = None
    if "parts" in problem.offers:
        start = _start(options, norm, weight_set, problem.n_weights, last)
    solution = solve(
        problem,
        weight_set,
        method=options.solver,
        **reachable(options.tol, problem.bank.like),
        max_iter=options.max_iter,
        callback=options.callback,
        start=start,
    )
    how = "learned alpha" if learned else f"alpha={float(alpha):.3g}"
    name = type(problem).__name__.removeprefix("Primal")  # the same problem
    title = f"{name}, l{norm:.3g} weights, {how}"
    weights, unit = solution.weights, 1.0
    if learned:
        weights, alpha, unit = split_learned(weights, weight_set)
    fit = None
    if target is not None:
        fit = problem.last_fit(solution.weights, target, unit)
    error = error_of_value(problem.bank, weights, 1.0 / float(alpha))
    certificate = Certificate.of(solution, title, error)
    count = solution.n_factorizations
    choice = Choice(weights, float(alpha), count, certificate, norm, fit=fit)
    return replace(choice, solved=solution.weights), solution


def _start(
    options: LearnerOptions,
    norm: float,
    weight_set: Simplex | LpBall | Uniform,
    n_weights: int,
    last: Solution | None,
) -> np.ndarray | None:
    """Weights from which to solve for one norm; None for those of the set."""
    carried = None
    if last is not None and np.isfinite(last.value):
        carried = carried_over(last.weights, last.gradient, weight_set)
    there = (options.near or options.sampled or {}).get(norm)
    known = None if there is None else there.solved
    if known is None or len(known) != n_weights:
        return carried
    # Kernels without weight there may need some here, and would grow slowly from 0.
    even = weight_set.start(n_weights) if carried is None else carried
    return weight_set.scale((1.0 - FOLD_SPREAD) * known + FOLD_SPREAD * even)


def _direct_loo(options: LearnerOptions, bank: Bank, target: Array) -> Choice:
    limit = options.max_iter or 200
    result = learn(bank, target, max_iter=limit, callback=options.callback)
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
) -> tuple[np.ndarray, float, float]:
    """Kernel weights on the boundary of their set, that of the identity, and a unit.

    The identity comes first in ``weights`` (p + 1,); all are multiplied by the unit.
    """
    kernels = weights[1:]
    if not np.any(kernels):  # the identity outweighs them all: they are rounding
        kernels = np.full_like(kernels, DOUBLE_EPS)
    uniform = weight_set.is_point(len(kernels))  # a mean of kernels, not their sum
    scaled = Uniform().scale(kernels) if uniform else weight_set.scale(kernels)
    largest = int(np.argmax(kernels))
    unit = float(scaled[largest] / kernels[largest])
    return scaled, float(weights[0]) * unit, unit


@dataclass(frozen=True)
class FoldScore:
    """The score to expect on new rows, from folds in which everything is learned again.

    Attributes
    ----------
    score : float
        Accuracy, R^2 or the requested measure, on held-out rows; NaN if undefined.
    standard_error : float
        Its standard error.
    calibration : Calibration or None
        The temperature relative to that of rows left out one by one, and the share of
        exceptions, with the smallest held-out log loss. None if no held-out row has a
        class that its fold has seen.
    hits : ClassHits or None
        How many held-out rows of each class are right.
    remark : str or None
        Why there is no score.
    """

    score: float = float("nan")
    standard_error: float = float("nan")
    calibration: Calibration | None = None
    hits: ClassHits | None = None
    remark: str | None = None


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
    steepness: float = 0.0  # of the functions, by :meth:`KernelFit.steepness`
    folds: FoldScore | None = None  # on held-out rows; None without folds
    rows: RowMap | None = None  # how new rows are mapped to the kernels; not of a fold
    report: FeatureReport | None = None  # if the representation was chosen


@dataclass(frozen=True)
class KernelRows:
    """Kernels between all rows: n x n matrices, or products of explicit features.

    From features the model learns as it does from matrices, including leave-one-out
    errors. Its row coefficients are then turned into feature coefficients, so that
    predictions need none of the rows.
    """

    bank: RowBank
    targets: np.ndarray  # (n,) or (n, n_outputs)
    rows: RowMap
    report: FeatureReport | None
    design: RowDesign
    scales: np.ndarray | None = None  # (p,), by which features were multiplied

    def trained(self, fitted: Fitted) -> Fitted:
        """The result of a fit to these kernels."""
        if self.scales is not None:
            weights = fitted.choice.weights
            dual = self.design.unscale(fitted.dual_coef)  # the bank has the roots
            bank = cast(FeatureProducts, self.bank)
            coef = bank.feature_coef(dual, weights, self.scales)
            fitted = replace(fitted, feature_coef=from_numpy(coef, self.rows.like))
        return replace(fitted, rows=self.rows, report=self.report)


#: Relative gap of the weights of a fold.
FOLD_TOLERANCE = 1e-4
#: Relative decrease of a fold's error for which its search for alpha does not go on.
FOLD_ALPHA_TOLERANCE = 1e-3
#: Share of the start of a fold's weights that is not from those of all rows.
FOLD_SPREAD = 0.1
#: Remark on a model whose folds do not fit into memory, were stopped, or failed.
NO_SCORE = "there is no cv_score_: {}"
#: Why there is none if no fold counts.
TOO_FEW = "too few rows or groups to learn {} without those of a fold"


class StoppedError(Exception):
    """Raised if no further folds are wanted, or one of them cannot be learned."""


@dataclass(frozen=True)
class Fold:
    """A fit to the rows ``train``, and what it projects the rows ``test`` to."""

    train: np.ndarray
    test: np.ndarray
    fitted: Fitted
    projected: Array  # (m, k)

    @property
    def judged(self) -> FoldClasses:
        """What the discriminant of this fold predicts for its test rows."""
        classes, gaussians = self.fitted.classes, self.fitted.gaussians
        assert classes is not None and gaussians is not None
        log_joint = to_numpy(gaussians.log_joint(self.projected))
        scores = to_numpy(gaussians.scores(self.projected))
        return FoldClasses(self.test, classes, gaussians.slope > 0, scores, log_joint)


@dataclass(frozen=True)
class FoldClasses:
    """What a fit without the rows ``test`` predicts for them."""

    test: np.ndarray  # (m,)
    classes: np.ndarray  # (r,), codes of the classes that the fit has seen
    has_evidence: bool  # whether it predicts more than the class shares
    scores: np.ndarray  # (m, r), without given priors and before exceptions
    log_joint: np.ndarray  # (m, r)


Fit = Callable[[RowBank, np.ndarray, RowDesign], Fitted]


def choose_splits(
    cv: Any,
    targets: np.ndarray,
    design: RowDesign,
    classify: bool,
    random_state: Any = 0,
    every_class: bool = False,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows to learn from and those held out, for each fold.

    A whole number of folds is stratified by class and keeps groups together; which rows
    are in a fold depends on the ranks of the design, not on their order. There are
    fewer folds than requested if every class has fewer rows, or if there are fewer
    groups; a class with fewer rows than folds is held out in some of them only. With
    ``every_class``, one class with fewer rows is enough for fewer folds, so that each
    fold holds out a row of it: the balanced accuracy of others would leave it out.
    """
    if not isinstance(cv, int | np.integer):
        return _splits_as_passed(cv, targets, design)
    n_folds = min(int(cv), len(design.members))
    if classify:
        counts = units_per_class(targets, design)
        if np.max(counts) < 2:
            return []  # no class can be both learned and held out
        limit = np.min(counts[counts > 1]) if every_class else np.max(counts)
        n_folds = max(2, min(n_folds, int(limit)))
    kinds: dict[tuple[bool, bool], Any] = {
        (True, False): StratifiedKFold,
        (True, True): StratifiedGroupKFold,
        (False, False): KFold,
        (False, True): GroupKFold,
    }
    kind = kinds[classify, design.groups is not None]
    splitter = kind(n_folds, shuffle=True, random_state=random_state)
    order = np.argsort(design.places)  # (n,), by contents
    labels = targets[order] if classify else None
    groups = None if design.groups is None else design.places_of_units[order]
    with warnings.catch_warnings():  # classes with fewer rows than folds are expected
        few = "The (least populated class in y|number of unique classes) "
        warnings.filterwarnings("ignore", few)
        splits = list(splitter.split(order, labels, groups))
    return [(np.sort(order[train]), np.sort(order[test])) for train, test in splits]


def _splits_as_passed(
    cv: Any, targets: np.ndarray, design: RowDesign
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The splits of a scikit-learn splitter, or an iterable of them, by row number.

    A splitter divides the rows that count. An iterable was made for the rows of X, of
    which those of weight 0 are left out of its splits.
    """
    n = len(targets)
    kept = np.ones(n, dtype=bool)
    if hasattr(cv, "split"):
        what = "rows of positive weight"
        pairs = list(cv.split(np.zeros((n, 1)), targets, design.groups))
    else:
        what, pairs = "rows in X", list(cv)
        kept = kept if design.kept is None else design.kept
    if not pairs:
        raise ValueError(
            "cv holds no splits. A generator can be read only once, by one fit: pass a "
            "list of pairs (train, test)"
        )
    number = np.cumsum(kept) - 1  # (N,), of the rows that count
    splits = []
    for i, pair in enumerate(pairs):
        try:
            train, test = pair
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"cv: split {i} must be a pair (train, test) of row numbers; got "
                f"{type(pair).__name__} {pair!r:.60}"
            ) from error
        train = _row_numbers(train, len(kept), i, what)
        test = _row_numbers(test, len(kept), i, what)
        both = np.intersect1d(train, test)
        if len(both):
            raise ValueError(
                f"cv: split {i} has {with_names('row', map(str, both))} in both its "
                "training and its test rows, and a score of rows that were learned "
                "from is not held out. Remove them from one of the two"
            )
        splits.append((number[train[kept[train]]], number[test[kept[test]]]))
    return splits


def _row_numbers(rows: Any, n: int, split: int, what: str) -> np.ndarray:
    """Numbers from 0 of rows given by number, where -1 is the last, or by a mask (n,).

    The number of the ``split``, and ``what`` the n rows are, are for messages.
    """
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape == (n,):
        return np.flatnonzero(rows)
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        raise ValueError(
            f"cv: split {split} must give rows by number, or by a mask of {n} {what}; "
            f"got an array of {rows.dtype} of shape {rows.shape}"
        )
    rows = rows.astype(np.int64)
    beyond = rows[(rows < -n) | (rows >= n)]
    if len(beyond):
        raise ValueError(
            f"cv: split {split} names row {beyond[0]}, counted from 0, but there are "
            f"{n} {what}. Make the splits for these rows"
        )
    return rows % n


def learn_folds(
    bank: RowBank,
    targets: np.ndarray,
    design: RowDesign,
    splits: list[tuple[np.ndarray, np.ndarray]],
    fit: Fit,
    report: Callable[[int, int], object],
) -> Iterator[Fold]:
    """Fit to the rows of each fold, and project those held out.

    Leave-one-out errors at the final weights are too good, since the weights were
    learned on the rows left out. Here everything is learned again without the rows of
    a fold. The kernels are known already: with ``G = P K P`` of all rows, the kernel of
    the rows s of a fold is ``P_s K_ss P_s = P_s G_ss P_s``, and that of its held-out
    rows follows likewise, so a fold costs a fit of four fifths of the rows, about half
    as much. Only the parameters of the kernels, such as widths, which never see a
    label, are those of all rows; so is a scale other than trace n after centring.
    Searches start from what was found on all rows (:meth:`LearnerOptions.for_folds`),
    which saves half of their steps. Folds whose rows have no kernel that varies are
    left out.

    Parameters
    ----------
    bank : RowBank
        Centred kernels of all n rows, multiplied by the roots of the row weights.
    targets : ndarray of shape (n,) or (n, t)
        Classes or outputs.
    design : RowDesign
        Weights and groups of the rows.
    splits : list of (train, test)
        Indices of rows.
    fit : callable
        Learns from a bank, targets and a design.
    report : callable
        Told the number of each finished fold, and how many there are; true if the
        others are not wanted.
    """
    # new memory for every fold would cost a pass over it
    space = bank.space_of_fold(max((len(rows) for rows, _ in splits), default=0))
    for i, (train, test) in enumerate(splits, start=1):
        part = design.restrict(train)
        fold = bank.fold(train, test, design.weights, space)
        if fold.active:
            fitted = fit(fold.bank, targets[train], part)
            projected = fold.cross(fitted.choice.weights) @ fitted.dual_coef
            yield Fold(train, test, fitted, projected)
        end_fold(report, i, len(splits))


def end_fold(report: Callable[[int, int], object], number: int, n_folds: int) -> None:
    """Report a finished fold; raise StoppedError if the others are not wanted."""
    if report(number, n_folds) and number < n_folds:
        raise StoppedError(f"{STOPPED} after fold {number} of {n_folds}")


def ratio_of_means(
    u: np.ndarray, v: np.ndarray, weights: np.ndarray, units: np.ndarray
) -> tuple[float, float]:
    """``R = sum_i w_i u_i / sum_i w_i v_i`` and its standard error over groups.

    With ``d_g = sum_(i in g) w_i (u_i - R v_i) / sum_i w_i v_i``, which are independent
    between groups, the share ``s_g`` of a group in the weight of all, and the effective
    number of groups ``m = 1 / sum_g s_g^2``, the variance is
    ``sum_g d_g^2 / s_g / (m - 1)``. For groups of equal weight that is the variance of
    a mean; it is unbiased if heavy groups vary as much as light ones, and too large if
    they vary less. The sum of ``d_g^2`` alone is too small if a few groups have most of
    the weight, which draw R to themselves.

    Parameters
    ----------
    u, v : ndarray of shape (n, q)
        Numerators and denominators of q ratios, which are averaged.
    weights : ndarray of shape (n,)
        w; rows of weight 0 may hold anything.
    units : ndarray of int of shape (n,)
        The group of each row.
    """

    def by_group(values: np.ndarray) -> np.ndarray:
        return np.stack([np.bincount(units, own) for own in values.T], axis=1)

    w = weights[:, None]
    u, v = (np.where(w > 0, each, 0.0) for each in (u, v))
    total = np.sum(w * v, axis=0)  # (q,)
    ratios = np.sum(w * u, axis=0) / total
    influence = by_group(w * (u - ratios * v) / total)  # (g, q)
    # a group that holds nothing of a ratio cannot tell how much it varies
    sums = by_group(w * ((u != 0) | (v != 0)))
    shares = sums / np.sum(sums, axis=0)
    number = 1.0 / np.sum(shares**2, axis=0)  # (q,)
    # one group alone has no influence: R is its own ratio
    scale = np.where((shares > 0) & (number > 1), shares * (number - 1), 1.0)
    error = np.sqrt(np.sum(np.mean(influence / np.sqrt(scale), axis=1) ** 2))
    return float(np.mean(ratios)), float(error)


def accuracy(
    right: np.ndarray,
    weights: np.ndarray | None = None,
    units: np.ndarray | None = None,
    classes: np.ndarray | None = None,
) -> tuple[float, float]:
    """The share of rows that are right (n,), and its standard error over groups.

    By default every row counts once, and is a group of its own. With ``classes`` (n,)
    it is the balanced accuracy, the mean of the shares in each class. If all rows (of a
    class) are right, or all wrong, their part of the error is that of :func:`doubt`.
    """
    weights = np.ones(len(right)) if weights is None else weights
    units = np.arange(len(right)) if units is None else units
    members = np.ones((len(right), 1))
    if classes is not None:
        present = np.unique(classes[weights > 0])
        members = (classes[:, None] == present[None, :]).astype(float)  # (n, k)
    gains = right.astype(float)[:, None] * members
    share, error = ratio_of_means(gains, members, weights, units)
    unsure = 0.0
    for own, gained in zip(members.T, gains.T, strict=True):
        found = int(np.sum(weights * gained > 0)), int(np.sum(weights * own > 0))
        if found[0] in (0, found[1]):
            unsure += doubt(weights * own, units) / members.shape[1] ** 2
    return share, float(np.sqrt(error**2 + unsure))


def doubt(weights: np.ndarray, units: np.ndarray) -> float:
    """The variance of a share of rows (n,) that is 0 or 1: nothing is certain.

    It is computed as if there were two more groups, one of them right.
    """
    m = number_of_groups(units, weights)
    likely = 1.0 / (m + 2)
    return likely * (1 - likely) / m


#: The smallest temperature of held-out rows, relative to that of their fold. A fold
#: may doubt its few rows more than the rows held out give reason to.
COOLEST = 1e-2


def score_classes(
    folds: Iterable[FoldClasses],
    codes: np.ndarray,
    design: RowDesign,
    measure: Measure | None = None,
) -> FoldScore:
    """Accuracy on held-out rows, and the calibration with the smallest log loss.

    The temperature is relative to that of each fold, which sees its own rows left out
    one by one: folds whose scores differ in size do not rule each other.

    Classes that a fold has not seen cannot be predicted: their rows count as errors,
    and say nothing about the temperature. Nor do those of a fold whose fit found no
    evidence, and predicts the class shares. A measure other than the accuracy is
    averaged over the folds, without those where it is undefined.
    """
    measured, tested, scores, k = [], [], [], int(np.max(codes)) + 1
    right: list[np.ndarray] = []
    for fold in folds:
        # Given priors are not the shares of these rows, which calibrate probabilities.
        fold_scores = np.full((len(fold.test), k), -np.inf)
        if fold.has_evidence:
            fold_scores[:, fold.classes] = fold.scores
        if measure is not None:
            measured.append(_class_measure(measure, fold, codes, k, design))
        best = fold.classes[np.argmax(fold.log_joint, axis=1)]
        right.append(best == codes[fold.test])
        tested.append(fold.test)
        scores.append(fold_scores)
    if not tested:
        return FoldScore()
    rows, scored, correct = map(np.concatenate, (tested, scores, right))
    weights = design.each[rows]
    score, error = accuracy(correct, weights, design.units[rows])
    known = np.isfinite(scored[np.arange(len(rows)), codes[rows]])
    calibration = None
    if np.any(known):
        calibration = calibrate(
            scored[known], codes[rows][known], design.restrict(rows[known]), COOLEST
        )
    if measure is not None:
        score, error = mean_over_folds(np.array(measured))
    hits = ClassHits.of(correct, codes[rows], k)
    return FoldScore(score, error, calibration, hits)


def _class_measure(
    measure: Measure, fold: FoldClasses, codes: np.ndarray, k: int, design: RowDesign
) -> float:
    """The measure on the held-out rows of a fold; NaN if it needs a class they lack."""
    truth = codes[fold.test]
    scores = np.full((len(truth), k), -np.inf)
    scores[:, fold.classes] = fold.log_joint
    try:
        return measure(scores, truth, design.restrict(fold.test).weights)
    except ValueError:
        if len(np.unique(truth)) == k:
            raise
        return float("nan")


def mean_over_folds(scores: np.ndarray) -> tuple[float, float]:
    """Mean and standard error of the scores (f,) that are defined; NaN without any.

    The error is estimated with one degree of freedom fewer than there are folds, and is
    0 if all of them agree.
    """
    known = scores[~np.isnan(scores)]
    if len(known) == 0:
        return float("nan"), float("nan")
    spread = float(deviations(known, ddof=1)) if len(known) > 1 else float("nan")
    return float(np.mean(known)), spread / len(known) ** 0.5


def score_outputs(
    folds: Iterable[Fold],
    outputs: np.ndarray,
    design: RowDesign,
    measure: Measure | None = None,
) -> FoldScore:
    """R^2 on held-out rows, averaged over the outputs (n, t) that vary.

    The variance to explain is that around the mean of the rows learned from. The
    standard error is that of a ratio of means. Any other requested measure is averaged
    over the folds instead.
    """
    measured, tested, errors, spreads = [], [], [], []
    unit = units_of(np.max(np.abs(outputs), axis=0), 64)  # squares must not overflow
    for fold in folds:
        assert fold.fitted.intercept is not None
        predicted = to_numpy(fold.projected) + to_numpy(fold.fitted.intercept)[None, :]
        truth = outputs[fold.test]
        if measure is not None:
            of_rows = design.restrict(fold.test).weights
            measured.append(measure(predicted, truth, of_rows))
            continue
        w = design.each[fold.train]
        mean = np.average(outputs[fold.train] / unit, axis=0, weights=w)
        errors.append((truth / unit - predicted / unit) ** 2)
        spreads.append((truth / unit - mean) ** 2)
        tested.append(fold.test)
    if measure is not None:
        return FoldScore(*mean_over_folds(np.array(measured)))
    if not tested:
        return FoldScore()
    rows, wrong, spread = map(np.concatenate, (tested, errors, spreads))
    varies = StandardOutputs.of(outputs, design.weights).varies
    if not np.any(varies):
        return FoldScore(0.0, 0.0)
    gained, spread = (spread - wrong)[:, varies], spread[:, varies]
    weights, units = design.each[rows], design.units[rows]
    return FoldScore(*ratio_of_means(gained, spread, weights, units))


def score_on_folds(
    options: LearnerOptions,
    targets: np.ndarray,
    design: RowDesign,
    classify: bool,
    learn: Callable[[list[tuple[np.ndarray, np.ndarray]]], Iterable[Any]],
    measure: Measure | None = None,
) -> FoldScore | None:
    """The score on rows held out, or a remark on why there is none; None without folds.

    Parameters
    ----------
    options : LearnerOptions
        What the folds are, and whether a callback has asked to stop.
    targets : ndarray of shape (n,) or (n, t)
        Classes 0 .. k - 1, or outputs.
    design : RowDesign
        Weights and groups of the rows.
    classify : bool
        Whether the targets are classes.
    learn : callable
        ``learn(splits)`` fits to the rows of each split: a :class:`FoldClasses` for
        each or, for outputs, a :class:`Fold`.
    measure : Measure, optional
        Replaces the accuracy or R^2.
    """
    if options.cv is None:
        return None
    if options.stopped:
        return FoldScore(remark=NO_SCORE.format(f"{STOPPED} before the folds"))
    how = options.cv, targets, design, classify, options.random_state
    chosen = choose_splits(*how, every_class=measure is not None)
    # leaving out one group after another takes two groups, and two classes
    several = [design.units, targets] if classify else [design.units]
    splits = [
        (train, test)
        for train, test in chosen
        if len(test) and all(len(np.unique(values[train])) > 1 for values in several)
    ]
    score = score_classes if classify else score_outputs
    try:
        found = score(learn(splits), targets, design, measure)
    except (MemoryRefusedError, StoppedError) as error:
        return FoldScore(remark=NO_SCORE.format(error))
    if not np.isnan(found.score):
        return found
    why = TOO_FEW.format("two classes" if classify else "anything")
    if splits and measure is not None:
        why = f"{measure.scoring!r} is undefined on every fold"
    return replace(found, remark=NO_SCORE.format(why))

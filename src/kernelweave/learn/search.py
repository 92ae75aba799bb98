"""How norm and alpha determine the weights of the kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast

import numpy as np

from kernelweave._array import (
    DOUBLE_EPS,
    Array,
    FactorizationError,
    to_numpy,
)
from kernelweave._tolerances import SAME_SCORE
from kernelweave.criteria.fisher import Fisher
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.fits.alpha import LOO_TOLERANCE, AlphaSearch, LooPath
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.ridge import KernelFit, fit_kernel
from kernelweave.learn.estimates import ratio_of_means
from kernelweave.learn.measure import Measure
from kernelweave.learn.sample import Sample
from kernelweave.protocols import Bank
from kernelweave.solvers.loop import Callback
from kernelweave.solvers.newton import carried_over
from kernelweave.solvers.solve import (
    Certificate,
    Minimum,
    error_of_value,
    find_weights,
    reachable,
    with_certificate,
)
from kernelweave.weights import LpBall, Simplex, Uniform, WeightSet

AnyTask = TypeVar("AnyTask", bound="Task")
#: Norms that ``norm="loo"`` chooses from; infinity is the uniform mean.
NORM_GRID = (1.0, 4.0 / 3.0, 2.0, float("inf"))
#: Said of a fit that was not completed.
STOPPED = "a callback stopped the fit"


@dataclass(frozen=True)
class Options:
    """What is learned, and how.

    Attributes
    ----------
    norm : float or "loo"
        The norm of the weights.
    alpha : float, "learn", "loo" or "cv"
        The regularisation.
    solver, tol, max_iter
        Of the convex problem; see :func:`kernelweave.solve`.
    learnable : bool
        Whether the weight of the identity can be learned: all kernels have one trace.
    measure : Measure or None
        Replaces the squared error where alpha and norm are chosen, and the score.
    priors : ndarray of shape (k,) or None
        Probabilities of classes, in place of their shares.
    cv, random_state
        What the folds of ``cv_score_`` are.
    progress : Progress or None
        Called after every iteration; it knows whether to stop.
    near : dict of float to Choice, or None
        Choices made for each norm on other rows, to start from.
    norms : tuple of float
        Those that a sample of the rows has not ruled out; all if empty.
    sampled : dict of float to Choice, or None
        The choices made on that sample.
    certified : bool
        Whether the choice is shown: it is not if it only serves to judge or to prepare
        another one.
    """

    norm: float | str = "loo"
    alpha: float | str = "loo"
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int | None = None
    learnable: bool = True
    measure: Measure | None = None
    priors: np.ndarray | None = None
    cv: Any = None
    random_state: Any = 0
    progress: Any = None
    near: dict[float, Choice] | None = None
    norms: tuple[float, ...] = ()
    sampled: dict[float, Choice] | None = None
    certified: bool = True

    @property
    def callback(self) -> Callback | None:
        """Called after every iteration."""
        return None if self.progress is None else self.progress.iteration

    @property
    def stopped(self) -> bool:
        """Whether a callback has asked to stop."""
        return self.progress is not None and self.progress.stopped

    def for_folds(self, on_all: Choice) -> Options:
        """The options for some of the rows, after the choice made on all of them.

        The weights of a fold solve a convex problem, wherever the search for them
        starts. That for alpha finds the minimum of the fold's own error downhill from
        the alpha of all rows.
        """
        tol = max(self.tol, FOLD_TOLERANCE)
        near = on_all.candidates
        return replace(self, tol=tol, near=near, progress=None, certified=False)


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
        The proof, if an optimisation problem was solved for weights that are shown.
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


@dataclass(frozen=True)
class Task:
    """The problem for which weights and alpha are chosen.

    Subclasses define the convex problem of the weights, and the score of a fit.

    Attributes
    ----------
    bank : Bank
        Kernels between all rows.
    target : array of shape (n, k)
        What leave-one-out residuals are measured on.
    design : RowDesign
        Weights and groups of the rows.
    measure : Measure or None
        Replaces the mean square of residuals where alpha and norm are chosen.
    """

    #: Whether "loo" chooses one alpha for each column of the target.
    per_target: ClassVar[bool] = False

    bank: Bank
    target: Array
    design: RowDesign
    measure: Measure | None = None

    def criterion(self, alpha: float | Literal["learn"]) -> Fisher:
        """The convex problem of the weights at this alpha, which may be "learn"."""
        return Fisher(self.bank, self.design.scale(self.target), alpha, self.design)

    def score(self, fit: KernelFit, column: int | None = None) -> float:
        """The score of a fit on the rows left out, or that of column j alone."""
        raise TypeError(f"{type(self).__name__} has no score")


def best_scored_alpha(path: LooPath, task: Task) -> float | np.ndarray:
    """The alpha with the largest score, or that of each of several targets.

    Many measures move in steps and are the same for many alphas: the one with the
    smallest error among those is taken. Candidates are every third point of the grid of
    :meth:`AlphaPath.best_alpha` and the alpha with the smallest error.
    """
    columns: list[int | None] = [None]
    if task.per_target and path.rotated.shape[1] > 1:
        columns = list(range(path.rotated.shape[1]))
    smallest = np.atleast_1d(path.best_alpha(task.per_target))
    # in units of the trace per weight, so that weights count like repeated rows
    grid = path.grid()[::3] * path.n_samples / path.design.total
    best = np.empty(len(columns))
    for i, j in enumerate(columns):
        part = slice(None) if j is None else slice(j, j + 1)
        alphas = np.append(grid, smallest[i])
        errors = np.mean(path.errors(alphas[:, None])[:, part], axis=1)
        scores = [task.score(path.fit(alpha), j) for alpha in alphas]
        best[i] = alphas[_best_by_score(scores, list(errors))]
    return best if len(columns) > 1 else float(best[0])


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
        self.searches = many and task.measure is None and not several

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
            if task.measure is None:
                best = path.best_alpha(task.per_target)
            else:
                best = best_scored_alpha(path, task)
            fit = path.fit(best)
            missed = path.missed(best)
        score = None if task.measure is None else task.score(fit)
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


def learn_weights(
    sample: Sample, options: Options, task_of: Callable[[Sample, Options], AnyTask]
) -> tuple[AnyTask, Choice]:
    """The task of all rows, with weights and alpha chosen for it.

    By the squared error, a sample of many rows rules out norms first.
    """
    task = task_of(sample, options)
    if task.measure is None:
        options = race_norms(sample, options, task_of)
    return task, choose_weights(task, options)


def choose_weights(task: Task, options: Options) -> Choice:
    """Choose weights and alpha for kernels between all rows."""
    first_alpha: Any = options.alpha
    if first_alpha == "loo" and options.learnable:
        first_alpha = "learn"
    elif first_alpha == "loo":
        uniform = np.full(task.bank.n_kernels, 1.0 / task.bank.n_kernels)
        path = LooPath(task.bank.combine(uniform), task.target, task.design)
        first_alpha = path.best_alpha()
    return search_norms(
        options, first_alpha, RowJudge(task), task.criterion, task.target
    )


def judge_weights(task: Task, options: Options, weights: np.ndarray) -> Choice:
    """Alpha for given weights (p,): a number, or the best one on the rows left out."""
    # the mean eigenvalue of a sum of kernels of trace n
    choice = Choice(weights, float(np.sum(weights)), 1, norm=np.inf)
    if options.alpha == "loo":
        choice = RowJudge(task)(choice, None, alpha_start(options, choice, {}))
    else:
        plain = replace(task, measure=None)  # there is nothing to choose
        choice = RowJudge(plain)(choice, float(options.alpha), AlphaStart(1.0))
    return replace(choice, candidates={np.inf: choice})


def search_norms(
    options: Options,
    first_alpha: float | str,
    judge: Judge,
    criterion: Callable[[Any], Fisher],
    target: Array | None = None,
) -> Choice:
    """Solve for the weights at ``first_alpha``, settle alpha, and compare norms.

    The mean of all kernels comes first. Each smaller norm starts from the one before.
    Where nothing is compared, ``target`` (n, k) is fitted with the last factorisation.
    The weights of the best norm are certified at the end.
    """
    compare = options.norm == "loo"
    judged_later = compare or options.alpha == "loo"
    target = None if judged_later else target
    norms = (options.norms or NORM_GRID) if compare else (float(options.norm),)
    compared: dict[float, Choice] = {}
    minima: dict[float, Minimum] = {}
    last: Minimum | None = None
    for norm in reversed(norms):
        choice, last = _solved(
            options, norm, first_alpha, criterion, last, target, len(norms) == 1
        )
        minima[norm] = last
        if judged_later:
            fixed_alpha = None if options.alpha == "loo" else float(choice.alpha)
            start = alpha_start(options, choice, compared)
            choice = judge(choice, fixed_alpha, start)
        compared[norm] = choice
        if options.stopped:
            break
    tried = [compared[norm] for norm in norms if norm in compared]
    best = tried[0]
    if compare:
        scores = [0.0 if one.score is None else one.score for one in tried]
        best = tried[_best_by_score(scores, [one.error for one in tried])]  # type: ignore[misc]
    candidates = (options.sampled or {}) | compared
    if options.certified and best.certificate is None:
        assert best.norm is not None
        problem, minimum = criterion(first_alpha), minima[best.norm]
        certificate = _certificate(problem, first_alpha, best.norm, minimum)
        if compare and (len(compared) < len(norms) or len(candidates) < len(NORM_GRID)):
            names = ", ".join(f"{norm:.3g}" for norm in compared)
            certificate = certificate.with_remarks([f"{STOPPED}; norms tried: {names}"])
        best = replace(best, certificate=certificate)
    return replace(best, candidates=dict(sorted(candidates.items())))


def alpha_start(
    options: Options, choice: Choice, tried: dict[float, Choice]
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


def _certificate(
    problem: Fisher, alpha: float | str, norm: float, minimum: Minimum
) -> Certificate:
    """The certificate of the weights of one norm at an alpha, or at the learned one."""
    learned = isinstance(alpha, str)
    weight_set = weight_set_of_norm(norm, fixed=not learned)
    solution = with_certificate(minimum, problem, weight_set)
    how_alpha = "learned alpha" if learned else f"alpha={float(alpha):.3g}"
    name = type(problem).__name__.removeprefix("Primal")  # the same problem
    weights = solution.weights
    if learned:
        weights, alpha, _ = split_learned(weights, weight_set)
    error = error_of_value(problem.bank, weights, 1.0 / float(alpha))
    return Certificate.of(solution, f"{name}, l{norm:.3g} weights, {how_alpha}", error)


#: With this many rows or more, a sample of them rules out norms: a share of the rows,
#: but at least this many. On fewer, the best norm is often not that of all rows.
RACED_FROM, RACED_SHARE, RACED_AT_LEAST = 1500, 0.125, 1000
#: Standard errors between an error and a bound on it.
CLEARLY = 3.0
#: Relative decrease of the squared error for which another norm is not worth trying.
NEGLIGIBLE = 5e-3


def race_norms(
    sample: Sample,
    options: Options,
    task_of: Callable[[Sample, Options], Task],
    raced_from: int = RACED_FROM,
    at_least: int = RACED_AT_LEAST,
) -> Options:
    """Options with the norms that a part of many rows does not rule out.

    All norms are tried on an eighth of the rows, where a factorisation takes a 512th of
    the time. The errors of two norms are those of the same rows, so their difference
    is known far better than either. A norm is ruled out if, within three standard
    errors of that difference, its error is not lower than the smallest one by more
    than 0.5 %. The others start from what was found on the part.
    """
    n = len(sample.targets)
    if options.norm != "loo" or n < raced_from or sample.bank.held_as == "features":
        return options
    rows = _sample_rows(sample.design, max(int(RACED_SHARE * n), at_least))
    targets, nobody = sample.targets[rows], np.array([], dtype=int)
    design = sample.design.restrict(rows)
    if np.all(targets == targets[0]) or np.max(design.units) == 0:
        return options
    try:
        fold = sample.fold(rows, nobody, sample.bank.space_of_fold(len(rows)))
        if fold is None:
            return options
        part, tol = fold[0], max(options.tol, FOLD_TOLERANCE)
        loose = replace(options, tol=tol, certified=False)
        candidates = choose_weights(task_of(part, loose), loose).candidates
    except MemoryRefusedError:
        return options
    sampled = {
        norm: replace(choice, n_rows=len(rows)) for norm, choice in candidates.items()
    }
    norms = _promising(candidates, design)
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
    options: Options,
    norm: float,
    alpha: float | str,
    criterion: Callable[[Any], Fisher],
    last: Minimum | None,
    target: Array | None,
    alone: bool,
) -> tuple[Choice, Minimum]:
    """The weights at one norm; the criterion's workspace is freed on return.

    If no other norm is tried, they are certified while that is there.
    """
    learned, first_alpha = isinstance(alpha, str), alpha
    weight_set = weight_set_of_norm(norm, fixed=not learned)
    problem = criterion(alpha)
    start = None
    if "parts" in problem.offers:
        start = _start(options, norm, weight_set, problem.n_weights, last)
    minimum = find_weights(
        problem,
        weight_set,
        method=options.solver,
        **reachable(options.tol, problem.bank.like),
        max_iter=options.max_iter,
        callback=options.callback,
        start=start,
    )
    weights, unit = minimum.weights, 1.0
    if learned:
        weights, alpha, unit = split_learned(weights, weight_set)
    fit = None
    if target is not None:
        fit = problem.last_fit(minimum.weights, target, unit)
    certificate = None
    if alone and options.certified:
        certificate = _certificate(problem, first_alpha, norm, minimum)
    choice = Choice(
        weights,
        float(alpha),
        minimum.n_factorizations,
        certificate,
        norm=norm,
        fit=fit,
        solved=minimum.weights,
    )
    return choice, minimum


def _start(
    options: Options,
    norm: float,
    weight_set: Simplex | LpBall | Uniform,
    n_weights: int,
    last: Minimum | None,
) -> np.ndarray | None:
    """Weights from which to solve for one norm; None for those of the set."""
    carried = None
    if last is not None and np.isfinite(last.iterate.value):
        carried = carried_over(last.weights, last.iterate.gradient, weight_set)
    there = (options.near or options.sampled or {}).get(norm)
    known = None if there is None else there.solved
    if known is None or len(known) != n_weights:
        return carried
    # Kernels without weight there may need some here, and would grow slowly from 0.
    even = weight_set.start(n_weights) if carried is None else carried
    return weight_set.scale((1.0 - FOLD_SPREAD) * known + FOLD_SPREAD * even)


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
class Learned:
    """Weights and coefficients, from kernels between rows or from moments.

    Attributes
    ----------
    choice : Choice
        The weights and alpha.
    loo_error : float
        Mean squared error on rows left out.
    loo_errors : ndarray of shape (t,) or None
        The same for each output of a regression.
    dual_coef : array of shape (n, k) or None
        Coefficients of the rows, if they were kept.
    feature_coef : array of shape (D, k) or None
        Coefficients of the explicit features of kernels with weight.
    classes : ndarray of shape (k,) or None
        Codes of the classes of a discriminant.
    gaussians : ClassGaussians or None
        The head of a discriminant.
    intercept : array of shape (t,) or None
        The head of a regression.
    steepness : float
        Of the functions, by :meth:`KernelFit.steepness`.
    """

    choice: Choice
    loo_error: float
    loo_errors: np.ndarray | None = None
    dual_coef: Array | None = None
    feature_coef: Array | None = None
    classes: np.ndarray | None = None
    gaussians: ClassGaussians | None = None
    intercept: Array | None = None
    steepness: float = 0.0


#: Relative gap of the weights of a fold.
FOLD_TOLERANCE = 1e-4
#: Relative decrease of a fold's error for which its search for alpha does not go on.
FOLD_ALPHA_TOLERANCE = 1e-3
#: Share of the start of a fold's weights that is not from those of all rows.
FOLD_SPREAD = 0.1


def in_features(learned: Learned, sample: Sample, like: Array) -> Learned:
    """With coefficients of explicit features, if the sample has any."""
    if sample.scales is None:
        return learned
    coef = sample.feature_coef(learned.dual_coef, learned.choice.weights, like)
    return replace(learned, feature_coef=coef)

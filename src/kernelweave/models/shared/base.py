"""The base classes of the estimators, and how the learners of weights are trained."""

from __future__ import annotations

import functools
import inspect
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    cast,
    get_args,
)

import numpy as np
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.callback import with_callbacks
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernelweave._array import (
    DOUBLE_EPS,
    Array,
    as_float,
    available_threads,
    device,
    eps,
    few_threads,
    from_numpy,
    is_array,
    is_numpy,
    is_on_gpu,
    namespace,
    same_home,
    to_numpy,
)
from kernelweave._sklearn import (
    BaseEstimator,
    CallbackSupportMixin,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from kernelweave._text import counted
from kernelweave._tolerances import NOTABLE
from kernelweave.exceptions import (
    KernelWarning,
    MemoryRefusedError,
    MissedClassWarning,
)
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.kernels import DenseBank
from kernelweave.kernels.base import defaults_of
from kernelweave.kernels.encoding import ColumnPlan, ColumnUse
from kernelweave.kernels.features.recipe import FeatureReport
from kernelweave.kernels.spec import imputes
from kernelweave.learn.folds import FoldScore
from kernelweave.learn.sample import RowMap, Sample
from kernelweave.learn.search import (
    NORM_GRID,
    Learned,
    Options,
    Task,
    weight_set_of_norm,
)
from kernelweave.models.shared.duration import FitSize, warn_if_long
from kernelweave.models.shared.inputs import (
    IDENTITY,
    check_home,
    check_parameters,
    first_kernel,
    number,
    of_own_type,
    one_of,
    positive,
    read_new_rows,
    read_weighted_rows,
    refuse_name,
    refuse_own_target,
    refuse_unscaled,
)
from kernelweave.models.streaming.dask import predict_lazily
from kernelweave.models.streaming.explicit import (
    may_fall_back,
    may_have_features,
    next_portions,
    read_features,
)
from kernelweave.models.streaming.primal import SummedRows, TrainingRows
from kernelweave.protocols import Bank, Criterion, RowBank, WeightSet
from kernelweave.solvers.loop import TraceRow
from kernelweave.solvers.solve import Certificate
from kernelweave.views.columns import in_portions, is_dask, is_precomputed, labels_of
from kernelweave.views.composition import (
    params_of_views,
    storable,
    with_params_of_views,
)
from kernelweave.views.missing import ObservedViews, read_kernels, warn_lacking

#: What to do with a kernel that is not positive semidefinite.
Psd = Literal["error", "clip", "trust"]
#: The solvers of Fisher's problem.
FisherSolver = Literal["auto", "newton", "closed_form", "cutting_plane", "working_set"]
#: What to do with rows that lack a view.
Missing = Literal["error", "available", "zero"]
#: Folds of a splitter whose number is not known before it has seen the rows.
USUAL_FOLDS = 5
#: Number of rows beyond which "auto" computes no n x n kernels on a CPU.
AUTO_ROWS = 10_000
#: Values that the parameters of a learner with explicit features may take.
PARAMETERS = {
    "norm": number("a number >= 1", lambda v: v >= 1, "loo"),
    "alpha": positive("learn", "loo", "cv"),
    "solver": one_of(*get_args(FisherSolver)),
    "features": one_of("auto", "exact", "on_the_fly", "nystroem", "random"),
}

# Decorators keep the types of the methods they decorate.
P = ParamSpec("P")
R = TypeVar("R")


def all_or_nothing(method: Callable[P, R]) -> Callable[P, R]:
    """A method that changes an estimator completely or, if it fails, not at all.

    A fit assigns its results at the end, but scikit-learn notes the columns of X at the
    beginning: an error, a keyboard interrupt or a warning turned into an error would
    leave a mixture of new and old attributes. In that case all of them are restored,
    and so is the state of a ``RandomState`` that was drawn from.
    Saving references is enough: a fit creates new objects and never modifies those of
    an earlier fit.
    """
    called: Callable[..., Any] = method

    @functools.wraps(method)
    def restoring(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, BaseEstimator):
            raise TypeError(
                f"{method.__qualname__} needs an estimator to fit, not "
                f"{type(self).__name__}: make an instance of the class first, as in "
                "MultipleKernelFDA().fit(X, y)"
            )
        before = dict(vars(self))
        rng = before.get("random_state")
        draws = rng.get_state() if isinstance(rng, np.random.RandomState) else None
        try:
            return called(self, *args, **kwargs)
        except BaseException:
            # A single step without a call, so no second interrupt can come between.
            self.__dict__ = before
            if draws is not None:
                rng.set_state(draws)  # type: ignore[union-attr]
            raise

    return cast("Callable[P, R]", restoring)


def fit_method(method: Callable[P, R]) -> Callable[P, R]:
    """A ``fit`` with scikit-learn's callbacks that leaves no trace if it fails.

    Few rows take a single thread, unless they are a portion of many. Fitted attributes
    are arrays of the library of X, wherever they were computed.
    """
    called, parameters = with_callbacks(method), inspect.signature(method)
    all_rows = method.__name__ != "partial_fit"

    @functools.wraps(method)
    def checked_fit(self: Any, X: Any = None, *args: Any, **kwargs: Any) -> Any:
        # First of all, since the column of y in X may be text that no view can take.
        y = args[0] if args else kwargs.get("y")
        refuse_name(X, y, type(self).__name__)
        refuse_own_target(self, X, y)
        given = not all_rows and self._portions is not None and self._has_row_weights
        with few_threads(X if all_rows else None):
            fitted = called(self, X, *args, **kwargs)
        own = parameters.bind(self, X, *args, **kwargs).arguments
        self._has_groups = own.get("groups") is not None
        self._has_row_weights = given or own.get("sample_weight") is not None
        if self.device is not None:
            self._bring_home()
        return fitted

    return cast("Callable[P, R]", all_or_nothing(checked_fit))


def unweighted_criterion(
    task_of: Callable[[Sample, Options], Task],
    options: Options,
    bank: Bank,
    targets: np.ndarray,
    design: RowDesign,
) -> Criterion:
    """Fisher's problem of ``D G_i D`` with ``D = diag(sqrt(w))``, for inspection."""
    if design.weights is not None:
        kernels = (bank.kernel(i) for i in range(bank.n_kernels))
        grams = [design.scale(design.scale(kernel).T) for kernel in kernels]
        bank = DenseBank(namespace(bank.like).stack(grams), bank.names)
    # "loo" settles the regularisation after the weights are learned
    alpha: float | Literal["learn"] = "learn"
    if not isinstance(options.alpha, str):
        alpha = float(options.alpha)
    sample = Sample(cast(RowBank, bank), targets, design)
    return task_of(sample, options).criterion(alpha)


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Transformer whose ``fit_transform`` succeeds or fails as a single call."""

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)


class Progress:
    """Report the progress of a fit to callbacks and, if asked, to standard output.

    Parameters
    ----------
    estimator : KernelModel
        The estimator being fitted.
    X, y, sample_weight : array-like
        Passed to the callbacks, unless rows come in portions, which are read once.

    Attributes
    ----------
    stopped : bool
        Whether a callback has asked to stop, at the end of any task. Kernels,
        iterations and folds are tasks of one level, so whatever a model can do without
        is then left out: further iterations, norms and folds.
    """

    def __init__(
        self, estimator: KernelModel, X: Any, y: Any, sample_weight: Any
    ) -> None:
        self.estimator = estimator
        self.context = estimator._init_callback_context(max_subtasks=None)
        self.given = {} if in_portions(X, y) else {"X": X, "y": y}
        if sample_weight is not None:
            self.given["metadata"] = {"sample_weight": sample_weight}
        self.context.call_on_fit_task_begin(estimator=estimator, **self.given)
        self.started, self.stopped = time.perf_counter(), False

    def kernel(self, index: int, first: int = 0) -> None:
        """One more kernel is ready, of a view whose kernels begin at ``first``."""
        self._task("kernel", {"kernel": first + index})
        self.say(2, f"kernel {first + index} ready")

    def iteration(self, row: TraceRow) -> bool:
        """One more iteration of a solver; True if a callback has asked to stop."""
        line = f"iteration {row.iteration}: value {row.value:.8g}"
        if not math.isnan(row.gap):  # a problem that is not convex has no bound
            line += f", lower bound {row.lower_bound:.8g}, gap {row.gap:.1e}"
        self.say(1, line)
        names = ("iteration", "value", "lower_bound", "gap")
        return self._task("iteration", {name: getattr(row, name) for name in names})

    def fold(self, number: int, n_folds: int) -> bool:
        """One more fold of ``cv_score_``; True if a callback has asked to stop."""
        self.say(1, f"fold {number} of {n_folds} for cv_score_")
        return self._task("fold", {"fold": number})

    def end(self) -> None:
        """The fit is complete, and its model can be scored by a callback."""
        self.context.call_on_fit_task_end(
            estimator=self.estimator, **self.given, reconstruction_attributes={}
        )

    def say(self, level: int, text: str) -> None:
        """Print a line if ``verbose`` is at least ``level``."""
        if int(self.estimator.verbose) >= level:
            seconds = time.perf_counter() - self.started
            print(f"[{type(self.estimator).__name__} {seconds:7.2f} s] {text}")

    def _task(self, name: str, metadata: dict[str, Any]) -> bool:
        task = self.context.subcontext(task_name=name)
        task.call_on_fit_task_begin(estimator=self.estimator)
        if task.call_on_fit_task_end(estimator=self.estimator, metadata=metadata):
            self.stopped = True
        return self.stopped


def check_learner_parameters(model: KernelModel) -> None:
    """Refuse invalid values and combinations of parameters."""
    check_parameters(model, **PARAMETERS)
    refuse_unscaled(model, "alpha", "learn", IDENTITY)
    for name, values in {"features": ("random", "nystroem"), "alpha": ("cv",)}.items():
        value = getattr(model, name)
        if is_precomputed(model.views) and value in values:
            raise ValueError(
                f"{name}={value!r} needs columns to compute features from; "
                "views='precomputed' provides only kernels"
            )


def why_features(model: KernelModel, X: Any, y: Any = None) -> str | None:
    """Why explicit features are used for X; None if kernels are used."""
    if in_portions(X, y):
        if is_precomputed(model.views):
            raise ValueError(
                "views='precomputed' takes kernels between all rows at once, not "
                f"rows in portions; got {type(X).__name__}"
            )
        return "rows come in portions"
    if is_precomputed(model.views):
        return None
    if model.features in ("nystroem", "random"):
        return f"features={model.features!r} was asked for"
    if issparse(X) and model.features == "exact":
        return "rows are sparse"
    if model.alpha == "cv":
        return "alpha='cv' works on moments of folds"
    shape = getattr(X, "shape", ())
    n = shape[0] if shape else 0
    away = is_on_gpu(X) if model.device is None else model.device != "cpu"
    if n > AUTO_ROWS and not away and may_fall_back(model):
        return f"{n:,} rows are more than {AUTO_ROWS:,}"
    return None


def read_training(
    model: KernelModel,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    progress: Progress,
) -> TrainingRows | SummedRows:
    """Kernels between all rows, or explicit features if those do not fit in memory.

    The estimator ``model`` determines how rows are read. Only the columns of X are
    noted in it.
    """
    why = why_features(model, X, y)
    if why is None:
        try:
            given = X, y, sample_weight, groups
            rows, targets, design = read_weighted_rows(model, *given)
            announce_duration(model, rows, targets, progress, model.norm)
            bank = rows.kernels(progress.kernel)
            report = _report_kernels(model, rows, bank)
            sample = Sample(bank, targets, rows.levelled(design))
            return TrainingRows(sample, rows, report)
        except MemoryRefusedError as error:
            if not may_fall_back(model):
                raise
            why = f"kernels between all rows do not fit: {error}"
    return read_features(model, why, X, y, sample_weight, groups)


def announce_duration(
    model: KernelModel,
    rows: RowMap,
    targets: np.ndarray,
    progress: Progress,
    norm: float | str,
) -> None:
    """Warn if a fit to kernels between all rows in host memory will take long.

    ``norm`` is that of the weights, "loo" if several are compared, infinity if all
    weights are equal.
    """
    kernel_map = rows.kernel_map
    like, storage = kernel_map.source.like, kernel_map.planned_storage()
    if not is_numpy(like) or storage is None:
        return
    several = model._multi_output and targets.ndim > 1 and targets.shape[1] > 1
    n_targets = targets.shape[1] if several else 1
    if is_classifier(model):
        n_targets = len(np.unique(targets)) - 1
    if norm == "loo":  # weights of infinite norm are equal
        n_norms, n_judged = len(NORM_GRID) - 1, len(NORM_GRID)
    else:
        n_norms, n_judged = int(norm != np.inf), int(model.alpha == "loo")
    n_folds = 0
    if model.cv is not None:
        n_folds = int(model.cv) if isinstance(model.cv, Integral) else USUAL_FOLDS
    size = FitSize(
        n_rows=kernel_map.source.n_samples,
        n_kernels=len(kernel_map.names),
        n_columns=sum(len(columns) for columns in rows.positions),
        n_targets=n_targets,
        stored=storage == "matrices",
        n_norms=n_norms,
        n_judged=n_judged,
        by_paths=model.scoring is not None or several,
        n_folds=n_folds,
    )
    advice = []
    if "n_features" in model._get_param_names() and may_have_features(model):
        advice.append("features='nystroem'")
    advice += ["fewer kernels"] if size.n_kernels > 1 else []
    advice += ["device='cuda' if there is a GPU"]
    owner = type(model).__name__
    line = warn_if_long(size, owner, like.dtype, available_threads(), advice)
    if line is not None:
        progress.say(1, line)


def _report_kernels(model: KernelModel, rows: RowMap, bank: RowBank) -> FeatureReport:
    """How the kernels between all rows are held, and why."""
    every = f"kernels between all {bank.n_samples:,} rows"
    if bank.held_as == "kernels":
        return FeatureReport(bank.held_as, f"{every} fit into memory")
    why = "do not fit into memory together, but one matrix does"
    if model.features == "on_the_fly":
        why = "are made on the fly, as features='on_the_fly' asks"
    elif rows.kernel_map.is_faster_on_the_fly():
        why = "share distances or products, and take less time recomputed than stored"
    return FeatureReport(bank.held_as, f"{every} {why}")


#: Error of a function of new rows, in units of the rounding of one kernel value times
#: its steepness: several roundings each, and the largest of many rows. It was 2 to 15.
ROUNDED = 10.0
#: With fewer rows per view than this, learned shares say little about the views. With
#: 4 informative views of 10 or 20, of 4 columns, and norm 1, an informative view had a
#: larger share than every other in 0.2 of the cases with 2 rows per view, in 0.4 to 0.7
#: with 5, and in 0.9 or more with 10.
ROWS_PER_VIEW = 5


def weights_differ(model: KernelModel) -> bool:
    """Whether the kernels that vary over the training rows differ in their weights."""
    weights = to_numpy(model.kernel_weights_)[list(model.kernel_map_.active)]
    return bool(np.ptp(weights) > 0)


def caution_about_shares(model: KernelModel) -> str | None:
    """Why the shares of a fitted model should not be interpreted, if they should not.

    Equal weights are not learned from the data, and need no warning.
    """
    n_views = len(model.view_shares_)
    sources = [part.source for part in model.kernel_map_.parts]
    if None in sources:  # explicit features, which are for many rows
        return None
    n = max(source.n_samples for source in sources if source is not None)
    if n >= ROWS_PER_VIEW * n_views or n_views < 2 or not weights_differ(model):
        return None
    return (
        f"{n_views} views and only {n} rows: the weights should not be interpreted, as "
        "useless views often weigh as much as useful ones; check "
        "with kernelweave.inspection.view_pvalues, or give fewer views"
    )


def shares_of_views(
    view_names: list[str], weights: np.ndarray, levels: np.ndarray | None = None
) -> dict[str, float]:
    """``sum_{i in view} |w_i| / sum_i |w_i|`` for kernel weights w (p,).

    Kernels are scaled to the same trace, so for weights >= 0 this is the view's part of
    the trace of the combined kernel, whatever the norm of the weights. Otherwise
    weights are multiplied by the traces per row, ``levels`` (p,).
    """
    sizes = np.abs(np.asarray(weights, dtype=np.float64))
    sizes = sizes if levels is None else sizes * levels
    return _sums_of_views(view_names, sizes / (float(np.sum(sizes)) or 1.0))


def _sums_of_views(view_names: list[str], values: np.ndarray) -> dict[str, float]:
    """The sum of the values (p,) of each view's kernels."""
    sums = dict.fromkeys(view_names, 0.0)
    for view, value in zip(view_names, values, strict=True):
        sums[view] += float(value)
    return sums


class KernelModel(CallbackSupportMixin, BaseEstimator):
    """Base class of all estimators; subclasses add a task and a ``fit``."""

    # Parameters, with the values that hold for estimators without them.
    views: Any
    psd: Psd
    alpha: Any = None
    C: Any = None
    method: str | None = None
    solver: str = "auto"
    cv: Any = None
    scoring: Any = None
    interactions: bool = False
    signed: bool = False
    class_weight: Any = None
    priors: Any = None
    unlabelled: Any = None
    centre: bool = True
    scale: str | None = "trace"
    missing: Missing = "zero"
    features: str = "auto"
    n_features: int  # read only where features may be explicit
    norm: float | str  # read only where weights are learned
    random_state: Any = 0
    device: str | None = None
    verbose: int
    _multi_output: bool = False  # whether y may have several columns
    _least_squares: bool = True  # whether weights of rows multiply squared errors
    _fixed_sum: bool = True  # whether decisions are the same sum over kernels anywhere
    #: Parameters that predictions depend on. A model answers with those of its fit,
    #: whatever has been set since: another fit may have failed in the meantime.
    _kept: tuple[str, ...] = ("missing",)
    _at_fit: dict[str, Any]
    kernel_map_: Any
    dual_coef_: Array
    intercept_: Array
    feature_coef_: Array
    classes_: np.ndarray
    #: Learns and publishes; for estimators whose rows may come in portions.
    _learn: Callable[[TrainingRows | SummedRows, Progress], None]
    #: ``_weight_criterion(bank, targets, design)``: the convex problem that the weights
    #: solve over ``_weight_set``, for ``inspection`` to solve again on m of the rows:
    #: centred kernels of trace m, with codes of classes (m,) or outputs (m, t). None if
    #: the weights solve no such problem.
    _weight_criterion: Callable[[Bank, np.ndarray, RowDesign], Criterion] | None = None
    norm_: float | None
    _portions: Any = None  # the rows of ``partial_fit`` so far
    _has_groups: bool = False  # whether ``fit`` was given groups
    _has_row_weights: bool = False  # whether ``fit`` was given sample_weight

    if TYPE_CHECKING:  # scikit-learn adds these at run time

        def set_fit_request(self, **requests: bool | str | None) -> Self:
            """Say which metadata ``fit`` requests."""

        def set_partial_fit_request(self, **requests: bool | str | None) -> Self:
            """Say which metadata ``partial_fit`` requests."""

        def set_score_request(self, **requests: bool | str | None) -> Self:
            """Say which metadata ``score`` requests."""

    @classmethod
    def _get_param_names(cls) -> list[str]:
        # Every fit needs them several times, and inspecting a signature takes longer.
        return sorted(defaults_of(cls))  # type: ignore[arg-type]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the estimator and, if ``deep``, of the views' kernels.

        Parameters
        ----------
        deep : bool, default=True
            Whether to list the kernels in ``views`` and their parameters too.

        Returns
        -------
        params : dict
            Parameter names mapped to their values.
        """
        params = super().get_params(deep=deep)
        own = self._get_param_names()
        return params | params_of_views(self.views, own) if deep else params

    @all_or_nothing
    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator and of the kernels in ``views``.

        Parameters
        ----------
        **params : dict
            Parameter names, nested ones such as ``rna__gamma`` included.

        Returns
        -------
        self : estimator
        """
        views, own = params.pop("views", self.views), self._get_param_names()
        owner = type(self).__name__
        self.views, params = with_params_of_views(views, params, own, owner)
        return super().set_params(**params)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return storable(state, self._get_param_names(), type(self).__name__)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        precomputed = is_precomputed(self.views)
        tags.input_tags.pairwise = precomputed
        tags.input_tags.three_d_array = precomputed
        # A row may lack a view, but not its only one, unless that imputes entries.
        only = self.views is None
        if isinstance(self.views, list) and len(self.views) == 1:
            view = self.views[0]
            complete = isinstance(view, tuple) and len(view) == 3
            only = not (complete and imputes(view[1]))
        tags.input_tags.allow_nan = self.missing != "error" and not only
        tags.input_tags.sparse = not precomputed
        tags.target_tags.required = True
        tags.target_tags.multi_output = self._multi_output
        tags.array_api_support = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "kernel_weights_")

    def _forget(self) -> None:
        """Drop the results of an earlier fit, but keep what is known of the columns."""
        columns = ("n_features_in_", "feature_names_in_")
        results = [n for n in vars(self) if n.endswith("_") and n not in columns]
        for name in (*results, "_portions"):
            self.__dict__.pop(name, None)

    def _bring_home(self) -> None:
        """Move fitted attributes from the device of the kernels to that of X."""
        for name, value in list(vars(self).items()):
            mine = name.endswith("_") and is_array(value) and not is_numpy(value)
            if mine and not same_home(value, self._like):
                xp, home = namespace(self._like), device(self._like)
                setattr(self, name, xp.asarray(to_numpy(value), device=home))

    @property
    def column_summary_(self) -> list[dict[str, Any]]:
        """What each view does with each of its columns, one record per column.

        Records have the keys "view", "column" (name or position), "kind" ("number",
        "text", "category", "boolean", "date", "duration", "empty", or "any" for columns
        that go to a transformer or a callable as they are), "use" ("number", "one-hot",
        "left out" or "as it is"), "missing" (gaps among the training rows that "auto"
        has filled) and "remark". ``pandas.DataFrame(model.column_summary_)`` is a
        table. Precomputed kernels have no columns.
        """
        if not hasattr(self, "kernel_weights_"):
            raise AttributeError(
                f"{type(self).__name__} has no column_summary_ before fit"
            )
        names = getattr(self, "feature_names_in_", None)
        names = None if names is None else names.tolist()
        found: list[dict[str, Any]] = []
        for view, positions in zip(self._views, self._positions, strict=True):
            if view.plan is not None:
                found += view.plan.records(view.name)
                continue
            kind, use = ("any", "as it is") if view.raw else ("number", "number")
            labels = labels_of(names, positions)
            uses = tuple(ColumnUse(label, kind, use) for label in labels)
            found += ColumnPlan(uses).records(view.name)
        return found

    def _set_columns(self, rows: RowMap) -> None:
        self._views, self._positions = rows.views, rows.positions
        if rows.noted:
            self.__dict__.pop("feature_names_in_", None)
            self.__dict__.update(rows.noted)

    def _set_weights(
        self,
        rows: RowMap,
        weights: np.ndarray,
        classes: np.ndarray | None = None,
    ) -> None:
        """Set kernels, weights and classes in place of those of an earlier fit.

        ``weights`` has one entry per kernel of the bank.
        """
        self._forget()
        self._set_columns(rows)
        self._at_fit = {name: getattr(self, name) for name in self._kept}
        self.kernel_map_, self._like = rows.kernel_map, rows.like
        self.kernel_names_ = list(rows.kernel_map.names)
        weights = rows.kernel_map.spread(weights)
        self.kernel_weights_ = from_numpy(weights, rows.like)
        view_names = rows.kernel_map.view_names
        self.view_weights_ = _sums_of_views(view_names, weights)
        levels = rows.kernel_map.levels if self.scale is None else None
        self.view_shares_ = shares_of_views(view_names, weights, levels)
        if classes is not None:
            self.classes_ = classes

    def _publish_learned(
        self,
        rows: RowMap,
        report: FeatureReport | None,
        learned: Learned,
        classes: np.ndarray | None = None,
        folds: FoldScore | None = None,
    ) -> None:
        """Set the results of a fit, in place of an earlier one.

        Parameters
        ----------
        rows : RowMap
            How new rows are mapped to the kernels.
        report : FeatureReport or None
            How kernels are represented, if that was chosen.
        learned : Learned
            Weights and coefficients.
        classes : ndarray of shape (k,), optional
            Labels.
        folds : FoldScore, optional
            The score of held-out rows.
        """
        choice, like = learned.choice, rows.like
        self._set_weights(rows, choice.weights, classes)
        alpha = choice.alpha
        self.alpha_ = from_numpy(alpha, like) if np.ndim(alpha) else float(alpha)  # type: ignore[arg-type]
        self.n_iter_, self.loo_error_ = int(choice.n_iter), learned.loo_error
        if report is not None:  # a learner
            self.features_, self.norm_ = report, choice.norm
        if learned.loo_errors is not None:
            self.loo_errors_ = from_numpy(learned.loo_errors, like)
        for name in ("dual_coef", "feature_coef", "intercept"):
            if getattr(learned, name) is not None:
                setattr(self, f"{name}_", getattr(learned, name))
        self._set_scores(folds, learned.gaussians)
        self._note_rounding(learned.steepness, choice.missed)
        self._set_certificate(choice.certificate)

    def _fit_portions(
        self, X: Any, y: Any, classes: Any, solve: bool, sample_weight: Any
    ) -> Self:
        """Add rows to those of earlier calls, and learn from all if a fit is due."""
        portions, sums = next_portions(self, X, y, classes, solve, sample_weight)
        if portions.is_first:
            self._forget()
        if sums is not None:
            progress = Progress(self, X, y, sample_weight)
            self._learn(sums, progress)
            progress.end()
        self._set_columns(portions.intake.row_map(None))
        self._portions = portions
        return self

    def _set_scores(
        self, folds: FoldScore | None, gaussians: ClassGaussians | None
    ) -> None:
        """Set the scores on rows left out, in folds and one by one, or the remarks.

        The temperature of the Gaussians, found on rows left out one by one, is
        corrected by that of the folds, whose exceptions replace theirs.
        """
        for found in (folds, gaussians):
            if found is not None and found.remark is not None:
                self.kernel_map_.remarks.append(found.remark)
        if folds is not None and folds.remark is None:
            self.cv_score_ = folds.score
            self.cv_standard_error_ = folds.standard_error
        if gaussians is None:
            return
        hits = gaussians.left_out
        if folds is not None and folds.hits is not None:
            hits = folds.hits
        missed = hits.remark(self.classes_)
        if missed is not None:
            self._note(missed, MissedClassWarning)
        if folds is not None and folds.calibration is not None:
            relative = folds.calibration
            gaussians = replace(
                gaussians,
                temperature=max(1.0, gaussians.temperature * relative.temperature),
                exceptions=relative.exceptions,
            )
        self.gaussians_, self.loo_score_ = gaussians, gaussians.loo_score

    def _note_rounding(
        self,
        steepness: float = 0.0,
        missed: float = 0.0,
        subspace: Any = None,
        left_out: float = 0.0,
    ) -> None:
        """Say what float32 may change by more than a thousandth, and what helps.

        Every kernel value is rounded by eps times its size before centring. The errors
        are of either sign, so functions change by that times their ``steepness``.
        """
        if eps(self._like) <= DOUBLE_EPS:
            return
        found = []
        centerings = self.kernel_map_.centerings
        weights = np.abs(to_numpy(self.kernel_weights_).astype(np.float64))
        sizes = [c.level + c.scale * abs(c.grand_mean) for c in centerings]
        size = float(weights @ sizes) if len(sizes) == len(weights) else 1.0
        moved = ROUNDED * 0.5 * eps(self._like) * size * steepness
        more = "more noise" if self.alpha is None else "a larger alpha"
        if moved > NOTABLE:
            found.append(
                f"rounding in float32 may move functions by {min(moved, 1.0):.1g} of "
                f"their largest value: pass the rows in float64, or use {more}"
            )
        if missed > NOTABLE:
            found.append(
                "float32 cannot tell a smaller alpha from rounding, and the best may "
                f"be smaller, which may move functions by {min(missed, 1.0):.1g} of "
                "their size: pass the rows in float64, or give alpha"
            )
        if subspace is not None and subspace.turned > NOTABLE:
            found.append(
                "float32 does not determine the features: rounding may rotate them "
                f"among themselves by {subspace.turned:.1g} radians, which changes "
                "neither distances nor the subspace kernel; pass the rows in float64, "
                "or use a larger alpha"
            )
        if subspace is not None and subspace.n_doubtful:
            found.append(
                f"float32 cannot tell {counted(subspace.n_doubtful, 'direction')} of "
                "the subspace from rounding, and leaves out any of this kind: pass the "
                "rows in float64, or use a larger alpha"
            )
        if left_out > (3.0 * NOTABLE) ** 2:  # features are the roots of their shares
            found.append(
                "float32 cannot tell the smaller eigenvalues of the kernel from "
                f"rounding, and features leave out {100 * left_out:.1g} % of its "
                "trace: pass the rows in float64 for all of it"
            )
        for remark in found:
            self._note(remark)

    def _note(self, remark: str, category: type[KernelWarning] = KernelWarning) -> None:
        """Warn, and keep the remark."""
        self.kernel_map_.remarks.append(remark)
        warnings.warn(f"{type(self).__name__}: {remark}", category, stacklevel=5)

    def _set_certificate(
        self, certificate: Certificate | None, warn: bool = True
    ) -> None:
        if certificate is None:
            return
        remarks = list(self.kernel_map_.remarks)
        caution = caution_about_shares(self)
        self.certificate_ = certificate.with_remarks(
            remarks if caution is None else [*remarks, caution]
        )
        if warn and certificate.caution is not None:
            message, category = certificate.caution
            warnings.warn(f"{type(self).__name__}: {message}", category, stacklevel=4)

    def _observed_rows(self, X: Any, method: str) -> ObservedViews:
        """Validate rows at prediction; ``method`` is for messages."""
        check_is_fitted(self)
        check_home(first_kernel(X), self._like, f"{type(self).__name__}.{method}()")
        missing, trained = self._at_fit["missing"], self.kernel_map_.seen
        if self._precomputed:
            may_lack = missing != "error"
            rows = read_kernels(
                self, X, reset=False, missing=may_lack, trained=trained
            )[0]
        else:
            columns = self._views, self._positions
            rows = read_new_rows(self, X, *columns, self._like, missing)
        if not np.all(rows.observed):
            self.kernel_map_.check_gaps(rows.observed, missing)
            if method in PREDICTIONS:
                names = [view.name for view in self._views] or self.kernel_names_
                joint = [view.joint for view in self._views]
                warn_lacking(rows.observed, trained, names, joint)
        return rows

    def _projected(self, X: Any, method: str, name: str) -> Array:
        """``sum_i w_i G_i(X) B``, (m, k), for the coefficients B of this name."""
        rows = self._observed_rows(X, method)  # first: it refuses an unfitted model
        return self.kernel_map_.project(rows, self._weights, getattr(self, name))

    def _predict_target(self, X: Any, method: str) -> Array:
        """``sum_i w_i G_i(X) dual_coef``, (m, k)."""
        return self._projected(X, method, "_coef")

    def _project_each(self, X: Any, method: str) -> Array:
        """``w_i G_i(X) dual_coef`` of each kernel, (m, p, k), for inspection."""
        rows = self._observed_rows(X, method)
        return self.kernel_map_.project_each(rows, self._weights, self._coef)

    @property
    def _precomputed(self) -> bool:
        """Whether the fitted model takes kernels in place of rows."""
        return not self._views

    @property
    def _gaps(self) -> bool:
        """Whether rows may lack views that the fitted model has."""
        return bool(self._at_fit["missing"] != "error")

    @property
    def _weights(self) -> np.ndarray:
        """Weights (p,) of the kernels."""
        return to_numpy(self.kernel_weights_)

    @property
    def _weight_set(self) -> WeightSet:
        """The weights allowed by the norm that was given or chosen."""
        assert self.norm_ is not None  # weights are learned
        return weight_set_of_norm(self.norm_, fixed=False)

    def _inner_products(self, X: Any, Z: Any) -> Array:
        """``z(x)' z(z)`` of the projections of rows X and Z, or of X and X."""
        left = self._predict_target(X, "kernel")
        right = left if Z is None else self._predict_target(Z, "kernel")
        return left @ right.T

    @property
    def _coef(self) -> Array:
        """Coefficients of explicit features, if there are any, or of training rows."""
        explicit = self.kernel_map_.source is None
        return self.feature_coef_ if explicit else self.dual_coef_

    @property
    def _n_features_out(self) -> int:
        return int(self._coef.shape[1])


#: Methods that warn of views that rows lack.
PREDICTIONS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "predict_distribution",
    "decision_function",
    "transform",
)


def of_rows(method: Callable[P, R]) -> Callable[P, R]:
    """A method of rows X of a fitted model; few rows take a single thread."""
    called: Callable[..., Any] = method

    @functools.wraps(method)
    def with_few_threads(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        fitted = self.__sklearn_is_fitted__()
        with few_threads(X, self.kernel_map_.row_size if fitted else None):
            return called(self, X, *args, **kwargs)

    return cast("Callable[P, R]", with_few_threads)


def lazily(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method of rows X return a lazy Dask array when X is a Dask collection."""
    now: Callable[..., Any] = of_rows(method)

    @functools.wraps(method)
    def now_or_later(self: Any, X: Any) -> Any:
        if is_dask(X):
            return predict_lazily(self, method.__name__, X)
        return now(self, X)

    return cast("Callable[P, R]", now_or_later)


def available(condition: Callable[[Any], bool]) -> Callable[[R], R]:
    """scikit-learn's ``available_if``, which keeps the type of the method."""
    return cast("Callable[[R], R]", available_if(condition))


def decode(classes: np.ndarray, codes: Array) -> Array:
    """Labels of class codes (m,), on the codes' device if labels are numbers."""
    labels = classes[to_numpy(codes)]
    kind, size = labels.dtype.kind, labels.dtype.itemsize
    if is_numpy(codes) or kind not in "iuf" or size > 8:
        return labels  # of a type that only NumPy may have
    native = labels.astype(f"{kind}{size}")  # in the byte order of the machine
    return namespace(codes).asarray(native, device=device(codes))


class KernelClassifier(ClassifierMixin, KernelModel):
    """Base class of the classifiers; subclasses provide the class scores."""

    #: Scores (m, k) of rows, one column per class, the largest wins.
    _class_scores: Callable[[Any], Array]

    @lazily
    def predict(self, X: Any) -> np.ndarray:
        """Predict labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        labels : array of shape (m,)
            In the namespace of X if labels are numbers, otherwise NumPy.
        """
        scores = self._class_scores(X)
        return decode(self.classes_, namespace(scores).argmax(scores, axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.
        y : array-like of shape (m,)
            True labels.
        sample_weight : array-like of shape (m,), default=None
            Weights of the rows in the mean.

        Returns
        -------
        score : float
            Fraction of rows predicted correctly.
        """
        truth = of_own_type(y, type(self).__name__)
        predicted = to_numpy(self.predict(X))
        return float(accuracy_score(truth, predicted, sample_weight=sample_weight))


class KernelDiscriminant(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelClassifier
):
    """Classifier and transformer on a weighted sum of kernels."""

    priors: Any
    fit_transform = all_or_nothing(TransformerMixin.fit_transform)

    def _coordinates(
        self, X: Any, method: str
    ) -> tuple[Array, Array | None, np.ndarray]:
        """Projections of rows, (m, r), their variances, and which views they have.

        Variances are None unless rows have their own; views are (m, v).
        """
        rows = self._observed_rows(X, method)
        projected = self.kernel_map_.project(rows, self._weights, self._coef)
        return projected, None, rows.observed

    def _log_joint(self, X: Any, method: str) -> Array:
        projected, spread, observed = self._coordinates(X, method)
        scores = self.gaussians_.log_joint(projected, spread)
        return self._where_known(scores, projected, observed)

    def _spread_of(self, X: Any) -> Array | None:
        """Variances (m, r) of the projections of rows, if they have their own."""
        return None

    def _where_known(
        self, scores: Array, projected: Array, observed: np.ndarray
    ) -> Array:
        """Scores (m, k), replaced by the log prior for rows that lack every view.

        ``observed`` (m, v) says which rows have which view.
        """
        if np.all(observed):
            return scores
        # Without any view in use a row projects to exactly zero: only the prior is
        # known.
        xp = namespace(projected)
        whole = from_numpy(np.all(observed, axis=1), projected, xp.bool)
        known = (xp.any(projected != 0, axis=1) | whole)[:, None]
        log_prior = from_numpy(self.gaussians_.log_prior, projected)
        return xp.where(known, scores, log_prior[None, :])

    @lazily
    def transform(self, X: Any) -> np.ndarray:
        """Project rows to discriminant coordinates, or to those of the classes.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        Z : array of shape (m, k - 1) or (m, k)
            Discriminant coordinates, the most discriminating first; for probabilistic
            models, the mean of each class coordinate.
        """
        return self._predict_target(X, "transform")

    @lazily
    def decision_function(self, X: Any) -> np.ndarray:
        """Log joint density of rows and classes.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        scores : array of shape (m,) or (m, k)
            For two classes the log odds of ``classes_[1]``, else one column per class.
        """
        scores = self._log_joint(X, "decision_function")
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _class_scores(self, X: Any) -> Array:
        return self._log_joint(X, "predict")

    # Generic code tries classifiers with probabilities on feature tables, which are not
    # precomputed kernels; with those, the method appears only after fitting.
    @available(lambda self: hasattr(self, "classes_") or not is_precomputed(self.views))
    @lazily
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities from Gaussians in the projected space.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        proba : array of shape (m, k)
            Rows sum to one.
        """
        scores = self._log_joint(X, "predict_proba")
        xp = namespace(scores)
        # float64, so that probabilities sum to one whatever the dtype of X
        wide = as_float(scores, xp.float64)
        wide = xp.exp(wide - xp.max(wide, axis=1, keepdims=True))
        return as_float(wide / xp.sum(wide, axis=1, keepdims=True), scores.dtype)

    @lazily
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of :meth:`predict_proba`, without underflow.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        log_proba : array of shape (m, k)
            Log probabilities.
        """
        scores = self._log_joint(X, "predict_log_proba")
        xp = namespace(scores)
        scores = scores - xp.max(scores, axis=1, keepdims=True)
        return scores - xp.log(xp.sum(xp.exp(scores), axis=1, keepdims=True))

"""How rows are read for a learner: as kernels, or as explicit features and moments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from kernelweave.exceptions import KernelWarning, MemoryRefusedError
from kernelweave.fits.ridge import RowDesign
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.banks.lazy import OnTheFlyBank
from kernelweave.kernels.features.recipe import FeatureReport
from kernelweave.kernels.interactions import BETWEEN
from kernelweave.kernels.moments import ChunkRecipe, Moments, RowAccumulator
from kernelweave.models.shared.base import Progress
from kernelweave.models.shared.inputs import (
    IDENTITY,
    Rule,
    boolean,
    check_parameters,
    one_of,
    positive,
    read_row_design,
    read_weighted_rows,
    refuse_unscaled,
    require_enough,
    whole,
)
from kernelweave.models.shared.learner import (
    LEARNER,
    Fit,
    Fitted,
    KernelRows,
    Trained,
)
from kernelweave.models.streaming.dask import NumberedRows, dask_moments, with_targets
from kernelweave.models.streaming.intake import (
    FeatureOptions,
    Intake,
    draw_sample,
    make_recipe,
    on_host,
)
from kernelweave.models.streaming.primal import SummedRows, keep_rows
from kernelweave.protocols import Bank
from kernelweave.views.columns import (
    is_arrow,
    is_dask,
    is_iterator,
    is_precomputed,
    validate_features,
)
from kernelweave.views.streams import Stream, open_stream, sampled, select_rows

#: Number of rows beyond which "auto" computes no n x n kernels on a CPU.
AUTO_ROWS = 10_000
#: Values that explicit features support; others need n x n kernels.
NEEDED = {
    "objective": "fisher",
    "scatter": "total",
    "formulation": "exact",
    "missing": "error",
    "scoring": None,
    "centre": True,
    "scale": "trace",
}
#: Solvers that need n x n kernels.
CONES = ("qcqp", "sdp")
#: Values that the parameters of a learner with explicit features may take.
PARAMETERS = {
    **LEARNER,
    "alpha": positive("learn", "loo", "cv"),
    "interactions": Rule(
        "a bool or 'auto'",
        lambda v: boolean.allows(v) or one_of("auto").allows(v),
    ),
    "features": one_of("auto", "exact", "on_the_fly", "nystroem", "random"),
    "n_features": whole(1),
}


def refused(model: Any) -> dict[str, Any]:
    """The parameters that rule out explicit features, with their values."""
    found = {name: getattr(model, name, value) for name, value in NEEDED.items()}
    return {name: value for name, value in found.items() if value != NEEDED[name]}


def check_features(model: Any, why: str) -> None:
    """Refuse what rules out explicit features, which are needed because ``why``."""
    for name, value in refused(model).items():
        raise ValueError(
            f"explicit features exist for {name}={NEEDED[name]!r} only; got {value!r} "
            f"(they are used because {why})"
        )
    if model.solver in CONES:
        raise ValueError(
            f"solver={model.solver!r} needs n x n kernels; got explicit features"
        )


def check_learner_parameters(model: Any, **own: Rule) -> None:
    """Refuse invalid values and combinations of parameters."""
    check_parameters(model, **PARAMETERS, **own)
    refuse_unscaled(model, "alpha", "learn", IDENTITY)
    refuse_unscaled(model, "objective", "loo", "starts from kernels of equal trace")
    if model.objective == "loo" and not isinstance(model.alpha, str):
        raise ValueError(
            "objective='loo' learns alpha together with the weights; got "
            f"alpha={model.alpha!r}; leave it at 'loo', or use objective='fisher'"
        )
    for name, values in {"features": ("random", "nystroem"), "alpha": ("cv",)}.items():
        value = getattr(model, name)
        if is_precomputed(model.views) and value in values:
            raise ValueError(
                f"{name}={value!r} needs columns to compute features from; "
                "views='precomputed' provides only kernels"
            )


def in_portions(X: Any) -> bool:
    """Whether rows are read one portion after another, and only once."""
    return is_iterator(X) or is_arrow(X) or is_dask(X)


def why_features(model: Any, X: Any) -> str | None:
    """Why explicit features are used for X; None if kernels are used."""
    if in_portions(X):
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
    device = model.device
    host = n > AUTO_ROWS and (on_host(X) if device is None else device == "cpu")
    if host and may_fall_back(model):
        return f"{n:,} rows are more than {AUTO_ROWS:,}"
    return None


def may_fall_back(model: Any) -> bool:
    """Whether features may replace kernels: no parameter demands kernels."""
    free = model.features == "auto" and not is_precomputed(model.views)
    return free and not refused(model) and model.solver not in CONES


def read_training(
    model: Any,
    X: Any,
    y: Any,
    progress: Callable[[int], object],
    sample_weight: Any = None,
    groups: Any = None,
) -> KernelRows | SummedRows:
    """Kernels between all rows, or explicit features if those do not fit in memory.

    The estimator ``model``, which is not changed, determines how rows are read.
    """
    why = why_features(model, X)
    if in_portions(X):
        _refuse_row_arrays(X, sample_weight, groups)
    if why is None:
        try:
            rows, targets, design = read_weighted_rows(
                model, X, y, sample_weight, groups
            )
            bank = rows.kernels(progress)
            report = _report_kernels(model, bank)
            return KernelRows(bank, targets, rows, report, rows.levelled(design))
        except MemoryRefusedError as error:
            if not may_fall_back(model):
                raise
            why = f"kernels between all rows do not fit: {error}"
    check_features(model, why)
    row_weights = None
    if not in_portions(X):
        X, y, row_weights, groups = read_row_design(model, X, y, sample_weight, groups)
    return _read_features(
        model, FeatureOptions.of(model, why), X, y, row_weights, groups
    )


def _report_kernels(model: Any, bank: Bank) -> FeatureReport:
    """How the kernels between all rows are held, and why."""
    every = f"kernels between all {bank.n_samples:,} rows"
    if not isinstance(bank, OnTheFlyBank):
        return FeatureReport("kernels", f"{every} fit into memory")
    why = "do not fit into memory together, but one matrix does"
    if model.features == "on_the_fly":
        why = "were to be made on the fly"
    return FeatureReport("on the fly", f"{every} {why}")


def _refuse_row_arrays(X: Any, sample_weight: Any, groups: Any) -> None:
    """Refuse one entry for each row where rows are not known all at once."""
    if sample_weight is not None:
        raise ValueError(
            f"sample_weight needs all rows at once; got {type(X).__name__}, whose rows "
            "come in portions. Call partial_fit(X, y, sample_weight=...) for each "
            "portion, or give class_weight as a dict"
        )
    if groups is not None:
        raise _no_groups("rows come in portions")


def _no_groups(why: str) -> ValueError:
    return ValueError(
        f"{why}, so only sums over all rows are kept, from which no group can be left "
        "out again. Leave out groups, and judge the model by cross_validate with "
        "GroupKFold; or fit it to few enough rows for kernels between all of them"
    )


#: ``interactions="auto"`` keeps products of views if they lower the leave-one-out
#: error by this share. Of 180 fits to 150 rows whose views only add up, or to noise, it
#: fell by 2 % in 20, by 5 % in 4, and by 10 % in one.
WORTHWHILE = 0.1


def train(
    model: Any, X: Any, y: Any, sample_weight: Any, groups: Any, progress: Progress
) -> Trained:
    """Read the rows, and learn; with ``interactions="auto"`` once more with products.

    Products of views are kept if they lower the leave-one-out error by 10 % or more;
    in the folds of ``cv_score_`` the same choice is made anew. Explicit features have
    no such error for every row, and are learned from once.
    """
    rows = read_training(model, X, y, progress.kernel, sample_weight, groups)
    if model.interactions != "auto" or not _may_interact(rows):
        trained: Trained = model._learn(rows, progress)
        return trained
    params = model.get_params(deep=False)
    trained = type(model)(**{**params, "cv": None})._learn(rows, progress)
    del rows  # the kernels, before they are computed again
    progress.say(1, "once more, with products of the kernels of different views")
    other = type(model)(**{**params, "interactions": True})
    with warnings.catch_warnings():  # the views' own were issued the first time
        warnings.simplefilter("ignore", KernelWarning)
        again = read_training(other, X, y, progress.kernel, sample_weight, groups)
        products: Trained = model._learn(again, progress)
    if _worthwhile(products.fitted, trained.fitted):
        return products
    # The folds have chosen between both, and so are those of either.
    fitted, gaussians = trained.fitted, products.fitted.gaussians
    if fitted.gaussians is not None and gaussians is not None:
        own = replace(fitted.gaussians, temperature=gaussians.temperature)
        fitted = replace(fitted, gaussians=own)
    return replace(trained, fitted=replace(fitted, folds=products.fitted.folds))


def _worthwhile(products: Fitted, alone: Fitted) -> bool:
    return products.loo_error < (1.0 - WORTHWHILE) * alone.loo_error


def choosing_products(fit: Fit, interactions: bool | str) -> Fit:
    """``fit`` without the products of views, or with them if they are worth it.

    Repeats the choice of ``interactions="auto"`` on the rows of a fold; kernels without
    products are fitted as they are, and so are all if there is nothing to choose.
    """
    if interactions != "auto":
        return fit

    def fit_both(bank: DenseBank, targets: np.ndarray, design: RowDesign) -> Fitted:
        own = [i for i, name in enumerate(bank.names) if not name.startswith(BETWEEN)]
        if len(own) in (0, bank.n_kernels):
            return fit(bank, targets, design)
        alone = fit(bank.subset(np.array(own)), targets, design)
        products = fit(bank, targets, design)
        if _worthwhile(products, alone):
            return products
        weights = np.zeros(bank.n_kernels)
        weights[own] = alone.choice.weights
        return replace(alone, choice=replace(alone.choice, weights=weights))

    return fit_both


def _may_interact(rows: KernelRows | SummedRows) -> bool:
    """Whether there are kernels of several views, and two rows that have them all."""
    if not isinstance(rows, KernelRows) or rows.scales is not None:
        return False
    seen = getattr(rows.rows.kernel_map.source, "observed", None)
    complete = seen is None or int(np.sum(np.all(seen, axis=1))) >= 2
    plain = not any(view.raw for view in rows.rows.views)  # products need numbers
    return len(rows.rows.views) >= 2 and complete and plain


def _read_features(
    model: Any,
    options: FeatureOptions,
    X: Any,
    y: Any,
    row_weights: np.ndarray | None,
    groups: np.ndarray | None,
) -> KernelRows | SummedRows:
    """Explicit features of all rows, or their moments."""
    intake = Intake(model)
    if is_dask(X):
        return _read_dask(model, options, intake, X, y)
    if not is_iterator(X) and not is_arrow(X):
        X = validate_features(intake.bearer, X, reset=True, sparse=True)
        y = intake.targets(X, y)
        intake.look(X)
    stream = open_stream(X, y, options.chunk_rows(X))
    portions = stream.portions()
    waiting, sample = draw_sample(options, stream, portions, intake)
    first = stream.y if stream.n_rows else np.concatenate([w[1] for w in waiting])
    recipe = make_recipe(options, intake, sample, first, stream.n_rows)
    if _keeps_rows(options, stream, recipe):
        require_enough(model, stream.y)
        blocks, design = intake.rows(stream.X), RowDesign(len(y), row_weights, groups)
        return keep_rows(recipe, blocks, stream.y, intake, options.why, design)
    if groups is not None:
        raise _no_groups(options.why)
    accumulator = RowAccumulator(recipe, options.chunk_rows(intake.like))
    seen = 0
    for blocks, targets in waiting:
        accumulator.push(blocks, targets, intake.weights(targets))
        seen += len(targets)
    for rows, targets in portions:
        if stream.n_rows is None:  # targets of an array were checked as a whole
            targets = intake.targets(rows, targets, seen)
        if row_weights is None:
            weights = intake.weights(targets)
        else:  # of all rows of an array, with those of their classes
            weights = row_weights[seen : seen + len(targets)]
        accumulator.push(intake.rows(rows, seen), targets, weights)
        seen += len(targets)
    return _summed(model, recipe, accumulator.total(), intake, options.why)


def _read_dask(
    model: Any, options: FeatureOptions, intake: Intake, X: Any, y: Any
) -> KernelRows | SummedRows:
    """As from an array with the same rows, but computed where the partitions are."""
    data = NumberedRows.of(*with_targets(X, y))
    rows, targets = data.take(sampled(data.n_rows, options.sample_rows, options.seed))
    sample = intake.sampled_rows(rows)
    recipe = make_recipe(options, intake, sample, targets, data.n_rows)
    if _few_rows(options, data.n_rows, recipe):
        rows, targets = data.take(np.arange(data.n_rows))
        y = intake.targets(rows, np.asarray(targets))
        require_enough(model, y)
        weights = intake.weights(y)
        design = RowDesign(len(y), None if np.all(weights == 1.0) else weights)
        return keep_rows(recipe, intake.rows(rows), y, intake, options.why, design)
    moments = dask_moments(recipe, intake, data, options.chunk_rows(intake.like))
    return _summed(model, recipe, moments, intake, options.why)


def _keeps_rows(options: FeatureOptions, stream: Stream, recipe: ChunkRecipe) -> bool:
    """Whether the features of all rows take less memory than their moments."""
    in_memory = stream.X is not None and not any(recipe.features.sparse)
    return bool(in_memory and _few_rows(options, stream.X.shape[0], recipe))


def _few_rows(options: FeatureOptions, n_rows: int, recipe: ChunkRecipe) -> bool:
    few = n_rows <= recipe.features.n_features
    return few and recipe.n_folds == 1 and options.device is None


def _summed(
    model: Any, recipe: ChunkRecipe, moments: Moments, intake: Intake, why: str
) -> SummedRows:
    """All rows as moments, from which something can be learned."""
    if not _enough(moments):
        require_enough(model, moments.probe.y)  # raises, saying what is missing
    return SummedRows(recipe, moments, intake, why)


def _enough(moments: Moments) -> bool:
    """Whether there are two classes or, for a regression, two rows."""
    if moments.labels is None:
        return moments.n_rows >= 2
    return len(moments.labels) >= 2


@dataclass(frozen=True)
class Portions:
    """The rows of all calls so far, as sums over them."""

    options: FeatureOptions  # of the first call
    intake: Intake
    accumulator: RowAccumulator
    classes: np.ndarray | None  # all that may occur, if given
    n_rows: int
    is_first: bool  # all rows came in one call


def next_portions(
    model: Any, X: Any, y: Any, classes: Any, solve: bool, sample_weight: Any = None
) -> tuple[Portions, SummedRows | None]:
    """The rows of all calls including X, and their moments if it is time to solve."""
    portions = getattr(model, "_portions", None)
    if X is None:
        portions = _check_again(model, portions)
    else:
        portions = _added(model, portions, X, y, classes, sample_weight)
    moments = portions.accumulator.total() if solve or X is None else None
    if moments is None or (X is not None and not _enough(moments)):
        return portions, None
    recipe, why = portions.accumulator.recipe, portions.options.why
    return portions, _summed(model, recipe, moments, portions.intake, why)


def _added(
    model: Any,
    before: Portions | None,
    X: Any,
    y: Any,
    classes: Any,
    sample_weight: Any,
) -> Portions:
    """The rows of X added to those ``before``, which are left unchanged."""
    if before is None:
        why = "partial_fit takes rows in portions"
        check_features(model, why)
        intake, seen = Intake(model), 0
    else:
        intake, seen = before.intake, before.n_rows
        classes = before.classes if classes is None else classes
    targets = intake.targets(X, y, seen)
    blocks, n_rows = intake.rows(X, seen), seen + len(targets)
    weights = intake.weights(targets, sample_weight, seen)
    if not np.all(weights > 0):
        kept = np.flatnonzero(weights > 0)
        if before is None and not len(kept):
            raise ValueError(
                f"{type(model).__name__}: every sample weight of the first portion is "
                "zero, but its rows fix the features"
            )
        blocks = [select_rows(block, kept) for block in blocks]
        targets, weights = targets[kept], weights[kept]
    if classes is not None:
        classes = np.array(classes)  # the caller may change theirs between calls
        _check_classes(targets, classes)
    if before is None:
        options = FeatureOptions.of(model, why)
        recipe = make_recipe(options, intake, blocks, targets)
        accumulator = RowAccumulator(recipe, options.chunk_rows(intake.like))
    else:
        options, accumulator = before.options, before.accumulator
    accumulator, first = accumulator.added(blocks, targets, weights), before is None
    return Portions(options, intake, accumulator, classes, n_rows, first)


def _check_again(model: Any, before: Portions | None) -> Portions:
    """Refuse to solve without rows, or without the sums that are needed."""
    if before is None:
        raise ValueError(
            "partial_fit without rows learns from the rows of earlier calls of "
            "partial_fit, and there were none. Pass X and y"
        )
    if model.alpha == "cv" and before.accumulator.recipe.n_folds == 1:
        raise ValueError(
            "alpha='cv' needs the moments of each fold, and the rows so far were "
            "summed without folds; set it before the first call of partial_fit"
        )
    return before


def _check_classes(targets: np.ndarray, classes: np.ndarray) -> None:
    unknown = np.setdiff1d(targets, classes)
    if len(unknown):
        raise ValueError(
            f"y contains {unknown.tolist()[0]!r}, which is not one of classes="
            f"{classes.tolist()!r}; these rows were not added. Give all labels in "
            "classes at the first call"
        )

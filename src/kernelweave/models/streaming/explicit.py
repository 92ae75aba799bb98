"""Rows as explicit features: all of them, their moments, or the moments of portions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.fits.ridge import RowDesign
from kernelweave.kernels.moments import ChunkRecipe, Moments, RowAccumulator
from kernelweave.models.shared.inputs import read_row_design, require_enough
from kernelweave.models.shared.learner import KernelRows
from kernelweave.models.streaming.dask import NumberedRows, dask_moments, with_targets
from kernelweave.models.streaming.intake import (
    FeatureOptions,
    Intake,
    draw_sample,
    make_recipe,
)
from kernelweave.models.streaming.primal import SummedRows, keep_rows
from kernelweave.views.columns import (
    in_portions,
    is_dask,
    is_precomputed,
    prefixed,
    validate_features,
)
from kernelweave.views.streams import Stream, open_stream, sampled, select_rows

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


def may_fall_back(model: Any) -> bool:
    """Whether features may replace kernels: no parameter demands kernels."""
    free = model.features == "auto" and not is_precomputed(model.views)
    return free and not refused(model) and model.solver not in CONES


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


def read_features(
    model: Any, why: str, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
) -> KernelRows | SummedRows:
    """Explicit features of all rows, which are used because ``why``, or their moments.

    The estimator ``model``, which is not changed, determines how rows are read.
    """
    whole = not in_portions(X)
    if not whole:
        _refuse_row_arrays(X, sample_weight, groups)
    check_features(model, why)
    row_weights = None
    if whole:
        X, y, row_weights, groups = read_row_design(model, X, y, sample_weight, groups)
    options, intake = FeatureOptions.of(model, why), Intake(model)
    if is_dask(X):
        return _read_dask(model, options, intake, X, y)
    if whole:
        X = validate_features(intake.bearer, X, reset=True)
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
    place = "the rows drawn to fix the features (numbered among themselves)"
    with prefixed(f"In {place}: "):
        sample = intake.rows(rows)
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
        options, intake, seen = FeatureOptions.of(model, why), Intake(model), 0
    else:
        options, intake, seen = before.options, before.intake, before.n_rows
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
        recipe = make_recipe(options, intake, blocks, targets)
        accumulator = RowAccumulator(recipe, options.chunk_rows(intake.like))
    else:
        accumulator = before.accumulator
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

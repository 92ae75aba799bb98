"""Rows as explicit features: all of them, their moments, or the moments of portions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import _num_samples

from kernelweave._array import namespace
from kernelweave._text import prefixed, renumbered
from kernelweave.fits.design import RowDesign
from kernelweave.kernels.moments import ChunkRecipe, Moments, RowAccumulator
from kernelweave.models.shared.inputs import (
    check_total,
    read_design,
    require_enough,
)
from kernelweave.models.streaming.dask import NumberedRows, dask_moments, with_targets
from kernelweave.models.streaming.intake import (
    PORTIONS,
    Intake,
    Portion,
    draw_sample,
    make_recipe,
)
from kernelweave.models.streaming.primal import SummedRows, TrainingRows, keep_rows
from kernelweave.views.columns import (
    in_portions,
    is_dask,
    is_precomputed,
    validate_features,
)
from kernelweave.views.streams import portions_of, sampled, select_rows

if TYPE_CHECKING:  # estimators are built from what is here
    from kernelweave.models.shared.base import KernelModel

#: Values that explicit features support; others need n x n kernels.
NEEDED = {
    "scoring": None,
    "centre": True,
    "scale": "trace",
}


def refused(model: KernelModel) -> dict[str, Any]:
    """The parameters that rule out explicit features, with their values."""
    found = {name: getattr(model, name) for name in NEEDED}
    return {name: value for name, value in found.items() if value != NEEDED[name]}


def check_features(model: KernelModel, why: str) -> None:
    """Refuse what rules out explicit features, which are needed because ``why``."""
    for name, value in refused(model).items():
        raise ValueError(
            f"explicit features exist for {name}={NEEDED[name]!r} only; got {value!r} "
            f"(they are used because {why})"
        )
    if model.features == "on_the_fly":
        raise ValueError(
            "features='on_the_fly' makes kernels between all rows, without any "
            f"approximation, but {why}. Set features='auto' or 'nystroem' for "
            "approximations, or 'exact' for kernels that have finite features"
        )


def may_have_features(model: KernelModel) -> bool:
    """Whether kernels may be represented by features: no parameter rules them out."""
    return not is_precomputed(model.views) and not refused(model)


def may_fall_back(model: KernelModel) -> bool:
    """Whether features may replace kernels: no parameter demands kernels."""
    return model.features == "auto" and may_have_features(model)


def _no_groups(why: str) -> ValueError:
    return ValueError(
        f"{why}, so only sums over all rows are kept, from which no group can be left "
        "out again. Leave out groups, and judge the model by cross_validate with "
        "GroupKFold; or fit it to few enough rows for kernels between all of them"
    )


def read_features(
    model: KernelModel,
    why: str,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    **sizes: int,
) -> TrainingRows | SummedRows:
    """Explicit features of all rows, which are used because ``why``, or their moments.

    The estimator ``model``, which is not changed, determines how rows are read.
    ``sizes`` of sample and chunks are those of :class:`Intake`.
    """
    at_once = not in_portions(X, y)
    if sample_weight is not None and not at_once:
        raise ValueError(
            f"sample_weight needs all rows at once; got {type(X).__name__}, whose rows "
            "come in portions. Call partial_fit(X, y, sample_weight=...) for each "
            "portion, or give class_weight as a dict"
        )
    if groups is not None and not at_once:
        raise _no_groups("rows come in portions")
    check_features(model, why)
    intake = Intake(model, why, **sizes)
    if is_dask(X):
        return _read_dask(intake, X, y)
    if not at_once:
        return _read_stream(intake, X, y)
    checked = validate_features(intake.estimator, X, reset=True)
    y, keep, design = read_design(model, X, y, sample_weight, groups)
    left_out = _num_samples(X) - len(keep)
    with renumbered(left_out):
        checked = select_rows(checked, keep) if left_out else checked
        intake.settle(checked)
        rows = _read_array(intake, checked, y, design)
    if rows is None:
        raise _no_groups(why)
    return rows


def _read_array(
    intake: Intake, X: Any, y: np.ndarray, design: RowDesign
) -> TrainingRows | SummedRows | None:
    """All rows of an array, sparse array or table, in memory or mapped to it.

    None if these have groups, but are to be summed.
    """
    drawn = sampled(len(y), intake.sample_rows, intake.seed)
    portions = _slices(intake, X, y, design)
    try:
        sample = intake.rows(select_rows(X, drawn))
    except (TypeError, ValueError):
        for _ in portions:  # find the row, to report its number in the whole
            pass
        raise
    recipe = make_recipe(intake, sample, y, len(y))
    dense = not any(recipe.features.sparse)
    if dense and _few_rows(len(y), recipe, intake):
        return keep_rows(recipe, intake.rows(X), y, intake, design)
    if design.groups is not None:
        return None
    return _added_up(recipe, portions, intake)


def _slices(
    intake: Intake, X: Any, y: np.ndarray, design: RowDesign
) -> Iterator[Portion]:
    """Portions of consecutive rows of an array."""
    size = intake.chunk_rows(X)
    for start in range(0, len(y), size):
        part = slice(start, min(start + size, len(y)))
        yield intake.rows(select_rows(X, part), start), y[part], design.each[part]


def _read_stream(intake: Intake, X: Any, y: Any) -> SummedRows:
    """The rows of an iterator or a pyarrow dataset, each of which is read once."""
    if intake.estimator.features != "exact":
        intake.require_moments()  # many more rows than features are gathered first
    portions = intake.portions(portions_of(X, y, intake.chunk_rows(X)))
    waiting, sample = draw_sample(intake, portions)
    first = np.concatenate([targets for _, targets, _ in waiting])
    recipe = make_recipe(intake, sample, first)
    return _added_up(recipe, chain(waiting, portions), intake)


def _read_dask(intake: Intake, X: Any, y: Any) -> TrainingRows | SummedRows:
    """As from an array with the same rows, but computed where the partitions are."""
    data = NumberedRows(*with_targets(X, y))
    rows, targets = data.take(sampled(data.n_rows, intake.sample_rows, intake.seed))
    place = "the rows drawn to fix the features (numbered among themselves)"
    with prefixed(f"In {place}: "):
        sample = intake.rows(rows)
    recipe = make_recipe(intake, sample, targets, data.n_rows)
    if _few_rows(data.n_rows, recipe, intake):
        rows, targets = data.take(np.arange(data.n_rows))
        blocks, y, weights = intake.portion(rows, np.asarray(targets))
        design = RowDesign(len(y), None if np.all(weights == 1.0) else weights)
        return keep_rows(recipe, blocks, y, intake, design)
    return _summed(recipe, dask_moments(recipe, intake, data), intake)


def _few_rows(n_rows: int, recipe: ChunkRecipe, intake: Intake) -> bool:
    """Whether the features of all rows take less memory than their moments."""
    few = n_rows <= recipe.features.n_features
    return few and recipe.n_folds == 1 and intake.estimator.device is None


def _added_up(
    recipe: ChunkRecipe, portions: Iterable[Portion], intake: Intake
) -> SummedRows:
    """The moments of all portions."""
    accumulator = RowAccumulator(recipe, intake.chunk_rows(intake.like))
    for portion in portions:
        accumulator.push(*portion)
    return _summed(recipe, accumulator.total(), intake)


def _summed(recipe: ChunkRecipe, moments: Moments, intake: Intake) -> SummedRows:
    """All rows as moments, from which something can be learned."""
    if not _enough(moments):
        require_enough(intake.estimator, moments.probe.y)  # says what is missing
    weight = namespace(moments.gram).sum(moments.gram[:, 0, 0])
    check_total(float(weight), type(intake.estimator).__name__)
    return SummedRows(recipe, moments, intake)


def _enough(moments: Moments) -> bool:
    """Whether there are two classes or, for a regression, two rows."""
    found = moments.n_rows if moments.labels is None else len(moments.labels)
    return found >= 2


@dataclass(frozen=True)
class Portions:
    """The rows of all calls so far, as sums over them."""

    intake: Intake  # of the first call
    accumulator: Any = None
    classes: np.ndarray | None = None  # all that may occur, if given
    n_rows: int = 0
    is_first: bool = True  # all rows came in one call

    @property
    def is_final(self) -> bool:
        """Whether the sums have been dropped, so that no more rows can be added."""
        return self.n_rows > 0 and self.accumulator is None

    @property
    def n_kept(self) -> int:
        """The number of rows that are kept as they are."""
        return 0 if self.accumulator is None else self.accumulator.n_kept


def next_portions(
    model: KernelModel,
    X: Any,
    y: Any,
    classes: Any,
    solve: bool,
    sample_weight: Any = None,
) -> tuple[Portions, SummedRows | None]:
    """The rows of all calls including X, and their moments if it is time to solve."""
    portions = model._portions
    if portions is not None and portions.is_final:
        raise ValueError(
            f"this {type(model).__name__} was saved with resumable=False, without the "
            "rows and sums from which partial_fit goes on. Save it with "
            "resumable=True, or call fit, or partial_fit of a new model, with all rows"
        )
    if X is not None:
        portions = _added(model, portions, X, y, classes, sample_weight)
    elif any(given is not None for given in (y, classes, sample_weight)):
        raise ValueError(
            "partial_fit without rows takes no y, classes or sample_weight: it learns "
            "again from the rows of earlier calls. Pass X too, or none of them"
        )
    elif portions is None:
        raise ValueError(
            "partial_fit without rows learns from the rows of earlier calls of "
            "partial_fit, and there were none. Pass X and y"
        )
    elif model.alpha == "cv" and portions.accumulator.recipe.n_folds == 1:
        raise ValueError(
            "alpha='cv' needs the moments of each fold, and the rows so far were "
            "summed without folds; set it before the first call of partial_fit"
        )
    moments = None
    if solve or X is None:
        with renumbered(portions.n_rows - portions.accumulator.n_rows):
            moments = portions.accumulator.total()
    if moments is None or (X is not None and not _enough(moments)):
        return portions, None
    recipe = portions.accumulator.recipe
    return portions, _summed(recipe, moments, portions.intake)


def _added(
    model: KernelModel,
    before: Portions | None,
    X: Any,
    y: Any,
    classes: Any,
    sample_weight: Any,
) -> Portions:
    """The rows of X added to those ``before``, which are left unchanged."""
    if before is None:
        check_features(model, PORTIONS)
        before = Portions(Intake(model, PORTIONS))
        if model.features == "random":  # landmarks are rows of the first portion
            before.intake.require_moments()
    intake, accumulator = before.intake, before.accumulator
    seen = before.n_rows
    blocks, targets, weights = intake.portion(X, y, seen, sample_weight)
    n_rows, first = seen + len(targets), accumulator is None
    if not np.all(weights > 0):
        kept = np.flatnonzero(weights > 0)
        if first and not len(kept):
            raise ValueError(
                f"{type(model).__name__}: every sample weight of the first portion is "
                "zero, but its rows fix the features"
            )
        blocks = [select_rows(block, kept) for block in blocks]
        targets, weights = targets[kept], weights[kept]
    # The caller may change theirs between calls.
    classes = before.classes if classes is None else np.array(classes)
    if classes is not None:
        _check_classes(targets, classes)
    summed = 0 if first else accumulator.n_rows
    with renumbered(n_rows - summed - len(targets)):
        if first:
            recipe = make_recipe(intake, blocks, targets)
            accumulator = RowAccumulator(recipe, intake.chunk_rows(intake.like))
        accumulator = accumulator.added(blocks, targets, weights)
    return Portions(intake, accumulator, classes, n_rows, first)


def _check_classes(targets: np.ndarray, classes: np.ndarray) -> None:
    unknown = np.setdiff1d(targets, classes)
    if len(unknown):
        raise ValueError(
            f"y contains {unknown.tolist()[0]!r}, which is not one of classes="
            f"{classes.tolist()!r}; these rows were not added. Give all labels in "
            "classes at the first call"
        )

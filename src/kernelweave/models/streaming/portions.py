"""Rows that arrive in portions: what ``partial_fit`` keeps of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.kernels.moments import Moments, RowAccumulator
from kernelweave.models.shared.base import Progress
from kernelweave.models.shared.learner import Trained
from kernelweave.models.streaming.explicit import (
    FeatureOptions,
    check_features,
    enough,
    make_recipe,
    train_moments,
)
from kernelweave.models.streaming.intake import Intake

__all__ = ["Portions", "next_portions"]


@dataclass(frozen=True)
class Portions:
    """The rows of all calls so far, as sums over them."""

    options: FeatureOptions  # of the first call
    intake: Intake
    accumulator: RowAccumulator
    classes: np.ndarray | None  # all that may occur, if given
    n_rows: int
    is_first: bool  # all rows came in one call

    def train(self, model: Any, moments: Moments, progress: Progress) -> Trained:
        """Fit the sums with the estimator's current parameters."""
        recipe = self.accumulator.recipe
        return train_moments(
            model, self.options, self.intake, recipe, moments, progress
        )


def next_portions(
    model: Any, X: Any, y: Any, classes: Any, solve: bool
) -> tuple[Portions, Moments | None]:
    """The rows of all calls including X, and their moments if it is time to solve."""
    before = getattr(model, "_portions", None)
    if X is None:
        before = _check_again(model, before)
        return before, before.accumulator.total()
    portions = _added(model, before, X, y, classes)
    moments = portions.accumulator.total() if solve else None
    return portions, moments if moments is not None and enough(moments) else None


def _added(
    model: Any, before: Portions | None, X: Any, y: Any, classes: Any
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
    blocks = intake.rows(X, seen)
    if classes is not None:
        classes = np.array(classes)  # the caller may change theirs between calls
        _check_classes(targets, classes)
    if before is None:
        options = FeatureOptions.of(model, why)
        recipe = make_recipe(options, intake, blocks, targets)
        accumulator = RowAccumulator(recipe, options.chunk_rows(intake.like))
    else:
        options, accumulator = before.options, before.accumulator
    accumulator = accumulator.added(blocks, targets)
    n_rows, is_first = seen + len(targets), before is None
    return Portions(options, intake, accumulator, classes, n_rows, is_first)


def _check_again(model: Any, before: Portions | None) -> Portions:
    """Refuse to solve without rows, or without the sums that are needed."""
    if before is None:
        raise ValueError(
            "partial_fit without rows learns from the rows of earlier calls of "
            "partial_fit, and there were none"
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
            f"{classes.tolist()!r}; these rows were not added"
        )

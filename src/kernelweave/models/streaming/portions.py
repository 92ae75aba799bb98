"""Rows that come by and by: what ``partial_fit`` keeps of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.kernels.moments.accumulate import RowAccumulator
from kernelweave.models.shared.fitted import Task, Trained
from kernelweave.models.shared.progress import Progress
from kernelweave.models.streaming.explicit import (
    FeatureOptions,
    enough,
    make_recipe,
    train_moments,
)
from kernelweave.models.streaming.feature_choice import check_features
from kernelweave.models.streaming.intake import Intake

__all__ = ["Portions", "add_portion", "check_again"]


@dataclass(frozen=True)
class Portions:
    """The rows of all calls so far, as sums over them.

    Attributes
    ----------
    options : FeatureOptions
        How features were made, when the first rows came.
    intake : Intake
        What rows look like.
    accumulator : RowAccumulator
        Their second moments.
    classes : ndarray or None
        The labels that may occur, if they have been named.
    n_rows : int
        The number of rows.
    """

    options: FeatureOptions
    intake: Intake
    accumulator: RowAccumulator
    classes: np.ndarray | None
    n_rows: int

    def can_train(self) -> bool:
        """Whether there are two classes, or two rows of a regression."""
        return enough(self.accumulator.total())

    def train(self, task: Task, progress: Progress) -> Trained:
        """Fit the moments, with the parameters that the estimator has now."""
        recipe, moments = self.accumulator.recipe, self.accumulator.total()
        return train_moments(task, self.options, self.intake, recipe, moments, progress)


def add_portion(
    model: Any, task: Task, before: Portions | None, X: Any, y: Any, classes: Any
) -> Portions:
    """The rows ``before`` and those of X; nothing that there was is changed."""
    if before is None:
        why = "partial_fit takes rows in portions"
        check_features(model, why)
        intake, seen = Intake(model, task), 0
    else:
        intake, seen = before.intake, before.n_rows
        classes = before.classes if classes is None else classes
    targets = intake.targets(X, y, seen)
    blocks = intake.rows(X, seen)
    if classes is not None:
        classes = np.array(classes)  # the caller's own may change between calls
        _check_classes(targets, classes)
    if before is None:
        options = FeatureOptions.of(model, why)
        recipe = make_recipe(options, intake, blocks, targets)
        accumulator = RowAccumulator(recipe, options.chunk_rows(intake.like))
    else:
        options, accumulator = before.options, before.accumulator
    accumulator = accumulator.added(blocks, targets)
    return Portions(options, intake, accumulator, classes, seen + len(targets))


def check_again(model: Any, before: Portions | None) -> Portions:
    """Refuse to learn from rows that were not seen, or not summed as is needed."""
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
            f"y contains {unknown.tolist()[0]!r}, which is none of classes="
            f"{classes.tolist()!r}; these rows were not added"
        )

"""The score of a discriminant that is fitted again to the rows of each fold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import _num_samples

from kernelweave._array import to_numpy
from kernelweave.fits.design import RowDesign
from kernelweave.learn.folds import (
    FoldClasses,
    FoldScore,
    StoppedError,
    end_fold,
    score_on_folds,
)
from kernelweave.learn.search import Options
from kernelweave.models.shared.inputs import (
    check_priors,
    check_sample_weight,
    first_kernel,
    weights_by_label,
    with_parameters,
)
from kernelweave.views.columns import is_precomputed
from kernelweave.views.streams import rows_of_fold

if TYPE_CHECKING:  # estimators are built from what is here
    from kernelweave.models.shared.base import KernelDiscriminant, Progress


@dataclass(frozen=True)
class Refits:
    """Fits of a model without the rows of each fold, and what they say of these rows.

    The noise levels and weights of experts were chosen by all rows, and there is no
    cheaper way to choose them without some. So everything is learned again, from the
    parameters of the kernels on.

    Attributes
    ----------
    model : KernelDiscriminant
        Its parameters are those of the fits; it is not changed.
    X, sample_weight : object
        What was given to its ``fit``, and has been found valid.
    classes : ndarray of shape (k,)
        Labels.
    codes : ndarray of int of shape (n,)
        Classes 0 .. k - 1 of the n rows of positive weight.
    design : RowDesign
        Their weights, class weights included.
    progress : Progress
        Told of each fold.
    """

    model: KernelDiscriminant
    X: Any
    sample_weight: Any
    classes: np.ndarray
    codes: np.ndarray
    design: RowDesign
    progress: Progress

    def score(self) -> FoldScore | None:
        """The score on held-out rows, or why there is none; None for ``cv=None``."""
        options = Options(cv=self.model.cv, progress=self.progress)
        return score_on_folds(options, self.codes, self.design, True, self.folds)

    def folds(
        self, splits: list[tuple[np.ndarray, np.ndarray]]
    ) -> Iterator[FoldClasses]:
        """Fit to the rows of each split, and judge those held out."""
        n, owner = _num_samples(first_kernel(self.X)), type(self.model).__name__
        weights = check_sample_weight(self.sample_weight, n, owner)
        rows = np.flatnonzero(weights)  # (n,), numbers of the rows in X
        weighted = self.sample_weight is not None
        kernels = is_precomputed(self.model.views)
        for i, (train, test) in enumerate(splits, start=1):
            seen, own = np.unique(self.codes[train]), rows[train]
            changed = {"cv": None, "verbose": 0}
            changed |= of_classes(self.model, self.classes, seen)
            part: Any = with_parameters(self.model, **changed)
            labels = self.classes[self.codes[train]]
            with warnings.catch_warnings():  # the fit to all rows has issued its own
                warnings.simplefilter("ignore")
                try:
                    old = rows_of_fold(self.X, own, own, kernels)
                    part.fit(old, labels, weights[own] if weighted else None)
                    new = rows_of_fold(self.X, rows[test], own, kernels)
                    projected, spread, observed = part._coordinates(new, "predict")
                except ValueError as error:
                    where = f"without the rows of fold {i} of {len(splits)}"
                    raise StoppedError(f"{where}, {error}") from error
            gaussians = part.gaussians_
            scores = to_numpy(gaussians.scores(projected, spread))
            log_joint = gaussians.log_joint(projected, spread)
            log_joint = to_numpy(part._where_known(log_joint, projected, observed))
            yield FoldClasses(test, seen, gaussians.slope > 0, scores, log_joint)
            end_fold(self.progress.fold, i, len(splits))


def of_classes(model: Any, classes: np.ndarray, seen: np.ndarray) -> dict[str, Any]:
    """The parameters of a ``model`` of some of its classes (k,), as others have none.

    It is to be fitted to rows of those with the codes ``seen`` (r,) alone.
    """
    found: dict[str, Any] = {}
    if isinstance(model.class_weight, dict):
        known = classes[seen].tolist()
        given = weights_by_label(model.class_weight, classes).items()
        found["class_weight"] = {c: weight for c, weight in given if c in known}
    priors = check_priors(getattr(model, "priors", None), classes)
    if priors is not None:
        found["priors"] = priors[seen] / np.sum(priors[seen])
    return found

"""Predictions and projections of rows by models that have not seen them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import orthogonal_procrustes
from sklearn.base import is_classifier

from kernelweave._array import to_numpy
from kernelweave._text import prefixed, some
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import units_per_class
from kernelweave.inspection._rows import probabilities, without_repeated_warnings
from kernelweave.learn.folds import choose_splits
from kernelweave.views.caches import without_caches
from kernelweave.views.streams import rows_of_fold


@dataclass(frozen=True)
class HeldOut:
    """Predictions for m rows by models that have not seen them.

    Attributes
    ----------
    predicted : ndarray of shape (m,) or (m, n_outputs)
        Predicted classes or numbers; for rows without a prediction, a class other than
        their own, or NaN.
    targets : ndarray of the same shape or None
        The true classes or numbers, if they are known.
    fold : ndarray of shape (m,) or None
        The fold of each row, numbered from 1, which was held out to predict it; 0 if
        the row is in no fold and has no prediction. None for rows other than the
        training rows.
    how : str
        How the predictions were made.
    classes : ndarray of shape (k,) or None
        All classes, for a classifier.
    probability : ndarray of shape (m, k) or None
        Probability of each class, if the model predicts probabilities.
    coordinates : ndarray of shape (m, k - 1) or None
        Projections, if the model has any.
    part, train : estimator and ndarray of int, or None
        The model that predicted the first fold, and the rows it was fitted to.
    """

    predicted: np.ndarray
    targets: np.ndarray | None
    fold: np.ndarray | None
    how: str
    classes: np.ndarray | None = None
    probability: np.ndarray | None = None
    coordinates: np.ndarray | None = None
    part: Any = None
    train: np.ndarray | None = None

    @property
    def shown(self) -> np.ndarray:
        """Which rows have a prediction, (m,)."""
        if self.fold is None:
            return np.ones(len(self.predicted), dtype=bool)
        return self.fold > 0

    @property
    def labels(self) -> np.ndarray:
        """The true classes, or the predicted ones where the truth is unknown, (m,)."""
        return self.predicted if self.targets is None else self.targets


def assign_folds(
    y: np.ndarray,
    most: int,
    groups: np.ndarray | None = None,
    classify: bool = True,
    random_state: Any = 0,
) -> tuple[np.ndarray, list[str]]:
    """Divide the rows into folds that keep groups together and classes in proportion.

    Without groups, every class has a row in every fold, so no model lacks a class. The
    only row (or group) of a class is in no fold: a model that had not seen it would not
    know its class.

    Parameters
    ----------
    y : ndarray of shape (n,) or (n, n_outputs)
        Classes or numbers.
    most : int
        The number of folds, unless a class has fewer rows.
    groups : ndarray of shape (n,), default=None
        Rows with the same value share a fold.
    classify : bool, default=True
        Whether y holds classes.
    random_state : int, RandomState instance or None, default=0
        Source of randomness.

    Returns
    -------
    fold : ndarray of shape (n,)
        The fold of each row, from 1; 0 for a row that cannot be predicted.
    remarks : list of str
        Sentences about classes that are too small.
    """
    rows, what = np.arange(len(y)), "row" if groups is None else "group"
    remarks: list[str] = []
    design = RowDesign(len(y), groups=groups).restrict(rows)  # numbers the groups
    if classify:
        classes, y = np.unique(y, return_inverse=True)
        rows, remarks = _of_large_classes(y, classes, design, most, what)
    elif (size := len(design.members)) < 2:
        raise ValueError(f"cross-validation needs at least two {what}s, got {size}")
    how = classify, random_state, True  # one class with few units limits the folds
    parts = choose_splits(most, y[rows], design.restrict(rows), *how)
    fold = np.zeros(len(y), dtype=int)
    # large groups may leave some empty
    filled = (test for _, test in parts if len(test))
    for i, test in enumerate(filled, start=1):
        fold[rows[test]] = i
    return fold, remarks


def _of_large_classes(
    codes: np.ndarray, classes: np.ndarray, design: RowDesign, most: int, what: str
) -> tuple[np.ndarray, list[str]]:
    """Rows of classes with two or more units, and remarks on smaller ones."""
    counts = units_per_class(codes, design)
    several, remarks = counts > 1, []
    if not several.any():
        raise ValueError(
            f"no class has two {what}s, so no row can be predicted by a model that "
            f"has not seen it but knows its class; add {what}s"
        )
    size = int(counts[several].min())
    if size < most:
        small = classes[several][counts[several].argmin()]
        remarks.append(
            f"{size} folds instead of {most}: the class {str(small)!r} has only {size} "
            f"{what}s."
        )
    if not several.all():
        single = some(repr(str(label)) for label in classes[~several])
        remarks.append(
            f"Classes with a single {what} cannot be predicted out of fold, so "
            f"their rows have no prediction: {single}."
        )
    return np.flatnonzero(several[codes]), remarks


@without_repeated_warnings()
def out_of_fold(
    model: Any,
    X: Any,
    y: np.ndarray,
    fold: np.ndarray,
    *,
    units: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    pairwise: bool = False,
    report: Any = None,
    **of_rows: np.ndarray | None,
) -> HeldOut:
    """For each fold, fit on all others and predict its rows.

    Parameters
    ----------
    model : estimator
        Fitted or not; it is cloned.
    X : array-like, DataFrame or sparse array of shape (n, d), or kernels (n, n[, p])
        Rows.
    y : ndarray of shape (n,) or (n, n_outputs)
        Targets.
    fold : ndarray of shape (n,)
        From :func:`assign_folds`.
    units : ndarray of shape (n,), default=None
        The group of each row; see :func:`rows_apart`.
    axes : ndarray of shape (n, k - 1), default=None
        Projections by the model fitted to all rows, with which those of the folds are
        aligned; None makes no projections.
    pairwise : bool, default=False
        Whether X holds kernels.
    report : callable, default=None
        Called with the number of each fold and the number of folds.
    **of_rows : ndarray of shape (n,) or None
        Passed to ``fit``, such as sample_weight and groups.

    Returns
    -------
    held_out : HeldOut
        Predictions and projections of the rows.
    """
    classes = np.unique(y) if is_classifier(model) else None
    # Floats, since integer targets must not round predictions. A row in no fold is the
    # only one of its class, so the class of any row in a fold is wrong for it.
    predicted = np.full(y.shape, np.nan)
    if classes is not None:
        predicted = np.full_like(y, y[fold > 0][0])
    n_folds, probability = int(fold.max()), None
    coordinates = None if axes is None else np.full(axes.shape, np.nan)
    first: Any = None, None
    for number in range(1, n_folds + 1):
        if report is not None:
            report(number, n_folds)
        test = np.flatnonzero(fold == number)
        train = rows_apart(fold, number, units, None if classes is None else y)
        given = {k: v[train] for k, v in of_rows.items() if v is not None}
        old = rows_of_fold(X, train, train, pairwise)
        with prefixed(f"Without the rows of fold {number} of {n_folds}: "):
            part = without_caches(model).fit(old, y[train], **given)
        first = (part, train) if number == 1 else first
        new = rows_of_fold(X, test, train, pairwise)
        predicted[test] = to_numpy(part.predict(new))
        # models of precomputed kernels have the method only once they are fitted
        if classes is not None and hasattr(part, "predict_proba"):
            if probability is None:
                probability = np.zeros((len(y), len(classes)))
            probability[test] = probabilities(part, new, classes)
        if coordinates is not None and axes is not None:
            coordinates[test] = _aligned(part, old, new, axes[train])
    return HeldOut(
        predicted,
        y,
        fold,
        f"each row was predicted by a model that had not seen it ({n_folds} folds)",
        classes,
        probability,
        coordinates,
        *first,
    )


def rows_apart(
    fold: np.ndarray, number: int, units: np.ndarray | None, classes: np.ndarray | None
) -> np.ndarray:
    """The rows (m,) from which a model learns to predict those of a fold.

    Rows in no fold, which are those of a class that has a single group, do not help to
    predict other rows of that group, unless only one class would be left without them.
    """
    own = fold == number
    known = own if units is None else np.isin(units, units[own])
    if classes is not None and len(np.unique(classes[~known])) < 2:
        known = own  # without the only other class there is nothing to learn
    return np.flatnonzero(~known)


def _aligned(part: Any, old: Any, new: Any, axes: np.ndarray) -> np.ndarray:
    """Projections of new rows, in the axes of a fit that projects old ones to ``axes``.

    The axes of two fits differ by a rotation, found from the rows they share. A class
    that the part has not seen lacks an axis, which is zero for all rows.
    """
    shared, found = to_numpy(part.transform(old)), to_numpy(part.transform(new))
    wide = ((0, 0), (0, axes.shape[1] - shared.shape[1]))
    rotation, _ = orthogonal_procrustes(np.pad(shared, wide), axes)
    return np.asarray(np.pad(found, wide) @ rotation)


def new_rows(model: Any, X: Any, targets: np.ndarray | None, how: str) -> HeldOut:
    """Predict rows that a fitted model has not seen.

    Parameters
    ----------
    model : estimator
        Fitted classifier or regressor.
    X : array-like or DataFrame of shape (m, d)
        New rows.
    targets : ndarray of shape (m,) or None
        Their targets, if all of them are known.
    how : str
        How the predictions were made.

    Returns
    -------
    held_out : HeldOut
        Predictions and projections of the rows.
    """
    predicted = to_numpy(model.predict(X))
    if not is_classifier(model):
        return HeldOut(predicted, targets, None, how)
    proba, coordinates = (
        to_numpy(getattr(model, name)(X)) if hasattr(model, name) else None
        for name in ("predict_proba", "transform")
    )
    return HeldOut(predicted, targets, None, how, model.classes_, proba, coordinates)

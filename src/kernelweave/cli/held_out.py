"""Predictions and projections of rows by models that have not seen them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import orthogonal_procrustes
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold


@dataclass(frozen=True)
class HeldOut:
    """Predictions for m rows by models that have not seen them.

    Attributes
    ----------
    classes : ndarray of shape (k,)
        All classes.
    predicted : ndarray of shape (m,)
        Predicted classes.
    probability : ndarray of shape (m, k)
        Probability of each class.
    coordinates : ndarray of shape (m, k - 1)
        Projections.
    means : ndarray of shape (k, k - 1)
        Class means to draw; NaN for a class without predicted rows.
    labels : ndarray of shape (m,)
        Class of each row, or the predicted class if the true one is unknown.
    known : bool
        Whether the labels are true classes.
    fold : ndarray of shape (m,) or None
        The fold of the row, from 1, which was held out to predict it; 0 if the row is
        in no fold and has no prediction. None if the rows are not training rows.
    how : str
        How the projections were made.
    """

    classes: np.ndarray
    predicted: np.ndarray
    probability: np.ndarray
    coordinates: np.ndarray
    means: np.ndarray
    labels: np.ndarray
    known: bool
    fold: np.ndarray | None
    how: str

    @property
    def shown(self) -> np.ndarray:
        """Which rows have a prediction, (m,)."""
        if self.fold is None:
            return np.ones(len(self.predicted), dtype=bool)
        return self.fold > 0


def assign_folds(y: np.ndarray, most: int) -> tuple[np.ndarray, list[str]]:
    """Divide the rows into stratified folds.

    Every class has a row in every fold, so that no model lacks a class. The only row
    of a class is in no fold: a model that had not seen it would not know its class.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Classes.
    most : int
        The number of folds, unless a class has fewer rows.

    Returns
    -------
    fold : ndarray of shape (n,)
        The fold of each row, from 1; 0 for the only row of a class.
    remarks : list of str
        Sentences about classes that are too small.
    """
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    several = counts > 1
    if not several.any():
        raise ValueError(
            "no class has two rows, so no row can be predicted by a model that has "
            "not seen it; more rows are needed"
        )
    rows = np.flatnonzero(several[codes])
    size = counts[several].min()
    remarks = []
    if size < most:
        small = classes[several][counts[several].argmin()]
        remarks.append(
            f"{size} folds instead of {most}: the class {str(small)!r} has {size} rows."
        )
    if not several.all():
        single = ", ".join(repr(str(label)) for label in classes[~several][:5])
        more = " and others" if np.count_nonzero(~several) > 5 else ""
        remarks.append(
            f"Classes with a single row cannot be predicted out of fold, so their rows "
            f"have no prediction: {single}{more}."
        )
    fold = np.zeros(len(y), dtype=int)
    splitter = StratifiedKFold(min(most, size), shuffle=True, random_state=0)
    for number, (_, test) in enumerate(splitter.split(rows, y[rows]), start=1):
        fold[rows[test]] = number
    return fold, remarks


def out_of_fold(model: Any, X: np.ndarray, y: np.ndarray, fold: np.ndarray) -> HeldOut:
    """For each fold, fit on all others and predict its rows.

    Parameters
    ----------
    model : estimator
        Classifier fitted on all rows; projections are aligned with its axes.
    X : ndarray of shape (n, d)
        Rows.
    y : ndarray of shape (n,)
        Classes.
    fold : ndarray of shape (n,)
        From :func:`assign_folds`.

    Returns
    -------
    held_out : HeldOut
        Predictions and projections of the rows.
    """
    n, classes = len(y), model.classes_
    whole = np.asarray(model.transform(X))  # (n, k - 1)
    predicted = y.copy()
    probability = np.full((n, len(classes)), np.nan)
    coordinates = np.full(whole.shape, np.nan)
    for number in range(1, fold.max() + 1):
        test = fold == number
        part = clone(model).fit(X[~test], y[~test])
        predicted[test] = part.predict(X[test])
        probability[test] = part.predict_proba(X[test])
        # The axes of two fits differ by a rotation, found from the rows they share.
        shared = np.asarray(part.transform(X[~test]))
        rotation, _ = orthogonal_procrustes(shared, whole[~test])  # (k - 1, k - 1)
        coordinates[test] = np.asarray(part.transform(X[test])) @ rotation
    means = np.full((len(classes), whole.shape[1]), np.nan)
    for c, label in enumerate(classes):
        members = coordinates[(fold > 0) & (y == label)]
        if len(members):
            means[c] = members.mean(axis=0)
    return HeldOut(
        classes,
        predicted,
        probability,
        coordinates,
        means,
        labels=y,
        known=True,
        fold=fold,
        how=f"each row projected by a model that has not seen it ({fold.max()} folds)",
    )


def new_rows(model: Any, X: np.ndarray, labels: np.ndarray | None, how: str) -> HeldOut:
    """Predict rows that a fitted model has not seen.

    Parameters
    ----------
    model : estimator
        Fitted classifier.
    X : ndarray of shape (m, d)
        New rows.
    labels : ndarray of shape (m,) or None
        Their classes, if all of them are known.
    how : str
        How the projections were made.

    Returns
    -------
    held_out : HeldOut
        Predictions and projections of the rows.
    """
    predicted = np.asarray(model.predict(X))
    return HeldOut(
        model.classes_,
        predicted,
        np.asarray(model.predict_proba(X)),
        np.asarray(model.transform(X)),
        model.gaussians_.means,
        labels=predicted if labels is None else labels,
        known=labels is not None,
        fold=None,
        how=how,
    )


def accuracy(right: Sequence[bool] | np.ndarray) -> tuple[float, float]:
    """The share of correct predictions, and its standard error.

    The standard error uses ``(right + 1) / (m + 2)`` in place of the share, so that it
    is positive even if every prediction is correct.
    """
    m, share = len(right), float(np.mean(right))
    likely = (m * share + 1) / (m + 2)
    return share, float(np.sqrt(likely * (1 - likely) / m))

"""Scores of predictions for rows that a model has not seen, in words and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import r2_score, root_mean_squared_error

from kernelweave._text import counted, some
from kernelweave.cli.read import as_written
from kernelweave.cli.samples import Samples, read_target
from kernelweave.learn.estimates import accuracy


def print_score(
    model: Any,
    samples: Samples,
    predicted: np.ndarray,
    label: str | None,
    seen: np.ndarray,
) -> dict[str, Any]:
    """Print the score of the predictions, if the labels are given, and return it.

    Rows that the model was trained on are pointed out; if there are no others, a score
    would say nothing about new rows, so none is given.
    """
    results: dict[str, Any] = {"training_rows": int(seen.sum())}
    if seen.any():
        verb = "was" if seen.sum() == 1 else "were"
        which = f"{seen.sum()} of these rows {verb}"
        which = "All of these rows were" if seen.all() else which
        print(
            f"  {which} used for training, where scores are too optimistic; "
            "'kernelweave evaluate' gives honest ones."
        )
    if label is None:
        print("  No score: name the column of the true labels with --label.")
        return results
    if samples.target is None or not samples.target.notna().any():
        print(f"  No score: there is no label column {label!r}, or it is empty.")
        return results
    if seen.all():
        print("  Their score would say nothing about new rows, so none is given.")
        return results
    try:
        if is_classifier(model):
            score, words = score_classes(predicted, samples.target, model.classes_)
        else:
            truth, _, _ = read_target(samples, "regression")
            known = samples.target.notna().to_numpy()
            score, words = score_numbers(predicted[known], truth)
    except ValueError as error:  # predictions do not need the truth
        print(f"  No score: {error}.")
        return results
    print(f"  {words}")
    return results | score


def score_classes(
    predicted: np.ndarray, given: Any, classes: np.ndarray
) -> tuple[dict[str, Any], str]:
    """Accuracy on the rows whose class is given; unknown classes count as wrong.

    It is an error if all are unknown: the labels then are those of something else.

    Parameters
    ----------
    predicted : ndarray of shape (m,)
        Classes, integers or strings.
    given : Series of length m
        True classes, with gaps.
    classes : ndarray of shape (k,)
        The classes that the model knows.

    Returns
    -------
    score : dict
        ``accuracy``, ``standard_error`` and ``scored_rows``.
    words : str
        The same in a sentence, and one on unknown classes, if there are any.
    """
    known = given.notna().to_numpy()
    truth = [_as_class(value, predicted.dtype) for value in given[known]]
    pairs = zip(predicted[known], truth, strict=True)
    right = np.array([mine == true for mine, true in pairs])
    learned = set(classes.tolist())
    unknown = [true for true in truth if true not in learned]
    if len(unknown) == len(truth):
        raise ValueError(
            f"the label column {given.name!r} holds {str(unknown[0])!r}, and no class "
            f"of the model; these are {some(repr(str(label)) for label in classes)}"
        )
    share, error = accuracy(right)
    words = (
        f"Accuracy on {counted(len(right), 'row')} with a class: {100 * share:.1f} % ± "
        f"{100 * error:.1f} (standard error)."
    )
    if unknown:
        words += (
            f"\n  Counted as wrong: {counted(len(unknown), 'row')} of classes unknown "
            f"to the model, such as {str(unknown[0])!r}."
        )
    score = {"accuracy": share, "standard_error": error, "scored_rows": len(right)}
    return score, words


def score_numbers(
    predicted: np.ndarray, truth: np.ndarray
) -> tuple[dict[str, Any], str]:
    """R^2 and the root mean squared error, like :func:`score_classes`."""
    rmse = root_mean_squared_error(truth, predicted)
    r2 = r2_score(truth, predicted) if np.ptp(truth) > 0 else np.nan
    words = (
        f"R2 on {counted(len(truth), 'row')} with a number: {r2:.3f}; root mean "
        f"squared error {rmse:.4g}."
    )
    return {"r2": r2, "rmse": rmse, "scored_rows": len(truth)}, words


def _as_class(value: Any, dtype: Any) -> Any:
    """A class in the form that the model uses: an integer or text."""
    if not np.issubdtype(dtype, np.integer):
        return str(as_written(value)).strip()
    try:
        number = float(value)
    except (TypeError, ValueError):
        return value  # a class that is unknown to the model
    return as_written(number)

"""Columns of classes: check that of the training rows, and read that of new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.cli.read import MISSING, Table, number

__all__ = ["check_classes", "given_classes"]

#: A column with more distinct values than this hardly ever holds classes.
MANY = 20


def check_classes(y: np.ndarray, column: str, path: Path) -> None:
    """Refuse measurements and identifiers, which a classifier would happily learn.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Integers or strings.
    column : str
        The label column.
    path : Path
        The file.
    """
    n, k = len(y), len(np.unique(y))
    numeric = np.issubdtype(y.dtype, np.integer)
    mostly_distinct = k > max(2, n / 2)  # two rows of two classes are still classes
    if numeric and (k > MANY or mostly_distinct):
        raise ValueError(
            f"the label column {column!r} of {path} holds {k} different numbers in {n} "
            "rows, which look like a measurement rather than classes; bin them into a "
            "few classes, use MultipleKernelRidge in Python to predict numbers, or use "
            "--task classification if they are classes after all"
        )
    if not numeric and mostly_distinct and (k > MANY or k == n):
        raise ValueError(
            f"the label column {column!r} of {path} holds {k} different texts in {n} "
            "rows, which look like row names rather than classes; name the column of "
            "the classes with --label, or use --task classification if they are "
            "classes after all"
        )


def given_classes(table: Table, column: str, classes: np.ndarray) -> list[Any] | None:
    """The classes given in a file of new rows, as values of the model's dtype.

    Parameters
    ----------
    table : Table
        Rows to predict.
    column : str
        The label column of the training rows.
    classes : ndarray of shape (k,)
        Classes of the model.

    Returns
    -------
    given : list of length m, or None
        Class of each row, known to the model or not, and None where the cell is empty.
        None instead of a list if the column is absent or entirely empty.
    """
    if column not in table.header:
        return None
    read = number if np.issubdtype(classes.dtype, np.integer) else str
    texts = table.text(column)
    empty = [text.lower() in MISSING for text in texts]
    if all(empty):
        return None
    # If the classes are numbers, any other text is a class unknown to the model.
    return [
        None if skip else text if (value := read(text)) is None else value
        for text, skip in zip(texts, empty, strict=True)
    ]

"""A column of classes: is it one, and what do the rows of another file say?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.cli.read import MISSING, Table, number

__all__ = ["check_classes", "given_classes"]

#: More different values than this are hardly ever classes.
MANY = 20


def check_classes(y: np.ndarray, column: str, path: Path) -> None:
    """Refuse measurements and identifiers, which a classifier would happily learn.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Whole numbers or texts.
    column : str
        Where they come from.
    path : Path
        The file.
    """
    n, k = len(y), len(np.unique(y))
    numeric = np.issubdtype(y.dtype, np.integer)
    often_new = k > max(2, n / 2)  # two rows of two classes are few, but classes
    if numeric and (k > MANY or often_new):
        raise ValueError(
            f"the label column {column!r} of {path} holds {k} different numbers in {n} "
            "rows, which look like a measurement and not like classes; cut them into a "
            "few classes, use MultipleKernelRidge in Python to predict numbers, or say "
            "--task classification if they are classes after all"
        )
    if not numeric and often_new and (k > MANY or k == n):
        raise ValueError(
            f"the label column {column!r} of {path} holds {k} different texts in {n} "
            "rows, which look like names of rows and not like classes; name the "
            "column of the classes with --label, or say --task classification if they "
            "are classes after all"
        )


def given_classes(table: Table, column: str, classes: np.ndarray) -> list[Any] | None:
    """What a file says about the classes of its rows, in the terms of a model.

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
        Class of each row, of the model or not, and None where the cell is empty. None
        if there is no such column, or nothing in it.
    """
    if column not in table.header:
        return None
    read = number if np.issubdtype(classes.dtype, np.integer) else str
    texts = table.text(column)
    empty = [text.lower() in MISSING for text in texts]
    if all(empty):
        return None
    # Text that is no number is a class that a model of numbers does not know.
    return [
        None if skip else text if (value := read(text)) is None else value
        for text, skip in zip(texts, empty, strict=True)
    ]

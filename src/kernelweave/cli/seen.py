"""What ``kernelweave fit`` notes in a model file; digests tell its rows from others."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from kernelweave.cli.read import pandas_or_why
from kernelweave.cli.samples import Samples

#: The notes of ``kernelweave fit``, and their types ...
NOTES: dict[str, type] = {
    **dict.fromkeys(("label", "id", "groups", "task"), str),
    "rows": int,
    "files": list,
}
#: ... and that with digests.
TRAINING = "training"
#: Numbers are equal to so many digits: not every program writes more than 15.
SAME_DIGITS = 9
#: The most digests that a model file keeps, one per row and view: 3 MB.
MOST_DIGESTS = 2**18


def digests(samples: Samples, y: np.ndarray | None = None) -> Any:
    """A number for the part of each row in each view, 0 where the row lacks the view.

    Parameters
    ----------
    samples : Samples
        The rows.
    y : ndarray of shape (n,), default=None
        Their labels, if these matter.

    Returns
    -------
    found : ndarray of uint64 of shape (n, v + 1)
        Equal for rows with equal cells, whatever the types of their columns. The last
        column is that of the labels, 0 without them.
    """
    found = np.zeros((len(samples.data), len(samples.views) + 1), dtype=np.uint64)
    for j, (_, _, columns) in enumerate(samples.views):
        part = samples.data[columns]
        there = part.notna().any(axis=1).to_numpy()
        found[there, j] = 1  # the hash of 0 is 0, like that of no view
        for i, name in enumerate(columns):
            cells = _cells(part[name])
            found[there, j] += cells[there] * np.uint64(2 * i + 1)  # wraps around
    if y is not None:
        found[:, -1] = _cells(pandas_or_why().Series(y))
    return found


def own_notes(notes: dict[str, Any]) -> dict[str, Any]:
    """The notes that are ours, all or none: a user's may have any name and type."""
    types = NOTES | {TRAINING: str}
    ours = notes if NOTES.keys() <= notes.keys() else {}
    return {k: v for k, v in ours.items() if isinstance(v, types.get(k, ()))}


def digests_as_text(found: Any, most: int = MOST_DIGESTS) -> str:
    """Digests as text, of as many evenly spaced rows as there is room for."""
    step = -(-found.size // most)
    return base64.b64encode(found[::step].astype("<u8").tobytes()).decode("ascii")


def training_digests(
    notes: dict[str, Any], samples: Samples, y: np.ndarray | None = None
) -> tuple[Any, Any]:
    """Digests of the training rows in the notes, (n, v), and of the samples, (m, v).

    There are none (n = 0) if the notes hold something else.
    """
    of_samples = digests(samples, y)
    try:
        raw = np.frombuffer(base64.b64decode(notes.get(TRAINING, "")), dtype="<u8")
        return raw.reshape(-1, of_samples.shape[1]), of_samples
    except ValueError:
        return of_samples[:0], of_samples


def were_seen(new: Any, training: Any) -> np.ndarray:
    """Whether each new row equals a training row in all the views that it has.

    Parameters
    ----------
    new, training : ndarray of shape (m, v) and (n, v)
        Digests.

    Returns
    -------
    seen : ndarray of bool of shape (m,)
    """
    seen = np.zeros(len(new), dtype=bool)
    patterns, which = np.unique(new != 0, axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        if pattern.any():
            known = {row.tobytes() for row in training[:, pattern]}
            mine = np.flatnonzero(which.ravel() == k)
            parts = new[np.ix_(mine, pattern)]
            seen[mine] = [part.tobytes() in known for part in parts]
    return seen


def _cells(column: Any) -> Any:
    """A number for each cell: a hash of its float or its text."""
    pandas = pandas_or_why()
    if pandas.api.types.is_numeric_dtype(column):  # booleans count as numbers
        values = column.to_numpy(dtype=float, na_value=np.nan) + 0.0  # -0 is 0
        share, exponent = np.frexp(values)
        values = np.ldexp(np.round(share, SAME_DIGITS), exponent)
    else:
        pairs = zip(column, column.isna(), strict=True)
        values = np.array(["" if gap else str(v) for v, gap in pairs], dtype=object)
    return pandas.util.hash_array(values)

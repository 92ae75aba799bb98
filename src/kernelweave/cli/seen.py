"""What ``kernelweave fit`` notes in a model file; digests tell its rows from others."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from kernelweave.cli.read import pandas_or_why
from kernelweave.cli.samples import Samples

#: The notes of ``kernelweave fit``, and their types.
NOTES: dict[str, type] = {
    **dict.fromkeys(("label", "id", "groups", "task", "digests"), str),
    "rows": int,
    "files": list,
}
#: The most digests that a model file keeps, one per row and view: 3 MB.
MOST_DIGESTS = 2**18


def digests(samples: Samples) -> Any:
    """A number for the part of each row in each view, 0 where the row lacks the view.

    Parameters
    ----------
    samples : Samples
        The rows.

    Returns
    -------
    found : ndarray of uint64 of shape (n, v)
        Equal for rows with equal cells, whatever the types of their columns. Numbers
        count as equal to nine digits, since not every program writes more than 15.
    """
    found = np.zeros((len(samples.data), len(samples.views)), dtype=np.uint64)
    for j, (_, _, columns) in enumerate(samples.views):
        part = samples.data[columns]
        there = part.notna().any(axis=1).to_numpy()
        for i, name in enumerate(columns):
            mixed = _cells(part[name]) * np.uint64(2 * i + 1)  # wraps around
            found[there, j] += mixed[there]
    return found


def labelled_digests(samples: Samples, y: np.ndarray) -> Any:
    """The :func:`digests` of the rows, and of their labels, (n, v + 1)."""
    labels = _cells(pandas_or_why().Series(y))
    return np.column_stack([digests(samples), labels])


def own_notes(notes: dict[str, Any]) -> dict[str, Any]:
    """The notes that are ours; those of a user may have any name and type."""
    return {k: v for k, v in notes.items() if isinstance(v, NOTES.get(k, ()))}


def digests_as_text(found: Any, most: int = MOST_DIGESTS) -> str:
    """Digests as text, of as many evenly spaced rows as there is room for."""
    step = -(-found.size // most)
    return base64.b64encode(found[::step].astype("<u8").tobytes()).decode("ascii")


def training_digests(notes: dict[str, Any], n_views: int) -> Any:
    """The labelled digests among notes, (n, n_views + 1); no rows if not ours."""
    try:
        raw = base64.b64decode(notes.get("digests", ""))
        return np.frombuffer(raw, dtype="<u8").reshape(-1, n_views + 1)
    except ValueError:
        return np.zeros((0, n_views + 1), dtype="<u8")


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
        values = column.to_numpy(dtype=float, na_value=np.nan)
        share, exponent = np.frexp(values)
        values = np.ldexp(np.round(share, 9), exponent) + 0.0  # -0 is 0
    else:
        pairs = zip(column, column.isna(), strict=True)
        values = np.array(["" if gap else str(v) for v, gap in pairs], dtype=object)
    return pandas.util.hash_array(values)

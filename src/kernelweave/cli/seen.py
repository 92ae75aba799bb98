"""Which rows of a table a saved model was trained on; its file keeps their digests."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from kernelweave.cli.read import pandas_or_why
from kernelweave.cli.samples import Samples

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
        Equal for rows with equal cells, whatever the types of their columns.
    """
    found = np.zeros((len(samples.data), len(samples.views)), dtype=np.uint64)
    for j, (_, _, columns) in enumerate(samples.views):
        part = samples.data[columns]
        there = part.notna().any(axis=1).to_numpy()
        for i, name in enumerate(columns):
            mixed = _cells(part[name]) * np.uint64(2 * i + 1)  # wraps around
            found[there, j] += mixed[there]
    return found


def written(found: Any, most: int = MOST_DIGESTS) -> str:
    """Digests as text, of as many evenly spaced rows as there is room for."""
    n, v = found.shape
    step = -(-n * v // most)
    return base64.b64encode(found[::step].astype("<u8").tobytes()).decode("ascii")


def were_seen(new: Any, training: Any) -> np.ndarray:
    """Whether each new row equals a training row in all the views that it has.

    Parameters
    ----------
    new : ndarray of shape (m, v)
        Digests.
    training : ndarray of shape (n, v) or str
        Digests, or what :func:`written` made of them.

    Returns
    -------
    seen : ndarray of bool of shape (m,)
    """
    if isinstance(training, str):
        raw = np.frombuffer(base64.b64decode(training), dtype="<u8")
        training = raw.reshape(-1, new.shape[1])
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
    else:
        pairs = zip(column, column.isna(), strict=True)
        values = np.array(["" if gap else str(v) for v, gap in pairs], dtype=object)
    return pandas.util.hash_array(values)

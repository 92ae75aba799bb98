"""Rows in portions, of iterators or Arrow datasets, and some rows of any input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse, vstack
from sklearn.utils import _safe_indexing

from kernelweave._array import is_array, namespace, take
from kernelweave.views.columns import is_dict, is_iterator, is_table

Portion = tuple[Any, Any]


def sampled(n_rows: int, size: int, seed: int) -> np.ndarray:
    """Numbers of ``size`` rows drawn from ``n_rows``, or of all, in ascending order."""
    if n_rows <= size:
        return np.arange(n_rows)
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(n_rows, size=size, replace=False))


def portions_of(X: Any, y: Any, size: int) -> Iterator[Portion]:
    """Rows and targets, portion by portion.

    Parameters
    ----------
    X : iterator, pyarrow dataset or table
        The rows; an iterator yields pairs of rows and targets.
    y : str or None
        For pyarrow, the name of the column of targets; None for an iterator.
    size : int
        Number of rows read at a time.
    """
    if is_iterator(X):
        if y is not None:
            raise ValueError(
                f"an iterator yields pairs (X, y): leave out y; got {type(y).__name__}"
            )
        return _pairs(X)
    if not isinstance(y, str) or y not in X.schema.names:
        raise ValueError(
            "with a pyarrow dataset, y is the name of the column of targets, one "
            f"of {X.schema.names}; got {y!r:.80}"
        )
    return _batches(X, y, size)


def _pairs(iterator: Iterator[Any]) -> Iterator[Portion]:
    """The pairs, after checking that each is a pair."""
    for number, pair in enumerate(iterator):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                "an iterator given to fit must yield pairs (X, y) of rows and "
                f"targets; portion {number} is {type(pair).__name__} {pair!r:.60}"
            )
        yield pair


def _batches(data: Any, label: str, portion: int) -> Iterator[Portion]:
    """Batches of rows as pandas DataFrames."""
    size = {"max_chunksize" if is_table(data) else "batch_size": portion}
    for batch in data.to_batches(**size):
        if batch.num_rows:
            frame = batch.to_pandas()
            index = [name for name in frame.index.names if name in batch.schema.names]
            frame = frame.reset_index(index) if index else frame
            yield frame.drop(columns=label), frame[label].to_numpy()


def concatenate_rows(blocks: list[Any]) -> Any:
    """Blocks of rows of any form, stacked in their own library."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat(blocks, ignore_index=True)
    if hasattr(first, "get_column"):
        import polars as pl

        return pl.concat(blocks, how="vertical_relaxed")
    if issparse(first):
        return vstack(blocks).tocsr()
    if is_array(first):
        return namespace(*blocks).concat(blocks, axis=0)
    return first.concatenate(blocks)  # Columns


def select_rows(X: Any, rows: slice | np.ndarray) -> Any:
    """The given rows of an array, sparse array, table or Columns."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if is_table(X) and not isinstance(rows, slice):
        return X.take(rows)
    if not is_array(X):
        return X[rows]
    return X[rows, ...] if isinstance(rows, slice) else take(X, rows)


def rows_of_fold(X: Any, rows: np.ndarray, train: np.ndarray, kernels: bool) -> Any:
    """Some rows of what was given to ``fit``, in its own library.

    Of precomputed ``kernels`` (n, n[, p]), or a dict of them, these are the columns
    ``train``.
    """
    if kernels and is_dict(X):
        return {name: rows_of_fold(X[name], rows, train, kernels) for name in X}
    if kernels and hasattr(X, "iloc"):
        return X.iloc[rows, train]
    if issparse(X):
        return X.tocsr()[rows]
    sliceable = is_array(X) or hasattr(X, "shape") or isinstance(X, list | tuple)
    if kernels or not sliceable:
        X = X if is_array(X) else np.asarray(X)
    if not is_array(X):
        return _safe_indexing(X, rows)
    found = take(X, rows)
    return take(found, train, axis=1) if kernels else found

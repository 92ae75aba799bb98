"""Rows that arrive in portions: slices of arrays, iterators, Arrow datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, validate_data

from kernelweave._array import is_array, is_numpy, namespace
from kernelweave.views.columns import View
from kernelweave.views.validate import split_views, validate_features, validate_new

__all__ = [
    "ArrayStream",
    "ArrowStream",
    "IteratorStream",
    "is_arrow",
    "is_dask",
    "is_iterator",
    "open_stream",
    "split_rows",
    "validate_new_rows",
    "validate_rows",
]

Portion = tuple[Any, Any]


def is_iterator(X: object) -> bool:
    """Whether X yields portions: an iterator or generator, not a list."""
    return hasattr(X, "__next__")


def is_arrow(X: object) -> bool:
    """Whether X is a pyarrow dataset or table."""
    module = type(X).__module__.split(".")[0]
    return module == "pyarrow" and (hasattr(X, "to_batches"))


def is_dask(X: object) -> bool:
    """Whether X is a Dask array, DataFrame or Series."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "dask")


class ArrayStream:
    """An array, memory map, sparse array or DataFrame, read in slices of rows."""

    def __init__(self, X: Any, y: Any, portion: int) -> None:
        self.X, self.y, self.portion = X, y, portion
        self.n_rows: int | None = int(X.shape[0])

    def portions(self) -> Iterator[Portion]:
        """Slices of consecutive rows."""
        n = self.X.shape[0]
        for start in range(0, n, self.portion):
            part = slice(start, min(start + self.portion, n))
            yield select_rows(self.X, part), self.y[part]

    def sample(self, size: int, rng: np.random.Generator) -> Any:
        """A random sample of all rows, in their original order."""
        n = self.X.shape[0]
        if n <= size:
            return self.X
        return select_rows(self.X, np.sort(rng.choice(n, size=size, replace=False)))


class IteratorStream:
    """An iterator over ``(X, y)`` pairs, consumed once."""

    n_rows: int | None = None

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator

    def portions(self) -> Iterator[Portion]:
        """The pairs, after checking that each is a pair."""
        for number, pair in enumerate(self.iterator):
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise TypeError(
                    "an iterator given to fit must yield pairs (X, y) of rows and "
                    f"targets; portion {number} is {type(pair).__name__} {pair!r:.60}"
                )
            yield pair

    def sample(self, size: int, rng: np.random.Generator) -> Any:
        """None: an iterator cannot be rewound, so the first portions must suffice."""
        return None


class ArrowStream:
    """A pyarrow dataset (Parquet, Feather, CSV) or table, one column of which is y.

    Parameters
    ----------
    data : pyarrow.dataset.Dataset or pyarrow.Table
        The rows.
    label : str
        The column with the targets; all others are features.
    portion : int
        Number of rows read at a time.
    """

    def __init__(self, data: Any, label: Any, portion: int) -> None:
        self.n_rows: int | None = None
        if not isinstance(label, str) or label not in data.schema.names:
            raise ValueError(
                "with a pyarrow dataset, y is the name of the column of targets, one "
                f"of {data.schema.names}; got {label!r:.80}"
            )
        self.data, self.label, self.portion = data, label, portion

    def portions(self) -> Iterator[Portion]:
        """Batches of rows as pandas DataFrames."""
        table = hasattr(self.data, "num_columns") and not hasattr(self.data, "scanner")
        size = {"max_chunksize" if table else "batch_size": self.portion}
        for batch in self.data.to_batches(**size):
            if batch.num_rows:
                frame = batch.to_pandas()
                yield frame.drop(columns=self.label), frame[self.label].to_numpy()

    def sample(self, size: int, rng: np.random.Generator) -> Any:
        """None: reading is the expensive part, so the first portions must suffice."""
        return None


def open_stream(X: Any, y: Any, portion: int) -> Any:
    """The stream for any input except Dask collections."""
    if is_iterator(X):
        if y is not None:
            raise ValueError(
                f"an iterator yields pairs (X, y): leave out y, here {type(y).__name__}"
            )
        return IteratorStream(X)
    if is_arrow(X):
        return ArrowStream(X, y, portion)
    return ArrayStream(X, y, portion)


def validate_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Like :func:`validate_features`, but accepts sparse rows, returned as CSR."""
    if not issparse(X):
        return validate_features(estimator, X, reset=reset)
    X = check_array(
        X,
        accept_sparse="csr",
        ensure_all_finite=False,
        dtype=None,
        estimator=estimator,
        input_name="X",
    )
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return X


def validate_new_rows(
    estimator: Any, X: Any, views: list[View], positions: list[list[int]]
) -> tuple[Any, list[list[int]]]:
    """Like :func:`validate_new`, but accepts sparse rows, returned as CSR."""
    if issparse(X):
        return validate_rows(estimator, X, reset=False), positions
    return validate_new(estimator, X, views, positions)


def split_rows(
    X: Any, views: list[View], positions: list[list[int]], dtype: Any = None
) -> list[Any]:
    """Like :func:`split_views`, but sparse rows stay sparse: one CSR block per view."""
    if not issparse(X):
        return split_views(X, views, positions, dtype=dtype)
    dtype = X.dtype if dtype is None and X.dtype == np.float32 else dtype or np.float64
    columns = X.tocsc()
    blocks = [columns[:, chosen].tocsr().astype(dtype) for chosen in positions]
    for view, block in zip(views, blocks, strict=True):
        bad = np.flatnonzero(~np.isfinite(block.data))
        if len(bad):
            row = int(np.searchsorted(block.indptr, bad[0], side="right")) - 1
            found = "NaN" if np.isnan(block.data[bad[0]]) else "infinity"
            raise ValueError(
                f"Input X contains {found}: view {view.name!r}, row {row}, holds "
                f"{block.data[bad[0]]}. Impute such entries, or drop the rows."
            )
    return blocks


def select_rows(X: Any, rows: slice | np.ndarray) -> Any:
    """The given rows of an array, sparse array or DataFrame."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if issparse(X) or is_numpy(X) or not is_array(X):
        return X[rows]
    if isinstance(rows, slice):
        return X[rows, :]
    xp = namespace(X)
    return xp.take(X, xp.asarray(rows, device=X.device), axis=0)

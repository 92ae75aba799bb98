"""Dask: moments of partitions computed on workers, and lazy predictions."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave._text import prefixed
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.kernels.moments import (
    CHUNK_ROWS,
    GROUP,
    TARGET_COLUMNS,
    ChunkRecipe,
    Moments,
    RowAccumulator,
    sum_blocks,
)
from kernelweave.models.streaming.intake import NO_ROWS, Intake
from kernelweave.views.streams import concatenate_rows

if TYPE_CHECKING:  # estimators are built from what is here
    from kernelweave.models.shared.base import KernelModel

#: Largest number of sums at a time: with more chunks, more of them are summed one
#: after the other, so that fewer matrices are transferred.
MOST_BLOCKS = 128


class NumberedRows:
    """Rows of Dask collections by their number, wherever the partitions begin.

    Features, chunks, folds and probes depend on the numbers of rows alone, so the
    model does not depend on the partitions, and is that of the same rows in an array.

    Parameters
    ----------
    X, y : Dask collections
        Rows and targets; lengths that are unknown are counted now.

    Attributes
    ----------
    rows, targets : list of Delayed
        Partitions of consecutive rows.
    ends : ndarray of shape (partitions + 1,)
        The numbers of their first rows and, last, the number of all rows.
    n_rows : int
        The number of all rows.
    """

    def __init__(self, X: Any, y: Any) -> None:
        rows, targets = partitions(X), partitions(y)
        if len(rows) != len(targets):
            raise ValueError(
                f"X has {len(rows)} partitions, but y has {len(targets)}; make both "
                "from the same partitions, or name the column of y"
            )
        self.rows, self.targets = rows, targets
        self.ends = np.cumsum([0, *_lengths(X, rows)])
        self.n_rows = int(self.ends[-1])
        if self.n_rows == 0:
            raise ValueError(NO_ROWS)

    def take(self, numbers: np.ndarray) -> tuple[Any, Any]:
        """Rows and targets with these numbers, in ascending order, in host memory."""
        tasks = []
        for i, (first, end) in enumerate(pairwise(self.ends.tolist())):
            own = numbers[(numbers >= first) & (numbers < end)] - first
            if len(own):
                tasks += self._pick(i, own)
        found = _computed(tasks)
        return concatenate_rows(found[::2]), concatenate_rows(found[1::2])

    def between(self, start: int, stop: int) -> Iterator[tuple[int, int, Any, Any]]:
        """Slices that cover the rows ``start`` to ``stop``: partition, first row, both.

        The first row is numbered within the partition.
        """
        for i, (first, end) in enumerate(pairwise(self.ends.tolist())):
            part = slice(max(start, first) - first, min(stop, end) - first)
            if part.start < part.stop:
                yield i, part.start, *self._pick(i, part)

    def _pick(self, i: int, rows: Any) -> list[Any]:
        """Rows and targets of partition ``i``, numbered within it."""
        import dask

        pick, length = dask.delayed(_picked), int(self.ends[i + 1] - self.ends[i])
        return [pick(part[i], rows, length, i) for part in (self.rows, self.targets)]


def _lengths(X: Any, parts: list[Any]) -> list[int]:
    """The number of rows of each partition."""
    import dask

    if hasattr(X, "rechunk") and not np.isnan(X.chunks[0]).any():
        return [int(size) for size in X.chunks[0]]
    if hasattr(X, "columns"):  # one column is enough, and faster to read
        parts = partitions(X[[X.columns[0]]])
    return [int(size) for size in _computed([dask.delayed(len)(p) for p in parts])]


def _picked(part: Any, rows: Any, length: int, number: int) -> Any:
    """Rows of a partition, which must have the length that was counted."""
    if len(part) != length:
        raise ValueError(
            f"partition {number} of X has {length:,} rows, but {len(part):,} were found"
            " in that of y, or when it was computed again: X and y have inconsistent "
            "numbers of samples. Make both from the same rows, or name the column of y"
        )
    return part.iloc[rows] if hasattr(part, "iloc") else np.asarray(part)[rows]


def dask_moments(
    recipe: ChunkRecipe,
    intake: Intake,
    data: NumberedRows,
    most_blocks: int = MOST_BLOCKS,
) -> Moments:
    """Moments of all rows, summed in an order fixed by their numbers.

    Rows are cut into the chunks of :class:`RowAccumulator`, and these are summed in the
    same order, block by block: one worker after the other adds its rows to the sums of
    a block. A lost worker costs only time: tasks are stateless, so repeating one gives
    the same bits.
    """
    import dask

    _check_workers(recipe)
    shared = dask.delayed((recipe, intake))
    step = dask.delayed(_add_rows)
    chunks, chunk_rows = GROUP, intake.chunk_rows(intake.like)
    while -(-data.n_rows // (chunks * chunk_rows)) > most_blocks:
        chunks *= 2
    size, sums = chunks * chunk_rows, []
    for number, start in enumerate(range(0, data.n_rows, size)):
        stop = min(start + size, data.n_rows)
        pieces, total = list(data.between(start, stop)), None
        for i, (*place, rows, targets) in enumerate(pieces):
            origin = (chunk_rows, number * chunks)
            is_last = i == len(pieces) - 1
            total = step(total, shared, rows, targets, place, origin, is_last)
        sums.append(total)
    rest = sums.pop() if data.n_rows % size else None
    (total,) = _computed([sum_blocks(sums, rest)])
    return total


def partitions(X: Any) -> list[Any]:
    """Delayed blocks of consecutive rows."""
    if hasattr(X, "rechunk"):
        if X.ndim > 1 and X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        return list(X.to_delayed().reshape(-1))
    # Optimised, files of Parquet are joined if few of their columns are read: those of
    # X and y, and what counts their rows, would not have the same partitions.
    return list(X.simplify().to_delayed(optimize_graph=False))


def with_targets(X: Any, y: Any) -> tuple[Any, Any]:
    """X and y with the same partitions; y may be the name of a column of X."""
    if isinstance(y, str):
        if not hasattr(X, "columns") or y not in list(X.columns):
            raise ValueError(f"y={y!r} is not the name of a column of X")
        return X.drop(columns=y), X[y]
    if not hasattr(y, "dask"):
        import dask.array as da

        y, sizes = np.asarray(y), X.chunks[0] if hasattr(X, "rechunk") else np.nan
        if y.ndim == 0 or np.isnan(sizes).any():
            raise ValueError(
                "y must be a Dask collection with the partitions of X, whose sizes are "
                "not known here; or name the column of y, if X is a table, or call "
                "X.compute_chunk_sizes() first, if it is an array"
            )
        y = da.from_array(y, chunks=-1)
    arrays = hasattr(X, "rechunk") and hasattr(y, "rechunk")
    if not arrays or np.isnan([*X.chunks[0], *y.chunks[0]]).any():
        return X, y
    if X.shape[0] != y.shape[0]:
        raise ValueError(
            f"X and y have inconsistent numbers of samples: X has {X.shape[0]:,} rows, "
            f"y has {y.shape[0]:,}. Make both from the same rows"
        )
    return X, y.rechunk((X.chunks[0], *y.chunks[1:]))


def predict_lazily(model: KernelModel, method: str, X: Any) -> Any:
    """A Dask array of the results of a method on each partition of X."""
    import dask
    import dask.array as da

    model = copy.copy(model)
    vars(model).pop("_portions", None)  # useless to workers, and large
    probe = np.asarray(getattr(model, method)(_one_row(X, model)))
    shared = dask.delayed(model)
    call = dask.delayed(_call)
    sizes = X.chunks[0] if hasattr(X, "rechunk") else [np.nan] * X.npartitions
    parts = [
        da.from_delayed(
            call(shared, method, part, i), (size, *probe.shape[1:]), meta=probe[:0]
        )
        for i, (part, size) in enumerate(zip(partitions(X), sizes, strict=True))
    ]
    return da.concatenate(parts, axis=0)


def _one_row(X: Any, model: KernelModel) -> Any:
    """A row of ones with the columns of X, to see what a method returns.

    Columns that the model has never seen are left out, since some cannot hold a one.
    """
    if hasattr(X, "rechunk"):
        return np.ones((1, X.shape[1]), dtype=X.dtype)
    import pandas as pd

    known = set(getattr(model, "feature_names_in_", X.columns))
    names = [name for name in X.columns if name in known] or list(X.columns)
    frame = pd.DataFrame(np.ones((1, len(names))), columns=names)
    return frame.astype({name: X.dtypes[name] for name in names})


def _call(model: KernelModel, method: str, rows: Any, partition: int) -> Any:
    with prefixed(f"In partition {partition}: "):
        return np.asarray(getattr(model, method)(rows))


def _add_rows(
    before: RowAccumulator | None,
    shared: tuple[ChunkRecipe, Intake],
    rows: Any,
    targets: Any,
    place: tuple[int, int],
    origin: tuple[int, int],
    is_last: bool,
) -> RowAccumulator | Moments:
    """Sums ``before``, unchanged, plus rows: as an accumulator or, at the end, moments.

    ``place`` is the partition and its row with which ``rows`` begin, ``origin`` the
    rows per chunk and the number of the first chunk.
    """
    recipe, intake = shared
    with prefixed(f"In partition {place[0]}: "):
        portion = intake.portion(rows, np.asarray(targets), place[1])
    found = RowAccumulator(recipe, *origin) if before is None else copy.copy(before)
    found.recipe = recipe
    found = found.added(*portion)
    if is_last:
        return found.total()
    found.recipe = None  # type: ignore[assignment]  # every worker has it already
    return found


def _computed(tasks: list[Any]) -> list[Any]:
    """The results of delayed tasks, or an error that says why workers died."""
    import dask

    try:
        return list(dask.compute(*tasks))
    except Exception as error:
        if scheduler_lost(error):
            raise ConnectionError(
                "the Dask scheduler went away, or cancelled the work, before all parts "
                "of the input were computed. Rows and model are unchanged; connect to "
                f"a running scheduler, and call fit again. {_says(error)}"
            ) from error
        if type(error).__name__ != "KilledWorker":  # from a package that may be absent
            raise
        raise RuntimeError(
            "the Dask workers that tried one part of the input died, most likely for "
            "exceeding their memory limit; use smaller partitions, a smaller "
            "n_features, or workers with more memory. Rows and model are unchanged, so "
            f"fit can be called again. {_says(error)}"
        ) from error


def scheduler_lost(error: BaseException) -> bool:
    """Whether an error of Dask says that the scheduler is gone."""
    # by name, since the package that defines them may be absent
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"CancelledError", "ClosedClientError", "CommClosedError"})


def _says(error: BaseException) -> str:
    return f"Dask says: {' '.join(str(error).split())}"


def _check_workers(recipe: ChunkRecipe) -> None:
    """Refuse moments that would not fit into the smallest worker's memory."""
    try:
        from distributed import get_client

        workers = get_client().scheduler_info(n_workers=-1)["workers"]
    except (ImportError, ValueError):
        return  # another scheduler, in this process
    limits = [w["memory_limit"] for w in workers.values() if w.get("memory_limit")]
    # About four matrices: sums before and after, those of a chunk, and a copy to send.
    size = recipe.features.n_features + TARGET_COLUMNS
    matrices = 4 * recipe.n_folds
    needed = 8 * (matrices * size * size + 2 * CHUNK_ROWS["cpu"] * size)
    if limits and needed > min(limits):
        raise MemoryRefusedError(
            f"second moments of {recipe.features.n_features} features need "
            f"{needed:,} bytes in every worker, but the smallest has a memory limit of "
            f"{min(limits):,} bytes; use a smaller n_features, fewer kernels, or "
            "workers with more memory"
        )

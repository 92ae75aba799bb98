"""Dask: moments of partitions computed on workers, and lazy predictions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from kernelweave.exceptions import MemoryRefusedError
from kernelweave.kernels.moments import CHUNK_ROWS, ChunkRecipe, Moments, RowAccumulator
from kernelweave.models.streaming.intake import Intake, located

#: Number of partitions from which rows are drawn to fix the features.
SAMPLED_PARTITIONS = 16
#: Largest number of sums at a time: with more partitions, neighbours are summed one
#: after the other, so that fewer matrices are transferred.
MOST_GROUPS = 128
#: The chunks of partition i are numbered from i times this.
PARTITION = 2**32


def dask_sample(X: Any, size: int, seed: int) -> Any:
    """Rows of partitions spread over all of X, in host memory."""
    import dask

    parts = partitions(X)
    chosen = np.unique(
        np.linspace(0, len(parts) - 1, min(SAMPLED_PARTITIONS, len(parts))).astype(int)
    )
    share = -(-size // len(chosen))
    found = _computed(
        [dask.delayed(_some_rows)(parts[i], share, [seed, int(i)]) for i in chosen]
    )
    found = [rows for rows in found if rows.shape[0]]
    if not found:
        raise ValueError("the input has no rows: there is nothing to learn from")
    if hasattr(found[0], "iloc"):
        import pandas as pd

        return pd.concat(found)
    return np.concatenate(found)


def dask_moments(recipe: ChunkRecipe, intake: Intake, X: Any, y: Any) -> Moments:
    """Moments of all partitions, summed in an order fixed by their numbers.

    A partition yields one matrix, whatever its size. Neighbours are summed on the
    worker that has the first of them, then pairs of these sums, and so on. A lost
    worker costs only time: tasks are stateless, so repeating one gives the same bits.
    """
    import dask

    rows, targets = partitions(X), partitions(y)
    if len(rows) != len(targets):
        raise ValueError(
            f"X has {len(rows)} partitions, but y has {len(targets)}; make both from "
            "the same partitions, or name the column of y"
        )
    _check_workers(recipe)
    shared = dask.delayed((recipe, intake))
    step = dask.delayed(_add_partition)
    group = -(-len(rows) // MOST_GROUPS)
    sums: list[Any] = []
    for start in range(0, len(rows), group):
        total = None
        for i in range(start, min(start + group, len(rows))):
            total = step(total, shared, rows[i], targets[i], i)
        sums.append(total)
    merge = dask.delayed(_merge)
    while len(sums) > 1:
        pairs = [sums[i : i + 2] for i in range(0, len(sums), 2)]
        sums = [merge(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    (total,) = _computed(sums)
    if total is None:
        raise ValueError("the input has no rows: there is nothing to learn from")
    return total


def partitions(X: Any) -> list[Any]:
    """Delayed blocks of consecutive rows."""
    if hasattr(X, "rechunk"):
        if X.ndim > 1 and X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        return list(X.to_delayed().reshape(-1))
    return list(X.to_delayed())


def with_targets(X: Any, y: Any) -> tuple[Any, Any]:
    """X and y with the same partitions; y may be the name of a column of X."""
    if isinstance(y, str):
        if not hasattr(X, "columns") or y not in list(X.columns):
            raise ValueError(f"y={y!r} is not the name of a column of X")
        return X.drop(columns=y), X[y]
    if hasattr(X, "rechunk") and not hasattr(y, "dask"):
        import dask.array as da

        y = np.asarray(y)
        if y.ndim == 0 or any(np.isnan(size) for size in X.chunks[0]):
            raise ValueError(
                "y must be a Dask array with the partitions of X, whose sizes are "
                "not known here; or call X.compute_chunk_sizes() first"
            )
        check_consistent_length(X, y)
        return X, da.from_array(y, chunks=(X.chunks[0], *((-1,) * (y.ndim - 1))))
    if hasattr(X, "rechunk") and hasattr(y, "rechunk"):
        known = not any(np.isnan(size) for size in (*X.chunks[0], *y.chunks[0]))
        if known and X.chunks[0] != y.chunks[0]:
            return X, y.rechunk((X.chunks[0], *y.chunks[1:]))
    return X, y


def predict_lazily(model: Any, method: str, X: Any) -> Any:
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
            call(shared, method, part), (size, *probe.shape[1:]), meta=probe[:0]
        )
        for part, size in zip(partitions(X), sizes, strict=True)
    ]
    return da.concatenate(parts, axis=0)


def _one_row(X: Any, model: Any) -> Any:
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


def _call(model: Any, method: str, rows: Any) -> Any:
    return np.asarray(getattr(model, method)(rows))


def _some_rows(rows: Any, size: int, seed: list[int]) -> Any:
    n = rows.shape[0]
    chosen = np.sort(np.random.default_rng(seed).permutation(n)[:size])
    return rows.iloc[chosen] if hasattr(rows, "iloc") else np.asarray(rows)[chosen]


def _add_partition(
    total: Moments | None,
    shared: tuple[ChunkRecipe, Intake],
    rows: Any,
    targets: Any,
    number: int,
) -> Moments | None:
    """``total`` plus the moments of one partition, as a new object."""
    recipe, intake = shared
    if rows.shape[0] == 0:
        return total
    if hasattr(targets, "to_numpy"):
        targets = targets.to_numpy()
    with located(f"partition {number}"):
        y = intake.targets(rows, np.asarray(targets))
        views = intake.rows(rows)
    accumulator = RowAccumulator(recipe, CHUNK_ROWS["cpu"], number * PARTITION)
    accumulator.push(views, y, intake.weights(y))
    found = accumulator.total()
    return found if total is None else total.merge(found)


def _merge(a: Moments | None, b: Moments | None) -> Moments | None:
    if a is None or b is None:
        return a if b is None else b
    return a.merge(b)


def _computed(tasks: list[Any]) -> list[Any]:
    """The results of delayed tasks, or an error that says why workers died."""
    import dask

    try:
        return list(dask.compute(*tasks))
    except Exception as error:
        if type(error).__name__ != "KilledWorker":  # from a package that may be absent
            raise
        raise RuntimeError(
            "the Dask workers that tried one part of the input died, most likely for "
            "exceeding their memory limit; use smaller partitions, a smaller "
            "n_features, or workers with more memory. Rows and model are unchanged, so "
            f"fit can be called again. Dask says: {error}"
        ) from error


def _check_workers(recipe: ChunkRecipe) -> None:
    """Refuse moments that would not fit into the smallest worker's memory."""
    try:
        from distributed import get_client

        workers = get_client().scheduler_info(n_workers=-1)["workers"]
    except (ImportError, ValueError):
        return  # another scheduler, in this process
    limits = [w["memory_limit"] for w in workers.values() if w.get("memory_limit")]
    size = recipe.features.n_features + 32
    needed = 8 * (4 * recipe.n_folds * size * size + 2 * CHUNK_ROWS["cpu"] * size)
    if limits and needed > min(limits):
        raise MemoryRefusedError(
            f"second moments of {recipe.features.n_features} features need "
            f"{needed:,} bytes in every worker, but the smallest has a memory limit of "
            f"{min(limits):,} bytes; use a smaller n_features, fewer kernels, or "
            "workers with more memory"
        )

"""Threads: one for small problems, where more only wait for it, and all for large ones.

A fit of a few hundred rows makes thousands of calls of a few microseconds to LAPACK.
OpenBLAS wakes all its threads for each of them, and those that find nothing to do spin
until the call is over: on two cores, a fit of 500 rows took ten times the processor
time of a fit with one thread, and on a busy machine ten times as long.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from kernelweave._array import is_array, is_numpy

Part = TypeVar("Part")
Result = TypeVar("Result")

#: Fits to n rows with n^2 up to this, and predictions of m rows from n with m n up to
#: this, use one thread. Fits of 100 to 2000 rows were slower with two threads than
#: with one, by a factor that fell from 10 to 2.
FEW_ENTRIES = 2000**2


@functools.cache
def _libraries() -> list[Any]:
    """Libraries of linear algebra; finding them takes 25 ms, setting them 25 us."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@contextmanager
def few_threads(X: Any, row_size: int | None = None) -> Iterator[None]:
    """One thread of linear algebra if X has few rows; otherwise as many as before.

    Parameters
    ----------
    X : object
        Rows. Those in portions, of unknown number, and arrays of other libraries than
        NumPy, which have threads or devices of their own, change nothing.
    row_size : int, optional
        Entries computed for each row; by default, as many as there are rows.
    """
    n_rows = None if is_array(X) and not is_numpy(X) else _n_rows(X)
    if n_rows is None or n_rows * (row_size or n_rows) > FEW_ENTRIES:
        yield
        return
    with _one_thread():
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread of linear algebra."""
    # Some libraries count threads per calling thread, others for the whole process.
    # Where fits overlap, only those that found several threads restore them, so that
    # neither kind is left with one.
    found = [(library, library.get_num_threads()) for library in _libraries()]
    several = [(library, number) for library, number in found if (number or 1) > 1]
    try:
        for library, _ in several:
            library.set_num_threads(1)
        yield
    finally:
        for library, number in several:
            library.set_num_threads(number)


def in_threads(
    task: Callable[[list[Part]], Result], parts: Sequence[Part], entries: int
) -> list[Result]:
    """Deal parts out to as many threads as linear algebra may use at this moment.

    NumPy computes without Python's lock, so that passes over matrices gain as much
    from a second core as BLAS does.

    Parameters
    ----------
    task : callable
        Takes the parts of one thread, in their order.
    parts : sequence
        Independent parts of the work.
    entries : int
        Numbers that are computed altogether; for few, no thread is started.

    Returns
    -------
    results : list
        One for each thread.
    """
    numbers = [library.get_num_threads() or 1 for library in _libraries()]
    count = min(max(numbers, default=1), len(parts))
    if count <= 1 or entries <= FEW_ENTRIES:
        return [task(list(parts))]
    dealt = [list(parts[i::count]) for i in range(count)]
    # Each thread works in a copy of the context, which holds NumPy's error state.
    contexts = [contextvars.copy_context() for _ in dealt]
    with _one_thread(), ThreadPoolExecutor(count) as pool:
        pairs = zip(contexts, dealt, strict=True)
        futures = [pool.submit(context.run, task, own) for context, own in pairs]
        return [future.result() for future in futures]


def _n_rows(X: Any) -> int | None:
    """The number of rows, if it is known."""
    if hasattr(X, "dask"):
        return None
    shape = getattr(X, "shape", None)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    return len(X) if isinstance(X, list | tuple) else None

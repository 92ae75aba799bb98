"""Threads of linear algebra: one for small problems, where more only wait for it.

A fit of a few hundred rows makes thousands of calls of a few microseconds to LAPACK.
OpenBLAS wakes all its threads for each of them, and those that find nothing to do spin
until the call is over: on two cores, a fit of 500 rows took ten times the processor
time of a fit with one thread, and on a busy machine ten times as long.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

from kernelweave._array import is_array, is_numpy

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


def _n_rows(X: Any) -> int | None:
    """The number of rows, if it is known."""
    if hasattr(X, "dask"):
        return None
    shape = getattr(X, "shape", None)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    return len(X) if isinstance(X, list | tuple) else None

"""Lazy predictions on Dask arrays and data frames."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kernelweave.models.streaming.dask import predict_lazily
from kernelweave.views.streams import is_dask

__all__ = ["lazily"]


def lazily(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of rows X return a lazy Dask array when X is a Dask collection."""

    @functools.wraps(method)
    def now_or_later(self: Any, X: Any) -> Any:
        if is_dask(X):
            return predict_lazily(self, method.__name__, X)
        return method(self, X)

    return now_or_later

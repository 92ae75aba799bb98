"""Views that compute the same kernel: no data can tell their weights apart."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from kernelweave._array import is_array
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels.spec import KERNELS
from kernelweave.kernels.transformed import Pipe
from kernelweave.views.spec import View

__all__ = ["warn_twins"]


def warn_twins(views: list[View], positions: list[list[int]]) -> None:
    """Warn of views with the same columns and the same kernel, once for all of them.

    Parameters
    ----------
    views : list of View
        Names and kernels.
    positions : list of list of int
        Columns of each view; views may share some.
    """
    owners: dict[Hashable, dict[str, None]] = {}
    for view, columns in zip(views, positions, strict=True):
        for kernel in _single(view.kernel):
            # The order of columns is nothing to these kernels; others may look at it.
            blind = kernel == "auto" or type(kernel) in KERNELS.values()
            place = tuple(sorted(columns) if blind else columns)
            owners.setdefault((place, _key(kernel)), {})[view.name] = None
    groups = dict.fromkeys(tuple(names) for names in owners.values() if len(names) > 1)
    if groups:
        which = "; ".join(" and ".join(map(repr, names)) for names in groups)
        warnings.warn(
            f"the views {which} have a kernel with equal parameters on the same "
            "columns: their weights cannot be told apart. Keep one of them, or read "
            "the sum of their weights",
            KernelWarning,
            stacklevel=2,
        )


def _single(spec: Any) -> Iterator[Any]:
    """The kernels of a view one by one, with objects in place of names."""
    if isinstance(spec, list | tuple):
        for item in spec:
            yield from _single(item)
    elif isinstance(spec, Pipe):
        for kernel in _single(spec.kernel):
            yield Pipe(spec.transformer, kernel)
    else:
        yield KERNELS[spec]() if isinstance(spec, str) and spec in KERNELS else spec


def _key(value: Any) -> Hashable:
    """Equal for kernels, transformers and parameters that do the same."""
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if hasattr(value, "get_params") and not isinstance(value, type):
        params = value.get_params(deep=False)
        return type(value), tuple((name, _key(params[name])) for name in sorted(params))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return id(value)
    return id(value) if is_array(value) else value

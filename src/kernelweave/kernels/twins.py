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
    """Issue one warning about all views that share both columns and a kernel.

    Parameters
    ----------
    views : list of View
        The names and kernels of the views.
    positions : list of list of int
        Columns of each view; views may share some.
    """
    owners: dict[Hashable, dict[str, None]] = {}
    for view, columns in zip(views, positions, strict=True):
        for kernel in _single(view.kernel):
            # Built-in kernels ignore the order of the columns; others may not.
            any_order = kernel == "auto" or type(kernel) in KERNELS.values()
            place = tuple(sorted(columns) if any_order else columns)
            owners.setdefault((place, _key(kernel)), {})[view.name] = None
    groups = dict.fromkeys(tuple(names) for names in owners.values() if len(names) > 1)
    if groups:
        which = "; ".join(" and ".join(map(repr, names)) for names in groups)
        warnings.warn(
            f"the views {which} have a kernel with equal parameters on the same "
            "columns: their weights cannot be told apart. Keep one of them, or "
            "interpret only the sum of their weights",
            KernelWarning,
            stacklevel=2,
        )


def _single(spec: Any) -> Iterator[Any]:
    """The kernels of a view one by one, with kernel objects in place of names."""
    if isinstance(spec, list | tuple):
        for item in spec:
            yield from _single(item)
    elif isinstance(spec, Pipe):
        for kernel in _single(spec.kernel):
            yield Pipe(spec.transformer, kernel)
    else:
        yield KERNELS[spec]() if isinstance(spec, str) and spec in KERNELS else spec


def _key(value: Any) -> Hashable:
    """A hashable key, equal for kernels, transformers or parameters that are equal."""
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

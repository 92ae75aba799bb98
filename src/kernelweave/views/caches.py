"""Parameters of nested estimators that name files, which a saved model may not have.

Of scikit-learn's these are ``memory``, a folder from which a fit reads pickles, which
run code, and ``input="filename"``, with which a vectoriser opens the files that the
rows name.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

#: Code, whose parts belong to no model, and what has no parts.
WITHOUT_PARTS = (type, ModuleType, FunctionType, BuiltinFunctionType, str, int, float)
#: Parameters with which a search changes those of its estimator at every fit.
GRIDS = ("param_grid", "param_distributions")

AnyEstimator = TypeVar("AnyEstimator")


def parts_of(whole: Any) -> Iterator[Any]:
    """An object and all that it refers to, at any depth, except for code."""
    waiting, met = [whole], {}
    while waiting:
        part = waiting.pop()
        if id(part) in met or isinstance(part, WITHOUT_PARTS):
            continue
        met[id(part)] = part  # which also keeps its id from being used again
        yield part
        waiting += gc.get_referents(part)
        if isinstance(part, np.ndarray) and part.dtype.hasobject:
            waiting += part.ravel().tolist()  # the collector does not look into arrays


def names_cache(value: Any) -> bool:
    """Whether a value of ``memory`` names a folder, or is a ``joblib.Memory``."""
    return isinstance(value, str | os.PathLike) or hasattr(value, "cache")


def forget_caches(model: Any) -> None:
    """Set ``memory`` to None in all estimators inside a model, which is changed."""
    for attributes in _attributes(model):
        if names_cache(attributes.get("memory")):
            attributes["memory"] = None


def without_caches(estimator: AnyEstimator) -> AnyEstimator:
    """An unfitted copy that neither reads nor writes a cache when it is fitted."""
    copy = clone(estimator)
    forget_caches(copy)
    return copy


def why_not_storable(model: Any) -> str | None:
    """Which parameter would let fits of a saved model read files, if one would."""
    for attributes in _attributes(model):
        if _reads_files(attributes.get("input")):
            return (
                f"its parameter input={attributes['input']!r} opens the files that "
                "the rows name: read them first, and use input='content'"
            )
        names = {name for name in attributes if "__" in name and name[0] != "_"}
        for grid in (attributes.get(name) for name in GRIDS):
            if isinstance(grid, Mapping):
                names.update(map(str, grid))
            elif isinstance(grid, Iterable):
                names.update(*(map(str, g) for g in grid if isinstance(g, Mapping)))
        for name in sorted(names):
            if name.rpartition("__")[2] in ("memory", "input"):
                return (
                    f"it sets {name!r} at every fit, which names a cache, or says "
                    "whether files are read: leave it out of the search"
                )
    return None


def _attributes(model: Any) -> Iterator[dict[str, Any]]:
    """The attributes of all estimators inside a model."""
    for part in parts_of(model):
        if hasattr(type(part), "get_params") and hasattr(part, "__dict__"):
            yield vars(part)


def _reads_files(value: Any) -> bool:
    return isinstance(value, str) and value in ("filename", "file")

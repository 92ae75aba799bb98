"""Nested parameters of the kernels inside ``views``, as GridSearchCV needs them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from datetime import date
from typing import Any

import numpy as np
from sklearn.base import clone

from kernelweave._text import did_you_mean
from kernelweave.views.columns import plain_columns


def kernels_of_views(views: Any, own: list[str]) -> dict[str, Any]:
    """Kernels by view name, unless it is one of the estimator's ``own`` parameters.

    Empty where ``views`` is not a list of views.
    """
    views = views if isinstance(views, list) else []
    if not all(isinstance(view, tuple) and len(view) == 3 for view in views):
        return {}
    return {
        name: kernel
        for name, kernel, _ in views
        if isinstance(name, str) and name not in own
    }


def params_of_views(views: Any, own: list[str]) -> dict[str, Any]:
    """Kernels by view name, and their parameters.

    For ``views=[("rna", kernel, columns), ...]``, ``rna`` is the kernel as a whole,
    ``rna__gamma`` one of its parameters, and ``rna__0__gamma`` a parameter of the first
    kernel if a list of kernels was given.
    """
    params: dict[str, Any] = {}
    for name, kernel in kernels_of_views(views, own).items():
        params[name] = kernel
        params.update((f"{name}__{k}", v) for k, v in nested_params(kernel))
    return params


def with_params_of_views(
    views: Any, params: dict[str, Any], own: list[str], owner: str
) -> tuple[Any, dict[str, Any]]:
    """Views with ``params`` of their kernels changed, and the other parameters.

    The views are a new list with new kernels: the objects passed by the user are never
    modified. ``owner`` names the estimator in messages.
    """
    kernels, changes = kernels_of_views(views, own), _by_head(params)
    for head in changes:
        if head not in own and head not in kernels:
            raise ValueError(
                f"Invalid parameter {head!r} for {owner}: it has no parameter and no "
                f"view of this name.{did_you_mean(head, [*own, *kernels])} Its views "
                f"are {list(kernels)!r}, its parameters {own!r}."
            )
    new = {
        name: with_params(kernel, changes[name], name)
        for name, kernel in kernels.items()
        if name in changes
    }
    if new:
        views = [(v[0], new.get(v[0], v[1]), v[2]) for v in views]
    return views, {k: v for k, v in params.items() if k.partition("__")[0] not in new}


def storable(state: dict[str, Any], own: list[str], owner: str) -> dict[str, Any]:
    """The state to save: arrays in place of tables, and no reference to the owner."""
    for name in own:
        if hasattr(state.get(name), "iloc"):  # such as priors; files hold arrays
            state = state | {name: state[name].to_numpy()}
    classes = state.get("class_weight")
    if isinstance(classes, dict):
        kept = {_storable_label(label): classes[label] for label in classes}
        state = state | {"class_weight": kept}
    if "_metadata_request" in state:
        request = _with_named_owner(state["_metadata_request"], owner)
        state = state | {"_metadata_request": request}
    views = state["views"]
    if not kernels_of_views(views, own):
        return state
    views = [(name, kernel, plain_columns(columns)) for name, kernel, columns in views]
    return state | {"views": views}


def _storable_label(label: Any) -> Any:
    """An equivalent key of ``class_weight`` that a file can hold."""
    if isinstance(label, bool | np.bool_):  # files turn False into True, but keep 0
        return int(label)
    if isinstance(label, date):
        return label.isoformat()
    return str(label) if isinstance(label, np.datetime64) else label


def _with_named_owner(request: Any, owner: str) -> Any:
    """Metadata requests that name their estimator instead of holding it.

    Files cannot hold an estimator inside itself.
    """
    request = copy(request)
    request.owner = owner
    for method, part in list(vars(request).items()):
        if hasattr(part, "owner"):
            setattr(request, method, copy(part))
            getattr(request, method).owner = owner
    return request


def nested_params(kernel: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the parameters of a kernel, or of a list of kernels."""
    if isinstance(kernel, list):
        for index, item in enumerate(kernel):
            yield str(index), item
            yield from ((f"{index}__{k}", v) for k, v in nested_params(item))
    elif hasattr(kernel, "get_params") and not isinstance(kernel, type):
        yield from kernel.get_params(deep=True).items()


def with_params(kernel: Any, params: dict[str, Any], path: str) -> Any:
    """A copy of ``kernel`` (an object or a list of objects) with ``params`` changed.

    Parameters
    ----------
    kernel : object
        The kernel, which is not modified.
    params : dict
        Nested names, such as ``gamma`` or ``0__gamma``, mapped to values; the name ""
        stands for the kernel itself.
    path : str
        Name of the kernel in error messages.

    Returns
    -------
    changed : object
    """
    params = dict(params)
    kernel = params.pop("", kernel)
    if not params:
        return kernel
    if isinstance(kernel, list):
        kernel = list(kernel)
        for head, changes in _by_head(params).items():
            if not (head.isdecimal() and int(head) < len(kernel)):
                raise ValueError(
                    f"{path!r} is a list of {len(kernel)} kernels: {path}__{head} is "
                    f"not one of {path}__0, ..., {path}__{len(kernel) - 1}."
                )
            item = kernel[int(head)]
            kernel[int(head)] = with_params(item, changes, f"{path}__{head}")
        return kernel
    if not hasattr(kernel, "set_params") or isinstance(kernel, type):
        raise ValueError(
            f"Cannot set {path}__{next(iter(params))}: the kernel of {path!r} is "
            f"{kernel!r}, which has no parameters to set. Use a kernel object such as "
            "RBF(gamma=...) instead."
        )
    known = list(kernel.get_params(deep=False))
    for name in _by_head(params):
        if name not in known:
            raise ValueError(
                f"Invalid parameter {name!r} for the kernel {kernel!r} of {path!r}. "
                f"Its parameters are {known!r}."
            )
    return clone(kernel).set_params(**params)


def _by_head(params: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Group ``{"a__b": v}`` as ``{"a": {"b": v}}``; the key "" stands for a itself."""
    grouped: dict[str, dict[str, Any]] = {}
    for key, value in params.items():
        head, _, rest = key.partition("__")
        grouped.setdefault(head, {})[rest] = value
    return grouped

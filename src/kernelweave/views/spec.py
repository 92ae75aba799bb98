"""The ``views`` parameter of every estimator: ``[(name, kernel, columns), ...]``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

__all__ = ["View", "is_precomputed", "parse_views"]

EXPECTED = (
    "views must be None (all columns), 'precomputed', or a list of "
    "(name, kernel, columns) tuples such as [('rna', 'auto', ['g1', 'g2'])]"
)


@dataclass(frozen=True)
class View:
    """A group of columns and the kernels to be computed on it.

    Parameters
    ----------
    name : str
        Name of the view; the prefix of its nested parameters.
    kernel : object
        Anything that :func:`kernelweave.kernels.spec.resolve_kernels` accepts.
    columns : object
        Anything that :func:`kernelweave.views.columns.resolve_columns` accepts.
    """

    name: str
    kernel: Any
    columns: Any


def is_precomputed(views: object) -> bool:
    """Whether ``views`` says that X holds precomputed kernel matrices."""
    return isinstance(views, str) and views == "precomputed"


def parse_views(views: object, *, reserved: Collection[str] = ()) -> list[View]:
    """Turn the ``views`` parameter into a list of :class:`View`.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns) tuples
        None stands for a single view named "all": every column, with the kernel "auto".
    reserved : collection of str
        Parameter names of the estimator, which no view may use.

    Returns
    -------
    parsed : list of View
        Empty for "precomputed", where there are no column groups.
    """
    if views is None:
        return [View("all", "auto", slice(None))]
    if is_precomputed(views):
        return []
    if isinstance(views, str):
        raise ValueError(f"{EXPECTED}; found the string {views!r}.")
    if not isinstance(views, list):
        raise TypeError(f"{EXPECTED}; found {_brief(views)}.")
    if not views:
        raise ValueError(f"{EXPECTED}; found an empty list.")
    parsed = [_parse_view(index, view) for index, view in enumerate(views)]
    _check_names([view.name for view in parsed], reserved)
    return parsed


def _parse_view(index: int, view: object) -> View:
    if not isinstance(view, tuple):
        raise TypeError(f"{EXPECTED}; found {_brief(view)} at position {index}.")
    if len(view) != 3:
        raise ValueError(
            f"{EXPECTED}; found a tuple of length {len(view)} at position {index}: "
            f"{view!r:.200}."
        )
    name = view[0]
    if not isinstance(name, str):
        raise TypeError(
            f"The name of a view must be a str; found {_brief(name)} at position "
            f"{index} of views. The order is (name, kernel, columns)."
        )
    return View(*view)


def _check_names(names: list[str], reserved: Collection[str]) -> None:
    for index, name in enumerate(names):
        if not name:
            raise ValueError(f"The name of the view at position {index} is empty.")
        if "__" in name:
            raise ValueError(
                f"The name of a view must not contain '__'; found {name!r}. Two "
                "underscores separate a view from its kernel's parameters."
            )
        if name in reserved:
            raise ValueError(
                f"The view name {name!r} is also a parameter of the estimator. "
                "Choose another name for the view."
            )
        if name in names[:index]:
            raise ValueError(
                f"The view name {name!r} is used twice, at positions "
                f"{names.index(name)} and {index} of views. To use several kernels on "
                "the same columns, give one view a list of kernels."
            )


def _brief(value: object) -> str:
    return f"{type(value).__name__} {value!r:.80}"

"""The parameters of an estimator that a fit depends on, frozen."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["read_options"]

T = TypeVar("T")


def read_options(kind: type[T], model: Any) -> T:
    """The dataclass ``kind`` with the values that ``model`` has for its fields now."""
    return kind(**{field.name: getattr(model, field.name) for field in fields(kind)})  # type: ignore[arg-type]

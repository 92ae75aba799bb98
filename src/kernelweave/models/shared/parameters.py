"""Values that parameters may take: one table per estimator, and one check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

__all__ = [
    "COMMON",
    "Rule",
    "boolean",
    "check_choice",
    "check_parameters",
    "number",
    "one_of",
    "positive",
    "read_options",
    "whole",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Rule:
    """Allowed values, in words and as a test."""

    text: str
    allows: Callable[[Any], bool]


def one_of(*words: str) -> Rule:
    """One of these words."""
    text = f"one of {', '.join(map(repr, words))}"
    return Rule(text, lambda v: isinstance(v, str) and v in words)


def number(text: str, test: Callable[[Any], bool], *words: str) -> Rule:
    """A number that passes a test, or one of these words."""

    def allows(value: Any) -> bool:
        if isinstance(value, str):
            return value in words
        real = isinstance(value, int | float | np.number)
        return real and not isinstance(value, bool | np.bool_) and bool(test(value))

    return Rule(" or ".join([text, *map(repr, words)]), allows)


def positive(*words: str) -> Rule:
    """A finite number above zero, or one of these words."""
    return number("a finite number > 0", lambda v: np.isfinite(v) and v > 0, *words)


def whole(lowest: int, optional: bool = False) -> Rule:
    """An integer of at least ``lowest``, or None if ``optional``."""
    rule = number(f"an int >= {lowest}", lambda v: _is_int(v, lowest))
    if not optional:
        return rule
    return Rule(f"None or {rule.text}", lambda v: v is None or rule.allows(v))


def boolean() -> Rule:
    """True or False."""
    return Rule("a bool", lambda v: isinstance(v, bool | np.bool_))


#: The parameters that all estimators have.
COMMON = {
    "psd": one_of("error", "clip", "trust"),
    "missing": one_of("error", "available", "zero"),
    "verbose": whole(0),
}


def check_parameters(estimator: Any, table: Mapping[str, Rule]) -> None:
    """Refuse the first parameter whose value breaks its rule."""
    for name, rule in table.items():
        value = getattr(estimator, name)
        if not rule.allows(value):
            raise ValueError(
                f"The {name!r} parameter of {type(estimator).__name__} must be "
                f"{rule.text}; got {value!r}"
            )


def _is_int(value: Any, lowest: int) -> bool:
    """Whether ``value`` is an integer of at least ``lowest``."""
    return isinstance(value, Integral) and int(value) >= lowest


def check_choice(estimator: Any, name: str, choices: tuple[str, ...]) -> None:
    """Refuse a parameter that is not one of ``choices``."""
    check_parameters(estimator, {name: one_of(*choices)})


def read_options(kind: type[T], model: Any) -> T:
    """The dataclass ``kind`` filled with the model's current values of its fields."""
    return kind(**{field.name: getattr(model, field.name) for field in fields(kind)})  # type: ignore[arg-type]

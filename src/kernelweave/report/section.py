"""Parts of the page: what they hold, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

from sklearn.base import clone

#: Views, columns and classes beyond these numbers are left out of the pictures.
MOST_VIEWS, MOST_COLUMNS, MOST_CLASSES = 30, 10, 8

#: What the template shows; ``why``, if not empty, stands in place of the rest.
Section = dict[str, Any]
P = ParamSpec("P")


@dataclass(frozen=True)
class Request:
    """What a page is to be about: see :func:`kernelweave.report.write_report`."""

    model: Any
    X: Any
    y: Any
    groups: Any
    sample_weight: Any
    cv: int
    n_resamples: int
    n_decoys: int
    random_state: Any
    say: Callable[[str], object]


def or_why(make: Callable[P, Section]) -> Callable[P, Section]:
    """A function that makes a section, or says why there is none.

    Whatever goes wrong in one part of the page must not cost the others, which may
    have taken an hour; so every error is caught, and told on the page.
    """

    @wraps(make)
    def made(*args: P.args, **settings: P.kwargs) -> Section:
        try:
            return {"why": "", **make(*args, **settings)}
        except Exception as error:
            told = " ".join(str(error).split()) or type(error).__name__
            first = told.partition(" ")[0]  # the name of a function stays as it is
            return {"why": told if "_" in first else told[0].upper() + told[1:]}

    return made


def without_folds(model: Any) -> Any:
    """A copy that makes no score of its own: folds inside folds take long."""
    copy = clone(model)
    return copy.set_params(cv=None) if "cv" in copy.get_params() else copy


def shares_of(model: Any) -> dict[str, float]:
    """The share of each view, the largest first; empty if the model has none."""
    shares = getattr(model, "view_shares_", None) or {}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def counted(n: int, thing: str) -> str:
    """A number and what it counts: 1 view, 2 views."""
    return f"{n} {thing}" + ("" if n == 1 else "s")

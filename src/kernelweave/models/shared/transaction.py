"""A call that fails leaves the estimator as it was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.callback import with_callbacks

__all__ = ["KernelTransformer", "all_or_nothing", "fit_method"]


def all_or_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that changes an estimator as a whole or, if it fails, not at all.

    A fit sets its attributes one after the other; an error, an interrupt from the
    keyboard or a warning turned into an error would leave new ones beside old ones.
    Then all of them are put back, and so is a ``RandomState`` that was drawn from. To
    remember references is enough: a fit makes new objects, and never writes to those
    of an earlier one.
    """

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        rng = before.get("random_state")
        draws = rng.get_state() if isinstance(rng, np.random.RandomState) else None
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            # One step without a call: Python lets no second interrupt come between.
            self.__dict__ = before
            if draws is not None:
                rng.set_state(draws)  # type: ignore[union-attr]
            raise

    return whole


def fit_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """A ``fit`` with scikit-learn's callbacks that leaves no trace if it fails."""
    return all_or_nothing(with_callbacks(method))


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Transformer whose ``fit_transform`` counts as one call: both, or neither."""

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)

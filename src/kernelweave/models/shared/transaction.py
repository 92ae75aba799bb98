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
    """A method that changes an estimator completely or, if it fails, not at all.

    A fit sets its attributes one by one; an error, a keyboard interrupt or a warning
    turned into an error would leave a mixture of new and old ones. In that case all of
    them are restored, and so is the state of a ``RandomState`` that was drawn from.
    Saving references is enough: a fit creates new objects and never modifies those of
    an earlier fit.
    """

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        rng = before.get("random_state")
        draws = rng.get_state() if isinstance(rng, np.random.RandomState) else None
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            # A single step without a call, so no second interrupt can come between.
            self.__dict__ = before
            if draws is not None:
                rng.set_state(draws)  # type: ignore[union-attr]
            raise

    return whole


def fit_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """A ``fit`` with scikit-learn's callbacks that leaves no trace if it fails."""
    return all_or_nothing(with_callbacks(method))


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Transformer whose ``fit_transform`` succeeds or fails as a single call."""

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)

"""Sections of the page: what they hold, or why they are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, ParamSpec

import numpy as np
from sklearn.base import is_classifier

from kernelweave.evaluation.evaluate import evaluate
from kernelweave.fits.targets import StandardOutputs
from kernelweave.views.columns import is_precomputed
from kernelweave.views.streams import rows_of_fold

#: The most views, columns and classes that a picture shows.
MOST_VIEWS, MOST_COLUMNS, MOST_CLASSES = 30, 10, 8

#: Contents of a section; ``why``, if not empty, stands in place of the rest.
Section = dict[str, Any]
P = ParamSpec("P")


@dataclass(frozen=True, eq=False)
class Case:
    """A model, the rows it was fitted on, and its performance on held-out ones.

    Attributes
    ----------
    model, n_resamples, n_decoys
        As in :func:`kernelweave.report.write_report`.
    X, y : array-like
        Rows, or a stack of kernels (n, n, p), and targets.
    how : dict
        For :func:`kernelweave.evaluation.evaluate`: ``cv``, ``random_state``,
        ``groups``, ``sample_weight`` and ``report``.
    """

    model: Any
    X: Any
    y: np.ndarray
    n_resamples: int
    n_decoys: int
    how: dict[str, Any]

    @property
    def data(self) -> tuple[Any, Any, np.ndarray]:
        """The model, X and y."""
        return self.model, self.X, self.y

    @property
    def drawn(self) -> dict[str, Any]:
        """Which rows are drawn together, and the seed of the draws."""
        return {name: self.how[name] for name in ("groups", "random_state")}

    @cached_property
    def result(self) -> Any:
        """The model compared with its baselines on held-out rows."""
        return evaluate(*self.data, **self.how)

    @cached_property
    def unit(self) -> np.ndarray:
        """Units in which several outputs count alike, (q,); 1 for any other target."""
        if is_classifier(self.model) or self.y.ndim < 2 or self.y.shape[1] < 2:
            return np.ones(1)
        return StandardOutputs.of(self.y.astype(np.float64)).unit

    @property
    def held(self) -> Any:
        """The rows, each predicted by a model that had not seen it."""
        return self.result.held_out

    def rows(self, numbers: np.ndarray) -> Any:
        """Some rows of X, for the model that predicted the first fold."""
        pairwise = is_precomputed(self.model.views)
        return rows_of_fold(self.X, numbers, self.held.train, pairwise)


def or_why(make: Callable[P, Section]) -> Callable[P, Section]:
    """A function that makes a section, or says why there is none.

    Whatever goes wrong in one section must not cost the others, which may have taken an
    hour; so every error is caught, and the page states it.
    """

    @wraps(make)
    def made(*args: P.args, **settings: P.kwargs) -> Section:
        try:
            return {"why": "", **make(*args, **settings)}
        except Exception as error:
            message = " ".join(str(error).split()) or type(error).__name__
            first = message.partition(" ")[0]  # the name of a function stays as it is
            return {
                "why": message if "_" in first else message[0].upper() + message[1:]
            }

    return made

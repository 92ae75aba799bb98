"""Sections of the page: what they hold, or why they are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, ParamSpec

import numpy as np
from sklearn.base import clone, is_classifier

from kernelweave.evaluation.evaluate import evaluate
from kernelweave.evaluation.held_out import rows_apart
from kernelweave.fits.ridge import StandardOutputs
from kernelweave.inspection._rows import taken_by
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
    def fold(self) -> np.ndarray:
        """The fold of each row, (n,)."""
        return self.result.held_out.fold

    @cached_property
    def train(self) -> np.ndarray:
        """The rows from which those of the first fold were predicted, (m,)."""
        groups = None if self.how["groups"] is None else np.asarray(self.how["groups"])
        codes = self.y if is_classifier(self.model) else None
        return rows_apart(self.fold, 1, groups, codes)

    @cached_property
    def part(self) -> Any:
        """The model fitted to these rows."""
        train, model = self.train, clone(self.model)
        of_rows = {name: self.how[name] for name in ("groups", "sample_weight")}
        taken = taken_by(model, of_rows)
        given = {name: np.asarray(values)[train] for name, values in taken.items()}
        return model.fit(self.rows(train), self.y[train], **given)

    def rows(self, numbers: np.ndarray) -> Any:
        """Some rows of X, for the model :attr:`part`."""
        return rows_of_fold(
            self.X, numbers, self.train, is_precomputed(self.model.views)
        )


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

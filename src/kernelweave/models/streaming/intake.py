"""Checks of portions of rows, each as thorough as for the rows of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import Array, detached
from kernelweave._memory import numbered
from kernelweave.kernels.spec import warn_twins
from kernelweave.models.shared.learner import Columns
from kernelweave.views.columns import parse_views, resolve_columns
from kernelweave.views.validate import split_views, validate_features, validate_new

__all__ = ["Intake"]


class Intake:
    """Check portions of rows and split them into views; all must match the first.

    Parameters
    ----------
    model : estimator
        Its ``views`` determine which columns are used. A bare copy of it receives
        ``n_features_in_`` and ``feature_names_in_``, so that this can go to workers.

    Attributes
    ----------
    views, positions : list
        The views and their columns, known after the first portion.
    like : array
        No rows, with the namespace, device and dtype of the first portion.
    """

    def __init__(self, model: Any) -> None:
        self.bearer = type(model)(**model.get_params(deep=False))
        self.views = parse_views(model.views, reserved=model._get_param_names())
        self.positions: list[list[int]] = []
        self.like: Array = None

    def rows(self, X: Any, start: int = 0) -> list[Any]:
        """Blocks of finite floats (m, d_view); ``start`` is the number of row 0.

        The first call fixes columns, names and dtype for all later ones, which look up
        columns by name if there are names.
        """
        with numbered(start):
            if self.like is not None:
                X, positions = validate_new(
                    self.bearer, X, self.views, self.positions, sparse=True
                )
                dtype = self.like.dtype
                return split_views(X, self.views, positions, dtype=dtype)
            X = validate_features(self.bearer, X, reset=True, sparse=True)
            self.positions = resolve_columns(X, self.views)
            blocks = split_views(X, self.views, self.positions)
            dense = blocks[0]
            if not hasattr(dense, "__dlpack__"):  # a sparse block
                dense = np.empty((0, dense.shape[1]), dtype=dense.dtype)
            self.like = detached(dense[:0, :])
            warn_twins(self.views, self.positions)
            return blocks

    def sampled_rows(self, X: Any) -> list[Any]:
        """As :meth:`rows`, for a random sample, whose row numbers mean little."""
        try:
            return self.rows(X)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                "In the rows drawn to fix the features (numbered among themselves): "
                f"{error}"
            ) from error

    def targets(self, X: Any, y: Any, start: int = 0) -> np.ndarray:
        """Labels (m,), or outputs (m, t), of a portion."""
        with numbered(start):
            return self.bearer._check_targets(X, y)

    def columns(self) -> Columns:
        """What prediction needs to know about rows."""
        names = ("n_features_in_", "feature_names_in_")
        noted = {n: v for n, v in vars(self.bearer).items() if n in names}
        return Columns(self.views, self.positions, noted)

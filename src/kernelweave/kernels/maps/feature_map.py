"""From new rows to projections, through explicit features."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from kernelweave._array import (
    Array,
    add,
    as_float,
    at_home,
    empty,
    from_numpy,
    namespace,
    row_chunks,
    to_numpy,
    zeros,
)
from kernelweave.kernels.features.recipe import FeatureRecipe, as_chunk
from kernelweave.kernels.maps.kernel_map import FittedMap, warn_constant
from kernelweave.kernels.maps.missing import spread_out
from kernelweave.kernels.spec import remarks_of
from kernelweave.views.missing import ObservedViews, rows_lacking, take_rows


class FeatureKernelMap(FittedMap):
    """The counterpart of :class:`KernelMap` for explicit features.

    Parameters
    ----------
    recipe : FeatureRecipe
        The features, with NumPy arrays.
    mean : ndarray of shape (D,)
        Means of the features over the training rows.
    active : list of int
        Kernels that vary over the training rows.
    like : array
        Gives the library, device and dtype in which features are computed.
    """

    #: Number of feature entries per chunk of new rows.
    chunk_entries = 2**23

    def __init__(
        self, recipe: FeatureRecipe, mean: np.ndarray, active: list[int], like: Array
    ) -> None:
        self.recipe = recipe.to(like)
        self.mean, self.active, self.like = mean, active, like[:0, ...]
        self.names, self.view_names = recipe.names, recipe.view_names
        self.remarks = remarks_of(recipe.views)
        self.remarks += warn_constant(self.names, self.view_names, active)

    @property
    def row_size(self) -> int:
        """Features of a new row."""
        return self.recipe.n_features

    def check_gaps(self, observed: np.ndarray, missing: str) -> None:
        """Refuse rows that lack views if these were to be completed from others."""
        if missing == "available":
            raise ValueError(
                f"{rows_lacking(observed)}, and missing='available' completes kernels "
                "between rows, while this model was fitted on explicit features. Pass "
                "rows that have every view, or fit with missing='zero'"
            )

    def project(self, rows: ObservedViews, weights: np.ndarray, coef: Array) -> Array:
        """``(z(rows) - mean) coef`` over the kernels with nonzero weight, (m, k).

        Parameters
        ----------
        rows : ObservedViews
            New rows.
        weights : ndarray of shape (p,)
            Only selects the kernels: the weights themselves are part of ``coef``.
        coef : array of shape (D_wanted, k)
            Coefficients of the features of these kernels, concatenated.
        """
        if not np.all(rows.observed):
            return self._without_lacking(rows, weights, coef)
        wanted = [int(i) for i in np.flatnonzero(weights)]
        mean = np.concatenate([self.mean[self.recipe.blocks[i]] for i in wanted])
        here = at_home(coef, self.like)
        offset = from_numpy(mean @ to_numpy(coef).astype(np.float64), here)  # (k,)
        found = self.in_chunks(
            rows, lambda piece: self._project(piece.blocks, wanted, here) - offset
        )
        return at_home(found, coef)

    def _without_lacking(
        self, rows: ObservedViews, weights: np.ndarray, coef: Array
    ) -> Array:
        """:meth:`project` of rows that lack views: these add nothing to it."""
        total = zeros((len(rows.observed), coef.shape[1]), coef)
        wanted = [int(i) for i in np.flatnonzero(weights)]
        view_of = np.asarray(self.recipe.view_of)
        own_coef = self._parts(wanted, coef)
        for v, observed in enumerate(rows.observed.T):
            here = [i for i in wanted if view_of[i] == v]
            if not here or not np.any(observed):
                continue
            blocks = [take_rows(block, observed) for block in rows.blocks]
            having = ObservedViews.complete(blocks)
            own = namespace(coef).concat([own_coef[i] for i in here], axis=0)
            total += spread_out(
                self.project(having, np.isin(np.arange(len(weights)), here), own),
                observed,
            )
        return total

    def pieces(self, rows: ObservedViews) -> Iterator[tuple[slice, ObservedViews]]:
        """The rows, one chunk at a time."""
        for part in row_chunks(len(rows.observed), self.row_size, self.chunk_entries):
            yield part, rows.part(part)

    def project_each(
        self, rows: ObservedViews, weights: np.ndarray, coef: Array
    ) -> Array:
        """The terms of :meth:`project`, one per kernel: (m, p, k)."""
        wanted = [int(i) for i in np.flatnonzero(weights)]
        out = zeros((len(rows.observed), len(self.names), coef.shape[1]), coef)
        for i, own in self._parts(wanted, coef).items():
            out[:, i, :] = self.project(rows, np.eye(len(self.names))[i], own)
        return out

    def _parts(self, wanted: list[int], coef: Array) -> dict[int, Array]:
        """The coefficients (D_i, k) of each of the kernels ``wanted``."""
        ends = np.cumsum([0, *(self.recipe.widths[i] for i in wanted)]).tolist()
        pairs = zip(wanted, pairwise(ends), strict=True)
        return {i: coef[start:stop, :] for i, (start, stop) in pairs}

    def _project(self, rows: list[Any], wanted: list[int], coef: Array) -> Array:
        """``z(rows) coef``: dense features in one product, sparse ones separately."""
        recipe, widths = self.recipe, self.recipe.widths
        own = self._parts(wanted, coef)
        dense = [i for i in wanted if not recipe.sparse[i]]
        xp, total = namespace(coef), None
        if dense:
            views = as_chunk(
                [r.toarray() if issparse(r) else r for r in rows], self.like
            )
            shape = (rows[0].shape[0], sum(widths[i] for i in dense))
            features = empty(shape, self.like)
            recipe.write(views, features, dense)
            both = xp.result_type(features, coef)  # only NumPy converts by itself
            stacked = as_float(xp.concat([own[i] for i in dense], axis=0), both)
            total = as_float(as_float(features, both) @ stacked, coef.dtype)
        for i in wanted:
            if recipe.sparse[i]:
                block = rows[recipe.view_of[i]]
                block = block if issparse(block) else csr_array(to_numpy(block))
                product = recipe.sparse_features(i, block) @ to_numpy(own[i])
                total = add(total, from_numpy(np.asarray(product), coef))
        return total

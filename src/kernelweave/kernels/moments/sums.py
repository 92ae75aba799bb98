"""Second moments of features and targets, summed over chunks of rows.

Let the row ``a(x) = [1, t(x), z(x)]`` consist of a one, the target (an indicator of the
class, or the outputs of a regression) and the features of all kernels. Then all that
the Fisher and ridge problems need of n rows is ``A'A = sum_x a(x) a(x)'``, a square
matrix whose size does not depend on n. The moments of chunks simply add up, so chunks
can be processed anywhere.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from kernelweave._array import (
    Array,
    as_float,
    device,
    eps,
    from_numpy,
    is_numpy,
    namespace,
    to_numpy,
)
from kernelweave._units import is_square_safe, largest_of
from kernelweave.kernels.features.recipe import FeatureRecipe, as_chunk

__all__ = ["ChunkRecipe", "Moments", "Probe"]

#: Rows kept for measuring errors.
PROBE_ROWS = 512


@dataclass(frozen=True)
class Probe:
    """A random sample of all rows, drawn without knowing how many there will be.

    Every row gets a random key, and the rows with the smallest keys are kept. Which
    rows these are depends neither on the order of chunks nor on how they are merged.
    """

    keys: np.ndarray  # (q,)
    views: list[Any]  # (q, d_view) each
    y: np.ndarray  # (q,) or (q, t)

    @classmethod
    def of(cls, keys: np.ndarray, views: list[Any], y: np.ndarray) -> Probe:
        """The probe of one chunk."""
        kept = np.sort(np.argsort(keys, kind="stable")[:PROBE_ROWS])
        return cls(keys[kept], [_host_rows(rows, kept) for rows in views], y[kept])

    def merge(self, other: Probe) -> Probe:
        """The probe of both sets of rows."""
        keys = np.concatenate([self.keys, other.keys])
        y = np.concatenate([self.y, other.y])
        kept = np.argsort(keys, kind="stable")[:PROBE_ROWS]
        views = [
            _stack_rows(a, b)[kept]
            for a, b in zip(self.views, other.views, strict=True)
        ]
        return Probe(keys[kept], views, y[kept])


@dataclass(frozen=True)
class Moments:
    """``A'A`` of some rows, in float64, one matrix per fold of cross-validation.

    Attributes
    ----------
    gram : array of shape (folds, 1 + t + D, 1 + t + D)
        The sums; rows and columns are ordered as one, targets, features.
    labels : ndarray of shape (t,) or None
        The classes seen so far, sorted; None for a regression.
    probe : Probe
        A random sample of the rows.
    """

    gram: Array
    labels: np.ndarray | None
    probe: Probe

    @property
    def n_targets(self) -> int:
        """Number of target columns."""
        return self.probe.y.shape[1] if self.labels is None else len(self.labels)

    @property
    def n_rows(self) -> int:
        """The number of rows seen."""
        return round(float(namespace(self.gram).sum(self.gram[:, 0, 0])))

    def total(self) -> Array:
        """The sum over the folds, in their order, (1 + t + D, 1 + t + D)."""
        total = self.gram[0, :, :]
        for fold in range(1, self.gram.shape[0]):
            total = total + self.gram[fold, :, :]
        return total

    def merge(self, other: Moments) -> Moments:
        """The moments of both sets of rows; neither of the two is changed."""
        labels, left, right = self.labels, self.gram, other.gram
        if self.labels is not None and not np.array_equal(self.labels, other.labels):  # type: ignore[arg-type]
            labels = np.union1d(self.labels, other.labels)  # type: ignore[arg-type]
            left = _with_labels(left, self.labels, labels)
            right = _with_labels(right, other.labels, labels)
        return Moments(left + right, labels, self.probe.merge(other.probe))


@dataclass(frozen=True)
class ChunkRecipe:
    """From a chunk of rows to its moments: a function without state.

    Attributes
    ----------
    features : FeatureRecipe
        The features of a row, with NumPy arrays.
    like : array
        Gives the library, device and dtype of the features; sums are in float64.
    classify : bool
        Whether y holds classes.
    n_folds : int
        Number of folds for cross-validation, 1 for none.
    seed : int
        Assigns rows to folds, together with the number of the chunk.
    origin : ndarray of shape (t,) or None
        Subtracted from the outputs of a regression, to preserve their digits.
    offset : ndarray of shape (D,) or None
        Subtracted from the features for the same reason; 0 for sparse features.
    unit : ndarray of shape (t,) or None
        Power of two by which the outputs are divided after the subtraction.
    """

    features: FeatureRecipe
    like: Array
    classify: bool
    n_folds: int = 1
    seed: int = 0
    origin: np.ndarray | None = None
    offset: np.ndarray | None = None
    unit: np.ndarray | None = None

    def __call__(self, views: list[Any], y: np.ndarray, number: int) -> Moments:
        """The moments of chunk ``number``: rows (m, d_view), y (m,) or (m, t)."""
        m = int(views[0].shape[0])
        rng = np.random.Generator(np.random.Philox(key=[self.seed, number]))
        probe = Probe.of(rng.random(m), views, y)
        ends = [0, m]
        if self.n_folds > 1:
            folds = rng.integers(self.n_folds, size=m)
            order = np.argsort(folds, kind="stable")
            views, y = [_rows(rows, order) for rows in views], y[order]
            ends = [0, *np.cumsum(np.bincount(folds, minlength=self.n_folds))]
        labels, target = self._target(y)
        gram = self._gram(as_chunk(views, self.like), target, ends)
        return Moments(gram, labels, probe)

    @functools.cached_property
    def moved(self) -> FeatureRecipe:
        """The feature recipe, moved to the library and device of ``like``."""
        return self.features.to(self.like)

    @property
    def precision(self) -> float:
        """Machine precision of the products."""
        return eps(self.like)

    def _target(self, y: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        if not self.classify:
            target = y if self.origin is None else y - self.origin
            target = target if self.unit is None else target / self.unit
            if not is_square_safe(from_numpy(target, self.like)):
                raise ValueError(
                    f"y holds {largest_of(y):.3g}, too large on the scale of the first "
                    "outputs. Correct the entry, or divide y by a constant."
                )
            return None, target
        labels, codes = np.unique(y, return_inverse=True)
        return labels, (codes[:, None] == np.arange(len(labels))).astype(np.float64)

    def _gram(self, views: list[Any], target: np.ndarray, ends: list[int]) -> Array:
        """``A'A`` for rows ends[f] to ends[f + 1], one matrix per fold f."""
        like, recipe = self.like, self.moved
        xp, head = namespace(like), 1 + target.shape[1]
        kept = [i for i, sparse_ in enumerate(recipe.sparse) if sparse_]
        dense = [i for i in range(len(recipe.maps)) if i not in kept]
        width = head + sum(recipe.maps[i].n_features for i in dense)
        rows = xp.empty((target.shape[0], width), dtype=like.dtype, device=device(like))
        rows[:, 0] = 1.0
        rows[:, 1:head] = from_numpy(target, like)
        recipe.write(views, rows[:, head:], dense)
        if self.offset is not None:
            blocks = [self.offset[recipe.blocks[i]] for i in dense]
            rows[:, head:] -= from_numpy(np.concatenate(blocks), like)[None, :]
        parts = [slice(a, b) for a, b in pairwise(ends)]
        grams = [_square(rows[part, :], xp.float64) for part in parts]
        if kept:
            pieces = {
                i: recipe.sparse_features(i, views[recipe.view_of[i]]) for i in kept
            }
            grams = [
                _with_sparse(gram, to_numpy(rows[part, :]), pieces, part, recipe, head)
                for gram, part in zip(grams, parts, strict=True)
            ]
        return xp.stack(grams)


def _square(rows: Array, dtype: Any) -> Array:
    """``A'A`` in the precision of the rows, returned in float64."""
    if is_numpy(rows):
        return (rows.T @ rows).astype(dtype, copy=False)  # one triangle, mirrored
    return as_float(rows.T @ rows, dtype)


def _with_sparse(
    gram: np.ndarray,
    rows: np.ndarray,
    pieces: dict[int, Any],
    part: slice,
    recipe: FeatureRecipe,
    head: int,
) -> np.ndarray:
    """Insert the products of sparse features among those of the dense ones."""
    blocks = recipe.blocks
    columns = np.arange(head + recipe.n_features)
    where = np.concatenate(
        [np.arange(head + b.start, head + b.stop) for b in (blocks[i] for i in pieces)]
    )
    rest = np.setdiff1d(columns, where)
    features = sparse.hstack([piece[part] for piece in pieces.values()]).tocsr()
    full = np.zeros((len(columns), len(columns)))
    full[np.ix_(rest, rest)] = gram
    cross = np.asarray(features.T @ rows)
    full[np.ix_(where, rest)] = cross
    full[np.ix_(rest, where)] = cross.T
    full[np.ix_(where, where)] = (features.T @ features).toarray()
    return full


def _with_labels(gram: Array, labels: np.ndarray | None, wanted: np.ndarray) -> Array:
    """Insert zero rows and columns for the classes that these rows lack."""
    assert labels is not None
    t, size = len(labels), gram.shape[1] + len(wanted) - len(labels)
    place = np.concatenate(
        [
            [0],
            1 + np.searchsorted(wanted, labels),
            np.arange(1 + t, gram.shape[1]) + len(wanted) - t,
        ]
    )
    xp = namespace(gram)
    spread = np.zeros((gram.shape[1], size))
    spread[np.arange(gram.shape[1]), place] = 1.0
    spread = from_numpy(spread, gram)
    if is_numpy(gram):
        out = np.zeros((gram.shape[0], size, size))
        out[:, place[:, None], place[None, :]] = gram
        return out
    return xp.matmul(xp.matmul(spread.T[None, :, :], gram), spread[None, :, :])


def _rows(rows: Any, order: np.ndarray) -> Any:
    if sparse.issparse(rows) or is_numpy(rows):
        return rows[order]
    xp = namespace(rows)
    return xp.take(rows, xp.asarray(order, device=device(rows)), axis=0)


def _host_rows(rows: Any, order: np.ndarray) -> Any:
    return (
        rows.tocsr()[order] if sparse.issparse(rows) else to_numpy(_rows(rows, order))
    )


def _stack_rows(a: Any, b: Any) -> Any:
    if sparse.issparse(a):
        return sparse.vstack([a, b]).tocsr()
    return np.concatenate([a, b])

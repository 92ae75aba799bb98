"""Sums over chunks, in an order that depends only on their number."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from kernelweave._array import (
    Array,
    as_float,
    empty,
    eps,
    from_numpy,
    is_square_safe,
    largest_of,
    namespace,
    require_memory,
    to_numpy,
)
from kernelweave._text import numbered
from kernelweave.kernels.features.recipe import FeatureRecipe, as_chunk
from kernelweave.kernels.spec import detached_block
from kernelweave.views.encoded import EncodedRows
from kernelweave.views.streams import concatenate_rows, select_rows

#: Adjacent parts that are summed sequentially before the tree begins, so that far fewer
#: partial sums than chunks have to be kept and sent.
GROUP = 8


class FixedTree:
    """Sum a stream of parts pairwise: ``(0..7) + (8..15)``, and so on upwards.

    Floating-point sums depend on the order of additions. Here the order follows from
    the positions of the parts alone, so a sum is the same, bit for bit, no matter when
    and where the parts were computed. At most ``log2(parts / 8) + 2`` partial sums are
    alive. An exception, such as a keyboard interrupt, loses nothing: either a part has
    been added, or it has not.
    """

    def __init__(self) -> None:
        self.count = 0
        self._group: Any = None
        self._levels: tuple[Any, ...] = ()

    def push(self, part: Any) -> None:
        """Add the next part, which has a method ``merge``."""
        group, levels = _add(self._group, part), self._levels
        if (self.count + 1) % GROUP == 0:
            levels, group = _carry(levels, group), None
        # A single assignment, so that no interrupt can separate them.
        self._group, self._levels, self.count = group, levels, self.count + 1

    @property
    def sums(self) -> list[Any]:
        """The partial sums."""
        return [part for part in (self._group, *self._levels) if part is not None]

    def mapped(self, change: Callable[[Any], Any]) -> FixedTree:
        """A copy whose partial sums have been changed."""
        new = copy.copy(self)
        new._group, *levels = (
            None if part is None else change(part)
            for part in (self._group, *self._levels)
        )
        new._levels = tuple(levels)
        return new

    def total(self, last: Any = None) -> Any:
        """The sum of all parts, with ``last`` as one more that is not kept."""
        total = self._group if last is None else _add(self._group, last)
        total = _collect(self._levels, total)
        if total is None:
            raise ValueError("there is nothing to sum: no rows have been seen")
        return total


def sum_blocks(blocks: list[Any], rest: Any = None) -> Any:
    """The sum of a :class:`FixedTree`, in the same order, from sums of its subtrees.

    Parameters
    ----------
    blocks : list
        The sums of ``8 * 2**k`` consecutive parts each, for some k >= 0.
    rest : object, optional
        The sum of the parts that follow, which are fewer.
    """
    return _collect(functools.reduce(_carry, blocks, ()), rest)


def _collect(levels: tuple[Any, ...], total: Any) -> Any:
    for level in levels:
        if level is not None:
            total = level if total is None else _add(level, total)
    return total


def _add(a: Any, b: Any) -> Any:
    return b if a is None else a.merge(b)


def _carry(levels: tuple[Any, ...], part: Any) -> tuple[Any, ...]:
    """Like adding one to a binary number: equal levels merge and move up."""
    new = list(levels)
    for i, level in enumerate(levels):
        if level is None:
            new[i] = part
            return tuple(new)
        part, new[i] = _add(level, part), None
    return (*new, part)


#: Moment matrices alive at a time: partial sums, and those of a solve.
MOMENT_MATRICES = 12
#: Columns for targets that are counted before any row is seen.
TARGET_COLUMNS = 32


def require_classes(n_classes: int, n_features: int, n_folds: int, like: Any) -> None:
    """Refuse labels that take too much memory, as ids of rows would.

    Moments have a row and a column for every class.
    """
    if n_classes < TARGET_COLUMNS:
        return
    size = n_features + 1 + n_classes
    require_memory(
        8 * n_folds * MOMENT_MATRICES * size * size,
        f"second moments of {n_features} features and {n_classes:,} classes",
        "check that y holds classes, not ids or quantities, or use fewer of them",
        like=like,
    )


#: Rows kept for measuring errors and the width of class Gaussians.
PROBE_ROWS = 4096


@dataclass(frozen=True)
class Probe:
    """A random sample of all rows, drawn without knowing how many there will be.

    Every row gets a random key, and the rows with the smallest keys are kept. Which
    rows these are depends neither on the order of chunks nor on how they are merged.
    """

    keys: np.ndarray  # (q,)
    views: list[Any]  # (q, d_view) each
    y: np.ndarray  # (q,) or (q, t)
    weights: np.ndarray  # (q,)

    @classmethod
    def of(
        cls, keys: np.ndarray, views: list[Any], y: np.ndarray, weights: np.ndarray
    ) -> Probe:
        """The probe of one chunk."""
        kept = np.sort(np.argsort(keys, kind="stable")[:PROBE_ROWS])
        own = [_host_rows(rows, kept) for rows in views]
        return cls(keys[kept], own, y[kept], weights[kept])

    def merge(self, other: Probe) -> Probe:
        """The probe of both sets of rows."""
        keys = np.concatenate([self.keys, other.keys])
        y = np.concatenate([self.y, other.y])
        weights = np.concatenate([self.weights, other.weights])
        kept = np.argsort(keys, kind="stable")[:PROBE_ROWS]
        views = [
            concatenate_rows([a, b])[kept]
            for a, b in zip(self.views, other.views, strict=True)
        ]
        return Probe(keys[kept], views, y[kept], weights[kept])

    def up_to(self, key: float) -> Probe:
        """The rows whose keys are at most ``key``."""
        if not len(self.keys) or np.max(self.keys) <= key:
            return self
        kept = np.flatnonzero(self.keys <= key)
        views = [_host_rows(rows, kept) for rows in self.views]
        return Probe(self.keys[kept], views, self.y[kept], self.weights[kept])


@dataclass(frozen=True)
class Moments:
    """``A'A`` of some rows, in float64, one matrix per fold of cross-validation.

    With row weights w it is ``A' diag(w) A``.

    Attributes
    ----------
    gram : array of shape (folds, 1 + t + D, 1 + t + D)
        The sums; rows and columns are ordered as one, targets, features.
    labels : ndarray of shape (t,) or None
        The classes seen so far, sorted; None for a regression.
    probe : Probe
        A random sample of the rows.
    sizes : ndarray of int of shape (t,) or (1,)
        The number of rows of each class, or of all rows for a regression, whatever
        their weights.
    """

    gram: Array
    labels: np.ndarray | None
    probe: Probe
    sizes: np.ndarray

    @property
    def n_targets(self) -> int:
        """Number of target columns."""
        return self.probe.y.shape[1] if self.labels is None else len(self.labels)

    @property
    def n_rows(self) -> int:
        """The number of rows seen."""
        return int(np.sum(self.sizes))

    def total(self) -> Array:
        """The sum over the folds, in their order, (1 + t + D, 1 + t + D)."""
        return sum(self.gram[fold, :, :] for fold in range(self.gram.shape[0]))

    def merge(self, other: Moments) -> Moments:
        """The moments of both sets of rows; neither of the two is changed."""
        labels, left, right = self.labels, self.gram, other.gram
        sizes = [self.sizes, other.sizes]
        if self.labels is not None and not np.array_equal(self.labels, other.labels):  # type: ignore[arg-type]
            labels = np.union1d(self.labels, other.labels)  # type: ignore[arg-type]
            n_features = left.shape[1] - 1 - len(self.labels)
            require_classes(len(labels), n_features, left.shape[0], left)
            left = _with_labels(left, self.labels, labels)
            right = _with_labels(right, other.labels, labels)
            sizes = [np.zeros(len(labels), dtype=int) for _ in sizes]
            for found, part in zip(sizes, (self, other), strict=True):
                found[np.searchsorted(labels, part.labels)] = part.sizes  # type: ignore[arg-type]
        probe = self.probe.merge(other.probe)
        return Moments(left + right, labels, probe, sizes[0] + sizes[1])


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
    origin : ndarray of shape (t,) or float
        Subtracted from the outputs of a regression, to preserve their digits.
    offset : ndarray of shape (D,) or None
        Subtracted from the features for the same reason; 0 for sparse features.
    unit : ndarray of shape (t,) or float
        Power of two by which the outputs are divided after the subtraction.
    """

    features: FeatureRecipe
    like: Array
    classify: bool
    n_folds: int = 1
    seed: int = 0
    origin: np.ndarray | float = 0.0
    offset: np.ndarray | None = None
    unit: np.ndarray | float = 1.0

    def __call__(
        self,
        views: list[Any],
        y: np.ndarray,
        number: int,
        weights: np.ndarray | None = None,
    ) -> Moments:
        """The moments of chunk ``number``: rows (m, d_view), y (m,) or (m, t).

        ``weights`` (m,) are those of the rows, by default 1.
        """
        m = int(views[0].shape[0])
        weights = np.ones(m) if weights is None else weights
        views = self.features.encoded(views)
        rng = np.random.Generator(np.random.Philox(key=[self.seed, number]))
        probe = Probe.of(rng.random(m), views, y, weights)
        ends, order = [0, m], None
        if self.n_folds > 1:
            folds = rng.integers(self.n_folds, size=m)
            order = np.argsort(folds, kind="stable")
            views, y = [select_rows(rows, order) for rows in views], y[order]
            weights = weights[order]
            ends = [0, *np.cumsum(np.bincount(folds, minlength=self.n_folds))]
        labels, target = self._target(y)
        if labels is not None:
            n_features = self.features.n_features
            require_classes(len(labels), n_features, self.n_folds, self.like)
        root = None if np.all(weights == 1.0) else np.sqrt(weights)
        gram = self._gram(as_chunk(views, self.like), target, ends, root, order)
        sizes = np.array([m]) if labels is None else np.sum(target, axis=0).astype(int)
        return Moments(gram, labels, probe, sizes)

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
            target = (y - self.origin) / self.unit
            if not is_square_safe(from_numpy(target, self.like)):
                raise ValueError(
                    f"y holds {largest_of(y):.3g}, too large on the scale of the first "
                    "outputs. Correct the entry, or divide y by a constant."
                )
            return None, target
        labels, codes = np.unique(y, return_inverse=True)
        return labels, (codes[:, None] == np.arange(len(labels))).astype(np.float64)

    def _gram(
        self,
        views: list[Any],
        target: np.ndarray,
        ends: list[int],
        root: np.ndarray | None,
        numbers: np.ndarray | None,
    ) -> Array:
        """``A'A`` for rows ends[f] to ends[f + 1], one matrix per fold f.

        ``root`` (m,) are the roots of the weights, by which the rows of A are
        multiplied; ``numbers`` (m,) are those of the rows, for messages.
        """
        like, recipe = self.like, self.moved
        xp, head = namespace(like), 1 + target.shape[1]
        kept = [i for i, sparse_ in enumerate(recipe.sparse) if sparse_]
        dense = [i for i in range(len(recipe.maps)) if i not in kept]
        width = head + sum(recipe.maps[i].n_features for i in dense)
        rows = empty((target.shape[0], width), like)
        rows[:, 0] = 1.0
        rows[:, 1:head] = from_numpy(target, like)
        recipe.write(views, rows[:, head:], dense, numbers)
        if self.offset is not None and dense:
            blocks = [self.offset[recipe.blocks[i]] for i in dense]
            rows[:, head:] -= from_numpy(np.concatenate(blocks), like)[None, :]
        if root is not None:
            rows *= from_numpy(root, like)[:, None]
        parts = [slice(a, b) for a, b in pairwise(ends)]
        # Where the library spots A'A, it computes one triangle and mirrors it.
        grams = [rows[part, :].T @ rows[part, :] for part in parts]
        grams = [as_float(gram, xp.float64) for gram in grams]
        if kept:
            scale = sparse.diags_array(np.ones(len(target)) if root is None else root)
            pieces = {
                i: scale @ recipe.sparse_features(i, views[recipe.view_of[i]], numbers)
                for i in kept
            }
            grams = [
                _with_sparse(gram, rows[part, :], pieces, part, recipe, head)
                for gram, part in zip(grams, parts, strict=True)
            ]
        return xp.stack(grams)


def _with_sparse(
    gram: Array,
    rows: Array,
    pieces: dict[int, Any],
    part: slice,
    recipe: FeatureRecipe,
    head: int,
) -> Array:
    """Insert the products of sparse features among those of the dense ones."""
    where = [np.arange(b.start, b.stop) for b in (recipe.blocks[i] for i in pieces)]
    last = head + np.concatenate(where)  # the columns of sparse features
    first = np.setdiff1d(np.arange(head + recipe.n_features), last)
    features = sparse.hstack([piece[part] for piece in pieces.values()]).tocsr()
    cross = np.asarray(features.T @ to_numpy(rows))
    square = (features.T @ features).toarray()
    order = np.argsort(np.concatenate([first, last]))
    whole = np.block([[to_numpy(gram), cross.T], [cross, square]])
    return from_numpy(whole[np.ix_(order, order)], gram)


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
    out = np.zeros((gram.shape[0], size, size))
    out[:, place[:, None], place[None, :]] = to_numpy(gram)
    return from_numpy(out, gram)


def _host_rows(rows: Any, order: np.ndarray) -> Any:
    rows = select_rows(rows.tocsr() if sparse.issparse(rows) else rows, order)
    kept = sparse.issparse(rows) or isinstance(rows, EncodedRows)
    return rows if kept else to_numpy(rows)


#: Rows per chunk on a CPU and on a GPU.
CHUNK_ROWS = {"cpu": 8192, "gpu": 32768}


class RowAccumulator:
    """Cut rows into chunks of equal size and sum their moments in a fixed tree.

    The result depends on the rows and their order, but not on the portions in which
    they arrived: portions are joined or cut into chunks of ``chunk_rows``, and rows
    that do not fill a chunk wait for the next ones.

    Parameters
    ----------
    recipe : ChunkRecipe
        Computes the moments of a chunk.
    chunk_rows : int
        Rows per chunk.
    first : int, default=0
        Number of the first chunk.
    """

    def __init__(self, recipe: ChunkRecipe, chunk_rows: int, first: int = 0) -> None:
        self.recipe, self.chunk_rows, self.first = recipe, int(chunk_rows), first
        self.tree = FixedTree()
        #: Rows, targets and weights.
        self.waiting: tuple[list[Any], np.ndarray, np.ndarray] | None = None

    def push(
        self, views: list[Any], y: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add rows: one block (m, d_view) per view, and y (m,) or (m, t).

        ``weights`` (m,) are those of the rows, by default 1.
        """
        weights = np.ones(len(y)) if weights is None else weights
        with numbered(self.n_rows):
            views = self.recipe.features.encoded(views)
        if self.waiting is not None:
            pairs = zip(self.waiting[0], views, strict=True)
            views = [concatenate_rows([old, new]) for old, new in pairs]
            y = np.concatenate([self.waiting[1], y])
            weights = np.concatenate([self.waiting[2], weights])
            self.waiting = None
        start = 0
        while y.shape[0] - start >= self.chunk_rows:
            part = slice(start, start + self.chunk_rows)
            rows = [block[part, :] for block in views]
            self.tree.push(self._moments(rows, y[part], weights[part]))
            start = part.stop
        if start < y.shape[0]:
            # The caller may overwrite rows that have not been summed yet.
            rows = [detached_block(block[start:, :]) for block in views]
            self.waiting = rows, np.array(y[start:]), np.array(weights[start:])

    def added(
        self, views: list[Any], y: np.ndarray, weights: np.ndarray | None = None
    ) -> RowAccumulator:
        """A copy with more rows; this object is unchanged even if an error occurs."""
        new = copy.copy(self)
        new.tree = copy.copy(self.tree)
        new.push(views, y, weights)
        new._drop_rows()
        return new

    def _drop_rows(self) -> None:
        """Keep no rows in partial sums that the probe of their total will not have."""
        keys = [moments.probe.keys for moments in self.tree.sums]
        if sum(map(len, keys)) > PROBE_ROWS:
            last = float(
                np.partition(np.concatenate(keys), PROBE_ROWS - 1)[PROBE_ROWS - 1]
            )
            self.tree = self.tree.mapped(
                lambda moments: replace(moments, probe=moments.probe.up_to(last))
            )

    @property
    def n_kept(self) -> int:
        """The number of rows that are kept as they are."""
        waiting = 0 if self.waiting is None else len(self.waiting[1])
        return waiting + sum(len(moments.probe.keys) for moments in self.tree.sums)

    @property
    def n_rows(self) -> int:
        """The number of rows so far, with those of the chunks before the first."""
        waiting = 0 if self.waiting is None else len(self.waiting[1])
        return (self.first + self.tree.count) * self.chunk_rows + waiting

    def total(self) -> Moments:
        """The moments of all rows so far; more may follow."""
        if self.waiting is None:
            return self.tree.total()
        return self.tree.total(self._moments(*self.waiting))

    def _moments(self, views: list[Any], y: np.ndarray, weights: np.ndarray) -> Moments:
        """The moments of the next chunk."""
        number = self.first + self.tree.count
        with numbered(number * self.chunk_rows):
            return self.recipe(views, y, number, weights)

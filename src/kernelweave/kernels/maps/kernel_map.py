"""From the rows of a source to centred kernels, for training and for new rows.

The raw kernels come from a source: groups of columns, or precomputed kernels.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from scipy.sparse import issparse

from kernelweave._array import (
    CACHE_ENTRIES,
    Array,
    add,
    at_home,
    available_bytes,
    block_entries,
    detached,
    empty,
    eps,
    from_numpy,
    is_array,
    is_numpy,
    is_square_safe,
    namespace,
    require_memory,
    row_chunks,
    to_numpy,
    zeros,
)
from kernelweave._text import numbered, some, with_names
from kernelweave.exceptions import KernelWarning, MemoryRefusedError
from kernelweave.kernels.banks.dense import DenseBank, take_square
from kernelweave.kernels.banks.lazy import OnTheFlyBank
from kernelweave.kernels.base import Kernel, KernelGroup, PairwiseRows, guarded
from kernelweave.kernels.centering import (
    STANDARD,
    Centering,
    Standard,
    TraceError,
    center_in_place,
    center_tiles,
    lost_in_centring,
)
from kernelweave.kernels.checks import (
    check_symmetric,
    ensure_psd,
    refuse_distances,
    symmetric,
)
from kernelweave.kernels.functions import (
    Frame,
    ViewRows,
    dense_rows,
    seen_by,
    with_origin_at_zero,
)
from kernelweave.kernels.spec import (
    as_stored,
    check_outliers,
    detached_block,
    gram_stack,
    name_largest,
    remarks_of,
    resolve_kernels,
    settle,
)
from kernelweave.protocols import Bank
from kernelweave.views.columns import View, host_like
from kernelweave.views.digests import digests_of
from kernelweave.views.missing import ObservedViews, take_rows
from kernelweave.views.raw_columns import Columns

#: Relative spread up to which the diagonal of a kernel counts as constant.
CONSTANT_DIAGONAL = 1e-6


class FeatureSource:
    """Kernels on groups of columns, with parameters fixed by the training rows.

    To save digits, the origin of the columns of a kernel that centring makes
    independent of it may be moved; "as defined" means with the origin at zero.

    Parameters
    ----------
    views : list of View
        The names and kernels of the views.
    blocks : list of arrays, sparse arrays or Columns of shape (n, d_view)
        The training rows of each view. Blocks that share memory with an array of the
        caller are copied.
    observed : ndarray of bool of shape (n, v), default=None
        Which rows have which view, if some lack one; rows that lack a view are ignored
        there.
    targets : ndarray of shape (n,) or (n, t), optional
        For transformers that need them; masked where they are unknown.
    movable : bool, default=True
        Whether origin and unit of the columns may be changed, since centring and
        scaling to trace n make kernels independent of both.
    numbers : ndarray of int of shape (n,), optional
        Indices of these rows in X, for messages; 0, 1, ... by default.

    Attributes
    ----------
    views : list of View
        The views, with what "auto" does with the columns of a table.
    remarks : list of str
        The same in words.
    names, view_names : list of str
        The name of each kernel and of the view it belongs to.
    n_samples : int
        The number n of training rows.
    like : array
        Has the namespace, device and dtype of the kernels.
    noise : list of float
        Trace per row of each centred kernel that rounding of its input accounts for.
    features : list of arrays, sparse arrays or Columns of shape (n_view, e)
        The training rows after each distinct chain of transformers: what new rows are
        compared with. Only kernels that read cells of a table themselves have Columns.
    feature_of : list of int
        The position in ``features`` of what each kernel sees.
    digests : list of ndarray or None
        One per view, see :func:`~kernelweave.views.digests.digests_of`; None if some
        rows lack a view.
    """

    #: As in ``OnTheFlyBank``.
    tile_rows: int | None = None

    def __init__(
        self,
        views: list[View],
        blocks: list[Any],
        observed: np.ndarray | None = None,
        targets: np.ndarray | None = None,
        movable: bool = True,
        numbers: np.ndarray | None = None,
    ) -> None:
        self.observed, self.numbers = observed, numbers
        self.n_samples = int(blocks[0].shape[0])
        if observed is not None:
            blocks = [take_rows(*pair) for pair in zip(blocks, observed.T, strict=True)]
        settled = [settle(*pair) for pair in zip(views, blocks, strict=True)]
        self.views = views = [view for view, _ in settled]
        self.remarks = remarks_of(views)
        #: The rows as they are, until the kernels between them are made.
        self.blocks: list[Any] | None = [detached_block(block) for _, block in settled]
        self.like = detached(host_like(self.blocks[0])[:0, :])
        #: A block of no rows per view, sparse or dense like the training rows.
        self.stored = [_without_rows(block) for block in self.blocks]
        complete = observed is None or bool(np.all(observed))
        self.digests = [digests_of(b) for b in self.blocks] if complete else None
        #: The view number of each kernel, and the kernel itself.
        self.places: list[tuple[int, Kernel]] = []
        self.features: list[Any] = []
        self.feature_of: list[int] = []
        for v, (view, block) in enumerate(zip(views, self.blocks, strict=True)):
            check_outliers(view, block, self._numbers(v))
            view_targets = targets
            if targets is not None and observed is not None:
                view_targets = targets[observed[:, v]]
            rows = ViewRows(block)
            kernels = resolve_kernels(
                view.kernel,
                block,
                view.name,
                y=view_targets,
                plan=view.plan,
                movable=movable,
                made=rows,
            )
            self.places += [(v, kernel) for kernel in kernels]
            self._keep(rows, kernels, view.name)
        self.view_names = [views[v].name for v, _ in self.places]
        self.names = [f"{views[v].name}: {kernel.label}" for v, kernel in self.places]
        self.noise = [kernel.noise for _, kernel in self.places]
        self._defined: dict[int, tuple[Array, float]] = {}

    def _keep(self, rows: ViewRows, kernels: list[Kernel], name: str) -> None:
        """Keep what the kernels of a view see of its rows, each result once."""
        numbers: dict[Any, int] = {}  # by path
        paths = [rows.path(kernel) for kernel in kernels]
        for position, (kernel, path) in enumerate(zip(kernels, paths, strict=True)):
            if path not in numbers:
                with guarded(name):
                    self.features.append(detached(rows.seen_by(kernel)))
                numbers[path] = len(self.features) - 1
            rows.forget(paths[position + 1 :])
            self.feature_of.append(numbers[path])

    def release(self) -> None:
        """Drop the rows as they are: only messages about the kernels need them."""
        self.blocks = None

    def kept(self, i: int) -> Any:
        """The training rows (n_view, e) that the core of kernel i compares with."""
        return self.features[self.feature_of[i]]

    def fill(self, stack: Array) -> Iterator[bool]:
        """Write symmetric Gram matrices to ``stack`` (p, n, n), one at a time.

        If some rows lack the view, the matrix over the others goes into the upper left
        corner of its slot, and the rest of the slot is undefined.

        Yields
        ------
        bool
            Once matrix i is in place, whether it is known to be PSD.
        """
        for v in range(len(self.views)):
            for group in self._groups(v):
                group.fill(stack)
            for i, (view, kernel) in enumerate(self.places):
                if view == v:
                    size = self.kept(i).shape[0]
                    if not kernel.psd:
                        _symmetrize(stack[i, :size, :size], self.names[i])
                    yield kernel.psd

    def cross(self, rows: list[Array], wanted: list[int]) -> Iterator[Array]:
        """Gram matrices (m, n) of the kernels ``wanted`` for the blocks ``rows``."""
        for v, view in enumerate(self.views):
            chosen = [i for i in wanted if self.places[i][0] == v]
            if chosen:
                kernels = [self.places[i][1] for i in chosen]
                new = as_stored(rows[v], self.stored[v])
                references = [self.kept(i) for i in chosen]
                yield from gram_stack(kernels, new, references, view_name=view.name)

    def tiles(self) -> OnTheFlyBank:
        """All kernels between the training rows, to be computed a tile at a time."""
        groups = [group for v in range(len(self.views)) for group in self._groups(v)]
        size = self.n_samples
        return OnTheFlyBank(groups, self.names, size, self.like, self.tile_rows)

    def _groups(self, v: int) -> list[KernelGroup]:
        """The kernels of view v; those in a group share products or distances."""
        groups: dict[Any, KernelGroup] = {}
        name = self.views[v].name
        for i, (view, kernel) in enumerate(self.places):
            if view != v:
                continue
            base = kernel.core.base
            key = self.feature_of[i], base
            if key not in groups:
                with guarded(name):
                    rows = PairwiseRows(base, self.kept(i))
                groups[key] = KernelGroup(rows, [], name)
            groups[key].kernels.append((i, kernel.core))
        return list(groups.values())

    def _seen(self, i: int, rows: list[Array]) -> Any:
        """New rows (m, e) as the core of kernel i takes them."""
        v, kernel = self.places[i]
        return seen_by(kernel, as_stored(rows[v], self.stored[v]))

    def diagonal(self, i: int, rows: list[Array], given: Array | None = None) -> Array:
        """``k_i(x, x)`` (m,) of new rows; ``given`` is for precomputed kernels."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.places[i][1].core.diagonal(self._seen(i, rows))

    def as_defined(self, i: int) -> tuple[Array, float]:
        """Diagonal (n_i,) and smallest entry of kernel i over the rows that have it."""
        if i not in self._defined:
            kernel, xp = self.places[i][1], namespace(self.like)
            gram = kernel.core.gram(with_origin_at_zero(kernel, self.kept(i)))
            diagonal = xp.asarray(xp.linalg.diagonal(gram), copy=True)
            self._defined[i] = diagonal, float(xp.min(gram))
        return self._defined[i]

    def cross_as_defined(self, i: int, gram: Array, rows: list[Array]) -> Array:
        """Kernel i (m, n) of new rows as defined, given its ``cross``."""
        kernel = self.places[i][1]
        moved = any(isinstance(step, Frame) and step.affine for step in kernel.steps)
        if not moved:  # computed as defined already
            return gram
        new = with_origin_at_zero(kernel, self._seen(i, rows))
        return kernel.core.gram(new, with_origin_at_zero(kernel, self.kept(i)))

    def diagonal_as_defined(self, i: int, rows: list[Array]) -> Array:
        """``k_i(x, x)`` (m,) of new rows as defined."""
        kernel = self.places[i][1]
        return kernel.core.diagonal(with_origin_at_zero(kernel, self._seen(i, rows)))

    def _numbers(self, v: int) -> np.ndarray | None:
        """Indices in X of the training rows that have view v; None for 0, 1, ..."""
        if self.observed is None:
            return self.numbers
        own = np.flatnonzero(self.observed[:, v])
        return own if self.numbers is None else self.numbers[own]

    def out_of_range(self, i: int, rows: list[Array] | None = None) -> str:
        """The entry of new rows, or of the training rows, for which kernel i overflows.

        ``rows`` has the form that ``cross`` accepts, with NaN where a row lacks a view.
        """
        v, kernel = self.places[i]
        numbers = self._numbers(v) if rows is None else None
        blocks = self.blocks if rows is None else rows
        assert blocks is not None  # the training rows are there while kernels are made
        return name_largest(
            self.views[v], kernel.label, kernel.steps, blocks[v], numbers
        )


class PrecomputedSource:
    """Precomputed kernels: a stack (n, n, p) at fit, (m, n, p) for new rows.

    Attributes and methods are those of :class:`FeatureSource`.

    Parameters
    ----------
    stack : array of shape (n, n, p)
        The kernels.
    names : list of str
        One name per kernel.
    observed : ndarray of bool of shape (n, p), default=None
        Which rows have which kernel, if some lack one.
    """

    def __init__(
        self, stack: Array, names: list[str], observed: np.ndarray | None = None
    ) -> None:
        self.observed = observed
        self.stack: Array | None = stack
        self.n_samples = int(stack.shape[0])
        self.like = detached(stack[:0, ...])
        self.names = self.view_names = names
        self.noise = [0.0] * len(names)
        self.views: list[View] = []
        self.remarks: list[str] = []
        self._defined: list[tuple[Array, float]] = []

    def release(self) -> None:
        """Nothing is left to drop: ``fill`` does."""

    def fill(self, stack: Array) -> Iterator[bool]:
        """Copy the kernels, and then release the input."""
        assert self.stack is not None
        xp = namespace(stack)
        # Kernels are the last axis of the input: in blocks of rows, it is read once.
        row_size = self.n_samples * len(self.names)
        entries = block_entries(stack, CACHE_ENTRIES)
        for rows in row_chunks(self.n_samples, row_size, entries):
            stack[:, rows, :] = xp.permute_dims(self.stack[rows, :, :], (2, 0, 1))
        self.stack = None  # a fitted model no longer needs the training kernels
        for i, name in enumerate(self.names):
            slot = stack[i, :, :]
            if self.observed is not None and not np.all(self.observed[:, i]):
                own = take_square(slot, np.flatnonzero(self.observed[:, i]))
                slot = stack[i, : own.shape[0], : own.shape[0]]
                slot[...] = own
            _symmetrize(slot, name)
            diagonal = xp.asarray(xp.linalg.diagonal(slot), copy=True)
            self._defined.append((diagonal, float(xp.min(slot))))
            yield False

    def cross(self, rows: Array, wanted: list[int]) -> Iterator[Array]:
        """Slices (m, n) of the stack ``rows``."""
        for i in wanted:
            yield rows[:, :, i]

    def diagonal(self, i: int, rows: Array, given: Array | None = None) -> Array:
        """``given``, or the constant diagonal among the training rows.

        Minus infinity stands for unknown values.
        """
        if given is not None:
            return at_home(given[:, i], rows)
        xp, (known, _) = namespace(rows), self._defined[i]
        low, high = float(xp.min(known)), float(xp.max(known))
        constant = high - low <= CONSTANT_DIAGONAL * abs(high)
        return (high if constant else -np.inf) * xp.ones_like(rows[:, 0, 0])

    def as_defined(self, i: int) -> tuple[Array, float]:
        """Diagonal (n_i,) and smallest entry, known once ``fill`` is exhausted."""
        return self._defined[i]

    def cross_as_defined(self, i: int, gram: Array, rows: Array) -> Array:
        """The values given."""
        return gram

    def out_of_range(self, i: int, rows: Array | None = None) -> str:
        """A message with the largest entry of kernel i; at fit, with its name only."""
        found = f"Kernel {self.names[i]!r}"
        if rows is not None:
            values = np.nan_to_num(to_numpy(rows[:, :, i]))
            where = np.unravel_index(np.abs(values).argmax(), values.shape)
            place = tuple(int(index) for index in where)
            found += f": entry {place} is {values[where]:.3g}. It"
        return (
            f"{found} holds values that are too large or too small to compute with. "
            "Multiply the kernel by a constant, for training and new rows alike: its "
            "scale is normalised away anyway, unless scale=None."
        )


def _symmetrize(gram: Array, name: str) -> None:
    """Average out, in place, any asymmetry beyond the last few bits.

    Distances are symmetric too, but are not a kernel.
    """
    refuse_distances(gram, name)
    average = symmetric(gram, name)
    if average is not gram:
        gram[...] = average


Source = FeatureSource | PrecomputedSource


def _without_rows(block: Any) -> Any:
    """No rows, in the form of the rows of a view that are not read as cells."""
    if isinstance(block, Columns):
        return host_like(block)
    return block[:0, :] if issparse(block) else detached(block[:0, :])


def moved_rows(data: ObservedViews, like: Array) -> ObservedViews:
    """The rows in the library and on the device of ``like``."""
    if not isinstance(data.blocks, list):
        return dataclasses.replace(data, blocks=at_home(data.blocks, like))
    blocks = [_moved(block, like) for block in data.blocks]
    return dataclasses.replace(data, blocks=blocks)


def _moved(block: Any, like: Array) -> Any:
    if is_array(block):
        return at_home(block, like)
    if is_numpy(like):
        return block
    if isinstance(block, Columns):
        odd = [
            repr(label)
            for j, label in enumerate(block.labels)
            if block.column(j).kind != "number" or np.any(block.column(j).gaps)
        ]
        raise ValueError(
            f"the columns {some(odd or list(map(repr, block.labels)))} are read as "
            "they are (text, categories, dates, gaps, input of a transformer), which "
            "only works in host memory; encode them as numbers, or leave device at None"
        )
    return at_home(dense_rows(block), like)


#: How a map keeps the kernels of the training rows.
Storage = Literal["auto", "fastest", "matrices", "on_the_fly"]

#: n x n arrays that a fit may hold besides the bank; counted before any allocation.
WORK_MATRICES = 4
#: With at least this many rows, and kernels per set of shared products or distances, a
#: fit without folds takes less time on a processor if kernels are recomputed, by tiles
#: in its cache: 10 to 40 % less with 15 to 150 widths, but 40 % more with 1,000 rows.
FASTER_FROM, SHARED_BY = 2000, 12


class FittedMap:
    """The attributes that all maps from rows to kernels have.

    Attributes
    ----------
    names, view_names : list of str
        The name of each of the p kernels and of its view.
    active : list of int
        Kernels that vary over the training rows.
    remarks : list of str
        What was done to the kernels.
    source : Source or None
        Raw kernels and training rows; None if only features of these are known.
    centerings : sequence of Centering
        One per kernel, if kernels were centred as matrices.
    repairs : mapping of int to Centering
        Kernels whose gaps were filled from other kernels.
    """

    names: list[str]
    view_names: list[str]
    active: list[int]
    remarks: list[str]
    source: Source | None = None
    centerings: Sequence[Centering] = ()
    repairs: Mapping[int, Centering] = MappingProxyType({})

    @property
    def parts(self) -> Sequence[FittedMap]:
        """The maps it consists of, each of some of the kernels."""
        return [self]

    @property
    def seen(self) -> np.ndarray | None:
        """Which training rows have which view, (n, v); None if all have them all."""
        return None

    def check_gaps(self, observed: np.ndarray, missing: str) -> None:
        """Refuse rows that lack views, which ``observed`` (m, v) marks, if need be."""

    def spread(self, weights: np.ndarray) -> np.ndarray:
        """Weights of all p kernels from the active ones'; constant kernels get 0."""
        full = np.zeros(len(self.names))
        full[self.active] = weights
        return full

    def pieces(self, rows: ObservedViews) -> Iterator[tuple[slice, ObservedViews]]:
        """The rows, one chunk at a time."""
        raise NotImplementedError

    def in_chunks(
        self, rows: ObservedViews, work: Callable[[ObservedViews], Array]
    ) -> Array:
        """What ``work`` makes of each chunk of rows, (m, ...)."""
        parts = []
        for part, piece in self.pieces(rows):
            with numbered(part.start):
                parts.append(work(piece))
        return parts[0] if len(parts) == 1 else namespace(*parts).concat(parts, axis=0)

    def require_active(self) -> None:
        """Refuse kernels none of which varies."""
        if not self.active:
            raise NothingVariesError


class NothingVariesError(ValueError):
    """All kernels are constant, so no model is better than one without views."""

    def __init__(
        self,
        message: str = "every kernel is constant on the training rows, so there is "
        "nothing to learn from; check the features",
    ) -> None:
        super().__init__(message)


class KernelMap(FittedMap):
    """Turn rows into centred kernels of trace n against the training rows.

    Parameters
    ----------
    source : Source
        The source of the raw kernels.
    psd : {"error", "clip", "trust"}
        What to do with a kernel that is not positive semidefinite; "trust" skips the
        check.
    row_weights : ndarray of shape (n,), optional
        Weights w > 0 of the training rows.
    scale_rows : bool, default=True
        Whether rows and columns of the bank are multiplied by ``sqrt(w)``, as least
        squares requires; margins and alignments weight the rows themselves. Either way
        a kernel is checked, and clipped, over rows that count once.
    storage : {"auto", "fastest", "matrices", "on_the_fly"}, default="auto"
        Whether kernels are kept as matrices or recomputed on every pass; "auto" keeps
        them if they fit into memory, "fastest" if, in addition, that takes no longer.
    work_matrices : float, optional
        n x n arrays that are needed besides kernels made on the fly.
    standard : Standard, optional
        Whether kernels are centred, and what they are scaled by.
    """

    source: Source
    centerings: list[Centering]
    #: Entries of a chunk of rows; None is the default of :func:`row_chunks`.
    chunk_entries: int | None = None

    def __init__(
        self,
        source: Source,
        psd: Literal["error", "clip", "trust"] = "error",
        row_weights: np.ndarray | None = None,
        scale_rows: bool = True,
        storage: Storage = "auto",
        work_matrices: float | None = None,
        standard: Standard = STANDARD,
    ) -> None:
        self.source, self.standard = source, standard
        self.storage, self.work_matrices = storage, work_matrices or WORK_MATRICES
        self.psd, self.row_weights, self.scale_rows = psd, row_weights, scale_rows
        self.names, self.view_names = source.names, source.view_names
        self.centerings: list[Centering] = []
        self.active: list[int] = []
        self.remarks = list(source.remarks)

    def fit(self, progress: Callable[[int], object] | None = None) -> Bank:
        """Compute, check, centre and scale all kernels; return the active ones."""
        stack = None
        if self.storage != "on_the_fly" and not self.is_faster_on_the_fly():
            try:
                stack = self._allocate(self.source.like)
            except MemoryRefusedError:
                if self.storage == "matrices" or not self._fits_on_the_fly():
                    raise
        made: Any = self._tiles() if stack is None else stack
        found = self._center_tiles(made) if stack is None else self._center_stack(made)
        for i, centering in enumerate(found):
            self.active += [i] if centering.scale > 0 else []
            self.centerings.append(centering)
            if progress is not None:
                progress(i)
        self.source.release()
        self.remarks += warn_constant(self.names, self.view_names, self.active)
        self.require_active()
        bank = (self._bank_of_tiles if stack is None else self._dense_bank)(made)
        bank.standard = self.standard
        bank.views = [self.view_names[i] for i in self.active]
        return bank

    def _center_stack(self, stack: Array) -> Iterator[Centering]:
        """Fill the stack (p, n, n) with kernels, centred, scaled and checked."""
        for i, known_psd in enumerate(self.source.fill(stack)):
            yield self._center(i, stack[i, :, :], known_psd)

    def _dense_bank(self, stack: Array) -> DenseBank:
        """The active kernels of the stack, completed and weighted."""
        for slot_number, i in enumerate(self.active):  # close the gaps
            if slot_number < i:
                stack[slot_number, :, :] = stack[i, :, :]
        names = [self.names[i] for i in self.active]
        bank = DenseBank(stack[: len(self.active), :, :], names)
        errors = np.array(
            [lost_in_centring(bank.like, self.centerings[i]) for i in self.active]
        )
        # Twice, since eigenvalues below zero may have been lifted by as much.
        bank.errors = 2.0 * errors if np.any(errors) else None
        self._complete(bank)
        if self.scale_rows and self.row_weights is not None:
            root = from_numpy(np.sqrt(self.row_weights), stack)
            both = root[:, None] * root[None, :]
            for slot_number in range(len(self.active)):
                stack[slot_number, :, :] *= both
            if bank.errors is not None:  # the norm of both is the sum of the weights
                bank.errors = bank.errors * float(np.mean(self.row_weights))
        return bank

    def _fits_on_the_fly(self) -> bool:
        """Whether kernels may be recomputed on every pass, and memory is enough."""
        if not self._may_recompute():
            return False
        free = available_bytes(self.source.like)
        return free is None or self._bytes_on_the_fly() <= free

    def _may_recompute(self) -> bool:
        """Whether kernels can be computed again, from columns that every row has."""
        return isinstance(self.source, FeatureSource)

    def is_faster_on_the_fly(self) -> bool:
        """Whether the fastest storage is requested, and storing nothing is fastest."""
        source = self.source
        if self.storage != "fastest" or source.n_samples < FASTER_FROM:
            return False
        if not is_numpy(source.like) or not self._fits_on_the_fly():
            return False
        assert isinstance(source, FeatureSource)
        checked = all(kernel.psd for _, kernel in source.places)
        return checked and len(source.places) >= SHARED_BY * len(source.tiles().groups)

    def _bytes_on_the_fly(self) -> int:
        """Memory that a fit needs if no kernel is kept."""
        like, n = self.source.like, self.source.n_samples
        bits = namespace(like).finfo(like.dtype).bits
        return int(self.work_matrices * n * n * bits // 8)

    def _tiles(self) -> OnTheFlyBank:
        """The kernels, to be recomputed on every pass, if there is enough memory."""
        if not isinstance(self.source, FeatureSource):
            raise ValueError(
                "features='on_the_fly' computes kernels from columns; "
                "views='precomputed' provides only kernels, which are used as they are "
                "with features='auto'"
            )
        require_memory(
            self._bytes_on_the_fly(),
            f"a fit to {self.source.n_samples} rows with kernels made on the fly",
            "use fewer rows, float32 input or explicit features",
            self.source.like,
        )
        return self.source.tiles()

    def _center_tiles(self, tiles: OnTheFlyBank) -> Iterator[Centering]:
        """How all kernels are centred and scaled, without keeping any of them."""
        shares = self._shares(tiles.like)
        found = center_tiles(tiles, self.source.noise, shares, self.standard)
        for i in range(tiles.n_kernels):
            with self._explained(i):
                centering = next(found)
            yield centering

    def _bank_of_tiles(self, tiles: OnTheFlyBank) -> OnTheFlyBank:
        """The active kernels, checked and weighted."""
        own = [self.centerings[i] for i in self.active]
        bank = tiles.subset(self.active).centred(own)
        shifts = np.array([self._shift(bank, j) for j in range(bank.n_kernels)])
        weights = self.row_weights if self.scale_rows else None
        return bank.centred(own, weights, shifts)

    @contextmanager
    def _explained(self, i: int) -> Iterator[None]:
        """Errors say why kernel i cannot be centred and scaled."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                yield
        except TraceError as error:
            raise ValueError(
                f"kernel {i} ({self.names[i]!r}) has the trace {error.args[0]:.3g}, "
                "but centre=False scales kernels to trace n as they are given; use "
                "centre=True, or scale=None"
            ) from error
        except ValueError as error:
            raise ValueError(self.source.out_of_range(i)) from error

    @property
    def levels(self) -> np.ndarray:
        """The mean eigenvalue (p,) of each kernel: ones unless ``scale=None``."""
        return np.array([found.level for found in self.centerings])

    def _shift(self, bank: OnTheFlyBank, j: int) -> float:
        """The shift that makes kernel j of the bank positive semidefinite."""
        assert isinstance(self.source, FeatureSource)
        i = self.active[j]
        kernel = self.source.places[i][1]
        if kernel.psd:
            return 0.0
        check_symmetric(kernel.core.gram(self.source.kept(i)), self.names[i])
        if self.psd == "trust":
            return 0.0
        gram, title = bank.kernel(j), f"kernel {i} ({self.names[i]!r})"
        before, centering = float(gram[0, 0]), self.centerings[i]
        blur, level = lost_in_centring(gram, centering), self._level(centering)
        try:
            _, remark = ensure_psd(gram, title, "error", blur, level)
        except ValueError as error:
            if self.psd == "error":
                raise
            raise ValueError(
                f"{title} is not positive semidefinite, and psd='clip' needs its "
                "eigenvectors, while features='on_the_fly' keeps no matrix of it; use "
                "features='exact' with fewer rows or kernels, or psd='trust'"
            ) from error
        self.remarks += [remark] if remark else []
        return float(gram[0, 0]) - before

    def _complete(self, bank: DenseBank) -> None:
        """Complete the kernels of rows that lack a view, in place: here no row does.

        Called once all kernels are centred.
        """

    def _shares(
        self, like: Array, rows: np.ndarray | slice = slice(None)
    ) -> Array | None:
        """``w / N`` of some of the rows; None if all rows count the same."""
        if self.row_weights is None:
            return None
        own = self.row_weights[rows]
        return from_numpy(own / np.sum(own), like)

    def _center(
        self, i: int, slot: Array, known_psd: bool, shares: Array | None = None
    ) -> Centering:
        """Centre and scale kernel i (n, n) in place, and check that it is a kernel."""
        shares = self._shares(slot) if shares is None else shares
        noise = self.source.noise[i]
        with self._explained(i):
            centering = center_in_place(slot, noise, shares, self.standard)
        title = f"kernel {i} ({self.names[i]!r})"
        blur = lost_in_centring(slot, centering)
        if blur > 0:
            lost, digits = np.log10(centering.cancelled), -np.log10(eps(slot))
            self.remarks.append(
                f"{title}: centring cancelled {lost:.0f} of the {digits:.0f} digits of "
                f"its entries, and its eigenvalues are known to within {blur:.0e} at "
                f"trace {slot.shape[0] * centering.level:.6g}; subtract a constant "
                "from the features, or from the kernel before it is rounded"
            )
        if centering.scale > 0 and not known_psd and self.psd != "trust":
            level = self._level(centering)
            projector, remark = ensure_psd(slot, title, self.psd, blur, level)
            centering = dataclasses.replace(centering, projector=projector)
            if projector is not None and self.standard.scale is None:
                diagonal = namespace(slot).linalg.diagonal(slot)
                each = 1.0 / len(slot) if shares is None else shares
                level = float(namespace(slot).sum(diagonal * each))
                centering = dataclasses.replace(centering, level=level)
            self.remarks += [remark] if remark else []
        return centering

    def _level(self, centering: Centering) -> float | None:
        """The mean eigenvalue of a kernel whose scale is kept when it is clipped."""
        return None if self.standard.scale == "trace" else centering.level

    def center(self, i: int, gram: Array, blocks: Any) -> Array:
        """``G_i(rows)`` (m, n) from the raw kernel (m, n); errors name the largest row.

        Parameters
        ----------
        i : int
            The kernel.
        gram : array of shape (m, n)
            Its values between new rows and training rows.
        blocks : list of arrays, or array of shape (m, n, p)
            The new rows.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            centred = self.centerings[i](gram)
        if not is_square_safe(centred):
            raise ValueError(self.source.out_of_range(i, blocks))
        return centred

    @property
    def row_size(self) -> int:
        """Entries of each kernel of a new row."""
        return self.source.n_samples

    def project(self, rows: ObservedViews, weights: np.ndarray, coef: Array) -> Array:
        """``sum_i w_i G_i(rows) coef``: (m, k) for all p weights and coef (n, k).

        Kernels with weight zero are not computed, and rows are processed one chunk at a
        time.
        """
        there = at_home(coef, self.source.like)

        def work(piece: ObservedViews) -> Array:
            return self._sum(piece, weights, lengths=False)[0] @ there

        return at_home(self.in_chunks(rows, work), coef)

    def project_each(
        self, rows: ObservedViews, weights: np.ndarray, coef: Array
    ) -> Array:
        """The terms ``w_i G_i(rows) coef`` of :meth:`project`, (m, p, k)."""
        there, p = at_home(coef, self.source.like), len(self.names)
        wanted = np.flatnonzero(weights).tolist()

        def work(piece: ObservedViews) -> Array:
            out = zeros((len(piece.observed), p, coef.shape[1]), there)
            kernels = self.centred_and_lengths(piece, wanted, lengths=False)
            for i, (centred, _) in zip(wanted, kernels, strict=True):
                out[:, i, :] = centred @ (there * from_numpy(weights[i : i + 1], there))
            return out

        return at_home(self.in_chunks(rows, work), coef)

    def cross(self, rows: ObservedViews, weights: np.ndarray) -> Array:
        """``sum_i w_i G_i(rows)``, (m, n), for all p weights."""

        def work(piece: ObservedViews) -> Array:
            total, _ = self._sum(piece, weights, lengths=False)
            return at_home(total, rows.like)

        return self.in_chunks(rows, work)

    def cross_and_lengths(
        self, rows: ObservedViews, weights: np.ndarray, diagonal: Array | None = None
    ) -> tuple[Array, Array]:
        """``g(x)`` (m, n) and ``g(x, x)`` (m,) of the weighted sum of centred kernels.

        Parameters
        ----------
        rows : ObservedViews
            New rows.
        weights : ndarray of shape (p,)
            Weights of all kernels.
        diagonal : array of shape (m, p), optional
            ``k(x, x)`` of all precomputed kernels; those of other kernels are computed.
        """
        total, norms = self._sum(rows, weights, True, diagonal)
        return at_home(total, rows.like), at_home(norms, rows.like)

    def _sum(
        self,
        rows: ObservedViews,
        weights: np.ndarray,
        lengths: bool,
        diagonal: Array | None = None,
    ) -> tuple[Array, Array]:
        """:meth:`cross_and_lengths` where the training rows are."""
        wanted = [int(i) for i in np.flatnonzero(weights)]
        total, norms = None, None
        found = self.centred_and_lengths(rows, wanted, lengths, diagonal)
        for i, (centred, length) in zip(wanted, found, strict=True):
            weight = float(weights[i])
            centred *= weight  # in memory of its own
            if total is None:
                total = centred
            else:
                total += centred
            norms = add(norms, length * weight) if lengths else None
        return total, norms

    def pieces(self, rows: ObservedViews) -> Iterator[tuple[slice, ObservedViews]]:
        """The rows, one chunk at a time."""
        row_size = self.source.n_samples * self._held()
        entries = self.chunk_entries or block_entries(self.source.like)
        for part in row_chunks(len(rows.observed), row_size, entries):
            yield part, rows.part(part)

    def centred(self, rows: ObservedViews, wanted: list[int]) -> Iterator[Array]:
        """``G_i(rows)``, (m, n), of the kernels ``wanted``, one at a time."""
        for centred, _ in self.centred_and_lengths(rows, wanted, lengths=False):
            yield at_home(centred, rows.like)

    def centred_and_lengths(
        self,
        rows: ObservedViews,
        wanted: list[int],
        lengths: bool,
        diagonal: Array | None = None,
    ) -> Iterator[tuple[Array, Array]]:
        """``G_i(rows)`` (m, n) and, with ``lengths``, ``g_i(x, x)`` (m,), else None.

        The kernels ``wanted`` are computed one at a time, where the training rows are.
        """
        blocks = moved_rows(rows, self.source.like).blocks
        for i, gram in zip(wanted, self.source.cross(blocks, wanted), strict=True):
            length = None
            if lengths:
                same = self.source.diagonal(i, blocks, diagonal)
                length = self.centerings[i].length(gram, same)
            yield self.center(i, gram, blocks), length

    def planned_storage(self) -> Literal["matrices", "on_the_fly"] | None:
        """How a fit would hold the kernels now; None if there is too little memory."""
        free = available_bytes(self.source.like)
        if self.storage != "on_the_fly" and not self.is_faster_on_the_fly():
            if free is None or self._bytes_of_matrices(self.source.like) <= free:
                return "matrices"
            if self.storage == "matrices":
                return None
        return "on_the_fly" if self._fits_on_the_fly() else None

    def _bytes_of_matrices(self, like: Array) -> int:
        """Memory that a fit needs if all kernels are kept."""
        p, n, work = len(self.names), self.source.n_samples, self._work_matrices()
        bits = namespace(like).finfo(like.dtype).bits
        return int((p + work) * n * n * bits // 8)

    def _allocate(self, like: Array) -> Array:
        p, n, work = len(self.names), self.source.n_samples, self._work_matrices()
        require_memory(
            self._bytes_of_matrices(like),
            f"a dense bank of {p} kernels over {n} rows (with {work} work matrices)",
            "use fewer kernels or rows, or float32 input",
            like=like,
        )
        return empty((p, n, n), like)

    def _held(self) -> int:
        """Number of kernels of a chunk of new rows that are in memory together."""
        return 1

    def _work_matrices(self) -> int:
        return WORK_MATRICES


def warn_constant(
    names: list[str], view_names: list[str], active: list[int]
) -> list[str]:
    """One remark, and warning, per view with kernels that are not ``active``."""
    remarks = []
    for view in dict.fromkeys(view_names):
        own = [i for i, name in enumerate(view_names) if name == view]
        constant = [i for i in own if i not in set(active)]
        if constant:
            which = (f"{i} ({names[i]!r})" for i in constant)
            verbs = ("is", "gets") if len(constant) == 1 else ("are", "get")
            remarks.append(
                f"view {view!r}: {with_names('kernel', which, 3)} (of {len(own)} in "
                f"the view) {verbs[0]} constant on the training rows and {verbs[1]} "
                "weight 0"
            )
            warnings.warn(remarks[-1], KernelWarning, stacklevel=3)
    return remarks

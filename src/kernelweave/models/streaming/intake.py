"""Rows that come in portions: their checks, and the features that they are turned into.

A portion is checked as thoroughly as the rows of a fit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from kernelweave._array import (
    Array,
    detached,
    is_on_gpu,
    require_memory,
    to_numpy,
)
from kernelweave._text import counted, numbered, with_names
from kernelweave.fits.targets import output_frame
from kernelweave.kernels.features.maps import FEWER
from kernelweave.kernels.features.recipe import FeatureRecipe
from kernelweave.kernels.moments import (
    CHUNK_ROWS,
    MOMENT_MATRICES,
    TARGET_COLUMNS,
    ChunkRecipe,
)
from kernelweave.kernels.spec import (
    as_stored,
    detached_block,
    readers,
    settle,
    warn_twins,
)
from kernelweave.learn.sample import RowMap
from kernelweave.models.shared.inputs import (
    check_home,
    check_same_rows,
    check_sample_weight,
    check_targets,
    device_array,
    find_views,
    split_blocks,
    squeezed,
    weights_of_portion,
    with_parameters,
)
from kernelweave.views.columns import (
    column_names,
    host_like,
    parse_views,
    validate_features,
    validate_new,
)
from kernelweave.views.raw_columns import Columns, read_columns
from kernelweave.views.streams import concatenate_rows, sampled

if TYPE_CHECKING:  # estimators are built from what is here
    from kernelweave.models.shared.base import KernelModel

#: Rows that fix kernel parameters and landmarks: this many, or this many per feature.
SAMPLE_ROWS, SAMPLE_FACTOR = 2000, 4
#: Folds of ``alpha="cv"``.
N_FOLDS = 5
#: The error for an input without rows.
NO_ROWS = (
    "the input X has no rows: there is nothing to learn from. Check how they were "
    "selected"
)
#: Why partial_fit uses explicit features.
PORTIONS = "partial_fit takes rows in portions"
#: Rows of each view, targets and weights.
Portion = tuple[list[Any], np.ndarray, np.ndarray]


class Intake:
    """Check portions of rows and split them into views; all must match the first.

    Parameters
    ----------
    model : estimator
        Its ``views`` determine which columns are used, and other parameters how
        features are made and summed, regardless of later changes to them.
    why : str
        Why explicit features are used.
    least_sample : int, default=SAMPLE_ROWS
        Rows that fix the features, unless there are very many features.
    chunk_size : int, default=None
        Rows whose features are computed at a time; None for ``CHUNK_ROWS``.

    Attributes
    ----------
    estimator : estimator
        An unfitted one with the same parameters, in which scikit-learn notes the
        columns of the first portion, and looks up whether later ones match.
    seed : int
        Fixes landmarks, frequencies and folds: ``random_state``, or drawn from it.
    n_folds : int
        Folds of a cross-validation; 1 for none.
    views, positions : list
        The views and their columns, known after the first portion.
    like : array
        An array of no rows with the namespace, device and dtype of the first portion.
    stored : list
        A block of no rows per view, sparse or dense as in the first portion.
    kind : str
        What its targets hold.
    """

    def __init__(
        self,
        model: KernelModel,
        why: str,
        least_sample: int = SAMPLE_ROWS,
        chunk_size: int | None = None,
    ) -> None:
        self.estimator, self.why = with_parameters(model), why
        self.least_sample, self.chunk_size = least_sample, chunk_size
        seed = model.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        self.seed, self.n_folds = int(seed), N_FOLDS if model.alpha == "cv" else 1
        self.views = parse_views(model.views, reserved=model._get_param_names())
        self.positions: list[list[int]] = []
        self.like: Array = None
        self.stored: list[Any] = []
        self.kind: str | None = None

    @property
    def sample_rows(self) -> int:
        """Number of rows that fix the features."""
        return max(self.least_sample, SAMPLE_FACTOR * int(self.estimator.n_features))

    def require_moments(self) -> None:
        """Refuse features whose second moments would not fit, before any is made.

        How many rows will come is not known, so there may be as many as features.
        """
        n_features = int(self.estimator.n_features)
        purpose = f"n_features={n_features:,} for rows in portions: second moments"
        require_memory(8 * n_features**2, purpose, FEWER)

    def chunk_rows(self, like: Any) -> int:
        """Number of rows whose features are computed at a time."""
        away = is_on_gpu(like) or self.estimator.device is not None
        return self.chunk_size or CHUNK_ROWS["gpu" if away else "cpu"]

    def portions(self, coming: Iterator[Any]) -> Iterator[Portion]:
        """Blocks, targets and weights of each portion."""
        start = 0
        for X, y in chain(self._read_ahead(coming), coming):
            portion = self.portion(X, y, start)
            yield portion
            start += len(portion[1])

    def _read_ahead(self, portions: Iterator[Any]) -> list[Any]:
        """The first portions, from which "auto" settles what to do with each column.

        Together they have the rows that fix the features, however few the first has.
        The first that does not match ends them, and is refused when it is reached.
        """
        ahead: list[Any] = []
        parts: list[Columns] = []
        if not any("auto" in readers(view.kernel) for view in self.views):
            return ahead  # portions are copied only once, in draw_sample
        for X, y in portions:
            # The next portion may reuse the same memory.
            ahead.append((copy.copy(X), copy.copy(y)))
            first, own = ahead[0][0], ahead[-1][0]
            labels, names = column_names(first) or [], column_names(own) or []
            if not names or type(own) is not type(first) or set(labels) != set(names):
                break
            parts.append(read_columns(own, [names.index(label) for label in labels]))
            if sum(part.shape[0] for part in parts) >= self.sample_rows:
                break
        if len(parts) > 1:
            table = Columns.concatenate(parts).table
            self.settle(validate_features(self.estimator, table, reset=True))
        return ahead

    def portion(self, X: Any, y: Any, start: int = 0, given: Any = None) -> Portion:
        """Blocks, targets and weights of one portion; ``start`` numbers row 0.

        The weights are those ``given`` times those of the classes.
        """
        targets, owner = self.targets(X, y, start), type(self.estimator).__name__
        blocks = self.rows(X, start)
        check_same_rows(X, given, owner, "sample_weight")
        with numbered(start):
            weights = check_sample_weight(given, len(targets), owner, all_zero=True)
        of_class = weights_of_portion(targets, self.estimator.class_weight, owner)
        return blocks, targets, weights * of_class

    def rows(self, X: Any, start: int = 0) -> list[Any]:
        """Blocks of finite floats (m, d_view); ``start`` is the number of row 0.

        The first call fixes columns, names and dtype for all later ones, which look up
        columns by name if there are names.
        """
        with numbered(start):
            if self.like is not None:
                estimator, known = self.estimator, (self.views, self.positions)
                owner = type(estimator).__name__
                check_home(X, self.like, f"{owner} in a later portion")
                X, positions = validate_new(estimator, X, *known)
                blocks = self._split(X, positions, self.like.dtype)
                pairs = zip(blocks, self.stored, strict=True)
                return [as_stored(block, first) for block, first in pairs]
            X = validate_features(self.estimator, X, reset=True)
            if not self.positions:
                self.settle(X)
            blocks = self._split(X, self.positions)
            self.like = detached(host_like(blocks[0])[:0, :])
            self.stored = [b[:0, :] if issparse(b) else self.like for b in blocks]
            warn_twins(self.views, self.positions)
            return blocks

    def settle(self, X: Any) -> None:
        """Find the columns of each view, and settle what "auto" does with them.

        Of a table in memory, X holds every row: a sample might lack rare categories.
        """
        self.views, self.positions = find_views(self.estimator, X, self.views)
        for v, view in enumerate(self.views):
            if view.raw:
                block = read_columns(X, self.positions[v])
                self.views[v] = settle(view, block)[0]

    def _split(self, X: Any, positions: list[list[int]], dtype: Any = None) -> Any:
        rows = split_blocks(X, self.views, positions, "zero", dtype)
        for view, observed in zip(self.views, rows.observed.T, strict=True):
            if not np.all(observed):
                lacking = np.flatnonzero(~observed).tolist()
                raise ValueError(
                    f"Input X contains NaN: all entries of the view {view.name!r} are "
                    f"NaN in {with_names('row', map(str, lacking))}. Explicit features "
                    f"need every view of a training row (they are used because "
                    f"{self.why}). Drop such rows, impute the view, or fit few enough "
                    "rows for kernels between all of them"
                )
        return rows.blocks

    def targets(self, X: Any, y: Any, start: int = 0) -> np.ndarray:
        """Labels (m,), or outputs (m, t), of a portion."""
        with numbered(start):
            targets = check_targets(self.estimator, X, y)
            kind, owner = _kind(targets), type(self.estimator).__name__
            if self.kind not in (None, kind):
                raise ValueError(
                    f"{owner}: y holds {kind}, but {self.kind} in the first portion. "
                    "Convert y to one form for all portions"
                )
        self.kind = kind
        return targets

    def row_map(self, kernel_map: Any) -> RowMap:
        """How new rows are mapped to the kernels."""
        names = ("n_features_in_", "feature_names_in_")
        noted = {n: v for n, v in vars(self.estimator).items() if n in names}
        return RowMap(kernel_map, self.like, self.views, self.positions, noted)


def _kind(targets: np.ndarray) -> str:
    """The kind of targets: joined with text, numbers would silently become text."""
    if targets.ndim > 1:
        return f"{counted(targets.shape[1], 'output')} per row"
    return "numbers" if targets.dtype.kind in "biuf" else "text"


def draw_sample(
    intake: Intake, portions: Iterator[Portion]
) -> tuple[list[Portion], list[Any]]:
    """Portions read ahead, and the rows that fix the features: the first of them.

    An iterator cannot be rewound, and reading a dataset is the expensive part.
    """
    waiting: list[Portion] = []
    size, seen = intake.sample_rows, 0
    for blocks, targets, weights in portions:
        # The next portion may reuse the same memory.
        own = [detached_block(block) for block in blocks]
        waiting.append((own, np.array(targets), weights))
        seen += len(targets)
        if seen >= size:
            break
    if not waiting:
        raise ValueError(NO_ROWS)
    views = zip(*(blocks for blocks, _, _ in waiting), strict=True)
    return waiting, [concatenate_rows(list(parts))[:size, :] for parts in views]


def make_recipe(
    intake: Intake, sample: list[Any], targets: Any, n_rows: int | None = None
) -> ChunkRecipe:
    """Features fixed by a sample of rows, and what to sum over chunks."""
    model, own, drawn = intake.estimator, np.asarray(targets), None
    if n_rows is not None and n_rows > intake.sample_rows:
        drawn = sampled(n_rows, intake.sample_rows, intake.seed)
        own = own[drawn] if len(own) == n_rows else own
    features = FeatureRecipe(
        intake.views,
        sample,
        "nystroem" if model.features == "auto" else model.features,
        int(model.n_features),
        intake.seed,
        squeezed(own[: sample[0].shape[0]]),
        drawn,
    )
    if model.psd != "trust":
        features.refuse_indefinite(sample)
    like = device_array(intake.like, model.device)
    size = features.n_features + TARGET_COLUMNS
    tall = min(n_rows or size, intake.chunk_rows(like))
    narrow = min(n_rows or size, size)
    require_memory(
        8 * (intake.n_folds * MOMENT_MATRICES * narrow * size + tall * size),
        f"second moments of {features.n_features} features",
        "use a smaller n_features or fewer kernels",
        like=like,
    )
    classify, origin, unit = is_classifier(model), np.zeros(1), np.ones(1)
    if not classify:
        outputs = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)
        origin, unit = output_frame(outputs, to_numpy(like).dtype)
    # Double precision has digits to spare for means that are not subtracted.
    single = np.finfo(to_numpy(like).dtype).bits == 32
    return ChunkRecipe(
        features,
        like,
        classify,
        intake.n_folds,
        intake.seed,
        origin,
        features.means(sample) if single else None,
        unit,
    )

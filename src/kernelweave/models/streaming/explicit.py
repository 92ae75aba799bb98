"""The device that rows in host memory are sent to."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from kernelweave._array import Array, detached, is_array, is_numpy, to_numpy
from kernelweave._memory import require_memory
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.fits.ridge import output_frame
from kernelweave.kernels.features.recipe import FeatureRecipe, FeatureReport
from kernelweave.kernels.maps.feature_map import FeatureKernelMap
from kernelweave.kernels.moments import (
    CHUNK_ROWS,
    ChunkRecipe,
    Moments,
    RowAccumulator,
    concatenate_rows,
)
from kernelweave.models.shared.base import Progress
from kernelweave.models.shared.inputs import Rule, one_of, read_rows, whole
from kernelweave.models.shared.learner import Columns, Fitted, Trained
from kernelweave.models.streaming.dask import dask_moments, dask_sample, with_targets
from kernelweave.models.streaming.intake import Intake
from kernelweave.models.streaming.kept_rows import fit_kept_rows
from kernelweave.views.columns import is_arrow, is_dask, is_iterator, is_precomputed
from kernelweave.views.streams import Stream, open_stream
from kernelweave.views.validate import validate_features

__all__ = [
    "FEATURES",
    "FeatureOptions",
    "check_columns",
    "check_features",
    "device_array",
    "may_fall_back",
    "on_host",
    "refused",
    "train",
    "train_moments",
    "why_features",
]


def on_host(X: Any) -> bool:
    """Whether X is in host memory."""
    return not is_array(X) or is_numpy(X) or "cpu" in str(X.device).lower()


def device_array(like: Array, device: str | None) -> Array:
    """An array of no rows on the device, from torch or, without torch, from CuPy.

    Parameters
    ----------
    like : array
        Rows in host memory, which determine the dtype.
    device : str or None
        A device of torch such as "cuda" or "cuda:1", or "cupy"; None leaves rows where
        they are.
    """
    if device is None:
        return like
    dtype = str(to_numpy(like).dtype)
    try:
        if device != "cupy" and _has_torch():
            import torch

            return torch.empty((0, 1), dtype=getattr(torch, dtype), device=device)
        if device.startswith("cu"):
            import cupy

            return cupy.empty((0, 1), dtype=dtype)
        problem = "torch is not installed"
    except Exception as error:  # each library raises its own exceptions here
        problem = f"{type(error).__name__}: {error}"
    raise ValueError(
        f"device={device!r} cannot be used: {problem}. Install torch or CuPy for this "
        "device, or leave device at None."
    )


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


#: Number of rows beyond which "auto" computes no n x n kernels on a CPU.
AUTO_ROWS = 10_000
#: Values that explicit features support; others need n x n kernels.
NEEDED = {
    "objective": "fisher",
    "scatter": "total",
    "formulation": "exact",
    "missing": "error",
}
#: Values that the parameters of explicit features may take.
FEATURES = {
    "features": one_of("auto", "exact", "nystroem", "random"),
    "n_features": whole(1),
    "device": Rule(
        "None or a name such as 'cuda'", lambda v: v is None or isinstance(v, str)
    ),
}


def refused(model: Any) -> list[tuple[str, str, Any]]:
    """Parameters that rule out explicit features: name, value needed, value found."""
    rows = [
        (name, value, getattr(model, name, value)) for name, value in NEEDED.items()
    ]
    return [(name, value, found) for name, value, found in rows if found != value]


def check_features(model: Any, why: str) -> None:
    """Refuse what rules out explicit features, which are needed because ``why``."""
    for name, value, found in refused(model):
        raise ValueError(
            f"explicit features exist for {name}={value!r} only; got {found!r} "
            f"(they are used because {why})"
        )
    if model.solver == "sdp":
        raise ValueError("solver='sdp' needs n x n kernels; got explicit features")


def check_columns(model: Any) -> None:
    """Refuse parameters that need columns if only kernels are given."""
    if not is_precomputed(model.views):
        return
    for name, values in {"features": ("random", "nystroem"), "alpha": ("cv",)}.items():
        if getattr(model, name) in values:
            raise ValueError(
                f"{name}={getattr(model, name)!r} needs columns to compute features "
                "from; views='precomputed' provides only kernels"
            )


def why_features(model: Any, X: Any) -> str | None:
    """Why explicit features are used for X; None if kernels are used."""
    if is_iterator(X) or is_arrow(X) or is_dask(X):
        if is_precomputed(model.views):
            raise ValueError(
                "views='precomputed' takes kernels between all rows at once, not "
                f"rows in portions; got {type(X).__name__}"
            )
        return "rows come in portions"
    if is_precomputed(model.views):
        return None
    if model.features in ("nystroem", "random"):
        return f"features={model.features!r} was asked for"
    if issparse(X):  # refused unless features were asked for
        return "rows are sparse" if model.features == "exact" else None
    if model.alpha == "cv":
        return "alpha='cv' works on moments of folds"
    if model.device is not None:
        return f"device={model.device!r} takes rows in portions"
    shape = getattr(X, "shape", ())
    n = shape[0] if shape else 0
    if n > AUTO_ROWS and on_host(X) and may_fall_back(model):
        return f"{n:,} rows are more than {AUTO_ROWS:,}"
    return None


def may_fall_back(model: Any) -> bool:
    """Whether features may replace kernels: no parameter demands kernels."""
    free = model.features == "auto" and not is_precomputed(model.views)
    return free and not refused(model) and model.solver != "sdp"


#: Rows that fix kernel parameters and landmarks: this many, or this many per feature.
SAMPLE_ROWS, SAMPLE_FACTOR = 2000, 4
#: Folds of ``alpha="cv"``.
N_FOLDS = 5
#: Moment matrices alive at a time: partial sums, and those of a solve.
WORK_MATRICES = 12


@dataclass(frozen=True)
class FeatureOptions:
    """How explicit features are made and summed."""

    method: str  # "exact", "nystroem" or "random"
    n_features: int  # of each kernel that has to be approximated
    device: str | None  # where features are computed; None: where the rows are
    n_folds: int  # of a cross-validation; 1 for none
    seed: int  # fixes landmarks, frequencies and folds
    why: str  # explicit features are used

    @classmethod
    def of(cls, model: Any, why: str) -> FeatureOptions:
        """The options of an estimator; draws a seed unless ``random_state`` is one."""
        method = "nystroem" if model.features == "auto" else model.features
        seed = model.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        folds = N_FOLDS if model.alpha == "cv" else 1
        return cls(method, int(model.n_features), model.device, folds, int(seed), why)

    @property
    def sample_rows(self) -> int:
        """Number of rows that fix the features."""
        return max(SAMPLE_ROWS, SAMPLE_FACTOR * self.n_features)

    def chunk_rows(self, like: Any) -> int:
        """Number of rows whose features are computed at a time."""
        here = on_host(like) and self.device is None
        return CHUNK_ROWS["cpu" if here else "gpu"]


def train(model: Any, X: Any, y: Any, progress: Progress) -> Trained:
    """Fit kernels between all rows, or explicit features if those do not fit in memory.

    The estimator ``model``, which is not changed, determines how rows are read. It has
    ``_check_targets(X, y)``; ``_require_enough(targets)``, which refuses targets from
    which nothing can be learned; ``_from_kernels(bank, targets, callback)``, which
    returns :class:`Fitted`; and ``_from_moments(recipe, moments, like, callback)``,
    which returns the feature map as well.
    """
    why = why_features(model, X)
    if why is None:
        try:
            return _train_kernels(model, X, y, progress)
        except MemoryRefusedError as error:
            if not may_fall_back(model):
                raise
            why = f"kernels between all rows do not fit: {error}"
    check_features(model, why)
    return _train_features(model, FeatureOptions.of(model, why), X, y, progress)


def _train_kernels(model: Any, X: Any, y: Any, progress: Progress) -> Trained:
    rows = read_rows(model, X)
    targets = model._check_targets(X, y)
    model._require_enough(targets)
    kernel_map, bank = rows.kernels(model, progress.kernel)
    fitted = model._from_kernels(bank, targets, progress.iteration)
    why = f"kernels between all {len(targets):,} rows fit into memory"
    columns, report = Columns(rows.views, rows.positions), FeatureReport("kernels", why)
    return Trained(fitted, kernel_map, rows.like, columns, report)


def _train_features(
    model: Any, options: FeatureOptions, X: Any, y: Any, progress: Progress
) -> Trained:
    intake = Intake(model)
    if is_dask(X):
        X, y = with_targets(X, y)
        rows, targets = (
            dask_sample(part, options.sample_rows, options.seed) for part in (X, y)
        )
        recipe = make_recipe(options, intake, intake.sampled_rows(rows), targets)
        moments = dask_moments(recipe, intake, X, y)
        return train_moments(model, options, intake, recipe, moments, progress)
    if not is_iterator(X) and not is_arrow(X):
        X = validate_features(intake.bearer, X, reset=True, sparse=True)
        y = intake.targets(X, y)
    stream = open_stream(X, y, options.chunk_rows(X))
    portions = stream.portions()
    waiting, sample = _sample(options, stream, portions, intake)
    first = stream.y if stream.n_rows else np.concatenate([w[1] for w in waiting])
    recipe = make_recipe(options, intake, sample, first, stream.n_rows)
    if _keeps_rows(options, stream, recipe):
        blocks = intake.rows(stream.X)
        report = _report(recipe, blocks, "rows", options.why)
        model._require_enough(stream.y)
        found = fit_kept_rows(model, recipe, blocks, stream.y, progress.iteration)
        return _trained(found, intake, report)
    accumulator = RowAccumulator(recipe, options.chunk_rows(intake.like))
    seen = 0
    for blocks, targets in waiting:
        accumulator.push(blocks, targets)
        seen += len(targets)
    for rows, targets in portions:
        if stream.n_rows is None:  # targets of an array were checked as a whole
            targets = intake.targets(rows, targets, seen)
        accumulator.push(intake.rows(rows, seen), targets)
        seen += len(targets)
    moments = accumulator.total()
    return train_moments(model, options, intake, recipe, moments, progress)


def train_moments(
    model: Any,
    options: FeatureOptions,
    intake: Intake,
    recipe: ChunkRecipe,
    moments: Moments,
    progress: Progress,
) -> Trained:
    """Fit the second moments once all rows have been seen."""
    if not enough(moments):
        model._require_enough(moments.probe.y)  # raises, saying what is missing
    report = _report(recipe, moments.probe.views, "moments", options.why)
    found = model._from_moments(recipe, moments, intake.like, progress.iteration)
    return _trained(found, intake, report)


def _trained(
    found: tuple[FeatureKernelMap, Fitted], intake: Intake, report: FeatureReport
) -> Trained:
    kernel_map, fitted = found
    kernel_map.remarks += report.remarks
    return Trained(fitted, kernel_map, intake.like, intake.columns(), report)


def enough(moments: Moments) -> bool:
    """Whether there are two classes or, for a regression, two rows."""
    if moments.labels is None:
        return moments.n_rows >= 2
    return len(moments.labels) >= 2


def _report(
    recipe: ChunkRecipe, probe: list[Any], kind: str, why: str
) -> FeatureReport:
    features = recipe.features
    maps = features.report([rows[:256] for rows in probe])
    return FeatureReport(kind, why, features.n_features, maps)


def _sample(
    options: FeatureOptions, stream: Stream, portions: Any, intake: Intake
) -> tuple[list[Any], list[Any]]:
    """Portions read ahead, and the rows that fix the features."""
    size = options.sample_rows
    rows = stream.sample(size, np.random.default_rng(options.seed))
    if rows is not None:
        try:
            return [], intake.rows(rows)
        except (TypeError, ValueError):
            start = 0  # find the row again, to report its number in the whole
            for portion, targets in stream.portions():
                intake.rows(portion, start)
                start += len(targets)
            raise
    waiting: list[Any] = []
    seen = 0
    for portion, targets in portions:
        targets = np.array(intake.targets(portion, targets, seen))
        # The next portion may reuse the same memory.
        rows = [detached(block) for block in intake.rows(portion, seen)]
        waiting.append((rows, targets))
        seen += len(targets)
        if seen >= size:
            break
    if not waiting:
        raise ValueError("the input has no rows: there is nothing to learn from")
    blocks = [
        concatenate_rows(list(parts))
        for parts in zip(*(w[0] for w in waiting), strict=True)
    ]
    return waiting, [block[:size, :] for block in blocks]


def make_recipe(
    options: FeatureOptions,
    intake: Intake,
    sample: list[Any],
    targets: Any,
    n_rows: int | None = None,
) -> ChunkRecipe:
    """Features fixed by a sample of rows, and what to sum over chunks."""
    features = FeatureRecipe(
        intake.views, sample, options.method, options.n_features, options.seed
    )
    like = device_array(intake.like, options.device)
    _require_memory(options, features.n_features, n_rows, like)
    origin, unit, classify = None, None, is_classifier(intake.bearer)
    if not classify:
        outputs = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)
        origin, unit = output_frame(outputs, to_numpy(like).dtype)
    # Double precision has digits to spare for means that are not subtracted.
    single = np.finfo(to_numpy(like).dtype).bits == 32
    return ChunkRecipe(
        features,
        like,
        classify,
        options.n_folds,
        options.seed,
        origin,
        features.means(sample) if single else None,
        unit,
    )


def _require_memory(
    options: FeatureOptions, n_features: int, n_rows: int | None, like: Array
) -> None:
    size = n_features + 32
    tall = min(n_rows or size, options.chunk_rows(like))
    narrow = min(size, n_rows or size)
    require_memory(
        8 * (options.n_folds * WORK_MATRICES * narrow * size + tall * size),
        f"second moments of {n_features} features",
        "use a smaller n_features or fewer kernels",
        like=like,
    )


def _keeps_rows(options: FeatureOptions, stream: Stream, recipe: ChunkRecipe) -> bool:
    """Whether the features of all rows take less memory than their moments."""
    in_memory = stream.X is not None and not any(recipe.features.sparse)
    few = stream.n_rows is not None and stream.n_rows <= recipe.features.n_features
    return bool(in_memory and few and recipe.n_folds == 1 and options.device is None)

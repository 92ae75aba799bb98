"""Estimators that can work with explicit features in place of n x n kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.callback import with_callbacks
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernelweave._array import Array, detached, is_array, to_numpy
from kernelweave._memory import require_memory
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.fits.targets import output_frame
from kernelweave.kernels.features import FeatureRecipe, FeatureReport
from kernelweave.kernels.moments.accumulate import (
    CHUNK_ROWS,
    RowAccumulator,
    concatenate_rows,
)
from kernelweave.kernels.moments.sums import ChunkRecipe, Moments
from kernelweave.models.shared.device import device_array, on_host
from kernelweave.models.shared.progress import Progress
from kernelweave.models.shared.transaction import all_or_nothing, fit_method
from kernelweave.models.streaming.dask import dask_moments, dask_sample, with_targets
from kernelweave.models.streaming.feature_choice import FeatureChoice, refused
from kernelweave.models.streaming.intake import Intake
from kernelweave.models.streaming.kept_rows import fit_rows
from kernelweave.views.spec import is_precomputed
from kernelweave.views.streams import (
    ArrayStream,
    is_arrow,
    is_dask,
    is_iterator,
    open_stream,
    split_rows,
    validate_new_rows,
    validate_rows,
)

__all__ = ["ExplicitFeatures"]

#: Rows that fix kernel parameters and landmarks, or as many times the features.
SAMPLE_ROWS, SAMPLE_FACTOR = 2000, 4
#: Folds of ``alpha="cv"``.
N_FOLDS = 5
#: Matrices of moments that may be alive at a time: partial sums, and those of a solve.
WORK_MATRICES = 12


class ExplicitFeatures(FeatureChoice):
    """Adds ``features``, ``n_features``, ``device`` and ``partial_fit`` to a model.

    The class it is mixed into has ``_fit_kernels(X, y)``, which fits n x n kernels;
    ``_check_parameters()``; ``_check_targets(X, y)``; ``_learn(bank, targets,
    progress)`` and ``_finish(recipe, moments, progress)``, which fit to kernels and to
    moments; and the tag ``_classifies``.
    """

    random_state: Any
    feature_coef_: Array
    _classifies = True
    _accumulator: RowAccumulator
    _intake: Intake
    _seen: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.features != "auto"
        if is_precomputed(self.views):
            tags.input_tags.sparse = False
        return tags

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn from rows and targets.

        Parameters
        ----------
        X : array-like, DataFrame or sparse array of shape (n, d), precomputed kernels \
of shape (n, n) or (n, n, p), Dask array or DataFrame, pyarrow data set, or iterator
            Training rows. An iterator yields pairs (X, y) of portions.
        y : array-like of shape (n,) or (n, n_outputs), or str
            Targets; the name of their column if X is a Dask DataFrame or a pyarrow
            data set; nothing if X is an iterator.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self._check_parameters()
        self._forget()
        why = self._why_features(X)
        if why is None:
            try:
                self._fit_kernels(X, y)
            except MemoryRefusedError as error:
                if not self._may_fall_back():
                    raise
                why = f"kernels between all rows do not fit: {error}"
            else:
                n = int(self.dual_coef_.shape[0])
                why = f"kernels between all {n:,} rows fit into memory"
                self.features_ = FeatureReport("kernels", why)
                return self
        return self._fit_features(X, y, why)

    @with_callbacks
    def _fit_features(self, X: Any, y: Any, why: str) -> Any:
        self._why = why
        self._check_features()
        intake, progress = Intake(self), Progress(self, X, y)
        if is_dask(X):
            X, y = with_targets(X, y)
            sample = [
                dask_sample(part, self._sample_rows(), self._seed()) for part in (X, y)
            ]
            recipe = self._recipe(intake, intake.sampled_rows(sample[0]), sample[1])
            moments = dask_moments(recipe, intake, X, y)
            self._finish_fit(recipe, intake, moments, progress)
            progress.end()
            return self
        if not is_iterator(X) and not is_arrow(X):
            X = validate_rows(intake.bearer, X, reset=True)
            y = intake.targets(X, y)
        stream = open_stream(X, y, self._chunk_rows(X))
        portions = stream.portions()
        waiting, sample = self._sample(stream, portions, intake)
        first = stream.y if stream.n_rows else np.concatenate([w[1] for w in waiting])
        recipe = self._recipe(intake, sample, first, stream.n_rows)
        if self._keeps_rows(stream, recipe):
            self._report(recipe, intake.rows(stream.X), "rows")
            targets = self._codes(stream.y)
            fit_rows(self, recipe, intake, (stream.X, targets), progress)
        else:
            accumulator = RowAccumulator(recipe, self._chunk_rows(intake.like))
            seen = 0
            for blocks, targets in waiting:
                accumulator.push(blocks, targets)
                seen += len(targets)
            for rows, targets in portions:
                if stream.n_rows is None:  # those of an array were checked as a whole
                    targets = intake.targets(rows, targets, seen)
                accumulator.push(intake.rows(rows, seen), targets)
                seen += len(targets)
            self._finish_fit(recipe, intake, accumulator.total(), progress)
        progress.end()
        return self

    @available_if(lambda self: not is_precomputed(self.views) and not refused(self))
    @fit_method
    def partial_fit(
        self, X: Any = None, y: Any = None, classes: Any = None, solve: bool = True
    ) -> Any:
        """Learn from some more rows, or anew from those of earlier calls.

        The first call fixes kernel parameters, landmarks and scalings from its rows;
        later calls add to second moments. The answer is that of :meth:`fit` on an
        iterator of the same rows, whatever the portions. If a call is interrupted or
        refused, its rows do not count and everything before is kept.

        Without rows, the model is solved with its present parameters: after
        ``set_params(norm=..., alpha=...)`` no row is looked at again. Cross-validation
        is the exception, ``alpha="cv"`` has to be set before the first rows.

        Parameters
        ----------
        X : array-like, sparse array or DataFrame of shape (m, d), default=None
            Rows; none to solve only.
        y : array-like of shape (m,) or (m, n_outputs)
            Targets.
        classes : array-like of shape (k,), default=None
            All classes that may occur; a label that is none of them is refused, in
            later calls, too. Without it, classes are those that have occurred.
        solve : bool, default=True
            Whether to learn weights now. The pass over the rows is cheap, solving is
            not: with many portions, solve with the last one only.

        Returns
        -------
        self : estimator
            Fitted once two classes have been seen.
        """
        self._check_parameters()
        if X is None:
            return self._solve_again()
        if not hasattr(self, "_accumulator"):
            self._check_features()
            self._forget()
            intake, seen = Intake(self), 0
        else:
            intake, seen = self._intake, self._seen
        targets = intake.targets(X, y, seen)
        blocks = intake.rows(X, seen)
        if classes is None:
            classes = getattr(self, "_expected", None)
        if classes is not None:
            classes = np.array(classes)  # the caller's own may change between calls
            self._check_classes(targets, classes)
        if seen == 0:
            self._why = "partial_fit takes rows in portions"
            recipe = self._recipe(intake, blocks, targets)
            accumulator = RowAccumulator(recipe, self._chunk_rows(intake.like))
        else:
            accumulator = self._accumulator
        accumulator = accumulator.added(blocks, targets)
        self._accumulator, self._intake = accumulator, intake
        self._expected = classes
        self._seen = seen + len(targets)
        intake.lend(self)
        if solve:
            moments = accumulator.total()
            if self._enough(moments):
                progress = Progress(self, X, y)
                self._finish_fit(accumulator.recipe, intake, moments, progress)
                progress.end()
        return self

    def _solve_again(self) -> Any:
        """Learn from the moments of earlier calls, with the present parameters."""
        if not hasattr(self, "_accumulator"):
            raise ValueError(
                "partial_fit without rows learns from the rows of earlier calls of "
                "partial_fit, and there were none"
            )
        recipe = self._accumulator.recipe
        if self._n_folds() > recipe.n_folds:
            raise ValueError(
                "alpha='cv' needs the moments of each fold, and the rows so far were "
                "summed without folds; set it before the first call of partial_fit"
            )
        progress = Progress(self, None, None)
        self._finish_fit(recipe, self._intake, self._accumulator.total(), progress)
        progress.end()
        return self

    def _sample(
        self, stream: Any, portions: Any, intake: Intake
    ) -> tuple[list[Any], list[Any]]:
        """Portions read ahead, and rows to fix the features with."""
        rng = np.random.default_rng(self._seed())
        rows = stream.sample(self._sample_rows(), rng)
        if rows is not None:
            try:
                return [], intake.rows(rows)
            except (TypeError, ValueError):
                start = 0  # find the row again, to name it by its own number
                for portion, targets in stream.portions():
                    intake.rows(portion, start)
                    start += len(targets)
                raise
        waiting: list[Any] = []
        seen = 0
        for portion, targets in portions:
            targets = np.array(intake.targets(portion, targets, seen))
            # The next portion may come in the same memory.
            rows = [detached(block) for block in intake.rows(portion, seen)]
            waiting.append((rows, targets))
            seen += len(targets)
            if seen >= self._sample_rows():
                break
        if not waiting:
            raise ValueError("the input has no rows: there is nothing to learn from")
        blocks = [
            concatenate_rows(list(parts))
            for parts in zip(*(w[0] for w in waiting), strict=True)
        ]
        return waiting, [block[: self._sample_rows(), :] for block in blocks]

    def _recipe(
        self,
        intake: Intake,
        sample: list[Any],
        targets: Any,
        n_rows: int | None = None,
    ) -> ChunkRecipe:
        """Features fixed by a sample of rows, and what to sum over chunks."""
        method = "nystroem" if self.features == "auto" else self.features
        features = FeatureRecipe(
            intake.views, sample, method, int(self.n_features), self._seed()
        )
        like = device_array(intake.like, self.device)
        size, folds = features.n_features + 32, self._n_folds()
        tall = min(n_rows or size, self._chunk_rows(like))
        narrow = min(size, n_rows or size)
        require_memory(
            8 * (folds * WORK_MATRICES * narrow * size + tall * size),
            f"second moments of {features.n_features} features",
            "use a smaller n_features or fewer kernels",
            like=like,
        )
        origin = unit = None
        if not self._classifies:
            outputs = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)
            origin, unit = output_frame(outputs, to_numpy(like).dtype)
        # Double precision has digits to spare for means that are not zero.
        single = np.finfo(to_numpy(like).dtype).bits == 32
        offset = features.means(sample) if single else None
        return ChunkRecipe(
            features, like, self._classifies, folds, self._seed(), origin, offset, unit
        )

    def _keeps_rows(self, stream: Any, recipe: ChunkRecipe) -> bool:
        """Whether features of all rows take less room than their second moments."""
        in_memory = isinstance(stream, ArrayStream) and not any(recipe.features.sparse)
        few = stream.n_rows is not None and stream.n_rows <= recipe.features.n_features
        return bool(in_memory and few and recipe.n_folds == 1 and self.device is None)

    def _codes(self, y: np.ndarray) -> np.ndarray:
        if not self._classifies:
            if len(y) < 2:
                raise ValueError(
                    f"{type(self).__name__} needs at least 2 rows; found 1 sample"
                )
            return y
        return self._encode(y, y)

    def _finish_fit(
        self, recipe: ChunkRecipe, intake: Intake, moments: Moments, progress: Progress
    ) -> None:
        if not self._enough(moments):
            self._codes(moments.probe.y)  # says what is missing
        self._like = intake.like
        intake.lend(self)
        self._report(recipe, moments.probe.views, "moments")
        self._finish(recipe, moments, progress)

    def _enough(self, moments: Moments) -> bool:
        if moments.labels is None:
            return moments.n_rows >= 2
        return len(moments.labels) >= 2

    def _report(self, recipe: ChunkRecipe, probe: list[Any], kind: str) -> None:
        features = recipe.features
        maps = features.report([rows[:256] for rows in probe])
        self.features_ = FeatureReport(kind, self._why, features.n_features, maps)

    def _check_classes(self, targets: np.ndarray, classes: np.ndarray) -> None:
        unknown = np.setdiff1d(targets, classes)
        if len(unknown):
            raise ValueError(
                f"y contains {unknown.tolist()[0]!r}, which is none of classes="
                f"{classes.tolist()!r}; these rows were not added"
            )

    def _forget(self) -> None:
        """Remove what an earlier fit of another kind left behind."""
        names = ("feature_coef_", "dual_coef_", "kernel_weights_", "features_")
        for name in (*names, "_accumulator", "_expected"):
            self.__dict__.pop(name, None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "kernel_weights_")

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        if not hasattr(self, "_drawn"):
            rng = check_random_state(self.random_state)
            self._drawn = int(rng.randint(2**31 - 1))
        return self._drawn

    def _n_folds(self) -> int:
        return N_FOLDS if self.alpha == "cv" else 1

    def _sample_rows(self) -> int:
        return max(SAMPLE_ROWS, SAMPLE_FACTOR * int(self.n_features))

    def _chunk_rows(self, like: Any) -> int:
        here = on_host(like) and self.device is None
        return CHUNK_ROWS["cpu" if here else "gpu"]

    def _rows(self, X: Any, method: str) -> Any:
        """Rows at prediction; sparse ones too, if features are explicit."""
        if not hasattr(self, "feature_coef_"):
            return super()._rows(X, method)
        check_is_fitted(self)
        if is_array(X):
            self._check_home(X, method)
        X, positions = validate_new_rows(self, X, self._views, self._positions)
        return split_rows(X, self._views, positions, self._like.dtype)

    def _predict_target(self, X: Any, method: str) -> Array:
        """Projections (m, k) through kernels or through features."""
        if not hasattr(self, "feature_coef_"):
            return super()._predict_target(X, method)
        rows = self._rows(X, method)
        weights = to_numpy(self.kernel_weights_)
        return self.kernel_map_.project(rows, weights, self.feature_coef_)

    @property
    def _n_features_out(self) -> int:
        """Columns of ``transform``."""
        coef = getattr(self, "feature_coef_", None)
        return int((self.dual_coef_ if coef is None else coef).shape[1])

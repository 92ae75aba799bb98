"""Explicit features of all rows, where there are fewer rows than features."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import device, from_numpy, namespace, to_numpy
from kernelweave._tolerances import CONSTANT_VARIANCE
from kernelweave.kernels.banks.features import FeatureBank
from kernelweave.kernels.maps.feature_map import FeatureKernelMap
from kernelweave.kernels.moments.sums import ChunkRecipe
from kernelweave.models.shared.progress import Progress
from kernelweave.models.streaming.intake import Intake
from kernelweave.models.streaming.primal import feature_coef

__all__ = ["fit_rows"]


def fit_rows(
    model: Any,
    recipe: ChunkRecipe,
    intake: Intake,
    data: tuple[Any, np.ndarray],
    progress: Progress,
) -> None:
    """Fit kernels ``Z_i Z_i'`` over all rows; data are these and checked targets.

    The model learns as it does from n x n kernels, leave-one-out included. Its
    coefficients of rows become coefficients of features, so that none of the rows is
    needed for predictions.
    """
    features, like = recipe.moved, recipe.like
    blocks = intake.rows(data[0])
    xp, n = namespace(like), len(data[1])
    rows = xp.empty((n, features.n_features), dtype=like.dtype, device=device(like))
    features.write(blocks, rows)
    means = xp.mean(rows, axis=0)
    rows -= means[None, :]
    mean = to_numpy(means).astype(np.float64)
    scales = _scale_blocks(rows, recipe, mean)
    active = [int(i) for i in np.flatnonzero(scales)]
    model.kernel_map_ = FeatureKernelMap(recipe.features, mean, active, like)
    model.kernel_map_.remarks += model.features_.remarks
    if not active:
        raise ValueError(
            f"every one of the {len(features.names)} kernel(s) is constant on the "
            "training rows, so there is nothing to learn from; check the features"
        )
    model.kernel_names_, model._like = list(features.names), intake.like
    intake.lend(model)
    bank = FeatureBank(rows, features.widths, list(features.names))
    bank = bank.subset(np.array(active))
    model._learn(bank, data[1], progress)
    weights = to_numpy(model.kernel_weights_)[active].astype(np.float64)
    coef = feature_coef(bank, weights, model.dual_coef_)
    used = np.repeat(weights > 0, bank.widths)
    coef *= np.repeat(scales[active], bank.widths)[used][:, None]
    model.feature_coef_ = from_numpy(coef, like)


def _scale_blocks(rows: Any, recipe: ChunkRecipe, mean: np.ndarray) -> np.ndarray:
    """Scale each kernel to trace n in place; the factors, 0 for constant kernels."""
    xp, n, features = namespace(rows), rows.shape[0], recipe.features
    scales = np.zeros(len(features.maps))
    for i, block in enumerate(features.blocks):
        trace = float(xp.sum(rows[:, block] ** 2))
        size = n * float(np.sum(mean[block] ** 2)) + trace
        rounding = max(
            CONSTANT_VARIANCE * recipe.precision * size, n * features.noise[i]
        )
        if trace > rounding:
            scales[i] = (n / trace) ** 0.5
            rows[:, block] *= float(scales[i])
    return scales

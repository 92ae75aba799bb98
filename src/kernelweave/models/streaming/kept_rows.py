"""Explicit features of all rows, if these take less memory than their moments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelweave._array import device, from_numpy, namespace, to_numpy
from kernelweave._tolerances import CONSTANT_VARIANCE
from kernelweave.kernels.banks.features import FeatureBank
from kernelweave.kernels.maps.feature_map import FeatureKernelMap
from kernelweave.kernels.moments import ChunkRecipe
from kernelweave.models.shared.learner import Callback, Fitted

__all__ = ["fit_kept_rows"]


def fit_kept_rows(
    model: Any,
    recipe: ChunkRecipe,
    blocks: list[Any],
    targets: np.ndarray,
    callback: Callback,
) -> tuple[FeatureKernelMap, Fitted]:
    """Fit kernels ``Z_i Z_i'`` between all rows, given as one block per view.

    The model learns as it does from n x n kernels, including leave-one-out errors. Its
    row coefficients are turned into feature coefficients, so that predictions need none
    of the rows.
    """
    features, like = recipe.moved, recipe.like
    xp, n = namespace(like), len(targets)
    rows = xp.empty((n, features.n_features), dtype=like.dtype, device=device(like))
    features.write(blocks, rows)
    means = xp.mean(rows, axis=0)
    rows -= means[None, :]
    mean = to_numpy(means).astype(np.float64)
    scales = _scale_blocks(rows, recipe, mean)
    active = [int(i) for i in np.flatnonzero(scales)]
    kernel_map = FeatureKernelMap(recipe.features, mean, active, like)
    if not active:
        raise ValueError(
            f"every one of the {len(features.names)} kernel(s) is constant on the "
            "training rows, so there is nothing to learn from; check the features"
        )
    bank = FeatureBank(rows, features.widths, list(features.names))
    bank = bank.subset(np.array(active))
    fitted = model._from_kernels(bank, targets, callback)
    # w_i Z_i'B of the kernels with weight, for features before scaling
    weights = np.repeat(fitted.learned.choice.weights, bank.widths)
    coef = to_numpy(bank.features.T @ fitted.dual_coef) * weights[:, None]
    coef *= np.repeat(scales[active], bank.widths)[:, None]
    return kernel_map, replace(fitted, feature_coef=from_numpy(coef[weights > 0], like))


def _scale_blocks(rows: Any, recipe: ChunkRecipe, mean: np.ndarray) -> np.ndarray:
    """Scale each kernel to trace n in place; returns factors, 0 for constant ones."""
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

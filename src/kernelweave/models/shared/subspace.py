"""What the estimators of subspace kernels share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernelweave._array import Array, eps
from kernelweave.criteria.fisher.total import Fisher
from kernelweave.fits.subspace import Subspace
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.models.shared.learner import Choice, LearnerOptions, choose_weights
from kernelweave.models.shared.parameters import boolean, check_parameters, whole
from kernelweave.models.shared.progress import Progress

__all__ = ["check_components", "in_unit_variance", "learn_weights", "usable_alpha"]


def check_components(model: Any) -> None:
    """Refuse a dimension or a kind of subspace that does not exist."""
    check_parameters(
        model, {"n_components": whole(1, optional=True), "uncorrelated": boolean()}
    )


def learn_weights(
    model: Any, bank: DenseBank, target: Array, progress: Progress
) -> Choice:
    """Weights and alpha by Eq. 27: the Fisher criterion with the label factor."""
    options = LearnerOptions.of(model)
    if bank.n_kernels == 1:  # every norm gives one kernel the same weight
        options = replace(options, norm=1.0)
    return choose_weights(
        options,
        bank,
        target,
        lambda alpha: Fisher(bank, target, alpha),
        progress.iteration,
    ).choice


def usable_alpha(alpha: float, like: Array) -> float:
    """A learned regularisation may be zero; the least that can be factored with."""
    return max(float(alpha), like.shape[0] * eps(like))


def in_unit_variance(subspace: Subspace) -> Subspace:
    """Features times ``sqrt(n)``: those of Eq. 19 have norms, not variances, of one."""
    scale = float(subspace.features.shape[0]) ** 0.5
    return Subspace(
        subspace.coef * scale, subspace.features * scale, subspace.dependence
    )

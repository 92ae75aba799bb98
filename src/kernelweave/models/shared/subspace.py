"""What the estimators of subspace kernels share."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kernelweave._array import Array, eps
from kernelweave.criteria.fisher.total import Fisher
from kernelweave.fits.subspace import Subspace
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.models.shared.learner import Choice, WeightLearner
from kernelweave.models.shared.parameters import boolean, check_parameters, whole
from kernelweave.models.shared.progress import Progress

__all__ = ["check_components", "in_unit_variance", "learn_weights"]


def check_components(model: Any) -> None:
    """Refuse a dimension or a kind of subspace that does not exist."""
    rules = {"n_components": whole(1, optional=True), "uncorrelated": boolean()}
    check_parameters(model, rules)


def learn_weights(
    model: Any, bank: DenseBank, target: Array, progress: Progress
) -> Choice:
    """Weights and alpha by Eq. 27: the Fisher criterion with the label factor."""
    names = ("alpha", "solver", "tol", "max_iter", "objective")
    settings = SimpleNamespace(**{name: getattr(model, name) for name in names})
    # Every norm gives one kernel the same weight.
    settings.norm = 1.0 if bank.n_kernels == 1 else model.norm
    learner = WeightLearner(
        settings, bank, target, lambda alpha: Fisher(bank, target, alpha), progress
    )
    choice = learner.choose()[0]
    # A learned regularisation may be zero: take the least that can be factored with.
    smallest = target.shape[0] * eps(target)
    return replace(choice, alpha=max(float(choice.alpha), smallest))


def in_unit_variance(subspace: Subspace) -> Subspace:
    """Features times ``sqrt(n)``: those of Eq. 19 have norms, not variances, of one."""
    scale = float(subspace.features.shape[0]) ** 0.5
    return Subspace(
        subspace.coef * scale, subspace.features * scale, subspace.dependence
    )

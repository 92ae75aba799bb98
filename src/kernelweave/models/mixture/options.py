"""Options for learning a mixture: parameters, checked and frozen."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from kernelweave.fits.predictive import Expert, PredictivePath, choose_noise
from kernelweave.models.shared.inputs import (
    COMMON,
    check_parameters,
    number,
    one_of,
    positive,
    whole,
)

__all__ = ["MixtureOptions", "check_mixture_parameters"]

#: Which values the parameters of a mixture may take.
RULES = {
    "weights": one_of("per_class", "shared", "uniform", "stacking"),
    "concentration": number("a finite number >= 0", lambda v: isfinite(v) and v >= 0),
    "projection": one_of("prior", "posterior"),
    "noise": positive("loo", "ml", "em"),
    "likelihood": one_of("gaussian", "student", "tprocess"),
    "dof": number("a number > 2", lambda v: isfinite(v) and v > 2),
    "solver": one_of("auto", "newton", "em"),
    "tol": number("a number > 0", lambda v: v > 0),
    "max_iter": whole(1, optional=True),
    **COMMON,
}


@dataclass(frozen=True)
class MixtureOptions:
    """The parameters of :class:`MixtureKDA` that a fit depends on."""

    weights: str
    concentration: float
    noise: float | str
    likelihood: str
    dof: float
    missing: str
    solver: str
    tol: float
    max_iter: int | None

    def expert(self, path: PredictivePath) -> Expert:
        """The expert at its chosen noise level (for "em", the initial one)."""
        noise = "loo" if self.noise == "em" else self.noise
        return choose_noise(path, noise, "profile", self.likelihood, self.dof)

    def problem(self, n_experts: int) -> str:
        """What is maximised or minimised, for the certificate."""
        if self.weights == "stacking":
            return "leave-one-out squared error of the mixed mean of each class"
        share = "shared" if self.weights == "shared" else "per-class"
        return (
            f"mixture likelihood of {n_experts} experts, {share} weights, "
            f"leave-one-out {self.likelihood} densities, nats per row"
        )


def check_mixture_parameters(model: Any) -> None:
    """Refuse invalid parameter values and combinations."""
    check_parameters(model, RULES)
    if model.noise == "em" and model.weights not in ("per_class", "shared"):
        raise ValueError(
            "noise='em' needs weights learned by likelihood ('per_class' or 'shared'); "
            f"got weights={model.weights!r}"
        )

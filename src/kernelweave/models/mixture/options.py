"""What the weights of a mixture are learned with: checked parameters, frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.fits.predictive import Expert, PredictivePath, choose_noise
from kernelweave.models.shared.base import check_choice, check_number, is_int

__all__ = ["MixtureOptions", "check_mixture_parameters"]


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
        """One kernel at the noise level chosen for it (at the start, for "em")."""
        noise = "loo" if self.noise == "em" else self.noise
        return choose_noise(path, noise, "profile", self.likelihood, self.dof)

    def problem(self, n_experts: int) -> str:
        """What is maximised or minimised, for the certificate."""
        if self.weights == "stacking":
            return "leave-one-out squared error of the mixed mean, a class each"
        share = "shared" if self.weights == "shared" else "per-class"
        return (
            f"mixture likelihood of {n_experts} experts, {share} weights, "
            f"leave-one-out {self.likelihood} densities, nats a row"
        )


def check_mixture_parameters(model: Any) -> None:
    """Refuse parameter values and combinations that make no sense."""
    choices = {
        "weights": ("per_class", "shared", "uniform", "stacking"),
        "projection": ("prior", "posterior"),
        "likelihood": ("gaussian", "student", "tprocess"),
        "missing": ("error", "available", "zero"),
        "solver": ("auto", "newton", "em"),
        "psd": ("error", "clip", "trust"),
    }
    for name, allowed in choices.items():
        check_choice(model, name, allowed)

    def positive(value: float) -> bool:
        return bool(np.isfinite(value) and value > 0)

    check_number(model, "noise", ("loo", "ml", "em"), positive, "a finite number > 0")
    check_number(
        model,
        "concentration",
        (),
        lambda v: np.isfinite(v) and v >= 0,
        "a finite number >= 0",
    )
    check_number(model, "dof", (), lambda v: np.isfinite(v) and v > 2, "a number > 2")
    check_number(model, "tol", (), lambda v: v > 0, "a number > 0")
    check_number(model, "verbose", (), lambda v: is_int(v, 0), "an int >= 0")
    if model.max_iter is not None:
        check_number(
            model, "max_iter", (), lambda v: is_int(v, 1), "None or an int >= 1"
        )
    if model.noise == "em" and model.weights not in ("per_class", "shared"):
        raise ValueError(
            "noise='em' is chosen together with weights by likelihood; got "
            f"weights={model.weights!r}"
        )

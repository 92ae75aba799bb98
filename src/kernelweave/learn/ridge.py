"""Ridge regression: weights, regularisation and coefficients of outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from kernelweave._array import from_numpy, to_numpy
from kernelweave.fits.ridge import KernelFit
from kernelweave.fits.targets import StandardOutputs
from kernelweave.learn.sample import Sample
from kernelweave.learn.search import Choice, Learned, Options, Task, learn_weights


@dataclass(frozen=True, kw_only=True)
class OutputTask(Task):
    """The task of a regression, whose target has columns of mean zero, variance one.

    Attributes
    ----------
    values : ndarray of shape (n, t)
        The outputs.
    outputs : StandardOutputs
        Their means and units.
    """

    per_target: ClassVar[bool] = True

    values: np.ndarray
    outputs: StandardOutputs

    @classmethod
    def of(cls, sample: Sample, options: Options) -> OutputTask:
        """The task of outputs (n, t), in their units."""
        dtype = to_numpy(sample.bank.like[:0, ...]).dtype
        standard = StandardOutputs.of(sample.targets, sample.design.weights, dtype)
        return cls(
            bank=sample.bank,
            target=from_numpy(standard.target, sample.bank.like),
            design=sample.design,
            measure=options.measure,
            values=sample.targets,
            outputs=standard,
        )

    def score(self, fit: KernelFit, column: int | None = None) -> float:
        """The measure on rows left out, of all outputs or of one."""
        assert self.measure is not None
        return self.measure.of_outputs(
            self.values, self.outputs.unit, self.design, fit, column
        )


def as_ridge(choice: Choice) -> Choice:
    """The choice, with a certificate that names the problem as one of regression."""
    certificate = choice.certificate
    if certificate is None:
        return choice
    problem = certificate.problem.replace("Fisher, ", "ridge regression, ")
    return replace(choice, certificate=replace(certificate, problem=problem))


def learn_ridge(sample: Sample, options: Options) -> Learned:
    """Weights, regularisation and coefficients of rows with outputs (n, t)."""
    task, choice = learn_weights(sample, options, OutputTask.of)
    fit = choice.fit_on(task.bank, task.target, task.design)
    errors = task.design.mean_squares(fit.loo_residual)
    return Learned(
        as_ridge(choice),
        float(np.mean(errors)),
        errors,
        dual_coef=fit.coef * from_numpy(task.outputs.unit, fit.coef)[None, :],
        intercept=from_numpy(task.outputs.mean, fit.coef),
        steepness=fit.steepness(task.target),
    )

"""Discriminants: weights and regularisation of classes, and their Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernelweave._array import from_numpy, to_numpy
from kernelweave.criteria.fisher import Fisher
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.ridge import KernelFit, principal_axes
from kernelweave.fits.targets import binary_target, reduced_class_target
from kernelweave.learn.sample import Sample
from kernelweave.learn.search import (
    Choice,
    Learned,
    Options,
    Task,
    judge_weights,
    learn_weights,
)


@dataclass(frozen=True, kw_only=True)
class ClassTask(Task):
    """The task of a discriminant, whose target (n, k - 1) codes the classes.

    Attributes
    ----------
    classes : ndarray of shape (k,)
        Codes of the classes that occur.
    codes : ndarray of shape (n,)
        The class of each row, 0 .. k - 1.
    priors : ndarray of shape (k,) or None
        Probabilities in place of class shares.
    """

    classes: np.ndarray
    codes: np.ndarray
    priors: np.ndarray | None

    @classmethod
    def of(cls, sample: Sample, options: Options) -> ClassTask:
        """The task of rows with class codes (n,), or of some of them."""
        classes, codes = np.unique(sample.targets, return_inverse=True)
        priors = options.priors
        if priors is not None:
            priors = priors[classes] / np.sum(priors[classes])
        host, _ = reduced_class_target(codes, len(classes), sample.design.weights)
        return cls(
            bank=sample.bank,
            target=from_numpy(host, sample.bank.like),
            design=sample.design,
            measure=options.measure,
            classes=classes,
            codes=codes,
            priors=priors,
        )

    def criterion(self, alpha: float | Literal["learn"]) -> Fisher:
        """Ye et al. (2007), Eqs. 30 and 40 (alpha learned); of two classes, Eq. 8."""
        target, design = self.target, self.design
        if len(self.classes) == 2:  # the paper's values are for this target
            host = binary_target(self.codes, design.weights)
            target = from_numpy(host, self.bank.like)
        return Fisher(self.bank, design.scale(target), alpha, design)

    def score(self, fit: KernelFit, column: int | None = None) -> float:
        """The measure on rows left out; there is one alpha for all columns."""
        assert self.measure is not None and column is None
        return self.measure.of_classes(
            self.target, self.codes, self.classes, self.design, self.priors, fit
        )


def learn_discriminant(sample: Sample, options: Options) -> Learned:
    """Weights, regularisation and discriminant of rows with class codes."""
    task, choice = learn_weights(sample, options, ClassTask.of)
    return discriminant_of(task, choice)


def learn_with_weights(sample: Sample, options: Options) -> Learned:
    """Regularisation and discriminant for the weights of the sample, or equal ones."""
    p, weights = sample.bank.n_kernels, sample.weights
    task = ClassTask.of(sample, options)
    weights = np.full(p, 1.0 / p) if weights is None else weights
    return discriminant_of(task, judge_weights(task, options, weights))


def discriminant_of(task: ClassTask, choice: Choice) -> Learned:
    """The discriminant at these weights and alpha.

    The fit to the target is rotated to discriminant axes, the most discriminating
    first. The classes of the result are the codes that occur.
    """
    target, design = task.target, task.design
    fit = choice.fit_on(task.bank, target, design)
    axes = principal_axes(fit.coef, target)
    gaussians = ClassGaussians.fit(
        to_numpy(fit.held_out(target, design) @ axes),
        to_numpy(target @ axes),
        task.codes,
        design=design,
        priors=task.priors,
    )
    return Learned(
        choice,
        design.mean_square(fit.loo_residual),
        dual_coef=fit.coef @ axes,
        classes=task.classes,
        gaussians=gaussians,
        steepness=fit.steepness(target),
    )

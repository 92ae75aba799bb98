"""The printed alternation of Chen et al. (2008) for their joint problem, by rounds.

The estimator keeps only the best point; Figures 2 and 3 of the paper need all of them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.fits.ridge import LooPath
from kernelweave.fits.subspace import RegularizedKernel, SubspaceSVM, label_factor
from kernelweave.papers._chen2008_closed_form import mean_kernels
from kernelweave.papers.experiment import Split
from kernelweave.papers.reference.alternation import alternate

__all__ = ["Rounds", "alternation", "rounds"]

ROUNDS = 10


@dataclass(frozen=True)
class Rounds:
    """The results of all rounds.

    Attributes
    ----------
    upper, lower : list of float
        Bounds on the value of the joint problem, as multiples of ``saddle``.
    error : list of float
        Error on the test rows, in percent.
    saddle : float
        The value of the joint problem, in closed form.
    """

    upper: list[float]
    lower: list[float]
    error: list[float]
    saddle: float


def alternation(split: Split, sigma: float, C: float, uncorrelated: bool) -> Rounds:
    """Ten rounds of the alternation.

    It starts at the subspace with the largest dependence. C refers to the kernel
    ``G (G + alpha I)^-1 [G]`` scaled to trace n, as in the estimator.
    """
    train, test = mean_kernels(split.train, split.test, (sigma,))
    classes, codes = np.unique(split.y_train, return_inverse=True)
    signs = np.where(codes[:, None] == np.arange(len(classes)), 1.0, -1.0)
    labels = label_factor(codes, len(classes))
    kernel = RegularizedKernel(train, LooPath(train.copy(), labels).best_alpha())
    smooth = kernel.solve(train)
    trace = np.trace(smooth) if uncorrelated else np.sum(train * smooth)
    problem = SubspaceSVM(kernel, signs, C * len(train) / trace, uncorrelated, 1e-7)
    saddle = problem.lower_bound(problem.closed_form_duals(), None)
    subspace = kernel.subspace(labels, None, uncorrelated)
    found = Rounds([], [], [], saddle)
    for point, bound in itertools.islice(alternate(problem, subspace), ROUNDS):
        scores = test @ point.coef() + point.intercepts
        wrong = classes[np.argmax(scores, axis=1)] != split.y_test
        found.upper.append(point.upper / saddle)
        found.lower.append(bound / saddle)
        found.error.append(100.0 * float(np.mean(wrong)))
    return found


def rounds(data: tuple[Any, float], uncorrelated: bool) -> dict[str, Any]:
    """A row of Figures 2 and 3: bounds and errors for a split (with a width) and C."""
    split, C = data
    found = alternation(split, split.sigma, C, uncorrelated)
    upper, lower = found.upper[-1], found.lower[-1]
    return {
        "gap": (upper - lower) / abs(upper),
        "error 1": found.error[0],
        "error 4": found.error[3],
        "saddle": found.saddle,
        "upper": found.upper,
        "lower": found.lower,
        "errors": found.error,
    }

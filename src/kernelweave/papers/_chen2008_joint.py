"""All rounds of the alternation that Chen et al. (2008) print for joint machines.

Their Figures 2 and 3 need them; the estimator, which solves the problem exactly, has no
need of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import KernelCenterer

from kernelweave.fits.ridge import LooPath, signs_of_codes
from kernelweave.fits.subspace import RegularizedKernel, SubspaceSVM, label_factor
from kernelweave.papers.reference.alternation import WeightedPoint, alternate

ROUNDS = 10


def mean_kernels(
    train: np.ndarray, test: np.ndarray, sigmas: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of centred Gaussian kernels of trace n: (n, n), and (t, n) for tests."""
    n = len(train)
    inner, cross = np.zeros((n, n)), np.zeros((len(test), n))
    for sigma in sigmas:
        centre = KernelCenterer()
        own = centre.fit_transform(rbf_kernel(train, gamma=1.0 / sigma))
        scale = n / np.trace(own) / len(sigmas)
        inner += scale * (own + own.T) / 2
        cross += scale * centre.transform(rbf_kernel(test, train, gamma=1.0 / sigma))
    return inner, cross


def regularized(gram: np.ndarray, labels: np.ndarray) -> RegularizedKernel:
    """The kernel (n, n) with the alpha of smallest leave-one-out error."""
    return RegularizedKernel(gram, LooPath(gram.copy(), labels).best_alpha())


def ten_rounds(
    kernel: RegularizedKernel, y: np.ndarray, C: float, uncorrelated: bool
) -> tuple[SubspaceSVM, list[tuple[WeightedPoint, float]]]:
    """The joint problem, and the first rounds of the alternation.

    It starts at the subspace with the largest dependence.
    """
    classes, codes = np.unique(y, return_inverse=True)
    signs = signs_of_codes(codes, len(classes))
    problem = SubspaceSVM(kernel, signs, C, uncorrelated, 1e-7)
    start = kernel.subspace(label_factor(codes, len(classes)), None, uncorrelated)
    return problem, list(itertools.islice(alternate(problem, start), ROUNDS))


def gap_at(data: tuple[Any, tuple[float, float]], uncorrelated: bool) -> dict[str, Any]:
    """The relative gap after ten rounds, at lambda (or xi) and C as printed.

    The kernel is centred and not rescaled, and C is that of the machines on ``F F'``.
    """
    split, (lam, C) = data
    gram = rbf_kernel(split.train, gamma=1.0 / split.sigma)
    gram = KernelCenterer().fit_transform(gram)
    kernel = RegularizedKernel((gram + gram.T) / 2, lam)
    _, found = ten_rounds(kernel, split.y_train, C, uncorrelated)
    gaps = [(point.upper - bound) / abs(point.upper) for point, bound in found]
    return {"gap": gaps[-1], "gaps": gaps}


def rounds(data: tuple[Any, float], uncorrelated: bool) -> dict[str, Any]:
    """A row of Figures 2 and 3: ten rounds for a split (with a width) and C.

    C refers to the kernel ``G (G + alpha I)^-1 [G]`` scaled to trace n, as in the
    estimator. Bounds are multiples of ``saddle``, the value of the joint problem in
    closed form, and errors are those on the test rows, in percent.
    """
    split, C = data
    train, test = mean_kernels(split.train, split.test, (split.sigma,))
    classes, codes = np.unique(split.y_train, return_inverse=True)
    kernel = regularized(train, label_factor(codes, len(classes)))
    smooth = kernel.solve(train)
    trace = np.trace(smooth) if uncorrelated else np.sum(train * smooth)
    scaled_C = C * len(train) / trace
    problem, found = ten_rounds(kernel, split.y_train, scaled_C, uncorrelated)
    saddle = problem.lower_bound(problem.closed_form_duals(), None)
    upper, lower, errors = [], [], []
    for point, bound in found:
        scores = test @ point.coef + point.intercepts
        wrong = classes[np.argmax(scores, axis=1)] != split.y_test
        upper.append(point.upper / saddle)
        lower.append(bound / saddle)
        errors.append(100.0 * float(np.mean(wrong)))
    return {
        "gap": (upper[-1] - lower[-1]) / abs(upper[-1]),
        "error 1": errors[0],
        "error 4": errors[3],
        "saddle": saddle,
        "upper": upper,
        "lower": lower,
        "errors": errors,
    }

"""The joint machines of Chen et al. (2008): in closed form, and as printed.

At the saddle point, the machines of SVM_joint are ordinary machines on the kernel
``G (G + alpha I)^-1 G``, and those of uSVM_joint on ``G (G + alpha I)^-1``: trying a
value of C does not require learning a subspace.

Figures 2 and 3 of the paper need all rounds of the printed alternation, of which the
estimator has no need.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import KernelCenterer
from sklearn.svm import SVC

from kernelweave.fits.ridge import LooPath, signs_of_codes
from kernelweave.fits.subspace import RegularizedKernel, SubspaceSVM, label_factor
from kernelweave.papers.reference.alternation import alternate

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


def joint_kernels(
    train: np.ndarray,
    y: np.ndarray,
    test: np.ndarray,
    sigmas: Sequence[float],
    uncorrelated: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The kernel of the joint machines, of trace n: (n, n), and (t, n) for tests."""
    gram, cross = mean_kernels(train, test, sigmas)
    classes, codes = np.unique(y, return_inverse=True)
    kernel = regularized(gram, label_factor(codes, len(classes)))
    smooth = kernel.solve(gram)  # (G + alpha I)^-1 G
    if uncorrelated:
        inner, outer = smooth, kernel.solve(np.ascontiguousarray(cross.T)).T
    else:
        inner, outer = gram @ smooth, cross @ smooth
    scale = len(y) / np.trace(inner)
    return scale * (inner + inner.T) / 2, scale * outer


def best_joint_C(
    train: np.ndarray,
    y: np.ndarray,
    sigmas: Sequence[float],
    uncorrelated: bool,
    grid: Sequence[float],
    folds: int,
) -> float:
    """The C with the fewest errors over the folds, using the mean of the kernels."""
    wrong = np.zeros(len(grid))
    with warnings.catch_warnings():
        # some kinds of brain tumours have fewer rows than there are folds
        warnings.filterwarnings("ignore", "The least populated class")
        parts = list(StratifiedKFold(folds).split(train, y))
    for inside, outside in parts:
        own = y[inside]
        inner, cross = joint_kernels(
            train[inside], own, train[outside], sigmas, uncorrelated
        )
        classes = np.unique(own)
        for i, C in enumerate(grid):
            machines = [
                SVC(kernel="precomputed", C=C).fit(inner, own == c) for c in classes
            ]
            scores = [machine.decision_function(cross) for machine in machines]
            found = classes[np.argmax(scores, axis=0)]
            wrong[i] += np.sum(found != y[outside])
    return float(grid[int(np.argmin(wrong))])


def gap_at(data: tuple[Any, tuple[float, float]], uncorrelated: bool) -> dict[str, Any]:
    """The relative gap after ten rounds, at lambda (or xi) and C as printed.

    The kernel is centred and not rescaled, and C is that of the machines on ``F F'``.
    """
    split, (lam, C) = data
    gram = rbf_kernel(split.train, gamma=1.0 / split.sigma)
    gram = KernelCenterer().fit_transform(gram)
    kernel = RegularizedKernel((gram + gram.T) / 2, lam)
    classes, codes = np.unique(split.y_train, return_inverse=True)
    signs = signs_of_codes(codes, len(classes))
    problem = SubspaceSVM(kernel, signs, C, uncorrelated, 1e-7)
    start = kernel.subspace(label_factor(codes, len(classes)), None, uncorrelated)
    gaps = [
        (point.upper - bound) / abs(point.upper)
        for point, bound in itertools.islice(alternate(problem, start), ROUNDS)
    ]
    return {"gap": gaps[-1], "gaps": gaps}


def rounds(data: tuple[Any, float], uncorrelated: bool) -> dict[str, Any]:
    """A row of Figures 2 and 3: ten rounds for a split (with a width) and C.

    The alternation starts at the subspace with the largest dependence. C refers to the
    kernel ``G (G + alpha I)^-1 [G]`` scaled to trace n, as in the estimator. Bounds are
    multiples of ``saddle``, the value of the joint problem in closed form, and errors
    are those on the test rows, in percent.
    """
    split, C = data
    train, test = mean_kernels(split.train, split.test, (split.sigma,))
    classes, codes = np.unique(split.y_train, return_inverse=True)
    labels = label_factor(codes, len(classes))
    kernel = regularized(train, labels)
    smooth = kernel.solve(train)
    trace = np.trace(smooth) if uncorrelated else np.sum(train * smooth)
    signs, scaled_C = signs_of_codes(codes, len(classes)), C * len(train) / trace
    problem = SubspaceSVM(kernel, signs, scaled_C, uncorrelated, 1e-7)
    saddle = problem.lower_bound(problem.closed_form_duals(), None)
    start = kernel.subspace(labels, None, uncorrelated)
    upper, lower, errors = [], [], []
    for point, bound in itertools.islice(alternate(problem, start), ROUNDS):
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

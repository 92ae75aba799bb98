"""Kernels of the joint machines of Chen et al. (2008), used to choose C.

At the saddle point, the machines of SVM_joint are ordinary machines on the kernel
``G (G + alpha I)^-1 G``, and those of uSVM_joint on ``G (G + alpha I)^-1``: trying a
value of C does not require learning a subspace.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import KernelCenterer
from sklearn.svm import SVC

from kernelweave.fits.ridge import LooPath
from kernelweave.fits.subspace import RegularizedKernel, label_factor

__all__ = ["best_joint_C", "joint_kernels", "mean_kernels"]


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
    labels = label_factor(codes, len(classes))
    kernel = RegularizedKernel(gram, LooPath(gram.copy(), labels).best_alpha())
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

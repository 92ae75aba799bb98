"""The alternation that Chen et al. (2008) describe for their joint problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kernelweave._array import from_numpy
from kernelweave.criteria.fisher import Fisher
from kernelweave.fits.subspace import (
    JointPoint,
    RegularizedKernel,
    Subspace,
    SubspaceSVM,
)
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.protocols import WeightSet
from kernelweave.solvers.solve import solve

#: Maps A (n, m) to the problem at its best weights, these weights (p,), and a bound.
Reweigh = Callable[[np.ndarray], tuple[SubspaceSVM, np.ndarray, float]]


def best_weights(
    bank: DenseBank, weights: WeightSet, problem: SubspaceSVM, duals: np.ndarray
) -> tuple[SubspaceSVM, np.ndarray, float]:
    """The best weights for fixed dual variables: Eq. 40, or Eq. 27 with A for L.

    ``max_w tr(A' T(w) A) = norm(A)^2 - min_w alpha tr(A' (G + alpha I)^-1 A)`` with
    ``T = G (G + alpha I)^-1``: the Fisher criterion, whose bound yields one on the
    joint problem.

    Parameters
    ----------
    bank : DenseBank
        Centred kernels of trace n.
    weights : WeightSet
        The allowed weights.
    problem : SubspaceSVM
        Uncorrelated; alpha, signs and C are taken from it.
    duals : ndarray of shape (n, m)
        A.

    Returns
    -------
    problem : SubspaceSVM
        The problem at the best weights.
    weights : ndarray of shape (p,)
        These weights.
    bound : float
        A lower bound on the optimum.
    """
    target, alpha = from_numpy(duals, bank.like), problem.kernel.alpha
    found = solve(Fisher(bank, target, alpha), weights, tol=problem.tol)
    explained = float(np.sum(duals**2)) - found.lower_bound
    kernel = RegularizedKernel(bank.combine(found.weights), alpha)
    there = SubspaceSVM(kernel, problem.signs, problem.C, True, problem.tol)
    bound = float(np.sum(duals * problem.signs)) - 0.5 * explained
    return there, found.weights, bound


def alternate(
    problem: SubspaceSVM, subspace: Subspace, reweigh: Reweigh | None = None
) -> Iterator[tuple[JointPoint, float]]:
    """Train SVMs on a subspace, take the best subspace for them, and repeat.

    Eqs. 9 and 20 or, with ``reweigh`` (:func:`best_weights` of a bank, allowed weights
    and the problem), Eqs. 39 and 40, which also choose the weights of several kernels.
    It need not converge: the upper and lower bounds often stay apart, and the rounds
    cycle.

    Yields
    ------
    point : JointPoint
        Subspace and SVMs of the round; its value is an upper bound on the optimum.
    bound : float
        A lower bound on the optimum.
    """
    n_components = problem.signs.shape[1]
    while True:
        point = problem.point(subspace)
        if reweigh is None:
            bound = problem.lower_bound(point.duals, n_components)
        else:
            problem, _, bound = reweigh(point.duals)
        yield point, bound
        subspace = problem.subspace(point.duals, n_components)

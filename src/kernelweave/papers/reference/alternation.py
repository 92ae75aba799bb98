"""The alternation that Chen et al. (2008) print for their joint problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kernelweave._array import from_numpy
from kernelweave.criteria.fisher.total import Fisher
from kernelweave.fits.subspace import RegularizedKernel, Subspace
from kernelweave.fits.subspace_svm import JointPoint, SubspaceSVM
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.solvers.certify import relative_gap
from kernelweave.solvers.local.subspace_joint import (
    MAX_ITER,
    Callback,
    JointSolution,
    Round,
    collect,
)
from kernelweave.solvers.solve import solve
from kernelweave.weights.base import WeightSet

__all__ = ["BestWeights", "alternate", "solve_alternating"]

#: Relative change over two rounds, as a share of the gap, that counts as cycling.
SAME = 1e-2

#: From A (n, m): the problem at the best weights for A, these (p,), and a lower bound.
Reweigh = Callable[[np.ndarray], tuple[SubspaceSVM, np.ndarray, float]]


@dataclass(frozen=True)
class WeightedPoint(JointPoint):
    """A point with the kernel weights (p,) of its round; None: those of the start."""

    weights: np.ndarray | None = None


class BestWeights:
    """The best weights for fixed dual variables: Eq. 40, that is Eq. 27 with A for L.

    ``max_w tr(A' T(w) A) = norm(A)^2 - min_w alpha tr(A' (G + alpha I)^-1 A)`` with
    ``T = G (G + alpha I)^-1``: the Fisher criterion, whose bound becomes one on the
    joint problem.

    Parameters
    ----------
    bank : DenseBank
        Centred kernels of trace n.
    weights : WeightSet
        Which weights are allowed.
    problem : SubspaceSVM
        Uncorrelated; alpha, signs and C are taken from it.
    """

    def __init__(
        self, bank: DenseBank, weights: WeightSet, problem: SubspaceSVM
    ) -> None:
        self.bank, self.weights, self.problem = bank, weights, problem

    def __call__(self, duals: np.ndarray) -> tuple[SubspaceSVM, np.ndarray, float]:
        """The problem at the best weights for A (n, m), these, and the bound of A."""
        now = self.problem
        target, alpha = from_numpy(duals, self.bank.like), now.kernel.alpha
        found = solve(Fisher(self.bank, target, alpha), self.weights, tol=now.tol)
        explained = float(np.sum(duals**2)) - found.lower_bound
        kernel = RegularizedKernel(self.bank.combine(found.weights), alpha)
        problem = SubspaceSVM(kernel, now.signs, now.C, True, now.tol)
        bound = float(np.sum(duals * now.signs)) - 0.5 * explained
        return problem, found.weights, bound


def alternate(
    problem: SubspaceSVM,
    subspace: Subspace,
    n_components: int | None = None,
    reweigh: Reweigh | None = None,
) -> Iterator[Round]:
    """Train machines on a subspace, take the best subspace for them, and so on.

    Eqs. 9 and 20, with ``reweigh`` (a :class:`BestWeights`) also over the weights of
    several kernels, Eqs. 39 and 40. It need not converge.

    Yields
    ------
    point : WeightedPoint
        Subspace and machines of the round; its value is no smaller than the optimum.
    bound : float
        No larger than the optimum.
    """
    if n_components is None:
        n_components = problem.signs.shape[1]
    weights = None
    while True:
        point = WeightedPoint(**vars(problem.point(subspace)), weights=weights)
        if reweigh is None:
            bound = problem.lower_bound(point.duals, n_components)
        else:
            problem, weights, bound = reweigh(point.duals)
        yield point, bound
        subspace = problem.subspace(point.duals, n_components)


def solve_alternating(
    problem: SubspaceSVM,
    start: Subspace,
    n_components: int | None = None,
    *,
    reweigh: Reweigh | None = None,
    tol: float = 1e-6,
    max_iter: int = MAX_ITER,
    callback: Callback | None = None,
) -> JointSolution:
    """The best point and bound of the alternation, until they meet or it cycles.

    ``start`` is the subspace to begin with; the other arguments are those of
    :func:`~kernelweave.solvers.local.subspace_joint.solve_joint` and
    :func:`alternate`.
    """
    rounds = _until_cycling(alternate(problem, start, n_components, reweigh))
    status = (
        "stopped: the alternation goes in circles; the best value is {upper:.6g} and "
        "none is below {lower:.6g}, a relative gap of {gap:.1e}"
    )
    return collect(rounds, tol, max_iter, callback, status)


def _until_cycling(rounds: Iterator[Round]) -> Iterator[Round]:
    """Rounds until the last values are those of two rounds before."""
    values: list[float] = []
    lower = -np.inf
    for point, bound in rounds:
        yield point, bound
        values.append(point.upper)
        lower = max(lower, bound)
        if len(values) >= 5:
            gap = min(relative_gap(min(values), lower), 1.0)
            last = np.array(values[-5:])
            change = np.abs(last[2:] - last[:-2]) / np.abs(last[2:])
            if np.all(change <= SAME * gap):
                return

"""The joint problem of a subspace and its SVMs: closed form and local search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kernelweave.fits.subspace import JointPoint, SubspaceSVM
from kernelweave.solvers.certify import Callback, Trace, TraceRow, relative_gap

__all__ = ["JointSolution", "solve_joint"]

#: Rounds of the search for fewer dimensions than machines.
MAX_ITER = 50
#: Step lengths tried between two dual points.
LENGTHS = np.linspace(0.05, 1.0, 20)
#: Number of times a descent step is shortened before the search gives up.
MAX_CUTS = 8

Round = tuple[JointPoint, float]


@dataclass(frozen=True)
class JointSolution:
    """A subspace with its machines, and bounds on its value.

    Attributes
    ----------
    point : JointPoint
        The best point found, with the smallest upper bound.
    lower_bound : float
        No subspace of this dimension has a smaller value.
    gap : float
        ``(point.upper - lower_bound) / point.upper``.
    converged : bool
        Whether the gap reached the tolerance.
    status : str
        The outcome as a sentence.
    n_iter : int
        Rounds taken.
    trace : tuple of TraceRow
        The history: the value of each round, and the best lower bound so far.
    """

    point: JointPoint
    lower_bound: float
    gap: float
    converged: bool
    status: str
    n_iter: int
    trace: tuple[TraceRow, ...] = field(default=(), repr=False)


def solve_joint(
    problem: SubspaceSVM,
    n_components: int | None = None,
    *,
    duals: np.ndarray | None = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    callback: Callback | None = None,
) -> JointSolution:
    """Solve Eq. 9 or 20 of Chen et al. (2008) for one kernel.

    Parameters
    ----------
    problem : SubspaceSVM
        The problem.
    n_components : int, optional
        Maximum dimension of the subspace; by default that of the closed form.
    duals : ndarray of shape (n, m), optional
        The dual variables of the closed form, if known.
    tol : float, default=1e-6
        Relative gap to reach.
    max_iter : int, optional
        Maximum number of rounds if there is no closed form.
    callback : callable, optional
        Called with a :class:`TraceRow` after each round; a true result stops the
        search.

    Returns
    -------
    JointSolution
        The best point and its bounds.
    """
    limit = max_iter or MAX_ITER
    if duals is None:
        duals = problem.closed_form_duals()
    whole = problem.subspace(duals)
    rank = len(whole.dependence)
    if n_components is None or n_components >= rank:
        bound = problem.lower_bound(duals, None)
        rounds = iter([(problem.point(whole, duals), bound)])
    else:
        rounds = _search(problem, duals, n_components, limit)
    return _collect(rounds, tol, limit, callback)


def _search(
    problem: SubspaceSVM, duals: np.ndarray, n_components: int, limit: int
) -> Iterator[Round]:
    """From the truncated closed form, raise the lower bound, then lower the value.

    The first half of the rounds alternates between subspace and machines, but moves
    only part of the way to the new dual variables, to where the lower bound, which is
    concave in them, is largest. The second half descends from the best subspace found.
    """
    best: _Placed | None = None
    bound = problem.lower_bound(duals, n_components)
    for number in range(max(limit // 2, 1)):
        here = _place(problem, duals, n_components)
        yield here.point, bound
        if best is None or here.point.upper < best.point.upper:
            best = here
        ahead = here.point.duals - duals
        bounds = problem.bounds_along(duals, ahead, LENGTHS, n_components)
        chosen = int(np.argmax(bounds))
        if bounds[chosen] > bound:
            duals, bound = duals + LENGTHS[chosen] * ahead, float(bounds[chosen])
        else:  # at a kink of the bound, which ever shorter steps leave behind
            duals = duals + 2.0 / (number + 3.0) * ahead
            bound = problem.lower_bound(duals, n_components)
    assert best is not None
    yield from _descend(problem, best, n_components)


@dataclass(frozen=True)
class _Placed:
    """A point, and the l columns (n, l) for which its subspace is optimal."""

    point: JointPoint
    columns: np.ndarray


def _place(problem: SubspaceSVM, target: np.ndarray, n_components: int) -> _Placed:
    """The best subspace for the columns of ``target`` (n, k), with its machines."""
    subspace = problem.subspace(target, n_components)
    assert subspace.axes is not None
    return _Placed(problem.point(subspace), target @ subspace.axes)


def _descend(problem: SubspaceSVM, here: _Placed, n_components: int) -> Iterator[Round]:
    """Projected gradient steps on the value as a function of the subspace.

    In coordinates in which subspaces are projections X, the gradient is
    ``-Z'A A'Z / 2``, and the projection of ``X + eta Z'A A'Z`` is the best subspace for
    the scaled columns of A together with those for which X itself is optimal.
    """
    eta = 1.0 / max(float(np.max(np.abs(here.point.duals))), 1e-300) ** 2
    while True:
        for _ in range(MAX_CUTS):
            target = np.column_stack([here.columns, np.sqrt(eta) * here.point.duals])
            candidate = _place(problem, target, n_components)
            if candidate.point.upper < here.point.upper * (1.0 - 1e-9):
                break
            eta /= 4.0
        else:
            return
        yield candidate.point, -np.inf
        here, eta = candidate, 3.0 * eta


def _collect(
    rounds: Iterator[Round],
    tol: float,
    limit: int,
    callback: Callback | None,
) -> JointSolution:
    """Run the rounds: best point, best bound, and the reason for stopping."""
    best: JointPoint | None = None
    lower, trace = -np.inf, Trace(callback)
    status = "stopped: no step finds a smaller value; the relative gap is {gap:.1e}"
    for point, bound in rounds:
        lower = max(lower, bound)
        if best is None or point.upper < best.upper:
            best = point
        gap = relative_gap(best.upper, lower)
        trace.add(point.upper, lower, gap)
        if trace.stopped:
            status = "stopped by the callback at relative gap {gap:.1e}"
            break
        if gap <= tol:
            break
        if len(trace.rows) >= limit:
            status = f"stopped at max_iter={limit}: " + "relative gap {gap:.1e}"
            break
    assert best is not None
    gap = relative_gap(best.upper, lower)
    if gap <= tol:
        status = f"optimal: the relative gap {gap:.1e} is within tol={tol:.0e}"
    rows = tuple(trace.rows)
    return JointSolution(
        best, lower, gap, gap <= tol, status.format(gap=gap), len(rows), rows
    )

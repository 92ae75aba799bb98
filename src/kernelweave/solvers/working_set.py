"""Newton's method on a few kernels at a time, for problems with very many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelweave.protocols import Criterion, Iterate, LinearSet
from kernelweave.solvers.certify import relative_gap
from kernelweave.solvers.newton import newton

__all__ = ["working_set"]

#: Number of kernels to begin with, and the most that are added at a time.
FIRST, MOST = 50, 100
#: A round is solved to this share of the gap due to the kernels outside.
SHARE = 0.1
#: No round needs a smaller gap than this.
SMALLEST_GAP = 1e-10
MOST_STEPS = 60
#: A round starts from the weights of the last one, with this share spread evenly: an
#: interior point method must not start on the boundary.
SPREAD = 0.05


def working_set(
    criterion: Criterion, weight_set: LinearSet, spread: float = SPREAD
) -> Iterator[Iterate]:
    """Minimise over the simplex when most of very many kernels get weight zero.

    Each round solves the problem restricted to the working set by :func:`newton`. The
    resulting dual point B gives the score ``tr(B' G_i B)`` of every kernel, inside or
    outside the set. If no score outside exceeds the common score inside, the optimum is
    found, and the scores are its certificate; otherwise the kernels with the largest
    scores join the set, and the next round starts near the current weights. Kernels
    outside are accessed once per round for their score, and never factored or combined.

    For weight sets on which every kernel has a weight, this is :func:`newton` itself.

    Yields
    ------
    Iterate
        One per round, with the weights and the gradient of all kernels.
    """
    if "sparse" not in weight_set.offers or criterion.n_kernels <= FIRST:
        yield from newton(criterion, weight_set)
        return
    problem: Any = criterion
    fixed = criterion.n_weights - criterion.n_kernels
    scores = problem.scores(problem.target)[fixed:]
    inside = np.argsort(-scores, kind="stable")[:FIRST]
    weights, gap = weight_set.start(criterion.n_weights), 1.0
    while True:
        inside = np.sort(inside)
        places = np.concatenate([np.arange(fixed), fixed + inside])
        restricted = problem.restricted(inside)
        tol = max(SHARE * gap, SMALLEST_GAP)
        start = _spread(weights[places], spread)
        best, count = _round(restricted, weight_set, tol, start)
        weights = np.zeros(criterion.n_weights)
        weights[places] = best.weights
        scores = problem.scores(best.coef) * problem.scale
        whole = Iterate(weights, best.value, -scores, best.coef, n_factorizations=count)
        yield whole
        gap = relative_gap(best.value, whole.bound(weight_set))
        outside = np.setdiff1d(np.arange(criterion.n_kernels), inside)
        level = float(scores @ weights)  # the score of every kernel with weight
        better = outside[scores[fixed + outside] > level]
        order = np.argsort(-scores[fixed + better], kind="stable")
        joining = better[order[:MOST]]
        if len(joining) == 0 and gap <= SMALLEST_GAP:
            return
        inside = np.concatenate([inside, joining])


def _spread(weights: np.ndarray, share: float) -> np.ndarray:
    """Weights (m,) in the interior of the simplex, near the given ones."""
    return (1.0 - share) * weights / np.sum(weights) + share / len(weights)


def _round(
    restricted: Criterion,
    weight_set: LinearSet,
    tol: float,
    start: np.ndarray,
) -> tuple[Iterate, int]:
    """The best Newton iterate on the working set, and the factorisations used."""
    best, smallest, count = None, np.inf, 0
    for number, iterate in enumerate(newton(restricted, weight_set, start)):
        count += iterate.n_factorizations
        gap = relative_gap(iterate.value, iterate.bound(weight_set))
        if gap < smallest:
            best, smallest = iterate, gap
        if gap <= tol or number >= MOST_STEPS:
            break
    assert best is not None
    return best, count

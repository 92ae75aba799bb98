"""The weights that align a sum of kernels best with a target kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from kernelweave._array import psd_factor
from kernelweave._tolerances import NULL_EIGENVALUE
from kernelweave.criteria.alignment import Alignment
from kernelweave.protocols import Iterate, LinearSet, Polyhedron, WeightSet
from kernelweave.weights.signed_sum import SignedSum

#: Added to the diagonal of singular matrices of cosines; it changes an alignment by at
#: most as much.
RIDGE = 1e-9


def active_set(criterion: Alignment, weight_set: WeightSet) -> Iterator[Iterate]:
    """``min_w w'S w - 2 b'w`` over ``w >= 0``, then scaled onto the set.

    The non-negative case of Lanckriet et al. (2002), Eq. 11: the minimiser is the best
    aligned sum of kernels times its alignment over its norm. With ``S = R'R`` this is
    the non-negative least-squares problem ``min norm(R w - R^-T b)``, which the
    active-set method of Lawson and Hanson solves in finitely many steps.

    Yields
    ------
    Iterate
        A single one, at the optimum (or the only point of a one-point set).
    """
    start = weight_set.start(criterion.n_weights)
    if weight_set.is_point(len(start)):
        yield certified(criterion, weight_set, start)
        return
    root, _, goal = _least_squares(criterion)
    scaled, _ = nnls(root, goal, maxiter=50 * len(start))
    raw = criterion.unscaled(scaled)
    largest = float(np.max(raw))
    # If nothing is aligned with the target, every point is as good as the start.
    weights = weight_set.scale(raw / largest) if largest > 0.0 else start
    yield certified(criterion, weight_set, weights)


def aligned_cuts(criterion: Alignment, weight_set: LinearSet) -> Iterator[Iterate]:
    """``max b'w`` subject to ``w'S w <= 1``, w in the cone spanned by the set.

    For weights of any sign this is Lanckriet et al. (2002), Eq. 11, without a
    semidefinite program. With constraints ``A w >= 0`` (linear constraints of the set,
    or cuts from eigenvectors of earlier sums) the dual is the non-negative
    least-squares problem ``min_z norm(R^-T (b + A'z))``, whose value bounds the
    alignment and whose weights are ``S^-1 (b + A'z)``. For linear sets all constraints
    are known in advance, and one such problem suffices. If the kernels are linearly
    dependent, S is singular, but ``A'z`` need not be in its range: a small multiple of
    the identity is then added to S.

    Yields
    ------
    Iterate
        After each least-squares problem, the best weights and the best bound so far.
    """
    root, inverse, goal = _least_squares(criterion)
    if len(root) < criterion.n_weights:
        _, inverse, goal = _least_squares(criterion, RIDGE)
    start = weight_set.start(criterion.n_weights)
    if not np.max(criterion.cosines) > 0.0 or weight_set.is_point(len(start)):
        yield certified(criterion, weight_set, start)
        return
    state = criterion.evaluate(start, hessian=False)
    # No cosine is larger than 1.
    best, bound = replace(Iterate.at(start, state), lower_bound=-1.0), -1.0
    while True:
        rows = _cone_rows(weight_set.polyhedron(len(start)))
        largest = float(np.max(criterion.norms))  # keeps squares in range
        halves = (criterion.unscaled(rows) * largest) @ inverse.T  # A R^+
        size = np.linalg.norm(halves, axis=1)
        halves = halves[size > 0.0] / size[size > 0.0, None]
        mixture, _ = nnls(halves.T, -goal, maxiter=100 * len(rows))
        half = goal + mixture @ halves
        point = criterion.unscaled(inverse.T @ half)
        total = float(np.sum(point))
        candidate = -float(np.linalg.norm(half))
        if candidate > bound:
            bound = candidate
            best = replace(best, dual=point, lower_bound=bound)
        if not total > 0.0:  # no weights within the cuts are aligned with the target
            yield best
            return
        weights = weight_set.scale(point / total)
        if isinstance(weight_set, SignedSum):
            weights = weight_set.separate(weights)
        state = criterion.evaluate(weights, hessian=False)
        if state.value < best.value:
            found = Iterate.at(weights, state)
            best = replace(found, dual=best.dual, lower_bound=bound)
        yield best
        if not isinstance(weight_set, SignedSum):
            return


def _cone_rows(allowed: Polyhedron) -> np.ndarray:
    """Rows a with ``a'w >= 0`` on the cone over a polyhedron in ``sum_i w_i = 1``.

    A right-hand side becomes the corresponding multiple of the sum.
    """
    equal = allowed.equal - allowed.equal_to[:, None]
    bounded = np.all(np.isfinite(allowed.limits))
    if not (bounded and np.any(np.all(allowed.equal == 1.0, axis=1))):
        raise ValueError("alignment needs weights that sum to 1, with finite limits")
    below, room = allowed.inequalities()
    rows = np.concatenate([room[:, None] - below, equal, -equal])
    return rows[np.any(rows != 0.0, axis=1)]


def _least_squares(
    criterion: Alignment, ridge: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R (r, p) with ``R'R = S``, its pseudo-inverse transposed, and ``R^-T b`` (r,).

    ``ridge`` is added to the diagonal of S, for kernels at norm one.
    """
    matrix = criterion.correlations + ridge * np.eye(criterion.n_weights)
    root = psd_factor(matrix, NULL_EIGENVALUE).T
    root[:, criterion.norms == 0.0] = 0.0  # but for rounding, which would be scaled up
    inverse = root / np.sum(root**2, axis=1, keepdims=True)  # orthogonal rows
    return root, inverse, inverse @ criterion.cosines


def certified(
    criterion: Alignment, weight_set: WeightSet, weights: np.ndarray
) -> Iterate:
    """The iterate at some weights (m,), with the lower bound that they certify."""
    state = criterion.evaluate(weights, hessian=False)
    terms = criterion.certificate_terms(weights, state.coef, state.coef)
    return replace(Iterate.at(weights, state), lower_bound=terms.bound(weight_set))

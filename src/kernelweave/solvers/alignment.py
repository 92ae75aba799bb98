"""The weights that align a sum of kernels best with a target kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernelweave._array import DOUBLE_EPS, psd_factor
from kernelweave._tolerances import NULL_EIGENVALUE, ROUNDING_UNITS
from kernelweave.inner.least_distance import cone_multipliers
from kernelweave.protocols import (
    CosineCriterion,
    Iterate,
    LinearSet,
    Polyhedron,
    WeightSet,
    has_cuts,
)

#: Added to the diagonal of singular matrices of cosines: the smallest changes the bound
#: least, but may leave weights that are all rounding. Each is tried.
RIDGES = (1e-9, 1e-7, 1e-5, 1e-4, 1e-3)


def active_set(criterion: CosineCriterion, weight_set: WeightSet) -> Iterator[Iterate]:
    """``min_w w'S w - 2 b'w`` over ``w >= 0``, then scaled onto the set.

    The non-negative case of Lanckriet et al. (2002), Eq. 11: the minimiser is the best
    aligned sum of kernels times its alignment over its norm. With ``S = R'R`` this is
    the non-negative least-squares problem ``min norm(R w - R^-T b)``, which the
    active-set method of Lawson and Hanson solves in finitely many steps.

    Yields
    ------
    Iterate
        A single one, at the optimum.
    """
    start = weight_set.start(criterion.n_weights)
    # Non-negative weights stay small however nearly dependent the kernels are, and an
    # eigenvalue that is left out would cost a gap of its root.
    root, _, goal = _least_squares(criterion, null=0.0)
    raw = criterion.unscaled(cone_multipliers(root.T, goal))
    largest = float(np.max(raw))
    # If nothing is aligned with the target, every point is as good as the start.
    weights = weight_set.scale(raw / largest) if largest > 0.0 else start
    yield certified(criterion, weight_set, weights)


def aligned_points(
    criterion: CosineCriterion, weight_set: WeightSet
) -> Iterator[Iterate]:
    """``min_w w'S w - 2 b'w`` over the cone of a set that has a linear maximiser.

    Alignment is not convex, but depends on the direction of w only, and this problem
    over all multiples of allowed weights has the same solution. It is solved by the
    fully corrective method of Frank and Wolfe: w is the best sum of the points found so
    far, by non-negative least squares, and the next point is the one at which
    ``<b - S w, u>`` is largest. At the optimum no allowed u makes it positive, which is
    the condition of the bound. No step factors a kernel.

    Yields
    ------
    Iterate
        After each least-squares problem, the weights and the bound they certify.
    """
    start = weight_set.start(criterion.n_weights)
    root, _, goal = _least_squares(criterion, null=0.0)
    points = start[None, :]  # (r, p)
    while True:
        shares = cone_multipliers((points * criterion.norms) @ root.T, goal)
        optimum = shares @ points
        # an average of the points, so that no scaling can lead out of the set
        weights = optimum / np.sum(shares) if np.any(shares) else start
        yield certified(criterion, weight_set, weights)
        moved = criterion.correlations @ (optimum * criterion.norms)
        scores = (criterion.cosines - moved) * criterion.norms
        further = weight_set.maximizer(scores)
        if not float(scores @ further) > 0.0:
            return
        points = np.vstack([points[shares > 0.0], further])


def aligned_cuts(
    criterion: CosineCriterion, weight_set: LinearSet
) -> Iterator[Iterate]:
    """``max b'w`` subject to ``w'S w <= 1``, w in the cone spanned by the set.

    For weights of any sign this is Lanckriet et al. (2002), Eq. 11, without a
    semidefinite program. With constraints ``A w >= 0`` (linear constraints of the set,
    or cuts from eigenvectors of earlier sums) the dual is the non-negative
    least-squares problem ``min_z norm(R^-T (b + A'z))``, whose value bounds the
    alignment and whose weights are ``S^-1 (b + A'z)``. For linear sets all constraints
    are known in advance, and one such problem suffices. If the kernels are linearly
    dependent, S is singular, but ``A'z`` need not be in its range: a small multiple of
    the identity is then added to S. For linear sets several are tried, which costs
    little: value and bound need not come from the same one.

    Yields
    ------
    Iterate
        After each least-squares problem, the best weights and the best bound so far.
    """
    start = weight_set.start(criterion.n_weights)
    if not np.max(criterion.cosines) > 0.0:
        yield certified(criterion, weight_set, start)
        return
    root, *plain = _least_squares(criterion)
    parts = [plain]
    if len(root) < len(start):
        ridges = RIDGES[:1] if has_cuts(weight_set) else RIDGES
        parts = [[*_least_squares(criterion, ridge)[1:]] for ridge in ridges]
    state, largest = criterion.evaluate(start, hessian=False), np.max(criterion.norms)
    # Weights of kernels that vanish count towards the sum all the same.
    units = np.where(criterion.norms > 0.0, criterion.norms, largest)
    # No cosine is larger than 1.
    best, bound = replace(Iterate.at(start, state), lower_bound=-1.0), -1.0
    while True:
        rows, gauge = _cone(weight_set.polyhedron(len(start)))
        flat = rows / (units / largest)  # keeps squares in range
        for inverse, goal in parts:
            half = _nearest(flat @ inverse.T, goal)  # A R^+
            point = inverse.T @ half / units
            total, candidate = np.max(gauge @ point), -float(np.linalg.norm(half))
            if len(parts) > 1:  # each bound is that of another S
                terms = criterion.certificate_terms(start, point, point)
                candidate = terms.bound(weight_set)
            if candidate > bound:
                bound = candidate
                best = replace(best, dual=point, lower_bound=bound)
            if not total > 0.0:  # no weights within the cuts are aligned
                continue
            weights = weight_set.scale(point / total)
            if has_cuts(weight_set):
                weights = weight_set.separate(weights)
            state = criterion.evaluate(weights, hessian=False)
            if state.value < best.value:
                found = Iterate.at(weights, state)
                best = replace(found, dual=best.dual, lower_bound=bound)
        yield best
        if not has_cuts(weight_set) or not total > 0.0:
            return


def _nearest(halves: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """``goal + z'halves`` (r,) of least norm for ``z >= 0``."""
    size = np.linalg.norm(halves, axis=1)
    halves = halves[size > 0.0] / size[size > 0.0, None]
    return np.asarray(goal + cone_multipliers(halves, -goal) @ halves)


def _cone(allowed: Polyhedron) -> tuple[np.ndarray, np.ndarray]:
    """Rows a with ``a'w >= 0`` on the cone over a bounded polyhedron, and its gauge.

    The cone holds all w with ``A w = t b`` and ``C w <= t d`` for some t > 0. If b is
    not zero, an equation determines t. Otherwise inequalities bound t, from below where
    d > 0 and from above where d < 0: no lower bound may exceed an upper one. In either
    case ``w / t`` is in the polyhedron for ``t = max(gauge w)``. Rows that are zero up
    to rounding, such as that of the equation which determines t, constrain nothing.
    """
    below, room = allowed.inequalities()
    equal, equal_to = allowed.equal, allowed.equal_to
    if np.any(equal_to):
        first = [int(np.argmax(np.abs(equal_to)))]
        gauge = equal[first] / equal_to[first]
        held = _difference(room[:, None] * gauge, below)
        equal = _difference(equal, equal_to[:, None] * gauge)
    else:
        gauge = below[room > 0.0] / room[room > 0.0, None]
        most = below[room < 0.0] / room[room < 0.0, None]
        pairs = _difference(most[:, None], gauge).reshape(-1, below.shape[1])
        held = np.concatenate([-below[room == 0.0], pairs])
    rows = np.concatenate([held, equal, -equal])
    return rows[np.any(rows != 0.0, axis=1)], gauge


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a - b`` (..., m), with zeros for rows of which only rounding is left."""
    difference, size = a - b, np.maximum(np.abs(a), np.abs(b))
    rounding = ROUNDING_UNITS * DOUBLE_EPS * np.max(size, axis=-1)
    left = np.max(np.abs(difference), axis=-1) > rounding
    return np.where(left[..., None], difference, 0.0)


def _least_squares(
    criterion: CosineCriterion, ridge: float = 0.0, null: float = NULL_EIGENVALUE
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R (r, p) with ``R'R = S``, its pseudo-inverse transposed, and ``R^-T b`` (r,).

    ``ridge`` is added to the diagonal of S, for kernels at norm one; eigenvalues up to
    ``null`` times the largest are left out.
    """
    matrix = criterion.correlations + ridge * np.eye(criterion.n_weights)
    root = psd_factor(matrix, null).T
    inverse = root / np.sum(root**2, axis=1, keepdims=True)  # orthogonal rows
    return root, inverse, inverse @ criterion.cosines


def certified(
    criterion: CosineCriterion, weight_set: WeightSet, weights: np.ndarray
) -> Iterate:
    """The iterate at some weights (m,), with the lower bound that they certify."""
    state = criterion.evaluate(weights, hessian=False)
    terms = criterion.certificate_terms(weights, state.coef, state.coef)
    return replace(Iterate.at(weights, state), lower_bound=terms.bound(weight_set))

"""The allowed weights within a level of a criterion, enclosed by linear constraints."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from kernelweave._array import FactorizationError
from kernelweave._tolerances import ALLOWED_VIOLATION, NO_KERNEL
from kernelweave.protocols import (
    Criterion,
    LinearSet,
    Polyhedron,
    WeightSet,
)
from kernelweave.solvers import solve
from kernelweave.weights.polyhedral import proven_minimum, with_finite_limits

#: Distance between the proven and the reached end of a range that is close enough.
RESOLUTION = 2e-3
#: Linear programs per end; most ends need fewer than ten.
MAX_PROGRAMS = 60
#: Evaluations to find the point of a segment where the criterion reaches the level.
MAX_TRIALS = 12
#: The next segment starts this fraction of the way from the optimum to the best point
#: so far: a segment that starts near the end sought leaves the level set near it.
NEARLY = 0.9
#: Accuracy of the end of a segment, in units of the resolution of the share.
END_ACCURACY = 0.3
#: In units of that accuracy, how far short of the estimate the next point is, and its
#: shortest step; and the share of what is left of the segment that it may go.
SHORT_OF, LEAST_FORWARD, FARTHEST = 0.3, 0.1, 0.95
#: Relative gap to which the optimum is known before the ranges are computed.
OPTIMUM = 1e-8


class LevelSet:
    """The allowed weights within the level, inside the constraints known so far.

    Parameters
    ----------
    criterion, weight_set : Criterion, WeightSet
        The problem.
    within : float
        The level is the optimum plus this fraction of its absolute value.
    """

    def __init__(
        self, criterion: Criterion, weight_set: WeightSet, within: float
    ) -> None:
        self.m = criterion.n_weights
        self.first = self.m - criterion.n_kernels
        self.is_kernel = (np.arange(self.m) >= self.first).astype(np.float64)
        solution = solve(criterion, weight_set, tol=OPTIMUM)
        self.best, self.set = solution.weights, weight_set
        self.optimum = solution.value
        self.level = solution.value + within * abs(solution.value)
        self.room = self.level - self.optimum or 1.0
        kind = _alignment_bound if "cosines" in criterion.offers else _dual_bound
        self._bound = partial(kind, criterion, self.level)
        linear = cast(LinearSet, weight_set)
        self.power = linear.power  # 1, or the norm of a ball
        self.base = _outline(linear, self.m)
        # a'w <= b for all w within the level
        self.cuts: dict[bytes, tuple[np.ndarray, float]] = {}
        self._known: dict[bytes, tuple[float, np.ndarray, float]] = {}
        self._cut_at(self.best)
        self.largest_scale = self._largest_scale()

    def _bounds(self, weights: np.ndarray) -> tuple[float, np.ndarray, float]:
        """An upper bound on ``J(weights)``, and the lower one as ``a'w <= b``."""
        key = weights.tobytes()
        if key not in self._known:
            try:
                self._known[key] = self._bound(weights)
            except FactorizationError:
                self._known[key] = np.inf, weights, np.inf
        return self._known[key]

    def value(self, weights: np.ndarray) -> float:
        """An upper bound on ``J(weights)``."""
        return self._bounds(weights)[0]

    def _cut_at(self, weights: np.ndarray) -> None:
        _, row, limit = self._bounds(weights)
        self._cut(row, limit)

    def _cut(self, row: np.ndarray, limit: float) -> None:
        size = float(np.max(np.abs(row)))
        if np.isfinite(limit) and size > 0:
            self.cuts[row.tobytes()] = row / size, limit / size

    def extreme(self, chosen: np.ndarray, sign: float) -> tuple[float, float]:
        """The largest (sign 1) or smallest (-1) share of ``chosen``: proven, reached.

        Parameters
        ----------
        chosen : ndarray of shape (m,)
            1 for the kernels of the group, 0 elsewhere.
        sign : float
            1 or -1.
        """
        if not np.any(chosen) or np.array_equal(chosen, self.is_kernel):
            share = float(np.any(chosen))  # none or all, whatever the weights
            return share, share
        # The largest share times the sign is sought, and none exceeds ``proven``.
        chosen, proven = sign * chosen, max(sign, 0.0)
        reached = first = self._share(self.best, chosen)
        base = self.best
        for _ in range(MAX_PROGRAMS if np.isfinite(self.largest_scale) else 0):
            bound, point = self._program(-chosen)
            if point is None:
                break
            proven = min(proven, max(-bound, min(sign, 0.0)))
            outer = self._into_set(point)
            length = abs(self._share(outer, chosen) - first)
            needed = END_ACCURACY * RESOLUTION / max(length, RESOLUTION)
            inside = self._last_inside(base, outer, needed)
            share = self._share(inside, chosen)
            if share >= reached:
                reached = share
                base = self._into_set(self.best + NEARLY * (inside - self.best))
            if abs(proven - reached) <= RESOLUTION:
                break
        # Rounding may put the reached share past the proven one.
        return sign * max(proven, reached) + 0.0, sign * reached + 0.0

    def _share(self, weights: np.ndarray, chosen: np.ndarray) -> float:
        return float(chosen @ weights) / float(self.is_kernel @ weights)

    def _into_set(self, weights: np.ndarray) -> np.ndarray:
        """Weights in the set up to rounding or, for a ball, on the sphere: no worse."""
        weights = np.maximum(weights, 0.0)
        if self.power == 1:
            return (
                weights
                if self.set.violation(weights) <= ALLOWED_VIOLATION
                else self.best
            )
        size = float(np.linalg.norm(weights, self.power))
        if size > 1.0:  # the tangent of the ball there
            self._cut((weights / size) ** (self.power - 1.0), 1.0)
        return weights / size

    def _last_inside(
        self, base: np.ndarray, outer: np.ndarray, needed: float = 0.01
    ) -> np.ndarray:
        """The last point within the level on the way from ``base`` to ``outer``.

        The point and ``outer`` become cuts. ``needed`` is the accuracy as a fraction of
        the way. J rises about with the square of the distance from the optimum, so its
        square root is interpolated.
        """
        self._cut_at(outer)
        if self.value(outer) <= self.level:
            return outer
        start, end = 0.0, 1.0
        rise = [self._root(self.value(base)), self._root(self.value(outer))]
        for _ in range(MAX_TRIALS):
            if end - start <= needed or (start > 0 and 1.0 - rise[0] <= 0.5 * needed):
                break
            ahead = 0.5
            if np.isfinite(rise[1]):
                ahead = (1.0 - rise[0]) / (rise[1] - rise[0])
            # Just short of the estimate, so that most points are within the level.
            step = ahead * (end - start) - SHORT_OF * needed
            step = max(step, LEAST_FORWARD * needed)
            middle = start + min(step, FARTHEST * (end - start))
            value = self.value(self._into_set(base + middle * (outer - base)))
            if value <= self.level:
                start, rise[0] = middle, self._root(value)
            else:
                end, rise[1] = middle, self._root(value)
        inside = self._into_set(base + start * (outer - base))
        self._cut_at(inside)
        return inside

    def _root(self, value: float) -> float:
        """Square root of the rise above the optimum, 1 at the level."""
        return float(np.sqrt(max(value - self.optimum, 0.0) / self.room))

    def _allowed(self) -> Polyhedron:
        """All linear constraints on w that are known so far."""
        rows, limits = zip(*self.cuts.values(), strict=True) if self.cuts else ((), ())
        below = np.vstack([self.base.below, *rows])
        below_to = np.concatenate([self.base.below_to, limits])
        return replace(self.base, below=below, below_to=below_to)

    def _program(self, cost: np.ndarray) -> tuple[float, np.ndarray | None]:
        """A lower bound on ``min <cost, w> / sum_kernels w``, and the minimiser (m,).

        In ``u = w s`` with ``s = 1 / sum_kernels w`` this is a linear program.
        """
        base, scale = self.base, self.largest_scale
        below, below_to = self._allowed().inequalities()
        most = np.where(self.is_kernel > 0, 1.0, scale * base.limits[:, 1])
        scaled = Polyhedron(
            np.vstack(
                [
                    np.column_stack([base.equal, -base.equal_to]),
                    np.append(self.is_kernel, 0.0),
                ]
            ),
            np.append(np.zeros(len(base.equal)), 1.0),
            np.column_stack([below, -below_to]),
            np.zeros(len(below)),
            np.column_stack([np.zeros(self.m + 1), np.append(most, scale)]),
        )
        bound, x = proven_minimum(np.append(cost, 0.0), scaled)
        return bound, None if x is None or x[-1] <= 0 else x[:-1] / x[-1]

    def _largest_scale(self) -> float:
        """The largest ``1 / sum_kernels w``; infinite if no kernel is needed."""
        ones = np.all(self.base.equal == 1.0, axis=1) & (self.base.equal_to == 1.0)
        if self.first == 0 and (self.power != 1 or np.any(ones)):
            return 1.0  # the kernel weights sum to 1 or, on a sphere, to more
        proven = 0.0
        for _ in range(MAX_PROGRAMS):
            bound, point = proven_minimum(self.is_kernel, self._allowed())
            if point is None:
                break
            proven = max(proven, bound)
            reached = self._last_inside(self.best, self._into_set(point))
            if proven > NO_KERNEL and float(self.is_kernel @ reached) < 2.0 * proven:
                break
            if float(self.is_kernel @ reached) <= NO_KERNEL:
                break
        return 1.0 / proven if proven > NO_KERNEL else np.inf


def _dual_bound(
    criterion: Criterion, level: float, weights: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """Value at w, and the cut ``linear - <scores, u> <= level`` from its dual point."""
    coef = criterion.evaluate(weights, hessian=False).coef
    terms = criterion.certificate_terms(weights, coef, coef)
    return terms.upper, -np.asarray(terms.scores), level - terms.linear


def _alignment_bound(
    criterion: Any, level: float, weights: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """Minus the alignment, and the cut ``a w'S u / norm(w) <= b'u`` with a = -level.

    The weights of alignment at least a > 0 form the cone ``a sqrt(u'S u) <= b'u``, and
    ``sqrt(u'S u) >= w'S u / sqrt(w'S w)`` for every w.
    """
    norms = criterion.norms
    scaled = weights * norms
    moved = criterion.correlations @ scaled
    size = float(np.sqrt(max(scaled @ moved, 0.0))) or 1.0
    row = -level * moved / size * norms - criterion.cosines * norms
    # Without any alignment the level excludes nothing.
    limit = 0.0 if level < 0 else np.inf
    upper = criterion.certificate_terms(weights, weights, weights).upper
    return upper, row, limit


def _outline(weight_set: LinearSet, m: int) -> Polyhedron:
    """Linear constraints on w that contain the set: exact unless it is a ball."""
    if weight_set.power == 1:
        allowed: Polyhedron = weight_set.polyhedron(m)
        if np.any(np.all(allowed.equal == 1.0, axis=1) & (allowed.equal_to == 1.0)):
            limits = np.minimum(allowed.limits, 1.0)  # a part of a sum of one
            allowed = replace(allowed, limits=limits)
        return with_finite_limits(allowed, repr(weight_set))
    # norm_q(w) <= 1 implies w <= 1 and sum_i w_i <= m^(1 - 1/q). Criteria do not rise
    # along a ray, nor do shares change, so w may be on the sphere: sum_i w_i >= 1.
    power = 0.0 if np.isinf(weight_set.power) else 1.0 / weight_set.power
    return Polyhedron(
        np.zeros((0, m)),
        np.zeros(0),
        np.vstack([np.ones(m), -np.ones(m)]),
        np.array([m ** (1.0 - power), -1.0]),
        np.tile([0.0, 1.0], (m, 1)),
    )

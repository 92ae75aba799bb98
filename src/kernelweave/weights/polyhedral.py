"""Weight sets given by linear constraints, and the programs over them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import linprog

from kernelweave.protocols import Polyhedron, WeightSet

#: The tightest feasibility and optimality tolerance that HiGHS accepts.
LP_TOLERANCE = 1e-10
#: Relative error of the factor that brings a weight to its cap.
ROUNDED_REACH = 1e-15


def linear_program(
    cost: np.ndarray, allowed: Polyhedron
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """``min <cost, x>`` over a polyhedron, with HiGHS, whatever the size of the cost.

    Returns
    -------
    x : ndarray of shape (m,)
        The minimiser, within the tolerance of the solver.
    prices : ndarray of shape (r,)
        Multipliers >= 0 of the inequalities.
    equal_prices : ndarray of shape (e,)
        Multipliers of the equations: ``cost + below'prices + equal'equal_prices`` is
        balanced by the multipliers of the limits.

    None if HiGHS finds no optimum.
    """
    size = float(np.max(np.abs(cost))) or 1.0
    options = {
        "primal_feasibility_tolerance": LP_TOLERANCE,
        "dual_feasibility_tolerance": LP_TOLERANCE,
    }
    for method in ("highs-ds", "highs-ipm"):
        result = linprog(
            cost / size,
            A_ub=allowed.below,
            b_ub=allowed.below_to,
            A_eq=allowed.equal,
            b_eq=allowed.equal_to,
            bounds=allowed.limits,
            method=method,
            options=options,
        )
        if result.status == 0:
            prices = np.maximum(-result.ineqlin.marginals, 0.0)
            return result.x, size * prices, -size * result.eqlin.marginals
    return None


def proven_minimum(
    cost: np.ndarray, allowed: Polyhedron
) -> tuple[float, np.ndarray | None]:
    """A lower bound on ``min <cost, x>`` that holds in spite of rounding, and x.

    For any multipliers y >= 0 of ``C x <= d`` and z of ``A x = b``, the minimum is at
    least ``-<y, d> - <z, b>`` plus that of ``<cost + C'y + A'z, x>`` within the limits.
    """
    answer = linear_program(cost, allowed)
    if answer is None:
        return -np.inf, None
    x, prices, equal_prices = answer
    rest = cost + allowed.below.T @ prices + allowed.equal.T @ equal_prices
    least = np.sum(np.min(rest[:, None] * allowed.limits, axis=1))
    fixed = prices @ allowed.below_to + equal_prices @ allowed.equal_to
    return float(least - fixed), x


def box_maximizer(scores: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """``argmax <scores, w>`` over ``sum_i w_i = 1`` and limits (m, 2), (m,).

    Weights are raised to their upper limits in the order of their scores.
    """
    order = np.argsort(-scores)
    low, room = limits[order, 0], limits[order, 1] - limits[order, 0]
    before = np.cumsum(room) - room
    best = np.empty(len(scores))
    best[order] = low + np.clip(1.0 - np.sum(low) - before, 0.0, room)
    return best


#: Room within a constraint that counts as none.
NO_ROOM = 1e-9


def without_flat(allowed: Polyhedron, inside: np.ndarray) -> Polyhedron:
    """The polyhedron with independent equations, and inequalities that leave room.

    Those that leave none at ``inside`` (m,), a point in the relative interior, leave
    none anywhere: they become equations.
    """

    def is_flat(rows: np.ndarray, room: np.ndarray) -> np.ndarray:
        return room - rows @ inside <= LP_TOLERANCE * np.linalg.norm(rows, axis=1)

    rows, room = allowed.inequalities()
    flat, roomy = is_flat(rows, room), ~is_flat(allowed.below, allowed.below_to)
    equal = np.concatenate([allowed.equal, rows[flat]])
    u, sizes, basis = np.linalg.svd(equal, full_matrices=False)
    use = sizes > NO_ROOM * np.max(sizes, initial=0.0)
    equal_to = u.T @ np.append(allowed.equal_to, room[flat])
    limits, left = allowed.limits.copy(), np.abs(allowed.limits - inside[:, None])
    limits[np.min(left, axis=1) <= LP_TOLERANCE] = 0.0, np.inf
    return Polyhedron(
        basis[use],
        equal_to[use] / sizes[use],
        allowed.below[roomy],
        allowed.below_to[roomy],
        limits,
    )


def with_finite_limits(allowed: Polyhedron, name: str) -> Polyhedron:
    """The same polyhedron, with the upper limits that its other constraints imply.

    For multipliers y >= 0 of ``C x <= d`` and z of ``A x = b``, the sum S of the
    weights without limits is at most ``<y, d> + <z, b> - <rest, x>`` where ``rest`` is
    ``C'y + A'z``, less 1 for each of them. Its entries for these weights are >= 0 or,
    by rounding, at least -e, which adds up to e S.

    Raises
    ------
    ValueError
        If there is no such x, or nothing bounds a weight; ``name`` is that of the set.
    """
    low, high = allowed.limits.T
    free = np.isposinf(high)
    if not np.any(free):
        return allowed
    answer = linear_program(-free.astype(np.float64), allowed)
    if answer is None:
        raise _without_maximum(allowed, free, name)
    _, prices, equal_prices = answer
    rest = allowed.below.T @ prices + allowed.equal.T @ equal_prices - free
    known = np.where(free[:, None], 0.0, allowed.limits)
    most = prices @ allowed.below_to + equal_prices @ allowed.equal_to
    most -= np.sum(np.min(rest[:, None] * known, axis=1))
    implied = most / (1.0 - max(0.0, -float(np.min(rest[free]))))
    return replace(
        allowed, limits=np.column_stack([low, np.where(free, implied, high)])
    )


def _without_maximum(allowed: Polyhedron, free: np.ndarray, name: str) -> ValueError:
    """Why the sum of the ``free`` weights, a mask (m,), has no maximum."""
    m = len(free)
    if linear_program(np.zeros(m), allowed) is None:
        return ValueError(f"no {m} weights satisfy all constraints of {name}")
    costs = -np.eye(m)[free]
    endless = [linear_program(cost, allowed) is None for cost in costs]
    i = int(np.flatnonzero(free)[np.argmax(endless)])
    return ValueError(
        f"{name}: weight {i} has no upper limit, and no other constraint bounds it; "
        "state a finite limit"
    )


class PolyhedralSet(WeightSet):
    """``{ w : A w = b, C w <= d, 0 <= low <= w <= high }``, if it is bounded.

    A subclass states its constraints on m weights in :meth:`polyhedron`; linear
    programs supply everything else that a weight set needs. They are stated as a
    ``Polyhedron`` from ``kernelweave.protocols`` with the fields

    ===================== =====================================================
    ``equal, equal_to``   A (e, m) and b (e,)
    ``below, below_to``   C (r, m) and d (r,)
    ``limits``            the columns low and high, (m, 2); high may be infinite where
                          the other constraints bound the weight
    ===================== =====================================================

    or, for weights of sum one, as ``Polyhedron.sum_to_one(m, low, high, C, d)``,
    where only m is required: weights are then between 0 and 1.

    Examples
    --------
    No weight is below a tenth:

    >>> from kernelweave.protocols import Polyhedron
    >>> from kernelweave.weights import PolyhedralSet
    >>> class AtLeastATenth(PolyhedralSet):
    ...     def polyhedron(self, m):
    ...         return Polyhedron.sum_to_one(m, low=0.1)
    >>> AtLeastATenth().maximizer([1.0, 2.0, 3.0]).round(1).tolist()
    [0.1, 0.1, 0.8]
    """

    offers = frozenset({"polyhedron"})
    power = 1.0

    @abstractmethod
    def polyhedron(self, m: int) -> Polyhedron:
        """The constraints on m weights."""

    def start(self, m: int) -> np.ndarray:
        """The point furthest from its nearest inequality, (m,).

        Raises
        ------
        ValueError
            If no weights satisfy all constraints, or some weight can only be 0.
        """
        return self._centre(m)[0]

    def is_point(self, m: int) -> bool:
        """Whether the constraints leave no choice."""
        return m == 1 or self._centre(m)[1]

    def support(self, scores: np.ndarray) -> float:
        """``max <scores, w>``, bounded from above by the multipliers of its program."""
        return self._maximum(scores)[0]

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """A vertex where :meth:`support` is attained, (m,)."""
        return self.scale(self._maximum(scores)[1])

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """The nearest solution of the equations, pulled inside towards the start."""
        m = len(weights)
        centre = self.start(m)
        allowed = without_flat(self.polyhedron(m), centre)
        off = allowed.equal @ weights - allowed.equal_to
        step = weights - np.linalg.pinv(allowed.equal) @ off - centre
        rows, room = allowed.inequalities()
        slack, change = room - rows @ centre, rows @ step
        closing = change > 0.0
        ratios = np.maximum(slack[closing], 0.0) / change[closing]
        return centre + min(1.0, float(np.min(ratios, initial=np.inf))) * step

    def violation(self, weights: np.ndarray) -> float:
        """The largest violation of a constraint; 0 inside."""
        allowed = self.polyhedron(len(weights))
        rows, room = allowed.inequalities()
        off = np.abs(allowed.equal @ weights - allowed.equal_to)
        return float(np.max(np.append(rows @ weights - room, off), initial=0.0))

    def _centre(self, m: int) -> tuple[np.ndarray, bool]:
        """A point deep inside the set, and whether it is the only one.

        Inequalities that leave no room anywhere, such as those of a weight between
        equal limits, have positive multipliers: the point is then deep inside the
        others.
        """
        allowed = self._limited(m)
        rows, room = allowed.inequalities()
        depths, depth = np.linalg.norm(rows, axis=1), 0.0
        while np.any(depths) and not depth > NO_ROOM:
            deeper = Polyhedron(
                np.pad(allowed.equal, ((0, 0), (0, 1))),
                allowed.equal_to,
                np.column_stack([rows, depths]),
                room,
                np.tile([-np.inf, np.inf], (m + 1, 1)),
            )
            answer = linear_program(np.append(np.zeros(m), -1.0), deeper)
            if answer is None or answer[0][-1] < -NO_ROOM:
                raise ValueError(f"no {m} weights satisfy all constraints of {self!r}")
            centre, depth = answer[0][:-1], float(answer[0][-1])
            flat = (answer[1] > NO_ROOM) & (depths > 0.0)
            depths[flat & (depth <= NO_ROOM)] = 0.0
        is_point = len(without_flat(allowed, centre).equal) == m
        if not is_point and np.min(centre) <= NO_ROOM:
            i = int(np.argmin(centre))
            raise ValueError(
                f"{self!r}: weight {i} can only be 0; leave out its kernel instead"
            )
        return centre, is_point

    def _limited(self, m: int) -> Polyhedron:
        """The constraints on m weights, with finite limits."""
        allowed = self.polyhedron(m)
        low = allowed.limits[:, 0]
        if not np.all(low >= 0.0):
            i = int(np.argmin(low >= 0.0))
            raise ValueError(
                f"{self!r}: weight {i} has the lower limit {low[i]:g}; weights are not "
                "negative here: state a limit of 0 or more"
            )
        return with_finite_limits(allowed, repr(self))

    def _maximum(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        scores = np.asarray(scores, dtype=np.float64)
        allowed = self._limited(len(scores))
        bound, best = proven_minimum(-scores, allowed)
        if best is None:
            raise ValueError(f"a linear program over {self!r} could not be solved")
        return -bound, best


class CappedSimplex(PolyhedralSet):
    """``{ w >= 0 : sum_i w_i = 1, w_i <= cap_i }``: no kernel exceeds its share.

    With ``cap = 1 / c`` at least c kernels have nonzero weight.

    Parameters
    ----------
    cap : float or sequence of shape (m,)
        The largest weight allowed: one number for all weights, or one per weight. A
        learned regularisation counts as a weight, the first one.
    """

    offers = frozenset({"polyhedron", "sparse"})

    def __init__(self, cap: float | Sequence[float] | np.ndarray) -> None:
        found = np.asarray(cap)
        real = found.dtype.kind in "fiu" and found.ndim <= 1
        if not (real and np.all((found > 0) & np.isfinite(found))):
            raise ValueError(
                f"cap must be a number > 0, or one such number per weight; got {cap!r}"
            )
        self.cap = np.array(cap, dtype=np.float64)  # nobody else can change it

    def polyhedron(self, m: int) -> Polyhedron:
        """The sum, the signs and the caps."""
        return Polyhedron.sum_to_one(m, high=self._caps(m))

    def start(self, m: int) -> np.ndarray:
        """Weights proportional to their caps."""
        caps = self._caps(m)
        return caps / np.sum(caps)

    def is_point(self, m: int) -> bool:
        """Whether the caps leave no choice."""
        return m == 1 or bool(np.sum(self._caps(m)) <= 1.0 + NO_ROOM)

    support = WeightSet.support  # exact

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """Weights raised to their caps, best score first, until the sum is 1."""
        return box_maximizer(scores, self.polyhedron(len(scores)).limits)

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """``min(cap, t w)`` with the t that makes the sum 1.

        If too few weights are positive, the others share the remainder.
        """
        weights = np.maximum(weights, 0.0)
        caps, positive = self._caps(len(weights)), weights > 0
        if np.sum(caps[positive]) <= 1.0:
            filled = np.where(positive, caps, 0.0)
            room = float(np.sum(caps[~positive])) or 1.0
            return np.where(positive, caps, (1.0 - np.sum(filled)) / room * caps)
        reach = np.full(len(weights), np.inf)  # the t at which a weight is at its cap
        reach[positive] = caps[positive] / weights[positive]
        order = np.argsort(reach)
        full = np.cumsum(caps[order]) - caps[order]
        left = np.cumsum(weights[order][::-1])[::-1]
        # With j weights at their caps, t = (1 - their sum) / the sum of the others.
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = (1.0 - full) / left
        j = int(np.argmax(factors <= reach[order] * (1.0 + ROUNDED_REACH)))
        return np.minimum(caps, factors[j] * weights)

    def __repr__(self) -> str:
        shown = f"{float(self.cap):.12g}" if self.cap.ndim == 0 else "[...]"
        return f"CappedSimplex({shown})"

    def _caps(self, m: int) -> np.ndarray:
        """The largest value of each of m weights, (m,)."""
        if self.cap.ndim == 1 and len(self.cap) != m:
            raise ValueError(f"{self!r} has {len(self.cap)} caps for {m} weights")
        caps = np.minimum(np.broadcast_to(self.cap, (m,)), 1.0)
        if np.sum(caps) < 1.0 - NO_ROOM:
            raise ValueError(
                f"{self!r}: {m} weights within their caps sum to at most "
                f"{np.sum(caps):.12g}, not to 1; raise the cap"
            )
        return caps

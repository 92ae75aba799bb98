"""Cutting planes: the papers' column generation, and cuts for weights of any sign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import sparse

from kernelweave._array import Array, FactorizationError
from kernelweave.exceptions import library
from kernelweave.inner.least_distance import least_distance
from kernelweave.protocols import (
    Criterion,
    CutSet,
    Evaluation,
    Iterate,
    LinearSet,
    Polyhedron,
    WeightSet,
)
from kernelweave.solvers.newton import safe_step
from kernelweave.weights.polyhedral import box_maximizer, linear_program

#: A point is moved halfway to the best one while its value exceeds this multiple of
#: the best value.
BLOWN_UP = 100.0
#: Slope of a cut at the edge of the set, relative to the value, beyond which a linear
#: program is given the cut divided by its slope.
STEEP_CUT = 1e12
#: The smallest learned regularisation: the certificate divides by it.
FLOOR = 1e-10
CONE_TOLERANCE = 1e-11
#: The level of the next point, as a fraction of the way from lower bound to best value.
LEVEL = 0.5

#: Result of a master: weights and multipliers, then prices of further constraints.
Answer = tuple[np.ndarray, ...] | None


def cutting_plane(criterion: Criterion, weight_set: LinearSet) -> Iterator[Iterate]:
    """``min_w max_a [ linear(a) - <scores(a), w> ]`` with one cut per known a.

    The SILP / SIP of Yan et al. (2009), Eqs. 16 to 21 and Table I. Step t evaluates
    the criterion at w_t, whose dual point a_t is the most violated constraint, and
    adds it to the restricted master problem::

        min_{t, w}  t    subject to  t >= linear_r - <scores_r, w>,  r = 1 .. t,

    over the weight set: an LP where its constraints are linear (HiGHS), a power cone
    program for the lp balls (Clarabel). The master's multipliers mu of
    the cuts give a dual point ``sum_r mu_r a_r``. Because ``linear`` is concave and
    ``scores`` are convex in a, the bound it certifies is at least the master's value.

    Yields
    ------
    Iterate
        After each evaluation, the best weights and the best lower bound so far.
    """
    weights = weight_set.start(criterion.n_weights)
    allowed, q = weight_set.polyhedron(len(weights)), weight_set.power
    cuts = _Cuts(len(weights))
    while True:
        weights, state = _evaluate_nearby(criterion, weights, cuts.best)
        unit = cuts.add(weights, state, state.value)
        linear, scores = cuts.linear / unit, cuts.scores / unit
        if q == 1:
            answer = master_program(linear, scores, allowed)
        else:
            answer = _solve_cone(linear, scores, q)
        if answer is None:
            return
        raw, multipliers, *_ = answer
        support = weight_set.support(multipliers @ cuts.scores)
        yield cuts.judged(multipliers, float(multipliers @ cuts.linear) - support)
        weights = into_set(criterion, weight_set, raw)


def spectral_cuts(criterion: Criterion, weight_set: CutSet) -> Iterator[Iterate]:
    """Minimise a convex criterion over ``sum_i w_i G_i`` PSD, ``sum_i w_i = 1``.

    Lanckriet et al. (2002), Eq. 12, without a semidefinite program. Two kinds of cuts
    are collected: ``J(u) >= linear_r - <scores_r, u>`` from each evaluation, and
    ``v'K(u) v >= 0`` from eigenvectors of sums that are not positive semidefinite.

    1. The linear program ``min t`` over all cuts gives a lower bound.
    2. The next point is the one nearest to the best point at which all cuts lie below
       the level halfway between the bound and the best value (a level method: it needs
       no step length and does not jump between vertices).
    3. Eigenvectors of its negative eigenvalues become cuts, and the point is pulled
       back into the set.
    4. The criterion is evaluated there.

    Yields
    ------
    Iterate
        After each evaluation, the best weights and the best lower bound so far.
    """
    weights = weight_set.start(criterion.n_weights)
    cuts = _Cuts(len(weights))
    while True:
        weights, state, value = _judged(criterion, weights, cuts.best)
        unit = cuts.add(weights, state, value)
        allowed = weight_set.polyhedron(len(weights))
        answer = master_program(cuts.linear / unit, cuts.scores / unit, allowed)
        if answer is None:
            return
        point, multipliers, prices = answer
        # The bound holds however accurately the program was solved.
        slope = multipliers @ cuts.scores - unit * prices @ allowed.below
        highest = float(slope @ box_maximizer(slope, allowed.limits))
        best = cuts.judged(multipliers, float(multipliers @ cuts.linear) - highest)
        yield best
        level = cuts.bound + LEVEL * (best.value - cuts.bound)
        rows, room = allowed.inequalities()
        rows = np.concatenate([cuts.scores, -rows])
        right = np.concatenate([cuts.linear - level, -room])
        nearest = nearest_point(rows, right, best.weights)
        weights = weight_set.separate(point if nearest is None else nearest)
        is_cut = len(weight_set.polyhedron(len(weights)).below) > len(allowed.below)
        if np.array_equal(weights, best.weights) and not is_cut:
            return  # the cuts are too inaccurate to yield a new point


def into_set(
    criterion: Criterion, weight_set: WeightSet, raw: np.ndarray
) -> np.ndarray:
    """Weights (m,) from a general-purpose solver, moved into the set."""
    weights = np.maximum(raw, 0.0)
    others = criterion.n_weights - criterion.n_kernels
    weights[:others] = np.maximum(weights[:others], FLOOR)
    return weight_set.scale(weights)


class _Cuts:
    """The cuts ``t >= linear_r - <scores_r, w>``, the best point and the best bound."""

    def __init__(self, m: int) -> None:
        self.linear, self.scores = np.zeros(0), np.zeros((0, m))  # (r,) and (r, m)
        self.best: Iterate | None = None
        self.bound = -np.inf
        self._coefs: list[Array] = []
        self._dual: Array | None = None

    def add(self, weights: np.ndarray, state: Evaluation, value: float) -> float:
        """Add the cut at weights (m,), and return the unit for the next master.

        The gap is relative to the best value, so the master's tolerances must be too.
        """
        linear = state.value - float(state.gradient @ weights)
        self.linear = np.append(self.linear, linear)
        self.scores = np.vstack([self.scores, -state.gradient])
        self._coefs.append(state.coef)
        if self.best is None or value < self.best.value:
            self.best = replace(Iterate.at(weights, state), value=value)
        self.best = replace(self.best, n_factorizations=state.n_factorizations)
        return abs(self.best.value) or 1.0

    def judged(self, multipliers: np.ndarray, bound: float) -> Iterate:
        """The best point with the best bound, given that of multipliers (r,).

        Their dual point is ``sum_r mu_r a_r`` over the cuts that bind.
        """
        if bound > self.bound:
            pairs = zip(multipliers, self._coefs, strict=True)
            self._dual = sum(float(mu) * coef for mu, coef in pairs if mu > 0)
            self.bound = bound
        assert self.best is not None
        return replace(self.best, dual=self._dual, lower_bound=self.bound)


def _evaluate_nearby(
    criterion: Criterion, weights: np.ndarray, best: Iterate | None
) -> tuple[np.ndarray, Evaluation]:
    """The criterion at ``weights``, or nearer to the best point if it blows up.

    With a learned regularisation near zero and duplicate rows the combined kernel is
    singular at a vertex: the cut there would be infinitely steep and exclude nothing.
    """
    if best is None:
        return weights, criterion.evaluate(weights, hessian=False)
    limit = best.value + (BLOWN_UP - 1.0) * abs(best.value)
    _, found, tried = safe_step(
        lambda trial: criterion.evaluate(trial, hessian=False),
        lambda share: (1.0 - share) * best.weights + share * weights,
        lambda _share, _trial, state: state.value <= limit,
        "the criterion blows up between the best weights and the cut",
    )
    count = sum(state.n_factorizations for state in tried)
    return found, replace(tried[-1], n_factorizations=count)


def _judged(
    criterion: Criterion, weights: np.ndarray, best: Iterate | None
) -> tuple[np.ndarray, Evaluation, float]:
    """Evaluate, and certify the value: the inner solver may have stopped early.

    The certificate of some criteria divides by the weight of another term, which must
    then be nonzero. If the certified value is still infinite, as for a function that
    fails to separate a few rows, the value of the inner solver is used.
    """
    weights, state = _evaluate_nearby(criterion, weights, best)
    upper = criterion.certificate_terms(weights, state.coef, state.coef).upper
    others = weights[: criterion.n_weights - criterion.n_kernels]
    if not np.isfinite(upper) and np.min(others, initial=1.0) < FLOOR:
        raised = np.append(np.maximum(others, FLOOR), weights[len(others) :])
        raised = raised / np.sum(raised)
        spent = state.n_factorizations
        weights, state = _evaluate_nearby(criterion, raised, best)
        state = replace(state, n_factorizations=spent + state.n_factorizations)
        upper = criterion.certificate_terms(weights, state.coef, state.coef).upper
    return weights, state, upper if np.isfinite(upper) else state.value


def master_program(
    linear: np.ndarray, scores: np.ndarray, allowed: Polyhedron
) -> Answer:
    """``min t`` subject to ``t >= linear_r - <scores_r, w>`` and w in a polyhedron.

    Parameters
    ----------
    linear, scores : ndarray of shape (r,) and (r, m)
        The cuts.
    allowed : Polyhedron
        The set of allowed w.

    Returns
    -------
    weights : ndarray of shape (m,)
        The minimiser.
    multipliers : ndarray of shape (r,)
        Multipliers of the cuts, non-negative with sum one.
    prices : ndarray
        Multipliers of the inequalities of the polyhedron.
    """
    r, m = scores.shape
    cuts = -np.column_stack([scores, np.ones(r)])
    sizes = np.max(np.abs(cuts), axis=1)
    sizes[sizes < STEEP_CUT] = 1.0
    with_t = Polyhedron(
        np.pad(allowed.equal, ((0, 0), (0, 1))),
        allowed.equal_to,
        np.concatenate(
            [cuts / sizes[:, None], np.pad(allowed.below, ((0, 0), (0, 1)))]
        ),
        np.concatenate([-linear / sizes, allowed.below_to]),
        np.concatenate([allowed.limits, [[-np.inf, np.inf]]]),
    )
    answer = linear_program(np.append(np.zeros(m), 1.0), with_t)
    if answer is None:
        return None
    x, prices, _ = answer
    own = prices[:r] / sizes
    return x[:m], own / np.sum(own), prices[r:]


def _solve_cone(linear: np.ndarray, scores: np.ndarray, q: float) -> Answer:
    """The master on an lq ball, in the variables ``(w, t, u)``.

    ``sum_i u_i = 1`` and ``w_i <= u_i^(1/q)``: m power cones ``(u_i, 1, w_i)``.
    """
    clarabel = library(
        "clarabel",
        "method='cutting_plane' needs Clarabel for norms other than 1; install "
        "it with: pip install 'kernelweave[cone]'",
    )
    r, m = scores.shape
    one, column = sparse.eye_array(m), np.ones((r, 1))
    in_cone = [sparse.kron(one, -np.eye(3)[:, [place]]) for place in (2, 0)]
    rows = [
        [sparse.coo_array(-scores), sparse.coo_array(-column), None],
        [-one, None, None],
        [None, None, sparse.coo_array(np.ones((1, m)))],
        [in_cone[0], None, in_cone[1]],
    ]
    right = [-linear, np.zeros(m), np.ones(1), np.tile([0.0, 1.0, 0.0], m)]
    cones = [clarabel.NonnegativeConeT(r + m), clarabel.ZeroConeT(1)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = CONE_TOLERANCE
    settings.tol_feas = CONE_TOLERANCE
    answer = clarabel.DefaultSolver(
        sparse.csc_matrix((2 * m + 1, 2 * m + 1)),
        (np.arange(2 * m + 1) == m).astype(float),  # minimise t
        sparse.csc_matrix(sparse.block_array(rows)),
        np.concatenate(right),
        cones + [clarabel.PowerConeT(1.0 / q)] * m,
        settings,
    ).solve()
    weights, multipliers = np.array(answer.x[:m]), np.array(answer.z[:r])
    # Any status is acceptable: the bound is recomputed from these multipliers.
    usable = np.all(np.isfinite(weights)) and np.max(weights) > 0
    if not (usable and np.all(np.isfinite(multipliers)) and np.max(multipliers) > 0):
        return None
    multipliers = np.maximum(multipliers, 0.0)
    return weights, multipliers / np.sum(multipliers)


def nearest_point(
    rows: np.ndarray, right: np.ndarray, centre: np.ndarray
) -> np.ndarray | None:
    """``min norm(w - centre)`` with ``rows w >= right`` and the same sum as centre.

    A least distance in coordinates of the plane; None if rounding leaves no feasible
    point.
    """
    m = len(centre)
    basis = np.linalg.svd(np.ones((1, m)))[2][1:].T  # (m, m - 1), orthogonal to ones
    slopes, short = rows @ basis, right - rows @ centre
    size = np.linalg.norm(slopes, axis=1)
    use = size > 0.0
    slopes, short = slopes[use] / size[use, None], short[use] / size[use]
    if not np.any(short > 0.0):
        return centre
    unit = float(np.max(np.abs(short)))
    try:
        _, step = least_distance(slopes, short / unit)
    except FactorizationError:
        return None
    return None if step is None else centre + basis @ (unit * step)

"""The papers' column generation: cutting planes with an LP or a cone master."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from kernelweave._array import Array, FactorizationError
from kernelweave.protocols import (
    Criterion,
    Evaluation,
    Iterate,
    LinearSet,
    Polyhedron,
    WeightSet,
)
from kernelweave.weights.polyhedral import master_program

__all__ = [
    "Cuts",
    "as_multipliers",
    "cutting_plane",
    "evaluate_nearby",
    "into_set",
]

#: A point is moved halfway to the best one while its value exceeds this multiple of
#: the best value.
JUMP = 100.0
MAX_HALVINGS = 30
#: The smallest learned regularisation: the certificate divides by it.
FLOOR = 1e-10
CONE_TOLERANCE = 1e-11

Master = Callable[[np.ndarray, np.ndarray], "tuple[np.ndarray, np.ndarray] | None"]


def cutting_plane(criterion: Criterion, weight_set: LinearSet) -> Iterator[Iterate]:
    """``min_w max_a [ linear(a) - <scores(a), w> ]`` with one cut per known a.

    The SILP / SIP of Yan et al. (2009), Eqs. 16 to 21 and Table I. Step t evaluates
    the criterion at w_t, whose dual point a_t is the most violated constraint, and
    adds it to the restricted master problem::

        min_{t, w}  t    subject to  t >= linear_r - <scores_r, w>,  r = 1 .. t,

    over the weight set: an LP where its constraints are linear (HiGHS), a second-order
    or power cone program for the lp balls (Clarabel). The master's multipliers mu of
    the cuts give a dual point ``sum_r mu_r a_r``. Because ``linear`` is concave and
    ``scores`` are convex in a, the bound it certifies is at least the master's value.

    Yields
    ------
    Iterate
        After each evaluation, the best weights and the best lower bound so far.
    """
    weights = weight_set.start(criterion.n_weights)
    single = weight_set.is_point(len(weights))
    solve_master = None if single else _master(weight_set, len(weights))
    cuts = Cuts()
    best: Iterate | None = None
    bound, dual = -np.inf, None
    while True:
        weights, state = evaluate_nearby(criterion, weights, best)
        cuts.add(weights, state)
        if best is None or state.value < best.value:
            best = Iterate.at(weights, state)
        best = replace(best, n_factorizations=state.n_factorizations)
        if solve_master is None:
            yield best
            return
        # The gap is relative to the best value, so the tolerances must be as well.
        unit = abs(best.value) or 1.0
        answer = solve_master(cuts.linear / unit, cuts.scores / unit)
        if answer is None:
            return
        raw, multipliers = answer
        candidate = cuts.bound(multipliers, weight_set)
        if candidate > bound:
            bound, dual = candidate, cuts.dual_point(multipliers)
        yield replace(best, dual=dual, lower_bound=bound)
        weights = into_set(criterion, weight_set, raw)


def into_set(
    criterion: Criterion, weight_set: WeightSet, raw: np.ndarray
) -> np.ndarray:
    """Weights (m,) from a general-purpose solver, moved into the set."""
    weights = np.maximum(raw, 0.0)
    others = criterion.n_weights - criterion.n_kernels
    weights[:others] = np.maximum(weights[:others], FLOOR)
    return weight_set.scale(weights)


class Cuts:
    """The cuts ``t >= linear_r - <scores_r, w>`` and the dual points behind them."""

    def __init__(self) -> None:
        self._linear: list[float] = []
        self._scores: list[np.ndarray] = []
        self._coefs: list[Array] = []

    def add(self, weights: np.ndarray, state: Evaluation) -> None:
        """The linearisation of the criterion at evaluated weights (m,)."""
        self._linear.append(state.value - float(state.gradient @ weights))
        self._scores.append(-state.gradient)
        self._coefs.append(state.coef)

    @property
    def linear(self) -> np.ndarray:
        """(r,)."""
        return np.array(self._linear)

    @property
    def scores(self) -> np.ndarray:
        """(r, m)."""
        return np.array(self._scores)

    def bound(self, multipliers: np.ndarray, weight_set: WeightSet) -> float:
        """The master's dual value, a lower bound for any multipliers (r,)."""
        return float(
            multipliers @ self.linear - weight_set.support(multipliers @ self.scores)
        )

    def dual_point(self, multipliers: np.ndarray) -> Array:
        """``sum_r mu_r a_r`` over the cuts that bind."""
        return sum(
            float(mu) * coef
            for mu, coef in zip(multipliers, self._coefs, strict=True)
            if mu > 0
        )


def evaluate_nearby(
    criterion: Criterion, weights: np.ndarray, best: Iterate | None
) -> tuple[np.ndarray, Evaluation]:
    """The criterion at ``weights``, or nearer to the best point if it blows up.

    With a learned regularisation near zero and duplicate rows the combined kernel is
    singular at a vertex: the cut there would be infinitely steep and exclude nothing.
    """
    if best is None:
        return weights, criterion.evaluate(weights, hessian=False)
    count = 0
    for _ in range(MAX_HALVINGS):
        try:
            state = criterion.evaluate(weights, hessian=False)
        except FactorizationError:
            pass
        else:
            count += state.n_factorizations
            if state.value <= best.value + (JUMP - 1.0) * abs(best.value):
                return weights, replace(state, n_factorizations=count)
        weights = 0.5 * (weights + best.weights)
    raise FactorizationError(
        "the criterion blows up between the best weights and the cut"
    )


def as_multipliers(values: np.ndarray) -> np.ndarray:
    """Multipliers (r,) from a solver, made exactly non-negative with sum one."""
    positive = np.maximum(values, 0.0)
    return positive / np.sum(positive)


def _master(weight_set: LinearSet, m: int) -> Master:
    """The master for the set, from cuts (r,), (r, m) to weights and multipliers."""
    if weight_set.power == 1:
        allowed = weight_set.polyhedron(m)
        return lambda linear, scores: _solve_linear(linear, scores, allowed)
    clarabel, q = _import_clarabel(), weight_set.power
    return lambda linear, scores: _solve_cone(clarabel, q, linear, scores)


def _solve_linear(
    linear: np.ndarray, scores: np.ndarray, allowed: Polyhedron
) -> tuple[np.ndarray, np.ndarray] | None:
    """The master under linear constraints."""
    answer = master_program(linear, scores, allowed)
    return None if answer is None else (answer[0], as_multipliers(answer[1]))


def _solve_cone(
    clarabel: Any, q: float, linear: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """The master on an lq ball; variables ``(w, t)``, then u (m,) unless q is 2."""
    r, m = scores.shape
    cuts = sparse.csc_array(-np.column_stack([scores, np.ones(r)]))
    signs = sparse.eye_array(m, m + 1) * -1.0
    if q == 2:
        rows, right, cones = _second_order_ball(clarabel, m)
    else:
        rows, right, cones = _power_ball(clarabel, m, q)
    width = rows.shape[1]
    for block in (cuts, signs):
        block.resize((block.shape[0], width))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = CONE_TOLERANCE
    settings.tol_feas = CONE_TOLERANCE
    cost = np.zeros(width)
    cost[m] = 1.0
    answer = clarabel.DefaultSolver(
        sparse.csc_matrix((width, width)),
        cost,
        sparse.csc_matrix(sparse.vstack([cuts, signs, rows])),
        np.concatenate([-linear, np.zeros(m), right]),
        [clarabel.NonnegativeConeT(r + m), *cones],
        settings,
    ).solve()
    weights, multipliers = np.array(answer.x[:m]), np.array(answer.z[:r])
    # Any status is acceptable: the bound is recomputed from these multipliers.
    usable = np.all(np.isfinite(weights)) and np.max(weights) > 0
    if not (usable and np.all(np.isfinite(multipliers)) and np.max(multipliers) > 0):
        return None
    return weights, as_multipliers(multipliers)


def _second_order_ball(clarabel: Any, m: int) -> tuple[Any, np.ndarray, list[Any]]:
    """``norm_2(w) <= 1`` as rows (1 + m, m + 1): ``right - rows x = (1, w)``."""
    rows = sparse.vstack([sparse.csc_array((1, m + 1)), -sparse.eye_array(m, m + 1)])
    right = np.append(1.0, np.zeros(m))
    return rows, right, [clarabel.SecondOrderConeT(m + 1)]


def _power_ball(clarabel: Any, m: int, q: float) -> tuple[Any, np.ndarray, list[Any]]:
    """``sum_i u_i = 1`` and ``w_i <= u_i^(1/q)``: m power cones ``(u_i, 1, w_i)``."""
    total = sparse.csc_array(np.append(np.zeros(m + 1), np.ones(m))[None, :])
    i = np.arange(m)
    entries = (-np.ones(2 * m), (np.append(3 * i, 3 * i + 2), np.append(m + 1 + i, i)))
    rows = sparse.vstack([total, sparse.coo_array(entries, shape=(3 * m, 2 * m + 1))])
    right = np.append(1.0, np.tile([0.0, 1.0, 0.0], m))
    cones = [clarabel.ZeroConeT(1), *(clarabel.PowerConeT(1.0 / q) for _ in i)]
    return rows, right, cones


def _import_clarabel() -> Any:
    try:
        import clarabel
    except ImportError as error:
        raise ImportError(
            "method='cutting_plane' needs Clarabel for norms other than 1; install "
            "it with: pip install 'kernelweave[cone]'"
        ) from error
    return clarabel

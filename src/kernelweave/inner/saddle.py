"""Margins and kernel weights as a single saddle point problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernelweave._array import (
    Array,
    FactorizationError,
    from_numpy,
    in_double,
    inner_products,
    namespace,
    require_memory,
    robust_cholesky,
    solve_triangular,
    tensor_sum,
    to_numpy,
)
from kernelweave._tolerances import IDLE
from kernelweave.inner.interior_point import BorderedSystem, largest_step, predict
from kernelweave.inner.svm import (
    MarginTerms,
    balanced,
    best_intercepts,
    primal_values,
    without_intercept,
)
from kernelweave.kernels.banks.dense import DenseBank, combine_in_double
from kernelweave.protocols import Bank, InfeasibleError


@dataclass(frozen=True)
class SaddleProblem:
    """``min_w max_a sum_c 2 e'a_c - a_c'(G(w) + tau D) a_c`` over labelled rows.

    D is the identity or, with row weights r, ``diag(1/r)``.

    Attributes
    ----------
    bank : Bank
        Kernels over the n rows with a label in some column.
    signs : ndarray of shape (n, k)
        +1 or -1; 0 marks rows that do not take part in a column.
    bound : float
        The C of ``0 <= a_i <= C r_i``, or infinity.
    tau : float
        Fixed weight of D.
    identity : bool
        Whether D is a kernel too, with index 0.
    counts : ndarray of shape (n,)
        r > 0, the row weights.
    """

    bank: Bank
    signs: np.ndarray
    bound: float
    tau: float
    identity: bool
    counts: np.ndarray

    @cached_property
    def bounds(self) -> np.ndarray:
        """``C r``, (n,)."""
        return self.bound * self.counts

    @cached_property
    def diagonal(self) -> np.ndarray:
        """The diagonal of D, (n,)."""
        return 1.0 / self.counts

    @property
    def n_weights(self) -> int:
        """The number m of weights."""
        return self.bank.n_kernels + int(self.identity)

    def at(self, weights: np.ndarray) -> SaddleProblem:
        """The problem in a alone: one kernel, ``sum_i w_i G_i`` for weights (m,)."""
        tau, kernel_weights = self.split(np.asarray(weights, dtype=np.float64))
        kernel = combine_in_double(self.bank, kernel_weights)
        bank = DenseBank(kernel[None, :, :])
        return replace(self, bank=bank, tau=tau, identity=False)

    def products(self, beta: np.ndarray) -> Array:
        """``G_i beta`` on the device of the bank, (m, n, k), for beta (n, k)."""
        out = self.bank.apply(in_double(beta, self.bank.like))
        if not self.identity:
            return out
        own = from_numpy(self.diagonal[:, None] * beta, out)
        return namespace(out).concat([own[None, ...], out])

    def scores(self, beta: np.ndarray, products: Array | None = None) -> np.ndarray:
        """``sum_c b_c'G_i b_c`` (m,) for beta (n, k), from its products if given."""
        products = self.products(beta) if products is None else products
        return inner_products(products, from_numpy(beta, products))

    def split(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """``tau = 1/C`` of the 2-norm margin (else 0) and the kernel weights (p,)."""
        if self.identity:
            return float(weights[0]), weights[1:]
        return self.tau, weights

    def functions(self, weights: np.ndarray, products: Array) -> np.ndarray:
        """``sum_i w_i G_i b`` (n, k) without D, from products (m, n, k)."""
        p = self.bank.n_kernels
        return to_numpy(tensor_sum(weights[-p:], products[-p:, ...]))

    def upper(self, weights: np.ndarray, beta: np.ndarray, products: Array) -> float:
        """The primal value at weights (m,) of beta (n, k), given its products."""
        f, (tau, _) = self.functions(weights, products), self.split(weights)
        values = primal_values(f, beta, self.signs, self.bounds, tau * self.diagonal)
        return float(np.sum(values))

    def terms(
        self, beta: np.ndarray, scores: np.ndarray, upper: float = np.inf
    ) -> MarginTerms:
        """Certificate terms of a feasible ``beta = a y`` (n, k), given its scores."""
        total = float(np.sum(beta * self.signs))
        square = self.tau * float(np.sum(self.diagonal @ beta**2))
        largest = float(np.max(self.diagonal[:, None] * np.abs(beta)))
        factor = self.bound / largest if largest > 0 else np.inf
        return MarginTerms(upper, 2.0 * total - square, scores, total, square, factor)

    def unit(self) -> float:
        """The scale of a: where its linear and quadratic terms balance, or the box."""
        means, count = np.mean(self.bank.diagonals(), axis=1), np.mean(self.counts)
        curvature = max(float(np.max(means)), float(self.identity / count))
        curvature += float(self.tau / count)
        free = 1.0 / curvature if curvature > 0 else np.inf
        size = min(self.bound * float(count), free)
        return size if np.isfinite(size) else 1.0


#: Fraction of the way to the boundary that a step may go.
PATH_REACH = 0.99
#: A gap below this that no longer halves is limited by rounding.
NEAR_END = 1e-6
#: Gaps up to this times the best one so far are on the path towards it.
AROUND = 10.0
#: The smallest multipliers of rows at the start, next to a gradient of about one.
LEAST_MULTIPLIER = 0.1
#: eta at the start: this share of the largest score per weight, of which one half would
#: leave that kernel no slack, and what is added in case all scores are zero.
START_ETA, LEAST_ETA = 0.55, 1e-3
#: A hard margin whose squared inverse exceeds this, for kernels of mean diagonal one,
#: is indistinguishable from no margin in float64.
SEPARABLE = 1e13


class SaddlePath:
    """A primal-dual path to the saddle point; one factorisation per step and column.

    In signed variables ``b = a y`` and with multipliers z of ``a >= 0``, v of
    ``u = C r - a >= 0``, s of ``w >= 0``, lam of ``e'b = 0`` and eta of
    ``sum_i w_i^q = 1`` the conditions are::

        sum_i w_i G_i b + tau D b - y - y z + y v + lam = 0,    e'b = 0,
        eta w_i^(q-1) - b'G_i b / 2 - s_i = 0,                  sum_i w_i^q = 1,
        a z = u v = mu,  w_i s_i = rho mu,                      mu -> 0.

    On the simplex (q = 1) 2 eta is the variable t of the quadratically constrained
    program of Lanckriet et al. (2002), whose multipliers are the weights. A step
    factors ``M = sum_i w_i G_i + tau D + diag(z/a + v/u)`` and solves a system of
    m + k + 1 unknowns for (w, lam, eta), twice (Mehrotra's predictor and corrector) or
    a few times more (Gondzio's corrections).
    Vectors live in host memory; arrays as large as a kernel stay with the bank.

    Parameters
    ----------
    problem : SaddleProblem
        The problem; a is measured in units of ``problem.unit()``.
    norm : float
        q.
    start : ndarray of shape (m,)
        The first weights, positive with ``sum_i w_i^q = 1``. A single weight stays one,
        so a path also leads to the machines of one given kernel.

    Attributes
    ----------
    n_factorizations : int
        Cholesky factorisations so far.
    """

    point: Point
    residuals: Residuals
    products: Array  # size G_i b, (m, n, k), where the bank lives
    _columns: list[FactoredColumn]
    _small: BorderedSystem  # of the same point

    def __init__(self, problem: SaddleProblem, norm: float, start: np.ndarray) -> None:
        self.problem, self.norm = problem, norm
        self.size = problem.unit()
        self.box = problem.bounds[:, None] / self.size  # (n, 1)
        self.ridge = problem.tau * self.size * problem.diagonal[:, None]  # (n, 1)
        self.signs = problem.signs
        self.used = problem.signs != 0
        self.boxed = self.used & np.isfinite(self.box)
        self.n_factorizations = 0
        n, k = problem.signs.shape
        # With few weights and many rows, equal products would settle the weights long
        # before the rows: then weights at the boundary keep steps short.
        self.emphasis = max(1.0, SHARE_OF_WEIGHTS * n * k / problem.n_weights)
        require_memory(
            8 * n * n * (k + 2),
            f"an interior point of {n} x {k} variables",
            "use fewer rows or classes",
            problem.bank.like,
        )
        self._work: Array | None = None
        self._start(np.array(start))

    def coef(self) -> np.ndarray:
        """A feasible ``b = a y``, (n, k), in the units of the problem."""
        beta = self.size * self.point.a * self.signs
        return balanced(beta, self.signs, self.problem.bounds)

    def step(self) -> None:
        """One predictor and corrector.

        Raises
        ------
        FactorizationError
            If no step is possible, or the step leaves the range of float64.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self._step()
        if not all(np.all(np.isfinite(part)) for part in self.point):
            raise FactorizationError("the path has left the range of float64")

    def _step(self) -> None:
        point = self.point
        self._columns = self._factor(self.products)
        self._small = self._small_system()
        predictor, mu = predict(self)
        step, allowed = self._centred(mu, predictor)
        length = min(1.0, PATH_REACH * allowed)
        self.point = point.moved(step, length)
        moved = self.problem.products(length * step.a * self.signs)
        self.products = self.products + self.size * moved
        self._columns = []  # frees the factors before the next are computed
        self._refresh()
        self._absorb(self.mu())

    def _centred(self, mu: float, predictor: Point) -> tuple[Point, float]:
        """The corrector, and how far it may go, by Gondzio's corrections (1996).

        A step that is a little longer than allowed would make some products negative
        and others too large; these outliers are aimed at the nearest good value. Each
        correction needs two solves with the existing factor.
        """
        point, step = self.point, self.solve(mu, predictor)
        allowed = point.longest(step)
        extra: list[np.ndarray] = [np.zeros(1) for _ in point.pairs]
        for _ in range(MOST_CORRECTIONS):
            if allowed >= 1.0 / PATH_REACH:
                break
            goal = min(1.0, AIMED_LENGTH[0] * allowed + AIMED_LENGTH[1])
            trial = point.moved(step, goal)
            aims = []
            goals = mu, mu, self.emphasis * mu
            for unit, before, (x, y) in zip(goals, extra, trial.pairs, strict=True):
                product = x * y
                near = np.clip(product, CENTRAL[0] * unit, CENTRAL[1] * unit)
                aims.append(before + np.maximum(near - product, -CENTRAL[1] * unit))
            found = self.solve(mu, predictor, extra=aims)
            reached = point.longest(found)
            if reached < allowed + WORTH_SOLVES * (goal - allowed):
                break
            step, allowed, extra = found, reached, aims
        return step, allowed

    def mu(self, step: Point | None = None) -> float:
        """The mean complementary product, here or after a step to the boundary."""
        point, n_pairs = self.point, np.sum(self.used) + np.sum(self.boxed)
        if step is not None:
            point = point.moved(step, min(1.0, point.longest(step)))
        return point.complementarity / float(n_pairs + self.emphasis * len(point.w))

    def solve(
        self,
        mu: float,
        before: Point | None = None,
        extra: list[np.ndarray] | None = None,
    ) -> Point:
        """The step to ``a z = u v = mu``, ``w s = rho mu``, from the factored ``M``s.

        The products of the step ``before`` correct the linearisation.
        """
        point, signs = self.point, self.signs
        goals = mu, mu, self.emphasis * mu
        gaps = [goal - x * y for goal, (x, y) in zip(goals, point.pairs, strict=True)]
        if before is not None:
            pairs = zip(gaps, before.pairs, strict=True)
            gaps = [gap - dx * dy for gap, (dx, dy) in pairs]
        if extra is not None:
            gaps = [gap + more for gap, more in zip(gaps, extra, strict=True)]
        gap_a = np.where(self.used, gaps[0], 0.0) / point.a
        gap_u = np.where(self.boxed, gaps[1], 0.0) / point.u
        right = -self.residuals.rows + signs * (gap_a - gap_u)
        weight_right = gaps[2] / point.w - self.residuals.weights
        halves = [part.forward(right[:, c]) for c, part in enumerate(self._columns)]
        w, lam, eta = self._solve_small(halves, weight_right)
        parts = zip(self._columns, halves, lam, strict=True)
        beta = [part.backward(half, np.append(w, of_c)) for part, half, of_c in parts]
        a = np.column_stack(beta) * signs
        z = gap_a - point.z / point.a * a
        u = np.where(self.boxed, -a, 0.0)
        v = gap_u - point.v / point.u * u
        s = (gaps[2] - point.s * w) / point.w
        return Point(a, z, u, v, w, s, lam, eta)

    def _small_system(self) -> BorderedSystem:
        """The system of steps in (w, lam, eta), those in b having been eliminated."""
        point, m, k = self.point, len(self.point.w), len(self._columns)
        matrix = np.zeros((m + k, m + k))
        for c, column in enumerate(self._columns):
            index = np.append(np.arange(m), m + c)
            matrix[np.ix_(index, index)] += column.gram
        unit = 1.0 / np.sqrt(np.diagonal(matrix)[m:])
        powers = point.w ** (self.norm - 1.0)
        bend = (self.norm - 1.0) * point.eta * powers / point.w
        matrix[np.diag_indices(m)] += bend
        equal = np.append(powers, np.zeros(k))[None, :]
        v, z = np.append(point.w, unit), np.append(point.s, np.zeros(k))
        return BorderedSystem(matrix, v, z, equal)

    def _solve_small(
        self, halves: list[Array], weight_right: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps in (w, lam, eta)."""
        m, k = len(self.point.w), len(self._columns)
        right = np.zeros(m + k)
        for c, (column, half) in enumerate(zip(self._columns, halves, strict=True)):
            found = column.against(half)
            right[:m] += found[:m]
            right[m + c] += found[m]
        right += np.append(weight_right, self.residuals.balance)
        steps, eta = self._small.solve(right, -self.residuals.norm)
        return steps[:m], steps[m:], eta

    def bounds(self, weights: np.ndarray) -> tuple[float, float]:
        """An upper bound at allowed weights (m,), and a lower bound on the optimum.

        They follow from the current point without a pass over the kernels. The first is
        infinite until a hard margin is reached.
        """
        problem, beta = self.problem, self.size * self.point.a * self.signs
        upper = problem.upper(weights, beta, self.products)
        scores = self.size * self.scores
        terms = problem.terms(beta, scores, upper)
        penalty = float(np.abs(self.point.lam) @ np.abs(self.residuals.balance))
        largest = _largest_sum(scores, self.norm)
        lower = terms.lower_bound(largest) - 2.0 * self.size * penalty
        return upper, lower

    def run(self, gap: float, max_steps: int) -> tuple[float, float]:
        """Follow the path of one kernel until the relative gap is at most ``gap``.

        It also stops when rounding keeps the gap from shrinking. Returns the bounds of
        :meth:`bounds` there.
        """
        best, idle, steps = np.inf, 0, 0
        while True:
            upper, lower = self.bounds(np.ones(1))
            if np.isinf(upper):
                require_separable(lower, self.size)
            # Bounds of the best multiple of a may be close before a itself is good.
            apart = max(upper - lower, 2.0 * self.size * self.point.complementarity)
            now = apart / abs(upper) if np.isfinite(upper) else np.inf
            idle = 0 if now < 0.5 * best else idle + 1
            best = min(best, now)
            # The start may be good although the way from it to the path is not.
            near = best < NEAR_END and now <= AROUND * best
            stuck = near and idle >= IDLE
            if now <= gap or stuck or steps == max_steps:
                return upper, lower
            self.step()
            steps += 1

    def curvature(self, products: Array) -> np.ndarray:
        """The Hessian of the value in the weights of ``products`` (m, n, k), (m, m).

        ``2 b'G_i R G_j b`` with ``R = M^-1 - M^-1 e e' M^-1 / e'M^-1 e``: near the end
        of the path ``diag(z/a + v/u)`` is infinite on the rows at a bound and zero on
        the others.
        """
        total = np.zeros((products.shape[0],) * 2)
        for column in self._factor(products):
            total += without_intercept(column.gram)
        return 2.0 * self.size * total

    def _start(self, weights: np.ndarray) -> None:
        """Equal a / r within each class, optimally scaled; z, v from the gradient."""
        signs, used, counts = self.signs, self.used, self.problem.counts
        positives = (counts @ (signs > 0)) / (counts @ used)
        a = 2.0 * np.where(signs > 0, 1.0 - positives, positives)
        a = a * (counts / np.mean(counts))[:, None]
        beta = a * signs
        self.products = self.size * self.problem.products(beta)
        scores = self.problem.scores(beta, self.products)
        curvature = _largest_sum(scores, self.norm)
        curvature += float(np.sum(self.ridge * beta**2))
        factor = float(np.sum(a[used])) / curvature if curvature > 0 else 1.0
        factor = min(factor, 0.5 * float(np.min((self.box / a)[used])))
        self.products = self.products * factor
        a, scores = np.where(used, factor * a, 1.0), factor**2 * scores
        f = to_numpy(tensor_sum(weights, self.products)) + self.ridge * a * signs
        lam = best_intercepts(f, signs, "l1", counts)
        gradient = signs * (f + lam) - 1.0
        floor = max(LEAST_MULTIPLIER, 0.5 * float(np.mean(np.abs(gradient[used]))))
        z = np.where(used, np.maximum(gradient, 0.0) + floor, 0.0)
        u = np.where(self.boxed, self.box - a, 1.0)
        nearness = np.minimum(1.0, a / u)  # a distant box must not dominate the start
        v = np.where(self.boxed, nearness * (np.maximum(-gradient, 0.0) + floor), 0.0)
        powers = weights ** (self.norm - 1.0)
        eta = np.array([START_ETA * np.max(scores / powers) + LEAST_ETA])
        s = eta * powers - 0.5 * scores
        self.point = Point(a, z, u, v, weights, s, lam, eta)
        self._refresh()

    def _refresh(self) -> None:
        """Update the residuals of the conditions other than complementarity."""
        point, signs = self.point, self.signs
        beta = point.a * signs
        self.scores = self.problem.scores(beta, self.products)
        f = to_numpy(tensor_sum(point.w, self.products))
        rows = f + self.ridge * beta + point.lam - signs * (1.0 + point.z - point.v)
        slope = point.eta * point.w ** (self.norm - 1.0)
        weights = slope - 0.5 * self.scores - point.s
        norm = np.array([np.sum(point.w**self.norm) - 1.0]) / self.norm
        self.residuals = Residuals(
            np.where(self.used, rows, 0.0), np.sum(beta, axis=0), weights, norm
        )

    def _absorb(self, most: float) -> None:
        """Let z and v absorb residuals, adding at most ``most`` to each product.

        A step that ends at a bound leaves a multiplier far too small for the residual
        there, which would make the next steps short.
        """
        point, signs = self.point, self.signs
        residual = self.residuals.rows * signs
        more_z = np.where(self.used, np.minimum(residual, most / point.a), 0.0)
        more_v = np.where(self.boxed, np.minimum(-residual, most / point.u), 0.0)
        more_z, more_v = np.maximum(more_z, 0.0), np.maximum(more_v, 0.0)
        self.point = point._replace(z=point.z + more_z, v=point.v + more_v)
        rows = self.residuals.rows - signs * (more_z - more_v)
        self.residuals = replace(self.residuals, rows=rows)

    def _factor(self, constraints: Array) -> list[FactoredColumn]:
        """Factors of M, one per column, for constraints ``G_i b`` (m, n, k)."""
        point = self.point
        tau, w = self.problem.split(point.w)
        kernel = combine_in_double(self.problem.bank, self.size * w, self._work)
        self._work = kernel
        ridge = self.size * tau * self.problem.diagonal[:, None]
        with np.errstate(over="ignore", divide="ignore"):
            diagonal = ridge + point.z / point.a + point.v / point.u
        if not np.all(np.isfinite(diagonal)):
            raise FactorizationError("the path has reached the boundary of its region")
        diagonal = np.where(self.used, diagonal, 1.0)
        self.n_factorizations += diagonal.shape[1]
        return [
            FactoredColumn(kernel, of_c, self.used[:, c], constraints[:, :, c])
            for c, of_c in enumerate(diagonal.T)
        ]


def require_separable(lower: float, size: float) -> None:
    """Give up if a bound on the squared inverse of a hard margin is too large.

    ``size`` is that of :meth:`SaddleProblem.unit`.
    """
    if lower > SEPARABLE * size:
        raise InfeasibleError(
            "no sum of the kernels separates the two classes "
            f"(a margin would be below {SEPARABLE**-0.5:.0e} of the kernels' "
            "scale); use a soft margin"
        )


def _largest_sum(scores: np.ndarray, q: float) -> float:
    """The largest ``<scores, w>`` with ``w >= 0``, ``sum_i w_i^q = 1``; scores (m,).

    Twice eta at the optimum, and the curvature that balances the linear term in a: from
    a start much larger than that, the first step would make eta negative.
    """
    largest = float(np.max(scores))
    if q == 1 or not largest > 0.0:
        return largest
    positive = np.maximum(scores, 0.0)  # rounding may leave large negative ones
    return largest * float(np.linalg.norm(positive / largest, q / (q - 1.0)))


#: Share of the products of rows and multipliers that those of the weights should have.
SHARE_OF_WEIGHTS = 0.1
#: Corrections of a step; the length they aim for, as a multiple of what is allowed and
#: what is added to it; the products they leave alone, as multiples of mu; and the share
#: of the length aimed for that makes another correction worth its solves.
MOST_CORRECTIONS, AIMED_LENGTH, CENTRAL, WORTH_SOLVES = 3, (1.5, 0.1), (0.1, 10.0), 0.1
#: Multiples of the diagonal plus one, added to it until M is positive definite.
JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)


class Point(NamedTuple):
    """Variables, or a step in them.

    Unlabelled rows and absent boxes keep a = u = 1 and z = v = 0.
    """

    a: np.ndarray  # (n, k), as z, u and v
    z: np.ndarray
    u: np.ndarray
    v: np.ndarray
    w: np.ndarray  # (m,), as s
    s: np.ndarray
    lam: np.ndarray  # (k,)
    eta: np.ndarray  # (1,)

    @property
    def pairs(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Complementary variables, whose products tend to zero."""
        return (self.a, self.z), (self.u, self.v), (self.w, self.s)

    @property
    def complementarity(self) -> float:
        """The sum of all products."""
        return sum(float(np.sum(x * y)) for x, y in self.pairs)

    def longest(self, step: Point) -> float:
        """The largest t for which ``self + t step`` stays positive."""
        both = (np.concatenate([x.ravel() for x in each[:6]]) for each in (self, step))
        return largest_step(*both)

    def moved(self, step: Point, length: float) -> Point:
        """``self + length step``."""
        return Point(*(x + length * d for x, d in zip(self, step, strict=True)))


@dataclass(frozen=True)
class Residuals:
    """Residuals of the conditions other than complementarity.

    Attributes
    ----------
    rows : ndarray of shape (n, k)
        ``sum_i w_i G_i b + tau D b - y - y z + y v + lam``, zero in unlabelled rows.
    balance : ndarray of shape (k,)
        ``e'b``.
    weights : ndarray of shape (m,)
        ``eta w_i^(q-1) - b'G_i b / 2 - s_i``.
    norm : ndarray of shape (1,)
        ``(sum_i w_i^q - 1) / q``.
    """

    rows: np.ndarray
    balance: np.ndarray
    weights: np.ndarray
    norm: np.ndarray


class FactoredColumn:
    """A factored ``M`` and the constraints ``[G_1 b, ..., G_m b, e]`` of one column."""

    def __init__(
        self, kernel: Array, diagonal: np.ndarray, used: np.ndarray, constraints: Array
    ) -> None:
        self.like = kernel
        ones = from_numpy(used[:, None].astype(np.float64), kernel)
        block = namespace(kernel).concat([constraints.T * ones, ones], axis=1)
        if not np.all(used):
            kernel = kernel * ones * ones.T
        moved = from_numpy(diagonal, kernel)
        self.factor, _ = robust_cholesky(kernel, JITTERS, moved + 1.0, moved)
        self.half = solve_triangular(self.factor, block)
        self.gram = to_numpy(self.half.T @ self.half)

    def forward(self, right: np.ndarray) -> Array:
        """``L^-1 right``, (n, 1)."""
        return solve_triangular(self.factor, from_numpy(right[:, None], self.like))

    def against(self, half: Array) -> np.ndarray:
        """``[G_i b, e]' M^-1 right``, (m + 1,)."""
        return to_numpy(self.half.T @ half)[:, 0]

    def backward(self, half: Array, multipliers: np.ndarray) -> np.ndarray:
        """``M^-1 (right - [G_i b, e] multipliers)``, (n,)."""
        rest = half - self.half @ from_numpy(multipliers[:, None], self.like)
        return to_numpy(solve_triangular(self.factor, rest, transpose=True))[:, 0]

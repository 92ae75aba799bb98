"""A primal-dual interior point for margins and kernel weights together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelweave._array import (
    Array,
    FactorizationError,
    from_numpy,
    inner_products,
    tensor_sum,
    to_numpy,
)
from kernelweave._memory import require_memory
from kernelweave.inner.margin_bounds import balanced, best_intercept
from kernelweave.inner.saddle import SaddleProblem
from kernelweave.inner.saddle_parts import FactoredColumn, Point, largest_sum
from kernelweave.protocols import InfeasibleError

__all__ = ["SEPARABLE", "SaddlePath"]

#: Fraction of the way to the boundary that a step may go.
TO_BOUNDARY = 0.99
#: A corrected step shorter than this is compared with one corrected less.
SHORT = 0.1
#: So many short steps in a row, and the residual goes where it can at any price.
MOST_SHORT = 8
#: Multiple of mu that a multiplier may add to its product to remove a residual.
ABSORB = 1.0
#: Residuals worth more than this multiple of the complementarity get a second look.
BETA = 1.0
#: A hard margin whose squared inverse exceeds this, for kernels of mean diagonal one,
#: cannot be told from no margin in float64.
SEPARABLE = 1e13


Support = Callable[[np.ndarray], float]
Curvature = tuple[np.ndarray, np.ndarray]


class SaddlePath:
    """A primal-dual path to the saddle point, one factorisation a step and column.

    In signed variables ``b = a y`` and with multipliers z of ``a >= 0``, v of
    ``u = C - a >= 0``, s of ``w >= 0``, lam of ``e'b = 0`` and eta of
    ``sum_i w_i^q = 1`` the conditions are::

        sum_i w_i G_i b + tau b - y - y z + y v + lam = 0,      e'b = 0,
        eta w_i^(q-1) - b'G_i b / 2 - s_i = 0,                  sum_i w_i^q = 1,
        a z = u v = w_i s_i = mu,                               mu -> 0.

    On the simplex (q = 1) 2 eta is the variable t of the quadratically constrained
    program of Lanckriet et al. (2002), whose multipliers are the weights. A step
    factors ``M = sum_i w_i G_i + tau I + diag(z/a + v/u)`` and solves a system of
    m + k + 1 unknowns for (w, lam, eta), twice (Mehrotra's predictor and corrector).
    Vectors live in host memory; what has the size of the kernels stays with the bank.

    Parameters
    ----------
    problem : SaddleProblem
        The problem; a is measured in units of ``problem.unit()``.
    norm : float, optional
        q. Without it the weights are fixed.
    start : ndarray of shape (m,), optional
        The first weights, positive with ``sum_i w_i^q = 1``; by default all ones.

    Attributes
    ----------
    n_factorizations : int
        Cholesky factorisations so far.
    """

    point: Point
    products: Array  # size G_i b, (m, n, k), where the bank lives

    def __init__(
        self,
        problem: SaddleProblem,
        norm: float | None = None,
        start: np.ndarray | None = None,
    ) -> None:
        self.problem, self.norm = problem, norm
        self.size = problem.unit()
        self.bound, self.tau = problem.bound / self.size, problem.tau * self.size
        self.signs = problem.signs
        self.used = problem.signs != 0
        self.boxed = self.used & np.isfinite(self.bound)
        weights = np.ones(problem.n_weights) if start is None else np.array(start)
        self.n_pairs = int(np.sum(self.used)) + int(np.sum(self.boxed))
        self.n_pairs += 0 if norm is None else len(weights)
        self.n_factorizations = self._n_short = 0
        n, k = problem.signs.shape
        require_memory(
            8 * n * n * (k + 2),
            f"an interior point for {n} rows and {k} column(s)",
            "use fewer rows or classes",
            problem.bank.like,
        )
        self._work: Array | None = None
        self._start(weights)

    @property
    def weights(self) -> np.ndarray:
        """The weights now, (m,); positive, but on their set only in the limit."""
        return self.fixed if self.norm is None else self.point.w

    def coef(self) -> np.ndarray:
        """A feasible ``b = a y``, (n, k), in the units of the problem."""
        beta = self.size * self.point.a * self.signs
        return balanced(beta, self.signs, self.problem.bound)

    def step(self) -> None:
        """One predictor and corrector."""
        point, mu = self.point, self.point.complementarity() / self.n_pairs
        columns = self._factor()
        affine = self._direction(columns, 0.0)
        length = min(1.0, point.longest(affine))
        after = point.complementarity(affine, length) / self.n_pairs
        center = mu * min(max(after / mu, 0.0), 1.0) ** 3 if mu > 0 else 0.0
        curved = None
        if self._infeasibility() > BETA * mu * self.n_pairs:
            curved = self._bent(affine, length)
        step = self._direction(columns, center, affine, 1.0, curved)
        allowed = point.longest(step)
        if allowed < SHORT:
            careful = self._direction(columns, center, affine, length**2, curved)
            if point.longest(careful) > allowed:
                step, allowed = careful, point.longest(careful)
        length = min(1.0, TO_BOUNDARY * allowed)
        point.move(step, length)
        moved = self.problem.products(length * step.a * self.signs)
        self.products = self.products + self.size * moved
        self._refresh()
        self._n_short = self._n_short + 1 if length < SHORT else 0
        stuck = self._n_short > MOST_SHORT
        self._n_short = 0 if stuck else self._n_short
        self._absorb(np.inf if stuck else ABSORB)

    def _bent(self, affine: Point, length: float) -> Curvature | None:
        """What the products of w and b add to the conditions after an affine step."""
        if self.norm is None:
            return None
        beta = length * affine.a * self.signs
        moved = self.size * self.problem.products(beta)
        change = to_numpy(tensor_sum(length * affine.w, moved))
        scores = to_numpy(inner_products(moved, from_numpy(beta, moved)))
        return np.where(self.used, change, 0.0), 0.5 * scores

    def bounds(self, weights: np.ndarray, support: Support) -> tuple[float, float]:
        """Bounds on the value at allowed weights (m,), and on the best allowed one.

        They belong to the present point and cost no pass over the kernels. The first is
        infinite while a hard margin is not reached.
        """
        problem, beta = self.problem, self.size * self.point.a * self.signs
        f, tau = to_numpy(tensor_sum(weights, self.products)), problem.tau
        if problem.identity:
            f, tau = f - float(weights[0]) * beta, float(weights[0])
        upper = problem.upper(f, beta, tau)
        scores = self.size * self.scores
        terms = problem.terms(beta, scores, upper)
        penalty = (
            2.0 * self.size * float(np.abs(self.point.lam) @ np.abs(self.imbalance))
        )
        return upper, terms.lower_bound(support(scores)) - penalty

    def run(self, gap: float, max_steps: int) -> None:
        """Follow the path at fixed weights until the relative gap is at most ``gap``.

        It also ends when rounding keeps the gap from falling.
        """
        best, idle = np.inf, 0
        for _ in range(max_steps):
            upper, lower = self.bounds(self.fixed, lambda scores: float(scores[0]))
            self.require_separable(upper, lower)
            now = (upper - lower) / abs(upper) if np.isfinite(upper) else np.inf
            idle = 0 if now < 0.5 * best else idle + 1
            best = min(best, now)
            if best <= gap or (best < 1e-6 and idle >= 3):
                return
            self.step()

    def require_separable(self, upper: float, lower: float) -> None:
        """Give up where no function of the kernels can have a hard margin.

        Raises
        ------
        InfeasibleError
            If the lower bound says that the margin is zero up to rounding.
        """
        if np.isinf(upper) and lower > SEPARABLE * self.size:
            raise InfeasibleError(
                "no sum of the kernels separates the two classes "
                f"(a margin would be below {SEPARABLE**-0.5:.0e} of the kernels' "
                "scale); use a soft margin"
            )

    def curvature(self, products: Array) -> np.ndarray:
        """The Hessian of the value in the weights of ``products`` (m, n, k), (m, m).

        ``2 b'G_i R G_j b`` with ``R = M^-1 - M^-1 e e' M^-1 / e'M^-1 e``: near the end
        of the path ``diag(z/a + v/u)`` is infinite on the rows at a bound and zero on
        the others.
        """
        total = np.zeros((products.shape[0],) * 2)
        for c, column in enumerate(self._factor()):
            block = column.forward_stack(products[:, :, c])
            gram = to_numpy(block.T @ block)
            cross = to_numpy(block.T @ column.half)[:, -1]
            total += gram - np.outer(cross, cross) / column.gram[-1, -1]
        return 2.0 * self.size * total

    def _start(self, weights: np.ndarray) -> None:
        """Equal a in each class, as large as is best; z and v from the gradient."""
        signs, used = self.signs, self.used
        positives = np.sum(signs > 0, axis=0) / np.sum(used, axis=0)
        a = 2.0 * np.where(signs > 0, 1.0 - positives, positives)
        beta = a * signs
        self.products = self.size * self.problem.products(beta)
        scores = self._scores(beta)
        curvature = largest_sum(scores, self.norm or 1.0)
        curvature += self.tau * float(np.sum(beta**2))
        factor = float(np.sum(a[used])) / curvature if curvature > 0 else 1.0
        factor = min(factor, 0.5 * self.bound / float(np.max(a[used])))
        self.products = self.products * factor
        a, scores = np.where(used, factor * a, 1.0), factor**2 * scores
        f = to_numpy(tensor_sum(weights, self.products)) + self.tau * a * signs
        lam = np.array(
            [
                best_intercept(f[rows, c], y, "l1")
                for c, (rows, y) in enumerate(
                    map(self.problem.column, range(f.shape[1]))
                )
            ]
        )
        gradient = signs * (f + lam) - 1.0
        floor = max(0.1, 0.5 * float(np.mean(np.abs(gradient[used]))))
        z = np.where(used, np.maximum(gradient, 0.0) + floor, 0.0)
        u = np.where(self.boxed, self.bound - a, 1.0)
        nearness = np.minimum(1.0, a / u)  # a box far away must not rule the start
        v = np.where(self.boxed, nearness * (np.maximum(-gradient, 0.0) + floor), 0.0)
        w, s, eta = np.empty(0), np.empty(0), 0.0
        self.fixed = weights
        if self.norm is not None:
            powers = weights ** (self.norm - 1.0)
            eta = 0.55 * float(np.max(scores / powers)) + 1e-3
            w, s = weights.copy(), eta * powers - 0.5 * scores
        self.point = Point(a, z, u, v, w, s, lam, eta)
        self._refresh()

    def _scores(self, beta: np.ndarray) -> np.ndarray:
        """``b'G_i b`` in the path's units, (m,)."""
        return to_numpy(inner_products(self.products, from_numpy(beta, self.products)))

    def _refresh(self) -> None:
        """Residuals of the conditions that are not products."""
        point, signs = self.point, self.signs
        beta = point.a * signs
        self.scores = self._scores(beta)
        self.f = to_numpy(tensor_sum(self.weights, self.products))
        residual = self.f + self.tau * beta + point.lam
        self.residual = np.where(
            self.used, residual - signs * (1.0 + point.z - point.v), 0.0
        )
        self.imbalance = np.sum(beta, axis=0)
        if self.norm is not None:
            slope = point.eta * point.w ** (self.norm - 1.0)
            self.weight_residual = slope - 0.5 * self.scores - point.s
            self.norm_residual = (np.sum(point.w**self.norm) - 1.0) / self.norm

    def _infeasibility(self) -> float:
        """What the residuals are worth in units of the complementarity."""
        total = float(np.sum(np.abs(self.residual) * self.point.a))
        if self.norm is not None:
            total += float(np.abs(self.weight_residual) @ self.point.w)
        return total

    def _absorb(self, most: float) -> None:
        """Let z and v take over what remains of the residual where that is cheap.

        A step that ends at a bound leaves a multiplier far too small for the residual
        there; the next steps would be short for its sake. Cheap is what adds at most
        ``most`` times mu to a product.
        """
        point, signs = self.point, self.signs
        mu = point.complementarity() / self.n_pairs
        residual = self.residual * signs
        more_z = np.where(self.used, np.minimum(residual, most * mu / point.a), 0.0)
        more_v = np.where(self.boxed, np.minimum(-residual, most * mu / point.u), 0.0)
        more_z, more_v = np.maximum(more_z, 0.0), np.maximum(more_v, 0.0)
        point.z += more_z
        point.v += more_v
        self.residual = self.residual - signs * (more_z - more_v)

    def _factor(self) -> list[FactoredColumn]:
        """Factors of M, one a column."""
        point = self.point
        weights = self.size * self.weights
        kernel = self._work = self.problem.combine(weights, out=self._work)
        ridge = self.tau
        if self.problem.identity:
            ridge += self.size * float(self.weights[0])
        diagonal = np.where(
            self.used, ridge + point.z / point.a + point.v / point.u, 1.0
        )
        columns = []
        for c in range(diagonal.shape[1]):
            mask = None if self.problem.all_labelled else self.used[:, c]
            constraints = self.products[:, :, c] if self.norm is not None else None
            columns.append(FactoredColumn(kernel, diagonal[:, c], mask, constraints))
            self.n_factorizations += 1
        return columns

    def _direction(
        self,
        columns: list[FactoredColumn],
        center: float,
        affine: Point | None = None,
        trust: float = 1.0,
        curved: Curvature | None = None,
    ) -> Point:
        """The step to ``a z = u v = w s = center``, linearised.

        ``trust`` times the products of the affine step correct the linearisation: where
        that step was short they say little.
        """
        point, signs = self.point, self.signs
        gaps = []
        for index, (x, y) in enumerate(point.pairs):
            change = center - x * y
            if affine is not None:
                dx, dy = affine.pairs[index]
                change = change - trust * dx * dy
            gaps.append(change)
        gap_a = np.where(self.used, gaps[0], 0.0) / point.a
        gap_u = np.where(self.boxed, gaps[1], 0.0) / point.u
        right = -self.residual + signs * (gap_a - gap_u)
        weight_right = gaps[2] / point.w
        if self.norm is not None:
            weight_right = weight_right - self.weight_residual
        if curved is not None:
            right, weight_right = right - curved[0], weight_right + curved[1]
        halves = [column.forward(right[:, c]) for c, column in enumerate(columns)]
        w, lam, eta = self._solve_small(columns, halves, weight_right)
        beta = np.stack(
            [
                column.backward(halves[c], np.append(w, lam[c]))
                for c, column in enumerate(columns)
            ],
            axis=1,
        )
        a = beta * signs
        z = gap_a - point.z / point.a * a
        u = np.where(self.boxed, -a, 0.0)
        v = gap_u - point.v / point.u * u
        s = (gaps[2] - point.s * w) / point.w
        return Point(a, z, u, v, w, s, lam, eta)

    def _solve_small(
        self,
        columns: list[FactoredColumn],
        halves: list[Array],
        weight_right: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Steps in (w, lam, eta) once those in b are eliminated."""
        point, k = self.point, len(columns)
        m = len(point.w)
        size = m + k + (self.norm is not None)
        matrix, right = np.zeros((size, size)), np.zeros(size)
        for c, column in enumerate(columns):
            index = np.append(np.arange(m), m + c)
            matrix[np.ix_(index, index)] += column.gram
            right[index] += column.against(halves[c])
            right[m + c] += self.imbalance[c]
        scaling = np.ones(size)
        if self.norm is not None:
            q, w = self.norm, point.w
            powers = w ** (q - 1.0)
            diagonal = np.arange(m)
            matrix[diagonal, diagonal] += (
                q - 1.0
            ) * point.eta * powers / w + point.s / w
            matrix[:m, -1] = matrix[-1, :m] = powers
            right[:m] += weight_right
            right[-1] = -self.norm_residual
            scaling[:m] = w
        scaling[m : m + k] = 1.0 / np.sqrt(np.diagonal(matrix)[m : m + k])
        matrix *= scaling[:, None] * scaling[None, :]
        try:
            x = np.linalg.solve(matrix, right * scaling) * scaling
        except np.linalg.LinAlgError as error:
            raise FactorizationError("the system for a step is singular") from error
        return x[:m], x[m : m + k], float(x[-1]) if self.norm is not None else 0.0

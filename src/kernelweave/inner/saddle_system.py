"""One step towards the saddle point: variables and linearised conditions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave._array import (
    Array,
    FactorizationError,
    from_numpy,
    namespace,
    robust_cholesky,
    solve_triangular,
    to_numpy,
)
from kernelweave.inner.interior_point import largest_step

__all__ = ["FactoredColumn", "Point", "Residuals", "SaddleSystem"]

#: Multiples of the diagonal plus one, added to it until M is positive definite.
JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)


@dataclass
class Point:
    """Variables, or a step in them, of shapes (n, k), (m,) and (k,).

    Unlabelled rows and absent boxes keep a = u = 1 and z = v = 0.
    """

    a: np.ndarray
    z: np.ndarray
    u: np.ndarray
    v: np.ndarray
    w: np.ndarray
    s: np.ndarray
    lam: np.ndarray
    eta: float

    @property
    def pairs(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Complementary variables, whose products tend to zero."""
        return (self.a, self.z), (self.u, self.v), (self.w, self.s)

    def complementarity(self, step: Point | None = None, length: float = 0.0) -> float:
        """The sum of all products, after a step if one is given."""
        if step is None:
            return sum(float(np.sum(x * y)) for x, y in self.pairs)
        return sum(
            float(np.sum((x + length * dx) * (y + length * dy)))
            for (x, y), (dx, dy) in zip(self.pairs, step.pairs, strict=True)
        )

    def longest(self, step: Point) -> float:
        """The largest t for which ``self + t step`` stays positive."""
        return min(
            largest_step(x, dx)
            for pair, steps in zip(self.pairs, step.pairs, strict=True)
            for x, dx in zip(pair, steps, strict=True)
        )

    def move(self, step: Point, length: float) -> None:
        """``self += length step``."""
        for name in ("a", "z", "u", "v", "w", "s", "lam"):
            getattr(self, name).__iadd__(length * getattr(step, name))
        self.eta += length * step.eta


@dataclass(frozen=True)
class Residuals:
    """Residuals of the conditions other than complementarity.

    Attributes
    ----------
    rows : ndarray of shape (n, k)
        ``sum_i w_i G_i b + tau b - y - y z + y v + lam``, zero in unlabelled rows.
    balance : ndarray of shape (k,)
        ``e'b``.
    weights : ndarray of shape (m,), or (0,) if the weights are fixed
        ``eta w_i^(q-1) - b'G_i b / 2 - s_i``.
    norm : float
        ``(sum_i w_i^q - 1) / q``.
    """

    rows: np.ndarray
    balance: np.ndarray
    weights: np.ndarray
    norm: float


class FactoredColumn:
    """A factored ``M`` and the constraints ``[G_1 b, ..., G_m b, e]`` of one column."""

    def __init__(
        self,
        kernel: Array,
        diagonal: np.ndarray,
        mask: np.ndarray | None,
        constraints: Array | None,
    ) -> None:
        self.like, n = kernel, len(diagonal)
        xp = namespace(kernel)
        ones = np.ones((n, 1)) if mask is None else mask[:, None].astype(np.float64)
        block = used = self.used = from_numpy(ones, kernel)
        if constraints is not None:
            block = xp.concat([constraints.T * used, used], axis=1)
        if mask is not None:
            kernel = kernel * used * used.T
        moved = from_numpy(diagonal, kernel)
        self.factor, _ = robust_cholesky(kernel, JITTERS, moved + 1.0, moved)
        self.half = solve_triangular(self.factor, block)
        self.gram = to_numpy(self.half.T @ self.half)

    def forward_stack(self, products: Array) -> Array:
        """``L^-1 [G_1 b, ..., G_m b]`` for products (m, n), as (n, m)."""
        return solve_triangular(self.factor, products.T * self.used)

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


class SaddleSystem:
    """The conditions of :class:`~kernelweave.inner.saddle.SaddlePath`, linearised.

    The steps in b are eliminated with one factored ``M`` per column; what remains is a
    system of m + k + 1 unknowns for (w, lam, eta).

    Parameters
    ----------
    point : Point
        The point of linearisation.
    residuals : Residuals
        The residuals there.
    columns : list of FactoredColumn
        One per column of the signs.
    signs : ndarray of shape (n, k)
        +1 or -1; 0 marks rows that do not take part in a column.
    boxed : ndarray of bool of shape (n, k)
        Where a has an upper bound.
    norm : float or None
        q, or None if the weights are fixed.
    """

    def __init__(
        self,
        point: Point,
        residuals: Residuals,
        columns: list[FactoredColumn],
        signs: np.ndarray,
        boxed: np.ndarray,
        norm: float | None,
    ) -> None:
        self.point, self.residuals, self.columns = point, residuals, columns
        self.signs, self.used, self.boxed, self.norm = signs, signs != 0, boxed, norm
        self.n_pairs = np.sum(self.used) + np.sum(boxed) + len(point.w)
        #: Second-order terms of the products of w and b after a predictor step, in the
        #: conditions on the rows (n, k) and on the weights (m,).
        self.second_order: tuple[np.ndarray, np.ndarray] | None = None

    def mu(self, step: Point | None = None) -> float:
        """The mean complementary product, here or after a step to the boundary."""
        if step is None:
            return self.point.complementarity() / self.n_pairs
        length = min(1.0, self.point.longest(step))
        return self.point.complementarity(step, length) / self.n_pairs

    def solve(
        self, mu: float, before: Point | None = None, trust: float = 1.0
    ) -> Point:
        """The step to ``a z = u v = w s = mu``.

        The products of the step ``before``, times ``trust``, correct the linearisation;
        after a short step they carry little information.
        """
        point, signs = self.point, self.signs
        gaps = []
        for index, (x, y) in enumerate(point.pairs):
            change = mu - x * y
            if before is not None:
                dx, dy = before.pairs[index]
                change = change - trust * dx * dy
            gaps.append(change)
        gap_a = np.where(self.used, gaps[0], 0.0) / point.a
        gap_u = np.where(self.boxed, gaps[1], 0.0) / point.u
        right = -self.residuals.rows + signs * (gap_a - gap_u)
        weight_right = gaps[2] / point.w - self.residuals.weights
        if before is not None and self.second_order is not None:
            right = right - self.second_order[0]
            weight_right = weight_right + self.second_order[1]
        halves = [part.forward(right[:, c]) for c, part in enumerate(self.columns)]
        w, lam, eta = self._solve_small(halves, weight_right)
        beta = np.stack(
            [
                column.backward(halves[c], np.append(w, lam[c]))
                for c, column in enumerate(self.columns)
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
        self, halves: list[Array], weight_right: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Steps in (w, lam, eta), those in b having been eliminated."""
        point, k = self.point, len(self.columns)
        m = len(point.w)
        size = m + k + (self.norm is not None)
        matrix, right = np.zeros((size, size)), np.zeros(size)
        for c, column in enumerate(self.columns):
            index = np.append(np.arange(m), m + c)
            matrix[np.ix_(index, index)] += column.gram
            right[index] += column.against(halves[c])
            right[m + c] += self.residuals.balance[c]
        scaling = np.ones(size)
        if self.norm is not None:
            q, w = self.norm, point.w
            powers = w ** (q - 1.0)
            diagonal = np.arange(m)
            bend = (q - 1.0) * point.eta * powers / w
            matrix[diagonal, diagonal] += bend + point.s / w
            matrix[:m, -1] = matrix[-1, :m] = powers
            right[:m] += weight_right
            right[-1] = -self.residuals.norm
            scaling[:m] = w
        scaling[m : m + k] = 1.0 / np.sqrt(np.diagonal(matrix)[m : m + k])
        matrix *= scaling[:, None] * scaling[None, :]
        try:
            x = np.linalg.solve(matrix, right * scaling) * scaling
        except np.linalg.LinAlgError as error:
            raise FactorizationError("the system for a step is singular") from error
        return x[:m], x[m : m + k], float(x[-1]) if self.norm is not None else 0.0

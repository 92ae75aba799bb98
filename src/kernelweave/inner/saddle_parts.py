"""Points of the margin saddle and the factored systems of one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave._array import (
    Array,
    FactorizationError,
    add_to_diagonal,
    cholesky,
    from_numpy,
    namespace,
    solve_triangular,
    to_numpy,
)

__all__ = ["FactoredColumn", "Point", "largest_sum"]

#: Added to a diagonal that is not positive definite in float64, relative to it.
JITTER = 1e-14
MAX_JITTER = 1e-6


@dataclass
class Point:
    """Variables, or a step in them; the shapes are (n, k), (m,) and (k,).

    Rows without a label and absent boxes keep a = u = 1 and z = v = 0.
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
        """Variables whose products tend to zero."""
        return (self.a, self.z), (self.u, self.v), (self.w, self.s)

    def complementarity(self, step: Point | None = None, length: float = 0.0) -> float:
        """The sum of all products, after a step if there is one."""
        if step is None:
            return sum(float(np.sum(x * y)) for x, y in self.pairs)
        return sum(
            float(np.sum((x + length * dx) * (y + length * dy)))
            for (x, y), (dx, dy) in zip(self.pairs, step.pairs, strict=True)
        )

    def longest(self, step: Point) -> float:
        """The largest t for which ``self + t step`` stays positive."""
        worst = 0.0
        for pair, steps in zip(self.pairs, step.pairs, strict=True):
            for x, dx in zip(pair, steps, strict=True):
                if x.size:  # where x is zero its step is zero as well
                    worst = max(worst, float(np.max(-dx / np.where(x > 0, x, 1.0))))
        return 1.0 / worst if worst > 0 else np.inf

    def move(self, step: Point, length: float) -> None:
        """``self += length step``."""
        for name in ("a", "z", "u", "v", "w", "s", "lam"):
            getattr(self, name).__iadd__(length * getattr(step, name))
        self.eta += length * step.eta


def largest_sum(scores: np.ndarray, q: float) -> float:
    """The largest ``<scores, w>`` with ``w >= 0``, ``sum_i w_i^q = 1``; scores (m,).

    Twice eta at the optimum, and the curvature that the linear term of a meets: from a
    start much larger than that, the first step in eta ends below zero.
    """
    largest = float(np.max(scores))
    if q == 1 or not largest > 0.0:
        return largest
    return largest * float(np.linalg.norm(scores / largest, q / (q - 1.0)))


class FactoredColumn:
    """One factored ``M``, and the constraints ``[G_1 b, ..., G_m b, e]`` behind it."""

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
        self.factor = _robust_cholesky(kernel, diagonal)
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


def _robust_cholesky(kernel: Array, diagonal: np.ndarray) -> Array:
    """Factor of ``kernel + diag(diagonal)``, of a slightly larger one if need be."""
    jitter = 0.0
    while True:
        matrix = kernel + 0.0
        add_to_diagonal(matrix, from_numpy(diagonal * (1.0 + jitter) + jitter, kernel))
        try:
            return cholesky(matrix, overwrite=True)
        except FactorizationError:
            jitter = max(100.0 * jitter, JITTER)
            if jitter > MAX_JITTER:
                raise

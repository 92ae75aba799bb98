"""Margins and kernel weights as a single saddle point problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kernelweave._array import (
    Array,
    from_numpy,
    inner_products,
    namespace,
    to_numpy,
)
from kernelweave.inner.margin_bounds import MarginTerms, primal_value
from kernelweave.kernels.banks.base import combine_in_double
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.protocols import Bank

__all__ = ["SaddleProblem"]


@dataclass(frozen=True)
class SaddleProblem:
    """``min_w max_a sum_c 2 e'a_c - a_c'(G(w) + tau I) a_c`` over labelled rows.

    Attributes
    ----------
    bank : Bank
        Kernels over the n rows with a label in some column.
    signs : ndarray of shape (n, k)
        +1 or -1; 0 marks rows that do not take part in a column.
    bound : float
        The C of ``0 <= a <= C``, or infinity.
    tau : float
        Fixed weight of the identity.
    identity : bool
        Whether the identity is a kernel too, with index 0.
    """

    bank: Bank
    signs: np.ndarray
    bound: float
    tau: float
    identity: bool

    @property
    def n_weights(self) -> int:
        """The number m of weights."""
        return self.bank.n_kernels + int(self.identity)

    def at(self, weights: np.ndarray) -> SaddleProblem:
        """The problem in a alone: one kernel, ``sum_i w_i G_i`` for weights (m,)."""
        kernel = self.combine(weights)
        tau = self.tau + (float(weights[0]) if self.identity else 0.0)
        bank = DenseBank(kernel[None, :, :])
        return replace(self, bank=bank, tau=tau, identity=False)

    def combine(self, weights: np.ndarray, out: Array | None = None) -> Array:
        """``sum_i w_i G_i`` without the identity, in float64, (n, n)."""
        weights = np.asarray(weights, dtype=np.float64)[-self.bank.n_kernels :]
        return combine_in_double(self.bank, weights, out)

    def products(self, beta: np.ndarray) -> Array:
        """``G_i beta`` on the device of the bank, (m, n, k), for beta (n, k)."""
        like = self.bank.like
        moved = from_numpy(beta, like, namespace(like).float64)
        out = self.bank.apply(moved)
        if self.identity:
            out = namespace(like).concat([moved[None, ...], out])
        return out

    def scores(self, beta: np.ndarray) -> np.ndarray:
        """``sum_c b_c'G_i b_c`` in one pass over the kernels, (m,), for beta (n, k)."""
        products = self.products(beta)
        return to_numpy(inner_products(products, from_numpy(beta, products)))

    def column(self, c: int) -> tuple[np.ndarray | slice, np.ndarray]:
        """The labelled rows of column c, and their signs."""
        y = self.signs[:, c]
        if self.all_labelled:
            return slice(None), y
        rows = np.flatnonzero(y)
        return rows, y[rows]

    @cached_property
    def all_labelled(self) -> bool:
        """Whether every row takes part in every column."""
        return bool(np.all(self.signs != 0))

    def upper(self, f: np.ndarray, beta: np.ndarray, tau: float) -> float:
        """The primal value at ``f = K(w) beta``, both (n, k)."""
        total = 0.0
        for c in range(f.shape[1]):
            rows, y = self.column(c)
            total += primal_value(f[rows, c], beta[rows, c], y, self.bound, tau)
        return total

    def terms(self, beta: np.ndarray, scores: np.ndarray, upper: float) -> MarginTerms:
        """Certificate terms of a feasible ``beta = a y`` (n, k), given its scores."""
        total = float(np.sum(beta * self.signs))
        square = self.tau * float(np.sum(beta**2))
        largest = float(np.max(np.abs(beta)))
        factor = self.bound / largest if largest > 0 else np.inf
        return MarginTerms(upper, 2.0 * total - square, scores, total, square, factor)

    def unit(self) -> float:
        """The scale of a: where its linear and quadratic terms balance, or the box."""
        means = np.mean(self.bank.diagonals(), axis=1)
        curvature = max([*map(float, means), float(self.identity)]) + self.tau
        free = 1.0 / curvature if curvature > 0 else np.inf
        size = min(self.bound, free)
        return size if np.isfinite(size) else 1.0

"""The margin of a support vector machine as a function of the kernel weights."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kernelweave._array import (
    Array,
    from_numpy,
    inner_products,
    is_numpy,
    namespace,
    tensor_sum,
    to_numpy,
)
from kernelweave.criteria.identifiability import weight_remarks
from kernelweave.inner.margin_bounds import (
    MarginTerms,
    balanced,
    best_intercept,
)
from kernelweave.inner.saddle import SaddlePath, SaddleProblem
from kernelweave.protocols import Bank, Criterion, Evaluation, InfeasibleError

__all__ = ["Margin", "margins_of"]

#: Relative gap to which the SVMs at given weights are solved, and the step limit.
INNER_GAP = 1e-11
INNER_STEPS = 120
#: Number of rows above which libsvm is the better start, if C is at most this multiple
#: of the inverse mean diagonal of the kernels: from 1000 to 3000 rows it takes half the
#: time at C = 0.1, half to equal time at C = 1, and three to seven times as long at
#: C = 10.
MANY_ROWS = 1000
MODERATE = 1.0


class Margin(Criterion):
    """``J(w) = sum_c max_a 2 e'a - a'(G(w) + tau I) a, 0 <= a <= C, y_c'a = 0``.

    Lanckriet et al. (2002), Eq. 12, with ``G(w) = diag(y) sum_i w_i K_i diag(y)`` over
    the labelled rows; J is the sum over the columns c of the squared inverse margin,
    hard or soft:

    =======  =============  =====  =====  =======================================
    margin   C              bound  tau    primal whose minimum is J
    =======  =============  =====  =====  =======================================
    "hard"   not used       inf    0      ``norm(w)^2``, ``y f >= 1``
    "l1"     a number       C      0      ``norm(w)^2 + 2 C sum xi``
    "l2"     a number       inf    1/C    ``norm(w)^2 + C sum xi^2``
    "l2"     "learn"        inf    w_0    as before, with ``1/C`` a weight
    =======  =============  =====  =====  =======================================

    J is convex in w. With the maximiser ``a`` the gradient is ``-a'G_i a``, and with R
    the inverse of ``G(w) + tau I`` on the rows strictly inside the box and on
    ``y'a = 0``, the Hessian is ``2 a'G_i R G_j a``. Any feasible a bounds J from below;
    any weights, function and intercept bound it from above through the primal.

    Parameters
    ----------
    bank : Bank
        The kernels over all rows, used as they are: centring them or scaling them to a
        common trace is up to the caller.
    signs : array of shape (n, k)
        One two-class problem per column: +1 or -1, and 0 for unlabelled rows.
    margin : {"l1", "l2", "hard"}, default="l1"
        The row of the table.
    C : float or "learn", default=1.0
        The penalty on errors. "learn" makes the identity kernel number 0; with kernels
        of trace n over all rows, it shares their trace constraint.
    """

    offers = frozenset({"hessian", "concave reciprocal", "averages", "parts", "saddle"})

    def __init__(
        self,
        bank: Bank,
        signs: Array,
        margin: Literal["l1", "l2", "hard"] = "l1",
        C: float | Literal["learn"] = 1.0,
    ) -> None:
        _check_margin(margin, C)
        self.bank, self.margin, self.C = bank, margin, C
        self.learns_C = margin == "l2" and isinstance(C, str)
        self.signs = _checked_signs(signs, bank.n_samples)  # (N, k), NumPy
        self.rows = np.flatnonzero(np.any(self.signs != 0, axis=1))
        self.labelled = bank.restrict(self.rows)
        bound = float(C) if margin == "l1" else np.inf
        tau = 1.0 / float(C) if margin == "l2" and not self.learns_C else 0.0
        self.problem = SaddleProblem(
            self.labelled, self.signs[self.rows], bound, tau, self.learns_C
        )

    @property
    def n_weights(self) -> int:
        """p, or p + 1 with the identity first if C is learned."""
        return self.bank.n_kernels + int(self.learns_C)

    @property
    def n_kernels(self) -> int:
        """The number p of kernels."""
        return self.bank.n_kernels

    @property
    def preferred_method(self) -> str:
        """Newton's method on top of libsvm for many rows and moderate C."""
        problem = self.problem
        rows = problem.bank.n_samples
        moderate = problem.bound <= MODERATE * problem.unit()
        if moderate and rows > MANY_ROWS and is_numpy(self.bank.like):
            return "newton"
        return "interior_point"

    def split(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """``tau = 1/C`` of the 2-norm margin (else 0) and the kernel weights (p,)."""
        if self.learns_C:
            return float(weights[0]), weights[1:]
        return self.problem.tau, weights

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and coefficients at weights (m,) of any sign.

        Raises
        ------
        InfeasibleError
            If the margin is hard and no function of this kernel separates the rows.
        FactorizationError
            If the combined kernel is not positive semidefinite.
        """
        weights = np.asarray(weights, dtype=np.float64)
        path = SaddlePath(self.problem.at(weights))
        try:
            path.run(INNER_GAP, INNER_STEPS)
        except InfeasibleError as error:
            error.coef = self.over_all_rows(path.coef())
            raise
        coef = path.coef()
        products = self.problem.products(coef)
        scores = to_numpy(inner_products(products, from_numpy(coef, products)))
        total = float(np.sum(coef * self.problem.signs))
        square = self.problem.tau * float(np.sum(coef**2))
        value = 2.0 * total - square - float(scores @ weights)
        curvature = path.curvature(products) if hessian else None
        return Evaluation(
            value,
            -scores,
            curvature,
            self.over_all_rows(coef),
            path.n_factorizations,
        )

    def certificate_terms(
        self, weights: np.ndarray, coef: Array, dual: Array
    ) -> MarginTerms:
        """The primal value of ``coef`` and the dual terms of ``dual``, in float64.

        Both may be any arrays of shape (n, k): ``dual`` is first made feasible, for the
        box and then for ``y'a = 0``.
        """
        beta = self._on_labelled(coef)
        products = self.problem.products(beta)
        upper = self._upper(weights, beta, products)
        signs, bound = self.problem.signs, self.problem.bound
        feasible = balanced(self._on_labelled(dual), signs, bound)
        if not np.array_equal(feasible, beta):
            products = self.problem.products(feasible)
        scores = to_numpy(inner_products(products, from_numpy(feasible, products)))
        return self.problem.terms(feasible, scores, upper)

    def intercept(self, weights: np.ndarray, coef: Array) -> np.ndarray:
        """The best intercept for each column of ``f = K(w) coef``, (k,)."""
        beta = self._on_labelled(coef)
        tau, _ = self.split(np.asarray(weights, dtype=np.float64))
        f = self._functions(weights, beta, self.problem.products(beta))
        loss = self.margin
        if loss == "l2" and not tau > 0.0:
            loss = "hard"
        columns = (self.problem.column(c) for c in range(f.shape[1]))
        return np.array(
            [best_intercept(f[rows, c], y, loss) for c, (rows, y) in enumerate(columns)]
        )

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Whether the weights, and a learned C, are identifiable."""
        kernel_weights = weights[-self.n_kernels :]
        remarks = list(weight_remarks(self.bank, kernel_weights, self.learns_C, "1/C"))
        if self.learns_C and weights[0] == 0.0:
            remarks.append(
                "the learned C is infinite: the hard margin is best for this trace"
            )
        return tuple(remarks)

    def over_all_rows(self, coef: np.ndarray) -> Array:
        """Coefficients of the labelled rows as an array (N, k) like the bank's."""
        full = np.zeros(self.signs.shape)
        full[self.rows] = coef
        return from_numpy(full, self.bank.like, namespace(self.bank.like).float64)

    def _on_labelled(self, coef: Array) -> np.ndarray:
        return to_numpy(coef).astype(np.float64)[self.rows]

    def _functions(
        self, weights: np.ndarray, beta: np.ndarray, products: Array
    ) -> np.ndarray:
        """``K(w) beta`` without the identity's part, (n_labelled, k)."""
        tau, _ = self.split(weights)
        total = to_numpy(tensor_sum(weights, products))
        return total - tau * beta if self.learns_C else total

    def _upper(self, weights: np.ndarray, beta: np.ndarray, products: Array) -> float:
        tau, _ = self.split(weights)
        f = self._functions(weights, beta, products)
        return self.problem.upper(f, beta, tau)


def _check_margin(margin: str, C: float | str) -> None:
    if margin not in ("l1", "l2", "hard"):
        raise ValueError(f"margin must be 'l1', 'l2' or 'hard', got {margin!r}")
    if isinstance(C, str):
        if C != "learn":
            raise ValueError(f"C must be a float > 0 or 'learn', got {C!r}")
        if margin == "l1":
            raise ValueError(
                "C='learn' needs margin='l2', whose 1/C is the weight of a kernel; "
                "got margin='l1'"
            )
    elif margin != "hard" and not (np.isfinite(C) and C > 0):
        raise ValueError(
            f"C must be a finite float > 0 or 'learn', got {C!r}; "
            "margin='hard' allows no errors"
        )


def _checked_signs(signs: Array, n: int) -> np.ndarray:
    """The signs as float64, (n, k), or an error that says what is wrong."""
    if signs.ndim != 2 or signs.shape[0] != n or signs.shape[1] == 0:
        raise ValueError(
            f"the signs must have the shape ({n}, k) with one row per sample; "
            f"got {tuple(signs.shape)}"
        )
    values = to_numpy(signs).astype(np.float64)
    wrong = ~np.isin(values, (-1.0, 0.0, 1.0))
    if np.any(wrong):
        i, c = np.argwhere(wrong)[0]
        raise ValueError(
            f"signs must be +1, -1 or 0 (no label); row {i}, column {c} "
            f"has {values[i, c]!r}"
        )
    for c, column in enumerate(values.T):
        if not (np.any(column > 0) and np.any(column < 0)):
            raise ValueError(
                f"column {c} of the signs needs rows of both classes; it has "
                f"{np.sum(column > 0)} of +1 and {np.sum(column < 0)} of -1"
            )
    return values


def margins_of(bank: Bank, weights: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """``1 / norm(w_c)`` with ``norm(w_c)^2 = a_c' K a_c`` for each column, (c,)."""
    coef = from_numpy(coef, bank.like, namespace(bank.like).float64)
    moved = tensor_sum(weights, bank.apply(coef))
    squared = to_numpy(namespace(coef).sum(coef * moved, axis=0))
    with np.errstate(divide="ignore"):  # a constant function has no finite margin
        return 1.0 / np.sqrt(np.maximum(squared, 0.0))

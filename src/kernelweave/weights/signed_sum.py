"""Weights of any sign for which the sum of kernels is positive semidefinite."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from kernelweave._array import eps, require_memory, to_numpy
from kernelweave._tolerances import IDLE, NEXT_TO_ZERO, NULL_EIGENVALUE, ROUNDING_UNITS
from kernelweave.kernels.banks.dense import combine_in_double
from kernelweave.protocols import Bank, Polyhedron, is_positive, require_bank
from kernelweave.weights.polyhedral import (
    LP_TOLERANCE,
    box_maximizer,
    linear_program,
)
from kernelweave.weights.sets import SumToOne

#: With larger bounds, the tolerance of linear programs exceeds a weight of one.
LARGEST_BOUND = 1.0 / LP_TOLERANCE
#: Largest number of eigenvectors that become cuts at a point outside the set.
VECTORS = 3
#: Accuracy of the support function, relative to the largest score, and the largest
#: number of linear programs spent on it.
SUPPORT_TOLERANCE = 1e-10
SUPPORT_ROUNDS = 200
#: A sum pulled back to the boundary keeps this multiple of the mean kernel.
KEPT_MEAN = 1e-12
#: Cuts are relaxed by this times machine precision and the largest eigenvalue.
ROUNDED_CUT = 8.0
#: A weight beyond this share of the bound counts as limited by it.
ACTIVE = 0.99
#: Relative difference up to which traces count as equal.
EQUAL = 1e-3
#: Condition number of the Gram matrix above which the kernels count as collinear.
COLLINEAR = 1e8


class SignedSum(SumToOne):
    """``{ w : sum_i w_i = 1, sum_i w_i G_i PSD over all rows, abs(w_i) <= bound }``.

    The set of Lanckriet et al. (2002), Eqs. 11 and 12, which constrain the sum rather
    than the weights, for kernels of equal trace. It contains the simplex. Unlabelled
    rows enter the constraint too: negative weights are meant for transduction.

    The set is approximated by cuts ``v'(sum_i w_i G_i) v >= 0``. In coordinates in
    which the mean kernel is the identity, all sums along the segment from uniform
    weights to a given point share their eigenvectors, so the step to the boundary is
    exact and the cut of a negative eigenvector touches the set there. Cuts are kept and
    shared by all calls.

    With nearly collinear kernels the problem is ill-posed: its value keeps falling as
    the weights grow. The bound is then part of the problem, and :meth:`remarks` says
    so. All work is done in NumPy float64 on the CPU, wherever the bank is stored.

    Parameters
    ----------
    bank : Bank
        The kernels over all rows.
    bound : float, default=100.0
        Upper limit on the absolute values of the weights.
    row_weights : ndarray of shape (n,), optional
        Weights of the rows in the traces, which should be equal.

    Attributes
    ----------
    cuts : ndarray of shape (c, p)
        Rows c_j with ``c_j'w >= 0`` on the set.
    """

    offers = frozenset({"cuts"})
    power = 1.0

    def __init__(
        self, bank: Bank, bound: float = 100.0, row_weights: np.ndarray | None = None
    ) -> None:
        require_bank(bank, type(self).__name__)
        if not (is_positive(bound) and 1.0 <= bound <= LARGEST_BOUND):
            raise ValueError(
                f"bound must be a number from 1 to {LARGEST_BOUND:.0e}, got {bound!r}"
            )
        self.bank, self.bound = bank, float(bound)
        self._traces = _positive_traces(bank, row_weights)
        self.cuts = np.zeros((0, bank.n_kernels))
        self._last: tuple[bytes, float, np.ndarray] | None = None
        null = max(NULL_EIGENVALUE, bank.n_samples * eps(bank.like))
        self._null = ROUNDING_UNITS * null
        self._whitener, self._whitened, self._largest = _whitened(bank, self._null)

    def support(self, scores: np.ndarray) -> float:
        """An upper bound on ``max <scores, w>``, by linear programs over the cuts.

        Cuts are added until the bound is sharp or rounding prevents further progress.
        """
        return self._maximize(scores)[0]

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """The best point of the set found by :meth:`support`, (m,)."""
        return self._maximize(scores)[1]

    def violation(self, weights: np.ndarray) -> float:
        """The largest of: error of the sum, excess over the bound, negative eigenvalue.

        The eigenvalue is relative to the largest of the mean kernel, and counts only as
        far as it exceeds the rounding error of the kernels.
        """
        others, own = self._split(weights)
        if not np.all(np.isfinite(weights)):
            return float("nan")
        total = to_numpy(combine_in_double(self.bank, own))
        lowest = linalg.eigvalsh(total, subset_by_index=[0, 0], check_finite=False)[0]
        # The mean kernel is at most null along directions that are left out, so every
        # kernel at most p null.
        noise = self._null * len(own) * float(np.max(np.abs(own)))
        return max(
            abs(float(np.sum(weights)) - 1.0),
            -float(lowest) / self._largest - noise,
            float(np.max(np.abs(own))) - self.bound,
            -float(np.min(others, initial=0.0)),
            0.0,
        )

    def separate(self, weights: np.ndarray) -> np.ndarray:
        """Weights (m,) pulled towards uniform until inside; adds cuts if outside.

        All but the last p weights belong to other terms; they must be non-negative and
        do not affect the sum of kernels.
        """
        others, own = self._split(weights)
        if np.min(others, initial=0.0) < 0.0:
            weights = self.scale(np.append(np.maximum(others, 0.0), own))
        own, centre = self._split(weights)[1], self.start(len(weights))
        values, vectors = self._lowest(own)
        negative = values < 0.0
        if np.any(negative):
            self._add(vectors[:, negative])
        equal = self._split(centre)[1]
        level = float(np.sum(equal))
        lowest, goal = float(values[0]), KEPT_MEAN * level
        share = (goal - lowest) / (level - lowest) if lowest < goal else 0.0
        beyond = np.abs(own) - self.bound
        far = beyond > LP_TOLERANCE
        needed = beyond[far] / np.abs(own - equal)[far]
        share = max(share, float(np.max(needed, initial=0.0)))
        if share == 0.0:
            return weights
        return self.scale((1.0 - share) * weights + share * centre)

    def polyhedron(self, m: int) -> Polyhedron:
        """The polyhedron of all cuts for m weights, which contains the set."""
        others = m - self.bank.n_kernels
        below = -np.pad(self.cuts, ((0, 0), (others, 0)))
        high = np.where(np.arange(m) < others, 1.0, self.bound)
        low = np.where(np.arange(m) < others, 0.0, -self.bound)
        return Polyhedron.sum_to_one(m, low, high, below)

    def condition(self) -> float:
        """Condition number of the matrix of cosines between the kernels."""
        p = self.bank.n_kernels
        gram = np.zeros((p, p))
        for _, block in self.bank.row_blocks():
            flat = to_numpy(block).reshape(p, -1).astype(np.float64)
            gram += flat @ flat.T
        size = np.sqrt(np.diag(gram))
        size[size == 0.0] = 1.0
        values = np.linalg.eigvalsh(gram / size[:, None] / size[None, :])
        return float(values[-1]) / max(float(values[0]), NEXT_TO_ZERO)

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Active bounds on the weights (m,), unequal traces and collinear kernels."""
        out = []
        _, own = self._split(weights)
        held = np.flatnonzero(np.abs(own) >= ACTIVE * self.bound)
        if len(held):
            names = ", ".join(repr(self.bank.names[i]) for i in held)
            out.append(
                f"the bound {self.bound:g} on the weights is active for {names}: the "
                "certificate is for the problem with this bound, and a larger one "
                "would change the weights"
            )
        least, most = float(np.min(self._traces)), float(np.max(self._traces))
        if most - least > EQUAL * most:
            out.append(
                f"the traces of the kernels lie between {least:.3g} and {most:.3g}: "
                "the sum of the weights does not fix the trace of the sum, which "
                "vanishes where kernels cancel; scale the kernels to equal trace"
            )
        condition = self.condition()
        if condition > COLLINEAR:
            shown = f"{condition:.0e}" if condition < 1e16 else "more than 1e+16"
            out.append(
                f"the kernels are nearly collinear (condition {shown}): weights of "
                "any sign are ill-posed and can become large; compare values rather "
                "than weights, or use fewer kernels"
            )
        return tuple(out)

    def __repr__(self) -> str:
        return f"SignedSum(bound={self.bound:g})"

    def _split(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = len(weights) - self.bank.n_kernels
        return weights[:first], weights[first:]

    def _lowest(self, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lowest eigenvalues and eigenvectors of the whitened sum."""
        p, r = self._whitened.shape[:2]
        total = (own @ self._whitened.reshape(p, -1)).reshape(r, r)
        count = min(VECTORS, r)
        return linalg.eigh(total, subset_by_index=[0, count - 1], check_finite=False)

    def _add(self, vectors: np.ndarray) -> None:
        """Add the cut ``v'K_i v`` (p,) of each column, relaxed by rounding errors."""
        products = self._whitened @ vectors
        rows = np.einsum("pri,ri->ip", products, vectors)
        length = np.sum((self._whitener @ vectors) ** 2, axis=0)
        noise = ROUNDED_CUT * eps(self.bank.like) * self._largest * length
        self.cuts = np.concatenate([self.cuts, rows + noise[:, None]])
        self._last = None

    def _maximize(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """An upper bound on the maximum, and the best point found in the set."""
        scores = np.asarray(scores, dtype=np.float64)
        key = scores.tobytes()
        if self._last is not None and self._last[0] == key:
            return self._last[1], self._last[2]
        best, idle = self.start(len(scores)), 0
        limits = self.polyhedron(len(scores)).limits
        enough = SUPPORT_TOLERANCE * (float(np.max(np.abs(scores))) or 1.0)
        upper = float(scores @ box_maximizer(scores, limits))
        for _ in range(SUPPORT_ROUNDS):
            before = upper - scores @ best
            outside = self.polyhedron(len(scores))
            answer = linear_program(-scores, outside)
            if answer is None:
                break
            point, prices, _ = answer
            # The sum of the weights is kept exactly: any error in a multiplier of it
            # would count as often as the bound on the weights.
            relaxed = scores - prices @ outside.below
            upper = min(upper, float(relaxed @ box_maximizer(relaxed, limits)))
            inside = self.separate(point)
            if scores @ inside > scores @ best:
                best = inside
            left = upper - scores @ best
            idle = 0 if left < before else idle + 1
            if left <= enough or inside is point or idle == IDLE:
                break
        self._last = (key, upper, best)
        return upper, best


def _positive_traces(bank: Bank, row_weights: np.ndarray | None) -> np.ndarray:
    """Traces (p,). A kernel of trace zero could take any weight and free the others."""
    diagonals = bank.diagonals()  # (p, n)
    traces = np.sum(diagonals if row_weights is None else diagonals * row_weights, 1)
    if not np.all(traces > 0.0):
        i = int(np.argmin(traces > 0.0))
        raise ValueError(
            f"kernel {i} ({bank.names[i]!r}) has the trace {traces[i]:.3g}: weights of "
            "any sign need kernels of positive trace; remove this kernel"
        )
    return traces


def _whitened(bank: Bank, null: float) -> tuple[np.ndarray, np.ndarray, float]:
    """W (n, r) with ``W'K W = I`` for the mean kernel K, and all ``W'G_i W`` (p, r, r).

    The last result is the largest eigenvalue of K.
    """
    p, n = bank.n_kernels, bank.n_samples
    require_memory(
        (p + 4) * n * n * 8,
        f"weights of any sign for {p} kernels over {n} rows",
        "use fewer kernels or rows, or weights of one sign",
    )
    mean = to_numpy(combine_in_double(bank, np.full(p, 1.0 / p)))
    values, vectors = linalg.eigh(mean, check_finite=False)
    largest = float(values[-1])
    keep = values > null * largest
    whitener = vectors[:, keep] / np.sqrt(values[keep])
    whitened = np.empty((p, whitener.shape[1], whitener.shape[1]))
    for i in range(p):
        kernel = to_numpy(bank.kernel(i)).astype(np.float64)
        product = whitener.T @ (kernel @ whitener)
        whitened[i] = 0.5 * (product + product.T)
    return whitener, whitened, largest

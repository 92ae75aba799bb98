"""What criteria share: the kernels, and remarks on what the data cannot determine."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from kernelweave._array import Array, from_numpy, namespace, tensor_sum, to_numpy
from kernelweave.protocols import Bank, Criterion

#: Cosine to the centred identity above which a kernel acts as regularisation.
LIKE_IDENTITY = 0.95
#: Rows that show which kernels are nothing like the identity.
SCREENED = 1024
#: Sum of the kernel weights below which only the identity is left.
NO_KERNEL = 1e-6
#: Weights up to this share of the largest are not worth a remark.
NEGLIGIBLE = 1e-3
#: With fewer rows than this, rounding errors in sums over them do not cancel.
FEW_ROWS = 20
#: Relative difference of two kernels below which they count as one.
SAME = 1e-8


class KernelCriterion(Criterion):
    """A criterion of the weights of p kernels and, if it is learned, of the identity.

    Attributes
    ----------
    bank : Bank
        The kernels.
    learns_identity : bool
        Whether the identity is a kernel too, the first one.
    identity_name : str
        What users call its weight.
    """

    bank: Bank
    learns_identity: bool = False
    identity_name: ClassVar[str] = "alpha"

    @property
    def n_kernels(self) -> int:
        """The number p of kernels."""
        return self.bank.n_kernels

    @property
    def n_weights(self) -> int:
        """p, or p + 1 with the identity first."""
        return self.bank.n_kernels + int(self.learns_identity)

    def combined(self, weights: np.ndarray, products: Array) -> Array:
        """``sum_i w_i G_i B`` (n, k) without the identity, from products (m, n, k)."""
        p = self.n_kernels
        return tensor_sum(weights[-p:], products[-p:, ...])

    def copies(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Indices of weights whose kernels are the same, and of those that share it."""
        first = self.n_weights - self.n_kernels
        views: list[Any] = self.bank.views or list(range(self.n_kernels))
        found = []
        for group in same_kernels(self.bank):
            _, places = np.unique([views[i] for i in group], return_index=True)
            found.append((first + group, first + group[places]))
        return found

    def rounding(self, weights: np.ndarray, square: float) -> float:
        """Rounding errors of ``sum_i w_i tr(B' G_i B)`` in float64, ``|B|^2`` = square.

        They matter where B is nearly orthogonal to all eigenvectors that count: the
        products cancel, and the sum is far below ``|B|^2 tr(G)``.
        """
        traces = self.bank.rounded_traces()
        size = float(np.abs(weights[-self.n_kernels :]) @ traces)
        size *= max(1.0, FEW_ROWS / self.bank.n_samples)
        return float(np.finfo(np.float64).eps) * size * square

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Whether the weights are identifiable."""
        kernel_weights, name = weights[-self.n_kernels :], self.identity_name
        return weight_remarks(self.bank, kernel_weights, self.learns_identity, name)


def weight_remarks(
    bank: Bank, weights: np.ndarray, learns_alpha: bool, alpha: str = "alpha"
) -> tuple[str, ...]:
    """Sentences on what the data cannot determine about the weights (p,).

    ``alpha`` is the name of the weight of the identity, if it is learned.
    """
    remarks = []
    counts = weights > NEGLIGIBLE * np.max(weights)
    for group in same_kernels(bank):
        if np.any(counts[group]):
            names = " and ".join(repr(bank.names[i]) for i in group)
            remarks.append(
                f"kernels {names} are the same up to scale: the data cannot tell how "
                "to share the weight between them"
            )
    if learns_alpha and np.sum(weights) < NO_KERNEL:
        remarks.append(
            f"the learned {alpha} outweighs every kernel: the target looks unrelated "
            "to all of them"
        )
    if learns_alpha:
        candidates = np.flatnonzero(counts)
        alike = candidates[identity_likeness(bank, candidates) > LIKE_IDENTITY]
        if len(alike):
            names = ", ".join(repr(bank.names[i]) for i in alike)
            remarks.append(
                f"the learned {alpha} is not identifiable: on the training rows the "
                f"kernel(s) {names} nearly equal the identity, so their weight is "
                "regularisation rather than information"
            )
    return tuple(remarks)


#: What is known of the kernels of a bank: every norm asks about the same ones.
_KNOWN: WeakKeyDictionary[Bank, dict[Any, Any]] = WeakKeyDictionary()


def _known(bank: Bank) -> dict[Any, Any]:
    try:
        return _KNOWN.setdefault(bank, {})
    except TypeError:  # a bank of another kind need not be hashable
        return {}


def identity_likeness(bank: Bank, kernels: np.ndarray) -> np.ndarray:
    """Cosine between the centred identity and each of ``kernels``, indices (c,)."""
    known = _known(bank)
    new = np.array([i for i in kernels if int(i) not in known], dtype=int)
    if len(new):
        if bank.n_samples > SCREENED:
            # Fewer rows of a kernel look more like the identity than all of them.
            step = -(-bank.n_samples // SCREENED)
            some = bank.restrict(np.arange(0, bank.n_samples, step))
            found = _cosines(some, new, some.n_samples)
            known.update(zip(new.tolist(), found.tolist(), strict=True))
            new = new[found > LIKE_IDENTITY]
        found = _cosines(bank, new, bank.n_rows)
        known.update(zip(new.tolist(), found.tolist(), strict=True))
    return np.array([known[int(i)] for i in kernels])


def _cosines(bank: Bank, kernels: np.ndarray, n_rows: int) -> np.ndarray:
    if not len(kernels):
        return np.empty(0)
    sizes = bank.sizes(kernels)
    sizes = np.where(sizes > 0, sizes, np.inf)
    traces = np.sum(bank.diagonals()[kernels], axis=1)
    return traces / (sizes * np.sqrt(max(n_rows - 1, 1)))


def same_kernels(bank: Bank) -> list[np.ndarray]:
    """Groups of indices of kernels with equal products with one random vector."""
    known = _known(bank)
    if "same" not in known:
        known["same"] = _groups(bank) if bank.n_kernels > 1 else []
    groups: list[np.ndarray] = known["same"]
    return groups


def _groups(bank: Bank) -> list[np.ndarray]:
    probe = np.random.default_rng(0).standard_normal((bank.n_samples, 1))
    sketch = to_numpy(bank.apply(from_numpy(probe, bank.like)))[:, :, 0]
    sketch = sketch.astype(np.float64)
    sketch /= np.max(np.abs(sketch)) or 1.0  # squares stay in range
    size = np.linalg.norm(sketch, axis=1)
    tolerance = SAME if namespace(bank.like).finfo(bank.like.dtype).bits > 32 else 1e-4
    order = np.argsort(size, kind="stable")  # equal kernels become neighbours
    gaps = np.linalg.norm(np.diff(sketch[order], axis=0), axis=1)
    same = (gaps <= tolerance * size[order[1:]]) & (size[order[:-1]] > 0)
    groups = np.split(order, np.flatnonzero(~same) + 1)
    return [np.sort(group) for group in groups if len(group) > 1]


def checked_row_weights(row_weights: np.ndarray | None, n: int) -> np.ndarray:
    """Positive weights of n rows in float64, (n,); ones by default."""
    if row_weights is None:
        return np.ones(n)
    weights = np.asarray(row_weights, dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"row_weights must have the shape ({n},), one per row; got {weights.shape}"
        )
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if np.any(wrong):
        i = int(np.argmax(wrong))
        raise ValueError(
            f"row_weights must be positive finite numbers; row {i} has {weights[i]!r}. "
            "Leave out rows of weight 0"
        )
    return weights

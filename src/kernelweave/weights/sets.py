"""Weight sets: the simplex, the lp ball, the ball of groups, equal weights."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from kernelweave.protocols import Polyhedron, WeightSet, is_positive


class LpBall(WeightSet):
    """``{ w >= 0 : norm_q(w) <= 1 }`` with ``1 < q <= inf``: non-sparse weights.

    Criteria that decrease in every weight attain their minimum on the sphere, so the
    relaxation of the printed equality is tight. ``q = inf`` is the uniform mean.

    Parameters
    ----------
    norm : float
        The exponent q.
    """

    offers = frozenset({"norm", "polyhedron"})

    def __init__(self, norm: float = 2.0) -> None:
        if not (is_positive(norm) or norm == np.inf) or norm <= 1:
            raise ValueError(
                f"LpBall needs norm > 1, got {norm!r}; use Simplex() for norm 1"
            )
        self.norm = self.power = float(norm)

    @property
    def dual_norm(self) -> float:
        """The exponent ``q* = q / (q - 1)`` of the support function."""
        return 1.0 if np.isinf(self.norm) else self.norm / (self.norm - 1.0)

    def start(self, m: int) -> np.ndarray:
        """Equal weights on the sphere."""
        return self.scale(np.ones(m))

    def support(self, scores: np.ndarray) -> float:
        """The dual norm of the positive part of the scores."""
        return _norm(np.maximum(scores, 0.0), self.dual_norm)

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """``w_i ~ max(s_i, 0)^(q* - 1)`` on the sphere."""
        positive = np.maximum(scores, 0.0)
        largest = np.max(positive)
        if largest == 0.0:
            return np.zeros(len(scores))
        raised = (positive / largest) ** (self.dual_norm - 1.0)
        return self.scale(np.where(positive > 0.0, raised, 0.0))  # 0^0 counts as 0

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """Weights divided by their q-norm."""
        return weights / _norm(weights, self.norm)

    def violation(self, weights: np.ndarray) -> float:
        """Largest negative weight, or the excess of the norm over 1."""
        return max(-float(np.min(weights)), _norm(weights, self.norm) - 1.0, 0.0)

    def is_point(self, m: int) -> bool:
        """Whether q is infinite: the best point of a cube is the corner of ones."""
        return m == 1 or bool(np.isinf(self.norm))

    def polyhedron(self, m: int) -> Polyhedron:
        """The simplex, for ``w^q``: criteria attain their minimum on the sphere."""
        return Polyhedron.sum_to_one(m, high=np.inf)

    def __repr__(self) -> str:
        return f"LpBall({self.norm:g})"


def _norm(x: np.ndarray, q: float) -> float:
    """``norm_q(x)``, scaled by the largest entry so that no power overflows."""
    largest = float(np.max(np.abs(x)))
    if largest == 0.0:
        return 0.0
    return largest * float(np.linalg.norm(x / largest, q))


class GroupBall(WeightSet):
    """``{ w >= 0 : sum_g norm_2(w_g) <= 1 }`` over groups g of kernels.

    Few groups have weight, as on the simplex, and within a group weights are spread,
    as on the ball of norm 2: the kernels of a view are kept or dropped together. One
    group of all kernels is that ball; groups of one kernel each are the simplex, for
    criteria that decrease in every weight.

    The support function is ``max_g norm_2(max(s_g, 0))``.

    Parameters
    ----------
    groups : sequence of shape (m,)
        The group of each weight, e.g. the name of its view, as in ``bank.views``. A
        learned regularisation counts as a weight, the first one.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.weights import GroupBall
    >>> ball = GroupBall(["image", "image", "text"])
    >>> ball.maximizer(np.array([3.0, 4.0, 4.5])).round(2).tolist()
    [0.6, 0.8, 0.0]
    >>> ball.group_norms(np.array([0.3, 0.4, 0.5]))
    {'image': 0.5, 'text': 0.5}
    """

    offers = frozenset({"sparse"})

    def __init__(self, groups: Sequence[Hashable] | np.ndarray) -> None:
        labels = groups.tolist() if isinstance(groups, np.ndarray) else groups
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise TypeError(
                "groups must hold one label per weight, such as "
                f"['image', 'image', 'text']; got {groups!r:.80}"
            )
        labels = list(labels)
        unhashable = [label for label in labels if not isinstance(label, Hashable)]
        if unhashable:
            raise TypeError(
                "groups must hold one label per weight, a string or a number, not the "
                f"members of each group; got {unhashable[0]!r:.80}"
            )
        if not labels:
            raise ValueError("groups must hold one label per weight; it is empty")
        self.names = list(dict.fromkeys(labels))
        places = {name: number for number, name in enumerate(self.names)}
        self._group_of = np.array([places[label] for label in labels])  # (m,)

    def group_norms(self, weights: np.ndarray) -> dict[Hashable, float]:
        """The 2-norm of the weights (m,) of each group, by its name."""
        return dict(zip(self.names, self._norms(weights).tolist(), strict=True))

    def start(self, m: int) -> np.ndarray:
        """Equal weights with norms of sum one."""
        return self.scale(np.ones(m))

    def support(self, scores: np.ndarray) -> float:
        """The largest 2-norm of the positive scores of a group."""
        return float(np.max(self._norms(np.maximum(scores, 0.0))))

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """The positive scores of the best group, scaled to norm one."""
        positive = np.maximum(scores, 0.0)
        norms = self._norms(positive)
        best = int(np.argmax(norms))
        if norms[best] == 0.0:
            return np.zeros(len(scores))
        return self.scale(np.where(self._group_of == best, positive, 0.0))

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """Weights divided by the sum of the norms of all groups."""
        weights = weights / np.max(np.abs(weights))  # tiny ones keep their digits
        return weights / np.sum(self._norms(weights))

    def violation(self, weights: np.ndarray) -> float:
        """Largest negative weight, or the excess of the sum of norms over 1."""
        excess = float(np.sum(self._norms(weights))) - 1.0
        return max(-float(np.min(weights)), excess, 0.0)

    def __repr__(self) -> str:
        return f"GroupBall({len(self._group_of)} weights in {len(self.names)} groups)"

    def _norms(self, weights: np.ndarray) -> np.ndarray:
        """The 2-norm of the weights (m,) of each group, without overflow, (g,)."""
        if len(weights) != len(self._group_of):
            raise ValueError(
                f"GroupBall has labels for {len(self._group_of)} weights, but there "
                f"are {len(weights)}: give one label per kernel and, if the "
                "regularisation is learned, one more, the first, for its weight"
            )
        largest = float(np.max(np.abs(weights))) or 1.0
        squares = (weights / largest) ** 2
        sums = np.bincount(self._group_of, squares, minlength=len(self.names))
        return largest * np.sqrt(sums)


class SumToOne(WeightSet):
    """The base class of sets of weights that sum to one."""

    def start(self, m: int) -> np.ndarray:
        """Uniform weights."""
        return np.full(m, 1.0 / m)

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """Weights divided by their sum."""
        return weights / np.sum(weights)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Simplex(SumToOne):
    """``{ w >= 0 : sum_i w_i = 1 }`` for kernels of equal trace: sparse weights.

    For kernels scaled to trace n this is ``theta' r = 1`` of Ye et al. (2007),
    Eq. 11, with ``w_i = theta_i r_i``.
    """

    offers = frozenset({"norm", "polyhedron", "sparse"})
    norm = power = 1.0

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """All weight on the largest score."""
        best = np.zeros(len(scores))
        best[np.argmax(scores)] = 1.0
        return best

    def violation(self, weights: np.ndarray) -> float:
        """Largest negative weight, or the distance of the sum from 1."""
        return float(max(-np.min(weights), abs(np.sum(weights) - 1.0), 0.0))

    def polyhedron(self, m: int) -> Polyhedron:
        """The sum and the signs, which imply all other limits."""
        return Polyhedron.sum_to_one(m, high=np.inf)


class Uniform(SumToOne):
    """``{ (1/p, ..., 1/p) }``: the mean kernel, the baseline every method must beat."""

    offers = frozenset({"norm", "polyhedron"})
    norm, power = float("inf"), 1.0

    def maximizer(self, scores: np.ndarray) -> np.ndarray:
        """The only point."""
        return self.start(len(scores))

    def scale(self, weights: np.ndarray) -> np.ndarray:
        """The only point."""
        return self.start(len(weights))

    def violation(self, weights: np.ndarray) -> float:
        """Distance from the only point."""
        return float(np.max(np.abs(weights - 1.0 / len(weights))))

    def is_point(self, m: int) -> bool:
        """Always."""
        return True

    def polyhedron(self, m: int) -> Polyhedron:
        """The only point."""
        return Polyhedron.sum_to_one(m, 1.0 / m, 1.0 / m)

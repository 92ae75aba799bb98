"""Kernel-target alignment as a criterion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave._array import (
    DOUBLE_EPS,
    Array,
    as_float,
    eps,
    from_numpy,
    in_double,
    namespace,
    to_numpy,
    units_of,
)
from kernelweave._tolerances import ROUNDING_UNITS
from kernelweave.fits.targets import checked_target
from kernelweave.kernels.checks import checked_matrix, checked_row_weights
from kernelweave.protocols import (
    Bank,
    CertificateTerms,
    Evaluation,
    KernelCriterion,
    WeightSet,
    has_cuts,
    require_bank,
)


class Target:
    """A target kernel T over n rows, in blocks of rows.

    Parameters
    ----------
    values : ndarray of shape (n, k) or (n, n)
        The factor H of ``T = H H'``, or T itself.
    is_factor : bool
        Which of the two.
    centred : bool
        Whether to centre T.
    row_weights : ndarray of shape (n,)
        r: means are weighted, and T is multiplied by ``sqrt(r_i r_j)``.

    Attributes
    ----------
    norm : float
        The Frobenius norm of T; 0 if centring leaves only rounding errors.
    """

    def __init__(
        self,
        values: np.ndarray,
        is_factor: bool,
        centred: bool,
        row_weights: np.ndarray,
    ) -> None:
        shares, root = row_weights / np.sum(row_weights), np.sqrt(row_weights)
        size = np.linalg.norm(root[:, None] * values)
        if centred:
            values = values - shares @ values
            if not is_factor:
                values = values - (values @ shares)[:, None]
        values = root[:, None] * values
        if not is_factor:
            size, values = size * np.max(root), values * root
        rounding = ROUNDING_UNITS * len(values) * DOUBLE_EPS * size
        self._values, self._is_factor = values, is_factor
        self.norm = float(np.linalg.norm(values.T @ values if is_factor else values))
        if self.norm <= (rounding**2 if is_factor else rounding):
            self.norm = 0.0

    def block(self, rows: slice) -> np.ndarray:
        """(r, n)."""
        block = self._values[rows]
        return block @ self._values.T if self._is_factor else block


#: Means of rows, in units of the largest entry and of rounding, that count as zero.
ZERO_MEAN = 16.0


def norms_and_cosines(
    bank: Bank, target: Target, centred: bool, row_weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Norms, correlations and cosines to the target of the kernels.

    One pass over the kernels, or two if they are to be centred. Blocks of rows are
    converted to float64, so sums over float32 kernels lose no accuracy. Kernels
    whose squares would overflow or underflow are rescaled first, so scales may differ
    by many orders of magnitude.

    Parameters
    ----------
    bank : Bank
        p kernels.
    target : Target
        T over the same rows.
    centred : bool
        Whether to centre the kernels.
    row_weights : ndarray of shape (n,)
        r in ``<A, B> = sum_ij r_i r_j A_ij B_ij``.

    Returns
    -------
    norms : ndarray of shape (p,)
        ``norm(G_i)``, zero for a kernel that vanishes.
    correlations : ndarray of shape (p, p)
        ``<G_i, G_j> / (norm(G_i) norm(G_j))``, zero if either vanishes.
    cosines : ndarray of shape (p,)
        ``<G_i, T> / (norm(G_i) norm(T))``.
    cancelled : ndarray of shape (p,)
        The norm of each kernel before centring in units of that after it, at least 1:
        the factor by which centring magnifies rounding errors.
    """
    p, n, xp = bank.n_kernels, bank.n_samples, namespace(bank.like)
    # A kernel is positive semidefinite: its largest entry is on the diagonal.
    sizes = np.max(np.abs(bank.diagonals()), axis=1)
    units = units_of(sizes, 64)
    shares, root = row_weights / np.sum(row_weights), np.sqrt(row_weights)
    mean = in_double(shares[:, None], bank.like)
    means = to_numpy(bank.apply(mean))[:, :, 0] / units[:, None] if centred else None
    if means is not None and np.all(
        np.max(np.abs(means), axis=1) * units <= ZERO_MEAN * eps(bank.like) * sizes
    ):
        means = None  # nothing is left to subtract, as for the kernels of estimators
    plain = bool(np.all(row_weights == 1.0))
    gram, inner, before = np.zeros((p, p)), np.zeros(p), np.zeros(p)
    for rows, block in bank.row_blocks():
        block = as_float(block, xp.float64)
        if np.any(units != 1.0):
            block = block / in_double(units, block)[:, None, None]
        own = 1.0 if plain else from_numpy(root[rows][:, None] * root, block)
        if means is not None:
            before += to_numpy(xp.sum((block * own) ** 2, axis=(1, 2)))
            block = _centre(block, means, shares, rows)
        block = block if plain else block * own
        flat = xp.reshape(block, (p, -1))
        gram += to_numpy(flat @ flat.T)
        inner += to_numpy(flat @ from_numpy(target.block(rows).reshape(-1), flat))
    squares = np.diag(gram).copy()
    if means is not None:
        # Rounding that centring leaves of a constant kernel.
        left = (ROUNDING_UNITS * n * eps(bank.like)) ** 2
        squares[squares <= left * before] = 0.0
    norms = np.sqrt(squares)
    whole = np.where(norms > 0, norms, np.inf)
    correlations = gram / whole[:, None] / whole[None, :]
    cancelled = np.maximum(np.sqrt(before) / whole, 1.0)
    return norms * units, correlations, inner / whole / target.norm, cancelled


def _centre(block: Array, means: np.ndarray, shares: np.ndarray, part: slice) -> Array:
    """Subtract row and column means (p, n) from rows ``part`` of the kernels."""
    home = from_numpy(means, block)
    grand = from_numpy(means @ shares, block)
    shift = home[:, part] - grand[:, None]
    return block - home[:, None, :] - shift[:, :, None]


#: Steps of the certificate overshoot slightly, since falling short gives no bound.
OVERSHOOT = 1.0 + 1e-3
MAX_STEPS = 60
#: A correction of m, whose length is at most one, below this is rounding.
SMALLEST_STEP = 1e-15
#: Alignment below which a kernel counts as unrelated to the target.
UNRELATED = 1e-12


class Alignment(KernelCriterion):
    """``J(w) = -A(w)``, the alignment of ``K = sum_i w_i G_i`` with a target kernel T.

    Cristianini et al. (2001); Lanckriet et al. (2002), Eq. 11; with ``centred=True``
    the centred alignment of Cortes et al. (2012). Over the labelled rows, with
    ``S_ij = <G_i, G_j>`` and ``b_i = <G_i, T> / norm(T)`` (Frobenius; kernels and
    target both centred over these rows if requested)::

        A(w)  = <K, T> / (norm(K) norm(T)) = b'w / sqrt(w'S w)
        A(u) <= sqrt(m'S m)   for all allowed u, if (b - S m)'u <= 0 for all of them

    so any m gives a bound once it has been corrected along the mean kernel, a direction
    in which the left side of the condition decreases. A does not depend on the scale of
    w: the problem is the same on every set that spans the same cone, and for
    non-negative weights it is the non-negative least-squares problem
    ``min w'S w - 2 b'w``. J is minus the alignment, a cosine; the dual point of a
    solution is m (p,).

    With row weights r all inner products are ``<A, B> = sum_ij r_i r_j A_ij B_ij``, and
    means are weighted: whole numbers are copies of rows.

    Parameters
    ----------
    bank : Bank
        Kernels over all rows, labelled or not.
    target : array of shape (n,) or (n, k), optional
        H of ``T = H H'``: labels +1 and -1, or one indicator column per class.
        Rows of zeros are unlabelled.
    target_kernel : array of shape (n, n), optional
        T itself, in place of ``target``.
    rows : array of int or bool, optional
        The labelled rows; by default those where ``target`` is not zero, or all rows.
    centred : bool, default=True
        Whether T and the kernels are centred over the labelled rows first.
    row_weights : ndarray of shape (n,), optional
        r > 0, for all rows; by default every row counts once.

    Attributes
    ----------
    cosines : ndarray of shape (p,)
        The alignment of each kernel alone; 0 for one that vanishes on the rows.
    correlations : ndarray of shape (p, p)
        The alignment of the kernels with one another.
    norms : ndarray of shape (p,)
        ``sqrt(S_ii)``.
    """

    offers = frozenset({"cosines"})

    def __init__(
        self,
        bank: Bank,
        target: Array | None = None,
        *,
        target_kernel: Array | None = None,
        rows: Array | None = None,
        centred: bool = True,
        row_weights: np.ndarray | None = None,
    ) -> None:
        require_bank(bank, type(self).__name__)
        self.bank, self.centred = bank, bool(centred)
        if (target is None) == (target_kernel is None):
            raise ValueError("give either target or target_kernel, not both")
        n = bank.n_samples
        if target is not None:
            columns = to_numpy(target).astype(np.float64)
            columns = columns[:, None] if columns.ndim == 1 else columns
            values = checked_target(columns, n)
            labelled = np.flatnonzero(np.any(values != 0, axis=1))
        else:
            values = checked_matrix(target_kernel, "target_kernel", n, "samples")
            labelled = np.arange(n)
        self.rows = labelled if rows is None else _row_numbers(rows, n)
        if len(self.rows) < 2:
            raise ValueError(
                f"alignment needs at least 2 labelled rows; got {len(self.rows)}"
            )
        values = values[self.rows]
        values = values if target_kernel is None else values[:, self.rows]
        counts = checked_row_weights(row_weights, n)[self.rows]
        known = Target(values, target is not None, self.centred, counts)
        if known.norm == 0.0:
            raise ValueError(
                "the target is zero on the labelled rows"
                + (" after centring: it contains only one class" if centred else "")
            )
        part = bank.restrict(self.rows)
        found = norms_and_cosines(part, known, self.centred, counts)
        self.norms, self.correlations, self.cosines, cancelled = found
        self._lost = bank.entry_errors() * cancelled

    def alignment(self, weights: np.ndarray) -> float:
        """``A(w)``, between -1 and 1; 0 where the kernel vanishes on the rows."""
        scaled = self._scaled(weights)
        size = self._size(scaled)
        return float(self.cosines @ scaled) / size if size > 0 else 0.0

    def sensitivity(self, weights: np.ndarray) -> float:
        """``|A(w) - A'(w)| <= sensitivity * e`` for kernels whose sum differs by e.

        If the eigenvalues of K change by up to e, its Frobenius norm changes by up to
        ``e sqrt(n)``, and the cosine by up to twice that, relative to ``norm(K)``.
        """
        size = self._size(self._scaled(weights))
        return 2.0 * np.sqrt(len(self.rows)) / size if size > 0 else 0.0

    def unscaled(self, scaled: np.ndarray) -> np.ndarray:
        """``scaled`` (..., p) divided by the kernel norms; 0 where a norm is 0."""
        alive = self.norms > 0
        return np.where(alive, scaled / np.where(alive, self.norms, 1.0), 0.0)

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient and Hessian, indefinite in general: J is only quasiconvex."""
        scaled = self._scaled(weights)
        size, b = self._size(scaled), self.cosines
        if size == 0.0:
            nothing = np.zeros(len(scaled))
            return Evaluation(0.0, nothing, None, nothing)
        unit = scaled / size
        moved, value = self.correlations @ unit, float(b @ unit)
        gradient = (value * moved - b) / size * self.norms
        curvature = None
        if hessian:
            mixed = np.outer(b, moved)
            curvature = mixed + mixed.T - 3.0 * value * np.outer(moved, moved)
            curvature += value * self.correlations
            curvature *= np.outer(self.norms, self.norms) / size**2
        return Evaluation(-value, gradient, curvature, value * self.unscaled(unit))

    def certificate_terms(
        self, weights: np.ndarray, coef: Array, dual: Array
    ) -> CertificateTerms:
        """The exact value at ``weights``, and the bound from m = ``dual`` (p,)."""
        point = self._scaled(np.asarray(dual, dtype=np.float64))
        mean = np.ones(self.n_weights)
        pair = np.column_stack([point, mean])
        moved = self.correlations @ pair
        scaled = self._scaled(weights)  # of any sign: the sum itself may cancel
        size = self._size(scaled) or np.inf
        parts = np.abs(scaled) / size
        errors = ROUNDING_UNITS * len(self.rows) ** 0.5 * self._lost
        # w'S w is a sum of products, each with the errors of two kernels.
        lost = float(parts @ errors) * max(float(np.sum(parts)), 1.0)
        most = 1.0 + np.sum(np.abs(point)) + len(mean) ** 0.5  # of b, m and s v
        return AlignmentTerms(
            rounding=lost,  # of a cosine: absolute, however small the alignment is
            noise=(errors * most + errors @ np.abs(point)) * self.norms,
            upper=-self.alignment(weights),
            linear=-self._size(point),
            scores=(self.cosines - moved[:, 0]) * self.norms,
            slope=moved[:, 1] * self.norms,
            products=pair.T @ moved,
        )

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Whether the weights are unique, and whether there is anything to align."""
        remarks = super().remarks(weights)
        if np.max(self.cosines) <= UNRELATED:
            remarks += (
                "no kernel is aligned with the target on the labelled rows: every "
                "weighted sum is as good as any other",
            )
        return remarks

    def _scaled(self, weights: np.ndarray) -> np.ndarray:
        """The weights for kernels rescaled to Frobenius norm one, (p,)."""
        return np.asarray(weights, dtype=np.float64) * self.norms

    def _size(self, scaled: np.ndarray) -> float:
        """``norm(K)``."""
        largest = float(np.max(np.abs(scaled))) or 1.0  # keeps squares in range
        unit = scaled / largest
        return largest * float(np.sqrt(max(unit @ self.correlations @ unit, 0.0)))


@dataclass(frozen=True)
class AlignmentTerms(CertificateTerms):
    """The bound ``-sqrt(m'S m)`` of a point m, corrected until its condition holds.

    Attributes
    ----------
    noise : ndarray of shape (p,)
        Rounding errors of ``b - S(m + s v)``.
    slope : ndarray of shape (p,)
        ``S v`` for the sum v of the kernels at norm one, the direction m is moved in.
    products : ndarray of shape (2, 2)
        ``m'S m``, ``m'S v`` and ``v'S v``.
    """

    noise: np.ndarray
    slope: np.ndarray
    products: np.ndarray

    def bound(self, weight_set: WeightSet) -> float:
        """``-norm(m + s v)`` for the least s with ``(b - S(m + s v))'u <= 0``.

        The maximum of the left side over the set is convex and decreasing in s, so
        Newton's method, with the maximiser for the slope, finds its zero. Rounding
        errors are smaller than its first step where weights are non-negative. Sums with
        weights of any sign may cancel, the errors do not.
        """
        s, unclear = SMALLEST_STEP, 0.0
        if has_cuts(weight_set):
            limits = weight_set.polyhedron(len(self.noise)).limits
            unclear = float(self.noise @ np.max(np.abs(limits), axis=1))
        for _ in range(MAX_STEPS):
            scores = self.scores - s * self.slope
            excess = weight_set.support(scores) + unclear
            if excess <= 0.0:
                return self._length(s)
            rise = float(self.slope @ weight_set.maximizer(scores))
            if not rise > 0.0:
                break
            step = excess / rise
            s += OVERSHOOT * step
            if step * self.products[1, 1] ** 0.5 <= SMALLEST_STEP:
                return self._length(s)
        return -1.0

    def _length(self, s: float) -> float:
        """``-norm(m + s v)``, or -1: no cosine is larger."""
        point = np.array([1.0, s])
        return -float(np.sqrt(np.clip(point @ self.products @ point, 0.0, 1.0)))


def _row_numbers(rows: Array, n: int) -> np.ndarray:
    """Sorted row numbers, from row numbers or a mask."""
    rows = to_numpy(rows)
    if rows.dtype == bool:
        if rows.shape != (n,):
            raise ValueError(
                f"a mask of rows must have the shape ({n},); got {rows.shape}"
            )
        return np.flatnonzero(rows)
    numbers = np.unique(rows)
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"rows must be row numbers or a mask; got {rows.dtype} values")
    if len(numbers) and not (numbers[0] >= 0 and numbers[-1] < n):
        raise ValueError(
            f"rows must lie between 0 and {n - 1}; got {numbers[0]} to {numbers[-1]}"
        )
    return numbers

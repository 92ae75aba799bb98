"""``max tr(X A)`` over correlation matrices X: the inner problem of Eq. 37."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from kernelweave._array import DOUBLE_EPS, lower_inverse, psd_factor
from kernelweave.inner.interior_point import predict

_Step = tuple[np.ndarray, np.ndarray]

MAX_CONE_STEPS = 100
#: Relative gap below which the iteration stays close to the central path.
LATE = 1e-7
#: Share of the way to the boundary of the cones, beyond which steps lose the central
#: path, and the amount that a full predictor step adds.
TO_CONE_BOUNDARY, BOLDER = 0.9, 0.09
#: How far the diagonal of a start dominates its row, relative to that row and to the
#: largest one: enough to be well inside the cone.
DOMINANCE = 0.1
#: Reduction of the gap in one step along the path.
SHORT = 0.3
#: Distance from the central path below which the last point counts as central, and the
#: maximum number of steps spent on getting there.
CENTRED, MAX_CENTRING = 1e-3, 4
#: Multiple of k, the trace, that is added to the diagonal of X, or of X o X, before a
#: factorisation; it must stay far below the gap to reach.
NUDGE = 4.0 * DOUBLE_EPS


@dataclass(frozen=True)
class CorrelationMaximum:
    """The solution of both problems of :func:`maximize_correlation`.

    Attributes
    ----------
    correlation : ndarray of shape (k, k)
        X, positive semidefinite with unit diagonal.
    diagonal : ndarray of shape (k,)
        t, with ``diag(t) - A`` positive semidefinite.
    value, upper : float
        ``tr(X A)`` and ``sum t``: the maximum lies between them.
    mu : float
        ``X = mu (diag(t) - A)^-1`` up to rounding: the smoothing of the maximum.
    n_iter : int
        Iterations taken.
    """

    correlation: np.ndarray
    diagonal: np.ndarray
    value: float
    upper: float
    mu: float
    n_iter: int

    def curvature(self, slopes: np.ndarray) -> np.ndarray:
        """``d2 max / du_i du_j`` when A moves along ``sum_i u_i slopes_i``, (m, m).

        Along the barrier's path ``dX = (X dA X - X diag(dt) X) / mu`` with dt such that
        ``diag dX = 0``. For ``X = L L'`` this is the residual of a least-squares fit:
        the curvature is ``<R_i, R_j> / mu`` with ``R_i = L'(dA_i - diag dt_i) L``.

        Parameters
        ----------
        slopes : ndarray of shape (m, k, k)
            Symmetric directions.
        """
        m, k = slopes.shape[:2]
        if self.mu == 0.0:
            return np.zeros((m, m))
        x = self.correlation
        root = psd_factor(x)
        moved = root.T @ slopes @ root
        # Normal equations, with a ridge against rounding, refined twice.
        gram = x * x
        gram[np.diag_indices(k)] += k * NUDGE
        solver = linalg.cho_factor(gram)
        for _ in range(3):
            diagonals = np.einsum("ca,iab,cb->ic", root, moved, root, optimize=True)
            fit = linalg.cho_solve(solver, diagonals.T).T
            moved = moved - np.einsum("ca,ic,cb->iab", root, fit, root, optimize=True)
        flat = moved.reshape(m, -1)
        return flat @ flat.T / self.mu


def maximize_correlation(a: np.ndarray, tol: float = 1e-12) -> CorrelationMaximum:
    """Solve ``max { tr(X A) : X PSD, diag X = 1 }`` and its dual.

    The dual is ``min { sum t : diag(t) - A PSD }``; there is no duality gap. A
    primal-dual interior point method with Mehrotra's predictor and corrector keeps X
    and ``S = diag(t) - A`` strictly feasible, so ``sum t - tr(X A) = tr(X S)`` is the
    gap at every step. The last steps move to the central point ``X S = mu I`` with that
    gap, where :meth:`CorrelationMaximum.curvature` is exact.

    Parameters
    ----------
    a : ndarray of shape (k, k)
        A symmetric matrix, usually positive semidefinite.
    tol : float, default=1e-12
        Gap at which to stop, relative to ``sum t`` or the largest entry of A, whichever
        is larger. Rounding may stop the iteration earlier.
    """
    a = np.asarray(a, dtype=np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not np.all(np.isfinite(a)):
        raise ValueError(
            f"the matrix must be square and finite; got shape {a.shape}, "
            f"finite: {bool(np.all(np.isfinite(a)))}"
        )
    a = 0.5 * (a + a.T)
    k, size = len(a), float(np.max(np.abs(a)))
    if size == 0.0:
        return CorrelationMaximum(np.eye(k), np.zeros(k), 0.0, 0.0, 0.0, 0)
    x, t, n_iter = _follow_path(a / size, tol)
    x = nearest_correlation(x)
    t = size * t
    value = float(np.sum(x * a))
    upper = float(np.sum(t))
    return CorrelationMaximum(x, t, value, upper, (upper - value) / k, n_iter)


def nearest_correlation(x: np.ndarray) -> np.ndarray:
    """``x`` with negative eigenvalues removed and its diagonal scaled to one."""
    root = psd_factor(sym(x))
    size = np.linalg.norm(root, axis=1)
    empty = size == 0.0
    root = root / np.where(empty, 1.0, size)[:, None]
    return root @ root.T + np.diag(empty.astype(np.float64))


def dual_start(a: np.ndarray) -> np.ndarray:
    """A strictly feasible t: ``diag(t) - A`` is diagonally dominant, (k,)."""
    rows = np.sum(np.abs(a), axis=1)
    return (1.0 + DOMINANCE) * rows + DOMINANCE * np.max(rows)


class ComplementaryPair:
    """X and ``S = diag(t) - A``, both positive definite, factored once.

    Linearises ``X S = mu I`` with ``diag X = 1`` in the form of Helmberg, Rendl,
    Vanderbei and Wolkowicz (1996): ``dX = mu S^-1 - X - sym(X dS S^-1)``.

    Parameters
    ----------
    x, s : ndarray of shape (k, k)
        The pair.

    Raises
    ------
    numpy.linalg.LinAlgError
        If one of them is not positive definite.
    """

    def __init__(self, x: np.ndarray, s: np.ndarray) -> None:
        k = len(x)
        self.x, self.s = x, s
        self.x_whitener = lower_inverse(np.linalg.cholesky(x + k * NUDGE * np.eye(k)))
        self.s_whitener = lower_inverse(np.linalg.cholesky(s))
        self.s_inverse = self.s_whitener.T @ self.s_whitener
        self._schur = linalg.cho_factor(x * self.s_inverse, check_finite=False)

    @property
    def gap(self) -> float:
        """``tr(X S)``."""
        return float(np.sum(self.x * self.s))

    @property
    def off_centre(self) -> float:
        """Distance of ``X S`` from the multiples of I; 0 on the central path."""
        factor = np.linalg.cholesky(self.s)
        product = factor.T @ self.x @ factor
        mean = np.trace(product) / len(product)
        return float(np.linalg.norm(product / mean - np.eye(len(product))))

    def centring(self, mu: float, correction: np.ndarray | None = None) -> np.ndarray:
        """``mu S^-1 - X``, less the second-order term ``dX dS S^-1``, (k, k)."""
        part = mu * self.s_inverse - self.x
        return part if correction is None else part - sym(correction @ self.s_inverse)

    def diagonal_step(self, diagonals: np.ndarray) -> np.ndarray:
        """The dt for which ``X diag(dt) S^-1`` has these diagonals, (k,) or (k, m)."""
        return linalg.cho_solve(self._schur, diagonals, check_finite=False)

    def answer(self, part: np.ndarray, ds: np.ndarray) -> np.ndarray:
        """The dX that corresponds to the centring part and a step dS, (k, k)."""
        return part - sym(self.x @ ds @ self.s_inverse)

    def reach(self, dx: np.ndarray, ds: np.ndarray) -> tuple[float, float]:
        """How far X and S can move along dX and dS before they become singular."""
        return _reach(self.x_whitener, dx), _reach(self.s_whitener, ds)


def sym(matrix: np.ndarray) -> np.ndarray:
    """``(M + M') / 2``."""
    return 0.5 * (matrix + matrix.T)


def unit_diagonal(x: np.ndarray) -> np.ndarray:
    """X (k, k), symmetrised and rescaled to a diagonal of ones after rounding."""
    size = np.sqrt(np.diag(x))
    return sym(x) / (size[:, None] * size)


def _follow_path(a: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray, int]:
    """X, t and the number of iterations for ``max abs(a) = 1``."""
    k = len(a)
    x, t = np.eye(k), dual_start(a)
    best, best_gap, within_goal = (x, t), np.inf, 0
    for n_iter in range(1, MAX_CONE_STEPS + 1):
        try:
            pair = _CorrelationSystem(x, np.diag(t) - a)
        except np.linalg.LinAlgError:
            return *best, n_iter  # a small eigenvalue is lost to rounding
        size = max(float(np.sum(t)), 1.0)  # sum t >= 1 if A is positive semidefinite
        relative = pair.gap / size
        if relative < best_gap:
            best, best_gap = (x, t), relative
        if relative <= tol:
            within_goal += 1
            if pair.off_centre <= CENTRED or within_goal > MAX_CENTRING:
                return x, t, n_iter
        mu_goal = 0.5 * tol * size / k
        x, t = pair.next(t, mu_goal, late=relative <= max(LATE, tol))
    return *best, MAX_CONE_STEPS


class _CorrelationSystem(ComplementaryPair):
    """The conditions linearised at a pair; a step is (dX, dt) with ``diag dX = 0``."""

    def solve(self, mu: float, before: _Step | None = None) -> _Step:
        correction = None if before is None else before[0] * before[1]  # dX diag(dt)
        part = self.centring(mu, correction)
        dt = self.diagonal_step(np.diag(part))
        return self.answer(part, np.diag(dt)), dt

    def mu(self, step: _Step | None = None) -> float:
        x, s = self.x, self.s
        if step is not None:
            length_x, length_t = self.lengths(step)
            x, s = x + length_x * step[0], s + length_t * np.diag(step[1])
        return float(np.sum(x * s)) / len(x)

    def lengths(self, step: _Step, share: float = 1.0) -> tuple[float, float]:
        """Step lengths of X and t: a share of the way to the boundary, at most 1."""
        reach_x, reach_t = self.reach(step[0], np.diag(step[1]))
        return min(1.0, share * reach_x), min(1.0, share * reach_t)

    def next(self, t: np.ndarray, mu_goal: float, late: bool) -> _Step:
        """X and t after Mehrotra's step, or after a short one along the central path.

        The latter still works close to the limit set by rounding.
        """
        share = TO_CONE_BOUNDARY
        if late:
            shrink = SHORT if self.off_centre < 0.5 else 1.0
            step = self.solve(max(shrink * self.mu(), mu_goal))
        else:
            predictor, mu = predict(self, mu_goal)
            share += BOLDER * min(self.lengths(predictor))
            step = self.solve(mu, predictor)
        length_x, length_t = self.lengths(step, share)
        return unit_diagonal(self.x + length_x * step[0]), t + length_t * step[1]


def _reach(whitener: np.ndarray, step: np.ndarray) -> float:
    """The largest t with ``L L' + t step`` positive semidefinite."""
    smallest = float(np.linalg.eigvalsh(sym(whitener @ step @ whitener.T))[0])
    return -1.0 / smallest if smallest < 0 else np.inf

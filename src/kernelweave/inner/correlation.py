"""The largest trace against a correlation matrix: the inner problem of Eq. 37."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

__all__ = ["ComplementaryPair", "CorrelationMaximum", "maximize_correlation"]

MAX_ITER = 100
#: Relative gap below which the iteration keeps close to the central path.
LATE = 1e-7
#: Reduction of the gap in one step along the path.
SHORT = 0.3
#: Distance from the central path at which the last point counts as central, and the
#: number of steps spent on getting there.
CENTRED, MAX_CENTRING = 1e-3, 4
#: What is added to X before it is factored, in units of k times machine precision.
NUDGE = 4.0 * np.finfo(np.float64).eps


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
        ``X = mu (diag(t) - A)^-1`` holds but for rounding: how blunt the maximum is.
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
        values, vectors = np.linalg.eigh(x)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        moved = root.T @ slopes @ root
        # Normal equations with a ridge for what rounding hides, refined twice.
        gram = x * x
        gram[np.diag_indices(k)] += k * 1e-15
        solver = linalg.cho_factor(gram)
        for _ in range(3):
            diagonals = np.einsum("ca,iab,cb->ic", root, moved, root, optimize=True)
            fit = linalg.cho_solve(solver, diagonals.T).T
            moved = moved - np.einsum("ca,ic,cb->iab", root, fit, root, optimize=True)
        flat = moved.reshape(m, -1)
        return flat @ flat.T / self.mu


def maximize_correlation(a: np.ndarray, tol: float = 1e-12) -> CorrelationMaximum:
    """Solve ``max { tr(X A) : X PSD, diag X = 1 }`` and its dual.

    The dual is ``min { sum t : diag(t) - A PSD }``; there is no gap between the two.
    Primal-dual interior point with Mehrotra's predictor and corrector; X and S =
    ``diag(t) - A`` stay strictly feasible, so that ``sum t - tr(X A) = tr(X S)`` is the
    gap at every step. The last steps go to the central point ``X S = mu I`` of that
    gap, where :meth:`CorrelationMaximum.curvature` is exact.

    Parameters
    ----------
    a : ndarray of shape (k, k)
        A symmetric matrix, usually positive semidefinite.
    tol : float, default=1e-12
        Gap to stop at, relative to ``sum t`` or to the largest entry of A if that is
        larger. Rounding may stop the iteration before.
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
    values, vectors = np.linalg.eigh(0.5 * (x + x.T))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    size = np.linalg.norm(root, axis=1)
    empty = size == 0.0
    root = root / np.where(empty, 1.0, size)[:, None]
    return root @ root.T + np.diag(empty.astype(np.float64))


def dual_start(a: np.ndarray) -> np.ndarray:
    """A strictly feasible t: ``diag(t) - A`` is diagonally dominant, (k,)."""
    rows = np.sum(np.abs(a), axis=1)
    return 1.1 * rows + 0.1 * np.max(rows)


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
        self.x_whitener = _inverse_factor(x + k * NUDGE * np.eye(k))
        self.s_whitener = _inverse_factor(s)
        self.s_inverse = self.s_whitener.T @ self.s_whitener
        self._schur = linalg.cho_factor(x * self.s_inverse, check_finite=False)

    @property
    def gap(self) -> float:
        """``tr(X S)``."""
        return float(np.sum(self.x * self.s))

    @property
    def off_centre(self) -> float:
        """How far ``X S`` is from a multiple of the identity; 0 on the central path."""
        factor = np.linalg.cholesky(self.s)
        product = factor.T @ self.x @ factor
        mean = np.trace(product) / len(product)
        return float(np.linalg.norm(product / mean - np.eye(len(product))))

    def centring(self, mu: float, correction: np.ndarray | None = None) -> np.ndarray:
        """``mu S^-1 - X``, less the second-order term ``dX dS S^-1``, (k, k)."""
        part = mu * self.s_inverse - self.x
        return part if correction is None else part - sym(correction @ self.s_inverse)

    def diagonal_step(self, diagonals: np.ndarray) -> np.ndarray:
        """The dt whose ``X diag(dt) S^-1`` has these diagonals, (k,) or (k, m)."""
        return linalg.cho_solve(self._schur, diagonals, check_finite=False)

    def answer(self, part: np.ndarray, ds: np.ndarray) -> np.ndarray:
        """The dX that goes with the centring part and a step dS, (k, k)."""
        return part - sym(self.x @ ds @ self.s_inverse)

    def lengths(self, dx: np.ndarray, ds: np.ndarray) -> tuple[float, float]:
        """How far X and S can go along dX and dS before they turn singular."""
        return _reach(self.x_whitener, dx), _reach(self.s_whitener, ds)


def sym(matrix: np.ndarray) -> np.ndarray:
    """``(M + M') / 2``."""
    return 0.5 * (matrix + matrix.T)


def to_boundary(length: float, other: float) -> float:
    """The share of the way to the boundary, bolder when the predictor got far."""
    return 0.9 + 0.09 * min(length, other, 1.0)


def _follow_path(a: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray, int]:
    """X, t and the number of iterations for ``max abs(a) = 1``."""
    k = len(a)
    x, t = np.eye(k), dual_start(a)
    best, best_gap, within_goal = (x, t), np.inf, 0
    for n_iter in range(1, MAX_ITER + 1):
        try:
            pair = ComplementaryPair(x, np.diag(t) - a)
        except np.linalg.LinAlgError:
            return *best, n_iter  # rounding ate what was left of a small eigenvalue
        size = max(float(np.sum(t)), 1.0)  # sum t >= 1 if A is positive semidefinite
        relative = pair.gap / size
        if relative < best_gap:
            best, best_gap = (x, t), relative
        if relative <= tol:
            within_goal += 1
            if pair.off_centre <= CENTRED or within_goal > MAX_CENTRING:
                return x, t, n_iter
        mu_goal = 0.5 * tol * size / k
        if relative > max(LATE, tol):
            x, t = _predictor_corrector(pair, t, mu_goal)
        else:
            x, t = _short_step(pair, t, mu_goal)
    return *best, MAX_ITER


def _predictor_corrector(
    pair: ComplementaryPair, t: np.ndarray, mu_goal: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mehrotra's step: see how far ``mu_goal`` can be reached, then centre to match."""
    dx, dt = _direction(pair, pair.centring(mu_goal))
    reach_x, reach_t = pair.lengths(dx, np.diag(dt))
    length_x, length_t = min(1.0, reach_x), min(1.0, reach_t)
    after = np.sum((pair.x + length_x * dx) * (pair.s + length_t * np.diag(dt)))
    shrink = (max(float(after), 0.0) / pair.gap) ** 3
    mu = max(shrink * pair.gap / len(t), mu_goal)
    part = pair.centring(mu, dx * dt)
    return _move(pair, t, part, to_boundary(length_x, length_t))


def _short_step(
    pair: ComplementaryPair, t: np.ndarray, mu_goal: float
) -> tuple[np.ndarray, np.ndarray]:
    """A step along the central path: what still works when rounding is near."""
    shrink = SHORT if pair.off_centre < 0.5 else 1.0
    part = pair.centring(max(shrink * pair.gap / len(t), mu_goal))
    return _move(pair, t, part, to_boundary(0.0, 0.0))


def _move(
    pair: ComplementaryPair, t: np.ndarray, part: np.ndarray, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """X and t after a step with the given centring part."""
    dx, dt = _direction(pair, part)
    reach_x, reach_t = pair.lengths(dx, np.diag(dt))
    x = sym(pair.x + min(1.0, share * reach_x) * dx)
    size = np.sqrt(np.diag(x))  # 1 but for rounding
    return x / (size[:, None] * size), t + min(1.0, share * reach_t) * dt


def _direction(
    pair: ComplementaryPair, part: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(dX, dt) that keep the diagonal of X."""
    dt = pair.diagonal_step(np.diag(part))
    return pair.answer(part, np.diag(dt)), dt


def _inverse_factor(matrix: np.ndarray) -> np.ndarray:
    """``L^-1`` of ``matrix = L L'``."""
    factor = np.linalg.cholesky(matrix)
    identity = np.eye(len(matrix))
    return linalg.solve_triangular(factor, identity, lower=True, check_finite=False)


def _reach(whitener: np.ndarray, step: np.ndarray) -> float:
    """The largest t with ``L L' + t step`` positive semidefinite."""
    smallest = float(np.linalg.eigvalsh(sym(whitener @ step @ whitener.T))[0])
    return -1.0 / smallest if smallest < 0 else np.inf

"""Weights of a mixture whose experts may be missing: EM, and stacking."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernelweave._array import (
    Array,
    as_float,
    from_numpy,
    namespace,
    psd_factor,
    to_numpy,
)
from kernelweave._tolerances import INVERTIBLE_SQUARE
from kernelweave.inner.least_distance import cone_multipliers
from kernelweave.solvers.loop import Callback, LocalLoop, Step
from kernelweave.solvers.solve import LocalSolution

#: The longest extrapolation of EM, in steps, and the share of a weight that it keeps.
LONGEST, KEEPS = 256.0, 1e-2
#: What the stationarity of weights is, in words.
CHANGE_BY_STEP = "a step changes no weight by more than {size:.1e}"
#: Added to the diagonal of the moments, relative to its mean: equal experts then share
#: the weight.
SHARING = 1e-10


def truncated_em(
    log_density: Array,
    observed: np.ndarray,
    prior: float = 0.0,
    tol: float = 1e-6,
    max_iter: int = 20_000,
    callback: Callback | None = None,
    row_weights: np.ndarray | None = None,
) -> LocalSolution:
    """Maximise ``sum_i r_i log [ sum_{l in O_i} w_l p_il / sum_{l in O_i} w_l ]``.

    Row i carries information only about its own experts ``O_i``. Mean responsibilities
    would favour experts that are observed more often; adding the share that the missing
    ones would have received, ::

        w_l  ~  sum_{i: l in O_i} r_i gamma_il  +  kappa
                + sum_{i: l not in O_i} r_i w_l / W_i

    with ``W_i = sum_{l in O_i} w_l``, makes every step increase the likelihood. Without
    a prior it is flat where all experts of some row vanish, and steps become short
    there; so every two steps are extrapolated, provided that the likelihood improves
    (Varadhan and Roland 2008). Sums over rows are taken on the device of the densities,
    in float64.

    Parameters
    ----------
    log_density : array of shape (n, p)
        ``log p_il``; unobserved entries are not read.
    observed : ndarray of bool of shape (n, p)
        Which experts each row has; at least one per row.
    prior : float, default=0
        kappa, the exponent of the Dirichlet prior minus 1.
    tol : float, default=1e-6
        Stationarity to reach.
    max_iter : int, default=20000
        Maximum number of evaluations.
    callback : callable, optional
        Called with a :class:`TraceRow` every few steps; a true result stops the search.
    row_weights : ndarray of shape (n,), optional
        r > 0, how often each row counts; once by default.

    Returns
    -------
    LocalSolution
        The value is the negative log likelihood per row, prior included; the
        stationarity is the largest relative growth of a weight in the next step. The
        problem is not concave, so there is no bound on the optimum.
    """
    problem = _Truncated(log_density, observed, prior, row_weights)
    loop = LocalLoop[np.ndarray](tol, max_iter, callback, CHANGE_BY_STEP)
    last = loop.run(problem.steps(observed.shape[1]))
    return LocalSolution(
        weights=last.point,
        value=last.value,
        stationarity=last.stationarity,
        converged=loop.converged,
        status=loop.status,
        n_iter=loop.n_iter,
        trace=tuple(loop.trace.rows),
    )


def truncated_responsibilities(
    log_density: Array, observed: np.ndarray, weights: np.ndarray
) -> Array:
    """``w_l p_il / sum_{m in O_i} w_m p_im``, (n, p); 0 where not observed."""
    ratio, _ = _ratio(log_density, observed)
    xp = namespace(ratio)
    joint = ratio * from_numpy(weights, ratio)[None, :]
    total = xp.sum(joint, axis=1, keepdims=True)
    # If all experts of a row have weight zero, they share it equally.
    alike = observed / np.maximum(np.sum(observed, axis=1, keepdims=True), 1)
    safe = xp.where(total > 0, total, xp.ones_like(total))
    return xp.where(total > 0, joint / safe, from_numpy(alike, ratio))


class _Truncated:
    """The likelihood, and the factors of one step."""

    def __init__(
        self,
        log_density: Array,
        observed: np.ndarray,
        prior: float,
        row_weights: np.ndarray | None,
    ) -> None:
        empty = np.flatnonzero(~np.any(observed, axis=1))
        if len(empty):
            raise ValueError(f"row {empty[0]} has no expert")
        self.ratio, largest = _ratio(log_density, observed)
        self.observed, self.prior = from_numpy(observed, self.ratio), prior
        counts = np.ones(len(observed)) if row_weights is None else row_weights
        self.total = float(np.sum(counts))
        self.counts = from_numpy(counts, self.ratio)
        self.unit = float(self.counts @ largest[:, 0]) / self.total

    def steps(self, n_experts: int) -> Iterator[Step[np.ndarray]]:
        """Steps from equal weights, each as long as it may be."""
        weights, n_evaluations = np.full(n_experts, 1.0 / n_experts), 1
        value, factor = self.step(weights)
        while True:
            growth = max(float(np.max(factor)) - 1.0, 0.0)
            yield Step(weights, value, stationarity=growth, n_iter=n_evaluations)
            weights, value, factor, n_evaluations = self.advance(weights, factor)

    def step(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Value at ``weights`` (p,), and the factors (p,) that multiply them."""
        xp = namespace(self.ratio)
        own = from_numpy(weights, self.ratio)
        mixed = xp.clip(self.ratio @ own, min=INVERTIBLE_SQUARE)
        share = xp.clip(self.observed @ own, min=INVERTIBLE_SQUARE)  # W_i
        safe = np.maximum(weights, INVERTIBLE_SQUARE)
        logs = float(self.counts @ (xp.log(mixed) - xp.log(share)))
        value = -self.unit - logs / self.total
        if self.prior > 0:
            value -= self.prior * float(np.sum(np.log(safe))) / self.total
        seen = (self.counts / mixed) @ self.ratio
        absent = self.counts / share
        unseen = xp.sum(absent) - absent @ self.observed
        factor = to_numpy(seen + unseen) + self.prior / safe
        # The number of unseen draws is random, so normalise by the actual sum.
        return value, factor / float(factor @ weights)

    def advance(
        self, first: np.ndarray, factor: np.ndarray
    ) -> tuple[np.ndarray, float, np.ndarray, int]:
        """Two steps, extrapolated: new weights, value, factors, evaluations."""
        second = _share(first * factor)
        value, after = self.step(second)
        third = _share(second * after)
        logs = np.log(np.maximum([first, second, third], INVERTIBLE_SQUARE))
        speed, bend = logs[1] - logs[0], logs[2] - 2 * logs[1] + logs[0]
        size = float(np.linalg.norm(bend))
        length = float(np.linalg.norm(speed)) / size if size > 0 else 1.0
        length = min(max(length, 1.0), LONGEST)
        leap = logs[0] + 2 * length * speed + length**2 * bend
        # A weight set to zero would never recover.
        ahead = _share(np.maximum(_share(np.exp(leap - np.max(leap))), KEEPS * third))
        better, grown = self.step(ahead)
        if better <= value:  # which saves two thirds of the evaluations
            return ahead, better, grown, 2
        return third, *self.step(third), 3


def _ratio(log_density: Array, observed: np.ndarray) -> tuple[Array, Array]:
    """Densities over the row maximum, 0 where not observed; logs of the row maxima."""
    xp = namespace(log_density)
    table = as_float(log_density, xp.float64)
    seen = from_numpy(observed, table, xp.bool)
    table = xp.where(seen, table, -xp.inf * xp.ones_like(table))
    largest = xp.max(table, axis=1, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
    return xp.exp(table - largest), largest


def _share(weights: np.ndarray) -> np.ndarray:
    return weights / np.sum(weights)


def residual_moments(
    residual: np.ndarray, observed: np.ndarray, row_weights: np.ndarray | None = None
) -> np.ndarray:
    """Mean products of the residuals of p experts over the rows they share, (p, p).

    Parameters
    ----------
    residual : ndarray of shape (n, p)
        Target minus leave-one-out mean; unobserved entries are not read.
    observed : ndarray of bool of shape (n, p)
        Which rows each expert has.
    row_weights : ndarray of shape (n,), optional
        How often each row counts in the means; once by default.

    Returns
    -------
    moments : ndarray of shape (p, p)
        Positive semidefinite: if missing entries made it indefinite, negative
        eigenvalues are set to zero.
    """
    each = np.ones(len(observed)) if row_weights is None else row_weights
    filled = np.where(observed, residual, 0.0)
    seen = observed.astype(np.float64)
    shared = (seen * each[:, None]).T @ seen
    moments = (filled * each[:, None]).T @ filled / np.where(shared > 0, shared, 1.0)
    if not np.all(observed):
        factor = psd_factor(moments)
        moments = factor @ factor.T
    return moments


def stack(moments: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Minimise ``w' A w`` over ``w >= 0, sum w = 1``.

    Without the sum constraint, ``min u'Au/2 - 1'u, u >= 0`` has the same solution up to
    scale; it is a non-negative least-squares problem, which an active-set method solves
    exactly.

    Parameters
    ----------
    moments : ndarray of shape (p, p)
        A, positive semidefinite: mean products of residuals.

    Returns
    -------
    weights : ndarray of shape (p,)
        The weights.
    value, lower_bound : float
        ``w'Aw``, and ``2 min_l (A w)_l - w'Aw``, which no weights can improve on.
    """
    p = len(moments)
    size = float(np.trace(moments)) / p
    if not size > 0:
        return np.full(p, 1.0 / p), 0.0, 0.0
    factor = np.linalg.cholesky(moments / size + SHARING * np.eye(p))
    goal = np.linalg.solve(factor, np.ones(p))
    scaled = cone_multipliers(factor, goal)
    weights = scaled / np.sum(scaled)
    slope = moments @ weights
    value = float(weights @ slope)
    return weights, value, 2.0 * float(np.min(slope)) - value

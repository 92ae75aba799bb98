"""Weights for several predictions on the simplex, by least squares."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

__all__ = ["residual_moments", "stack"]

#: Added to the diagonal, relative to its mean, so that equal experts share the weight.
RIDGE = 1e-10


def residual_moments(residual: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Mean products of the residuals of p experts over the rows they share, (p, p).

    Parameters
    ----------
    residual : ndarray of shape (n, p)
        Target minus leave-one-out mean; unobserved entries are not read.
    observed : ndarray of bool of shape (n, p)
        Which rows each expert has.

    Returns
    -------
    moments : ndarray of shape (p, p)
        Positive semidefinite: if missing entries made it indefinite, negative
        eigenvalues are set to zero.
    """
    filled = np.where(observed, residual, 0.0)
    seen = observed.astype(np.float64)
    pairs = seen.T @ seen
    moments = filled.T @ filled / np.maximum(pairs, 1.0)
    if not np.all(observed):
        values, vectors = np.linalg.eigh((moments + moments.T) / 2)
        moments = (vectors * np.maximum(values, 0.0)) @ vectors.T
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
    factor = np.linalg.cholesky(moments / size + RIDGE * np.eye(p))
    goal = np.linalg.solve(factor, np.ones(p))
    scaled, _ = nnls(factor.T, goal, maxiter=50 * p)
    weights = scaled / np.sum(scaled)
    slope = moments @ weights
    value = float(weights @ slope)
    return weights, value, 2.0 * float(np.min(slope)) - value

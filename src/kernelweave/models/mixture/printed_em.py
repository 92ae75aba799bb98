"""Expectation-maximisation exactly as printed, for study."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from kernelweave.exceptions import KernelWarning
from kernelweave.fits.predictive import choose_noise
from kernelweave.models.mixture.experts import ExpertPanel
from kernelweave.models.mixture.weights import Outcome
from kernelweave.solvers.em import truncated_responsibilities

__all__ = ["printed_em"]

#: Steps by default: the paper does not say how many.
STEPS = 100


def printed_em(
    model: Any, panel: ExpertPanel, like: Any
) -> tuple[np.ndarray, list[Outcome]]:
    """Zhao et al. (2009), Eqs. 13-14 and 17-20, class by class.

    Densities are those of the training rows inside the fit, and after each E-step the
    noise becomes ``sum_i gamma_il (t_i - m_il)^2 / sum_i gamma_il`` (Eq. 20). The
    likelihood has no upper bound where a kernel can interpolate, and a step may even
    decrease it; noise stops at the level that rounding resolves. Weights (p, k); the
    panel takes the noise levels found, and the densities inside the fit with them.
    """
    p, k = panel.allowed.shape
    weights, noise = np.zeros((p, k)), panel.noise.copy()
    outcomes = [_one_class(model, panel, c, weights, noise) for c in range(k)]
    floors = 0
    for e, path in panel.paths.items():
        floors += int(np.sum(noise[e] <= path.smallest_alpha))
        relative = noise[e] / path.mean_eigenvalue
        panel.settle(e, choose_noise(path, relative, "unit"), like)
        mean, variance = path.in_sample(noise[e])
        panel.log_density[panel.rows[e], e] = _log_normal(path.target - mean, variance)
    panel.paths.clear()
    end = (
        f"; {floors} of {len(panel.noise) * k} noise levels fell to the floor"
        if floors
        else ""
    )
    warnings.warn(
        "density='insample' is the algorithm as printed, for study: its likelihood is "
        f"unbounded and its weights depend on where it stops{end}",
        KernelWarning,
        stacklevel=4,
    )
    return weights, outcomes


def _one_class(
    model: Any, panel: ExpertPanel, c: int, weights: np.ndarray, noise: np.ndarray
) -> Outcome:
    """Steps for class ``c``; writes its column of ``weights`` and ``noise`` (p, k)."""
    members = np.flatnonzero(panel.allowed[:, c])
    if not len(members):
        raise ValueError(f"no kernel has rows of class {model.classes_.tolist()[c]!r}")
    seen = panel.observed[:, members]
    target = panel.target[:, c]
    share = np.full(len(members), 1.0 / len(members))
    change, value, limit = np.inf, np.nan, model.max_iter or STEPS
    step = 0
    while step < limit and change > model.tol:
        step += 1
        mean, variance = _inside(panel, members, c, noise)
        residual = target[:, None] - mean
        density = _log_normal(residual, variance)
        gamma = truncated_responsibilities(density, seen, share)
        value = -_log_likelihood(density, seen, share) / len(target)
        after = np.sum(gamma, axis=0) / np.sum(gamma)
        change, share = float(np.max(np.abs(after - share))), after
        total = np.maximum(np.sum(gamma, axis=0), np.finfo(float).tiny)
        fresh = np.sum(gamma * np.where(seen, residual**2, 0.0), axis=0) / total
        for j, e in enumerate(members):
            noise[e, c] = max(fresh[j], panel.paths[int(e)].smallest_alpha)
    weights[members, c] = share
    converged = change <= model.tol
    status = f"{'stationary' if converged else f'stopped at max_iter={limit}'}: the "
    status += f"last step changed a weight by {change:.1e}"
    nan = float("nan")
    return Outcome(weights[:, c], value, nan, converged, status, step, change)


def _inside(
    panel: ExpertPanel, members: np.ndarray, c: int, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """In-sample means and variances (n, members) of class ``c``; 0, 1 where missing."""
    shape = (len(panel.target), len(members))
    mean, variance = np.zeros(shape), np.ones(shape)
    for j, e in enumerate(members):
        path, rows = panel.paths[int(e)], panel.rows[e]
        inside = path.in_sample(noise[e])
        mean[rows, j], variance[rows, j] = inside[0][:, c], inside[1][:, c]
    return mean, variance


def _log_normal(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return -0.5 * (residual**2 / variance + np.log(2 * np.pi * variance))


def _log_likelihood(density: np.ndarray, seen: np.ndarray, share: np.ndarray) -> float:
    with np.errstate(divide="ignore"):
        joint = np.where(seen, density + np.log(share)[None, :], -np.inf)
    largest = np.max(joint, axis=1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    total = np.sum(np.exp(joint - largest), axis=1)
    return float(np.sum(np.log(total) + largest[:, 0]))

"""Frank-Wolfe: any convex set of weights, of which only a linear maximiser is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernelweave.inner.interior_point import minimize_on_simplex
from kernelweave.protocols import Criterion, Evaluation, Iterate, WeightSet
from kernelweave.solvers.newton import ALREADY_CLOSE, SUFFICIENT, safe_step

#: The model is minimised until its own gap is this share of its decrease.
FW_MODEL_SHARE = 0.01
#: Share of the start in all points, if the identity has a weight: no sum is definite
#: without it, and the certificate divides by it.
FW_INWARD = 1e-10
#: Product of a step and the change of the gradient, relative to their largest entries,
#: up to which the difference says nothing about the curvature.
NO_CURVATURE = 1e-12
FW_NO_STEP = "no step toward the minimum of the quadratic model lowers the criterion"


def frank_wolfe(criterion: Criterion, weight_set: WeightSet) -> Iterator[Iterate]:
    r"""Minimise a convex criterion J over a convex set that has a linear maximiser.

    Of the set only ``s(c) = argmax { <c, u> : u in the set }`` is used, the point where
    its support function is attained. With the gradient g_t at w_t, the linearisation
    of J is smallest at ``s_t = s(-g_t)`` and, as J is convex::

        J(u) >= J(w_t) + <g_t, u - w_t> >= J(w_t) - <g_t, w_t - s_t>   for all allowed u

    so the gap ``<g_t, w_t - s_t>`` bounds how far w_t is from optimal. Frank and Wolfe
    (1956) step towards s_t: ``w_{t+1} = w_t + gamma (s_t - w_t)``. But if the optimum
    lies inside a face, the gap shrinks like 1/t: with five kernels on the simplex, 150
    such steps do not reach 1e-4. Here evaluations of J are expensive, and the maximiser
    is not. So every step heads for the minimum over the set of the quadratic model at
    w_t instead::

        u_t = argmin  <g_t, u - w_t> + (u - w_t)' H_t (u - w_t) / 2
        w_{t+1} = w_t + gamma (u_t - w_t),    gamma = 1, 1/2, 1/4, ...

    with the first gamma that lowers J by enough. The model itself is minimised by the
    fully corrective method of Frank and Wolfe, which evaluates nothing: among the
    averages of all points found so far, u is the best one, and
    ``s(-g_t - H_t (u - w_t))`` joins these points, until the gap of the model is small.

    H_t is the exact Hessian if the criterion offers "hessian": steps are then those of
    Newton's method, and about as few. Otherwise it is the approximation of Broyden,
    Fletcher, Goldfarb and Shanno from the gradients: a gap of 1e-6 then takes up to 47
    factorisations with 20 kernels, and up to 150 with 100.

    Parameters
    ----------
    criterion, weight_set : Criterion, WeightSet
        The problem.

    Yields
    ------
    Iterate
        One per step, the first at the start.
    """
    exact = "hessian" in criterion.offers
    has_others = criterion.n_weights > criterion.n_kernels
    start = weight_set.start(criterion.n_weights)
    weights, points = start, np.empty((0, len(start)))  # (m,) and (r, m)
    state = criterion.evaluate(weights, hessian=exact)
    guess = _first_guess(weights, state.gradient)
    hessian = guess if state.hessian is None else state.hessian
    while True:
        yield Iterate.at(weights, state)
        points = np.vstack([points, weights])
        target, points = _model_minimum(weights, state, hessian, points, weight_set)
        if has_others:
            target = target + FW_INWARD * (start - target)
        decrease = float(state.gradient @ (weights - target))
        if not decrease > 0.0:  # rounding has spoilt the model: take a plain step
            target = weight_set.maximizer(-state.gradient)
            decrease = float(state.gradient @ (weights - target))
            hessian = hessian if exact else _first_guess(weights, state.gradient)
        if not decrease > 0.0:
            return
        step = target - weights
        end, after = _lower(criterion, weights, state, step, decrease)
        if after.hessian is None:
            change = after.gradient - state.gradient
            hessian = _updated(hessian, end - weights, change)
        else:
            hessian = after.hessian
        weights, state = end, after


def _model_minimum(
    weights: np.ndarray,
    state: Evaluation,
    hessian: np.ndarray,
    points: np.ndarray,
    weight_set: WeightSet,
) -> tuple[np.ndarray, np.ndarray]:
    """The minimum of the quadratic model at ``weights`` (m,) over the set.

    Parameters
    ----------
    weights : ndarray of shape (m,)
        w_t.
    state : Evaluation
        The criterion at w_t.
    hessian : ndarray of shape (m, m)
        H_t.
    points : ndarray of shape (r, m)
        Points of the set to begin with, w_t among them.
    weight_set : WeightSet
        The set.

    Returns
    -------
    target : ndarray of shape (m,)
        u_t.
    points : ndarray of shape (s, m)
        The points of which u_t is an average, with positive shares.
    """
    linear = state.gradient - hessian @ weights  # the gradient of the model at zero
    largest = -np.inf
    while True:
        products = points @ hessian @ points.T
        shares = minimize_on_simplex(products, points @ linear)
        points, shares = points[shares > 0.0], shares[shares > 0.0]
        target = shares @ points / np.sum(shares)
        step = target - weights
        bend = hessian @ step
        slope = state.gradient + bend
        decrease = -float(state.gradient @ step + 0.5 * step @ bend)
        further = weight_set.maximizer(-slope)
        gap = float(slope @ (target - further))
        # A decrease that no longer grows has reached the limits of rounding.
        if gap <= FW_MODEL_SHARE * decrease or not decrease > largest:
            return target, points
        largest = decrease
        points = np.vstack([points, further])


def _lower(
    criterion: Criterion,
    weights: np.ndarray,
    state: Evaluation,
    step: np.ndarray,
    decrease: float,
) -> tuple[np.ndarray, Evaluation]:
    """The end of the longest step that lowers J by a share of ``decrease``, its slope.

    Near the optimum, where rounding decides, it need only not raise J.
    """
    exact = "hessian" in criterion.offers
    noise = ALREADY_CLOSE * abs(state.value)

    def accept(share: float, _trial: np.ndarray, after: Evaluation) -> bool:
        enough = after.value <= state.value - SUFFICIENT * share * decrease
        return enough or (decrease <= noise and after.value <= state.value + noise)

    _, end, tried = safe_step(
        lambda trial: criterion.evaluate(trial, hessian=exact),
        lambda share: weights + share * step,
        accept,
        FW_NO_STEP,
    )
    count = sum(after.n_factorizations for after in tried)
    return end, replace(tried[-1], n_factorizations=count)


def _first_guess(weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """A Hessian (m, m) by which a step as long as the weights changes the gradient.

    It is that of ``1 / w``, up to a factor of 2, where all weights are equal.
    """
    largest = float(np.max(np.abs(gradient))) or 1.0  # its square may overflow
    size = largest * float(np.linalg.norm(gradient / largest) / np.linalg.norm(weights))
    return (size or 1.0) * np.eye(len(weights))


def _updated(hessian: np.ndarray, step: np.ndarray, change: np.ndarray) -> np.ndarray:
    """The BFGS update of a Hessian (m, m): ``hessian @ step`` becomes ``change``."""
    product = float(step @ change)
    size = float(np.max(np.abs(step)) * np.max(np.abs(change)))
    if not product > NO_CURVATURE * size:
        return hessian
    image = hessian @ step
    removed = image / float(step @ image) ** 0.5
    added = change / product**0.5  # its squares stay in range
    return hessian - np.outer(removed, removed) + np.outer(added, added)

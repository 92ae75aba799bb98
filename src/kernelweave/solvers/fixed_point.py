"""Fixed-point iterations in the weights: the closed-form block update, and EM."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kernelweave.protocols import Criterion, Iterate, NormSet, WeightSet
from kernelweave.solvers.newton import best_for_parts


def closed_form(criterion: Criterion, weight_set: NormSet) -> Iterator[Iterate]:
    """Alternate between the dual point and ``w_i ~ (w_i^2 s_i)^(1/(q+1))``.

    In block form the problem is ``min sum_i norm(f_i)^2 / w_i + loss(sum_i f_i)``
    jointly in w and the parts f_i, and ``norm(f_i)^2 = w_i^2 s_i`` with the scores
    ``s_i = -dJ/dw_i``. For fixed parts the best w is given by the formula above; for
    fixed w the best parts cost one factorisation. Each half step decreases the value,
    but convergence is linear, and slow as q tends to 1.

    Yields
    ------
    Iterate
        One per evaluation.
    """
    return _repeat(
        criterion, weight_set, lambda w, scores: best_for_parts(w, scores, weight_set)
    )


def em(criterion: Criterion, weight_set: NormSet) -> Iterator[Iterate]:
    """``w_l^q <- w_l g_l / sum_m w_m g_m`` with the scores ``g = -dJ/dw``.

    For :class:`~kernelweave.criteria.mixture.MixtureLikelihood` this is an E-step and
    an M-step in one: on the simplex the new weights are the mean responsibilities plus
    the prior's contribution. Every step increases the likelihood; at the optimum no
    score exceeds the mean score, which is the condition that the certificate measures.
    Convergence is linear, and slow where weights tend to zero.

    Yields
    ------
    Iterate
        One per evaluation.
    """
    q = weight_set.norm
    return _repeat(criterion, weight_set, lambda w, scores: (w * scores) ** (1.0 / q))


def _repeat(
    criterion: Criterion,
    weight_set: WeightSet,
    update: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Iterator[Iterate]:
    """Scale ``update(weights, scores)``, all (m,), onto the set, again and again."""
    weights = weight_set.start(criterion.n_weights)
    while True:
        state = criterion.evaluate(weights, hessian=False)
        yield Iterate.at(weights, state)
        weights = weight_set.scale(update(weights, np.maximum(-state.gradient, 0.0)))

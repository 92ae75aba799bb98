"""The closed-form block update of the weights, for every norm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernelweave.protocols import Criterion, Iterate, NormSet

__all__ = ["closed_form"]


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
    q = weight_set.norm
    weights = weight_set.start(criterion.n_weights)
    while True:
        state = criterion.evaluate(weights, hessian=False)
        yield Iterate.at(weights, state)
        if weight_set.is_point(len(weights)):
            return
        scores = np.maximum(-state.gradient, 0.0)
        weights = weight_set.scale((weights**2 * scores) ** (1.0 / (q + 1.0)))

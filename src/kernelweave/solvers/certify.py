"""The certificate: one function that checks every solver from outside."""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array
from kernelweave._tolerances import ALLOWED_VIOLATION
from kernelweave.protocols import Criterion, WeightSet

__all__ = ["certify", "relative_gap"]


def certify(
    criterion: Criterion,
    weight_set: WeightSet,
    weights: np.ndarray,
    coef: Array,
    dual: Array | None = None,
) -> tuple[float, float, float]:
    """Bounds on ``J(weights)`` and on the optimum, valid for any dual points.

    For criteria ``J(w) = max_a [ linear(a) - <w, scores(a)> ]`` every dual point a
    gives ``min J >= linear(a) - support(scores(a))``, however inaccurate it is, and
    ``coef`` likewise gives an upper bound on ``J(weights)``. No figure reported by the
    solver is used. All arithmetic is in float64, whatever the dtype of the kernels.

    Parameters
    ----------
    criterion, weight_set : Criterion, WeightSet
        The problem.
    weights : ndarray of shape (m,)
        Weights in the set.
    coef : array
        A dual point for the upper bound.
    dual : array, optional
        A dual point for the lower bound; by default ``coef``.

    Returns
    -------
    value, lower_bound, gap : float
        The upper bound, the lower bound and their relative difference.

    Raises
    ------
    ValueError
        If the weights are not in the set, so that nothing can be certified.
    """
    violation = weight_set.violation(weights)
    if not violation <= ALLOWED_VIOLATION:
        raise ValueError(
            f"the weights violate {weight_set!r} by {violation:.3g}; "
            "only allowed weights can be certified"
        )
    terms = criterion.certificate_terms(weights, coef, coef if dual is None else dual)
    lower = terms.bound(weight_set)
    return terms.upper, lower, relative_gap(terms.upper, lower)


def relative_gap(value: float, lower_bound: float) -> float:
    """``(value - lower_bound) / abs(value)``, 0 / 0 = 0; infinite if the value is."""
    if np.isinf(value):
        return np.inf
    difference = value - lower_bound
    return (
        difference / abs(value) if value != 0 else (0.0 if difference == 0 else np.inf)
    )

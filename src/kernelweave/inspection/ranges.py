"""Which weights are nearly as good as the best ones? Ranges that the bounds prove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from kernelweave.inspection._level_set import RESOLUTION, LevelSet
from kernelweave.inspection._problem import problem_of
from kernelweave.protocols import Criterion, WeightSet


def weight_ranges(
    model: Any, X: Any, y: Any, *, within: float = 0.01
) -> list[dict[str, Any]]:
    """How far the share of each view can move before the criterion gets worse.

    For a criterion J over a weight set W with optimum J*, the smallest and the largest
    share of each view v over all weights that are nearly optimal::

        min, max  sum_{i in v} w_i / sum_i w_i   s.t.  w in W,  J(w) <= (1 + within) J*

    Every dual point of the criterion gives a bound ``J(w) >= linear - <w, scores>`` for
    all w, so the weights allowed here lie in the polytope of all
    ``linear_j - <w, scores_j> <= (1 + within) J*``. The best share over the polytope is
    a linear program (after ``u = w / sum_i w_i``), and its dual a proof that no allowed
    weights lie outside. The segment from the optimum to its solution leaves the level
    set at a point that reaches the level; the bound there is the next constraint. This
    repeats until the proven and the reached share agree to 0.002. For a norm q > 1 the
    ball is described by tangents ``<g, w> <= 1`` with ``norm_q*(g) = 1`` at the points
    found, in the same loop.

    A wide range means that weight can move to another view at almost no cost, as
    between copies of a view; a narrow one, that the criterion determines the share. The
    ranges are exact statements about the training rows. They say nothing about other
    samples: see :func:`weight_intervals`.

    Parameters
    ----------
    model : estimator
        Fitted ``MultipleKernelFDA``, ``MultipleKernelRidge``, ``MultipleKernelSVC`` or
        ``KernelAlignment``, or a Pipeline or search that ends in one.
    X, y : array-like
        Rows and targets that it was fitted on, in their order; others are refused.
    within : float, default=0.01
        The relative distance of the criterion from its optimum that is allowed.

    Returns
    -------
    rows : list of dict
        One row per view: ``view``, ``weight`` (its entry of ``view_weights_``),
        ``share``, ``low`` and ``high`` (the proven range of the share),
        ``reached_low`` and ``reached_high`` (shares of weights that were found), and
        ``attained`` (whether both ends are reached to within 0.002). With ``norm=1``,
        shares and weights are the same.

    See Also
    --------
    weight_intervals : How the shares vary from sample to sample.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.inspection import weight_ranges
    >>> X, y = load_wine(return_X_y=True)
    >>> X = np.hstack([X, X[:, :6]])
    >>> views = [
    ...     ("a", "linear", slice(0, 6)),
    ...     ("b", "linear", slice(6, 13)),
    ...     ("copy of a", "linear", slice(13, 19)),
    ... ]
    >>> model = MultipleKernelFDA(views, norm=1, alpha=0.1).fit(X, y)
    >>> [bool(row["low"] < 0.01) for row in weight_ranges(model, X, y)]
    [True, False, True]
    """
    problem = problem_of(model, X, y, "weight_ranges")
    criterion = problem.criterion(problem.bank, np.arange(problem.n_rows))
    fitted = problem.model
    owners = np.array(problem.views)
    groups = {name: np.flatnonzero(owners == name) for name in problem.names}
    ranges = criterion_ranges(
        criterion, fitted._weight_set, groups=groups, within=within
    )
    return [
        {
            "view": name,
            "weight": float(fitted.view_weights_[name]),
            "share": float(fitted.view_shares_[name]),
            **ranges[name],
        }
        for name in problem.names
    ]


def criterion_ranges(
    criterion: Criterion,
    weights: WeightSet,
    *,
    groups: Mapping[str, Sequence[int] | np.ndarray] | None = None,
    within: float = 0.01,
) -> dict[str, Bunch]:
    """Ranges of the shares of groups of kernels over all nearly optimal weights.

    Parameters
    ----------
    criterion : Criterion
        What makes a sum of kernels good.
    weights : WeightSet
        A set of non-negative weights: linear constraints, such as ``Simplex()`` and
        ``CappedSimplex(0.5)``, or an ``LpBall``.
    groups : dict of str to indices, default=None
        The kernels of each group, numbered from 0; None makes each kernel a group.
    within : float, default=0.01
        The relative distance of the criterion from its optimum that is allowed.

    Returns
    -------
    ranges : dict of str to Bunch
        For each group ``low`` and ``high``: no allowed weights within the level have a
        share outside this range, as linear programming duality proves from bounds on
        the criterion. ``reached_low`` and ``reached_high`` are the smallest and the
        largest share among weights found within the level, and ``attained`` says
        whether both ends are reached to within 0.002.
    """
    if not (np.isfinite(within) and within > 0):
        raise ValueError(f"within must be a number > 0, got {within!r}")
    if "polyhedron" not in weights.offers:
        raise ValueError(
            f"ranges are computed over non-negative weights within linear constraints "
            f"or a ball of one norm; {weights!r} is neither"
        )
    if groups is None:
        groups = {f"kernel {i}": [i] for i in range(criterion.n_kernels)}
    region = LevelSet(criterion, weights, within)
    answers = {}
    for name, members in groups.items():
        chosen = np.zeros(region.m)
        chosen[region.first + np.asarray(members, dtype=int)] = 1.0
        low, reached_low = region.extreme(chosen, -1.0)
        high, reached_high = region.extreme(chosen, 1.0)
        answers[name] = Bunch(
            low=low,
            high=high,
            reached_low=reached_low,
            reached_high=reached_high,
            attained=max(reached_low - low, high - reached_high) <= RESOLUTION,
        )
    return answers

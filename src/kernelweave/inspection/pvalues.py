"""Does a view have more weight than a useless view of the same kind would have?"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln
from sklearn.utils import check_random_state

from kernelweave._array import namespace
from kernelweave._text import counted, some
from kernelweave.exceptions import require_count
from kernelweave.fits.design import RowDesign
from kernelweave.inspection._problem import problem_of
from kernelweave.inspection._rows import design_for
from kernelweave.kernels import DenseBank
from kernelweave.kernels.spec import sees_targets

#: With fewer orders of the rows than this, no p-value could be 0.05 or less.
FEWEST_ORDERS = 20


def view_pvalues(
    model: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    n_decoys: int = 39,
    random_state: Any = None,
) -> dict[str, float]:
    """The p-value of each view: how often does a shuffled copy get as much weight?

    The weights are learned again with a decoy for every view: a copy whose rows are in
    random order, which has the same kernels but is unrelated to the target. After R
    such solves with new orders, and with ``w_v(r)`` and ``d_v(r)`` the shares
    of view v and of its own decoy in solve r::

        p_v = (1 + number of r with d_v(r) >= w_v(r)) / (1 + R)

    Ties, as between two shares of zero, count against the view.

    **Why this is valid.** The hypothesis is that the view is independent of the target,
    of all other views and of the row weights, which stay in place when the rows of a
    decoy move. Then the view and its R decoys are exchangeable, and any two of them
    could have met in a solve. Think of all R + 1 as players in a tournament: at
    most ``2 l + 1`` of them can lose l games or fewer, so the view is one of these with
    probability at most ``(2 l + 1) / (R + 1)``, and ``P(p_v <= a) < 2 a`` for every a,
    number of rows and kernel. Usually it is about a. Measured with the defaults on
    views of 2 to 10 columns and 80 rows, junk views had ``p <= 0.05`` in 3.4 % of the
    cases if all views were junk (1.1 % among real views with norm 2, 4 % for
    ``KernelAlignment``), while real views had it in 96 %. With 50 views and 30 rows it
    was 3 % of the junk views, and none after the correction below. Views are not
    compared with the decoys of other views: the weight of a useless view depends on
    the spectrum of its kernels, since wide views act like more regularisation. Pooled
    decoys gave ``p <= 0.1`` in 22 % of the cases for junk views of 10 columns, but in
    7 % for those of 2.

    **Groups.** Rows of one patient or site resemble each other, so they are not
    exchangeable with those of others: with 8 or 20 groups of 5 rows that had one label
    and a correlation of 0.5 or 0.9, junk views had ``p <= 0.05`` in 41 to 72 % of the
    cases. With ``groups`` it was 2 to 6 % (3 views, 40 samples). Groups of the same
    size then change places as wholes, and rows change places within their group. The
    argument above holds for these orders, drawn evenly, if a view would be as likely
    with any of them: if groups of the same size are exchangeable, as groups sampled
    independently are, and if the rows of a group are in no particular order, as
    repeated measurements are, but not the steps of a time series. A group whose size no
    other group has stays where it is, and only its rows are shuffled: the p-values are
    valid, but the test has less power. Groups are refused if the targets do not vary
    within them and fewer than 20 orders of the groups are left.

    **What it does not say.** A small p-value means that the view is related to the
    target or to other views that are. It does not mean that predictions need it, which
    is the question of :func:`view_ablation`: two copies of a good view both have small
    p-values. A large one means that these rows show no relation. The p-values are not
    corrected for the number of views: for the probability of any false discovery among
    v views to be at most about a, require ``p <= a / v``, which takes
    ``n_decoys >= v / a``.

    Parameters
    ----------
    model : estimator
        Fitted ``MultipleKernelFDA``, ``MultipleKernelRidge``, ``MultipleKernelSVC`` or
        ``KernelAlignment`` (of any norm below infinity), or a Pipeline or search that
        ends in one. Norm, kernel parameters and alpha (or C) are those of the fit.
    X, y : array-like
        Rows and targets that it was fitted on, in their order; others are refused.
    groups : array-like of shape (n,), default=None
        The group of each row; decoys keep the rows of a group together. None: each row
        is a group of its own.
    n_decoys : int, default=39
        Number of decoys R of each view, one solve for each; the smallest possible
        p-value is ``1 / (R + 1)``.
    random_state : int, RandomState instance or None, default=None
        Source of randomness for the orders.

    Returns
    -------
    pvalues : dict of str to float
        The p-value of each view, in the order of the views.

    References
    ----------
    Barber, Candes, Ramdas, Tibshirani. Predictive inference with the jackknife+.
    Annals of Statistics 49, 2021. (The tournament.)

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.inspection import view_pvalues
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 4)), np.repeat([0, 1], 30)
    >>> X[:, :2] += 2 * y[:, None]
    >>> views = [("real", "linear", [0, 1]), ("junk", "linear", [2, 3])]
    >>> model = MultipleKernelFDA(views, norm=1).fit(X, y)
    >>> p = view_pvalues(model, X, y, n_decoys=19, random_state=0)
    >>> p["real"]
    0.05
    """
    require_count(1, n_decoys=n_decoys)
    problem = problem_of(model, X, y, "view_pvalues")
    if problem.model.kernel_map_.repairs:
        raise ValueError(
            "view_pvalues needs views that can be shuffled on their own, but with "
            "missing='available' the gaps of a view were filled from the others; use "
            "missing='zero'"
        )
    for view in problem.model._views:
        if sees_targets(view.kernel):
            raise ValueError(
                f"view_pvalues compares views with shuffled copies of themselves, but "
                f"the transformer of the view {view.name!r} was fitted to y, which its "
                "copies know as well. Use a transformer that does not need y, or "
                "view_permutation_importance on held-out rows"
            )
    bank, p, n = problem.bank, problem.bank.n_kernels, problem.n_rows
    does = "shuffles whole groups"
    design = design_for(problem.model, groups, n, "view_pvalues", does)
    blocks = _blocks(problem.targets, design)
    rng = check_random_state(random_state)
    real = [bank.kernel(i) for i in range(p)]
    names = [*bank.names, *(f"decoy of {name}" for name in bank.names)]
    losses = np.zeros(len(problem.names))
    for _ in range(n_decoys):
        orders = {name: _order(blocks, n, rng) for name in problem.names}
        both = namespace(bank.like).stack([*real, *problem.shuffled(orders)])
        weights = np.abs(problem.weights(DenseBank(both, names), np.arange(n)))
        part = float(np.sum(weights[:p])) / (float(np.sum(weights)) or 1.0)
        own, decoys = problem.shares(weights[:p]), problem.shares(weights[p:])
        losses += (1.0 - part) * decoys >= part * own
    values = (1.0 + losses) / (1.0 + n_decoys)
    return dict(zip(problem.names, values.tolist(), strict=True))


def _blocks(targets: np.ndarray, design: RowDesign) -> list[np.ndarray]:
    """The rows of the m groups of each size s, as (m, s).

    Groups are refused if too few orders of their rows can be told from one another.
    """
    members = design.members
    sizes = [len(rows) for rows in members]
    blocks = [
        np.stack([rows for rows in members if len(rows) == size])
        for size in sorted(set(sizes))
    ]
    of_groups = float(np.sum([gammaln(len(block) + 1.0) for block in blocks]))
    vary = [bool(np.any(targets[rows] != targets[rows[0]])) for rows in members]
    of_rows = float(np.sum(gammaln(np.add(sizes, 1.0))[vary]))
    if design.groups is not None and of_groups + of_rows < np.log(FEWEST_ORDERS):
        raise ValueError(
            "view_pvalues lets groups of the same size change places, and there are "
            f"only {counted(round(np.exp(of_groups)), 'order')} of the "
            f"{counted(len(sizes), 'group')} of {some(map(str, sizes))} rows, too few "
            f"for a p-value of {1 / FEWEST_ORDERS:g}. Use more groups, or keep the "
            "same number of rows of each"
        )
    return blocks


def _order(blocks: list[np.ndarray], n: int, rng: np.random.RandomState) -> np.ndarray:
    """A random order (n,): groups of the same size change places, and rows within."""
    order = np.empty(n, dtype=int)
    for block in blocks:
        moved = block[rng.permutation(len(block))]
        order[block] = [rng.permutation(rows) for rows in moved]
    return order

"""The share of each view in the combined kernel, how it varies, and a plot of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from kernelweave._text import counted
from kernelweave.exceptions import require_count
from kernelweave.inspection._figure import (
    COLORS,
    GREY,
    Drawn,
    axes,
    label_rows,
    text_beside,
)
from kernelweave.inspection._problem import WeightProblem, problem_of
from kernelweave.inspection._rows import design_for, fitted_model
from kernelweave.inspection.pvalues import view_pvalues
from kernelweave.inspection.weights import with_caution

#: A share above this counts as selected.
SELECTED = 0.01
#: Fewer rows or groups of a class than this cannot be divided into two halves.
LEAST_ROWS = 2
#: Divisions of groups that are tried for halves with rows of every class.
MOST_DIVISIONS = 100


def weight_intervals(
    model: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    n_resamples: int = 200,
    confidence: float = 0.95,
    random_state: Any = None,
) -> list[dict[str, Any]]:
    """How much the share of each view would vary between samples.

    The rows are divided at random into two halves, class by class, and the weights are
    learned on each half: the same criterion, norm and alpha (or C), with the kernels of
    the fit centred and scaled again over the rows of the half. Over many divisions the
    quantiles of a share give its interval, widened to include the share of the fit if
    need be. For a statistic that is a mean over rows, with variance ``s^2 / n``, its
    value on a random subset of b of the n rows varies with the variance::

        (s^2 / n) (n - b) / b        which is  s^2 / n  for  b = n / 2

    so halves vary around the full sample as much as samples of n rows vary around their
    mean, and no correction is needed. Subsets of 63 % vary too little (the factor is
    0.58). The bootstrap must not be used: it repeats rows, a repeated row is predicted
    perfectly by its copy under any flexible kernel, the learned alpha goes to zero, and
    all views get the same share.

    **What the interval means.** In a proportion ``confidence`` of all samples it
    contains the mean share over samples of this size from the same population. Measured
    with 5 views of 3 columns (two informative, one a noisy copy, two noise) and two
    classes, over 80 samples, the 95 % interval contained it in 97 % of the cases with
    norm 1 and 100 rows (96 % with 200 rows, 97 % with norm 2, 98 % for
    ``MultipleKernelSVC``; between 92 and 100 % for each view). Subsets of 63 % reached
    92 %, and the bootstrap shrank all shares towards one fifth. The share in another
    sample of the same size was inside in 86 to 91 % of the cases. With 3 views and 40
    rows, the coverage was 95 to 100 % for each view, on a weak signal or pure noise,
    with row weights and for ``MultipleKernelRidge``.

    **Groups.** Rows of one patient or site resemble each other, and halves that divide
    them vary too little. With 8 or 20 groups of 5 rows, whose correlation within a
    group was 0.5 or 0.9, such intervals contained the mean share in 53 to 82 % of the
    cases; with ``groups``, in 93 to 98 % (3 views, 60 samples).

    **What it does not mean.** It is not a test of whether a view is useful: a halved
    sample is noisier, so small shares come out too large (0.03 instead of 0.02 for the
    noise views), and a noise view often has an interval above zero; see
    :func:`view_pvalues`. Norm, kernel widths and standardisation are those of the fit
    and not chosen again. Copies of a view share its weight in every half, so a narrow
    interval does not mean that the data can distinguish them; see
    :func:`weight_ranges`.

    Parameters
    ----------
    model : estimator
        Fitted ``MultipleKernelFDA``, ``MultipleKernelRidge``, ``MultipleKernelSVC`` or
        ``KernelAlignment`` (of any norm below infinity), or a Pipeline or search that
        ends in one.
    X, y : array-like
        Rows and targets that it was fitted on, in their order; others are refused.
    groups : array-like of shape (n,), default=None
        The group of each row; a group is in one half as a whole. None: each row is a
        group of its own.
    n_resamples : int, default=200
        Number of halves; both halves of a division are used.
    confidence : float, default=0.95
        Probability covered by the interval.
    random_state : int, RandomState instance or None, default=None
        Source of randomness for the divisions.

    Returns
    -------
    rows : list of dict
        One row per view: ``view``, ``share`` (with all rows), ``low`` and ``high`` (the
        interval), ``selected`` (the fraction of halves in which the share exceeds 1 %)
        and ``n_resamples``. ``pandas.DataFrame(rows)`` converts them to a DataFrame.

    See Also
    --------
    weight_ranges : How far the weights can move without loss in this sample.
    view_pvalues : Whether a view has more weight than a useless one would.

    References
    ----------
    Politis, Romano, Wolf. Subsampling. Springer, 1999.

    Shah, Samworth. Variable selection with error control: another look at stability
    selection. JRSS B 75, 2013. (Pairs of complementary halves.)

    Examples
    --------
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import fetch_views
    >>> from kernelweave.inspection import weight_intervals
    >>> cancer = fetch_views("breast_cancer")
    >>> X, y = cancer.data[::3], cancer.target[::3]
    >>> model = MultipleKernelFDA(cancer.views, norm=1, cv=None).fit(X, y)
    >>> rows = weight_intervals(model, X, y, n_resamples=20, random_state=0)
    >>> all(row["low"] <= row["high"] for row in rows)
    True
    """
    require_count(2, n_resamples=n_resamples)
    if not 0 < confidence < 1:
        raise ValueError(
            f"confidence must be a number between 0 and 1, got {confidence!r}"
        )
    problem = problem_of(model, X, y, "weight_intervals")
    n, does = problem.n_rows, "divides the groups into halves"
    units = design_for(problem.model, groups, n, "weight_intervals", does).units
    members = _class_members(problem, units)
    rng = check_random_state(random_state)
    found: list[np.ndarray] = []
    while len(found) < n_resamples:
        for rows in _halves(units, members, rng):
            weights = problem.weights(problem.restricted(rows), rows)
            found.append(problem.shares(weights))
    drawn = np.array(found[:n_resamples])  # (n_resamples, v)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
    full = problem.model.view_shares_
    return [
        {
            "view": name,
            "share": full[name],
            "low": min(float(low[v]), full[name]),
            "high": max(float(high[v]), full[name]),
            "selected": float(np.mean(drawn[:, v] > SELECTED)),
            "n_resamples": int(n_resamples),
        }
        for v, name in enumerate(problem.names)
    ]


def _class_members(problem: WeightProblem, units: np.ndarray) -> np.ndarray:
    """Which of the u groups have rows of which of the k classes, bool (u, k).

    Outputs of a regression count as one class. ``units`` (n,) are the groups of the
    rows. Data whose halves could not be learned from are refused.
    """
    classes, codes = problem.classes, problem.targets
    if classes is None:
        codes = np.zeros(problem.n_rows, dtype=int)
    members = np.zeros((np.max(units) + 1, np.max(codes) + 1), dtype=bool)
    members[units, codes] = True
    what = "rows" if len(members) == len(units) else "groups"
    counts = np.sum(members, axis=0)
    smallest = int(np.argmin(counts))
    if classes is None and len(members) < 2 * LEAST_ROWS:
        raise ValueError(
            f"weight_intervals needs at least {2 * LEAST_ROWS} {what} to learn from "
            f"halves; got {len(members)}"
        )
    if classes is not None and counts[smallest] < LEAST_ROWS:
        raise ValueError(
            "weight_intervals learns from both halves of every class, so each class "
            f"needs at least {LEAST_ROWS} {what}; class {classes.tolist()[smallest]!r} "
            f"has {counts[smallest]}. Fit without that class, or with more of its rows"
        )
    return members


def _halves(
    units: np.ndarray, members: np.ndarray, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of two halves of the groups, both with rows of every class.

    Groups with rows of the same classes are divided equally.
    """
    strata = np.unique(~members, axis=0, return_inverse=True)[1].reshape(-1)  # (u,)
    for _ in range(MOST_DIVISIONS):
        first = np.zeros(len(members), dtype=bool)
        for stratum in range(np.max(strata) + 1):
            own = rng.permutation(np.flatnonzero(strata == stratum))
            extra = rng.randint(2)  # the odd one goes to either half
            first[own[: (len(own) + extra) // 2]] = True
        if np.all(members[first].any(axis=0) & members[~first].any(axis=0)):
            return np.flatnonzero(first[units]), np.flatnonzero(~first[units])
    raise ValueError(
        "weight_intervals finds no two halves of the groups that both have rows of "
        "every class; use larger or fewer classes, or groups=None"
    )


#: Height of a view in inches.
SHARE_HEIGHT = 0.34
#: A p-value up to this is printed in bold, with a bar in colour.
SIGNIFICANT = 0.05


@dataclass(kw_only=True, repr=False, eq=False)
class ViewSharesDisplay(Drawn):
    """Horizontal bars of view shares with intervals, the largest share first.

    A bar is the share of the view in the combined kernel, the line its interval over
    halves of the rows (:func:`weight_intervals`), and the column on the right says in
    how many halves the view had more than 1 % or, if p-values are given, how often a
    shuffled copy of the view gets as much weight. Only views with small p-values are
    highlighted: useless views, too, are selected in many halves.

    Parameters
    ----------
    rows : list of dict
        The records of :func:`weight_intervals`.
    pvalues : dict of str to float, default=None
        The p-values of :func:`view_pvalues`.
    title : str, default=None
        Title of the plot.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and figure of the plot.
    bars_ : matplotlib BarContainer
        The bars, from top to bottom.
    intervals_ : matplotlib ErrorbarContainer
        The intervals.
    texts_ : list of matplotlib Text
        The column on the right.

    See Also
    --------
    KernelWeightsDisplay : The weight of every kernel.

    Examples
    --------
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import fetch_views
    >>> from kernelweave.inspection import ViewSharesDisplay
    >>> cancer = fetch_views("breast_cancer")
    >>> X, y = cancer.data[::3], cancer.target[::3]
    >>> model = MultipleKernelFDA(cancer.views, norm=1, cv=None).fit(X, y)
    >>> display = ViewSharesDisplay.from_estimator(
    ...     model, X, y, n_resamples=20, random_state=0
    ... )
    >>> display.figure_.savefig("shares.png")  # doctest: +SKIP
    """

    rows: Sequence[Mapping[str, Any]]
    pvalues: Mapping[str, float] | None = None
    title: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        n_resamples: int = 200,
        confidence: float = 0.95,
        n_decoys: int | None = None,
        random_state: Any = None,
        ax: Any = None,
        max_rows: int = 30,
    ) -> ViewSharesDisplay:
        """Compute the intervals of a fitted model, and draw them.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator of this package, or a Pipeline or search that ends in one.
        X, y : array-like
            Rows and targets that it was fitted on, in their order; others are refused.
        groups, n_resamples, confidence : array-like, int, float
            See :func:`weight_intervals`.
        n_decoys : int, default=None
            If given, p-values from this many decoys are computed and shown as well.
        random_state : int, RandomState instance or None, default=None
            Source of randomness.
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.
        max_rows : int, default=30
            Maximum number of views.

        Returns
        -------
        display : ViewSharesDisplay
            The plot.
        """
        draws = {"groups": groups, "random_state": random_state}
        rows = weight_intervals(
            estimator, X, y, n_resamples=n_resamples, confidence=confidence, **draws
        )
        pvalues = None
        if n_decoys is not None:
            pvalues = view_pvalues(estimator, X, y, n_decoys=n_decoys, **draws)
        title = f"Shares of the views, {100 * confidence:g} % intervals over halves"
        title = with_caution(title, fitted_model(estimator))
        display = cls(rows=rows, pvalues=pvalues, title=title)
        return display.plot(ax=ax, max_rows=max_rows)

    def plot(self, ax: Any = None, *, max_rows: int = 30) -> ViewSharesDisplay:
        """Draw the shares.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure, tall enough for the bars.
        max_rows : int, default=30
            Maximum number of views; the last line says how many others there are.

        Returns
        -------
        display : ViewSharesDisplay
            The plot.
        """
        require_count(1, max_rows=max_rows)
        ranked = sorted(self.rows, key=lambda row: -row["share"])
        shown, others = ranked[:max_rows], ranked[max_rows:]
        size = 1.2 + SHARE_HEIGHT * (len(shown) + bool(others))
        ax = axes("ViewSharesDisplay.plot", ax, 7.0, size)
        heights = np.arange(len(shown))
        share = np.array([100 * row["share"] for row in shown])
        low = np.array([100 * row["low"] for row in shown])
        high = np.array([100 * row["high"] for row in shown])
        other = COLORS[0] if self.pvalues is None else GREY
        colors = [COLORS[0] if self._stands_out(row) else other for row in shown]
        self.bars_ = ax.barh(heights, share, height=0.62, color=colors, alpha=0.75)
        self.intervals_ = ax.errorbar(
            share,
            heights,
            xerr=[share - low, high - share],
            fmt="none",
            ecolor="black",
            elinewidth=1.1,
            capsize=4,
        )
        self.texts_ = self._write_column(ax, shown)
        labels = [str(row["view"]) for row in shown]
        if others:
            labels.append(counted(len(others), "more view"))
        label_rows(ax, np.arange(len(labels)), labels)
        longest = max(max(row["share"], row["high"]) for row in self.rows)
        ax.set_xlim(0, 100 * min(1.0, 1.05 * longest) if longest > 0 else 100)
        ax.set_xlabel("share of the combined kernel [%]")
        return self._finish(ax)

    def _stands_out(self, row: Mapping[str, Any]) -> bool:
        """Whether a view is more than noise; intervals of noise exclude zero, too."""
        return self.pvalues is not None and self.pvalues[row["view"]] <= SIGNIFICANT

    def _write_column(self, ax: Any, shown: list[Mapping[str, Any]]) -> list[Any]:
        """p-values, or how often a view is selected, in a column on the right."""
        place = {"xycoords": ax.get_yaxis_transform(), "gap": 6}
        head = "selected" if self.pvalues is None else "p-value"
        text_beside(ax, head, (1.0, -0.75), va="baseline", color="#4D4D4D", **place)
        texts = []
        for height, row in enumerate(shown):
            text = f"{100 * row['selected']:.0f} %"
            if self.pvalues is not None:
                text = f"{self.pvalues[row['view']]:.2g}"
            bold = "bold" if self._stands_out(row) else "normal"
            style = {"fontsize": 9, "fontweight": bold, **place}
            texts.append(text_beside(ax, text, (1.0, height), **style))
        return texts

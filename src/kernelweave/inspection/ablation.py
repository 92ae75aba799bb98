"""Which view can I stop measuring? Held-out losses without each view, or it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.utils import Bunch

from kernelweave._text import counted, listed
from kernelweave.inspection._figure import COLORS, GREY, label_rows, pyplot
from kernelweave.inspection._trials import Trial, Trials, Views
from kernelweave.learn.estimates import mean_over_folds

#: To be worthwhile, views must lower the loss without any view by this fraction.
WORTHWHILE_LOSS = 0.01
#: Reduction of that loss, as a fraction, that chance cannot explain.
PLAIN = 0.25
#: A set is as good as another if it predicts the same rows worse by at most so many
#: standard errors of the difference. The share of rows that are right changes in steps
#: of a row, so that more of it is chance: with 60 rows and an error rate, one standard
#: error would keep views of noise in 22 % of the cases, 1.5 in 8 %.
AS_GOOD, AS_OFTEN_RIGHT = 1.0, 1.5
#: Level of a one-sided test.
TEST_LEVEL = 0.025


def view_ablation(
    model: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    cv: Any = 5,
    cost: Mapping[str, float] | None = None,
    scoring: Any = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> Bunch:
    """What each view contributes on held-out rows, and in which order to drop views.

    The model is fitted again, with all its choices of norm and alpha, on the training
    rows of each fold and each set S of views, and judged on the rows left out::

        loss(S)      mean over folds of the held-out loss with the views S only
        without v    loss(V - v), and loss(V - v) - loss(V) fold by fold
        alone        loss({v})

    where V is the set of all views. The loss is the log loss if the model predicts
    probabilities, the mean squared error for a regression (of y in a unit that
    ``loss_name`` states, if squares could overflow; of several outputs, each divided by
    its standard deviation), and otherwise the error rate; if ``scoring`` is given,
    minus that score decides instead. Without it, rows count by the ``class_weight`` of
    the model, or so that classes have the shares given by its ``priors``, and
    ``loss_name`` says so ("balanced error rate"): losses that count all rows alike
    would call a balanced model worse than none. Classes that no fold can judge, such as
    those with a single row, count 0 and have probability 0.

    **Standard errors** are those of the mean over the folds. They have one degree of
    freedom fewer than there are folds: with five folds, intervals of two standard
    errors should cover 88 %, and of 2.8 standard errors 95 %. Measured with three views
    and 60 rows (no, one or two informative views, a rare class, regression; 600 cases),
    the rise without a view that the same models have on new rows was within two in 88 %
    of the cases and within 2.8 in 93 %, and useless views seemed useful in 4 and 2 %.
    Standard errors are 0 if all folds agree, which proves nothing.

    **Groups.** A model that has seen a patient predicts other rows of the same patient
    well, whatever the view. With ``groups``, they are held out together, and passed to
    ``fit`` if it takes them. On noise in 20 groups of 5 rows that had one label and a
    correlation of 0.5 or 0.9, views were recommended in 16 and 29 of 40 cases without
    ``groups``, and in 2 and 4 with them; with only 8 groups, in 20 and 39, and in 7 and
    7 (in 6 for 8 independent rows). Few groups are few rows: with 5, 10, 15 and 30
    groups of 4, the rise was within two standard errors in 72, 76, 75 and 80 % of 360
    cases, and within 2.8 in 81, 83, 79 and 87 %; useless views seemed useful in up to 7
    and 4 %. Standard errors over the groups, with the quantiles of as many degrees of
    freedom, cover no more (81, 81, 78 and 84 %): on average the errors are at most
    15 % too small, but one badly predicted group makes up half of their square or more,
    and a sample without such a group does not know of it.

    **The order.** Starting from all views, one is dropped at a time: the costliest of
    those whose removal does not raise the loss or, if there are none, the view with the
    smallest rise per unit of cost, ``(loss(S - v) - loss(S)) / cost_v``. Choosing the
    best of many candidates on some rows and reporting its loss on the same rows would
    be too optimistic. So for each fold the order is found again from the losses on the
    other folds, and a step is judged by the loss of that order on the fold itself.

    **The recommendation** is the smallest set of the order that predicts the same rows
    as well as others do: its loss is higher than the smallest of the order by at most
    one standard error of the difference, or 1 % of the loss without any view, and its
    accuracy lower than that of all views by at most 1.5 standard errors (R^2 by one).
    For error rates it is 1.5, too; with ``scoring``, only that score is compared.
    Losses differ from row to row far more than those of two sets on one row, so these
    errors are those of the differences row by row (group by group; of a scorer, fold by
    fold). Compared with the spread over the folds, sets that are clearly worse would
    seem as good. With one informative view of three, the others were left out in 59 of
    60 cases with 60 rows, and in 55 by the error rate of a ``MultipleKernelSVC``. A
    second, weaker view (110 rows; means of two classes 1.5 standard deviations apart,
    those of the first view 2) was kept in 56 of 60 cases, and in 50 by the spread over
    the folds; error rates tell less, and kept it in 36.

    Views leave the order one by one and never return: a set that is better than those
    of the order may not be among them. Losses without each single view are in
    ``views``.

    The recommendation is empty unless the best set of the order is clearly better
    than predicting the mean of the training rows or their class proportions, weighted
    as the model weights classes: in a t test at 2.5 % over the folds, or by a quarter.
    An error rate is compared with that of the most frequent class, and must also be
    lower by more than its standard error over the rows explains. On pure noise it was
    empty in 38 of 40 cases (4 views, 60 rows), and for error rates with few rows (3
    views, 20 rows) in 19 of 20. If the order had been judged on the rows that chose it,
    losses in the former would have been below that of no view: 0.690 instead of 0.697
    to 0.714, with log 2 = 0.693. With 3 views and 40 rows it was empty in 97 of 100
    cases for a balanced ``MultipleKernelSVC`` (10 rows of the rare class), and in 48 of
    50 each for ``MultipleKernelFDA``, balanced or with equal ``priors`` (8 rows).

    Parameters
    ----------
    model : estimator
        Fitted estimator of this package that predicts, with at least two views; or a
        Pipeline that ends in one, which is then refitted as a whole; or a search over
        one, whose best parameters are kept.
    X, y : array-like
        The rows and targets; with ``views="precomputed"`` the (n, n, p) kernels.
    groups : array-like of shape (n,), default=None
        The group of each row; a group is held out as a whole. None: each row is a group
        of its own.
    cv : int, cross-validation generator or iterable, default=5
        Folds; an int means that many shuffled ones, stratified by class, which keep
        groups together; fewer if there are fewer groups, or fewer rows of each class
        (with ``scoring``, of any class that has two).
    cost : dict of str to float, default=None
        The positive cost of measuring each view; None counts each as 1.
    scoring : str or callable, default=None
        A scikit-learn scorer; None means accuracy, in which rows count as in the loss,
        or R^2 for a regression: one minus the loss divided by that of the training
        means, the latter over all folds.
    n_jobs : int, default=None
        Number of fits in parallel, as in scikit-learn.
    random_state : int, RandomState instance or None, default=None
        Source of randomness for the folds.

    Returns
    -------
    result : Bunch
        ``views``, one record per view: ``view``, ``score_without``, ``score_alone``,
        ``loss_without``, ``loss_alone`` and ``loss_rise`` (of dropping it), each with
        its standard error as in ``loss_rise_se``, and ``cost``.

        ``order``, one record per step, the first with all views: ``dropped``, ``views``
        (those left), ``score``, ``score_se``, ``loss``, ``loss_se``, ``loss_rise`` and
        ``loss_rise_se`` (against all views, fold by fold), ``cost`` (of those left),
        ``loss_behind`` and ``loss_behind_se`` (against the best step, row by row),
        ``agreement`` (the share of the folds whose own order has the same views
        at this step) and ``gap`` (the largest gap of the certificates of the
        refits; None without certificates).

        ``recommended``, the views to keep; ``recommendation``, a sentence;
        ``loss_name``; ``baseline_loss``, that of predicting without any view;
        ``remarks``, sentences about rows that are not judged.

    Notes
    -----
    With v views, about ``v^2 / 2`` sets are fitted on every fold, and more if the folds
    disagree on the order. Rows that have none of the views in a set (see
    ``missing``) are not used in training and are predicted without any view. The refits
    ignore ``sample_weight``.

    Examples
    --------
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import fetch_views
    >>> from kernelweave.inspection import view_ablation
    >>> cancer = fetch_views("breast_cancer")
    >>> X, y = cancer.data[::8], cancer.target[::8]
    >>> model = MultipleKernelFDA(cancer.views, norm=1, cv=None).fit(X, y)
    >>> result = view_ablation(model, X, y, cv=2, random_state=0)
    >>> [len(step["views"]) for step in result.order]
    [3, 2, 1]
    """
    trials = Trials(model, X, y, cv, scoring, n_jobs, random_state, groups)
    prices = _checked_cost(cost, trials.names)
    everything = frozenset(trials.names)
    first = [everything, *(everything - {v} for v in trials.names)]
    trials.run([*first, *(frozenset([v]) for v in trials.names)])
    order, steps = _order(trials, prices)
    baseline = trials.baseline()
    negligible = WORTHWHILE_LOSS * float(np.mean(baseline))
    chosen = order[_smallest_as_good(steps, trials, negligible)]
    sentence = _recommendation(chosen, order[0], trials, cost)
    decisive = np.array([step.decisive for step in steps])
    gain, needed = _gain(decisive, baseline, _chance(trials, baseline))
    hopeless = gain < needed  # never with a scorer, for which both are NaN
    if hopeless:
        sentence = _hopeless(order, trials, baseline, needed)
    return Bunch(
        views=[_contribution(trials, view, prices[view]) for view in trials.names],
        order=order,
        recommended=[] if hopeless else chosen["views"],
        recommendation=sentence,
        loss_name=trials.loss_name,
        baseline_loss=float(np.mean(baseline)),
        remarks=trials.remarks,
    )


def _checked_cost(
    cost: Mapping[str, float] | None, names: list[str]
) -> dict[str, float]:
    """The cost of each view."""
    if cost is None:
        return dict.fromkeys(names, 1.0)
    for name in (*cost, *names):
        if name not in names:
            raise ValueError(f"cost names the view {name!r}; the views are {names}")
        if name not in cost:
            raise ValueError(f"cost has no entry for the view {name!r}")
        if not (np.isfinite(cost[name]) and cost[name] > 0):
            raise ValueError(
                f"the cost of the view {name!r} must be a finite number > 0; got "
                f"{cost[name]!r}"
            )
    return {name: float(cost[name]) for name in names}


def _path(
    trials: Trials, prices: dict[str, float], folds: np.ndarray
) -> list[tuple[str | None, Views]]:
    """The views dropped one by one, by the losses on some folds, and those left."""
    left = frozenset(trials.names)
    path: list[tuple[str | None, Views]] = [(None, left)]
    while len(left) > 1:
        views = [name for name in trials.names if name in left]
        trials.run([left - {view} for view in views])
        now = trials.result(left).decisive
        rises = {
            view: float(np.mean((trials.result(left - {view}).decisive - now)[folds]))
            for view in views
        }
        free = [view for view in views if rises[view] <= 0.0]
        if free:  # of equal cost: the one whose absence helps most
            dropped = max(free, key=lambda view: (prices[view], -rises[view]))
        else:
            dropped = min(views, key=lambda view: rises[view] / prices[view])
        left = left - {dropped}
        path.append((dropped, left))
    return path


def _order(
    trials: Trials, prices: dict[str, float]
) -> tuple[list[dict[str, Any]], list[Trial]]:
    """The order found on all folds, each step judged as :func:`view_ablation` says.

    Also returns the results of the steps.
    """
    every = np.arange(len(trials.folds))
    path = _path(trials, prices, every)
    own = [_path(trials, prices, np.delete(every, fold)) for fold in every]
    whole = trials.result(frozenset(trials.names))
    records, steps = [], []
    for step, (dropped, left) in enumerate(path):
        sets = [own[fold][step][1] for fold in every]
        # the set of each fold, on that fold
        judged = Trial.joined(trials.known[s][fold] for fold, s in enumerate(sets))
        steps.append(judged)
        gap = float(np.max(trials.result(left).gap))
        records.append(
            {
                "dropped": dropped,
                "views": [name for name in trials.names if name in left],
                **mean_and_error("score", judged.score),
                **mean_and_error("loss", judged.loss),
                **mean_and_error("loss_rise", judged.loss - whole.loss),
                "cost": float(sum(prices[name] for name in left)),
                "agreement": float(np.mean([s == left for s in sets])),
                "gap": None if np.isnan(gap) else gap,
            }
        )
    best = steps[best_of(steps)]
    for record, judged in zip(records, steps, strict=True):
        record["loss_behind"], record["loss_behind_se"] = trials.rise(judged, best)
    return records, steps


def best_of(steps: list[Trial]) -> int:
    """Which step has the smallest loss (or the largest given score)."""
    return int(np.argmin([np.mean(step.decisive) for step in steps]))


def _smallest_as_good(steps: list[Trial], trials: Trials, negligible: float) -> int:
    """The last step that predicts as well as the best step, and as all views.

    Models that are nearly the same differ by little on each row, and by little more
    than the error of that: a ``negligible`` rise of the loss is none.
    """
    best, loss_errors = steps[best_of(steps)], AS_GOOD
    if trials.is_rate:
        loss_errors = AS_OFTEN_RIGHT
    score_errors = AS_GOOD if trials.classes is None else AS_OFTEN_RIGHT
    for number in reversed(range(len(steps))):
        step = steps[number]
        if trials.scoring is not None:
            fall, error = trials.fall(step, best)
            as_good = fall <= AS_GOOD * error
        else:
            rise, rise_error = trials.rise(step, best)
            fall, fall_error = trials.fall(step, steps[0])
            as_good = rise <= max(loss_errors * rise_error, negligible)
            as_good &= fall <= score_errors * fall_error
        if as_good:
            return number
    return 0


def _contribution(trials: Trials, view: str, price: float) -> dict[str, Any]:
    """What one view adds to all others, and what it achieves alone."""
    everything = frozenset(trials.names)
    rest = trials.result(everything - {view})
    alone = trials.result(frozenset([view]))
    return {
        "view": view,
        **mean_and_error("score_without", rest.score),
        **mean_and_error("score_alone", alone.score),
        **mean_and_error("loss_without", rest.loss),
        **mean_and_error("loss_alone", alone.loss),
        **mean_and_error("loss_rise", rest.loss - trials.result(everything).loss),
        "cost": price,
    }


def mean_and_error(name: str, values: np.ndarray) -> dict[str, float]:
    """The mean over folds, under a name, and its standard error."""
    mean, error = mean_over_folds(values)
    return {name: mean, f"{name}_se": error}


def by_chance(n_folds: int) -> float:
    """How many standard errors over folds chance explains in 95 % of cases."""
    return float(student.ppf(1.0 - TEST_LEVEL, n_folds - 1))


def _chance(trials: Trials, baseline: np.ndarray) -> float:
    """How much chance alone may lower an error rate (f,); 0 for other losses.

    It changes in steps of one row, so with few rows a gain of a quarter, or folds that
    agree, are common, especially for the best of all steps.
    """
    if not trials.is_rate:
        return 0.0
    rate, rows = float(np.mean(baseline)), trials.tested
    unequal = float(np.mean(trials.each[rows] ** 2))
    n_units = len(np.unique(trials.design.units[rows]))
    error = np.sqrt(rate * (1.0 - rate) * unequal / n_units)
    return float(norm.ppf(1.0 - TEST_LEVEL / len(trials.names)) * error)


def _gain(
    decisive: np.ndarray, baseline: np.ndarray, chance: float = 0.0
) -> tuple[float, float]:
    """How much better the best step (v, f) is than no view (f,), and what is clear.

    Clear is a gain in a one-sided t test over the folds, of at least 1 %: where a
    model finds no evidence and predicts the class proportions itself, differences are
    as small as rounding. A gain of a quarter is clear even if the test, which is weak
    with three folds, does not show it: chance does not gain as much, except with error
    rates, for which ``chance`` is needed at least. With a scorer there is nothing to
    compare with, and the baseline is NaN.
    """
    difference = decisive - baseline
    best = difference[int(np.argmin(np.mean(decisive, axis=1)))]
    explained = by_chance(len(best)) * mean_over_folds(best)[1]
    least, enough = WORTHWHILE_LOSS * np.mean(baseline), PLAIN * np.mean(baseline)
    return -float(np.mean(best)), max(min(max(explained, least), enough), chance)


def _hopeless(
    order: list[dict[str, Any]], trials: Trials, baseline: np.ndarray, needed: float
) -> str:
    best = min(order, key=lambda step: float(step["loss"]))
    return (
        f"No set of views is clearly better than none: the held-out {trials.loss_name} "
        f"is {best['loss']:.3g} +- {best['loss_se']:.2g} at best, and "
        f"{np.mean(baseline):.3g} for predictions from the training targets alone. "
        f"With {counted(len(baseline), 'fold')}, a gain below {needed:.2g} may be "
        "chance. On these rows, nothing is worth measuring."
    )


def _recommendation(
    chosen: dict[str, Any],
    whole: dict[str, Any],
    trials: Trials,
    cost: Mapping[str, float] | None,
) -> str:
    """Which views to keep, and why, in words; ``whole`` is the step with all views."""
    value = "loss" if trials.scoring is None else "score"
    name = trials.loss_name if trials.scoring is None else "score"
    reached, full = (
        f"{step[value]:.3g} +- {step[f'{value}_se']:.2g}" for step in (chosen, whole)
    )
    outcome = f"held-out {name} {reached}"
    if chosen is whole:
        return (
            f"Keep all {len(trials.names)} views ({outcome}): every smaller set in the "
            "order predicts the same rows worse, by more than one standard error of "
            "the difference."
        )
    dropped = [view for view in trials.names if view not in chosen["views"]]
    saved = ""
    if cost is not None:
        part, total = sum(cost[view] for view in dropped), sum(cost.values())
        saved = f", which saves {part:.3g} of a total cost of {total:.3g}"
    return (
        f"Keep {listed(map(repr, chosen['views']))} and stop measuring "
        f"{listed(map(repr, dropped))}{saved}: {outcome}, compared with {full} with "
        "all views. It is the smallest set in the order that predicts the same rows as "
        "well as the best one, up to one standard error of the difference."
    )


#: Height of a view in inches, and of the rest of the figure.
ABLATION_HEIGHT, FRAME = 0.42, 1.5


@dataclass(kw_only=True, repr=False, eq=False)
class AblationDisplay:
    """Held-out loss without each view and with it alone, and as views are dropped.

    On the left, two points per view: the loss with all other views (filled) and with
    the view alone (open), and a line at the loss with all views. On the right, the loss
    as views are dropped from top to bottom, with a line at the smallest; the
    recommended set is marked, or the title says that there is none. Whiskers are one
    standard error: over the folds on the left, and on the right of the difference from
    the smallest loss on the same rows.

    Parameters
    ----------
    result : Bunch
        What :func:`view_ablation` returns.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes of shape (2,)
        The axes of both parts.
    figure_ : matplotlib Figure
        The figure.
    without_, alone_, order_ : matplotlib ErrorbarContainer
        The points of the left part, and those of the right.

    Examples
    --------
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import fetch_views
    >>> from kernelweave.inspection import AblationDisplay
    >>> cancer = fetch_views("breast_cancer")
    >>> X, y = cancer.data[::8], cancer.target[::8]
    >>> model = MultipleKernelFDA(cancer.views, norm=1, cv=None).fit(X, y)
    >>> display = AblationDisplay.from_estimator(model, X, y, cv=2, random_state=0)
    >>> display.figure_.savefig("ablation.png")  # doctest: +SKIP
    """

    result: Any

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        cv: Any = 5,
        cost: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        axes: Any = None,
    ) -> AblationDisplay:
        """Fit the model without and with each view, and draw the losses.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator of this package, or a Pipeline or search that ends in one.
        X, y : array-like
            The rows and targets.
        groups, cv, cost, n_jobs, random_state
            See :func:`view_ablation`.
        axes : array of two matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.

        Returns
        -------
        display : AblationDisplay
            The plot.
        """
        result = view_ablation(
            estimator,
            X,
            y,
            groups=groups,
            cv=cv,
            cost=cost,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        return cls(result=result).plot(axes=axes)

    def plot(self, axes: Any = None) -> AblationDisplay:
        """Draw both parts.

        Parameters
        ----------
        axes : array of two matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.

        Returns
        -------
        display : AblationDisplay
            The plot.
        """
        plt = pyplot("AblationDisplay.plot")
        if axes is None:
            height = FRAME + ABLATION_HEIGHT * len(self.result.views)
            _, axes = plt.subplots(
                1, 2, figsize=(9.0, max(height, 3.0)), layout="constrained"
            )
        self.axes_ = np.asarray(axes)
        self.figure_ = self.axes_[0].figure
        self._plot_views(self.axes_[0])
        self._plot_order(self.axes_[1])
        return self

    def _plot_views(self, ax: Any) -> None:
        """The loss without each view and with it alone."""
        rows = sorted(self.result.views, key=lambda row: -row["loss_rise"])
        heights = np.arange(len(rows), dtype=float)
        whole = self.result.order[0]
        ax.axvline(whole["loss"], color=GREY, linewidth=1, label="all views")
        kinds = (
            ("without", "without it", 0.12, COLORS[0], COLORS[0]),
            ("alone", "it alone", -0.12, COLORS[1], "white"),
        )
        for kind, label, shift, color, face in kinds:
            points = ax.errorbar(
                [row[f"loss_{kind}"] for row in rows],
                heights - shift,
                xerr=[row[f"loss_{kind}_se"] for row in rows],
                fmt="o",
                color=color,
                markerfacecolor=face,
                elinewidth=1,
                label=label,
            )
            setattr(self, f"{kind}_", points)
        if np.isfinite(self.result.baseline_loss):
            style = {"color": GREY, "linewidth": 1, "linestyle": ":"}
            ax.axvline(self.result.baseline_loss, label="no view", **style)
        label_rows(ax, heights, [row["view"] for row in rows])
        self._finish(ax, "One view at a time")
        # Below the label of the axis: points and intervals may be anywhere inside.
        ax.legend(
            frameon=False,
            fontsize=8,
            ncols=2,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            borderaxespad=4.25,
        )

    def _plot_order(self, ax: Any) -> None:
        """The loss as views are dropped, with the recommended set."""
        order = self.result.order
        heights = np.arange(len(order), dtype=float)
        loss = np.array([step["loss"] for step in order])
        error = np.array([step["loss_behind_se"] for step in order])
        ax.axvline(np.min(loss), color=GREY, linewidth=1)
        ax.plot(loss, heights, color=COLORS[0], linewidth=1)
        self.order_ = ax.errorbar(
            loss, heights, xerr=error, fmt="o", color=COLORS[0], elinewidth=1
        )
        for step, x, height in zip(order, loss, heights, strict=True):
            if step["views"] == self.result.recommended:
                ax.plot(x, height, "o", color=COLORS[1], markersize=9, zorder=5)
                ax.annotate(
                    "recommended",
                    (x, height),
                    xytext=(0, -9),
                    textcoords="offset points",
                    ha="center",
                    va="top",
                    fontsize=8,
                    color=COLORS[1],
                )
        names = [f"\N{MINUS SIGN} {step['dropped']}" for step in order[1:]]
        if len(order[-1]["views"]) == 1:
            names[-1] += f"\n({order[-1]['views'][0]} is left)"
        label_rows(ax, heights, ["all views", *names])
        title = "Dropped one after the other"
        if not self.result.recommended:
            title += "\n(no set is clearly useful)"
        self._finish(ax, title)

    def _finish(self, ax: Any, title: str) -> None:
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xlabel(f"held-out {self.result.loss_name}")
        ax.spines[["top", "right"]].set_visible(False)

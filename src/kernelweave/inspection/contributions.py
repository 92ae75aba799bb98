"""Which view supported which class: the exact parts of each decision, with plots."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import Bunch

from kernelweave._array import to_numpy
from kernelweave._text import counted
from kernelweave.exceptions import library, require_count
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.inspection._figure import (
    COLORS,
    GREY,
    Drawn,
    axes,
    color,
    label_rows,
    legend_beside,
    text_beside,
)
from kernelweave.inspection._rows import (
    last_step,
    model_and_rows,
    observed_views,
    row_labels,
    views_of,
)


@dataclass(frozen=True)
class Readout:
    """From projections z to decision values: ``d(x) = z(x) matrix + offset``.

    Attributes
    ----------
    matrix : ndarray of shape (r, q), or (m, r, q) if rows have variances of their own
        The linear part.
    offset : ndarray of shape (q,) or (m, q)
        The constant part.
    outputs : ndarray of shape (q,) or None
        The class or target number of each column; None if there is only one.
    unit : str
        What d measures.
    """

    matrix: np.ndarray
    offset: np.ndarray
    outputs: np.ndarray | None
    unit: str


def contributions(model: Any, X: Any, *, as_frame: bool = False) -> Any:
    r"""Split each decision value into exact parts, one per view.

    The decision value of a row is a constant plus a sum over kernels, so it is a sum
    over views as well, without any approximation:

    .. math::

        d_c(x) = b_c + \sum_v f_{vc}(x), \qquad
        f_{vc}(x) = \sum_{i \in v} w_i \, G_i(x) \, a_c

    where :math:`G_i(x)` holds the centred kernel values between x and the training
    rows, and :math:`a_c` their coefficients. The value that is split is

    - ``decision_function`` of :class:`~kernelweave.MultipleKernelSVC`,
      :class:`~kernelweave.TransductiveKernelSVC` and
      :class:`~kernelweave.SubspaceKernelSVC`, in units of the margin;
    - ``predict`` of :class:`~kernelweave.MultipleKernelRidge`;
    - ``decision_function`` of the discriminants, the log odds of two classes or the log
      joint density of each class. Class Gaussians with a common variance
      :math:`\sigma^2` differ only by terms that are linear in the projection
      :math:`z = \sum_v z_v`:

      .. math::

          d_c(x) = \sum_v \frac{\langle z_v(x), m_c \rangle}{\sigma^2}
              - \frac{|m_c|^2}{2 \sigma^2} + \log \pi_c

      The term :math:`|z|^2`, which all classes share, is left out of every class score,
      so differences between classes, and hence probabilities, are exact.

    Kernels are centred, so the parts of each view have mean zero over the training rows
    (if none of them lacks the view): the intercept is the decision value of an average
    row, and a part says how far the view moves the row away from it. If views share no
    columns, the parts are the Shapley values of the views with the training rows as
    background: without interactions between views there is nothing to approximate.
    With ``interactions=True``, what products of views add is a part of its own,
    "between views".

    A part says how the model reached its decision. It is not evidence that the decision
    is right: a model fitted to noise has parts as well. Parts of training rows look
    more certain than those of new rows.

    Parameters
    ----------
    model : estimator
        Fitted classifier or regressor of this package, or a Pipeline or search that
        ends in one; X then passes through the earlier steps first.
    X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
        Rows.
    as_frame : bool, default=False
        Whether to return a pandas DataFrame.

    Returns
    -------
    result : Bunch or DataFrame
        A Bunch has ``parts`` (m, v), or (m, v, q) with more than two classes or several
        targets; ``intercept`` (m,) or (m, q); ``views``, the v names; ``outputs``, the
        q classes or target numbers, None without a last axis; and ``unit``, what the
        parts measure. ``parts.sum(axis=1) + intercept`` is the decision value.

        The DataFrame has the row index of X, one column per view and one named
        "intercept", so its rows sum to the decision values; with a last axis,
        ``frame[output]`` is such a table.

    Notes
    -----
    Four cases deserve care:

    - *Exceptions.* Where ``model.gaussians_.exceptions`` is above 0, decision values
      allow for that share of rows which may belong to any class; the parts add up to
      the log odds before this.
    - *Missing views.* With ``missing="zero"`` a view that a row lacks has part 0. With
      ``missing="available"`` the kernels of that view are filled in from others, and
      its part is what the filled-in values contribute. For a row that lacks every view,
      the intercept is the logarithm of the class shares.
    - :class:`~kernelweave.ProbabilisticKDA` divides by the predictive variance of the
      row, which depends on all views. The sum is exact given that variance, so the
      intercept differs between rows, and parts need not have mean zero.
    - :class:`~kernelweave.MixtureKDA` weights its experts, differently for each row if
      ``projection="posterior"``. The sum is exact given these weights, which
      ``sample_weights`` returns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import fetch_views
    >>> from kernelweave.inspection import contributions
    >>> cancer = fetch_views("breast_cancer", as_frame=False)
    >>> model = MultipleKernelFDA(cancer.views, norm=2, alpha=0.1)
    >>> model = model.fit(cancer.data[::3], cancer.target[::3])
    >>> new = cancer.data[1::3]
    >>> found = contributions(model, new)
    >>> found.views, found.parts.shape, found.unit
    (['mean', 'error', 'worst'], (190, 3), 'log odds of 1')
    >>> total = found.parts.sum(axis=1) + found.intercept
    >>> bool(np.allclose(total, model.decision_function(new)))
    True
    """
    labels = row_labels(X) if as_frame else None
    model, X = model_and_rows(model, X)
    readout = readout_of(model, X)
    terms = to_numpy(model._project_each(X, "contributions")).astype(np.float64)
    views, view_of = views_of(model)
    projected = np.stack(  # (m, v, r)
        [terms[:, view_of == v].sum(axis=1) for v in range(len(views))], axis=1
    )
    parts = projected @ readout.matrix  # (m, v, q)
    intercept = _intercepts(model, readout, terms, X)
    if readout.outputs is None:
        parts, intercept = parts[:, :, 0], intercept[:, 0]
    found = Bunch(
        parts=parts,
        intercept=intercept,
        views=views,
        outputs=readout.outputs,
        unit=readout.unit,
    )
    return found if labels is None else _frame(found, labels)


def readout_of(model: Any, X: Any = None) -> Readout:
    """The affine function from projections to decision values of a fitted model.

    ``X`` is needed where rows have variances of their own.
    """
    if hasattr(model, "gaussians_"):
        return _of_gaussians(model, X)
    if not hasattr(model, "intercept_"):
        raise TypeError(
            f"{type(model).__name__} learns kernel weights but does not predict, so "
            "there is no decision to explain; explain the estimator that follows it, "
            "or use a classifier or regressor of this package such as MultipleKernelFDA"
        )
    offset = to_numpy(model.intercept_).astype(np.float64).reshape(-1)  # (q,)
    outputs: Any = np.arange(len(offset))
    unit, classes = "prediction", _classes_of(model)
    if classes is not None:
        outputs, unit = classes, "decision value in margins"
    if len(offset) == 1:
        outputs = None
    if classes is not None and outputs is None:
        unit = f"decision value for {classes[1]} in margins"
    return Readout(np.eye(len(offset)), offset, outputs, unit)


def _classes_of(model: Any) -> np.ndarray | None:
    return model.classes_ if is_classifier(model) else None


def _of_gaussians(model: Any, X: Any) -> Readout:
    """The readout of class Gaussians: affine, so its values at r + 1 points suffice.

    Asking the Gaussians, rather than repeating their formula here, keeps one
    implementation of the class scores.
    """
    gaussians: ClassGaussians = model.gaussians_
    classes, r = model.classes_, int(np.shape(gaussians.means)[1])
    points = np.concatenate([np.zeros((1, r)), np.eye(r)])  # the origin, unit vectors
    spread = model._spread_of(X)
    if spread is not None:
        spread = to_numpy(spread).astype(np.float64)
        each = np.tile(points, (len(spread), 1)), np.repeat(spread, r + 1, axis=0)
        values = np.reshape(gaussians.scores(*each), (len(spread), r + 1, -1))
    else:
        values = gaussians.scores(points)  # (r + 1, k)
    values = values + gaussians.shift  # of given priors
    unit, outputs = "log density of row and class", classes
    if len(classes) == 2:
        values = values[..., 1:] - values[..., :1]
        unit, outputs = f"log odds of {classes[1]}", None
    offset = values[..., 0, :]
    return Readout(values[..., 1:, :] - offset[..., None, :], offset, outputs, unit)


def _intercepts(model: Any, readout: Readout, terms: np.ndarray, X: Any) -> np.ndarray:
    """The constant part (m, q) of rows X; ``terms`` (m, p, r) are their projections."""
    offset = np.broadcast_to(readout.offset, (len(terms), readout.offset.shape[-1]))
    known = np.any(terms != 0, axis=(1, 2))
    observed = None if np.all(known) else observed_views(model, X)
    if observed is None or not hasattr(model, "gaussians_"):
        return offset.copy()
    # A row without any view projects to exactly zero; only the class shares are known.
    shares = np.asarray(model.gaussians_.log_prior, dtype=np.float64)
    if readout.outputs is None:
        shares = shares[1:] - shares[:1]
    known |= np.all(observed, axis=1)
    return np.where(known[:, None], offset, shares[None, :])


def _frame(found: Bunch, index: list[Any]) -> Any:
    """A DataFrame whose rows, or the rows of ``frame[output]``, sum to the decision."""
    pd = library(
        "pandas",
        "as_frame=True needs pandas, which is not installed; install it with "
        "pip install 'kernelweave[tables]', or use as_frame=False",
    )
    names = [*found.views, "intercept"]
    whole = np.concatenate([found.parts, found.intercept[:, None]], axis=1)
    columns = pd.Index(names, name="view")
    if found.outputs is not None:
        both = [found.outputs.tolist(), names]
        columns = pd.MultiIndex.from_product(both, names=["output", "view"])
        whole = np.swapaxes(whole, 1, 2).reshape(len(index), -1)
    return pd.DataFrame(whole, index=index, columns=columns)


#: Height of a view in inches, for one row and for a swarm of rows.
TERM_HEIGHT, SWARM_HEIGHT = 0.34, 0.62
#: Number of bins in which the points of a swarm are spread apart.
SWARM_BINS = 80


@dataclass(kw_only=True, repr=False, eq=False)
class ContributionsDisplay(Drawn):
    """The parts of each view in the decision, as a waterfall or as swarms of rows.

    For one row, bars lead from the intercept, which is the decision value of an average
    row (unless rows have variances or weights of their own), to the decision value of
    this row: one bar per view, the longest first, to the right if the view supports the
    class named at the axis. For several rows, each row is a point at its part, coloured
    by the predicted class; the view with the largest mean square comes first.

    With more than two classes, the quantity drawn is the difference between two scores:
    that of the predicted class minus that of the class with the next highest score.

    Parameters
    ----------
    parts : ndarray of shape (m, v)
        The part of each view in the quantity drawn.
    intercept : ndarray of shape (m,)
        Its constant part.
    views : list of str
        Names of the views.
    xlabel : str
        What is drawn.
    groups : ndarray of shape (m,), default=None
        Predicted class of each row, for the colours.
    sides : ndarray of shape (m, 2), default=None
        The classes that negative and positive parts support.
    classes : ndarray of shape (k,), default=None
        All classes, in the order of the colours.
    title : str, default=None
        Title of the plot.
    start : str, default="average row"
        Label of the place where the bars start: what the intercept stands for.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and figure of the plot.
    bars_ : matplotlib BarContainer
        The bars of a single row, from top to bottom.
    points_ : dict
        The scatter of each predicted class, for several rows.

    See Also
    --------
    contributions : The numbers that are drawn.

    Examples
    --------
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import fetch_views
    >>> from kernelweave.inspection import ContributionsDisplay
    >>> cancer = fetch_views("breast_cancer")
    >>> model = MultipleKernelFDA(cancer.views, norm=2, alpha=0.1)
    >>> model = model.fit(cancer.data[::3], cancer.target[::3])
    >>> new = cancer.data[1::3]
    >>> one = ContributionsDisplay.from_estimator(model, new, row=0)
    >>> every = ContributionsDisplay.from_estimator(model, new)
    >>> every.figure_.savefig("contributions.png")  # doctest: +SKIP
    """

    parts: np.ndarray
    intercept: np.ndarray
    views: list[str]
    xlabel: str
    groups: np.ndarray | None = None
    sides: np.ndarray | None = None
    classes: np.ndarray | None = None
    title: str | None = None
    start: str = "average row"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        row: int | None = None,
        output: Any = None,
        ax: Any = None,
        max_views: int = 12,
    ) -> ContributionsDisplay:
        """Split the decisions of a fitted model and draw the parts.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier or regressor of this package, or a Pipeline or search that
            ends in one.
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows, preferably new ones: parts of training rows are too optimistic.
        row : int, default=None
            Number of the row to draw; None draws all rows.
        output : object, default=None
            With more than two classes or several targets, draw the score of this class
            or target. None compares the predicted class with the runner-up, and is not
            allowed for several targets.
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.
        max_views : int, default=12
            Maximum number of views to draw one by one; the rest is summed.

        Returns
        -------
        display : ContributionsDisplay
            The plot.
        """
        found = contributions(estimator, X)
        labels = row_labels(X)
        if row is not None and not -len(labels) <= row < len(labels):
            rows = counted(len(labels), "row")
            raise ValueError(f"X has {rows}, numbered from 0; there is no row {row!r}")
        model = last_step(estimator)
        display = _of_one_output(cls, found, _classes_of(model), output)
        if not model._fixed_sum:  # parts of such rows need not have mean zero
            display.start = "constant"
        if row is not None:
            display = _of_one_row(display, row, labels[row])
        return display.plot(ax=ax, max_views=max_views)

    def plot(self, ax: Any = None, *, max_views: int = 12) -> ContributionsDisplay:
        """Draw a waterfall if there is one row, swarms if there are several.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.
        max_views : int, default=12
            Maximum number of views to draw one by one; the rest is summed.

        Returns
        -------
        display : ContributionsDisplay
            The plot.
        """
        require_count(1, max_views=max_views)
        names, parts = self._ordered(max_views)
        single = len(parts) == 1
        height = (TERM_HEIGHT if single else SWARM_HEIGHT) * (len(names) + 2 * single)
        ax = axes("ContributionsDisplay.plot", ax, 7.0, 1.2 + height)
        if single:
            self._plot_waterfall(ax, names, parts[0])
        else:
            self._plot_swarms(ax, names, parts)
        xlabel = self.xlabel if single else f"part in the {self.xlabel}"
        if single and self.sides is not None:  # the class in each direction
            against, towards = self.sides[0]
            xlabel = f"\u2190 {against}      {xlabel}      {towards} \u2192"
        ax.set_xlabel(xlabel)
        ax.spines["left"].set_visible(False)
        return self._finish(ax)

    def _ordered(self, max_views: int) -> tuple[list[str], np.ndarray]:
        """Names and parts (m, v) by decreasing mean square, the rest summed."""
        order = np.argsort(-np.mean(self.parts**2, axis=0), kind="stable")
        names = [self.views[v] for v in order]
        parts = self.parts[:, order]
        if len(names) > max_views:
            rest = parts[:, max_views:].sum(axis=1, keepdims=True)
            names = [*names[:max_views], counted(len(names) - max_views, "more view")]
            parts = np.concatenate([parts[:, :max_views], rest], axis=1)
        return names, parts

    def _plot_waterfall(self, ax: Any, names: list[str], parts: np.ndarray) -> None:
        start = float(self.intercept[0])
        sums = np.cumsum([start, *parts])
        lefts = np.array([0.0, *sums[:-1], 0.0])
        widths = np.array([start, *parts, sums[-1]])
        stops = lefts + widths
        heights = np.arange(len(widths))
        self.bars_ = ax.barh(
            heights, widths, left=lefts, color=self._bar_colors(widths), height=0.66
        )
        for i in heights[:-1]:  # lead the eye from bar to bar
            ax.plot([stops[i]] * 2, [i + 0.33, i + 0.67], color=GREY, linewidth=0.9)
        for i, width in enumerate(widths):
            bold = "normal" if i < heights[-1] else "bold"
            gap = 4 if width >= 0 else -4
            text_beside(ax, f"{width:+.2f}", (stops[i], i), gap=gap, fontweight=bold)
        ax.axvline(0, color="black", linewidth=0.8)
        label_rows(ax, heights, [self.start, *names, "this row"])
        ax.get_yticklabels()[-1].set_fontweight("bold")
        low, high = min(stops.min(), 0.0), max(stops.max(), 0.0)
        room = 0.12 * (high - low) if high > low else 1.0
        ax.set_xlim(low - room, high + room)
        for end in (self.bars_[0], self.bars_[-1]):
            end.set(facecolor="white", edgecolor="black", linewidth=1.2)

    def _bar_colors(self, widths: np.ndarray) -> list[str]:
        """Colours of the classes that negative and positive parts support."""
        negative, positive = COLORS[0], COLORS[1]
        if self.sides is not None and self.classes is not None:
            order = [str(label) for label in self.classes]
            negative, positive = (color(order.index(str(c))) for c in self.sides[0])
        return [positive if width > 0 else negative for width in widths]

    def _plot_swarms(self, ax: Any, names: list[str], parts: np.ndarray) -> None:
        offsets = np.stack([_beside(values) for values in parts.T], axis=1)
        heights = np.arange(len(names))
        self.points_: dict[Any, Any] = {}
        members = {"rows": np.ones(len(parts), dtype=bool)}
        if self.groups is not None and self.classes is not None:
            members = {label: self.groups == label for label in self.classes}
        for c, (group, own) in enumerate(members.items()):
            self.points_[group] = ax.scatter(
                parts[own].ravel(),
                (heights + offsets[own]).ravel(),
                s=14 if len(parts) <= 500 else 6,
                color=color(c),
                alpha=0.6,
                linewidths=0,
                label=f"{group} ({np.count_nonzero(own)})",
            )
        ax.axvline(0, color="black", linewidth=0.8, zorder=0)
        label_rows(ax, heights, names, margin=0.55)
        if self.groups is not None:
            legend_beside(ax, "predicted class")


def _of_one_output(
    cls: type[ContributionsDisplay], found: Any, classes: Any, output: Any
) -> ContributionsDisplay:
    """The display of a single quantity: an output, or a difference of scores."""
    total = found.parts.sum(axis=1) + found.intercept  # (m,) or (m, q)
    parts, intercept, xlabel = found.parts, found.intercept, found.unit
    groups = sides = None
    if found.outputs is None:
        if output is not None:
            raise ValueError(f"there is only one output; got output={output!r}")
        if classes is not None:
            groups = np.asarray(classes)[(total > 0).astype(int)]
            sides = np.tile(np.asarray(classes), (len(total), 1))
    elif output is not None or classes is None:  # one class score or one target
        known = found.outputs.tolist()
        if output not in known:
            raise ValueError(f"output must be one of {known!r:.200}; got {output!r}")
        c = known.index(output)
        classes = None
        parts, intercept = parts[:, :, c], intercept[:, c]
        xlabel = f"{found.unit}, output {output}"
    else:
        ranks = np.argsort(-total, axis=1, kind="stable")
        rows, best, other = np.arange(len(total)), ranks[:, 0], ranks[:, 1]
        groups = np.asarray(classes)[best]
        sides = np.asarray(classes)[np.stack([other, best], axis=1)]
        parts = parts[rows, :, best] - parts[rows, :, other]
        intercept = intercept[rows, best] - intercept[rows, other]
        xlabel = "score of the predicted class minus that of the next"
    return cls(
        parts=parts,
        intercept=intercept,
        views=found.views,
        xlabel=xlabel,
        groups=groups,
        sides=sides,
        classes=classes,
    )


def _of_one_row(
    every: ContributionsDisplay, row: int, label: Any
) -> ContributionsDisplay:
    """The display of one of the rows, with a title that names it."""
    title, sides, xlabel = f"Row {label}", None, every.xlabel
    if every.groups is not None and every.sides is not None:
        title, sides = f"{title}: predicted {every.groups[row]}", every.sides[row][None]
        if every.classes is not None and len(every.classes) > 2:
            xlabel = f"score of {sides[0, 1]} minus that of {sides[0, 0]}"
    own = {"parts": every.parts[row][None], "intercept": every.intercept[row][None]}
    return replace(every, **own, xlabel=xlabel, groups=None, sides=sides, title=title)


def _beside(values: np.ndarray) -> np.ndarray:
    """Vertical offsets (m,) in (-0.4, 0.4) that keep close values apart."""
    span = np.ptp(values) or 1.0
    bins = np.round((values - values.min()) / span * SWARM_BINS).astype(int)
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=int)  # within the bin
    rank[order] = np.arange(len(values)) - np.searchsorted(bins[order], bins[order])
    # 0, 1, -1, 2, -2, ...: outwards from the line
    steps = np.where(rank % 2 == 1, (rank + 1) // 2, -(rank // 2))
    return 0.4 * steps / max(np.abs(steps).max(), 12)

"""The learned weights as a table, and as a bar chart."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kernelweave._array import to_numpy
from kernelweave._text import counted
from kernelweave.exceptions import require_count
from kernelweave.inspection._figure import (
    COLORS,
    GREY,
    Drawn,
    axes,
    label_rows,
    shortened,
    text_beside,
)
from kernelweave.inspection._rows import fitted_model
from kernelweave.models.shared.base import caution_about_shares, shares_of_views

#: Height of a row of the plot in inches.
WEIGHT_HEIGHT = 0.24
#: Maximum number of characters in a label.
LABEL_LETTERS = 40
#: The title if the weights are not learned.
UNIFORM_TITLE = "Uniform kernel weights"
#: Space above a view, in rows.
VIEW_GAP = 0.45


def weights_table(model: Any) -> list[dict[str, Any]]:
    """List the kernels of a fitted model with their weights.

    Parameters
    ----------
    model : estimator
        Fitted estimator of this package, or a Pipeline or search that ends in one.

    Returns
    -------
    rows : list of dict
        One row per kernel, in the order of ``kernel_weights_``: ``view``, ``kernel``,
        ``weight``, ``share`` (its part of ``view_share``, so shares sum to one and are
        never negative), ``view_weight`` (the sum over the view) and ``view_share`` (its
        entry of ``view_shares_``). ``pandas.DataFrame(rows)`` converts them to a
        DataFrame.

    Examples
    --------
    >>> from kernelweave import KernelFDA
    >>> from kernelweave.datasets import fetch_views
    >>> from kernelweave.inspection import weights_table
    >>> cancer = fetch_views("breast_cancer")
    >>> model = KernelFDA(cancer.views).fit(cancer.data[:100], cancer.target[:100])
    >>> row = weights_table(model)[0]
    >>> row["view"], row["kernel"], round(row["share"], 3)
    ('mean', 'centred Linear()', 0.056)
    """
    model = fitted_model(model)
    weights = to_numpy(model.kernel_weights_)
    kernel_map = model.kernel_map_
    levels = kernel_map.levels if model.scale is None else None
    shares = shares_of_views([str(i) for i in range(len(weights))], weights, levels)
    return [
        {
            "view": view,
            "kernel": name.removeprefix(f"{view}: "),
            "weight": float(weight),
            "share": share,
            "view_weight": model.view_weights_[view],
            "view_share": model.view_shares_[view],
        }
        for view, name, weight, share in zip(
            kernel_map.view_names,
            kernel_map.names,
            weights,
            shares.values(),
            strict=True,
        )
    ]


@dataclass(frozen=True)
class _Row:
    """A bar: a view, one of its kernels, or a sum of those not shown individually."""

    kind: Literal["view", "kernel", "rest", "others"]
    label: str
    weight: float
    view: str | None = None

    @property
    def length(self) -> float:
        """Length of the bar: 0 for a sum over views, which would dwarf the rest."""
        summed = self.view is None and self.kind in ("rest", "others")
        return 0.0 if summed else self.weight


@dataclass(kw_only=True, repr=False, eq=False)
class KernelWeightsDisplay(Drawn):
    """Horizontal bars of kernel weights, grouped by view, the heaviest view first.

    A dark bar is the total weight of a view, the light bars below it are its kernels,
    and the numbers are percentages of the sum of all absolute weights. Kernels of
    weight zero are only counted, and if there are more than ``max_rows`` rows, only the
    heaviest kernels are shown individually.

    Parameters
    ----------
    weights : array-like of shape (p,)
        Kernel weights.
    kernel_names : list of str of length p
        Name of each kernel.
    view_names : list of str of length p
        The view each kernel belongs to.
    title : str, default=None
        Title of the plot.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and figure of the plot.
    bars_ : matplotlib BarContainer
        The bars, from top to bottom.
    texts_ : list of matplotlib Text
        The shares next to the bars.

    See Also
    --------
    weights_table : The weights as a table.

    Examples
    --------
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import fetch_views
    >>> from kernelweave.inspection import KernelWeightsDisplay
    >>> cancer = fetch_views("breast_cancer")
    >>> model = MultipleKernelFDA(cancer.views, norm=1)
    >>> model = model.fit(cancer.data[::3], cancer.target[::3])
    >>> display = KernelWeightsDisplay.from_estimator(model)
    >>> display.figure_.savefig("weights.png")  # doctest: +SKIP
    """

    weights: Any
    kernel_names: Sequence[str]
    view_names: Sequence[str]
    title: str | None = None

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Any = None, max_rows: int = 30
    ) -> KernelWeightsDisplay:
        """Draw the weights of a fitted model.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator of this package, or a Pipeline or search that ends in one.
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.
        max_rows : int, default=30
            Maximum number of bars.

        Returns
        -------
        display : KernelWeightsDisplay
            The plot.
        """
        model = fitted_model(estimator)
        display = cls(
            weights=to_numpy(model.kernel_weights_),
            kernel_names=model.kernel_names_,
            view_names=model.kernel_map_.view_names,
            title=with_caution(_title(model), model),
        )
        return display.plot(ax=ax, max_rows=max_rows)

    def plot(self, ax: Any = None, *, max_rows: int = 30) -> KernelWeightsDisplay:
        """Draw the weights.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure, tall enough for the bars.
        max_rows : int, default=30
            Maximum number of bars.

        Returns
        -------
        display : KernelWeightsDisplay
            The plot.
        """
        require_count(4, max_rows=max_rows)
        weights = np.asarray(self.weights, dtype=float)
        views = _by_weight(np.abs(weights), self.view_names)
        rows = self._rows(weights, views, max_rows)
        heights = _positions(rows)
        size = 1.1 + WEIGHT_HEIGHT * (heights[-1] + 1)
        ax = axes("KernelWeightsDisplay.plot", ax, 7.0, size)
        colors = dict(zip(views, COLORS[:6], strict=False))  # the heaviest views
        self.bars_ = ax.barh(
            heights,
            [row.length for row in rows],
            height=[0.85 if row.kind == "view" else 0.6 for row in rows],
            color=[colors.get(row.view, GREY) for row in rows],
        )
        labels = [shortened(row.label, LABEL_LETTERS) for row in rows]
        label_rows(ax, heights, labels, margin=0.7, size=8)
        total = float(np.abs(weights).sum())
        self.texts_ = [
            _finish_row(ax, row, height, bar, label, total)
            for row, height, bar, label in zip(
                rows, heights, self.bars_, ax.get_yticklabels(), strict=True
            )
        ]
        lengths = [0.0, *(row.length for row in rows)]
        low, high = min(lengths), max(lengths)
        room = 0.15 * (high - low)  # for the numbers
        ax.set_xlim(low - room * (low < 0), high + room or 1.0)
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set_xlabel("weight")
        return self._finish(ax)

    def _rows(
        self, weights: np.ndarray, views: dict[str | None, list[int]], max_rows: int
    ) -> list[_Row]:
        """The rows, with as many individual kernels as ``max_rows`` allows."""
        ranking = np.argsort(-np.abs(weights), kind="stable").tolist()

        def rows_with(n_shown: int) -> list[_Row]:
            shown = set(ranking[:n_shown])
            return self._rows_with(shown, weights, views, max_rows // 3)

        numbers = range(1, np.count_nonzero(weights) + 1)
        return rows_with(bisect(numbers, max_rows, key=lambda n: len(rows_with(n))))

    def _rows_with(
        self,
        shown: set[int],
        weights: np.ndarray,
        views: dict[str | None, list[int]],
        max_views: int,
    ) -> list[_Row]:
        """One row per view, its kernels that are shown, and one for all others."""
        rows: list[_Row] = []
        for view, members in list(views.items())[:max_views]:
            names = [self.kernel_names[i] for i in members]
            if view is not None:
                label = view if len(members) > 1 else names[0]
                rows.append(_Row("view", label, float(weights[members].sum()), view))
                if len(members) == 1 or shown.isdisjoint(members):
                    continue
                names = [name.removeprefix(f"{view}: ") for name in names]
                short = [name.rpartition(" > ")[2] for name in names]  # no transformers
                names = short if len(set(short)) == len(short) else names
            rows += [
                _Row("kernel", name, float(weights[i]), view)
                for i, name in zip(members, names, strict=True)
                if i in shown
            ]
            rest = weights[[i for i in members if i not in shown]]
            n_zero = np.count_nonzero(rest == 0)
            counts = {"more": len(rest) - n_zero, "of weight 0": n_zero}
            label = " + ".join(f"{n} {what}" for what, n in counts.items() if n)
            if label:
                rows.append(_Row("rest", label, float(rest.sum()), view))
        others = list(views.values())[max_views:]
        if others:
            total = float(sum(weights[members].sum() for members in others))
            zero = " of weight 0" if total == 0 else ""
            rows.append(
                _Row("others", f"{counted(len(others), 'more view')}{zero}", total)
            )
        return rows


def _finish_row(
    ax: Any, row: _Row, height: float, bar: Any, label: Any, total: float
) -> Any:
    """Style the bar and the label of a row, and write its share of ``total``."""
    is_view = row.kind == "view"
    bar.set_alpha(1.0 if is_view or row.view is None else 0.55)
    if row.kind in ("rest", "others"):
        bar.set(hatch="////", facecolor="white", edgecolor=bar.get_facecolor())
        label.set(style="italic", color="#4D4D4D")
    elif is_view:
        label.set(fontweight="bold", fontsize=9)
    nothing = row.kind == "rest" and not row.weight
    return text_beside(
        ax,
        "" if nothing else _percent(row.weight / total),
        (row.length, height),
        gap=4 if row.length >= 0 else -4,
        fontsize=9 if is_view else 8,
        fontweight="bold" if is_view else "normal",
        color="black" if is_view else "#4D4D4D",
    )


def _by_weight(
    sizes: np.ndarray, view_names: Sequence[str]
) -> dict[str | None, list[int]]:
    """The kernels of each view, with views and kernels sorted by decreasing ``|w_i|``.

    If every view has a single kernel, all kernels are those of one view without a name.
    """
    ranking = np.argsort(-sizes, kind="stable").tolist()
    members: dict[str | None, list[int]] = {}
    for i in ranking:
        members.setdefault(view_names[i], []).append(i)
    if len(members) == len(ranking):
        return {None: ranking}
    return dict(sorted(members.items(), key=lambda item: -sizes[item[1]].sum()))


def _positions(rows: list[_Row]) -> np.ndarray:
    """Vertical positions (m,), with a gap above each view if kernels are shown."""
    grouped = any(row.kind == "kernel" for row in rows)
    above = [VIEW_GAP if row.kind in ("view", "others") else 0.0 for row in rows]
    return np.arange(len(rows)) + grouped * (np.cumsum(above) - above[0])


def _percent(share: float) -> str:
    if share == 0:
        return "0"
    if abs(share) < 0.001:
        return "<0.1 %"
    return f"{100 * share:.{0 if abs(share) >= 0.1 else 1}f} %"


def with_caution(title: str, model: Any) -> str:
    """The title of a plot, with a line that says when not to interpret the weights."""
    if caution_about_shares(model) is None:
        return title
    return f"{title}\ntoo few rows for this many views: do not interpret the weights"


def _title(model: Any) -> str:
    """What is known about the weights of a fitted model."""
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        if getattr(model, "kernel_weights", None) is not None:
            return "Kernel weights, as given"
        own = model.method == "independent"
        return "Kernel weights, each by its own alignment" if own else UNIFORM_TITLE
    if certificate.stationarity is not None:
        return f"Kernel weights, stationary to {certificate.stationarity:.1e}"
    if certificate.gap <= 0:
        return "Kernel weights, optimal"
    return f"Kernel weights, within {certificate.gap:.1e} of the optimum"

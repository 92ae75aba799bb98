"""A bar chart of which kernels and views matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kernelweave.inspection._figure import COLORS, GREY, axes
from kernelweave.inspection.weights_table import fitted_model

__all__ = ["KernelWeightsDisplay"]

#: Height of a row of the plot in inches.
ROW_HEIGHT = 0.24
#: Space above a view, in rows.
VIEW_GAP = 0.45


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


class KernelWeightsDisplay:
    """Horizontal bars of kernel weights, grouped by view, the heaviest view first.

    A dark bar is the total weight of a view, the light bars below it are its kernels,
    and the numbers are shares of the sum of all weights. Kernels of weight zero are
    only counted, and if there are more than ``max_rows`` rows, only the heaviest
    kernels are shown individually.

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
    >>> from kernelweave.datasets import load_breast_cancer_views
    >>> from kernelweave.inspection import KernelWeightsDisplay
    >>> cancer = load_breast_cancer_views()
    >>> model = MultipleKernelFDA(cancer.views, norm=1)
    >>> model = model.fit(cancer.data[::3], cancer.target[::3])
    >>> display = KernelWeightsDisplay.from_estimator(model)
    >>> display.figure_.savefig("weights.png")  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        weights: Any,
        kernel_names: Sequence[str],
        view_names: Sequence[str],
        title: str | None = None,
    ) -> None:
        self.weights = weights
        self.kernel_names = kernel_names
        self.view_names = view_names
        self.title = title

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
            weights=model.kernel_weights_,
            kernel_names=model.kernel_names_,
            view_names=model.kernel_map_.view_names,
            title=_title(model),
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
        rows = self._rows(max_rows)
        heights = _positions(rows)
        size = 1.1 + ROW_HEIGHT * (heights[-1] + 1)
        figure, ax = axes("KernelWeightsDisplay.plot", ax, 7.0, size)
        colors = self._colors()
        self.bars_ = ax.barh(
            heights,
            [row.length for row in rows],
            height=[0.85 if row.kind == "view" else 0.6 for row in rows],
            color=[colors.get(row.view, GREY) for row in rows],
        )
        for bar, row in zip(self.bars_, rows, strict=True):
            light = row.view is not None and row.kind != "view"
            bar.set_alpha(0.55 if light else 1.0)
            if row.kind in ("rest", "others"):
                bar.set(hatch="////", facecolor="white", edgecolor=bar.get_facecolor())
        self.texts_ = self._write_shares(ax, rows, heights)
        self._label(ax, rows, heights)
        self.ax_, self.figure_ = ax, figure
        return self

    def _rows(self, max_rows: int) -> list[_Row]:
        """The rows, with as many individual kernels as ``max_rows`` allows."""
        if max_rows < 4:
            raise ValueError(f"max_rows must be at least 4; got {max_rows!r}")
        weights = np.asarray(self.weights, dtype=float)
        views = _by_weight(weights, self.view_names)
        alone = all(len(members) == 1 for members in views.values())
        ranking = np.argsort(-weights, kind="stable")
        ranking = ranking[: np.count_nonzero(weights)]
        rows: list[_Row] = []
        for n_shown in range(len(ranking), -1, -1):
            shown = {int(i) for i in ranking[:n_shown]}
            if alone:
                rows = self._flat_rows(weights, ranking, shown)
            else:
                rows = self._grouped_rows(weights, views, shown, max_rows // 3)
            if len(rows) <= max_rows:
                break
        return rows

    def _flat_rows(
        self, weights: np.ndarray, ranking: np.ndarray, shown: set[int]
    ) -> list[_Row]:
        """Rows for the case of one kernel per view."""
        rows = [
            _Row("kernel", self.kernel_names[i], float(weights[i]))
            for i in map(int, ranking)
            if i in shown
        ]
        rest = [i for i in range(len(weights)) if i not in shown]
        return [*rows, *_rest_row(weights, rest, None)]

    def _grouped_rows(
        self,
        weights: np.ndarray,
        views: dict[str, list[int]],
        shown: set[int],
        max_views: int,
    ) -> list[_Row]:
        """One row per view, followed by the rows of its kernels."""
        rows: list[_Row] = []
        for view, members in list(views.items())[:max_views]:
            total = float(weights[members].sum())
            if len(members) == 1:
                rows.append(_Row("view", self.kernel_names[members[0]], total, view))
                continue
            rows.append(_Row("view", view, total, view))
            if shown.isdisjoint(members):
                continue
            names = [self.kernel_names[i].removeprefix(f"{view}: ") for i in members]
            for i, name in zip(members, _without_steps(names), strict=True):
                if i in shown:
                    rows.append(_Row("kernel", name, float(weights[i]), view))
            rows += _rest_row(weights, [i for i in members if i not in shown], view)
        others = list(views.values())[max_views:]
        if others:
            total = float(sum(weights[members].sum() for members in others))
            zero = " of weight 0" if total == 0 else ""
            rows.append(_Row("others", f"{len(others)} more views{zero}", total))
        return rows

    def _colors(self) -> dict[str | None, str]:
        """Colours of the heaviest views; a single colour with one kernel per view."""
        weights = np.asarray(self.weights, dtype=float)
        views = _by_weight(weights, self.view_names)
        if all(len(members) == 1 for members in views.values()):
            return {None: COLORS[0]}
        return dict(zip(views, COLORS[:6], strict=False))

    def _write_shares(
        self, ax: Any, rows: list[_Row], heights: np.ndarray
    ) -> list[Any]:
        total = float(np.sum(np.asarray(self.weights, dtype=float)))
        return [
            ax.annotate(
                ""
                if row.kind == "rest" and not row.weight
                else _percent(row.weight / total),
                (row.length, height),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9 if row.kind == "view" else 8,
                fontweight="bold" if row.kind == "view" else "normal",
                color="black" if row.kind == "view" else "#4D4D4D",
            )
            for row, height in zip(rows, heights, strict=True)
        ]

    def _label(self, ax: Any, rows: list[_Row], heights: np.ndarray) -> None:
        ax.set_yticks(heights, [_shortened(row.label) for row in rows], fontsize=8)
        for label, row in zip(ax.get_yticklabels(), rows, strict=True):
            if row.kind == "view":
                label.set(fontweight="bold", fontsize=9)
            elif row.kind in ("rest", "others"):
                label.set(style="italic", color="#4D4D4D")
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(heights[-1] + 0.7, -0.7)
        largest = max(row.length for row in rows)
        ax.set_xlim(0, 1.15 * largest if largest > 0 else 1)
        ax.set_xlabel("weight")
        ax.spines[["top", "right"]].set_visible(False)
        if self.title:
            ax.set_title(self.title, fontsize=10, loc="left")


def _by_weight(weights: np.ndarray, view_names: Sequence[str]) -> dict[str, list[int]]:
    """The kernels of each view, with views and kernels sorted by decreasing weight."""
    members: dict[str, list[int]] = {}
    for i in np.argsort(-weights, kind="stable"):
        members.setdefault(view_names[int(i)], []).append(int(i))
    names = sorted(members, key=lambda view: -float(weights[members[view]].sum()))
    return {view: members[view] for view in names}


def _without_steps(names: list[str]) -> list[str]:
    """Kernel names without their transformers, if they are still distinct."""
    short = [name.rpartition(" > ")[2] for name in names]
    return short if len(set(short)) == len(short) else names


def _rest_row(weights: np.ndarray, rest: list[int], view: str | None) -> list[_Row]:
    """One row for all kernels in ``rest``, or no row if there are none."""
    if not rest:
        return []
    n_zero = sum(weights[i] == 0 for i in rest)
    parts = [f"{len(rest) - n_zero} more"] if n_zero < len(rest) else []
    parts += [f"{n_zero} of weight 0"] if n_zero else []
    return [_Row("rest", " + ".join(parts), float(weights[rest].sum()), view)]


def _positions(rows: list[_Row]) -> np.ndarray:
    """Vertical positions (m,), with a gap above each view if kernels are shown."""
    grouped = any(row.kind == "kernel" for row in rows)
    above = [VIEW_GAP if row.kind in ("view", "others") else 0.0 for row in rows]
    return np.arange(len(rows)) + grouped * (np.cumsum(above) - above[0])


def _percent(share: float) -> str:
    if share == 0:
        return "0"
    if share < 0.001:
        return "<0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def _shortened(label: str, length: int = 40) -> str:
    return label if len(label) <= length else f"{label[: length - 1]}…"


def _title(model: Any) -> str:
    """What is known about the weights of a fitted model."""
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return "Uniform kernel weights"
    if certificate.stationarity is not None:
        return f"Kernel weights, stationary to {certificate.stationarity:.1e}"
    if certificate.gap <= 0:
        return "Kernel weights, optimal"
    return f"Kernel weights, within {certificate.gap:.1e} of the optimum"

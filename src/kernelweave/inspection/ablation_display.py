"""A plot of what the views contribute on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.inspection._figure import COLORS, GREY, label_rows, pyplot
from kernelweave.inspection.ablation import view_ablation

#: Height of a view in inches, and of the rest of the figure.
ROW_HEIGHT, FRAME = 0.42, 1.5


@dataclass(kw_only=True, repr=False, eq=False)
class AblationDisplay:
    """Held-out loss without each view and with it alone, and as views are dropped.

    On the left, two points per view: the loss of all other views (filled) and that of
    the view alone (open), beside the loss of all views (line). On the right, the loss
    as views are dropped from top to bottom, with the band of one standard error around
    the best; the recommended set is marked. Whiskers are one standard error over the
    folds.

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
    >>> from kernelweave.datasets import load_breast_cancer_views
    >>> from kernelweave.inspection import AblationDisplay
    >>> cancer = load_breast_cancer_views()
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
        cv, cost, n_jobs, random_state
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
            height = FRAME + ROW_HEIGHT * len(self.result.views)
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
        self._mark_baseline(ax)
        label_rows(ax, heights, [row["view"] for row in rows])
        ax.set_title("One view at a time", fontsize=10, loc="left")
        self._finish(ax)
        # Below the label of the axis: points and intervals may be anywhere inside.
        ax.legend(
            frameon=False,
            fontsize=8,
            ncols=2,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            bbox_transform=ax.transAxes + _down(ax.figure, points=30),
        )

    def _plot_order(self, ax: Any) -> None:
        """The loss as views are dropped, with the recommended set."""
        order = self.result.order
        heights = np.arange(len(order), dtype=float)
        loss = np.array([step["loss"] for step in order])
        error = np.array([step["loss_se"] for step in order])
        best = int(np.argmin(loss))
        ax.axvspan(
            loss[best] - error[best],
            loss[best] + error[best],
            color=COLORS[0],
            alpha=0.12,
            linewidth=0,
        )
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
        ax.set_title("Dropped one after the other", fontsize=10, loc="left")
        self._finish(ax)

    def _mark_baseline(self, ax: Any) -> None:
        if np.isfinite(self.result.baseline_loss):
            ax.axvline(
                self.result.baseline_loss,
                color=GREY,
                linewidth=1,
                linestyle=":",
                label="no view",
            )

    def _finish(self, ax: Any) -> None:
        ax.set_xlabel(f"held-out {self.result.loss_name}")
        ax.spines[["top", "right"]].set_visible(False)


def _down(figure: Any, points: float) -> Any:
    """A shift down by so many points, whatever the size of the axes."""
    from matplotlib.transforms import ScaledTranslation

    return ScaledTranslation(0, -points / 72, figure.dpi_scale_trans)

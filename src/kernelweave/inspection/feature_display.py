"""Bars of the columns that move the decision most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.inspection._figure import COLORS, Drawn, axes
from kernelweave.inspection.contributions import readout_of
from kernelweave.inspection.feature_importance import feature_importance
from kernelweave.inspection.weights import fitted_model

#: Height of a bar of the plot in inches.
BAR_HEIGHT = 0.26


@dataclass(kw_only=True, repr=False, eq=False)
class FeatureImportanceDisplay(Drawn):
    """Horizontal bars of how each column of a view moves the decision value.

    A dark bar is the standardised coefficient: the mean change of the decision value
    per standard deviation of the column, to the right if larger values raise it. The
    light bar behind it is the importance, the root mean square of that change, which
    also counts effects whose sign differs between rows; for linear kernels both agree.
    With resamples, a line is the 90 % interval of the coefficient, and columns whose
    interval contains zero are printed in grey.

    Parameters
    ----------
    rows : list of dict
        The rows of :func:`feature_importance` for one output.
    xlabel : str
        What the bars measure.
    title : str, default=None
        Title of the plot.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and figure of the plot.
    bars_ : matplotlib BarContainer
        The dark bars, from top to bottom.
    features_ : list
        The columns drawn, in the same order.

    See Also
    --------
    feature_importance : The numbers that are drawn.

    Examples
    --------
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import load_breast_cancer_views
    >>> from kernelweave.inspection import FeatureImportanceDisplay
    >>> cancer = load_breast_cancer_views()
    >>> model = MultipleKernelFDA(cancer.views, norm=2, alpha=0.1)
    >>> model = model.fit(cancer.data[::3], cancer.target[::3])
    >>> display = FeatureImportanceDisplay.from_estimator(model, "worst")
    >>> display.figure_.savefig("features.png")  # doctest: +SKIP
    """

    rows: Sequence[Mapping[str, Any]]
    xlabel: str
    title: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        view: str,
        *,
        X: Any = None,
        y: Any = None,
        n_resamples: int = 0,
        random_state: Any = None,
        output: Any = None,
        ax: Any = None,
        max_features: int = 20,
    ) -> FeatureImportanceDisplay:
        """Draw the columns of a view of a fitted model.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier or regressor of this package, or a Pipeline or search that
            ends in one.
        view : str
            Name of the view.
        X, y, n_resamples, random_state : object
            See :func:`feature_importance`.
        output : object, default=None
            The class or target number to draw; needed if there are several.
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.
        max_features : int, default=20
            Maximum number of columns, those of the largest importance.

        Returns
        -------
        display : FeatureImportanceDisplay
            The plot.
        """
        rows = feature_importance(
            estimator,
            view,
            X=X,
            y=y,
            n_resamples=n_resamples,
            random_state=random_state,
        )
        known = list(dict.fromkeys(row["output"] for row in rows))
        if output not in known:
            raise ValueError(
                f"output must be one of {known!r:.200}, since the model has one "
                f"decision value for each of them; got {output!r}"
            )
        unit = readout_of(fitted_model(estimator)).unit
        if output is not None:
            unit = f"{unit}, output {output}"
        kind = "Exact coefficients" if rows[0]["linear"] else "Mean gradients"
        display = cls(
            rows=[row for row in rows if row["output"] == output],
            xlabel=f"change of the {unit}\nper standard deviation of the column",
            title=f"{kind} of the view {view!r}",
        )
        return display.plot(ax=ax, max_features=max_features)

    def plot(
        self, ax: Any = None, *, max_features: int = 20
    ) -> FeatureImportanceDisplay:
        """Draw the columns.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure, tall enough for the bars.
        max_features : int, default=20
            Maximum number of columns, those of the largest importance.

        Returns
        -------
        display : FeatureImportanceDisplay
            The plot.
        """
        if max_features < 1:
            raise ValueError(f"max_features must be at least 1; got {max_features!r}")
        rows = sorted(self.rows, key=lambda row: -row["importance"])
        rest = rows[max_features:]
        rows = rows[:max_features]
        size = 1.3 + BAR_HEIGHT * len(rows)
        ax = axes("FeatureImportanceDisplay.plot", ax, 7.0, size)
        heights = np.arange(len(rows))
        mean = np.array([row["standardised"] for row in rows])
        root = np.array([row["importance"] for row in rows])
        signs = np.where(mean >= 0, 1.0, -1.0)
        colors = [COLORS[1] if value >= 0 else COLORS[0] for value in mean]
        ax.barh(heights, signs * root, height=0.7, color=colors, alpha=0.3)
        self.bars_ = ax.barh(heights, mean, height=0.7, color=colors)
        ax.set_yticks(heights, [str(row["feature"]) for row in rows], fontsize=8)
        self._draw_intervals(ax, rows, heights)
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.set_xlabel(self.xlabel + (f"\n({len(rest)} more columns)" if rest else ""))
        self.features_ = [row["feature"] for row in rows]
        return self._finish(ax)

    def _draw_intervals(
        self, ax: Any, rows: list[Mapping[str, Any]], heights: np.ndarray
    ) -> None:
        """Intervals over resamples, and grey names where they contain zero."""
        if not rows or "low" not in rows[0]:
            return
        low = np.array([row["low"] for row in rows])
        high = np.array([row["high"] for row in rows])
        ax.hlines(heights, low, high, color="black", linewidth=1.2)
        for label, a, b in zip(ax.get_yticklabels(), low, high, strict=True):
            label.set_color("#8C8C8C" if a <= 0 <= b else "black")

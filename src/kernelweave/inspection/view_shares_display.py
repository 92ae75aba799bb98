"""A plot of the shares of the views, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.inspection._figure import COLORS, GREY, Drawn, axes, label_rows
from kernelweave.inspection.pvalues import view_pvalues
from kernelweave.inspection.view_shares import weight_intervals
from kernelweave.inspection.weights import fitted_model, with_caution

#: Height of a view in inches.
ROW_HEIGHT = 0.34
#: A p-value up to this is printed in bold, with a bar in colour.
SIGNIFICANT = 0.05


@dataclass(kw_only=True, repr=False, eq=False)
class ViewSharesDisplay(Drawn):
    """Horizontal bars of view shares with intervals, the largest share first.

    A bar is the share of the view in the combined kernel, the line its interval over
    halves of the rows (:func:`weight_intervals`), and the column on the right says in
    how many halves the view had more than 1 % or, if p-values are given, how likely
    a useless view would have got this weight.

    Parameters
    ----------
    rows : list of dict
        The records of :func:`weight_intervals`.
    pvalues : dict of str to float, default=None
        Those of :func:`view_pvalues`.
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
    >>> from kernelweave.datasets import load_breast_cancer_views
    >>> from kernelweave.inspection import ViewSharesDisplay
    >>> cancer = load_breast_cancer_views()
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
            The rows and targets that it was fitted on.
        n_resamples, confidence : int, float
            See :func:`weight_intervals`.
        n_decoys : int, default=None
            If given, p-values from this many decoys are computed and shown too.
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
        rows = weight_intervals(
            estimator,
            X,
            y,
            n_resamples=n_resamples,
            confidence=confidence,
            random_state=random_state,
        )
        pvalues = None
        if n_decoys is not None:
            pvalues = view_pvalues(
                estimator, X, y, n_decoys=n_decoys, random_state=random_state
            )
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
            Maximum number of views; the last row counts the others.

        Returns
        -------
        display : ViewSharesDisplay
            The plot.
        """
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1; got {max_rows!r}")
        ranked = sorted(self.rows, key=lambda row: -row["share"])
        shown, others = ranked[:max_rows], ranked[max_rows:]
        size = 1.2 + ROW_HEIGHT * (len(shown) + bool(others))
        ax = axes("ViewSharesDisplay.plot", ax, 7.0, size)
        heights = np.arange(len(shown))
        share = np.array([100 * row["share"] for row in shown])
        low = np.array([100 * row["low"] for row in shown])
        high = np.array([100 * row["high"] for row in shown])
        colors = [COLORS[0] if self._stands_out(row) else GREY for row in shown]
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
        self.texts_ = self._write_column(ax, shown, heights)
        self._label(ax, shown, others)
        return self._finish(ax)

    def _stands_out(self, row: Mapping[str, Any]) -> bool:
        """Whether a view is more than noise, as far as is known."""
        if self.pvalues is not None:
            return bool(self.pvalues[row["view"]] <= SIGNIFICANT)
        return bool(row["low"] > 0.0)

    def _write_column(
        self, ax: Any, shown: list[Mapping[str, Any]], heights: np.ndarray
    ) -> list[Any]:
        """p-values, or how often a view is selected, in a column on the right."""
        head = "selected" if self.pvalues is None else "p-value"
        place = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points"}
        ax.annotate(
            head, (1.0, -0.75), xytext=(6, 0), fontsize=8, color="#4D4D4D", **place
        )
        texts = []
        for row, height in zip(shown, heights, strict=True):
            if self.pvalues is None:
                text = f"{100 * row['selected']:.0f} %"
            else:
                text = f"{self.pvalues[row['view']]:.2g}"
            texts.append(
                ax.annotate(
                    text,
                    (1.0, height),
                    xytext=(6, 0),
                    va="center",
                    fontsize=9,
                    fontweight="bold" if self._stands_out(row) else "normal",
                    **place,
                )
            )
        return texts

    def _label(
        self,
        ax: Any,
        shown: list[Mapping[str, Any]],
        others: list[Mapping[str, Any]],
    ) -> None:
        labels = [str(row["view"]) for row in shown]
        if others:
            labels.append(f"{len(others)} more views")
        label_rows(ax, np.arange(len(labels)), labels)
        longest = max(max(row["share"], row["high"]) for row in self.rows)
        ax.set_xlim(0, 100 * min(1.0, 1.05 * longest) if longest > 0 else 100)
        ax.set_xlabel("share of the combined kernel [%]")

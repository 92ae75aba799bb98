"""Plots that several papers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kernelweave.inspection._figure import color, marker, pyplot
from reproduce.results import Results


def subplots(
    n: int, width: float = 4.5, height: float = 3.6, lines: int = 1
) -> tuple[Any, np.ndarray]:
    """A figure, and n panels side by side in each of its lines, of a size in inches."""
    figure, panels = pyplot("subplots").subplots(
        lines,
        n,
        figsize=(n * width, lines * height),
        squeeze=False,
        layout="constrained",
    )
    return figure, panels.ravel()


def bars(results: Results, measures: Sequence[str], labels: Sequence[str]) -> Any:
    """One panel per measure, one group of bars per row, one bar per column."""
    figure, panels = subplots(len(measures), height=3.4)
    rows, columns = results.rows, list(results.experiment.columns)
    width = 0.8 / len(columns)
    for panel, measure, label in zip(panels, measures, labels, strict=True):
        for j, column in enumerate(columns):
            means = results.means(rows, column, measure)
            errors = [results.error(row, column, measure) for row in rows]
            offset = (j - (len(columns) - 1) / 2) * width
            panel.bar(
                np.arange(len(rows)) + offset,
                means,
                width,
                yerr=np.nan_to_num(errors),
                color=color(j),
                label=column,
            )
        panel.set_xticks(np.arange(len(rows)), rows)
        panel.set_ylabel(label)
    lowest = min(results.mean(r, c, measures[0]) for r in rows for c in columns)
    if lowest > 50:  # accuracies differ only near the top of the scale
        panels[0].set_ylim(max(0.0, lowest - 10), 100)
    legend_below(figure, panels[0])
    return figure


def legend_below(figure: Any, panel: Any, fontsize: str | None = "small") -> None:
    """One legend for all panels, with the labels of this one, up to five in a line."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(labels) if len(labels) <= 5 else 4,
        frameon=False,
        fontsize=fontsize,
    )


def curves(
    results: Results,
    at: Mapping[str, float],
    measure: str,
    panel: Any,
    band: Literal["", "error", "deviation"] = "",
) -> None:
    """One curve per column over the rows that were run.

    Parameters
    ----------
    results : Results
        The results to draw.
    at : dict
        Position of each row on the axis.
    measure : str
        The measure to draw.
    panel : Axes
        Where to draw.
    band : {"", "error", "deviation"}
        Whether there is a band around each curve: one standard error of the mean, or
        one standard deviation of a split.
    """
    panel.spines[["top", "right"]].set_visible(not band)
    rows = [row for row in results.rows if row in at]
    positions = [at[row] for row in rows]
    sizes = [len(results.splits[row]) if band == "deviation" else 1 for row in rows]
    for j, column in enumerate(results.experiment.columns):
        means = results.means(rows, column, measure)
        errors = np.array([results.error(row, column, measure) for row in rows])
        width = errors * np.sqrt(sizes)
        panel.plot(
            positions, means, color=color(j), marker=marker(j), label=column, ms=4
        )
        if band:
            ends = means - width, means + width
            panel.fill_between(positions, *ends, color=color(j), alpha=0.15, lw=0)

"""A plot of rows in discriminant coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from kernelweave._array import to_numpy
from kernelweave._text import counted
from kernelweave.inspection._figure import Drawn, axes, color, legend_beside, marker
from kernelweave.inspection._rows import fitted_model
from kernelweave.models.shared.inputs import of_own_type

#: With more classes than this, their names are also written at their means.
MAX_UNNAMED = 6
#: With more classes than this, there is no legend.
MAX_LEGEND = 24


@dataclass(kw_only=True, repr=False, eq=False)
class ProjectionDisplay(Drawn):
    """Rows in their first two discriminant coordinates, coloured by class.

    Large markers are the class means of the model. With two classes there is only one
    coordinate, which is drawn as histograms with a line at each mean.

    Parameters
    ----------
    coordinates : ndarray of shape (m, r)
        Discriminant coordinates of the rows.
    labels : ndarray of shape (m,)
        Class of each row.
    classes : ndarray of shape (k,)
        All classes.
    means : ndarray of shape (k, r)
        Class means.
    legend_title : str, default="class"
        Title of the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and figure of the plot.
    points_ : dict
        The scatter of each class, or its histogram bars.
    means_ : dict
        The mean of each class: a scatter, or a line.
    legend_ : matplotlib Legend or None
        The legend; None if there are too many classes.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import KernelFDA
    >>> from kernelweave.inspection import ProjectionDisplay
    >>> X, y = load_wine(return_X_y=True)
    >>> display = ProjectionDisplay.from_estimator(KernelFDA().fit(X, y), X, y)
    >>> display.figure_.savefig("projection.png")  # doctest: +SKIP
    """

    coordinates: np.ndarray
    labels: np.ndarray
    classes: np.ndarray
    means: np.ndarray
    legend_title: str = "class"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *, ax: Any = None
    ) -> ProjectionDisplay:
        """Project rows with a fitted classifier and draw them.

        Parameters
        ----------
        estimator : estimator
            Fitted discriminant classifier, or a Pipeline or search that ends in one.
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows, preferably new ones: training rows look too well separated.
        y : array-like of shape (m,), default=None
            Their classes; None uses the predictions of the model.
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.

        Returns
        -------
        display : ProjectionDisplay
            The plot.
        """
        model = fitted_model(estimator)
        if not hasattr(model, "gaussians_"):
            raise TypeError(
                "ProjectionDisplay needs a discriminant classifier such as KernelFDA "
                f"or MultipleKernelFDA; got {type(model).__name__}"
            )
        given = estimator.predict(X) if y is None else y
        labels = column_or_1d(of_own_type(given, cls.__name__))
        unknown = np.setdiff1d(labels, model.classes_)
        if unknown.size:
            raise ValueError(
                f"y contains the label {unknown.tolist()[0]!r}, which the model does "
                f"not know; its classes are {model.classes_.tolist()!r:.200}"
            )
        coordinates = to_numpy(estimator.transform(X))
        if len(labels) != len(coordinates):
            raise ValueError(
                f"X has {counted(len(coordinates), 'row')}, but y has "
                f"{counted(len(labels), 'label')}; pass one label per row"
            )
        display = cls(
            coordinates=coordinates,
            labels=labels,
            classes=model.classes_,
            means=model.gaussians_.means,
            legend_title="predicted class" if y is None else "class",
        )
        return display.plot(ax=ax)

    def plot(self, ax: Any = None) -> ProjectionDisplay:
        """Draw the rows.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.

        Returns
        -------
        display : ProjectionDisplay
            The plot.
        """
        ax = axes("ProjectionDisplay.plot", ax, 7.0, 4.8)
        self.points_: dict[Any, Any] = {}
        self.means_: dict[Any, Any] = {}
        if self.coordinates.shape[1] == 1:
            self._plot_line(ax)
        else:
            self._plot_plane(ax)
        ax.set_xlabel("discriminant coordinate 1")
        self.legend_ = None
        if len(self.classes) <= MAX_LEGEND:
            n_columns = 1 + (len(self.classes) - 1) // 12
            self.legend_ = legend_beside(ax, self.legend_title, ncols=n_columns)
        return self._finish(ax)

    def _plot_line(self, ax: Any) -> None:
        """Histograms of the only coordinate of two classes, a line at each mean."""
        values = self.coordinates[:, 0]
        edges = np.histogram_bin_edges(values, bins=min(40, 10 + len(values) // 20))
        for c, label in enumerate(self.classes):
            chosen = self.labels == label
            _, _, self.points_[label] = ax.hist(
                values[chosen],
                bins=edges,
                color=color(c),
                alpha=0.55,
                label=f"{label} ({np.count_nonzero(chosen)})",
            )
            self.means_[label] = ax.axvline(
                float(self.means[c, 0]), color=color(c), linestyle="--", linewidth=1.5
            )
        top = ax.get_ylim()[1]
        for c, label in enumerate(self.classes):
            chosen = values[self.labels == label]
            height = np.full(len(chosen), -top * (0.035 + 0.045 * c))
            ax.plot(chosen, height, "|", color=color(c), markersize=7, alpha=0.6)
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set_ylim(-0.12 * top, top)
        ax.set_ylabel("rows")

    def _plot_plane(self, ax: Any) -> None:
        """Points in the first two coordinates, with a large marker at each mean."""
        crowded = len(self.labels) > 500
        for c, label in enumerate(self.classes):
            chosen = self.labels == label
            style = {"color": color(c), "marker": marker(c)}
            self.points_[label] = ax.scatter(
                *self.coordinates[chosen, :2].T,
                s=12 if crowded else 24,
                alpha=0.45 if crowded else 0.7,
                linewidths=0,
                **style,
            )
            self.means_[label] = ax.scatter(
                *self.means[c, :2],
                s=120,
                edgecolors="black",
                linewidths=1.2,
                zorder=3,
                label=f"{label} ({np.count_nonzero(chosen)})",
                **style,
            )
            if len(self.classes) > MAX_UNNAMED:
                ax.text(
                    *self.means[c, :2],
                    str(label),
                    ha="center",
                    va="center",
                    fontsize=8,
                    fontweight="bold",
                    color="white",
                    bbox={"boxstyle": "round", "fc": color(c), "ec": "black"},
                    zorder=4,
                )
        # Distances to the means decide the class, so both axes share a scale.
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_ylabel("discriminant coordinate 2")

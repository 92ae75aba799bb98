"""How fast a solver closes the gap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.inspection._figure import Drawn, axes, color, marker, text_beside
from kernelweave.solvers.loop import TraceRow
from kernelweave.solvers.solve import Solution

#: Gaps that are zero or negative because of rounding are drawn here.
DRAWN_GAP = 1e-16
#: Lines with more points than this have no markers.
MAX_MARKERS = 40
#: Relative spread that is shown of values that hardly differ.
LEAST_SPREAD = 1e-6
KINDS = ("gap", "bounds")
AGAINST = {"iteration": "iteration", "seconds": "time in seconds"}


@dataclass(kw_only=True, repr=False, eq=False)
class ConvergenceDisplay(Drawn):
    """Relative gap, or value and lower bound, of one or several solves.

    Parameters
    ----------
    traces : dict
        The ``trace`` of each named :class:`~kernelweave.Solution`.
    tol : float, default=None
        The requested tolerance, drawn as a line.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and figure of the plot.
    lines_ : dict
        The line of each solve: the gap, or the value.
    lower_bounds_ : dict
        The line of each lower bound; empty for ``kind="gap"``.
    tol_line_ : matplotlib Line2D or None
        The tolerance.
    legend_ : matplotlib Legend or None
        The legend; None if there is only one line.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import Fisher, Simplex, solve
    >>> from kernelweave.inspection import ConvergenceDisplay
    >>> from kernelweave.kernels import DenseBank
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(30, 4)), np.repeat([1.0, -1.0], 15)
    >>> bank = DenseBank.from_kernels(np.stack([np.outer(x, x) for x in X.T]))
    >>> criterion = Fisher(bank, y[:, None], alpha=0.1)
    >>> solutions = {
    ...     method: solve(criterion, Simplex(), method=method)
    ...     for method in ("newton", "cutting_plane")
    ... }
    >>> display = ConvergenceDisplay.from_solution(solutions)
    >>> display.figure_.savefig("convergence.png")  # doctest: +SKIP
    """

    traces: Mapping[str, tuple[TraceRow, ...]]
    tol: float | None = None

    @classmethod
    def from_solution(
        cls,
        solution: Solution | Mapping[str, Solution],
        *,
        kind: str = "gap",
        against: str = "iteration",
        ax: Any = None,
    ) -> ConvergenceDisplay:
        """Draw the history of solutions returned by :func:`kernelweave.solve`.

        Parameters
        ----------
        solution : Solution or dict of Solution
            One solution, or several to compare, each with a name.
        kind : {"gap", "bounds"}, default="gap"
            "gap" draws the relative gap on a logarithmic scale, "bounds" the value and
            the lower bound.
        against : {"iteration", "seconds"}, default="iteration"
            The horizontal axis.
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.

        Returns
        -------
        display : ConvergenceDisplay
            The plot.
        """
        solutions: Mapping[str, Solution] = (
            {solution.method: solution} if isinstance(solution, Solution) else solution
        )
        if not solutions:
            raise ValueError("there is no solution to draw: the dict is empty")
        tolerances = {each.tol for each in solutions.values()}
        display = cls(
            traces={name: each.trace for name, each in solutions.items()},
            tol=tolerances.pop() if len(tolerances) == 1 else None,
        )
        return display.plot(ax=ax, kind=kind, against=against)

    def plot(
        self, ax: Any = None, *, kind: str = "gap", against: str = "iteration"
    ) -> ConvergenceDisplay:
        """Draw the histories.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None creates a new figure.
        kind : {"gap", "bounds"}, default="gap"
            "gap" draws the relative gap on a logarithmic scale, "bounds" the value and
            the lower bound.
        against : {"iteration", "seconds"}, default="iteration"
            The horizontal axis.

        Returns
        -------
        display : ConvergenceDisplay
            The plot.
        """
        for what, value, choices in (
            ("kind", kind, KINDS),
            ("against", against, AGAINST),
        ):
            if value not in choices:
                known = ", ".join(map(repr, choices))
                raise ValueError(f"{what} must be one of {known}; got {value!r}")
        ax = axes("ConvergenceDisplay.plot", ax, 6.4, 4.2)
        self.lines_: dict[str, Any] = {}
        self.lower_bounds_: dict[str, Any] = {}
        self.tol_line_ = None
        for index, name in enumerate(self.traces):
            self._draw(ax, index, name, kind, against)
        if kind == "gap":
            self._finish_gap(ax)
        else:
            self._finish_bounds(ax)
        self._finish_horizontal(ax, against)
        several = len(self.traces) > 1 or kind == "bounds"
        self.legend_ = ax.legend(frameon=False) if several else None
        return self._finish(ax)

    def _draw(self, ax: Any, index: int, name: str, kind: str, against: str) -> None:
        """Draw the history of one solve."""
        trace = self.traces[name]
        if not trace:
            raise ValueError("a solution without a trace cannot be drawn")
        x, gap, value, lower = (
            np.asarray([getattr(row, column) for row in trace], dtype=float)
            for column in (against, "gap", "value", "lower_bound")
        )
        shown = len(x) <= MAX_MARKERS
        style: dict[str, Any] = {"color": color(index), "markersize": 4.5}
        style["marker"] = marker(index) if shown else None
        if kind == "gap":
            gap = np.maximum(gap, DRAWN_GAP)
            (self.lines_[name],) = ax.plot(x, gap, label=name, **style)
            return
        prefix = f"{name}: " if len(self.traces) > 1 else ""
        (self.lines_[name],) = ax.plot(x, value, label=f"{prefix}value", **style)
        (self.lower_bounds_[name],) = ax.plot(
            x, lower, "--", label=f"{prefix}lower bound", **style
        )
        ax.fill_between(x, lower, value, color=style["color"], alpha=0.12)

    def _finish_gap(self, ax: Any) -> None:
        ax.set_yscale("log")
        ax.set_ylabel("relative gap")
        if self.tol is not None:
            style = {"color": "black", "linestyle": ":", "linewidth": 1}
            self.tol_line_ = ax.axhline(self.tol, **style)
            place = {"xycoords": ax.get_yaxis_transform(), "gap": 3}
            text_beside(ax, f"tol\n{self.tol:.0e}", (1.0, self.tol), **place)

    def _finish_bounds(self, ax: Any) -> None:
        """Crop the first bounds, which may lie far below the rest."""
        values = np.concatenate([line.get_ydata() for line in self.lines_.values()])
        bounds = [line.get_ydata() for line in self.lower_bounds_.values()]
        top, bottom = np.nanmax(values), np.nanmin(values)
        spread = max(top - bottom, LEAST_SPREAD * abs(top))
        lowest = max(np.nanmin(np.concatenate(bounds)), bottom - 2 * spread)
        ax.set_ylim(lowest - 0.05 * (top - lowest), top + 0.05 * (top - lowest))
        ax.set_ylabel("criterion")

    def _finish_horizontal(self, ax: Any, against: str) -> None:
        ax.set_xlabel(AGAINST[against])
        ends = [line.get_xdata()[-1] for line in self.lines_.values()]
        if max(ends) > 10 * min(ends):
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter("{x:g}")
        elif against == "iteration":
            ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.25)

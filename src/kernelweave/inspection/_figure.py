"""What all plots share: matplotlib on demand, colours, markers."""

from __future__ import annotations

from typing import Any, Self

from kernelweave.exceptions import library

#: The colours of Okabe and Ito, safe for colour-blind readers, without the yellow.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
GREY = "#8C8C8C"
# Six is coprime to the number of colours, which gives 42 distinct pairs.
MARKERS = ("o", "s", "^", "D", "v", "P")


def pyplot(caller: str) -> Any:
    """Import ``matplotlib.pyplot``, which only plots need."""
    return library(
        "matplotlib.pyplot",
        f"{caller} needs matplotlib, which is not installed; install it with "
        "the extra 'plot': pip install 'kernelweave[plot]'",
    )


def can_draw() -> bool:
    """Whether matplotlib is installed; files of figures then need no display."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    return True


def save_figure(figure: Any, path: Any) -> None:
    """Write a figure to a file, and close it."""
    figure.savefig(path, dpi=150)
    pyplot("save_figure").close(figure)


def axes(caller: str, ax: Any, width: float, height: float) -> Any:
    """Axes to draw in; without ``ax``, new ones in a figure of that size in inches."""
    plt = pyplot(caller)
    if ax is None:
        ax = plt.figure(figsize=(width, height), layout="constrained").add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def color(index: int) -> str:
    """Colour of the class, view or method ``index``."""
    return COLORS[index % len(COLORS)]


def marker(index: int) -> str:
    """Marker of the class or method ``index``."""
    return MARKERS[index % len(MARKERS)]


def label_rows(
    ax: Any, heights: Any, labels: list[str], *, margin: float = 0.6, size: float = 9
) -> None:
    """Name the rows of a plot at these heights, the first of them at the top."""
    ax.set_yticks(heights, labels, fontsize=size)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(heights[-1] + margin, -margin)


def shortened(text: str, most: int) -> str:
    """The text, cut off if it has more characters than ``most``."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def text_beside(
    ax: Any, text: str, place: tuple[float, Any], *, gap: float = 4, **style: Any
) -> Any:
    """Text ``gap`` points to the right of a place, or to its left if negative."""
    middle = {"va": "center", "ha": "left" if gap >= 0 else "right", "fontsize": 8}
    shift = {"xytext": (gap, 0), "textcoords": "offset points"}
    return ax.annotate(text, place, **shift, **middle | style)


def legend_beside(ax: Any, title: str, **style: Any) -> Any:
    """A legend on the right of the axes."""
    place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "frameon": False}
    return ax.legend(title=title, **place, **style)


class Drawn:
    """A display after it has been drawn in axes."""

    title: str | None = None

    def _finish(self, ax: Any) -> Self:
        """Keep the axes and the figure; write the title, if there is one."""
        if self.title:
            ax.set_title(self.title, fontsize=10, loc="left")
        self.ax_, self.figure_ = ax, ax.figure
        return self

"""What all plots share: matplotlib on demand, colours, markers."""

from __future__ import annotations

from typing import Any

#: The colours of Okabe and Ito, safe for colour-blind readers, without the yellow.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
GREY = "#8C8C8C"
# Six is coprime to the number of colours, which gives 42 distinct pairs.
MARKERS = ("o", "s", "^", "D", "v", "P")


def pyplot(caller: str) -> Any:
    """Import ``matplotlib.pyplot``, which only plots need."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{caller} needs matplotlib, which is not installed; install it with "
            "the extra 'plot': pip install 'kernelweave[plot]'"
        ) from error
    return plt


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

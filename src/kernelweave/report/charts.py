"""Charts as inline SVG, coloured by the classes of the page's style sheet.

Every chart has a title for screen readers. Text is at least 13 units high in a drawing
of 640 units, which stays readable at 400 pixels; wide labels are cut and given in full
as a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

WIDTH = 640
ROW = 34  # height of a row of a bar chart
LABELS = 170  # width of the labels of a bar chart
#: More points than this make a page heavy and a picture no clearer.
MOST_POINTS = 2000


@dataclass(frozen=True)
class Bar:
    """A row of a bar chart: a value with an interval, or without one."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""


def bars(rows: Sequence[Bar], title: str, axis: str, percent: bool = False) -> str:
    """Horizontal bars with intervals; zero is always on the axis."""
    ends = [0.0]
    for row in rows:
        ends += [v for v in (row.value, row.low, row.high) if v is not None]
    ends = [end for end in ends if math.isfinite(end)]
    ticks = _ticks(min(ends), max(ends))
    left, right = LABELS, WIDTH - 70
    scale = _scale(ticks[0], ticks[-1], left, right)
    height = ROW * len(rows) + 50
    parts = [_grid(ticks, scale, ROW * len(rows) + 8, percent)]
    for i, row in enumerate(rows):
        y = 8 + ROW * i + ROW / 2
        a, b = sorted((scale(0.0), scale(row.value)))
        said = _number(row.value, percent)
        if row.low is not None and row.high is not None:
            said += f" ({_number(row.low, percent)} to {_number(row.high, percent)})"
        parts.append(
            f"<g><title>{escape(f'{row.label}: {said} {row.note}'.strip())}</title>"
            f'<text class="label" x="{left - 8}" y="{y + 5:.1f}" text-anchor="end">'
            f"{escape(_cut(row.label, 22))}</text>"
            f'<rect class="bar" x="{a:.1f}" y="{y - 9:.1f}" width="{max(b - a, 1):.1f}" '
            'height="18" rx="2"/>'
        )
        tip = b
        if row.low is not None and row.high is not None:
            low, high = scale(row.low), scale(row.high)
            tip = max(tip, high)
            parts.append(
                f'<path class="whisker" d="M{low:.1f} {y:.1f}H{high:.1f}'
                f'M{low:.1f} {y - 6:.1f}v12M{high:.1f} {y - 6:.1f}v12"/>'
            )
        parts.append(
            f'<text class="value" x="{tip + 6:.1f}" y="{y + 5:.1f}">'
            f"{_number(row.value, percent)}</text></g>"
        )
    parts.append(
        f'<text class="axis" x="{(left + right) / 2}" y="{height - 6}" '
        f'text-anchor="middle">{escape(axis)}</text>'
    )
    return _svg(parts, height, title)


def scatter(
    points: np.ndarray, codes: np.ndarray, names: Sequence[str], title: str
) -> str:
    """Rows (m, 2) or (m, 1) by class; a single coordinate is spread by its class."""
    step = max(1, math.ceil(len(points) / MOST_POINTS))
    points, codes = points[::step], codes[::step]
    if points.shape[1] == 1:
        spread = np.random.default_rng(0).uniform(-0.35, 0.35, len(points))
        points = np.column_stack([points[:, 0], codes + spread])
    height, edge = 420, 16
    x = _scale(*_ends(points[:, 0]), edge, WIDTH - edge)
    y = _scale(*_ends(points[:, 1]), height - edge, edge)
    parts = [
        f'<rect class="frame" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}"/>'
    ]
    for c in range(len(names)):
        marks = "".join(
            _mark(c, x(float(a)), y(float(b))) for a, b in points[codes == c]
        )
        parts.append(f'<path class="mark c{c % 8}" d="{marks}"/>')
    return _svg(parts, height, title) + legend(names)


def lines(
    series: Sequence[tuple[str, np.ndarray, np.ndarray]],
    title: str,
    axes: tuple[str, str],
) -> str:
    """Curves in the unit square, with its diagonal."""
    left, size = 60, 360
    x, y = _scale(0, 1, left, left + size), _scale(0, 1, size + 10, 10)
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    parts = [f'<path class="grid" d="M{x(0)} {y(0)}L{x(1)} {y(1)}"/>']
    for t in ticks:
        parts.append(
            f'<path class="grid" d="M{x(t):.1f} {y(0)}V{y(1)}M{x(0)} {y(t):.1f}'
            f'H{x(1)}"/><text class="tick" x="{x(t):.1f}" y="{y(0) + 18}" '
            f'text-anchor="middle">{t:g}</text><text class="tick" x="{x(0) - 6}" '
            f'y="{y(t) + 5:.1f}" text-anchor="end">{t:g}</text>'
        )
    for c, (_, a, b) in enumerate(series):
        at = [f"{x(float(u)):.1f} {y(float(v)):.1f}" for u, v in zip(a, b, strict=True)]
        parts.append(f'<path class="line c{c % 8}" d="M{"L".join(at)}"/>')
    middle = left + size / 2
    parts.append(
        f'<text class="axis" x="{middle}" y="{size + 50}" text-anchor="middle">'
        f'{escape(axes[0])}</text><text class="axis" x="16" y="{size / 2 + 10}" '
        f'text-anchor="middle" transform="rotate(-90 16 {size / 2 + 10})">'
        f"{escape(axes[1])}</text>"
    )
    names = [name for name, _, _ in series]
    return _svg(parts, size + 60, title, width=left + size + 30) + (
        legend(names) if len(names) > 1 else ""
    )


def legend(names: Sequence[str]) -> str:
    """Marks and names, as a list."""
    items = "".join(
        f'<li><svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">'
        f'<path class="mark c{c % 8}" d="{_mark(c, 8, 8)}"/></svg>{escape(name)}</li>'
        for c, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def _mark(c: int, x: float, y: float) -> str:
    """A shape that differs between classes, for readers who cannot tell colours."""
    shapes = (
        f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
        f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
        f"M{x:.1f} {y - 5:.1f}l5 9h-10z",
        f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z",
    )
    return shapes[c % len(shapes)]


def _svg(parts: Sequence[str], height: float, title: str, width: int = WIDTH) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height:.0f}" role="img" '
        f'style="max-width:{width}px" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _grid(ticks: Sequence[float], scale: Any, bottom: float, percent: bool) -> str:
    return "".join(
        f'<path class="{"zero" if t == 0 else "grid"}" d="M{scale(t):.1f} 4V{bottom}"/>'
        f'<text class="tick" x="{scale(t):.1f}" y="{bottom + 16}" '
        f'text-anchor="middle">{_number(t, percent)}</text>'
        for t in ticks
    )


def _scale(low: float, high: float, start: float, end: float) -> Any:
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _ends(values: np.ndarray) -> tuple[float, float]:
    return float(np.min(values)), float(np.max(values))


def _ticks(low: float, high: float) -> list[float]:
    """Three to seven round numbers that enclose the interval."""
    span = high - low or 1.0
    step = 10.0 ** math.floor(math.log10(span / 3))
    step *= next(f for f in (1, 2, 5, 10) if span / (step * f) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _number(value: float, percent: bool) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{100 * value:.3g} %" if percent else f"{value:.3g}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

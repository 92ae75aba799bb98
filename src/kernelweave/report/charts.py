"""Charts as inline SVG, coloured by the classes of the page's style sheet.

Every chart has a title for screen readers. A drawing is 440 units wide and text is at
least 13 units high, so it is readable on a phone 400 pixels wide. The label of a bar
has a line of its own, which leaves room for long names; what does not fit is cut off
and given in full as a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from kernelweave.inspection._figure import shortened

WIDTH = 440
#: Widest picture on a large screen, in pixels.
WIDEST = 560
#: Height of a row of a bar chart, and of the bar in it.
BAR_ROW, THICK = 44, 16
#: Distance from a tick, in steps, that is rounding.
ON_A_TICK = 1e-9
#: Maximum number of characters in a label.
LETTERS = 52
#: Width of a character in a wide font, in the units of the picture.
LETTER_WIDTH = 9
#: More points than this make a page heavy and a picture no clearer.
MOST_POINTS = 2000
#: A curve with fewer points has marks at them.
FEW_POINTS = 12
COLOURS = 8

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Bar:
    """A row of a bar chart: a value, and the ends of its interval if it has one."""

    label: str
    value: float
    ends: tuple[float, float] | tuple[()] = ()

    @classmethod
    def around(cls, label: str, value: float, error: float) -> Bar:
        """A value with an interval of one standard error on each side."""
        return cls(label, value, (value - error, value + error))


def bars(rows: Sequence[Bar], title: str, axis: str, percent: bool = False) -> str:
    """Horizontal bars with intervals; zero is always on the axis."""
    rows = [row for row in rows if math.isfinite(row.value)]
    if percent:  # no interval goes beyond 0 or 100 %
        rows = [Bar(r.label, r.value, tuple(np.clip(r.ends, 0, 1))) for r in rows]
    drawn = [v for row in rows for v in (0.0, row.value, *row.ends) if math.isfinite(v)]
    ticks = round_ticks(min(drawn, default=0.0), max(drawn, default=0.0))
    # room for half of the first tick, and for the longest number
    longest = max((len(number(row.value, percent)) for row in rows), default=0)
    left = max(20, LETTER_WIDTH * len(number(ticks[0], percent)) / 2)
    right = WIDTH - max(64, 6 + LETTER_WIDTH * longest)
    scale = _scale(ticks[0], ticks[-1], left, right)
    bottom = BAR_ROW * len(rows) + 6
    parts = [
        f'<path class="{"zero" if t == 0 else "grid"}" d="M{scale(t):.1f} 4V{bottom}"/>'
        + _text("tick", number(t, percent), scale(t), bottom + 16, "middle")
        for t in ticks
    ]
    for i, row in enumerate(rows):
        top = 4 + BAR_ROW * i
        y = top + 19 + THICK / 2
        a, b = sorted((scale(0.0), scale(row.value)))
        said = number(row.value, percent)
        if row.ends:
            said += f" ({' to '.join(number(end, percent) for end in row.ends)})"
        parts.append(
            f"<g><title>{escape(f'{row.label}: {said}')}</title>"
            + _text("label", shortened(row.label, LETTERS), left + 5, top + 14)
            + f'<rect class="bar" x="{a:.1f}" y="{y - THICK / 2:.1f}" '
            f'width="{max(b - a, 1):.1f}" height="{THICK}" rx="2"/>'
        )
        tip = b
        if row.ends:
            start, end = map(scale, row.ends)
            tip = max(tip, end)
            parts.append(
                f'<path class="whisker" d="M{start:.1f} {y:.1f}H{end:.1f}'
                f'M{start:.1f} {y - 5:.1f}v10M{end:.1f} {y - 5:.1f}v10"/>'
            )
        parts.append(_text("value", number(row.value, percent), tip + 6, y + 5))
        parts.append("</g>")
    parts.append(_text("axis", axis, (left + right) / 2, bottom + 36, "middle"))
    return _svg(parts, bottom + 44, title)


def plot(
    series: Sequence[tuple[str, np.ndarray, np.ndarray]],
    title: str,
    axes: tuple[str, str],
    ticks: Sequence[float] = (),
    joined: bool = False,
) -> str:
    """Points or curves by name; ticks, the same on both axes, come with a diagonal."""
    bottom, below = (340, 37) if ticks else (340, 18)
    left, right = 28.0, WIDTH - 14.0
    if ticks:
        # room for the longest number, beside the name of the axis and at its end
        widest = LETTER_WIDTH * max(len(number(t)) for t in ticks)
        left, right = max(52, 24 + widest), min(right, WIDTH - widest / 2)
        ends = [(ticks[0], ticks[-1])] * 2
    else:
        drawn = (np.concatenate([one[k] for one in series]) for k in (1, 2))
        ends = [(float(values.min()), float(values.max())) for values in drawn]
    x = _scale(*ends[0], left + 10, right)
    y = _scale(*ends[1], bottom - 10, 14)
    parts = [
        f'<rect class="frame" x="{left}" y="4" width="{WIDTH - left - 4}" '
        f'height="{bottom - 4}"/>'
    ]
    for t in ticks:
        parts.append(
            f'<path class="grid" d="M{x(t):.1f} {bottom}V4M{left} {y(t):.1f}'
            f'H{WIDTH - 4}"/>'
        )
        parts.append(_text("tick", number(t), x(t), bottom + 17, "middle"))
        parts.append(_text("tick", number(t), left - 5, y(t) + 5, "end"))
    diagonal = "L".join(f"{x(t):.1f} {y(t):.1f}" for t in ticks)
    parts += [f'<path class="grid" d="M{diagonal}"/>'] if ticks else []
    total = 1 if joined else sum(len(us) for _, us, _ in series)
    step = max(1, math.ceil(total / MOST_POINTS))
    for c, (_, us, vs) in enumerate(series):
        at = [(x(float(u)), y(float(v))) for u, v in zip(us, vs, strict=True)][::step]
        if joined:
            path = "L".join(f"{u:.1f} {v:.1f}" for u, v in at)
            parts.append(f'<path class="line c{c % COLOURS}" d="M{path}"/>')
        if at and not (joined and len(at) >= FEW_POINTS):
            marks = "".join(_mark(c, u, v) for u, v in at)
            parts.append(f'<path class="mark c{c % COLOURS}" d="{marks}"/>')
    parts.append(_text("axis", axes[0], (left + WIDTH) / 2, bottom + below, "middle"))
    turn = f' transform="rotate(-90 14 {bottom / 2:.0f})"'
    parts.append(_text("axis", axes[1], 14, bottom / 2, "middle", turn))
    names = [name for name, _, _ in series]
    return _svg(parts, bottom + below + 8, title) + legend(names)


def legend(names: Sequence[str]) -> str:
    """Marks and names, as a list; nothing if there is only one."""
    if len(names) < 2:
        return ""
    items = "".join(
        f'<li><svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">'
        f'<path class="mark c{c % COLOURS}" d="{_mark(c, 8, 8)}"/></svg>'
        f"{escape(name)}</li>"
        for c, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def number(value: float, percent: bool = False) -> str:
    """Three digits, or a percentage."""
    if not math.isfinite(value):
        return "\N{EN DASH}"
    value = 100 * value if percent else value
    shown = f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
    shown = shown.replace("-", "\N{MINUS SIGN}")
    return f"{shown} %" if percent else shown


def _mark(c: int, x: float, y: float) -> str:
    """A shape that differs between classes, for readers who cannot distinguish colours.

    Five shapes and eight colours make forty marks.
    """
    shapes = (
        f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
        f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
        f"M{x:.1f} {y - 5:.1f}l5 9h-10z",
        f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z",
        f"M{x - 1.5:.1f} {y - 5:.1f}h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    )
    return shapes[c % len(shapes)]


def _svg(parts: Sequence[str], height: float, title: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'style="max-width:{WIDEST}px" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _text(
    kind: str, text: str, x: float, y: float, anchor: str = "start", turn: str = ""
) -> str:
    """A text of some kind, which begins, has its middle or ends at a place."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}{turn}>{escape(text)}</text>'


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def round_ticks(low: float, high: float) -> list[float]:
    """Round numbers, seven at most, that enclose the interval."""
    span = high - low or 1.0
    step = 10.0 ** math.floor(math.log10(span / 3))
    step *= next(f for f in (1, 2, 5, 10) if span / (step * f) <= 5)
    first = math.floor(low / step + ON_A_TICK)
    last = math.ceil(high / step - ON_A_TICK)
    numbers = range(first, max(last, first + 1) + 1)
    return [float(f"{i * step:.12g}") for i in numbers]

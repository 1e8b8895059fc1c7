"""Small charts as inline SVG. They take their colours from the page, and show values where the pointer is.

There is no script: a strip over each point of a chart shows the point's value while the pointer is on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tuneloss.report.html import escape
from tuneloss.report.ticks import linear_ticks, log_ticks, whole_ticks
from tuneloss.report.words import score_text

WIDTH, HEIGHT = 320.0, 170.0  # of the view box; the page scales it
TOP, RIGHT, BOTTOM = 18.0, 12.0, 32.0  # margins; the left one depends on the labels
LETTER = 6.3  # width of a digit in a label of 11 units
MOST_STRIPS = 120  # values that a chart shows under the pointer
MOST_POINTS = 600  # of a line; a longer one is thinned
LARGEST = 1e100  # largest number that is drawn; on a logarithmic axis, its inverse is the smallest
TOO_EXTREME = f"Not drawn: some numbers are beyond {LARGEST:g}, or too close to 0."


@dataclass(frozen=True)
class Series:
    """One line or one set of points.

    Parameters
    ----------
    name : str
        The name, for a legend and beside values.
    x, y : sequence of float
        The points. Those with a value that is not finite are left out.
    kind : {"line", "points", "steps"}
        How it is drawn.
    color : int
        Which colour of the page, from 0.
    strong : frozenset of int
        Indices of points that are drawn large.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    kind: Literal["line", "points", "steps"] = "line"
    color: int = 0
    strong: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Chart:
    """One chart.

    Parameters
    ----------
    title : str
        What is drawn, as plain text.
    series : sequence of Series
        What to draw.
    x_label : str
        The label of the horizontal axis.
    log : bool
        Whether the vertical axis is logarithmic, if all its values are above 0.
    levels : dict of str to float
        Dashed horizontal lines, by name.
    whole : bool
        Whether the horizontal axis counts something, so that its ticks are whole numbers.
    diagonal : bool
        Whether both axes have the same range, with a dashed line where they are equal.
    about : str
        A sentence below the title.
    names_levels : bool
        Whether the legend names the dashed lines.
    """

    title: str
    series: Sequence[Series]
    x_label: str
    log: bool = False
    levels: dict[str, float] = field(default_factory=dict)
    whole: bool = True
    diagonal: bool = False
    about: str = ""
    names_levels: bool = True


@dataclass(frozen=True)
class Axis:
    """The range of an axis, and where its ends are in the drawing."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return the coordinate of a value."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def chart_figure(chart: Chart) -> str:
    """Return a chart as an HTML figure: title, legend, drawing."""
    shown = [s for s in chart.series if s.name]
    keys = [f'<span class="key c{s.color}">{escape(s.name)}</span>' for s in shown] if len(shown) > 1 else []
    if chart.names_levels:
        keys += [f'<span class="key level">{escape(name)}</span>' for name in _levels(chart)]
    legend = f'<span class="keys">{"".join(keys)}</span>' if keys else ""
    about = f'<span class="said">{escape(chart.about)}</span>' if chart.about else ""
    return f"<figure><figcaption><b>{escape(chart.title)}</b>{about}{legend}</figcaption>{_svg(chart)}</figure>"


def chart_grid(charts: Sequence[Chart | None]) -> str:
    """Return charts side by side, as many as there is room for; None is left out."""
    drawn = [chart_figure(chart) for chart in charts if chart is not None]
    return f'<div class="charts">{"".join(drawn)}</div>' if drawn else ""


def bars(parts: dict[str, float], texts: Sequence[str], *, about: str = "") -> str:
    """Return named values as horizontal bars, each with its text."""
    largest = max((abs(value) for value in parts.values() if math.isfinite(value)), default=0.0) or 1.0
    zero = 50.0 if any(value < 0 for value in parts.values()) else 0.0
    rows = []
    for (name, value), text in zip(parts.items(), texts, strict=True):
        size = (100 - zero) * min(abs(value) / largest, 1.0) if math.isfinite(value) else 0.0
        left = zero - size if value < 0 else zero
        bar = f'<i style="margin-left:{left:.1f}%;width:{size:.1f}%" class="{"below" if value < 0 else ""}"></i>'
        rows.append(f'<div>{escape(name)}</div><div class="track">{bar}</div><div class="value">{escape(text)}</div>')
    said = f'<p class="caption">{escape(about)}</p>' if about else ""
    return f'{said}<div class="bars">{"".join(rows)}</div>'


def _levels(chart: Chart) -> dict[str, float]:
    """Return the dashed lines that can be drawn."""
    return {name: level for name, level in chart.levels.items() if math.isfinite(level)}


def _svg(chart: Chart) -> str:
    points = [(x, y) for s in chart.series for x, y in zip(s.x, s.y, strict=True) if math.isfinite(x + y)]
    values = [y for _, y in points] + list(_levels(chart).values())
    is_log = chart.log and bool(values) and min(values) > 0
    if not points or max(map(abs, values)) > LARGEST or (is_log and min(values) < 1 / LARGEST):
        return f'<p class="said">{escape(TOO_EXTREME if points else "Nothing to draw.")}</p>'
    across = [x for x, _ in points]
    if chart.diagonal:
        across = values = across + values
    low, high = _padded(min(values), max(values), is_log)
    ticks = (log_ticks if is_log else linear_ticks)(low, high, 5)
    left = 10 + LETTER * max((len(f"{tick:.6g}") for tick in ticks), default=1)
    y_axis = Axis(low, high, HEIGHT - BOTTOM, TOP, is_log)
    ends = _padded(min(across), max(across), False) if chart.diagonal else _ends(min(across), max(across))
    x_axis = Axis(*ends, left, WIDTH - RIGHT)
    body = [
        *_frame(chart, x_axis, y_axis, ticks),
        *(_drawn(s, x_axis, y_axis) for s in chart.series),
        *_strips(chart, x_axis, y_axis),
    ]
    title = escape(chart.title)
    return f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{title}">{"".join(body)}</svg>'


def _padded(low: float, high: float, is_log: bool) -> tuple[float, float]:
    """Return a range with some room at both ends."""
    if is_log:
        factor = (high / low) ** 0.08 if high > low else 2.0
        return low / factor, high * factor
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _ends(low: float, high: float) -> tuple[float, float]:
    """Return the ends of a horizontal axis, which touches its first and its last point."""
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _frame(chart: Chart, x: Axis, y: Axis, ticks: Sequence[float]) -> list[str]:
    """Return the grid, the labels and the dashed lines."""
    parts = []
    for tick in ticks:
        at = y.place(tick)
        parts.append(f'<path class="grid" d="M{x.start:.1f} {at:.1f}H{x.end:.1f}"/>')
        parts.append(f'<text class="at-end" x="{x.start - 6:.1f}" y="{at + 4:.1f}">{tick:.6g}</text>')
    for tick in (whole_ticks if chart.whole else linear_ticks)(x.low, x.high):
        parts.append(f'<text class="at-mid" x="{x.place(tick):.1f}" y="{HEIGHT - 18:.1f}">{tick:.6g}</text>')
    middle = (x.start + x.end) / 2
    parts.append(f'<text class="at-mid label" x="{middle:.1f}" y="{HEIGHT - 4:.1f}">{escape(chart.x_label)}</text>')
    for name, level in _levels(chart).items():
        line = f"M{x.start:.1f} {y.place(level):.1f}H{x.end:.1f}"
        parts.append(f'<path class="dashed" d="{line}"><title>{escape(name)}</title></path>')
    if chart.diagonal:
        parts.append(f'<path class="dashed" d="M{x.start:.1f} {y.start:.1f}L{x.end:.1f} {y.end:.1f}"/>')
    return parts


def _finite(series: Series) -> list[tuple[int, float, float]]:
    """Return the points that can be drawn, with their indices."""
    points = zip(series.x, series.y, strict=True)
    return [(i, x, y) for i, (x, y) in enumerate(points) if math.isfinite(x + y)]


def _drawn(series: Series, x: Axis, y: Axis) -> str:
    """Return the line or the points of a series."""
    placed = [(i, x.place(a), y.place(b)) for i, a, b in _finite(series)]
    parts = []
    if series.kind != "points":
        thinned = placed[:: math.ceil(len(placed) / MOST_POINTS) or 1]
        link = "H{:.1f}V{:.1f}" if series.kind == "steps" else "L{:.1f} {:.1f}"
        line = "".join((link if n else "M{:.1f} {:.1f}").format(a, b) for n, (_, a, b) in enumerate(thinned))
        parts.append(f'<path class="line c{series.color}" d="{line}"/>')
    small = len(placed) <= MOST_STRIPS and series.kind != "steps"
    for i, a, b in placed:
        if small or i in series.strong:
            radius = 4.5 if i in series.strong else 2.2
            parts.append(f'<circle class="c{series.color}" cx="{a:.1f}" cy="{b:.1f}" r="{radius}"/>')
    return "".join(parts)


def _strips(chart: Chart, x: Axis, y: Axis) -> list[str]:
    """Return one strip per place on the horizontal axis, which shows the values there under the pointer."""
    at: dict[float, list[tuple[Series, float]]] = {}
    for series in chart.series:
        for _, a, b in _finite(series) if series.name else []:
            at.setdefault(a, []).append((series, b))
    places = sorted(at)[:: math.ceil(len(at) / MOST_STRIPS) or 1]
    edges = [x.place(a) for a in places]
    strips = []
    for n, (a, here) in enumerate(zip(places, edges, strict=True)):
        start = (edges[n - 1] + here) / 2 if n else here - 8
        end = (edges[n + 1] + here) / 2 if n + 1 < len(edges) else here + 8
        place = f"{a:.0f}" if chart.whole else score_text(a)
        several = len(at[a]) > 1 or chart.diagonal
        said = ", ".join(f"{s.name} {score_text(b)}" if several else score_text(b) for s, b in at[a])
        anchor = "at-start" if here < 0.35 * WIDTH else "at-end" if here > 0.65 * WIDTH else "at-mid"
        dots = "".join(f'<circle class="c{s.color}" cx="{here:.1f}" cy="{y.place(b):.1f}" r="4"/>' for s, b in at[a])
        strips.append(
            f'<g class="tip"><rect x="{start:.1f}" y="0" width="{max(end - start, 1):.1f}" height="{HEIGHT:g}"/>{dots}'
            f'<text class="{anchor}" x="{here:.1f}" y="11">{escape(f"{chart.x_label} {place}: {said}")}</text></g>'
        )
    return strips

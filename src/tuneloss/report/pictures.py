"""Figures as files and as parts of a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tuneloss.files import replacing
from tuneloss.report.charts import LARGEST, TOO_EXTREME
from tuneloss.report.colors import GRID, INK, SERIES
from tuneloss.report.labels import drawable

SAME = 1 + 1e-9  # factor: numbers this near to each other are one number for a logarithmic axis


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as inline SVG that takes the colours of ink, grid and series from the page.

    Parameters
    ----------
    figure : Figure
        The figure.
    name : str
        A prefix for the ids in the SVG. Figures on one page need different names.
    """
    buffer = io.StringIO()
    figure = _within_bounds(figure)
    figure.patch.set_visible(False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), _letters_of_the_reader():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = svg.replace(INK, "currentColor").replace(GRID, "var(--grid)")
    for i, color in enumerate(SERIES):
        svg = svg.replace(color.lower(), f"var(--c{i})")
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", svg, count=1)  # the page sets the size


def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file on a white ground and return the path; the suffix decides the format."""
    figure, is_svg = _within_bounds(figure), path.suffix == ".svg"
    metadata = {"Date": None} if is_svg else None
    letters = _letters_of_the_reader() if is_svg else drawable(figure)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}), replacing(path) as draft, letters:
        figure.savefig(draft, dpi=160, facecolor="white", metadata=metadata)
    return path


def _within_bounds(figure: Figure) -> Figure:
    """Return the figure, or a sentence as a figure if the numbers are so extreme that axes would overflow."""
    for axes in figure.axes:
        ends = np.abs(axes.dataLim.get_points())
        logs = (axes.get_xscale() == "log", axes.get_yscale() == "log")
        nearest = min(np.where(logs, axes.dataLim.minpos, 1.0))
        if ends[np.isfinite(ends)].max(initial=0.0) > LARGEST or nearest < 1 / LARGEST:
            words = Figure(figsize=(4.8, 0.6))
            words.text(0.02, 0.5, TOO_EXTREME, color=INK, size=9, va="center")
            return words
        _widen(axes, logs)
    return figure


def _widen(axes: Axes, logs: tuple[bool, bool]) -> None:
    """Give a logarithmic axis with only one number a decade on both sides, since matplotlib may find no limits."""
    (left, bottom), (right, top) = axes.dataLim.get_points()
    if logs[0] and right <= SAME * left:
        axes.set_autoscalex_on(False)
        axes.set_xlim(left / 10, right * 10)
    if logs[1] and top <= SAME * bottom:
        axes.set_autoscaley_on(False)
        axes.set_ylim(bottom / 10, top * 10)


@contextmanager
def _letters_of_the_reader() -> Iterator[None]:
    """Silence warnings about missing letters: labels in an SVG are text, drawn in the reader's fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield

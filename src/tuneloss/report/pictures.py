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
from matplotlib.figure import Figure

from tuneloss.files import replacing
from tuneloss.report.colors import GRID, INK
from tuneloss.report.labels import drawable

LARGEST = 1e100  # of a number in a figure; nor may one on a logarithmic axis be nearer to 0 than its inverse
TOO_EXTREME = f"Not drawn: it has numbers beyond {LARGEST:g}, or too near to 0."


def to_svg(figure: Figure, name: str) -> str:
    """A figure as inline SVG that takes ink and grid from the page; `name` sets its ids apart."""
    buffer = io.StringIO()
    figure = _within_bounds(figure)
    figure.patch.set_visible(False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), _letters_of_the_reader():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = svg.replace(INK, "currentColor").replace(GRID, "var(--grid)")
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", svg, count=1)  # the page gives the size


def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file, its format by the suffix, on a white ground; PNG at 160 dots an inch."""
    figure, is_svg = _within_bounds(figure), path.suffix == ".svg"
    metadata = {"Date": None} if is_svg else None
    letters = _letters_of_the_reader() if is_svg else drawable(figure)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}), replacing(path) as draft, letters:
        figure.savefig(draft, dpi=160, facecolor="white", metadata=metadata)
    return path


def _within_bounds(figure: Figure) -> Figure:
    """The figure; or one that says in words why there is none: axes around extreme numbers overflow."""
    for axes in figure.axes:
        ends = np.abs(axes.dataLim.get_points())
        logs = (axes.get_xscale() == "log", axes.get_yscale() == "log")
        nearest = min(np.where(logs, axes.dataLim.minpos, 1.0))
        if ends[np.isfinite(ends)].max(initial=0.0) > LARGEST or nearest < 1 / LARGEST:
            words = Figure(figsize=(4.8, 0.6))
            words.text(0.02, 0.5, TOO_EXTREME, color=INK, size=9, va="center")
            return words
    return figure


@contextmanager
def _letters_of_the_reader() -> Iterator[None]:
    """Labels in an SVG are text: letters that our font lacks are drawn in the reader's, so no warning is due."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield

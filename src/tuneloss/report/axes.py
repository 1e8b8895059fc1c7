"""The look of all axes, and the drawing of one weight over the runs. There is no pyplot, so no global state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tuneloss.report.colors import COLORS, GRID, INK, SERIES
from tuneloss.report.labels import as_label
from tuneloss.types import Array

DASHED = (0, (4, 3))  # line style of a reference line: 4 points of ink, then a gap of 3 points
MOST_MARKED = 30  # a line through more points has no markers


def panel() -> tuple[Figure, Axes]:
    """Build a figure with one panel, small enough to be read on a phone without scaling."""
    figure = Figure(figsize=(4.8, 3.3), layout="constrained")
    return figure, figure.subplots()


def style(axes: Axes) -> None:
    """Give axes the common look: two spines, a light grid, and one colour of ink."""
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.tick_params(which="both", colors=INK, labelsize=10)
    axes.xaxis.label.set(color=INK, size=11)
    axes.yaxis.label.set(color=INK, size=11)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(INK)


def whole_numbers() -> MaxNLocator:
    """Return a locator that places ticks at whole numbers only, even if there is just one of them."""
    return MaxNLocator(integer=True, min_n_ticks=1)


@dataclass(frozen=True, eq=False)
class WeightRange:
    """The values of one weight over the runs, and its bounds.

    Parameters
    ----------
    name : str
        The name of the weight.
    lower, upper : float
        The bounds, which may be infinite.
    log : bool
        Whether the axis is logarithmic.
    values : dict of str to (repeats, runs) array
        The values, by the label of the method that chose them.
    """

    name: str
    lower: float
    upper: float
    log: bool
    values: dict[str, Array]


def draw_weight(axes: Axes, weight: WeightRange, xlabel: str = "training runs") -> None:
    """Draw a weight over the runs, with its bounds: the first method as lines, the others as points."""
    (first, values), *others = weight.values.items()
    runs = np.arange(1, values.shape[1] + 1)
    for default, (method, points) in zip(SERIES[1:], others, strict=False):
        color = COLORS.get(method, default)
        axes.plot(runs, points.T, "o", color=color, markersize=4, alpha=0.35, linewidth=0)
        axes.plot([], [], "o", color=color, markersize=4, label=as_label(method))
    if len(values) > 1:
        axes.plot(runs, values.T, color=SERIES[0], linewidth=0.8, alpha=0.3)
    label = as_label(first if len(values) == 1 else f"{first} (median)")
    median = np.median(values, axis=0)
    marker = "o" if len(runs) <= MOST_MARKED else ""
    axes.plot(runs, median, color=SERIES[0], marker=marker, markersize=4, linewidth=2, label=label)
    if weight.log:
        axes.set_yscale("log")
    for bound in (weight.lower, weight.upper):
        if np.isfinite(bound):
            axes.axhline(bound, color=INK, linewidth=0.9, linestyle=DASHED)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(as_label(weight.name))
    axes.xaxis.set_major_locator(whole_numbers())
    style(axes)

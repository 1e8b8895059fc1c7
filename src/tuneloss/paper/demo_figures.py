"""The curves of the demo: a measure of two methods, by run or by epoch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from tuneloss.paper.statistics import ByRepeat, Curve, curve, interval
from tuneloss.paper.tuners import COLORS
from tuneloss.report.axes import style, whole_numbers
from tuneloss.report.colors import INK

AXES = {  # what an axis shows: by run, the best model so far; by epoch, the model as it is then
    ("run", "test_loss"): ("training runs", "test log loss of the best model so far"),
    ("run", "test_error"): ("training runs", "test error of the best model so far"),
    ("epoch", "test_loss"): ("epochs", "test log loss"),
    ("epoch", "test_error"): ("epochs", "test error"),
}


def draw_half(axes: Axes, methods: Mapping[str, ByRepeat], step: str, measure: str) -> None:
    """Draw a measure of two methods, by run or epoch: means over repeats, with 95% intervals as bands.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    methods : mapping of str to dict
        The records of each method by repeat, by its label.
    step : {"run", "epoch"}
        What a record is. Runs are drawn as the best model so far, epochs as the model is then.
    measure : str
        A field of the records.
    """
    curves = {label: (curve if step == "run" else as_it_is)(repeats, measure) for label, repeats in methods.items()}
    for color, (label, drawn) in zip((COLORS["tuneloss"], COLORS["random"]), curves.items(), strict=True):
        steps = np.arange(1, len(drawn.mean) + 1)
        marker = "o" if step == "run" else ""
        axes.plot(steps, drawn.mean, color=color, marker=marker, markersize=4, linewidth=2, label=label)
        if drawn.repeats > 1:
            low, high = drawn.mean - drawn.half, drawn.mean + drawn.half
            axes.fill_between(steps, low, high, color=color, alpha=0.22, linewidth=0)
    xlabel, ylabel = AXES[step, measure]
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.xaxis.set_major_locator(whole_numbers())
    if any(np.isfinite(drawn.mean).any() for drawn in curves.values()):  # a logarithmic axis needs a number
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0) if measure == "test_error" else "{x:g}")
    axes.legend(frameon=False, labelcolor=INK)
    style(axes)


def as_it_is(repeats: ByRepeat, measure: str) -> Curve:
    """Compute the curve of a measure itself, without a choice of the best model so far."""
    values = np.array([[record[measure] for record in records] for records in repeats.values()], dtype=float)
    intervals = [interval(column) for column in values.T]
    return Curve(np.array([i.mean for i in intervals]), np.array([i.half for i in intervals]), len(values))

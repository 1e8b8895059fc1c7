"""The curves of the demo: a measure of two methods, by run or by epoch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from tuneloss.paper.statistics import ByRepeat, interval, measure_so_far
from tuneloss.paper.tuners import COLORS
from tuneloss.report.axes import style, whole_numbers
from tuneloss.report.colors import INK
from tuneloss.types import Array

AXES = {  # what an axis shows: by run, the best model so far; by epoch, the model as it is then
    ("run", "test_loss"): ("training runs", "test log loss of the best model so far"),
    ("run", "test_error"): ("training runs", "test error of the best model so far"),
    ("epoch", "test_loss"): ("epochs", "test log loss"),
    ("epoch", "test_error"): ("epochs", "test error"),
}


def draw_half(axes: Axes, methods: Mapping[str, ByRepeat], step: str, measure: str) -> None:
    """Draw a measure of two methods, by run or epoch, as means over repeats.

    The bands show how well the two can be told apart: each is as wide as the 95% interval of the difference by repeat,
    half of it on each side. So they do not overlap where that interval excludes 0.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    methods : mapping of str to dict
        The records of each method by repeat, by its label. Both have the same repeats and numbers of records.
    step : {"run", "epoch"}
        What a record is. Runs are drawn as the best model so far, epochs as the model is then.
    measure : str
        A field of the records.
    """
    values = {label: measures(repeats, step, measure) for label, repeats in methods.items()}
    ours, other = values.values()
    half = np.array([interval(column).half for column in (ours - other).T]) / 2
    for color, (label, drawn) in zip((COLORS["tuneloss"], COLORS["random"]), values.items(), strict=True):
        mean, steps = drawn.mean(axis=0), np.arange(1, drawn.shape[1] + 1)
        marker = "o" if step == "run" else ""
        axes.plot(steps, mean, color=color, marker=marker, markersize=4, linewidth=2, label=label)
        if len(drawn) > 1:
            axes.fill_between(steps, mean - half, mean + half, color=color, alpha=0.22, linewidth=0)
    xlabel, ylabel = AXES[step, measure]
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.xaxis.set_major_locator(whole_numbers())
    if np.isfinite([array.mean(axis=0) for array in values.values()]).any():  # a logarithmic axis needs a number
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0) if measure == "test_error" else "{x:g}")
    axes.legend(frameon=False, labelcolor=INK)
    style(axes)


def measures(repeats: ByRepeat, step: str, measure: str) -> Array:
    """Return a measure as a (repeats, steps) array: of the best run so far, or of each epoch as it is."""
    if step == "run":
        return np.array([measure_so_far(runs, measure) for runs in repeats.values()])
    return np.array([[epoch[measure] for epoch in epochs] for epochs in repeats.values()], dtype=float)

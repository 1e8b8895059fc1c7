"""Drawing: matplotlib figures of the numbers in `info`. No pyplot, so no global state."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter

from tuneloss.report.colors import COLORS, GRID, INK, SERIES
from tuneloss.report.info import MEASURES, Measure, WeightRange, best_so_far_info, weights_info
from tuneloss.report.letters import plain
from tuneloss.report.records import Comparison


def draw_best_so_far(axes: Axes, comparison: Comparison, measure: Measure) -> None:
    """Mean best-so-far value by run for each method, with its 95% interval as a band."""
    for default, curve in zip(SERIES, best_so_far_info(comparison, measure), strict=False):
        colour = COLORS.get(curve.method, default)
        runs = np.arange(1, len(curve.mean) + 1)
        axes.plot(runs, curve.mean, color=colour, marker="o", markersize=4, linewidth=2, label=plain(curve.method))
        if comparison.n_repeats > 1:
            axes.fill_between(
                runs, curve.mean - curve.half, curve.mean + curve.half, color=colour, alpha=0.22, linewidth=0
            )
    axes.set_xlabel("training runs")
    axes.set_ylabel(MEASURES[measure])
    axes.xaxis.set_major_locator(whole_numbers())
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8)))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0) if measure == "test_error" else "{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.legend(frameon=False, labelcolor=INK)
    style(axes)


def draw_weight(axes: Axes, weight: WeightRange) -> None:
    """One weight by run against its bounds: the first method as lines, others as points."""
    (first, values), *others = weight.values.items()
    runs = np.arange(1, values.shape[1] + 1)
    for default, (method, points) in zip(SERIES[1:], others, strict=False):
        colour = COLORS.get(method, default)
        axes.plot(runs, points.T, "o", color=colour, markersize=4, alpha=0.35, linewidth=0)
        axes.plot([], [], "o", color=colour, markersize=4, label=plain(method))
    if len(values) > 1:
        axes.plot(runs, values.T, color=SERIES[0], linewidth=0.8, alpha=0.3)
    label = first if len(values) == 1 else f"{first} (median)"
    axes.plot(
        runs,
        np.median(values, axis=0),
        color=SERIES[0],
        marker="o",
        markersize=4,
        linewidth=2,
        label=plain(label),
    )
    if weight.log:
        axes.set_yscale("log")
    for bound in (weight.lower, weight.upper):
        if np.isfinite(bound):
            axes.axhline(bound, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_xlabel("training runs")
    axes.set_ylabel(plain(f"weight of {weight.name}"))
    axes.xaxis.set_major_locator(whole_numbers())
    style(axes)


def weight_figures(comparison: Comparison) -> dict[str, Figure]:
    """One figure for each weight that is not pinned."""
    figures = {}
    for weight in weights_info(comparison):
        figure, axes = panel()
        draw_weight(axes, weight)
        figures[weight.name] = figure
    return figures


def best_so_far_figure(comparison: Comparison, measure: Measure) -> Figure:
    """One panel of best-so-far curves."""
    figure, axes = panel()
    draw_best_so_far(axes, comparison, measure)
    return figure


def overview_figure(comparison: Comparison) -> Figure:
    """Test log loss and test error by run, side by side: the picture that stands for a comparison."""
    figure = Figure(figsize=(9.6, 3.8), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    draw_best_so_far(left, comparison, "test_loss")
    draw_best_so_far(right, comparison, "test_error")
    return figure


def panel() -> tuple[Figure, Axes]:
    """A figure with one panel, small enough to be read on a phone without scaling."""
    figure = Figure(figsize=(4.8, 3.3), layout="constrained")
    return figure, figure.subplots()


def whole_numbers() -> MaxNLocator:
    """Ticks at whole numbers only, even if there is just one."""
    return MaxNLocator(integer=True, min_n_ticks=1)


def style(axes: Axes) -> None:
    """Quiet axes: two spines, a light grid, one ink."""
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.tick_params(which="both", colors=INK, labelsize=10)
    axes.xaxis.label.set(color=INK, size=11)
    axes.yaxis.label.set(color=INK, size=11)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(INK)

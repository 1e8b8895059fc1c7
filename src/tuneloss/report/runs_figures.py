"""Figures of the runs of one tuner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tuneloss.report import html
from tuneloss.report.axes import DASHED, WeightRange, draw_weight, panel, style, whole_numbers
from tuneloss.report.colors import INK, SERIES
from tuneloss.report.labels import as_label
from tuneloss.report.learned_info import alignment, is_converged, predictions
from tuneloss.report.pictures import to_svg
from tuneloss.report.runs_info import RunsInfo, contributions, regularizer
from tuneloss.tuning.sampling import ranges

MOST_WEIGHTS = 12  # largest number of panels, bars or columns of weights


def side_by_side(figures: Sequence[tuple[str, Figure | None, str]]) -> str:
    """Return (name, figure, caption) triples as HTML; figures that are None are left out."""
    return html.figures([(to_svg(figure, name), caption) for name, figure, caption in figures if figure])


def errors_figure(info: RunsInfo) -> Figure:
    """Draw by run: the validation error, the best so far, the first run's level, and the numbers of `shared_info`."""
    figure, axes = panel()
    runs = [(i + 1, run) for i, run in enumerate(info.runs) if run.observation is not None]
    x = [i for i, _ in runs]
    errors = np.array([run.observation.error for _, run in runs if run.observation is not None])
    axes.plot(x, errors, "o", color=SERIES[0], markersize=4, alpha=0.5, linewidth=0)
    axes.step(x, np.minimum.accumulate(errors), where="post", color=SERIES[0], linewidth=2, label="validation error")
    for error in [error for error, (_, run) in zip(errors, runs, strict=True) if run.run is not None][:1]:
        axes.axhline(error, color=INK, linewidth=0.9, linestyle=DASHED, label="first run")
    for color, name in zip(SERIES[1:], shared_info(info), strict=False):
        values = [run.info[name] for _, run in runs]
        axes.plot(x, values, color=color, marker="s", markersize=3, linewidth=1.2, label=as_label(name))
    if errors.min() > 0 and errors.max() > 3 * errors.min():
        axes.set_yscale("log")
    axes.margins(y=0.3)  # room for the legend
    is_run = all(run.run is not None and run.run + 1 == i for i, run in runs)
    axes.set_xlabel("runs" if is_run else "models, in the order of the journal")
    axes.set_ylabel("error")
    axes.xaxis.set_major_locator(whole_numbers())
    axes.legend(frameon=False, labelcolor=INK)
    style(axes)
    return figure


def shared_info(info: RunsInfo) -> list[str]:
    """Return the names of further numbers, such as a test error, that every run with an observation has."""
    infos = [run.info for run in info.runs if run.observation is not None]
    return [name for name in (infos[0] if infos else {}) if all(name in other for other in infos)]


def free_names(info: RunsInfo) -> list[str]:
    """Return the names of the weights that are neither pinned nor hinges, which mean something only together."""
    names = zip(info.box.names, info.box.pinned, strict=True)
    return [name for name, pinned in names if not pinned and name not in info.hinges]


def weights_figures(info: RunsInfo) -> dict[str, Figure]:
    """Draw each free weight over the runs, by name; at most MOST_WEIGHTS, those with the largest contributions."""
    runs = [run.weights for run in info.runs if run.weights is not None]
    parts, free = contributions(info), free_names(info)
    largest = sorted(free, key=lambda name: -abs(parts.get(name, 0.0)))[:MOST_WEIGHTS]
    log = dict(zip(info.box.names, ranges(info.box).log, strict=True))
    figures = {}
    for name in (name for name in free if name in largest and runs):
        j = info.box.names.index(name)
        values = np.array([[weights[name] for weights in runs]])
        lower, upper = float(info.box.lower[j]), float(info.box.upper[j])
        is_log = bool(log[name]) and bool((values > 0).all())
        figure, axes = panel()
        draw_weight(axes, WeightRange(name, lower, upper, is_log, {"runs": values}))
        axes.set_xlabel("runs")
        figures[name] = figure
    return figures


def regularizer_figures(info: RunsInfo) -> dict[str, Figure]:
    """Draw each learned regularizer of the best run, by term, as a function of the value of a parameter."""
    figures = {}
    for term in info.header.knots:
        curve = regularizer(info, term)
        if curve is None:
            continue
        figure, axes = panel()
        axes.plot(*curve, color=SERIES[0], linewidth=2)
        axes.set_xlabel("value of a parameter")
        axes.set_ylabel(as_label(f"penalty by {term}"))
        style(axes)
        figures[term] = figure
    return figures


def predicted_figure(info: RunsInfo) -> Figure | None:
    """Draw the predicted against the observed error of every model; None if nothing is predicted."""
    fit = predictions(info)
    if fit is None:
        return None
    observed, predicted, marked = fit.observed, fit.predicted, fit.marked
    both = np.concatenate([observed, predicted])
    if not np.isfinite(np.ptp(both)):
        return None
    figure, axes = panel()
    pad = 0.05 * float(np.ptp(both)) or 0.05 * max(float(np.abs(both).max()), 1e-12)
    ends = [both.min() - pad, both.max() + pad]
    axes.plot(ends, ends, color=INK, linewidth=0.9, linestyle=DASHED)
    axes.plot(observed, predicted, "o", color=SERIES[0], markersize=5, linewidth=0)
    label = "chosen" if info.from_search else "selected by the loss"
    axes.plot(observed[marked], predicted[marked], "o", color=SERIES[1], markersize=8, label=label)
    axes.set(xlim=ends, ylim=ends, xlabel="observed error", ylabel="predicted error")
    axes.legend(frameon=False, labelcolor=INK)
    style(axes)
    return figure


def contributions_figure(info: RunsInfo) -> Figure | None:
    """Draw what each term contributes to the loss of the best model; at most MOST_WEIGHTS, the largest."""
    parts = dict(sorted(contributions(info).items(), key=lambda item: -abs(item[1]))[:MOST_WEIGHTS])
    if not any(parts.values()):
        return None
    figure, axes = panel()
    names = list(parts)[::-1]
    axes.barh(range(len(names)), [parts[name] for name in names], color=SERIES[0], height=0.6)
    axes.set_yticks(range(len(names)), labels=[as_label(name) for name in names])
    axes.set_xlabel("weight times value, at the best model")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    style(axes)
    axes.grid(axis="y", visible=False)
    return figure


def alignment_figure(info: RunsInfo) -> Figure | None:
    """Draw the cosine of the gradients of loss and error, under the first and under the learned weights."""
    first = info.first_weights
    if info.learned is None or first is None or not info.has_gradients:
        return None
    before, after = (alignment(info.observations, w) for w in (info.box.as_array(first), info.learned.weights))
    if all(is_converged(run, info.box) for run in info.observed) or np.isnan(before).all() or np.isnan(after).all():
        return None  # there is no direction to compare
    figure, axes = panel()
    x = np.arange(1, len(info.observations) + 1)
    for color, label, values in ((SERIES[1], "first weights", before), (SERIES[0], "learned weights", after)):
        axes.plot(x, values, color=color, marker="o", markersize=4, linewidth=1.5, label=label)
    axes.axhline(0, color=INK, linewidth=0.9)
    axes.set(xlabel="models with gradients, in order", ylabel="cosine of the gradients", ylim=(-1.05, 1.05))
    axes.xaxis.set_major_locator(whole_numbers())
    axes.legend(frameon=False, labelcolor=INK)
    style(axes)
    return figure

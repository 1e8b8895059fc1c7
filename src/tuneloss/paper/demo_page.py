"""The HTML page about a demo: its result in words, tables, curves, and the weights within the box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tuneloss.files import write_whole
from tuneloss.paper.demo import (
    FREE,
    MEASURES,
    METHODS,
    N_TRAIN,
    Demo,
    draw_measure,
    final_measures,
    measure_text,
    method_records,
)
from tuneloss.paper.experiment import Table
from tuneloss.paper.results import Record
from tuneloss.paper.statistics import Interval, best_so_far
from tuneloss.paper.terms import appendix_box
from tuneloss.report import html, pictures
from tuneloss.report.axes import WeightRange, draw_weight, panel
from tuneloss.tuning.sampling import ranges

AT_BOUND = 1e-3  # a weight this near to a bound is at the bound; relative to the bound, or to a linear range


@np.errstate(all="ignore")  # figures with extreme numbers are replaced by a sentence
def write_page(demo: Demo, records: Sequence[Record], folder: Path) -> Path:
    """Write report.html and demo.png, the figure of the demo, to a folder, and return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures.save(demo.figure(records), folder / "demo.png")
    path = folder / "report.html"
    write_whole(path, page(demo, records).encode())
    return path


@np.errstate(all="ignore")
def page(demo: Demo, records: Sequence[Record]) -> str:
    """Return the page as text."""
    sections = [
        html.Section("What was learned", html.paragraphs(words(demo, records)) + _final_table(demo, records)),
        html.Section("Best so far", html.figures(_curves(demo, records))),
        html.Section("Weights against the box", html.figures(_weights(demo, records))),
        html.Section("Runs of TuneLoss", _runs_table(demo, records)),
    ]
    about = (
        f"Softmax regression on scikit-learn's digits with {N_TRAIN} training examples, {demo.epochs} epochs of "
        "AdaGrad per run. The loss is log loss plus weights times L1, L2, uniform-label loss and dropout loss. Models "
        f"are chosen by validation log loss. {demo.repeats} repeat{'s' if demo.repeats > 1 else ''} of {demo.runs} "
        f"runs, seed {demo.seed}."
    )
    return html.page("TuneLoss on handwritten digits", about, sections)


def words(demo: Demo, records: Sequence[Record]) -> list[str]:
    """Say what was learned: first the result, then where the best weights lie in the box."""
    first, second = METHODS.values()
    final = final_measures(records)
    loss, error = (measure_text(name, final[first][name]) for name in ("test_loss", "test_error"))
    best = best_so_far(method_records(records, "tuneloss")[0])[-1]
    sentences = [
        f"After {demo.runs} runs, the model of {first} has test log loss {loss} and test error {error}.",
        f"After as many runs, {second} has test log loss {final[second]['test_loss']}.",
        _verdict(final["difference"]["test_loss"]),
    ]
    if best is not None:
        of = "" if demo.repeats == 1 else " of repeat 1"
        places = ", ".join(_place(best["weights"][weight.name], weight) for weight in weight_ranges(records))
        sentences.append(f"The best run{of} of {first} is number {best['run'] + 1}, with {places}.")
    return sentences


def _verdict(difference: Interval) -> str:
    """Say which method is better, and whether chance explains it."""
    first, second = METHODS.values()
    if math.isnan(difference.half):
        side = "below" if difference.mean < 0 else "above"
        return f"{first} is {abs(difference.mean):.4f} {side} {second}; one repeat cannot tell this from luck."
    if abs(difference.mean) <= difference.half:
        return f"The paired difference, {difference}, is within what chance explains (95%)."
    side = "lower" if difference.mean < 0 else "higher"
    return f"{first} is {side} by {Interval(abs(difference.mean), difference.half)} (paired, 95% interval)."


def _place(value: float, weight: WeightRange) -> str:
    """Format a weight, and say whether it is at a bound."""
    size = 0.0 if weight.log else weight.upper - weight.lower
    for bound, side in ((weight.lower, "lower"), (weight.upper, "upper")):
        if abs(value - bound) <= AT_BOUND * max(abs(bound), size):
            return f"{weight.name} = {value:.3g} (at its {side} bound)"
    return f"{weight.name} = {value:.3g}"


def weight_ranges(records: Sequence[Record]) -> list[WeightRange]:
    """Return each free weight by method, repeat and run, with its bounds."""
    box = appendix_box()
    log = ranges(box).log
    repeats = {label: method_records(records, tuner) for tuner, label in METHODS.items()}
    weights = []
    for name in FREE:
        values = {
            label: np.array([[run["weights"][name] for run in runs] for runs in repeats[label].values()])
            for label in METHODS.values()
        }
        j = box.names.index(name)
        weights.append(WeightRange(name, float(box.lower[j]), float(box.upper[j]), bool(log[j]), values))
    return weights


def measure_figure(records: Sequence[Record], measure: str) -> Figure:
    """Draw one measure by run."""
    figure, axes = panel()
    draw_measure(axes, records, measure)
    return figure


def _curves(demo: Demo, records: Sequence[Record]) -> list[tuple[str, str]]:
    """Draw each measure by run, with a caption."""
    band = " Bands: 95% interval of the mean over repeats." if demo.repeats > 1 else ""
    return [
        (
            pictures.to_svg(measure_figure(records, measure), measure),
            f"{label.capitalize()} of the model of least validation log loss so far.{band}",
        )
        for measure, label in MEASURES.items()
    ]


def _weights(demo: Demo, records: Sequence[Record]) -> list[tuple[str, str]]:
    """Draw each free weight over the runs, with a caption."""
    first, second = METHODS.values()
    line = f"{first}, median of repeats" if demo.repeats > 1 else first
    drawings = []
    for i, weight in enumerate(weight_ranges(records)):
        figure, axes = panel()
        draw_weight(axes, weight)
        caption = f"Weight of {weight.name}. Line: {line}; points: {second}; dashed: bounds of the box."
        drawings.append((pictures.to_svg(figure, f"weight-{i}"), caption))
    return drawings


def _final_table(demo: Demo, records: Sequence[Record]) -> str:
    """Return the final comparison as HTML."""
    over = f", mean ± 95% interval over {demo.repeats} repeats" if demo.repeats > 1 else ""
    caption = f"After {demo.runs} runs, the model of least validation log loss{over}."
    return html.table(("method", *MEASURES.values()), demo.final_table(records).rows, caption=caption)


def _runs_table(demo: Demo, records: Sequence[Record]) -> str:
    """Return the runs of TuneLoss as HTML."""
    of = f" of repeat 1 of {demo.repeats}" if demo.repeats > 1 else ""
    table: Table = demo.runs_table(records)
    caption = f"Runs{of}; the one of least validation log loss is marked."
    return html.table(table.header, table.rows, caption=caption, chosen=table.marked)

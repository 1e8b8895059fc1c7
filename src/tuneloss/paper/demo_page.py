"""The HTML page about a demo: its verdict and table, then for each half the curves, the weights and the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tuneloss import Box
from tuneloss.files import write_whole
from tuneloss.paper.demo import FREE, HALVES, INSIDE, MEASURES, Demo, Half, half_records, shown_steps, weight_texts
from tuneloss.paper.demo_figures import draw_half
from tuneloss.paper.demo_runs import N_TRAIN, box_from_zero
from tuneloss.paper.results import Record
from tuneloss.paper.statistics import best_so_far
from tuneloss.paper.terms import appendix_box
from tuneloss.report import html, pictures
from tuneloss.report.axes import WeightRange, draw_weight, panel
from tuneloss.report.words import term_words
from tuneloss.tuning.sampling import ranges

NEXT = (
    html.Card(
        "Tune a classifier for a table",
        ["The command learns the weights of four regularizers, and tests the model on rows that it held out."],
        "pip install '.[cli]'\ntuneloss fit table.csv --target kind",
    ),
    html.Card(
        "Tune inside a PyTorch run",
        ["The README has a whole program. In a training loop, this is new:"],
        "loss = LinearLoss(terms, box)\ntuner = OnlineTuner(model, loss, ...)\ntuner.step()  # after each epoch",
    ),
    html.Card(
        "Tune any training that you can repeat",
        ["Train with the weights that the tuner asks for, and tell it how the model came out."],
        'tuner = LossTuner(box, journal="runs.jsonl")\nweights = tuner.ask()\ntuner.tell(weights, train(weights))',
    ),
)
FAR = 0.25  # weights that stay below this share of their upper bound are drawn without it


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
    (table,) = demo.tables(records)
    sections = [
        html.Section(
            "What was gained",
            html.paragraphs(demo.verdict(records)) + html.table(table.header, table.rows, caption=table.note),
        ),
        *(html.Section(half.title, _half_body(demo, records, half)) for half in HALVES),
        html.Section("What to do next", html.cards(NEXT)),
    ]
    about = (
        f"Softmax regression on scikit-learn's digits with {N_TRAIN} training examples, {demo.epochs} epochs of "
        "AdaGrad per run. The loss is log loss plus weights times L1, L2, label smoothing (uniform) and dropout. "
        f"Models are chosen by validation log loss. {demo.repeats} repeat{'s' if demo.repeats > 1 else ''}, seed "
        f"{demo.seed}."
    )
    return html.page("A loss tuned between runs, and inside one run", about, sections, headline=demo.headline(records))


def _half_body(demo: Demo, records: Sequence[Record], half: Half) -> str:
    """Return what one half shows: a sentence, curves, weights, and a table of the first repeat."""
    drawings = html.figures(_curves(demo, records, half) + _weights(demo, records, half))
    return html.paragraphs([half.about]) + drawings + _steps_table(demo, records, half)


def measure_figure(records: Sequence[Record], half: Half, measure: str) -> Figure:
    """Draw one measure of a half."""
    figure, axes = panel()
    draw_half(axes, half_records(records, half), half.step, measure)
    return figure


def _curves(demo: Demo, records: Sequence[Record], half: Half) -> list[tuple[str, str]]:
    """Draw each measure of a half, with a caption."""
    which = "of the model as it is then" if half is INSIDE else "of the model of least validation log loss so far"
    band = " Where the bands do not overlap, the difference by repeat is significant (95%)." if demo.repeats > 1 else ""
    return [
        (
            pictures.to_svg(measure_figure(records, half, measure), f"{half.step}-{measure}"),
            f"{label.capitalize()} {which}.{band}",
        )
        for measure, label in MEASURES.items()
    ]


def weight_ranges(records: Sequence[Record], half: Half) -> list[WeightRange]:
    """Return each free weight by method, repeat and step, with its bounds. A plain run has no weights to show."""
    box: Box = box_from_zero() if half is INSIDE else appendix_box()
    log = ranges(box).log
    methods = half_records(records, half)
    weights = []
    for name in FREE:
        values = {
            label: np.array([[step["weights"][name] for step in steps] for steps in methods[label].values()])
            for label in (half.labels[:1] if half is INSIDE else half.labels)
        }
        j = box.names.index(name)
        lower, upper = float(box.lower[j]), float(box.upper[j])
        if not log[j] and max(array.max() for array in values.values()) < FAR * upper:
            upper = math.inf  # not drawn: it would make the weights a flat line
        weights.append(WeightRange(term_words(name), lower, upper, bool(log[j]), values))
    return weights


def _weights(demo: Demo, records: Sequence[Record], half: Half) -> list[tuple[str, str]]:
    """Draw each free weight over the steps of a half, with a caption."""
    ours, other = half.labels
    line = f"Line: {ours}{', median of repeats' if demo.repeats > 1 else ''}"
    points = "" if half is INSIDE else f" Points: {other}."
    drawings = []
    for i, weight in enumerate(weight_ranges(records, half)):
        figure, axes = panel()
        draw_weight(axes, weight, half.axis)
        caption = f"Weight of {weight.name}. {line}.{points} Dashed: bounds of the box."
        drawings.append((pictures.to_svg(figure, f"{half.step}-weight-{i}"), caption))
    return drawings


def _steps_table(demo: Demo, records: Sequence[Record], half: Half) -> str:
    """Return our runs or epochs of the first repeat as HTML; the best is marked."""
    steps = half_records(records, half)[half.labels[0]][0]
    best = best_so_far(steps)[-1]
    numbers = shown_steps(len(steps), half)
    if best is not None:
        numbers = sorted({*numbers, best["run"] + 1})
    of = f" of repeat 1 of {demo.repeats}" if demo.repeats > 1 else ""
    caption = f"{half.step.capitalize()}s{of}; the one of least validation log loss is marked."
    return html.table(
        (half.step, *map(term_words, FREE), "validation log loss", *MEASURES.values()),
        [step_cells(steps[number - 1]) for number in numbers],
        caption=caption,
        chosen=None if best is None else numbers.index(best["run"] + 1),
    )


def step_cells(record: Record) -> list[str]:
    """Return the row of a run or epoch: its number, weights and measures, or why it failed."""
    first = [str(record["run"] + 1), *weight_texts(record)]
    if "failed" in record:
        return [*first, f"failed: {record['failed']}", "", ""]
    return [*first, f"{record['validation_loss']:.4f}", f"{record['test_loss']:.4f}", f"{record['test_error']:.1%}"]

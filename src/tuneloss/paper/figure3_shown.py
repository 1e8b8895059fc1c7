"""Figure 3, shown: a table over repeats, and curves beside the learned regularizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tuneloss.paper.figure3 import ONLINE
from tuneloss.paper.results import Record
from tuneloss.paper.table1 import by_repeat, chosen
from tuneloss.paper.tuners import COLORS, LABELS, TUNERS
from tuneloss.report.colors import INK
from tuneloss.report.figures import style
from tuneloss.report.info import interval

ONLINE_LABELS = {
    "none": "AdaGrad",
    "tuneloss-paper": "AdaGrad + TuneLoss, paper's form",
    "tuneloss": "AdaGrad + TuneLoss, calibrated",
    "tuneloss-long": "AdaGrad + TuneLoss, calibrated, for long runs",
}
ONLINE_COLORS = {
    "none": INK,
    "tuneloss-paper": COLORS["tuneloss-paper"],
    "tuneloss": COLORS["tuneloss"],
    "tuneloss-long": "#882255",
}


def figure3_rows(records: Sequence[Record], table1: Sequence[Record] = ()) -> tuple[list[str], list[list[str]]]:
    """Header, and a row for each data set and tuner: mean and 95% interval over repeats.

    table1: records of Table 1; where it has all splits of a data set, test log loss is compared, split by split, with
    that of the tuner that has the least of it after its last run.
    """
    measures = ("validation_loss", "test_loss", "test_error", "last_validation_loss", "last_test_loss")
    names = ("validation log loss", "test log loss", "test error", "validation, last epoch", "test, last epoch")
    header, rows = ["data", "training", "best epochs", *names], []
    for dataset, tuner in dict.fromkeys((record["dataset"], record["tuner"]) for record in records):
        own = [record for record in records if (record["dataset"], record["tuner"]) == (dataset, tuner)]
        epochs = sorted(record["best_epoch"] for record in own)
        tuned = best_tuned(table1, dataset, [record["repeat"] for record in own])
        against = [record["test_loss"] - tuned[1][record["repeat"]] for record in own] if tuned else []
        shown = f"{interval(against)} ({LABELS[tuned[0]]})" if tuned else ""
        cells = [str(interval([record[m] for record in own])) for m in measures]
        rows.append([dataset, ONLINE_LABELS[tuner], f"{epochs[0]} to {epochs[-1]}", *cells, shown])
    return [*header, "test log loss less that of the best tuner of Table 1 after its last run"], rows


def best_tuned(table1: Sequence[Record], dataset: str, repeats: Sequence[int]) -> tuple[str, dict[int, float]] | None:
    """The tuner of least mean test log loss on these splits after all its runs, and that loss by split."""
    found = {}
    for tuner in TUNERS:
        own = by_repeat(table1, dataset, tuner)
        if own and set(repeats) <= set(own):
            found[tuner] = {repeat: float(chosen(own[repeat], "test_loss")[-1]) for repeat in repeats}
    return min(found.items(), key=lambda pair: float(np.mean(list(pair[1].values()))), default=None)


PARTS: dict[str, Any] = {"validation": "-", "test": "--", "train": ":"}  # and their lines


def draw_figure3(records: Sequence[Record]) -> Figure:
    """A row a data set: log loss by epoch (mean over repeats, band: all of them), and the learned regularizers."""
    datasets = list(dict.fromkeys(record["dataset"] for record in records))
    tuners = [tuner for tuner in ONLINE if any(record["tuner"] == tuner for record in records)]
    figure = Figure(figsize=(11, 4 * len(datasets) + 0.8), layout="constrained", facecolor="white")
    for (left, right), dataset in zip(figure.subplots(len(datasets), 2, squeeze=False), datasets, strict=True):
        own = [record for record in records if record["dataset"] == dataset]
        for tuner in tuners:
            runs = [record for record in own if record["tuner"] == tuner]
            for part, line in PARTS.items() if runs else ():
                values = np.array([record["curves"][f"{part}_loss"] for record in runs])
                left.plot(runs[0]["kept"], values.mean(axis=0), line, color=ONLINE_COLORS[tuner], linewidth=1.3)
                if part == "validation":
                    low, high = values.min(axis=0), values.max(axis=0)
                    left.fill_between(runs[0]["kept"], low, high, color=ONLINE_COLORS[tuner], alpha=0.12, linewidth=0)
        band = "" if len(own) == len(tuners) else " (bands: all repeats, validation)"
        left.set(xscale="log", xlabel=f"epoch{band}", ylabel="log loss", title=dataset)
        left.set_ylim(0, 2.2 * min(record["validation_loss"] for record in own))
        shown = next((record for record in own if record["tuner"] == "tuneloss"), None)
        for width, (epoch, r) in enumerate((shown or {"regularizers": {}})["regularizers"].items(), start=1):
            color = ONLINE_COLORS["tuneloss"]
            right.plot(r["knots"], r["values"], linewidth=width, color=color, label=f"after {epoch} epochs")
        right.set(xlabel="param", ylabel="r(param)", title="learned regularizer, calibrated, first repeat")
        right.legend(frameon=False, labelcolor=INK)
        style(left)
        style(right)
    handles = [Line2D([], [], color=ONLINE_COLORS[tuner], label=ONLINE_LABELS[tuner]) for tuner in tuners]
    handles += [Line2D([], [], color=INK, linestyle=line, label=part) for part, line in PARTS.items()]
    figure.legend(handles=handles, frameon=False, labelcolor=INK, loc="outside lower center", ncols=4, fontsize=8)
    return figure

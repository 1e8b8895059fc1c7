"""Figure 3: a regularizer learned inside one training run, compared with plain AdaGrad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tuneloss.paper.experiment import Experiment, Table
from tuneloss.paper.online_run import ONLINE, OnlineRun
from tuneloss.paper.results import Record
from tuneloss.paper.statistics import by_repeat, interval, last_measure, paired_difference
from tuneloss.paper.table1 import Table1
from tuneloss.paper.tuners import COLORS, LABELS, TUNERS
from tuneloss.report.axes import style
from tuneloss.report.colors import INK

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
LINES: dict[str, Any] = {"validation": "-", "test": "--", "train": ":"}  # styles, by part of the split
COLUMNS = {  # titles of the table's columns, by field of a record
    "validation_loss": "validation log loss",
    "test_loss": "test log loss",
    "test_error": "test error",
    "last_validation_loss": "validation, last epoch",
    "last_test_loss": "test, last epoch",
}


@dataclass(frozen=True)
class Figure3(Experiment):
    """Long training runs with and without an online tuner.

    Parameters
    ----------
    datasets : sequence of str
        Names of data sets.
    repeats : int, default 5
        Repeats per data set.
    epochs : int, default 1000
        Epochs per run.
    """

    datasets: Sequence[str]
    repeats: int = 5
    epochs: int = 1000
    NAME = "figure3"
    BESIDE = (Table1.NAME,)
    QUICK: ClassVar = {"repeats": 1, "epochs": 40}

    def units(self) -> list[OnlineRun]:
        """Return all runs, repeat by repeat."""
        return [
            OnlineRun(self.NAME, dataset, tuner, repeat, self.epochs)
            for repeat in range(self.repeats)
            for dataset in self.datasets
            for tuner in ONLINE
        ]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        """Return one table with a row per data set and tuner: means and 95% intervals over repeats.

        Test log loss is compared, split by split, with the best tuner of Table 1, if Table 1 has all splits.
        """
        rows = []
        for dataset in self.datasets:
            for tuner in ONLINE:
                runs = _online(records, dataset, tuner)
                if runs:
                    rows.append([dataset, ONLINE_LABELS[tuner], *_cells(runs), _against_table1(runs, records)])
        header = ["data", "training", "best epochs", *COLUMNS.values()]
        return [Table([*header, "test log loss minus that of the best tuner of Table 1 after its last run"], rows)]

    def figure(self, records: Sequence[Record]) -> Figure:
        """Draw one row per data set: log loss by epoch, and the learned regularizers."""
        figure = Figure(figsize=(11, 4 * len(self.datasets) + 0.8), layout="constrained", facecolor="white")
        grid = figure.subplots(len(self.datasets), 2, squeeze=False)
        for (left, right), dataset in zip(grid, self.datasets, strict=True):
            _draw_curves(left, {tuner: _online(records, dataset, tuner) for tuner in ONLINE})
            left.set_title(dataset)
            _draw_regularizers(right, _online(records, dataset, "tuneloss"))
        handles = [Line2D([], [], color=ONLINE_COLORS[tuner], label=ONLINE_LABELS[tuner]) for tuner in ONLINE]
        handles += [Line2D([], [], color=INK, linestyle=line, label=part) for part, line in LINES.items()]
        figure.legend(handles=handles, frameon=False, labelcolor=INK, loc="outside lower center", ncols=4, fontsize=8)
        return figure


def _online(records: Sequence[Record], dataset: str, tuner: str) -> list[Record]:
    """Return the records of this experiment, of one data set and tuner."""
    wanted = (Figure3.NAME, dataset, tuner)
    return [record for record in records if (record["experiment"], record["dataset"], record["tuner"]) == wanted]


def _cells(runs: Sequence[Record]) -> list[str]:
    """Return the cells of a row: the range of best epochs, and the intervals of all measures."""
    epochs = [run["best_epoch"] for run in runs]
    return [f"{min(epochs)} to {max(epochs)}", *(str(interval([run[name] for run in runs])) for name in COLUMNS)]


def _against_table1(runs: Sequence[Record], records: Sequence[Record]) -> str:
    """Format the difference from the best tuner of Table 1; empty if Table 1 lacks a split."""
    table1 = [record for record in records if record["experiment"] == Table1.NAME]
    best = best_tuner(table1, runs[0]["dataset"], [run["repeat"] for run in runs])
    if best is None:
        return ""
    tuner, losses = best
    return f"{paired_difference({run['repeat']: run['test_loss'] for run in runs}, losses)} ({LABELS[tuner]})"


def best_tuner(table1: Sequence[Record], dataset: str, repeats: Sequence[int]) -> tuple[str, dict[int, float]] | None:
    """Return the tuner of least mean test log loss on these splits after its last run, and its losses by split.

    The result is None if no tuner has all of these splits.
    """
    losses = {}
    for tuner in TUNERS:
        groups = by_repeat(table1, dataset, tuner)
        if groups and set(repeats) <= set(groups):
            losses[tuner] = last_measure({repeat: groups[repeat] for repeat in repeats}, "test_loss")
    return min(losses.items(), key=lambda pair: float(np.mean(list(pair[1].values()))), default=None)


def _draw_curves(axes: Axes, runs: dict[str, list[Record]]) -> None:
    """Draw log loss by epoch, as a mean over repeats. The band spans all repeats on validation examples."""
    present = {tuner: repeats for tuner, repeats in runs.items() if repeats}
    for tuner, repeats in present.items():
        color, epochs = ONLINE_COLORS[tuner], repeats[0]["kept"]
        for part, line in LINES.items():
            values = np.array([record["curves"][f"{part}_loss"] for record in repeats])
            axes.plot(epochs, values.mean(axis=0), line, color=color, linewidth=1.3)
            if part == "validation":
                axes.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=color, alpha=0.12, linewidth=0)
    has_band = any(len(repeats) > 1 for repeats in present.values())
    axes.set(xscale="log", xlabel="epoch (bands: all repeats, validation)" if has_band else "epoch", ylabel="log loss")
    axes.set_ylim(0, 2.2 * min(record["validation_loss"] for repeats in present.values() for record in repeats))
    style(axes)


def _draw_regularizers(axes: Axes, runs: Sequence[Record]) -> None:
    """Draw the regularizer of the first repeat after some epochs. Later epochs have wider lines."""
    regularizers = runs[0]["regularizers"] if runs else {}
    for width, (epoch, r) in enumerate(regularizers.items(), start=1):
        color = ONLINE_COLORS["tuneloss"]
        axes.plot(r["knots"], r["values"], linewidth=width, color=color, label=f"after {epoch} epochs")
    axes.set(xlabel="param", ylabel="r(param)", title="learned regularizer, calibrated, first repeat")
    axes.legend(frameon=False, labelcolor=INK)
    style(axes)

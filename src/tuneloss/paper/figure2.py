"""Figure 2: test log loss and test error by the number of training runs, for every tuner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from tuneloss.errors import InvalidInput
from tuneloss.paper.datasets import SMALL
from tuneloss.paper.experiment import Experiment, Table
from tuneloss.paper.figure2_tables import (
    PANELS,
    TunerCurve,
    difference_table,
    early_table,
    of_shared_repeats,
    runs_table,
    standing_table,
    tuner_curves,
)
from tuneloss.paper.results import Record
from tuneloss.paper.tuner_runs import TunerRuns, each_repeat
from tuneloss.paper.tuners import COLORS, LABELS, TUNERS, check_tuner
from tuneloss.report.axes import style
from tuneloss.report.colors import INK

RUNS = 100
LONG, LONG_RUNS, LONG_REPEATS = "random", 500, 20  # it goes on in the first repeats on the small sets
DEFAULT_TUNERS = tuple(name for name in TUNERS if name != "hypergradient")  # it is in Table 1
BANDS = ("tuneloss", "random")  # tuners whose intervals are drawn; all intervals together would hide the lines
LEAST_REPEATS = 5  # an interval of fewer repeats is too wide to draw


@dataclass(frozen=True)
class Figure2(Experiment):
    """Long runs of every tuner.

    Parameters
    ----------
    datasets : sequence of str
        Names of data sets.
    repeats : int, optional
        Repeats per data set; by default 100 on the small sets, 20 on the large ones and 10 on any other.
    runs : int, optional
        Training runs per tuner and repeat. By default 100; random search has 500 in the first 20 repeats on the small
        sets.
    tuners : sequence of str
        Names of tuners, or NAME:RUNS for a tuner with another number of runs; by default all but hypergradients.

    Raises
    ------
    InvalidInput
        If a tuner is unknown, or named twice, or has no proper number of runs.
    """

    datasets: Sequence[str]
    repeats: int | None = None
    runs: int | None = None
    tuners: Sequence[str] = DEFAULT_TUNERS
    NAME = "figure2"
    QUICK: ClassVar = {"repeats": 2, "runs": 8}

    def __post_init__(self) -> None:
        if len(self.runs_by_tuner()) < len(self.tuners):
            raise InvalidInput(f"A tuner must be named once; found {', '.join(self.tuners)}.")

    def runs_by_tuner(self) -> dict[str, int | None]:
        """Return the number of runs of each tuner; None for the default."""
        return dict(_name_and_runs(text, self.runs) for text in self.tuners)

    def units(self) -> list[TunerRuns]:
        """Return all units, repeat by repeat."""
        return [
            TunerRuns(self.NAME, dataset, tuner, repeat, runs or _default_runs(dataset, tuner, repeat))
            for repeat, dataset in each_repeat(self.datasets, self.repeats)
            for tuner, runs in self.runs_by_tuner().items()
        ]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        """Return the tables that have rows."""
        shared = of_shared_repeats(records)
        tables = [runs_table(shared), difference_table(shared), standing_table(shared), early_table(records)]
        return [table for table in tables if table.rows]

    def figure(self, records: Sequence[Record]) -> Figure:
        """Draw the curves of all tuners."""
        return draw_figure2(tuner_curves(of_shared_repeats(records)))


def _default_runs(dataset: str, tuner: str, repeat: int) -> int:
    goes_on = tuner == LONG and dataset in SMALL and repeat < LONG_REPEATS
    return LONG_RUNS if goes_on else RUNS


def _name_and_runs(text: str, runs: int | None) -> tuple[str, int | None]:
    """Read NAME or NAME:RUNS; `runs` are those of a tuner without a number."""
    name, colon, number = text.partition(":")
    check_tuner(name)
    if colon and not (number.isdecimal() and int(number) > 0):
        raise InvalidInput(f"A tuner must be NAME or NAME:RUNS, such as random:100; found {text!r}.")
    return name, int(number) if colon else runs


def draw_figure2(curves: Sequence[TunerCurve]) -> Figure:
    """Draw one row per data set: test log loss and test error.

    The bands are the 95% intervals of TuneLoss and of random search.
    """
    datasets = list(dict.fromkeys(line.dataset for line in curves))
    figure = Figure(figsize=(10.5, 4 * len(datasets) + 0.6), layout="constrained", facecolor="white")
    grid = figure.subplots(len(datasets), len(PANELS), squeeze=False)
    for row, dataset in zip(grid, datasets, strict=True):
        for axes, (measure, (_, label)) in zip(row, PANELS.items(), strict=True):
            _draw_panel(axes, [line for line in curves if (line.dataset, line.measure) == (dataset, measure)])
            axes.set(xlabel="training runs", ylabel=label, title=dataset)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, labelcolor=INK, loc="outside lower center", ncols=4)
    return figure


def _draw_panel(axes: Axes, curves: Sequence[TunerCurve]) -> None:
    """Draw the curves of all tuners for one data set and measure."""
    for line in curves:
        runs, mean, half = np.arange(1, len(line.curve.mean) + 1), line.curve.mean, line.curve.half
        axes.plot(runs, mean, color=COLORS[line.tuner], linewidth=2, label=LABELS[line.tuner])
        if _has_band(line):
            axes.fill_between(runs, mean - half, mean + half, color=COLORS[line.tuner], alpha=0.15, linewidth=0)
    _limit_y(axes, curves)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    if curves[0].measure == "test_error":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    style(axes)


def _limit_y(axes: Axes, curves: Sequence[TunerCurve]) -> None:
    """Limit the axis to the values from the third run on, with room for the bands: the first runs are far above."""
    lowest = min(float(np.nanmin(line.curve.mean)) for line in curves)
    highest = max(float(line.curve.mean[min(2, len(line.curve.mean) - 1)]) for line in curves)
    half = max((float(np.median(line.curve.half)) for line in curves if _has_band(line)), default=0.0)
    if highest > lowest:
        axes.set_ylim(lowest - max(1.2 * half, 0.08 * (highest - lowest)), max(highest, lowest + 2 * half))


def _has_band(line: TunerCurve) -> bool:
    """Return whether the interval of a curve is drawn."""
    return line.tuner in BANDS and line.curve.repeats >= LEAST_REPEATS

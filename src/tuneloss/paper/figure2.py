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
from tuneloss.paper.results import Record
from tuneloss.paper.statistics import ByRepeat, Curve, by_repeat, curve, measure_so_far, paired_difference
from tuneloss.paper.tuner_runs import TunerRuns, each_repeat
from tuneloss.paper.tuners import COLORS, LABELS, TUNERS, check_tuner
from tuneloss.report.axes import style
from tuneloss.report.colors import INK

RUNS = 100
LONG, LONG_RUNS, LONG_REPEATS = "random", 500, 20  # it goes on in the first repeats on the small sets
DEFAULT_TUNERS = tuple(name for name in TUNERS if name != "hypergradient")  # it is in Table 1
BASE = "tuneloss"  # the tuner that the others are compared with
AFTER = (1, 2, 3, 5, 10, 20, 50, 100)  # numbers of runs in the table
EARLY, LATE = (2, 3, 10), (100, 500)  # numbers of runs of TuneLoss, and of random search, that are compared
BANDS = ("tuneloss", "random")  # tuners whose intervals are drawn; all intervals together would hide the lines
LEAST_REPEATS = 5  # an interval of fewer repeats is too wide to draw
PANELS = {"test_loss": ("validation_loss", "test log loss"), "test_error": ("validation_error", "test error")}


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
        """Return the tables: test log loss by runs, all tuners minus TuneLoss, and few runs minus many random ones."""
        shared = of_shared_repeats(records)
        return [runs_table(shared), *(t for t in (difference_table(shared), early_table(records)) if t.rows)]

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


def of_shared_repeats(records: Sequence[Record]) -> list[Record]:
    """Return the records of the repeats that all tuners of their data set have: only these means can be compared."""
    shared: dict[str, set[int]] = {}
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        repeats = [set(by_repeat(records, dataset, tuner)) for tuner in TUNERS]
        shared[dataset] = set.intersection(*filter(None, repeats))
    return [record for record in records if record["repeat"] in shared[record["dataset"]]]


@dataclass(frozen=True, eq=False)
class TunerCurve:
    """A measure of one tuner on one data set, by the number of runs.

    Parameters
    ----------
    dataset, tuner, measure : str
        Names of the data set, the tuner and the measure.
    curve : Curve
        The measure after each run.
    """

    dataset: str
    tuner: str
    measure: str
    curve: Curve


def tuner_curves(records: Sequence[Record]) -> list[TunerCurve]:
    """Compute one curve per data set, tuner and measure.

    For test log loss, the best model so far is the one of least validation log loss. For test error, it is the one of
    least validation error.
    """
    curves = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        for tuner in TUNERS:
            repeats = by_repeat(records, dataset, tuner)
            panels = PANELS.items() if repeats else ()
            curves += [TunerCurve(dataset, tuner, measure, curve(repeats, measure, by)) for measure, (by, _) in panels]
    return curves


def runs_table(records: Sequence[Record]) -> Table:
    """Build the table of test log loss after some numbers of runs."""
    curves = [line for line in tuner_curves(records) if line.measure == "test_loss"]
    most = max(len(line.curve.mean) for line in curves)
    after = [n for n in AFTER if n <= most]
    rows = [
        [
            line.dataset,
            LABELS[line.tuner],
            str(line.curve.repeats),
            *(f"{line.curve.mean[n - 1]:.4f}" if n <= len(line.curve.mean) else "" for n in after),
        ]
        for line in curves
    ]
    note = "Test log loss of the model of least validation log loss so far, mean over repeats."
    return Table(["data", "tuner", "repeats", *(f"after {n}" for n in after)], rows, note=note)


def difference_table(records: Sequence[Record]) -> Table:
    """Build the table of test log loss of all tuners minus TuneLoss, after the same number of runs."""
    after, rows = [n for n in AFTER if n > 1], []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        ours = by_repeat(records, dataset, BASE)
        for tuner in (name for name in TUNERS if name != BASE):
            others = by_repeat(records, dataset, tuner)
            cells = [_difference(others, n, ours, n, "test_loss") for n in after]
            if any(cells):
                rows.append([dataset, LABELS[tuner], *cells])
    note = "Test log loss minus that of TuneLoss, by repeat, mean and 95% interval. Above 0, TuneLoss is better."
    return Table(["data", "tuner", *(f"after {n}" for n in after)], rows, note=note)


def early_table(records: Sequence[Record]) -> Table:
    """Build the table of TuneLoss after a few runs minus random search after many. Rows without values are left out."""
    rows = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        random = by_repeat(records, dataset, "random")
        for tuner in ("tuneloss", "tuneloss-paper"):
            repeats = by_repeat(records, dataset, tuner)
            for early in EARLY:
                cells = [_difference(repeats, early, random, late, measure) for measure in PANELS for late in LATE]
                if any(cells):
                    rows.append([dataset, LABELS[tuner], str(early), *cells])
    header = [f"{label} minus random search after {late}" for _, label in PANELS.values() for late in LATE]
    note = "Differences by repeat, mean and 95% interval. Below 0, TuneLoss is better."
    return Table(["data", "tuner", "runs", *header], rows, note=note)


def _difference(repeats: ByRepeat, early: int, others: ByRepeat, late: int, measure: str) -> str:
    """Format the difference between one tuner after `early` runs and another after `late` runs."""
    difference = paired_difference(_after(early, repeats, measure), _after(late, others, measure))
    return "" if difference is None else str(difference)


def _after(n: int, repeats: ByRepeat, measure: str) -> dict[int, float]:
    """Return the measure after n runs, by repeat, for the repeats that have so many."""
    by = PANELS[measure][0]
    return {i: float(measure_so_far(runs, measure, by)[n - 1]) for i, runs in repeats.items() if len(runs) >= n}


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

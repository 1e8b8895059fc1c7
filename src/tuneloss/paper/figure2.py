"""Figure 2: test log loss and test error by the number of training runs, for every tuner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from tuneloss.errors import InvalidInput
from tuneloss.paper.experiments import Unit
from tuneloss.paper.results import Record
from tuneloss.paper.table1 import by_repeat, chosen
from tuneloss.paper.tuners import COLORS, LABELS, TUNERS, check_tuners
from tuneloss.report.colors import INK
from tuneloss.report.figures import style
from tuneloss.report.info import interval
from tuneloss.types import Array

EXPERIMENT = "figure2"
RUNS = dict.fromkeys(TUNERS, 100) | {"random": 500, "gp-ei-mcmc": 50}
REPEATS, AT_MOST = 20, {"gp-ei-mcmc": 5}  # slow: few repeats of it
EARLY, LATE = (2, 3, 10), (100, 500)  # runs of TuneLoss, and of random search
BANDS = ("tuneloss", "random")  # whose intervals are drawn; those of all would hide the lines
ByRepeat = dict[int, list[Record]]
PANELS = {"test_loss": ("validation_loss", "test log loss"), "test_error": ("validation_error", "test error")}


def figure2_units(
    datasets: Sequence[str], repeats: int | None = None, runs: int | None = None, tuners: Sequence[str] = TUNERS
) -> list[Unit]:
    """What is to be run, repeat by repeat. tuners: names, or NAME:RUNS for a number of runs of its own."""
    most = dict(_with_runs(given, runs) for given in tuners)
    if len(most) < len(tuners):
        raise InvalidInput(f"A tuner must be named once; found {', '.join(tuners)}.")
    wanted = repeats or REPEATS
    return [
        Unit(EXPERIMENT, dataset, tuner, repeat, own)
        for repeat in range(wanted)
        for dataset in datasets
        for tuner, own in most.items()
        if repeat < AT_MOST.get(tuner, wanted)
    ]


def _with_runs(given: str, runs: int | None) -> tuple[str, int]:
    """The name of a tuner, and how many runs it has."""
    name, colon, own = given.partition(":")
    check_tuners([name])
    if colon and not (own.isdecimal() and int(own) > 0):
        raise InvalidInput(f"A tuner must be NAME or NAME:RUNS, such as random:100; found {given!r}.")
    return name, int(own) if colon else min(RUNS[name], runs or RUNS[name])


@dataclass(frozen=True)
class TunerCurve:
    """Mean over repeats of the chosen model's measure after each run (runs,), and half its 95% interval."""

    dataset: str
    tuner: str
    measure: str
    repeats: int
    mean: Array
    half: Array


def figure2_info(records: Sequence[Record]) -> list[TunerCurve]:
    """A curve for each data set, tuner and measure; log loss is chosen by validation log loss, error by error."""
    curves = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        for tuner in TUNERS:
            repeats = by_repeat(records, dataset, tuner)
            for measure, (by, _) in PANELS.items():
                if repeats:
                    values = np.array([chosen(own, measure, by) for own in repeats.values()])
                    pairs = [interval(column) for column in values.T]
                    mean, half = (np.array([getattr(pair, name) for pair in pairs]) for name in ("mean", "half"))
                    curves.append(TunerCurve(dataset, tuner, measure, len(values), mean, half))
    return curves


def early_rows(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Header, and for each form of TuneLoss after a few runs, what it has less random search after many.

    Differences are taken repeat by repeat: mean and 95% interval; below 0, TuneLoss is better. No row without the runs.
    """
    rows = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        random = by_repeat(records, dataset, "random")
        for tuner in ("tuneloss", "tuneloss-paper"):
            own = by_repeat(records, dataset, tuner)
            for early in EARLY:
                cells = [_less(own, random, early, late, measure) for measure in PANELS for late in LATE]
                if any(cells):
                    rows.append([dataset, LABELS[tuner], str(early), *cells])
    header = [f"{label} less random search's after {late}" for _, label in PANELS.values() for late in LATE]
    return ["data", "tuner", "runs", *header], rows


def _less(own: ByRepeat, other: ByRepeat, early: int, late: int, measure: str) -> str:
    """What one tuner has after `early` runs less what the other has after `late`, where there are as many."""
    found = []
    for i in own.keys() & other.keys():
        mine, yours = (chosen(runs, measure, PANELS[measure][0]) for runs in (own[i], other[i]))
        if len(mine) >= early and len(yours) >= late:
            found.append(mine[early - 1] - yours[late - 1])
    return str(interval(found)) if found else ""


def draw_figure2(curves: Sequence[TunerCurve]) -> Figure:
    """A row a data set: test log loss, and test error; bands: 95% intervals of TuneLoss and of random search."""
    datasets = list(dict.fromkeys(curve.dataset for curve in curves))
    figure = Figure(figsize=(10.5, 4 * len(datasets) + 0.6), layout="constrained", facecolor="white")
    grid = figure.subplots(len(datasets), len(PANELS), squeeze=False)
    for row, dataset in zip(grid, datasets, strict=True):
        for axes, (measure, (_, label)) in zip(row, PANELS.items(), strict=True):
            own = [curve for curve in curves if curve.dataset == dataset and curve.measure == measure]
            for curve in own:
                runs = np.arange(1, len(curve.mean) + 1)
                color = COLORS[curve.tuner]
                axes.plot(runs, curve.mean, color=color, linewidth=2, label=LABELS[curve.tuner])
                if _has_band(curve):
                    low, high = curve.mean - curve.half, curve.mean + curve.half
                    axes.fill_between(runs, low, high, color=color, alpha=0.15, linewidth=0)
            lowest = min(float(np.nanmin(curve.mean)) for curve in own)
            early = max(float(curve.mean[min(2, len(curve.mean) - 1)]) for curve in own)
            usual = max((float(np.median(curve.half)) for curve in own if _has_band(curve)), default=0.0)
            if early > lowest:
                below = max(1.2 * usual, 0.08 * (early - lowest))
                axes.set_ylim(lowest - below, max(early, lowest + 2 * usual))
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set(xlabel="training runs", ylabel=label, title=dataset)
            if measure == "test_error":
                axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
            style(axes)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, labelcolor=INK, loc="outside lower center", ncols=4)
    return figure


def _has_band(curve: TunerCurve) -> bool:
    """Whether its interval is drawn: one of fewer than five repeats says nothing."""
    return curve.tuner in BANDS and curve.repeats >= 5

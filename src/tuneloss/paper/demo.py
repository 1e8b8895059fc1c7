"""The demo: TuneLoss and random search, with the same number of runs, on softmax regression of digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from tuneloss.errors import InvalidInput
from tuneloss.paper.datasets import DIGITS, Split, digits
from tuneloss.paper.experiment import Experiment, Table
from tuneloss.paper.results import Record
from tuneloss.paper.statistics import (
    ByRepeat,
    Interval,
    best_so_far,
    by_repeat,
    curve,
    interval,
    last_measure,
    paired_difference,
)
from tuneloss.paper.terms import appendix_box
from tuneloss.paper.tuner_runs import Seeds, Setting, TunerRuns
from tuneloss.paper.tuners import COLORS
from tuneloss.report.axes import style, whole_numbers
from tuneloss.report.colors import INK

METHODS = {"tuneloss": "TuneLoss", "random": "random search"}  # tuners, and their labels
MEASURES = {"validation_loss": "validation log loss", "test_loss": "test log loss", "test_error": "test error"}
N_TRAIN = 100  # training examples: so few that regularization matters
DRAWS = 32  # draws of dropout masks per observation
FREE = tuple(name for name, pinned in zip(appendix_box().names, appendix_box().pinned, strict=True) if not pinned)


@dataclass(frozen=True)
class Demo(Experiment):
    """A comparison that takes seconds. Its records are not written to a file.

    Each repeat has its own data split, first weights and training noise, all derived from `seed`. Within a repeat, the
    methods share all of these and differ only in the weights that they propose.

    Parameters
    ----------
    runs : int, default 10
        Training runs per method and repeat.
    repeats : int, default 1
        Independent repeats.
    seed : int, default 0
        Seed of all random numbers.
    epochs : int, default 100
        Epochs per run.
    pixel_unit : float, default 2.0
        See `tuneloss.paper.datasets.digits`.

    Raises
    ------
    InvalidInput
        If a number is too small.
    """

    runs: int = 10
    repeats: int = 1
    seed: int = 0
    epochs: int = 100
    pixel_unit: float = 2.0
    NAME = "demo"

    def __post_init__(self) -> None:
        for name, least in (("runs", 1), ("repeats", 1), ("seed", 0), ("epochs", 1)):
            if getattr(self, name) < least:
                raise InvalidInput(f"`{name}` must be at least {least}; found {getattr(self, name)}.")

    def units(self) -> list[TunerRuns]:
        """Return one unit per repeat and method."""
        settings = {
            "tuneloss": Setting("tuneloss", epochs=self.epochs, draws=DRAWS),
            "random": Setting("random", epochs=self.epochs, first="tuner"),
        }
        return [
            DemoRuns(self.NAME, DIGITS, tuner, repeat, self.runs, settings[tuner], self.seed, self.pixel_unit)
            for repeat in range(self.repeats)
            for tuner in METHODS
        ]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        """Return two tables: the runs of TuneLoss in the first repeat, and the final comparison."""
        return [self.runs_table(records), self.final_table(records)]

    def runs_table(self, records: Sequence[Record]) -> Table:
        """Build the table of TuneLoss's runs in the first repeat; the best one is marked."""
        runs = method_records(records, "tuneloss")[0]
        best = best_so_far(runs)[-1]
        title = "TuneLoss" if self.repeats == 1 else f"TuneLoss, repeat 1 of {self.repeats}"
        marked = None if best is None else runs.index(best)
        return Table(("run", *FREE, *MEASURES.values()), [run_cells(run) for run in runs], title, marked=marked)

    def final_table(self, records: Sequence[Record]) -> Table:
        """Build the table of all methods after their last run, with their difference."""
        rows = [
            [label, *(measure_text(name, values[name]) for name in MEASURES)]
            for label, values in final_measures(records).items()
        ]
        over = f"mean ± 95% interval over {self.repeats} repeats"
        note = over if self.repeats > 1 else "one repeat; use --repeats 20 for intervals"
        header = (f"after {self.runs} runs", *MEASURES.values())
        return Table(header, rows, note=f"The model of least validation log loss; {note}.")

    def figure(self, records: Sequence[Record]) -> Figure:
        """Draw test log loss and test error by run, side by side."""
        figure = Figure(figsize=(9.6, 3.8), layout="constrained", facecolor="white")
        left, right = figure.subplots(1, 2)
        draw_measure(left, records, "test_loss")
        draw_measure(right, records, "test_error")
        return figure


@dataclass(frozen=True)
class DemoRuns(TunerRuns):
    """One repeat of one method of the demo.

    Parameters
    ----------
    seed : int, default 0
        The seed of the demo, from which all seeds of the repeat are derived.
    pixel_unit : float, default 2.0
        See `tuneloss.paper.datasets.digits`.
    """

    seed: int = 0
    pixel_unit: float = 2.0

    def seeds(self) -> Seeds:
        """Return the seeds of this repeat.

        Random search has the seed of the first weights, so that both methods start with the same weights.
        """
        seeds = np.random.SeedSequence(self.seed).spawn(self.repeat + 1)[self.repeat]
        split, masks, first, tuner, training = seeds.spawn(5)
        return Seeds(split, masks, first, first if self.tuner == "random" else tuner, training.spawn(self.runs))

    def split(self, seeds: Seeds) -> Split:
        """Draw a split of the digits."""
        return digits(np.random.default_rng(seeds.split), n_train=N_TRAIN, pixel_unit=self.pixel_unit)


def method_records(records: Sequence[Record], tuner: str) -> ByRepeat:
    """Return the records of a method, by repeat."""
    return by_repeat(records, DIGITS, tuner)


def final_measures(records: Sequence[Record]) -> dict[str, dict[str, Interval]]:
    """Compute each method's measures after its last run, by label; "difference" is TuneLoss minus random search.

    The difference is paired: the methods share the split and the first run of each repeat.
    """
    last = {name: {m: last_measure(method_records(records, name), m) for m in MEASURES} for name in METHODS}
    finals = {label: {m: interval(list(last[name][m].values())) for m in MEASURES} for name, label in METHODS.items()}
    differences = {m: paired_difference(last["tuneloss"][m], last["random"][m]) for m in MEASURES}
    return finals | {"difference": {m: value for m, value in differences.items() if value is not None}}


def measure_text(name: str, value: Interval) -> str:
    """Format a measure: an error in per cent, a loss with four decimals."""
    return value.percent() if name == "test_error" else str(value)


def run_cells(run: Record) -> list[str]:
    """Return the cells of a run: its number, free weights, validation log loss, test log loss and test error."""
    number, weights = str(run["run"] + 1), [f"{run['weights'][name]:.3g}" for name in FREE]
    if run.get("failed"):
        return [number, *weights, f"failed: {run['failed']}", "", ""]
    losses = [f"{run['validation_loss']:.4f}", f"{run['test_loss']:.4f}"]
    return [number, *weights, *losses, f"{100 * run['test_error']:.1f}%"]


def draw_measure(axes: Axes, records: Sequence[Record], measure: str) -> None:
    """Draw a measure of the best model so far, by run: the mean of each method, with its 95% interval as a band."""
    curves = {name: curve(method_records(records, name), measure) for name in METHODS}
    for name, drawn in curves.items():
        runs = np.arange(1, len(drawn.mean) + 1)
        axes.plot(runs, drawn.mean, color=COLORS[name], marker="o", markersize=4, linewidth=2, label=METHODS[name])
        if drawn.repeats > 1:
            low, high = drawn.mean - drawn.half, drawn.mean + drawn.half
            axes.fill_between(runs, low, high, color=COLORS[name], alpha=0.22, linewidth=0)
    axes.set(xlabel="training runs", ylabel=MEASURES[measure])
    axes.xaxis.set_major_locator(whole_numbers())
    if any(np.isfinite(drawn.mean).any() for drawn in curves.values()):  # a logarithmic axis needs a number
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0) if measure == "test_error" else "{x:g}")
    axes.legend(frameon=False, labelcolor=INK)
    style(axes)

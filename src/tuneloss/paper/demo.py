"""The demo: a loss tuned between runs, against random search; and inside one run, against the same run untuned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from tuneloss.errors import InvalidInput
from tuneloss.paper.datasets import DIGITS
from tuneloss.paper.demo_figures import draw_half
from tuneloss.paper.demo_runs import DRAWS, DemoRuns, OneRun
from tuneloss.paper.experiment import Experiment, Table
from tuneloss.paper.results import Record
from tuneloss.paper.statistics import ByRepeat, Interval, by_repeat, curve, interval, last_measure, paired_difference
from tuneloss.paper.terms import appendix_box
from tuneloss.paper.tuner_runs import Setting
from tuneloss.report.words import weight_text

MEASURES = {"test_loss": "test log loss", "test_error": "test error"}
FREE = tuple(name for name, pinned in zip(appendix_box().names, appendix_box().pinned, strict=True) if not pinned)


@dataclass(frozen=True)
class Half:
    """One half of the demo: two methods that share the data, the seeds and the number of runs.

    Parameters
    ----------
    ours, other : str
        The names of the methods in the records.
    labels : tuple of two str
        What a reader sees in place of `ours` and `other`.
    title : str
        The heading of this half.
    about : str
        A sentence on what is compared.
    step : str
        What a record of it is: a run or an epoch.
    """

    ours: str
    other: str
    labels: tuple[str, str]
    title: str
    about: str
    step: str

    @property
    def names(self) -> dict[str, str]:
        """The label of each method, by its name in the records; ours is the first."""
        return dict(zip((self.ours, self.other), self.labels, strict=True))

    @property
    def axis(self) -> str:
        """What the horizontal axis of a figure counts."""
        return "training runs" if self.step == "run" else "epochs"


BETWEEN = Half(
    "tuneloss",
    "random",
    ("TuneLoss", "random search"),
    "Between runs",
    "TuneLoss learns the weights of the next run from the models so far. Random search draws them.",
    "run",
)
INSIDE = Half(
    "online",
    "plain",
    ("tuned inside", "plain"),
    "Inside one run",
    "One run learns the weights after each epoch. The other is the same run with log loss alone.",
    "epoch",
)
HALVES = (BETWEEN, INSIDE)
SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # epochs that get a row, beside the last one


@dataclass(frozen=True)
class Demo(Experiment):
    """Two comparisons that take seconds. Their records are not written to a file.

    Each repeat has its own data split, first weights and training noise, all derived from `seed`. Within a repeat, the
    methods share all of these and differ only in the weights.

    Parameters
    ----------
    runs : int, default 10
        Training runs per repeat, of each method that tunes between runs.
    repeats : int, default 20
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
    repeats: int = 20
    seed: int = 0
    epochs: int = 100
    pixel_unit: float = 2.0
    NAME = "demo"

    def __post_init__(self) -> None:
        for name, least in (("runs", 1), ("repeats", 1), ("seed", 0), ("epochs", 1)):
            if getattr(self, name) < least:
                raise InvalidInput(f"`{name}` must be at least {least}; found {getattr(self, name)}.")

    def units(self) -> list[DemoRuns]:
        """Return one unit per repeat and method."""
        return [unit for repeat in range(self.repeats) for half in HALVES for unit in self.pair(half, repeat)]

    def pair(self, half: Half, repeat: int) -> tuple[DemoRuns, DemoRuns]:
        """Return the units of both methods of a half, in one repeat."""
        given = (self.seed, self.pixel_unit)
        ours, other = ((self.NAME, DIGITS, name, repeat) for name in half.names)
        if half is INSIDE:
            return OneRun(*ours, self.epochs, None, *given), OneRun(*other, self.epochs, None, *given)
        tuned = Setting(half.ours, epochs=self.epochs, draws=DRAWS)
        drawn = Setting(half.other, epochs=self.epochs, first="tuner")
        return DemoRuns(*ours, self.runs, tuned, *given), DemoRuns(*other, self.runs, drawn, *given)

    def watch(self, half: Half) -> Iterator[tuple[Record, Record]]:
        """Run the first repeat of a half here, and yield the records of both methods, step by step."""
        from threadpoolctl import threadpool_limits

        ours, other = self.pair(half, 0)
        with threadpool_limits(1):  # the same numbers as in `run_units`
            yield from zip(ours.run(), other.run(), strict=True)

    def tables(self, records: Sequence[Record]) -> list[Table]:
        """Return one table: each method's measures at its best model, and the differences."""
        rows = []
        for half in HALVES:
            outcome = Outcome.of(records, half)
            number = f"{self.runs} run{'s' if self.runs > 1 else ''}" if half is BETWEEN else "1 run"
            named = [f"{number}, {label}" for label in half.labels]
            rows += [
                [label, *(measure_text(name, value[name]) for name in MEASURES)]
                for label, value in zip(named, (outcome.ours, outcome.other), strict=True)
            ]
            loss, error = (outcome.difference[name] for name in MEASURES)
            rows.append(["difference", loss.text(3), f"{error.text(1, factor=100)} points"])
        over = f"mean ± 95% interval over {self.repeats} repeats"
        note = over if self.repeats > 1 else "one repeat; use --repeats 20 for intervals"
        return [Table(("", *MEASURES.values()), rows, note=f"The model of least validation log loss; {note}.")]

    def figure(self, records: Sequence[Record]) -> Figure:
        """Draw test log loss by run and by epoch, side by side."""
        figure = Figure(figsize=(9.6, 3.8), layout="constrained", facecolor="white")
        for axes, half in zip(figure.subplots(1, 2), HALVES, strict=True):
            draw_half(axes, half_records(records, half), half.step, "test_loss")
            axes.set_title(half.title, fontsize=12, loc="left")
        return figure

    def headline(self, records: Sequence[Record]) -> str:
        """Say in a few words what tuning gained."""
        between, inside = (Outcome.of(records, half) for half in HALVES)
        return f"Test log loss is {between.short('random search')}, and {inside.short('a plain run')}."

    def verdict(self, records: Sequence[Record]) -> list[str]:
        """Say in one sentence per half what tuning gained, with numbers."""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        between, inside = (Outcome.of(records, half) for half in HALVES)
        sooner = "" if between.told_apart() != "lower" else _sooner(records, self.runs)
        return [
            f"After {runs}, the loss tuned between runs {between.text('random search after as many')}{sooner}.",
            f"The run whose loss is tuned inside {inside.text('the same run without tuning')}.",
        ]


@dataclass(frozen=True)
class Outcome:
    """The measures of both methods of a half, each at its model of least validation log loss.

    Parameters
    ----------
    ours, other, difference : dict of str to Interval
        Mean and interval over repeats, by measure; the difference is paired by repeat.
    """

    ours: dict[str, Interval]
    other: dict[str, Interval]
    difference: dict[str, Interval]

    @classmethod
    def of(cls, records: Sequence[Record], half: Half) -> Outcome:
        """Compute the outcome of a half from all records."""
        repeats = [by_repeat(records, DIGITS, name) for name in half.names]
        ours, other = ({m: last_measure(method, m) for m in MEASURES} for method in repeats)
        differences = {m: paired_difference(ours[m], other[m]) for m in MEASURES}
        return cls(
            {m: interval(list(values.values())) for m, values in ours.items()},
            {m: interval(list(values.values())) for m, values in other.items()},
            {m: value or Interval(math.nan, math.nan) for m, value in differences.items()},
        )

    def told_apart(self) -> str:
        """Return "lower" or "higher" if the interval of our difference in test log loss excludes 0, else ""."""
        difference = self.difference["test_loss"]
        if not abs(difference.mean) > difference.half:
            return ""
        return "lower" if difference.mean < 0 else "higher"

    def short(self, than: str) -> str:
        """Return a few words that compare test log loss, and claim no more than the interval allows."""
        side = self.told_apart()
        if not side:
            return f"not to be told apart from that of {than}"
        return f"{self._share():.0%} {side} than that of {than}"

    def _share(self) -> float:
        """Return the size of the difference in test log loss, as a share of the other method's."""
        return abs(self.difference["test_loss"].mean) / self.other["test_loss"].mean

    def text(self, than: str) -> str:
        """Return a clause that compares test log loss, and claims no more than the interval allows."""
        ours, other, difference = (part["test_loss"] for part in (self.ours, self.other, self.difference))
        if not math.isfinite(difference.mean):
            return f"cannot be compared with {than}, because runs failed"
        side, numbers = self.told_apart(), f"{ours.mean:.3f} against {other.mean:.3f}"
        if math.isnan(difference.half):
            return f"has test log loss {numbers} of {than}; one repeat cannot tell this from luck"
        if not side:
            return f"cannot be told apart from {than} by test log loss: {numbers}, difference {difference.text(3)}"
        return f"has {self._share():.0%} {side} test log loss than {than}: {numbers}, difference {difference.text(3)}"


def half_records(records: Sequence[Record], half: Half) -> dict[str, ByRepeat]:
    """Return the records of both methods, by label and repeat; ours are the first."""
    return {label: by_repeat(records, DIGITS, name) for name, label in half.names.items()}


def shown_steps(n: int, half: Half) -> list[int]:
    """Return the numbers of the steps that get a row: all runs, but only some of `n` epochs."""
    return [step for step in range(1, n + 1) if half is BETWEEN or step in SHOWN or step == n]


def _sooner(records: Sequence[Record], runs: int) -> str:
    """Say how many runs we need for what random search reaches with all of its runs, if that is less."""
    ours, other = (curve(repeats, "test_loss").mean for repeats in half_records(records, BETWEEN).values())
    first = int(np.argmax(ours <= other[-1])) + 1
    return f". It needs {first} run{'s' if first > 1 else ''} to get as low as random search" if first < runs else ""


def measure_text(name: str, value: Interval) -> str:
    """Format a measure: an error in per cent, a loss with three decimals."""
    return value.percent() if name == "test_error" else value.text(3)


def weight_texts(record: Record) -> list[str]:
    """Return the free weights of a record as text."""
    return [weight_text(record["weights"][name]) for name in FREE]

"""The curves and tables of Figure 2: a measure of each tuner by the number of training runs, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuneloss.paper.experiment import Table
from tuneloss.paper.results import Record
from tuneloss.paper.statistics import ByRepeat, Curve, by_repeat, curve, interval, measure_so_far, paired_difference
from tuneloss.paper.tuners import LABELS, TUNERS
from tuneloss.types import Array

BASE = "tuneloss"  # the tuner that the others are compared with
AFTER = (1, 2, 3, 5, 10, 20, 50, 100)  # numbers of runs in the table
EARLY, LATE = (2, 3, 10), (100, 500)  # numbers of runs of TuneLoss, and of random search, that are compared
PANELS = {"test_loss": ("validation_loss", "test log loss"), "test_error": ("validation_error", "test error")}


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


def standing_table(records: Sequence[Record]) -> Table:
    """Build the table of the numbers of runs after which a tuner is significantly above or below TuneLoss."""
    rows = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        ours = _losses(by_repeat(records, dataset, BASE))
        for tuner in (name for name in TUNERS if name != BASE):
            others = _losses(by_repeat(records, dataset, tuner))
            shared = [repeat for repeat in others if repeat in ours]
            if len(shared) < 2:
                continue
            n = min(len(line) for repeat in shared for line in (others[repeat], ours[repeat]))
            differences = [interval([others[r][i] - ours[r][i] for r in shared]) for i in range(1, n)]
            above = [i for i, d in enumerate(differences, start=2) if d.mean > d.half]
            below = [i for i, d in enumerate(differences, start=2) if d.mean < -d.half]
            rows.append([dataset, LABELS[tuner], str(len(shared)), f"2-{n}", _ranges(above), _ranges(below)])
    note = "Numbers of runs after which the 95% interval of the difference in test log loss excludes 0."
    return Table(["data", "tuner", "repeats", "compared after", "above TuneLoss", "below TuneLoss"], rows, note=note)


def _losses(repeats: ByRepeat) -> dict[int, Array]:
    return {repeat: measure_so_far(runs, "test_loss") for repeat, runs in repeats.items()}


def _ranges(numbers: Sequence[int]) -> str:
    """Join ascending numbers, e.g. 2, 3, 4, 7 as "2-4, 7"; "never" if there are none."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)) or "never"


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

"""Ablation: which choices of TuneLoss matter. Each variant changes one choice in Table 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tuneloss.errors import InvalidInput
from tuneloss.paper.experiment import Experiment, Table
from tuneloss.paper.results import Record
from tuneloss.paper.statistics import by_repeat, interval, measure_so_far, paired_difference
from tuneloss.paper.table1 import Table1
from tuneloss.paper.tuner_runs import Setting, TunerRuns
from tuneloss.types import Array

BASE, RANDOM = "tuneloss", "random"  # tuners in the records of Table 1
FROM_TABLE1 = {BASE: "TuneLoss of Table 1", RANDOM: "random search of Table 1"}
AFTER = (2, 3, 10)  # numbers of runs after which the table shows test log loss


def _tuneloss(**options: object) -> Setting:
    """Return the setting of TuneLoss with some options."""
    return Setting(BASE, tuple(options.items()))


# By name: the changed setting, and the tuner or variant to compare it with.
VARIANTS: dict[str, tuple[Setting, str]] = {
    "paper's objective": (_tuneloss(objective="paper"), BASE),
    "calibrated objective": (_tuneloss(objective="calibrated"), BASE),
    "paper's epsilon": (_tuneloss(epsilon="paper"), BASE),
    "gradients only (epsilon infinite)": (_tuneloss(epsilon=math.inf), BASE),
    "values only (epsilon 0)": (_tuneloss(epsilon=0.0), BASE),
    "repeats itself: let it": (_tuneloss(fallback="repeat"), BASE),
    "repeats itself: a random point": (_tuneloss(fallback="random"), BASE),
    "first weights: middle of the box": (Setting(BASE, first="middle"), BASE),
    "first weights: lower end of the box": (Setting(BASE, first="lower"), BASE),
    "one draw of dropout masks": (Setting(BASE, draws=1), BASE),
    "runs start from the last run's params": (Setting(BASE, warm=True), BASE),
    "random search, 10 epochs": (Setting(RANDOM, epochs=10), RANDOM),
    "10 epochs": (Setting(BASE, epochs=10), "random search, 10 epochs"),
    "random search, 100 epochs": (Setting(RANDOM, epochs=100), RANDOM),
    "100 epochs": (Setting(BASE, epochs=100), "random search, 100 epochs"),
    "random search, terms are means": (Setting(RANDOM, means=True), RANDOM),
    "terms are means": (Setting(BASE, means=True), "random search, terms are means"),
}


@dataclass(frozen=True)
class Ablation(Experiment):
    """Variants of TuneLoss, compared with the records of Table 1.

    Parameters
    ----------
    datasets : sequence of str
        Names of data sets.
    repeats : int, default 10
        Repeats per data set.
    runs : int, default 10
        Training runs per variant and repeat.
    variants : sequence of str
        Names in `VARIANTS`; all by default.

    Raises
    ------
    InvalidInput
        If there is no variant of that name.
    """

    datasets: Sequence[str]
    repeats: int = 10
    runs: int = 10
    variants: Sequence[str] = tuple(VARIANTS)
    NAME = "ablation"
    QUICK: ClassVar = {"repeats": 1, "runs": 3}

    def __post_init__(self) -> None:
        unknown = [name for name in self.variants if name not in VARIANTS]
        if unknown:
            raise InvalidInput(f"A variant must be one of {', '.join(map(repr, VARIANTS))}; found {unknown[0]!r}.")

    def units(self) -> list[TunerRuns]:
        """Return the units of the variants, and those of Table 1 to compare with, repeat by repeat."""
        base = [(Table1.NAME, BASE, None), (Table1.NAME, RANDOM, None)]
        changed = [(self.NAME, name, VARIANTS[name][0]) for name in dict.fromkeys(self.variants)]
        return [
            TunerRuns(experiment, dataset, name, repeat, self.runs, setting)
            for repeat in range(self.repeats)
            for dataset in self.datasets
            for experiment, name, setting in base + changed
        ]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        """Return one table with one row per data set and variant."""
        rows = []
        for dataset in dict.fromkeys(record["dataset"] for record in records):
            curves = {
                name: {i: measure_so_far(runs, "test_loss") for i, runs in by_repeat(records, dataset, name).items()}
                for name in (BASE, RANDOM, *VARIANTS)
            }
            rows += [[dataset, *_cells(name, curves)] for name in curves if curves[name]]
        header = ["data", "what is changed", "repeats", *(f"after {n} runs" for n in AFTER)]
        return [Table([*header, "after the last run, minus that of"], rows)]


def _cells(name: str, curves: dict[str, dict[int, Array]]) -> list[str]:
    """Return the cells of a row: test log loss after some runs, and the final difference from its comparison."""
    last = min(len(curve) for curve in curves[name].values())
    after = [str(interval([c[n - 1] for c in curves[name].values()])) if n <= last else "" for n in AFTER]
    against = VARIANTS[name][1] if name in VARIANTS else ""
    difference = paired_difference(_after(last, curves[name]), _after(last, curves.get(against, {})))
    compared = "" if difference is None else f"{difference} ({FROM_TABLE1.get(against, against)})"
    return [FROM_TABLE1.get(name, name), str(len(curves[name])), *after, compared]


def _after(runs: int, curves: dict[int, Array]) -> dict[int, float]:
    """Return the value after some runs, by repeat, for the repeats that have so many."""
    return {repeat: float(curve[runs - 1]) for repeat, curve in curves.items() if len(curve) >= runs}

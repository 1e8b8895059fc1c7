"""Which choices matter, ours and those the paper does not name: one at a time is changed from TuneLoss in Table 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuneloss.errors import InvalidInput
from tuneloss.paper.experiments import Setting, Unit
from tuneloss.paper.results import Record
from tuneloss.paper.table1 import EXPERIMENT as TABLE1
from tuneloss.paper.table1 import by_repeat, chosen
from tuneloss.report.info import interval

EXPERIMENT, RUNS, REPEATS = "ablation", 10, 10
BASE, RANDOM = "tuneloss", "random"  # in the records of Table 1
FROM_TABLE1 = {BASE: "TuneLoss of Table 1", RANDOM: "random search of Table 1"}
AFTER = (2, 3, 10)  # runs


def _learned(**options: object) -> Setting:
    return Setting(BASE, tuple(options.items()))


# What is changed, and the setting to compare it with, if not that of Table 1.
VARIANTS: dict[str, tuple[Setting, str]] = {
    "paper's objective": (_learned(objective="paper"), BASE),
    "calibrated objective": (_learned(objective="calibrated"), BASE),
    "paper's epsilon": (_learned(epsilon="paper"), BASE),
    "gradients only (epsilon infinite)": (_learned(epsilon=math.inf), BASE),
    "values only (epsilon 0)": (_learned(epsilon=0.0), BASE),
    "repeats itself: let it": (_learned(fallback="repeat"), BASE),
    "repeats itself: a random point": (_learned(fallback="random"), BASE),
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


def ablation_units(
    datasets: Sequence[str], repeats: int = REPEATS, runs: int = RUNS, variants: Sequence[str] = tuple(VARIANTS)
) -> list[Unit]:
    """What is to be run beside Table 1, repeat by repeat; and of Table 1 what is compared with."""
    unknown = [name for name in variants if name not in VARIANTS]
    if unknown:
        raise InvalidInput(f"A variant must be one of {', '.join(map(repr, VARIANTS))}; found {unknown[0]!r}.")
    return [
        Unit(experiment, dataset, name, repeat, runs, setting)
        for repeat in range(repeats)
        for dataset in datasets
        for experiment, name, setting in (
            (TABLE1, BASE, None),
            (TABLE1, RANDOM, None),
            *((EXPERIMENT, name, VARIANTS[name][0]) for name in dict.fromkeys(variants)),
        )
    ]


def ablation_rows(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Header, and a row for each data set and variant: test log loss after some runs, and the difference, repeat by
    repeat, from what it is compared with after the last of them."""
    rows = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        curves = {
            name: {i: chosen(own, "test_loss") for i, own in by_repeat(records, dataset, name).items()}
            for name in (BASE, RANDOM, *VARIANTS)
        }
        for name, own in curves.items():
            if not own:
                continue
            last = min(len(curve) for curve in own.values())
            shown = [str(interval([c[n - 1] for c in own.values()])) if n <= last else "" for n in AFTER]
            against = VARIANTS[name][1] if name in VARIANTS else ""
            other = curves.get(against, {})
            shared = [own[i][last - 1] - other[i][last - 1] for i in own if i in other and len(other[i]) >= last]
            difference = f"{interval(shared)} ({FROM_TABLE1.get(against, against)})" if shared else ""
            label = FROM_TABLE1.get(name, name)
            rows.append([dataset, label, str(len(own)), *shown, difference])
    header = ["data", "what is changed", "repeats", *(f"after {n} runs" for n in AFTER)]
    return [*header, "after the last, less that of"], rows

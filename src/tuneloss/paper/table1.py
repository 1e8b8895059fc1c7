"""Table 1: test error and test log loss of every tuner after 10 training runs, beside the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuneloss.paper.experiments import Unit
from tuneloss.paper.results import Record
from tuneloss.paper.tuners import LABELS, TUNERS
from tuneloss.report.info import Interval, interval
from tuneloss.types import Array

EXPERIMENT, RUNS = "table1", 10
SMALL, LARGE = ("tf_flowers", "nct_crc_he_3class"), ("oxford_iiit_pet", "caltech101")
REPEATS = dict.fromkeys(SMALL, 50) | dict.fromkeys(LARGE, 10)

# Test error in the paper's Table 1, by our name of the data set; nct_crc_he_3class stands for colorectal_histology.
PAPER = {
    "caltech101": {"tuneloss-paper": 0.1290, "random": 0.1601, "gp-ei-mcmc": 0.1800, "tunereg": 0.1418},
    "nct_crc_he_3class": {"tuneloss-paper": 0.0884, "random": 0.0960, "gp-ei-mcmc": 0.1007, "tunereg": 0.0932},
    "oxford_iiit_pet": {"tuneloss-paper": 0.0772, "random": 0.0866, "gp-ei-mcmc": 0.0911, "tunereg": 0.0838},
    "tf_flowers": {"tuneloss-paper": 0.0957, "random": 0.1063, "gp-ei-mcmc": 0.1140, "tunereg": 0.1003},
}


def table1_units(datasets: Sequence[str], repeats: int | None = None, runs: int = RUNS) -> list[Unit]:
    """What is to be run, repeat by repeat, so that a part of it compares all tuners."""
    most = {name: REPEATS.get(name, 10) if repeats is None else repeats for name in datasets}
    return [
        Unit(EXPERIMENT, dataset, tuner, repeat, runs)
        for repeat in range(max(most.values(), default=0))
        for dataset in datasets
        if repeat < most[dataset]
        for tuner in TUNERS
    ]


def chosen(records: Sequence[Record], measure: str, by: str = "validation_loss") -> Array:
    """`measure` of the model of least `by` so far, after each run (runs,); NaN while every run failed."""
    values, best, least = [], math.nan, math.inf
    for record in sorted(records, key=lambda r: int(r["run"])):
        if record[by] is not None and record[by] < least:
            least, best = record[by], record[measure]
        values.append(best)
    return np.array(values, dtype=float)


def by_repeat(records: Sequence[Record], dataset: str, tuner: str) -> dict[int, list[Record]]:
    """The records of a tuner on a data set, repeat by repeat."""
    found: dict[int, list[Record]] = {}
    for record in records:
        if record["dataset"] == dataset and record["tuner"] == tuner:
            found.setdefault(record["repeat"], []).append(record)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Row:
    """A tuner on a data set after all runs.

    test_loss, test_error: of the model of least validation log loss. by_error: test error of the model of least
    validation error, as in the paper. less_loss, less_error: test loss, and error chosen by error, less those of the
    first tuner, repeat by repeat; None for the first.
    """

    dataset: str
    tuner: str
    repeats: int
    test_loss: Interval
    test_error: Interval
    by_error: Interval
    less_loss: Interval | None
    less_error: Interval | None
    paper: float | None


def table1_info(records: Sequence[Record]) -> list[Row]:
    """A row for each data set and tuner, in the order of TUNERS."""
    rows = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        first: tuple[dict[int, float], dict[int, float]] | None = None
        for tuner in TUNERS:
            repeats = by_repeat(records, dataset, tuner)
            if not repeats:
                continue
            loss = {i: float(chosen(own, "test_loss")[-1]) for i, own in repeats.items()}
            error = [chosen(own, "test_error")[-1] for own in repeats.values()]
            by_error = {i: float(chosen(own, "test_error", "validation_error")[-1]) for i, own in repeats.items()}
            rows.append(
                Row(
                    dataset,
                    tuner,
                    len(loss),
                    interval(list(loss.values())),
                    interval(error),
                    interval(list(by_error.values())),
                    _less(loss, first[0]) if first else None,
                    _less(by_error, first[1]) if first else None,
                    PAPER.get(dataset, {}).get(tuner),
                )
            )
            first = first or (loss, by_error)
    return rows


def _less(own: dict[int, float], first: dict[int, float]) -> Interval | None:
    shared = [own[i] - first[i] for i in own if i in first]
    return interval(shared) if shared else None


HEADER = ("data", "tuner", "repeats", "test log loss", "less TuneLoss's", "test error")
ERROR_HEADER = ("data", "tuner", "repeats", "test error", "points less TuneLoss's", "paper")


def table1_cells(rows: Sequence[Row]) -> list[list[str]]:
    """The rows as text, under HEADER: models chosen by validation log loss."""
    return [
        [
            row.dataset,
            LABELS[row.tuner],
            str(row.repeats),
            str(row.test_loss),
            "" if row.less_loss is None else str(row.less_loss),
            row.test_error.shown("test_error"),
        ]
        for row in rows
    ]


def error_cells(rows: Sequence[Row]) -> list[list[str]]:
    """The rows as text, under ERROR_HEADER: models chosen by validation error, as in the paper, and its numbers."""
    return [
        [
            row.dataset,
            LABELS[row.tuner],
            str(row.repeats),
            f"{_per_cent(row.by_error)}%",
            "" if row.less_error is None else _per_cent(row.less_error),
            "" if row.paper is None else f"{100 * row.paper:.2f}%",
        ]
        for row in rows
    ]


def _per_cent(found: Interval) -> str:
    """In hundredths, with two digits as the paper has them."""
    return f"{100 * found.mean:.2f}" + ("" if math.isnan(found.half) else f" ± {100 * found.half:.2f}")

"""Table 1: test log loss and test error of every tuner after 10 training runs, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tuneloss.paper.datasets import LARGE
from tuneloss.paper.experiment import Experiment, Table
from tuneloss.paper.results import Record
from tuneloss.paper.statistics import Interval, by_repeat, interval, last_measure, paired_difference
from tuneloss.paper.tuner_runs import TunerRuns, each_repeat
from tuneloss.paper.tuners import LABELS, TUNERS, check_tuner

SLOW = "hypergradient"  # a tuner that needs several seconds per run on large sets: there it runs only if it is named
OURS = "tuneloss"  # the tuner with which the others are compared

# Test error in the paper's Table 1, by our name of the data set; nct_crc_he_3class replaces colorectal_histology.
PAPER = {
    "caltech101": {"tuneloss-paper": 0.1290, "random": 0.1601, "gp-ei-mcmc": 0.1800, "tunereg": 0.1418},
    "nct_crc_he_3class": {"tuneloss-paper": 0.0884, "random": 0.0960, "gp-ei-mcmc": 0.1007, "tunereg": 0.0932},
    "oxford_iiit_pet": {"tuneloss-paper": 0.0772, "random": 0.0866, "gp-ei-mcmc": 0.0911, "tunereg": 0.0838},
    "tf_flowers": {"tuneloss-paper": 0.0957, "random": 0.1063, "gp-ei-mcmc": 0.1140, "tunereg": 0.1003},
}


@dataclass(frozen=True)
class Table1(Experiment):
    """Every tuner on every data set.

    Parameters
    ----------
    datasets : sequence of str
        Names of data sets.
    repeats : int, optional
        Repeats per data set; by default 100 on the small sets, 20 on the large ones and 10 on any other.
    runs : int, default 10
        Training runs per tuner and repeat.
    tuners : sequence of str, optional
        Names of tuners. By default all; on the large sets, all but hypergradients.

    Raises
    ------
    InvalidInput
        If a tuner is unknown.
    """

    datasets: Sequence[str]
    repeats: int | None = None
    runs: int = 10
    tuners: Sequence[str] = ()
    NAME = "table1"
    QUICK: ClassVar = {"repeats": 2, "runs": 6}

    def __post_init__(self) -> None:
        for tuner in self.tuners:
            check_tuner(tuner)

    def units(self) -> list[TunerRuns]:
        """Return all units, repeat by repeat, so that an interrupted experiment compares all tuners."""
        return [
            TunerRuns(self.NAME, dataset, tuner, repeat, self.runs)
            for repeat, dataset in each_repeat(self.datasets, self.repeats)
            for tuner in dict.fromkeys(self.tuners or TUNERS)
            if self.tuners or tuner != SLOW or dataset not in LARGE
        ]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        """Return one table of models chosen by validation log loss, and one of models chosen by validation error."""
        rows = table1_rows(records)
        by_loss = [
            [
                row.dataset,
                LABELS[row.tuner],
                str(row.repeats),
                str(row.test_loss),
                "" if row.loss_difference is None else str(row.loss_difference),
                row.test_error.percent(),
            ]
            for row in rows
        ]
        by_error = [  # with two digits of per cent, as in the paper
            [
                row.dataset,
                LABELS[row.tuner],
                str(row.repeats),
                row.by_error.percent(2),
                "" if row.error_difference is None else row.error_difference.text(2, factor=100),
                "" if row.paper is None else f"{100 * row.paper:.2f}%",
            ]
            for row in rows
        ]
        first = ("data", "tuner", "repeats")
        return [
            Table(
                (*first, "test log loss", "minus TuneLoss", "test error"),
                by_loss,
                "Models chosen by validation log loss:",
            ),
            Table(
                (*first, "test error", "minus TuneLoss, points", "paper"),
                by_error,
                "Models chosen by validation error, as in the paper:",
            ),
        ]


@dataclass(frozen=True)
class Row:
    """The results of one tuner on one data set after all runs.

    Parameters
    ----------
    dataset, tuner : str
        Names of the data set and the tuner.
    repeats : int
        Number of repeats.
    test_loss, test_error : Interval
        Measures of the model of least validation log loss.
    by_error : Interval
        Test error of the model of least validation error, as in the paper.
    loss_difference, error_difference : Interval or None
        `test_loss` and `by_error` minus those of TuneLoss, by repeat; None for TuneLoss, and without its records.
    paper : float or None
        Test error in the paper.
    """

    dataset: str
    tuner: str
    repeats: int
    test_loss: Interval
    test_error: Interval
    by_error: Interval
    loss_difference: Interval | None
    error_difference: Interval | None
    paper: float | None


def table1_rows(records: Sequence[Record]) -> list[Row]:
    """Compute one row per data set and tuner, in the order of `TUNERS`."""
    rows = list[Row]()
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        repeats = {tuner: runs for tuner in TUNERS if (runs := by_repeat(records, dataset, tuner))}
        losses = {tuner: last_measure(runs, "test_loss") for tuner, runs in repeats.items()}
        errors = {tuner: last_measure(runs, "test_error") for tuner, runs in repeats.items()}
        by_error = {tuner: last_measure(runs, "test_error", "validation_error") for tuner, runs in repeats.items()}
        for tuner in repeats:
            is_compared = tuner != OURS and OURS in repeats
            rows.append(
                Row(
                    dataset,
                    tuner,
                    len(repeats[tuner]),
                    interval([*losses[tuner].values()]),
                    interval([*errors[tuner].values()]),
                    interval([*by_error[tuner].values()]),
                    paired_difference(losses[tuner], losses[OURS]) if is_compared else None,
                    paired_difference(by_error[tuner], by_error[OURS]) if is_compared else None,
                    PAPER.get(dataset, {}).get(tuner),
                )
            )
    return rows

"""Tune exact problems from far starts, and print how far each tuner is from the best error after some runs.

    python -m benchmarks.far_starts                   80 problems per family, on which nothing was chosen
    python -m benchmarks.far_starts --half choose     50 problems per family: decide changes of `LossTuner` here
    python -m benchmarks.far_starts --setting noise   5% of noise in the error that a tuner is told
    python -m benchmarks.far_starts --setting values  without gradients

One run is one training to convergence. All tuners of a problem share the first weights, which are anywhere in a box of
6 to 10 decades per weight. Records are appended to results/far_starts.jsonl, so a killed command continues. Raise
VERSION when the strategy of `LossTuner` changes, so that its records are kept apart.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is imported

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.far_starts.problems import FAMILIES
from tuneloss import Observation
from tuneloss.paper.experiment import run_units
from tuneloss.paper.statistics import interval
from tuneloss.paper.tuners import LABELS, READ_TERMS, make_tuner
from tuneloss.types import Array

ROOT = Path(__file__).resolve().parents[2]
SEEDS = {"choose": range(50), "report": range(1000, 1080)}
VERSION = "2026-11-19"  # of the strategy of LossTuner
SETTINGS = ("exact", "noise", "values")  # what a tuner is told: everything; the error with noise; no gradients
NOISE = 0.05  # standard deviation of the noise, as a fraction of the error
TUNERS = ("tuneloss", "tuneloss-paper", "random", "gp-3")
RUNS = 30
AFTER = (2, 3, 4, 6, 8, 10, 15, 20, 30)  # numbers of runs in the table
BEST = "least error"  # takes the place of a tuner in the record of the least error that is known


@dataclass(frozen=True)
class OneSearch:
    """A unit of work of `run_units`: all runs of one tuner on one problem, or the search for the least error."""

    key: dict[str, Any]
    n_records: int = 1

    def run(self) -> list[dict[str, Any]]:
        """Return one record, with the error of every run, and in noise with the error that the tuner was told."""
        warnings.simplefilter("ignore")
        problem = FAMILIES[self.key["family"]](self.key["seed"])
        if self.key["tuner"] == BEST:
            return [{**self.key, "errors": [problem.least_error()]}]
        tuner = make_tuner(self.key["tuner"], problem.box, self.key["seed"], problem.start)
        rng, setting = np.random.default_rng(self.key["seed"]), self.key["setting"]
        errors, told = list[float](), list[float]()
        for _ in range(RUNS):
            weights = tuner.ask()
            seen = problem.observe(weights)
            errors.append(float(f"{seen.error:.10g}"))
            error = seen.error * (1 + NOISE * rng.standard_normal()) if setting == "noise" else seen.error
            told.append(float(f"{error:.10g}"))
            tuner.tell(weights, Observation(error, seen.features, None if setting == "values" else seen.gram))
        return [{**self.key, "errors": errors, **({"told": told} if setting == "noise" else {})}]


def units(family: str, seeds: Sequence[int], tuners: Sequence[str], setting: str) -> list[OneSearch]:
    """Return the searches of one family. Tuners that use the error alone are the same without gradients."""
    versions = {"tuneloss": VERSION}
    settings = {tuner: "exact" if setting == "values" and tuner not in READ_TERMS else setting for tuner in tuners}
    return [
        OneSearch({"family": family, "seed": seed, "tuner": tuner, "version": versions.get(tuner, ""), "setting": told})
        for seed in seeds
        for tuner, told in {BEST: "exact", **settings}.items()
    ]


def excess(records: Sequence[dict[str, Any]]) -> dict[str, Array]:
    """Return by how many per cent the error of the best run so far exceeds the least one that is known.

    The best run is the one of which the tuner was told the least error. There is one row per problem, with one number
    for each number of runs.
    """
    least = {
        seed: min(min(record["errors"]) for record in records if record["seed"] == seed)
        for seed in dict.fromkeys(record["seed"] for record in records)
    }
    tuners = dict.fromkeys(record["tuner"] for record in records if record["tuner"] != BEST)
    return {
        tuner: np.array(
            [100 * (_chosen(record) / least[record["seed"]] - 1) for record in records if record["tuner"] == tuner]
        )
        for tuner in tuners
    }


def _chosen(record: dict[str, Any]) -> Array:
    """Return the error of the best run so far, for each number of runs."""
    told = np.array(record.get("told", record["errors"]))
    is_best = np.append(True, told[1:] < np.minimum.accumulate(told)[:-1])
    return np.array(record["errors"])[np.maximum.accumulate(np.where(is_best, np.arange(len(told)), 0))]


def table(family: str, records: Sequence[dict[str, Any]]) -> str:
    """Return a table in Markdown: mean with its interval, and median, after some numbers of runs."""
    by_tuner = excess(records)
    lines = [f"| {family} | {' | '.join(f'after {n}' for n in AFTER)} |", "|" + "---|" * (len(AFTER) + 1)]
    for tuner, values in by_tuner.items():
        columns = [values[:, n - 1] for n in AFTER]
        means = [interval(column).text(1) for column in columns]
        lines.append(f"| {LABELS[tuner]}, mean | {' | '.join(means)} |")
        lines.append(f"| {LABELS[tuner]}, median | {' | '.join(f'{np.median(column):.2f}' for column in columns)} |")
    return "\n".join([*lines, ""])


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, and return the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=SEEDS, default="report")
    parser.add_argument("--setting", choices=SETTINGS, default="exact")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--tuners", nargs="+", default=TUNERS)
    parser.add_argument("--seeds", type=int, nargs="+", help="other seeds than those of the half")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "far_starts.jsonl")
    options = parser.parse_args(argv)
    seeds = options.seeds or list(SEEDS[options.half])
    tables = []
    for family in options.families:
        records = run_units(units(family, seeds, options.tuners, options.setting), options.records, jobs=options.jobs)
        tables.append(table(family, records))
    return "\n".join(tables)


if __name__ == "__main__":
    sys.stdout.write(main())

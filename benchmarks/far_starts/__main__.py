"""Tune exact problems from far starts, and print how far each tuner is from the best error after some runs.

    python -m benchmarks.far_starts                   80 problems per family, on which nothing was chosen
    python -m benchmarks.far_starts --half choose     50 problems per family: decide changes of `LossTuner` here

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
from tuneloss.paper.experiment import run_units
from tuneloss.paper.statistics import interval
from tuneloss.paper.tuners import LABELS, make_tuner
from tuneloss.types import Array

ROOT = Path(__file__).resolve().parents[2]
SEEDS = {"choose": range(50), "report": range(1000, 1080)}
VERSION = "2026-11"  # of the strategy of LossTuner
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
        """Return one record, with the error of every run."""
        warnings.simplefilter("ignore")
        problem = FAMILIES[self.key["family"]](self.key["seed"])
        if self.key["tuner"] == BEST:
            return [{**self.key, "errors": [problem.least_error()]}]
        tuner = make_tuner(self.key["tuner"], problem.box, self.key["seed"], problem.start)
        errors = []
        for _ in range(RUNS):
            weights = tuner.ask()
            observation = problem.observe(weights)
            tuner.tell(weights, observation)
            errors.append(float(f"{observation.error:.10g}"))
        return [{**self.key, "errors": errors}]


def units(family: str, seeds: Sequence[int], tuners: Sequence[str]) -> list[OneSearch]:
    """Return the searches of one family."""
    versions = {"tuneloss": VERSION}
    return [
        OneSearch({"family": family, "seed": seed, "tuner": tuner, "version": versions.get(tuner, "")})
        for seed in seeds
        for tuner in (BEST, *tuners)
    ]


def excess(records: Sequence[dict[str, Any]]) -> dict[str, Array]:
    """Return by how many per cent the best error so far exceeds the least one that is known: (problems, runs)."""
    least = {
        seed: min(min(record["errors"]) for record in records if record["seed"] == seed)
        for seed in dict.fromkeys(record["seed"] for record in records)
    }
    tuners = dict.fromkeys(record["tuner"] for record in records if record["tuner"] != BEST)
    return {
        tuner: np.array(
            [
                100 * (np.minimum.accumulate(record["errors"]) / least[record["seed"]] - 1)
                for record in records
                if record["tuner"] == tuner
            ]
        )
        for tuner in tuners
    }


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
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--tuners", nargs="+", default=TUNERS)
    parser.add_argument("--seeds", type=int, nargs="+", help="other seeds than those of the half")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "far_starts.jsonl")
    options = parser.parse_args(argv)
    seeds = options.seeds or list(SEEDS[options.half])
    tables = []
    for family in options.families:
        records = run_units(units(family, seeds, options.tuners), options.records, jobs=options.jobs)
        tables.append(table(family, records))
    return "\n".join(tables)


if __name__ == "__main__":
    sys.stdout.write(main())

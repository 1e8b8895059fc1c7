"""Run the arena: ``python -m benchmarks.arena``.

Records are appended to results/arena.jsonl, one line per training run, so that a killed command continues. The choosing
half may be run as often as you like. The reporting half is run once per change of the defaults: raise `DEFAULTS` in
methods.py, so that its records are kept apart.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arena import score
from benchmarks.arena.methods import ALIGNMENT_RATES, CHOICES, DEFAULTS, POLICIES, RATE, RATES
from benchmarks.arena.problem import Problem
from benchmarks.arena.problems import PROBLEMS
from benchmarks.arena.run import run
from tuneloss.paper.experiment import run_units

ROOT = Path(__file__).resolve().parents[2]
SEEDS = {"choose": range(100, 104), "report": range(5)}
RANDOM_RUNS = 20
SHOWN = ("tasks, digits", "sources, digits", "augmentations, digits", "imbalance, histology", "MLP, histology")


@dataclass(frozen=True)
class OneRun:
    """A unit of work of `run_units`: one training run."""

    key: dict[str, Any]
    n_records: int = 1

    def run(self) -> list[dict[str, Any]]:
        """Train, and return the record."""
        problem = next(p for p in PROBLEMS if p.name == self.key["problem"])
        return [{**self.key, **run(problem, self.key["seed"], self.key["method"])}]


def methods_of(problem: Problem, random_runs: int) -> list[str]:
    """Return the methods to run: what is chosen from on the choosing half, all that apply on the reporting half."""
    choosing = problem.half == "choose"
    hypergradients = [f"hypergradient {rate}" for rate in (RATES if choosing else [RATE])]
    if problem.kind == "hinges":  # hinges have no place before OnlineTuner's first step
        hypergradients = []
    if problem.kind in ALIGNMENT_RATES:
        hypergradients += [f"alignment {rate}" for rate in (RATES if choosing else [ALIGNMENT_RATES[problem.kind]])]
    if choosing:
        choices = [name for name in CHOICES if name != "curvature metric" or problem.kind != "pinn"]  # refused there
        return ["plain", *hypergradients, *choices]
    instance = problem.draw(0)
    names = ["plain", *instance.named, *instance.rivals, *hypergradients]
    return [*names, *(f"random {i}" for i in range(random_runs)), *POLICIES]


def keys(problems: Sequence[Problem], seeds: Sequence[int], methods: Callable[[Problem], list[str]]) -> list[OneRun]:
    """Return the runs to make; those of OnlineTuner are marked by the version of its defaults."""
    units = []
    for problem in problems:
        for seed in seeds:
            for method in methods(problem):
                version = DEFAULTS if method in CHOICES else ""
                units.append(OneRun({"problem": problem.name, "seed": seed, "method": method, "defaults": version}))
    return units


def main(argv: Sequence[str] | None = None) -> str:
    """Run what is missing, draw the picture, and return the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--only", default="", help="only problems whose name contains this text")
    parser.add_argument("--methods", nargs="+", help="only these methods (default: all that apply)")
    parser.add_argument("--seeds", type=int, nargs="+", help="other seeds than those of the half")
    parser.add_argument("--random", type=int, default=RANDOM_RUNS, help="number of random runs")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "arena.jsonl")
    parser.add_argument("--image", type=Path, help="where to draw the picture")
    options = parser.parse_args(argv)
    problems = [p for p in PROBLEMS if p.half == options.half and options.only in p.name]
    if not os.environ.get("TUNELOSS_DATA"):
        left_out = [p.name for p in problems if p.needs_features]
        problems = [p for p in problems if not p.needs_features]
        sys.stderr.write(f"TUNELOSS_DATA is not set: without {', '.join(left_out)}.\n")
    seeds = options.seeds or SEEDS[options.half]
    units = keys(problems, list(seeds), lambda p: options.methods or methods_of(p, options.random))

    def on_unit(done: int, unit: OneRun | None) -> None:
        if unit is None or done % 20 == 0 or done == len(units):
            sys.stderr.write(f"{done}/{len(units)}\n")

    records = run_units(units, options.records, jobs=options.jobs, on_unit=on_unit)
    names = [p.name for p in problems]
    if options.image:
        score.draw(records, names, "online", options.image)
    shown = sorted({r["method"] for r in records if not r["method"].startswith("random ")} | {score.RANDOM})
    parts = [score.details(records, names), score.summary(records, names, shown)]
    first = score.table(records, names, "online")
    if options.half == "choose":
        first = score.choices(records, names, [name for name in SHOWN if name in names])
    parts.insert(0, first)
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(main())

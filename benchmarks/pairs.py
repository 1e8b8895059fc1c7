"""The difference between two tuners of the paper's experiments, by repeat, from the records.

    python benchmarks/pairs.py table1 tuneloss:2 random:10
    python benchmarks/pairs.py figure2 tuneloss:3 random:100 --error --repeats 40
    python benchmarks/pairs.py figure3 tuneloss tuneloss-paper

The first tuner minus the second. NAME:RUNS is a tuner after that many runs; without a number, after its last run. The
measure is test log loss of the model of least validation log loss, or with --error test error of the model of least
validation error. Printed are mean and 95% t-interval over the repeats that both have, of the first --repeats ones, and
each difference if there are at most five.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tuneloss.paper.results import read_records
from tuneloss.paper.statistics import by_repeat, measure_so_far, paired_difference

RESULTS = Path(__file__).resolve().parents[1] / "results"


def after(records: list[dict], dataset: str, tuner: str, measure: str, by: str) -> dict[int, float]:
    """Return the measure by repeat, of the repeats that have this number of runs."""
    name, _, runs = tuner.partition(":")
    repeats = by_repeat(records, dataset, name)
    curves = {repeat: measure_so_far(runs, measure, by) for repeat, runs in repeats.items()}
    n = int(runs) if runs else 0
    return {repeat: float(curve[n - 1]) for repeat, curve in curves.items() if len(curve) >= n}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="table1, figure2, figure3 or ablation")
    parser.add_argument("one")
    parser.add_argument("other")
    parser.add_argument("--error", action="store_true", help="test error instead of test log loss")
    parser.add_argument("--repeats", type=int, help="only the first repeats (default: all)")
    options = parser.parse_args()
    measure, by = ("test_error", "validation_error") if options.error else ("test_loss", "validation_loss")
    records = read_records(RESULTS / f"{options.experiment}.jsonl")
    records = [r for r in records if options.repeats is None or r["repeat"] < options.repeats]
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        one, other = (after(records, dataset, tuner, measure, by) for tuner in (options.one, options.other))
        differences = [one[i] - other[i] for i in sorted(one) if i in other]
        if differences:
            few = len(differences) <= 5
            each = ", ".join(f"{d:.4f}" for d in differences) if few else f"{len(differences)} repeats"
            print(f"{dataset}: {paired_difference(one, other)} ({each})")

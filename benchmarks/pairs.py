"""Two tuners of the paper's experiments, repeat by repeat: what one has less what the other has, from the records.

    python benchmarks/pairs.py table1 tuneloss:2 random:10
    python benchmarks/pairs.py figure2 tuneloss:3 random:100 --error
    python benchmarks/pairs.py figure3 tuneloss tuneloss-paper

NAME:RUNS is a tuner after so many runs; without a number, after its last. Test log loss of the model of least
validation log loss, or (--error) test error of the model of least validation error. Mean and 95% t-interval over the
repeats that both have, and each of them where they are few.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tuneloss.paper.results import read_records
from tuneloss.paper.table1 import by_repeat, chosen
from tuneloss.report.info import interval

RESULTS = Path(__file__).resolve().parents[1] / "results"


def after(records: list[dict], dataset: str, given: str, measure: str, by: str) -> dict[int, float]:
    """The measure by repeat, of the repeats with so many runs."""
    name, _, runs = given.partition(":")
    curves = {i: chosen(own, measure, by) for i, own in by_repeat(records, dataset, name).items()}
    at = int(runs) if runs else 0
    return {i: float(curve[at - 1]) for i, curve in curves.items() if len(curve) >= at}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="table1, figure2, figure3 or ablation")
    parser.add_argument("one")
    parser.add_argument("other")
    parser.add_argument("--error", action="store_true", help="test error instead of test log loss")
    options = parser.parse_args()
    measure, by = ("test_error", "validation_error") if options.error else ("test_loss", "validation_loss")
    records = read_records(RESULTS / f"{options.experiment}.jsonl")
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        one, other = (after(records, dataset, given, measure, by) for given in (options.one, options.other))
        less = [one[i] - other[i] for i in sorted(one) if i in other]
        if less:
            each = ", ".join(f"{d:.4f}" for d in less) if len(less) <= 5 else f"{len(less)} repeats"
            print(f"{dataset}: {interval(less)} ({each})")

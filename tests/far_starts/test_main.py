"""The command of benchmarks/far_starts: records are kept, and its percentages are what they say."""

import numpy as np
import pytest

from benchmarks.far_starts.__main__ import BEST, excess, main


def test_the_excess_is_relative_to_the_least_error_of_any_tuner():
    """On problem 0 a tuner finds the least error, on problem 1 the search for it does."""
    errors = {("a", 0): [4.0, 2.0, 3.0], ("b", 0): [4.0, 5.0, 1.0], (BEST, 0): [1.5]}
    errors |= {("a", 1): [8.0, 8.0, 6.0], ("b", 1): [8.0, 10.0, 8.0], (BEST, 1): [4.0]}
    records = [{"tuner": tuner, "seed": seed, "errors": row} for (tuner, seed), row in errors.items()]
    by_tuner = excess(records)
    np.testing.assert_allclose(by_tuner["a"], [[300, 100, 100], [100, 100, 50]])
    np.testing.assert_allclose(by_tuner["b"], [[300, 300, 0], [100, 100, 100]])


def test_from_far_starts_the_tuner_is_near_the_best_after_ten_runs(tmp_path):
    """On six problems of the choosing half: within 5% in the mean after 10 runs, and ahead of random search."""
    records = tmp_path / "records.jsonl"
    options = ["--families", "ridge", "--tuners", "tuneloss", "random", "--seeds", *map(str, range(6))]
    printed = main([*options, "--records", str(records), "--jobs", "1"])
    assert printed == main([*options, "--records", str(records), "--jobs", "1"])  # from the records
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in printed.splitlines() if "mean" in line}
    after_ten = {name: float(cells[5].split("±")[0]) for name, cells in rows.items()}
    assert after_ten["TuneLoss (ours), mean"] < min(5.0, after_ten["random search, mean"])


def test_other_families_and_halves_are_refused():
    with pytest.raises(SystemExit):
        main(["--families", "lasso"])

"""The command of benchmarks/far_starts: records are kept, and its percentages are what they say."""

import json

import numpy as np
import pytest

from benchmarks.far_starts.__main__ import BEST, SETTINGS, excess, main


def test_the_excess_is_relative_to_the_least_error_of_any_tuner():
    """On problem 0 a tuner finds the least error, on problem 1 the search for it does."""
    errors = {("a", 0): [4.0, 2.0, 3.0], ("b", 0): [4.0, 5.0, 1.0], (BEST, 0): [1.5]}
    errors |= {("a", 1): [8.0, 8.0, 6.0], ("b", 1): [8.0, 10.0, 8.0], (BEST, 1): [4.0]}
    records = [{"tuner": tuner, "seed": seed, "errors": row} for (tuner, seed), row in errors.items()]
    by_tuner = excess(records)
    np.testing.assert_allclose(by_tuner["a"], [[300, 100, 100], [100, 100, 50]])
    np.testing.assert_allclose(by_tuner["b"], [[300, 300, 0], [100, 100, 100]])


def test_in_noise_the_run_counts_of_which_the_least_error_was_told():
    """Its own error is what is compared; a later run that is as good does not take its place."""
    record = {"tuner": "a", "seed": 0, "errors": [4.0, 2.0, 3.0, 1.0], "told": [4.0, 5.0, 3.5, 3.5]}
    assert excess([record])["a"].tolist() == [[300.0, 300.0, 200.0, 200.0]]


def test_settings_differ_in_what_a_tuner_is_told(tmp_path):
    """Random search, which uses errors alone, is the same without gradients; so is the first run of all."""
    options = ["--families", "ridge", "--tuners", "tuneloss", "random", "--seeds", "3", "--jobs", "1"]
    path = tmp_path / "records.jsonl"
    for setting in SETTINGS:
        main([*options, "--records", str(path), "--setting", setting])
    records = {(r["tuner"], r["setting"]): r for r in map(json.loads, path.read_text().splitlines())}
    assert set(records) == {
        (BEST, "exact"), ("random", "exact"), ("random", "noise"), *(("tuneloss", setting) for setting in SETTINGS)
    }  # fmt: skip
    assert len({records[key]["errors"][0] for key in records if key[0] != BEST}) == 1
    assert records["random", "noise"]["errors"] == records["random", "exact"]["errors"]
    told, errors = (np.array(records["tuneloss", "noise"][name]) for name in ("told", "errors"))
    assert 0.02 < np.std(told / errors - 1) < 0.1
    assert len({tuple(records["tuneloss", setting]["errors"]) for setting in SETTINGS}) == 3


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

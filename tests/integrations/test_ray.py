"""A Ray search learns weights: on a real cluster, with a failed trial, two nodes, and a driver that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.ray_cluster import local_cluster  # before Ray is imported

pytest.importorskip("ray.tune")
pytest.importorskip("optuna")

import optuna
from ray import tune
from ray.tune.search.optuna import OptunaSearch

from tests.integrations.ray_problem import AT_ONCE, BOX, N_TRIALS, new_tuner, train, trial
from tuneloss import Box, LossTuner
from tuneloss.errors import InvalidInput, JournalError
from tuneloss.integrations.ray import TuneLossSearch, reported
from tuneloss.tuning.journal import read_lines

ROOT = Path(__file__).parents[2]
optuna.logging.set_verbosity(optuna.logging.WARNING)
SPACE = {"model": {"rate": tune.loguniform(1e-4, 1.0), "kind": tune.choice(["a", "b"])}}


@pytest.fixture(scope="module")
def cluster():
    with local_cluster() as nodes:
        yield nodes


def records(path):
    return read_lines(path)[1]


def test_a_cluster_of_two_nodes_runs_four_trials_at_once_and_one_of_them_fails(cluster, tmp_path):
    results = new_tuner(tmp_path, meeting=str(tmp_path / "meeting")).fit()
    assert len(results) == N_TRIALS
    assert results.num_errors == 1
    metrics = [result.metrics for result in results if not result.error]
    assert len({each["node"] for each in metrics}) == 2
    at_once = [sum(other["began"] <= each["began"] < other["ended"] for other in metrics) for each in metrics]
    assert AT_ONCE - 1 <= max(at_once) <= AT_ONCE  # one of those that met has failed, and reported nothing
    assert len({result.config["model"]["rate"] for result in results}) == N_TRIALS
    best = results.get_best_result("error", "min")
    assert best.metrics["error"] == train(best.config["weights"]).error < metrics[0]["error"]
    runs = LossTuner(BOX, journal=tmp_path / "runs.jsonl").history
    assert len({tuple(run.weights.items()) for run in runs}) == N_TRIALS
    assert [run.failed.split()[-5:] for run in runs if run.failed] == [["as", "FAIL,", "without", "an", "observation"]]


def test_nothing_told_is_lost_if_the_driver_is_killed(cluster, tmp_path):
    """Ray's snapshot, made at the start alone, knows none of the trials; the search that is restored knows all."""
    journal, folder = tmp_path / "runs.jsonl", tmp_path / "search"
    program = [sys.executable, "-m", "tests.integrations.ray_problem", cluster.address, str(tmp_path)]
    snapshots_at = {"TUNE_GLOBAL_CHECKPOINT_S": "1000"}
    with subprocess.Popen(program, cwd=ROOT, env=os.environ | snapshots_at, stderr=subprocess.DEVNULL) as driver:
        deadline = time.monotonic() + 120
        while not journal.exists() or len(records(journal)) < 3:
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
    told = [record["trial"]["id"] for record in records(journal)]
    assert len(told) >= 3
    assert not set(told) & completed(folder)
    results = tune.Tuner.restore(str(folder), trial).fit()
    assert len(results) == N_TRIALS
    assert results.num_errors == 0
    assert set(told) < completed(folder)
    ids = [record["trial"]["id"] for record in records(journal)]
    assert ids[: len(told)] == told
    assert len(set(ids)) == len(ids) >= N_TRIALS


def completed(folder):
    """The trials that the newest snapshot of Ray's own searcher knows to be complete."""
    plain = OptunaSearch()
    plain.restore_from_dir(str(folder))
    return plain._completed_trials


def drive(search, numbers, failing=()):
    """Give a search trials to tell, without a cluster; return their weights."""
    weights = []
    for number in numbers:
        config = search.suggest(f"trial-{number}")
        weights.append(list(config["weights"].values()))
        if number in failing:
            search.on_trial_complete(f"trial-{number}", error=True)
        else:
            search.on_trial_complete(f"trial-{number}", reported(train(config["weights"])))
    return weights


def new_search(**options):
    search = TuneLossSearch(BOX, seed=3, **options)
    search.set_search_properties(None, None, SPACE)
    return search


def test_it_asks_what_the_tuner_asks(tmp_path):
    """With a journal also if a new search goes on with it."""
    tuner = LossTuner(BOX, seed=3)
    tuner.run(train, 28, progress=False)  # so many that some ways rest
    expected = [list(run.weights.values()) for run in tuner.history]
    np.testing.assert_allclose(drive(new_search(), range(28)), expected, rtol=1e-9)
    np.testing.assert_allclose(drive(TuneLossSearch(BOX, seed=3), range(6)), expected[:6], rtol=1e-9)
    path = tmp_path / "runs.jsonl"
    parts = [drive(new_search(journal=path), numbers) for numbers in (range(20), range(20, 28))]
    np.testing.assert_allclose(np.vstack(parts), expected, rtol=1e-9)
    assert [record["way"] for record in records(path)] == [run.way for run in tuner.history]


def test_a_new_search_continues_a_journal(tmp_path):
    """Failures included, it suggests what the search would have suggested that wrote the journal."""
    whole = drive(new_search(), range(8), failing=(2,))
    path = tmp_path / "runs.jsonl"
    parts = [drive(new_search(journal=path), numbers, failing=(2,)) for numbers in (range(5), range(5, 8))]
    np.testing.assert_allclose(np.vstack(parts), whole, rtol=1e-9)


def test_a_report_shows_the_journal_of_a_search(tmp_path):
    pytest.importorskip("typer")
    drive(new_search(journal=tmp_path / "runs.jsonl"), range(4), failing=(2,))
    program = [
        sys.executable,
        "-m",
        "tuneloss",
        "report",
        str(tmp_path / "runs.jsonl"),
        "--out",
        str(tmp_path / "page"),
    ]
    subprocess.run(program, check=True, capture_output=True, cwd=tmp_path)
    pages = [path for path in tmp_path.rglob("*") if path.is_file() and b"pull/up" in path.read_bytes()]
    assert len(pages) == 2  # the journal and the page


def test_a_snapshot_that_is_older_than_the_journal_is_brought_up_to_date(tmp_path):
    """One trial was asked before the snapshot and told after it, one was asked and told after it."""
    search = new_search(journal=tmp_path / "runs.jsonl")
    drive(search, range(2))
    config = search.suggest("trial-2")
    search.save(str(tmp_path / "snapshot"))
    search.on_trial_complete("trial-2", reported(train(config["weights"])))
    drive(search, [3])
    fresh, restored = new_search(journal=tmp_path / "runs.jsonl"), new_search()
    restored.restore(str(tmp_path / "snapshot"))
    assert restored.suggest("trial-4")["weights"] == pytest.approx(fresh.suggest("trial-4")["weights"], rel=1e-9)
    before = len(records(tmp_path / "runs.jsonl"))
    restored.on_trial_complete("trial-2", reported(train(config["weights"])))  # Ray repeats it
    assert len(records(tmp_path / "runs.jsonl")) == before


def test_a_trial_that_ended_without_a_last_result_is_restored(tmp_path):
    """Optuna calls it pruned, and gives it the value of the result before, which cannot be told again."""
    search = new_search(journal=tmp_path / "runs.jsonl")
    search.suggest("trial-0")
    search.save(str(tmp_path / "snapshot"))
    search.on_trial_result("trial-0", {"error": 1.0, "training_iteration": 1})
    search.on_trial_complete("trial-0")
    restored = new_search()
    restored.restore(str(tmp_path / "snapshot"))
    states = [search._ot_study.trials[0].state.name for search in (search, restored, new_search(journal=search._path))]
    assert states == ["PRUNED"] * 3


def test_a_trial_whose_metric_is_nan_has_failed(tmp_path):
    search = new_search(metric="other", journal=tmp_path / "runs.jsonl")
    config = search.suggest("trial-0")
    search.on_trial_complete("trial-0", reported(train(config["weights"]), other=float("nan")))
    assert search._ot_study.trials[0].state.name == "FAIL"
    assert LossTuner(BOX, journal=tmp_path / "runs.jsonl").n_runs == 1


def test_a_trial_without_an_observation_is_said_once():
    search = new_search()
    search.suggest("trial-0")
    with pytest.warns(RuntimeWarning, match=r"trial 0 has none, .* tune.report\(reported\(observation\)\)"):
        search.on_trial_complete("trial-0", {"error": 1.0})
    search.suggest("trial-1")
    search.on_trial_complete("trial-1", {"error": 1.0})  # a second warning would be an error


def test_an_observation_that_is_no_json_is_left_out():
    search = new_search()
    search.suggest("trial-0")
    search.on_trial_complete("trial-0", {"error": 1.0, "tuneloss": "{"})
    with pytest.warns(RuntimeWarning, match="Trial 0 is left out, since An observation's record must have"):
        search.suggest("trial-1")


def test_a_weight_without_an_upper_bound_is_suggested():
    search = TuneLossSearch(Box.from_dict({"l2": (0.01, None), "pull/up": (0.0, 2.0), "logloss": 1.0}), seed=3)
    weights = np.array(drive(search, range(6)))
    assert np.isfinite(weights).all()
    assert len({tuple(row) for row in weights}) == 6


@pytest.mark.parametrize("name", ["weights", "l2"])
def test_parameters_must_not_be_named_as_weights(name):
    with pytest.raises(InvalidInput, match=rf"`param_space` must not name 'weights' .* found \['{name}'\]. Leave"):
        TuneLossSearch(BOX).set_search_properties(None, None, {name: tune.uniform(0, 1)})


def test_a_journal_of_another_search_is_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    drive(new_search(journal=path), range(1))
    with pytest.raises(JournalError, match="must be of a Ray search with the same box and `param_space`; found"):
        TuneLossSearch(BOX, journal=path).suggest("trial-0")
    LossTuner(BOX, journal=path).tell({"l2": 1.0, "pull/up": 1.0, "logloss": 1.0}, failed="not a trial")
    with pytest.raises(JournalError, match=r"must be a trial of this Ray search; record 1 is not \(KeyError: 'trial'"):
        new_search(journal=path)


def test_choices_of_a_search_with_a_journal_must_be_json(tmp_path):
    search = TuneLossSearch(BOX, journal=tmp_path / "runs.jsonl")
    with (
        pytest.warns(UserWarning, match="Choices for a categorical distribution should be"),
        pytest.raises(
            InvalidInput, match="choices in `param_space` must be text, numbers, truth values or None; found"
        ),
    ):
        search.set_search_properties(None, None, {"kind": tune.choice([object(), object()])})


def test_a_report_is_one_string_and_numbers():
    result = reported(train({"l2": 1.0, "pull/up": 1.0, "logloss": 1.0}), epoch=3)
    assert sorted(result) == ["epoch", "error", "tuneloss"]
    assert json.loads(result["tuneloss"])["error"] == result["error"]

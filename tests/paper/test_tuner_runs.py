"""Runs of tuners: fair repeats, and a record per run."""

import json
import math

import numpy as np
import pytest
from sklearn.metrics import log_loss

from tests.paper.records import FIELDS, without_time
from tuneloss.paper import tuner_runs
from tuneloss.paper.datasets import digits
from tuneloss.paper.table1 import table1_rows
from tuneloss.paper.terms import appendix_box
from tuneloss.paper.tuner_runs import Setting, TunerRuns, evaluate
from tuneloss.paper.tuners import TUNERS


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(tuner_runs, "EPOCHS_ON_DIGITS", 3)


def test_a_unit_has_one_whole_record_per_run():
    records = list(TunerRuns("table1", "digits", "tuneloss", 0, 3).run())
    assert [record["run"] for record in records] == [0, 1, 2]
    for record in records:
        assert set(record) == FIELDS
        assert json.loads(json.dumps(record, allow_nan=False)) == record
        assert appendix_box().as_array(record["weights"]) is not None
        assert 0 < record["validation_loss"] < 10
        assert 0 <= record["test_error"] <= 1


def test_a_tuner_that_follows_hypergradients_is_told_them():
    """Its second weights are a step down: validation log loss falls, from a first run that is regularized too much."""
    setting = Setting("hypergradient", epochs=30, first="middle")
    first, second = TunerRuns("table1", "digits", "hypergradient", 0, 2, setting).run()
    assert second["weights"] != first["weights"]
    assert second["validation_loss"] < first["validation_loss"]


def test_tuners_share_split_first_weights_and_noise_of_a_repeat_and_repeats_differ():
    """So the first run is the same for all tuners."""
    first = [without_time(TunerRuns("table1", "digits", name, 0, 1).run()) for name in TUNERS]
    assert all({**records[0], "tuner": ""} == {**first[0][0], "tuner": ""} for records in first)
    assert next(TunerRuns("table1", "digits", "random", 1, 1).run())["test_loss"] != first[0][0]["test_loss"]


def test_each_repeat_has_its_own_split_and_each_run_its_own_noise(monkeypatch):
    """Both are the same for all tuners."""
    seen = []

    def noted(split, weights, rng, **options):
        seen.append((split.train_x.tobytes(), rng.random()))
        return train(split, weights, rng, **options)

    train = tuner_runs.train
    monkeypatch.setattr(tuner_runs, "train", noted)
    for tuner, repeat in (("random", 0), ("tuneloss", 0), ("random", 1)):
        list(TunerRuns("table1", "digits", tuner, repeat, 3).run())
    first, same, other = seen[:3], seen[3:6], seen[6:]
    assert first == same
    assert len({split for split, _ in first}) == 1
    assert first[0][0] != other[0][0]
    assert len({noise for _, noise in first + other}) == 6


def test_a_diverged_run_is_a_record_without_numbers(monkeypatch):
    def fails(*args, **options):
        raise tuner_runs.RunFailed("Training diverged in epoch 1")

    monkeypatch.setattr(tuner_runs, "train", fails)
    records = list(TunerRuns("table1", "digits", "tuneloss", 0, 2).run())
    assert [record["validation_loss"] for record in records] == [None, None]
    assert all("diverged" in record["failed"] for record in records)
    assert math.isnan(table1_rows([{**records[0], "tuner": "random"}])[0].test_loss.mean)


def test_losses_are_means_and_error_is_a_rate():
    """Against scikit-learn's log_loss, and a model that always says class 0."""
    split = digits(0)
    params = np.zeros(split.params_shape)
    params[-1, 0] = 1.0
    found = evaluate(params, split)
    p = np.tile(np.exp(params[-1]) / np.exp(params[-1]).sum(), (len(split.test_y), 1))
    assert found["test_loss"] == pytest.approx(log_loss(split.test_y, p, labels=range(10)), abs=1e-6)
    assert found["test_error"] == pytest.approx((split.test_y != 0).mean(), abs=1e-6)

"""The sampler asks what `LossTuner` asks, shares a study, and survives bad trials."""

import json
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import numpy as np
import pytest

optuna = pytest.importorskip("optuna")

from tuneloss import Box, LossTuner, Observation  # noqa: E402
from tuneloss.errors import InvalidInput  # noqa: E402
from tuneloss.integrations import optuna_turns  # noqa: E402
from tuneloss.integrations.optuna import KEY, Outcome, TuneLossSampler, idle_trials  # noqa: E402
from tuneloss.tuning import proposals  # noqa: E402
from tuneloss.tuning.proposals import FAILED_RADIUS  # noqa: E402
from tuneloss.tuning.sampling import distance  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.WARNING)
BOX = Box.from_dict({"l2": (0.01, 100.0), "smooth": (0.0, 2.0), "logloss": 1.0})
RNG = np.random.default_rng(0)
X, NOISE = RNG.normal(size=(40, 12)), RNG.normal(size=(2, 40))
TRUTH = RNG.normal(size=12)


def train(weights):
    """Ridge regression that is also pulled to 0.3 in each coordinate; exact, with gradients."""
    ours, theirs = X @ TRUTH + 2 * NOISE[0], X @ TRUTH + 2 * NOISE[1]
    hessian = X.T @ X + (weights["l2"] + weights["smooth"]) * np.eye(12)
    params = np.linalg.solve(hessian, X.T @ ours + 0.3 * weights["smooth"])
    residual, other = X @ params - ours, X @ params - theirs
    jacobian = np.column_stack([2 * params, 2 * (params - 0.3), 2 * X.T @ residual])
    features = [params @ params, np.sum((params - 0.3) ** 2), residual @ residual]
    return Observation.from_gradients(float(other @ other), features, 2 * X.T @ other, jacobian)


def suggested(trial):
    weights = {
        "l2": trial.suggest_float("l2", 0.01, 100.0, log=True),
        "smooth": trial.suggest_float("smooth", 0.0, 2.0),
    }
    return weights | {"logloss": 1.0}


def objective(trial):
    seen = train(suggested(trial))
    trial.set_user_attr(KEY, seen.to_dict())
    return seen.error


def asked(study):
    return [[trial.params["l2"], trial.params["smooth"]] for trial in study.trials]


def test_it_asks_what_the_tuner_asks():
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    study.optimize(objective, n_trials=28)  # so many that some ways rest
    tuner = LossTuner(BOX, seed=3)
    tuner.run(train, 28, progress=False)
    expected = [[run.weights["l2"], run.weights["smooth"]] for run in tuner.history]
    np.testing.assert_allclose(asked(study), expected, rtol=1e-9)
    assert study.best_value < study.trials[0].value


def test_the_tuner_is_told_how_each_trial_was_proposed():
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    study.optimize(objective, n_trials=6)
    failing = study.ask()
    suggested(failing)
    study.tell(failing, state=optuna.trial.TrialState.FAIL)
    sampler = TuneLossSampler(BOX, seed=3)
    sampler._propose(study, study.ask(), study.trials[:7])
    records = [trial.system_attrs[KEY] for trial in study.trials[:7]]
    assert {record["form"] for record in records} == {None, "calibrated", "paper"}
    assert len({record["way"] for record in records}) > 2
    told = sampler._studies[study].tuner.history
    assert [(run.form, run.way) for run in told] == [(record["form"], record["way"]) for record in records]


@pytest.mark.parametrize("storage", ["sqlite", "journal"])
def test_a_study_resumes_with_a_new_sampler(tmp_path, storage):
    whole = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    whole.optimize(objective, n_trials=6)
    for n in (2, 4):
        study = optuna.create_study(
            storage=make_storage(storage, tmp_path), study_name="s", sampler=TuneLossSampler(BOX, seed=3),
            load_if_exists=True,
        )  # fmt: skip
        study.optimize(objective, n_trials=n)
    np.testing.assert_allclose(asked(study), asked(whole), rtol=1e-9)


@pytest.mark.parametrize("fallback", [None, optuna.samplers.RandomSampler(seed=5)])
def test_a_sampler_that_saw_every_trial_asks_what_a_new_one_asks(fallback):
    """What it keeps of a study saves time and changes nothing, also where trials end in another order."""
    kept = TuneLossSampler(BOX, fallback=fallback, seed=3)
    study = optuna.create_study(sampler=kept)
    running, proposed = [], []
    for step in range(24):
        running.append(study.ask())
        weights = suggested(running[-1])
        new = TuneLossSampler(BOX, fallback=fallback, seed=3)
        fresh = new._propose(study, study.trials[-1], study.trials[:-1])
        if study.trials[-1].system_attrs[KEY] is not None:
            assert fresh.form == study.trials[-1].system_attrs[KEY]["form"]
            np.testing.assert_array_equal(fresh.point, study.trials[-1].system_attrs[KEY]["weights"])
            proposed.append(weights)
        else:
            assert fresh is None
        if step % 3 != 1:  # the one that began before the last ends first, now and then
            trial = running.pop(0 if step % 2 else -1)
            seen = train({"logloss": 1.0} | trial.params)
            trial.set_user_attr(KEY, seen.to_dict())
            study.tell(trial, seen.error)
    assert len(proposed) > 5


def test_threads_of_one_study_share_a_sampler():
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    study.optimize(objective, n_trials=20, n_jobs=4)
    assert len({tuple(point) for point in asked(study)}) == 20
    assert study.best_value < 1.02 * best_of_a_grid()


def make_storage(kind, folder):
    if kind == "sqlite":
        return f"sqlite:///{folder}/study.db"
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / "study.log")))


WORKER = """
import sys, time
sys.path.insert(0, {here!r})
import optuna
from pathlib import Path
from test_optuna import BOX, make_storage, objective
from tuneloss.integrations.optuna import TuneLossSampler

def slow(trial):
    value = objective(trial)
    time.sleep(0.05)
    return value

storage = make_storage({kind!r}, Path({folder!r}))
study = optuna.load_study(study_name="s", storage=storage, sampler=TuneLossSampler(BOX))
study.optimize(slow, n_trials=6)
"""


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_two_processes_share_a_study(tmp_path, kind):
    """Twelve different points, and the best of them is good."""
    from pathlib import Path

    optuna.create_study(study_name="s", storage=make_storage(kind, tmp_path))
    program = WORKER.format(here=str(Path(__file__).parent), kind=kind, folder=str(tmp_path))
    workers = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(2)]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
    study = optuna.load_study(study_name="s", storage=make_storage(kind, tmp_path))
    points = asked(study)
    assert len(points) == 12
    assert len({tuple(point) for point in points}) == 12
    assert study.best_value < 1.02 * best_of_a_grid()


class Slow(TuneLossSampler):
    """Takes its time to propose, so that trials that ask at once have all proposed before one of them has stored it."""

    def _propose(self, study, trial, trials):
        proposal = super()._propose(study, trial, trials)
        time.sleep(0.3)
        return proposal


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_workers_that_ask_at_once_do_not_train_with_the_same_proposal(tmp_path, kind):
    """One model without gradients: LearnLoss says the same to every worker. One takes it, the others fall back."""
    study = optuna.create_study(study_name="s", storage=make_storage(kind, tmp_path), sampler=TuneLossSampler(BOX))
    study.optimize(lambda trial: tell(trial, train(suggested(trial)).without_gram()), n_trials=1)

    def ask(number):
        sampler = Slow(BOX, fallback=optuna.samplers.RandomSampler(seed=number), seed=3)
        worker = optuna.load_study(study_name="s", storage=make_storage(kind, tmp_path), sampler=sampler)
        suggested(worker.ask())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(4)))
    assert len({tuple(point) for point in asked(study)}) == 5
    learned = [trial.system_attrs[KEY] is not None for trial in study.trials]
    assert learned[:2] == [True, True]
    assert not all(learned)


@pytest.mark.parametrize("just_now", [False, True])
def test_a_worker_that_was_killed_as_it_asked_holds_up_others_for_a_bounded_time(monkeypatch, just_now):
    """It asked long ago: nobody waits. It asks just now: others wait, but not for ever."""
    monkeypatch.setattr(optuna_turns, "LONGEST_WAIT", 0.3 if just_now else 600.0)
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    killed = study.ask()
    study._storage.set_trial_system_attr(killed._trial_id, optuna_turns.ASKED_AT, time.time() + 60 if just_now else 0.0)
    began = time.monotonic()
    suggested(study.ask())
    waited = time.monotonic() - began
    assert waited >= 0.3 if just_now else waited < 300


def test_where_a_box_is_one_point_trials_share_it():
    """Also beside a worker that was killed before it was sure of that point."""
    study = optuna.create_study(sampler=TuneLossSampler(Box.simplex(["a"]), seed=3))
    leave_running(study, {"weights": [1.0], "form": None, "undecided": True})
    assert study.ask().suggest_float("a", 0.0, 1.0) == 1.0


def tell(trial, seen):
    """Store an observation, and return its error."""
    trial.set_user_attr(KEY, seen.to_dict())
    return seen.error


def best_of_a_grid():
    grid = [(a, b) for a in np.geomspace(0.01, 100, 25) for b in np.linspace(0, 2, 15)]
    return min(train({"l2": a, "smooth": b, "logloss": 1.0}).error for a, b in grid)


def test_other_parameters_are_sampled_by_the_fallback():
    """A rate that matters and a choice that does not: the rate is found, weights are learned all the same."""

    def mixed(trial):
        value = objective(trial)
        rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
        trial.suggest_categorical("kind", ["a", "b"])
        return value * (1 + np.log10(rate / 1e-2) ** 2)

    study = optuna.create_study(sampler=TuneLossSampler(BOX, fallback=optuna.samplers.TPESampler(seed=1), seed=3))
    study.optimize(mixed, n_trials=30)
    plain = optuna.create_study(sampler=TuneLossSampler(BOX, fallback=optuna.samplers.TPESampler(seed=1), seed=3))
    plain.optimize(objective, n_trials=2)
    np.testing.assert_allclose(asked(study)[:2], asked(plain), rtol=1e-9)
    assert 1e-3 < study.best_params["rate"] < 1e-1


def test_a_category_with_the_name_of_a_weight_does_not_stop_the_study():
    """Its trials are left out, with a warning."""

    def mixed(trial):
        trial.suggest_categorical("l2", ["off", "on"])
        seen = train({"l2": 1.0, "smooth": trial.suggest_float("smooth", 0.0, 2.0), "logloss": 1.0})
        trial.set_user_attr(KEY, seen.to_dict())
        return seen.error

    sampler = TuneLossSampler(BOX, seed=3)
    study = optuna.create_study(sampler=sampler)
    with pytest.warns(RuntimeWarning, match="TuneLossSampler cannot choose"):
        study.optimize(mixed, n_trials=4)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4
    assert sampler._studies[study].tuner.history == []


def test_where_learning_repeats_itself_the_fallback_samples(monkeypatch):
    """A constant observation without gradients: LearnLoss repeats itself in either form, and the fallback does not.

    As with more than ten free weights, there is no Gaussian process.
    """
    monkeypatch.setattr(proposals, "MANY", 0)
    seen = train({"l2": 1.0, "smooth": 1.0, "logloss": 1.0}).without_gram()

    def constant(trial):
        suggested(trial)
        trial.set_user_attr(KEY, seen.to_dict())
        return seen.error

    study = optuna.create_study(sampler=TuneLossSampler(BOX, fallback=optuna.samplers.RandomSampler(seed=5), seed=3))
    study.optimize(constant, n_trials=6)
    points = asked(study)
    assert len({tuple(point) for point in points}) == 6
    assert [trial.system_attrs[KEY] is None for trial in study.trials] == [False, False, False, True, True, True]


def test_where_learning_gains_nothing_the_fallback_samples_until_it_does():
    """Errors fall in trials 0 and 6 only, and no proposal comes twice: three idle ones, then the fallback's turn."""

    def stalls(trial):
        seen = train(suggested(trial))
        error = {0: 2.0, 6: 1.0}.get(trial.number, 3.0 + trial.number)
        trial.set_user_attr(KEY, Observation(error, seen.features, seen.gram).to_dict())
        return error

    study = optuna.create_study(sampler=TuneLossSampler(BOX, fallback=optuna.samplers.RandomSampler(seed=5), seed=3))
    study.optimize(stalls, n_trials=12)
    learned = [trial.system_attrs[KEY] is not None for trial in study.trials]
    assert learned == [True, True, True, True, False, False, False, True, True, True, False, False]


def test_trials_that_began_before_the_last_gain_was_known_do_not_count_as_idle():
    """Four workers that begin together; after the gain of the first that ends, only those that begin later count."""
    hour = [datetime(2020, 1, 1, h) for h in range(9)]
    together = [Outcome(hour[0], hour[1 + i], score, True) for i, score in enumerate((2.0, 3.0, 4.0, 5.0))]
    assert idle_trials(together) == 0
    later = [
        Outcome(hour[5], hour[6], 2.5, True),
        Outcome(hour[5], hour[7], 2.0, True),
        Outcome(hour[5], hour[7], 9.0, False),
    ]
    assert idle_trials([*later, *together]) == 2  # whatever the order; equal is no gain; the fallback's do not count
    assert idle_trials([*later, *together, Outcome(hour[0], hour[8], 1.0, False)]) == 0


def test_workers_that_begin_together_do_not_end_learning():
    study = optuna.create_study(sampler=TuneLossSampler(BOX, fallback=optuna.samplers.RandomSampler(seed=5), seed=3))
    trials = [study.ask() for _ in range(4)]
    for trial in trials:
        suggested(trial)
    for trial in trials:
        seen = train({**trial.params, "logloss": 1.0})
        trial.set_user_attr(KEY, Observation(2.0 + trial.number, seen.features, seen.gram).to_dict())
        study.tell(trial, seen.error)
    suggested(study.ask())
    assert study.trials[-1].system_attrs[KEY] is not None


def test_trials_without_use_do_no_harm():
    """Failed, pruned, without an observation, with a broken one, with weights unknown: learning goes on."""
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))

    def troubled(trial):
        if trial.number == 1:
            suggested(trial)
            raise optuna.TrialPruned
        if trial.number == 2:
            suggested(trial)
            raise RuntimeError("diverged")
        if trial.number == 3:
            return train(suggested(trial)).error
        value = objective(trial)
        if trial.number == 4:
            trial.set_user_attr(KEY, {"error": 1.0, "features": [1.0]})
        return value

    with (
        pytest.warns(RuntimeWarning, match="trial 3 has none"),
        pytest.warns(RuntimeWarning, match="Trial 4 is left out, since"),
    ):
        study.optimize(troubled, n_trials=14, catch=(RuntimeError,))
    assert len({tuple(point) for point in asked(study)}) == 14
    assert study.best_value < 1.02 * best_of_a_grid()


@pytest.mark.parametrize("fallback", [None, optuna.samplers.RandomSampler(seed=5)])
def test_weights_that_failed_are_kept_away_from(fallback):
    """The same model each time, so the same weights are learned; they fail, and the next ones are others."""
    study = optuna.create_study(sampler=TuneLossSampler(BOX, fallback=fallback, seed=3))
    seen = train({"l2": 1.0, "smooth": 1.0, "logloss": 1.0})

    def fails_once(trial):
        suggested(trial)
        if trial.number == 1:
            raise RuntimeError("diverged")
        trial.set_user_attr(KEY, seen.to_dict())
        return seen.error

    study.optimize(fails_once, n_trials=3, catch=(RuntimeError,))
    points = [BOX.as_array({**trial.params, "logloss": 1.0}) for trial in study.trials]
    assert distance(BOX, points[1], points[2]) > (FAILED_RADIUS if fallback is None else 0)


def test_weights_of_a_simplex_sum_to_one_also_where_a_fallback_would_sample_them():
    """Errors that never fall again: without a simplex, the fallback would take over after three idle trials."""
    box = Box.simplex(["a", "b", "c"])
    jacobian = np.random.default_rng(0).normal(size=(8, 3))

    def mixed(trial):
        weights = np.array([trial.suggest_float(name, 0.0, 1.0) for name in box.names])
        trial.suggest_float("rate", 1e-4, 1.0, log=True)  # the fallback's task
        error = 1.0 + trial.number
        seen = Observation.from_gradients(error, np.arange(1.0, 4.0) + weights, jacobian @ [1.0, 1.0, 0.1], jacobian)
        trial.set_user_attr(KEY, seen.to_dict())
        return error

    study = optuna.create_study(sampler=TuneLossSampler(box, fallback=optuna.samplers.TPESampler(seed=1), seed=3))
    study.optimize(mixed, n_trials=16)
    points = np.array([[trial.params[name] for name in box.names] for trial in study.trials])
    np.testing.assert_allclose(points.sum(axis=1), 1, atol=1e-9)
    assert len(np.unique(points.round(9), axis=0)) == 16
    assert len({trial.params["rate"] for trial in study.trials}) == 16


def test_weights_that_a_user_enqueues_or_leaves_out_are_told_as_far_as_they_are_known():
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    study.enqueue_trial({"l2": 50.0, "smooth": 0.1})
    study.optimize(objective, n_trials=1)
    assert asked(study) == [[50.0, 0.1]]

    def only_l2(trial):
        seen = train({"l2": trial.suggest_float("l2", 0.01, 100.0, log=True), "smooth": 0.5, "logloss": 1.0})
        trial.set_user_attr(KEY, seen.to_dict())
        return seen.error

    with pytest.warns(RuntimeWarning, match=r"cannot choose \['smooth'\]"):
        study.optimize(only_l2, n_trials=2)
    study.optimize(objective, n_trials=3)
    assert len(study.trials) == 6


def test_a_narrower_range_is_kept():
    def narrow(trial):
        seen = train(
            {"l2": trial.suggest_float("l2", 0.01, 0.02), "smooth": trial.suggest_float("smooth", 0, 2), "logloss": 1}
        )
        trial.set_user_attr(KEY, seen.to_dict())
        return seen.error

    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    study.optimize(narrow, n_trials=4)
    assert all(0.01 <= trial.params["l2"] <= 0.02 for trial in study.trials)


@pytest.mark.parametrize("storage", ["memory", "sqlite", "journal"])
def test_hundred_and_one_weights_go_through_every_storage(tmp_path, storage):
    k = 101
    rows = np.random.default_rng(1).normal(size=(300, k + 1))
    seen = Observation(1.0, rows[0, :k], rows.T @ rows)
    record = seen.to_dict()
    assert len(json.dumps(record)) < 65_000  # what a text column of MySQL holds
    study = optuna.create_study(storage=None if storage == "memory" else make_storage(storage, tmp_path))
    trial = study.ask()
    trial.set_user_attr(KEY, record)
    study.tell(trial, 1.0)
    back = Observation.from_dict(study.trials[0].user_attrs[KEY])
    np.testing.assert_array_equal(back.gram, seen.gram)
    np.testing.assert_array_equal(back.features, seen.features)


def test_a_complete_trial_without_an_observation_is_said_once():
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    wanted = r"must store an observation as user attribute 'tuneloss'; trial 0 has none, so .* learns nothing .* Call"
    with pytest.warns(RuntimeWarning, match=wanted) as caught:
        study.optimize(lambda trial: train(suggested(trial)).error, n_trials=3)
    assert len(caught) == 1


def test_an_observation_by_another_name_is_said_once():
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))

    def misspelt(trial):
        seen = train(suggested(trial))
        trial.set_user_attr("tunelos", seen.to_dict())
        return seen.error

    with pytest.warns(RuntimeWarning, match="trial 0 has an observation as user attribute 'tunelos', so") as caught:
        study.optimize(misspelt, n_trials=3)
    assert len(caught) == 1


def suggested_by_another_name(trial):
    return trial.suggest_float("smoth", 0.0, 2.0)


def suggested_with_a_step(trial):
    return trial.suggest_float("smooth", 0.0, 2.0, step=0.1)


@pytest.mark.parametrize("other", [suggested_by_another_name, suggested_with_a_step])
def test_a_weight_that_the_sampler_cannot_choose_is_said_once(other):
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))

    def mistaken(trial):
        l2 = trial.suggest_float("l2", 0.01, 100.0, log=True)
        return tell(trial, train({"l2": l2, "smooth": other(trial), "logloss": 1.0}))

    wanted = r"each free weight .* trial 0 suggested \['l2', 'smoo?th'\], so .* cannot choose \['smooth'\]. Call"
    with pytest.warns(RuntimeWarning, match=wanted) as caught:
        study.optimize(mistaken, n_trials=3)
    assert len(caught) == 1


def test_bad_arguments():
    with pytest.raises(InvalidInput, match="`fallback` must be an Optuna sampler; found a str"):
        TuneLossSampler(BOX, fallback="tpe")
    with pytest.raises(InvalidInput):
        TuneLossSampler({"l2": (0, 1)})
    with pytest.raises(InvalidInput, match="seed"):
        TuneLossSampler(BOX, seed=-1)


def test_without_a_seed_samplers_differ():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert TuneLossSampler(BOX).seed != TuneLossSampler(BOX).seed


def leave_running(study, record):
    """A trial that was given weights and never ended."""
    study.ask()
    study._storage.set_trial_system_attr(study.trials[-1]._trial_id, KEY, record)


def test_a_study_of_an_earlier_version_goes_on():
    """Its trials hold the weights that they were given as a list."""
    whole = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    whole.optimize(objective, n_trials=3)
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    for trial in whole.trials:
        trial.system_attrs = {KEY: trial.system_attrs[KEY]["weights"]}
        study.add_trial(trial)
    study.optimize(objective, n_trials=1)
    whole.optimize(objective, n_trials=1)
    np.testing.assert_allclose(asked(study), asked(whole), rtol=1e-9)
    leave_running(study, whole.trials[-1].system_attrs[KEY]["weights"])
    study.optimize(objective, n_trials=1)
    assert study.trials[-1].state == optuna.trial.TrialState.COMPLETE


def test_a_trial_that_another_box_left_running_does_no_harm():
    study = optuna.create_study(sampler=TuneLossSampler(BOX, seed=3))
    leave_running(study, {"weights": [1.0, 1.0], "form": None})
    study.optimize(objective, n_trials=2)
    assert [trial.state.name for trial in study.trials] == ["RUNNING", "COMPLETE", "COMPLETE"]

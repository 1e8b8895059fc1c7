"""The tuner: it never stands still, never loses work, and finds the best weights of problems it can solve."""

import json
import math

import numpy as np
import pytest

from tests.core.problems import ridge
from tuneloss import Box, LossTuner, Observation, learn_loss
from tuneloss.core.learn import Learner
from tuneloss.errors import InvalidInput, RunFailed, SolverError
from tuneloss.tuning.sampling import center, distance, same_point

BOX = Box.from_dict({"l2": (0.01, 100.0), "l1": (0.0, 1.0), "fit": 1.0})


def flat(weights: dict[str, float]) -> Observation:
    """A model that no weights change: every proposal after the first would be the same."""
    return Observation.from_gradients(1.0, [1.0, 1.0, 1.0], np.ones(3), np.eye(3))


def as_points(box: Box, asked: list[dict[str, float]]) -> list[np.ndarray]:
    return [box.as_array(weights) for weights in asked]


def assert_all_different(points: list[np.ndarray]) -> None:
    for i, a in enumerate(points):
        assert not any(same_point(a, b) for b in points[:i])


def test_ridge_is_tuned_in_a_few_runs():
    """After 6 runs the validation error is within 2% of the best of a grid of 200; the first run was 4 to 20% off."""
    box = Box.from_dict({"l2": (0.01, 1000.0), "fit": 1.0})
    for seed in range(6):
        train = ridge(seed)
        grid = min(train({"l2": l2}).error for l2 in np.geomspace(0.01, 1000, 200))
        tuner = LossTuner(box)
        best = tuner.run(train, n_runs=6, progress=False)
        assert best.observation.error <= 1.02 * grid
        assert tuner.history[0].observation.error >= 1.04 * grid


def test_the_first_points_are_start_then_the_centre_then_random():
    """Before any model is seen; each is different."""
    tuner = LossTuner(BOX, start=[{"l2": 5.0, "l1": 0.5, "fit": 1.0}, [7.0, 0.1, 1.0]])
    points = as_points(BOX, tuner.ask(5))
    np.testing.assert_allclose(points[:3], [[5.0, 0.5, 1.0], [7.0, 0.1, 1.0], center(BOX)])
    assert_all_different(points)
    assert LossTuner(BOX, start={"l2": 5.0, "l1": 0.5, "fit": 1.0}).ask()["l2"] == 5.0


def test_all_start_points_come_before_what_is_learned():
    tuner = LossTuner(BOX, start=[[5.0, 0.5, 1.0], [7.0, 0.1, 1.0]])
    tuner.tell(tuner.ask(), flat({}))
    assert tuner.ask()["l2"] == 7.0


def test_the_initial_set_is_learned_from_at_once():
    """tell(None, checkpoint): no centre is needed, and it is neither a run nor the best one."""
    tuner = LossTuner(BOX)
    tuner.tell(None, flat({}))
    assert tuner.ask() != BOX.as_dict(center(BOX))
    assert tuner.learned is not None
    assert tuner.n_runs == 0
    assert tuner.best is None
    assert tuner.history[0].weights is None


@pytest.mark.parametrize("fallback", ["nearby", "random"])
def test_it_never_stands_still(fallback):
    """A proposal that repeats a tried point is replaced, however often."""
    tuner = LossTuner(BOX, fallback=fallback)
    for _ in range(12):
        weights = tuner.ask()
        tuner.tell(weights, flat(weights))
    assert_all_different(as_points(BOX, [run.weights for run in tuner.history]))


def test_repeat_switches_the_fallback_off():
    tuner = LossTuner(BOX, objective="calibrated", fallback="repeat")
    asked = []
    for _ in range(3):
        asked.append(tuner.ask())
        tuner.tell(asked[-1], flat({}))
    assert same_point(BOX.as_array(asked[1]), BOX.as_array(asked[2]))


@pytest.mark.parametrize("box", [BOX, Box.simplex(["a", "b", "c"])], ids=repr)
def test_a_batch_is_of_different_points_in_the_box(box):
    """ask(n) for n workers; and asking one by one gives the same."""
    rng = np.random.default_rng(0)
    models = [Observation(1 + rng.random(), rng.exponential(size=3)) for _ in range(6)]
    batch, single = LossTuner(box, seed=1), LossTuner(box, seed=1)
    for model in models:
        batch.tell(None, model)
        single.tell(None, model)
    asked = batch.ask(5)
    assert asked == [single.ask() for _ in range(5)]
    assert_all_different(as_points(box, asked))


def test_the_first_of_a_batch_is_what_one_worker_would_get():
    single, batch = LossTuner(BOX), LossTuner(BOX)
    for tuner in (single, batch):
        tuner.tell(None, flat({}))
    assert batch.ask(3)[0] == single.ask()


def test_seeds_differ_and_repeat():
    def asked(seed: int) -> list[dict[str, float]]:
        return LossTuner(BOX, seed=seed).ask(4)

    assert asked(0) == asked(0)
    assert asked(0)[2:] != asked(1)[2:]


def test_failed_runs_are_recorded_and_avoided():
    """No later proposal comes within a twentieth of a range of one that failed."""
    tuner = LossTuner(BOX)
    tuner.tell(None, flat({}))
    for _ in range(6):
        weights = tuner.ask()
        failed = [BOX.as_array(run.weights) for run in tuner.history if run.failed]
        assert all(distance(BOX, BOX.as_array(weights), point) > 0.05 for point in failed)
        tuner.tell(weights, failed="diverged")
    assert [run.failed for run in tuner.history[1:]] == ["diverged"] * 6
    assert tuner.best is None
    assert tuner.n_runs == 6


def test_several_observations_of_one_run_share_its_number():
    tuner = LossTuner(BOX)
    weights = tuner.ask()
    for error in (3.0, 2.0, 2.5):
        tuner.tell(weights, Observation(error, [1.0, 1.0, error]))
    other = tuner.ask()
    tuner.tell(other, Observation(2.2, [1.0, 1.0, 1.0]))
    assert [run.run for run in tuner.history] == [0, 0, 0, 1]
    assert tuner.n_runs == 2
    assert tuner.best is tuner.history[1]


def test_checkpoints_of_parallel_runs_keep_their_numbers():
    """Told in turns, each goes to the run whose weights it has."""
    tuner = LossTuner(BOX)
    a, b = tuner.ask(2)
    for weights in (a, b, a, b):
        tuner.tell(weights, Observation(1.0, [1.0, 1.0, 1.0]))
    assert [run.run for run in tuner.history] == [0, 1, 0, 1]


def test_a_repeated_proposal_is_a_new_run():
    """With fallback="repeat" the same weights are asked for again, and that is another run."""
    tuner = LossTuner(BOX, fallback="repeat")
    for _ in range(4):
        tuner.tell(tuner.ask(), flat({}))
    assert [run.run for run in tuner.history] == [0, 1, 2, 3]


def test_further_workers_learn_from_a_bayesian_bootstrap():
    """The second point of a batch is what learn_loss says with exponential sample weights, not a random step."""
    rng = np.random.default_rng(0)
    features = rng.exponential(size=(6, 3))
    errors = features @ [0.5, 0.2, 1.0] * rng.uniform(0.7, 1.3, size=6)
    models = [Observation(e, f) for e, f in zip(errors, features, strict=True)]
    tuner = LossTuner(BOX, seed=4)
    for model in models:
        tuner.tell(None, model)
    second = tuner.ask(2)[1]
    spread = np.random.default_rng([4, 6, 1]).standard_exponential(6)
    assert second == learn_loss(models, BOX, sample_weight=spread).as_dict()
    assert second != learn_loss(models, BOX).as_dict()


@pytest.mark.parametrize(("fallback", "near"), [("nearby", True), ("random", False)])
def test_the_fallback_is_near_or_anywhere(fallback, near):
    """Over several seeds the points that replace a repeated one stay within half of each range, or do not."""
    farthest = 0.0
    for seed in range(8):
        tuner = LossTuner(BOX, objective="calibrated", fallback=fallback, seed=seed)
        for _ in range(3):
            tuner.tell(tuner.ask(), flat({}))
        first, last = BOX.as_array(tuner.history[1].weights), BOX.as_array(tuner.history[2].weights)
        farthest = max(farthest, distance(BOX, first, last))
    assert (farthest < 0.5) == near


def test_a_list_with_a_wrong_observation_is_refused_whole():
    tuner = LossTuner(BOX)
    with pytest.raises(InvalidInput, match="one feature per weight"):
        tuner.run(lambda weights: [flat(weights), MODEL, Observation(1.0, [1.0])][::2], n_runs=2, progress=False)
    assert tuner.history == []


def test_if_no_solver_succeeds_the_tuner_warns_and_stays_near_the_best(monkeypatch):
    """A long tuning is not ended by one program that no solver solves."""

    def fails(*args, **kwargs):
        raise SolverError("no solver did it")

    tuner = LossTuner(BOX)
    tuner.tell(tuner.ask(), flat({}))
    monkeypatch.setattr(Learner, "learn", fails)
    with pytest.warns(RuntimeWarning, match="no weights for this proposal, since no solver did it"):
        weights = tuner.ask()
    assert 0 < distance(BOX, BOX.as_array(weights), center(BOX)) < 0.5


def test_the_best_is_by_metric_then_error_then_the_most_recent():
    tuner = LossTuner(BOX)
    for error, metric in ((0.1, 5.0), (0.3, 2.0), (0.2, 2.0), (0.2, 2.0)):
        tuner.tell(tuner.ask(), Observation(error, [1.0, 1.0, 1.0], metric=metric))
    assert tuner.best is tuner.history[3]


def test_state_round_trips_through_json():
    """With what is pending, and with an infinite epsilon."""
    tuner = LossTuner(BOX, seed=5, epsilon=math.inf, fallback="random", start=[[5.0, 0.5, 1.0]])
    tuner.tell(tuner.ask(), flat({}))
    tuner.tell(tuner.ask(), failed="out of memory")
    tuner.ask()
    again = LossTuner.from_state_dict(json.loads(json.dumps(tuner.state_dict(), allow_nan=False)))
    assert again.state_dict() == tuner.state_dict()
    assert again.ask(2) == tuner.ask(2)


def test_run_records_failures_and_goes_on():
    """RunFailed, and NaN or huge numbers of a run that diverged; any other exception ends it and loses nothing."""
    calls = []

    def train(weights: dict[str, float]) -> Observation:
        calls.append(weights)
        if len(calls) == 2:
            raise RunFailed("out of memory")
        if len(calls) == 3:
            return Observation(math.nan, [1.0, 1.0, 1.0])
        if len(calls) == 4:
            return Observation(1e160, [1.0, 1.0, 1.0])
        if len(calls) == 5:
            raise KeyboardInterrupt
        return flat(weights)

    tuner = LossTuner(BOX)
    with pytest.raises(KeyboardInterrupt):
        tuner.run(train, n_runs=6, progress=False)
    failed = [run.failed for run in tuner.history]
    assert failed[0] is None
    assert failed[1] == "out of memory"
    assert "`error` must be finite" in failed[2]
    assert failed[3].startswith("training diverged: The squares of features")
    best = tuner.run(train, n_runs=6, progress=False)
    assert tuner.n_runs == 6
    assert len(calls) == 7
    assert calls[4] == calls[5]  # the interrupted run is proposed again
    assert best.observation.error == 1.0


def test_run_counts_what_a_journal_already_has(tmp_path):
    """n_runs is the number in all: a second call adds none."""
    calls = []

    def train(weights: dict[str, float]) -> list[Observation]:
        calls.append(weights)
        return [flat(weights), flat(weights)]

    for n_runs in (2, 5, 5):
        LossTuner(BOX, journal=tmp_path / "runs.jsonl").run(train, n_runs=n_runs, progress=False)
    assert len(calls) == 5
    assert [run.run for run in LossTuner(BOX, journal=tmp_path / "runs.jsonl").history] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]


def test_run_shows_a_progress_bar(capsys):
    """On standard error, with the best error so far."""
    LossTuner(BOX).run(flat, n_runs=2)
    shown = capsys.readouterr()
    assert "2/2" in shown.err
    assert "best error 1" in shown.err
    assert shown.out == ""


MODEL = Observation(1.0, [1.0, 1.0, 1.0])
MISTAKES = [
    (lambda t: t.tell({"l2": 1.0, "l1": 0.1}, MODEL), r"names of weights must be the box's.*missing \['fit'\]"),
    (lambda t: t.tell({"l2": 1.0, "l1": 5.0, "fit": 1.0}, MODEL), r"must lie in Box.*tell\(None, observation\)"),
    (lambda t: t.tell(t.ask()), "needs an observation or a reason .* found neither"),
    (lambda t: t.tell(t.ask(), MODEL, failed="no"), "found both"),
    (lambda t: t.tell(None, failed="no"), "A failed run needs its weights"),
    (lambda t: t.tell(t.ask(), Observation(1.0, [1.0])), "one feature per weight"),
    (lambda t: (t.tell(None, MODEL), t.tell(None, flat({}))), "have a gram or none"),
    (lambda t: t.ask(0), "`n` must be at least 1; found 0"),
    (lambda t: t.ask(1.5), "`n` must be a whole number; found 1.5"),
    (lambda t: t.run(flat, n_runs="a"), "`n_runs` must be a whole number; found 'a'"),
    (lambda t: t.tell(t.ask(), failed=""), "must say in words why the run failed"),
    (lambda t: t.tell(t.ask(), failed=ValueError("x")), "must say in words why the run failed"),
    (lambda t: t.tell(t.ask(), Observation(1e200, [1e200, 1.0, 1.0])), "must not overflow"),
    (lambda t: LossTuner(BOX, epsilon=1.0).tell([1.0, 0.1, 1.0], MODEL), "the observations have no gram"),
    (lambda t: LossTuner({"a": 1.0}), "`box` must be a Box; found dict"),
    (lambda t: LossTuner(BOX, objective="calibratd"), "'auto', 'calibrated', 'paper'; found 'calibratd'"),
    (lambda t: LossTuner(BOX, epsilon=-1), "`epsilon` must be"),
    (lambda t: LossTuner(BOX, seed=-1), "`seed` must be at least 0; found -1"),
    (lambda t: LossTuner(BOX, seed=1.5), "`seed` must be a whole number; found 1.5"),
    (lambda t: LossTuner(BOX, start=5), "`start` must be as"),
    (lambda t: LossTuner.from_state_dict({"version": 1}), "A tuner's state must be as documented"),
    (lambda t: LossTuner.from_state_dict(None), "A tuner's state must be as documented"),
    (lambda t: LossTuner.from_state_dict({**t.state_dict(), "history": [{"run": 0}]}), "A run's record must be as"),
    (lambda t: LossTuner.from_state_dict({**t.state_dict(), "pending": [[1]]}), "must be 3 numbers"),
    (lambda t: t.run(lambda weights: 0.3, progress=False), "must return an Observation, .* found float"),
    (lambda t: t.run(lambda weights: [], progress=False), "found list"),
    (lambda t: LossTuner(BOX, fallback="stop"), '"nearby", "random" or "repeat"; found \'stop\''),
    (lambda t: LossTuner(BOX, start=[[1.0, 5.0, 1.0]]), "must lie in Box"),
    (lambda t: LossTuner.from_state_dict({"version": 7}), "must have version 1; found 7"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_refuses(mistake, message):
    """What must hold, what was found, what to do."""
    with pytest.raises(InvalidInput, match=message):
        mistake(LossTuner(BOX))


def test_a_refused_observation_leaves_the_tuner_as_it_was():
    """Nothing is half recorded, and the run can still be told."""
    tuner = LossTuner(BOX)
    weights = tuner.ask()
    with pytest.raises(InvalidInput):
        tuner.tell(weights, Observation(1.0, [1.0]))
    assert tuner.history == []
    tuner.tell(weights, MODEL)
    assert tuner.history[0].run == 0


def test_reserved_weights_are_not_proposed():
    """As if they were asked for: the next proposal is another one."""
    box = Box.from_dict({"l2": (0.1, 10.0), "logloss": 1.0})
    first = LossTuner(box).ask()
    tuner = LossTuner(box)
    tuner.reserve(first)
    assert tuner.ask() != first
    with pytest.raises(InvalidInput):
        tuner.reserve({"l2": 99.0, "logloss": 1.0})


def test_other_numbers_of_a_run_are_kept_and_do_not_matter_for_learning(tmp_path):
    """Through a journal and a state; and must be numbers."""
    box = Box.from_dict({"l2": (0.1, 10.0), "logloss": 1.0})
    model = Observation.from_gradients(3.0, [1.0, 1.0], [5.0, 3.0], [[2.0, 1.0], [1.0, 1.0]])
    tuner, plain = LossTuner(box, journal=tmp_path / "runs.jsonl"), LossTuner(box)
    weights = tuner.ask()
    tuner.tell(weights, model, info={"test error": 0.25})
    plain.tell(plain.ask(), model)
    assert tuner.ask() == plain.ask()
    assert LossTuner(box, journal=tmp_path / "runs.jsonl").history[0].info == {"test error": 0.25}
    assert LossTuner.from_state_dict(tuner.state_dict()).history[0].info == {"test error": 0.25}
    with pytest.raises(InvalidInput, match=r"`info` must be numbers by name"):
        tuner.tell(weights, model, info=[1.0])
    with pytest.raises(InvalidInput, match=r"info\['test'\]"):
        tuner.tell(weights, model, info={"test": float("nan")})
    assert len(tuner.history) == 1


def test_an_error_whose_square_is_no_number_is_refused_in_words():
    tuner = LossTuner(BOX)
    gram = np.eye(len(BOX) + 1)
    with pytest.raises(InvalidInput, match="must not overflow; found sums beyond 1e308"):
        tuner.tell(tuner.ask(), Observation(1e200, np.ones(len(BOX)), gram))
    assert tuner.history == []

"""What a tuner keeps of what it was told: the same however it was told it, by threads, in portions, or interrupted."""

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

from tuneloss import Box, LossTuner, Observation
from tuneloss.errors import JournalError
from tuneloss.tuning.journal import Journal
from tuneloss.tuning.ledger import Ledger
from tuneloss.tuning.run import Run, best_run

BOX = Box.from_dict({"l2": (0.1, 100.0), "l1": (0.0, 1.0), "logloss": 1.0})


def observation(i: int) -> Observation:
    rng = np.random.default_rng(i)
    half = rng.normal(size=(5, 4))
    return Observation(1.0 + rng.random(), rng.random(3), half.T @ half)


def some_runs(n: int) -> list[Run]:
    rng = np.random.default_rng(0)
    weights = [{"l2": float(rng.integers(1, 5)), "l1": 0.5, "logloss": 1.0} for _ in range(n)]
    told = [Run(i // 2, w, observation(i)) for i, w in enumerate(weights)]
    told[3] = Run(1, weights[3], None, failed="diverged")
    told[5] = Run(None, None, observation(5))
    return told


def contents(told: Ledger) -> tuple:
    best = None if told.best is None else told.runs.index(told.best)
    errors = [o.error for o in told.observations]
    return told.tried.tolist(), told.failed.tolist(), errors, best, told.n_runs, len(told.runs)


@pytest.mark.parametrize("portions", [[40], [1] * 40, [0, 7, 0, 13, 20]])
def test_it_does_not_matter_in_which_portions_it_is_told(portions):
    runs, told = some_runs(40), Ledger(BOX)
    at = 0
    for size in portions:
        told.extend(runs[at : at + size])
        at += size
    assert contents(told) == contents(Ledger(BOX, runs))
    assert told.best is best_run(runs)
    assert told.n_runs == 1 + max(run.run for run in runs if run.run is not None)
    for point in told.tried:
        with_them = [run.run for run in runs if run.weights is not None and run.weights["l2"] == point[0]]
        assert told.run_with(point).run == with_them[-1]


@pytest.mark.parametrize("attempt", range(5))
def test_threads_that_tell_one_tuner_lose_nothing(tmp_path, attempt):
    """Each run has a number of its own, and the journal opens with all of them."""
    tuner = LossTuner(BOX, journal=tmp_path / "runs.jsonl")
    failures = []

    def work(first: int) -> None:
        try:
            for i in range(first, first + 15):
                tuner.tell(tuner.ask(), observation(i))
                assert tuner.best is not None
        except Exception as reason:
            failures.append(reason)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures
    assert [run.run for run in tuner.history] == list(range(60))
    again = LossTuner(BOX, journal=tmp_path / "runs.jsonl")
    assert [run.to_dict() for run in again.history] == [run.to_dict() for run in tuner.history]
    assert {run.observation.error for run in again.history} == {
        observation(100 * t + i).error for t in range(4) for i in range(15)
    }


def test_a_tuner_can_be_copied_and_pickled():
    """Although it has a lock."""
    tuner = LossTuner(BOX, seed=3)
    for i in range(3):
        tuner.tell(tuner.ask(), observation(i))
    asked = [made.ask() for made in (copy.deepcopy(tuner), pickle.loads(pickle.dumps(tuner)), tuner)]
    assert asked[0] == asked[1] == asked[2]


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line of this package that is run in a block."""

    def __init__(self, at: int) -> None:
        self.at, self.lines = at, 0

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *reason):
        sys.settrace(self.before)

    def trace(self, frame, event, arg):
        if "tuneloss" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise KeyboardInterrupt
        return self.trace


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that garbage collection closes
def test_an_interrupt_of_tell_leaves_no_proposal_behind_of_a_run_that_was_told():
    """At each line: either the run is told and its weights are no longer reserved, or neither."""
    told = []
    for at in range(1, 10_000):
        tuner = LossTuner(BOX)
        weights = tuner.ask()
        try:
            with Interrupt(at):
                tuner.tell(weights, observation(0))
        except KeyboardInterrupt:
            told.append(tuner.n_runs)
            assert len(tuner._pending) == 1 - tuner.n_runs
        else:
            break
    assert set(told) == {0, 1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that garbage collection closes
def test_an_interrupt_at_any_line_of_tell_leaves_a_tuner_that_goes_on(tmp_path):
    """It was told or it was not: the tuner and its journal agree on that, and the next `tell` works."""
    tuner, runs, interrupted = LossTuner(BOX, journal=tmp_path / "runs.jsonl"), 0, 0
    weights = tuner.ask()
    while True:
        try:
            with Interrupt(at=interrupted + 1):
                tuner.tell(weights, observation(interrupted))
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        if interrupted % 10 == 0:
            tuner.tell(weights, observation(1000 + interrupted))
            runs += 1
    assert interrupted > 50
    assert runs > 5
    kept = [run.to_dict() for run in tuner.history]
    assert [run.to_dict() for run in LossTuner(BOX, journal=tmp_path / "runs.jsonl").history] == kept
    assert contents(tuner._ledger) == contents(Ledger(BOX, tuner.history))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": {"l2": 1.0, "other": 0.5, "logloss": 1.0}}, r"missing \['l1'\], unknown \['other'\]"),
        ({"weights": {"l2": 1000.0, "l1": 0.5, "logloss": 1.0}}, "Weights must lie in"),
        ({"weights": {"l2": 10**400, "l1": 0.5, "logloss": 1.0}}, "A run's record must be as documented"),
        ({"weights": [1.0, 0.5, 1.0]}, "A run's record must be as documented"),
        ({"run": "zero"}, "`run` must be a whole number"),
        ({"observation": {"error": 1.0, "features": [1.0, 2.0]}}, "one feature per weight, 3"),
        ({"observation": {"error": 10**400, "features": [1.0, 2.0, 3.0]}}, "`error` must be real numbers"),
        ({"info": {"test": 10**400}}, "must be real numbers"),
    ],
)
def test_a_journal_whose_records_are_not_of_its_box_is_refused_when_it_is_opened(tmp_path, change, message):
    """Although its checksums are right."""
    good = Run(0, {"l2": 1.0, "l1": 0.5, "logloss": 1.0}, observation(0)).to_dict()
    journal = Journal(tmp_path / "runs.jsonl", {"box": BOX.state_dict()})
    journal.append(good)
    journal.append(good | change)
    with pytest.raises(JournalError, match=message):
        LossTuner(BOX, journal=tmp_path / "runs.jsonl")

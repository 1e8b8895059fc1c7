"""A journal continues in another box: nothing told is lost, and weights outside of the new box are refused."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tuneloss import Box, LossTuner, Observation
from tuneloss.errors import InvalidInput, JournalError
from tuneloss.tuning.journal import read_lines

BOX = Box.from_dict({"l2": (0.1, 100.0), "l1": (0.0, 1.0), "fit": 1.0})
WIDER = Box.from_dict({"l2": (0.1, 10_000.0), "l1": (0.0, 5.0), "fit": 1.0})


def train(weights):
    """Fit params p to a = (1, 2) under penalties l2 |p|^2 + l1 p_0^2. The best params have l2 = 1000 and l1 = 0."""
    a = np.array([1.0, 2.0])
    first = np.array([1.0, 0.0])
    p = a / (1 + weights["l2"] + weights["l1"] * first)
    to_best, to_a = p - a / 1001, p - a
    features = [p @ p, p[0] ** 2, to_a @ to_a]
    jacobian = 2 * np.column_stack([p, first * p, to_a])
    return Observation.from_gradients(1e4 * to_best @ to_best, features, 2e4 * to_best, jacobian)


@pytest.fixture
def path(tmp_path):
    tuner = LossTuner(BOX, journal=tmp_path / "runs.jsonl")
    tuner.run(train, n_runs=4, progress=False)
    return tmp_path / "runs.jsonl"


def test_a_journal_continues_in_a_wider_box_and_then_has_that_box(path):
    before, old = path.read_bytes(), LossTuner(BOX, journal=path)
    tuner = LossTuner(WIDER, journal=path, extend=True)
    assert [run.weights for run in tuner.history] == [run.weights for run in old.history]
    best = tuner.run(train, n_runs=12, progress=False)
    assert best.weights["l2"] > 100  # beyond the old bound
    assert path.read_bytes().startswith(before)
    again = LossTuner(WIDER, journal=path)
    assert again.n_runs == 12
    assert again.ask() == tuner.ask() == LossTuner(WIDER, journal=path, extend=True).ask()
    message = r"must be of the same box; found 'l2' from 0.1 to 10000, not from 0.1 to 100; 'l1' from 0 to 5, not from"
    with pytest.raises(JournalError, match=message):
        LossTuner(BOX, journal=path)
    assert read_lines(path)[2] == [4]


def test_a_narrower_box_is_fine_if_it_contains_all_that_was_tried(path):
    tried = np.array([list(run.weights.values()) for run in LossTuner(BOX, journal=path).history])
    narrow = Box(tried.min(axis=0), tried.max(axis=0), BOX.names)
    assert LossTuner(narrow, journal=path, extend=True).n_runs == 4


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (
            Box.from_dict({"l2": (0.1, 0.2), "l1": (0.0, 1.0), "fit": 1.0}),
            r"must contain all weights that were tried; those of run 1 in .*outside.*\[0.1, 0.2\].*Widen the box",
        ),
        (
            Box.from_dict({"l2": (0.1, 100.0), "fit": 1.0}),
            r"must have the weights of the journal .*, in the same order; found no 'l1'\.",
        ),
        (
            Box.from_dict({"l1": (0.0, 1.0), "l2": (0.1, 100.0), "fit": 1.0}),
            "in the same order; found 'l1' as weight 1, not 'l2'",
        ),
        (Box.simplex(["l2", "l1", "fit"]), "found a simplex, not ranges. Only bounds may change. Begin another"),
    ],
)
def test_a_box_that_does_not_suit_is_refused_and_the_journal_stays_as_it_was(path, box, message):
    before = path.read_bytes()
    with pytest.raises(JournalError, match=message):
        LossTuner(box, journal=path, extend=True)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["runs.jsonl"]
    assert LossTuner(BOX, journal=path).n_runs == 4


def test_extending_nothing_is_refused_or_begins_a_journal(tmp_path):
    with pytest.raises(InvalidInput, match="`extend=True` needs the journal to continue; found none"):
        LossTuner(BOX, extend=True)
    LossTuner(BOX, journal=tmp_path / "new.jsonl", extend=True)
    assert LossTuner(BOX, journal=tmp_path / "new.jsonl").n_runs == 0


def test_a_tuner_that_has_the_journal_open_in_the_old_box_is_refused_afterwards(path):
    old = LossTuner(BOX, journal=path)
    LossTuner(WIDER, journal=path, extend=True)
    with pytest.raises(JournalError, match="written by one tuner at a time"):
        old.tell(old.ask(), train({"l2": 1.0, "l1": 0.0}))


PROGRAM = """
import sys
from tuneloss import Box, LossTuner, Observation
while True:
    for upper in (200.0, 300.0):
        box = Box.from_dict({"l2": (0.1, upper), "l1": (0.0, 1.0), "fit": 1.0})
        tuner = LossTuner(box, journal=sys.argv[1], extend=True)
        print(upper, flush=True)
"""


def test_kill_9_in_the_middle_of_extensions_leaves_a_journal_in_one_of_the_boxes(path):
    """A real process, killed several times: all runs are there, and the box is the last one said, or the next."""
    runs = read_lines(path)[1]
    for pause in (0.03, 0.11, 0.02, 0.07):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()
        header = json.loads(path.read_bytes().split(b"\n")[0])["body"]
        assert header["box"] == BOX.state_dict()
        box = Box.from_state_dict(read_lines(path)[0]["box"])
        assert box.upper[0] in (200.0, 300.0)
        assert LossTuner(WIDER, journal=path, extend=True).n_runs == 4
        assert read_lines(path)[1] == runs

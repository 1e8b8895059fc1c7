"""Runs and headers: what a journal holds comes back as it was, and records of earlier versions are read."""

import json

import pytest

from tuneloss import Box, Observation
from tuneloss.errors import InvalidInput
from tuneloss.tuning import OnlinePolicy
from tuneloss.tuning.history import LearnedStep
from tuneloss.tuning.run import Header, LastLearned, Run, best_run

BOX = Box.from_dict({"l2": (0.1, 10.0), "r/right0": (0.0, None), "r/left0": (0.0, None), "fit": 1.0})
WEIGHTS = {"l2": 1.0, "r/right0": 0.0, "r/left0": 2.0, "fit": 1.0}


def as_json(record):
    return json.loads(json.dumps(record))


@pytest.mark.parametrize(
    "header",
    [
        Header(BOX),
        Header(BOX, "a title", made_by="OnlineTuner", knots={"r": [0.5]}),
        Header(BOX, chosen=0, note="why", reference={"plain": {"test error": 0.25}}, search=LastLearned()),
        Header(BOX, search=LastLearned(WEIGHTS, 0.5, "capped")),
        Header(BOX, final=WEIGHTS, policy=OnlinePolicy(), unit="epoch", run_id="a1"),
        Header(BOX, policy=OnlinePolicy.paper(), unit="step"),
    ],
)
def test_a_header_comes_back_as_it_was(header):
    """And what it does not say is not in the file."""
    record = header.to_dict()
    again = Header.from_dict(as_json(record), n_runs=1)
    assert again.to_dict() == record
    assert vars(again) == vars(header)
    assert all(value not in ("", None, {}) for value in record.values())


def test_a_plain_header_is_the_box_alone():
    """As earlier versions wrote it: their journals go on."""
    assert Header(BOX).to_dict() == {"box": BOX.state_dict()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chosen": 2}, "chosen is run 2 of 2"),
        ({"chosen": -1}, "`chosen` must be at least 0"),
        ({"knots": {"s": [0.0]}}, "knots of s, but the box does not have weights for all of them"),
        ({"search": {"weights": None}}, "'scale'"),
        ({"reference": {"plain": {"test error": "low"}}}, "could not convert string"),
        ({"box": None}, "A box's state must be as documented"),
        ({"unit": "week"}, "`unit` must be one of run, epoch, step; found 'week'"),
        ({"policy": {"epsilon": "inf", "window": 0}}, "`window` must be at least 1"),
        ({"policy": {"epsilon": "inf", "memory": 3}}, "'memory'"),
        ({"final": {"l2": 1.0}}, "'r/right0'"),
    ],
)
def test_a_header_that_does_not_fit_its_journal_is_refused(change, message):
    with pytest.raises(InvalidInput, match=message):
        Header.from_dict(Header(BOX).to_dict() | change, n_runs=2, where="The first line of a.jsonl")


@pytest.mark.parametrize(
    "run",
    [
        Run(0, WEIGHTS, Observation(1.0, [1.0, 2.0, 3.0, 4.0])),
        Run(3, WEIGHTS, None, failed="diverged", info={"test error": 0.5}),
        Run(None, None, Observation(1.0, [1.0, 2.0, 3.0, 4.0], metric=0.5)),
        Run(1, WEIGHTS, Observation(1.0, [1.0, 2.0, 3.0, 4.0]), form="paper", way="learned"),
        Run(1, WEIGHTS, Observation(1.0, [1.0, 2.0, 3.0, 4.0]), step=LearnedStep(2, note="held")),
        Run(1, WEIGHTS, None, "no", step=LearnedStep(3, WEIGHTS, 2.0, 0.5, 3, 1.5, 0.1, 0.7)),
    ],
)
def test_a_run_comes_back_as_it_was(run):
    assert Run.from_dict(as_json(run.to_dict())).to_dict() == run.to_dict()


def test_the_best_run_is_that_of_least_metric_then_error_and_of_equals_the_last():
    models = [(0.5, 1.0), (0.4, 3.0), (0.4, 2.0), (0.4, 2.0)]
    runs = [Run(i, WEIGHTS, Observation(e, [1.0], metric=m)) for i, (m, e) in enumerate(models)]
    assert best_run([*runs, Run(9, WEIGHTS, None, failed="no")]) is runs[3]
    assert best_run([Run(None, None, Observation(0.0, [1.0], metric=0.0)), *runs[:2]]) is runs[1]
    assert best_run([]) is None

"""What the page tells a reader to type does what the page says."""

import json
from pathlib import Path

import pytest

from tests.report.test_runs_page import BOX, train
from tuneloss import Box, LossTuner, Observation
from tuneloss.report.gains import gain_shares
from tuneloss.report.next_code import compare_code, more_runs_code, weights_code, wider_box_code
from tuneloss.report.next_steps import next_steps
from tuneloss.report.runs_info import read_runs, runs_info
from tuneloss.report.verdict import verdict
from tuneloss.tuning.history import StepRecord
from tuneloss.tuning.online_journal import MADE_BY, write_online_journal
from tuneloss.tuning.run import Header, LastLearned, Run


@pytest.fixture
def info(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LossTuner(BOX, journal="runs.jsonl").run(train, n_runs=3, progress=False)
    return read_runs(tmp_path / "runs.jsonl")


def typed(code):
    """Run code as a reader would, and return its variables."""
    names = {"Box": Box, "LossTuner": LossTuner, "train": train, "box": BOX}
    exec(code, names)
    return names


def test_the_weights_to_type_are_those_of_the_best_run(info):
    assert typed(weights_code(info))["weights"] == pytest.approx(info.best.weights, rel=0.005)  # three digits
    box = Box.from_dict({**{f"w{j}": (0.0, 1.0) for j in range(20)}, "fit": 1.0})
    tuner = LossTuner(box, journal="many.jsonl")
    tuner.tell(tuner.ask(), Observation(1.0, [1.0] * 21))
    names = {"LossTuner": LossTuner, "box": box}
    exec(weights_code(read_runs(Path("many.jsonl"))), names)
    assert names["weights"] == tuner.best.weights


def test_more_runs_are_added_to_the_journal(info):
    assert typed(more_runs_code(info))["tuner"].n_runs == 8


def test_the_wider_box_continues_the_journal(info):
    tuner = typed(wider_box_code(info, {"l2": "lower", "smooth": "upper"}))["tuner"]
    assert tuner.n_runs == 8
    box = read_runs(Path("runs.jsonl")).box
    assert (box.lower[0], box.upper[1]) == pytest.approx((0.001, 10_000))
    assert (box.upper[0], box.lower[1]) == (BOX.upper[0], BOX.lower[1])


def online(path, errors, compare=None, n=1):
    box = Box.from_dict({**{f"w{j}": (0.0, 1.0) for j in range(n)}, "fit": 1.0})
    weights = dict.fromkeys(box.names, 1.0)
    history = [
        StepRecord(i + 1, e, None, weights, weights, None, None, None, None, "", 0.1) for i, e in enumerate(errors)
    ]
    reference = {name: {"score": score} for name, score in (compare or {}).items()}
    header = Header(box, "online", made_by=MADE_BY, reference=reference, final=weights, unit="epoch", run_id="a")
    return read_runs(write_online_journal(path, header, history, []))


def test_an_online_run_says_how_to_go_back_and_what_to_compare_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    info = online(tmp_path / "a.jsonl", [2.0, 1.0, 1.5], n=20)
    steps = next_steps(info)
    assert "The validation error was 1.000 at epoch 2 and 1.500 at the last one, 50% higher." in steps
    assert "tuner.restore_best()" in steps
    assert "See what tuning gained" in steps
    assert typed(weights_code(info))["weights"] == info.used_weights
    assert verdict(info).headline == "A validation error of 1.000 at epoch 2, the best of 3; the last epoch had 1.500."
    written = {}

    class Tuner:
        def write_journal(self, path, compare):
            written[path] = compare

    exec(compare_code(info), {"tuner": Tuner()})
    assert written == {"a.jsonl": {"the same run without tuning": ...}}
    other = online(tmp_path / "b.jsonl", [2.0, 1.0], {"the same run without tuning": 1.25})
    assert "See what tuning gained" not in next_steps(other)
    assert verdict(other).headline == "1.000 against 1.250 of the same run without tuning: 20% lower."


def test_after_runs_without_a_gain_it_says_stop():
    runs = [Run(i, {"a": 1.0, "fit": 1.0}, Observation(1.0 + i, [1.0, 1.0])) for i in range(6)]
    box = Box.from_dict({"a": (0.0, 2.0), "fit": 1.0})
    assert "The last 5 runs brought no gain." in next_steps(runs_info(Header(box, "a"), runs))
    assert "The best run is 4 before the last." in next_steps(runs_info(Header(box, "a"), runs[:5]))


@pytest.mark.parametrize(
    ("score", "headline", "prefers_other"),
    [
        (0.25, "0.2500 against 0.5000 of plain: 50% lower.", False),
        (0.499, "Hardly a gain: 0.4990 against 0.5000 of plain, 0.2% lower.", False),
        (0.5, "No gain: 0.5000, as plain.", False),
        (0.75, "No gain: 0.7500 against 0.5000 of plain.", True),
    ],
)
def test_a_fit_is_compared_with_the_best_other_model(score, headline, prefers_other):
    box = Box.from_dict({"a": (0.0, 2.0), "fit": 1.0})
    reference = {"tuned": {"test": score}, "plain": {"test": 0.5}, "worse": {"test": 0.9}}
    header = Header(box, "a", reference=reference, search=LastLearned(), chosen=0)
    info = runs_info(header, [Run(0, {"a": 1.0, "fit": 1.0}, Observation(1.0, [1.0, 1.0]))])
    assert verdict(info).headline == headline
    assert ("Consider the other model" in next_steps(info)) is prefers_other
    assert "tuneloss predict model.npz" in next_steps(info)


def test_shares_of_the_gain_add_to_it_and_a_weight_that_stays_has_none():
    runs = []
    for i, smooth in enumerate((1.0, 5.0, 20.0)):
        weights = {"l2": 1.0, "smooth": smooth, "fit": 1.0}
        runs.append(Run(i, weights, train(weights)))
    alone = gain_shares(runs_info(Header(BOX, "a"), runs))
    assert alone == pytest.approx({"l2": 0.0, "smooth": 1.0})
    assert verdict(runs_info(Header(BOX, "a"), runs)).headline.endswith("lower; smooth did most of it.")
    without = [Run(r.run, r.weights, Observation(r.observation.error, r.observation.features)) for r in runs]
    assert gain_shares(runs_info(Header(BOX, "a"), without)) == {}


def test_code_quotes_any_name(tmp_path):
    """A name with quotes stays one string."""
    name = 'a"\\'
    box = Box.from_dict({name: (0.1, 10.0), "fit": 1.0})
    info = runs_info(Header(box, "a"), [Run(0, {name: 1.0, "fit": 1.0}, Observation(1.0, [1.0, 1.0]))])
    assert typed(weights_code(info))["weights"] == {name: 1.0, "fit": 1.0}
    assert json.dumps(name) in wider_box_code(info, {name: "upper"})

"""Whose turn it is to propose. With neither gradients nor a model, the form of the best learned run leads."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.far_starts.problems import FAMILIES
from tests.core.problems import ridge
from tuneloss import Box, LossTuner, Observation, learn_loss
from tuneloss.core.learn import Learner
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.tuning import proposals
from tuneloss.tuning.journal import read_lines
from tuneloss.tuning.local_steps import LocalSteps
from tuneloss.tuning.proposals import Proposer, _rests, short_decimals
from tuneloss.tuning.run import Run

BOX = Box.from_dict({"l2": (0.1, 1000.0), "fit": 1.0})
WIDE_BOX = Box.from_dict({"l2": (0.01, 1000.0), "fit": 1.0})
TRAIN = ridge(1)
FIRST = {"l2": 3.0, "fit": 1.0}
FORMS = ["calibrated", "paper"]


def train(weights: dict[str, float], error: float | None = None) -> Observation:
    """A model of a ridge regression without its gradients, whose error may be told otherwise."""
    model = TRAIN(weights).without_gram()
    return model if error is None else replace(model, error=error)


def other_than(form: str) -> str:
    return "paper" if form == "calibrated" else "calibrated"


def tuner_with(*runs: tuple[dict[str, float], float | None, str | None]) -> LossTuner:
    """A tuner that was told runs of (weights, error, form); without an error the run failed."""
    tuner = LossTuner(BOX)
    for weights, error, form in runs:
        if error is None:
            tuner.tell(weights, failed="diverged", form=form)
        else:
            tuner.tell(weights, train(weights, error), form=form)
    return tuner


def point(l2: float) -> dict[str, float]:
    return {"l2": l2, "fit": 1.0}


@pytest.fixture
def without_model(monkeypatch):
    """As with more than ten free weights: the two forms alone take turns, and the other one has every third."""
    monkeypatch.setattr(proposals, "MANY", 0)


def leader(tuner: LossTuner) -> str:
    """The form that leads: that of the next proposal, or the other one if this is its turn."""
    form = tuner.propose().form
    return other_than(form) if tuner.n_runs % 3 == 2 else form


@pytest.mark.usefixtures("without_model")
@pytest.mark.parametrize("leads", FORMS)
@pytest.mark.parametrize("first", [3000.0, 1000.0])
def test_the_form_that_proposed_the_best_learned_run_leads(leads, first):
    """Though the first run, which nobody learned, may be better still, and worse runs of the other form follow."""
    tuner = tuner_with((FIRST, first, None), (point(1.0), 2000.0, leads), (point(2.0), 4000.0, other_than(leads)))
    assert leader(tuner) == leads


def test_without_a_learned_run_the_calibrated_form_leads():
    """One run; failed runs; runs with weights of the user's own."""
    for tuner in (
        tuner_with((FIRST, 3000.0, None)),
        tuner_with((FIRST, 3000.0, None), (point(1.0), None, "paper")),
        tuner_with((FIRST, 3000.0, None), (point(1.0), 2000.0, None)),
    ):
        assert leader(tuner) == "calibrated"


@pytest.mark.usefixtures("without_model")
def test_the_best_is_so_by_its_metric():
    """The paper's weights have the lower metric, the calibrated ones the lower error."""
    tuner = LossTuner(BOX)
    tuner.tell(FIRST, replace(train(FIRST, 3000.0), metric=0.5))
    for l2, form, error, metric in ((1.0, "calibrated", 2000.0, 0.9), (2.0, "paper", 2500.0, 0.1)):
        tuner.tell(point(l2), replace(train(point(l2), error), metric=metric), form=form)
    assert leader(tuner) == "paper"


@pytest.mark.usefixtures("without_model")
def test_all_checkpoints_of_a_run_count_for_the_form_that_proposed_it():
    tuner = tuner_with((FIRST, 3000.0, None), (point(1.0), 2000.0, "calibrated"), (point(2.0), 2500.0, "paper"))
    tuner.tell(point(2.0), train(point(2.0), 1500.0))
    assert [run.form for run in tuner.history] == [None, "calibrated", "paper", "paper"]
    assert [run.run for run in tuner.history] == [0, 1, 2, 2]
    assert leader(tuner) == "paper"


@pytest.mark.usefixtures("without_model")
@pytest.mark.parametrize("leads", FORMS)
def test_a_tuner_asks_what_these_forms_learn(leads):
    """Also after a round trip through its state. What this form proposes is told as better than all before."""
    tuner, other = LossTuner(BOX), other_than(leads)
    forms = ["calibrated", "paper", leads, leads, other, leads, leads]
    tuner.tell(FIRST, train(FIRST))
    for run, form in enumerate(forms):
        before = [told.observation for told in tuner.history]
        again = LossTuner.from_state_dict(json.loads(json.dumps(tuner.state_dict())))
        weights = tuner.ask()
        assert weights == again.ask() == learn_loss(before, BOX, objective=form).as_dict()
        assert tuner.learned.objective == form
        tuner.tell(weights, train(weights, 3000.0 - run if form == leads else 3500.0))
    assert [told.form for told in tuner.history] == [None, *forms]


@pytest.mark.usefixtures("without_model")
@pytest.mark.parametrize("leads", FORMS)
def test_of_parallel_proposals_every_third_is_the_others(leads):
    """Pending points count as asked for; each is told with its own form, in whatever order, also after a resume."""
    other = other_than(leads)
    tuner = tuner_with((FIRST, 3000.0, None), (point(1.0), 2000.0, leads))
    proposals = [tuner.propose() for _ in range(6)]
    assert [proposal.form for proposal in proposals] == [other, leads, leads, other, leads, leads]
    tuner = LossTuner.from_state_dict(json.loads(json.dumps(tuner.state_dict())))
    for proposal in reversed(proposals):
        weights = BOX.as_dict(proposal.point)
        tuner.tell(weights, train(weights))
    assert [run.form for run in tuner.history[2:]] == [leads, leads, other, leads, leads, other]


def test_the_form_of_a_run_is_in_the_journal_and_may_be_missing(tmp_path):
    """A resumed tuner has the same leader; records without a form, or with a wrong one, are read or refused."""
    path = tmp_path / "runs.jsonl"
    tuner = LossTuner(BOX, journal=path)
    for weights, error, form in ((FIRST, 3000.0, None), (point(1.0), 2000.0, "paper")):
        tuner.tell(weights, train(weights, error), form=form)
    assert [run.form for run in LossTuner(BOX, journal=path).history] == [None, "paper"]
    record = tuner.history[1].to_dict()
    assert Run.from_dict({name: value for name, value in record.items() if name != "form"}).form is None
    with pytest.raises(InvalidInput, match='`form` must be "calibrated", "paper" or None; found \'best\''):
        Run.from_dict(record | {"form": "best"})
    with pytest.raises(InvalidInput, match="`form` must be"):
        tuner.tell(FIRST, train(FIRST), form="best")


def test_the_turns_are_those_that_the_docstring_says():
    """Forms of eight proposals: in a narrow box LearnLoss opens; in a wide one, a step by signs does."""
    narrow = Box.from_dict({"l2": (0.1, 100.0), "fit": 1.0})
    forms = {}
    for name, box in (("narrow", narrow), ("wide", WIDE_BOX)):
        tuner = LossTuner(box, start=FIRST)
        for _ in range(9):
            weights = tuner.ask()
            error = 3000.0 + abs(np.log(weights["l2"] / 3.0))  # the start stays the best: nothing leads on from it
            tuner.tell(weights, replace(TRAIN(weights), error=error))
        forms[name] = [run.form for run in tuner.history[1:]]
    cycle = [None, None, "calibrated", "paper"]  # model, signs, local, other
    assert forms["narrow"] == ["calibrated", "paper", *forms["narrow"][2:4], *cycle]
    assert None not in forms["narrow"][:4]
    assert forms["wide"] == [None, "calibrated", "calibrated", None, *cycle]


def asked_turns(monkeypatch) -> list[str]:
    """A list that fills with the turns that a tuner takes."""
    turns, ask = [], Proposer._turn

    def note(self, n_turns, tried):
        turn, n_cycles = ask(self, n_turns, tried)
        turns.append(turn)
        return turn, n_cycles

    monkeypatch.setattr(Proposer, "_turn", note)
    return turns


@pytest.mark.parametrize(
    ("n_weights", "cycle"), [(10, ["model", "signs", "local", "other"]), (11, ["local", "signs", "other", "local"])]
)
def test_the_cycle_after_the_opening(monkeypatch, n_weights, cycle):
    """With more than ten free weights, without the model."""
    turns = asked_turns(monkeypatch)
    box = Box.from_dict({f"l2_{j}": (0.1, 10.0) for j in range(n_weights)} | {"fit": 1.0})
    rng = np.random.default_rng(0)
    jacobian, gradient = rng.normal(size=(30, n_weights + 1)), rng.normal(size=30)
    tuner = LossTuner(box)
    for run in range(9):
        features = rng.uniform(1, 2, n_weights + 1)
        tuner.tell(tuner.ask(), Observation.from_gradients(5.0 + run, features, gradient, jacobian))
    assert turns[4:] == cycle


def told(tuner: LossTuner, *runs: tuple[float, str]) -> LossTuner:
    """Tell runs of (error, way), at different weights; all have the same slopes."""
    records = [
        Run(i, point(1.5**i), Observation.from_gradients(error, [1.0, 1.0], [1.0, 1.0], np.eye(2)), way=way)
        for i, (error, way) in enumerate(runs)
    ]
    tuner._ledger.extend(records)
    return tuner


def test_a_way_that_proposed_poor_runs_rests_and_the_model_has_its_turns():
    """After one poor proposal every second turn, after two every fourth, after three or more every eighth."""
    opening = [(5.0, "start"), *[(4.0, "learned")] * 4]
    for n_poor, share in ((0, 1), (1, 2), (2, 4), (3, 8), (5, 8)):
        runs = [*opening, *[(9.0, "signs")] * n_poor, *[(3.0, "model")] * 8]
        ledger = told(LossTuner(BOX), *runs)._ledger
        assert [n for n in range(16) if not _rests(ledger, "signs", n)] == list(range(0, 16, share))
        assert not any(_rests(ledger, "model", n) for n in range(16))
    recovered = told(LossTuner(BOX), *opening, (9.0, "signs"), (9.0, "signs"), (3.0, "signs"), (6.0, "model"))
    assert not _rests(recovered._ledger, "signs", 1)


def test_failed_runs_are_poor():
    """However many there are."""
    tuner = told(LossTuner(BOX), (5.0, "start"), (4.0, "learned"), (3.0, "model"))
    for n in range(3, 8):
        tuner._ledger.extend([Run(n, point(9.0 + n), None, "diverged", way="signs")])
        assert _rests(tuner._ledger, "signs", 1)


def test_a_way_rests_by_runs_and_not_by_their_checkpoints():
    """Of several models of a run, the best one counts; models of the initial set are no runs."""
    tuner = told(LossTuner(BOX), (5.0, "start"), (4.0, "learned"), (9.0, "signs"))
    run = tuner.history[-1]
    tuner._ledger.extend([replace(run, observation=replace(run.observation, error=10.0))] * 2)
    assert [n for n in range(8) if not _rests(tuner._ledger, "signs", n)] == [0, 2, 4, 6]  # one poor run, not three
    tuner._ledger.extend([replace(run, observation=replace(run.observation, error=1.0))])
    assert not _rests(tuner._ledger, "signs", 1)
    tuner._ledger.extend([Run(None, None, replace(run.observation, error=0.1))] * 6)
    assert not _rests(tuner._ledger, "signs", 1)


def test_the_model_has_the_turn_of_a_way_that_rests(monkeypatch):
    """`signs` proposed two poor runs: of its next four turns it has the last one."""
    tuner = told(
        LossTuner(BOX), (5.0, "start"), *[(4.0, "learned")] * 4, (9.0, "signs"), (9.0, "signs"), (3.0, "model")
    )
    ways = []
    for n_cycles in (1, 2, 3, 4):
        monkeypatch.setattr(Proposer, "_turn", lambda self, n_turns, tried, n=n_cycles: ("signs", n))
        proposal = tuner.propose()
        tuner.release(BOX.as_dict(proposal.point))
        ways.append(proposal.way)
    assert ways == ["model", "model", "model", "signs"]


@pytest.mark.parametrize("has_gram", [True, False])
def test_the_model_looks_anywhere_in_a_third_of_its_turns_and_always_without_slopes(monkeypatch, has_gram):
    asked = []

    def note(self, pending, failed, anywhere, rng):
        asked.append((anywhere, len(pending), len(failed)))
        return BOX.as_array(point(20.0 + len(asked)))

    monkeypatch.setattr(LocalSteps, "by_model", note)
    monkeypatch.setattr(Proposer, "_turn", lambda self, n_turns, tried: ("model", 0))
    for seed in range(30):
        tuner = LossTuner(BOX, seed=seed)
        for l2 in (1.0, 3.0, 9.0):
            tuner.tell(point(l2), TRAIN(point(l2)) if has_gram else train(point(l2)))
        tuner.tell(point(500.0), failed="diverged")
        tuner.ask(2)
    assert [pending for _, pending, _ in asked] == [0, 1] * 30
    assert {failed for *_, failed in asked} == {1}
    share = np.mean([anywhere for anywhere, *_ in asked])
    assert 0.15 < share < 0.55 if has_gram else share == 1


def test_the_model_has_the_turn_of_a_way_that_would_repeat_weights(monkeypatch):
    """After the opening. With fallback="repeat", weights may be repeated."""
    ways = {}
    for fallback in ("nearby", "repeat"):
        tuner = told(LossTuner(BOX, fallback=fallback), (5.0, "start"), *[(4.0, "learned")] * 5)
        monkeypatch.setattr(Proposer, "_turn", lambda self, n_turns, tried: ("signs", 0))
        monkeypatch.setattr(LocalSteps, "by_signs", lambda self: BOX.as_array(point(1.5)))
        ways[fallback] = tuner.propose().way
    assert ways == {"nearby": "model", "repeat": "signs"}


def test_without_gradients_the_center_of_a_wide_box_comes_after_the_start_points():
    """Not in a narrow box, not if a start point was there, and not where a weight has no upper bound."""
    tuner = LossTuner(WIDE_BOX, start=[point(100.0), point(300.0)])
    for _ in range(2):
        weights = tuner.ask()
        tuner.tell(weights, train(weights))
    assert tuner.propose().way == "center"
    endless = LossTuner(Box.from_dict({"l2": (0, None), "fit": 1.0}))
    endless.tell(point(100.0), train(point(100.0)))
    assert endless.propose().way == "learned"
    for box, first, way in ((WIDE_BOX, 100.0, "center"), (BOX, 100.0, "learned"), (WIDE_BOX, 10**0.5, "learned")):
        tuner = LossTuner(box)
        tuner.tell(point(first), train(point(first)))
        assert tuner.propose().way == way


@pytest.mark.parametrize("seed", [0, 4, 7])
def test_without_gradients_the_model_has_every_other_turn_and_finds_the_best(seed):
    """Ridge regressions with one and two penalties in boxes of 6 to 10 decades: within 2% after 25 runs."""
    problem = FAMILIES["ridge"](seed)
    tuner = LossTuner(problem.box, start=problem.start)
    for _ in range(25):
        weights = tuner.ask()
        tuner.tell(weights, problem.observe(weights).without_gram())
    ways = [run.way for run in tuner.history]
    assert ways[:2] == ["start", "center"]
    assert ways[2::2].count("model") == 12
    assert tuner.best.observation.error < 1.02 * problem.least_error()


@pytest.mark.parametrize(("low", "second"), [(0.1, "signs"), (1e-4, "leader")])
def test_in_a_narrow_box_signs_take_over_where_the_error_still_falls(monkeypatch, low, second):
    """In a wide box the opening stays as it is."""
    turns = asked_turns(monkeypatch)
    tuner = LossTuner(Box.from_dict({"a": (low, 1 / low), "fit": 1.0}))
    for a, error in ((1.0, 5.0), (2.0, 4.0)):
        model = Observation.from_gradients(error, [1.0, 1.0], [1.0, 1.0], np.eye(2))
        tuner.tell({"a": a, "fit": 1.0}, model)
    tuner.ask()
    assert turns == [second]


@pytest.mark.parametrize("form", FORMS)
def test_a_local_turn_learns_from_the_best_run_alone_and_goes_beyond(monkeypatch, form):
    """If the paper's form proposed the best run, it learns in that form, from all runs."""
    box = Box.from_dict({"l2": (0.1, 1000.0), "fit": 1.0})
    tuner = LossTuner(box)
    for l2 in (0.5, 1.0, 2.0):
        tuner.tell(point(l2), TRAIN(point(l2)), form=form)
    seen = [run.observation for run in tuner.history]
    steps = LocalSteps(box)
    steps.follow(tuner.history)
    monkeypatch.setattr(Proposer, "_turn", lambda self, n_turns, tried: ("local", -1))
    if form == "paper":
        assert tuner.ask() == learn_loss(seen, box, objective="paper").as_dict()
    else:
        target = learn_loss(seen, box, sample_weight=[0.0, 0.0, 1.0]).weights
        assert tuner.ask() == box.as_dict(steps.beyond(target)) != box.as_dict(target)


@pytest.mark.parametrize("decades", [2, 8])
def test_parallel_proposals_differ_and_a_resumed_tuner_goes_on_the_same_way(decades, tmp_path):
    """Six at once, after one run and after seven, with a failed one among them."""
    box = Box.from_dict({"l2": (10.0 ** (-decades / 2), 10.0 ** (decades / 2)), "fit": 1.0})
    tuner = LossTuner(box, start=FIRST, journal=tmp_path / "runs.jsonl")
    tuner.tell(tuner.ask(), TRAIN(FIRST))
    for _ in range(2):
        proposals = tuner.ask(6)
        assert len({weights["l2"] for weights in proposals}) == 6
        assert LossTuner(box, start=FIRST, journal=tmp_path / "runs.jsonl").ask(6) == proposals
        tuner.tell(proposals[0], failed="diverged")
        for weights in proposals[1:]:
            tuner.tell(weights, TRAIN(weights))


@pytest.mark.usefixtures("without_model")
def test_a_fallback_keeps_the_form(monkeypatch):
    """A point moved away from one that was tried counts for the form that was meant."""
    tuner = LossTuner(BOX)
    tuner.tell(FIRST, train(FIRST))
    learned = tuner.ask()
    tuner.tell(learned, train(learned, 2000.0))
    same = learn_loss([train(FIRST)], BOX, objective="calibrated")
    monkeypatch.setattr(Learner, "learn", lambda *_, **options: same)
    proposal = tuner.propose()
    assert BOX.as_dict(proposal.point) != learned
    assert proposal.form == "paper"


def test_without_a_solution_the_next_weights_are_near_the_best_and_count_for_no_form(monkeypatch):
    def fails(*args, **options):
        raise SolverError("no solver today")

    tuner = tuner_with((FIRST, 3000.0, None))
    monkeypatch.setattr(Learner, "learn", fails)
    with pytest.warns(RuntimeWarning, match="no weights for this proposal, since no solver today"):
        assert tuner.propose().form is None


def test_a_run_keeps_the_way_in_which_it_was_proposed(tmp_path):
    """In the history, in the journal, and for a proposal that is pending while the tuner's state is saved."""
    tuner = LossTuner(Box.from_dict({"l2": (0.01, 10.0), "fit": 1.0}), start=FIRST, journal=tmp_path / "runs.jsonl")
    for _ in range(7):
        weights = tuner.ask()
        tuner.tell(weights, TRAIN(weights))
    tuner.tell(point(0.5), TRAIN(point(0.5)))
    ways = [run.way for run in tuner.history]
    assert ways[0] == "start"
    assert set(ways[1:-1]) <= {"learned", "signs", "model", "local", "nearby"}
    assert "learned" in ways
    assert ways[-1] == ""  # the user's own
    assert [record.get("way", "") for record in read_lines(tmp_path / "runs.jsonl")[1]] == ways
    other = LossTuner(BOX)
    weights = other.ask()
    resumed = LossTuner.from_state_dict(json.loads(json.dumps(other.state_dict())))
    resumed.tell(weights, TRAIN(weights))
    assert [run.way for run in resumed.history] == ["center"]


def test_rounding_errors_are_not_proposed(tmp_path):
    """The square root of 0.001 * 1000 is 0.9999999999999999 in floats; the weight that is asked, told and kept is 1."""
    box = Box.from_dict({"l2": (0.001, 1000.0), "fit": 1.0})
    tuner = LossTuner(box, journal=tmp_path / "runs.jsonl")
    asked = tuner.ask()
    assert asked == {"l2": 1.0, "fit": 1.0}
    tuner.tell(asked, train(asked))
    assert tuner.best.weights == asked
    assert LossTuner(box, journal=tmp_path / "runs.jsonl").best.weights == asked


@given(weight=st.floats(1e-9, 1e9), low=st.floats(1e-9, 1.0), high=st.floats(1.0, 1e9))
def test_a_weight_changes_by_rounding_errors_at_most_and_never_at_a_bound(weight, low, high):
    box = Box(low, high, ["w"])
    weight = float(np.clip(weight, low, high))
    found = short_decimals(box, np.array([weight]))
    box.as_array(found)
    assert found[0] == pytest.approx(weight, rel=2e-14, abs=0)
    assert (short_decimals(box, found) == found).all()
    for bound in (low, high):
        assert short_decimals(box, np.array([bound])) == bound
    for noise in (-3e-15, 3e-15):
        if low < 0.7 < high:
            assert short_decimals(box, np.array([0.7 * (1 + noise)])) == 0.7


def test_a_simplex_keeps_its_sum():
    thirds = np.full(3, 1 / 3)
    box = Box.simplex(["a", "b", "c"])
    assert short_decimals(box, thirds) is thirds

"""Both forms of the cost in one tuner: the one that led to the best run learns two of three, the other every third."""

import json
from dataclasses import replace

import pytest

from tests.core.problems import ridge
from tuneloss import Box, LossTuner, Observation, learn_loss
from tuneloss.errors import SolverError
from tuneloss.tuning.run import Run
from tuneloss.tuning.sampling import distance
from tuneloss.tuning.turns import leading_form, next_form

BOX = Box.from_dict({"l2": (0.01, 1000.0), "fit": 1.0})
TRAIN = ridge(1)
FIRST = {"l2": 3.0, "fit": 1.0}


def train(weights: dict[str, float], error: float | None = None) -> Observation:
    """A model of a ridge regression, whose error may be told otherwise."""
    found = TRAIN(weights)
    return found if error is None else replace(found, error=error)


def proposed(form: str, error: float) -> dict[str, float]:
    """What this form says to the first run alone."""
    return learn_loss([train(FIRST, error)], BOX, objective=form).as_dict()


def told(*runs: tuple[int | None, dict[str, float], float | None]) -> list[Run]:
    """A history of (number, weights, error); without an error the run failed."""
    return [
        Run(n, w if n is not None else None, None if e is None else train(w, e), None if e is not None else "diverged")
        for n, w, e in runs
    ]


@pytest.mark.parametrize("leads", ["calibrated", "paper"])
@pytest.mark.parametrize("first", [3000.0, 1000.0])
def test_the_form_that_proposed_the_best_run_leads(leads, first):
    """Though the first run, which nobody learned, may be better still, and worse runs follow."""
    assert distance(BOX, *(BOX.as_array(proposed(form, first)) for form in ("calibrated", "paper"))) > 0.05
    history = told((0, FIRST, first), (1, proposed(leads, first), 2000.0), (2, FIRST, 4000.0))
    assert leading_form(history, BOX, "balanced") == leads


@pytest.mark.parametrize("leads", ["calibrated", "paper"])
def test_a_point_that_was_moved_counts_for_the_form_it_is_near(leads):
    """As by the fallback, or by the random sample weights of parallel proposals."""
    moved = {"l2": 1.1 * proposed(leads, 3000.0)["l2"], "fit": 1.0}
    assert leading_form(told((0, FIRST, 3000.0), (1, moved, 2000.0)), BOX, "balanced") == leads


def test_without_evidence_the_calibrated_form_leads():
    """Nothing told; one run; failed runs; a first success with nothing before it."""
    for history in (
        told(),
        told((0, FIRST, 3000.0)),
        told((0, FIRST, None), (1, proposed("paper", 3000.0), None)),
        told((0, FIRST, None), (1, proposed("paper", 3000.0), 2000.0)),
    ):
        assert leading_form(history, BOX, "balanced") == "calibrated"


@pytest.mark.parametrize("leads", ["calibrated", "paper"])
def test_all_that_was_told_before_the_best_run_counts_and_nothing_else(leads):
    """Before it: a model of the initial set, or a run, perhaps after one that failed, which says nothing. After it:
    another model of the initial set, a checkpoint of the same run, a second try of the one that failed."""
    best, far = (1, proposed(leads, 3000.0), 2000.0), {"l2": 500.0, "fit": 1.0}
    for before in ([(None, FIRST, 3000.0)], [(0, FIRST, 3000.0)], [(5, far, None), (0, FIRST, 3000.0)]):
        for after in ([], [(None, far, 2500.0)], [(1, best[1], 2100.0)], [(5, far, 2500.0)]):
            assert leading_form(told(*before, best, *after), BOX, "balanced") == leads
    assert leading_form(told((None, FIRST, 3000.0), (0, proposed(leads, 3000.0), 2000.0)), BOX, "balanced") == leads


def test_the_best_is_so_by_its_metric():
    """The paper's weights have the lower metric, the calibrated ones the lower error."""
    by_form = {"calibrated": (2000.0, 0.9), "paper": (2500.0, 0.1)}
    for leads, order in (("paper", ("calibrated", "paper")), ("calibrated", ("calibrated",))):
        tuner = LossTuner(BOX)
        tuner.tell(FIRST, replace(train(FIRST, 3000.0), metric=0.5))
        for form in order:
            before = [run.observation for run in tuner.history]
            weights = learn_loss(before, BOX, objective=form).as_dict()
            error, metric = by_form[form]
            tuner.tell(weights, replace(train(weights, error), metric=metric))
        assert leading_form(tuner.history, BOX, "balanced") == leads


def test_what_is_known_is_not_learned_again(monkeypatch):
    """The form of the best run is found once, and again only for another best run."""
    history, known, calls = told((0, FIRST, 3000.0), (1, proposed("paper", 3000.0), 2000.0)), {}, []

    def counted(*args, **kwargs):
        calls.append(kwargs["objective"])
        return learn_loss(*args, **kwargs)

    monkeypatch.setattr("tuneloss.tuning.turns.learn_loss", counted)
    for worse in range(3):
        assert leading_form(history + told((2 + worse, FIRST, 4000.0)), BOX, "balanced", known) == "paper"
    assert sorted(calls) == ["calibrated", "paper"]
    leading_form(history + told((2, FIRST, 1000.0)), BOX, "balanced", known)
    assert sorted(calls) == ["calibrated", "calibrated", "paper", "paper"]


def test_if_nothing_can_be_solved_the_calibrated_form_leads(monkeypatch):
    def fails(*args, **kwargs):
        raise SolverError("no")

    history = told((0, FIRST, 3000.0), (1, proposed("paper", 3000.0), 2000.0))
    assert leading_form(history, BOX, "balanced") == "paper"
    monkeypatch.setattr("tuneloss.tuning.turns.learn_loss", fails)
    assert leading_form(history, BOX, "balanced") == "calibrated"


@pytest.mark.parametrize("leads", ["calibrated", "paper"])
def test_every_third_point_is_the_others(leads):
    other = "paper" if leads == "calibrated" else "calibrated"
    history = told((0, FIRST, 3000.0), (1, proposed(leads, 3000.0), 2000.0))
    forms = [next_form(history, asked, BOX, "balanced") for asked in range(2, 8)]
    assert forms == [other, leads, leads, other, leads, leads]


@pytest.mark.parametrize("leads", ["calibrated", "paper"])
def test_a_tuner_asks_what_these_forms_learn(leads):
    """Also after a round trip through its state. Whatever this form proposes is told as better than all before."""
    tuner, other = LossTuner(BOX), "paper" if leads == "calibrated" else "calibrated"
    forms = ["calibrated", "paper", leads, leads, other, leads, leads]
    tuner.tell(FIRST, train(FIRST))
    for run, form in enumerate(forms):
        before = [one.observation for one in tuner.history]
        again = LossTuner.from_state_dict(json.loads(json.dumps(tuner.state_dict())))
        asked = tuner.ask()
        assert asked == again.ask() == learn_loss(before, BOX, objective=form).as_dict()
        assert tuner.learned.objective == form
        tuner.tell(asked, train(asked, 3000.0 - run if form == leads else 3500.0))


@pytest.mark.parametrize("leads", ["calibrated", "paper"])
def test_of_parallel_proposals_every_third_is_the_others(leads):
    """Pending points count as asked for: `learned` tells the form of each."""
    tuner, other = LossTuner(BOX), "paper" if leads == "calibrated" else "calibrated"
    for run in told((0, FIRST, 3000.0), (1, proposed(leads, 3000.0), 2000.0)):
        tuner.tell(run.weights, run.observation)
    forms = []
    for _ in range(6):
        tuner.ask()
        forms.append(tuner.learned.objective)
    assert forms == [other, leads, leads, other, leads, leads]

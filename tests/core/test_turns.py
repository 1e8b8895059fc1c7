"""Both forms of the cost in one tuner: the one that led to the best run learns two of three, the other every third."""

import json
from dataclasses import replace

import pytest

from tests.core.problems import ridge
from tuneloss import Box, LossTuner, Observation, learn_loss
from tuneloss.core.runs import Run
from tuneloss.core.sample import distance
from tuneloss.core.turns import leading_form, next_form
from tuneloss.errors import SolverError

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


def test_models_of_the_initial_set_are_learned_from():
    """The first run counts for nobody, even so; the second is judged by all that was there before it."""
    history = told((None, FIRST, 3000.0), (0, FIRST, None), (1, proposed("paper", 3000.0), 2000.0))
    assert leading_form(history, BOX, "balanced") == "paper"


def test_if_nothing_can_be_solved_the_calibrated_form_leads(monkeypatch):
    def fails(*args, **kwargs):
        raise SolverError("no")

    history = told((0, FIRST, 3000.0), (1, proposed("paper", 3000.0), 2000.0))
    assert leading_form(history, BOX, "balanced") == "paper"
    monkeypatch.setattr("tuneloss.core.turns.learn_loss", fails)
    assert leading_form(history, BOX, "balanced") == "calibrated"


@pytest.mark.parametrize("leads", ["calibrated", "paper"])
def test_every_third_point_is_the_others(leads):
    other = "paper" if leads == "calibrated" else "calibrated"
    history = told((0, FIRST, 3000.0), (1, proposed(leads, 3000.0), 2000.0))
    forms = [next_form(history, asked, BOX, "balanced") for asked in range(2, 8)]
    assert forms == [other, leads, leads, other, leads, leads]


def test_a_tuner_asks_what_these_forms_learn():
    """Also after a round trip through its state. The first learned run is calibrated, the next the paper's."""
    tuner, forms = LossTuner(BOX), []
    for run in range(8):
        before = [one.observation for one in tuner.history]
        again = LossTuner.from_state_dict(json.loads(json.dumps(tuner.state_dict())))
        expected = next_form(tuner.history, run, BOX, "balanced")
        asked = tuner.ask()
        assert asked == again.ask()
        if before:
            forms.append(expected)
            assert asked == learn_loss(before, BOX, objective=expected).as_dict()
        tuner.tell(asked, train(asked))
    assert forms[:2] == ["calibrated", "paper"]
    assert set(forms[2:]) == {"calibrated", "paper"}


def test_of_parallel_proposals_every_third_is_the_others():
    """Pending points count as asked for: `learned` tells the form of each."""
    tuner = LossTuner(BOX)
    tuner.tell(FIRST, train(FIRST))
    forms = []
    for _ in range(6):
        tuner.ask()
        forms.append(tuner.learned.objective)
    assert forms == ["calibrated", "paper", "calibrated", "calibrated", "paper", "calibrated"]

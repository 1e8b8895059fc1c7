"""Searches that follow hypergradients: steps on the scale of each range, failures, and new starts."""

import math

import numpy as np
import pytest

from tuneloss import Box, Observation
from tuneloss.baselines.hypergradients import Hoag, HypergradientLbfgs
from tuneloss.errors import InvalidInput

BOX = Box.from_dict({"l2": (0.01, 1000.0), "dropout": (0.0, 1.0), "logloss": 1.0})
START = {"l2": 500.0, "dropout": 0.9, "logloss": 1.0}
SEARCHES = [Hoag, HypergradientLbfgs]


def bowl(weights, factor=1.0, lowest=(0.0, 0.3)):
    """An error that is quadratic in log l2 and in dropout, and its derivative by the weights."""
    log, linear = math.log(weights["l2"]) - lowest[0], weights["dropout"] - lowest[1]
    derivative = {"l2": 2 * factor * log / weights["l2"], "dropout": 20 * factor * linear, "logloss": 7.0}
    return factor * (1 + log**2 + 10 * linear**2), derivative


def played(search, runs, **options):
    asked = []
    for _ in range(runs):
        weights = search.ask()
        error, derivative = bowl(weights, **options)
        search.tell(weights, Observation(error, np.zeros(3)), derivative=derivative)
        asked.append(weights)
    return asked


@pytest.mark.parametrize(("search", "runs"), [(Hoag, 25), (HypergradientLbfgs, 12)])
@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_the_minimum_of_a_bowl_is_found_whatever_the_unit_of_the_error(search, runs, factor):
    tuner = search(BOX, start=START)
    played(tuner, runs, factor=factor)
    assert tuner.best.observation.error == pytest.approx(factor, rel=0.01)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_minimum_outside_of_the_box_is_found_on_its_bounds(search):
    tuner = search(BOX, start=START)
    for weights in played(tuner, 25, lowest=(math.log(1e-4), 2.0)):
        assert BOX.as_array(weights) is not None
    assert tuner.best.weights == pytest.approx({"l2": 0.01, "dropout": 1.0, "logloss": 1.0})


@pytest.mark.parametrize("search", SEARCHES)
def test_the_first_step_is_one_decade_against_the_gradient(search):
    """In coordinates: log l2, and dropout times log 10."""
    first, second = played(search(BOX, start=START), 2)
    step = np.array([math.log(second["l2"] / first["l2"]), math.log(10) * (second["dropout"] - first["dropout"])])
    slopes = bowl(first)[1]
    slopes = np.array([slopes["l2"] * first["l2"], slopes["dropout"] / math.log(10)])
    np.testing.assert_allclose(step, -math.log(10) * slopes / np.linalg.norm(slopes), rtol=1e-6)


def test_hoag_is_gradient_descent_with_its_rule_for_the_step():
    """Against the rule as a loop: 5% longer after enough decrease, half as long after an increase."""
    box, minimum = Box.from_dict({"l2": (1e-4, 1e4), "logloss": 1.0}), 3.0
    search, x = Hoag(box, start={"l2": 1e3, "logloss": 1.0}), math.log(1e3)
    before, constant, outcomes = None, None, set()
    for _ in range(12):
        error, slope = math.log1p((x - minimum) ** 2), 2 * (x - minimum) / (1 + (x - minimum) ** 2)
        if before is None:
            constant = abs(slope) / math.log(10)
        elif error > before[1]:
            constant *= 2
            outcomes.add("increase")
        elif error <= before[1] - constant / 2 * (x - before[0]) ** 2:
            constant *= 0.95
            outcomes.add("enough")
        weights = search.ask()
        assert weights["l2"] == pytest.approx(math.exp(x), rel=1e-6)
        search.tell(weights, Observation(error, np.zeros(2)), derivative=[slope / weights["l2"], 0.0])
        before, x = (x, error), x - slope / constant
    assert outcomes == {"increase", "enough"}


@pytest.mark.parametrize("search", SEARCHES)
def test_a_failed_run_shortens_the_step_and_a_failed_start_is_left(search):
    tuner = search(BOX, start=START)
    first = played(tuner, 1)[0]
    too_far = tuner.ask()
    tuner.tell(too_far, failed="it diverged")
    shorter = tuner.ask()
    steps = [abs(math.log(weights["l2"] / first["l2"])) for weights in (shorter, too_far)]
    assert 0 < steps[0] < 0.9 * steps[1]
    played(tuner, 20)
    assert tuner.best.observation.error < 1.1
    hopeless = search(BOX, start=START)
    for _ in range(5):
        hopeless.tell(hopeless.ask(), failed="it diverged")
    assert len({run.weights["l2"] for run in hopeless.history}) == 5


@pytest.mark.parametrize("search", SEARCHES)
def test_a_flat_error_leads_to_random_points(search):
    tuner = search(BOX, start=START)
    for _ in range(6):
        tuner.tell(tuner.ask(), Observation(1.0, np.zeros(3)), derivative=np.zeros(3))
    assert len({run.weights["l2"] for run in tuner.history}) == 6


def test_lbfgs_starts_again_where_it_ended():
    """On a bowl with its minimum found, the next point is far from it."""
    search = HypergradientLbfgs(BOX, start=START)
    played(search, 30)
    near = [bowl(run.weights)[0] < 1.001 for run in search.history]
    assert any(bowl(run.weights)[0] > 1.5 for run in search.history[near.index(True) :])


@pytest.mark.parametrize("search", SEARCHES)
def test_the_metric_is_minimised_and_a_box_without_free_weights_has_one_point(search):
    tuner = search(BOX, start=START)
    for _ in range(20):
        weights = tuner.ask()
        metric, derivative = bowl(weights)
        tuner.tell(weights, Observation(-metric, np.zeros(3), metric=metric), derivative=derivative)
    assert tuner.best.observation.metric < 1.05
    pinned = search(Box.from_dict({"l2": 2.0}))
    for _ in range(3):
        pinned.tell(pinned.ask(), Observation(1.0, [0.0]), derivative=[1.0])
    assert pinned.best.weights == {"l2": 2.0}


@pytest.mark.parametrize("search", SEARCHES)
def test_what_must_be_told(search):
    tuner = search(BOX, start=START)
    observation = Observation(1.0, np.zeros(3))
    with pytest.raises(InvalidInput, match="must be told the derivative of the error by the weights; found none"):
        tuner.tell(START, observation)
    with pytest.raises(InvalidInput, match=r"`derivative` must be 3 numbers, one per weight; found \(2,\)"):
        tuner.tell(START, observation, derivative=[1.0, 2.0])
    with pytest.raises(InvalidInput, match="The names of derivative must be the box's"):
        tuner.tell(START, observation, derivative={"l2": 1.0})
    with pytest.raises(InvalidInput, match="`derivative` must"):
        tuner.tell(START, observation, derivative=[math.nan, 0.0, 0.0])
    assert tuner.history == tuner.outcomes == []
    with pytest.raises(InvalidInput, match="needs weights that are free of each other; found Box"):
        search(Box.simplex(["a", "b"]))

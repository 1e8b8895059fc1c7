"""Reachability against a plain LP, and that its certificates hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties import features_of, margin
from tests.strategies import instances
from tuneloss import Box, Observation
from tuneloss.core.cost import cost_matrix
from tuneloss.core.solver.program import scaling
from tuneloss.core.solver.reachability import Mixture, Reach, always_below_0

seeds = st.integers(0, 2**32 - 1)


def reach_of(observations, box):
    cost = cost_matrix(observations, 0.0, np.ones(len(observations)))
    features = features_of(observations)
    return Reach(features, box, scaling(cost, features, box))


@settings(max_examples=200, deadline=None)
@given(instance=instances())
def test_agrees_with_a_plain_lp(instance):
    """For every observation, in any order of questions, with what was learned from the earlier answers."""
    observations, box = instance
    reach = reach_of(observations, box)
    for guess in range(len(observations)):
        found = margin(guess, observations, box)
        if abs(found) > 1e-7 or found >= 0:
            assert reach.allows(guess) == (found >= 0)


def test_a_rival_that_differs_by_a_few_roundings_is_weighed_and_not_taken_for_equal():
    """Under a large weight on the first term, the other model's loss is higher, if only by roundings of that term."""
    features = np.array([[1.0, 1.0], [1.0 + 4e-15, 1.0 - 1e-10]])
    reach = reach_of([Observation(0.0, f) for f in features], Box([0.0, 1.0], [1e9, 1.0]))
    assert reach.allows(0)
    assert reach.allows(1)
    narrow = reach_of([Observation(0.0, f) for f in features], Box([0.0, 1.0], [1e3, 1.0]))
    assert narrow.allows(0) is False


@pytest.mark.parametrize("upper", [5.0, 1e6, np.inf])
def test_a_guess_cannot_rule_itself_out(upper):
    """A mixture of the guess with itself, and with others to a rounding, is not below it."""
    observations = [Observation(0.0, f) for f in np.random.default_rng(0).normal(size=(6, 3))]
    box = Box([0.0, 0.1, 1.0], [upper, upper, 1.0])
    reach = reach_of(observations, box)
    for guess in range(6):
        for tiny in (0.0, 1e-17, 1e-16, 1e-15):
            parts = np.full(6, tiny)
            parts[guess] = 1.0
            if reach._confirms(guess, Mixture(np.arange(6), parts)):
                assert margin(guess, observations, box) < 0


@settings(max_examples=300, deadline=None)
@given(numbers=st.lists(st.tuples(*[st.floats(-2, 2)] * 2, st.floats(0, 1e-3)), min_size=1, max_size=4), seed=seeds)
def test_always_below_0_is_true_only_if_no_weights_contradict(numbers, seed):
    """For random vectors within the doubt, and random weights of the box."""
    vectors, lower, doubt = (np.array(column) for column in zip(*numbers, strict=True))
    rng = np.random.default_rng(seed)
    upper = lower + rng.exponential(size=len(lower)) * (rng.random(len(lower)) < 0.8)
    if always_below_0(vectors[None], doubt[None], lower, upper)[0]:
        weights = lower + (upper - lower) * rng.integers(0, 2, (64, len(lower)))
        exact = vectors + doubt * rng.uniform(-1, 1, (64, len(lower)))
        assert ((weights * exact).sum(axis=1) < 0).all()


def test_certificates_are_shared_within_a_cluster(monkeypatch):
    """Of 50 neighbours above the segment between two models at most 5 need a solver: their mixtures serve the rest."""
    ends = np.array([[1.0, 3.0, 1.0], [3.0, 1.0, 1.0]])
    along = np.outer(np.linspace(-0.1, 0.1, 50), [1.0, -1.0, 0.0])  # so that none dominates another
    observations = [Observation(0.0, f) for f in [*(np.array([2.5, 2.5, 1.0]) + along), *ends]]
    reach = reach_of(observations, Box([0.5, 0.5, 1.0], [2.0, 2.0, 1.0]))
    asked = []
    nearest = reach._nearest
    monkeypatch.setattr(reach, "_nearest", lambda guess: (asked.append(guess), nearest(guess))[1])
    assert not any(reach.allows(guess) for guess in range(50))
    assert 1 <= len(asked) <= 5


def test_the_edge_counts_as_reached():
    """Rows are weak inequalities: a model that ties under some weights in the box can be the argmin."""
    tie = [Observation(0.0, [1.0, 2.0]), Observation(1.0, [1.0, 1.0])]  # equal where the second weight is 0
    assert reach_of(tie, Box([1.0, 0.0], [1.0, 5.0])).allows(0)
    assert not reach_of(tie, Box([1.0, 0.1], [1.0, 5.0])).allows(0)


def test_least_cap_is_the_least_weight_that_reaches():
    observations = [Observation(1.0, [0.0, 1.0]), Observation(2.0, [0.25, 0.0])]
    box = Box([0.0, 1.0], [np.inf, 1.0])  # needs a first weight of 4
    features = features_of(observations)
    scales = scaling(cost_matrix(observations, 0.0, np.ones(2)), features, box)
    cap = Reach(features, box, scales).least_cap(0)
    assert cap * scales.t_unit / scales.unit[0] == pytest.approx(4.0)

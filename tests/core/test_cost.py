"""The cost as a quadratic form, and every corner of epsilon."""

import math

import numpy as np
import pytest

from tests.properties import gradients_cost
from tuneloss import Observation
from tuneloss.core.cost import cost_matrix, epsilon_value
from tuneloss.errors import InvalidInput


def models(m=4, k=3, n=7, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.exponential(), rng.normal(size=k), rng.normal(size=n), rng.normal(size=(n, k))) for _ in range(m)]


def observed(raw):
    return [Observation.from_gradients(*model) for model in raw]


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 5.0])
def test_the_form_is_the_cost_of_the_raw_gradients(epsilon):
    """z' P z = equation (cost), for any weights and scale."""
    raw, rng = models(), np.random.default_rng(1)
    cost = cost_matrix(observed(raw), epsilon, np.ones(4))
    for _ in range(5):
        weights, scale = rng.normal(size=3), rng.exponential()
        z = np.append(weights, scale)
        assert z @ cost @ z == pytest.approx(gradients_cost(weights, scale, raw, epsilon))


def test_at_infinity_only_gradients_count():
    raw = models()
    both, values = (cost_matrix(observed(raw), e, np.ones(4)) for e in (1.0, 0.0))
    np.testing.assert_allclose(cost_matrix(observed(raw), math.inf, np.ones(4)), both - values, atol=1e-12)


def test_epsilon_rules_by_hand():
    """balanced = sum e^2 / sum |g|^2, paper = sum |g|^2 / sum |J|^2, both weighted by the sample weights."""
    raw, counts = models(), np.array([1.0, 0.0, 2.0, 0.5])
    e2 = sum(c * e**2 for c, (e, _, _, _) in zip(counts, raw, strict=True))
    g2 = sum(c * g @ g for c, (_, _, g, _) in zip(counts, raw, strict=True))
    j2 = sum(c * (j**2).sum() for c, (_, _, _, j) in zip(counts, raw, strict=True))
    assert epsilon_value("balanced", observed(raw), counts) == pytest.approx(e2 / g2)
    assert epsilon_value("paper", observed(raw), counts) == pytest.approx(g2 / j2)
    assert epsilon_value(0.25, observed(raw), counts) == 0.25
    assert epsilon_value(math.inf, observed(raw), counts) == math.inf


FLAT, STEEP = np.zeros(2), np.ones(2)
CORNERS = [
    pytest.param("balanced", 1.0, FLAT, STEEP, 0.0, id="balanced, all gradients 0: values only"),
    pytest.param("balanced", 0.0, STEEP, STEEP, math.inf, id="balanced, all errors 0: gradients only"),
    pytest.param("balanced", 0.0, FLAT, STEEP, 0.0, id="balanced, errors and gradients 0"),
    pytest.param("paper", 1.0, FLAT, STEEP, 0.0, id="paper, all gradients 0"),
    pytest.param("paper", 1.0, STEEP, FLAT, 0.0, id="paper, all jacobians 0"),
    pytest.param(math.inf, 1.0, FLAT, FLAT, math.inf, id="infinity stays"),
]


@pytest.mark.parametrize(("rule", "error", "gradient", "jacobian", "expected"), CORNERS)
def test_corners_of_epsilon(rule, error, gradient, jacobian, expected):
    model = Observation.from_gradients(error, [1.0], gradient, jacobian[:, None])
    assert epsilon_value(rule, [model], np.ones(1)) == expected


@pytest.mark.parametrize("rule", ["balanced", "paper", 0.0])
def test_without_grams_epsilon_is_0(rule):
    assert epsilon_value(rule, [Observation(1.0, [1.0])], np.ones(1)) == 0.0


@pytest.mark.parametrize("bad", [-1.0, math.nan, "balance"])
def test_refuses_other_rules(bad):
    with pytest.raises(InvalidInput, match='`epsilon` must be "balanced", "paper" or a number >= 0; found'):
        epsilon_value(bad, [Observation(1.0, [1.0])], np.ones(1))


def test_refuses_to_weigh_gradients_that_are_not_there():
    with pytest.raises(InvalidInput, match="`epsilon` = inf weighs gradients, but the observations have no gram"):
        epsilon_value(math.inf, [Observation(1.0, [1.0])], np.ones(1))


def test_refuses_an_overflow():
    with pytest.raises(InvalidInput, match=r"must not overflow; .* Divide the error and each term by a constant"):
        cost_matrix([Observation(1.0, [1e200])], 0.0, np.ones(1))

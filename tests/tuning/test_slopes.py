"""Slopes of the error by the weights, from an observation alone: exact where the curvature is the same everywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.far_starts.problems import FAMILIES
from tuneloss import Observation
from tuneloss.tuning.slopes import slopes

GROUPS = np.array([0, 0, 1, 1, 1, 2])
PINNED = np.array([False, False, False, True])


def trained(center: np.ndarray, steepness: float, weights: np.ndarray, goal: np.ndarray) -> Observation:
    """The minimum of steepness |params - center|^2 + sum_g weight_g |params_g|^2; the error is |params - goal|^2."""
    params = steepness * center / (steepness + weights[GROUPS])
    off, missed = params - center, params - goal
    masks = [g == GROUPS for g in range(3)]
    features = [np.square(params[mask]).sum() for mask in masks] + [steepness * off @ off]
    jacobian = np.column_stack([2 * params * mask for mask in masks] + [2 * steepness * off])
    return Observation.from_gradients(missed @ missed, features, 2 * missed, jacobian)


@given(
    seed=st.integers(0, 10_000),
    steepness=st.floats(0.1, 10.0),
    weights=st.tuples(*[st.floats(0.05, 20.0)] * 3).map(np.array),
)
def test_slopes_are_exact_for_a_round_bowl_with_penalties_of_groups(seed, steepness, weights):
    """Then the model of the Hessian is the Hessian, and the slope is the derivative of the retrained model's error."""
    center, goal = np.random.default_rng(seed).normal(size=(2, 6)) + 0.1
    model = trained(center, steepness, weights, goal)
    estimated = slopes(model, np.append(weights, 1.0), PINNED)[:3]

    def error(by: np.ndarray) -> float:
        return trained(center, steepness, weights * np.exp(by), goal).error

    by_logs = [(error(h) - error(-h)) / 2e-5 for h in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(estimated * weights, by_logs, rtol=1e-4, atol=1e-6 * (1 + model.error))


def test_most_signs_are_right_on_exact_problems():
    """Signs of slopes that matter, against exact hypergradients at random weights: at least 9 of 10 agree."""
    agree = []
    for family in FAMILIES.values():
        for seed in range(15):
            problem = family(seed)
            logs = np.random.default_rng(seed).uniform(problem.low, problem.high)
            _, exact = problem.hypergradient(logs)
            weights = problem.weights(logs)
            estimated = slopes(problem.observe(weights), problem.box.as_array(weights), problem.box.pinned)
            matters = np.abs(exact) > 0.05 * np.abs(exact).max()
            agree.extend((np.sign(estimated[:-1]) == np.sign(exact))[matters])
    assert np.mean(agree) > 0.9


def test_units_do_not_matter():
    """Terms in other units have weights in other units; the error in another unit has slopes in that unit."""
    rng = np.random.default_rng(0)
    jacobian, gradient, features, weights = (
        rng.normal(size=(9, 4)),
        rng.normal(size=9),
        rng.uniform(1, 2, 4),
        np.ones(4),
    )
    unit = np.array([1e-3, 10.0, 7.0, 1.0])
    plain = slopes(Observation.from_gradients(2.0, features, gradient, jacobian), weights, PINNED)
    other = Observation.from_gradients(6.0, features * unit, 3 * gradient, jacobian * unit)
    np.testing.assert_allclose(slopes(other, weights / unit, PINNED), 3 * plain * unit, rtol=1e-9)


def test_without_gradients_there_is_no_slope():
    """All gradients are 0; so are all slopes, and nothing is divided by 0."""
    model = Observation.from_gradients(2.0, [0.0, 1.0, 2.0, 0.0], np.zeros(3), np.zeros((3, 4)))
    assert (slopes(model, np.ones(4), PINNED) == 0).all()


@pytest.mark.parametrize("weight", [1e3, 1e10, 1e17, 1e20])
def test_signs_are_right_however_large_a_weight_is(weight):
    """Where a penalty outweighs the data by far, nothing cancels."""
    for seed in range(30):
        center, goal = np.random.default_rng(seed).normal(size=(2, 6)) + 0.1
        weights = weight * np.ones(3)
        model = trained(center, 1.0, weights, goal)
        masks = [g == GROUPS for g in range(3)]
        right = [
            np.sign(goal[mask] @ center[mask]) for mask in masks
        ]  # params are about 0: is the goal towards center?
        assert np.sign(slopes(model, np.append(weights, 1.0), PINNED)[:3]).tolist() == right


def test_without_a_pinned_weight_slopes_are_minus_the_products():
    """The Hessian is taken as the identity."""
    model = Observation.from_gradients(1.0, [1.0, 1.0], [1.0, -1.0], np.eye(2))
    assert slopes(model, np.ones(2), np.zeros(2, dtype=bool)).tolist() == [-1.0, 1.0]


def test_the_sign_of_a_pinned_term_does_not_matter():
    """A term and its weight may both be negative; a negative free weight adds no curvature."""
    rng = np.random.default_rng(0)
    jacobian, gradient, features = rng.normal(size=(9, 3)), rng.normal(size=9), rng.uniform(1, 2, 3)
    pinned, sign = np.array([False, False, True]), np.array([1.0, 1.0, -1.0])
    plain = slopes(Observation.from_gradients(1.0, features, gradient, jacobian), np.ones(3), pinned)
    other = slopes(Observation.from_gradients(1.0, features * sign, gradient, jacobian * sign), sign, pinned)
    np.testing.assert_allclose(other[:2], plain[:2], rtol=1e-9)
    model = Observation.from_gradients(1.0, features, gradient, jacobian)
    assert np.isfinite(slopes(model, np.array([-1.0, 1.0, 1.0]), pinned)).all()

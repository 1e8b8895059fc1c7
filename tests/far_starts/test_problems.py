"""The problems of benchmarks/far_starts: what they say of a trained model agrees with finite differences."""

import numpy as np
import pytest

from benchmarks.far_starts.problems import FAMILIES

STEP = 1e-4  # of finite differences, in log weights


def middle(problem) -> np.ndarray:
    """The middle of the box."""
    return (problem.low + problem.high) / 2


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_hypergradients_agree_with_finite_differences(family, seed):
    """This holds only if the model minimises its loss, and if Jacobian, Hessian and gradient are right."""
    problem = FAMILIES[family](seed)
    at = middle(problem)
    error, hypergradient = problem.hypergradient(at)
    steps = STEP * np.eye(len(at))
    slopes = [(problem.hypergradient(at + h)[0] - problem.hypergradient(at - h)[0]) / (2 * STEP) for h in steps]
    assert hypergradient == pytest.approx(slopes, rel=1e-3, abs=1e-4 * error)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_a_trained_model_is_stationary(family, seed):
    """The weighted sum of the gradients of all terms is 0 at the minimum, up to the least L2 of logistic regression."""
    problem = FAMILIES[family](seed)
    weights = problem.weights(middle(problem))
    observation = problem.observe(weights)
    weights = problem.box.as_array(weights)
    left_over = weights @ observation.gram[:-1, :-1] @ weights
    largest = np.max(weights**2 * np.diag(observation.gram)[:-1])
    assert left_over <= 1e-4 * largest


@pytest.mark.parametrize("family", FAMILIES)
def test_boxes_span_six_to_ten_decades(family):
    """Each start lies in its box."""
    for seed in range(10):
        problem = FAMILIES[family](seed)
        decades = (problem.high - problem.low) / np.log(10)
        assert ((decades >= 6) & (decades <= 10)).all()
        assert problem.box.as_dict(problem.box.as_array(problem.start)) == problem.start

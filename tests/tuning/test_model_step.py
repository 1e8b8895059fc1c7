"""Expected improvement near the best run: it finds the minimum of smooth functions, and stays in its region."""

import numpy as np
import pytest

from tuneloss.tuning.model_step import NEW, model_step, standardised

LOW, HIGH = np.array([-5.0, -5.0]), np.array([5.0, 5.0])
MINIMUM = np.array([1.5, -0.7])
NONE = np.zeros((0, 2))  # pending


def bowl(points: np.ndarray) -> np.ndarray:
    return 3.0 + np.square((points - MINIMUM) * [1.0, 0.3]).sum(axis=-1)


def test_it_finds_the_minimum_of_a_bowl_in_a_few_steps():
    """After ten random points and eight steps, the best value is within 1% of the least one."""
    rng = np.random.default_rng(0)
    points = rng.uniform(LOW, HIGH, (10, 2))
    for _ in range(8):
        points = np.vstack([points, model_step(points, bowl(points), LOW, HIGH, np.inf, rng, NONE)])
    assert bowl(points).min() < 1.01 * bowl(MINIMUM)


def test_it_stays_in_its_region():
    """The region may exclude the minimum: then the step goes towards it."""
    rng = np.random.default_rng(0)
    points = rng.uniform(LOW, HIGH, (12, 2))
    best = points[bowl(points).argmin()]
    step = model_step(points, bowl(points), LOW, HIGH, 0.1, rng, NONE)
    assert np.abs(step - best).max() <= 0.1 + 1e-12
    assert bowl(step) < bowl(best)


def test_in_noise_the_region_is_around_the_least_mean():
    """The least error is that of a lucky run at a worse point."""
    rng = np.random.default_rng(2)
    worse = MINIMUM + np.array([2.5, 0.0])
    points = np.vstack([np.tile(MINIMUM, (20, 1)), np.tile(worse, (20, 1)), rng.uniform(LOW, HIGH, (10, 2))])
    scores = bowl(points) + rng.normal(size=50)
    scores[30] = scores.min() - 0.1
    for seed in range(5):
        step = model_step(points, scores, LOW, HIGH, 1.0, np.random.default_rng(seed), NONE)
        assert np.abs(step - MINIMUM).max() <= 1.0 + 1e-12


def test_a_step_is_new_though_a_known_corner_promises_the_most():
    """The error falls to a corner of the box, which was tried, with noise that may make another run there better."""
    rng = np.random.default_rng(0)
    points = np.vstack([np.tile(HIGH, (10, 1)), rng.uniform(LOW, HIGH, (20, 2))])
    scores = 10.0 - points.sum(axis=1) + 0.5 * rng.normal(size=30)
    for seed in range(5):
        step = model_step(points, scores, LOW, HIGH, np.inf, np.random.default_rng(seed), NONE)
        assert np.abs(step - points).max(axis=1).min() > NEW


def test_pending_points_are_no_noise_and_keep_the_next_one_away():
    """In an exact bowl, workers that ask at once all come near its minimum, at different points."""
    rng = np.random.default_rng(3)
    points = rng.uniform(LOW, HIGH, (25, 2))
    pending = NONE
    for _ in range(5):
        step = model_step(points, bowl(points), LOW, HIGH, np.inf, rng, pending)
        assert not len(pending) or np.abs(step - pending).max(axis=1).min() > NEW
        pending = np.vstack([pending, step])
    assert np.median(bowl(pending)) < bowl(MINIMUM) + 0.5


@pytest.mark.parametrize(("factor", "constant"), [(7.0, 0.0), (1.0, 100.0), (1e-9, 5.0), (1e9, -3.0)])
def test_the_unit_of_the_error_does_not_matter(factor, constant):
    """Scores are standardised: a factor and a constant change nothing."""
    scores = np.array([3.0, 1.0, 2.5, 40.0, 1.2])
    np.testing.assert_allclose(standardised(factor * scores + constant), standardised(scores), atol=1e-5)


def test_equal_scores_are_no_problem():
    """All scores, or most of them, may be the same."""
    assert (standardised(np.full(4, 2.0)) == 0).all()
    assert np.isfinite(standardised(np.array([1.0, 1.0, 1.0, 3.0]))).all()
    points = np.arange(8.0).reshape(4, 2)
    assert np.isfinite(model_step(points, np.full(4, 2.0), LOW, HIGH, np.inf, np.random.default_rng(0), NONE)).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scores", [[0.0, 1e-320, 1e-320, 1.0, 1.0, 1e-320], [1e-200, 0.0, 0.0, 1e150, 1e150, 1e150]])
def test_errors_of_very_different_sizes_are_no_problem(scores):
    """Their ratio may overflow."""
    assert np.isfinite(standardised(np.array(scores))).all()

"""TuneReg: the cases of its paper's public code, a brute force over the weight, and its loop."""

import numpy as np
import pytest

from tuneloss import Box, Observation
from tuneloss.baselines.tunereg import TuneReg, learn_reg

CASES = [  # (V, T, q) of each model -> w / a
    ([(1.0, 0.0, [1.0])], [1.0]),
    ([(1.1, 0.0, [1.0, 1.0]), (2.0, 0.0, [0.0, 2.0])], [0.1, 1.0]),
    ([(1.0, 0.9, [1.0]), (0.9, 0.8, [1.0])], [0.1]),
]


@pytest.mark.parametrize(("models", "expected"), CASES)
def test_known_cases(models, expected):
    error, loss, features = (np.array(column, dtype=float) for column in zip(*models, strict=True))
    weights, scale = learn_reg(error, loss, features, np.zeros(len(expected)), np.full(len(expected), np.inf))
    np.testing.assert_allclose(weights / scale, expected, atol=1e-7)


def slack(w, error, loss, feature):
    """The least sum of D over a >= 0.01 for one weight w, or infinity: a <= min f / V, and more is better."""
    s = error.sum() / loss.sum()
    f = s * loss + s * w * feature
    a = (f / error).min()
    return (f - a * error).sum() if a >= 0.01 and f[error.argmin()] <= f.min() + 1e-12 else np.inf


def test_one_weight_by_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(20):
        error, loss, feature = rng.random((3, 5)) + 0.1
        grid = np.linspace(0, 20, 20001)
        values = np.array([slack(w, error, loss, feature) for w in grid])
        if np.isinf(values).all():
            continue
        weights, _ = learn_reg(error, loss, feature[:, None], np.zeros(1), np.full(1, 20.0))
        assert slack(weights[0], error, loss, feature) <= values.min() + 1e-6 * (1 + values.min())


def test_bounds_are_those_of_the_weights_not_of_the_scaled_program():
    """Whatever the unit of the errors, which s takes off: w / s is as near to the free optimum as the box allows."""
    error, loss, features = np.array([1.0, 0.9]), np.array([0.9, 0.8]), np.ones((2, 1))
    for unit in (1.0, 50.0):
        free, _ = learn_reg(unit * error, loss, features, np.zeros(1), np.full(1, np.inf))
        for lower, upper in ((0.0, 0.5), (0.4, 0.7)):
            held, _ = learn_reg(unit * error, loss, features, np.full(1, lower * free[0]), np.full(1, upper * free[0]))
            assert held[0] == pytest.approx(upper * free[0], rel=1e-6)


def test_there_are_as_many_random_points_as_free_weights_and_one():
    """Three free weights: what was told changes the fifth point, and none before it."""
    box = Box.from_dict({"a": (0.0, 1.0), "b": (0.0, 1.0), "c": (0.0, 1.0), "logloss": 1.0})
    one, other = (TuneReg(box, seed=0) for _ in range(2))
    rng = np.random.default_rng(0)
    for _ in range(4):
        weights = one.ask()
        assert weights == other.ask()
        one.tell(weights, Observation(1 + rng.random(), 0.1 + rng.random(4)))
        other.tell(weights, Observation(1 + rng.random(), 0.1 + rng.random(4)))
    assert one.ask() != other.ask()


def test_random_points_first_then_the_program_and_a_random_one_where_it_repeats():
    """One free weight: two random points; then a proposal; told the same again, another one."""
    search = TuneReg(Box.from_dict({"l2": (0.0, 10.0), "logloss": 1.0}), seed=0)
    for error, l2, loss in [(1.0, 1.0, 0.9), (0.9, 1.0, 0.8)]:
        search.tell(search.ask(), Observation(error, [l2, loss]))
    third = search.ask()
    assert third["l2"] == pytest.approx(0.1)
    search.tell(third, Observation(0.9, [1.0, 0.8]))
    assert search.ask()["l2"] != pytest.approx(0.1)

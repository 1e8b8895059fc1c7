"""Points of a box without data."""

import math

import numpy as np
import pytest

from tests.properties import assert_in_box
from tuneloss import Box
from tuneloss.tuning.sampling import center, distance, nearby, same_point, sample_box

BOXES = [
    Box.from_dict({"log": (0.1, 100), "zero": (0, 2), "short": (1, 5), "pin": 3.0, "sign": (-2, 2)}),
    Box.from_dict({"a": (0, None), "b": (0.5, None), "c": (-1, None), "pin": 2.0}),
    Box.simplex(["a", "b", "c"]),
]


@pytest.mark.parametrize("box", BOXES, ids=repr)
def test_all_points_lie_in_the_box(box):
    rng = np.random.default_rng(0)
    for _ in range(100):
        point = sample_box(box, rng)
        for found in (point, nearby(box, point, rng), center(box)):
            box.as_array(found)
            if not box.is_simplex:
                assert_in_box(found, box)


def test_the_first_point_is_the_middle_in_log_where_a_range_spans_a_decade():
    """(0, b) starts at b / 2; without an upper bound a weight starts at its lower one."""
    np.testing.assert_allclose(center(BOXES[0]), [math.sqrt(10), 1.0, 3.0, 3.0, 0.0])
    np.testing.assert_allclose(center(BOXES[1]), [0.0, 0.5, -1.0, 2.0])
    np.testing.assert_allclose(center(BOXES[2]), [1 / 3] * 3)


def test_sampling_is_uniform_on_the_scale_of_the_range():
    """Half of the draws from (0.1, 100) lie below its geometric middle, half of those from (0, 2) below 1."""
    rng = np.random.default_rng(0)
    below = np.mean([sample_box(BOXES[0], rng) < center(BOXES[0]) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(below[[0, 1, 2, 4]], 0.5, atol=0.03)


def test_a_term_that_is_off_and_unbounded_stays_off_nearby():
    """Its unit is unknown, so no step size would make sense."""
    rng = np.random.default_rng(0)
    point = nearby(BOXES[1], np.array([0.0, 1.0, 0.0, 2.0]), rng)
    assert point[0] == 0.0
    assert point[1] != 1.0


def test_a_point_of_zeros_moves_though_no_bound_says_how_far():
    """Else a proposal that was tried before would be made again, also if it failed."""
    rng, box = np.random.default_rng(0), Box.from_dict({"l1": (0.0, None), "l2": (0.0, None), "fit": 2.0})
    points = np.array([nearby(box, np.array([0.0, 0.0, 2.0]), rng) for _ in range(20)])
    assert (points[:, :2] > 0).all()
    assert (points[:, 2] == 2.0).all()
    assert len(np.unique(points, axis=0)) == 20


def test_distance_is_a_part_of_the_range():
    a, b = np.array([0.1, 0, 1, 3, -2.0]), np.array([100, 0, 1, 3, -2.0])
    assert distance(BOXES[0], a, b) == pytest.approx(1.0)
    assert distance(BOXES[0], a, a) == 0.0
    assert distance(BOXES[2], np.array([1.0, 0, 0]), np.array([0.5, 0.5, 0])) == 0.5


def test_same_point_means_a_millionth():
    a = np.array([1.0, 0.0])
    assert same_point(a, a * (1 + 1e-8))
    assert not same_point(a, a * (1 + 1e-4))
    assert not same_point(a, np.array([1.0, 1e-12]))

"""Statistics of records: intervals by theory and simulation, best models and differences by hand."""

import math

import numpy as np
import pytest

from tests.paper.records import record
from tuneloss.paper.statistics import (
    Interval,
    best_so_far,
    by_repeat,
    curve,
    interval,
    last_measure,
    measure_so_far,
    paired_difference,
)


def test_the_model_of_least_validation_loss_so_far_is_chosen():
    runs = [record("random", 0, i, v, t) for i, (v, t) in enumerate([(3, 10), (4, 11), (2, 12), (2, 13)])]
    assert measure_so_far(runs[::-1], "test_loss").tolist() == [10, 10, 12, 12]
    assert measure_so_far(runs, "test_loss", "validation_error").tolist() == [10, 10, 10, 10]
    failed = {**runs[0], "validation_loss": None}
    np.testing.assert_array_equal(measure_so_far([failed, *runs[1:]], "test_loss"), [np.nan, 11, 12, 12])


def test_the_interval_is_students():
    """Mean of 1, 2, 3, 4 is 2.5; t(3, 97.5%) = 3.1824; s / sqrt(n) = 0.6455."""
    found = interval([1.0, 2.0, 3.0, 4.0])
    assert found.mean == 2.5
    assert found.half == pytest.approx(3.1824 * 0.6455, rel=1e-4)


def test_one_value_has_no_interval():
    """From one repeat no width is claimed, and none is printed."""
    assert math.isnan(interval([3.0]).half)
    assert str(interval([3.0])) == "3.0000"


def test_the_interval_covers_the_mean_95_times_in_100():
    """By simulation with normal values, n = 5, 2000 times."""
    draws = np.random.default_rng(0).normal(7.0, 2.0, size=(2000, 5))
    covered = [abs(i.mean - 7.0) <= i.half for i in map(interval, draws)]
    assert 0.935 < np.mean(covered) < 0.965


def test_an_interval_as_text():
    """Decimals as asked for; a rate in per cent has its sign once; without an interval there is no ±."""
    assert Interval(0.12345, 0.01).text(2) == "0.12 ± 0.01"
    assert Interval(0.12345, 0.01).percent(2) == "12.35 ± 1.00%"
    assert Interval(0.12345, math.nan).percent() == "12.3%"


def test_a_failed_run_is_never_the_best():
    """It leaves the best so far as it was; while all have failed there is none."""
    failed, fine = record("random", 0, 0, None, None), record("random", 0, 1, 0.9, 1.0)
    assert best_so_far([failed, fine]) == [None, fine]
    assert best_so_far([fine, {**failed, "run": 2}]) == [fine, fine]


def test_the_difference_is_paired():
    """A gap that is the same in every repeat has an interval of width 0, however much repeats differ."""
    records = [record(name, r, 0, 1, r + gap) for name, gap in (("tuneloss", 0.0), ("random", 0.25)) for r in range(3)]
    ours, theirs = (
        last_measure(by_repeat(records, "tf_flowers", name), "test_loss") for name in ("tuneloss", "random")
    )
    difference = paired_difference(ours, theirs)
    assert difference.mean == pytest.approx(-0.25)
    assert difference.half == pytest.approx(0, abs=1e-12)
    assert interval(list(ours.values())).half > 1
    assert paired_difference(ours, {7: 1.0}) is None


def test_a_curve_is_the_interval_after_each_run():
    runs = [record("random", r, i, 3 - i, 10.0 * r + i) for r in range(3) for i in range(2)]
    found = curve(by_repeat(runs, "tf_flowers", "random"), "test_loss")
    assert found.repeats == 3
    np.testing.assert_allclose(found.mean, [10.0, 11.0])
    np.testing.assert_allclose(found.half, [interval([0.0, 10.0, 20.0]).half] * 2)

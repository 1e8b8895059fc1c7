"""The numbers of a report, on a comparison small enough to work out by hand."""

import math

import numpy as np
import pytest

from tests.report.examples import comparison, record
from tuneloss.report.info import best_run, best_so_far_info, final_info, interval, weights_info, words


def test_best_so_far_follows_validation_not_test():
    """The test value shown is that of the model with the best validation loss so far, even if it is worse."""
    curve = best_so_far_info(comparison(), "test_loss")[0]
    # validation of the first repeat: 0.9, 0.5, 0.7; test: 1.0, 1.2, 0.1
    np.testing.assert_allclose(curve.values[0], [1.0, 1.2, 1.2])


def test_best_validation_loss_never_rises():
    """A running minimum is monotone."""
    for curve in best_so_far_info(comparison(), "validation_loss"):
        assert (np.diff(curve.values, axis=1) <= 0).all()


def test_a_failed_run_is_never_the_best():
    """A failed run leaves the best so far as it was, and counts only where nothing else is there."""
    failed = record("A", 1, 2, math.nan, math.nan, failed="diverged")
    fine = record("A", 1, 1, 0.9, 1.0)
    assert best_run((fine, failed)) is fine
    assert best_run((failed, fine)) is fine
    assert best_run((failed,)) is failed


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


def test_the_difference_is_paired():
    """A gap that is the same in every repeat has an interval of width 0, however much repeats differ."""
    final = final_info(comparison(gap=0.25))
    assert final["difference"]["test_loss"].mean == pytest.approx(-0.25)
    assert final["difference"]["test_loss"].half == pytest.approx(0, abs=1e-12)
    assert final["A"]["test_loss"].half > 0.1


def test_pinned_weights_are_left_out_and_decades_are_logarithmic():
    """Only free weights are shown; a range of a decade or more gets a log axis, unless it begins at 0."""
    found = {w.name: w for w in weights_info(comparison())}
    assert set(found) == {"l2", "dropout"}
    assert found["l2"].log
    assert not found["dropout"].log
    assert found["l2"].values["A"].shape == (2, 3)


def test_words_name_bounds_that_are_met():
    """A best weight at the edge of the box is said to be so, others are not."""
    text = " ".join(words(comparison()))
    assert "dropout = 0 (at its lower bound)" in text
    assert "l2 = 2," in text


@pytest.mark.parametrize(
    ("gap", "said"),
    [(0.25, "A is lower by 0.2500"), (-0.25, "A is higher by 0.2500"), (0.0, "within what chance")],
)
def test_words_claim_no_more_than_the_interval_allows(gap, said):
    """Better, worse, or not to be told apart: by the paired interval."""
    assert said in " ".join(words(comparison(gap=gap)))


def test_words_on_one_repeat_do_not_claim_a_winner():
    """One repeat cannot be told from luck, and the text says so."""
    assert "one repeat cannot tell this from luck" in " ".join(words(comparison(repeats=1)))

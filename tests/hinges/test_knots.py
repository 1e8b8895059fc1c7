"""Where knots are put."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneloss.hinges import increasing_knots, inner_quantiles, quantile_ranks


def test_inner_quantiles_are_different_and_hold_zero():
    knots = inner_quantiles(np.repeat([1.0, 2.0], 50), 20)
    assert 0 in knots
    assert (np.diff(knots) > 0).all()


@given(n=st.integers(1, 500), p=st.integers(2, 60))
def test_ranks_are_from_the_first_to_the_last_and_evenly_spread(n, p):
    ranks = quantile_ranks(n, p)
    assert (ranks[0], ranks[-1], len(ranks)) == (0, n - 1, p)
    gaps = np.diff(ranks)
    assert gaps.min() >= 0
    assert gaps.max() - gaps.min() <= 1 or n < p


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(values=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=2, max_size=20))
def test_knots_increase_and_hold_every_quantile(dtype, values):
    quantiles = np.sort(np.array(values, dtype=dtype))
    knots = increasing_knots(quantiles)
    assert len(knots) == len(quantiles)
    assert knots.dtype == dtype
    assert (knots[1:] > knots[:-1]).all()
    if quantiles[0] < quantiles[-1]:
        assert np.isin(quantiles, knots).all()


def test_the_widest_gap_is_halved_first():
    assert increasing_knots(np.array([0.0, 1.0, 1.0, 1.0, 9.0])).tolist() == [0.0, 1.0, 3.0, 5.0, 9.0]


@pytest.mark.parametrize("v", [0.0, 3.0, 1e-20, 1e9, -1e30])
def test_knots_of_equal_numbers_are_around_them(v):
    knots = increasing_knots(np.full(5, v, dtype=np.float32))
    assert (np.diff(knots) > 0).all()
    assert knots[0] < v < knots[-1]
    if abs(v) < 10:
        np.testing.assert_allclose(knots, np.linspace(v - 1, v + 1, 5), rtol=1e-6, atol=1e-6)


def test_knots_of_two_numbers_one_ulp_apart_increase():
    """Where the gap holds no number, knots follow the last one."""
    knots = increasing_knots(np.array([1.0, 1.0, 1.0, 1.0 + 2**-23], dtype=np.float32))
    assert (np.diff(knots) == 2**-23).all()

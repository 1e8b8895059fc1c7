"""The convex function: its values, slopes and proximal step, against their definitions and brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from tuneloss.errors import InvalidInput
from tuneloss.hinges import PiecewiseLinear, bins_of, hinge_matrix

POSITIONS = st.sets(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8).map(sorted)


def some_function(seed: int, p: int = 5) -> PiecewiseLinear:
    rng = np.random.default_rng(seed)
    return PiecewiseLinear(np.sort(rng.normal(size=p)), rng.random(p) * (rng.random(p) < 0.7), rng.random(p))


@pytest.mark.parametrize("seed", range(5))
def test_the_proximal_step_is_the_minimum(seed):
    rng, r = np.random.default_rng(100 + seed), some_function(seed)
    v, step = 3 * rng.normal(size=40), rng.uniform(0.01, 3, size=40)
    for w, at, size in zip(r.proximal(v, step), v, step, strict=True):

        def cost(x, at=at, size=size):
            return float(r(np.array([x]))[0]) + (x - at) ** 2 / (2 * size)

        assert cost(w) <= minimize_scalar(cost, bounds=(-20, 20), method="bounded").fun + 1e-7


def test_what_comes_to_lie_at_a_knot_is_exactly_the_knot():
    r = some_function(0)
    w = r.proximal(np.linspace(-3, 3, 2001), np.ones(2001))
    near = np.abs(w[:, None] - r.knots).min(axis=1) < 1e-9
    assert near.sum() > 20
    assert np.isin(w[near], r.knots).all()


def test_slopes_are_those_of_the_function():
    r = some_function(1)
    inside = np.concatenate([[r.knots[0] - 1], (r.knots[1:] + r.knots[:-1]) / 2, [r.knots[-1] + 1]])
    np.testing.assert_allclose((r(inside + 1e-6) - r(inside - 1e-6)) / 2e-6, r.slopes, atol=1e-8)


@given(knots=POSITIONS, seed=st.integers(0, 99))
def test_slopes_and_intercepts_of_the_bins_give_the_sum_of_hinges(knots, seed):
    """At the knots, between them, and beyond; the slopes are weights times the gradients of the hinges."""
    weights = np.random.default_rng(seed).random(2 * len(knots))
    r = PiecewiseLinear.from_weights(knots, weights)
    x = np.concatenate([r.knots, (r.knots[1:] + r.knots[:-1]) / 2, [r.knots[0] - 3, r.knots[-1] + 3]])
    at = bins_of(x, r.knots)
    scale = weights.sum() * (np.abs(x).max() + 1)
    np.testing.assert_allclose(r.intercepts[at] + r.bin_slopes[at] * (x - r.center), r(x), atol=1e-12 * scale)
    np.testing.assert_allclose(r.bin_slopes, weights @ hinge_matrix(len(knots)), atol=1e-12 * weights.sum())


@pytest.mark.parametrize(("knots", "center"), [([-1.0, 2.0], 0.0), ([1.0, 2.0, 3.0], 2.0), ([-3.0, -2.0, -1.0], -2.0)])
def test_the_center_is_0_among_the_knots_or_where_the_function_is_least(knots, center):
    weights = [0.0] * 2 * len(knots)
    weights[1] = weights[len(knots) + 1] = 1.0  # the distance to the second knot
    assert PiecewiseLinear.from_weights(knots, weights).center == center


def test_the_curve_has_its_least_value_at_0():
    knots, values = PiecewiseLinear.from_weights([1.0, 2.0, 4.0], [0.0, 1.0, 0.0, 0.0, 0.0, 2.0]).curve()
    assert (knots.tolist(), values.tolist()) == ([1.0, 2.0, 4.0], [4.0, 2.0, 0.0])


def test_points_reach_a_part_of_the_span_beyond_the_knots():
    x, values = PiecewiseLinear.from_weights([0.0, 2.0], [1.0, 0.0, 1.0, 0.0]).points(margin=0.5)
    assert (x.tolist(), values.tolist()) == ([-1.0, 0.0, 2.0, 3.0], [1.0, 0.0, 2.0, 3.0])


def test_a_multiple_has_multiples_of_the_values():
    r, x = some_function(2), np.linspace(-3, 3, 50)
    np.testing.assert_allclose(r.scaled(2.5)(x), 2.5 * r(x))


def test_it_needs_one_weight_per_side_and_increasing_knots():
    with pytest.raises(InvalidInput, match=r"must have one shape .* found \(2,\), \(3,\), \(2,\)"):
        PiecewiseLinear(np.array([0.0, 1.0]), np.ones(3), np.ones(2))
    with pytest.raises(InvalidInput, match="must have one shape"):
        PiecewiseLinear.from_weights([], [])
    for knots in ([0.0, 0.0], [1.0, 0.0], [0.0, np.nan], [0.0, np.inf]):
        with pytest.raises(InvalidInput, match="must be finite and increase"):
            PiecewiseLinear.from_weights(knots, np.ones(4))

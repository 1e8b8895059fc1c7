"""The convex regularizer: its proximal step and grams, against brute force."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from tuneloss.sklearn.piecewise import Regularizer, hinge_features, hinge_gram, quantile_knots


def some_regularizer(seed: int, p: int = 5) -> Regularizer:
    rng = np.random.default_rng(seed)
    return Regularizer(np.sort(rng.normal(size=p)), rng.random(p) * (rng.random(p) < 0.7), rng.random(p))


@pytest.mark.parametrize("seed", range(5))
def test_the_proximal_step_is_the_minimum(seed):
    rng, r = np.random.default_rng(100 + seed), some_regularizer(seed)
    v, step = 3 * rng.normal(size=40), rng.uniform(0.01, 3, size=40)
    for w, at, size in zip(r.proximal(v, step), v, step, strict=True):

        def cost(x, at=at, size=size):
            return float(r(np.array([x]))[0]) + (x - at) ** 2 / (2 * size)

        assert cost(w) <= minimize_scalar(cost, bounds=(-20, 20), method="bounded").fun + 1e-7


def test_what_comes_to_lie_at_a_knot_is_exactly_the_knot():
    r = some_regularizer(0)
    w = r.proximal(np.linspace(-3, 3, 2001), np.ones(2001))
    near = np.abs(w[:, None] - r.knots).min(axis=1) < 1e-9
    assert near.sum() > 20
    assert np.isin(w[near], r.knots).all()


def test_slopes_are_those_of_the_function():
    r = some_regularizer(1)
    inside = np.concatenate([[r.knots[0] - 1], (r.knots[1:] + r.knots[:-1]) / 2, [r.knots[-1] + 1]])
    np.testing.assert_allclose((r(inside + 1e-6) - r(inside - 1e-6)) / 2e-6, r.slopes, atol=1e-8)


def test_features_and_gram_are_those_of_the_jacobian():
    """Counted by bins, against an n x 2p jacobian; entries that equal a knot have slope 0 there."""
    rng = np.random.default_rng(0)
    knots = np.array([-1.0, 0.0, 0.5])
    w = rng.normal(size=(4, 6))
    w[0, :3] = knots
    metric, columns = rng.random(w.shape), rng.normal(size=(2, *w.shape))
    flat = w.ravel()[:, None]
    values = np.hstack([np.maximum(flat - knots, 0), np.maximum(knots - flat, 0)])
    np.testing.assert_allclose(hinge_features(w, knots), values.sum(axis=0))
    jacobian = np.hstack([(flat > knots) * 1.0, (flat < knots) * -1.0, columns.reshape(2, -1).T])
    np.testing.assert_allclose(hinge_gram(w, knots, metric, columns), (jacobian.T * metric.ravel()) @ jacobian)


def test_knots_are_different_and_hold_zero():
    knots = quantile_knots(np.repeat([1.0, 2.0], 50), 20)
    assert 0 in knots
    assert (np.diff(knots) > 0).all()

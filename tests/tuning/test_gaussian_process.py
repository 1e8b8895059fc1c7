"""A Gaussian process: its prediction and likelihood against scikit-learn's, expected improvement against draws."""

import numpy as np
import pytest

from tests.gp_reference import THETA, made_data, reference
from tuneloss.tuning import gaussian_process
from tuneloss.tuning.gaussian_process import JITTER, Posterior, expected_improvement, fit


@pytest.fixture(scope="module")
def data():
    return made_data()


def test_posterior_is_that_of_scikit_learn(data):
    x, y = data
    at = np.random.default_rng(1).random((50, 2))
    mean, variance = Posterior.of(x, y, THETA).mean_and_variance(at)
    expected, spread = reference(x, y, THETA).predict(at, return_std=True)
    np.testing.assert_allclose(mean, expected + THETA[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(variance, spread**2 - np.exp(THETA[2]) - JITTER, rtol=1e-6, atol=1e-8)


def test_the_likelihood_is_that_of_scikit_learn(data):
    """Up to the constant that does not depend on hyperparameters; its derivative by finite differences."""
    x, y = data
    squares = np.square(x[:, None] - x[None]).transpose(2, 0, 1)

    def value(parameters):
        return gaussian_process._negative_log_likelihood(parameters, squares, y)

    parameters = np.append(THETA[:3], np.log(THETA[3:]))
    constant = len(y) / 2 * np.log(2 * np.pi)
    assert value(parameters)[0] == pytest.approx(-reference(x, y, THETA).log_marginal_likelihood_value_ - constant)
    slopes = [(value(parameters + h)[0] - value(parameters - h)[0]) / 2e-6 for h in 1e-6 * np.eye(5)]
    np.testing.assert_allclose(value(parameters)[1], slopes, rtol=1e-5, atol=1e-6)


def test_a_fit_is_more_likely_than_its_neighbours(data):
    """The hyperparameters are a maximum of likelihood times prior: no small change of one of them is better."""
    x, y = 8 * data[0], data[1]
    squares = np.square(x[:, None] - x[None]).transpose(2, 0, 1)
    theta = fit(x, y).theta
    parameters = np.append(theta[:3], np.log(theta[3:]))
    middle = np.array([0.5, 0.0, -7.0, *np.full(2, np.log(4 * np.sqrt(2)))])
    spread = np.array([1.0, 0.7, 2.0, 0.7, 0.7])

    def density(p):
        return gaussian_process._negative_log_likelihood(p, squares, y)[0] + np.square((p - middle) / spread).sum() / 2

    for change in 0.05 * np.vstack([np.eye(5), -np.eye(5)]):
        assert density(parameters + change) > density(parameters) - 1e-6


def test_expected_improvement_is_a_mean_over_draws(data):
    """Against a Monte Carlo mean of max(best - f, 0), over two posteriors."""
    x, y = data
    posteriors = [Posterior.of(x, y, theta) for theta in (THETA, THETA + np.array([0, -0.3, 0.5, 0.2, -0.4]))]
    at = np.random.default_rng(4).random((20, 2))
    normal = np.random.default_rng(5).standard_normal((200_000, 1))
    expected = np.zeros(20)
    for posterior in posteriors:
        mean, variance = posterior.mean_and_variance(at)
        expected += np.maximum(y.min() - mean - np.sqrt(variance) * normal, 0).mean(axis=0) / 2
    np.testing.assert_allclose(expected_improvement(posteriors, float(y.min()), at), expected, atol=3e-3)

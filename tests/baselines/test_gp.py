"""Sampled hyperparameters of a Gaussian process: their density against scikit-learn's, the sampler against theory."""

import numpy as np
import pytest
from scipy import stats

from tests.gp_reference import THETA, made_data, reference
from tuneloss.baselines.gp import log_posterior, slice_sample


@pytest.fixture(scope="module")
def data():
    return made_data()


def test_density_is_the_marginal_likelihood_of_scikit_learn_times_priors(data):
    """Differences of log densities, since constants are left out."""
    x, y = data
    density = log_posterior(x, y)

    def expected(theta):
        noise = np.log(np.log1p((0.1 / np.exp(theta[2])) ** 2)) + theta[2]
        return reference(x, y, theta).log_marginal_likelihood_value_ + noise + stats.norm.logpdf(theta[1])

    other = np.array([-0.4, -0.5, -1.0, 1.7, 0.2])
    assert density(THETA) - density(other) == pytest.approx(expected(THETA) - expected(other), abs=1e-7)


@pytest.mark.parametrize("bad", [(0, 99.0), (0, -99.0), (3, 2.1), (4, 0.0), (4, -0.1)])
def test_density_is_zero_outside_of_the_priors(data, bad):
    theta = THETA.copy()
    theta[bad[0]] = bad[1]
    assert log_posterior(*data)(theta) == -np.inf


def test_slice_sampling_finds_a_skewed_and_correlated_density():
    """Quantiles of a gamma variable and of a correlated normal pair, by Kolmogorov-Smirnov on thinned chains."""
    rng = np.random.default_rng(2)
    gamma = slice_sample(lambda z: float(2 * np.log(z[0]) - z[0]) if z[0] > 0 else -np.inf, np.ones(1), 4000, rng)
    assert stats.kstest(gamma[100::8, 0], stats.gamma(3).cdf).pvalue > 1e-3
    precision = np.linalg.inv([[1.0, 0.7], [0.7, 1.0]])
    pair = slice_sample(lambda z: float(-0.5 * z @ precision @ z), np.zeros(2), 6000, rng)
    assert stats.kstest(pair[100::10, 0], stats.norm.cdf).pvalue > 1e-3
    assert np.corrcoef(pair[100:].T)[0, 1] == pytest.approx(0.7, abs=0.06)


def test_sampled_hyperparameters_have_the_moments_of_importance_sampling(data):
    """The posterior of all five hyperparameters, by 60,000 weighted draws from a wide proposal."""
    x, y = data
    density = log_posterior(x, y)
    rng = np.random.default_rng(3)
    chain = slice_sample(density, np.concatenate([[0.0, 0.0, -3.0], [0.5, 0.5]]), 3000, rng)[200:]
    center, spread = chain.mean(axis=0), 1.5 * np.cov(chain.T)
    proposal = stats.multivariate_t(center, spread, df=5, seed=rng)
    draws = proposal.rvs(60_000)
    logs = np.array([density(theta) for theta in draws]) - proposal.logpdf(draws)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    assert 1 / (weights**2).sum() > 2000  # effective draws
    mean = weights @ draws
    deviation = np.sqrt(weights @ (draws - mean) ** 2)
    np.testing.assert_allclose(chain.mean(axis=0), mean, atol=0.15 * deviation.max())
    np.testing.assert_allclose(chain.std(axis=0), deviation, rtol=0.2)

"""A Gaussian process whose hyperparameters are sampled, not fitted: the model of GP-EI-MCMC (Snoek et al., 2012).

The kernel is ARD Matern 5/2 on the unit cube. The hyperparameters have these priors: the constant mean is uniform over
the range of y; the log amplitude is standard normal; each length scale is uniform on (0, 2]; the noise variance v has a
prior like the horseshoe, with density log(1 + (0.1 / v)^2).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from tuneloss.tuning.gaussian_process import covariance
from tuneloss.types import Array

NOISE_SCALE = 0.1  # scale of the prior of the noise variance
LONGEST = 2.0  # upper end of the prior of a length scale
WIDTH = 1.0  # width of the first interval of a slice, and of each step by which the interval grows
MOST_STEPS = 20  # largest number of steps by which an interval grows
LARGEST_LOG_NOISE = 30  # bound of the absolute log of the noise variance, against overflow
NARROWEST = 1e-12  # width at which the interval of a slice stops shrinking


def log_posterior(x: Array, y: Array) -> Callable[[Array], float]:
    """Return the log density of theta given x (m, d) and y (m,), up to a constant, as a function."""
    differences = np.square(x[:, None] - x[None]).transpose(2, 0, 1)
    low, high = float(y.min()), float(y.max())

    def density(theta: Array) -> float:
        mean, log_amplitude, log_noise, ell = theta[0], theta[1], theta[2], theta[3:]
        if not (
            low <= mean <= high and (ell > 0).all() and (ell <= LONGEST).all() and abs(log_noise) < LARGEST_LOG_NOISE
        ):
            return -np.inf
        try:
            factor = cholesky(
                covariance(np.tensordot(ell**-2.0, differences, 1), theta), lower=True, check_finite=False
            )
        except (LinAlgError, ValueError):
            return -np.inf
        half = solve_triangular(factor, y - mean, lower=True, check_finite=False)
        likelihood = -0.5 * half @ half - np.log(np.diag(factor)).sum()
        prior = np.log(np.log1p((NOISE_SCALE / np.exp(log_noise)) ** 2)) + log_noise - 0.5 * log_amplitude**2
        return float(likelihood + prior)

    return density


def slice_sample(density: Callable[[Array], float], start: Array, sweeps: int, rng: np.random.Generator) -> Array:
    """Sample by a chain that updates each coordinate in turn by slice sampling (Neal, 2003).

    Parameters
    ----------
    density : callable
        The log density of a state, up to a constant.
    start : (n,) array
        The first state.
    sweeps : int
        Number of updates of all coordinates.
    rng : numpy.random.Generator

    Returns
    -------
    (sweeps, n) array
        The state after each sweep.

    Examples
    --------
    >>> chain = slice_sample(lambda z: float(-0.5 * z @ z), np.zeros(1), 2000, np.random.default_rng(0))
    >>> bool(abs(chain.mean()) < 0.1), bool(abs(chain.std() - 1) < 0.1)
    (True, True)
    """
    state, chain = start.copy(), np.empty((sweeps, len(start)))
    value = density(state)
    for row in chain:
        for j in rng.permutation(len(state)):
            value = _slice_update(density, state, value, int(j), rng)
        row[:] = state
    return chain


def _slice_update(
    density: Callable[[Array], float], state: Array, value: float, j: int, rng: np.random.Generator
) -> float:
    """Replace state[j], in place, by a point of the slice above a random height; return the density there."""
    height, old = value - rng.exponential(), state[j]

    def at(place: float) -> float:
        state[j] = place
        return density(state)

    left = old - WIDTH * rng.random()
    right = left + WIDTH
    steps = int(rng.integers(MOST_STEPS))
    for _ in range(steps):
        if at(left) <= height:
            break
        left -= WIDTH
    for _ in range(MOST_STEPS - 1 - steps):
        if at(right) <= height:
            break
        right += WIDTH
    while True:
        place = left + rng.random() * (right - left)
        value = at(place)
        if value > height or right - left < NARROWEST:
            return value if value > height else at(old)
        left, right = (place, right) if place < old else (left, place)

"""A Gaussian process whose hyperparameters are sampled, not fitted: the model of GP-EI-MCMC (Snoek et al., 2012).

ARD Matern 5/2 on the unit cube. Priors: constant mean uniform over the range of y; log amplitude standard normal; noise
variance horseshoe-like with scale 0.1, density log(1 + (0.1 / v)^2); length scales uniform on (0, 2].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.special import log_ndtr

from tuneloss.types import Array

JITTER = 1e-8
NOISE_SCALE = 0.1
LONGEST = 2.0
WIDTH = 1.0  # of the first interval of a slice
MOST_STEPS = 20  # by which it grows
SQRT5 = np.sqrt(5.0)


def matern52(squared: Array) -> Array:
    """The correlation at squared scaled distances.

    >>> float(matern52(np.zeros(1))[0])
    1.0
    """
    r = SQRT5 * np.sqrt(squared)
    return np.asarray((1 + r + r * r / 3) * np.exp(-r))


@dataclass(frozen=True)
class Posterior:
    """A Gaussian process with hyperparameters theta, conditioned on x (m, d) and y (m,).

    theta: (d + 3,): mean, log amplitude, log noise variance, length scales.
    """

    x: Array
    theta: Array
    factor: Array  # lower Cholesky factor of the covariance of y
    solved: Array  # covariance^-1 (y - mean)

    @classmethod
    def of(cls, x: Array, y: Array, theta: Array) -> Posterior:
        differences = np.square((x[:, None] - x[None]) / theta[3:]).sum(axis=2)
        factor = cholesky(_covariance(differences, theta), lower=True)
        return cls(x, theta, factor, cho_solve((factor, True), y - theta[0]))

    def mean_and_variance(self, at: Array) -> tuple[Array, Array]:
        """Of the noiseless function, at points (n, d)."""
        ell, variance = self.theta[3:], np.exp(2 * self.theta[1])
        a, b = at / ell, self.x / ell
        squared = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0)
        cross = variance * matern52(squared)
        half = solve_triangular(self.factor, cross.T, lower=True)
        return self.theta[0] + cross @ self.solved, np.maximum(variance - (half * half).sum(axis=0), 1e-12)


def log_posterior(x: Array, y: Array) -> Callable[[Array], float]:
    """The log density of theta given x (m, d) and y (m,), up to a constant; in log amplitude and log noise."""
    differences = np.square(x[:, None] - x[None]).transpose(2, 0, 1)
    low, high = float(y.min()), float(y.max())

    def density(theta: Array) -> float:
        mean, log_amplitude, log_noise, ell = theta[0], theta[1], theta[2], theta[3:]
        if not (low <= mean <= high and (ell > 0).all() and (ell <= LONGEST).all() and abs(log_noise) < 30):
            return -np.inf
        try:
            factor = cholesky(
                _covariance(np.tensordot(ell**-2.0, differences, 1), theta), lower=True, check_finite=False
            )
        except (LinAlgError, ValueError):
            return -np.inf
        half = solve_triangular(factor, y - mean, lower=True, check_finite=False)
        likelihood = -0.5 * half @ half - np.log(np.diag(factor)).sum()
        prior = np.log(np.log1p((NOISE_SCALE / np.exp(log_noise)) ** 2)) + log_noise - 0.5 * log_amplitude**2
        return float(likelihood + prior)

    return density


def slice_sample(density: Callable[[Array], float], start: Array, sweeps: int, rng: np.random.Generator) -> Array:
    """States (sweeps, n) of a chain that updates each coordinate in turn by slice sampling (Neal, 2003).

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
    """A new state[j], in place, from the slice above a random height; returns the density there."""
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
        found = at(place)
        if found > height or right - left < 1e-12:
            return found if found > height else at(old)
        left, right = (place, right) if place < old else (left, place)


def expected_improvement(posteriors: list[Posterior], best: float, at: Array) -> Array:
    """How far below `best` the function is expected to be, at points (n, d), as a mean over posteriors."""
    total = np.zeros(len(at))
    for posterior in posteriors:
        mean, variance = posterior.mean_and_variance(at)
        spread = np.sqrt(variance)
        z = (best - mean) / spread
        total += spread * (z * np.exp(log_ndtr(z)) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))
    return total / len(posteriors)


def _covariance(squared: Array, theta: Array) -> Array:
    covariance: Array = np.exp(2 * theta[1]) * matern52(squared)
    covariance.flat[:: len(covariance) + 1] += np.exp(theta[2]) + JITTER
    return covariance

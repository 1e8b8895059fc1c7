"""A Gaussian process with an ARD Matern 5/2 kernel: its prediction, expected improvement, and likely hyperparameters.

The hyperparameters are an array theta (d + 3,): mean, log amplitude, log noise variance, and d length scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import log_ndtr

from tuneloss.types import Array

JITTER = 1e-8  # added to the diagonal of a covariance, in units of standardised y
LEAST_VARIANCE = 1e-12  # least variance of a prediction
SQRT5 = math.sqrt(5.0)

# The prior of `fit`: each parameter is normal, for standardised y. Length scales and variances are in logarithms.
LENGTH, LENGTH_SPREAD = 4.0, 0.7  # the length is for one coordinate; it grows with the root of their number
AMPLITUDE_SPREAD = 0.7  # around 0
NOISE, NOISE_SPREAD = -7.0, 2.0
MEAN, MEAN_SPREAD = 0.5, 1.0
FIT_ITERATIONS = 40  # of L-BFGS-B


def matern52(squared: Array) -> Array:
    """Compute the Matern 5/2 correlation at squared scaled distances.

    Examples
    --------
    >>> float(matern52(np.zeros(1))[0])
    1.0
    """
    r = SQRT5 * np.sqrt(squared)
    return np.asarray((1 + r + r * r / 3) * np.exp(-r))


@dataclass(frozen=True)
class Posterior:
    """A Gaussian process with known hyperparameters, conditioned on data.

    Parameters
    ----------
    x : (m, d) array
        The points of the data.
    theta : (d + 3,) array
        Mean, log amplitude, log noise variance, length scales.
    factor : (m, m) array
        Lower Cholesky factor of the covariance of y.
    solved : (m,) array
        covariance^-1 (y - mean).
    """

    x: Array
    theta: Array
    factor: Array
    solved: Array

    @classmethod
    def of(cls, x: Array, y: Array, theta: Array) -> Posterior:
        """Condition on values y (m,) at x (m, d)."""
        differences = np.square((x[:, None] - x[None]) / theta[3:]).sum(axis=2)
        factor = cholesky(covariance(differences, theta), lower=True)
        return cls(x, theta, factor, cho_solve((factor, True), y - theta[0]))

    def mean_and_variance(self, at: Array) -> tuple[Array, Array]:
        """Return mean and variance of the noiseless function at points (n, d), as two (n,) arrays."""
        ell, variance = self.theta[3:], np.exp(2 * self.theta[1])
        a, b = at / ell, self.x / ell
        squared = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0)
        cross = variance * matern52(squared)
        half = solve_triangular(self.factor, cross.T, lower=True)
        return self.theta[0] + cross @ self.solved, np.maximum(variance - (half * half).sum(axis=0), LEAST_VARIANCE)


def expected_improvement(posteriors: list[Posterior], best: float, at: Array) -> Array:
    """Return the expected improvement over `best` at points (n, d), as a mean over posteriors: (n,)."""
    total = np.zeros(len(at))
    for posterior in posteriors:
        mean, variance = posterior.mean_and_variance(at)
        spread = np.sqrt(variance)
        z = (best - mean) / spread
        total += spread * (z * np.exp(log_ndtr(z)) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))
    return total / len(posteriors)


def covariance(squared: Array, theta: Array) -> Array:
    """Return the covariance of y at squared scaled distances (m, m)."""
    covariance: Array = np.exp(2 * theta[1]) * matern52(squared)
    covariance.flat[:: len(covariance) + 1] += np.exp(theta[2]) + JITTER
    return covariance


def fit(x: Array, y: Array) -> Posterior:
    """Return the process with the most likely hyperparameters, given standardised values y (m,) at x (m, d).

    The coordinates of x are logarithms of weights: the prior of a length scale is around 4, a factor of 50 in weights.
    """
    d = x.shape[1]
    middle = np.array([MEAN, 0.0, NOISE, *np.full(d, math.log(LENGTH * math.sqrt(d)))])
    spread = np.array([MEAN_SPREAD, AMPLITUDE_SPREAD, NOISE_SPREAD, *np.full(d, LENGTH_SPREAD)])
    squares = np.square(x[:, None] - x[None]).transpose(2, 0, 1)

    def negative_log_density(parameters: Array) -> tuple[float, Array]:
        off = (parameters - middle) / spread
        value, slope = _negative_log_likelihood(parameters, squares, y)
        return value + 0.5 * float(off @ off), slope + off / spread

    bounds = np.column_stack([middle - 3 * spread, middle + 3 * spread])
    found = minimize(
        negative_log_density,
        middle,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": FIT_ITERATIONS},
    )
    return Posterior.of(x, y, np.append(found.x[:3], np.exp(found.x[3:])))


def _negative_log_likelihood(parameters: Array, squares: Array, y: Array) -> tuple[float, Array]:
    """Return minus the log likelihood and its derivative; parameters are theta with logarithms of length scales."""
    inverse = np.exp(-2 * parameters[3:])
    squared = np.tensordot(inverse, squares, 1)
    theta = np.append(parameters[:3], np.exp(parameters[3:]))
    whole = covariance(squared, theta)
    try:
        factor = cholesky(whole, lower=True, check_finite=False)
    except LinAlgError:
        return 1e10, np.zeros_like(parameters)
    off = y - theta[0]
    solved = cho_solve((factor, True), off, check_finite=False)
    gap = cho_solve((factor, True), np.eye(len(y)), check_finite=False) - np.outer(solved, solved)
    amplitude, noise, r = np.exp(2 * theta[1]), np.exp(theta[2]), SQRT5 * np.sqrt(squared)
    by_length = 0.5 * gap * amplitude * (5 / 3) * (1 + r) * np.exp(-r)  # d kernel / d log length = this * square / l^2
    slope = [-solved.sum(), (gap * amplitude * matern52(squared)).sum(), 0.5 * noise * np.trace(gap)]
    slope += [float((by_length * square).sum() * scale) for square, scale in zip(squares, inverse, strict=True)]
    return float(0.5 * off @ solved + np.log(np.diag(factor)).sum()), np.array(slope)
